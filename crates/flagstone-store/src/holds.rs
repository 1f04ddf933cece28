//! What the pages of a store hold, by the first two of them: so that opening a store as something
//! else says what it is, and what to do.

use crate::tables;
use crate::volume;

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
            () if pages
                .iter()
                .any(|page| page.starts_with(b"SQLite format 3\0")) =>
            {
                Holds::Database
            }
            () => Holds::Pages,
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
