//! A store whose medium had no room for a write, though it had promised it: a file system that
//! copies on write (btrfs), a thin volume. The medium is well, and the disk is full.
//!
//! What the store has in memory is more than what is durable then: it may name pages that were not
//! written. So the store is opened again over the same medium, within the call that failed or the
//! one that finds out, and its holder goes on with what is durable. What was in flight is judged by
//! what the opening finds, as after a power cut: a transaction whose pages are all there has
//! committed, and any other one has not. What the opening finds is made durable before it is
//! believed.
//!
//! ```text
//!   write: no room ──> writes stop ──> live transactions are read into memory ──> the opening
//!                                      ──> the call fails: full, or its commit is found there
//! ```
//!
//! A live transaction goes on: its pages are in memory, and are written once more when the next
//! call of it writes. Each page is read back before the opening, and has to be what the transaction
//! has written last by its length and checksum. If one is not, the store is broken, as it is by any
//! other failure of its medium.

use super::PageStore;
use crate::error::{Doing, StoreError};
use crate::flash::places::Places;
use crate::flash::{MediumFlash, is_no_room, thin};
use crate::pages::look;
use crate::sum::crc32c;
use crate::superblock::Superblock;
use flagstone::commit::{Device, DeviceError, Kind, Options};
use flagstone::units::{Lpn, Nanos, TxId};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// What a store does after a write that has found no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtNoRoom {
    /// It is broken until its holder opens it again.
    Breaks,
    /// It opens itself again. Live transactions are lost.
    Recovers,
    /// It opens itself again. Live transactions go on.
    Rescues,
}

/// The length and the checksum of a page; nothing for one that was trimmed.
type Sum = Option<(usize, u32)>;

/// What is known of a live transaction, so that it can go on.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// Its number in the device, which was opened again since it began; nothing if that knows
    /// nothing of it yet.
    in_device: Option<TxId>,
    sums: FxHashMap<Lpn, Sum>,
    /// The page that is being written, and what the transaction had written to it before.
    doubtful: Option<(Lpn, Option<Sum>)>,
    /// Whether the opening has found that page as it was being written.
    has_last: bool,
    /// Pages that the device does not have any more.
    rescued: BTreeMap<Lpn, Option<Box<[u8]>>>,
}

fn sum_of(page: Option<&[u8]>) -> Sum {
    page.map(|page| (page.len(), crc32c(page)))
}

impl PageStore {
    /// Sets what becomes of the store after a write that has found no room where room was promised:
    /// whether it opens itself again, or is broken until its holder does so. Whether live
    /// transactions go on if `rescues`.
    pub(crate) fn recover_from_no_room(&mut self, recovers: bool, rescues: bool) {
        let is_able = matches!(self.opened.superblock.protocol, Kind::Seal | Kind::SealR);
        self.at_no_room = match (recovers && is_able && !self.read_only, rescues) {
            (false, _) => AtNoRoom::Breaks,
            (true, false) => AtNoRoom::Recovers,
            (true, true) => AtNoRoom::Rescues,
        };
        let recovers = self.at_no_room != AtNoRoom::Breaks;
        self.places.recover_from_no_room(recovers);
    }

    /// Has the store be broken by a write that has found no room where room was promised, until it
    /// is opened again: for a holder that opens it again itself ([`PageStore::has_lost_room`]).
    pub fn break_at_no_room(&mut self) {
        self.recover_from_no_room(false, false);
    }

    /// Notes a transaction that has begun.
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

    /// Notes what a transaction is about to write to a page; nothing if it trims it. It is doubtful
    /// until [`PageStore::note_written`].
    pub(super) fn note_write(&mut self, tx: TxId, at: Lpn, page: Option<&[u8]>) {
        if let Some(live) = self.live.get_mut(&tx) {
            let before = live.sums.insert(at, sum_of(page));
            live.doubtful = Some((at, before));
        }
    }

