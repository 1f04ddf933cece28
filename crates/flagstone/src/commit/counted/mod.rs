//! Transactions that count their pages, on zones: what LightTx and MHL-D share.
//!
//! ```text
//!   page of T5   | T5 | 0 | 0 |     another | T5 | 0 | 0 |     the last | T5 | 3 | ver 17 |
//! ```
//!
//! The last page of a transaction is held back until its commit and says how many pages there are:
//! the transaction has committed once so many are on flash, wherever and in whatever order they got
//! there. A page of no transaction, which is what the collector copies, counts by itself.

pub(super) mod lighttx;
pub(super) mod mhl_d;
pub(super) mod zones;

use super::active::{TxTable, Writes};
use super::{Found, Options, Taken, Way, Write};
use crate::ftl::{
    Cause, Fate, Ftl, FtlError, Header, Kind as PageKind, Mounted, Owner, Slot, Stream, Written,
};
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use rustc_hash::FxHashSet;
use zones::Zones;

layout! {
    /// What a spare area says behind its header.
    pub count_record: 12 => {
        TXID:  4, "the transaction; 0 for a copy, which belongs to none";
        TXCNT: 4, "pages of the transaction, in its last page; 0 in the others";
        TXVER: 4, "order of the commits, in the last page; 0 in the others";
    }
}

/// Identifiers and versions are 64 bits wide in memory; on flash they are a number from 1 to this,
/// over and over.
const CYCLE: u64 = u32::MAX as u64;

/// A number, as it is on flash.
#[inline]
pub(super) fn narrow(number: u64) -> u32 {
    ((number - 1) % CYCLE + 1) as u32
}

/// The number closest to `near` that is so on flash.
pub(super) fn widen(narrow: u32, near: u64) -> u64 {
    let cycle = near / CYCLE;
    (cycle.saturating_sub(1)..=cycle + 1)
        .map(|cycle| cycle * CYCLE + u64::from(narrow))
        .min_by_key(|number| number.abs_diff(near))
        .expect("three were tried")
}

/// What a live transaction has written.
#[derive(Debug, Clone, Default)]
pub(super) struct Active {
    writes: Writes,
    /// The block of each page on flash, those included that it has overwritten itself.
    programs: Vec<Pbn>,
    /// How many blocks were full when the first of them was written.
    since: u64,
    held: Option<(Lpn, PageKind, Cause)>,
    held_bytes: Vec<u8>,
    /// The log head, where there are any.
    pub(super) head: u32,
}

/// Live transactions and the zones that they write to.
#[derive(Clone)]
pub(super) struct Counted {
    pub(super) active: TxTable<Active>,
    zones: Zones,
}

