//! The engine of the cyclic protocols, SCC and BPCC. It keeps the links between versions, the pages
//! of live transactions, what the next version of a page must wait for, and the uncommitted
//! versions on flash.
//!
//! Both protocols write the pages of a transaction as a ring. The engine holds the newest page back
//! until the next write determines the version that it links to. At commit the held-back page links
//! to the first page, which closes the ring:
//!
//! ```text
//!   write A      write B             write C             commit
//!   keep A5      A5 -> B8 | keep B8  B8 -> C2 | keep C2  C2 -> A5
//! ```
//!
//! A link names a version, not a place, so relocation does not change links. The programs of a ring
//! need no order. While one of them is missing, the link to it names a version above the newest one
//! of its page on flash. That page gets no version of another transaction before this one has
//! ended.
//!
//! A transaction may write a page again. Then the ring has several versions of it, one number after
//! the other, and each records how many precede it there. The last of them counts, and a link to
//! any of them is one to the last. Before one that is not the first is programmed, all of the ring
//! so far is durable, so nothing is missing between it and those before. Of the version that is
//! held back the contents are replaced instead.
//!
//! A *leftover* is an uncommitted version that is still on flash. The protocol's [`Rule`] defines
//! how leftovers are handled.
//!
//! Codes       D1, D2 of [`scc`] and [`bpcc`]

#[cfg(test)]
mod bench;
pub(super) mod bpcc;
mod gates;
mod numbers;
mod recovery;
mod rings;
pub(super) mod scc;

use super::show::LIVE;
use super::{
    Found, Held, Info, Isolation, Options, Protocol, Table, Taken, Way, Write, table_bytes,
};
use crate::ftl::{
    BlockState, Format, Ftl, FtlError, Moving, Owner, Slot, Stream, Victim, Written, spare_number,
};
use crate::layout;
use crate::layout::{get, put};
use crate::settings::BadSetting;
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use gates::Gates;
use numbers::Numbers;
use recovery::{Seen, Verdict, Versions, recover};
use rings::Rings;
use std::collections::{BTreeMap, BTreeSet};

layout! {
    /// The tail of a page's spare area under SCC, and the first part of it under BPCC. The upper
    /// five bits of both numbers are, low half first, how many versions of the page come before
    /// this one in its ring.
    pub link: 12 => {
        NUMBER:      4, "version number of the page, 27 bits";
        NEXT_PAGE:   4, "the page that follows in the ring";
        NEXT_NUMBER: 4, "and its version number, 27 bits";
    }
}

/// Bits of a version number.
const NUMBER_BITS: u32 = 27;

/// Splits the field `NUMBER` of a page under SCC or BPCC: its version number, and whether its ring
/// has an earlier version of the page. (If it has 32 of them or a multiple, the flag is false.)
pub fn cyclic_number(word: u64) -> (u64, bool) {
    (word & ((1 << NUMBER_BITS) - 1), word >> NUMBER_BITS > 0)
}

/// Bits of half the count of versions that come before one in its ring.
const HALF_BITS: u32 = 32 - NUMBER_BITS;

/// The most versions of a page in a ring.
const AGAIN_MAX: u32 = (1 << (2 * HALF_BITS)) - 1;

/// The longest tail.
const TAIL_MAX: usize = link::SIZE + bpcc::back::SIZE;

/// The description common to both protocols.
const INFO: Info = Info {
    paper: "TxFlash",
    isolation: Isolation::NoPageConflict,
    format: Format {
        tail_bytes: link::SIZE,
        ..Format::NONE
    },
    ..Info::new("", "")
};

/// A version of a logical page. Numbers begin at 1; 0 is no version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Version {
    page: Lpn,
    number: u32,
}

/// What the spare area of a version says of its ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    number: u32,
    /// How many versions of the page come before this one in the ring.
    again: u32,
    /// The version that follows.
    next: Version,
}

