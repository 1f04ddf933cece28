//! Keys that are lost with damaged pages: finding them, and continuing without them.
//!
//! Pages that only a lost page referenced are found by exclusion: if all tables can be read, they
//! are the pages that no table references.

use super::catalog::{HEAD, Record, TableKind};
use super::changed::Changed;
use super::read::{in_table, records, records_if_whole, shown};
use super::store::Store;
use super::table_mut::TableMut;
use super::write::{WriteTx, give_all};
use crate::error::StoreError;
use flagstone::units::Lpn;
use flagstone_btree::{ByteTree, Lost, Root};
use std::collections::BTreeSet;
use std::fmt;

/// Keys of a table that cannot be read because a page is damaged: all keys in a range, or one key
/// whose value is lost.
///
/// ```
/// use flagstone_store::medium::Recorded;
/// use flagstone_store::{OpenOptions, PageStore, Store, StoreError};
///
/// let (medium, options) = (Recorded::default(), OpenOptions::default());
/// let store = Store::on(Box::new(medium.clone()), &options)?;
/// store.insert("files", b"short", b"a few bytes")?;
/// store.insert("files", b"long", &[7; 100_000])?;
/// store.close()?;
///
/// // The last page of the long value is lost.
/// let mut pages = PageStore::on(Box::new(medium.clone()), &options)?;
/// let (tx, last) = (pages.begin()?, pages.highest().expect("pages with data"));
/// pages.trim(tx, last)?;
/// pages.commit(tx)?;
/// pages.close()?;
///
/// let store = Store::on(Box::new(medium), &options)?;
/// let files = store.read()?.table("files")?;
/// let mut pairs = files.iter();
/// let Some(Err(StoreError::Lost { lost, .. })) = pairs.next() else {
///     panic!("the value of the first key is damaged");
/// };
/// assert!(pairs.next().is_some_and(|pair| pair.is_ok_and(|(key, _)| key == b"short")));
/// assert_eq!((&lost.table[..], lost.one()), ("files", Some(&b"long"[..])));
///
/// // The table goes on without the key.
/// let mut tx = store.write()?;
/// assert_eq!(tx.table("files")?.give_up_lost()?, [lost]);
/// tx.commit()?;
/// assert_eq!(store.read()?.table("files")?.len()?, 1);
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostKeys {
    /// The table.
    pub table: String,
    /// The kind of the table. The range of a hashed table is one of hashes.
    pub kind: TableKind,
    /// The first key that may be lost.
    pub from: Vec<u8>,
    /// The first key after those that may be lost; `None` if there is none.
    pub to: Option<Vec<u8>>,
}

impl LostKeys {
    /// The key, if exactly one value is lost.
    pub fn one(&self) -> Option<&[u8]> {
        let to = self.to.as_deref()?;
        (to.strip_prefix(&self.from[..]) == Some(&[0])).then_some(&self.from)
    }

    pub(super) fn new(table: &str, kind: TableKind, from: Vec<u8>, to: Option<Vec<u8>>) -> Self {
        LostKeys {
            table: table.to_string(),
            kind,
            from,
            to,
        }
    }

    /// The loss of one key's value.
    pub(super) fn of_value(table: &str, kind: TableKind, key: Vec<u8>) -> Self {
        let behind = [&key, &[0][..]].concat();
        LostKeys::new(table, kind, key, Some(behind))
    }
}

impl fmt::Display for LostKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            TableKind::Ordered => "keys",
            TableKind::Hashed => "keys with hashes",
        };
        write!(f, "table `{}`: ", self.table)?;
        if let Some(key) = self.one() {
            let one = what.replace("keys", "key").replace("hashes", "hash");
            return write!(f, "the {one} `{}`", shown(key));
        }
        match (&self.from[..], &self.to) {
            (b"", None) => f.write_str("all keys"),
            (b"", Some(to)) => write!(f, "the {what} before `{}`", shown(to)),
            (from, None) => write!(f, "the {what} from `{}` on", shown(from)),
            (from, Some(to)) => {
                write!(
                    f,
                    "the {what} from `{}` to before `{}`",
                    shown(from),
                    shown(to)
                )
            }
        }
    }
}

/// The losses in a tree, in the order in which they are given up, and its pages.
fn lost_of(changed: &mut Changed, root: Root) -> Result<(Vec<Lost>, Vec<Lpn>), StoreError> {
    ByteTree::over(changed, root)?.lost()
}

fn keys_of(name: &str, kind: TableKind, lost: &[Lost]) -> Vec<LostKeys> {
    let mut lost: Vec<&Lost> = lost.iter().collect();
    lost.sort_by(|a, b| a.from.cmp(&b.from));
    let keys = |lost: &&Lost| match lost.height {
        0 => LostKeys::of_value(name, kind, lost.from.clone()),
        _ => LostKeys::new(name, kind, lost.from.clone(), lost.to.clone()),
    };
    lost.iter().map(keys).collect()
}