impl Counted {
    /// Programs the page held back, if there is one, and holds this one back instead.
    #[inline]
    pub(super) fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
        plane: Option<u32>,
    ) -> Result<Taken, FtlError> {
        let Write { at, content, cause } = write;
        let active = self.active.open(tx);
        let mut taken = Taken::at(now);
        if active.held.is_some() {
            taken.done = program(ftl, now, (tx, active), plane, (0, 0), &mut self.zones)?;
        }
        active.held = Some((at, content.kind(), cause));
        active.held_bytes.clear();
        active.held_bytes.extend_from_slice(content.bytes());
        Ok(taken)
    }

    /// Where a transaction finds a page.
    pub(super) fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_> {
        if let Some(active) = tx.and_then(|tx| self.active.get(tx)) {
            match active.held {
                Some((held, PageKind::Trim, _)) if held == at => return Found::Nothing,
                Some((held, ..)) if held == at => return Found::Held(&active.held_bytes),
                _ => {}
            }
            if let Some(slot) = active.writes.get(at) {
                return slot.into();
            }
        }
        ftl.slot(at).into()
    }

    /// Programs the page held back as the last one, waits for all of them, and points the mapping
    /// table at them. Returns when that is durable.
    #[inline]
    pub(super) fn commit(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        plane: Option<u32>,
    ) -> Result<Nanos, FtlError> {
        let Some(mut active) = self.active.take(tx) else {
            return Ok(now);
        };
        let mut done = now;
        if active.held.is_some() {
            let last = (active.programs.len() as u32 + 1, self.zones.next_version());
            program(ftl, now, (tx, &mut active), plane, last, &mut self.zones)?;
            done = ftl.sync(now, active.writes.done)?;
            self.zones.committed(done);
            active.writes.publish(ftl);
            for entry in active.writes.entries() {
                if matches!(entry.slot, Slot::Trimmed(_)) {
                    self.zones.trimmed(entry.lpn);
                }
            }
        }
        self.end(active);
        Ok(done)
    }

    /// Drops what a transaction has written.
    pub(super) fn abort(&mut self, ftl: &mut Ftl, tx: TxId) {
        if let Some(active) = self.active.take(tx) {
            active.writes.discard(ftl);
            self.end(active);
        }
    }

    #[inline]
    fn end(&mut self, mut active: Box<Active>) {
        active.writes.clear();
        active.programs.clear();
        active.held = None;
        self.active.reuse(active);
    }

    /// Makes sure that a block can be opened.
    #[inline]
    pub(super) fn in_the_way(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        round: u32,
    ) -> Result<Option<Way>, FtlError> {
        if round > 0 || self.zones.is_short(ftl) {
            return self.make_zone(ftl, now, round);
        }
        Ok(None)
    }

    #[cold]
    fn make_zone(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        round: u32,
    ) -> Result<Option<Way>, FtlError> {
        // Without free blocks, what can be collected is still in the zones.
        let way = (round == 0 && ftl.free_blocks() == 0).then_some(Way::Room);
        self.slide(ftl, now)?;
        Ok(way)
    }

    fn slide(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<(), FtlError> {
        let last = self.zones.last_tx.0;
        let mut live = FxHashSet::default();
        for (tx, active) in self.active.iter() {
            let age = last.abs_diff(tx.0);
            assert!(age < CYCLE / 2, "{tx} is so old that its number recurs");
            live.extend(&active.programs);
        }
        self.zones.slide(ftl, now, &live).map(|_| ())
    }

    /// Bytes of each structure in memory.
    pub(super) fn memory(&self) -> Vec<(&'static str, u64)> {
        let of = |active: &Active| {
            let programs = (active.programs.len() * size_of::<Pbn>()) as u64;
            active.writes.memory() + programs + active.held_bytes.capacity() as u64
        };
        vec![
            ("active_tx_table", self.active.memory(of)),
            ("zones", self.zones.memory()),
        ]
    }

    /// Checks the zones, and that every version of a live transaction lies in them.
    pub(super) fn check(&self, ftl: &Ftl) -> Result<(), String> {
        self.zones.check(ftl)?;
        let written: FxHashSet<Pbn> = self.zones.written().collect();
        for (tx, active) in self.active.iter() {
            active.writes.check(ftl, tx)?;
            for page in active
                .writes
                .entries()
                .iter()
                .filter_map(|entry| entry.slot.ppn())
            {
                if !written.contains(&ftl.geometry().block_of(page)) {
                    return Err(format!("page {page} of {tx} lies outside of the zones"));
                }
            }
        }
        Ok(())
    }
}

/// Programs the page that a transaction holds back; `last` is its count and version. Returns when
/// it is done.
#[inline]
fn program(
    ftl: &mut Ftl,
    now: Nanos,
    (tx, active): (TxId, &mut Active),
    plane: Option<u32>,
    (count, version): (u32, u64),
    zones: &mut Zones,
) -> Result<Nanos, FtlError> {
    let (at, kind, cause) = active.held.take().expect("a page is held back");
    let id = narrow(tx.0);
    let mut tail = [0; count_record::SIZE];
    put(&mut tail, count_record::TXID, id.into());
    if count > 0 {
        put(&mut tail, count_record::TXCNT, count.into());
        put(&mut tail, count_record::TXVER, narrow(version).into());
    }
    let to = (Stream::Host, plane);
    let page = (kind, at, None);
    let to = ftl.append(now, to, page, &tail, &active.held_bytes, cause)?;
    if active.programs.is_empty() {
        active.since = zones.filled();
    }
    active.programs.push(ftl.geometry().block_of(to.at));
    zones.note(ftl, Stream::Host, to.at, active.since);
    active.writes.put(ftl, at, Slot::of(kind, to.at), to);
    Ok(to.done)
}

impl Owner for Counted {
    fn prepare(&mut self, ftl: &mut Ftl, now: Nanos, _: Pbn) -> Result<Nanos, FtlError> {
        if self.zones.is_empty(ftl) {
            self.slide(ftl, now)?;
        }
        Ok(now)
    }

