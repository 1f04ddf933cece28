//! The store of a run on its medium, and optionally the same store on a simulated chip. Each call
//! goes to both, and both must give the same answer.

use super::discards::{Work, under_way};
use super::lie::Lying;
use super::on_chip::OnChip;
use flagstone::ftl::Ftl;
use flagstone::units::{Lpn, Pbn, SnapshotId, TxId};
use flagstone_store::medium::Recorded;
use flagstone_store::{Glance, OpenOptions, PageStore, StoreError};
use std::fmt::{Debug, Display};

/// A store on a medium, and optionally the one on a chip.
pub(super) struct Pair {
    store: PageStore,
    beside: Option<(PageStore, OnChip)>,
}

impl Pair {
    /// Opens only the store on a medium, which may lie.
    pub(super) fn alone(medium: Lying, options: &OpenOptions) -> Result<Pair, StoreError> {
        let store = PageStore::on(Box::new(medium), options)?;
        let beside = None;
        Ok(Pair { store, beside })
    }

    /// Opens both. `options` has no key; the store on the medium uses `locked`. The chip has room
    /// for a store of `blocks_max` blocks.
    ///
    /// The chip lacks the tables that a close leaves. The result of an opening from tables is
    /// compared with the chip, and then the store on the medium is reopened without them. So both
    /// continue from the contents of their blocks.
    pub(super) fn open(
        medium: impl Fn() -> Lying,
        chip: &OnChip,
        [options, locked]: [&OpenOptions; 2],
        blocks_max: u32,
    ) -> Result<Pair, StoreError> {
        let glance = Glance::at(Box::new(medium().below()), locked)?;
        let (mut by_tables, mut without) = (None, locked.clone());
        if glance.as_ref().is_some_and(Glance::left_tables) {
            by_tables = Some(PageStore::on(Box::new(medium()), locked)?);
            without = without.uncached();
        }
        // The chip ignores what a store keeps outside its flash.
        let nothing = || Box::new(Recorded::default());
        let twin = |geometry| {
            chip.opens(glance.as_ref(), &geometry, blocks_max);
            PageStore::through(nothing(), options, |_| chip.flash(geometry))
        };
        if let Some(mut store) = by_tables {
            let mut twin = twin(*store.device().geometry())?;
            match same(&mut store, &mut twin, Found::InTables) {
                Ok(()) => chip.opened_by_tables(),
                Err(what) => chip.note(|| format!("by the tables of a close: {what}")),
            }
        }
        let listen = |flash| chip.listen(flash);
        let store = PageStore::through(Box::new(medium()), &without, listen)?;
        let twin = twin(*store.device().geometry())?;
        let beside = Some((twin, chip.clone()));
        Ok(Pair { store, beside })
    }

    /// The store on the medium, for inspection.
    pub(super) fn store(&mut self) -> &mut PageStore {
        &mut self.store
    }

    /// Makes a call to both stores. Returns the answer of the one on the medium, and notes a
    /// different one of the chip. `what` names the call.
    fn both<T: Debug>(
        &mut self,
        what: &str,
        call: impl Fn(&mut PageStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let answer = call(&mut self.store);
        if let Some((twin, chip)) = &mut self.beside {
            let other = call(twin);
            let said = |answer: &Result<T, StoreError>| match answer {
                Ok(value) => format!("{value:?}"),
                // The reason for the lack of space differs on a chip.
                Err(StoreError::Full(_)) => "full".into(),
                Err(error) => error.to_string(),
            };
            let (here, there) = (said(&answer), said(&other));
            if here != there {
                chip.note(|| format!("{what}: {here} on the medium, {there} on the chip"));
            }
        }
        answer
    }

    pub(super) fn begin(&mut self) -> Result<TxId, StoreError> {
        self.both("begin", PageStore::begin)
    }

    pub(super) fn write(&mut self, tx: TxId, at: Lpn, bytes: &[u8]) -> Result<(), StoreError> {
        self.both("write", |store| store.write(tx, at, bytes))
    }

    pub(super) fn idle(&mut self, pages: u32) -> Result<u32, StoreError> {
        self.both("idle", |store| store.idle(pages))
    }

    /// Discards free space, unless there is a chip: only a medium knows which blocks were ever
    /// erased. Returns the number of bytes released.
    pub(super) fn discard(&mut self) -> Result<u64, StoreError> {
        match self.beside {
            None => under_way(Work::Discard, || self.store.discard()),
            Some(_) => Ok(0),
        }
    }

    /// Compacts, unless there is a chip (see `discard`). Returns the number of bytes by which the
    /// file has shrunk.
    pub(super) fn compact(&mut self) -> Result<u64, StoreError> {
        match self.beside {
            None => under_way(Work::Compaction, || self.store.compact()),
            Some(_) => Ok(0),
        }
    }

    pub(super) fn trim(&mut self, tx: TxId, at: Lpn) -> Result<(), StoreError> {
        self.both("trim", |store| store.trim(tx, at))
    }

    pub(super) fn commit(&mut self, tx: TxId) -> Result<(), StoreError> {
        self.both("commit", |store| store.commit(tx))
    }

    pub(super) fn abort(&mut self, tx: TxId) -> Result<(), StoreError> {
        self.both("abort", |store| store.abort(tx))
    }

    pub(super) fn snapshot(&mut self) -> Result<SnapshotId, StoreError> {
        self.both("snapshot", PageStore::snapshot)
    }

    pub(super) fn end_snapshot(&mut self, id: SnapshotId) {
        self.store.end_snapshot(id);
        if let Some((twin, _)) = &mut self.beside {
            twin.end_snapshot(id);
        }
    }

    /// Closes both. The chip is power-cycled with what has landed on the medium.
    pub(super) fn close(
        mut self,
        medium: &Recorded,
        options: &OpenOptions,
    ) -> Result<Result<(), StoreError>, String> {
        // A close without writes finishes no blocks. Writes of the twin to its own medium do not
        // matter.
        if self.beside.is_some()
            && self.store.medium_stats().bytes > 0
            && let Err(error) = self.both("ending blocks", PageStore::end_blocks)
        {
            return Ok(Err(error));
        }
        let closed = self.store.close();
        if let (Some((twin, chip)), Ok(())) = (self.beside, &closed) {
            twin.close()
                .map_err(|error| format!("on the chip: {error}"))?;
            chip.closed(medium, options)?;
        }
        Ok(closed)
    }

    /// Compares the states that a restart has found on the medium and on the chip.
    pub(super) fn compare(&mut self) -> Result<(), String> {
        match &mut self.beside {
            Some((twin, chip)) => {
                chip.same()?;
                same(&mut self.store, twin, Found::InBlocks)
            }
            None => Ok(()),
        }
    }

    /// Like `compare`, and begins a transaction to compare its number. Ends use of both stores.
    pub(super) fn compare_at_last(&mut self) -> Result<(), String> {
        self.compare()?;
        let Some((twin, _)) = &mut self.beside else {
            return Ok(());
        };
        let (here, there) = (self.store.begin(), twin.begin());
        match (here, there) {
            (Ok(here), Ok(there)) if here == there => Ok(()),
            (here, there) => differ("next transaction", &here, &there),
        }
    }
}

/// Where the store on the medium has found its state. The one on the chip always finds it in its
/// blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// In its blocks: all must be equal.
    InBlocks,
    /// In the tables of a close, which also count what no page holds any more: the last write
    /// sequence may be higher than on the chip.
    InTables,
}

