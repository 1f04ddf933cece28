//! Byte addresses over transactional pages. Database files and disks are built on this.
//!
//! A page of a store has 4032 bytes, which is no multiple of a sector. So the bytes are cut into
//! chunks of 4096. A chunk has a *main* page with its first 4032 bytes, and its last 64, if they
//! are not all zeros, are in a *tails* page that 63 chunks share:
//!
//! ```text
//!   page of the store | 64g    | 64g + 1  | 64g + 2      | ... | 64g + 63      |
//!   holds             | tails  | chunk 63g| chunk 63g + 1| ... | chunk 63g + 62|
//! ```
//!
//! A [`Cut`] has these numbers for any size of a page. Pages of whole sectors have no tails.
//!
//! A chunk that is written whole goes to its page at once. Partly written chunks and changed tails
//! wait in memory for more writes.

mod joined;
mod pages;
mod room;

pub use pages::{Pages, Version};

use crate::error::StoreError;
use crate::medium::pieces;
use flagstone::units::{Lpn, TxId};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Maximum number of tails pages in memory, and of partly written chunks that can join.
const WAITING_MAX: usize = 256;

/// Maximum number of chunks that wait for the commit. A transaction that changes the whole database
/// in random order rewrites each page many times.
const CHUNKS_MAX: usize = 4096;

/// How bytes are mapped to pages. Example: [`Pages`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of a chunk in its main page.
    main: usize,
    /// Bytes of a chunk in the tails page.
    tail: usize,
    /// The first page of the first group.
    first: u32,
}

impl Cut {
    /// The cut for pages of `page_bytes` bytes, of which the first used is `first`. A chunk is as
    /// large as a page, rounded up to whole sectors.
    ///
    /// # Panics
    /// A page is smaller than a sector.
    pub fn new(page_bytes: usize, first: u32) -> Cut {
        assert!(page_bytes >= 512, "a page has a sector at least");
        let tail = page_bytes.next_multiple_of(512) - page_bytes;
        Cut {
            main: page_bytes,
            tail,
            first,
        }
    }

    /// Bytes of a chunk.
    pub fn chunk(&self) -> usize {
        self.main + self.tail
    }

    /// Bytes of a chunk in its main page.
    pub fn main(&self) -> usize {
        self.main
    }

    /// Number of chunks that share a tails page. Practically unlimited if there are no tails.
    fn sharing(&self) -> u64 {
        (self.main as u64)
            .checked_div(self.tail as u64)
            .unwrap_or(1 << 40)
    }

    /// The main page of `chunk`. `None` if its number exceeds the largest page number.
    pub fn main_page(&self, chunk: u64) -> Option<Lpn> {
        let (group, place) = (chunk / self.sharing(), chunk % self.sharing());
        let before = group * (self.sharing() + 1) + u64::from(self.tail > 0) + place;
        u32::try_from(u64::from(self.first) + before).ok().map(Lpn)
    }

    /// The chunk whose main page is `page`. `None` for a tails page and for a page before `first`.
    pub fn chunk_of(&self, page: Lpn) -> Option<u64> {
        let place = u64::from(page.0.checked_sub(self.first)?);
        if self.tail == 0 {
            return Some(place);
        }
        let (group, place) = (place / (self.sharing() + 1), place % (self.sharing() + 1));
        Some(group * self.sharing() + place.checked_sub(1)?)
    }

    fn tails_page(&self, group: u64) -> Lpn {
        Lpn((u64::from(self.first) + group * (self.sharing() + 1)) as u32)
    }

    /// The range of a chunk's tail within the tails page of its group.
    fn tail_place(&self, chunk: u64) -> Range<usize> {
        let at = (chunk % self.sharing()) as usize * self.tail;
        at..at + self.tail
    }

