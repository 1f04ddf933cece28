//! Parameters of a driver, its counters, and its errors.

use super::SourceError;
use super::client::Client;
use super::oracle::WrongRead;
use crate::workload::Access;
use flagstone::units::Nanos;
use flagstone_host::{HostError, Why};
use std::collections::BTreeMap;
use thiserror::Error;

/// Attempts after which a transaction is given up: some resource is too small for it.
pub(super) const ATTEMPTS: u32 = 1_000;

/// Why a run stopped.
#[derive(Debug, Error)]
pub enum DriverError {
    /// The database or the device refused or cannot continue.
    #[error("at {at}: {error}")]
    Host {
        /// The instant.
        at: Nanos,
        /// The cause.
        error: HostError,
    },
    /// The source has no further transaction.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A read returned wrong data.
    #[error("at {at}: {wrong}")]
    WrongRead {
        /// The instant.
        at: Nanos,
        /// The read and its expected result.
        wrong: WrongRead,
    },
    /// A transaction was aborted too often.
    #[error(
        "at {at}: a transaction that writes {pages} pages was aborted {ATTEMPTS} times ({}): use \
         more frames or log pages, fewer clients or a longer back-off",
        why.name()
    )]
    Starved {
        /// The instant.
        at: Nanos,
        /// Number of distinct pages that the transaction writes.
        pages: usize,
        /// Cause of the last abort.
        why: Why,
    },
    /// Waiting transactions will never be woken.
    #[error("at {at}: {waiting} transactions wait and nothing is due: the database lost a wake-up")]
    Stuck {
        /// The instant.
        at: Nanos,
        /// The number of waiting transactions.
        waiting: usize,
    },
}

/// The result of a driver's call.
pub type Driven<T> = Result<T, DriverError>;

/// Parameters of a driver.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Clients of a closed loop.
    pub clients: u32,
    /// Open loop: transactions arrive as in the recording, with times divided by this.
    pub speedup: Option<f64>,
    /// Fraction of transactions that roll back instead of committing: \[FlagCommit] §5.2 simulates
    /// the commit and rollback commands of its traces.
    pub abort_ratio: f64,
    /// Mean delay before a victim restarts; uniformly distributed from zero to twice this.
    pub back_off: Nanos,
    /// Seed of rollbacks and back-off.
    pub seed: u64,
    /// Whether every read is compared with the committed data.
    pub check: bool,
}

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// Until this many transactions have ended.
    Transactions(u64),
    /// For this span of virtual time.
    Time(Nanos),
}

/// Counters of a part of a run. A transaction belongs to the part in which it ends.
#[derive(Debug, Clone, Default)]
pub struct Counted {
    /// Start and end of the part.
    pub from: Nanos,
    /// See `from`.
    pub to: Nanos,
    /// Transactions that committed.
    pub committed: u64,
    /// Transactions rolled back as requested.
    pub rolled_back: u64,
    /// Attempts that were aborted and restarted, by cause.
    pub restarts: BTreeMap<Why, u64>,
    /// Requests that had to wait.
    pub waits: u64,
    /// Of committed transactions: time from the begin of the first attempt, or the arrival, to the
    /// end.
    pub response_ns: Vec<u64>,
    /// For each committed transaction: whether it only read, and when it ended.
    pub only_read: Vec<bool>,
    /// See `only_read`.
    pub ended_at: Vec<u64>,
    /// Part of the response time: waits for locks and device slots, in all attempts.
    pub isolation_wait_ns: Vec<u64>,
    /// Time from the begin of the committed attempt to the end.
    pub attempt_ns: Vec<u64>,
    /// Time from the commit request to the end, without waits for a device slot.
    pub commit_ns: Vec<u64>,
    /// Accesses that were served.
    pub accesses: u64,
    /// Maximum size of each structure in memory.
    pub memory: Vec<(&'static str, u64)>,
}

impl Counted {
    /// Response times of committed transactions that only read, or of the others.
    pub fn response_of(&self, readers: bool) -> Vec<u64> {
        let each = self.response_ns.iter().zip(&self.only_read);
        each.filter(|&(_, &only_read)| only_read == readers)
            .map(|(&ns, _)| ns)
            .collect()
    }

    /// Number of commits in each of `parts` parts of equal length.
    pub fn committed_in(&self, parts: usize) -> Vec<u64> {
        let mut counts = vec![0; parts];
        let length = self.to.since(self.from).0.max(1);
        for &at in &self.ended_at {
            let part = u128::from(at.saturating_sub(self.from.0)) * parts as u128;
            counts[((part / u128::from(length)) as usize).min(parts - 1)] += 1;
        }
        counts
    }

    /// Records the end of a client's transaction.
    pub(super) fn ended(&mut self, client: &Client, now: Nanos, committed: bool) {
        if !committed {
            self.rolled_back += 1;
            return;
        }
        let asked = client.commit_asked.expect("it asked to commit");
        let commit = now.since(asked).since(client.waited_in_commit);
        self.committed += 1;
        let mut changes = client.transaction.accesses.iter().rev();
        self.only_read.push(!changes.any(Access::writes));
        self.ended_at.push(now.0);
        self.response_ns.push(now.since(client.asked).0);
        self.isolation_wait_ns.push(client.waited.0);
        self.attempt_ns.push(now.since(client.attempted).0);
        self.commit_ns.push(commit.0);
    }

    /// Updates the maximum sizes of structures in memory.
    pub(super) fn remember(&mut self, sizes: Vec<(&'static str, u64)>) {
        for (name, bytes) in sizes {
            match self.memory.iter_mut().find(|(known, _)| *known == name) {
                Some((_, most)) => *most = bytes.max(*most),
                None => self.memory.push((name, bytes)),
            }
        }
    }
}
