//! Stores a database file in pages of a store.
//!
//! The store itself uses 64 of the 4096 bytes of each page. A file is split into chunks of 4096
//! bytes. The first 4032 bytes of a chunk are in its *main* page. Its last 64 bytes, unless all
//! zeros, are in a *tails* page that 63 chunks share ([`Chunks`]).
//!
//! A database with pages of 4096 bytes and 64 reserved bytes has no tails: each of its pages is one
//! page of the store (*in the page*). Other databases have tails (*apart*): a commit writes one
//! more page for each group of chunks that it changes.
//!
//! The size of the file is not stored. It follows from the highest main page that holds data. The
//! last chunk either has all of its 4096 bytes, with 4032 in its main page, or a multiple of 512 up
//! to 3584, all in its main page. Lower main pages may be short or missing; the rest reads as
//! zeros.
//!
//! SQLite counts transactions in its first page, so that connections of other processes notice that
//! their caches are outdated. Here only one process has the store open. So a first chunk that
//! differs only in these counters is kept in memory and not written, which saves half of the bytes
//! of a small transaction. After a restart the counters are those of the last first page that was
//! written.

use crate::bytes::{Bytes, Trouble, TroubleKind, View};
use crate::ffi::Movable;
use flagstone::commit::Info;
use flagstone::units::{Lpn, SnapshotId};
use flagstone_store::{Chunks, Cut, Holds, PageStore, Version};
use std::collections::HashMap;

/// Bytes of a chunk of the file.
const CHUNK: usize = 4096;
/// Bytes of a chunk in its main page.
const MAIN: usize = PageStore::PAGE_BYTES;
/// File sizes are multiples of this: SQLite's smallest page size.
const GRAIN: u64 = 512;
/// The first chunk without the transaction counters of the database (bytes 24 to 27, and 92 to 95)
/// and the version of SQLite that last wrote it.
const BUT_COUNTERS: [std::ops::Range<usize>; 3] = [0..24, 28..92, 100..CHUNK];
/// The begin of a database's first page, unless it is encrypted above the VFS.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Bytes of a database header that are zeros, "reserved for expansion".
const ZEROS: std::ops::Range<usize> = 72..92;
/// Maximum number of pages of a store.
const PAGES_MAX: u32 = 1 << 30;

/// A compaction is worthwhile if at least one in this many parts of a store was truncated.
const CUT_OFF_PART: u64 = 4;

type Chunk = Box<[u8]>;

/// The state of a snapshot besides the pages of the store.
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
    /// The committed first chunk, if known and complete. SQLite reads a part of it whenever a
    /// transaction begins.
    first: Option<Chunk>,
    /// Whether the live transaction has removed the first chunk.
    is_first_gone: bool,
    /// Whether writes of the live transaction stay in memory.
    keeps: bool,
    /// Bytes cut off since the last compaction of the store, and bytes by which it grew for
    /// transactions that then found no room; the maximum if the whole file was rewritten.
    cut_off: u64,
    /// Bytes of the store when the live transaction began.
    begun_with: u64,
    /// The size after the joined transactions, if there are any.
    joined_size: Option<u64>,
    snapshots: HashMap<u64, Seen>,
}

/// Bytes of a chunk before the end of the file.
fn chunk_bytes(chunk: u64, size: u64) -> usize {
    size.saturating_sub(chunk * CHUNK as u64).min(CHUNK as u64) as usize
}

/// Whether the first page of a file begins with SQLite's header. Otherwise it is ciphertext, and
/// none of its bytes may be interpreted or changed. SQLCipher and SQLite's own encryption extension
/// encrypt pages above the VFS.
pub(crate) fn begins_as_database(first: &[u8]) -> bool {
    first.starts_with(MAGIC)
}

/// Whether the whole header of a first chunk is plaintext: SQLCipher's
/// `cipher_plaintext_header_size` leaves only its first bytes unencrypted.
fn has_plain_header(first: &[u8]) -> bool {
    let zeros = first.get(ZEROS);
    begins_as_database(first) && zeros.is_some_and(|zeros| zeros.iter().all(|byte| *byte == 0))
}

/// Whether two first chunks differ at most in their transaction counters. Never true for
/// ciphertext, whose counters are unknown.
fn differ_in_counters_only(one: &[u8], other: &[u8]) -> bool {
    let mut parts = BUT_COUNTERS.into_iter();
    has_plain_header(one) && parts.all(|part| one[part.clone()] == other[part])
}

/// Refuses protocols that are not safe for SQLite.
pub(crate) fn must_be_atomic(protocol: &Info) -> Result<(), Trouble> {
    if protocol.atomic {
        Ok(())
    } else {
        Err(Trouble::new(
            TroubleKind::CannotOpen,
            format!(
                "{} does not keep transactions atomic: use another protocol",
                protocol.name
            ),
        ))
    }
}

