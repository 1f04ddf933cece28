//! Group commit: a commit may wait a little for others, so that the log is forced once for several.
//!
//! The group is written at once where waiting gains nothing: when its records fill a log page, when
//! no other transaction is running, or when something else forces the log; and at the latest when
//! its first member has waited as long as it may. Until then its members hold their locks, and are
//! neither committed nor to be rolled back. A checkpoint writes the group first: a transaction
//! whose commit record is older than the checkpoint must not be in its table of live ones.

use super::super::config::Sabotage;
use super::super::engine::{Engine, Phase};
use super::super::log::{Entry, Lsn, What};
use super::super::{HostError, Step};
use super::Wal;
use crate::units::{Nanos, TxId};

/// Commits that have been logged.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// How long the first may wait for others.
    wait: Nanos,
    /// Those whose records are not durable yet, and where these are.
    members: Vec<(TxId, Lsn)>,
    /// When the first has waited long enough.
    deadline: Option<Nanos>,
    /// Those whose records are, and from when, until somebody asks.
    told: Vec<(TxId, Nanos)>,
}

impl Group {
    pub(super) fn new(wait: Nanos) -> Group {
        Group {
            wait,
            ..Group::default()
        }
    }

    pub(super) fn memory(&self) -> u64 {
        let members = self.members.capacity() * size_of::<(TxId, Lsn)>();
        (members + self.told.capacity() * size_of::<(TxId, Nanos)>()) as u64
    }
}

impl Wal {
    /// The commit record of a transaction is in the log, at this LSN: writes it, or lets it wait.
    pub(super) fn join_group(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        tx: TxId,
        lsn: Lsn,
    ) -> Result<Step<()>, HostError> {
        self.group.members.push((tx, lsn));
        let runs = |(other, phase): (&TxId, &Phase)| {
            *other != tx && *phase == Phase::Live && engine.locks.awaited(*other).is_none()
        };
        let waits = self.group.wait > Nanos::ZERO && !self.log.fills_page();
        if waits && engine.txs.iter().any(runs) {
            let latest = now + self.group.wait;
            self.group.deadline.get_or_insert(latest);
            engine.txs.insert(tx, Phase::Committing);
            return Ok(Step::Waits);
        }
        self.write_group(now)?;
        let own = self.group.told.pop().expect("it was the last");
        Ok(Step::Done((), own.1))
    }

    /// Makes the commits that wait durable, and ends their transactions.
    pub(super) fn write_group(&mut self, now: Nanos) -> Result<(), HostError> {
        self.group.deadline = None;
        let Some(&(_, last)) = self.group.members.last() else {
            return Ok(());
        };
        let mut done = now;
        if self.sabotage != Some(Sabotage::EarlyAcknowledgement) {
            done = self.log.force(&mut self.device, now, last + 1)?;
        }
        for (tx, lsn) in std::mem::take(&mut self.group.members) {
            self.log.append(&Entry::mark(What::End, tx, lsn, &[]))?;
            self.forget(tx);
            self.group.told.push((tx, done));
        }
        Ok(())
    }

    /// Writes the group if its time is up or nobody else comes. Gives the commits that are over.
    pub(super) fn settle_group(
        &mut self,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, HostError> {
        if flush || self.group_deadline().is_some_and(|due| due <= now) {
            self.write_group(now)?;
        }
        Ok(std::mem::take(&mut self.group.told))
    }

    /// When the group has to be written, or asked for.
    pub(super) fn group_deadline(&self) -> Option<Nanos> {
        let last = self.group.members.last();
        let forced = last.is_some_and(|&(_, last)| self.log.is_forced(last));
        if forced || !self.group.told.is_empty() {
            return Some(Nanos::ZERO);
        }
        self.group.deadline
    }
}
