//! Handles a write that found no room although the medium had reserved it: on a copy-on-write file
//! system (btrfs) or a thin volume. The medium works, but the disk is full.
//!
//! At that point the tables in memory are ahead of the medium: they may name pages that were not
//! written. So the store reopens itself over the same medium, within the failed call or the call
//! that discovers the failure, and continues from the durable state. As after a power cut, the
//! opening decides about transactions in flight: one whose pages are all there has committed, any
//! other has not. What the opening finds is made durable before it is trusted.
//!
//! ```text
//!   write: no room ──> writes stop ──> live transactions are read into memory ──> the opening
//!                                      ──> the call fails: full, or its commit is found there
//! ```
//!
//! Live transactions continue: their pages are kept in memory, and written again by the
//! transaction's next write. Before the opening each page is read back, and must match the length
//! and checksum of the transaction's last write. If one does not, the store is broken, as after any
//! other failure of its medium.

use super::PageStore;
use crate::error::{Doing, StoreError};
use crate::flash::places::Places;
use crate::flash::{MediumFlash, is_no_room, thin};
use crate::pages::look;
use crate::sum::crc32c;
use crate::superblock::Superblock;
use flagstone::commit::{Device, DeviceError, Options};
use flagstone::units::{Lpn, Nanos, TxId};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The reaction of a store to a write that found no space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtNoRoom {
    /// The store is broken until its holder reopens it.
    Breaks,
    /// The store reopens itself. Live transactions are lost.
    Recovers,
    /// The store reopens itself. Live transactions continue.
    Rescues,
}

/// Length and checksum of a page; `None` for a trimmed page.
type Sum = Option<(usize, u32)>;

/// State of a live transaction, needed to continue it.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// The transaction's number in the device; `None` if the device was reopened and does not know
    /// the transaction yet.
    in_device: Option<TxId>,
    /// What the transaction last wrote to each of its pages.
    sums: FxHashMap<Lpn, Sum>,
    /// The page being written, and what the transaction had written to it before.
    doubtful: Option<(Lpn, Option<Sum>)>,
    /// Whether the opening has found the new contents of that page.
    has_last: bool,
    /// Pages that the device no longer has, and that the next write writes again; `None` for a
    /// trimmed page.
    rescued: BTreeMap<Lpn, Option<Box<[u8]>>>,
}

fn sum_of(page: Option<&[u8]>) -> Sum {
    page.map(|page| (page.len(), crc32c(page)))
}

impl PageStore {
    /// Sets how the store reacts to a write that finds no room where room was reserved. With
    /// `recovers` it reopens itself, otherwise it is broken until its holder reopens it. With
    /// `rescues` live transactions continue.
    pub(crate) fn recover_from_no_room(&mut self, recovers: bool, rescues: bool) {
        let is_able = self.opened.superblock.protocol.info().format.horizons;
        self.at_no_room = match (recovers && is_able && !self.read_only, rescues) {
            (false, _) => AtNoRoom::Breaks,
            (true, false) => AtNoRoom::Recovers,
            (true, true) => AtNoRoom::Rescues,
        };
        let recovers = self.at_no_room != AtNoRoom::Breaks;
        self.places.recover_from_no_room(recovers);
    }

    /// Makes the store broken after a write that finds no room where room was reserved, until it is
    /// reopened: for holders that reopen it themselves ([`PageStore::has_lost_room`]).
    pub fn break_at_no_room(&mut self) {
        self.recover_from_no_room(false, false);
    }

    /// Registers a transaction that has begun.
    pub(super) fn note_begun(&mut self, tx: TxId) {
        if self.at_no_room == AtNoRoom::Rescues {
            let in_device = Some(tx);
            let live = Live {
                in_device,
                ..Live::default()
            };
            self.live.insert(tx, live);
        }
    }

    /// Records what a transaction is about to write to a page; `None` for a trim. The page is
    /// doubtful until [`PageStore::note_written`].
    pub(super) fn note_write(&mut self, tx: TxId, at: Lpn, page: Option<&[u8]>) {
        if let Some(live) = self.live.get_mut(&tx) {
            let before = live.sums.insert(at, sum_of(page));
            live.doubtful = Some((at, before));
        }
    }

    /// Records the result of a page write. A write that found no room has succeeded if the reopened
    /// store holds the page for the transaction.
    pub(super) fn note_written(
        &mut self,
        tx: TxId,
        done: Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Some(live) = self.live.get_mut(&tx) else {
            return done;
        };
        let Some((at, before)) = live.doubtful.take() else {
            // The store was reopened during the write, which decided the outcome.
            return if live.has_last { Ok(()) } else { done };
        };
        if done.is_err() {
            match before {
                Some(before) => _ = live.sums.insert(at, before),
                None => _ = live.sums.remove(&at),
            }
        }
        done
    }

    /// The transaction's number in the device. First writes the pages that the device lacks.
    pub(super) fn number_to_write(&mut self, tx: TxId) -> Result<TxId, StoreError> {
        let Some(live) = self.live.get(&tx) else {
            return Ok(tx);
        };
        if live.in_device.is_some() && live.rescued.is_empty() {
            return Ok(live.in_device.unwrap_or(tx));
        }
        self.write_rescued(tx)
    }

