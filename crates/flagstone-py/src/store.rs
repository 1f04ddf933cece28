//! Tables for Python: the native half of `flagstone.Store`. Every call releases the GIL while it
//! reads, writes or waits, so that commits of several threads can share a flush.
//!
//! Python has no lifetimes, so a transaction is kept behind a lock, and using it after its end is
//! an error. Pairs of a table are returned in lists, with whether more may follow; each call
//! continues after the last key of the previous one.

use crate::blocks::{self, Live, Place};
use crate::bytes::Bytes;
use crate::errors::{UsageError, store_error};
use crate::owned::{Turn, Turns, Until};
use flagstone::commit::Kind as Protocol;
use flagstone_lab::no_such;
use flagstone_store::tables::{Range, Savepoint, Snapshot};
use flagstone_store::{
    Key as StoreKey, OpenOptions, ReadTx, Store, StoreError, TableKind, TableMut, WriteTx,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::HashSet;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;
type Key = Vec<u8>;

/// A store of tables.
#[pyclass(module = "flagstone._native", name = "Store", frozen)]
pub(crate) struct PyStore {
    store: Until<Store>,
    turns: Arc<Turns>,
    /// The newest transaction of a `with` block; it holds the write lock.
    live: Mutex<Option<Py<Live>>>,
}

impl PyStore {
    /// The newest transaction of a `with` block, which may have ended.
    pub(crate) fn live(&self, py: Python<'_>) -> Option<Py<Live>> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.as_ref().map(|live| live.clone_ref(py))
    }

    pub(crate) fn set_live(&self, live: Option<Py<Live>>) {
        let mut held = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *held, live);
        drop(held);
        // Dropping it may run Python code.
        drop(before);
    }

    /// Fails if the store is closed, or was opened by the parent process before a fork.
    pub(crate) fn must_be_open(&self, py: Python<'_>) -> PyResult<()> {
        self.store.with(py, |_| Ok(()))
    }
}

#[pymethods]
impl PyStore {
    /// Opens a store, or creates it if `create` is set.
    #[new]
    #[pyo3(signature = (
        path, *, create=true, force=false, read_only=false, protocol=None, space=None, cache=None,
        key=None, passphrase=None,
    ))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        create: bool,
        force: bool,
        read_only: bool,
        protocol: Option<&str>,
        space: Option<f64>,
        cache: Option<u64>,
        key: Option<Bytes>,
        passphrase: Option<String>,
    ) -> PyResult<PyStore> {
        let mut options = OpenOptions::default();
        options.create = create;
        options.force = force;
        options.read_only = read_only;
        if let Some(name) = protocol {
            options.protocol = Protocol::by_name(name).ok_or_else(|| {
                let names = Protocol::ALL.iter().map(|kind| kind.info().name);
                UsageError::new_err(no_such("protocol", name, &names.collect::<Vec<_>>()))
            })?;
        }
        if let Some(space) = space {
            options.space = space;
        }
        if let Some(cache) = cache {
            options.cache = cache;
        }
        options.key = key_of(key, passphrase)?;
        let store = py.detach(|| Store::with(&path, &options));
        let store = store.map_err(store_error)?;
        Ok(PyStore {
            store: Until::new(store, "the store is closed"),
            turns: Arc::default(),
            live: Mutex::default(),
        })
    }

    /// Begins a read transaction on a snapshot.
    fn read(&self, py: Python<'_>) -> PyResult<PyReadTx> {
        let tx = self.store.with(py, |store| store.read())?;
        Ok(PyReadTx(Until::new(tx, "the snapshot is closed")))
    }

    /// The write transaction of the `with` block that the caller is in, if any.
    fn inside(this: &pyo3::Bound<'_, PyStore>) -> PyResult<Option<Py<PyWriteTx>>> {
        this.get().must_be_open(this.py())?;
        Ok(match blocks::place(this)? {
            Place::Inside(live) => Some(live.get().writer(this.py())),
            Place::Outside | Place::Beside(_) => None,
        })
    }

    /// Begins a write transaction. Waits until no other one is live.
    pub(crate) fn write(&self, py: Python<'_>) -> PyResult<PyWriteTx> {
        // A clone, so that other threads can read while this one waits.
        let store = self.store.with(py, |store| Ok(store.clone()))?;
        let turn = Turns::take(&self.turns, py)?;
        let tx = py.detach(|| store.write()).map_err(store_error)?;
        let known = HashSet::new();
        let writing = Writing { tx, turn, known };
        Ok(PyWriteTx(Until::new(writing, "the transaction is over")))
    }

    /// Moves the tables to the lowest pages. Returns the number of pages up to the highest one in
    /// use.
    fn compact(&self, py: Python<'_>) -> PyResult<u64> {
        // A clone, so that other threads can read and write meanwhile.
        let store = self.store.with(py, |store| Ok(store.clone()))?;
        py.detach(|| store.compact()).map_err(store_error)
    }

    /// Closes the store. Live transactions keep the file open until they end.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.store.end(py);
        let closed = py.detach(|| store.map_or(Ok(()), Store::close));
        closed.map_err(store_error)
    }
}