    /// Splits a range of bytes into chunks. Yields number, offset within the chunk, and bytes.
    pub fn chunks(&self, at: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> + use<> {
        pieces(self.chunk(), at, len as u64)
    }
}

/// A changed chunk that is not yet written to its page.
enum Waiting {
    Bytes(Box<[u8]>),
    /// The chunk was removed.
    Gone,
}

/// The tails of a group of chunks, in memory.
#[derive(Debug, Clone)]
struct Tails {
    bytes: Box<[u8]>,
    /// The tails page on the medium lacks these changes.
    is_dirty: bool,
    /// Changed by the live transaction.
    is_own: bool,
}

/// Chunks in pages, with one transaction at a time. Example: [`Pages`].
pub struct Chunks<P> {
    pages: P,
    cut: Cut,
    tx: Option<TxId>,
    /// Size of the contents in bytes. Bytes beyond it are not stored.
    size: u64,
    /// Tails pages in memory, by group.
    tails: HashMap<u64, Tails>,
    /// Number of `tails` that are dirty.
    dirty_tails: usize,
    /// Whether a group with a stored chunk also has a stored tails page, even if all zeros.
    keeps_tails: bool,
    /// Chunks that the live transaction changed or removed and that wait for the commit, by number.
    waiting: BTreeMap<u64, Waiting>,
    /// Chunks of transactions that are committed in memory only, see [`Chunks::join`].
    joined: BTreeMap<u64, Box<[u8]>>,
    /// A transaction of the pages that has changed nothing. The next transaction reuses it.
    spare: Option<TxId>,
    /// Pages that the live transaction wrote. `true` if the page now holds data.
    own: HashMap<Lpn, bool>,
    /// Buffer for a page that is read in part.
    page: Box<[u8]>,
}

impl<P: Pages> Chunks<P> {
    /// Opens the chunks stored in `pages` as `cut` says.
    pub fn new(pages: P, cut: Cut) -> Chunks<P> {
        Chunks {
            pages,
            cut,
            tx: None,
            size: u64::MAX,
            tails: HashMap::new(),
            dirty_tails: 0,
            keeps_tails: false,
            waiting: BTreeMap::new(),
            joined: BTreeMap::new(),
            spare: None,
            own: HashMap::new(),
            page: vec![0; cut.main].into(),
        }
    }

    /// The pages below.
    pub fn pages(&self) -> &P {
        &self.pages
    }

    /// The pages below, for snapshots and clock access. Only these chunks may write to the pages.
    pub fn pages_mut(&mut self) -> &mut P {
        &mut self.pages
    }

    /// Returns the pages below. Rolls back uncommitted changes.
    pub fn into_pages(mut self) -> P {
        self.abort();
        self.pages
    }

    /// The mapping of bytes to pages.
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// The live transaction.
    pub fn tx(&self) -> Option<TxId> {
        self.tx
    }

    /// Sets the size in bytes. Main pages are truncated there when they are written.
    pub fn set_size(&mut self, size: u64) {
        self.size = size;
    }

    /// Number of pages that the live transaction wrote, plus chunks that wait.
    pub fn changed(&self) -> usize {
        self.own.len() + self.waiting.len() + self.dirty_tails
    }

    /// The version that the live transaction sees; without one, the committed version.
    fn own(&self) -> Version {
        Version::Of(self.tx)
    }

    /// Begins a transaction, if none is live.
    ///
    /// # Errors
    /// As [`Pages::begin`].
    pub fn begin(&mut self) -> Result<TxId, StoreError> {
        match self.tx {
            Some(tx) => Ok(tx),
            None => {
                let spare = self.spare.take();
                let tx = spare.map_or_else(|| self.pages.begin(), Ok)?;
                self.tx = Some(tx);
                Ok(tx)
            }
        }
    }

    fn main_page(&self, chunk: u64) -> Result<Lpn, StoreError> {
        self.cut.main_page(chunk).ok_or_else(|| {
            StoreError::Full(format!("chunk {chunk} lies beyond what a store can hold"))
        })
    }

    /// Whether a page holds data in the view of the live transaction.
    fn holds(&self, page: Lpn) -> bool {
        let own = self.own.get(&page).copied();
        own.unwrap_or_else(|| self.pages.holds(page))
    }

    /// Whether a chunk may hold anything but zeros. Decided without a read.
    pub fn may_hold(&self, chunk: u64) -> bool {
        match self.waiting.get(&chunk) {
            Some(Waiting::Bytes(_)) => true,
            Some(Waiting::Gone) => false,
            None => self
                .cut
                .main_page(chunk)
                .is_some_and(|page| self.holds(page)),
        }
    }

