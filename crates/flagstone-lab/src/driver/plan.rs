//! What is asked of a driver, what it counts, and why it may stop.

use super::client::Client;
use super::oracle::WrongRead;
use crate::tpcc::pages::{Access, PagesError};
use flagstone::host::{HostError, Why};
use flagstone::units::Nanos;
use std::collections::BTreeMap;
use thiserror::Error;

/// Attempts after which a transaction is given up: something is too small for it.
pub(super) const ATTEMPTS: u32 = 1_000;

/// Why a run stopped.
#[derive(Debug, Error)]
pub enum DriverError {
    /// The database, or the device, refused or could not go on.
    #[error("at {at}: {error}")]
    Host {
        /// When.
        at: Nanos,
        /// Why.
        error: HostError,
    },
    /// There is no further transaction.
    #[error(transparent)]
    Source(#[from] PagesError),
    /// A read found what it should not.
    #[error("at {at}: {wrong}")]
    WrongRead {
        /// When.
        at: Nanos,
        /// What.
        wrong: WrongRead,
    },
    /// A transaction was a victim again and again.
    #[error(
        "at {at}: a transaction that writes {pages} pages was aborted {ATTEMPTS} times ({}): use \
         more frames or log pages, fewer clients or a longer back-off",
        why.name()
    )]
    Starved {
        /// When.
        at: Nanos,
        /// Distinct pages that it writes.
        pages: usize,
        /// The last time.
        why: Why,
    },
    /// Transactions wait that will never be woken.
    #[error("at {at}: {waiting} transactions wait and nothing is due: the database lost a wake-up")]
    Stuck {
        /// When.
        at: Nanos,
        /// How many.
        waiting: usize,
    },
}

/// What a driver's call gives.
pub type Driven<T> = Result<T, DriverError>;

/// How transactions are driven.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Clients of a closed loop.
    pub clients: u32,
    /// Open loop: transactions arrive as in the recording, its times divided by this.
    pub speedup: Option<f64>,
    /// Share of the transactions that ask for a rollback where they would commit: \[FlagCommit]
    /// §5.2 simulates the commit and rollback commands of its traces.
    pub abort_ratio: f64,
    /// The mean of the time after which a victim starts again; it is uniform from nothing to twice
    /// this.
    pub back_off: Nanos,
    /// Seed of rollbacks and back-off.
    pub seed: u64,
    /// Whether every read is held against what was committed.
    pub check: bool,
}

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// Until so many transactions have ended.
    Transactions(u64),
    /// For so long in virtual time.
    Time(Nanos),
}

/// What was counted in a part of a run. Transactions belong to the part in which they end.
#[derive(Debug, Clone, Default)]
pub struct Counted {
    /// When it began, and when it ended.
    pub from: Nanos,
    /// See `from`.
    pub to: Nanos,
    /// Transactions that committed.
    pub committed: u64,
    /// Transactions that asked for a rollback and got it.
    pub rolled_back: u64,
    /// Attempts that were aborted to be started again, by cause.
    pub restarts: BTreeMap<Why, u64>,
    /// Requests that had to wait.
    pub waits: u64,
    /// Of committed transactions: from the begin of the first attempt, or the arrival, to the end.
    pub response_ns: Vec<u64>,
    /// Whether each of them only read, and when it ended.
    pub only_read: Vec<bool>,
    /// See `only_read`.
    pub ended_at: Vec<u64>,
    /// Of this, waits for locks and for a place among the transactions of the device, in all
    /// attempts.
    pub isolation_wait_ns: Vec<u64>,
    /// From the begin of the attempt that committed to the end.
    pub attempt_ns: Vec<u64>,
    /// From the request to commit to the end, a wait for a place left out.
    pub commit_ns: Vec<u64>,
    /// Accesses that were served.
    pub accesses: u64,
    /// The most that each structure in memory took.
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

    /// How many transactions committed in each of so many parts of equal length.
    pub fn committed_in(&self, parts: usize) -> Vec<u64> {
        let mut counts = vec![0; parts];
        let length = self.to.since(self.from).0.max(1);
        for &at in &self.ended_at {
            let part = u128::from(at.saturating_sub(self.from.0)) * parts as u128;
            counts[((part / u128::from(length)) as usize).min(parts - 1)] += 1;
        }
        counts
    }

    /// A client's transaction has ended.
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

    /// Structures in memory have these sizes now.
    pub(super) fn remember(&mut self, sizes: Vec<(&'static str, u64)>) {
        for (name, bytes) in sizes {
            match self.memory.iter_mut().find(|(known, _)| *known == name) {
                Some((_, most)) => *most = bytes.max(*most),
                None => self.memory.push((name, bytes)),
            }
        }
    }
}
