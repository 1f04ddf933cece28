//! The engine of LightTx and MHL-D: a transaction counts its pages, and writes them to zones.
//!
//! ```text
//!   page of T5   | T5 | 0 | 0 |     another | T5 | 0 | 0 |     the last | T5 | 3 | ver 17 |
//! ```
//!
//! The engine holds the last page of a transaction back until the commit. This page states the
//! number of pages of the transaction. The transaction is committed once that many of its pages are
//! on flash, in any place and order. A page without a transaction counts by itself: copies of the
//! collector, and what the host writes outside of transactions.
//!
//! The protocols differ in where a transaction's pages go: [`Rule`].

pub(super) mod lighttx;
pub(super) mod mhl_d;
mod recovery;
pub(super) mod zones;

use super::active::{HeldBack, TxTable, Writes};
use super::show::{LIVE, Rulings, live_row, places, rows};
use super::{Found, Info, Isolation, Options, Protocol, Recovered, Table, Taken, Way, Write};
use crate::ftl::{
    Format, Ftl, FtlError, Mounted, Moving, Owner, Relocation, Slot, Stream, Victim, Written,
};
use crate::layout;
use crate::layout::put;
use crate::settings::Setting;
use crate::units::{Lpn, Nanos, Pbn, TxId};
use rustc_hash::FxHashSet;
use zones::Zones;

layout! {
    /// What a spare area says behind its header.
    pub count_record: 12 => {
        TXID:  4, "the transaction; 0 for a copy and for a write outside of transactions";
        TXCNT: 4, "pages of the transaction, in its last page; 0 in the others";
        TXVER: 4, "order of the commits, in the last page; 0 in the others";
    }
}

const ZONE_BLOCKS: Setting = Setting {
    name: "zone_blocks",
    default: "0",
    what: "number of blocks reserved at a zone slide; 0 means 1/64 of the device, and at least \
           what the planes and the collector need",
};

const MAP_CACHE: Setting = Setting {
    name: "map_cache",
    default: "0",
    what: "number of entries of the mapping table in memory (DFTL); the others are read from flash \
           when they are needed; 0 means the whole table",
};

/// The description common to both protocols.
const INFO: Info = Info {
    paper: "LightTx",
    isolation: Isolation::Serializable,
    outside: true,
    settings: &[ZONE_BLOCKS, MAP_CACHE],
    tail: &[count_record::RECORD],
    root: Some(zones::fields),
    recovery: rows! {
        "@A": "no page of the transaction in the zones has a TxCnt, and not @G" => "not committed";
        "@B": "TxCnt is not the number of its pages that are there, and not @G" => "not committed";
        "@C": "TxCnt is that number, TxVer is above ckptVer" => "redone, by TxVer";
        "@D": "TxCnt is that number, TxVer is not above ckptVer" => "in the mapping table";
        "@E": "a page of no transaction, TxVer is above ckptVer" => "redone, by TxVer";
        "@F": "a page of no transaction, TxVer is not above ckptVer" => "in the mapping table";
        "@G": "as @A or @B, and the mapping table of the checkpoint has one of its pages"
            => "in the mapping table";
    },
    format: Format {
        tail_bytes: count_record::SIZE,
        persist_map: true,
        zoned: true,
        ..Format::NONE
    },
    ..Info::new("", "")
};

/// Identifiers and versions are 64 bits wide in memory. On flash they wrap around: 1 to this.
const CYCLE: u64 = u32::MAX as u64;

/// Number of new transactions between two checks of the age of live ones.
const LOOK_EVERY: u64 = 1 << 20;

/// A number as stored on flash.
#[inline]
fn narrow(number: u64) -> u32 {
    ((number - 1) % CYCLE + 1) as u32
}

/// The number closest to `near` whose stored form is `narrow`.
fn widen(narrow: u32, near: u64) -> u64 {
    let cycle = near / CYCLE;
    (cycle.saturating_sub(1)..=cycle + 1)
        .map(|cycle| cycle * CYCLE + u64::from(narrow))
        .min_by_key(|number| number.abs_diff(near))
        .expect("three were tried")
}

