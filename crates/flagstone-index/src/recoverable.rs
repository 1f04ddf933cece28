//! An index in a store with transactions. After a restart either all operations between begin and
//! commit are there, or none.
//!
//! Every index becomes recoverable this way if it keeps two rules. After a settle its pages form a
//! complete structure. The value of each key in them is at least as new as the last flush. All
//! pages that an operation writes belong to the operation's transaction. If an index buffers
//! changes, its operations are journalled as well. A restart replays them in order; changes that
//! had already reached the pages are repeated.
//!
//! There is one transaction at a time, and clients take turns. Concurrent transactions would need
//! locks on keys and pages shared by transactions: an index may put keys of two transactions into
//! one page, but a page belongs to one transaction of the store.
//!
//! Byte strings ([`Index::bytes`]) have transactions through the same calls. A change through
//! [`Recoverable::index`] between begin and commit belongs to the transaction, if the index does
//! not buffer changes.
//!
//! After a rollback the index is reopened from its pages, because its memory has changes of the
//! transaction. The same happens after an error: the index may have stopped half-way through a
//! change, even in a search. Until the transaction is rolled back, all other requests are refused.

use super::journal::{Journal, Operation};
use super::store::{BackingError, BackingStore};
use super::{Index, IndexError, IndexKind, Key, Result, Settings, Value};
use flagstone::ftl::Ftl;
use flagstone::mistakes::{Mistaken, mistakes};
use flagstone::units::{Lpn, Nanos};

mistakes! {
    /// A rule of transactions that is omitted on purpose; campaigns must find a violation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Mistake {
        /// A commit keeps operations in the journal although their replay may lack room.
        RoomNotKept: "room-not-kept",
    }
}

/// Number of journal pages.
const JOURNAL_PAGES: u32 = 4;

/// The pages after the journal.
struct Behind {
    store: Box<dyn BackingStore>,
    skip: u32,
}

impl Behind {
    fn at(&self, at: Lpn) -> Result<Lpn, BackingError> {
        if at.0 >= self.pages() {
            let pages = self.pages();
            return Err(BackingError::OutOfRange { at, pages });
        }
        Ok(Lpn(at.0 + self.skip))
    }
}

impl BackingStore for Behind {
    fn page_bytes(&self) -> usize {
        self.store.page_bytes()
    }

    fn pages(&self) -> u32 {
        self.store.pages() - self.skip
    }

    fn read(&mut self, now: Nanos, at: Lpn, into: &mut [u8]) -> Result<Nanos, BackingError> {
        let at = self.at(at)?;
        self.store.read(now, at, into)
    }