    /// Begins a transaction in the device for `tx`, if the reopened device does not know it, and
    /// writes the rescued pages in it. Returns its number in the device.
    fn write_rescued(&mut self, tx: TxId) -> Result<TxId, StoreError> {
        let known = self.live.get(&tx).and_then(|live| live.in_device);
        let number = match known {
            Some(number) => number,
            None => {
                let begun = self.device.begin(self.now);
                let number = self.translate(begun)?;
                if let Some(live) = self.live.get_mut(&tx) {
                    live.in_device = Some(number);
                }
                number
            }
        };
        let pages = self.live.get(&tx).map(|live| live.rescued.clone());
        for (at, page) in pages.unwrap_or_default() {
            match page {
                Some(page) => self.write_in_device(number, at, &page)?,
                None => self.trim_in_device(number, at)?,
            }
        }
        // Clear all at once: an earlier failure keeps all of them in memory.
        if let Some(live) = self.live.get_mut(&tx) {
            live.rescued.clear();
        }
        Ok(number)
    }

    /// The transaction's version of a page that is only in memory. `None` if the device has it.
    pub(super) fn read_rescued(&self, tx: TxId, at: Lpn, into: &mut [u8]) -> Option<Option<usize>> {
        let page = self.live.get(&tx)?.rescued.get(&at)?;
        Some(page.as_ref().map(|page| {
            into[..page.len()].copy_from_slice(page);
            page.len()
        }))
    }

    /// The transaction's number for reading; `None` if the device does not know the transaction.
    pub(super) fn number_to_read(&self, tx: Option<TxId>) -> Option<TxId> {
        let tx = tx?;
        self.live.get(&tx).map_or(Some(tx), |live| live.in_device)
    }

    /// Ends a transaction. Returns its number in the device.
    pub(super) fn end_live(&mut self, tx: TxId) -> Option<TxId> {
        match self.live.remove(&tx) {
            Some(live) => live.in_device,
            None => Some(tx),
        }
    }

    /// Reopens the store if another thread has found no space for this store's writes.
    pub(crate) fn mend(&mut self) {
        if self.places.waits_for_room() {
            let _ = self.take_failure();
        }
    }

    /// Turns a refusal of the medium into an error. Reopens the store if room was lacking and it
    /// recovers from that; otherwise the store is broken from now on.
    pub(super) fn take_failure(&mut self) -> StoreError {
        let Some((what, error)) = self.notes.trouble.take() else {
            return match (&self.broken, &self.no_room) {
                (Some(why), _) => StoreError::Broken(why.clone()),
                // Another call has discovered it.
                (None, Some(why)) => StoreError::Full(why.clone()),
                (None, None) => StoreError::Broken("the medium refused a request".into()),
            };
        };
        let mut why = format!("{what}: {error}");
        if self.at_no_room != AtNoRoom::Breaks && is_no_room(&error) {
            let places = Arc::clone(&self.places);
            // Until pending writes are discarded or known to be lost, no other thread may write.
            let _no_writes = places.stop_other_writers();
            match self.open_again(&places) {
                Ok(()) => {
                    self.no_room = Some(why.clone());
                    return StoreError::Full(why);
                }
                Err(then) => {
                    why += &format!("; and opening it again: {then}");
                    self.notes.trouble.note_for_good(why.clone());
                }
            }
        }
        self.broken = Some(why);
        StoreError::io(what, error)
    }

    /// Reopens the store over the same medium. No other thread writes meanwhile.
    fn open_again(&mut self, places: &Arc<Places>) -> Result<(), StoreError> {
        self.rescue()?;
        places.forgive_misreads(false);
        self.notes.trouble.forget();
        let medium = places.medium();
        medium.refresh().doing("making durable what was written")?;
        let head = Superblock::read(medium)?
            .filter(|head| head.superblock.blocks > 0)
            .ok_or_else(|| StoreError::Damaged("its superblocks are gone".into()))?;
        look::doubt_head(medium, &head)?;
        let superblock = head.superblock;
        let mut defaults = Options::default();
        defaults.ended = superblock.sealed;
        let flash = Box::new(MediumFlash::again(Arc::clone(places), superblock));
        let opened = Device::open(
            flash,
            superblock.protocol,
            self.config,
            &defaults,
            Nanos::ZERO,
        );
        let mut device = opened.map_err(|error| match self.notes.trouble.take() {
            Some((what, error)) => StoreError::io(what, error),
            None => StoreError::Damaged(error.to_string()),
        })?;
        look::doubt_marks(&self.notes)?;
        look::doubt_damaged_marks(&self.notes)?;
        look::doubt_pages(medium, &head, device.pages())?;
        device.number_after(&self.device);
        places.forgive_misreads(true);
        self.now = device.recovered_at().max(self.now);
        self.device = device;
        self.opened = head;
        self.promised = 0;
        self.resumed = false;
        self.left_alone_at = u64::MAX;
        self.highest = self.device.pages();
        self.highest = self.highest().map_or(0, |at| at.0);
        self.is_thin = thin::is_thin(medium, self.opened.superblock.blocks);
        self.find_blocks_without_room();
        self.in_service = self.in_service();
        self.is_short = true;
        Ok(())
    }