impl StoreFile {
    /// Opens the file in a store. The size of the file follows from the highest page.
    ///
    /// # Errors
    /// The store cannot be read, holds something else, or has a protocol that is not atomic.
    pub fn new(mut store: PageStore) -> Result<StoreFile, Trouble> {
        must_be_atomic(store.device().info())?;
        // The connections reopen the store once none of them has a transaction.
        store.break_at_no_room();
        let mut page = [0; MAIN];
        if store.holds(Lpn(0)) {
            let bytes = store.read(None, Lpn(0), &mut page)?.unwrap_or(0);
            let holds = Holds::of([&page[..bytes], &[]]);
            if matches!(holds, Holds::Tables | Holds::Disk) {
                let advice = holds.advice();
                return Err(Trouble::new(
                    TroubleKind::NotAStore,
                    format!("{advice}, and keep the database in another store"),
                ));
            }
        }
        let cut = Cut::new(MAIN, 0);
        // A full main page belongs to a whole last chunk; a shorter one has all of its chunk.
        let mut size = 0;
        if let Some(highest) = store.highest() {
            let bytes = store.read(None, highest, &mut page)?.unwrap_or(0) as u64;
            let is_whole = bytes == MAIN as u64;
            let may_end = bytes > 0 && (is_whole || bytes.is_multiple_of(GRAIN));
            let Some(chunk) = cut.chunk_of(highest).filter(|_| may_end) else {
                return Err(Trouble::new(
                    TroubleKind::NotAStore,
                    "the store does not hold a database",
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
            begun_with: 0,
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

    /// Begins a transaction, if none is live.
    fn begin(&mut self) -> Result<(), Trouble> {
        if !self.has_tx() {
            self.begun_with = self.store_bytes();
        }
        self.chunks.begin()?;
        Ok(())
    }

    /// Bytes of all pages of the store.
    fn store_bytes(&self) -> u64 {
        u64::from(self.store().device().geometry().pages()) * CHUNK as u64
    }

    fn version(&self, view: View) -> Version {
        match view {
            View::Own => Version::Of(self.chunks.tx()),
            View::Committed | View::Newest => Version::Of(None),
            View::Snapshot(id) => Version::At(SnapshotId(id)),
        }
    }

    /// The size including all committed transactions, in the store or in memory.
    fn newest_size(&self) -> u64 {
        self.joined_size.unwrap_or(self.size)
    }

    /// Whether the first chunk in the store was changed by the live transaction.
    fn is_first_own(&self) -> bool {
        self.is_first_gone || self.chunks.is_written(0)
    }

    fn set_own_size(&mut self, size: u64) {
        self.own_size = size;
        self.chunks.set_size(size);
    }

    /// Implements [`Bytes::write`]; an error may leave a part of `data` written. Whole chunks go to
    /// their pages at once, unless the transaction may join a group (`keeps`).
    fn try_write(&mut self, at: u64, data: &[u8]) -> Result<(), Trouble> {
        let end = (at + data.len() as u64).next_multiple_of(GRAIN);
        let last = self.chunks.cut().main_page(end / CHUNK as u64);
        if last.is_none_or(|page| page.0 >= PAGES_MAX) {
            return Err(Trouble::new(
                TroubleKind::Full,
                format!("byte {end} lies beyond what a store can hold"),
            ));
        }
        self.begin()?;
        self.set_own_size(self.own_size.max(end));
        let mut rest = data;
        for (chunk, offset, bytes) in self.chunks.cut().chunks(at, data.len()) {
            let (now, later) = rest.split_at(bytes);
            rest = later;
            match bytes {
                // The commit decides about the first chunk.
                CHUNK => self.chunks.write(chunk, now, chunk != 0 && !self.keeps)?,
                _ => {
                    let waiting = self.waiting_chunk(chunk)?;
                    waiting[offset..offset + bytes].copy_from_slice(now);
                }
            }
        }
        Ok(())
    }

    /// A chunk waiting to be written, for a partial change.
    fn waiting_chunk(&mut self, chunk: u64) -> Result<&mut [u8], Trouble> {
        let is_new = !self.chunks.waits(0) && !self.is_first_own();
        if chunk == 0 && is_new && self.chunks.joined(0).is_none() {
            // The store may have other counters than the chunk in memory.
            self.know_first()?;
            if let Some(first) = &self.first {
                self.chunks.give_waiting(0, first.clone());
            }
        }
        Ok(self.chunks.waiting_chunk(chunk)?)
    }

    /// Implements [`Bytes::truncate`]; an error may leave it half done. Rewrites the last chunk if
    /// its main page would not show the new size.
    fn try_truncate(&mut self, size: u64) -> Result<(), Trouble> {
        let size = size.next_multiple_of(GRAIN);
        self.begin()?;
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
            let shows_size = !self.chunks.waits(last)
                && has == CHUNK
                && self.chunks.main_bytes(last)? == Some(MAIN);
            if !shows_size {
                self.waiting_chunk(last)?[has..].fill(0);
            }
        }
        Ok(())
    }

    /// Removes the first chunk from the waiting ones if it need not be written: if it differs from
    /// the committed one only in its counters. Returns it.
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

    /// Reads the committed first chunk if the file has all of it and it is unknown.
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

    /// Rolls the live transaction back if it has failed.
    fn or_abort<T>(&mut self, done: Result<T, Trouble>) -> Result<T, Trouble> {
        if let Err(trouble) = &done {
            if trouble.kind == TroubleKind::Full && self.has_tx() {
                // The store has grown as far as there was room.
                let grown = self.store_bytes().saturating_sub(self.begun_with);
                self.cut_off = self.cut_off.saturating_add(grown);
            }
            self.abort();
        }
        done
    }
}

mod joined;
mod view;

#[cfg(test)]
mod tests;
