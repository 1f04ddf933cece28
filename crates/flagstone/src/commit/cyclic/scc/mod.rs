//! SCC, simple cyclic commit: a ring of links is the commit.
//!
//! Paper       [TxFlash] (Prabhakaran, Rodeheffer, Zhou: Transactional flash, OSDI 2008), a
//!             baseline in [FlagCommit] §5.2 and [LightTx] §4. Its full text was not at hand: the
//!             rules are those that the two restate, completed where power cuts proved them short.
//! Idea        Each page of a transaction names the version that follows it, the last names the
//!             first. A closed ring is a commit, so no commit page is ever programmed.
//! Commit      The last program of the ring to land.
//! Cost        k programs for k pages; a page that an aborted transaction wrote costs an erase
//!             before its next version. Recovery reads a summary page a block.
//! Symbols     paper: P_j, version j of page P; h(P), the highest version on flash; here: `number`.
//!             `again`: how many versions of P come before this one in its ring; it is in the upper
//!             bits of both numbers.
//!
//!   spare  0        11       15          19            23
//!          | header | number | next page | next number |
//!
//! Invariants  1. A version on flash below the highest one of its page, and not of its ring, is
//!                committed.
//!             2. An uncommitted version that names P is gone before another ring has a version of
//!                P.
//!             3. A ring's first version of P is programmed only after the ring of the one below
//!                is durable, and any other only after all of its ring so far.
//!
//! Recovery    the newest version of P names Q_l; h is Q's highest  verdict
//!   @A        h is below l, or there is none                      uncommitted: the ring is open
//!   @B        h is of a later ring than l                         committed, by 1, 2 and 3
//!   @C        h is l or of its ring, and the walk has been there  committed: the ring is closed
//!   @D        it is, and the walk has not been there              as h
//!             What counts is P's newest version if that is committed, else the one below those of
//!             its ring.
//!
//! Departures  D1. As restated in print, an uncommitted version is erased before the next version
//!             of its own page only. Then X writes A_5, which names B_8, and aborts with B_8 kept
//!             back; Y commits B_8; and A_5's link finds what it names. Versions that name the
//!             page are erased as well (invariant 2).
//!             D2. Invariant 3 is left open: a version that lands without all of its predecessor's
//!             transaction would make that look committed. The next version waits.
//!             D3. A block that is still being written when it must be erased is sealed early.
//!             D4. A page that is written again in its transaction is left open in print. P_j and
//!             P_j+1 of one ring would let it close around pages that are missing; so P_j+1 waits
//!             for all before it, and counts those of its page (invariant 3).
//!             D5. If the erase is impossible, because the block also holds a live page that was
//!             lost to bit errors, the write is refused. As published: D1 is left out.

#[cfg(test)]
mod tests;

use super::{Link, Rule, Seen, Tables, Verdict, Version, Versions};
use crate::commit::show::rows;
use crate::commit::{Info, Options, Published, Recovered, Way};
use crate::ftl::{BlockState, Ftl, FtlError, Mounted, Slot};
use crate::settings::BadSetting;
use crate::units::{Lpn, Ppn};

pub(in crate::commit) const INFO: Info = Info {
    name: "scc",
    idea: "pages name each other in a ring; uncommitted ones are erased before the next version",
    section: "simple cyclic commit",
    tail: &[super::link::RECORD],
    recovery: rows! {
        "@A": "the highest version of the page it names is older, or there is none"
            => "uncommitted: the ring is open";
        "@B": "the highest version of the page it names is of a later ring" => "committed";
        "@C": "it is of the named one's ring, and the walk has been there"
            => "committed: the ring is closed";
        "@D": "it is of the named one's ring, and the walk has not been there" => "as that version";
    },
    published: Some(Published {
        without: "D1",
        loses: "An aborted transaction comes back: another transaction has written the version \
                that its last link names.",
    }),
    ..super::INFO
};

/// Has no state beyond that of the family.
#[derive(Clone)]
struct Scc;

