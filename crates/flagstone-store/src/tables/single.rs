//! Calls of a store that are transactions of their own, and pages that are read before a turn.
//!
//! Transactions that write take turns. What one of them reads from the medium in its turn, all
//! others wait for. So these calls read the leaves that they are about to change before they wait
//! for the turn, by a snapshot: threads then wait for the medium side by side.
//!
//! What was read so only lies in the cache. That has the newest version of a page: a commit that
//! changes the page replaces it there. In the turn each page is asked for as ever, and is read from
//! the medium if it is not there.

use super::store::Store;
use super::table_mut::TableMut;
use crate::error::StoreError;

impl Store {
    /// Reads the pages that a transaction is going to change before it waits for its turn: those on
    /// which some keys of a table lie. It changes no answer, and no writer waits for it.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let store = flagstone_store::Store::open(folder.path().join("bank.flag"))?;
    /// store.prefetch("accounts", &["ada", "emmy"])?;
    /// let mut tx = store.write()?;
    /// let mut accounts = tx.table("accounts")?;
    /// accounts.add(b"ada", -10)?;
    /// accounts.add(b"emmy", 10)?;
    /// tx.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::read`]. That there is no such table yet is none.
    pub fn prefetch<K: AsRef<[u8]>>(&self, table: &str, keys: &[K]) -> Result<(), StoreError> {
        match self.read()?.table(table) {
            Ok(read) => read.prefetch(keys),
            Err(StoreError::NoTable(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Prefetches for a transaction that follows at once. What fails here fails there again, which
    /// says at which key; but for a snapshot that ended before its time, which is no matter there.
    fn look_ahead<K: AsRef<[u8]>>(&self, table: &str, keys: &[K]) {
        let _ = self.prefetch(table, keys);
    }

    /// Changes a table in a transaction of its own.
    fn alone<T>(
        &self,
        table: &str,
        change: impl FnOnce(&mut TableMut<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut tx = self.write()?;
        let done = change(&mut tx.table(table)?)?;
        tx.commit()?;
        Ok(done)
    }

    /// Gives a key of a table a value, in a transaction of its own, which is durable when this
    /// returns. An ordered table is made if there is none. Returns whether the key had a value.
    ///
    /// # Errors
    /// As [`Store::write`], as [`TableMut::insert`], or as
    /// [`WriteTx::commit`](super::WriteTx::commit).
    pub fn insert(&self, table: &str, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        self.look_ahead(table, &[key]);
        self.alone(table, |table| table.insert(key, value))
    }

    /// Takes a key of a table and its value away, as [`Store::insert`] gives it one, and makes no
    /// table. Returns whether the key was there.
    ///
    /// # Errors
    /// As [`Store::insert`].
    pub fn remove(&self, table: &str, key: &[u8]) -> Result<bool, StoreError> {
        self.look_ahead(table, &[key]);
        let mut tx = self.write()?;
        if tx.record(table)?.is_none() {
            return Ok(false);
        }
        let was = tx.table(table)?.remove(key)?;
        tx.commit()?;
        Ok(was)
    }

    /// Adds to a counter as [`TableMut::add`] does, in a transaction of its own as
    /// [`Store::insert`], and returns what it is then.
    ///
    /// # Errors
    /// As [`TableMut::add`] and [`Store::insert`].
    pub fn add(&self, table: &str, key: &[u8], by: i64) -> Result<i64, StoreError> {
        self.look_ahead(table, &[key]);
        self.alone(table, |table| table.add(key, by))
    }

    /// Replaces the value of a key by what follows from it, in a transaction of its own as
    /// [`Store::insert`]: `change` gets the value, if the key has one, and gives the next one, or
    /// nothing if the key is to have none. No other transaction comes between. Returns whether the
    /// key had a value.
    ///
    /// # Errors
    /// As [`Store::insert`].
    pub fn update(
        &self,
        table: &str,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<bool, StoreError> {
        self.look_ahead(table, &[key]);
        self.alone(table, |table| {
            let before = table.get(key)?;
            match change(before.as_deref()) {
                Some(after) => table.insert(key, &after),
                None => table.remove(key),
            }
        })
    }

    /// Gives several keys of a table their values, all in one transaction as [`Store::insert`].
    ///
    /// # Errors
    /// As [`Store::write`], as [`TableMut::insert_all`], or as
    /// [`WriteTx::commit`](super::WriteTx::commit): all keys have their values, or none.
    pub fn insert_all<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        table: &str,
        pairs: &[(K, V)],
    ) -> Result<(), StoreError> {
        let keys: Vec<&[u8]> = pairs.iter().map(|pair| pair.0.as_ref()).collect();
        self.look_ahead(table, &keys);
        self.alone(table, |table| table.insert_all(pairs))
    }
}
