//! SCC, simple cyclic commit: a ring of links is the commit.
//!
//! Paper       [TxFlash] (Prabhakaran, Rodeheffer, Zhou: Transactional flash, OSDI 2008), a
//!             baseline in [FlagCommit] §5.2 and [LightTx] §4. Its full text was not at hand: the
//!             rules are those that the two restate, completed where power cuts proved them short.
//! Idea        Each page of a transaction names the version that follows it, the last names the
//!             first. A closed ring is a commit, so no commit page is ever programmed.
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
//!             of its own page only. Then T1 writes A_5, which names B_8, and aborts with B_8 kept
//!             back; T2 commits B_8; and A_5's link finds what it names. Versions that name the
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

use super::numbers::Numbers;
use super::{Active, Gates, Verdict, Version, judge};
use crate::commit::{
    Found, Held, Info, Isolation, Options, Protocol, Recovered, Taken, Way, Write, table_bytes,
};
use crate::ftl::{
    BlockState, Format, Ftl, FtlError, Header, Mounted, Owner, Slot, Stream, Written, doubt_number,
};
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use std::collections::{BTreeMap, BTreeSet};

layout! {
    /// The tail of a page's spare area.
    pub tail: 12 => {
        NUMBER:      4, "version number of the page";
        NEXT_PAGE:   4, "the page that follows in the ring";
        NEXT_NUMBER: 4, "and its version number";
    }
}

pub(in crate::commit) const INFO: Info = Info {
    name: "scc",
    idea: "pages name each other in a ring; uncommitted ones are erased before the next version",
    paper: "TxFlash",
    section: "simple cyclic commit",
    isolation: Isolation::NoPageConflict,
    live_max: None,
    reprograms: false,
    rewrites: false,
    atomic: true,
    as_published: true,
    modes: &[],
    format: Format {
        tail_bytes: tail::SIZE,
        flag_bytes: 0,
        persist_map: false,
        logs: 0,
        zoned: false,
    },
};

/// An uncommitted version that is still on flash.
#[derive(Debug, Clone, Copy)]
struct Leftover {
    page: Lpn,
    /// The page that its link names.
    next: Lpn,
}

#[derive(Debug, Clone, Default)]
struct Scc {
    /// Number of each page's last committed version.
    committed: Numbers,
    active: Active,
    leftovers: BTreeMap<Ppn, Leftover>,
    /// Leftovers by each page whose next version must not find them.
    in_the_way: BTreeSet<(Lpn, Ppn)>,
    gates: Gates,
    /// When the last commit was durable.
    committed_at: Nanos,
    /// When the last erase is done.
    erased_at: Nanos,
    as_published: bool,
}

/// The newest version of a page on flash, and the one below.
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

    /// Takes note of a version. True if it is a copy of the newest one.
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

    /// What the link says, if the highest version of the page that it names is `highest`.
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
        match is_committed {
            true => (self.number, self.slot),
            false => (self.below, self.below_slot),
        }
    }
}

/// Whether the newest version of each page is committed.
fn judge_all(pages: &[Newest]) -> Vec<bool> {
    judge(pages.len() as u32, |at| {
        let newest = &pages[at.index()];
        match pages.get(newest.next.page.index()) {
            Some(named) if newest.number > 0 => newest.verdict(named.number),
            _ => Verdict::Uncommitted,
        }
    })
}