    fn write(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, BackingError> {
        let mut moved = Vec::with_capacity(pages.len());
        for &(at, data) in pages {
            moved.push((self.at(at)?, data));
        }
        self.store.write(now, &moved)
    }

    fn trim(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, BackingError> {
        let at = self.at(at)?;
        self.store.trim(now, at)
    }

    fn transactional(&self) -> bool {
        self.store.transactional()
    }

    fn begin(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        self.store.begin(now)
    }

    fn commit(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        self.store.commit(now)
    }

    fn abort(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        self.store.abort(now)
    }

    fn below(&mut self) -> Option<&mut dyn BackingStore> {
        Some(self.store.as_mut())
    }

    fn into_below(self: Box<Self>) -> Option<Box<dyn BackingStore>> {
        Some(self.store)
    }

    fn ftl(&self) -> Option<&Ftl> {
        self.store.ftl()
    }

    fn verify(&self) -> Result<(), String> {
        self.store.verify()
    }
}

/// An index with transactions.
///
/// ```
/// use flagstone::commit::{Device, Kind};
/// use flagstone_index::{DeviceStore, IndexError, IndexKind, Recoverable, Settings};
/// use flagstone::nand::Chip;
/// use flagstone::units::Nanos;
///
/// let device = Device::with_defaults(Chip::default(), Kind::Cfc).expect("a blank chip");
/// let store = Box::new(DeviceStore::new(device));
/// let (kind, settings) = (IndexKind::Linear, Settings::new());
/// let (mut index, now) = Recoverable::open(kind, store, &settings, Nanos::ZERO)?;
///
/// let now = index.begin(now)?;
/// let now = index.insert(now, 1, 10)?;
/// let now = index.insert(now, 2, 20)?;
/// let now = index.commit(now)?;
///
/// let now = index.begin(now)?;
/// let now = index.delete(now, 1)?;
/// let now = index.abort(now)?;
/// assert_eq!(index.get(now, 1)?.0, Some(10));
/// # Ok::<(), IndexError>(())
/// ```
pub struct Recoverable {
    kind: IndexKind,
    settings: Settings,
    /// The index; `None` while it is being reopened, or if that failed.
    index: Option<Box<dyn Index>>,
    journal: Option<Journal>,
    live: bool,
    /// The error of the live transaction, or of a rollback.
    failed: Option<IndexError>,
    mistaken: Mistaken<Mistake>,
}

impl Recoverable {
    /// Opens an index from its store alone, blank or not.
    ///
    /// # Errors
    /// As [`IndexKind::open`], or the store has no transactions.
    pub fn open(
        kind: IndexKind,
        mut store: Box<dyn BackingStore>,
        settings: &Settings,
        mut now: Nanos,
    ) -> Result<(Recoverable, Nanos)> {
        if !store.transactional() {
            return Err(IndexError::Settings(
                "the store has no transactions: use a device with a commit protocol, or a database"
                    .to_string(),
            ));
        }
        let mut recoverable = Recoverable {
            kind,
            settings: settings.clone(),
            index: None,
            journal: None,
            live: false,
            failed: None,
            mistaken: Mistaken::NONE,
        };
        // The first settle creates the metadata; until then the store counts as blank.
        now = store.begin(now)?;
        now = recoverable.start(store, now)?;
        now = recoverable.index().settle(now)?;
        now = recoverable.index().store().commit(now)?;
        Ok((recoverable, now))
    }

    /// Opens the index in `store`. If the index buffers changes, reads the journal and repeats its
    /// operations.
    fn start(&mut self, mut store: Box<dyn BackingStore>, now: Nanos) -> Result<Nanos> {
        let buffers = self.kind.info().buffers;
        let skip = if buffers { JOURNAL_PAGES } else { 0 };
        let mut operations = Vec::new();
        let mut now = now;
        if buffers {
            let (journal, found, done) = Journal::load(store.as_mut(), skip, now)?;
            (self.journal, operations, now) = (Some(journal), found, done);
        }
        let behind = Box::new(Behind { store, skip });
        let (mut index, mut now) = self.kind.open(behind, &self.settings, now)?;
        // The rule takes an inserted key for a new one, but the pages can have it by now.
        let rule = (self.kind == IndexKind::LazyBPlusTree)
            .then(|| self.settings.text(self.kind.info(), "cancel_out"));
        for operation in operations {
            let operation = match operation {
                Operation::Insert(key, value) if rule == Some("new-keys") => {
                    Operation::Update(key, value)
                }
                operation => operation,
            };
            now = apply(index.as_mut(), operation, now)?;
        }
        self.index = Some(index);
        Ok(now)
    }

    /// Whether the index is open. `false` after a rollback in which the store failed.
    pub fn is_open(&self) -> bool {
        self.index.is_some()
    }

    /// The index.
    ///
    /// # Panics
    /// It is not [open](Recoverable::is_open).
    pub fn index(&mut self) -> &mut dyn Index {
        self.index.as_mut().expect("it is open").as_mut()
    }

    /// Begins a transaction. There is one at a time.
    ///
    /// # Errors
    /// The store cannot continue.
    ///
    /// # Panics
    /// A transaction is live.
    pub fn begin(&mut self, now: Nanos) -> Result<Nanos> {
        self.sound()?;
        assert!(!self.live, "one transaction at a time");
        let now = self.index().store().begin(now)?;
        self.live = true;
        Ok(now)
    }

    /// Like [`Index::insert`], in the transaction.
    ///
    /// # Errors
    /// As [`Index::insert`].
    pub fn insert(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        self.change(now, Operation::Insert(key, value))
    }

    /// Like [`Index::update`], in the transaction.
    ///
    /// # Errors
    /// As [`Index::update`].
    pub fn update(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        self.change(now, Operation::Update(key, value))
    }

    /// Like [`Index::delete`], in the transaction.
    ///
    /// # Errors
    /// As [`Index::delete`].
    pub fn delete(&mut self, now: Nanos, key: Key) -> Result<Nanos> {
        self.change(now, Operation::Delete(key))
    }

    fn change(&mut self, now: Nanos, operation: Operation) -> Result<Nanos> {
        assert!(self.live, "begin a transaction first");
        self.within(|all| all.do_change(now, operation))
    }

    /// Returns an earlier error of this transaction or of a rollback.
    fn sound(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Runs a request in the live transaction, unless that has failed. Records an error.
    fn within<T>(&mut self, what: impl FnOnce(&mut Recoverable) -> Result<T>) -> Result<T> {
        self.sound()?;
        let outcome = what(self);
        self.failed = outcome.as_ref().err().cloned();
        outcome
    }

    /// Applies an operation after journalling it, if there is a journal. A full journal is emptied
    /// first, by a flush of the index.
    fn do_change(&mut self, mut now: Nanos, operation: Operation) -> Result<Nanos> {
        let index = self.index.as_mut().expect("it is open");
        if let Some(journal) = &mut self.journal {
            if journal.is_full() {
                now = index.flush(now)?;
                now = journal.clear(beneath(index.as_mut()), now)?;
            }
            now = journal.append(beneath(index.as_mut()), operation, now)?;
        }
        apply(index.as_mut(), operation, now)
    }

    /// Like [`Index::get`]. Sees the changes of the transaction.
    ///
    /// A search may change the pages of a buffering index: searching a log region may merge it.
    /// Without a transaction such a search has one of its own. If a search outside of a transaction
    /// fails, the index is rolled back and reopened.
    ///
    /// # Errors
    /// As [`Index::get`].
    pub fn get(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos)> {
        if self.live {
            return self.within(|all| all.index().get(now, key));
        }
        self.sound()?;
        let found = self.get_alone(now, key);
        match &found {
            Ok(_) => {}
            Err(IndexError::Store(error)) if error.is_power_loss() => {}
            Err(_) => {
                // If the rollback fails too, the next request returns the error.
                let _ = self.abort(now);
            }
        }
        found
    }

    fn get_alone(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos)> {
        let before = self.index().stats().writes;
        if !self.kind.info().buffers {
            let found = self.index().get(now, key);
            debug_assert_eq!(self.index().stats().writes, before, "a search has written");
            return found;
        }
        let now = self.index().store().begin(now)?;
        let (value, mut now) = self.index().get(now, key)?;
        if self.index().stats().writes != before {
            now = self.settle(now)?;
        }
        Ok((value, self.index().store().commit(now)?))
    }

    /// Commits. Durable at the returned instant.
    ///
    /// # Errors
    /// The store cannot continue.
    pub fn commit(&mut self, now: Nanos) -> Result<Nanos> {
        let now = self.within(|all| {
            let now = all.settle(now)?;
            Ok(all.index().store().commit(now)?)
        })?;
        self.live = false;
        Ok(now)
    }

    /// Rolls back and reopens the index from its pages.
    ///
    /// # Errors
    /// The store cannot continue.
    pub fn abort(&mut self, now: Nanos) -> Result<Nanos> {
        if !self.is_open() {
            // An earlier rollback failed and lost the store: returns its error.
            self.sound()?;
        }
        self.live = false;
        self.failed = None;
        let outcome = self.start_anew(now);
        self.failed = outcome.as_ref().err().cloned();
        outcome
    }

    /// Rolls back in the store, and reopens the index in a transaction of its own.
    fn start_anew(&mut self, now: Nanos) -> Result<Nanos> {
        let mut store = self.take_store();
        let now = store.abort(now)?;
        // Reading may write pages out to free frames, which needs a transaction too.
        let now = store.begin(now)?;
        let now = self.start(store, now)?;
        let now = self.settle(now)?;
        Ok(self.index().store().commit(now)?)
    }

    /// Settles. A restart must find space to replay the journal. If there may be too little,
    /// flushes the index while its buffers have all operations, which empties the journal. If the
    /// flush finds no space, this transaction fails.
    fn settle(&mut self, now: Nanos) -> Result<Nanos> {
        let index = self.index.as_mut().expect("it is open");
        match &mut self.journal {
            Some(journal)
                if index.may_lack_room(journal.len())
                    && !self.mistaken.is(Mistake::RoomNotKept)
                    && journal.len() > 0 =>
            {
                let now = index.flush(now)?;
                journal.clear(beneath(index.as_mut()), now)
            }
            _ => index.settle(now),
        }
    }

    fn take_store(&mut self) -> Box<dyn BackingStore> {
        let store = self.index.take().expect("it is open").into_store();
        store.into_below().expect("it lies behind a journal")
    }

    /// Makes a deliberate mistake from now on.
    pub fn make(&mut self, mistaken: Mistaken<Mistake>) {
        self.mistaken = mistaken;
    }

    /// Returns the store. A live transaction stays live.
    pub fn into_store(mut self) -> Box<dyn BackingStore> {
        self.take_store()
    }
}

/// The store with the journal's pages.
fn beneath(index: &mut dyn Index) -> &mut dyn BackingStore {
    index.store().below().expect("it lies behind a journal")
}

fn apply(index: &mut dyn Index, operation: Operation, now: Nanos) -> Result<Nanos> {
    match operation {
        Operation::Insert(key, value) => index.insert(now, key, value),
        Operation::Update(key, value) => index.update(now, key, value),
        Operation::Delete(key) => index.delete(now, key),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Call, asking};
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    /// Fails if the index keeps changes of a lost transaction in memory.
    #[test]
    fn a_commit_that_failed_is_rolled_back_before_anything_else() {
        for &kind in IndexKind::ALL {
            let refuses = Rc::new(Cell::new(false));
            let asked = Rc::clone(&refuses);
            let store = asking(700, move |store, now, call| {
                if call == Call::Commit && asked.get() {
                    store.abort(now)?;
                    return Err(BackingError::Io("it is refused".into()));
                }
                Ok(())
            });
            let opened = Recoverable::open(kind, store, &kind.info().tiny(), Nanos::ZERO);
            let (mut index, mut now) = opened.expect("a blank store");
            let all = |index: &mut Recoverable, mut now, from: u64, to: u64, plus: u64| {
                now = index.begin(now)?;
                for key in from..to {
                    now = index.insert(now, key, key + plus)?;
                }
                index.commit(now)
            };
            now = all(&mut index, now, 0, 40, 1).expect("it commits");
            refuses.set(true);
            assert!(all(&mut index, now, 20, 80, 2).is_err(), "{kind}");
            refuses.set(false);
            assert!(index.begin(now).is_err(), "{kind}: nothing was rolled back");
            assert!(
                index.get(now, 3).is_err(),
                "{kind}: nothing was rolled back"
            );
            now = index.abort(now).expect("it is rolled back");
            now = all(&mut index, now, 35, 50, 3).expect("it commits");
            index.index().check().expect("it is whole");
            for key in 0..90 {
                let wanted = match key {
                    0..35 => Some(key + 1),
                    35..50 => Some(key + 3),
                    _ => None,
                };
                assert_eq!(index.get(now, key).expect("it reads").0, wanted, "{kind}");
            }
        }
    }

    #[test]
    fn a_deleted_key_whose_insertion_reached_the_pages_stays_deleted_after_a_restart() {
        let kind = IndexKind::LazyBPlusTree;
        for rule in ["sound", "new-keys"] {
            let settings = kind.info().tiny().with("cancel_out", rule);
            let store = asking(700, |_, _, _| Ok(()));
            let opened = Recoverable::open(kind, store, &settings, Nanos::ZERO);
            let (mut index, mut now) = opened.expect("a blank store");
            now = index.begin(now).expect("the first");
            now = index.insert(now, 5, 1).expect("room");
            // As if the pool had chosen the group of this key.
            now = index.index().flush(now).expect("room");
            now = index.commit(now).expect("room");
            now = index.begin(now).expect("the second");
            now = index.delete(now, 5).expect("room");
            now = index.commit(now).expect("room");
            let opened = Recoverable::open(kind, index.into_store(), &settings, now);
            let (mut index, now) = opened.expect("its pages");
            assert_eq!(index.get(now, 5).expect("it reads").0, None, "{rule}");
        }
    }
}
