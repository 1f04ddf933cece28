//! The Active TxTable ([LightTx] §3.1): versions written by live transactions, kept out of the
//! mapping table until they commit. Also the page that a transaction holds back until it is known
//! whether it is the last. Emptied tables are reused, so a transaction of one page allocates
//! nothing.

use super::{Found, Write, table_bytes};
use crate::ftl::{Cause, Ftl, PageKind, Slot, Written};
use crate::units::{Lpn, Nanos, Ppn, TxId};
use rustc_hash::FxHashMap;

/// Up to this number of versions are searched linearly; beyond it an index is kept.
const SEARCHED: usize = 16;

/// A version of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) lpn: Lpn,
    pub(super) slot: Slot,
    /// The version's write sequence; 0 if no flash page has it.
    pub(super) seq: u64,
}

/// The versions written by one transaction: the newest of each page.
#[derive(Debug, Clone, Default)]
pub(super) struct Writes {
    entries: Vec<Version>,
    index: FxHashMap<Lpn, u32>,
    /// When its last program is done.
    pub(super) done: Nanos,
}

impl Writes {
    #[inline]
    fn place(&self, at: Lpn) -> Option<usize> {
        if self.entries.len() > SEARCHED {
            return self.index.get(&at).map(|&i| i as usize);
        }
        self.entries.iter().rposition(|entry| entry.lpn == at)
    }

    /// The transaction's own version of a page.
    #[inline]
    pub(super) fn get(&self, at: Lpn) -> Option<Slot> {
        self.place(at).map(|i| self.entries[i].slot)
    }

    /// Records a version that was programmed as `to`, and kills the version that it replaces.
    #[inline]
    pub(super) fn put(&mut self, ftl: &mut Ftl, at: Lpn, slot: Slot, to: Written) {
        if let Some(old) = self.put_over(at, slot, to) {
            ftl.kill(old);
        }
    }

    /// Like [`Writes::put`], but does not kill the replaced version. Returns it.
    #[inline]
    pub(super) fn put_over(&mut self, at: Lpn, slot: Slot, to: Written) -> Option<Ppn> {
        self.done = self.done.max(to.done);
        self.note(Version {
            lpn: at,
            slot,
            seq: to.seq,
        })
    }

    /// Records that a page holds nothing, without a program.
    pub(super) fn empty(&mut self, ftl: &mut Ftl, at: Lpn) {
        let version = Version {
            lpn: at,
            slot: Slot::Empty,
            seq: 0,
        };
        if let Some(old) = self.note(version) {
            ftl.kill(old);
        }
    }

    /// Records a version. Returns the physical page of the one that it replaces.
    #[inline]
    fn note(&mut self, version: Version) -> Option<Ppn> {
        let at = version.lpn;
        if let Some(i) = self.place(at) {
            let old = std::mem::replace(&mut self.entries[i], version);
            return old.slot.ppn();
        }
        self.entries.push(version);
        match self.entries.len() - 1 {
            i if i < SEARCHED => {}
            // The first entry beyond the searched ones: from now on all entries are indexed.
            SEARCHED => {
                let all = self.entries.iter().enumerate();
                self.index
                    .extend(all.map(|(i, entry)| (entry.lpn, i as u32)));
            }
            // The index exists, and gets the new entry.
            i => {
                self.index.insert(at, i as u32);
            }
        }
        None
    }

    /// Updates a version that the collector has moved. Returns `false` if the table does not have
    /// it.
    pub(super) fn follow(&mut self, at: Lpn, from: Slot, to: Slot, done: Nanos) -> bool {
        let Some(i) = self.place(at).filter(|&i| self.entries[i].slot == from) else {
            return false;
        };
        self.entries[i].slot = to;
        self.done = self.done.max(done);
        true
    }

    /// The versions, in the order in which their pages were first written.
    pub(super) fn entries(&self) -> &[Version] {
        &self.entries
    }

    /// Maps the versions in the mapping table, and kills the previous ones.
    #[inline]
    pub(super) fn publish(&self, ftl: &mut Ftl) {
        for entry in &self.entries {
            if let Some(old) = ftl.set_slot(entry.lpn, entry.slot).ppn() {
                ftl.kill(old);
            }
        }
    }

    /// Like [`Writes::publish`], but calls `step` after the mapping and before the kills. If `step`
    /// fails, the mapping table gets its old entries back, and nothing is killed.
    pub(super) fn publish_if<T, E>(
        &self,
        ftl: &mut Ftl,
        step: impl FnOnce(&mut Ftl) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut before = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            before.push((entry.lpn, ftl.set_slot(entry.lpn, entry.slot)));
        }
        let outcome = step(ftl);
        for (lpn, slot) in before {
            match (&outcome, slot.ppn()) {
                (Ok(_), Some(old)) => ftl.kill(old),
                (Ok(_), None) => {}
                (Err(_), _) => {
                    ftl.set_slot(lpn, slot);
                }
            }
        }
        outcome
    }

    /// Kills the versions.
    pub(super) fn discard(&self, ftl: &mut Ftl) {
        for entry in &self.entries {
            if let Some(page) = entry.slot.ppn() {
                ftl.kill(page);
            }
        }
    }

    /// Removes the versions from this table.
    #[inline]
    pub(super) fn clear(&mut self) {
        if self.entries.len() > SEARCHED {
            self.index.clear();
        }
        self.entries.clear();
        self.done = Nanos::ZERO;
    }

    /// Memory of the versions in bytes.
    pub(super) fn memory(&self) -> u64 {
        (self.entries.len() * size_of::<Version>()) as u64
            + table_bytes::<Lpn, u32>(self.index.len())
    }

    /// Checks that every version is live on flash and not in the mapping table yet.
    pub(super) fn check(&self, ftl: &Ftl, tx: TxId) -> Result<(), String> {
        for &Version { lpn: at, slot, .. } in &self.entries {
            let Some(page) = slot.ppn() else { continue };
            if !ftl.blocks.is_live(page) {
                return Err(format!("page {page}, which {tx} has written, is not live"));
            }
            if ftl.slot(at).ppn() == Some(page) {
                return Err(format!(
                    "logical page {at} is mapped to page {page} although {tx} has not committed"
                ));
            }
        }
        Ok(())
    }
}

