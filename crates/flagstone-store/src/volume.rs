//! A disk of fixed size in transactional pages.
//!
//! ```text
//!   page of the store | 0      | 1     | 2       | 3       | ... | 65    | ...
//!   holds             | volume | tails | chunk 0 | chunk 1 | ... | tails | chunk 63 ...
//! ```
//!
//! The first page is a [`volume`] record, which says how large the disk is. The others are
//! [`Chunks`].
//!
//! Guarantees of a disk:
//!
//! 1. Everything written before a flush is durable when the flush returns.
//! 2. Writes between two flushes are one transaction: after a power cut all of them are there, or
//!    none.
//! 3. A transaction that exceeds the size limit or the available room is committed before its
//!    flush, and another one begins. After a cut the disk then has all requests up to one of these
//!    commits, and none of the later ones. A request that such a commit splits is there in part, by
//!    whole chunks.
//!
//! A disk that has lost accepted writes refuses all requests until it is opened again. Otherwise a
//! caller would take a later successful flush to cover the lost writes.

use crate::chunks::{Chunks, Cut, Pages, Version};
use crate::error::StoreError;
use crate::holds::Holds;
use crate::medium::{SECTOR_BYTES, pieces};
use crate::pages::PageStore;
use flagstone::layout;
use flagstone::layout::{get, put};
use flagstone::units::Lpn;

layout! {
    /// The first page of a disk.
    pub volume: 22 => {
        MAGIC:   8, "Flagdisk";
        VERSION: 2, "1";
        CHUNK:   4, "bytes of a chunk: those of a page, rounded up to whole sectors of 512";
        BYTES:   8, "bytes of the disk";
    }
}

/// What the first page of a disk begins with.
pub(crate) const MAGIC: &[u8; 8] = b"Flagdisk";
const VERSION: u64 = 1;
const FIRST: Lpn = Lpn(0);

/// Maximum number of pages.
const PAGES_MAX: u64 = 1 << 30;

/// On a medium that cannot grow, a transaction is limited to this fraction of the pages: the
/// replaced versions need room until it commits.
const ROOM_SHARE: u64 = 32;

/// A disk in transactional pages.
///
/// ```
/// use flagstone_store::{OpenOptions, PageStore, Volume};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("disk.flag");
/// let pages = PageStore::open(&path, &OpenOptions::default())?;
/// let mut disk = Volume::create(pages, 1 << 20)?;
/// disk.write(4096, &[7; 512])?;
/// disk.flush()?; // what was written since the flush before is one transaction
/// disk.close()?;
///
/// let mut disk = Volume::open(PageStore::open(&path, &OpenOptions::existing())?)?;
/// let mut sector = [0; 512];
/// disk.read(4096, &mut sector)?;
/// assert_eq!(sector, [7; 512]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Volume<P> {
    chunks: Chunks<P>,
    size: u64,
    /// Maximum number of pages in a transaction.
    bound: usize,
    /// Why the disk refuses all requests.
    broken: Option<String>,
    /// Number of transactions that were committed without a flush.
    early: u64,
}

/// Describes pages that hold something other than a disk, and how to open it. `first` is the first
/// page.
fn what_else(pages: &mut impl Pages, first: &[u8]) -> Result<String, StoreError> {
    if pages.highest().is_none() {
        return Ok("the store holds no disk: it is empty".into());
    }
    let mut second = vec![0; pages.page_bytes()];
    let bytes = pages.read(Version::Of(None), Lpn(1), &mut second)?;
    let holds = Holds::of([first, &second[..bytes.unwrap_or(0)]]);
    Ok(format!(
        "{}, and not as a disk: nothing was changed",
        holds.advice()
    ))
}

/// Checks the size of a disk, independently of where it is stored.
///
/// # Errors
/// The size is impossible.
pub fn can_be_size(size: u64) -> Result<(), StoreError> {
    if size > 0 && size.is_multiple_of(SECTOR_BYTES as u64) {
        Ok(())
    } else {
        Err(StoreError::Options(format!(
            "a disk cannot have {size} bytes: use a multiple of {SECTOR_BYTES} above 0"
        )))
    }
}