/// The key from a key or a passphrase; `None` if neither is given.
fn key_of(key: Option<Bytes>, passphrase: Option<String>) -> PyResult<Option<StoreKey>> {
    match (key, passphrase) {
        (None, None) => Ok(None),
        (None, Some(text)) if text.is_empty() => {
            Err(UsageError::new_err("the passphrase is empty"))
        }
        (None, Some(text)) => Ok(Some(StoreKey::passphrase(text))),
        (Some(bytes), None) => {
            let key = StoreKey::parse(&bytes.0);
            key.map(Some)
                .map_err(|error| UsageError::new_err(error.to_string()))
        }
        (Some(_), Some(_)) => Err(UsageError::new_err(
            "a store has one key: give either the key or the passphrase",
        )),
    }
}

/// Changes the key of a store that no process has open.
#[pyfunction]
#[pyo3(signature = (path, key, passphrase, new_key, new_passphrase))]
pub(crate) fn rekey(
    py: Python<'_>,
    path: PathBuf,
    key: Option<Bytes>,
    passphrase: Option<String>,
    new_key: Option<Bytes>,
    new_passphrase: Option<String>,
) -> PyResult<()> {
    let missing = |which: &str| {
        UsageError::new_err(format!(
            "the {which} key is missing: give the key, its file, or a passphrase"
        ))
    };
    let old = key_of(key, passphrase)?.ok_or_else(|| missing("present"))?;
    let new = key_of(new_key, new_passphrase)?.ok_or_else(|| missing("new"))?;
    py.detach(|| flagstone_store::rekey(&path, &old, &new))
        .map_err(store_error)
}

fn kind_of(kind: Option<&str>) -> PyResult<Option<TableKind>> {
    match kind {
        None => Ok(None),
        Some("ordered") => Ok(Some(TableKind::Ordered)),
        Some("hashed") => Ok(Some(TableKind::Hashed)),
        Some(other) => Err(UsageError::new_err(no_such(
            "kind of table",
            other,
            &["ordered", "hashed"],
        ))),
    }
}

fn kinds(tables: Vec<(String, TableKind)>) -> Vec<(String, String)> {
    let named = |(name, kind): (String, TableKind)| (name, kind.to_string());
    tables.into_iter().map(named).collect()
}

fn value<'py>(py: Python<'py>, bytes: Option<Vec<u8>>) -> Option<Bound_<'py>> {
    bytes.map(|bytes| PyBytes::new(py, &bytes))
}

type Bound_<'py> = pyo3::Bound<'py, PyBytes>;

/// Number of bytes of keys and values after which a read of several pairs ends.
const PART_BYTES: usize = 1 << 20;

/// A range of a table's pairs, read from one end (`reverse`: from the high end), at most `limit` of
/// them.
struct Part {
    low: Bound<Key>,
    high: Bound<Key>,
    reverse: bool,
    limit: usize,
}

impl Part {
    /// The keys from `low` up to but not including `high`. If `after` is given, continues after it
    /// in the direction of reading.
    fn new(
        low: Option<Bytes>,
        high: Option<Bytes>,
        after: Option<Bytes>,
        reverse: bool,
        limit: usize,
    ) -> Part {
        let (mut low, mut high) = (
            low.map_or(Bound::Unbounded, |Bytes(low)| Bound::Included(low)),
            high.map_or(Bound::Unbounded, |Bytes(high)| Bound::Excluded(high)),
        );
        if let Some(Bytes(after)) = after {
            *(if reverse { &mut high } else { &mut low }) = Bound::Excluded(after);
        }
        Part {
            low,
            high,
            reverse,
            limit,
        }
    }

    /// Whether the range covers the whole table. Hashed tables support no other range.
    fn is_all(&self) -> bool {
        matches!(
            (&self.low, &self.high),
            (Bound::Unbounded, Bound::Unbounded)
        )
    }

