//! BPCC's recovery table, case by case, responsibility sets, and its departures.

use super::recovery::{Record, Records, link};
use super::*;
use crate::cases::{Case, prove, rows_that_differ};
use crate::commit::Kind;
use crate::commit::cyclic::bench::{Bench, every_cut};
use crate::commit::cyclic::{Verdict, judge};

fn version(page: u32, number: u32) -> Version {
    Version {
        page: Lpn(page),
        number,
    }
}

/// A record: page, number, what it names, back pointer.
fn record(page: u32, number: u32, next: Version, back: u32) -> Record {
    let slot = Slot::Page(Ppn(page * 100 + number));
    Record::new(version(page, number), slot, next, back)
}

fn judge_all(all: Vec<Record>, pages: u32) -> Vec<bool> {
    let records = Records::new(all, pages);
    judge(pages, |at| records.verdict(at))
}

/// What the link of Q's highest version says, where P's newest one names that.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Walk {
    /// It leads back to P, where the walk has been.
    HasBeen,
    /// It names itself: that version is committed.
    Committed,
    /// It names what is not there: that version is uncommitted.
    Open,
}

/// P's newest version names number 3 of Q.
#[derive(Debug)]
struct Facts {
    /// Whether numbers 2, 3 and 5 of Q are on flash.
    of_q: [bool; 3],
    /// The back pointer of number 5: before 3, or 3.
    back: u32,
    walk: Walk,
    /// Whether the version is on flash that the back pointer of P's newest one names.
    has_back: bool,
}

/// The table in the header of the protocol. The verdict is which version of P counts: 7 is its
/// newest one, 4 the one that its back pointer names.
const TABLE: [Case<Facts, u32>; 5] = [
    Case {
        row: "@A",
        holds: |facts| facts.is_straddled(),
        verdict: Facts::back,
    },
    Case {
        row: "@B",
        holds: |facts| !facts.is_straddled() && facts.highest() < 3,
        verdict: Facts::back,
    },
    Case {
        row: "@C",
        holds: |facts| !facts.is_straddled() && facts.highest() > 3,
        verdict: |_| 7,
    },
    Case {
        row: "@D",
        holds: |facts| facts.highest() == 3 && facts.walk == Walk::HasBeen,
        verdict: |_| 7,
    },
    Case {
        row: "@E",
        holds: |facts| facts.highest() == 3 && facts.walk != Walk::HasBeen,
        verdict: |facts| match facts.walk {
            Walk::Committed => 7,
            _ => facts.back(),
        },
    },
];

impl Facts {
    fn all() -> Vec<Facts> {
        let mut all = Vec::new();
        for of_q in (0..8).map(|bits| [0, 1, 2].map(|bit| bits >> bit & 1 == 1)) {
            for (back, has_back) in [(2, false), (2, true), (3, false), (3, true)] {
                for walk in [Walk::HasBeen, Walk::Committed, Walk::Open] {
                    all.push(Facts {
                        of_q,
                        back,
                        walk,
                        has_back,
                    });
                }
            }
        }
        all
    }

    fn highest(&self) -> u32 {
        let present = [2, 3, 5].into_iter().zip(self.of_q);
        let numbers = present.filter_map(|(number, is_there)| is_there.then_some(number));
        numbers.max().unwrap_or(0)
    }

    fn is_straddled(&self) -> bool {
        self.of_q[2] && self.back < 3
    }

    fn back(&self) -> u32 {
        if self.has_back { 4 } else { 0 }
    }

    /// P is page 0, Q is page 1, and page 2 is blank. Number 5 of P was aborted.
    fn records(&self) -> Records {
        let mut all = vec![
            record(0, 7, version(1, 3), 4),
            record(0, 5, version(2, 1), 4),
        ];
        if self.has_back {
            all.push(record(0, 4, version(0, 4), 0));
        }
        for (number, back, is_there) in [
            (2, 0, self.of_q[0]),
            (3, 2, self.of_q[1]),
            (5, self.back, self.of_q[2]),
        ] {
            let link = match self.walk {
                Walk::HasBeen => version(0, 7),
                Walk::Committed => version(1, number),
                Walk::Open => version(2, 1),
            };
            if is_there {
                all.push(record(1, number, link, back));
            }
        }
        Records::new(all, 3)
    }

    /// Which version of P counts.
    fn counting(&self, is_committed: impl Fn(&Records) -> bool) -> u32 {
        let records = self.records();
        let version = records.counting(Lpn(0), is_committed(&records));
        version.map_or(0, |record| record.version.number)
    }
}

#[test]
fn every_row_of_the_recovery_table() {
    prove(&TABLE, &Facts::all(), |facts| {
        facts.counting(|records| judge(3, |at| records.verdict(at))[0])
    });
}

