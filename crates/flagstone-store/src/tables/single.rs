//! Store calls that are transactions of their own, and reading pages ahead of a writer's turn.
//!
//! Write transactions take turns. While one reads from the medium in its turn, all others wait. So
//! these calls read the leaves that they will change before they wait for the turn, through a
//! snapshot: threads then wait for the medium in parallel.
//!
//! These reads only fill the cache, which always has the newest version of a page: a commit that
//! changes the page replaces it there. In its turn the transaction requests each page as usual, and
//! reads it from the medium if it is no longer cached.

use super::store::Store;
use super::table_mut::TableMut;
use crate::error::StoreError;

impl Store {
    /// Reads pages into the cache before a transaction waits for its turn: those with the given
    /// keys of a table. Has no effect on results, and does not block writers.
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
    /// As [`Store::read`]. A missing table is no error.
    pub fn prefetch<K: AsRef<[u8]>>(&self, table: &str, keys: &[K]) -> Result<(), StoreError> {
        match self.read()?.table(table) {
            Ok(read) => read.prefetch(keys),
            Err(StoreError::NoTable(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Prefetches for a transaction that follows at once. Errors are ignored here: the transaction
    /// repeats the read and names the key. Only a snapshot that ended early does not recur.
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

    /// Sets the value of a key in a transaction of its own, which is durable when this returns.
    /// Creates an ordered table if there is none. Returns whether the key had a value.
    ///
    /// # Errors
    /// As [`Store::write`], as [`TableMut::insert`], or as
    /// [`WriteTx::commit`](super::WriteTx::commit).
    pub fn insert(&self, table: &str, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        self.look_ahead(table, &[key]);
        self.alone(table, |table| table.insert(key, value))
    }

    /// Removes a key and its value, in a transaction of its own like [`Store::insert`]. Creates no
    /// table. Returns whether the key existed.
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

    /// Adds to a counter as [`TableMut::add`] does, in a transaction of its own like
    /// [`Store::insert`]. Returns the new count.
    ///
    /// # Errors
    /// As [`TableMut::add`] and [`Store::insert`].
    pub fn add(&self, table: &str, key: &[u8], by: i64) -> Result<i64, StoreError> {
        self.look_ahead(table, &[key]);
        self.alone(table, |table| table.add(key, by))
    }

    /// Updates the value of a key atomically, in a transaction of its own like [`Store::insert`].
    /// `change` gets the current value, if any, and returns the new one, or `None` to remove the
    /// key. No other transaction runs in between. Returns whether the key had a value.
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

    /// Sets the values of several keys of a table, in one transaction like [`Store::insert`].
    ///
    /// # Errors
    /// As [`Store::write`], as [`TableMut::insert_all`], or as
    /// [`WriteTx::commit`](super::WriteTx::commit). All keys get their values, or none.
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