impl Link {
    fn put(&self, tail: &mut [u8]) {
        let half = |number: u32, half: u32| u64::from(number | half << NUMBER_BITS);
        let (low, high) = (self.again % (1 << HALF_BITS), self.again >> HALF_BITS);
        put(tail, link::NUMBER, half(self.number, low));
        put(tail, link::NEXT_PAGE, self.next.page.0.into());
        put(tail, link::NEXT_NUMBER, half(self.next.number, high));
    }

    fn get(tail: &[u8]) -> Link {
        let number = |field| cyclic_number(get(tail, field)).0 as u32;
        let half = |field| get(tail, field) as u32 >> NUMBER_BITS;
        Link {
            number: number(link::NUMBER),
            again: half(link::NUMBER) | half(link::NEXT_NUMBER) << HALF_BITS,
            next: Version {
                page: Lpn(get(tail, link::NEXT_PAGE) as u32),
                number: number(link::NEXT_NUMBER),
            },
        }
    }

    /// The number of the ring's first version of the page.
    fn first(&self) -> u32 {
        self.number.saturating_sub(self.again)
    }
}

/// The differences between the protocols.
trait Rule: Clone + Send + 'static {
    /// State of an uncommitted version on flash.
    type Leftover: Copy + Send;
    /// The versions that recovery collects.
    type Versions: Versions;
    /// Bytes of the tail after the link.
    const MORE: usize = 0;

    /// Creates the rule with these options.
    fn new(options: &Options) -> Result<Self, BadSetting>;

    /// The number for the next version of a page.
    fn next_number(&mut self, tables: &Tables<Self::Leftover>, page: Lpn) -> u32;

    /// Called before a version is programmed: writes the tail after the link.
    fn emit(&mut self, tables: &Tables<Self::Leftover>, version: Version, more: &mut [u8]) {
        let _ = (tables, version, more);
    }

    /// Called after a version was programmed.
    fn programmed(&mut self, version: Version) {
        let _ = version;
    }

    /// Called when the committed version of a page, at `old`, is replaced at `done`.
    fn superseded(
        &mut self,
        tables: &mut Tables<Self::Leftover>,
        ftl: &mut Ftl,
        page: Lpn,
        old: Ppn,
        done: Nanos,
    ) {
        let _ = (tables, page, done);
        ftl.kill(old);
    }

    /// Called when a version becomes the committed one of its page.
    fn committed(&mut self, tables: &mut Tables<Self::Leftover>, version: Version) {
        let _ = (tables, version);
    }

    /// The state of a version of an aborted transaction.
    fn leftover(version: Version, next: Version) -> Self::Leftover;

    /// Pages that wait for the end of a leftover, or whose next version the leftover waits for.
    fn concerns(leftover: &Self::Leftover, as_published: bool) -> [Option<Lpn>; 2];

    /// Called when a leftover is erased. Its erase is the last one that was issued.
    fn erased(
        &mut self,
        tables: &mut Tables<Self::Leftover>,
        ftl: &mut Ftl,
        leftover: Self::Leftover,
    );

    /// Work that must be done before a page's next version is programmed.
    fn in_the_way(
        &self,
        tables: &Tables<Self::Leftover>,
        ftl: &mut Ftl,
        page: Lpn,
    ) -> Result<Option<Way>, FtlError> {
        let _ = (tables, ftl, page);
        Ok(None)
    }

    /// Called when a version was moved that is neither committed nor of a live transaction.
    fn relocated(&mut self, page: Lpn, from: Ppn, to: Ppn) {
        let _ = (page, from, to);
    }

    /// Called before a victim is erased. Returns when it may be erased.
    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        let _ = (ftl, victim);
        Ok(now)
    }

    /// Recovery: records the versions that do not count.
    fn take_stock(
        &mut self,
        tables: &mut Tables<Self::Leftover>,
        ftl: &mut Ftl,
        found: &Self::Versions,
        is_committed: &[bool],
    );

    /// Memory beyond that of the engine's tables. Entries with the same name are added up.
    fn memory(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Checks the invariants.
    fn check(&self, tables: &Tables<Self::Leftover>, ftl: &Ftl) -> Result<(), String>;
}