    /// Whether a chunk waits in memory, changed or removed.
    pub fn waits(&self, chunk: u64) -> bool {
        self.waiting.contains_key(&chunk)
    }

    /// Removes the bytes of a waiting chunk, as if the chunk had not been written. The caller must
    /// write them or give them back.
    pub fn take_waiting(&mut self, chunk: u64) -> Option<Box<[u8]>> {
        match self.waiting.get_mut(&chunk)? {
            Waiting::Bytes(bytes) => {
                let bytes = std::mem::take(bytes);
                self.waiting.remove(&chunk);
                Some(bytes)
            }
            Waiting::Gone => None,
        }
    }

    /// Puts back bytes that [`Chunks::take_waiting`] removed.
    pub fn give_waiting(&mut self, chunk: u64, bytes: Box<[u8]>) {
        self.waiting.insert(chunk, Waiting::Bytes(bytes));
    }

    /// Whether the live transaction has written the main page of a chunk.
    pub fn is_written(&self, chunk: u64) -> bool {
        let page = self.cut.main_page(chunk);
        page.is_some_and(|page| self.own.contains_key(&page))
    }

    /// Reads a part of a chunk, from byte `offset` of the chunk on, as `version` sees it. The live
    /// transaction also sees waiting and joined chunks, which are newer than their pages. Bytes
    /// that were never written are zeros.
    ///
    /// # Errors
    /// The bytes cannot be read.
    pub fn read(
        &mut self,
        version: Version,
        chunk: u64,
        offset: usize,
        into: &mut [u8],
    ) -> Result<(), StoreError> {
        if self.tx.is_some() && version == self.own() {
            match self.waiting.get(&chunk) {
                Some(Waiting::Bytes(waiting)) => {
                    into.copy_from_slice(&waiting[offset..offset + into.len()]);
                    return Ok(());
                }
                Some(Waiting::Gone) => {
                    into.fill(0);
                    return Ok(());
                }
                None => {}
            }
            if let Some(joined) = self.joined.get(&chunk) {
                into.copy_from_slice(&joined[offset..offset + into.len()]);
                return Ok(());
            }
        }
        let (main, bytes) = (self.cut.main, into.len());
        let page = self.main_page(chunk)?;
        let from_main = main.saturating_sub(offset).min(bytes);
        if offset == 0 && from_main == main {
            let held = self.pages.read(version, page, &mut into[..main])?;
            into[held.unwrap_or(0)..main].fill(0);
        } else if from_main > 0 {
            let held = self.pages.read(version, page, &mut self.page)?;
            self.page[held.unwrap_or(0)..].fill(0);
            into[..from_main].copy_from_slice(&self.page[offset..][..from_main]);
        }
        if from_main < bytes {
            let from = offset.max(main) - main;
            self.read_tail(version, chunk, from, &mut into[from_main..])?;
        }
        Ok(())
    }

    /// Number of bytes in the main page of a chunk as the live transaction sees it, ignoring chunks
    /// that wait. `None` if the page holds nothing.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn main_bytes(&mut self, chunk: u64) -> Result<Option<usize>, StoreError> {
        let (version, page) = (self.own(), self.main_page(chunk)?);
        self.pages.read(version, page, &mut self.page)
    }

    /// Reads a part of the tail of a chunk, from byte `from` of the tail on.
    fn read_tail(
        &mut self,
        version: Version,
        chunk: u64,
        from: usize,
        into: &mut [u8],
    ) -> Result<(), StoreError> {
        let group = chunk / self.cut.sharing();
        let start = self.cut.tail_place(chunk).start + from;
        let part = start..start + into.len();
        // `tails` caches only tails as the live transaction sees them.
        let may_cache = version == self.own();
        if may_cache && let Some(tails) = self.tails.get(&group) {
            into.copy_from_slice(&tails.bytes[part]);
            return Ok(());
        }
        let page = self.cut.tails_page(group);
        let Some(bytes) = self.pages.read(version, page, &mut self.page)? else {
            into.fill(0);
            return Ok(());
        };
        self.page[bytes..].fill(0);
        into.copy_from_slice(&self.page[part]);
        if may_cache {
            if self.tails.len() >= WAITING_MAX {
                self.tails.retain(|_, tails| tails.is_dirty || tails.is_own);
            }
            let kept = Tails {
                bytes: self.page.clone(),
                is_dirty: false,
                is_own: false,
            };
            self.tails.insert(group, kept);
        }
        Ok(())
    }

