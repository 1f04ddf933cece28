//! Write transactions: one at a time. Each sees all earlier ones, and is atomic.

use super::Mistake;
use super::catalog::{HEAD, Record, TableKind, head};
use super::changed::Changed;
use super::hashed;
use super::read::{SIDE_BY_SIDE, in_table, no_table, records, records_if_whole};
use super::store::{Held, Inner};
use super::table_mut::TableMut;
use crate::error::StoreError;
use crate::pages::PageStore;
use crate::shared::{Changes, Ticket};
use flagstone::units::{Lpn, Nanos};
use flagstone_btree::{ByteTree, Felled, Images, Nodes, Root, Walk, write_empty};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

const ZERO: Nanos = Nanos::ZERO;

/// Maximum length of a table name, in bytes.
pub(super) const NAME_MAX: usize = 255;

/// Savepoints made by this process, in all transactions of all stores. Each has its own number, so
/// that a savepoint of another transaction is detected.
static SAVEPOINTS: AtomicU64 = AtomicU64::new(0);

/// Maximum number of pages of a table that is dropped within its own transaction.
const AT_ONCE: usize = 32;

/// Tables that a transaction has opened. `None`, or a record marked as dropped, for a table that it
/// dropped.
type Open = BTreeMap<Arc<str>, Option<Record>>;

/// A write transaction. It sees its own changes, and those of all earlier transactions. Dropping it
/// rolls it back.
///
/// ```
/// use flagstone_store::medium::Memory;
/// use flagstone_store::{OpenOptions, Store, StoreError};
///
/// let store = Store::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// let mut tx = store.write()?;
/// tx.table("users")?.insert(b"ada", b"London")?;
/// let savepoint = tx.savepoint();
/// tx.drop_table("users")?;
/// tx.rollback_to(savepoint)?;
/// tx.commit()?;
///
/// let mut tx = store.write()?;
/// tx.table("users")?.insert(b"emmy", b"Erlangen")?;
/// tx.rollback()?;
/// assert_eq!(store.read()?.table("users")?.len()?, 1);
/// # Ok::<(), StoreError>(())
/// ```
pub struct WriteTx {
    inner: Arc<Inner>,
    /// Present until the transaction ends.
    pub(super) changed: Option<Changed>,
    writer: Option<Held>,
    pub(super) catalog: Root,
    /// Number of tables being dropped, once the catalog is written.
    dropped: u32,
    /// Whether pages may be left that no table references.
    pub(super) has_left: bool,
    pub(super) open: Open,
    savepoints: Vec<(u64, Before)>,
    pub(super) spoilt: Option<String>,
    /// Key counts after the commit.
    counts: Vec<(Arc<str>, Option<u64>)>,
}

/// A state of a write transaction to which it can be rolled back.
///
/// Example: [`WriteTx`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint(u64);

/// What a savepoint restores, beside the pages.
struct Before {
    open: Open,
    catalog: Root,
    has_left: bool,
}

/// A commit that may not be durable yet. If it is dropped, it becomes durable with a later commit
/// that is waited for, or when the store is closed. If it is lost,
/// [`Store::close`](super::Store::close) reports that.
///
/// ```
/// # use flagstone_store::{OpenOptions, Store, StoreError, medium::Memory};
/// # let store = Store::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// let mut tx = store.write()?;
/// tx.table("log")?.insert(b"1", b"began")?;
/// let first = tx.commit_later()?;
/// // The next transaction begins at once, and sees the first one.
/// let mut tx = store.write()?;
/// assert!(tx.table("log")?.get(b"1")?.is_some());
/// tx.commit_later()?.wait()?; // both are durable
/// first.wait()?;
/// # Ok::<(), StoreError>(())
/// ```
#[must_use = "a commit is durable when it was waited for"]
pub struct Commit {
    ticket: Ticket,
    /// The store, if pages must be freed after the commit. A commit keeps no store open.
    drops: Option<Weak<Inner>>,
}

impl Commit {
    /// Waits until the commit is durable. Earlier commits are then durable, too. Frees the pages of
    /// tables that it dropped, unless another transaction writes; the next one then does.
    ///
    /// # Errors
    /// The medium fails: whether the transaction has committed is unknown until the store is
    /// reopened.
    pub fn wait(self) -> Result<(), StoreError> {
        self.ticket.wait()?;
        if let Some(inner) = self.drops.and_then(|inner| inner.upgrade()) {
            // The table is dropped, even if freeing its pages fails now.
            let _ = inner.finish_drops_if_free();
        }
        Ok(())
    }
}