    fn relocate(&mut self, _: &Ftl, _: Ppn, _: &Header, tail: &mut [u8]) -> Fate {
        put(tail, count_record::TXID, 0);
        put(tail, count_record::TXCNT, 1);
        let version = narrow(self.zones.next_version());
        put(tail, count_record::TXVER, version.into());
        Fate::Copy
    }

    fn relocated(&mut self, ftl: &mut Ftl, header: &Header, from: Ppn, to: Written) {
        assert_eq!(
            ftl.slot(header.lpn).ppn(),
            Some(from),
            "outside of the zones a live page is the one in the mapping table"
        );
        ftl.set_slot(header.lpn, Slot::of(header.kind, to.at));
        self.zones.note(ftl, Stream::Gc, to.at, 0);
        self.zones.copied(to.done);
    }

    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, _: Pbn) -> Result<Nanos, FtlError> {
        self.zones.erasable(ftl, now)
    }
}

/// A page that recovery found in the zones.
#[derive(Debug, Clone, Copy)]
struct Seen {
    tx: u32,
    seq: u64,
    count: u32,
    version: u64,
    lpn: Lpn,
    slot: Slot,
}

/// Brings the mapping table up to date with the zones of a mounted device.
///
/// `trust_all` and `any_order` are the as-published forms: redo commits that the table contains
/// already, and take the pages of one transaction as they come.
pub(super) fn recover(
    ftl: &mut Ftl,
    mounted: &Mounted,
    options: &Options,
    (trust_all, any_order): (bool, bool),
) -> Result<(Counted, Nanos), FtlError> {
    let (mut zones, last) = Zones::mount(ftl, mounted, options.zone_blocks)?;
    let logical_pages = ftl.logical_pages();
    let mut seen: Vec<Seen> = Vec::new();
    // Most of the Available zone is blank: a look at a first page is cheaper than one at a summary.
    let mut blocks = Vec::new();
    let mut found = mounted.done;
    for &block in &last.available {
        let (read, written) = ftl.look_into(mounted.done, block)?;
        found = found.max(read);
        blocks.extend(written.then_some(block));
    }
    blocks.extend(&last.unavailable);
    let done = ftl.scan(mounted.done, &blocks, |at, head, tail| {
        if head.lpn.0 < logical_pages {
            seen.push(Seen {
                tx: get(tail, count_record::TXID) as u32,
                seq: head.seq,
                count: get(tail, count_record::TXCNT) as u32,
                version: widen(get(tail, count_record::TXVER) as u32, last.version),
                lpn: head.lpn,
                slot: Slot::of(head.kind, at),
            });
        }
    })?;
    let done = done.max(found);
    zones.keep(ftl, blocks.into_iter());
    for page in &seen {
        if page.count > 0 {
            zones.version = zones.version.max(page.version);
        }
        if page.tx > 0 {
            let tx = TxId(widen(page.tx, zones.last_tx.0));
            zones.last_tx = zones.last_tx.max(tx);
        }
    }
    let groups = redo(seen, last.version, (trust_all, any_order));
    for (at, slot) in groups.into_iter().flat_map(|group| group.pages) {
        ftl.set_slot(at, slot);
        if matches!(slot, Slot::Trimmed(_)) {
            zones.trimmed(at);
        }
    }
    ftl.revive_mapped()?;
    ftl.finish_mount();
    let active = TxTable::new();
    Ok((Counted { active, zones }, done))
}

/// A committed transaction, or a page that belongs to none.
struct Group {
    version: u64,
    pages: Vec<(Lpn, Slot)>,
}

/// What the mapping table of a checkpoint lacks, in the order of the commits.
fn redo(seen: Vec<Seen>, checkpoint: u64, (trust_all, any_order): (bool, bool)) -> Vec<Group> {
    let mut groups = committed(seen, any_order);
    groups.retain(|group| trust_all || group.version > checkpoint);
    groups.sort_by_key(|group| group.version);
    groups
}

