//! The controls of campaigns: lying media, and deliberate mistakes of stores.

use super::discards::{Work, is_under_way};
use flagstone::ftl::Mistake;
use flagstone::mistakes::COMPILED;
use flagstone_store::medium::{Medium, Recorded};
use flagstone_store::{MEDIUM_PAGE_BYTES, tables};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The lie or mistake of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// None.
    None,
    /// A sync makes nothing durable.
    Syncs,
    /// A sync after writes of block marks alone makes nothing durable.
    SyncsOfMarks,
    /// A sync after writing the tables of a close makes nothing durable.
    SyncsOfTables,
    /// The superblock keeps its initial contents.
    Superblocks,
    /// Reads replace the checksum of each page by a valid one.
    Checksums,
    /// Each superblock is marked as cleanly closed.
    Closed,
    /// A sync during a discard makes nothing durable.
    Discards,
    /// A sync during a compaction makes nothing durable: the file is truncated before moved data,
    /// or the superblock, is durable.
    Compactions,
    /// No lie of the medium. A compaction forgets trims although the old versions that they hide
    /// still exist.
    OldVersions,
    /// No lie of the medium. Pages freed by a table transaction stay free after its rollback.
    FreedPages,
    /// No lie of the medium. A dropped table's inner pages are freed before the pages that they
    /// reference.
    DroppedRoots,
    /// No lie of the medium. When a table's root moves to a lower page, the catalog keeps the old
    /// one.
    MovedRoots,
    /// No lie of the medium. The accompanying chip is not told of the last landed program.
    Landings,
    /// No lie of the medium. A store grows before a root lists the blocks that its mapping table
    /// gets.
    Roots,
    /// No lie of the medium. A restart mistakes damage of durable data for a torn write: a control
    /// of runs with rot.
    Horizon,
    /// No lie of the medium. A last page with a sum in place of its horizon is written although no
    /// other page of its transaction has the horizon: a control of runs with rot.
    Sums,
    /// No lie of the medium. It holds an older store, and neither store has an identity that
    /// distinguishes their pages.
    Identities,
}

impl Lie {
    const ALL: [(Lie, &'static str); 18] = [
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

    /// All lies and mistakes that this build can make, with their command names.
    pub fn all() -> impl Iterator<Item = (Lie, &'static str)> + Clone {
        let all = Lie::ALL.into_iter();
        all.filter(|(lie, _)| COMPILED || !lie.is_mistake())
    }

    /// Whether it is a mistake of our own code, which is compiled only with the feature `mistakes`.
    fn is_mistake(self) -> bool {
        self.of_device().is_some() || self.of_tables().is_some()
    }

    /// The mistake of the translation layer below a store.
    pub(super) fn of_device(self) -> Option<Mistake> {
        match self {
            Lie::Roots => Some(Mistake::GrowthUnnamed),
            Lie::OldVersions => Some(Mistake::BeyondKept),
            Lie::Horizon => Some(Mistake::HorizonIgnored),
            Lie::Sums => Some(Mistake::WordUnstated),
            _ => None,
        }
    }

    /// The mistake of the tables of a store.
    pub(super) fn of_tables(self) -> Option<tables::Mistake> {
        match self {
            Lie::FreedPages => Some(tables::Mistake::FreedStaysFree),
            Lie::DroppedRoots => Some(tables::Mistake::DropsRootFirst),
            Lie::MovedRoots => Some(tables::Mistake::MovesRootUnnamed),
            _ => None,
        }
    }

    /// The command name.
    pub fn name(self) -> &'static str {
        let mut all = Lie::all();
        all.find(|&(lie, _)| lie == self).expect("all are named").1
    }

    /// The lie with this command name.
    pub fn by_name(name: &str) -> Option<Lie> {
        let mut all = Lie::all();
        all.find(|&(_, other)| other == name).map(|(lie, _)| lie)
    }
}

/// A lying medium. The campaign keeps a handle to the medium below.
pub(super) struct Lying {
    below: Recorded,
    lie: Lie,
    /// Whether anything except marks was written since the last sync.
    wrote_pages: AtomicBool,
    /// Whether the last write was one of a close's tables.
    wrote_tables: AtomicBool,
    pages_per_block: u64,
    /// Random numbers that decide which requests for space fail; `None` if none do.
    refuses: Option<Mutex<Pcg64Mcg>>,
    /// Maximum size in bytes, once there is a store.
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

    /// Limits the size of the medium to `end` bytes; `None` for no limit.
    pub(super) fn ending_at(self, end: Option<u64>) -> Lying {
        Lying { end, ..self }
    }

    /// Whether a range that ends at byte `end` extends beyond the limit.
    fn is_beyond(&self, end: u64) -> bool {
        self.end.is_some_and(|most| end > most) && self.has_blocks()
    }

    /// Makes half of a growing store's requests for space fail.
    pub(super) fn refusing(self, seed: u64) -> Lying {
        let dice = Pcg64Mcg::seed_from_u64(seed ^ self.below.operations());
        Lying {
            refuses: Some(Mutex::new(dice)),
            ..self
        }
    }

    /// The medium below.
    pub(super) fn below(&self) -> Recorded {
        self.below.clone()
    }

    /// Whether a superblock has a nonzero block count.
    fn has_blocks(&self) -> bool {
        let mut pages = [0; 2 * MEDIUM_PAGE_BYTES];
        let read = self.below.read_at(0, &mut pages);
        let blocks = place("::superblock", "BLOCKS");
        let has = |page: &[u8]| page.starts_with(b"Flagston") && page[blocks..][..4] != [0; 4];
        read.is_ok() && pages.chunks_exact(MEDIUM_PAGE_BYTES).any(has)
    }

    /// The identity of the store, from its superblocks.
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

    /// Fixes the checksum of a page. `place` is its number on the medium.
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

/// Offset of a field in a record.
fn place(record: &str, field: &str) -> usize {
    let mut records = flagstone_store::LAYOUTS.iter();
    let record = records.find(|layout| layout.path.ends_with(record));
    let mut fields = record.expect("stores have it").fields.iter();
    let found = fields.find(|(name, ..)| *name == field);
    found.expect("the record has it").1
}

/// Whether a write is one of a close's tables. Their pages belong to no block, which the highest
/// bit of their generation shows.
fn is_of_tables(bytes: &[u8]) -> bool {
    let Some(page) = bytes.first_chunk::<MEDIUM_PAGE_BYTES>() else {
        return false;
    };
    let trailer = MEDIUM_PAGE_BYTES - 64;
    page[trailer + place("::trailer", "GENERATION") + 7] & 0x80 != 0
}

/// A copy of a superblock that is marked as closed.
fn closed(superblock: &[u8]) -> Vec<u8> {
    let place = |field| place("::superblock", field);
    let (mut bytes, end) = (superblock.to_vec(), place("CRC"));
    bytes[place("CLOSED")] = 1;
    // The checksum over the bytes and a number, here the last four bytes.
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

    /// Writes, changes or drops a write as the lie says, and notes for [`Lying::sync`] what was
    /// written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let is_superblock = offset < 2 * MEDIUM_PAGE_BYTES as u64;
        if is_superblock && self.lie == Lie::Superblocks {
            // Creation writes the superblock at offset 0 last. Once it is there, neither changes.
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

    /// Refuses space beyond the limit and, with `refusing`, half of the requests at random.
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        // A new store writes its first superblock, without blocks, before it reserves room.
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

    /// A sparse medium grows without needing space.
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
