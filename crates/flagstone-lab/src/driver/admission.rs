//! When transactions begin. A database lets all of them in and has them wait at their requests. A
//! device of pages has no locks, so that isolation is kept before a transaction begins.

use crate::tpcc::pages::{Access, Transaction};
use flagstone::commit::Isolation;
use flagstone::units::Nanos;
use rustc_hash::FxHashSet;

/// When transactions begin.
///
/// A database is called in the order of instants. To a device of pages a request is of the instant
/// that it names, and planes queue requests in the order of calls. So the next transaction is known
/// as soon as the end of the one before it is.
#[derive(Debug, Clone)]
pub enum Admission {
    /// Each client begins its next transaction at the instant at which its last one has ended.
    Free,
    /// In the order of the source, as soon as it is known when isolation admits the transaction;
    /// the client that has waited longest takes it.
    Isolated {
        /// How far transactions overlap. [`Isolation::Strict`]: one at a time.
        /// [`Isolation::NoPageConflict`]: side by side until one comes that writes a page of the
        /// current segment; it waits until the segment is over and opens the next (\[LightTx]
        /// §4.2). [`Isolation::Serializable`]: side by side, whatever they write; the order of the
        /// commits decides.
        isolation: Isolation,
        /// Pages that transactions of the current segment write.
        segment: FxHashSet<u32>,
        /// Nothing begins before it: the end of the last segment, or of the last transaction.
        barrier: Nanos,
    },
}

impl Admission {
    /// As transactions on a device of pages.
    pub fn isolated(isolation: Isolation) -> Admission {
        Admission::Isolated {
            isolation,
            segment: FxHashSet::default(),
            barrier: Nanos::ZERO,
        }
    }

    /// Whether transactions end and begin when it is known that they do, before that instant has
    /// come.
    pub(super) fn is_ahead(&self) -> bool {
        matches!(self, Admission::Isolated { .. })
    }

    /// Whether the groups of this deadline commit before an event.
    pub(super) fn is_due(&self, deadline: Nanos, event: Nanos) -> bool {
        deadline < event || !self.is_ahead() && deadline == event
    }

    /// The instant at which something is done that was due at `due`.
    pub(super) fn not_before(&self, now: Nanos, due: Nanos) -> Nanos {
        match self.is_ahead() {
            true => due,
            false => due.max(now),
        }
    }

    /// Memory is looked at after so many transactions, and at the end of a span.
    pub(super) fn memory_every(&self) -> u64 {
        match self.is_ahead() {
            true => 64,
            false => 256,
        }
    }

    /// The instant from which on a transaction may begin beside so many others, if it may. The
    /// last transaction that ended did so at `end`.
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

    /// A transaction has begun.
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
    use crate::tpcc::pages::{Rid, Verb};
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
        // Side by side, from the begin of the segment on, whatever has ended since.
        assert_eq!(segments.admits(&writes(&[2]), 1, Nanos(6)), Some(Nanos(5)));
        segments.begun(&writes(&[2]));
        // Also where the one that wrote the page has ended.
        assert_eq!(segments.admits(&writes(&[3, 1]), 1, Nanos(7)), None);
        let opened = segments.admits(&writes(&[3, 1]), 0, Nanos(9));
        assert_eq!(opened, Some(Nanos(9)));
        let mut serializable = Admission::isolated(Isolation::Serializable);
        serializable.begun(&writes(&[1]));
        let beside = serializable.admits(&writes(&[1]), 3, Nanos(9));
        assert_eq!(beside, Some(Nanos::ZERO));
    }
}
