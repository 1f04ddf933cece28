//! A table in a write transaction: changing and reading it.

use super::catalog::{Record, TableKind};
use super::hashed;
use super::range::{KeyRange, Range};
use super::read::{SIDE_BY_SIDE, Source, Table, Value, in_table, shown, walk};
use super::write::{WriteTx, empty_tree, free_tree};
use crate::error::StoreError;
use flagstone::units::Nanos;
use flagstone_btree::{ByteTree, TreeError};
use std::sync::Arc;

const ZERO: Nanos = Nanos::ZERO;

/// A table in a write transaction.
///
/// ```
/// use flagstone_store::medium::Memory;
/// use flagstone_store::{OpenOptions, Store, StoreError};
///
/// let store = Store::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// let mut tx = store.write()?;
/// let mut stock = tx.table("stock")?;
/// assert!(!stock.insert(b"bolts", b"many")?); // no value before
/// assert!(stock.insert(b"bolts", b"few")?);
/// assert_eq!(stock.add(b"sold", 3)?, 3);
/// assert_eq!(stock.add(b"sold", -1)?, 2);
/// assert!(stock.remove(b"bolts")?);
/// assert_eq!(stock.len()?, 1);
/// tx.commit()?;
/// # Ok::<(), StoreError>(())
/// ```
pub struct TableMut<'a> {
    pub(super) tx: &'a mut WriteTx,
    pub(super) name: Arc<str>,
    pub(super) record: Record,
}

