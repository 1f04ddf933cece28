//! SCC's recovery table, case by case, and its departures.

use super::*;
use crate::cases::{Case, cases, prove, rows_that_differ};
use crate::commit::Kind;
use crate::commit::cyclic::bench::{Walk, bench, every_ring, judged, version};
use crate::commit::small_device::EVERYTHING;
use crate::ftl::{Cause, Operation};

/// A version of a page, and its link.
fn seen(version: Version, next: Version) -> Seen {
    Seen {
        version,
        slot: Slot::Page(Ppn(version.number)),
        next,
    }
}

/// Versions of pages below `pages`, each with its link.
fn found(pages: u32, versions: &[(Version, Version)]) -> NewestOfAll {
    let mut found = NewestOfAll::none(pages);
    for &(version, next) in versions {
        found.see(seen(version, next), &[]);
    }
    found
}

/// P's newest version links to number `named` of Q, whose highest version on flash is `highest`. P
/// is page 0, Q is page 1, and page 2 is blank.
#[derive(Debug)]
struct Facts {
    named: u32,
    highest: u32,
    walk: Walk,
    /// Whether there is an older version of P.
    has_older: bool,
}

/// The table in the header of the protocol. The verdict is the version of P that counts: 7 is its
/// newest one, 6 the one below.
const TABLE: [Case<Facts, u32>; 4] = cases! { |facts|
    "@A": facts.highest < facts.named => facts.older();
    "@B": facts.highest > facts.named => 7;
    "@C": facts.highest == facts.named && facts.walk == Walk::HasBeen => 7;
    "@D": facts.highest == facts.named && facts.walk != Walk::HasBeen => match facts.walk {
        Walk::Committed => 7,
        _ => facts.older(),
    };
};

impl Facts {
    fn all() -> Vec<Facts> {
        let mut all = Vec::new();
        for (named, highest) in (1..4).flat_map(|named| (0..5).map(move |high| (named, high))) {
            for walk in Walk::ALL {
                for has_older in [false, true] {
                    all.push(Facts {
                        named,
                        highest,
                        walk,
                        has_older,
                    });
                }
            }
        }
        all
    }

    fn older(&self) -> u32 {
        if self.has_older { 6 } else { 0 }
    }

    fn found(&self) -> NewestOfAll {
        let (p, named) = (version(0, 7), version(1, self.named));
        let mut versions = vec![(p, named)];
        if self.has_older {
            versions.push((version(0, 6), version(0, 6)));
        }
        if self.highest > 0 {
            versions.push((version(1, self.highest), self.walk.link(self.highest)));
        }
        found(3, &versions)
    }

    /// The version of P that counts. Also checks its place.
    fn counting(&self, is_committed: impl Fn(&NewestOfAll) -> bool) -> u32 {
        let found = self.found();
        let (number, slot) = found.counting(Lpn(0), is_committed(&found));
        assert_eq!(slot.ppn(), (number > 0).then_some(Ppn(number)));
        number
    }
}

#[test]
fn every_row_of_the_recovery_table() {
    prove(&TABLE, &Facts::all(), |facts| {
        facts.counting(|found| judged(found, 3)[0])
    });
}

#[test]
fn a_judge_that_is_content_with_one_link_differs_from_the_table() {
    let one_link = |found: &NewestOfAll| found.verdict(Lpn(0)) != Verdict::Uncommitted;
    let rows = rows_that_differ(&TABLE, &Facts::all(), |facts| facts.counting(one_link));
    assert_eq!(rows, ["@D"], "an open ring that is one page longer");
}

#[test]
fn a_walk_of_three_comes_back_to_where_it_began_or_breaks_off() {
    let (a, b, c) = (version(0, 5), version(1, 8), version(2, 2));
    let ring = found(3, &[(a, b), (b, c), (c, a)]);
    assert_eq!(judged(&ring, 3), [true; 3]);
    let broken = found(3, &[(a, b), (b, version(2, 3)), (c, c)]);
    assert_eq!(judged(&broken, 3), [false, false, true]);
}

#[test]
fn a_transaction_counts_if_and_only_if_all_of_it_has_landed() {
    let mut cases = 0;
    every_ring(|landed, whole| {
        // Every page has a committed version 1 that links to itself.
        let before = (0..4).map(|page| (version(page, 1), version(page, 1)));
        let ring = landed
            .iter()
            .map(|&(page, next)| (version(page, 2), version(next, 2)));
        let judged = judged(&found(4, &before.chain(ring).collect::<Vec<_>>()), 4);
        for page in 0..4 {
            let right = whole || landed.iter().all(|&(other, _)| other != page);
            assert_eq!(judged[page as usize], right, "{landed:?}");
        }
        cases += 1;
    });
    assert!(cases > 1_000);
}

#[test]
fn versions_are_seen_in_any_order_and_the_two_highest_are_kept() {
    for order in [[1, 2, 3], [3, 2, 1], [2, 3, 1], [1, 3, 2], [3, 1, 2]] {
        let mut page = Newest::NONE;
        for number in order {
            let copy = page.see(number, Slot::Page(Ppn(number)), version(0, number));
            assert!(!copy);
        }
        assert!(page.see(3, Slot::Page(Ppn(9)), version(0, 3)));
        assert_eq!((page.number, page.below), (3, 2));
        assert_eq!(page.below_slot, Slot::Page(Ppn(2)));
    }
}

#[test]
fn d3_a_block_that_is_being_written_is_sealed_and_erased() {
    let mut bench = bench(Kind::Scc, false);
    bench.set(1, &[0, 1, 2, 3]);
    bench.roll_back(2, &[0, 1]);
    let collections = bench.device().stats().collections;
    let erases = bench.count(Operation::Erase, Cause::Gc);
    bench.set(3, &[0]);
    let stats = bench.device().stats();
    assert_eq!(stats.collections, collections + 1);
    assert!(stats.count(Operation::Erase, Cause::Gc) > erases);
    bench.check();
    assert_eq!(bench.restart(EVERYTHING).values(4), [3, 1, 1, 1]);
}
