//! The catalog of tables. The first page marks the store as one of tables and points to the
//! catalog: a tree like those of tables, from names to records.

use crate::error::StoreError;
use crate::shared::PageBytes;
use flagstone::layout;
use flagstone::layout::{Layout, get, put};
use flagstone::units::Lpn;
use flagstone_btree::Root;

layout! {
    /// The first page of a store that holds tables.
    pub tables_head: 32 => {
        MAGIC:   16, "Flagstone tables";
        VERSION: 2,  "2, or 3 while tables are being dropped; 1 where an entry of a leaf has a \
                      quarter of a page at most";
        HEIGHT:  2,  "levels of the catalog, a prefix B+-tree; its keys are names of tables";
        ROOT:    4,  "the root of the catalog";
        DROPPED: 4,  "tables of the catalog that are being dropped";
        LEFT:    1,  "1: pages may be left to which no table leads, since only damaged pages of a \
                      table led to them that was dropped; else 0";
        KEPT:    3,  "zeros";
    }
}

layout! {
    /// The catalog's record of a table.
    pub table_record: 16 => {
        KIND:   1, "1 of an ordered table, 2 of a hashed one; with the top bit, it is being dropped: \
                    what its tree leads to and holds nothing has gone";
        HEIGHT: 1, "levels of its tree";
        KEPT:   2, "zeros";
        ROOT:   4, "the root of its tree";
        KEYS:   8, "keys; all bits set if it is to be counted";
    }
}

/// Records that this module keeps.
pub(super) const LAYOUTS: [Layout; 2] = [tables_head::RECORD, table_record::RECORD];

/// The first bytes of the first page of a store of tables.
pub const MAGIC: &[u8; 16] = b"Flagstone tables";
/// The version of the table format, see docs/store-format.md.
pub const VERSION: u64 = 2;
/// The version while tables are being dropped. Programs that do not know it must not write.
const WHILE_DROPPING: u64 = 3;
/// The oldest readable version. Any write upgrades such a store to [`VERSION`].
const OLDEST: u64 = 1;

/// The page of the head.
pub(super) const HEAD: Lpn = Lpn(0);
/// The root of the catalog of a new store.
pub(super) const FIRST_ROOT: Lpn = Lpn(1);

/// How a table orders its keys. Fixed when the table is created.
///
/// ```
/// use flagstone_store::medium::Memory;
/// use flagstone_store::{OpenOptions, Store, StoreError, TableKind};
///
/// let store = Store::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// let mut tx = store.write()?;
/// tx.open_table("pages", TableKind::Hashed)?.insert(b"/index", b"...")?;
/// tx.table("users")?.insert(b"ada", b"London")?; // an ordered table
/// tx.commit()?;
///
/// let read = store.read()?;
/// assert_eq!(read.kind("users")?, Some(TableKind::Ordered));
/// assert_eq!(read.kind("pages")?, Some(TableKind::Hashed));
/// // A hashed table has no ranges.
/// assert!(read.table("pages")?.range(b"/a"..b"/b").is_err());
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableKind {
    /// In byte order: supports ranges, prefixes, first and last key.
    Ordered = 1,
    /// By a hash: keys of any length, in no meaningful order.
    Hashed = 2,
}

impl std::fmt::Display for TableKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TableKind::Ordered => "ordered",
            TableKind::Hashed => "hashed",
        })
    }
}

/// The bit in a record's kind that marks a table as being dropped.
const DROPPED: u64 = 0x80;

/// The catalog's record of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: TableKind,
    /// Whether the table was dropped but still has pages.
    pub(super) is_dropped: bool,
    pub(super) root: Root,
    /// Number of keys, if known.
    pub(super) keys: Option<u64>,
}

impl Record {
    /// Encodes the record for the catalog.
    pub(super) fn emit(self) -> [u8; table_record::SIZE] {
        let mut bytes = [0; table_record::SIZE];
        let dropped = if self.is_dropped { DROPPED } else { 0 };
        put(&mut bytes, table_record::KIND, self.kind as u64 | dropped);
        put(
            &mut bytes,
            table_record::HEIGHT,
            u64::from(self.root.height),
        );
        put(&mut bytes, table_record::ROOT, u64::from(self.root.at.0));
        put(
            &mut bytes,
            table_record::KEYS,
            self.keys.unwrap_or(u64::MAX),
        );
        bytes
    }

    /// Decodes the catalog's record of table `name`.
    pub(super) fn parse(name: &str, bytes: &[u8]) -> Result<Record, StoreError> {
        let damaged = |why: &str| {
            let why = format!("the catalog's record of table `{name}` {why}");
            Err(StoreError::Damaged(why))
        };
        if bytes.len() != table_record::SIZE {
            return damaged("has another length");
        }
        let field = |field| get(bytes, field);
        Ok(Record {
            is_dropped: field(table_record::KIND) & DROPPED > 0,
            kind: match field(table_record::KIND) & !DROPPED {
                1 => TableKind::Ordered,
                2 => TableKind::Hashed,
                _ => return damaged("names a kind that there is not"),
            },
            root: Root {
                at: Lpn(field(table_record::ROOT) as u32),
                height: field(table_record::HEIGHT) as u32,
            },
            keys: Some(field(table_record::KEYS)).filter(|&keys| keys != u64::MAX),
        })
    }
}

/// Contents of the first page of a store of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// The root of the catalog.
    pub(super) catalog: Root,
    /// Number of tables in the catalog that are being dropped.
    pub(super) dropped: u32,
    /// Whether pages may be left that no table references.
    pub(super) has_left: bool,
    /// Whether the head has an older version than this program writes.
    pub(super) is_older: bool,
}

/// Encodes the first page: catalog root, number of tables being dropped, and whether pages may be
/// left that no table references (`has_left`).
pub(super) fn head(root: Root, dropped: u32, has_left: bool) -> PageBytes {
    let mut page = [0; tables_head::SIZE];
    page[tables_head::MAGIC].copy_from_slice(MAGIC);
    let version = if dropped > 0 { WHILE_DROPPING } else { VERSION };
    put(&mut page, tables_head::VERSION, version);
    put(&mut page, tables_head::DROPPED, u64::from(dropped));
    put(&mut page, tables_head::LEFT, u64::from(has_left));
    put(&mut page, tables_head::HEIGHT, u64::from(root.height));
    put(&mut page, tables_head::ROOT, u64::from(root.at.0));
    page[..].into()
}

/// Decodes the first page. `None` if the store does not hold tables.
pub(super) fn parse_head(page: &[u8]) -> Result<Option<Head>, StoreError> {
    if page.len() < tables_head::SIZE || page[tables_head::MAGIC] != MAGIC[..] {
        return Ok(None);
    }
    let version = get(page, tables_head::VERSION);
    if !(OLDEST..=WHILE_DROPPING).contains(&version) {
        return Err(StoreError::NotAStore(format!(
            "its tables are of version {version}, and this program knows versions {OLDEST} to \
             {WHILE_DROPPING}: use the program that wrote them"
        )));
    }
    let catalog = Root {
        at: Lpn(get(page, tables_head::ROOT) as u32),
        height: get(page, tables_head::HEIGHT) as u32,
    };
    Ok(Some(Head {
        catalog,
        dropped: get(page, tables_head::DROPPED) as u32,
        has_left: get(page, tables_head::LEFT) != 0,
        is_older: version < VERSION,
    }))
}