/// Refuses new transactions if one would be live so long that its stored number repeats. `oldest`
/// is the oldest live transaction, `last` the last one.
#[inline]
fn refuse_beyond(oldest: TxId, last: TxId) -> Result<(), FtlError> {
    if last.0.saturating_sub(oldest.0) <= CYCLE / 4 {
        return Ok(());
    }
    Err(FtlError::Spent(format!(
        "{oldest} has lived through {} others, and its number on flash would soon come again: end \
         it first",
        CYCLE / 4
    )))
}

/// State of a live transaction.
#[derive(Debug, Clone, Default)]
struct Active {
    writes: Writes,
    /// The block of each of its programs, including versions that it has overwritten itself.
    programs: Vec<Pbn>,
    /// How many blocks were full at its first program.
    since: u64,
    held: HeldBack,
    /// The log head to which the transaction is bound, for protocols with heads.
    head: Option<u32>,
}

/// The differences between the protocols.
trait Rule: Clone + Send + 'static {
    /// Maximum number of live transactions, if bounded.
    fn live_max(&self) -> Option<u32> {
        None
    }

    /// Called when a transaction begins. Returns the log head that it is bound to, if any.
    fn begin(&mut self) -> Option<u32> {
        None
    }

    /// The plane for the next page of a transaction; `None`: the next plane in turn.
    fn plane(&mut self, ftl: &Ftl, head: Option<u32>) -> Option<u32> {
        let _ = (ftl, head);
        None
    }

    /// Called when a transaction ends.
    fn end(&mut self, head: Option<u32>) {
        let _ = head;
    }

    /// Memory beyond that of the engine's tables.
    fn memory(&self) -> Option<(&'static str, u64)> {
        None
    }
}

/// A protocol of the family: live transactions and the zones that they write to.
#[derive(Clone)]
struct Counted<R> {
    active: TxTable<Active>,
    zones: Zones,
    rule: R,
    /// The last transaction that is a write outside of transactions.
    outside: Option<TxId>,
}

/// Recovers a protocol. With `trust_all`, commits that the mapping table already contains are
/// redone; with `any_order`, pages of one transaction are taken in the order in which they are
/// found.
fn recover<R: Rule>(
    ftl: &mut Ftl,
    mounted: &Mounted,
    info: &Info,
    options: &Options,
    rule: R,
    trust_all: bool,
    any_order: bool,
) -> Result<Recovered, FtlError> {
    let size = options
        .settings
        .number(info, ZONE_BLOCKS.name, 0, u32::MAX)?;
    let cached = options.settings.number(info, MAP_CACHE.name, 0, u32::MAX)?;
    if cached > 0 {
        ftl.cache_map(cached);
    }
    let mut rulings = Rulings::new(options.tells);
    let found = recovery::bring_up_to_date(ftl, mounted, size, trust_all, any_order, &mut rulings)?;
    let (zones, done) = found;
    Ok(Recovered {
        last_tx: zones.last_tx,
        protocol: Box::new(Counted {
            active: TxTable::new(),
            zones,
            rule,
            outside: None,
        }),
        done,
        rulings: rulings.into_list(),
    })
}

impl<R: Rule> Counted<R> {
    fn head(&self, tx: TxId) -> Option<u32> {
        self.active.get(tx)?.head
    }

    /// The number of a transaction in its pages: 0 for a write outside of transactions.
    #[inline]
    fn number(&self, tx: TxId) -> u32 {
        if self.outside == Some(tx) {
            0
        } else {
            narrow(tx.0)
        }
    }

    /// Releases the state of an ended transaction.
    #[inline]
    fn reuse(&mut self, mut active: Box<Active>) {
        active.writes.clear();
        active.programs.clear();
        active.held.clear();
        self.active.reuse(active);
    }

    /// The stored number of a live transaction must not repeat: recovery would take the new
    /// transaction for a part of it.
    #[cold]
    fn refuse_beyond_oldest(&self, next: TxId) -> Result<(), FtlError> {
        let oldest = self.active.iter().map(|(tx, _)| tx).min();
        oldest.map_or(Ok(()), |oldest| refuse_beyond(oldest, next))
    }

