//! Detects what a store holds from its first two pages, so that opening it as something else fails
//! with an error that names the contents and the right way to open them.

use crate::error::StoreError;
use crate::pages::PageStore;
use crate::tables;
use crate::volume;
use flagstone::units::Lpn;

/// The magic of an SQLite database, and the offsets of its page size and of its reserved bytes per
/// page ("The Database Header" of SQLite's file format).
const DATABASE: &[u8] = b"SQLite format 3\0";
const PAGE_SIZE: usize = 16;
const RESERVED: usize = 20;

/// Bytes of each page of the medium that the store itself uses.
const OWN_BYTES: usize = crate::MEDIUM_PAGE_BYTES - crate::PageStore::PAGE_BYTES;

/// The kind of data in a store.
///
/// ```
/// use flagstone_store::medium::Memory;
/// use flagstone_store::{Holds, OpenOptions, PageStore, StoreError, Volume};
///
/// let pages = PageStore::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// let mut disk = Volume::create(pages, 1 << 20)?;
/// assert_eq!(Holds::of_store(disk.pages_mut())?.0, Holds::Disk);
/// assert_eq!(Holds::of([b"SQLite format 3\0", b""]).name(), "database");
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Tables: [`crate::Store`].
    Tables,
    /// An SQLite database.
    Database,
    /// A disk: [`crate::Volume`].
    Disk,
    /// Pages with a program's own layout, or no data.
    Pages,
}

impl Holds {
    /// Detects the contents from pages 0 and 1. Pass an empty slice for a page that holds nothing.
    pub fn of(pages: [&[u8]; 2]) -> Holds {
        let [first, _] = pages;
        match () {
            () if first.starts_with(tables::MAGIC) => Holds::Tables,
            () if first.starts_with(volume::MAGIC) => Holds::Disk,
            () if pages.iter().any(|page| page.starts_with(DATABASE)) => Holds::Database,
            () => Holds::Pages,
        }
    }

    /// Whether an SQLite database keeps the ends of its pages in separate pages, so that a commit
    /// writes a page more (docs/sqlite.md). `None` if pages 0 and 1 hold no database.
    pub fn is_apart(pages: [&[u8]; 2]) -> Option<bool> {
        let is_first = |page: &&&[u8]| page.starts_with(DATABASE);
        let first = pages.iter().find(is_first)?;
        let bytes = [*first.get(PAGE_SIZE)?, *first.get(PAGE_SIZE + 1)?];
        let reserved = *first.get(RESERVED)?;
        let fits = u16::from_be_bytes(bytes) == 4096 && usize::from(reserved) >= OWN_BYTES;
        Some(!fits)
    }

    /// Reads the first two pages of a store, and returns [`Holds::of`] and [`Holds::is_apart`].
    ///
    /// # Errors
    /// One of the first two pages cannot be read.
    pub fn of_store(store: &mut PageStore) -> Result<(Holds, Option<bool>), StoreError> {
        let mut pages = [(); 2].map(|()| vec![0; PageStore::PAGE_BYTES]);
        for (at, page) in (0..).map(Lpn).zip(&mut pages) {
            let bytes = store.read(None, at, page)?.unwrap_or(0);
            page.truncate(bytes);
        }
        let pages = [&pages[0][..], &pages[1][..]];
        Ok((Holds::of(pages), Holds::is_apart(pages)))
    }

    /// The kind in one word.
    pub fn name(self) -> &'static str {
        match self {
            Holds::Tables => "tables",
            Holds::Database => "database",
            Holds::Disk => "disk",
            Holds::Pages => "pages",
        }
    }

    /// Says what the store holds and how to open it. Begins an error message.
    pub fn advice(self) -> &'static str {
        match self {
            Holds::Tables => "the store holds tables: open it as a `Store` (docs/tables.md)",
            Holds::Database => {
                "the store holds an SQLite database: open it by SQLite (docs/sqlite.md)"
            }
            Holds::Disk => "the store holds a disk: open it as one (docs/disk.md)",
            Holds::Pages => "the store holds pages of another kind: open it as a `PageStore`",
        }
    }
}
