//! The recovery table of SEAL, for all possible facts about a page.

use super::*;
use crate::cases::{Case, cases, prove, prove_rows, rows_that_differ};
use crate::nand::small;
use crate::units::Ppn;

/// The facts on flash about transaction 7 and one of its pages.
#[derive(Debug)]
struct Facts {
    has_tx: bool,
    /// The page is the only one of its transaction.
    is_single: bool,
    has_verdict: bool,
    is_listed: bool,
    /// Another block has a verdict for another page of the transaction.
    has_witness: bool,
    /// How many of the transaction's three pages exist.
    pages: u64,
    /// Whether one of them exists twice.
    has_copy: bool,
    /// Whether the last one exists.
    has_last: bool,
    /// Whether the last one has a sum, and with it the number of pages. Otherwise it has the number
    /// of programs.
    says_sum: bool,
    /// An older version of a page that the transaction has overwritten itself.
    older: Older,
    /// Whether one of the pages is a list of trims. The highest page that it names is the subject.
    has_list: bool,
    /// Whether the mapping table on flash has the page.
    is_mapped: bool,
}

/// An older version of one of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Older {
    /// Missing: erased, or never written.
    Gone,
    /// Exists in addition to the newest one.
    Beside,
    /// Exists, while the newest one is missing.
    Instead,
}

/// The place of transaction 7, and the write sequence of the page.
const CV: u64 = 53;
const SEQ: u64 = 50;

impl Facts {
    fn is_of_many(&self) -> bool {
        self.has_tx && !self.is_single
    }

    /// Whether neither its own block nor the root decides.
    fn is_open(&self) -> bool {
        self.is_of_many() && !self.has_verdict && !self.is_listed
    }

    fn is_whole(&self) -> bool {
        self.pages == 3 && self.has_last && self.older != Older::Instead
    }

    fn all() -> Vec<Facts> {
        let mut all = Vec::new();
        let olders = [Older::Gone, Older::Beside, Older::Instead];
        for bits in 0..1024u32 {
            let bit = |at: u32| bits >> at & 1 == 1;
            for (pages, older) in (1..4).flat_map(|pages| olders.map(|older| (pages, older))) {
                all.push(Facts {
                    has_tx: bit(0),
                    is_single: bit(1),
                    has_verdict: bit(2),
                    is_listed: bit(3),
                    has_witness: bit(4),
                    pages,
                    has_copy: bit(5),
                    has_last: bit(6),
                    is_mapped: bit(7),
                    says_sum: bit(8),
                    has_list: bit(9),
                    older,
                });
            }
        }
        // A list replaces no page. It is not the last page here.
        all.retain(|facts| {
            let is_another = facts.pages > 1 + u64::from(facts.has_last);
            !facts.has_list || (facts.older == Older::Gone && is_another)
        });
        // A page without a transaction, or alone in one, has no verdict and no siblings.
        all.retain(|facts| {
            let is_alone = !facts.is_of_many();
            let is_plain = facts.pages == 1 && !facts.has_copy && !facts.has_last;
            let is_plain = is_plain && !facts.says_sum;
            !is_alone || (is_plain && !facts.has_verdict && !facts.has_witness)
        });
        // A witness is a page of the transaction, so there are at least two pages.
        all.retain(|facts| !facts.has_witness || facts.pages > 1);
        // The page in question is not the last one.
        all.retain(|facts| !facts.has_last || facts.pages > 1);
        all.retain(|facts| !facts.says_sum || facts.has_last);
        // The overwritten page is another one, possibly the last page, which is the newest version.
        all.retain(|facts| match facts.older {
            Older::Gone => true,
            Older::Beside => facts.pages > 1,
            Older::Instead => facts.pages > 1 + u64::from(facts.has_last),
        });
        all
    }

    fn place(&self, mistake: Option<Mistake>) -> Option<u64> {
        self.ruled(mistake).1
    }

