//! Reads tables: in a snapshot, which never changes and does not wait, or in a write transaction,
//! which sees its own changes.

use super::catalog::{HEAD, Record, TableKind, parse_head};
use super::changed::whole;
use super::hashed;
use super::range::{KeyRange, Range};
use crate::error::StoreError;
use crate::pages::PageStore;
use crate::shared::{PageBytes, PageSnapshot};
use flagstone::units::Lpn;
use flagstone_btree::{FoundValue, Images, Root, Walk};
use std::fmt;
use std::ops::{Bound, Deref};
use std::sync::{Arc, OnceLock, RwLock};

/// The pages of a snapshot. A clone is the same snapshot.
///
/// Example: [`Source`].
#[derive(Clone)]
pub struct Snapshot(PageSnapshot);

impl Images for Snapshot {
    type Page = PageBytes;
    type Error = StoreError;

    fn page(&self, at: Lpn) -> Result<PageBytes, StoreError> {
        whole(at, self.0.read(at)?)
    }

    fn inner(&self, at: Lpn) -> Result<PageBytes, StoreError> {
        whole(at, self.0.read_often(at)?)
    }

    fn pages(&self, pages: &[Lpn]) -> Result<Vec<PageBytes>, StoreError> {
        let read = self.0.read_many(pages)?;
        let each = pages.iter().zip(read);
        each.map(|(&at, page)| whole(at, page)).collect()
    }
}

/// A source of table pages: a [`Snapshot`], or the pages of a write transaction.
///
/// ```
/// use flagstone_store::medium::Memory;
/// use flagstone_store::tables::{Snapshot, Source};
/// use flagstone_store::{OpenOptions, Store, StoreError, Table};
///
/// /// The length of all values of a table, as a snapshot or a transaction sees it.
/// fn bytes(table: &Table<impl Source>) -> Result<usize, StoreError> {
///     table.iter().map(|pair| Ok(pair?.1.len())).sum()
/// }
///
/// let store = Store::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// store.insert("users", b"ada", b"London")?;
/// let mut tx = store.write()?;
/// let mut users = tx.table("users")?;
/// users.insert(b"emmy", b"Erlangen")?;
/// assert_eq!(bytes(&users.view()?)?, 14);
/// let committed: Table<Snapshot> = store.read()?.table("users")?;
/// assert_eq!(bytes(&committed)?, 6);
/// # Ok::<(), StoreError>(())
/// ```
pub trait Source: Images<Page = PageBytes, Error = StoreError> + Clone {}

impl<T: Images<Page = PageBytes, Error = StoreError> + Clone> Source for T {}

/// A value. It refers to its page in memory and is not copied.
///
/// ```
/// use flagstone_store::medium::Memory;
/// use flagstone_store::tables::Value;
/// use flagstone_store::{OpenOptions, Store, StoreError};
///
/// let store = Store::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// store.insert("users", b"ada", b"London")?;
/// let value: Value = store.read()?.table("users")?.get(b"ada")?.expect("it was inserted");
/// assert_eq!((value.len(), &value[..3]), (6, &b"Lon"[..]));
/// assert_eq!(Vec::from(value), b"London");
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Clone)]
pub struct Value {
    held: FoundValue<PageBytes>,
    place: std::ops::Range<usize>,
}

impl Value {
    pub(super) fn of(held: FoundValue<PageBytes>) -> Value {
        let place = 0..held.len();
        Value { held, place }
    }

    pub(super) fn part(held: FoundValue<PageBytes>, place: std::ops::Range<usize>) -> Value {
        Value { held, place }
    }
}

impl fmt::Debug for Value {
    /// Shows the bytes of the value only, not of its page.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Value")
            .field(&self.escape_ascii().to_string())
            .finish()
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.held[self.place.clone()]
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Vec<u8> {
        match value.held {
            FoundValue::Whole(bytes) if value.place == (0..bytes.len()) => bytes,
            _ => value.to_vec(),
        }
    }
}