    /// Whether the bounds exclude every key.
    fn is_empty(&self) -> bool {
        match (&self.low, &self.high) {
            (Bound::Included(low), Bound::Excluded(high)) => low >= high,
            (Bound::Excluded(low), Bound::Excluded(high)) => low >= high,
            _ => false,
        }
    }

    /// The first pairs, and whether there may be more. Of an ordered table, which can be read on
    /// from a key, not many more than [`PART_BYTES`] bytes.
    fn take<V: AsRef<[u8]>>(
        &self,
        kind: TableKind,
        pairs: impl DoubleEndedIterator<Item = Result<(Key, V), StoreError>>,
    ) -> Result<(Pairs, bool), StoreError> {
        let bytes = if kind == TableKind::Ordered {
            PART_BYTES
        } else {
            usize::MAX
        };
        if self.reverse {
            some_of(pairs.rev(), self.limit, bytes)
        } else {
            some_of(pairs, self.limit, bytes)
        }
    }
}

/// The first of `pairs`: at most `limit`, up to the one with which they have `most` bytes. Also
/// returns whether there may be more.
fn some_of<V: AsRef<[u8]>>(
    pairs: impl Iterator<Item = Result<(Key, V), StoreError>>,
    limit: usize,
    most: usize,
) -> Result<(Pairs, bool), StoreError> {
    let (mut taken, mut bytes) = (Vec::new(), 0);
    for pair in pairs.take(limit) {
        let (key, value) = pair?;
        bytes += key.len() + value.as_ref().len();
        taken.push((key, value.as_ref().to_vec()));
        if bytes >= most {
            return Ok((taken, true));
        }
    }
    let goes_on = taken.len() == limit;
    Ok((taken, goes_on))
}

fn as_bytes(py: Python<'_>, pairs: Pairs) -> Vec<(Bound_<'_>, Bound_<'_>)> {
    let bytes = |bytes: Vec<u8>| PyBytes::new(py, &bytes);
    let each = pairs.into_iter();
    each.map(|(key, value)| (bytes(key), bytes(value)))
        .collect()
}

/// A read transaction: a snapshot of the tables.
#[pyclass(module = "flagstone._native", name = "ReadTx", frozen)]
pub(crate) struct PyReadTx(Until<ReadTx>);

impl PyReadTx {
    /// Reads a table. A missing table reads as empty.
    fn table<R: Send + Default>(
        &self,
        py: Python<'_>,
        name: &str,
        work: impl FnOnce(flagstone_store::Table) -> Result<R, StoreError> + Send,
    ) -> PyResult<R> {
        self.0.with(py, |tx| match tx.kind(name)? {
            Some(_) => work(tx.table(name)?),
            None => Ok(R::default()),
        })
    }
}

#[pymethods]
impl PyReadTx {
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        self.0.with(py, |tx| tx.tables()).map(kinds)
    }

    fn kind(&self, py: Python<'_>, table: &str) -> PyResult<Option<String>> {
        let kind = self.0.with(py, |tx| tx.kind(table))?;
        Ok(kind.map(|kind| kind.to_string()))
    }

    fn get<'py>(&self, py: Python<'py>, table: &str, key: Bytes) -> PyResult<Option<Bound_<'py>>> {
        let found = self.table(py, table, |table| Ok(table.get(&key.0)?.map(Vec::from)))?;
        Ok(value(py, found))
    }

    fn get_many<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        keys: Vec<Bytes>,
    ) -> PyResult<Vec<Option<Bound_<'py>>>> {
        let count = keys.len();
        let mut found: Vec<Option<Vec<u8>>> = self.table(py, table, |table| {
            let found = table.get_many(&keys)?.into_iter();
            Ok(found.map(|value| value.map(Vec::from)).collect())
        })?;
        found.resize(count, None);
        Ok(found.into_iter().map(|bytes| value(py, bytes)).collect())
    }

    fn contains(&self, py: Python<'_>, table: &str, key: Bytes) -> PyResult<bool> {
        self.table(py, table, |table| table.contains(&key.0))
    }

    fn len(&self, py: Python<'_>, table: &str) -> PyResult<u64> {
        self.table(py, table, |table| table.len())
    }

    #[pyo3(signature = (table, low, high, after, reverse, limit))]
    #[expect(clippy::too_many_arguments, reason = "all of them say which pairs")]
    fn pairs<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        low: Option<Bytes>,
        high: Option<Bytes>,
        after: Option<Bytes>,
        reverse: bool,
        limit: usize,
    ) -> PyResult<(Vec<(Bound_<'py>, Bound_<'py>)>, bool)> {
        let part = Part::new(low, high, after, reverse, limit);
        let (pairs, goes_on) = self.table(py, table, |table| {
            let bounds = || (part.low.clone(), part.high.clone());
            match (part.is_empty(), part.is_all()) {
                (true, _) => Ok((Vec::new(), false)),
                (false, true) => part.take(table.kind(), table.iter()),
                (false, false) => part.take(table.kind(), table.range(bounds())?),
            }
        })?;
        Ok((as_bytes(py, pairs), goes_on))
    }

    /// All pairs of a table, for several reads.
    fn all(&self, py: Python<'_>, table: &str, reverse: bool) -> PyResult<PyPairs> {
        let pairs = self.0.with(py, |tx| Ok(tx.table(table)?.iter()))?;
        let pairs = Until::new(pairs, "the snapshot is closed");
        Ok(PyPairs { pairs, reverse })
    }

    fn close(&self, py: Python<'_>) {
        let tx = self.0.end(py);
        py.detach(|| drop(tx));
    }
}

