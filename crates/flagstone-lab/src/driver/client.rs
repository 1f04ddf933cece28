//! One client: what it is doing, and since when.

use crate::tpcc::pages::{Access, Transaction, Verb};
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
    /// Index of the next access.
    pub(super) step: usize,
    /// When those of the reads that it makes together are done that were made so far.
    pub(super) read_until: Nanos,
    /// Since when it waits for its transaction: the end of its last one, or the arrival.
    pub(super) asked: Nanos,
    pub(super) attempted: Nanos,
    pub(super) commit_asked: Option<Nanos>,
    /// Since when it waits, for a lock, a place or a group.
    pub(super) waits_since: Option<Nanos>,
    /// How long this transaction has waited to begin, and for locks and places in all attempts.
    pub(super) waited: Nanos,
    /// How much of that since this attempt asked to commit.
    pub(super) waited_in_commit: Nanos,
    /// Attempts of this transaction that were aborted.
    pub(super) restarts: u32,
    /// Counts what makes an event in the heap invalid.
    pub(super) epoch: u32,
}

impl Client {
    /// When it goes on after an access that is done at an instant, if it makes reads together:
    /// the next one at once, and what follows them when all are done.
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

    /// If it waited for a lock or a place, it does so no longer.
    pub(super) fn has_waited(&mut self, now: Nanos) {
        let since = self.waits_since.take();
        let waited = since.map_or(Nanos::ZERO, |since| now.since(since));
        self.waited += waited;
        if self.commit_asked.is_some() {
            self.waited_in_commit += waited;
        }
    }

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
