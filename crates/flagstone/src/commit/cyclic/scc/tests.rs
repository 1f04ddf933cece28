//! SCC's recovery table, case by case, and its departures.

use super::*;
use crate::cases::{Case, cases, prove, rows_that_differ};
use crate::commit::cyclic::bench::{
    Landed, Walk, judged, landed, rings_that_differ, uncounted, version,
};

/// Versions of pages below `pages`, each with its link.
fn found(pages: u32, versions: impl IntoIterator<Item = Landed>) -> NewestOfAll {
    let mut found = NewestOfAll::none(pages);
    for Landed { page, link } in versions {
        let (page, slot) = (Lpn(page), Slot::Page(Ppn(link.number)));
        found.see(Seen { page, slot, link }, &[]);
    }
    found
}

/// P's newest version links to number `named` of Q, whose highest version on flash is `highest`,
/// with `again` others before it in its ring. P is page 0, Q is page 1, and page 2 is blank.
#[derive(Debug)]
struct Facts {
    named: u32,
    highest: u32,
    again: u32,
    walk: Walk,
    /// Whether there is an older version of P.
    has_older: bool,
}

/// The table in the header of the protocol. The verdict is the version of P that counts: 7 is its
/// newest one, 6 the one below.
const TABLE: [Case<Facts, u32>; 4] = cases! { |facts|
    "@A": facts.highest < facts.named => facts.older();
    "@B": facts.highest - facts.again > facts.named => 7;
    "@C": facts.is_of_its_ring() && facts.walk == Walk::HasBeen => 7;
    "@D": facts.is_of_its_ring() && facts.walk != Walk::HasBeen => match facts.walk {
        Walk::Committed => 7,
        _ => facts.older(),
    };
};

impl Facts {
    fn all() -> Vec<Facts> {
        let mut all = Vec::new();
        for (named, highest) in (1..4).flat_map(|named| (0..5).map(move |high| (named, high))) {
            for (walk, again) in Walk::ALL.into_iter().flat_map(|w| [(w, 0), (w, 1), (w, 2)]) {
                for has_older in [false, true].into_iter().filter(|_| again <= highest) {
                    all.push(Facts {
                        named,
                        highest,
                        again,
                        walk,
                        has_older,
                    });
                }
            }
        }
        all
    }

    fn is_of_its_ring(&self) -> bool {
        (self.highest - self.again..=self.highest).contains(&self.named)
    }

    fn older(&self) -> u32 {
        if self.has_older { 6 } else { 0 }
    }

    fn found(&self) -> NewestOfAll {
        let (p, named) = (version(0, 7), version(1, self.named));
        let mut versions = vec![landed(p, named)];
        if self.has_older {
            versions.push(landed(version(0, 6), version(0, 6)));
        }
        if self.highest > 0 {
            let mut q = landed(version(1, self.highest), self.walk.link(self.highest));
            q.link.again = self.again;
            versions.push(q);
        }
        found(3, versions)
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
    let of = |links: [_; 3]| found(3, links.map(|(version, next)| landed(version, next)));
    let ring = of([(a, b), (b, c), (c, a)]);
    assert_eq!(judged(&ring, 3), [true; 3]);
    let broken = of([(a, b), (b, version(2, 3)), (c, c)]);
    assert_eq!(judged(&broken, 3), [false, false, true]);
}

#[test]
fn d4_a_transaction_counts_if_and_only_if_all_of_it_has_landed() {
    let differing = |waits, change: fn(Landed) -> Landed| {
        rings_that_differ(2, waits, |ring| {
            // Every page has a committed version 1 that links to itself.
            let before = (0..4).map(|page| landed(version(page, 1), version(page, 1)));
            found(4, before.chain(ring.iter().copied().map(change)))
        })
    };
    let [cases, differ] = differing(true, |landed| landed);
    assert!(cases > 5_000 && differ == 0, "{differ} of {cases}");
    assert!(differing(true, uncounted)[1] > 0, "without the count");
    assert!(differing(false, |landed| landed)[1] > 0, "without the wait");
}

#[test]
fn versions_are_seen_in_any_order_and_the_highest_below_their_ring_is_kept() {
    let orders = |n: usize| {
        (0..n.pow(n as u32)).map(move |at| {
            let places: Vec<usize> = (0..n).map(|i| at / n.pow(i as u32) % n).collect();
            places
        })
    };
    // Numbers, each with how many come before it in its ring; and what counts otherwise.
    let stories: [(&[(u32, u32)], u32); 3] = [
        (&[(1, 0), (2, 0), (3, 0)], 2),
        (&[(1, 0), (2, 0), (3, 1), (4, 2)], 1),
        (&[(1, 0), (2, 1), (3, 0), (4, 1)], 2),
    ];
    for (versions, below) in stories {
        let is_whole = |order: &Vec<usize>| (0..order.len()).all(|i| order.contains(&i));
        for order in orders(versions.len()).filter(is_whole) {
            let mut page = Newest::NONE;
            let mut others = 0;
            for (number, again) in order.iter().map(|&at| versions[at]) {
                let next = version(0, number);
                let link = Link {
                    number,
                    again,
                    next,
                };
                others += u32::from(page.see(Slot::Page(Ppn(number)), link).is_some());
            }
            let last = versions.len() as u32;
            assert_eq!((page.link.number, page.below), (last, below), "{order:?}");
            assert_eq!(page.below_slot, Slot::Page(Ppn(below)));
            assert!(others >= page.link.again, "each of its ring is known");
            assert!(page.see(Slot::Page(Ppn(9)), page.link).is_some(), "a copy");
        }
    }
}