pub(in crate::commit) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    let mut pages = vec![Newest::NONE; ftl.logical_pages() as usize];
    let mut copies: Vec<(Lpn, u32, Ppn)> = Vec::new();
    let blocks = ftl.data_blocks();
    let done = ftl.scan(mounted.done, &blocks, |at, head: Header, bytes: &[u8]| {
        if let Some(newest) = pages.get_mut(head.lpn.index()) {
            let number = get(bytes, tail::NUMBER) as u32;
            let next = Version {
                page: Lpn(get(bytes, tail::NEXT_PAGE) as u32),
                number: get(bytes, tail::NEXT_NUMBER) as u32,
            };
            if newest.see(number, Slot::of(head.kind, at), next) {
                copies.push((head.lpn, number, at));
            }
        }
    })?;
    for newest in &pages {
        doubt_number("version", newest.number.into(), 32)?;
    }
    let is_committed = judge_all(&pages);
    let judged = pages.iter().zip(&is_committed);
    let number = |(newest, &is_committed): (&Newest, &bool)| newest.counting(is_committed).0;
    let mut scc = Scc {
        committed: judged.map(number).collect(),
        as_published: options.as_published,
        ..Scc::default()
    };
    for (index, newest) in pages.iter().enumerate() {
        let at = Lpn(index as u32);
        if !is_committed[index]
            && let Some(ppn) = newest.slot.ppn()
        {
            scc.leave(ppn, at, newest.next.page);
        }
        let (_, slot) = newest.counting(is_committed[index]);
        ftl.set_slot(at, slot);
    }
    for (at, number, ppn) in copies {
        let newest = &pages[at.index()];
        if newest.number == number && !is_committed[at.index()] {
            scc.leave(ppn, at, newest.next.page);
        }
    }
    ftl.revive_mapped()?;
    ftl.finish_mount();
    Ok(Recovered {
        protocol: Box::new(scc),
        last_tx: TxId(0),
        done,
    })
}

impl Protocol for Scc {
    fn begin(&mut self, _: &mut Ftl, _: Nanos, _: TxId) -> Result<(), FtlError> {
        Ok(())
    }

    /// Invariants 1 and 2: every uncommitted version of the page that is programmed next is erased,
    /// and every one that names it.
    fn in_the_way(
        &mut self,
        ftl: &mut Ftl,
        _: Nanos,
        tx: TxId,
        _: u32,
    ) -> Result<Option<Way>, FtlError> {
        let held = self.active.held(tx);
        let Some(at) = held.and_then(|held| self.next_in_the_way(held.page)) else {
            return Ok(None);
        };
        let block = ftl.geometry().block_of(at);
        ftl.seal_block(block); // D3
        if ftl.block_state(block) != BlockState::Full {
            let first = ftl.geometry().page(block, 0);
            let pages = (first.0..first.0 + ftl.geometry().pages_per_block).map(Ppn);
            let lost = pages.into_iter().find(|&at| ftl.is_live(at));
            return Err(FtlError::Unreadable {
                at: lost.unwrap_or(at), // D5
            });
        }
        Ok(Some(Way::Collect(block)))
    }

    fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError> {
        let version = Version {
            page: write.at,
            number: self.committed.of(write.at) + 1,
        };
        match self.active.hold(tx, version, write) {
            Some((before, held)) => self.program(ftl, now, tx, (before, version), &held),
            None => Ok(Taken::at(now)),
        }
    }

    fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_> {
        self.active.find(ftl, tx, at)
    }

    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Option<Nanos>, FtlError> {
        let Some((last, held, first)) = self.active.last(tx) else {
            return Ok(Some(now));
        };
        let now = self.program(ftl, now, tx, (last, first), &held)?.next;
        let (pages, written) = self.active.end(tx);
        let done = ftl.sync(now, written)?;
        self.committed_at = self.committed_at.max(done);
        for (at, shadow) in pages {
            if let Some(old) = ftl.set_slot(at, shadow.slot).ppn() {
                ftl.kill(old);
            }
            self.committed.set(at, shadow.number);
            self.gates.close(at, done, true);
        }
        self.gates.forget(ftl, now)?;
        Ok(Some(done))
    }

    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        for (at, shadow) in self.active.end(tx).0 {
            ftl.kill(shadow.ppn());
            self.leave(shadow.ppn(), at, shadow.next.page);
        }
        Ok(now)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let uncommitted = table_bytes::<Ppn, Leftover>(self.leftovers.len())
            + table_bytes::<(Lpn, Ppn), ()>(self.in_the_way.len());
        vec![
            ("version_table", self.committed.bytes()),
            ("active_tx_table", self.active.memory()),
            ("uncommitted_pages", uncommitted),
            ("gates", self.gates.memory()),
        ]
    }

    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        for (&at, leftover) in &self.leftovers {
            let block = ftl.geometry().block_of(at);
            let state = ftl.block_state(block);
            if ftl.is_live(at) || matches!(state, BlockState::Free | BlockState::Zone) {
                return Err(format!(
                    "uncommitted page {at} in a block that is {state:?}, live: {}",
                    ftl.is_live(at)
                ));
            }
            for page in self.pages_kept_from(leftover) {
                if !self.in_the_way.contains(&(page, at)) {
                    return Err(format!("page {at} is not in the way of {page}"));
                }
            }
        }
        for &(page, at) in &self.in_the_way {
            if !self.leftovers.contains_key(&at) {
                return Err(format!("page {at} is gone and in the way of {page}"));
            }
            if self.active.shadow(page).is_some() {
                return Err(format!(
                    "invariants 1, 2: logical page {page} was written although uncommitted page \
                     {at} is on flash"
                ));
            }
        }
        Ok(())
    }
}