impl WriteTx {
    pub(super) fn new(inner: Arc<Inner>, changed: Changed, writer: Held) -> WriteTx {
        WriteTx {
            inner,
            catalog: writer.catalog,
            dropped: writer.dropped,
            has_left: writer.has_left,
            changed: Some(changed),
            writer: Some(writer),
            open: Open::new(),
            savepoints: Vec::new(),
            spoilt: None,
            counts: Vec::new(),
        }
    }

    pub(super) fn changed(&self) -> &Changed {
        self.changed.as_ref().expect("the transaction lives")
    }

    pub(super) fn changed_mut(&mut self) -> &mut Changed {
        self.changed.as_mut().expect("the transaction lives")
    }

    pub(super) fn is_mistaken(&self, mistake: Mistake) -> bool {
        self.inner.mistaken.is(mistake)
    }

    /// Records a removed row, for idle work.
    pub(super) fn has_removed(&self) {
        self.inner.leisure.has_removed();
    }

    pub(super) fn may_go_on(&self) -> Result<(), StoreError> {
        match &self.spoilt {
            Some(why) => Err(StoreError::Spoilt(why.clone())),
            None => Ok(()),
        }
    }

    /// The transaction's record of a table.
    pub(super) fn record(&self, name: &str) -> Result<Option<Record>, StoreError> {
        let found = self.any_record(name)?;
        Ok(found.filter(|record| !record.is_dropped))
    }

    /// Like [`WriteTx::record`], including tables that are being dropped.
    fn any_record(&self, name: &str) -> Result<Option<Record>, StoreError> {
        if let Some(&open) = self.open.get(name) {
            return Ok(open);
        }
        let catalog = self.catalog()?;
        let found = catalog.get(name.as_bytes());
        let Some(found) = found.map_err(in_table(name, None))? else {
            return Ok(None);
        };
        let mut record = Record::parse(name, &found)?;
        let counts = &self.writer.as_ref().expect("the transaction lives").counts;
        record.keys = record.keys.or_else(|| counts.get(name).copied());
        Ok(Some(record))
    }

    pub(super) fn catalog(&self) -> Result<Walk<&Changed>, StoreError> {
        super::read::walk(self.changed(), self.catalog)
    }

