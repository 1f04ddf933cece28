//! BPCC, back pointer cyclic commit: a ring of links is the commit, and a pointer back to the last
//! committed version says which versions in between never counted.
//!
//! Paper       [TxFlash] (Prabhakaran, Rodeheffer, Zhou: Transactional flash, OSDI 2008), a
//!             baseline in [FlagCommit] §5.2 and [LightTx] §4. Its full text was not at hand: the
//!             rules are those that the two restate, completed where power cuts proved them short.
//! Idea        As SCC, but instead of erasing uncommitted versions, the next committed version of
//!             the page tells them apart: it *straddles* what lies between it and its predecessor.
//! Commit      As SCC.
//! Cost        k programs for k pages. A superseded version is copied by the collector as long as
//!             it straddles something on flash, and with `keeps_obsolete` = `all` so is every later
//!             one of its page. Recovery reads a summary page a block.
//! Symbols     paper: P_j, version j of page P; h(P), the highest version on flash; SRS, the
//!             straddle responsibility set; here: `number`, `Straddler`. `again`: how many versions
//!             of P come before this one in its ring; it is in the upper bits of both numbers.
//!
//!   spare  0        11       15          19            23     27
//!          | header | number | next page | next number | back |
//!
//! Invariants  1. P_k straddles P_i if back(P_k) < i < k, and P_i is of another ring. A straddled
//!                version is uncommitted.
//!             2. While an uncommitted version is on flash, so is the committed version that
//!                straddles it, and the one that straddles the version that it names.
//!             3. A number that was given to a version of P, or that a link on flash names, is not
//!                given to another.
//!             4. P_k is programmed only after the transaction of P_back(k) is durable, and, if
//!                its ring has an earlier version of P, after all of it so far.
//!
//! Recovery    the newest version of P names Q_l; h is Q's highest  verdict
//!   @A        a version of Q straddles l                          uncommitted, by 1
//!   @B        h is below l, or there is none                      uncommitted: the ring is open
//!   @C        h is of a later ring than l                         committed, by 2 and 4
//!   @D        h is l or of its ring, and the walk has been there  committed: the ring is closed
//!   @E        it is, and the walk has not been there              as h
//!             What counts is P's newest version if that is committed, else the one its back
//!             pointer names. Versions above that, and straddled ones, are uncommitted.
//!
//! Departures  D1. How versions are numbered is left open in print; the plain reading is one above
//!             those on flash. Then X writes A_5, which names B_8, and aborts with B_8 kept back;
//!             Y commits another B_8; and A_5's link finds what it names. Numbers that were named
//!             are skipped as well (invariant 3).
//!             D2. Invariant 4 is left open: a version that lands without all of its predecessor's
//!             transaction would make that look committed. The next version waits.
//!             D3. A page that is written again in its transaction is left open in print. P_j and
//!             P_j+1 of one ring would let it close around pages that are missing; so P_j+1 waits
//!             for all before it, and counts those of its page. As published: D1 is left out.
//!             D4. [FlagCommit] §1 says that BPCC "leaves many obsolete pages irreclaimable"; its
//!             Appendix A, which says which, was not at hand. Here they are those of invariant 2.
//!             With `keeps_obsolete` = `all` a page has one set in the place of one for each
//!             version, so that what was committed since the set began to fill stays with them.

mod keep;
mod recovery;
#[cfg(test)]
mod tests;

use super::{Rule, Tables, Version};
use crate::commit::show::rows;
use crate::commit::{Info, Mode, Options, Published, Recovered, table_bytes};
use crate::ftl::{Format, Ftl, FtlError, Mounted};
use crate::layout;
use crate::layout::put;
use crate::settings::{BadSetting, Setting};
use crate::units::{Lpn, Nanos, Pbn, Ppn};
use keep::Obsolete;
use recovery::SeenVersions;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

layout! {
    /// What the tail of a page's spare area has behind the link.
    pub back: 4 => {
        BACK: 4, "number of the page's last committed version when this one was written";
    }
}

const KEEPS_OBSOLETE: Setting = Setting {
    name: "keeps_obsolete",
    default: "straddling",
    what: "superseded versions that the collector keeps: those that straddle something on flash, \
           or `all` of their page from the first of these on (a naive responsibility set)",
};

