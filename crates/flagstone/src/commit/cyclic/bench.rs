//! Test fixtures of the cyclic protocols: rings that have landed in part.

use super::recovery::judge;
use super::{Link, Version, Versions};
use crate::units::Lpn;

pub(super) fn version(page: u32, number: u32) -> Version {
    Version {
        page: Lpn(page),
        number,
    }
}

/// P's newest version links to Q. The meaning of the link in Q's newest version:
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Walk {
    /// The link leads back to P, which the walk has visited.
    HasBeen,
    /// The link refers to its own version: that version is committed.
    Committed,
    /// The link refers to a missing version: this version is uncommitted.
    Open,
}

impl Walk {
    pub(super) const ALL: [Walk; 3] = [Walk::HasBeen, Walk::Committed, Walk::Open];

    /// The link of number `own` of Q. P is page 0 with number 7, Q is page 1, and page 2 is blank.
    pub(super) fn link(self, own: u32) -> Version {
        match self {
            Walk::HasBeen => version(0, 7),
            Walk::Committed => version(1, own),
            Walk::Open => version(2, 1),
        }
    }
}

/// Whether the newest version of each of the first `pages` pages is committed.
pub(super) fn judged(found: &impl Versions, pages: u32) -> Vec<bool> {
    judge(pages, |page| found.verdict(page))
}

/// A version that is on flash.
#[derive(Debug, Clone, Copy)]
pub(super) struct Landed {
    pub(super) page: u32,
    pub(super) link: Link,
}

/// The only version of its page in a ring.
pub(super) fn landed(version: Version, next: Version) -> Landed {
    let (number, again) = (version.number, 0);
    Landed {
        page: version.page.0,
        link: Link {
            number,
            again,
            next,
        },
    }
}

/// Rings of up to five versions of pages 0..4, with numbers from `first` on, and what of them can
/// be on flash after a power cut: any of the programs, but a page is written again only after all
/// before it, if `waits`; and what was replaced may be erased. Passes these versions to `see`, and
/// whether the ring is closed.
fn every_ring(first: u32, waits: bool, mut see: impl FnMut(&[Landed], bool)) {
    for order in 0..4u32.pow(5) {
        let pages: Vec<u32> = (0..5).map(|i| order / 4u32.pow(i) % 4).collect();
        for len in 1..=5 {
            let rest = pages[len..].iter().all(|&page| page == 0);
            let in_place = pages[..len].windows(2).any(|two| two[0] == two[1]);
            if !rest || in_place {
                continue;
            }
            let again = |i| again_of(&pages, i);
            let ring: Vec<Landed> = (0..len)
                .map(|i| {
                    let next = (i + 1) % len;
                    let next = version(pages[next], first + again(next));
                    let (again, number) = (again(i), first + again(i));
                    let link = Link {
                        number,
                        again,
                        next,
                    };
                    let page = pages[i];
                    Landed { page, link }
                })
                .collect();
            for programs in 0..1u32 << len {
                let has = |i: usize| programs >> i & 1 == 1;
                let early = |i: usize| has(i) && again(i) > 0 && !(0..i).all(has);
                if waits && (0..len).any(early) {
                    continue;
                }
                let is_replaced =
                    |i: usize| (i + 1..len).any(|later| has(later) && pages[later] == pages[i]);
                let replaced = (0..len).filter(|&i| has(i) && is_replaced(i));
                let replaced: u32 = replaced.map(|i| 1 << i).sum();
                for erased in (0..1u32 << len).filter(|erased| erased & !replaced == 0) {
                    let left = (0..len).filter(|&i| has(i) && erased >> i & 1 == 0);
                    let left: Vec<Landed> = left.map(|i| ring[i]).collect();
                    see(&left, programs == (1 << len) - 1);
                }
            }
        }
    }
}

/// How many cases [`every_ring`] has, and in how many of them another version counts than the last
/// of each page in a closed ring, or number 1, which is before an open ring. `found` adds what else
/// is on flash.
pub(super) fn rings_that_differ<V: Versions>(
    first: u32,
    waits: bool,
    found: impl Fn(&[Landed]) -> V,
) -> [u32; 2] {
    let [mut cases, mut differ] = [0, 0];
    every_ring(first, waits, |ring, closed| {
        let found = found(ring);
        let judged = judged(&found, 4);
        let is_right = (0..4).all(|page| {
            let own = ring.iter().filter(|landed| closed && landed.page == page);
            let last = own.map(|landed| landed.link.number).max().unwrap_or(1);
            found.counting(Lpn(page), judged[page as usize]).0 == last
        });
        cases += 1;
        differ += u32::from(!is_right);
    });
    [cases, differ]
}

/// Drops the count of a page's versions in its ring: the control.
pub(super) fn uncounted(mut landed: Landed) -> Landed {
    landed.link.again = 0;
    landed
}

/// How many versions of its page come before one of a ring.
fn again_of(pages: &[u32], at: usize) -> u32 {
    let before = pages[..at].iter();
    before.filter(|&&page| page == pages[at]).count() as u32
}