    /// Opens a table. Creates an ordered one if there is none of this name.
    ///
    /// # Errors
    /// The name is invalid, a page is damaged, or the medium fails.
    pub fn table(&mut self, name: &str) -> Result<TableMut<'_>, StoreError> {
        self.inner.is_used();
        self.open(name, None)
    }

    /// Opens a table of kind `kind`. Creates one if there is none of this name.
    ///
    /// # Errors
    /// As [`WriteTx::table`], or the table is of another kind.
    pub fn open_table(&mut self, name: &str, kind: TableKind) -> Result<TableMut<'_>, StoreError> {
        self.inner.is_used();
        self.open(name, Some(kind))
    }

    /// Opens a table, of any kind if `kind` is `None`. Creates one if there is none of this name;
    /// an earlier one that is still being dropped is freed first.
    fn open(&mut self, name: &str, kind: Option<TableKind>) -> Result<TableMut<'_>, StoreError> {
        self.may_go_on()?;
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(StoreError::NoTable(format!(
                "`{name}` is not a valid table name: use 1 to {NAME_MAX} bytes"
            )));
        }
        let record = match (self.record(name)?, kind) {
            (Some(record), Some(kind)) if record.kind != kind => {
                return Err(StoreError::NoTable(format!(
                    "table `{name}` is {}, not {kind}: open it as that, or drop it first",
                    record.kind
                )));
            }
            (Some(record), _) => record,
            (None, kind) => {
                if let Some(dropped) = self.any_record(name)? {
                    // The new table's record replaces the one by which the drop would go on.
                    let freed = free_tree(self.changed_mut(), dropped.root);
                    let has_lost = freed.map_err(in_table(name, None))?;
                    self.open.insert(name.into(), None);
                    if has_lost {
                        self.sweep()?;
                    }
                }
                let root = empty_tree(self.changed_mut()).map_err(in_table(name, None))?;
                Record {
                    kind: kind.unwrap_or(TableKind::Ordered),
                    is_dropped: false,
                    root,
                    keys: Some(0),
                }
            }
        };
        let name: Arc<str> = match self.open.get_key_value(name) {
            Some((name, Some(record))) if !record.is_dropped => name.clone(),
            _ => {
                let name: Arc<str> = name.into();
                self.open.insert(name.clone(), Some(record));
                name
            }
        };
        Ok(TableMut {
            tx: self,
            name,
            record,
        })
    }

    /// The kind of a table, if there is one of this name.
    ///
    /// # Errors
    /// A page is damaged, or the medium fails.
    pub fn kind(&self, name: &str) -> Result<Option<TableKind>, StoreError> {
        Ok(self.record(name)?.map(|record| record.kind))
    }

    /// The names of all tables, in order, with their kinds.
    ///
    /// # Errors
    /// A page is damaged, or the medium fails.
    pub fn tables(&self) -> Result<Vec<(String, TableKind)>, StoreError> {
        let mut all = BTreeMap::new();
        for (name, record) in records(&self.catalog()?)? {
            if !record.is_dropped {
                all.insert(name, record.kind);
            }
        }
        for (name, record) in &self.open {
            match record {
                Some(record) if !record.is_dropped => _ = all.insert(name.to_string(), record.kind),
                _ => _ = all.remove(&**name),
            }
        }
        Ok(all.into_iter().collect())
    }

    /// Drops a table with its contents. The pages of a large table are freed after the commit, a
    /// few at a time, so that others do not wait: by [`WriteTx::commit`] and [`Commit::wait`], or
    /// by the next write transaction. Damaged pages of the table are freed like others.
    ///
    /// # Errors
    /// No table has this name, the catalog is damaged, or the medium fails.
    pub fn drop_table(&mut self, name: &str) -> Result<(), StoreError> {
        self.inner.is_used();
        self.may_go_on()?;
        let Some(record) = self.record(name)? else {
            return Err(no_table(name, &self.tables()?));
        };
        // No other transaction knows a table that was created in this one.
        let is_known = self.catalog()?.get(name.as_bytes())?.is_some();
        let used = pages_of(self.changed_mut(), record.root).map_err(in_table(name, None))?;
        // Later transactions find the record only in a whole catalog.
        let goes_later =
            is_known && used.pages.len() > AT_ONCE && records_if_whole(&self.catalog()?)?.is_some();
        let left = if goes_later {
            Some(Record {
                is_dropped: true,
                keys: None,
                ..record
            })
        } else {
            give_all(self.changed_mut(), used.pages).map_err(in_table(name, None))?;
            None
        };
        self.open.insert(name.into(), left);
        if used.has_lost {
            if goes_later {
                self.has_left = true;
            } else {
                self.sweep()?;
            }
        }
        Ok(())
    }

    /// Makes a savepoint. Savepoints nest: rolling back to one discards later ones.
    pub fn savepoint(&mut self) -> Savepoint {
        let id = SAVEPOINTS.fetch_add(1, Ordering::Relaxed);
        let before = Before {
            open: self.open.clone(),
            catalog: self.catalog,
            has_left: self.has_left,
        };
        self.savepoints.push((id, before));
        self.changed_mut().push();
        Savepoint(id)
    }

    fn find(&self, savepoint: Savepoint) -> Result<usize, StoreError> {
        let found = self
            .savepoints
            .iter()
            .position(|(id, ..)| *id == savepoint.0);
        found.ok_or_else(|| {
            StoreError::Options(
                "the savepoint is not one of this transaction, or not any more: it was released, \
                 or rolled back by an older one"
                    .into(),
            )
        })
    }

    /// Undoes all changes since a savepoint. The savepoint stays valid, and the transaction can
    /// continue even if an operation since then failed half-way.
    ///
    /// # Errors
    /// The savepoint belongs to another transaction, was released, or an older one was rolled back
    /// to.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), StoreError> {
        let at = self.find(savepoint)?;
        self.savepoints.truncate(at + 1);
        let (_, before) = &self.savepoints[at];
        (self.open, self.catalog) = (before.open.clone(), before.catalog);
        self.has_left = before.has_left;
        self.changed_mut().back_to(at + 1);
        self.spoilt = None;
        Ok(())
    }

    /// Forgets a savepoint and later ones. Changes since then stay.
    ///
    /// # Errors
    /// As [`WriteTx::rollback_to`].
    pub fn release(&mut self, savepoint: Savepoint) -> Result<(), StoreError> {
        let at = self.find(savepoint)?;
        self.savepoints.truncate(at);
        self.changed_mut().forget(at + 1);
        Ok(())
    }

    /// Commits, and returns when the commit is durable.
    ///
    /// # Errors
    /// The store is full: nothing has changed. Or the medium fails: whether the transaction has
    /// committed is unknown until the store is reopened.
    pub fn commit(self) -> Result<(), StoreError> {
        self.commit_later()?.wait()
    }

    /// Commits without waiting. The next transaction sees the changes at once. Snapshots see them,
    /// and they survive a crash, once the commit is durable.
    ///
    /// # Errors
    /// As [`WriteTx::commit`].
    pub fn commit_later(mut self) -> Result<Commit, StoreError> {
        self.may_go_on()?;
        let drops = self.open.values().flatten().any(|table| table.is_dropped);
        self.write_catalog()?;
        let is_older = self.writer.as_ref().is_some_and(|writer| writer.is_older);
        // The head is rewritten only if one of these changes, or its version is older.
        let after = (self.catalog, self.dropped, self.has_left);
        let before = self
            .writer
            .as_ref()
            .map(|writer| (writer.catalog, writer.dropped, writer.has_left));
        if before != Some(after) || is_older && self.changed().has_changed() {
            let head = head(self.catalog, self.dropped, self.has_left);
            self.changed_mut().set(HEAD, Some(head));
        }
        let (Some(changed), Some(mut writer)) = (self.changed.take(), self.writer.take()) else {
            unreachable!("a transaction ends once");
        };
        let (turn, changes, mut space) = changed.finish();
        let changes_nothing = changes.is_empty();
        let committed = turn.commit(changes);
        match committed {
            Ok(_) => {
                space.keep();
                (writer.catalog, writer.dropped) = (self.catalog, self.dropped);
                // Damage may have been removed.
                writer.cannot_sweep &= changes_nothing;
                writer.has_left = self.has_left;
                writer.is_older &= changes_nothing;
                for (name, keys) in self.counts.drain(..) {
                    match keys {
                        Some(keys) => _ = writer.counts.insert(name, keys),
                        None => _ = writer.counts.remove(&name),
                    }
                }
            }
            Err(_) => space.undo_to(0),
        }
        writer.space = Some(space);
        writer.give_back();
        let drops = drops.then(|| Arc::downgrade(&self.inner));
        committed.map(|ticket| Commit { ticket, drops })
    }

    /// Rolls the transaction back, as dropping it does. Returns when all commits that it may have
    /// read are durable: what it has read also holds after a crash.
    ///
    /// # Errors
    /// The medium fails, or one of those commits found no room: what the transaction has read may
    /// not hold. The transaction itself leaves no changes.
    pub fn rollback(mut self) -> Result<(), StoreError> {
        self.undo()
    }

    /// Undoes all changes, gives the writer state back, and waits for earlier commits.
    fn undo(&mut self) -> Result<(), StoreError> {
        let (Some(changed), Some(mut writer)) = (self.changed.take(), self.writer.take()) else {
            return Ok(());
        };
        if !self.inner.pages.is_ours() {
            return Ok(());
        }
        let Changed {
            turn, mut space, ..
        } = changed;
        space.undo_to(0);
        // An empty set of changes adds nothing to a group: it completes with the group, or at once.
        let before = turn.commit(Changes::new());
        writer.space = Some(space);
        writer.give_back();
        // A panicking thread must not become the one that writes the group.
        if std::thread::panicking() {
            return Ok(());
        }
        before?.wait()
    }

    /// Checks all tables.
    ///
    /// # Errors
    /// Describes the inconsistency, and names the table.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let say = |error: StoreError| error.to_string();
        let all = records(&self.catalog().map_err(say)?).map_err(say)?;
        let mut used = vec![HEAD];
        let catalog = ("the catalog".to_string(), self.catalog, None);
        let (dropped, all): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, r)| r.is_dropped);
        // Tables are still being dropped here if the store is read-only, or if the commit that
        // dropped them is in flight.
        let (inner, space) = (Arc::clone(&self.inner), self.changed().space.clone());
        for (name, record) in dropped {
            let pages = self.changed_mut();
            let left = inner.next_pages(pages, record, usize::MAX, &|at| space.is_free(at));
            let left = left.map_err(|e| format!("table `{name}`, which is being dropped: {e}"))?;
            used.extend(left.pages);
        }
        let catalog = std::iter::once((catalog, TableKind::Ordered));
        let tables = all.into_iter().map(|(name, record)| {
            let of_table = (format!("table `{name}`"), record.root, record.keys);
            (of_table, record.kind)
        });
        for ((name, root, keys), kind) in catalog.chain(tables) {
            let wrong = |why: String| format!("{name}: {why}");
            let pages = self.changed_mut();
            let mut tree = ByteTree::over(pages, root).map_err(|e| wrong(e.to_string()))?;
            let (mut found, pages) = tree.check().map_err(wrong)?;
            // Pages of values too: the tree has only named them.
            for some in pages.chunks(SIDE_BY_SIDE) {
                let read = self.changed().pages(some);
                read.map_err(|e| wrong(e.to_string()))?;
            }
            if kind == TableKind::Hashed {
                let tree = super::read::walk(self.changed(), root).map_err(say)?;
                found = hashed_keys(&tree).map_err(wrong)?;
            }
            if keys.is_some_and(|keys| keys != found) {
                return Err(wrong(format!("it has {found} keys, and not {keys:?}")));
            }
            used.extend(pages);
        }
        self.changed().space.check(used, self.has_left)
    }

    /// Writes the records of changed tables into the catalog. Key counts are written only when the
    /// store is closed: otherwise each transaction would write another page.
    fn write_catalog(&mut self) -> Result<(), StoreError> {
        let open = std::mem::take(&mut self.open);
        for (name, record) in &open {
            let before = self.catalog()?.get(name.as_bytes())?;
            let before = before
                .map(|bytes| Record::parse(name, &bytes))
                .transpose()?;
            let keys = record.and_then(|record| record.keys);
            let was = before.and_then(|before| before.keys);
            let after = record.map(|record| Record {
                keys: keys.filter(|_| keys == was),
                ..record
            });
            self.counts.push((name.clone(), keys));
            let dropped = |record: Option<Record>| u32::from(record.is_some_and(|r| r.is_dropped));
            // A first page from before the drop, as damage can leave it, does not count the table.
            self.dropped = (self.dropped + dropped(after)).saturating_sub(dropped(before));
            if before != after {
                let catalog = self.catalog;
                self.catalog = put_record(self.changed_mut(), catalog, name, after)?;
            }
        }
        Ok(())
    }
}

