//! What the pages of a store hold, by the first two of them: so that opening a store as something
//! else says what it is, and what to do.

use crate::error::StoreError;
use crate::pages::PageStore;
use crate::tables;
use crate::volume;
use flagstone::units::Lpn;

/// How an SQLite database begins, and where it says how large its pages are, and how many bytes at
/// their ends it leaves free ("The Database Header" of SQLite's file format).
const DATABASE: &[u8] = b"SQLite format 3\0";
const PAGE_SIZE: usize = 16;
const RESERVED: usize = 20;

/// Bytes of each page of the medium that a store keeps for itself.
const OWN_BYTES: usize = crate::MEDIUM_PAGE_BYTES - crate::PageStore::PAGE_BYTES;

/// What a store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Tables: [`crate::Store`].
    Tables,
    /// An SQLite database.
    Database,
    /// A disk: [`crate::Volume`].
    Disk,
    /// Pages of a program that has a layout of its own, or nothing.
    Pages,
}

impl Holds {
    /// By the bytes of the pages 0 and 1; none of one that holds nothing.
    pub fn of(pages: [&[u8]; 2]) -> Holds {
        let [first, _] = pages;
        match () {
            () if first.starts_with(tables::MAGIC) => Holds::Tables,
            () if first.starts_with(volume::MAGIC) => Holds::Disk,
            () if pages.iter().any(|page| page.starts_with(DATABASE)) => Holds::Database,
            () => Holds::Pages,
        }
    }

    /// Whether an SQLite database has the ends of its pages apart from the others, so that a commit
    /// writes a page more (docs/sqlite.md); nothing if it is none. By the bytes of the same pages.
    pub fn is_apart(pages: [&[u8]; 2]) -> Option<bool> {
        let is_first = |page: &&&[u8]| page.starts_with(DATABASE);
        let first = pages.iter().find(is_first)?;
        let bytes = [*first.get(PAGE_SIZE)?, *first.get(PAGE_SIZE + 1)?];
        let reserved = *first.get(RESERVED)?;
        let fits = u16::from_be_bytes(bytes) == 4096 && usize::from(reserved) >= OWN_BYTES;
        Some(!fits)
    }

    /// What the pages of a store hold, and what [`Holds::is_apart`] says of them.
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

    /// One word for it.
    pub fn name(self) -> &'static str {
        match self {
            Holds::Tables => "tables",
            Holds::Database => "database",
            Holds::Disk => "disk",
            Holds::Pages => "pages",
        }
    }

    /// What it holds, and how that is opened: the first part of an error.
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