    /// Notes what became of the write of a page. One that found no room has succeeded if the
    /// transaction has it in memory now.
    pub(super) fn note_written(
        &mut self,
        tx: TxId,
        done: Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Some(live) = self.live.get_mut(&tx) else {
            return done;
        };
        let Some((at, before)) = live.doubtful.take() else {
            // The store was opened again meanwhile, and found out.
            return match live.has_last {
                true => Ok(()),
                false => done,
            };
        };
        if done.is_err() {
            match before {
                Some(before) => _ = live.sums.insert(at, before),
                None => _ = live.sums.remove(&at),
            }
        }
        done
    }

    /// The number that a transaction has in the device, which gets what it does not have of it.
    pub(super) fn number_to_write(&mut self, tx: TxId) -> Result<TxId, StoreError> {
        let Some(live) = self.live.get(&tx) else {
            return Ok(tx);
        };
        if live.in_device.is_some() && live.rescued.is_empty() {
            return Ok(live.in_device.unwrap_or(tx));
        }
        self.write_rescued(tx)
    }

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
        // All of them: what fails before keeps all of them in memory.
        if let Some(live) = self.live.get_mut(&tx) {
            live.rescued.clear();
        }
        Ok(number)
    }

    /// What a transaction reads of a page that is only in memory; nothing if the device knows.
    pub(super) fn read_rescued(&self, tx: TxId, at: Lpn, into: &mut [u8]) -> Option<Option<usize>> {
        let page = self.live.get(&tx)?.rescued.get(&at)?;
        Some(page.as_ref().map(|page| {
            into[..page.len()].copy_from_slice(page);
            page.len()
        }))
    }

    /// The number of a transaction for reading: nothing if the device knows nothing of it.
    pub(super) fn number_to_read(&self, tx: Option<TxId>) -> Option<TxId> {
        let tx = tx?;
        self.live.get(&tx).map_or(Some(tx), |live| live.in_device)
    }

    /// A transaction is over. Returns the number that it has in the device.
    pub(super) fn end_live(&mut self, tx: TxId) -> Option<TxId> {
        match self.live.remove(&tx) {
            Some(live) => live.in_device,
            None => Some(tx),
        }
    }

    /// Opens the store again if another thread has found no room for what this store asked of it.
    pub(crate) fn mend(&mut self) {
        if self.places.waits_for_room() {
            let _ = self.take_failure();
        }
    }

    /// What the medium has refused, as an error: the store is broken, or was opened again.
    pub(super) fn take_failure(&mut self) -> StoreError {
        let Some((what, error)) = self.notes.trouble.take() else {
            return match (&self.broken, &self.no_room) {
                (Some(why), _) => StoreError::Broken(why.clone()),
                // Another call has found out.
                (None, Some(why)) => StoreError::Full(why.clone()),
                (None, None) => StoreError::Broken(String::new()),
            };
        };
        let why = format!("{what}: {error}");
        if self.at_no_room != AtNoRoom::Breaks && is_no_room(&error) {
            let places = Arc::clone(&self.places);
            // Nobody goes on with what was asked for before it is thrown away, or known to be lost.
            let _no_writes = places.stop_writing();
            match self.open_again(&places) {
                Ok(()) => {
                    self.no_room = Some(why.clone());
                    return StoreError::Full(why);
                }
                Err(then) => self
                    .notes
                    .trouble
                    .note_for_good(format!("{why}; and opening it again: {then}")),
            }
        }
        self.broken = Some(why);
        StoreError::io(what, error)
    }

    /// Opens the store again over the same medium, while nobody writes to it.
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

    /// Reads the pages of the live transactions into memory.
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
                // The device has not taken it.
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

    /// Reads a page as a transaction of the device has it, or as it was committed last, whichever
    /// has this sum: a commit that failed may have ended the transaction, with its pages in place.
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
                Err(DeviceError::NoTransaction(_)) => continue,
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

    /// Whether the store holds what a transaction has written that was being committed when the
    /// store was opened again: then it has committed.
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

    /// Whether a write may be tried now: there may be no room still that there was none of.
    pub(super) fn may_write_now(&mut self) -> Result<(), StoreError> {
        self.mend();
        self.may_write()?;
        self.wait_for_room()
    }

    /// Refuses to write as long as the medium has no room for one page. It is asked by writing the
    /// older of the two superblocks in its place once more: so each attempt costs one write, and
    /// not one more opening.
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
            // Another failure will show at the next write.
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
