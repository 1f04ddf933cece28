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
//! Symbols     paper: P_j, version j of page P; h(P), the highest version on flash; here: `number`
//!
//!   spare  0        11       15          19            23
//!          | header | number | next page | next number |
//!
//! Invariants  1. A version on flash below the highest one of its page is committed.
//!             2. An uncommitted version that names (P, j) is gone before P_j is programmed.
//!             3. P_j+1 is programmed only after the transaction of P_j is durable.
//!
//! Recovery    the newest version of P names Q_l                   verdict
//!   @A        the highest version of Q is below l, or none        uncommitted: the ring is open
//!   @B        the highest version of Q is above l                 committed, by 1, 2 and 3
//!   @C        it is l, and the walk has been there                committed: the ring is closed
//!   @D        it is l, and the walk has not been there            as that version of Q
//!             What counts is P's newest version if that is committed, else the one below it.
//!
//! Departures  D1. As restated in print, an uncommitted version is erased before the next version
//!             of its own page only. Then X writes A_5, which names B_8, and aborts with B_8 kept
//!             back; Y commits B_8; and A_5's link finds what it names. Versions that name the
//!             page are erased as well (invariant 2).
//!             D2. Invariant 3 is left open: a version that lands without all of its predecessor's
//!             transaction would make that look committed. The next version waits.
//!             D3. A block that is still being written when it must be erased is sealed early.
//!             D4. A page is taken once in a transaction: P_j and P_j+1 of one ring would let the
//!             ring close around pages that are missing.
//!             D5. If the erase is impossible, because the block also holds a live page that was
//!             lost to bit errors, the write is refused. As published: D1 is left out.

#[cfg(test)]
mod tests;

use super::{Rule, Seen, Tables, Verdict, Version, Versions};
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
        "@B": "the highest version of the page it names is newer" => "committed";
        "@C": "it is the named one, and the walk has been there" => "committed: the ring is closed";
        "@D": "it is the named one, and the walk has not been there" => "as that version";
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
        tables.committed.of(page) + 1
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
            let first = ftl.geometry().page(block, 0);
            let tables = (first.0..first.0 + ftl.geometry().pages_per_block).map(Ppn);
            let lost = tables.into_iter().find(|&at| ftl.blocks.is_live(at));
            return Err(FtlError::Unreadable {
                at: lost.unwrap_or(at), // D5
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

    fn take_stock(
        &mut self,
        tables: &mut Tables<Leftover>,
        _: &mut Ftl,
        found: &NewestOfAll,
        is_committed: &[bool],
    ) {
        let newest = (0..).map(Lpn).zip(&found.pages);
        let newest = newest.filter_map(|(page, newest)| Some((page, newest.slot.ppn()?)));
        for (page, at) in newest.chain(found.copies()) {
            if !is_committed[page.index()] {
                let next = found.pages[page.index()].next.page;
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

/// The two newest versions of each page.
struct NewestOfAll {
    pages: Vec<Newest>,
    /// Copies of versions that were the newest of their page when they were found.
    copies: Vec<(Version, Ppn)>,
}

impl NewestOfAll {
    /// Copies of the newest versions.
    fn copies(&self) -> impl Iterator<Item = (Lpn, Ppn)> {
        let is_newest =
            |version: &Version| self.pages[version.page.index()].number == version.number;
        let copies = self
            .copies
            .iter()
            .filter(move |(version, _)| is_newest(version));
        copies.map(|&(version, at)| (version.page, at))
    }
}

impl Versions for NewestOfAll {
    fn none(pages: u32) -> NewestOfAll {
        NewestOfAll {
            pages: vec![Newest::NONE; pages as usize],
            copies: Vec::new(),
        }
    }

    fn see(
        &mut self,
        Seen {
            version,
            slot,
            next,
        }: Seen,
        _: &[u8],
    ) {
        let newest = &mut self.pages[version.page.index()];
        if newest.see(version.number, slot, next)
            && let Some(at) = slot.ppn()
        {
            self.copies.push((version, at));
        }
    }

    fn sort(&mut self) -> u32 {
        self.pages
            .iter()
            .map(|newest| newest.number)
            .max()
            .unwrap_or(0)
    }

    fn verdict(&self, page: Lpn) -> Verdict {
        let newest = &self.pages[page.index()];
        match self.pages.get(newest.next.page.index()) {
            Some(named) if newest.number > 0 => newest.verdict(named.number),
            _ => Verdict::Uncommitted,
        }
    }

    fn counting(&self, page: Lpn, is_committed: bool) -> (u32, Slot) {
        self.pages[page.index()].counting(is_committed)
    }

    fn newest(&self, page: Lpn) -> Option<(Seen, u32)> {
        let newest = &self.pages[page.index()];
        let number = newest.number;
        let named = self.pages.get(newest.next.page.index());
        let seen = Seen {
            version: Version { page, number },
            slot: newest.slot,
            next: newest.next,
        };
        (number > 0).then(|| (seen, named.map_or(0, |named| named.number)))
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

/// The two newest versions of a page on flash.
#[derive(Debug, Clone, Copy)]
struct Newest {
    number: u32,
    slot: Slot,
    next: Version,
    below: u32,
    below_slot: Slot,
}

impl Newest {
    const NONE: Newest = Newest {
        number: 0,
        slot: Slot::Empty,
        next: Version {
            page: Lpn(0),
            number: 0,
        },
        below: 0,
        below_slot: Slot::Empty,
    };

    /// Adds a version. Returns whether it is a copy of the newest one.
    fn see(&mut self, number: u32, slot: Slot, next: Version) -> bool {
        if number > self.number {
            *self = Newest {
                number,
                slot,
                next,
                below: self.number,
                below_slot: self.slot,
            };
        } else if number == self.number {
            return true;
        } else if number > self.below {
            (self.below, self.below_slot) = (number, slot);
        }
        false
    }

    /// The verdict of the link, if `highest` is the highest version of the page that it names.
    fn verdict(&self, highest: u32) -> Verdict {
        if highest < self.next.number {
            Verdict::Uncommitted // @A
        } else if highest > self.next.number {
            Verdict::Committed // @B
        } else {
            Verdict::AsNewestOf(self.next.page) // @C, @D
        }
    }

    /// The version that counts, and where it is.
    fn counting(&self, is_committed: bool) -> (u32, Slot) {
        if is_committed {
            (self.number, self.slot)
        } else {
            (self.below, self.below_slot)
        }
    }
}