    /// Reads the pages of the live transactions into memory, each with the contents that the
    /// transaction wrote last. A doubtful page has the new contents if the device accepted the
    /// write, else those before it. A page with neither is lost.
    fn rescue(&mut self) -> Result<(), StoreError> {
        let mut all = std::mem::take(&mut self.live);
        for live in all.values_mut() {
            let doubtful = live.doubtful.take();
            for (at, sum) in live.sums.clone() {
                let is_doubtful = doubtful.is_some_and(|(last, _)| last == at);
                if live.rescued.contains_key(&at) && !is_doubtful {
                    continue;
                }
                if let Some(page) = self.page_with(live.in_device, at, sum)? {
                    live.has_last |= is_doubtful;
                    live.rescued.insert(at, page);
                    continue;
                }
                let before = doubtful.filter(|_| is_doubtful).map(|(_, before)| before);
                let Some(before) = before else {
                    return Err(lost(at));
                };
                // The device has not accepted the write.
                live.has_last = false;
                let Some(before) = before else {
                    live.sums.remove(&at);
                    continue;
                };
                live.sums.insert(at, before);
                if !live.rescued.contains_key(&at) {
                    let page = self.page_with(live.in_device, at, before)?;
                    live.rescued.insert(at, page.ok_or_else(|| lost(at))?);
                }
            }
            live.in_device = None;
        }
        self.live = all;
        Ok(())
    }

    /// Reads the version of a page that has this sum: the transaction's own or the committed one. A
    /// failed commit may have ended the transaction with its pages in place.
    fn page_with(
        &mut self,
        tx: Option<TxId>,
        at: Lpn,
        sum: Sum,
    ) -> Result<Option<Option<Box<[u8]>>>, StoreError> {
        let mut page = vec![0; PageStore::PAGE_BYTES];
        for tx in [tx, None] {
            let bytes = match self.device.read_into(self.now, tx, at, &mut page) {
                Ok((_, bytes)) => bytes.map(|bytes| &page[..bytes]),
                // The device did not grow to the page that was being written.
                Err(DeviceError::NoTransaction(_) | DeviceError::OutOfRange { .. }) => continue,
                Err(error) => return Err(StoreError::Device(error)),
            };
            if sum_of(bytes) == sum {
                return Ok(Some(bytes.map(Box::from)));
            }
        }
        Ok(None)
    }

    /// Commits a transaction of the device.
    pub(super) fn commit_in_device(&mut self, tx: TxId) -> Result<(), StoreError> {
        let committed = self.device.commit(self.now, tx);
        match self.translate(committed)? {
            Some(done) => self.now = self.now.max(done),
            None => {
                let flushed = self.device.acknowledged(self.now, true);
                for (_, done) in self.translate(flushed)? {
                    self.now = self.now.max(done);
                }
            }
        }
        Ok(())
    }

    /// Whether the reopened store holds everything that the transaction wrote. The transaction was
    /// being committed, so it has then committed.
    pub(super) fn has_all_of(&mut self, tx: TxId) -> bool {
        let Some(live) = self.live.remove(&tx) else {
            return false;
        };
        let mut page = vec![0; PageStore::PAGE_BYTES];
        let has_all = live.in_device.is_none()
            && live.rescued.iter().all(|(&at, wrote)| {
                self.read(None, at, &mut page)
                    .is_ok_and(|bytes| bytes.map(|bytes| &page[..bytes]) == wrote.as_deref())
            });
        self.live.insert(tx, live);
        has_all
    }

    /// Whether a write may be tried. If space was lacking before, checks for space again.
    pub(super) fn may_write_now(&mut self) -> Result<(), StoreError> {
        self.mend();
        self.may_write()?;
        self.wait_for_room()
    }

    /// Refuses writes while the medium lacks space for one page. The test rewrites the older
    /// superblock in place, so an attempt costs one write and no further opening.
    fn wait_for_room(&mut self) -> Result<(), StoreError> {
        if !self.is_short {
            return Ok(());
        }
        let mut next = self.opened.superblock;
        let (place, _) = next.advance();
        let mut page = [0; crate::superblock::MEDIUM_PAGE_BYTES];
        let medium = self.places.medium();
        let probed = medium
            .read_at(place, &mut page)
            .and_then(|()| medium.write_at(place, &page));
        match probed {
            Err(error) if is_no_room(&error) => Err(StoreError::Full(no_room_yet(&error))),
            // Any other failure will show at the next write.
            _ => {
                self.is_short = false;
                Ok(())
            }
        }
    }
}

fn lost(at: Lpn) -> StoreError {
    StoreError::Damaged(format!("page {at} of a live transaction is lost"))
}

fn no_room_yet(error: &io::Error) -> String {
    format!("the medium has no room for a write, though it had promised it: {error}")
}
