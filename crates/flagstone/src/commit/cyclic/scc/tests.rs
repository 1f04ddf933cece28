//! SCC's recovery table, case by case, and its departures.

use super::*;
use crate::cases::{Case, prove, rows_that_differ};
use crate::commit::cyclic::bench::{Bench, every_cut};
use crate::commit::{DeviceError, Kind};
use crate::ftl::{Cause, Operation};

fn version(page: u32, number: u32) -> Version {
    Version {
        page: Lpn(page),
        number,
    }
}

/// The newest versions of pages 0, 1, …, each with what it names.
fn newest(versions: &[(u32, Version)]) -> Vec<Newest> {
    let mut pages = vec![Newest::NONE; versions.len()];
    for (page, &(number, next)) in pages.iter_mut().zip(versions) {
        if number > 0 {
            page.see(number, Slot::Page(Ppn(0)), next);
        }
    }
    pages
}

/// What the link of the version that P's newest one names says, where that is the newest of Q.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Walk {
    /// It leads back to P, where the walk has been.
    HasBeen,
    /// It names itself: that version is committed.
    Committed,
    /// It names what is not there: that version is uncommitted.
    Open,
}

/// P's newest version names number `named` of Q, whose highest version on flash is `highest`.
#[derive(Debug)]
struct Facts {
    named: u32,
    highest: u32,
    walk: Walk,
    /// Whether there is an older version of P.
    has_older: bool,
}

/// The table in the header of the protocol. The verdict is which version of P counts: 7 is its
/// newest one, 6 the one below.
const TABLE: [Case<Facts, u32>; 4] = [
    Case {
        row: "@A",
        holds: |facts| facts.highest < facts.named,
        verdict: Facts::older,
    },
    Case {
        row: "@B",
        holds: |facts| facts.highest > facts.named,
        verdict: |_| 7,
    },
    Case {
        row: "@C",
        holds: |facts| facts.highest == facts.named && facts.walk == Walk::HasBeen,
        verdict: |_| 7,
    },
    Case {
        row: "@D",
        holds: |facts| facts.highest == facts.named && facts.walk != Walk::HasBeen,
        verdict: |facts| match facts.walk {
            Walk::Committed => 7,
            _ => facts.older(),
        },
    },
];

