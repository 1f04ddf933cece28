//! When transactions begin. A database admits all of them and lets their requests wait. A page
//! device has no locks, so isolation is ensured before a transaction begins.

use crate::workload::{Access, Transaction};
use flagstone::commit::Isolation;
use flagstone::units::Nanos;
use rustc_hash::FxHashSet;

/// When transactions begin.
///
/// A database must be called in the order of instants. A page device takes each request at the
/// instant that it names, and planes queue requests in call order. So the next transaction can be
/// scheduled as soon as the end of the previous one is known.
#[derive(Debug, Clone)]
pub enum Admission {
    /// Each client begins its next transaction when its last one ends.
    Free,
    /// In source order, as soon as the admission time is known. The client that has waited longest
    /// executes the next transaction.
    Isolated {
        /// How far transactions overlap. [`Isolation::Strict`]: one at a time.
        /// [`Isolation::NoPageConflict`]: concurrently until one writes a page of the current
        /// segment; that one waits until the segment is over and opens the next (\[LightTx] §4.2).
        /// [`Isolation::Serializable`]: concurrently, whatever they write; the commit order
        /// decides.
        isolation: Isolation,
        /// Pages written by transactions of the current segment.
        segment: FxHashSet<u32>,
        /// The earliest begin: the end of the last segment, or of the last transaction.
        barrier: Nanos,
    },
}

impl Admission {
    /// For transactions on a page device.
    pub fn isolated(isolation: Isolation) -> Admission {
        Admission::Isolated {
            isolation,
            segment: FxHashSet::default(),
            barrier: Nanos::ZERO,
        }
    }

    /// Whether begins and ends are processed as soon as they are known, before their instant.
    pub(super) fn is_ahead(&self) -> bool {
        matches!(self, Admission::Isolated { .. })
    }

    /// Whether groups with this deadline must be committed before an event at `event`.
    pub(super) fn is_due(&self, deadline: Nanos, event: Nanos) -> bool {
        deadline < event || !self.is_ahead() && deadline == event
    }

    /// The instant at which work that is due at `due` is done.
    pub(super) fn not_before(&self, now: Nanos, due: Nanos) -> Nanos {
        if self.is_ahead() { due } else { due.max(now) }
    }

    /// Memory is sampled after this many transactions, and at the end of a span.
    pub(super) fn memory_every(&self) -> u64 {
        if self.is_ahead() { 64 } else { 256 }
    }

    /// The earliest instant at which `next` may begin beside `live` live transactions, if it may.
    /// The last transaction ended at `end`.
    pub(super) fn admits(&mut self, next: &Transaction, live: usize, end: Nanos) -> Option<Nanos> {
        let Admission::Isolated {
            isolation,
            segment,
            barrier,
        } = self
        else {
            return Some(Nanos::ZERO);
        };
        let may_begin = match isolation {
            Isolation::Strict => {
                *barrier = end;
                live == 0
            }
            Isolation::Serializable => true,
            Isolation::NoPageConflict => {
                if live == 0 {
                    segment.clear();
                    *barrier = end;
                }
                !changes(next).any(|page| segment.contains(&page))
            }
        };
        may_begin.then_some(*barrier)
    }

    /// Records that a transaction has begun.
    pub(super) fn begun(&mut self, transaction: &Transaction) {
        if let Admission::Isolated {
            isolation: Isolation::NoPageConflict,
            segment,
            ..
        } = self
        {
            segment.extend(changes(transaction));
        }
    }
}

/// The pages that a transaction writes or trims.
fn changes(transaction: &Transaction) -> impl Iterator<Item = u32> {
    let writes = transaction.accesses.iter().filter(|access| access.writes());
    writes.map(|Access { at, .. }| at.page.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Rid, Verb};
    use flagstone::units::Lpn;

    fn writes(pages: &[u32]) -> Transaction {
        let access = |&page: &u32| Access {
            verb: Verb::Update,
            at: Rid {
                page: Lpn(page),
                slot: 0,
            },
        };
        Transaction {
            accesses: pages.iter().map(access).collect(),
            ..Transaction::default()
        }
    }

    #[test]
    fn a_database_lets_everybody_in() {
        let from = Admission::Free.admits(&writes(&[1]), 7, Nanos(9));
        assert_eq!(from, Some(Nanos::ZERO));
    }

    #[test]
    fn strict_isolation_is_one_transaction_at_a_time() {
        let mut strict = Admission::isolated(Isolation::Strict);
        assert_eq!(strict.admits(&writes(&[1]), 0, Nanos(5)), Some(Nanos(5)));
        strict.begun(&writes(&[1]));
        assert_eq!(strict.admits(&writes(&[2]), 1, Nanos(5)), None);
        assert_eq!(strict.admits(&writes(&[2]), 0, Nanos(8)), Some(Nanos(8)));
    }

    #[test]
    fn a_transaction_that_writes_a_page_of_the_segment_opens_the_next() {
        let mut segments = Admission::isolated(Isolation::NoPageConflict);
        assert_eq!(segments.admits(&writes(&[1]), 0, Nanos(5)), Some(Nanos(5)));
        segments.begun(&writes(&[1]));
        // Concurrent, from the begin of the segment on, whatever has ended since.
        assert_eq!(segments.admits(&writes(&[2]), 1, Nanos(6)), Some(Nanos(5)));
        segments.begun(&writes(&[2]));
        // A written page conflicts even after the transaction that wrote it has ended.
        assert_eq!(segments.admits(&writes(&[3, 1]), 1, Nanos(7)), None);
        let opened = segments.admits(&writes(&[3, 1]), 0, Nanos(9));
        assert_eq!(opened, Some(Nanos(9)));
        let mut serializable = Admission::isolated(Isolation::Serializable);
        serializable.begun(&writes(&[1]));
        let beside = serializable.admits(&writes(&[1]), 3, Nanos(9));
        assert_eq!(beside, Some(Nanos::ZERO));
    }
}