/// Frees at most `most` pages that none of these trees references. Returns how many were freed;
/// `None` if they cannot be determined, since a tree node is lost.
pub(super) fn sweep(
    changed: &mut Changed,
    roots: impl IntoIterator<Item = Root>,
    most: usize,
) -> Result<Option<usize>, StoreError> {
    let mut used = BTreeSet::from([HEAD]);
    for root in roots {
        match ByteTree::over(&mut *changed, root)?.pages() {
            Ok(pages) => used.extend(pages),
            Err(error) if error.is_damage() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let mut lost = changed.space.lost(&used);
    lost.truncate(most);
    let count = lost.len();
    give_all(changed, lost)?;
    Ok(Some(count))
}

impl TableMut<'_> {
    /// Drops the keys that cannot be read because pages are damaged, so that the table can be used
    /// without them. Returns the lost keys in order. Reads all pages of the table.
    ///
    /// # Errors
    /// The medium fails, or the damage is of another kind. The transaction must be rolled back, or
    /// to a savepoint.
    pub fn give_up_lost(&mut self) -> Result<Vec<LostKeys>, StoreError> {
        self.tx.may_go_on()?;
        let (name, kind) = (self.name.clone(), self.record.kind);
        let given_up = self.tx.give_up(self.record);
        let (record, lost) = given_up.map_err(|error| self.spoil(error, None))?;
        if !lost.is_empty() {
            self.record = record;
            self.keep();
            let swept = self.tx.sweep();
            swept.map_err(|error| self.spoil(error, None))?;
        }
        Ok(keys_of(&name, kind, &lost))
    }
}

impl WriteTx {
    /// Removes lost entries from the tree of a table. Returns the table's new record, whose number
    /// of keys is unknown if any were lost, and what was lost.
    fn give_up(&mut self, record: Record) -> Result<(Record, Vec<Lost>), StoreError> {
        let (lost, pages) = lost_of(self.changed_mut(), record.root)?;
        // Empty pages that the tree references must not be allocated for anything else.
        self.claim(&pages);
        let changed = self.changed_mut();
        let mut tree = ByteTree::over(&mut *changed, record.root)?;
        let given_up = lost.iter().try_for_each(|lost| tree.give_up(lost));
        let root = tree.root();
        given_up?;
        let keys = record.keys.filter(|_| lost.is_empty());
        Ok((
            Record {
                root,
                keys,
                ..record
            },
            lost,
        ))
    }

    /// Like the function [`sweep`], over all tables of the transaction. If pages cannot be
    /// determined now, a later transaction does it. An error spoils the transaction, which has
    /// freed other pages before.
    pub(super) fn sweep(&mut self) -> Result<(), StoreError> {
        let swept = self.sweep_tables();
        if let Err(error) = &swept {
            self.spoilt = Some(error.to_string());
        }
        swept
    }

    fn sweep_tables(&mut self) -> Result<(), StoreError> {
        let Some(mut all) = records_if_whole(&self.catalog()?)? else {
            self.has_left = true;
            return Ok(());
        };
        all.retain(|(name, _)| !self.open.contains_key(&**name));
        let open = self.open.values().flatten();
        let roots = all.iter().map(|(_, record)| record).chain(open);
        let mut roots: Vec<Root> = roots.map(|record| record.root).collect();
        roots.push(self.catalog);
        self.has_left = sweep(self.changed_mut(), roots, usize::MAX)?.is_none();
        Ok(())
    }
}

impl Store {
    /// Repairs the tables of a store into which only readable pages were copied: drops what is
    /// lost. Returns the lost keys, and descriptions of other losses. If the catalog is damaged,
    /// tables stay unchanged.
    ///
    /// # Errors
    /// The medium fails, or the damage is of another kind.
    pub(crate) fn mend(&self) -> Result<(Vec<LostKeys>, Vec<String>), StoreError> {
        let mut tx = self.begin_to_write(true)?;
        let catalog = tx.catalog;
        let (lost, pages) = lost_of(tx.changed_mut(), catalog)?;
        if !lost.is_empty() {
            tx.claim(&pages);
            let missing = keys_of("catalog", TableKind::Ordered, &lost);
            tx.commit()?;
            let missing = missing.iter().map(|lost| {
                format!(
                    "the catalog of tables is damaged ({lost}): tables with these names are lost"
                )
            });
            return Ok((Vec::new(), missing.collect()));
        }
        let tables = records(&tx.catalog()?)?;
        let tables: Vec<(String, Record)> =
            tables.into_iter().filter(|t| !t.1.is_dropped).collect();
        // First the pages of all tables are claimed: a change of one table must not take an empty
        // page that another one references.
        let (mut keys, mut all_pages) = (Vec::new(), Vec::new());
        for (name, record) in &tables {
            let found = lost_of(tx.changed_mut(), record.root).map_err(in_table(name, None))?;
            all_pages.extend(found.1);
        }
        tx.claim(&all_pages);
        for (name, record) in tables {
            let found = tx.give_up(record).map_err(in_table(&name, None))?;
            keys.extend(keys_of(&name, record.kind, &found.1));
            if !found.1.is_empty() {
                tx.open.insert(name.as_str().into(), Some(found.0));
            }
        }
        tx.sweep()?;
        tx.commit()?;
        Ok((keys, Vec::new()))
    }
}

impl WriteTx {
    /// Marks referenced pages that are empty as used, with contents that are not a node.
    fn claim(&mut self, pages: &[Lpn]) {
        let changed = self.changed_mut();
        for &at in pages {
            if changed.space.claim(at) {
                changed.set(at, Some([0][..].into()));
            }
        }
    }
}