/// A readable table: of a snapshot, unless type parameter `S` says otherwise.
///
/// ```
/// use flagstone_store::medium::Memory;
/// use flagstone_store::{OpenOptions, Store, StoreError};
///
/// let store = Store::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// store.insert_all("files", &[("a/1", "x"), ("a/2", "y"), ("b/1", "z")])?;
/// let files = store.read()?.table("files")?;
/// assert_eq!((files.name(), files.len()?), ("files", 3));
/// assert!(files.get(b"a/2")?.is_some_and(|value| value == "y"));
/// assert_eq!(files.prefix(b"a/")?.count(), 2);
/// assert_eq!(files.last()?.map(|(key, _)| key), Some(b"b/1".to_vec()));
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Clone)]
pub struct Table<S = Snapshot> {
    name: Arc<str>,
    kind: TableKind,
    pub(super) keys: Option<u64>,
    pub(super) walk: Walk<S>,
}

/// Number of keys whose pages are read in parallel before the keys are set: the pages must stay in
/// the cache until then.
pub(super) const SIDE_BY_SIDE: usize = 256;

/// The tree of a table or catalog.
pub(super) fn walk<S: Source>(source: S, root: Root) -> Result<Walk<S>, StoreError> {
    Ok(Walk::new(source, PageStore::PAGE_BYTES, root)?)
}

impl<S: Source> Table<S> {
    pub(super) fn new(name: &Arc<str>, record: Record, source: S) -> Result<Self, StoreError> {
        let walk = walk(source, record.root).map_err(in_table(name, None))?;
        Ok(Table {
            name: name.clone(),
            kind: record.kind,
            keys: record.keys,
            walk,
        })
    }

    /// The name of the table.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of the table.
    pub fn kind(&self) -> TableKind {
        self.kind
    }

    /// The value of a key, if it has one.
    ///
    /// # Errors
    /// A page of the table is damaged, or the medium fails.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        let found = match self.kind {
            TableKind::Ordered => self.walk.get(key).map(|found| found.map(Value::of)),
            TableKind::Hashed => self.walk.get(&hashed::hash(key)).map(|found| {
                let records = found?;
                let place = hashed::find(&records, key)?;
                Some(Value::part(records, place.value))
            }),
        };
        found.map_err(in_table(&self.name, Some(key)))
    }

    /// Whether a key has a value.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn contains(&self, key: &[u8]) -> Result<bool, StoreError> {
        Ok(self.get(key)?.is_some())
    }

    /// The values of several keys, in the order of `keys`. Pages that are not in memory are read in
    /// parallel.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>, StoreError> {
        let at = in_table(&self.name, None);
        if self.kind == TableKind::Ordered {
            let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
            let found = self.walk.get_many(&keys).map_err(at)?;
            return Ok(found
                .into_iter()
                .map(|found| found.map(Value::of))
                .collect());
        }
        let hashes: Vec<[u8; 8]> = keys.iter().map(|key| hashed::hash(key.as_ref())).collect();
        let refs: Vec<&[u8]> = hashes.iter().map(|hash| &hash[..]).collect();
        let found = self.walk.get_many(&refs).map_err(at)?;
        let value = |(records, key): (Option<FoundValue<PageBytes>>, &K)| {
            let records = records?;
            let place = hashed::find(&records, key.as_ref())?;
            Some(Value::part(records, place.value))
        };
        Ok(found.into_iter().zip(keys).map(value).collect())
    }

    /// Reads the leaves of the first of `keys` into the cache.
    pub(super) fn prefetch<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<(), StoreError> {
        let keys = keys.iter().take(SIDE_BY_SIDE).map(AsRef::as_ref);
        let hashes: Vec<[u8; 8]>;
        let keys: Vec<&[u8]> = match self.kind {
            TableKind::Ordered => keys.collect(),
            TableKind::Hashed => {
                hashes = keys.map(hashed::hash).collect();
                hashes.iter().map(|hash| &hash[..]).collect()
            }
        };
        let fetched = self.walk.prefetch(&keys);
        fetched.map_err(in_table(&self.name, None))
    }

    /// The number of keys. It is stored at a close. If keys were inserted or removed since then,
    /// all nodes of the table are read to count them.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn len(&self) -> Result<u64, StoreError> {
        if let Some(keys) = self.keys {
            return Ok(keys);
        }
        let at = in_table(&self.name, None);
        if self.kind == TableKind::Ordered {
            return self.walk.count().map_err(at);
        }
        let mut keys = 0;
        for pair in self.iter() {
            pair?;
            keys += 1;
        }
        Ok(keys)
    }

    /// Whether there are no keys.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.iter().next().transpose()?.is_none())
    }

    /// All pairs: in ascending key order, or in any order if the table is hashed. Double-ended, so
    /// `rev` reverses the order.
    pub fn iter(&self) -> Range<S> {
        Range::new(self, Bound::Unbounded, Bound::Unbounded)
    }

    /// The pairs with keys in a range, in ascending order.
    ///
    /// # Errors
    /// The table is hashed.
    pub fn range(&self, range: impl KeyRange) -> Result<Range<S>, StoreError> {
        self.must_be_ordered()?;
        let (low, high) = range.ends();
        Ok(Range::new(self, low, high))
    }

    /// The pairs whose keys begin with `prefix`, in ascending order.
    ///
    /// # Errors
    /// The table is hashed.
    pub fn prefix(&self, prefix: &[u8]) -> Result<Range<S>, StoreError> {
        self.must_be_ordered()?;
        // The first key after the prefix: increments the last byte that is not 255 and cuts off
        // those after it.
        let kept = prefix.iter().rposition(|&byte| byte < u8::MAX);
        let end = match kept {
            None => Bound::Unbounded,
            Some(last) => {
                let mut end = prefix[..=last].to_vec();
                end[last] += 1;
                Bound::Excluded(end)
            }
        };
        Ok(Range::new(self, Bound::Included(prefix.to_vec()), end))
    }

    /// The first pair.
    ///
    /// # Errors
    /// As [`Table::range`].
    pub fn first(&self) -> Result<Option<(Vec<u8>, Value)>, StoreError> {
        self.must_be_ordered()?;
        self.iter().next().transpose()
    }

    /// The last pair.
    ///
    /// # Errors
    /// As [`Table::range`].
    pub fn last(&self) -> Result<Option<(Vec<u8>, Value)>, StoreError> {
        self.must_be_ordered()?;
        self.iter().next_back().transpose()
    }

    fn must_be_ordered(&self) -> Result<(), StoreError> {
        match self.kind {
            TableKind::Ordered => Ok(()),
            TableKind::Hashed => Err(StoreError::NoTable(format!(
                "table `{}` is hashed and keeps no order among keys: iterate over all of it, or \
                 make an ordered table for ranges",
                self.name
            ))),
        }
    }
}

