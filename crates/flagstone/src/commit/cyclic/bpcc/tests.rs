//! BPCC's recovery table case by case, its responsibility sets, and its departures.

use super::recovery::link;
use super::*;
use crate::cases::{Case, cases, prove, rows_that_differ};
use crate::commit::cyclic::bench::{
    Landed, Walk, judged, landed, rings_that_differ, uncounted, version,
};
use crate::commit::cyclic::{Link, Seen, Verdict, Versions};
use crate::ftl::Slot;

/// A version on flash, and its back pointer.
type Written = (Landed, u32);

/// Versions of pages below `pages`.
fn found(pages: u32, versions: &[Written]) -> SeenVersions {
    let mut records = SeenVersions::none(pages);
    for &(Landed { page, link }, back) in versions {
        let slot = Slot::Page(Ppn(page * 100 + link.number));
        let mut more = [0; back::SIZE];
        put(&mut more, back::BACK, back.into());
        let page = Lpn(page);
        records.see(Seen { page, slot, link }, &more);
    }
    records.sort();
    records
}

/// P's newest version links to number 3 of Q. P is page 0, Q is page 1, and page 2 is blank.
#[derive(Debug)]
struct Facts {
    /// Whether numbers 2, 3 and 5 of Q are on flash.
    of_q: [bool; 3],
    /// The back pointer of number 5: before 3, or 3.
    back: u32,
    /// Whether numbers 3 and 5 are of one ring, which has 4 as well.
    is_one_ring: bool,
    walk: Walk,
    /// Whether the version named by the back pointer of P's newest version is on flash.
    has_back: bool,
}

/// The table in the header of the protocol. The verdict is the version of P that counts: 7 is its
/// newest one, 4 the one that its back pointer names.
const TABLE: [Case<Facts, u32>; 5] = cases! { |facts|
    "@A": facts.is_straddled() => facts.back();
    "@B": !facts.is_straddled() && facts.highest() < 3 => facts.back();
    "@C": !facts.is_straddled() && facts.highest() > 3 && !facts.is_one_ring => 7;
    "@D": facts.is_of_its_ring() && facts.walk == Walk::HasBeen => 7;
    "@E": facts.is_of_its_ring() && facts.walk != Walk::HasBeen => match facts.walk {
        Walk::Committed => 7,
        _ => facts.back(),
    };
};

impl Facts {
    fn all() -> Vec<Facts> {
        let mut all = Vec::new();
        for of_q in (0..8).map(|bits| [0, 1, 2].map(|bit| bits >> bit & 1 == 1)) {
            for (back, has_back) in [(2, false), (2, true), (3, false), (3, true)] {
                let rings = [false, true].into_iter().filter(|&one| !one || back < 3);
                let rings = rings.flat_map(|one| Walk::ALL.map(|walk| (one, walk)));
                for (is_one_ring, walk) in rings {
                    all.push(Facts {
                        of_q,
                        back,
                        is_one_ring,
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
        self.of_q[2] && self.back < 3 && !self.is_one_ring
    }

    fn is_of_its_ring(&self) -> bool {
        self.highest() == 3 || (self.highest() == 5 && self.is_one_ring)
    }

    fn back(&self) -> u32 {
        if self.has_back { 4 } else { 0 }
    }

    /// Number 5 of P was aborted.
    fn found(&self) -> SeenVersions {
        let mut all = vec![
            (landed(version(0, 7), version(1, 3)), 4),
            (landed(version(0, 5), version(2, 1)), 4),
        ];
        if self.has_back {
            all.push((landed(version(0, 4), version(0, 4)), 0));
        }
        let of_q = [(2, 0), (3, 2), (5, self.back)].into_iter().zip(self.of_q);
        for ((number, back), _) in of_q.filter(|(_, is_there)| *is_there) {
            let mut q = landed(version(1, number), self.walk.link(number));
            q.link.again = 2 * u32::from(number == 5 && self.is_one_ring);
            all.push((q, back));
        }
        found(3, &all)
    }

    /// Which version of P counts.
    fn counting(&self, is_committed: impl Fn(&SeenVersions) -> bool) -> u32 {
        let records = self.found();
        records.counting(Lpn(0), is_committed(&records)).0
    }
}

#[test]
fn every_row_of_the_recovery_table() {
    prove(&TABLE, &Facts::all(), |facts| {
        facts.counting(|records| judged(records, 3)[0])
    });
}

#[test]
fn a_judge_that_leaves_out_straddling_differs_from_the_table() {
    let rows = rows_that_differ(&TABLE, &Facts::all(), |facts| {
        let highest = landed(version(1, facts.highest()), version(2, 1)).link;
        let again = 2 * u32::from(facts.is_of_its_ring() && highest.number == 5);
        let highest = Some(Link { again, ..highest });
        facts.counting(|_| match link(version(1, 3), highest, false) {
            Verdict::AsNewestOf(_) => facts.walk != Walk::Open,
            decided => decided == Verdict::Committed,
        })
    });
    assert_eq!(rows, ["@A"], "as SCC, where nothing uncommitted stays");
}

/// A version straddles exactly the versions between its back pointer and itself, wherever it is in
/// the list of the page's versions.
#[test]
fn straddling_is_found_by_all_versions_above() {
    let backs = [(1, 0), (3, 1), (4, 1), (5, 4), (8, 5)];
    let all = backs.map(|(n, back)| (landed(version(0, n), version(0, n)), back));
    let records = found(1, &all);
    for number in 1..10 {
        let right = backs.iter().any(|&(k, back)| back < number && number < k);
        assert_eq!(records.is_straddled(version(0, number)), right, "{number}");
    }
    assert!(
        !records.is_straddled(version(7, 1)),
        "there is no such page"
    );
}

/// With and without an earlier aborted transaction that had written or named the numbers in
/// between.
#[test]
fn d3_a_transaction_counts_if_and_only_if_all_of_it_has_landed() {
    for aborted in [0, 1] {
        let differing = |waits, change: fn(Landed) -> Landed| {
            rings_that_differ(2 + aborted, waits, |ring| {
                let first = (0..4).map(|page| (landed(version(page, 1), version(page, 1)), 0));
                // 0 -> 1 -> 2 -> (3, held back).
                let of_aborted = (0..3 * aborted)
                    .map(|page| (landed(version(page, 2), version(page + 1, 2)), 1));
                let of_ring = ring.iter().map(|&landed| (change(landed), 1));
                found(
                    4,
                    &first.chain(of_aborted).chain(of_ring).collect::<Vec<_>>(),
                )
            })
        };
        let [cases, differ] = differing(true, |landed| landed);
        assert!(cases > 5_000 && differ == 0, "{differ} of {cases}");
        assert!(differing(true, uncounted)[1] > 0, "without the count");
        assert!(differing(false, |landed| landed)[1] > 0, "without the wait");
    }
}