    fn ruled(&self, mistake: Option<Mistake>) -> (&'static str, Option<u64>) {
        let tx = TxId(if self.has_tx { 7 } else { 0 });
        let page = |lpn, seq, count, verdict, block| {
            let (is_list, at) = (self.has_list && lpn == 1, Ppn(seq as u32));
            let version = Version {
                tx,
                seq,
                count,
                sum: (self.says_sum && count > 1).then_some(SEQ + SEQ + 1),
                verdict,
                lpn: Lpn(if is_list { 0 } else { lpn as u32 }),
                slot: if is_list {
                    Slot::Trimmed(at)
                } else {
                    Slot::Page(at)
                },
                is_list,
            };
            (version, Pbn(block))
        };
        let count = u32::from(self.is_single || !self.has_tx);
        let verdict = if self.has_verdict {
            (CV - SEQ + 1) as u32
        } else {
            0
        };
        let mut versions = vec![page(0, SEQ, count, verdict, 1)];
        if self.has_copy {
            versions.push(page(0, SEQ, 0, 0, 4));
        }
        // A device without sums keeps and counts all versions.
        let programs = 3 + u32::from(self.older != Older::Gone);
        let says = if self.says_sum { 3 } else { programs };
        for sibling in 1..self.pages {
            let is_last = self.has_last && sibling == self.pages - 1;
            let seq = if is_last { CV } else { SEQ + sibling };
            let says_place = |seq| {
                if self.has_witness && sibling == 1 {
                    (CV - seq + 1) as u32
                } else {
                    0
                }
            };
            if sibling == 1 && self.older != Older::Gone {
                let seq = SEQ - 10;
                versions.push(page(sibling, seq, 0, says_place(seq), 3));
                if self.older == Older::Instead {
                    continue;
                }
            }
            let verdict = says_place(seq);
            versions.push(page(
                sibling,
                seq,
                if is_last { says } else { 0 },
                verdict,
                2,
            ));
        }
        let roster = self
            .is_listed
            .then_some((TxId(7), CV))
            .into_iter()
            .collect();
        let mut found = Versions::new(&small::GEOMETRY, false);
        versions.sort_by_key(|&(_, block)| block);
        for all in versions.chunk_by(|a, b| a.1 == b.1) {
            let pages = (0..).zip(all.iter().map(|&(version, _)| version));
            found.see(all[0].1, &pages.collect::<Vec<_>>());
        }
        let places = found.places(roster, 0, mistake.into());
        places.ruled(&versions[0].0, |_| self.is_mapped)
    }
}

/// The table in the header of the protocol. The verdict is the place of the page.
const TABLE: [Case<Facts, Option<u64>>; 7] = cases! { |facts|
    "@A": facts.is_of_many() && facts.has_verdict => Some(CV);
    "@B": !facts.is_of_many() => Some(SEQ);
    "@C": facts.is_of_many() && !facts.has_verdict && facts.is_listed => Some(CV);
    "@D": facts.is_open() && facts.has_witness => Some(CV);
    "@E": facts.is_open() && !facts.has_witness && facts.is_whole() => Some(CV);
    "@F": facts.is_open() && !facts.has_witness && !facts.is_whole() && facts.is_mapped => None;
    "@G": facts.is_open() && !facts.has_witness && !facts.is_whole() && !facts.is_mapped
        => None;
};

#[test]
fn every_row_of_the_recovery_table() {
    prove(&TABLE, &Facts::all(), |facts| facts.place(None));
    prove_rows(&TABLE, &Facts::all(), |facts| facts.ruled(None).0);
}

#[test]
fn a_mistake_of_recovery_differs_from_the_table() {
    for (mistake, rows) in [
        (Mistake::WitnessIgnored, &["@D"][..]),
        (Mistake::CopiesCounted, &["@E", "@F", "@G"]),
        (Mistake::LastPageCommits, &["@F", "@G"]),
        (Mistake::NoSum, &["@F", "@G"]),
        (Mistake::NotCounted, &["@F", "@G"]),
        (Mistake::TrimsNotCounted, &["@E"]),
    ] {
        let mistaken = |facts: &Facts| facts.place(Some(mistake));
        let mut differ = rows_that_differ(&TABLE, &Facts::all(), mistaken);
        differ.sort_unstable();
        assert_eq!(differ, rows, "{mistake:?}");
    }
}