impl TableMut<'_> {
    /// A readable view of the table as the transaction sees it.
    ///
    /// # Errors
    /// The record of the table is damaged.
    pub fn view(&self) -> Result<Table<impl Source + '_>, StoreError> {
        Table::new(&self.name, self.record, self.tx.changed())
    }

    /// The name of the table.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of the table.
    pub fn kind(&self) -> TableKind {
        self.record.kind
    }

    /// The value of a key, if it has one.
    ///
    /// # Errors
    /// A page of the table is damaged, or the medium fails.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        self.view()?.get(key)
    }

    /// All pairs, as [`Table::iter`].
    ///
    /// # Errors
    /// The record of the table is damaged.
    pub fn iter(&self) -> Result<Range<impl Source + '_>, StoreError> {
        Ok(self.view()?.iter())
    }

    /// The pairs with keys in a range, as [`Table::range`].
    ///
    /// # Errors
    /// The table is hashed.
    pub fn range(&self, range: impl KeyRange) -> Result<Range<impl Source + '_>, StoreError> {
        self.view()?.range(range)
    }

    /// The number of keys. If it is not known because the store was not closed, this counts the
    /// keys, and the transaction caches the number.
    ///
    /// # Errors
    /// A page of the table is damaged, or the medium fails.
    #[allow(
        clippy::len_without_is_empty,
        reason = "it is there; clippy 1.90 wants it to take `&mut self` as well"
    )]
    pub fn len(&mut self) -> Result<u64, StoreError> {
        let keys = self.view()?.len()?;
        if self.record.keys.is_none() {
            self.record.keys = Some(keys);
            self.keep();
        }
        Ok(keys)
    }

    /// Whether there are no keys.
    ///
    /// # Errors
    /// As [`TableMut::get`].
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        self.view()?.is_empty()
    }

    /// Sets the value of a key. Returns whether it had one.
    ///
    /// # Errors
    /// The key or the value is too long: nothing has changed. Or a page is damaged, or the medium
    /// fails: the transaction must be rolled back, or to a savepoint.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        self.change(key, Some(value))
    }

    /// Removes a key and its value. Returns whether the key existed.
    ///
    /// # Errors
    /// As [`TableMut::insert`].
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        let was = self.change(key, None)?;
        if was {
            self.tx.has_removed();
        }
        Ok(was)
    }

    /// Sets the values of several keys, in key order, which is the fastest order. Their pages are
    /// read in parallel.
    ///
    /// # Errors
    /// As [`TableMut::insert`]. The error names the key; earlier keys have their values.
    pub fn insert_all<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        pairs: &[(K, V)],
    ) -> Result<(), StoreError> {
        let mut order: Vec<usize> = (0..pairs.len()).collect();
        order.sort_by_key(|&i| pairs[i].0.as_ref());
        for some in order.chunks(SIDE_BY_SIDE) {
            let keys: Vec<&[u8]> = some.iter().map(|&i| pairs[i].0.as_ref()).collect();
            if keys.len() > 1 {
                // Errors are ignored here: the same error recurs below, where the key is known.
                let _ = self.view()?.prefetch(&keys);
            }
            for &i in some {
                self.insert(pairs[i].0.as_ref(), pairs[i].1.as_ref())?;
            }
        }
        Ok(())
    }

    /// Adds to a counter and returns the new count. A counter is an 8-byte little-endian number; a
    /// key without a value counts from 0.
    ///
    /// # Errors
    /// The value does not have 8 bytes, the sum overflows, or as [`TableMut::insert`].
    pub fn add(&mut self, key: &[u8], by: i64) -> Result<i64, StoreError> {
        let wrong = |why: String| in_table(&self.name, Some(key))(StoreError::Options(why));
        let before = match self.get(key)? {
            None => 0,
            Some(value) => match value.first_chunk::<8>().filter(|_| value.len() == 8) {
                Some(bytes) => i64::from_le_bytes(*bytes),
                None => {
                    let bytes = value.len();
                    return Err(wrong(format!(
                        "a counter has 8 bytes, and this value {bytes}"
                    )));
                }
            },
        };
        let Some(after) = before.checked_add(by) else {
            return Err(wrong(format!(
                "the counter is {before}: {by} more does not fit"
            )));
        };
        self.insert(key, &after.to_le_bytes())?;
        Ok(after)
    }

    /// Removes all keys, including unreadable ones.
    ///
    /// # Errors
    /// The medium fails: the transaction must be rolled back, or to a savepoint.
    pub fn clear(&mut self) -> Result<(), StoreError> {
        self.tx.may_go_on()?;
        let root = self.record.root;
        let changed = self.tx.changed_mut();
        let cleared = free_tree(changed, root)
            .and_then(|has_lost| empty_tree(changed).map(|root| (root, has_lost)));
        let (root, has_lost) = cleared.map_err(|error| self.spoil(error, None))?;
        self.record.root = root;
        self.record.keys = Some(0);
        self.keep();
        if has_lost {
            let swept = self.tx.sweep();
            swept.map_err(|error| self.spoil(error, None))?;
        }
        Ok(())
    }

    /// Sets the value of a key, or removes the key if `value` is `None`, and keeps count of the
    /// keys if their number is known. Returns whether the key had a value.
    fn change(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<bool, StoreError> {
        self.tx.may_go_on()?;
        let was = match self.record.kind {
            TableKind::Ordered => self.change_tree(key, key, value),
            TableKind::Hashed => self.change_hashed(key, value),
        }?;
        if let Some(keys) = &mut self.record.keys
            && was != value.is_some()
        {
            *keys = if was {
                keys.saturating_sub(1)
            } else {
                *keys + 1
            };
            self.keep();
        }
        Ok(was)
    }

    /// Implements [`TableMut::change`] for a hashed table: replaces the list of records of the
    /// key's hash, and removes it with its last record.
    fn change_hashed(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<bool, StoreError> {
        let hash = hashed::hash(key);
        let walk = walk(self.tx.changed(), self.record.root)?;
        let found = walk.get(&hash);
        let found = found.map_err(in_table(&self.name, Some(key)))?;
        let before = found.as_deref().unwrap_or_default();
        let was = hashed::find(before, key).is_some();
        if !was && value.is_none() {
            return Ok(false);
        }
        let after = hashed::change(before, key, value);
        drop(found);
        let after = Some(&after[..]).filter(|after| !after.is_empty());
        self.change_tree(key, &hash, after)?;
        Ok(was)
    }

    /// Sets or removes the tree's entry `place`: the key, or its hash. Errors name `key`. Except if
    /// the entry is too long or no page is free, an error spoils the transaction.
    fn change_tree(
        &mut self,
        key: &[u8],
        place: &[u8],
        value: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        let changed = self.tx.changed.as_mut().expect("the transaction lives");
        let tree = ByteTree::over(&mut *changed, self.record.root);
        let mut tree = tree.map_err(in_table(&self.name, Some(key)))?;
        let answer = tree.change(ZERO, place, value);
        let (root, leaves_pages) = (tree.root(), tree.counts.left_values > 0);
        // The next write transaction frees pages that no table references.
        self.tx.has_left |= leaves_pages;
        match answer {
            Ok((was, _)) => {
                if root != self.record.root {
                    self.record.root = root;
                    self.keep();
                }
                Ok(was)
            }
            Err(StoreError::Tree(error @ (TreeError::TooLong { .. } | TreeError::Full { .. }))) => {
                Err(in_table(&self.name, Some(key))(StoreError::Tree(error)))
            }
            Err(error) => Err(self.spoil(error, Some(key))),
        }
    }

    /// Hands the record to the transaction.
    pub(super) fn keep(&mut self) {
        self.tx.open.insert(self.name.clone(), Some(self.record));
    }

    /// Handles an operation that failed half-way.
    pub(super) fn spoil(&mut self, error: StoreError, key: Option<&[u8]>) -> StoreError {
        let key_text = key.map_or(String::new(), |key| format!(", key `{}`", shown(key)));
        self.tx.spoilt = Some(format!("table `{}`{key_text}: {error}", self.name));
        let error = if error.is_damage() && key.is_some() {
            StoreError::Damaged(format!(
                "{error}; to go on without what is lost, use `TableMut::give_up_lost`, or clear or \
                 drop the table"
            ))
        } else {
            error
        };
        in_table(&self.name, key)(error)
    }
}