/// A key as shown in errors: non-printable bytes are escaped, and long keys are truncated.
pub(super) fn shown(key: &[u8]) -> String {
    const MOST: usize = 64;
    let text = key[..key.len().min(MOST)].escape_ascii().to_string();
    if key.len() > MOST {
        format!("{text}… ({} bytes)", key.len())
    } else {
        text
    }
}

/// Adds table and key to an error.
pub(super) fn in_table(name: &str, key: Option<&[u8]>) -> impl FnOnce(StoreError) -> StoreError {
    move |error| StoreError::Table {
        table: name.to_string(),
        key: key.map(shown),
        error: Box::new(error),
    }
}

/// The root of the catalog. `None` if the store is empty.
fn root(head: Option<PageBytes>) -> Result<Option<Root>, StoreError> {
    let Some(head) = head else { return Ok(None) };
    match parse_head(&head)? {
        Some(head) => Ok(Some(head.catalog)),
        None => Err(StoreError::Damaged(format!(
            "page {HEAD} is not the first of a store that holds tables any more"
        ))),
    }
}

/// What readers of a snapshot have found, cached for later readers.
#[derive(Default)]
struct Noted {
    /// The root of the catalog; `None` if the store is empty.
    catalog: OnceLock<Option<Root>>,
    /// Records of tables that were opened.
    tables: RwLock<Vec<(Arc<str>, Record)>>,
}

/// Maximum number of records cached per snapshot.
const NOTED: usize = 64;

impl Noted {
    fn table(&self, name: &str) -> Option<(Arc<str>, Record)> {
        let tables = self.tables.read().expect("no thread panics here");
        tables.iter().find(|(known, _)| **known == *name).cloned()
    }

    fn note(&self, name: &Arc<str>, record: Record) {
        let mut tables = self.tables.write().expect("no thread panics here");
        if tables.len() < NOTED && tables.iter().all(|(known, _)| known != name) {
            tables.push((name.clone(), record));
        }
    }
}

