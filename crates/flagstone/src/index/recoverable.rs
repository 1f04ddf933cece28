//! An index in a store with transactions: operations between begin and commit are all there after
//! a restart, or none is.
//!
//! Every index becomes recoverable this way, by two rules that an index keeps: after a settle its
//! pages are a whole structure, and the value of each key in them is as new as the last flush or
//! newer. All pages that an operation writes belong to the transaction that it is in. An index that
//! keeps changes in a buffer has its operations journalled as well; they are done again after a
//! restart, in order, and what had reached the pages already is overwritten by the same.
//!
//! There is one transaction at a time. Several side by side would need locks on keys, and pages
//! that transactions share: two keys of different transactions lie in one page as soon as an index
//! puts them there, and a page belongs to one transaction below. Clients take turns; `sal` over a
//! store without transactions has several ([`super::sal::Transactions`]).
//!
//! Byte strings ([`Index::bytes`]) have transactions by the same calls: what is changed through
//! [`Recoverable::index`] between begin and commit belongs to the transaction, if the index keeps
//! nothing in buffers.
//!
//! After a rollback the index starts anew from its pages, because what it has in memory is of the
//! transaction that is gone. So it does after an error: an index may have stopped in the middle of
//! a change, also of one that a search made. Within a transaction nothing but a rollback is taken
//! then.

use super::journal::{Journal, Operation};
use super::store::{Store, StoreError};
use super::{Index, IndexError, IndexKind, Key, Settings, Value};
use crate::ftl::Ftl;
use crate::units::{Lpn, Nanos};

/// Pages of a journal.
const JOURNAL_PAGES: u32 = 4;

/// The pages behind the journal.
struct Behind {
    store: Box<dyn Store>,
    skip: u32,
}

impl Behind {
    fn at(&self, at: Lpn) -> Result<Lpn, StoreError> {
        if at.0 >= self.pages() {
            let pages = self.pages();
            return Err(StoreError::OutOfRange { at, pages });
        }
        Ok(Lpn(at.0 + self.skip))
    }
}

impl Store for Behind {
    fn page_bytes(&self) -> usize {
        self.store.page_bytes()
    }

    fn pages(&self) -> u32 {
        self.store.pages() - self.skip
    }

    fn read(&mut self, now: Nanos, at: Lpn, into: &mut [u8]) -> Result<Nanos, StoreError> {
        let at = self.at(at)?;
        self.store.read(now, at, into)
    }