/// Groups pages by transaction and keeps those transactions all of whose pages are there.
fn committed(mut seen: Vec<Seen>, any_order: bool) -> Vec<Group> {
    if any_order {
        seen.sort_by_key(|page| page.tx);
    } else {
        seen.sort_by_key(|page| (page.tx, page.seq));
    }
    let alone = seen.iter().filter(|page| page.tx == 0).map(|page| Group {
        version: page.version,
        pages: vec![(page.lpn, page.slot)],
    });
    let together = seen
        .chunk_by(|a, b| a.tx == b.tx)
        .filter(|pages| pages[0].tx != 0)
        .filter_map(|pages| {
            let last = pages.iter().find(|page| page.count > 0)?;
            (last.count as usize == pages.len()).then(|| Group {
                version: last.version,
                pages: pages.iter().map(|page| (page.lpn, page.slot)).collect(),
            })
        });
    alone.chain(together).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Case, prove, rows_that_differ};

    /// Pages of a transaction that are in the zones, or one page of none.
    #[derive(Debug)]
    struct Facts {
        has_tx: bool,
        pages: u32,
        /// TxCnt in the page at `counts`; 0 if no page that is there has one.
        count: u32,
        counts: u32,
        /// TxVer beside it; ckptVer is 17.
        version: u64,
    }

    /// The table in the header of LightTx. The verdict is whether the pages are redone.
    const TABLE: [Case<Facts, bool>; 6] = [
        Case {
            row: "@A",
            holds: |facts| facts.has_tx && facts.count == 0,
            verdict: |_| false,
        },
        Case {
            row: "@B",
            holds: |facts| facts.has_tx && facts.count > 0 && facts.count != facts.pages,
            verdict: |_| false,
        },
        Case {
            row: "@C",
            holds: |facts| facts.has_tx && facts.count == facts.pages && facts.version > 17,
            verdict: |_| true,
        },
        Case {
            row: "@D",
            holds: |facts| facts.has_tx && facts.count == facts.pages && facts.version <= 17,
            verdict: |_| false,
        },
        Case {
            row: "@E",
            holds: |facts| !facts.has_tx && facts.version > 17,
            verdict: |_| true,
        },
        Case {
            row: "@F",
            holds: |facts| !facts.has_tx && facts.version <= 17,
            verdict: |_| false,
        },
    ];

    impl Facts {
        fn all() -> Vec<Facts> {
            let mut all = Vec::new();
            for (pages, count) in (1..4).flat_map(|pages| (0..6).map(move |count| (pages, count))) {
                for (counts, version) in (0..pages).flat_map(|at| [16, 17, 18].map(|v| (at, v))) {
                    for has_tx in [true, false] {
                        // A page of no transaction is alone and counts itself.
                        if has_tx || (pages, count) == (1, 1) {
                            all.push(Facts {
                                has_tx,
                                pages,
                                count,
                                counts,
                                version,
                            });
                        }
                    }
                }
            }
            all
        }

        /// Whether the pages are redone, beside those of transaction 8, which always are.
        fn is_redone(&self, as_published: (bool, bool)) -> bool {
            let page = |tx, at: u32, (count, version)| Seen {
                tx,
                seq: u64::from(tx * 10 + at),
                count,
                version,
                lpn: Lpn(tx * 10 + at),
                slot: Slot::Page(Ppn(tx * 10 + at)),
            };
            let mut seen = vec![page(8, 0, (0, 0)), page(8, 1, (2, 30))];
            for at in 0..self.pages {
                let last = (at == self.counts).then_some((self.count, self.version));
                seen.push(page(7 * u32::from(self.has_tx), at, last.unwrap_or((0, 0))));
            }
            let groups = redo(seen, 17, as_published);
            let of = |group: &Group| group.pages.iter().map(|page| page.0.0).collect::<Vec<_>>();
            let (other, own) = groups.split_last().expect("transaction 8 is there");
            assert_eq!(of(other), [80, 81], "by TxVer");
            let first = 70 * u32::from(self.has_tx);
            let whole: Vec<u32> = (first..first + self.pages).collect();
            assert!(own.iter().all(|group| of(group) == whole));
            own.len() == 1
        }
    }

    #[test]
    fn every_row_of_the_recovery_table() {
        prove(&TABLE, &Facts::all(), |facts| {
            facts.is_redone((false, false))
        });
    }

    #[test]
    fn the_printed_form_differs_from_the_table_where_a_checkpoint_has_the_pages() {
        let printed = |facts: &Facts| facts.is_redone((true, true));
        assert_eq!(
            rows_that_differ(&TABLE, &Facts::all(), printed),
            ["@D", "@F"]
        );
    }

    #[test]
    fn numbers_on_flash_are_never_nought_and_come_back_beyond_32_bits() {
        for number in [1, 2, CYCLE - 1, CYCLE, CYCLE + 1, 3 * CYCLE, 3 * CYCLE + 1] {
            assert_ne!(narrow(number), 0);
            for near in [number, number.saturating_sub(1_000), number + 1_000] {
                assert_eq!(widen(narrow(number), near), number);
            }
        }
    }
}
