//! The Active TxTable ([LightTx] §3.1): the versions that live transactions have written, kept out
//! of the mapping table until they commit. And the page that a transaction holds back until it is
//! known whether that is its last. Emptied tables are used again, so that a transaction of one page
//! allocates nothing.

use super::{Found, Write, table_bytes};
use crate::ftl::{Cause, Ftl, PageKind, Slot, Written};
use crate::units::{Lpn, Nanos, Ppn, TxId};
use rustc_hash::FxHashMap;

/// So many versions are searched one by one; beyond that an index is kept.
const SEARCHED: usize = 16;

/// A version of a page, as it is found on flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) lpn: Lpn,
    pub(super) slot: Slot,
    /// Its write sequence; 0 if it is on no page.
    pub(super) seq: u64,
}

/// What one transaction has written: the newest version of each page.
#[derive(Debug, Clone, Default)]
pub(super) struct Writes {
    entries: Vec<Version>,
    index: FxHashMap<Lpn, u32>,
    /// When the last of its programs is done.
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

    /// Notes a version that was programmed as `to`, and lets the collector have the one that it
    /// takes the place of.
    #[inline]
    pub(super) fn put(&mut self, ftl: &mut Ftl, at: Lpn, slot: Slot, to: Written) {
        if let Some(old) = self.put_over(at, slot, to) {
            ftl.kill(old);
        }
    }

    /// As [`Writes::put`], but the version that this one takes the place of stays. Returns it.
    #[inline]
    pub(super) fn put_over(&mut self, at: Lpn, slot: Slot, to: Written) -> Option<Ppn> {
        self.done = self.done.max(to.done);
        self.note(Version {
            lpn: at,
            slot,
            seq: to.seq,
        })
    }

    /// Notes that a page holds nothing, which nothing was programmed for.
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

    /// Notes a version. Returns the page of the one that it takes the place of.
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
            SEARCHED => {
                let all = self.entries.iter().enumerate();
                self.index
                    .extend(all.map(|(i, entry)| (entry.lpn, i as u32)));
            }
            i => {
                self.index.insert(at, i as u32);
            }
        }
        None
    }

    /// Follows a version that the collector has moved. False if it is not one of these.
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

    /// Points the mapping table at the versions, and lets the collector have those before them.
    #[inline]
    pub(super) fn publish(&self, ftl: &mut Ftl) {
        for entry in &self.entries {
            if let Some(old) = ftl.set_slot(entry.lpn, entry.slot).ppn() {
                ftl.kill(old);
            }
        }
    }

    /// As [`Writes::publish`], around a step that may fail: then the mapping table is as it was.
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

    /// Lets the collector have the versions.
    pub(super) fn discard(&self, ftl: &mut Ftl) {
        for entry in &self.entries {
            if let Some(page) = entry.slot.ppn() {
                ftl.kill(page);
            }
        }
    }

    /// Forgets the versions.
    #[inline]
    pub(super) fn clear(&mut self) {
        if self.entries.len() > SEARCHED {
            self.index.clear();
        }
        self.entries.clear();
        self.done = Nanos::ZERO;
    }

    /// Bytes that the versions take up.
    pub(super) fn memory(&self) -> u64 {
        (self.entries.len() * size_of::<Version>()) as u64
            + table_bytes::<Lpn, u32>(self.index.len())
    }

    /// Checks that every version is still on flash and is not in the mapping table yet.
    pub(super) fn check(&self, ftl: &Ftl, tx: TxId) -> Result<(), String> {
        for &Version { lpn: at, slot, .. } in &self.entries {
            let Some(page) = slot.ppn() else { continue };
            if !ftl.is_live(page) {
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

/// What is held back beside its bytes.
type HeldPage = (Lpn, PageKind, Cause);

/// The page that a transaction holds back, in memory that the next one uses again.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldBack {
    page: Option<HeldPage>,
    bytes: Vec<u8>,
}

impl HeldBack {
    /// Holds a page back instead of the one before it.
    #[inline]
    pub(super) fn hold(&mut self, write: Write<'_>) {
        self.page = Some((write.at, write.content.kind(), write.cause));
        self.bytes.clear();
        self.bytes.extend_from_slice(write.content.bytes());
    }

    /// Forgets the page if it is this one.
    pub(super) fn clear_if(&mut self, at: Lpn) {
        self.page.take_if(|&mut (held, ..)| held == at);
    }

    /// The page that is held back, if one is.
    pub(super) fn lpn(&self) -> Option<Lpn> {
        self.page.map(|(lpn, ..)| lpn)
    }

    /// Whether a page is held back.
    #[inline]
    pub(super) fn is_some(&self) -> bool {
        self.page.is_some()
    }

    /// Where a transaction that holds this page back, and has written others, finds its own version
    /// of a logical page, if it has one.
    pub(super) fn find(&self, writes: &Writes, at: Lpn) -> Option<Found<'_>> {
        match self.page {
            Some((held, PageKind::Trim, _)) if held == at => Some(Found::Nothing),
            Some((held, ..)) if held == at => Some(Found::Held(&self.bytes)),
            _ => writes.get(at).map(Found::from),
        }
    }

    /// The page, to program it.
    ///
    /// # Panics
    /// None is held back.
    #[inline]
    pub(super) fn get(&self) -> (Lpn, PageKind, Cause, &[u8]) {
        let (at, kind, cause) = self.page.expect("a page is held back");
        (at, kind, cause, &self.bytes)
    }

    /// Forgets the page: it was programmed, or is not needed.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.page = None;
    }

    /// What is held back beside its bytes.
    pub(super) fn page(&self) -> Option<HeldPage> {
        self.page
    }

    /// Holds the page back that was forgotten last: its bytes are still there.
    pub(super) fn hold_again(&mut self, page: Option<HeldPage>) {
        self.page = page;
    }

    /// Bytes of memory beyond its own.
    pub(super) fn memory(&self) -> u64 {
        self.bytes.capacity() as u64
    }
}