/// An uncommitted version on flash.
#[derive(Debug, Clone, Copy)]
struct Leftover {
    page: Lpn,
    /// The page of its link.
    next: Lpn,
}

pub(in crate::commit) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    super::recover::<Scc>(ftl, mounted, options)
}

impl Rule for Scc {
    type Leftover = Leftover;
    type Versions = NewestOfAll;

    fn new(_: &Options) -> Result<Scc, BadSetting> {
        Ok(Scc)
    }

    fn next_number(&mut self, tables: &Tables<Leftover>, page: Lpn) -> u32 {
        let shadow = tables.rings.shadow(page);
        shadow.map_or_else(|| tables.committed.of(page), |shadow| shadow.number) + 1
    }

    fn leftover(version: Version, next: Version) -> Leftover {
        Leftover {
            page: version.page,
            next: next.page,
        }
    }

    /// Pages whose next version requires that the leftover is gone.
    fn concerns(leftover: &Leftover, as_published: bool) -> [Option<Lpn>; 2] {
        let named = (!as_published).then_some(leftover.next); // D1
        [Some(leftover.page), named]
    }

    /// Invariants 1 and 2: erases every uncommitted version of the page that is programmed next,
    /// and every one that links to it.
    fn in_the_way(
        &self,
        tables: &Tables<Leftover>,
        ftl: &mut Ftl,
        page: Lpn,
    ) -> Result<Option<Way>, FtlError> {
        let Some(at) = tables.concerning(page) else {
            return Ok(None);
        };
        let block = ftl.geometry().block_of(at);
        ftl.end_block(block); // D3
        if ftl.blocks.state(block) != BlockState::Full {
            // D5: the block cannot be collected, since a live page in it is unreadable.
            let first = ftl.geometry().page(block, 0);
            let mut pages = (first.0..first.0 + ftl.geometry().pages_per_block).map(Ppn);
            let lost = pages.find(|&at| ftl.blocks.is_live(at));
            return Err(FtlError::Unreadable {
                at: lost.unwrap_or(at),
            });
        }
        Ok(Some(Way::Collect(block)))
    }

    fn erased(&mut self, tables: &mut Tables<Leftover>, _: &mut Ftl, leftover: Leftover) {
        for page in Scc::concerns(&leftover, tables.as_published)
            .into_iter()
            .flatten()
        {
            // Wait for the latest erase so far, not only this one: an older copy of the page may
            // have been erased with another block.
            tables.gates.close(page, tables.erased_at, false);
        }
    }

    /// Records as leftovers the versions of uncommitted rings. A version below the newest ring of
    /// its page is committed (invariant 1), and needs no record.
    fn take_stock(
        &mut self,
        tables: &mut Tables<Leftover>,
        _: &mut Ftl,
        found: &NewestOfAll,
        is_committed: &[bool],
    ) {
        let newest = (0..).map(Lpn).zip(&found.pages);
        let newest = newest.map(|(page, newest)| (page, newest.slot, newest.link.next.page));
        for (page, slot, next) in newest.chain(found.others()) {
            if !is_committed[page.index()]
                && let Some(at) = slot.ppn()
            {
                tables.leave::<Scc>(at, Leftover { page, next });
            }
        }
    }

    fn check(&self, tables: &Tables<Leftover>, _: &Ftl) -> Result<(), String> {
        for &(page, at) in &tables.by_page {
            if tables.rings.shadow(page).is_some() {
                return Err(format!(
                    "invariants 1, 2: logical page {page} was written although uncommitted page \
                     {at} is on flash"
                ));
            }
        }
        Ok(())
    }
}

/// The newest version of each page, and the one below its ring.
struct NewestOfAll {
    pages: Vec<Newest>,
    /// Copies of versions that were the newest of their page when they were found, and others of
    /// their ring.
    others: Vec<Seen>,
}