fn differ<T: Debug>(what: impl Display, here: &T, there: &T) -> Result<(), String> {
    Err(format!(
        "{what}: {here:?} on the medium, {there:?} on the chip"
    ))
}

/// Compares what two restarts have found: `here` the store on the medium, whose state was
/// `found_in`, and `there` the one on the chip, which is also checked by itself. Compares size,
/// address and contents of each page, state and live pages of each block, and the last write
/// sequence.
fn same(here: &mut PageStore, there: &mut PageStore, found_in: Found) -> Result<(), String> {
    let checked = there.device().check();
    checked.map_err(|what| format!("on the chip: {what}"))?;
    let (ftl, other) = (here.device().ftl(), there.device().ftl());
    let sizes = [&*here, &*there].map(|store| {
        let device = store.device();
        (device.pages(), device.geometry().blocks())
    });
    let (pages, blocks) = sizes[0];
    if sizes[0] != sizes[1] {
        return differ("pages and blocks", &sizes[0], &sizes[1]);
    }
    for at in (0..pages).map(Lpn) {
        if ftl.slot(at) != other.slot(at) {
            return differ(
                format!("place of page {at}"),
                &ftl.slot(at),
                &other.slot(at),
            );
        }
    }
    for block in (0..blocks).map(Pbn) {
        let of = |ftl: &Ftl| (ftl.blocks().state(block), ftl.blocks().live_in(block));
        // Tables list a block as written if its pages never became durable; on the chip it is
        // blank. In both cases it is erased before its use.
        let has_no_live_pages =
            ftl.blocks().live_in(block) == 0 && other.blocks().live_in(block) == 0;
        let may_differ = found_in == Found::InTables && has_no_live_pages;
        if of(ftl) != of(other) && !may_differ {
            return differ(format!("block {block}"), &of(ftl), &of(other));
        }
    }
    let (last, other_last) = (ftl.last_seq(), other.last_seq());
    let is_allowed = match found_in {
        Found::InBlocks => last == other_last,
        Found::InTables => last >= other_last,
    };
    if !is_allowed {
        return differ("last write sequence", &last, &other_last);
    }
    let mut page = [
        vec![0; PageStore::PAGE_BYTES],
        vec![0; PageStore::PAGE_BYTES],
    ];
    for at in (0..pages).map(Lpn) {
        if !here.holds(at) {
            continue;
        }
        let [one, other] = &mut page;
        let found = read(here, at, one);
        let found_there = read(there, at, other);
        if found != found_there {
            let bytes = |found: Result<&[u8], String>| found.map(<[u8]>::len);
            let what = format!("contents of page {at}");
            return differ(what, &bytes(found), &bytes(found_there));
        }
    }
    Ok(())
}

/// The contents of a page, or why it cannot be read.
fn read<'a>(store: &mut PageStore, at: Lpn, into: &'a mut [u8]) -> Result<&'a [u8], String> {
    match store.read(None, at, into) {
        Ok(bytes) => Ok(&into[..bytes.unwrap_or(0)]),
        Err(error) => Err(error.to_string()),
    }
}
