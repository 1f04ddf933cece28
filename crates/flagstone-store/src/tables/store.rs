//! A store of tables: opening it, and the turns of writers.

use super::Mistake;
use super::catalog::{FIRST_ROOT, HEAD, Head, Record, head, parse_head};
use super::changed::Changed;
use super::compact::Leisure;
use super::read::{self, ReadTx};
use super::space::Space;
use super::write::{WriteTx, put_record};
use crate::error::StoreError;
use crate::holds::Holds;
use crate::medium::{Medium, Memory};
use crate::pages::{OpenOptions, PageStore};
use crate::shared::{Changes, SharedPages, Turn};
use flagstone::mistakes::Mistaken;
use flagstone::units::Lpn;
use flagstone_btree::{Root, write_empty};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// A store of tables. Clones refer to the same store, so that each thread can have one.
///
/// ```
/// use flagstone_store::medium::Recorded;
/// use flagstone_store::{OpenOptions, Store, StoreError};
/// use std::thread;
///
/// let (medium, options) = (Recorded::default(), OpenOptions::default());
/// let store = Store::on(Box::new(medium.clone()), &options)?;
/// let writers = [1, 2].map(|number: u8| {
///     let store = store.clone();
///     thread::spawn(move || store.insert("orders", &[number], b"new"))
/// });
/// for writer in writers {
///     writer.join().expect("no panic")?;
/// }
/// store.close()?;
///
/// let store = Store::on(Box::new(medium), &options)?;
/// assert_eq!(store.read()?.table("orders")?.len()?, 2);
/// assert_eq!(store.check(), Ok(()));
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Clone)]
pub struct Store(Arc<Inner>);

pub(super) struct Inner {
    pub(super) pages: SharedPages,
    writer: Mutex<Place>,
    /// Number of the thread that last used the writing transaction.
    writing: AtomicU64,
    is_free: Condvar,
    is_read_only: bool,
    pub(super) mistaken: Mistaken<Mistake>,
    pub(super) leisure: Leisure,
}

/// State that each writer hands to the next one.
pub(super) struct Writer {
    pub(super) catalog: Root,
    /// Number of tables that are being dropped.
    pub(super) dropped: u32,
    /// Whether a dropped table has damaged pages, as the first page says: pages that only those
    /// referenced must still be freed.
    pub(super) has_left: bool,
    /// Whether this opening cannot determine those pages, since another table is damaged.
    pub(super) cannot_sweep: bool,
    /// Whether the first page has an older version: the next commit rewrites it.
    pub(super) is_older: bool,
    /// The count of failed groups ([`Turn::failures`]) when the rest was read.
    pub(super) failures: u64,
    /// Key counts that the catalog lacks. A close writes them.
    pub(super) counts: BTreeMap<Arc<str>, u64>,
    /// Present while no transaction has taken it.
    pub(super) space: Option<Space>,
}

/// Where the writer state is.
enum Place {
    /// No transaction is writing.
    Here(Writer),
    /// A transaction has taken it.
    Away,
    /// A thread panicked while it had it: which pages are free is unknown.
    Lost,
}

/// The writer state, held by a transaction. If it is dropped without [`Held::give_back`], as by a
/// panic, the state is lost, and waiting threads get an error.
pub(super) struct Held {
    inner: Arc<Inner>,
    /// Present until it is given back.
    writer: Option<Writer>,
}

impl Held {
    /// Waits for the writer state.
    fn take(inner: &Arc<Inner>) -> Result<Held, StoreError> {
        let place = inner.writer.lock().expect("no thread panics here");
        if matches!(*place, Place::Away) && inner.writing.load(Ordering::SeqCst) == thread_number()
        {
            return Err(StoreError::Nested);
        }
        let place = inner
            .is_free
            .wait_while(place, |place| matches!(place, Place::Away));
        let held = Held::of(inner, &mut place.expect("no thread panics here"))?;
        Ok(held.expect("it was waited for"))
    }

    /// Takes the writer state, unless another transaction holds it.
    fn if_free(inner: &Arc<Inner>) -> Result<Option<Held>, StoreError> {
        Held::of(
            inner,
            &mut inner.writer.lock().expect("no thread panics here"),
        )
    }

    /// Takes the writer state from its place. `None` if a transaction has it.
    ///
    /// # Errors
    /// A thread panicked while it had the state.
    fn of(inner: &Arc<Inner>, place: &mut Place) -> Result<Option<Held>, StoreError> {
        match std::mem::replace(place, Place::Away) {
            Place::Here(writer) => {
                inner.is_used();
                Ok(Some(Held {
                    inner: Arc::clone(inner),
                    writer: Some(writer),
                }))
            }
            Place::Away => Ok(None),
            Place::Lost => {
                *place = Place::Lost;
                Err(StoreError::Broken(
                    "a thread panicked that wrote to it".into(),
                ))
            }
        }
    }

