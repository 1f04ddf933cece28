//! A database file in pages of a store.
//!
//! The store keeps 64 bytes of each page of 4096 for itself. A file is cut into chunks of 4096
//! bytes. A chunk has a *main* page with its first 4032 bytes. Its last 64, if they are not all
//! zeros, are in a *tails* page that 63 chunks share ([`Chunks`]).
//!
//! A database with pages of 4096 bytes and 64 reserved ones has no tails: a page of it is a page of
//! the store (*in the page*). Any other has them (*apart*): a commit writes one page more for each
//! group that it touches.
//!
//! The size of the file is not written anywhere. It follows from the highest main page that holds
//! something. The last chunk has either all of its 4096 bytes, and its main page 4032, or a
//! multiple of 512 that is at most 3584, and its main page just as many. A main page below may be
//! short or missing; the rest reads as zeros.
//!
//! SQLite counts transactions in its first page, so that connections of other processes see that
//! their caches are out of date. There are none here: a store is open in one process. A first chunk
//! that differs in these counters only is kept in memory and not written, which is half of the
//! bytes of a small transaction. After a restart the counters are those of the last first page
//! written.

use crate::bytes::{Bytes, Trouble, TroubleKind, View};
use crate::ffi::Movable;
use flagstone::commit::Info;
use flagstone::units::{Lpn, SnapshotId};
use flagstone_store::{Chunks, Cut, Holds, PageStore, Version};
use std::collections::HashMap;

/// Bytes of a chunk.
const CHUNK: usize = 4096;
/// Bytes of it in its main page.
const MAIN: usize = PageStore::PAGE_BYTES;
/// Sizes are multiples of this: the smallest page of SQLite.
const GRAIN: u64 = 512;
/// All of the first chunk but where the first page of a database has the number of the last
/// transaction (bytes 24 to 27, and 92 to 95), and of the version of SQLite that made it.
const BUT_COUNTERS: [std::ops::Range<usize>; 3] = [0..24, 28..92, 100..CHUNK];
/// What the first page of each database begins with, unless something below SQLite encrypts it.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Bytes of the header of a database that are zeros, "reserved for expansion".
const ZEROS: std::ops::Range<usize> = 72..92;
/// Pages of a store end here.
const PAGES_MAX: u32 = 1 << 30;

/// The part of a store that has to be cut off to be worth a compaction.
const CUT_OFF_PART: u64 = 4;

type Chunk = Box<[u8]>;

/// What readers of a snapshot of the store see besides its pages.
struct Seen {
    readers: u32,
    size: u64,
    first: Option<Chunk>,
}

/// A database file in a store.
pub struct StoreFile {
    chunks: Movable,
    size: u64,
    /// The size in the live transaction.
    own_size: u64,
    /// The first chunk as it is committed, if it is known and the file has all of it. SQLite looks
    /// at some of it whenever a transaction begins.
    first: Option<Chunk>,
    /// The live transaction has removed the first chunk.
    is_first_gone: bool,
    /// Whether the live transaction is to stay in memory.
    keeps: bool,
    /// Bytes that were cut off since the store was compacted last; the most if all was written
    /// anew.
    cut_off: u64,
    /// The size as transactions left it that have joined, if there are any.
    joined_size: Option<u64>,
    snapshots: HashMap<u64, Seen>,
}

/// Bytes of a chunk that lie before the end of a file.
fn chunk_bytes(chunk: u64, size: u64) -> usize {
    size.saturating_sub(chunk * CHUNK as u64).min(CHUNK as u64) as usize
}

/// Returns `true` if the first page of a file begins with SQLite's header. The page is ciphertext
/// if it does not, and none of its bytes may be interpreted or changed. SQLCipher and SQLite's own
/// encryption extension encrypt pages above the VFS.
pub(crate) fn begins_as_database(first: &[u8]) -> bool {
    first.starts_with(MAGIC)
}

/// Returns `true` if the whole header of a first chunk is plain: SQLCipher's
/// `cipher_plaintext_header_size` leaves the first bytes of it plain alone.
fn has_plain_header(first: &[u8]) -> bool {
    let zeros = first.get(ZEROS);
    begins_as_database(first) && zeros.is_some_and(|zeros| zeros.iter().all(|byte| *byte == 0))
}

