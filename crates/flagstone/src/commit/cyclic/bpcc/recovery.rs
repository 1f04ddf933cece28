//! Recovery of BPCC: decides which versions on flash count, by the table in the header of the
//! protocol, and assigns the others to responsibility sets.

use super::{Bpcc, Leftover, Side, back};
use crate::commit::cyclic::{Link, Seen, Tables, Verdict, Version, Versions};
use crate::ftl::{Ftl, Slot};
use crate::layout::get;
use crate::units::Lpn;

/// Records uncommitted versions in `tables`, and in `bpcc` the responsibility sets that contain
/// them and used numbers. Revives the replaced versions with a set.
pub(super) fn take_stock(
    bpcc: &mut Bpcc,
    tables: &mut Tables<Leftover>,
    ftl: &mut Ftl,
    records: &SeenVersions,
) {
    let is_committed = |tables: &Tables<Leftover>, version: Version| {
        version.number <= tables.committed.of(version.page) && !records.is_straddled(version)
    };
    // A side, with the number of the committed version that straddles it; 0 if there is none.
    let side = |tables: &Tables<Leftover>, version: Version| {
        let mut above = records.above(version).iter();
        let straddler = above.find(|record| {
            record.back < version.number && is_committed(tables, record.seen.version())
        });
        let straddled_by = straddler.map_or(0, |record| record.seen.link.number);
        Side {
            version,
            straddled_by,
        }
    };
    for record in &records.all {
        bpcc.take_number(tables, record.seen.version());
        if !tables.as_published {
            bpcc.take_number(tables, record.seen.link.next); // D1
        }
        // A link may name a page that the device does not have: such a version is ignored.
        if !is_committed(tables, record.seen.version())
            && let Some(at) = record.seen.slot.ppn()
            && tables.committed.get(record.seen.link.next.page).is_some()
        {
            let sides =
                [record.seen.version(), record.seen.link.next].map(|version| side(tables, version));
            for side in sides.iter().filter(|side| side.straddled_by > 0) {
                let (page, number) = (side.version.page, side.straddled_by);
                let straddler = bpcc.straddlers.entry(Version { page, number });
                straddler.or_default().responsible_for += 1;
            }
            tables.leave::<Bpcc>(at, Leftover { sides });
        }
    }
    for (&version, straddler) in &mut bpcc.straddlers {
        if tables.committed.of(version.page) != version.number {
            let mut versions = records.of(version.page).iter();
            let record = versions.find(|record| record.seen.version() == version);
            straddler.kept_at = record.and_then(|record| record.seen.slot.ppn());
            straddler.kept_at.into_iter().for_each(|at| ftl.revive(at));
        }
    }
    keep_all(bpcc, tables, ftl, records);
}

/// With one set per page: keeps the page's replaced versions from the first straddling one on.
fn keep_all(bpcc: &mut Bpcc, tables: &Tables<Leftover>, ftl: &mut Ftl, records: &SeenVersions) {
    if !bpcc.obsolete.are_kept() {
        return;
    }
    let mut pages: Vec<Version> = bpcc.straddlers.keys().copied().collect();
    pages.dedup_by_key(|straddler| straddler.page); // The lowest of each page stays.
    for first in pages {
        let mut last = first.number;
        for record in records.above(first) {
            let Version { page, number } = record.seen.version();
            let is_superseded = number < tables.committed.of(page);
            // A copy of the version before it, or a version that has a set of its own.
            let is_kept = number == last || bpcc.straddlers.contains_key(&record.seen.version());
            let counted = is_superseded
                && !records.is_straddled(record.seen.version())
                && !records.is_replaced(record.seen.version());
            if let Some(at) = record.seen.slot.ppn().filter(|_| counted && !is_kept) {
                ftl.revive(at);
                bpcc.obsolete.keep(page, at);
            }
            last = number;
        }
    }
}

impl Bpcc {
    fn take_number(&mut self, tables: &Tables<Leftover>, version: Version) {
        let committed = tables.committed.get(version.page);
        if committed.is_some_and(|committed| version.number > committed) {
            self.give(version);
        }
    }
}

/// A version found on flash.
#[derive(Debug, Clone, Copy)]
struct SeenVersion {
    seen: Seen,
    back: u32,
    /// The minimum of the back pointers of this and all higher versions of the page. It determines
    /// which versions are straddled.
    back_from_here: u32,
}

/// All versions on flash, by page and number.
pub(super) struct SeenVersions {
    all: Vec<SeenVersion>,
    /// The start of each page's versions, and the end of the last.
    begin: Vec<u32>,
}