impl<P: Pages> Volume<P> {
    /// Default size limit of a transaction in bytes. A larger one is committed without a flush.
    pub const TRANSACTION_BYTES: u64 = 64 << 20;

    /// Creates a disk of zeros on pages that hold nothing.
    ///
    /// # Errors
    /// The size is invalid, the pages hold data, or they fail.
    pub fn create(mut pages: P, size: u64) -> Result<Volume<P>, StoreError> {
        let cut = cut_of(&pages)?;
        can_be_size(size)?;
        let last = (size - 1) / cut.chunk() as u64;
        let has = pages.pages_max().unwrap_or(PAGES_MAX).min(PAGES_MAX);
        let needs = cut
            .main_page(last)
            .map_or(u64::MAX, |page| u64::from(page.0) + 1);
        if needs > has {
            return Err(StoreError::Options(format!(
                "a disk of {size} bytes needs more than the {has} pages that there are: use at \
                 most {} bytes",
                most_bytes(&cut, has)
            )));
        }
        if pages.highest().is_some() {
            let mut page = vec![0; pages.page_bytes()];
            let bytes = pages.read(Version::Of(None), FIRST, &mut page)?;
            let first = &page[..bytes.unwrap_or(0)];
            let what = if first.starts_with(MAGIC) {
                "there is already a disk here: open it, or give another file; nothing was \
                         changed"
                    .to_string()
            } else {
                what_else(&mut pages, first)?
            };
            return Err(StoreError::NotAStore(what));
        }
        let mut record = [0; volume::SIZE];
        record[volume::MAGIC].copy_from_slice(MAGIC);
        put(&mut record, volume::VERSION, VERSION);
        put(&mut record, volume::CHUNK, cut.chunk() as u64);
        put(&mut record, volume::BYTES, size);
        let tx = pages.begin()?;
        pages.write(tx, FIRST, &record)?;
        pages.commit(tx)?;
        Ok(Volume::new(pages, cut, size))
    }

    /// Opens the disk in `pages`.
    ///
    /// # Errors
    /// They hold no disk, or one of another version, or they fail.
    pub fn open(mut pages: P) -> Result<Volume<P>, StoreError> {
        let cut = cut_of(&pages)?;
        let mut page = vec![0; pages.page_bytes()];
        let bytes = pages
            .read(Version::Of(None), FIRST, &mut page)?
            .unwrap_or(0);
        let record = &page[..bytes];
        if bytes != volume::SIZE || record[volume::MAGIC] != *MAGIC {
            return Err(StoreError::NotAStore(what_else(
                &mut pages,
                &page[..bytes],
            )?));
        }
        let (version, chunk) = (get(record, volume::VERSION), get(record, volume::CHUNK));
        let size = get(record, volume::BYTES);
        if version != VERSION {
            return Err(StoreError::NotAStore(format!(
                "this disk has version {version} of the format, this program reads {VERSION}: open \
                 it with the program that wrote it"
            )));
        }
        let is_right = chunk == cut.chunk() as u64
            && size.is_multiple_of(SECTOR_BYTES as u64)
            && size.checked_sub(1).is_some_and(|last| {
                let page = cut.main_page(last / chunk);
                page.is_some_and(|page| u64::from(page.0) < PAGES_MAX)
            });
        if is_right {
            Ok(Volume::new(pages, cut, size))
        } else {
            Err(StoreError::Damaged(format!(
                "the first page says that the disk has {size} bytes in chunks of {chunk}, which \
                 cannot be"
            )))
        }
    }

    fn new(pages: P, cut: Cut, size: u64) -> Volume<P> {
        let mut made = Volume {
            chunks: Chunks::new(pages, cut),
            size,
            bound: 0,
            broken: None,
            early: 0,
        };
        made.chunks.keep_tails();
        made.set_transaction_bytes(Self::TRANSACTION_BYTES);
        made
    }