    /// Slides the zones. Returns [`Way::Room`] in round 0 if no block is free: the blocks that
    /// leave the zones can be collected then.
    #[cold]
    fn make_zone(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        round: u32,
    ) -> Result<Option<Way>, FtlError> {
        // Without free blocks, all blocks that could be collected are still in the zones.
        let way = (round == 0 && ftl.blocks.free_blocks() == 0).then_some(Way::Room);
        self.slide(ftl, now)?;
        Ok(way)
    }

    /// Slides the zones. Blocks with pages of live transactions stay in them.
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
}

impl<R: Rule> Protocol for Counted<R> {
    fn grown(&mut self, ftl: &Ftl) {
        self.zones.grown(ftl);
    }

    fn live_max(&self) -> Option<u32> {
        self.rule.live_max()
    }

    fn begin(&mut self, _: &mut Ftl, _: Nanos, tx: TxId) -> Result<(), FtlError> {
        if tx.0.is_multiple_of(LOOK_EVERY) {
            self.refuse_beyond_oldest(tx)?;
        }
        self.zones.last_tx = tx;
        if let Some(head) = self.rule.begin() {
            self.active.open(tx).head = Some(head);
        }
        Ok(())
    }

    fn outside(&mut self, tx: TxId) {
        self.outside = Some(tx);
    }

    /// Ensures that a block can be opened.
    #[inline]
    fn in_the_way(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        _: TxId,
        round: u32,
    ) -> Result<Option<Way>, FtlError> {
        if round > 0 || self.zones.is_short(ftl) || ftl.map_cache_is_full() {
            return self.make_zone(ftl, now, round);
        }
        Ok(None)
    }

    /// Programs the held-back page, if any, and holds this one back instead.
    #[inline]
    fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError> {
        refuse_beyond(tx, self.zones.last_tx)?;
        // The commit needs the entry, to invalidate the version that it replaces.
        ftl.look_up(now, write.at)?;
        let id = self.number(tx);
        let active = self.active.open(tx);
        let plane = self.rule.plane(ftl, active.head);
        let mut taken = Taken::at(now);
        if active.held.is_some() {
            taken.done = program(ftl, now, id, active, plane, 0, 0, &mut self.zones)?;
        }
        active.held.hold(write);
        Ok(taken)
    }

    fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_> {
        let active = tx.and_then(|tx| self.active.get(tx));
        let own = active.and_then(|active| active.held.find(&active.writes, at));
        own.unwrap_or_else(|| ftl.slot(at).into())
    }

    /// Programs the held-back page as the last one, waits for all pages, and maps them.
    #[inline]
    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Option<Nanos>, FtlError> {
        let (head, id) = (self.head(tx), self.number(tx));
        let plane = self.rule.plane(ftl, head);
        let mut done = now;
        // `get_mut`, not `take`: if the device is full, the transaction remains live.
        if let Some(active) = self
            .active
            .get_mut(tx)
            .filter(|active| active.held.is_some())
        {
            let count = active.programs.len() as u32 + 1;
            // Entries may have left memory since their pages were written. If one cannot be read,
            // the transaction is not committed yet.
            let mut known = now;
            let entries = active.writes.entries().iter().map(|entry| entry.lpn);
            for at in entries.chain(active.held.lpn()) {
                known = known.max(ftl.look_up(now, at)?);
            }
            let version = self.zones.next_version();
            program(ftl, now, id, active, plane, count, version, &mut self.zones)?;
            done = ftl.sync(now, active.writes.done.max(known))?;
            self.zones.committed(done, &active.programs);
            active.writes.publish(ftl);
            for entry in active.writes.entries() {
                if matches!(entry.slot, Slot::Trimmed(_)) {
                    self.zones.trimmed(entry.lpn);
                }
            }
        }
        self.rule.end(head);
        if let Some(active) = self.active.take(tx) {
            self.reuse(active);
        }
        Ok(Some(done))
    }

    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        self.rule.end(self.head(tx));
        if let Some(active) = self.active.take(tx) {
            active.writes.discard(ftl);
            self.reuse(active);
        }
        Ok(now)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let of = |active: &Active| {
            let programs = (active.programs.len() * size_of::<Pbn>()) as u64;
            active.writes.memory() + programs + active.held.memory()
        };
        let mut all = vec![
            ("active_tx_table", self.active.memory(of)),
            ("zones", self.zones.memory()),
        ];
        all.extend(self.rule.memory());
        all
    }

    fn tables(&self, _: &Ftl) -> Vec<Table> {
        let live = self.active.iter().map(|(tx, active)| {
            let head = active
                .head
                .map_or("live".into(), |head| format!("live, head {head}"));
            live_row(tx, &head, places(&active.writes), active.held.lpn())
        });
        vec![
            Table::sorted("active_tx_table", LIVE, live.collect()),
            self.zones.table(),
        ]
    }

    /// Checks the zones, and that every version of a live transaction lies in them.
    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        self.zones.check(ftl)?;
        let written: FxHashSet<Pbn> = self.zones.written().collect();
        for (tx, active) in self.active.iter() {
            active.writes.check(ftl, tx)?;
            let entries = active.writes.entries().iter();
            for page in entries.filter_map(|entry| entry.slot.ppn()) {
                if !written.contains(&ftl.geometry().block_of(page)) {
                    return Err(format!("page {page} of {tx} lies outside of the zones"));
                }
            }
        }
        Ok(())
    }
}

