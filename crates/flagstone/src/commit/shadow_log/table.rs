//! The recovery table of MixSL and G-MixSL: every combination of what the log and the root say
//! about a transaction, and of the other versions of the logical page.

use super::*;
use crate::cases::{Case, cases, prove, rows_that_differ};

/// What the root says about transaction 5.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Root {
    /// The log was never compacted.
    None,
    /// The root's watermark is below 5.
    Below,
    /// The root's watermark is not below 5, and it lists the transaction.
    Listed,
    /// The root's watermark is not below 5, and it does not list the transaction.
    Unlisted,
}

/// Another version of the logical page, by transaction 9.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Other {
    /// Our version has sequence 20.
    seq: u64,
    is_committed: bool,
    is_seen_first: bool,
}

/// A version with sequence 20, by transaction 5.
#[derive(Debug)]
struct Facts {
    /// Whether the transaction's record is a commit; `None` if there is no record.
    record: Option<bool>,
    root: Root,
    other: Option<Other>,
}

/// The table in the header of MixSL.
const TABLE: [Case<Facts, Verdict>; 3] = cases! { |facts|
    "@A": !facts.is_committed() => Verdict::Aborted;
    "@B": facts.is_committed() && !facts.is_superseded() => Verdict::Current;
    "@C": facts.is_committed() && facts.is_superseded() => Verdict::Obsolete;
};

impl Facts {
    fn all() -> Vec<Facts> {
        let mut others = vec![None];
        for (seq, bits) in [19, 20, 21]
            .iter()
            .flat_map(|&s| (0..4).map(move |b| (s, b)))
        {
            others.push(Some(Other {
                seq,
                is_committed: bits & 1 == 1,
                is_seen_first: bits & 2 == 2,
            }));
        }
        let mut all = Vec::new();
        for record in [None, Some(false), Some(true)] {
            for root in [Root::None, Root::Below, Root::Listed, Root::Unlisted] {
                all.extend(others.iter().map(|&other| Facts {
                    record,
                    root,
                    other,
                }));
            }
        }
        all
    }

    fn is_committed(&self) -> bool {
        self.record == Some(true) || self.root == Root::Unlisted
    }

    fn is_superseded(&self) -> bool {
        self.other.is_some_and(|other| {
            let is_newer = other.seq > 20 || (other.seq == 20 && other.is_seen_first);
            other.is_committed && is_newer
        })
    }

    /// The verdict on the version once everything was processed. `has_root` is false for a mistake:
    /// a recovery that relies on the log alone.
    fn verdict(&self, has_root: bool) -> Verdict {
        let (last, losers) = match self.root {
            _ if !has_root => (0, vec![]),
            Root::None => (0, vec![]),
            Root::Below => (4, vec![]),
            Root::Listed => (5, vec![3, 5]),
            Root::Unlisted => (5, vec![3]),
        };
        let mut versions = Versions::new(Watermark { last, losers }, 4);
        let own = self.record.map(|committed| (5, committed));
        let others = self.other.map(|other| (9, other.is_committed));
        for (tx, committed) in own.into_iter().chain(others) {
            let tx = TxId(tx);
            versions.ended(LogRecord { tx, committed });
        }
        let mut see = |tx, seq| {
            let (kind, lpn) = (PageKind::Data, Lpn(3));
            versions.judge(TxId(tx), &Header { kind, lpn, seq })
        };
        let Some(other) = self.other else {
            return see(5, 20);
        };
        if other.is_seen_first {
            see(9, other.seq);
            return see(5, 20);
        }
        let own = see(5, 20);
        match see(9, other.seq) {
            Verdict::Current if own == Verdict::Current => Verdict::Obsolete,
            _ => own,
        }
    }
}

#[test]
fn every_row_of_the_recovery_table() {
    prove(&TABLE, &Facts::all(), |facts| facts.verdict(true));
}

#[test]
fn a_log_without_its_root_differs_from_the_table() {
    let rows = rows_that_differ(&TABLE, &Facts::all(), |facts| facts.verdict(false));
    assert_eq!(rows, ["@B", "@C"], "commits are taken back");
}