    /// Sets the size limit of a transaction in bytes. At least one chunk; on a medium that cannot
    /// grow, at most a small fraction of its pages.
    pub fn set_transaction_bytes(&mut self, bytes: u64) {
        let room = self.pages().pages_max().unwrap_or(u64::MAX) / ROOM_SHARE;
        let chunks = (bytes / self.chunks.cut().chunk() as u64).min(room);
        self.bound = usize::try_from(chunks).unwrap_or(usize::MAX).max(1);
    }

    /// Size of the disk in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of a chunk. Aligned requests of whole chunks need no reads.
    pub fn chunk(&self) -> usize {
        self.chunks.cut().chunk()
    }

    /// Number of transactions committed without a flush, because of the size limit or lack of room.
    pub fn early_commits(&self) -> u64 {
        self.early
    }

    /// The pages below.
    pub fn pages(&self) -> &P {
        self.chunks.pages()
    }

    /// The pages below, to set their clock. Only the disk may write to them.
    pub fn pages_mut(&mut self) -> &mut P {
        self.chunks.pages_mut()
    }

    /// Whether a flush would have something to write.
    pub fn is_dirty(&self) -> bool {
        self.chunks.tx().is_some()
    }

    /// Reads the last written bytes, flushed or not. Unwritten and trimmed bytes are zeros.
    ///
    /// # Errors
    /// The range is beyond the disk, or the pages fail.
    pub fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), StoreError> {
        self.may(at, into.len() as u64)?;
        let own = Version::Of(self.chunks.tx());
        let mut rest = into;
        for (chunk, offset, bytes) in self.chunks.cut().chunks(at, rest.len()) {
            let (now, later) = rest.split_at_mut(bytes);
            rest = later;
            self.chunks.read(own, chunk, offset, now)?;
        }
        Ok(())
    }

    /// Writes bytes. They are durable after the next [`Volume::flush`].
    ///
    /// # Errors
    /// The range is beyond the disk, there is no room, or the pages fail. Some of the bytes may
    /// have been written.
    pub fn write(&mut self, at: u64, data: &[u8]) -> Result<(), StoreError> {
        self.may(at, data.len() as u64)?;
        let mut rest = data;
        for (chunk, offset, bytes) in self.chunks.cut().chunks(at, data.len()) {
            let (now, later) = rest.split_at(bytes);
            rest = later;
            self.change(chunk, false, |chunks| {
                if bytes == chunks.cut().chunk() {
                    chunks.write(chunk, now, true)
                } else {
                    let waiting = chunks.waiting_chunk(chunk)?;
                    waiting[offset..offset + bytes].copy_from_slice(now);
                    Ok(())
                }
            })?;
            self.end_at_bound()?;
        }
        Ok(())
    }

    /// Zeroes a range, and gives back the room of whole chunks.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn trim(&mut self, at: u64, bytes: u64) -> Result<(), StoreError> {
        self.may(at, bytes)?;
        for (chunk, offset, bytes) in pieces(self.chunk(), at, bytes) {
            if !self.chunks.may_hold(chunk) {
                continue;
            }
            let is_whole = bytes == self.chunk();
            self.change(chunk, is_whole, |chunks| {
                if is_whole {
                    chunks.remove(chunk)
                } else {
                    chunks.waiting_chunk(chunk)?[offset..][..bytes].fill(0);
                    Ok(())
                }
            })?;
            self.end_at_bound()?;
        }
        Ok(())
    }

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// There is no room: unflushed writes stay in memory, and the next flush tries again. Or the
    /// pages fail: these writes are lost, and every later call fails.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.is_well()?;
        if self.chunks.tx().is_none() {
            return Ok(());
        }
        self.chunks.commit().inspect_err(|error| {
            if !matches!(error, StoreError::Full(_)) {
                self.broken = Some(error.to_string());
                self.chunks.abort();
            }
        })
    }

    /// Splits a range into parts, each with whether it may hold data. Evaluated lazily.
    ///
    /// # Errors
    /// The range is beyond the disk.
    pub fn parts(
        &self,
        at: u64,
        bytes: u64,
    ) -> Result<impl Iterator<Item = (u64, u64, bool)> + '_, StoreError> {
        self.may(at, bytes)?;
        let (size, end) = (self.chunk() as u64, at + bytes);
        let mut next = at;
        Ok(std::iter::from_fn(move || {
            let (at, holds) = (next, self.chunks.may_hold(next / size));
            while next < end && self.chunks.may_hold(next / size) == holds {
                next = ((next / size + 1) * size).min(end);
            }
            (next > at).then_some((at, next - at, holds))
        }))
    }

    /// Flushes and closes the pages.
    ///
    /// # Errors
    /// As [`Volume::flush`].
    pub fn close(mut self) -> Result<(), StoreError> {
        self.flush()?;
        self.chunks.into_pages().close()
    }

    fn is_well(&self) -> Result<(), StoreError> {
        match &self.broken {
            Some(why) => Err(StoreError::Broken(why.clone())),
            None => Ok(()),
        }
    }

    fn may(&self, at: u64, bytes: u64) -> Result<(), StoreError> {
        self.is_well()?;
        if at.checked_add(bytes).is_some_and(|end| end <= self.size) {
            Ok(())
        } else {
            Err(StoreError::Options(format!(
                "{bytes} bytes at {at} lie beyond the disk, which has {}",
                self.size
            )))
        }
    }

    /// Changes a chunk, if there is space for this and all waiting changes. If the replaced
    /// versions of the transaction take that space, commits and tries again.
    fn change(
        &mut self,
        chunk: u64,
        removes: bool,
        change: impl Fn(&mut Chunks<P>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let change = |chunks: &mut Chunks<P>| {
            chunks.find_room(chunk, removes)?;
            change(chunks)
        };
        match change(&mut self.chunks) {
            Err(StoreError::Full(_)) if self.chunks.changed() > 0 => {
                self.flush()?;
                self.early += 1;
                change(&mut self.chunks)
            }
            done => done,
        }
    }

    fn end_at_bound(&mut self) -> Result<(), StoreError> {
        if self.chunks.changed() >= self.bound {
            self.flush()?;
            self.early += 1;
        }
        Ok(())
    }
}