/// The pairs of a table in a snapshot that were not read yet. A read of a hashed table cannot begin
/// after a key.
#[pyclass(module = "flagstone._native", name = "Pairs", frozen)]
pub(crate) struct PyPairs {
    pairs: Until<Range<Snapshot>>,
    reverse: bool,
}

#[pymethods]
impl PyPairs {
    /// The next pairs, at most `limit`; none at the end.
    fn next<'py>(
        &self,
        py: Python<'py>,
        limit: usize,
    ) -> PyResult<Vec<(Bound_<'py>, Bound_<'py>)>> {
        let reverse = self.reverse;
        let (pairs, _) = self.pairs.with(py, |pairs| {
            if reverse {
                some_of(pairs.by_ref().rev(), limit, PART_BYTES)
            } else {
                some_of(pairs, limit, PART_BYTES)
            }
        })?;
        Ok(as_bytes(py, pairs))
    }
}

/// A write transaction.
#[pyclass(module = "flagstone._native", name = "WriteTx", frozen)]
pub(crate) struct PyWriteTx(Until<Writing>);

struct Writing {
    tx: WriteTx,
    /// The write lock. Dropped after the transaction.
    turn: Turn,
    /// Tables known to exist. Looking one up in the catalog takes longer than reading a value.
    known: HashSet<String>,
}

impl Writing {
    /// Opens a table if it exists.
    fn look(&mut self, name: &str) -> Result<Option<TableMut<'_>>, StoreError> {
        if !self.known.contains(name) {
            if self.tx.kind(name)?.is_none() {
                return Ok(None);
            }
            self.known.insert(name.into());
        }
        self.tx.table(name).map(Some)
    }
}

impl PyWriteTx {
    /// Reads a table. A missing table reads as empty and is not created.
    fn look<R: Send + Default>(
        &self,
        py: Python<'_>,
        name: &str,
        work: impl FnOnce(TableMut<'_>) -> Result<R, StoreError> + Send,
    ) -> PyResult<R> {
        let looked = |this: &mut Writing| match this.look(name)? {
            Some(table) => work(table),
            None => Ok(R::default()),
        };
        self.0.with(py, looked)
    }
}

#[pymethods]
impl PyWriteTx {
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        self.0.with(py, |this| this.tx.tables()).map(kinds)
    }

    fn kind(&self, py: Python<'_>, table: &str) -> PyResult<Option<String>> {
        let kind = self.0.with(py, |this| this.tx.kind(table))?;
        Ok(kind.map(|kind| kind.to_string()))
    }

