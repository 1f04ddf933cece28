//! Media that do not do what they say, and a mistake of tables: the controls of a campaign.

use super::discards::{Work, is_under_way};
use flagstone_store::MEDIUM_PAGE_BYTES;
use flagstone_store::medium::{Medium, Recorded};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a medium lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// It does not.
    None,
    /// A sync makes nothing durable.
    Syncs,
    /// A sync makes nothing durable that follows nothing but marks of blocks.
    SyncsOfMarks,
    /// A sync makes nothing durable that follows the tables which a close leaves.
    SyncsOfTables,
    /// The superblock stays as it was when the store was made.
    Superblocks,
    /// Pages read with the checksum that they should have.
    Checksums,
    /// Each superblock says that the store was closed.
    Closed,
    /// A sync makes nothing durable while room is given back.
    Discards,
    /// A sync makes nothing durable while a store is compacted: it is cut before what was moved, or
    /// its superblock, is durable.
    Compactions,
    /// The medium does not lie. A store that is compacted forgets trims before the versions are
    /// gone that they hide.
    OldVersions,
    /// The medium does not lie. Pages that a transaction over tables gave back stay free when it is
    /// rolled back.
    FreedPages,
    /// The medium does not lie. A table that is being dropped loses first the pages that lead to
    /// the others.
    DroppedRoots,
    /// The medium does not lie. A table whose root gets a lower page is led to by its old one.
    MovedRoots,
    /// The medium does not lie. Of the programs that have landed on it, the chip beside it is not
    /// given the last one.
    Landings,
    /// The medium does not lie. A store that grows does so before a root names the blocks that its
    /// mapping table gets.
    Roots,
    /// The medium does not lie. A restart takes damage of what was durable for what a power cut has
    /// torn: a control of runs with rot.
    Horizon,
    /// The medium does not lie. A last page that has a sum in the place of what it would say of
    /// what was durable is written, although no other page of its transaction says as much: a
    /// control of runs with rot.
    Sums,
    /// The medium does not lie. It holds an older store, and the two stores have no identity that
    /// tells their pages apart.
    Identities,
}

impl Lie {
    /// All of them, with the name that commands use.
    pub const ALL: [(Lie, &'static str); 18] = [
        (Lie::None, "none"),
        (Lie::Syncs, "syncs"),
        (Lie::SyncsOfMarks, "syncs-of-marks"),
        (Lie::SyncsOfTables, "syncs-of-tables"),
        (Lie::Superblocks, "superblocks"),
        (Lie::Checksums, "checksums"),
        (Lie::Closed, "closed"),
        (Lie::Discards, "discards"),
        (Lie::Compactions, "compactions"),
        (Lie::OldVersions, "old-versions"),
        (Lie::FreedPages, "freed-pages"),
        (Lie::DroppedRoots, "dropped-roots"),
        (Lie::MovedRoots, "moved-roots"),
        (Lie::Landings, "landings"),
        (Lie::Roots, "roots"),
        (Lie::Horizon, "horizon"),
        (Lie::Sums, "sums"),
        (Lie::Identities, "identities"),
    ];

    /// The name that commands use.
    pub fn name(self) -> &'static str {
        let mut all = Lie::ALL.iter();
        all.find(|(lie, _)| *lie == self).expect("all are named").1
    }

    /// By the name that commands use.
    pub fn by_name(name: &str) -> Option<Lie> {
        let mut all = Lie::ALL.iter();
        all.find(|(_, other)| *other == name).map(|(lie, _)| *lie)
    }
}

/// A medium that lies. The handle to what is below it stays with the campaign.
pub(super) struct Lying {
    below: Recorded,
    lie: Lie,
    /// Whether anything but marks was written since the last sync.
    wrote_pages: AtomicBool,
    /// Whether the last write was one of tables of a close.
    wrote_tables: AtomicBool,
    pages_per_block: u64,
    /// Of the times that it is asked for room, it has none after those that these dice say.
    refuses: Option<Mutex<Pcg64Mcg>>,
    /// Bytes of room, once there is a store.
    end: Option<u64>,
}

impl Lying {
    pub(super) fn new(below: Recorded, lie: Lie, pages_per_block: u32) -> Lying {
        Lying {
            below,
            lie,
            wrote_pages: AtomicBool::new(false),
            wrote_tables: AtomicBool::new(false),
            pages_per_block: pages_per_block.into(),
            refuses: None,
            end: None,
        }
    }

    /// A medium that has room for so many bytes, or has no end.
    pub(super) fn ending_at(self, end: Option<u64>) -> Lying {
        Lying { end, ..self }
    }

    /// Whether a range is behind the end.
    fn is_beyond(&self, end: u64) -> bool {
        self.end.is_some_and(|most| end > most) && self.has_blocks()
    }

    /// A medium that has no room now and then, half of the times that a store is to grow.
    pub(super) fn refusing(self, seed: u64) -> Lying {
        let dice = Pcg64Mcg::seed_from_u64(seed ^ self.below.operations());
        Lying {
            refuses: Some(Mutex::new(dice)),
            ..self
        }
    }

    /// What it lies about.
    pub(super) fn below(&self) -> Recorded {
        self.below.clone()
    }

    /// Whether a superblock says that the store has blocks.
    fn has_blocks(&self) -> bool {
        let mut pages = [0; 2 * MEDIUM_PAGE_BYTES];
        let read = self.below.read_at(0, &mut pages);
        let blocks = place("::superblock", "BLOCKS");
        let has = |page: &[u8]| page.starts_with(b"Flagston") && page[blocks..][..4] != [0; 4];
        read.is_ok() && pages.chunks_exact(MEDIUM_PAGE_BYTES).any(has)
    }