    /// Sets the tail of a chunk in the live transaction. An unchanged tail is not written; with
    /// `is_kept` it is, unless the group has a stored tails page already.
    fn write_tail(&mut self, chunk: u64, tail: &[u8], is_kept: bool) -> Result<(), StoreError> {
        if tail.is_empty() {
            return Ok(());
        }
        let mut before = [0; 512];
        let before = &mut before[..tail.len()];
        self.read_tail(self.own(), chunk, 0, before)?;
        let is_wanted = is_kept && !self.holds(self.cut.tails_page(chunk / self.cut.sharing()));
        if before == tail && !is_wanted {
            return Ok(());
        }
        if self.dirty_tails >= WAITING_MAX {
            self.flush_tails()?;
        }
        let (main, place) = (self.cut.main, self.cut.tail_place(chunk));
        let group = chunk / self.cut.sharing();
        let tails = self.tails.entry(group).or_insert_with(|| Tails {
            bytes: vec![0; main].into(),
            is_dirty: false,
            is_own: false,
        });
        tails.bytes[place].copy_from_slice(tail);
        self.dirty_tails += usize::from(!tails.is_dirty);
        (tails.is_dirty, tails.is_own) = (true, true);
        Ok(())
    }

    /// Writes the dirty tails pages in the live transaction. Trims those that are all zeros, unless
    /// the chunks must keep them ([`Chunks::keep_tails`]).
    fn flush_tails(&mut self) -> Result<(), StoreError> {
        let tx = self.begin()?;
        let dirty = self.tails.iter().filter(|(_, tails)| tails.is_dirty);
        let mut dirty: Vec<u64> = dirty.map(|(group, _)| *group).collect();
        dirty.sort_unstable();
        for group in dirty {
            let page = self.cut.tails_page(group);
            let tails = &self.tails[&group];
            let is_kept = self.keeps_tails && self.holds_any(group);
            if is_kept || tails.bytes.iter().any(|byte| *byte != 0) {
                self.pages.write(tx, page, &tails.bytes)?;
                self.own.insert(page, true);
            } else {
                self.trim_page(page)?;
            }
            // Only after the write succeeded: the next flush repeats a failed one.
            self.tails.get_mut(&group).expect("it is there").is_dirty = false;
        }
        self.dirty_tails = 0;
        Ok(())
    }

    /// Writes a chunk to the pages.
    fn store_chunk(&mut self, chunk: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let (tx, page) = (self.begin()?, self.main_page(chunk)?);
        let before_end = self.size.saturating_sub(chunk * self.cut.chunk() as u64);
        let has = before_end.min(self.cut.main as u64) as usize;
        self.pages.write(tx, page, &bytes[..has])?;
        self.own.insert(page, true);
        self.write_tail(chunk, &bytes[self.cut.main..], self.keeps_tails)
    }

    fn flush_waiting(&mut self) -> Result<(), StoreError> {
        while let Some((chunk, waiting)) = self.waiting.pop_first() {
            let done = match &waiting {
                Waiting::Bytes(bytes) => self.store_chunk(chunk, bytes),
                Waiting::Gone => self.main_page(chunk).and_then(|page| self.trim_page(page)),
            };
            if done.is_err() {
                self.waiting.insert(chunk, waiting);
                return done;
            }
        }
        Ok(())
    }

    fn trim_page(&mut self, page: Lpn) -> Result<(), StoreError> {
        let tx = self.begin()?;
        if self.holds(page) {
            self.pages.trim(tx, page)?;
            self.own.insert(page, false);
        }
        Ok(())
    }