    fn write(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, StoreError> {
        let mut moved = Vec::with_capacity(pages.len());
        for &(at, data) in pages {
            moved.push((self.at(at)?, data));
        }
        self.store.write(now, &moved)
    }

    fn trim(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, StoreError> {
        let at = self.at(at)?;
        self.store.trim(now, at)
    }

    fn transactional(&self) -> bool {
        self.store.transactional()
    }

    fn begin(&mut self, now: Nanos) -> Result<Nanos, StoreError> {
        self.store.begin(now)
    }

    fn commit(&mut self, now: Nanos) -> Result<Nanos, StoreError> {
        self.store.commit(now)
    }

    fn abort(&mut self, now: Nanos) -> Result<Nanos, StoreError> {
        self.store.abort(now)
    }

    fn below(&mut self) -> Option<&mut dyn Store> {
        Some(self.store.as_mut())
    }

    fn into_below(self: Box<Self>) -> Option<Box<dyn Store>> {
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
/// use flagstone::index::{DeviceStore, IndexError, IndexKind, Recoverable, Settings};
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
    /// Nothing only while it is opened anew.
    index: Option<Box<dyn Index>>,
    journal: Option<Journal>,
    live: bool,
    /// What went wrong in the transaction that is live, or in a rollback.
    failed: Option<IndexError>,
}

impl Recoverable {
    /// Starts an index from its store alone, blank or not.
    ///
    /// # Errors
    /// As [`IndexKind::open`], and a store that has no transactions.
    pub fn open(
        kind: IndexKind,
        mut store: Box<dyn Store>,
        settings: &Settings,
        mut now: Nanos,
    ) -> Result<(Recoverable, Nanos), IndexError> {
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
        };
        // A first settle makes the metadata; until it is there the store is as good as blank.
        now = store.begin(now)?;
        now = recoverable.start(store, now)?;
        now = recoverable.index().settle(now)?;
        now = recoverable.index().store().commit(now)?;
        Ok((recoverable, now))
    }

    fn start(&mut self, mut store: Box<dyn Store>, now: Nanos) -> Result<Nanos, IndexError> {
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
        for operation in operations {
            now = apply(index.as_mut(), operation, now)?;
        }
        self.index = Some(index);
        Ok(now)
    }

    /// Whether the index is there: not after a rollback, also one for an error, whose store could
    /// not go on.
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
    /// A store that cannot go on.
    ///
    /// # Panics
    /// There is one.
    pub fn begin(&mut self, now: Nanos) -> Result<Nanos, IndexError> {
        assert!(!self.live, "one transaction at a time");
        self.sound()?;
        let now = self.index().store().begin(now)?;
        self.live = true;
        Ok(now)
    }

    /// As [`Index::insert`], in the transaction.
    ///
    /// # Errors
    /// As there.
    pub fn insert(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos, IndexError> {
        self.change(now, Operation::Insert(key, value))
    }

    /// As [`Index::update`], in the transaction.
    ///
    /// # Errors
    /// As there.
    pub fn update(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos, IndexError> {
        self.change(now, Operation::Update(key, value))
    }

    /// As [`Index::delete`], in the transaction.
    ///
    /// # Errors
    /// As there.
    pub fn delete(&mut self, now: Nanos, key: Key) -> Result<Nanos, IndexError> {
        self.change(now, Operation::Delete(key))
    }

    fn change(&mut self, now: Nanos, operation: Operation) -> Result<Nanos, IndexError> {
        assert!(self.live, "begin a transaction first");
        self.within(|all| all.do_change(now, operation))
    }

    /// What went wrong before, in this transaction or in a rollback.
    fn sound(&self) -> Result<(), IndexError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Does something in the live transaction, unless it has failed; keeps what goes wrong.
    fn within<T>(
        &mut self,
        what: impl FnOnce(&mut Recoverable) -> Result<T, IndexError>,
    ) -> Result<T, IndexError> {
        self.sound()?;
        let outcome = what(self);
        self.failed = outcome.as_ref().err().cloned();
        outcome
    }

    fn do_change(&mut self, mut now: Nanos, operation: Operation) -> Result<Nanos, IndexError> {
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

    /// As [`Index::get`]; sees what the transaction has changed.
    ///
    /// A search may change the pages of an index that buffers: a log region is merged because it is
    /// searched. Where no transaction was begun it has one of its own, which is rolled back if it
    /// fails.
    ///
    /// # Errors
    /// As there.
    pub fn get(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos), IndexError> {
        if self.live {
            return self.within(|all| all.index().get(now, key));
        }
        self.sound()?;
        let found = self.get_alone(now, key);
        if let Err(IndexError::Store(error)) = &found
            && !error.is_power_loss()
        {
            // If that fails too, whoever asks next is told.
            let _ = self.abort(now);
        }
        found
    }

    fn get_alone(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos), IndexError> {
        let before = self.index().stats().writes;
        if !self.kind.info().buffers {
            let found = self.index().get(now, key);
            debug_assert_eq!(self.index().stats().writes, before, "a search has written");
            return found;
        }
        let now = self.index().store().begin(now)?;
        let (value, mut now) = self.index().get(now, key)?;
        if self.index().stats().writes != before {
            now = self.index().settle(now)?;
        }
        Ok((value, self.index().store().commit(now)?))
    }

    /// Commits. Durable at the instant of the answer.
    ///
    /// # Errors
    /// A store that cannot go on.
    pub fn commit(&mut self, now: Nanos) -> Result<Nanos, IndexError> {
        let now = self.within(|all| all.index().settle(now))?;
        self.live = false;
        Ok(self.index().store().commit(now)?)
    }

    /// Rolls back; the index starts anew from its pages.
    ///
    /// # Errors
    /// A store that cannot go on.
    pub fn abort(&mut self, now: Nanos) -> Result<Nanos, IndexError> {
        if !self.is_open() {
            self.sound()?;
        }
        self.live = false;
        self.failed = None;
        let outcome = self.start_anew(now);
        self.failed = outcome.as_ref().err().cloned();
        outcome
    }

    fn start_anew(&mut self, now: Nanos) -> Result<Nanos, IndexError> {
        let mut store = self.take_store();
        let now = store.abort(now)?;
        // Reading may write pages out to make room: they belong to a transaction too.
        let now = store.begin(now)?;
        let now = self.start(store, now)?;
        let now = self.index().settle(now)?;
        Ok(self.index().store().commit(now)?)
    }

    fn take_store(&mut self) -> Box<dyn Store> {
        let store = self.index.take().expect("it is open").into_store();
        store.into_below().expect("it lies behind a journal")
    }

    /// Gives the store back. A transaction that was begun stays so.
    pub fn into_store(mut self) -> Box<dyn Store> {
        self.take_store()
    }
}

/// The store with the journal's pages.
fn beneath(index: &mut dyn Index) -> &mut dyn Store {
    index.store().below().expect("it lies behind a journal")
}

fn apply(index: &mut dyn Index, operation: Operation, now: Nanos) -> Result<Nanos, IndexError> {
    match operation {
        Operation::Insert(key, value) => index.insert(now, key, value),
        Operation::Update(key, value) => index.update(now, key, value),
        Operation::Delete(key) => index.delete(now, key),
    }
}