/// What ended transactions leave behind, emptied, box and all: the next ones allocate nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Spare<T>(Vec<Box<T>>);

impl<T: Default> Spare<T> {
    /// One to use again, or a new one.
    #[inline]
    pub(super) fn take(&mut self) -> Box<T> {
        self.0.pop().unwrap_or_default()
    }

    /// Gives an emptied one back.
    #[inline]
    pub(super) fn give(&mut self, emptied: Box<T>) {
        self.0.push(emptied);
    }
}

/// One entry for each live transaction that has written something.
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

    /// The entry of a transaction, to change.
    #[inline]
    pub(super) fn get_mut(&mut self, tx: TxId) -> Option<&mut T> {
        self.live.get_mut(&tx).map(|entry| entry.as_mut())
    }

    /// The entry of a transaction, a new one if it has none.
    #[inline]
    pub(super) fn open(&mut self, tx: TxId) -> &mut T {
        let spare = &mut self.spare;
        self.live.entry(tx).or_insert_with(|| spare.take())
    }

    /// Takes the entry of a transaction that ends.
    #[inline]
    pub(super) fn take(&mut self, tx: TxId) -> Option<Box<T>> {
        self.live.remove(&tx)
    }

    /// Gives an emptied entry back to be used again.
    #[inline]
    pub(super) fn reuse(&mut self, entry: Box<T>) {
        self.spare.give(entry);
    }

    /// All entries, in no order that may matter.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TxId, &T)> {
        self.live.iter().map(|(&tx, entry)| (tx, entry.as_ref()))
    }

    /// All entries, to change.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.live.values_mut().map(|entry| entry.as_mut())
    }

    /// Bytes of the table and of what its entries hold.
    pub(super) fn memory(&self, of: impl Fn(&T) -> u64) -> u64 {
        let entries: u64 = self.live.values().map(|entry| of(entry)).sum();
        let boxes = (self.live.len() * size_of::<T>()) as u64;
        table_bytes::<TxId, Box<T>>(self.live.len()) + boxes + entries
    }
}