/// A held-back page, without its bytes.
type HeldPage = (Lpn, PageKind, Cause);

/// The page that a transaction holds back, in reused memory.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldBack {
    page: Option<HeldPage>,
    bytes: Vec<u8>,
}

impl HeldBack {
    /// Holds a page back, in place of the previous one.
    #[inline]
    pub(super) fn hold(&mut self, write: Write<'_>) {
        self.page = Some((write.at, write.content.kind(), write.cause));
        self.bytes.clear();
        self.bytes.extend_from_slice(write.content.bytes());
    }

    /// Drops the held-back page if it is that of `at`.
    pub(super) fn clear_if(&mut self, at: Lpn) {
        self.page.take_if(|&mut (held, ..)| held == at);
    }

    /// The held-back page, if any.
    pub(super) fn lpn(&self) -> Option<Lpn> {
        self.page.map(|(lpn, ..)| lpn)
    }

    /// Whether a page is held back.
    #[inline]
    pub(super) fn is_some(&self) -> bool {
        self.page.is_some()
    }

    /// The transaction's own version of a logical page: this one, or one of `writes`.
    pub(super) fn find(&self, writes: &Writes, at: Lpn) -> Option<Found<'_>> {
        match self.page {
            Some((held, PageKind::Trim, _)) if held == at => Some(Found::Nothing),
            Some((held, ..)) if held == at => Some(Found::Held(&self.bytes)),
            _ => writes.get(at).map(Found::from),
        }
    }

    /// The held-back page, to program it.
    ///
    /// # Panics
    /// No page is held back.
    #[inline]
    pub(super) fn get(&self) -> (Lpn, PageKind, Cause, &[u8]) {
        let (at, kind, cause) = self.page.expect("a page is held back");
        (at, kind, cause, &self.bytes)
    }

    /// Drops the page: it was programmed, or is not needed.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.page = None;
    }

    /// The held-back page, without its bytes.
    pub(super) fn page(&self) -> Option<HeldPage> {
        self.page
    }

    /// Restores the page that was dropped last; its bytes are still stored.
    pub(super) fn hold_again(&mut self, page: Option<HeldPage>) {
        self.page = page;
    }

    /// Heap memory in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.bytes.capacity() as u64
    }
}

/// Emptied entries of ended transactions, kept for reuse to avoid allocations.
#[derive(Debug, Clone, Default)]
pub(super) struct Spare<T>(Vec<Box<T>>);

impl<T: Default> Spare<T> {
    /// Takes a reusable entry, or a new one.
    #[inline]
    pub(super) fn take(&mut self) -> Box<T> {
        self.0.pop().unwrap_or_default()
    }

    /// Returns an emptied entry.
    #[inline]
    pub(super) fn give(&mut self, emptied: Box<T>) {
        self.0.push(emptied);
    }
}

/// One entry per live transaction that has written.
#[derive(Debug, Clone)]
pub(super) struct TxTable<T> {
    live: FxHashMap<TxId, Box<T>>,
    spare: Spare<T>,
}

impl<T: Default> TxTable<T> {
    pub(super) fn new() -> Self {
        TxTable {
            live: FxHashMap::default(),
            spare: Spare::default(),
        }
    }

    #[inline]
    pub(super) fn get(&self, tx: TxId) -> Option<&T> {
        self.live.get(&tx).map(|entry| entry.as_ref())
    }

    /// The entry of a transaction.
    #[inline]
    pub(super) fn get_mut(&mut self, tx: TxId) -> Option<&mut T> {
        self.live.get_mut(&tx).map(|entry| entry.as_mut())
    }

    /// The entry of a transaction. Creates it if missing.
    #[inline]
    pub(super) fn open(&mut self, tx: TxId) -> &mut T {
        let spare = &mut self.spare;
        self.live.entry(tx).or_insert_with(|| spare.take())
    }

    /// Removes the entry of a transaction that ends.
    #[inline]
    pub(super) fn take(&mut self, tx: TxId) -> Option<Box<T>> {
        self.live.remove(&tx)
    }

    /// Returns an emptied entry for reuse.
    #[inline]
    pub(super) fn reuse(&mut self, entry: Box<T>) {
        self.spare.give(entry);
    }

    /// All entries, in unspecified order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TxId, &T)> {
        self.live.iter().map(|(&tx, entry)| (tx, entry.as_ref()))
    }

    /// All entries, mutable.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.live.values_mut().map(|entry| entry.as_mut())
    }

    /// Memory of the table and of its entries in bytes.
    pub(super) fn memory(&self, of: impl Fn(&T) -> u64) -> u64 {
        let entries: u64 = self.live.values().map(|entry| of(entry)).sum();
        let boxes = (self.live.len() * size_of::<T>()) as u64;
        table_bytes::<TxId, Box<T>>(self.live.len()) + boxes + entries
    }
}