/// Programs the held-back page of the transaction with the number `id` on `plane` (`None`: the next
/// in turn); `count` and `version` are 0 unless it is the last page. Returns when it is done.
#[inline]
fn program(
    ftl: &mut Ftl,
    now: Nanos,
    id: u32,
    active: &mut Active,
    plane: Option<u32>,
    count: u32,
    version: u64,
    zones: &mut Zones,
) -> Result<Nanos, FtlError> {
    let (at, kind, cause, bytes) = active.held.get();
    let mut tail = [0; count_record::SIZE];
    put(&mut tail, count_record::TXID, id.into());
    if count > 0 {
        put(&mut tail, count_record::TXCNT, count.into());
        put(&mut tail, count_record::TXVER, narrow(version).into());
    }
    let to = (Stream::Host, plane);
    let page = (kind, at, None);
    let to = ftl.append(now, to, page, &tail, bytes, cause)?;
    active.held.clear();
    if active.programs.is_empty() {
        active.since = zones.filled();
    }
    active.programs.push(ftl.geometry().block_of(to.at));
    zones.note(ftl, Stream::Host, to.at, active.since);
    active.writes.put(ftl, at, Slot::of(kind, to.at), to);
    Ok(to.done)
}

impl<R: Rule> Owner for Counted<R> {
    fn prepare(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        if self.zones.is_empty(ftl) {
            self.slide(ftl, now)?;
        }
        Ok(self.zones.copyable(now, victim))
    }

    fn relocate(&mut self, _: &Ftl, _: &Moving<'_>, tail: &mut [u8]) -> Relocation {
        put(tail, count_record::TXID, 0);
        put(tail, count_record::TXCNT, 1);
        let version = narrow(self.zones.next_version());
        put(tail, count_record::TXVER, version.into());
        Relocation::Copy
    }

    fn relocated(&mut self, ftl: &mut Ftl, page: &Moving<'_>, to: Written) {
        let header = page.header;
        assert_eq!(
            ftl.slot(header.lpn).ppn(),
            Some(page.from),
            "outside of the zones a live page is the one in the mapping table"
        );
        ftl.move_slot(header.lpn, Slot::of(header.kind, to.at));
        self.zones.note(ftl, Stream::Gc, to.at, 0);
        self.zones.copied(to.done);
    }

    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, _: Victim) -> Result<Nanos, FtlError> {
        self.zones.erasable(ftl, now)
    }

    /// A slide releases blocks from the zones; the next slide releases those that this one keeps.
    fn let_go(&mut self, ftl: &mut Ftl, now: Nanos, _: Pbn) -> Result<(), FtlError> {
        self.slide(ftl, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