/// The keys of a hashed table, by its records.
fn hashed_keys(tree: &Walk<&Changed>) -> Result<u64, String> {
    let say = |error: StoreError| error.to_string();
    let mut cursor = tree.seek(b"").map_err(say)?;
    let (mut hash, mut keys) = (Vec::new(), 0);
    while let Some(records) = tree.next(&mut cursor, &mut hash).map_err(say)? {
        let behind = hashed::count(&hash, &records);
        keys += behind.ok_or_else(|| format!("the records of hash {hash:x?} are damaged"))?;
    }
    Ok(keys)
}

/// Sets or removes the record of a table in the catalog. Returns the root of the catalog, which the
/// caller writes into the head.
pub(super) fn put_record(
    changed: &mut Changed,
    catalog: Root,
    name: &str,
    record: Option<Record>,
) -> Result<Root, StoreError> {
    let bytes = record.map(Record::emit);
    let bytes = bytes.as_ref().map(|bytes| &bytes[..]);
    let mut tree = ByteTree::over(&mut *changed, catalog)?;
    let done = tree.change(ZERO, name.as_bytes(), bytes);
    let root = tree.root();
    done.map_err(|error| in_table(name, None)(error))?;
    Ok(root)
}

impl Drop for WriteTx {
    /// Rolls back like [`WriteTx::rollback`], unless the transaction was committed.
    fn drop(&mut self) {
        let _ = self.undo();
    }
}

