//! BPCC after a power cut: which versions on flash count, by the table in the header of the
//! protocol, and who answers for those that do not.

use super::{Bpcc, tail};
use crate::commit::cyclic::{Verdict, Version, judge};
use crate::commit::{Options, Recovered};
use crate::ftl::{Ftl, FtlError, Header, Mounted, Slot, doubt_number};
use crate::layout::get;
use crate::units::{Lpn, TxId};

pub(in crate::commit) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    let pages = ftl.logical_pages();
    let mut all = Vec::new();
    let blocks = ftl.data_blocks();
    let done = ftl.scan(mounted.done, &blocks, |at, head: Header, bytes: &[u8]| {
        if head.lpn.0 < pages {
            let back = get(bytes, tail::BACK) as u32;
            let version = Version {
                page: head.lpn,
                number: get(bytes, tail::NUMBER) as u32,
            };
            let next = Version {
                page: Lpn(get(bytes, tail::NEXT_PAGE) as u32),
                number: get(bytes, tail::NEXT_NUMBER) as u32,
            };
            all.push(Record::new(version, Slot::of(head.kind, at), next, back));
        }
    })?;
    for record in &all {
        let highest = record.version.number.max(record.next.number);
        doubt_number("version", highest.into(), 32)?;
    }
    let records = Records::new(all, pages);
    let is_committed = judge(pages, |at| records.verdict(at));
    let mut bpcc = Bpcc {
        as_published: options.as_published,
        ..Bpcc::default()
    };
    let committed = (0..pages).map(Lpn).map(|page| {
        let last = records.counting(page, is_committed[page.index()]);
        ftl.set_slot(page, last.map_or(Slot::Empty, |record| record.slot));
        last.map_or(0, |record| record.version.number)
    });
    bpcc.committed = committed.collect();
    bpcc.take_stock(ftl, &records);
    ftl.revive_mapped()?;
    ftl.finish_mount();
    Ok(Recovered {
        protocol: Box::new(bpcc),
        last_tx: TxId(0),
        done,
    })
}

impl Bpcc {
    /// Recovery: uncommitted versions, who answers for them, and numbers that are taken.
    fn take_stock(&mut self, ftl: &mut Ftl, records: &Records) {
        for record in &records.all {
            self.take_number(record.version);
            if !self.as_published {
                self.take_number(record.next); // D1
            }
            if !self.is_committed(records, record.version)
                && let Some(at) = record.slot.ppn()
                && self.committed.get(record.next.page).is_some()
            {
                let sides = [record.version, record.next];
                let sides = sides.map(|version| (version, self.straddler_of(records, version)));
                self.leave(at, sides);
            }
        }
        for (&version, straddler) in &mut self.straddlers {
            if self.committed.of(version.page) != version.number {
                let mut versions = records.of(version.page).iter();
                let record = versions.find(|record| record.version == version);
                straddler.kept_at = record.and_then(|record| record.slot.ppn());
                straddler.kept_at.into_iter().for_each(|at| ftl.revive(at));
            }
        }
    }

    fn take_number(&mut self, version: Version) {
        let committed = self.committed.get(version.page);
        if committed.is_some_and(|committed| version.number > committed) {
            self.give(version);
        }
    }

    fn is_committed(&self, records: &Records, version: Version) -> bool {
        version.number <= self.committed.of(version.page) && !records.is_straddled(version)
    }

    /// The number of the committed version that straddles this one; 0 if there is none.
    fn straddler_of(&self, records: &Records, version: Version) -> u32 {
        let mut above = records.above(version).iter();
        let straddler = above.find(|record| {
            record.back < version.number && self.is_committed(records, record.version)
        });
        straddler.map_or(0, |record| record.version.number)
    }
}

/// A version found on flash.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) version: Version,
    slot: Slot,
    next: Version,
    back: u32,
    /// The lowest back pointer of this and all higher versions of the page: who straddles what.
    back_from_here: u32,
}

impl Record {
    pub(super) fn new(version: Version, slot: Slot, next: Version, back: u32) -> Record {
        Record {
            version,
            slot,
            next,
            back,
            back_from_here: back,
        }
    }
}

/// All versions on flash, by page and number.
pub(super) struct Records {
    all: Vec<Record>,
    /// Where each page's versions begin, and the end of the last.
    begin: Vec<u32>,
}

impl Records {
    pub(super) fn new(mut all: Vec<Record>, pages: u32) -> Records {
        all.sort_unstable_by_key(|record| (record.version, record.slot.ppn()));
        let mut begin = vec![0; pages as usize + 1];
        for record in &all {
            begin[record.version.page.index() + 1] += 1;
        }
        for page in 1..begin.len() {
            begin[page] += begin[page - 1];
        }
        for i in (1..all.len()).rev() {
            if all[i].version.page == all[i - 1].version.page {
                all[i - 1].back_from_here = all[i - 1].back.min(all[i].back_from_here);
            }
        }
        Records { all, begin }
    }

    /// The versions of a page, lowest first.
    fn of(&self, page: Lpn) -> &[Record] {
        let Some(&end) = self.begin.get(page.index() + 1) else {
            return &[];
        };
        &self.all[self.begin[page.index()] as usize..end as usize]
    }

    fn newest(&self, page: Lpn) -> Option<&Record> {
        self.of(page).last()
    }

    /// The version of a page that counts: the newest one if that is committed, else the one that
    /// its back pointer names.
    pub(super) fn counting(&self, page: Lpn, is_committed: bool) -> Option<&Record> {
        let newest = self.newest(page)?;
        let number = match is_committed {
            true => newest.version.number,
            false => newest.back,
        };
        let mut versions = self.of(page).iter();
        versions.find(|record| record.version.number == number)
    }

    /// The versions of a page with higher numbers.
    fn above(&self, version: Version) -> &[Record] {
        let all = self.of(version.page);
        &all[all.partition_point(|record| record.version.number <= version.number)..]
    }

    /// Invariant 1: whether any version on flash straddles this one.
    pub(super) fn is_straddled(&self, version: Version) -> bool {
        let above = self.above(version).first();
        above.is_some_and(|lowest| lowest.back_from_here < version.number)
    }

    /// What the newest version of a page is.
    pub(super) fn verdict(&self, page: Lpn) -> Verdict {
        let Some(newest) = self.newest(page) else {
            return Verdict::Uncommitted;
        };
        let named = newest.next;
        let highest = self.newest(named.page).map_or(0, |r| r.version.number);
        link(named, highest, self.is_straddled(named))
    }
}

/// What a link says, by the highest version of the page that it names, and whether one straddles
/// it.
pub(super) fn link(named: Version, highest: u32, is_straddled: bool) -> Verdict {
    if is_straddled || highest < named.number {
        Verdict::Uncommitted // @A, @B
    } else if highest > named.number {
        Verdict::Committed // @C
    } else {
        Verdict::AsNewestOf(named.page) // @D, @E
    }
}
