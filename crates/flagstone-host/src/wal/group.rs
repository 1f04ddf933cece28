//! Group commit: a commit may wait briefly for others, so that one log force serves several.
//!
//! The group is written at once if waiting gains nothing: when its records fill a log page, when no
//! other transaction is running, or when the log is forced for another reason. At the latest it is
//! written when its first member has waited for the maximum time. Until then its members hold their
//! locks, and can be neither acknowledged nor rolled back. A checkpoint writes the group first: a
//! transaction whose commit record is older than the checkpoint must not be in its table of live
//! transactions.

use super::super::config::Mistake;
use super::super::log::{Log, Lsn};
use super::super::tools::{Phase, Tools};
use super::{HostError, Wal};
use flagstone::units::{Nanos, TxId};

/// Commits that have been logged.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Maximum wait of the first member.
    wait: Nanos,
    /// Transactions whose commit records are not durable yet, with their LSNs.
    members: Vec<(TxId, Lsn)>,
    /// When the first member's wait is over.
    deadline: Option<Nanos>,
    /// Transactions whose commit records are durable, with the instant, until a call takes them.
    told: Vec<(TxId, Nanos)>,
}

impl Group {
    pub(super) fn new(wait: Nanos) -> Group {
        Group {
            wait,
            ..Group::default()
        }
    }

    /// Whether commits wait for each other.
    pub(super) fn waits(&self) -> bool {
        !self.members.is_empty()
    }

    /// Whether the commit record of a transaction is logged and not known to be durable.
    pub(super) fn has(&self, tx: TxId) -> bool {
        self.members.iter().any(|&(member, _)| member == tx)
    }

    /// Adds a transaction whose commit record has the LSN `lsn`.
    pub(super) fn join(&mut self, tx: TxId, lsn: Lsn) {
        self.members.push((tx, lsn));
    }

    /// Lets the group wait from `now` on, unless it waits already.
    pub(super) fn wait_from(&mut self, now: Nanos) {
        self.deadline.get_or_insert(now + self.wait);
    }

    /// Closes the group, if there is one. Returns the end of its records in the log.
    pub(super) fn close(&mut self) -> Option<Lsn> {
        self.deadline = None;
        self.members.last().map(|&(_, last)| last + 1)
    }

    /// Marks the group as durable. Returns its members, and the LSNs of their commit records.
    pub(super) fn tell(&mut self, done: Nanos) -> Vec<(TxId, Lsn)> {
        let members = std::mem::take(&mut self.members);
        for &(tx, _) in &members {
            self.told.push((tx, done));
        }
        members
    }

    /// When the last member is durable. That member is then not reported.
    pub(super) fn told_last(&mut self) -> Nanos {
        self.told.pop().expect("it was the last").1
    }

    pub(super) fn told(&mut self) -> Vec<(TxId, Nanos)> {
        std::mem::take(&mut self.told)
    }

    /// When the group must be written, or its members be reported.
    pub(super) fn deadline(&self, log: &Log) -> Option<Nanos> {
        let last = self.members.last();
        let forced = last.is_some_and(|&(_, last)| log.is_forced(last));
        if forced || !self.told.is_empty() {
            return Some(Nanos::ZERO);
        }
        self.deadline
    }

    pub(super) fn memory(&self) -> u64 {
        let members = self.members.capacity() * size_of::<(TxId, Lsn)>();
        (members + self.told.capacity() * size_of::<(TxId, Nanos)>()) as u64
    }
}

impl Wal {
    /// Whether a commit may wait for others: another transaction runs, and no log page is full.
    pub(super) fn may_wait(&self, tools: &Tools, tx: TxId) -> bool {
        let runs = |(other, phase): (&TxId, &Phase)| {
            *other != tx && *phase == Phase::Live && tools.locks.awaited(*other).is_none()
        };
        self.group.wait > Nanos::ZERO && !self.log.fills_page() && tools.txs.iter().any(runs)
    }

    /// Makes the waiting group of commits durable, and ends their transactions.
    pub(super) fn write_group(&mut self, tools: &Tools, now: Nanos) -> Result<(), HostError> {
        let Some(to) = self.group.close() else {
            return Ok(());
        };
        let mut done = now;
        if !tools.has(Mistake::EarlyAcknowledgement) {
            done = self.log.force(&mut self.pages, now, to)?;
        }
        for (tx, lsn) in self.group.tell(done) {
            self.end(tx, lsn)?;
        }
        Ok(())
    }
}