/// Whether two first chunks differ in what counts transactions at most. Chunks of ciphertext always
/// differ in more: they do not say where they count transactions.
fn differ_in_counters_only(one: &[u8], other: &[u8]) -> bool {
    let mut parts = BUT_COUNTERS.into_iter();
    has_plain_header(one) && parts.all(|part| one[part.clone()] == other[part])
}

/// Refuses protocols under which SQLite would not be safe.
pub(crate) fn must_be_atomic(protocol: &Info) -> Result<(), Trouble> {
    match protocol.atomic {
        true => Ok(()),
        false => Err(Trouble::new(
            TroubleKind::CannotOpen,
            format!(
                "{} may leave half a transaction: use another protocol",
                protocol.name
            ),
        )),
    }
}

impl StoreFile {
    /// The file that a store holds.
    ///
    /// # Errors
    /// The store cannot be read, holds something else, or has a protocol that is not atomic.
    pub fn new(mut store: PageStore) -> Result<StoreFile, Trouble> {
        must_be_atomic(store.device().info())?;
        // The connections open it again, once none of them has a transaction.
        store.break_at_no_room();
        let mut page = [0; MAIN];
        if store.holds(Lpn(0)) {
            let bytes = store.read(None, Lpn(0), &mut page)?.unwrap_or(0);
            let holds = Holds::of([&page[..bytes], &[]]);
            if matches!(holds, Holds::Tables | Holds::Disk) {
                let advice = holds.advice();
                return Err(Trouble::new(
                    TroubleKind::NotAStore,
                    format!("{advice}, and a database in a store of its own"),
                ));
            }
        }
        let cut = Cut::new(MAIN, 0);
        let mut size = 0;
        if let Some(highest) = store.highest() {
            let bytes = store.read(None, highest, &mut page)?.unwrap_or(0) as u64;
            let is_whole = bytes == MAIN as u64;
            let is_some = bytes > 0 && (is_whole || bytes.is_multiple_of(GRAIN));
            let Some(chunk) = cut.chunk_of(highest).filter(|_| is_some) else {
                return Err(Trouble::new(
                    TroubleKind::NotAStore,
                    "the store holds something else than a database",
                ));
            };
            let last = if is_whole { CHUNK as u64 } else { bytes };
            size = chunk * CHUNK as u64 + last;
        }
        let mut chunks = Chunks::new(store, cut);
        chunks.set_size(size);
        Ok(StoreFile {
            chunks: Movable(chunks),
            size,
            own_size: size,
            first: None,
            is_first_gone: false,
            keeps: false,
            cut_off: 0,
            joined_size: None,
            snapshots: HashMap::new(),
        })
    }

    /// The store below.
    pub fn store(&self) -> &PageStore {
        self.chunks.pages()
    }

    /// The store below, by itself.
    pub fn into_store(self) -> PageStore {
        self.chunks.0.into_pages()
    }

    fn has_tx(&self) -> bool {
        self.chunks.tx().is_some()
    }

    fn version(&self, view: View) -> Version {
        match view {
            View::Own => Version::Of(self.chunks.tx()),
            View::Committed | View::Newest => Version::Of(None),
            View::Snapshot(id) => Version::At(SnapshotId(id)),
        }
    }

    /// The size with all that is committed, in the store or in memory only.
    fn newest_size(&self) -> u64 {
        self.joined_size.unwrap_or(self.size)
    }

    /// Whether the store has another first chunk from the live transaction.
    fn is_first_own(&self) -> bool {
        self.is_first_gone || self.chunks.is_written(0)
    }

    fn set_own_size(&mut self, size: u64) {
        self.own_size = size;
        self.chunks.set_size(size);
    }