    /// Gives the state back and wakes the next writer.
    pub(super) fn give_back(mut self) {
        if let Some(writer) = self.writer.take() {
            self.put(Place::Here(writer));
        }
    }

    fn put(&self, place: Place) {
        let is_lost = matches!(place, Place::Lost);
        *self.inner.writer.lock().expect("no thread panics here") = place;
        if is_lost {
            self.inner.is_free.notify_all()
        } else {
            self.inner.is_free.notify_one()
        }
    }
}

impl Deref for Held {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        self.writer.as_ref().expect("it is given back once")
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Writer {
        self.writer.as_mut().expect("it is given back once")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // In a forked process no other thread writes, and the lock may be held forever.
        if self.writer.take().is_some() && self.inner.pages.is_ours() {
            self.put(Place::Lost);
        }
    }
}

/// A unique number of this thread, from 1.
fn thread_number() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = THREADS.fetch_add(1, Ordering::Relaxed) + 1;
    }
    NUMBER.with(|number| *number)
}

impl Inner {
    /// Waits for all commits, and finishes pending drops. If a transaction is writing, it is left
    /// to that transaction's beginning, or to a later one.
    pub(super) fn finish_drops_if_free(self: &Arc<Inner>) -> Result<(), StoreError> {
        self.pages.must_be_ours()?;
        let Some(mut mine) = Held::if_free(self)? else {
            return Ok(());
        };
        let done = self.turn(&mut mine, true).map(drop);
        mine.give_back();
        done
    }

    /// Records that this thread uses the writing transaction.
    pub(super) fn is_used(&self) {
        self.writing.store(thread_number(), Ordering::SeqCst);
    }

    /// Takes a turn to write. With `waits` it waits for all earlier commits. If no commit is in
    /// flight, first finishes pending drops of tables. If a group has failed since the state
    /// `writer` was read, reads it again.
    fn turn(&self, writer: &mut Writer, waits: bool) -> Result<Turn, StoreError> {
        if waits {
            let _ = self.pages.wait_for_all();
        }
        let is_left = writer.dropped > 0 || writer.has_left && !writer.cannot_sweep;
        if is_left && !self.is_read_only && self.pages.has_no_open_group() {
            self.finish_drops(writer)?;
        }
        let turn = self.pages.turn()?;
        if turn.failures() != writer.failures {
            // Earlier transactions failed, so the state they left in memory is invalid.
            self.look_again(&turn, writer)?;
        }
        Ok(turn)
    }

    /// Rereads the writer state from the newest pages.
    pub(super) fn look_again(&self, turn: &Turn, writer: &mut Writer) -> Result<(), StoreError> {
        let head = turn.read(HEAD)?;
        let head = head.as_deref().map(parse_head).transpose()?.flatten();
        let damaged = || StoreError::Damaged("the first page does not name the catalog".into());
        let head = head.ok_or_else(damaged)?;
        (writer.catalog, writer.is_older) = (head.catalog, head.is_older);
        (writer.dropped, writer.has_left) = (head.dropped, head.has_left);
        writer.counts.clear();
        // No group is in flight: all have failed.
        writer.space = Some(Space::new(&self.pages.held(), self.mistaken)?);
        writer.failures = turn.failures();
        Ok(())
    }