pub(in crate::commit) const INFO: Info = Info {
    name: "bpcc",
    idea: "pages name each other in a ring; a back pointer passes over uncommitted versions",
    section: "back pointer cyclic commit",
    tail: &[super::link::RECORD, back::RECORD],
    recovery: rows! {
        "@A": "a newer version of the named page points back past the named one" => "uncommitted";
        "@B": "the highest version of the page it names is older, or there is none"
            => "uncommitted: the ring is open";
        "@C": "the highest version of the page it names is of a later ring" => "committed";
        "@D": "it is of the named one's ring, and the walk has been there"
            => "committed: the ring is closed";
        "@E": "it is of the named one's ring, and the walk has not been there" => "as that version";
    },
    modes: &[
        Mode::new("straddling", &[]),
        Mode::new("all", &[(KEEPS_OBSOLETE.name, "all")]),
    ],
    settings: &[KEEPS_OBSOLETE],
    format: Format {
        tail_bytes: super::link::SIZE + back::SIZE,
        ..super::INFO.format
    },
    published: Some(Published {
        without: "D1",
        loses: "An aborted transaction comes back: a version number was named, never programmed, \
                and given out again.",
    }),
    ..super::INFO
};

/// A version that an uncommitted one concerns: itself, or the one that it links to.
#[derive(Debug, Clone, Copy)]
struct Side {
    version: Version,
    /// Number of the committed version that straddles it; 0 if none does.
    straddled_by: u32,
}

/// An uncommitted version on flash.
#[derive(Debug, Clone, Copy)]
struct Leftover {
    sides: [Side; 2],
}

/// A committed version that straddles uncommitted ones, or versions that these link to.
#[derive(Debug, Clone, Copy, Default)]
struct Straddler {
    /// The size of its responsibility set: the straddled sides of leftovers.
    responsible_for: u32,
    /// The version's place, if it was replaced and is kept only for its set.
    kept_at: Option<Ppn>,
}

#[derive(Debug, Clone)]
struct Bpcc {
    /// The highest assigned number, if it is above the committed one.
    given: FxHashMap<Lpn, u32>,
    straddlers: BTreeMap<Version, Straddler>,
    /// Versions that are kept in addition.
    obsolete: Obsolete,
    /// When the last erase that emptied a responsibility set is done.
    emptied_at: Nanos,
    /// Earliest instants for the erase of blocks: the erases of what their pages straddled.
    release: FxHashMap<Pbn, Nanos>,
}

pub(in crate::commit) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    super::recover::<Bpcc>(ftl, mounted, options)
}

impl Rule for Bpcc {
    type Leftover = Leftover;
    type Versions = SeenVersions;
    const MORE: usize = back::SIZE;

    fn new(options: &Options) -> Result<Bpcc, BadSetting> {
        Ok(Bpcc {
            given: FxHashMap::default(),
            straddlers: BTreeMap::new(),
            obsolete: Obsolete::new(options)?,
            emptied_at: Nanos::ZERO,
            release: FxHashMap::default(),
        })
    }

    /// Invariant 3. As printed, only numbers on flash count as assigned (D1). A ring's numbers of a
    /// page follow each other, also if a request that was given one has failed.
    fn next_number(&mut self, tables: &Tables<Leftover>, page: Lpn) -> u32 {
        let given = self.given.get(&page).copied().unwrap_or(0);
        let others = given.max(tables.committed.of(page));
        let shadow = tables.rings.shadow(page);
        let number = shadow.map_or(others, |shadow| shadow.number) + 1;
        if !tables.as_published {
            self.give(Version { page, number });
        }
        number
    }

    fn emit(&mut self, tables: &Tables<Leftover>, version: Version, more: &mut [u8]) {
        put(more, back::BACK, tables.committed.of(version.page).into());
    }

    fn programmed(&mut self, version: Version) {
        self.give(version);
    }

    /// The version can go unless it straddles something.
    fn superseded(
        &mut self,
        tables: &mut Tables<Leftover>,
        ftl: &mut Ftl,
        page: Lpn,
        old: Ppn,
        done: Nanos,
    ) {
        let number = tables.committed.of(page);
        if let Some(straddler) = self.straddlers.get_mut(&Version { page, number }) {
            straddler.kept_at = Some(old);
            return;
        }
        if self.obsolete.are_kept() && self.straddles(page) {
            self.obsolete.keep(page, old);
            return;
        }
        ftl.kill(old);
        // The version may have straddled a page whose erase can still be undone. Anything done at
        // `done` was waited for with the commit.
        if self.emptied_at > done {
            self.let_go_after(ftl.geometry().block_of(old), self.emptied_at);
        }
    }

    /// The version becomes responsible for all leftovers of its page that no version straddled
    /// before.
    fn committed(&mut self, tables: &mut Tables<Leftover>, version: Version) {
        let Version { page, number } = version;
        // Only numbers above the committed one need a record.
        if self.given.get(&page).is_some_and(|&given| given <= number) {
            self.given.remove(&page);
        }
        let mut straddled = 0;
        while let Some(at) = tables.concerning(page) {
            tables.by_page.remove(&(page, at));
            let leftover = tables.leftovers.get_mut(&at).expect("it is on flash");
            for side in &mut leftover.sides {
                if side.version.page == page && side.straddled_by == 0 {
                    side.straddled_by = number;
                    straddled += 1;
                }
            }
        }
        if straddled > 0 {
            let straddler = self.straddlers.entry(version).or_default();
            straddler.responsible_for += straddled;
        }
    }

