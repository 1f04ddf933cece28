//! BPCC, back pointer cyclic commit: a ring of links is the commit, and a pointer back to the last
//! committed version says which versions in between never counted.
//!
//! Paper       [TxFlash] (Prabhakaran, Rodeheffer, Zhou: Transactional flash, OSDI 2008), a
//!             baseline in [FlagCommit] §5.2 and [LightTx] §4. Its full text was not at hand: the
//!             rules are those that the two restate, completed where power cuts proved them short.
//! Idea        As SCC, but instead of erasing uncommitted versions, the next committed version of
//!             the page tells them apart: it *straddles* what lies between it and its predecessor.
//! Cost        k programs for k pages. A superseded version is copied by the collector as long as
//!             it straddles something on flash. Recovery reads a summary page a block.
//! Symbols     paper: P_j, version j of page P; h(P), the highest version on flash; SRS, the
//!             straddle responsibility set; here: `number`, `Straddler`
//!
//!   spare  0        11       15          19            23     27
//!          | header | number | next page | next number | back |
//!
//! Invariants  1. P_k straddles P_i if back(P_k) < i < k. A straddled version is uncommitted.
//!             2. While an uncommitted version is on flash, so is the committed version that
//!                straddles it, and the one that straddles the version that it names.
//!             3. A number that was given to a version of P, or that a link on flash names, is not
//!                given to another.
//!             4. P_k is programmed only after the transaction of P_back(k) is durable.
//!
//! Recovery    the newest version of P names Q_l                   verdict
//!   @A        a version of Q straddles l                          uncommitted, by 1
//!   @B        the highest version of Q is below l, or none        uncommitted: the ring is open
//!   @C        the highest version of Q is above l                 committed, by 2 and 4
//!   @D        it is l, and the walk has been there                committed: the ring is closed
//!   @E        it is l, and the walk has not been there            as that version of Q
//!             What counts is P's newest version if that is committed, else the one its back
//!             pointer names. Versions above that, and straddled ones, are uncommitted.
//!
//! Departures  D1. How versions are numbered is left open in print; the plain reading is one above
//!             those on flash. Then T1 writes A_5, which names B_8, and aborts with B_8 kept back;
//!             T2 commits another B_8; and A_5's link finds what it names. Numbers that were named
//!             are skipped as well (invariant 3).
//!             D2. Invariant 4 is left open: a version that lands without all of its predecessor's
//!             transaction would make that look committed. The next version waits.
//!             D3. A page is taken once in a transaction: P_j and P_j+1 of one ring would let the
//!             ring close around pages that are missing. As published: D1 is left out.

mod recovery;
#[cfg(test)]
mod tests;

pub(in crate::commit) use recovery::recover;

use super::numbers::Numbers;
use super::{Active, Gates, Version};
use crate::commit::{Found, Held, Info, Isolation, Protocol, Taken, Write, table_bytes};
use crate::ftl::{BlockState, Format, Ftl, FtlError, Header, Owner, Slot, Stream, Written};
use crate::layout;
use crate::layout::put;
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

layout! {
    /// The tail of a page's spare area.
    pub tail: 16 => {
        NUMBER:      4, "version number of the page";
        NEXT_PAGE:   4, "the page that follows in the ring";
        NEXT_NUMBER: 4, "and its version number";
        BACK:        4, "number of the page's last committed version when this one was written";
    }
}