/// The tables that both protocols keep.
#[derive(Debug, Clone)]
struct Tables<L> {
    /// The number of each page's last committed version.
    committed: Numbers,
    rings: Rings,
    leftovers: BTreeMap<Ppn, L>,
    /// Leftovers, by the pages that they concern.
    by_page: BTreeSet<(Lpn, Ppn)>,
    gates: Gates,
    /// When the last commit was durable.
    committed_at: Nanos,
    /// When the last erase is done.
    erased_at: Nanos,
    as_published: bool,
}

impl<L> Tables<L> {
    fn new(committed: Numbers, as_published: bool) -> Tables<L> {
        Tables {
            committed,
            rings: Rings::default(),
            leftovers: BTreeMap::new(),
            by_page: BTreeSet::new(),
            gates: Gates::default(),
            committed_at: Nanos::ZERO,
            erased_at: Nanos::ZERO,
            as_published,
        }
    }

    /// A leftover that concerns a page.
    fn concerning(&self, page: Lpn) -> Option<Ppn> {
        if self.by_page.is_empty() {
            return None;
        }
        let range = (page, Ppn(0))..=(page, Ppn(u32::MAX));
        self.by_page.range(range).next().map(|&(_, at)| at)
    }

    /// Records an uncommitted version, which stays on flash until its block is erased.
    fn leave<R: Rule<Leftover = L>>(&mut self, at: Ppn, leftover: L) {
        for page in R::concerns(&leftover, self.as_published)
            .into_iter()
            .flatten()
        {
            self.by_page.insert((page, at));
        }
        self.leftovers.insert(at, leftover);
    }

    /// Checks that leftovers are dead pages in blocks that were not erased, and that `by_page`
    /// lists each for the pages that it concerns.
    fn check<R: Rule<Leftover = L>>(&self, ftl: &Ftl) -> Result<(), String> {
        let mut concerned = BTreeSet::new();
        for (&at, leftover) in &self.leftovers {
            let state = ftl.blocks.state(ftl.geometry().block_of(at));
            if ftl.blocks.is_live(at) || matches!(state, BlockState::Free | BlockState::Zone) {
                let live = ftl.blocks.is_live(at);
                return Err(format!(
                    "uncommitted page {at} in a block that is {state:?}, live: {live}"
                ));
            }
            let pages = R::concerns(leftover, self.as_published)
                .into_iter()
                .flatten();
            concerned.extend(pages.map(|page| (page, at)));
        }
        if let Some((page, at)) = concerned.symmetric_difference(&self.by_page).next() {
            return Err(format!("whether page {at} concerns {page} is not known"));
        }
        Ok(())
    }
}

/// A protocol of the family.
#[derive(Clone)]
struct Cyclic<R: Rule> {
    tables: Tables<R::Leftover>,
    rule: R,
}

impl<R: Rule> Cyclic<R> {
    /// Programs `version`, with the contents `held` and a link to `next`. First waits until the
    /// gate of its page is open, and if the ring has a version of the page already, for all of the
    /// ring so far.
    fn program(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        version: Version,
        next: Version,
        held: &Held,
    ) -> Result<Taken, FtlError> {
        let mut now = self.tables.gates.pass(ftl, now, version.page)?;
        let again = self.tables.rings.versions_of(version.page);
        if again > 0 {
            now = ftl.sync(now, self.tables.rings.written_at(tx))?;
        }
        let mut bytes = [0; TAIL_MAX];
        let number = version.number;
        Link {
            number,
            again,
            next,
        }
        .put(&mut bytes);
        self.rule
            .emit(&self.tables, version, &mut bytes[link::SIZE..]);
        let tail = &bytes[..link::SIZE + R::MORE];
        let page = (held.kind, version.page, None);
        let stream = (Stream::Host, None);
        let to = ftl.append(now, stream, page, tail, &held.data, held.cause)?;
        self.rule.programmed(version);
        if let Some(replaced) = self.tables.rings.wrote(tx, version, next, held, to) {
            ftl.kill(replaced);
        }
        Ok(Taken {
            next: now,
            done: to.done,
        })
    }