    fn leftover(version: Version, next: Version) -> Leftover {
        let straddled_by = 0;
        let side = |version| Side {
            version,
            straddled_by,
        };
        Leftover {
            sides: [side(version), side(next)],
        }
    }

    /// Pages for which a leftover has a side that nothing straddles yet.
    fn concerns(leftover: &Leftover, _: bool) -> [Option<Lpn>; 2] {
        let page = |side: Side| (side.straddled_by == 0).then_some(side.version.page);
        leftover.sides.map(page)
    }

    fn erased(&mut self, tables: &mut Tables<Leftover>, ftl: &mut Ftl, leftover: Leftover) {
        for side in leftover.sides.iter().filter(|side| side.straddled_by > 0) {
            let (page, number) = (side.version.page, side.straddled_by);
            self.release_one(ftl, Version { page, number }, tables.erased_at);
        }
    }

    fn relocated(&mut self, page: Lpn, from: Ppn, to: Ppn) {
        if self.obsolete.relocated(page, from, to) {
            return;
        }
        let version = |number| Version { page, number };
        let kept = self.straddlers.range_mut(version(0)..=version(u32::MAX));
        for (_, straddler) in kept.filter(|(_, s)| s.kept_at == Some(from)) {
            straddler.kept_at = Some(to);
        }
    }

    /// The leftovers that replaced versions in the victim straddled must be gone.
    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        match self.release.remove(&victim) {
            Some(until) => ftl.sync(now, until),
            None => Ok(now),
        }
    }

    fn take_stock(
        &mut self,
        tables: &mut Tables<Leftover>,
        ftl: &mut Ftl,
        found: &SeenVersions,
        _: &[bool],
    ) {
        recovery::take_stock(self, tables, ftl, found);
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let straddlers = table_bytes::<Version, Straddler>(self.straddlers.len());
        vec![
            ("version_table", table_bytes::<Lpn, u32>(self.given.len())),
            (
                "straddle_responsibility_sets",
                straddlers + self.obsolete.memory(),
            ),
            ("gates", table_bytes::<Pbn, Nanos>(self.release.len())),
        ]
    }

    /// Checks invariant 2: each leftover is straddled, the responsibility sets contain just the
    /// straddled sides, and a replaced version with a set is kept.
    fn check(&self, tables: &Tables<Leftover>, ftl: &Ftl) -> Result<(), String> {
        let mut sets: BTreeMap<Version, u32> = BTreeMap::new();
        for (&at, leftover) in &tables.leftovers {
            for side in &leftover.sides {
                let Version { page, number } = side.version;
                match side.straddled_by {
                    0 if number <= tables.committed.of(page) && !tables.as_published => {
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
            let is_last = tables.committed.of(version.page) == version.number;
            let is_kept = straddler.kept_at.is_some_and(|at| ftl.blocks.is_live(at));
            if is_last == is_kept {
                return Err(format!("invariant 2: {version:?} is kept: {is_kept}"));
            }
        }
        self.obsolete.check(ftl, |page| self.straddles(page))
    }
}

impl Bpcc {
    fn give(&mut self, version: Version) {
        let given = self.given.entry(version.page).or_insert(version.number);
        *given = version.number.max(*given);
    }

    /// Removes a leftover, which is being erased, from the responsibility set of `version`. Once
    /// the set is empty, the replaced version is killed, or kept as an obsolete one. The latest
    /// erase so far is done at `erased_at`.
    fn release_one(&mut self, ftl: &mut Ftl, version: Version, erased_at: Nanos) {
        let straddler = self.straddlers.get_mut(&version).expect("it answers");
        straddler.responsible_for -= 1;
        if straddler.responsible_for > 0 {
            return;
        }
        // Wait for the latest erase so far, not only this one: an older copy of the leftover may
        // have been erased with another block.
        self.emptied_at = erased_at;
        let kept_at = straddler.kept_at;
        self.straddlers.remove(&version);
        let page = version.page;
        if self.obsolete.are_kept() && self.straddles(page) {
            kept_at
                .into_iter()
                .for_each(|at| self.obsolete.keep(page, at));
            return;
        }
        for at in kept_at.into_iter().chain(self.obsolete.take(page)) {
            ftl.kill(at);
            self.let_go_after(ftl.geometry().block_of(at), erased_at);
        }
    }

    /// Whether a committed version of a page straddles anything.
    fn straddles(&self, page: Lpn) -> bool {
        let version = |number| Version { page, number };
        let mut own = self.straddlers.range(version(0)..=version(u32::MAX));
        own.next().is_some()
    }

    fn let_go_after(&mut self, block: Pbn, until: Nanos) {
        let release = self.release.entry(block).or_insert(until);
        *release = until.max(*release);
    }
}