#[test]
fn a_judge_that_leaves_out_straddling_differs_from_the_table() {
    let rows = rows_that_differ(&TABLE, &Facts::all(), |facts| {
        facts.counting(|_| match link(version(1, 3), facts.highest(), false) {
            Verdict::AsNewestOf(_) => facts.walk != Walk::Open,
            decided => decided == Verdict::Committed,
        })
    });
    assert_eq!(rows, ["@A"], "as SCC, where nothing uncommitted stays");
}

/// A version with its back pointer straddles exactly what lies between them, wherever in the list
/// of the page's versions it is.
#[test]
fn straddling_is_found_by_all_versions_above() {
    let backs = [(1, 0), (3, 1), (4, 1), (5, 4), (8, 5)];
    let all = backs.map(|(number, back)| record(0, number, version(0, number), back));
    let records = Records::new(all.to_vec(), 1);
    for number in 1..10 {
        let right = backs.iter().any(|&(k, back)| back < number && number < k);
        assert_eq!(records.is_straddled(version(0, number)), right, "{number}");
    }
    assert!(
        !records.is_straddled(version(7, 1)),
        "there is no such page"
    );
}

/// Rings over pages 0..4 in every order, every subset of their programs, with and without an
/// aborted transaction before them that had written or named the numbers between.
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
            for (landed, aborted) in (0..1 << len).flat_map(|landed| [(landed, 0), (landed, 1)]) {
                let mut all: Vec<_> = (0..4).map(|p| record(p, 1, version(p, 1), 0)).collect();
                // The aborted one: 0 -> 1 -> 2 -> (3, kept back).
                for page in 0..3 * aborted {
                    all.push(record(page, 2, version(page + 1, 2), 1));
                }
                let number = 2 + aborted;
                for (i, &page) in ring.iter().enumerate() {
                    if landed >> i & 1 == 1 {
                        all.push(record(
                            page,
                            number,
                            version(ring[(i + 1) % len], number),
                            1,
                        ));
                    }
                }
                let whole = landed + 1 == 1 << len;
                let newest: Vec<u32> = (0..4)
                    .map(|page| {
                        let own = all.iter().filter(|r| r.version.page == Lpn(page));
                        own.map(|r| r.version.number).max().unwrap_or(0)
                    })
                    .collect();
                let judged = judge_all(all, 4);
                for page in 0..4 {
                    let right = newest[page] == 1 || (newest[page] == number && whole);
                    let right = right && (newest[page] != 2 || aborted == 0);
                    assert_eq!(judged[page], right, "{ring:?}, {landed:b}, page {page}");
                }
                cases += 1;
            }
        }
    }
    assert!(cases > 2_000);
}

#[test]
fn d1_a_number_that_was_named_is_not_given_again() {
    let story = |as_published| {
        let mut bench = Bench::new(Kind::Bpcc, as_published);
        bench.drop(1, &[0, 1]); // page 0 is on flash and names page 1, which was kept back
        bench.put(2, &[1]);
        bench.check();
        bench.restart().values(2)
    };
    assert_eq!(story(false), [0, 2]);
    assert_eq!(story(true), [1, 2], "page 0 was rolled back");
}

#[test]
fn d1_a_number_that_was_named_is_not_given_again_after_a_restart() {
    let mut bench = Bench::new(Kind::Bpcc, false);
    bench.drop(1, &[0, 1]);
    let mut bench = bench.restart();
    bench.put(2, &[1]);
    assert_eq!(bench.restart().values(2), [0, 2]);
}

#[test]
fn d2_the_next_version_waits_for_its_predecessor() {
    let mut bench = Bench::new(Kind::Bpcc, false);
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
fn a_superseded_version_stays_while_it_straddles_something_on_flash() {
    let live = |bench: &mut Bench| bench.device().ftl().live_pages();
    let mut bench = Bench::new(Kind::Bpcc, false);
    bench.put(1, &[0, 1]);
    bench.drop(2, &[0, 1]); // 0.2, which names 1.2
    bench.put(3, &[0]); // 0.3 straddles 0.2
    bench.put(4, &[1]); // 1.3 straddles what 0.2 names
    assert_eq!(live(&mut bench), 2);
    bench.put(5, &[0, 1]);
    assert_eq!(live(&mut bench), 4, "0.3 and 1.3 stay");
    bench.check();
    let mut bench = bench.restart();
    assert_eq!(live(&mut bench), 4, "recovery finds out the same");
    assert_eq!(bench.values(2), [5, 5]);
    // Once wear levelling has moved the block with 0.2, they can go.
    for _ in 0..400 {
        bench.put(6, &[4]);
    }
    bench.check();
    assert_eq!(live(&mut bench), 3);
    assert_eq!(bench.restart().values(5), [5, 5, 0, 0, 6]);
}

#[test]
fn every_power_cut_of_a_history() {
    every_cut(Kind::Bpcc);
}