impl Versions for SeenVersions {
    fn none(pages: u32) -> SeenVersions {
        SeenVersions {
            all: Vec::new(),
            begin: vec![0; pages as usize + 1],
        }
    }

    fn see(&mut self, seen: Seen, more: &[u8]) {
        let back = get(more, back::BACK) as u32;
        self.all.push(SeenVersion {
            seen,
            back,
            back_from_here: back,
        });
    }

    /// Sorts the versions by page and number, and computes `begin` and `back_from_here`.
    fn sort(&mut self) -> u32 {
        let SeenVersions { all, begin } = self;
        all.sort_unstable_by_key(|record| (record.seen.version(), record.seen.slot.ppn()));
        for record in &*all {
            begin[record.seen.page.index() + 1] += 1;
        }
        for page in 1..begin.len() {
            begin[page] += begin[page - 1];
        }
        for i in (1..all.len()).rev() {
            if all[i].seen.page == all[i - 1].seen.page {
                all[i - 1].back_from_here = all[i - 1].back.min(all[i].back_from_here);
            }
        }
        let highest =
            |record: &SeenVersion| record.seen.link.number.max(record.seen.link.next.number);
        all.iter().map(highest).max().unwrap_or(0)
    }

    fn verdict(&self, page: Lpn) -> Verdict {
        let Some(newest) = self.last(page) else {
            return Verdict::Uncommitted;
        };
        let named = newest.seen.link.next;
        let highest = self.last(named.page).map(|highest| highest.seen.link);
        link(named, highest, self.is_straddled(named))
    }

    /// The newest version if it is committed, otherwise the one that its back pointer names.
    fn counting(&self, page: Lpn, is_committed: bool) -> (u32, Slot) {
        let newest = self.last(page);
        let number = newest.map(|newest| {
            if is_committed {
                newest.seen.link.number
            } else {
                newest.back
            }
        });
        let mut versions = self.of(page).iter();
        let counts = versions.find(|record| Some(record.seen.link.number) == number);
        counts.map_or((0, Slot::Empty), |record| {
            (record.seen.link.number, record.seen.slot)
        })
    }

    fn newest(&self, page: Lpn) -> Option<(Seen, u32)> {
        let seen = self.last(page)?.seen;
        let highest = self
            .last(seen.link.next.page)
            .map_or(0, |r| r.seen.link.number);
        Some((seen, highest))
    }

    fn row(&self, page: Lpn, is_ring: bool) -> &'static str {
        let newest = self.last(page);
        match self.verdict(page) {
            Verdict::Uncommitted if newest.is_some_and(|r| self.is_straddled(r.seen.link.next)) => {
                "@A"
            }
            Verdict::Uncommitted => "@B",
            Verdict::Committed => "@C",
            Verdict::AsNewestOf(_) if is_ring => "@D",
            Verdict::AsNewestOf(_) => "@E",
        }
    }
}

impl SeenVersions {
    /// The versions of a page, lowest first.
    fn of(&self, page: Lpn) -> &[SeenVersion] {
        let Some(&end) = self.begin.get(page.index() + 1) else {
            return &[];
        };
        &self.all[self.begin[page.index()] as usize..end as usize]
    }

    fn last(&self, page: Lpn) -> Option<&SeenVersion> {
        self.of(page).last()
    }

    /// The versions of a page with higher numbers.
    fn above(&self, version: Version) -> &[SeenVersion] {
        let all = self.of(version.page);
        &all[all.partition_point(|record| record.seen.link.number <= version.number)..]
    }

    /// Whether the ring of a version has a later version of its page.
    fn is_replaced(&self, version: Version) -> bool {
        let above = self.above(version).first();
        above.is_some_and(|next| next.seen.link.first() <= version.number)
    }

    /// Invariant 1: whether any version on flash straddles this one.
    pub(super) fn is_straddled(&self, version: Version) -> bool {
        let mut above = self.above(version).iter();
        let above = above.find(|record| record.seen.link.first() > version.number);
        above.is_some_and(|lowest| lowest.back_from_here < version.number)
    }
}

/// The meaning of a link: `highest` is the highest version of the page that it names, and
/// `is_straddled` whether a version straddles the named one.
pub(super) fn link(named: Version, highest: Option<Link>, is_straddled: bool) -> Verdict {
    match highest {
        Some(highest) if !is_straddled && highest.number >= named.number => {
            if highest.first() > named.number {
                Verdict::Committed // @C
            } else {
                Verdict::AsNewestOf(named.page) // @D, @E
            }
        }
        _ => Verdict::Uncommitted, // @A, @B
    }
}