impl Facts {
    fn all() -> Vec<Facts> {
        let mut all = Vec::new();
        for (named, highest) in (1..4).flat_map(|named| (0..5).map(move |high| (named, high))) {
            for walk in [Walk::HasBeen, Walk::Committed, Walk::Open] {
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

    /// P is page 0, Q is page 1, and page 2 is blank.
    fn pages(&self) -> Vec<Newest> {
        let link = match self.walk {
            Walk::HasBeen => version(0, 7),
            Walk::Committed => version(1, self.highest),
            Walk::Open => version(2, 1),
        };
        let mut pages = newest(&[(0, link), (self.highest, link), (0, link)]);
        if self.has_older {
            pages[0].see(6, Slot::Page(Ppn(6)), version(0, 6));
        }
        pages[0].see(7, Slot::Page(Ppn(7)), version(1, self.named));
        pages
    }

    /// Which version of P counts, and that it is where that version lies.
    fn counting(&self, is_committed: impl Fn(&[Newest]) -> bool) -> u32 {
        let pages = self.pages();
        let (number, slot) = pages[0].counting(is_committed(&pages));
        assert_eq!(slot.ppn(), (number > 0).then_some(Ppn(number)));
        number
    }
}

#[test]
fn every_row_of_the_recovery_table() {
    prove(&TABLE, &Facts::all(), |facts| {
        facts.counting(|pages| judge_all(pages)[0])
    });
}

#[test]
fn a_judge_that_is_content_with_one_link_differs_from_the_table() {
    let one_link = |pages: &[Newest]| pages[0].verdict(pages[1].number) != Verdict::Uncommitted;
    let rows = rows_that_differ(&TABLE, &Facts::all(), |facts| facts.counting(one_link));
    assert_eq!(rows, ["@D"], "an open ring that is one page longer");
}

#[test]
fn a_walk_of_three_comes_back_to_where_it_began_or_breaks_off() {
    let ring = [(5, version(1, 8)), (8, version(2, 2)), (2, version(0, 5))];
    assert_eq!(judge_all(&newest(&ring)), [true; 3]);
    let broken = [(5, version(1, 8)), (8, version(2, 3)), (2, version(2, 2))];
    assert_eq!(judge_all(&newest(&broken)), [false, false, true]);
}

/// Rings over pages 0..4 in every order, and every subset of their programs.
#[test]
fn a_transaction_counts_if_and_only_if_all_of_it_has_landed() {
    let mut cases = 0;
    for order in 0..4u32.pow(4) {
        let pages: Vec<u32> = (0..4).map(|i| order / 4u32.pow(i) % 4).collect();
        for len in 1..=4 {
            let ring = &pages[..len];
            if (1..len).any(|i| ring[..i].contains(&ring[i])) {
                continue;
            }
            for landed in 0..1 << len {
                // Every page has a committed version 1 that names itself.
                let mut found: Vec<_> = (0..4).map(|page| (1, version(page, 1))).collect();
                for (i, &page) in ring.iter().enumerate() {
                    if landed >> i & 1 == 1 {
                        found[page as usize] = (2, version(ring[(i + 1) % len], 2));
                    }
                }
                let whole = landed + 1 == 1 << len;
                let judged = judge_all(&newest(&found));
                for page in 0..4 {
                    let right = found[page].0 == 1 || whole;
                    assert_eq!(judged[page], right, "{ring:?}, {landed:b}");
                }
                cases += 1;
            }
        }
    }
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
fn d1_what_names_an_aborted_page_is_erased_before_that_is_written() {
    let story = |as_published| {
        let mut bench = Bench::new(Kind::Scc, as_published);
        bench.drop(1, &[0, 1]); // page 0 is on flash and names page 1, which was kept back
        bench.put(2, &[1]);
        bench.check();
        bench.restart().values(2)
    };
    assert_eq!(story(false), [0, 2]);
    assert_eq!(story(true), [1, 2], "page 0 was rolled back");
}

#[test]
fn d2_the_next_version_waits_for_its_predecessor() {
    let mut bench = Bench::new(Kind::Scc, false);
    let early = bench.now;
    bench.put(1, &[0, 1]);
    let acknowledged = bench.now;
    assert!(acknowledged > early);
    bench.now = early;
    let tx = bench.open(2, &[0, 2]);
    assert_eq!(
        bench.now, acknowledged,
        "page 0 is programmed as early as that"
    );
    // And not only the first who comes: what he wrote may be taken back.
    bench.abort(tx);
    bench.now = early;
    bench.open(3, &[0, 2]);
    assert!(bench.now >= acknowledged);
}

#[test]
fn d3_a_block_that_is_being_written_is_sealed_and_erased() {
    let mut bench = Bench::new(Kind::Scc, false);
    bench.put(1, &[0, 1, 2, 3]);
    bench.drop(2, &[0, 1]);
    let collections = bench.device().stats().collections;
    let erases = bench.device().stats().count(Operation::Erase, Cause::Gc);
    bench.put(3, &[0]);
    let stats = bench.device().stats();
    assert_eq!(stats.collections, collections + 1);
    assert!(stats.count(Operation::Erase, Cause::Gc) > erases);
    bench.check();
    assert_eq!(bench.restart().values(4), [3, 1, 1, 1]);
}

#[test]
fn d4_a_page_is_taken_once_in_a_transaction() {
    let mut bench = Bench::new(Kind::Scc, false);
    let refused = bench.try_open(1, &[0, 1, 0]);
    assert!(matches!(refused, Err(DeviceError::WrittenTwice { .. })));
}

#[test]
fn own_writes_are_read_before_the_commit_and_trims_last() {
    let mut bench = Bench::new(Kind::Scc, false);
    bench.put(1, &[0, 1]);
    let tx = bench.open(2, &[0, 1]);
    for page in [0, 1] {
        let now = bench.now;
        let (_, own) = bench
            .device()
            .read(now, Some(tx), Lpn(page))
            .expect("reads");
        assert_eq!(own, Some(&[2][..]), "page {page}");
    }
    assert_eq!(bench.values(2), [1, 1]);
    bench.commit(tx).expect("commits");
    let now = bench.now;
    let tx = bench.device().begin(now).expect("begins");
    bench.device().trim(now, tx, Lpn(1)).expect("trims");
    bench.commit(tx).expect("commits");
    assert_eq!(bench.values(2), [2, 0]);
    assert_eq!(bench.restart().values(2), [2, 0]);
}

#[test]
fn every_power_cut_of_a_history() {
    every_cut(Kind::Scc);
}