/// A read transaction: the tables as they were when it began. It never waits for writers and never
/// blocks them.
///
/// ```
/// use flagstone_store::medium::Memory;
/// use flagstone_store::{OpenOptions, Store, StoreError};
///
/// let store = Store::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// store.insert("users", b"ada", b"London")?;
/// let before = store.read()?;
/// store.remove("users", b"ada")?;
///
/// // It has the state at its begin.
/// assert!(before.table("users")?.contains(b"ada")?);
/// assert!(!store.read()?.table("users")?.contains(b"ada")?);
/// assert!(before.table("orders").is_err());
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Clone)]
pub struct ReadTx {
    pub(super) catalog: Option<Walk<Snapshot>>,
}

impl ReadTx {
    pub(super) fn new(snapshot: PageSnapshot) -> Result<ReadTx, StoreError> {
        let noted: &Noted = snapshot.noted();
        let root = match noted.catalog.get() {
            Some(&root) => root,
            None => *noted.catalog.get_or_init({
                let root = root(snapshot.read(HEAD)?)?;
                move || root
            }),
        };
        let catalog = root.map(|root| walk(Snapshot(snapshot), root));
        Ok(ReadTx {
            catalog: catalog.transpose()?,
        })
    }

    /// Opens a table.
    ///
    /// # Errors
    /// No table has this name, or a page is damaged.
    pub fn table(&self, name: &str) -> Result<Table, StoreError> {
        match (self.record(name)?, &self.catalog) {
            (Some((name, record)), Some(catalog)) => {
                Table::new(&name, record, catalog.images().clone())
            }
            _ => Err(no_table(name, &self.tables()?)),
        }
    }

    /// The kind of a table, if there is one of this name.
    ///
    /// # Errors
    /// A page is damaged, or the medium fails.
    pub fn kind(&self, name: &str) -> Result<Option<TableKind>, StoreError> {
        Ok(self.record(name)?.map(|(_, record)| record.kind))
    }

    /// The catalog record of a table that is not being dropped.
    fn record(&self, name: &str) -> Result<Option<(Arc<str>, Record)>, StoreError> {
        let Some(catalog) = &self.catalog else {
            return Ok(None);
        };
        let noted: &Noted = catalog.images().0.noted();
        if let Some(known) = noted.table(name) {
            return Ok(Some(known));
        }
        let found = catalog.get(name.as_bytes()).map_err(in_table(name, None))?;
        let record = found
            .map(|record| Record::parse(name, &record))
            .transpose()?;
        Ok(record.filter(|record| !record.is_dropped).map(|record| {
            let name = name.into();
            noted.note(&name, record);
            (name, record)
        }))
    }

    /// The names of all tables, in order, with their kinds.
    ///
    /// # Errors
    /// A page is damaged, or the medium fails.
    pub fn tables(&self) -> Result<Vec<(String, TableKind)>, StoreError> {
        match &self.catalog {
            Some(catalog) => {
                let all = records(catalog)?.into_iter();
                let all = all.filter(|(_, record)| !record.is_dropped);
                Ok(all.map(|(name, record)| (name, record.kind)).collect())
            }
            None => Ok(Vec::new()),
        }
    }
}

/// All records of a catalog, including tables that are being dropped.
pub(super) fn records<S: Source>(catalog: &Walk<S>) -> Result<Vec<(String, Record)>, StoreError> {
    let (mut cursor, mut name, mut all) = (catalog.seek(b"")?, Vec::new(), Vec::new());
    while let Some(record) = catalog.next(&mut cursor, &mut name)? {
        let name = String::from_utf8_lossy(&name).into_owned();
        let record = Record::parse(&name, &record)?;
        all.push((name, record));
    }
    Ok(all)
}

/// Like [`records`]; `None` if the catalog is damaged.
pub(super) fn records_if_whole<S: Source>(
    catalog: &Walk<S>,
) -> Result<Option<Vec<(String, Record)>>, StoreError> {
    match records(catalog) {
        Ok(all) => Ok(Some(all)),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The error for a missing table.
pub(super) fn no_table(name: &str, tables: &[(String, TableKind)]) -> StoreError {
    let names: Vec<String> = tables.iter().map(|(name, _)| format!("`{name}`")).collect();
    let there = match &names[..] {
        [] => "the store has none yet".to_string(),
        few if few.len() <= 8 => format!("there are {}", few.join(", ")),
        many => format!(
            "there are {} others, as {}",
            many.len(),
            many[..8].join(", ")
        ),
    };
    StoreError::NoTable(format!(
        "there is no table `{name}`: {there}; a write transaction makes a table when it opens it"
    ))
}