    /// Returns a chunk for a partial change. The chunk waits in memory from then on.
    ///
    /// # Errors
    /// It cannot be read, or there is no room.
    pub fn waiting_chunk(&mut self, chunk: u64) -> Result<&mut [u8], StoreError> {
        self.begin()?;
        if !matches!(self.waiting.get(&chunk), Some(Waiting::Bytes(_))) {
            self.flush_if_many_wait()?;
            let mut bytes = vec![0; self.cut.chunk()].into_boxed_slice();
            if !self.waiting.contains_key(&chunk) {
                self.read(self.own(), chunk, 0, &mut bytes)?;
            }
            self.waiting.insert(chunk, Waiting::Bytes(bytes));
        }
        match self.waiting.get_mut(&chunk) {
            Some(Waiting::Bytes(bytes)) => Ok(bytes),
            _ => unreachable!("it was put there"),
        }
    }

    fn flush_if_many_wait(&mut self) -> Result<(), StoreError> {
        if self.waiting.len() >= CHUNKS_MAX {
            self.flush_waiting()?;
        }
        Ok(())
    }

    /// Writes a whole chunk in the live transaction, which begins if there is none. With `may_go`,
    /// the first write of a chunk goes to its page at once. A chunk that is written again, or must
    /// not go, waits in memory until the commit.
    ///
    /// # Errors
    /// There is no room, or the pages fail.
    pub fn write(&mut self, chunk: u64, bytes: &[u8], may_go: bool) -> Result<(), StoreError> {
        self.begin()?;
        let is_first = !self.own.contains_key(&self.main_page(chunk)?);
        if may_go && is_first {
            self.store_chunk(chunk, bytes)?;
            // Until the page has the new bytes, the waiting ones are the only copy.
            self.waiting.remove(&chunk);
        } else if let Some(Waiting::Bytes(waiting)) = self.waiting.get_mut(&chunk) {
            waiting.copy_from_slice(bytes);
        } else {
            self.flush_if_many_wait()?;
            self.waiting.insert(chunk, Waiting::Bytes(bytes.into()));
        }
        Ok(())
    }

    /// Removes a chunk in the live transaction, which begins if there is none.
    ///
    /// # Errors
    /// As [`Chunks::write`].
    pub fn remove(&mut self, chunk: u64) -> Result<(), StoreError> {
        self.begin()?;
        let nothing = [0; 512];
        self.write_tail(chunk, &nothing[..self.cut.tail], false)?;
        self.trim_page(self.main_page(chunk)?)?;
        self.waiting.remove(&chunk);
        Ok(())
    }

    /// Marks the waiting chunks numbered `from` and above as removed.
    pub fn drop_waiting(&mut self, from: u64) {
        for waiting in self.waiting.range_mut(from..) {
            *waiting.1 = Waiting::Gone;
        }
    }

    /// Commits the live transaction, if there is one: it is durable when this returns.
    ///
    /// # Errors
    /// There is no room, or the pages fail. The transaction is still live.
    pub fn commit(&mut self) -> Result<(), StoreError> {
        self.flush_waiting()?;
        self.commit_written()
    }

    /// Commits what the live transaction has written to the pages.
    fn commit_written(&mut self) -> Result<(), StoreError> {
        self.flush_tails_of_live()?;
        if let Some(tx) = self.tx {
            self.pages.commit(tx)?;
            self.tx = None;
        }
        self.own.clear();
        for tails in self.tails.values_mut() {
            tails.is_own = false;
        }
        Ok(())
    }

    fn flush_tails_of_live(&mut self) -> Result<(), StoreError> {
        match self.dirty_tails {
            0 => Ok(()),
            _ => self.flush_tails(),
        }
    }

    /// Rolls the live transaction back, if there is one.
    pub fn abort(&mut self) {
        self.waiting.clear();
        self.abort_written();
        self.tx = self.spare.take();
        self.abort_written();
    }

    fn abort_written(&mut self) {
        self.tails.retain(|_, tails| !tails.is_own);
        self.dirty_tails = 0;
        self.own.clear();
        if let Some(tx) = self.tx.take() {
            // If the rollback fails the pages are broken, and every later call reports it.
            let _ = self.pages.abort(tx);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
