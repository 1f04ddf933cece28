//! Conditions that the collector must wait for: commits that are acknowledged in the future, and
//! erases.
//!
//! Most conditions of a collection were fulfilled long ago. So records are kept in the order in
//! which they arrive, which costs almost nothing. They are searched only by a collection that
//! begins before the end of one of them.

use crate::units::{Nanos, Pbn, TxId};
use std::collections::VecDeque;

/// Maximum number of commits, and of erases, that are stored individually.
const COMMITS: usize = 4096;
const ERASES: usize = 64;

/// Instants before which later steps must not happen. Steps are not ordered by their instants, so a
/// passed instant is not dropped; a floor replaces the oldest ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Waits {
    /// Commits up to here are not stored individually. Everything waits for this instant.
    floor: Nanos,
    /// The latest end of any commit.
    acked: Nanos,
    /// Transactions that are committed in memory, by identifier, with the time at which each commit
    /// is durable.
    acks: Vec<(TxId, Nanos)>,
    /// By block: the latest time at which a commit that made pages of the block obsolete is
    /// durable.
    obsolete: Vec<Nanos>,
    /// Erases in flight, oldest first.
    erases: VecDeque<Erase>,
}

/// An erase: when it is done, and the transactions with pages in the block, possibly repeated.
#[derive(Debug, Clone)]
struct Erase {
    done: Nanos,
    xids: Vec<TxId>,
}

impl Waits {
    /// Records a commit that will be durable at `ack` and made pages of these blocks obsolete.
    pub(super) fn commit(&mut self, tx: TxId, ack: Nanos, blocks: impl Iterator<Item = Pbn>) {
        self.acked = ack.max(self.acked);
        // `acks` ascends by transaction. The place is usually the end.
        let place = self.acks.iter().rposition(|entry| entry.0 < tx);
        self.acks
            .insert(place.map_or(0, |place| place + 1), (tx, ack));
        for block in blocks {
            if self.obsolete.len() <= block.index() {
                self.obsolete.resize(block.index() + 1, Nanos::ZERO);
            }
            let ends = &mut self.obsolete[block.index()];
            *ends = ack.max(*ends);
        }
        if self.acks.len() > COMMITS {
            let mut ends: Vec<Nanos> = self.acks.iter().map(|entry| entry.1).collect();
            self.raise(*ends.select_nth_unstable(COMMITS / 2).1);
        }
    }

    /// Makes everything wait for `floor`, and drops the commits and erases that are done by then.
    fn raise(&mut self, floor: Nanos) {
        self.floor = floor.max(self.floor);
        self.acks.retain(|entry| entry.1 > floor);
        self.erases.retain(|erase| erase.done > floor);
    }

    /// When a transaction's commit is durable. Before, its pages are not copied as committed.
    pub(super) fn ack_of(&self, tx: TxId) -> Nanos {
        let place = self.acks.binary_search_by_key(&tx, |entry| entry.0);
        place.map_or(self.floor, |place| self.acks[place].1)
    }

    /// When the commits of these transactions are durable. Not later than `now` if all are.
    pub(super) fn acks_of(&self, now: Nanos, xids: impl Iterator<Item = TxId>) -> Nanos {
        let all = self.acked.max(self.floor);
        if all <= now {
            return all;
        }
        xids.map(|xid| self.ack_of(xid)).max().unwrap_or_default()
    }

    /// Records the erase of a block with pages of these transactions; it will be done at `done`.
    pub(super) fn erase(&mut self, done: Nanos, xids: impl Iterator<Item = TxId>) {
        let xids = xids.collect();
        self.erases.push_back(Erase { done, xids });
        if self.erases.len() > ERASES {
            let mut ends: Vec<Nanos> = self.erases.iter().map(|erase| erase.done).collect();
            self.raise(*ends.select_nth_unstable(ERASES / 2).1);
        }
    }

    /// When the erase of a block may be issued, at `now` or later: after the commits that made its
    /// pages obsolete, and after the erases in flight of other pages of the same transactions. If
    /// an erase does not land, its page must find the chain above it unbroken.
    pub(super) fn before_erase(
        &self,
        now: Nanos,
        victim: Pbn,
        xids: impl Iterator<Item = TxId>,
    ) -> Nanos {
        let commits = self.obsolete.get(victim.index()).copied();
        let mut until = commits.unwrap_or_default().max(self.floor);
        let mut here = Vec::new();
        let mut xids = Some(xids);
        for erase in &self.erases {
            // An erase that is done by then needs no check.
            let ahead = erase.done > now;
            if let Some(xids) = xids.take_if(|_| ahead) {
                here.extend(xids);
                here.sort_unstable();
            }
            let shared = |xid: &TxId| here.binary_search(xid).is_ok();
            if erase.done > until && (!ahead || erase.xids.iter().any(shared)) {
                until = erase.done;
            }
        }
        until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xids<const N: usize>(all: [u64; N]) -> impl Iterator<Item = TxId> {
        all.into_iter().map(TxId)
    }

    #[test]
    fn a_collection_waits_for_the_commits_of_its_pages_that_lie_ahead() {
        let mut waits = Waits::default();
        for (tx, ack) in [(5, 50), (3, 90), (4, 10)] {
            waits.commit(TxId(tx), Nanos(ack), std::iter::empty());
        }
        assert_eq!(waits.acks_of(Nanos(0), xids([3, 4])), Nanos(90));
        assert_eq!(waits.acks_of(Nanos(0), xids([4, 5, 6])), Nanos(50));
        assert_eq!(waits.acks_of(Nanos(0), xids([6])), Nanos(0));
        assert!(waits.acks_of(Nanos(90), xids([6])) <= Nanos(90));
        // The older half is dropped if there are too many, and everything waits for it.
        for tx in 10..10 + COMMITS as u64 {
            waits.commit(TxId(tx), Nanos(1_000 + tx), std::iter::empty());
        }
        assert_eq!(waits.ack_of(TxId(3)), waits.floor);
        assert!(waits.floor > Nanos(2_000) && waits.acks.len() <= COMMITS / 2 + 3);
        let last = 9 + COMMITS as u64;
        assert_eq!(waits.ack_of(TxId(last)), Nanos(1_000 + last));
    }

    #[test]
    fn an_erase_waits_for_those_of_the_same_transactions_and_for_commits_over_its_block() {
        let mut waits = Waits::default();
        waits.commit(TxId(9), Nanos(40), [Pbn(7)].into_iter());
        waits.erase(Nanos(100), xids([2, 1, 2]));
        waits.erase(Nanos(200), xids([5]));
        let before = |block, now, all| waits.before_erase(Nanos(now), Pbn(block), xids([all]));
        assert_eq!(before(0, 0, 2), Nanos(100));
        assert_eq!(before(0, 0, 5), Nanos(200));
        assert_eq!(before(7, 0, 6), Nanos(40));
        assert_eq!(before(8, 0, 6), Nanos(0));
        assert!(before(8, 100, 6) <= Nanos(100));
    }
}