    /// Programs a held-back version. If that fails, it is held back again, and the request can be
    /// repeated.
    fn program_held(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        version: Version,
        next: Version,
        held: Held,
    ) -> Result<Taken, FtlError> {
        let programmed = self.program(ftl, now, tx, version, next, &held);
        if programmed.is_err() {
            self.tables.rings.keep_back(tx, version, held);
        }
        programmed
    }
}

impl<R: Rule> Protocol for Cyclic<R> {
    fn grown(&mut self, ftl: &Ftl) {
        self.tables.committed.grow(ftl.logical_pages() as usize);
    }

    fn in_the_way(
        &mut self,
        ftl: &mut Ftl,
        _: Nanos,
        tx: TxId,
        _: u32,
    ) -> Result<Option<Way>, FtlError> {
        match self.tables.rings.held(tx) {
            Some(held) => self.rule.in_the_way(&self.tables, ftl, held.page),
            None => Ok(None),
        }
    }

    /// Holds the page back, and programs the page held back before with a link to it. A second
    /// write of the held-back page replaces its contents.
    fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError> {
        if self.tables.rings.hold_again(tx, &write) {
            return Ok(Taken::at(now));
        }
        if self.tables.rings.versions_of(write.at) > AGAIN_MAX {
            let (at, most) = (write.at, AGAIN_MAX + 1);
            return Err(FtlError::Spent(format!(
                "page {at} was written {most} times by this transaction, which is the most that \
                 its ring can count: keep it in the buffer until commit"
            )));
        }
        let version = Version {
            page: write.at,
            number: self.rule.next_number(&self.tables, write.at),
        };
        spare_number("version", version.number.into(), NUMBER_BITS)?;
        match self.tables.rings.hold(tx, version, write) {
            Some((before, held)) => self.program_held(ftl, now, tx, before, version, held),
            None => Ok(Taken::at(now)),
        }
    }

    fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_> {
        self.tables.rings.find(ftl, tx, at)
    }

    /// Programs the held-back page with a link to the first one, which closes the ring; waits for
    /// all of the ring; maps its versions, and passes the replaced ones to the rule.
    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Option<Nanos>, FtlError> {
        let Some((last, held, first)) = self.tables.rings.last(tx) else {
            return Ok(Some(now));
        };
        let now = self.program_held(ftl, now, tx, last, first, held)?.next;
        let Cyclic { tables, rule } = self;
        let written = tables.rings.written_at(tx);
        let (shadows, _) = tables.rings.end(tx);
        let done = ftl.sync(now, written)?;
        tables.committed_at = tables.committed_at.max(done);
        for (page, shadow) in shadows {
            if let Some(old) = ftl.set_slot(page, shadow.slot).ppn() {
                rule.superseded(tables, ftl, page, old, done);
            }
            let number = shadow.number;
            tables.committed.set(page, number);
            rule.committed(tables, Version { page, number });
            tables.gates.close(page, done, true);
        }
        tables.gates.forget(ftl, now)?;
        Ok(Some(done))
    }