pub(in crate::commit) const INFO: Info = Info {
    name: "bpcc",
    idea: "pages name each other in a ring; a back pointer passes over uncommitted versions",
    paper: "TxFlash",
    section: "back pointer cyclic commit",
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

/// A version that matters to an uncommitted one: itself, or the one that it names.
#[derive(Debug, Clone, Copy)]
struct Side {
    version: Version,
    /// Number of the committed version that straddles it; 0 while there is none.
    straddled_by: u32,
}

/// An uncommitted version that is still on flash.
#[derive(Debug, Clone, Copy)]
struct Leftover {
    sides: [Side; 2],
}

/// A committed version that straddles uncommitted ones, or versions that these name.
#[derive(Debug, Clone, Copy, Default)]
struct Straddler {
    /// The size of its responsibility set: sides of leftovers that it straddles.
    responsible_for: u32,
    /// Where it is, once it is superseded and kept for its set alone.
    kept_at: Option<Ppn>,
}

#[derive(Debug, Clone, Default)]
struct Bpcc {
    /// Number of each page's last committed version.
    committed: Numbers,
    /// The highest number given out, where that is higher.
    given: FxHashMap<Lpn, u32>,
    active: Active,
    leftovers: BTreeMap<Ppn, Leftover>,
    /// Leftovers by each page of which they have a side that nothing straddles yet.
    unstraddled: BTreeSet<(Lpn, Ppn)>,
    straddlers: BTreeMap<Version, Straddler>,
    gates: Gates,
    /// When the last commit was durable.
    committed_at: Nanos,
    /// When the last erase is done.
    erased_at: Nanos,
    /// When the last erase is done that emptied a responsibility set.
    emptied_at: Nanos,
    /// Instants before which blocks are not erased: the erase of what a page in them straddled.
    release: FxHashMap<Pbn, Nanos>,
    as_published: bool,
}

impl Protocol for Bpcc {
    fn begin(&mut self, _: &mut Ftl, _: Nanos, _: TxId) -> Result<(), FtlError> {
        Ok(())
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
            number: self.highest(write.at) + 1,
        };
        if !self.as_published {
            self.give(version);
        }
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
        for (page, shadow) in pages {
            let number = shadow.number;
            let old = ftl.set_slot(page, shadow.slot).ppn();
            self.supersede(ftl, page, old, done);
            self.committed.set(page, number);
            if self.given.get(&page).is_some_and(|&given| given <= number) {
                self.given.remove(&page);
            }
            self.straddle(Version { page, number });
            self.gates.close(page, done, true);
        }
        self.gates.forget(ftl, now)?;
        Ok(Some(done))
    }

    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        for (page, shadow) in self.active.end(tx).0 {
            ftl.kill(shadow.ppn());
            let number = shadow.number;
            self.leave(
                shadow.ppn(),
                [(Version { page, number }, 0), (shadow.next, 0)],
            );
        }
        Ok(now)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let leftovers = table_bytes::<Ppn, Leftover>(self.leftovers.len())
            + table_bytes::<(Lpn, Ppn), ()>(self.unstraddled.len());
        vec![
            (
                "version_table",
                self.committed.bytes() + table_bytes::<Lpn, u32>(self.given.len()),
            ),
            ("active_tx_table", self.active.memory()),
            ("uncommitted_pages", leftovers),
            (
                "straddle_responsibility_sets",
                table_bytes::<Version, Straddler>(self.straddlers.len()),
            ),
            (
                "gates",
                self.gates.memory() + table_bytes::<Pbn, Nanos>(self.release.len()),
            ),
        ]
    }

    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        let mut sets: BTreeMap<Version, u32> = BTreeMap::new();
        for (&at, leftover) in &self.leftovers {
            let state = ftl.block_state(ftl.geometry().block_of(at));
            if ftl.is_live(at) || matches!(state, BlockState::Free | BlockState::Zone) {
                let live = ftl.is_live(at);
                return Err(format!(
                    "uncommitted page {at} in a block that is {state:?}, live: {live}"
                ));
            }
            for side in &leftover.sides {
                let Version { page, number } = side.version;
                match side.straddled_by {
                    0 if !self.unstraddled.contains(&(page, at)) => {
                        return Err(format!("page {at} waits for no version of {page}"));
                    }
                    0 if number <= self.committed.of(page) && !self.as_published => {
                        return Err(format!(
                            "invariant 2: nothing straddles {:?} for {at}",
                            side.version
                        ));
                    }
                    0 => {}
                    by => *sets.entry(Version { page, number: by }).or_default() += 1,
                }
            }
        }
        let kept = self.straddlers.iter();
        if !kept
            .map(|(version, straddler)| (*version, straddler.responsible_for))
            .eq(sets)
        {
            return Err("responsibility sets do not hold what they should".into());
        }
        for (&version, straddler) in &self.straddlers {
            let is_last = self.committed.of(version.page) == version.number;
            let is_kept = straddler.kept_at.is_some_and(|at| ftl.is_live(at));
            if is_last == is_kept {
                return Err(format!("invariant 2: {version:?} is kept: {is_kept}"));
            }
        }
        Ok(())
    }
}

impl Owner for Bpcc {
    fn relocated(&mut self, ftl: &mut Ftl, header: &Header, from: Ppn, to: Written) {
        let page = header.lpn;
        if ftl.slot(page).ppn() == Some(from) {
            ftl.set_slot(page, Slot::of(header.kind, to.at));
        } else if !self.active.relocated(page, from, to.at) {
            let kept = self.straddlers.range_mut(versions_of(page));
            for (_, straddler) in kept.filter(|(_, s)| s.kept_at == Some(from)) {
                straddler.kept_at = Some(to.at);
            }
        }
    }

    /// The erase takes superseded versions, so what superseded them must be durable, and what they
    /// straddled must be gone.
    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        let now = now.max(self.committed_at);
        match self.release.remove(&victim) {
            Some(until) => ftl.sync(now, until),
            None => Ok(now),
        }
    }

    fn erased(&mut self, ftl: &mut Ftl, victim: Pbn, done: Nanos) {
        self.erased_at = self.erased_at.max(done);
        let first = ftl.geometry().page(victim, 0);
        let end = Ppn(first.0 + ftl.geometry().pages_per_block);
        while let Some((&at, &leftover)) = self.leftovers.range(first..end).next() {
            self.leftovers.remove(&at);
            for side in leftover.sides {
                let page = side.version.page;
                match side.straddled_by {
                    0 => _ = self.unstraddled.remove(&(page, at)),
                    number => self.answer_for_one_less(ftl, Version { page, number }),
                }
            }
        }
    }
}