    fn get<'py>(&self, py: Python<'py>, table: &str, key: Bytes) -> PyResult<Option<Bound_<'py>>> {
        let found = self.look(py, table, |table| Ok(table.get(&key.0)?.map(Vec::from)))?;
        Ok(value(py, found))
    }

    fn get_many<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        keys: Vec<Bytes>,
    ) -> PyResult<Vec<Option<Bound_<'py>>>> {
        let count = keys.len();
        let mut found: Vec<Option<Vec<u8>>> = self.look(py, table, |table| {
            let found = table.view()?.get_many(&keys)?.into_iter();
            Ok(found.map(|value| value.map(Vec::from)).collect())
        })?;
        found.resize(count, None);
        Ok(found.into_iter().map(|bytes| value(py, bytes)).collect())
    }

    fn contains(&self, py: Python<'_>, table: &str, key: Bytes) -> PyResult<bool> {
        self.look(py, table, |table| table.view()?.contains(&key.0))
    }

    fn len(&self, py: Python<'_>, table: &str) -> PyResult<u64> {
        self.look(py, table, |mut table| table.len())
    }

    #[pyo3(signature = (table, low, high, after, reverse, limit))]
    #[expect(clippy::too_many_arguments, reason = "all of them say which pairs")]
    fn pairs<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        low: Option<Bytes>,
        high: Option<Bytes>,
        after: Option<Bytes>,
        reverse: bool,
        limit: usize,
    ) -> PyResult<(Vec<(Bound_<'py>, Bound_<'py>)>, bool)> {
        let part = Part::new(low, high, after, reverse, limit);
        let (pairs, goes_on) = self.look(py, table, |table| {
            let bounds = || (part.low.clone(), part.high.clone());
            match (part.is_empty(), part.is_all()) {
                (true, _) => Ok((Vec::new(), false)),
                (false, true) => part.take(table.kind(), table.iter()?),
                (false, false) => part.take(table.kind(), table.range(bounds())?),
            }
        })?;
        Ok((as_bytes(py, pairs), goes_on))
    }

    /// Opens a table, or creates it with `kind`.
    #[pyo3(signature = (table, kind=None))]
    fn make(&self, py: Python<'_>, table: &str, kind: Option<&str>) -> PyResult<()> {
        let kind = kind_of(kind)?;
        self.0.with(py, |this| match kind {
            None => this.tx.table(table).map(drop),
            Some(kind) => this.tx.open_table(table, kind).map(drop),
        })
    }

    fn insert(&self, py: Python<'_>, table: &str, key: Bytes, value: Bytes) -> PyResult<bool> {
        self.0
            .with(py, |this| this.tx.table(table)?.insert(&key.0, &value.0))
    }

    fn insert_all(&self, py: Python<'_>, table: &str, pairs: Vec<(Bytes, Bytes)>) -> PyResult<()> {
        self.0
            .with(py, |this| this.tx.table(table)?.insert_all(&pairs))
    }

    fn remove(&self, py: Python<'_>, table: &str, key: Bytes) -> PyResult<bool> {
        self.look(py, table, |mut table| table.remove(&key.0))
    }

    fn add(&self, py: Python<'_>, table: &str, key: Bytes, by: i64) -> PyResult<i64> {
        self.0
            .with(py, |this| this.tx.table(table)?.add(&key.0, by))
    }

    fn clear(&self, py: Python<'_>, table: &str) -> PyResult<()> {
        self.look(py, table, |mut table| table.clear())
    }

    fn drop_table(&self, py: Python<'_>, table: &str) -> PyResult<()> {
        self.0.with(py, |this| {
            this.known.remove(table);
            this.tx.drop_table(table)
        })
    }

    /// Creates a savepoint.
    pub(crate) fn savepoint(&self, py: Python<'_>) -> PyResult<PySavepoint> {
        self.0.with(py, |this| Ok(PySavepoint(this.tx.savepoint())))
    }

    pub(crate) fn rollback_to(&self, py: Python<'_>, savepoint: &PySavepoint) -> PyResult<()> {
        let savepoint = savepoint.0;
        self.0.with(py, move |this| {
            this.known.clear();
            this.tx.rollback_to(savepoint)
        })
    }

    pub(crate) fn release(&self, py: Python<'_>, savepoint: &PySavepoint) -> PyResult<()> {
        let savepoint = savepoint.0;
        self.0.with(py, move |this| this.tx.release(savepoint))
    }

    /// Commits, and returns when the commit is durable. Other transactions can write during the
    /// flush.
    pub(crate) fn commit(&self, py: Python<'_>) -> PyResult<()> {
        match self.0.end(py) {
            Some(this) => py
                .detach(|| {
                    let commit = this.tx.commit_later();
                    drop(this.turn);
                    commit?.wait()
                })
                .map_err(store_error),
            None => Err(self.0.over()),
        }
    }

    /// Rolls back the transaction. Does nothing if it has ended.
    pub(crate) fn rollback(&self, py: Python<'_>) {
        let tx = self.0.end(py);
        py.detach(|| drop(tx));
    }
}

/// A savepoint of a write transaction.
#[pyclass(module = "flagstone._native", name = "Savepoint", frozen)]
pub(crate) struct PySavepoint(Savepoint);