impl NewestOfAll {
    /// Copies of the newest versions, and the others of their rings: page, place, and the page that
    /// they link to.
    fn others(&self) -> impl Iterator<Item = (Lpn, Slot, Lpn)> {
        let is_of_newest =
            |seen: &&Seen| self.pages[seen.page.index()].link.first() <= seen.link.number;
        let others = self.others.iter().filter(is_of_newest);
        others.map(|seen| (seen.page, seen.slot, seen.link.next.page))
    }
}

impl Versions for NewestOfAll {
    fn none(pages: u32) -> NewestOfAll {
        NewestOfAll {
            pages: vec![Newest::NONE; pages as usize],
            others: Vec::new(),
        }
    }

    fn see(&mut self, seen: Seen, _: &[u8]) {
        let newest = &mut self.pages[seen.page.index()];
        if let Some((slot, link)) = newest.see(seen.slot, seen.link) {
            let page = seen.page;
            self.others.push(Seen { page, slot, link });
        }
    }

    fn sort(&mut self) -> u32 {
        let numbers = self.pages.iter().map(|newest| newest.link.number);
        numbers.max().unwrap_or(0)
    }

    fn verdict(&self, page: Lpn) -> Verdict {
        let newest = &self.pages[page.index()].link;
        match self.pages.get(newest.next.page.index()) {
            Some(named) if newest.number > 0 => verdict(newest.next, &named.link),
            _ => Verdict::Uncommitted,
        }
    }

    fn counting(&self, page: Lpn, is_committed: bool) -> (u32, Slot) {
        self.pages[page.index()].counting(is_committed)
    }

    fn newest(&self, page: Lpn) -> Option<(Seen, u32)> {
        let &Newest { link, slot, .. } = &self.pages[page.index()];
        let named = self.pages.get(link.next.page.index());
        let seen = Seen { page, slot, link };
        (link.number > 0).then(|| (seen, named.map_or(0, |named| named.link.number)))
    }

    fn row(&self, page: Lpn, is_ring: bool) -> &'static str {
        match self.verdict(page) {
            Verdict::Uncommitted => "@A",
            Verdict::Committed => "@B",
            Verdict::AsNewestOf(_) if is_ring => "@C",
            Verdict::AsNewestOf(_) => "@D",
        }
    }
}

/// The meaning of a link to `named`, if `highest` is the highest version of its page.
fn verdict(named: Version, highest: &Link) -> Verdict {
    if highest.number < named.number {
        Verdict::Uncommitted // @A
    } else if highest.first() > named.number {
        Verdict::Committed // @B
    } else {
        Verdict::AsNewestOf(named.page) // @C, @D
    }
}

/// The newest version of a page on flash, and the newest one below its ring.
#[derive(Debug, Clone, Copy)]
struct Newest {
    link: Link,
    slot: Slot,
    below: u32,
    below_slot: Slot,
}

impl Newest {
    const NONE: Newest = Newest {
        link: Link {
            number: 0,
            again: 0,
            next: Version {
                page: Lpn(0),
                number: 0,
            },
        },
        slot: Slot::Empty,
        below: 0,
        below_slot: Slot::Empty,
    };

    /// Adds a version; versions come in any order. Returns the version that `others` must keep: of
    /// the newest ring, but not its newest version, or a copy of that.
    fn see(&mut self, slot: Slot, link: Link) -> Option<(Slot, Link)> {
        let before = (self.slot, self.link);
        if link.number > self.link.number {
            (self.slot, self.link) = (slot, link);
            if before.1.number >= link.first() {
                return Some(before);
            }
            (self.below, self.below_slot) = (before.1.number, before.0);
        } else if link.number >= self.link.first() {
            return Some((slot, link));
        } else if link.number > self.below {
            (self.below, self.below_slot) = (link.number, slot);
        }
        None
    }

    /// The version that counts, and where it is.
    fn counting(&self, is_committed: bool) -> (u32, Slot) {
        if is_committed {
            (self.link.number, self.slot)
        } else {
            (self.below, self.below_slot)
        }
    }
}