fn versions_of(page: Lpn) -> std::ops::RangeInclusive<Version> {
    let version = |number| Version { page, number };
    version(0)..=version(u32::MAX)
}

impl Bpcc {
    /// Programs a version with its link and back pointer.
    fn program(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        (version, next): (Version, Version),
        held: &Held,
    ) -> Result<Taken, FtlError> {
        let now = self.gates.pass(ftl, now, version.page)?;
        let back = self.committed.of(version.page);
        let mut bytes = [0; tail::SIZE];
        put(&mut bytes, tail::NUMBER, version.number.into());
        put(&mut bytes, tail::NEXT_PAGE, next.page.0.into());
        put(&mut bytes, tail::NEXT_NUMBER, next.number.into());
        put(&mut bytes, tail::BACK, back.into());
        let page = (held.kind, version.page, None);
        let stream = (Stream::Host, None);
        let to = ftl.append(now, stream, page, &bytes, &held.data, held.cause)?;
        self.give(version);
        self.active.wrote(tx, version, next, held, to);
        let (next, done) = (now, to.done);
        Ok(Taken { next, done })
    }

    /// The highest number that must not be given to another version of a page.
    fn highest(&self, page: Lpn) -> u32 {
        let given = self.given.get(&page).copied().unwrap_or(0);
        given.max(self.committed.of(page))
    }

    /// Invariant 3. As printed, numbers count as given once they are on flash (D1).
    fn give(&mut self, version: Version) {
        let given = self.given.entry(version.page).or_insert(version.number);
        *given = version.number.max(*given);
    }

    /// A page's committed version gives way at `done`: it may go unless it straddles something.
    fn supersede(&mut self, ftl: &mut Ftl, page: Lpn, old: Option<Ppn>, done: Nanos) {
        let Some(at) = old else { return };
        let number = self.committed.of(page);
        if let Some(straddler) = self.straddlers.get_mut(&Version { page, number }) {
            straddler.kept_at = Some(at);
            return;
        }
        ftl.kill(at);
        // It may have straddled something whose erase can still be undone. Whatever is done at
        // `done` was waited for with the commit.
        if self.emptied_at > done {
            self.let_go_after(ftl.geometry().block_of(at), self.emptied_at);
        }
    }

    /// A committed version answers for all leftovers of its page that none straddled before.
    fn straddle(&mut self, version: Version) {
        let page = version.page;
        let mut answers = 0;
        let range = (page, Ppn(0))..=(page, Ppn(u32::MAX));
        while let Some(&(_, at)) = self.unstraddled.range(range.clone()).next() {
            self.unstraddled.remove(&(page, at));
            let leftover = self.leftovers.get_mut(&at).expect("it is on flash");
            for side in &mut leftover.sides {
                if side.version.page == page && side.straddled_by == 0 {
                    side.straddled_by = version.number;
                    answers += 1;
                }
            }
        }
        if answers > 0 {
            let straddler = self.straddlers.entry(version).or_default();
            straddler.responsible_for += answers;
        }
    }

    /// A leftover that a version straddled is being erased.
    fn answer_for_one_less(&mut self, ftl: &mut Ftl, version: Version) {
        let straddler = self.straddlers.get_mut(&version).expect("it answers");
        straddler.responsible_for -= 1;
        if straddler.responsible_for > 0 {
            return;
        }
        // Not when this erase is done but the latest so far: an older copy of the leftover may have
        // gone with a block of its own.
        self.emptied_at = self.erased_at;
        if let Some(at) = straddler.kept_at {
            ftl.kill(at);
            self.let_go_after(ftl.geometry().block_of(at), self.erased_at);
        }
        self.straddlers.remove(&version);
    }

    fn let_go_after(&mut self, block: Pbn, until: Nanos) {
        let release = self.release.entry(block).or_insert(until);
        *release = until.max(*release);
    }

    /// An uncommitted version stays on flash until its block is erased. Its sides come with the
    /// numbers of what straddles them.
    fn leave(&mut self, at: Ppn, sides: [(Version, u32); 2]) {
        let sides = sides.map(|(version, straddled_by)| Side {
            version,
            straddled_by,
        });
        for side in sides {
            let Version { page, .. } = side.version;
            if side.straddled_by == 0 {
                self.unstraddled.insert((page, at));
            } else {
                let number = side.straddled_by;
                let straddler = self.straddlers.entry(Version { page, number });
                straddler.or_default().responsible_for += 1;
            }
        }
        self.leftovers.insert(at, Leftover { sides });
    }
}
