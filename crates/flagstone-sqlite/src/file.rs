//! A database file in pages of a store.
//!
//! The store keeps 64 bytes of each page of 4096 for itself. A file is cut into chunks of 4096
//! bytes; a chunk has a *main* page with its first 4032 bytes, and its last 64, if they are not all
//! zeros, are in a *tails* page that 63 chunks share:
//!
//! ```text
//!   page of the store | 64g    | 64g + 1  | 64g + 2      | ... | 64g + 63      |
//!   holds             | tails  | chunk 63g| chunk 63g + 1| ... | chunk 63g + 62|
//! ```
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
use flagstone::units::{Lpn, SnapshotId, TxId};
use flagstone_store::PageStore;
use std::collections::{BTreeMap, HashMap};

/// Bytes of a chunk.
const CHUNK: usize = 4096;
/// Bytes of it in its main page.
const MAIN: usize = PageStore::PAGE_BYTES;
/// The others.
const TAIL: usize = CHUNK - MAIN;
/// Chunks that share a page of tails.
const SHARING: u64 = 63;
/// Sizes are multiples of this: the smallest page of SQLite.
const GRAIN: u64 = 512;
/// All of the first chunk but where the first page of a database has the number of the last
/// transaction (bytes 24 to 27, and 92 to 95), and of the version of SQLite that made it.
const BUT_COUNTERS: [std::ops::Range<usize>; 3] = [0..24, 28..92, 100..CHUNK];
/// Pages of a store end here.
const PAGES_MAX: u64 = 1 << 30;
/// Chunks in part written, and pages of tails, that wait for the commit. A protocol that takes each
/// page once a transaction has all of them wait.
const WAITING_MAX: usize = 256;

type Chunk = Box<[u8; CHUNK]>;

/// A chunk whose change the store does not have yet.
enum Waiting {
    Bytes(Chunk),
    /// It lies behind the end of the file, or did.
    Gone,
}

/// The tails of a group of chunks, in memory.
#[derive(Debug, Clone)]
struct Tails {
    bytes: Box<[u8; MAIN]>,
    /// The store does not have them yet.
    is_dirty: bool,
    /// The live transaction changed them.
    is_own: bool,
}

/// What readers of a snapshot of the store see besides its pages.
struct Seen {
    readers: u32,
    size: u64,
    first: Option<Chunk>,
}

/// A database file in a store.
pub struct StoreFile {
    store: Movable,
    tx: Option<TxId>,
    size: u64,
    /// The size in the live transaction.
    own_size: u64,
    tails: HashMap<u64, Tails>,
    dirty_tails: usize,
    /// Chunks that the live transaction changed, by number: those that were written in part, and
    /// all if the protocol takes each page once.
    waiting: BTreeMap<u64, Waiting>,
    /// How many of them may wait.
    waiting_max: usize,
    /// The first chunk as it is committed, if it is known and the file has all of it. SQLite looks
    /// at some of it whenever a transaction begins.
    first: Option<Chunk>,
    /// The store has another first chunk from the live transaction.
    is_first_own: bool,
    snapshots: HashMap<u64, Seen>,
    page: Box<[u8; MAIN]>,
}

fn main_page(chunk: u64) -> Lpn {
    Lpn((chunk / SHARING * 64 + 1 + chunk % SHARING) as u32)
}

fn tails_page(group: u64) -> Lpn {
    Lpn((group * 64) as u32)
}

/// Where the tail of a chunk lies in the tails of its group.
fn tail_place(chunk: u64) -> std::ops::Range<usize> {
    let at = (chunk % SHARING) as usize * TAIL;
    at..at + TAIL
}

/// Bytes of a chunk that lie before the end of a file.
fn chunk_bytes(chunk: u64, size: u64) -> usize {
    size.saturating_sub(chunk * CHUNK as u64).min(CHUNK as u64) as usize
}

/// Whether two first chunks differ in what counts transactions at most.
fn differ_in_counters_only(one: &[u8; CHUNK], other: &[u8; CHUNK]) -> bool {
    let mut parts = BUT_COUNTERS.into_iter();
    parts.all(|part| one[part.clone()] == other[part])
}