    fn try_write(&mut self, at: u64, data: &[u8]) -> Result<(), Trouble> {
        let end = (at + data.len() as u64).next_multiple_of(GRAIN);
        let last = self.chunks.cut().main_page(end / CHUNK as u64);
        if last.is_none_or(|page| page.0 >= PAGES_MAX) {
            return Err(Trouble::new(
                TroubleKind::Full,
                format!("byte {end} lies beyond what a store can hold"),
            ));
        }
        self.chunks.begin()?;
        self.set_own_size(self.own_size.max(end));
        let mut rest = data;
        for (chunk, offset, bytes) in self.chunks.cut().chunks(at, data.len()) {
            let (now, later) = rest.split_at(bytes);
            rest = later;
            match bytes {
                // What became of the first chunk is asked when the transaction commits.
                CHUNK => self.chunks.write(chunk, now, chunk != 0 && !self.keeps)?,
                _ => {
                    let waiting = self.waiting_chunk(chunk)?;
                    waiting[offset..offset + bytes].copy_from_slice(now);
                }
            }
        }
        Ok(())
    }

    /// A chunk, to be changed in part.
    fn waiting_chunk(&mut self, chunk: u64) -> Result<&mut [u8], Trouble> {
        let is_new = !self.chunks.waits(0) && !self.is_first_own();
        if chunk == 0 && is_new && self.chunks.joined(0).is_none() {
            // The store may have other counters than this.
            self.know_first()?;
            if let Some(first) = &self.first {
                self.chunks.give_waiting(0, first.clone());
            }
        }
        Ok(self.chunks.waiting_chunk(chunk)?)
    }

    fn try_truncate(&mut self, size: u64) -> Result<(), Trouble> {
        let size = size.next_multiple_of(GRAIN);
        self.chunks.begin()?;
        let before = self.own_size;
        let (first, end) = (size.div_ceil(CHUNK as u64), before.div_ceil(CHUNK as u64));
        self.is_first_gone |= first == 0;
        self.chunks.drop_waiting(first);
        for chunk in first..end {
            self.chunks.remove(chunk)?;
        }
        self.set_own_size(size);
        if let Some(last) = size.div_ceil(CHUNK as u64).checked_sub(1) {
            let has = chunk_bytes(last, size);
            let is_right = !self.chunks.waits(last)
                && has == CHUNK
                && self.chunks.main_bytes(last)? == Some(MAIN);
            if !is_right {
                self.waiting_chunk(last)?[has..].fill(0);
            }
        }
        Ok(())
    }

    /// Takes the first chunk from those that wait, if the store need not have it.
    fn take_counters(&mut self) -> Result<Option<Chunk>, Trouble> {
        let is_whole = self.size.min(self.own_size) >= CHUNK as u64;
        if !is_whole || self.is_first_own() {
            return Ok(None);
        }
        let Some(waiting) = self.chunks.take_waiting(0) else {
            return Ok(None);
        };
        self.know_first()?;
        match &self.first {
            Some(was) if differ_in_counters_only(was, &waiting) => Ok(Some(waiting)),
            _ => {
                self.chunks.give_waiting(0, waiting);
                Ok(None)
            }
        }
    }

    /// Reads the first chunk as it is committed, if the file has all of it and it is not known.
    fn know_first(&mut self) -> Result<(), Trouble> {
        if self.first.is_none() && self.size >= CHUNK as u64 {
            let mut first = vec![0; CHUNK].into_boxed_slice();
            self.chunks.read(Version::Of(None), 0, 0, &mut first)?;
            self.first = Some(first);
        }
        Ok(())
    }

    fn try_commit(&mut self) -> Result<(), Trouble> {
        let counters = self.take_counters()?;
        let has_other = counters.is_some() || self.is_first_own() || self.chunks.waits(0);
        self.chunks.commit()?;
        if has_other {
            self.first = counters;
        }
        self.is_first_gone = false;
        let cut_off = self.size.saturating_sub(self.own_size);
        self.cut_off = self.cut_off.saturating_add(cut_off);
        self.size = self.own_size;
        Ok(())
    }

    fn or_abort<T>(&mut self, done: Result<T, Trouble>) -> Result<T, Trouble> {
        if done.is_err() {
            self.abort();
        }
        done
    }
}

mod joined;
mod view;

#[cfg(test)]
mod tests;