impl Volume<PageStore> {
    /// Flushes, and gives back the room of trimmed chunks, like [`PageStore::compact`]. Returns the
    /// number of bytes by which the file has shrunk. The file keeps room up to the highest stored
    /// chunk; free pages below become holes.
    ///
    /// # Errors
    /// As [`Volume::flush`] and [`PageStore::compact`].
    pub fn compact(&mut self) -> Result<u64, StoreError> {
        self.flush()?;
        self.pages_mut().compact()
    }

    /// Allocates all the room that the disk can ever need. Without this, a store in a file grows as
    /// it fills, and a write without room fails.
    ///
    /// # Errors
    /// There is not enough room, or the medium fails.
    pub fn reserve(&mut self) -> Result<(), StoreError> {
        let last = (self.size - 1) / self.chunk() as u64;
        let pages = self.chunks.cut().main_page(last).map_or(0, |page| page.0);
        self.pages_mut().reserve(u64::from(pages) + 1)
    }
}

/// The mapping of chunks to pages for a disk, whose own page comes first.
fn cut_of(pages: &impl Pages) -> Result<Cut, StoreError> {
    let protocol = pages.protocol();
    if !protocol.atomic {
        return Err(StoreError::Options(format!(
            "{} does not keep transactions atomic, which would tear sectors: use another protocol",
            protocol.name
        )));
    }
    match pages.page_bytes() {
        bytes if bytes < SECTOR_BYTES => Err(StoreError::Options(format!(
            "pages of {bytes} bytes are smaller than a sector of a disk, which has {SECTOR_BYTES}"
        ))),
        bytes => Ok(Cut::new(bytes, FIRST.0 + 1)),
    }
}

/// The size of the largest disk that fits into `pages` pages.
fn most_bytes(cut: &Cut, pages: u64) -> u64 {
    let last = (FIRST.0 + 1..u32::try_from(pages).unwrap_or(u32::MAX))
        .rev()
        .find_map(|page| cut.chunk_of(Lpn(page)));
    last.map_or(0, |chunk| (chunk + 1) * cut.chunk() as u64)
}

#[cfg(test)]
mod tests;