/// The chunks of a range of bytes: number, offset within it, bytes.
fn chunks(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let place = at + done as u64;
        let (chunk, offset) = (place / CHUNK as u64, (place % CHUNK as u64) as usize);
        let bytes = (CHUNK - offset).min(len - done);
        done += bytes;
        (bytes > 0).then_some((chunk, offset, bytes))
    })
}

/// Reads a page of a store as somebody sees it, who may have a transaction. Returns how many bytes
/// there are.
fn read_page(
    store: &mut PageStore,
    (view, tx): (View, Option<TxId>),
    page: Lpn,
    into: &mut [u8],
) -> Result<Option<usize>, Trouble> {
    Ok(match view {
        View::Snapshot(id) => store.read_snapshot(SnapshotId(id), page, into)?,
        View::Own | View::Committed => store.read(tx, page, into)?,
    })
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
    pub fn new(store: PageStore) -> Result<StoreFile, Trouble> {
        let protocol = store.device().info();
        must_be_atomic(protocol)?;
        let waiting_max = match protocol.rewrites {
            true => WAITING_MAX,
            false => usize::MAX,
        };
        let mut file = StoreFile {
            store: Movable(store),
            tx: None,
            size: 0,
            own_size: 0,
            tails: HashMap::new(),
            dirty_tails: 0,
            waiting: BTreeMap::new(),
            waiting_max,
            first: None,
            is_first_own: false,
            snapshots: HashMap::new(),
            page: Box::new([0; MAIN]),
        };
        if file.store.holds(Lpn(0)) {
            let bytes = file.store.read(None, Lpn(0), &mut file.page[..])?;
            if file.page[..bytes.unwrap_or(0)].starts_with(flagstone_store::tables::MAGIC) {
                return Err(Trouble::new(
                    TroubleKind::NotAStore,
                    "the store holds tables: a database needs a store of its own",
                ));
            }
        }
        if let Some(highest) = file.store.highest() {
            let (group, place) = (u64::from(highest.0) / 64, u64::from(highest.0) % 64);
            let bytes = file.store.read(None, highest, &mut file.page[..])?;
            let bytes = bytes.unwrap_or(0) as u64;
            let is_whole = bytes == MAIN as u64;
            if place == 0 || bytes == 0 || !(is_whole || bytes.is_multiple_of(GRAIN)) {
                return Err(Trouble::new(
                    TroubleKind::NotAStore,
                    "the store holds something else than a database",
                ));
            }
            let last = if is_whole { CHUNK as u64 } else { bytes };
            file.size = (group * SHARING + place - 1) * CHUNK as u64 + last;
            file.own_size = file.size;
        }
        Ok(file)
    }

    /// The store below.
    pub fn store(&self) -> &PageStore {
        &self.store
    }

    /// The store below, by itself.
    pub fn into_store(mut self) -> PageStore {
        self.abort();
        self.store.0
    }

    fn view_tx(&self, view: View) -> Option<TxId> {
        self.tx.filter(|_| view == View::Own)
    }

    /// Reads the tail of a chunk.
    fn read_tail(&mut self, view: View, chunk: u64) -> Result<[u8; TAIL], Trouble> {
        let group = chunk / SHARING;
        let tail = |bytes: &[u8; MAIN]| bytes[tail_place(chunk)].try_into().expect("it is as long");
        // What is kept is the state of the live transaction.
        let is_kept_right = match view {
            View::Own => true,
            View::Committed => self.tx.is_none(),
            View::Snapshot(_) => false,
        };
        if is_kept_right && let Some(tails) = self.tails.get(&group) {
            return Ok(tail(&tails.bytes));
        }
        let (tx, page) = (self.view_tx(view), &mut self.page[..]);
        let Some(bytes) = read_page(&mut self.store, (view, tx), tails_page(group), page)? else {
            return Ok([0; TAIL]);
        };
        self.page[bytes..].fill(0);
        if is_kept_right {
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
        Ok(tail(&self.page))
    }

    /// Sets the tail of a chunk in the live transaction.
    fn write_tail(&mut self, chunk: u64, tail: &[u8]) -> Result<(), Trouble> {
        if self.read_tail(View::Own, chunk)? == tail {
            return Ok(());
        }
        if self.dirty_tails >= self.waiting_max {
            self.flush_tails()?;
        }
        let tails = self.tails.entry(chunk / SHARING).or_insert_with(|| Tails {
            bytes: Box::new([0; MAIN]),
            is_dirty: false,
            is_own: false,
        });
        tails.bytes[tail_place(chunk)].copy_from_slice(tail);
        self.dirty_tails += usize::from(!tails.is_dirty);
        (tails.is_dirty, tails.is_own) = (true, true);
        Ok(())
    }

    fn flush_tails(&mut self) -> Result<(), Trouble> {
        let tx = self.begun()?;
        let dirty = self.tails.iter_mut().filter(|(_, tails)| tails.is_dirty);
        let mut dirty: Vec<_> = dirty.collect();
        dirty.sort_unstable_by_key(|(group, _)| **group);
        for (&group, tails) in dirty {
            let page = tails_page(group);
            if tails.bytes.iter().any(|byte| *byte != 0) {
                self.store.write(tx, page, &tails.bytes[..])?;
            } else if self
                .store
                .read(Some(tx), page, &mut self.page[..])?
                .is_some()
            {
                self.store.trim(tx, page)?;
            }
            tails.is_dirty = false;
        }
        self.dirty_tails = 0;
        Ok(())
    }

    /// Reads a whole chunk as the live transaction has it. Returns the bytes of its main page.
    fn load(&mut self, chunk: u64, into: &mut [u8; CHUNK]) -> Result<usize, Trouble> {
        let bytes = self
            .store
            .read(self.tx, main_page(chunk), &mut into[..MAIN])?;
        let bytes = bytes.unwrap_or(0);
        into[bytes..].fill(0);
        let tail = self.read_tail(View::Own, chunk)?;
        into[MAIN..].copy_from_slice(&tail);
        Ok(bytes)
    }

    /// Writes a chunk to the store, as much of it as lies in the file.
    fn store_chunk(&mut self, chunk: u64, bytes: &[u8]) -> Result<(), Trouble> {
        let tx = self.begun()?;
        let has = chunk_bytes(chunk, self.own_size).min(MAIN);
        self.is_first_own |= chunk == 0;
        self.store.write(tx, main_page(chunk), &bytes[..has])?;
        self.write_tail(chunk, &bytes[MAIN..])
    }

    fn flush_waiting(&mut self) -> Result<(), Trouble> {
        for (chunk, waiting) in std::mem::take(&mut self.waiting) {
            match waiting {
                Waiting::Bytes(bytes) => self.store_chunk(chunk, &bytes[..])?,
                Waiting::Gone => self.trim_main(chunk)?,
            }
        }
        Ok(())
    }

    fn trim_main(&mut self, chunk: u64) -> Result<(), Trouble> {
        let (tx, page) = (self.begun()?, main_page(chunk));
        if self
            .store
            .read(Some(tx), page, &mut self.page[..])?
            .is_some()
        {
            self.store.trim(tx, page)?;
        }
        Ok(())
    }

    fn begun(&mut self) -> Result<TxId, Trouble> {
        if let Some(tx) = self.tx {
            return Ok(tx);
        }
        let tx = self.store.begin()?;
        self.tx = Some(tx);
        self.own_size = self.size;
        Ok(tx)
    }

    /// The chunk, to be changed, among those that wait.
    fn waiting_chunk(&mut self, chunk: u64) -> Result<&mut Chunk, Trouble> {
        if !matches!(self.waiting.get(&chunk), Some(Waiting::Bytes(_))) {
            if self.waiting.len() >= self.waiting_max {
                self.flush_waiting()?;
            }
            let mut bytes = Box::new([0; CHUNK]);
            if !self.waiting.contains_key(&chunk) {
                self.load(chunk, &mut bytes)?;
            }
            self.waiting.insert(chunk, Waiting::Bytes(bytes));
        }
        match self.waiting.get_mut(&chunk) {
            Some(Waiting::Bytes(bytes)) => Ok(bytes),
            _ => unreachable!("it was put there"),
        }
    }

    /// Whether changes go to the store before the commit.
    fn writes_early(&self) -> bool {
        self.waiting_max < usize::MAX
    }

    fn try_write(&mut self, at: u64, data: &[u8]) -> Result<(), Trouble> {
        let end = (at + data.len() as u64).next_multiple_of(GRAIN);
        if (end / CHUNK as u64 / SHARING + 1) * 64 > PAGES_MAX {
            return Err(Trouble::new(
                TroubleKind::Full,
                format!("byte {end} lies beyond what a store can hold"),
            ));
        }
        self.begun()?;
        self.own_size = self.own_size.max(end);
        let mut rest = data;
        for (chunk, offset, bytes) in chunks(at, data.len()) {
            let (now, later) = rest.split_at(bytes);
            rest = later;
            // What became of the first chunk is asked when the transaction commits.
            if bytes == CHUNK && self.writes_early() && chunk != 0 {
                self.waiting.remove(&chunk);
                self.store_chunk(chunk, now)?;
            } else if bytes == CHUNK {
                let bytes = Box::new(now.try_into().expect("it is as long"));
                self.waiting.insert(chunk, Waiting::Bytes(bytes));
            } else {
                self.waiting_chunk(chunk)?[offset..offset + bytes].copy_from_slice(now);
            }
        }
        Ok(())
    }

    fn try_truncate(&mut self, size: u64) -> Result<(), Trouble> {
        let size = size.next_multiple_of(GRAIN);
        self.begun()?;
        let before = self.own_size;
        let (first, end) = (size.div_ceil(CHUNK as u64), before.div_ceil(CHUNK as u64));
        self.is_first_own |= first == 0;
        for waiting in self.waiting.range_mut(first..) {
            *waiting.1 = Waiting::Gone;
        }
        for chunk in first..end {
            self.write_tail(chunk, &[0; TAIL])?;
            match self.writes_early() {
                true => {
                    self.waiting.remove(&chunk);
                    self.trim_main(chunk)?;
                }
                false => drop(self.waiting.insert(chunk, Waiting::Gone)),
            }
        }
        self.own_size = size;
        if let Some(last) = size.div_ceil(CHUNK as u64).checked_sub(1) {
            let has = chunk_bytes(last, size);
            let is_right = match self.waiting.get(&last) {
                Some(_) => false,
                None => {
                    let held = self
                        .store
                        .read(self.tx, main_page(last), &mut self.page[..])?;
                    has == CHUNK && held == Some(MAIN)
                }
            };
            if !is_right {
                self.waiting_chunk(last)?[has..].fill(0);
            }
        }
        Ok(())
    }

    /// Takes the first chunk from those that wait, if the store need not have it.
    fn take_counters(&mut self) -> Result<Option<Chunk>, Trouble> {
        let is_whole = self.size.min(self.own_size) >= CHUNK as u64;
        let waits = matches!(self.waiting.get(&0), Some(Waiting::Bytes(_)));
        if !is_whole || !waits || self.is_first_own {
            return Ok(None);
        }
        self.know_first()?;
        match (&self.first, self.waiting.remove(&0)) {
            (Some(was), Some(Waiting::Bytes(is))) if differ_in_counters_only(was, &is) => {
                Ok(Some(is))
            }
            (_, waiting) => {
                self.waiting.extend(waiting.map(|waiting| (0, waiting)));
                Ok(None)
            }
        }
    }

    /// Reads the first chunk, if the file has all of it and it is not known. The live transaction
    /// has not written it to the store.
    fn know_first(&mut self) -> Result<(), Trouble> {
        if self.first.is_none() && self.size >= CHUNK as u64 {
            let mut first = Box::new([0; CHUNK]);
            self.load(0, &mut first)?;
            self.first = Some(first);
        }
        Ok(())
    }

    fn try_commit(&mut self) -> Result<(), Trouble> {
        let counters = self.take_counters()?;
        self.flush_waiting()?;
        self.flush_tails()?;
        if let Some(tx) = self.tx {
            self.store.commit(tx)?;
            self.tx = None;
        }
        if counters.is_some() || self.is_first_own {
            self.first = counters;
        }
        self.is_first_own = false;
        self.size = self.own_size;
        for tails in self.tails.values_mut() {
            tails.is_own = false;
        }
        Ok(())
    }

    fn or_abort<T>(&mut self, done: Result<T, Trouble>) -> Result<T, Trouble> {
        if done.is_err() {
            self.abort();
        }
        done
    }
}

mod view;

#[cfg(test)]
mod tests;