    /// Kills the versions on flash. Each is a leftover until its block is erased.
    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        let (shadows, replaced) = self.tables.rings.end(tx);
        for (page, shadow) in shadows {
            ftl.kill(shadow.ppn());
            let number = shadow.number;
            let leftover = R::leftover(Version { page, number }, shadow.next);
            self.tables.leave::<R>(shadow.ppn(), leftover);
        }
        for (at, old) in replaced {
            let leftover = R::leftover(old.version, old.next);
            self.tables.leave::<R>(at, leftover);
        }
        Ok(now)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let pages = &self.tables;
        let leftovers = table_bytes::<Ppn, R::Leftover>(pages.leftovers.len())
            + table_bytes::<(Lpn, Ppn), ()>(pages.by_page.len());
        let mut all = vec![
            ("version_table", pages.committed.bytes()),
            ("active_tx_table", pages.rings.memory()),
            ("uncommitted_pages", leftovers),
            ("gates", pages.gates.memory()),
        ];
        for (name, bytes) in self.rule.memory() {
            match all.iter_mut().find(|(other, _)| *other == name) {
                Some((_, sum)) => *sum += bytes,
                // The tables of the rule stand before the gates.
                None => all.insert(3, (name, bytes)),
            }
        }
        all
    }

    fn tables(&self, _: &Ftl) -> Vec<Table> {
        let left = self.tables.leftovers.iter().map(|(&at, leftover)| {
            let pages = R::concerns(leftover, self.tables.as_published);
            let pages = pages
                .into_iter()
                .flatten()
                .map(|page| format!("page {page}"));
            vec![format!("p{at}"), pages.collect::<Vec<_>>().join(", ")]
        });
        vec![
            Table::sorted("active_tx_table", LIVE, self.tables.rings.rows()),
            Table {
                name: "uncommitted_pages",
                columns: &["uncommitted, on flash", "concerns the next version of"],
                rows: left.collect(),
            },
        ]
    }

    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        self.tables.check::<R>(ftl)?;
        self.rule.check(&self.tables, ftl)
    }
}

impl<R: Rule> Owner for Cyclic<R> {
    fn relocated(&mut self, ftl: &mut Ftl, page: &Moving<'_>, to: Written) {
        let (header, from) = (page.header, page.from);
        let page = header.lpn;
        if ftl.slot(page).ppn() == Some(from) {
            ftl.move_slot(page, Slot::of(header.kind, to.at));
        } else if !self.tables.rings.relocated(page, from, to.at) {
            self.rule.relocated(page, from, to.at);
        }
    }

    /// The erase destroys replaced versions, so their replacements must be durable.
    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, of: Victim) -> Result<Nanos, FtlError> {
        let now = now.max(self.tables.committed_at);
        self.rule.before_erase(ftl, now, of.block)
    }

    /// Removes the leftovers in the erased block, and passes each to the rule.
    fn erased(&mut self, ftl: &mut Ftl, victim: Pbn, done: Nanos) {
        let Cyclic { tables, rule } = self;
        tables.erased_at = tables.erased_at.max(done);
        let first = ftl.geometry().page(victim, 0);
        let end = Ppn(first.0 + ftl.geometry().pages_per_block);
        while let Some((&at, &leftover)) = tables.leftovers.range(first..end).next() {
            tables.leftovers.remove(&at);
            for page in R::concerns(&leftover, tables.as_published)
                .into_iter()
                .flatten()
            {
                tables.by_page.remove(&(page, at));
            }
            rule.erased(tables, ftl, leftover);
        }
        tables.rings.erased(first..end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device from before pages could be written again has zeros in the place of the count.
    #[test]
    fn a_link_is_what_was_written() {
        for (number, again, next) in [(1, 0, 7), (9, 31, 8), (3, 32, 1), ((1 << 27) - 1, 1023, 5)] {
            let next = Version {
                page: Lpn(u32::MAX),
                number: next,
            };
            let link = Link {
                number,
                again,
                next,
            };
            let mut tail = [0; link::SIZE];
            link.put(&mut tail);
            assert_eq!(Link::get(&tail), link);
            assert_eq!(
                again == 0,
                get(&tail, link::NUMBER) == u64::from(number) && again < 32
            );
        }
    }
}