    /// Waits for all commits and writes key counts into the catalog. If that fails, keys are
    /// counted again later.
    fn end(&mut self) -> Result<(), StoreError> {
        let Ok(place) = self.writer.get_mut() else {
            return Ok(());
        };
        match std::mem::replace(place, Place::Lost) {
            Place::Here(writer) if !self.is_read_only && self.pages.is_ours() => {
                match write_counts(writer, self.pages.turn()?) {
                    // If a commit of the same group is lost, the close of the pages reports it.
                    Err(StoreError::Full(_)) => Ok(()),
                    done => done,
                }
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Writes key counts that the catalog lacks, as the last transaction before a close: during the
/// life of the store each transaction would write another page for them.
fn write_counts(mut writer: Writer, turn: Turn) -> Result<(), StoreError> {
    // Freed pages of a table that is still being dropped must not be taken: the drop recognises
    // freed pages by being empty.
    if turn.failures() != writer.failures || writer.dropped > 0 {
        return Ok(());
    }
    let space = writer.space.take().expect("no transaction has it");
    let mut changed = Changed::new(turn, space);
    let mut catalog = writer.catalog;
    for (name, keys) in writer.counts {
        let found = read::walk(&changed, catalog)?.get(name.as_bytes())?;
        let Some(found) = found else { continue };
        let record = Record::parse(&name, &found)?;
        drop(found);
        if record.keys.is_none() {
            let keys = Some(keys);
            let record = Some(Record { keys, ..record });
            catalog = put_record(&mut changed, catalog, &name, record)?;
        }
    }
    if catalog != writer.catalog {
        changed.set(HEAD, Some(head(catalog, 0, writer.has_left)));
    }
    let (turn, changes, _) = changed.finish();
    turn.commit(changes)?.wait()
}

impl Store {
    /// Opens a store in a file or on a block device. Creates one if there is none.
    ///
    /// # Errors
    /// Something else is there, another process or handle has it open, or a system call fails.
    pub fn open(path: impl AsRef<Path>) -> Result<Store, StoreError> {
        Store::with(path, &OpenOptions::default())
    }

    /// Like [`Store::open`], with options.
    ///
    /// # Errors
    /// As [`Store::open`], or the options are invalid.
    pub fn with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Store, StoreError> {
        let path = path.as_ref();
        let right = Mistaken::default();
        if options.protocol != OpenOptions::default().protocol && options.would_make(path) {
            // Some protocols do not support tables. Fail before a file is created.
            let small = OpenOptions {
                bytes: 0,
                ..options.clone()
            };
            Store::on(Box::new(Memory::default()), &small)?;
        }
        let store = Store::over(SharedPages::open(path, options)?, options, right);
        store.map_err(|error| error.at(path))
    }

    /// Makes commits join a group without checking for room.
    #[cfg(test)]
    pub(super) fn ask_for_no_room(&self) {
        self.0.pages.ask_for_no_room();
    }

    /// Opens a store on a medium.
    ///
    /// # Errors
    /// As [`Store::with`].
    pub fn on(medium: Box<dyn Medium>, options: &OpenOptions) -> Result<Store, StoreError> {
        Store::mistaken(medium, options, Mistaken::default())
    }

    /// Like [`Store::on`], with a deliberate mistake, in builds that support mistakes.
    ///
    /// # Errors
    /// As [`Store::on`].
    #[doc(hidden)]
    pub fn mistaken(
        medium: Box<dyn Medium>,
        options: &OpenOptions,
        mistaken: Mistaken<Mistake>,
    ) -> Result<Store, StoreError> {
        Store::over(SharedPages::on(medium, options)?, options, mistaken)
    }

    /// Opens the tables in `pages`, and creates an empty catalog if the pages hold nothing. A store
    /// that is opened only for reading stays empty.
    fn over(
        pages: SharedPages,
        options: &OpenOptions,
        mistaken: Mistaken<Mistake>,
    ) -> Result<Store, StoreError> {
        let held = pages.held();
        let snapshot = pages.snapshot()?;
        let first = snapshot.read(HEAD)?;
        let found = match &first {
            Some(page) => parse_head(page)?,
            None => None,
        };
        if found.is_none() && !held.is_empty() {
            let second = snapshot.read(Lpn(1))?;
            let pages = [&first, &second].map(|page| page.as_deref().unwrap_or_default());
            return Err(StoreError::NotAStore(format!(
                "{}, and tables in a store of their own",
                Holds::of(pages).advice()
            )));
        }
        drop(snapshot);
        let mut space = Space::new(&held, mistaken)?;
        let head = if let Some(head) = found {
            head
        } else {
            let catalog = Root {
                at: FIRST_ROOT,
                height: 1,
            };
            if !options.read_only {
                let mut page = vec![0; PageStore::PAGE_BYTES];
                write_empty(&mut page);
                let changes = Changes::from([
                    (HEAD, Some(head(catalog, 0, false))),
                    (FIRST_ROOT, Some(page.into())),
                ]);
                pages.turn()?.commit(changes)?.wait()?;
                space = Space::new(&[HEAD, FIRST_ROOT], mistaken)?;
            }
            Head {
                catalog,
                dropped: 0,
                has_left: false,
                is_older: false,
            }
        };
        let writer = Place::Here(Writer {
            catalog: head.catalog,
            dropped: head.dropped,
            has_left: head.has_left,
            cannot_sweep: false,
            is_older: head.is_older,
            failures: 0,
            counts: BTreeMap::new(),
            space: Some(space),
        });
        Ok(Store(Arc::new(Inner {
            pages,
            writer: Mutex::new(writer),
            writing: AtomicU64::new(0),
            is_free: Condvar::new(),
            is_read_only: options.read_only,
            mistaken,
            leisure: Leisure::default(),
        })))
    }

    /// Begins to read the current durable state of the tables. Does not wait for writers.
    ///
    /// # Errors
    /// The store failed before, a page is damaged, or this process was forked after it was opened.
    pub fn read(&self) -> Result<ReadTx, StoreError> {
        loop {
            match ReadTx::new(self.0.pages.snapshot()?) {
                // The store reopened itself for lack of space since the snapshot was taken.
                Err(StoreError::SnapshotEnded) => std::thread::yield_now(),
                begun => return begun,
            }
        }
    }

    /// Begins to write. Write transactions take turns: this waits until the previous one was
    /// committed or rolled back. A transaction may move to another thread; it belongs to that
    /// thread once its tables are used there.
    ///
    /// # Errors
    /// The store is read-only, or failed before. Or this thread already has a write transaction
    /// ([`StoreError::Nested`]).
    pub fn write(&self) -> Result<WriteTx, StoreError> {
        self.begin_to_write(false)
    }

    /// Like [`Store::write`]. With `alone` no commit is in flight: a lack of room fails it alone.
    pub(super) fn begin_to_write(&self, alone: bool) -> Result<WriteTx, StoreError> {
        if self.0.is_read_only {
            Err(StoreError::ReadOnly)
        } else {
            self.begin(alone)
        }
    }

    pub(super) fn leisure(&self) -> &Leisure {
        &self.0.leisure
    }

    pub(super) fn is_mistaken(&self, mistake: Mistake) -> bool {
        self.0.mistaken.is(mistake)
    }

    /// Whether a transaction writes now.
    pub(super) fn has_writer(&self) -> bool {
        let place = self.0.writer.lock().expect("no thread panics here");
        !matches!(*place, Place::Here(_))
    }

    /// The underlying pages.
    pub(crate) fn pages(&self) -> &SharedPages {
        &self.0.pages
    }

    /// Begins to write. With `waits` it waits for all earlier commits.
    fn begin(&self, waits: bool) -> Result<WriteTx, StoreError> {
        self.0.pages.must_be_ours()?;
        let mut mine = Held::take(&self.0)?;
        let turn = match self.0.turn(&mut mine, waits) {
            Ok(turn) => turn,
            Err(error) => {
                mine.give_back();
                return Err(error);
            }
        };
        let space = mine.space.take().expect("no transaction has it");
        Ok(WriteTx::new(
            self.0.clone(),
            Changed::new(turn, space),
            mine,
        ))
    }

    /// Closes the store if this is its last handle: all commits are then durable. Dropping it does
    /// the same, but the error is lost. Open readers keep the file open.
    ///
    /// # Errors
    /// The medium fails, or an unwaited commit is lost because its group found no room. All other
    /// commits are there when the store is opened again.
    pub fn close(self) -> Result<(), StoreError> {
        let Some(mut inner) = Arc::into_inner(self.0) else {
            return Ok(());
        };
        let ended = inner.end();
        let pages = inner.pages.clone();
        drop(inner);
        ended.and(pages.close())
    }

    /// Collects old versions ahead of need, in idle time: see
    /// [`PageStore::idle`](crate::PageStore::idle). Moves at most `pages` pages and returns how
    /// many; 0 means that nothing is left to do. A commit that arrives meanwhile waits for it. When
    /// there is nothing to collect, tables from which many rows were removed are compacted
    /// ([`Store::compact`]), if the store holds at most 64 times `pages` pages and no transaction
    /// or commit is in flight. It then returns the number of pages given back.
    ///
    /// # Errors
    /// The store was opened for reading, or the medium fails.
    pub fn idle(&self, pages: u32) -> Result<u32, StoreError> {
        match self.0.pages.idle(pages)? {
            0 => self.compact_at_leisure(pages),
            moved => Ok(moved),
        }
    }

    /// Checks all tables, in a writer's turn: order and fill of their nodes, and that each page is
    /// used once or free. Reads all pages, also those of long values.
    ///
    /// # Errors
    /// Describes the inconsistency and names the table.
    pub fn check(&self) -> Result<(), String> {
        if self.0.is_read_only && self.pages().held().is_empty() {
            // Nothing was ever stored, not even the catalog.
            return Ok(());
        }
        let say = |error: StoreError| error.to_string();
        let mut tx = self.begin(false).map_err(say)?;
        tx.check()
    }

    /// The number of nonempty pages.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.0.pages.held().len()
    }
}
