//! The state of one client.

use crate::workload::{Access, Transaction, Verb};
use flagstone::units::{Nanos, TxId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    Runs,
    Waits,
    Grouped,
    Ends { committed: bool },
    BacksOff,
}

pub(super) struct Client {
    pub(super) state: State,
    pub(super) transaction: Transaction,
    pub(super) tx: TxId,
    /// Index of the client's next access.
    pub(super) step: usize,
    /// When all parallel reads of the client so far are done.
    pub(super) read_until: Nanos,
    /// When the client began to wait for its transaction: the end of its previous one, or the
    /// arrival.
    pub(super) asked: Nanos,
    pub(super) attempted: Nanos,
    pub(super) commit_asked: Option<Nanos>,
    /// When the client's current wait began, for a lock, a device slot or a group.
    pub(super) waits_since: Option<Nanos>,
    /// Total wait of this transaction: to begin, and for locks and slots in all attempts.
    pub(super) waited: Nanos,
    /// Part of that wait since this attempt requested its commit.
    pub(super) waited_in_commit: Nanos,
    /// Number of aborted attempts of the transaction.
    pub(super) restarts: u32,
    /// Incremented to invalidate the client's events in the heap.
    pub(super) epoch: u32,
}

impl Client {
    /// When the client continues after an access that is done at `done`: the next parallel read is
    /// issued at once; other requests follow when all parallel reads are done.
    pub(super) fn goes_on(&mut self, now: Nanos, done: Nanos) -> Nanos {
        let reads = |step| {
            let access: Option<&Access> = self.transaction.accesses.get(step);
            access.is_some_and(|access| access.verb == Verb::Read)
        };
        if !reads(self.step) {
            return done;
        }
        let more = reads(self.step + 1);
        self.read_until = done.max(self.read_until);
        if more {
            now
        } else {
            std::mem::take(&mut self.read_until)
        }
    }

    /// Ends the client's wait for a lock or slot, if there is one.
    pub(super) fn has_waited(&mut self, now: Nanos) {
        let since = self.waits_since.take();
        let waited = since.map_or(Nanos::ZERO, |since| now.since(since));
        self.waited += waited;
        if self.commit_asked.is_some() {
            self.waited_in_commit += waited;
        }
    }

    /// A client that has no transaction yet.
    pub(super) fn idle() -> Client {
        Client {
            state: State::Idle,
            transaction: Transaction::default(),
            tx: TxId(0),
            step: 0,
            read_until: Nanos::ZERO,
            asked: Nanos::ZERO,
            attempted: Nanos::ZERO,
            commit_asked: None,
            waits_since: None,
            waited: Nanos::ZERO,
            waited_in_commit: Nanos::ZERO,
            restarts: 0,
            epoch: 0,
        }
    }
}