    /// The identity of the store, by its superblocks.
    fn identity(&self) -> u64 {
        let mut pages = [0; 2 * MEDIUM_PAGE_BYTES];
        let read = self.below.read_at(0, &mut pages);
        let mut heads = pages.chunks_exact(MEDIUM_PAGE_BYTES);
        let head = heads.find(|page| page.starts_with(b"Flagston"));
        let (Ok(()), Some(head)) = (read, head) else {
            return 0;
        };
        let bytes = head[place("::superblock", "IDENTITY")..].first_chunk();
        u64::from_le_bytes(*bytes.expect("it is longer"))
    }

    /// Gives a page the checksum that it should have. `place` is its number on the medium.
    fn correct(&self, page: &mut [u8], place: u64) {
        let (stride, in_data) = (self.pages_per_block + 1, place.wrapping_sub(2));
        let in_block = in_data % stride;
        if place < 2 || in_block == 0 {
            return;
        }
        let number = in_data / stride * self.pages_per_block + in_block - 1;
        let end = MEDIUM_PAGE_BYTES - 4;
        let identity = self.identity();
        let sum = flagstone_store::page_sum(&page[..end], number as u32, identity);
        page[end..].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Where a field of a record begins.
fn place(record: &str, field: &str) -> usize {
    let mut records = flagstone_store::LAYOUTS.iter();
    let record = records.find(|layout| layout.path.ends_with(record));
    let mut fields = record.expect("stores have it").fields.iter();
    let found = fields.find(|(name, ..)| *name == field);
    found.expect("the record has it").1
}

/// Whether a write is one of tables of a close, which are of no block: the highest bit of the
/// generation of their pages says so.
fn is_of_tables(bytes: &[u8]) -> bool {
    let Some(page) = bytes.first_chunk::<MEDIUM_PAGE_BYTES>() else {
        return false;
    };
    let trailer = MEDIUM_PAGE_BYTES - 64;
    page[trailer + place("::trailer", "GENERATION") + 7] & 0x80 != 0
}

/// A superblock that says that its store was closed.
fn closed(superblock: &[u8]) -> Vec<u8> {
    let place = |field| place("::superblock", field);
    let (mut bytes, end) = (superblock.to_vec(), place("CRC"));
    bytes[place("CLOSED")] = 1;
    // The sum over bytes and a number, which are the last four here.
    let (before, last) = bytes[..end].split_last_chunk().expect("it is longer");
    let sum = flagstone_store::page_sum(before, u32::from_le_bytes(*last), 0);
    bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

impl Medium for Lying {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.below.read_at(offset, into)?;
        let place = offset / MEDIUM_PAGE_BYTES as u64;
        if self.lie == Lie::Checksums && into.len() == MEDIUM_PAGE_BYTES {
            self.correct(into, place);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let is_superblock = offset < 2 * MEDIUM_PAGE_BYTES as u64;
        if is_superblock && self.lie == Lie::Superblocks {
            // The last one that is written when a store is made.
            let mut first = [0; 8];
            self.below.read_at(0, &mut first)?;
            if first != [0; 8] {
                return Ok(());
            }
        }
        if is_superblock && self.lie == Lie::Closed {
            return self.below.write_at(offset, &closed(bytes));
        }
        let is_mark = bytes.len() == MEDIUM_PAGE_BYTES && bytes.starts_with(b"Mark");
        self.wrote_pages.fetch_or(!is_mark, Ordering::Relaxed);
        let is_of_tables = !is_superblock && is_of_tables(bytes);
        self.wrote_tables.store(is_of_tables, Ordering::Relaxed);
        self.below.write_at(offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        let wrote_pages = self.wrote_pages.swap(false, Ordering::Relaxed);
        match self.lie {
            Lie::Syncs => Ok(()),
            Lie::SyncsOfMarks if !wrote_pages => Ok(()),
            Lie::SyncsOfTables if self.wrote_tables.swap(false, Ordering::Relaxed) => Ok(()),
            Lie::Discards if is_under_way(Work::Discard) => Ok(()),
            Lie::Compactions if is_under_way(Work::Compaction) => Ok(()),
            _ => self.below.sync(),
        }
    }

    fn bytes(&self) -> io::Result<u64> {
        self.below.bytes()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        // A new store has its first superblock, of no blocks, before it asks for room.
        let is_new = !self.has_blocks();
        let refuses = |dice: &Mutex<Pcg64Mcg>| {
            let mut dice = dice.lock().expect("one thread");
            dice.random_range(0..2) == 0
        };
        if !is_new && self.refuses.as_ref().is_some_and(refuses) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if self.is_beyond(bytes) && bytes > self.below.bytes()? {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.below.reserve(bytes)
    }

    /// A sparse medium becomes longer without room.
    fn lengthen(&self, bytes: u64) -> io::Result<()> {
        if self.is_thin() {
            return self.below.lengthen(bytes);
        }
        self.reserve(bytes)
    }

    fn is_thin(&self) -> bool {
        self.below.is_thin()
    }

    fn take(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if self.is_beyond(offset + bytes) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.below.take(offset, bytes)
    }

    fn can_shorten(&self) -> bool {
        self.below.can_shorten()
    }

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        self.below.shorten(bytes)
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        self.below.discard(offset, bytes)
    }
}