impl Owner for Scc {
    fn relocated(&mut self, ftl: &mut Ftl, header: &Header, from: Ppn, to: Written) {
        if ftl.slot(header.lpn).ppn() == Some(from) {
            ftl.set_slot(header.lpn, Slot::of(header.kind, to.at));
        } else {
            self.active.relocated(header.lpn, from, to.at);
        }
    }

    /// The erase takes superseded versions, so what superseded them must be durable.
    fn before_erase(&mut self, _: &mut Ftl, now: Nanos, _: Pbn) -> Result<Nanos, FtlError> {
        Ok(now.max(self.committed_at))
    }

    fn erased(&mut self, ftl: &mut Ftl, victim: Pbn, done: Nanos) {
        self.erased_at = self.erased_at.max(done);
        let first = ftl.geometry().page(victim, 0);
        let end = Ppn(first.0 + ftl.geometry().pages_per_block);
        while let Some((&at, &leftover)) = self.leftovers.range(first..end).next() {
            self.leftovers.remove(&at);
            for page in self.pages_kept_from(&leftover) {
                self.in_the_way.remove(&(page, at));
                // Not done at `done` but at the latest erase so far: an older copy of the page may
                // have gone with a block of its own.
                self.gates.close(page, self.erased_at, false);
            }
        }
    }
}

impl Scc {
    /// Programs a version with its link: nothing uncommitted can be taken for it (`in_the_way`).
    fn program(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        (version, next): (Version, Version),
        held: &Held,
    ) -> Result<Taken, FtlError> {
        let now = self.gates.pass(ftl, now, version.page)?;
        let mut bytes = [0; tail::SIZE];
        put(&mut bytes, tail::NUMBER, version.number.into());
        put(&mut bytes, tail::NEXT_PAGE, next.page.0.into());
        put(&mut bytes, tail::NEXT_NUMBER, next.number.into());
        let page = (held.kind, version.page, None);
        let stream = (Stream::Host, None);
        let to = ftl.append(now, stream, page, &bytes, &held.data, held.cause)?;
        self.active.wrote(tx, version, next, held, to);
        let (next, done) = (now, to.done);
        Ok(Taken { next, done })
    }

    fn next_in_the_way(&self, page: Lpn) -> Option<Ppn> {
        if self.in_the_way.is_empty() {
            return None;
        }
        let range = (page, Ppn(0))..=(page, Ppn(u32::MAX));
        self.in_the_way.range(range).next().map(|&(_, at)| at)
    }

    /// An uncommitted version stays on flash until its block is erased.
    fn leave(&mut self, at: Ppn, page: Lpn, next: Lpn) {
        let leftover = Leftover { page, next };
        self.leftovers.insert(at, leftover);
        for page in self.pages_kept_from(&leftover) {
            self.in_the_way.insert((page, at));
        }
    }

    /// Pages whose next version must not find a leftover on flash.
    fn pages_kept_from(&self, leftover: &Leftover) -> impl Iterator<Item = Lpn> + use<> {
        let named = (!self.as_published).then_some(leftover.next); // D1
        std::iter::once(leftover.page).chain(named)
    }
}