/// Creates an empty tree.
pub(super) fn empty_tree(mut pages: &mut Changed) -> Result<Root, StoreError> {
    let at = pages.take()?;
    write_empty(pages.fill(ZERO, at)?.0);
    Ok(Root { at, height: 1 })
}

/// All reachable pages of a tree.
fn pages_of(pages: &mut Changed, root: Root) -> Result<Felled, StoreError> {
    let mut tree = ByteTree::over(&mut *pages, root)?;
    let mut used = tree.fell(usize::MAX, &|_| false)?;
    // Pages referenced by a damaged tree may be free.
    used.pages.retain(|&at| !pages.space.is_free(at));
    Ok(used)
}

/// Frees pages.
pub(super) fn give_all(mut pages: &mut Changed, used: Vec<Lpn>) -> Result<(), StoreError> {
    for at in used {
        pages.give(ZERO, at)?;
    }
    Ok(())
}

/// Frees all reachable pages of a tree. Returns whether other pages may be left, since a page is
/// damaged.
pub(super) fn free_tree(pages: &mut Changed, root: Root) -> Result<bool, StoreError> {
    let used = pages_of(pages, root)?;
    give_all(pages, used.pages)?;
    Ok(used.has_lost)
}

const _: () = assert!(
    PageStore::PAGE_BYTES >= 4000,
    "names of tables fit the catalog's keys"
);
