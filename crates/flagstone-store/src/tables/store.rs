//! A store of tables: opening it, and the turn of writers.

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
use flagstone::index::prefix_bptree::{Root, write_empty};
use flagstone::mistakes::Mistaken;
use flagstone::units::Lpn;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// A store of tables. A clone is the same store, so that each thread can have one.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

pub(super) struct Inner {
    pub(super) pages: SharedPages,
    writer: Mutex<Place>,
    /// The thread that used the transaction last which has the writer, by its number.
    writing: AtomicU64,
    is_free: Condvar,
    is_read_only: bool,
    pub(super) mistaken: Mistaken<Mistake>,
    pub(super) leisure: Leisure,
}

/// What writers hand to each other.
pub(super) struct Writer {
    pub(super) catalog: Root,
    /// Tables of it that are being dropped.
    pub(super) dropped: u32,
    /// Whether a table that is being dropped, or was, has damaged pages, as the first page says:
    /// those that only they led to are still to be given back.
    pub(super) has_left: bool,
    /// Whether this opening has found that they cannot be told, since another table is damaged.
    pub(super) cannot_sweep: bool,
    /// Whether the first page is of an older version: the next commit writes it anew.
    pub(super) is_older: bool,
    /// Groups of transactions that had found no room ([`Turn::failures`]) when the rest was read.
    pub(super) failures: u64,
    /// Numbers of keys that the catalog does not have: it gets them when the store is closed.
    pub(super) counts: BTreeMap<Arc<str>, u64>,
    /// There while no transaction has it.
    pub(super) space: Option<Space>,
}

/// Where the writer is.
enum Place {
    /// No transaction writes.
    Here(Writer),
    /// A transaction has it.
    Away,
    /// A thread has panicked that had it: nobody knows any more which pages are free.
    Lost,
}

/// The writer, for who has it. One that is dropped without [`Held::give_back`], as a panic does, is
/// lost: those that wait for it hear of that.
pub(super) struct Held {
    inner: Arc<Inner>,
    /// Present until it is given back.
    writer: Option<Writer>,
}

impl Held {
    /// Waits for the writer.
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

    /// The writer, unless somebody has it.
    fn if_free(inner: &Arc<Inner>) -> Result<Option<Held>, StoreError> {
        Held::of(
            inner,
            &mut inner.writer.lock().expect("no thread panics here"),
        )
    }

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

    /// Lets the next one write.
    pub(super) fn give_back(mut self) {
        if let Some(writer) = self.writer.take() {
            self.put(Place::Here(writer));
        }
    }

    fn put(&self, place: Place) {
        let is_lost = matches!(place, Place::Lost);
        *self.inner.writer.lock().expect("no thread panics here") = place;
        match is_lost {
            true => self.inner.is_free.notify_all(),
            false => self.inner.is_free.notify_one(),
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
        // In a process that was forked nobody else writes, and the lock may be held for ever.
        if self.writer.take().is_some() && self.inner.pages.is_ours() {
            self.put(Place::Lost);
        }
    }
}

/// The number of this thread: another one for each, from 1.
fn thread_number() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = THREADS.fetch_add(1, Ordering::Relaxed) + 1;
    }
    NUMBER.with(|number| *number)
}

impl Inner {
    /// Waits for all commits, and ends what is being dropped. A writer that there is does so when
    /// its transaction begins, or the one after it.
    pub(super) fn finish_drops_if_free(self: &Arc<Inner>) -> Result<(), StoreError> {
        self.pages.must_be_ours()?;
        let Some(mut mine) = Held::if_free(self)? else {
            return Ok(());
        };
        let done = self.turn(&mut mine, true).map(drop);
        mine.give_back();
        done
    }

    /// Notes that this thread uses the transaction that has the writer.
    pub(super) fn is_used(&self) {
        self.writing.store(thread_number(), Ordering::SeqCst);
    }

    /// A turn to write, for who has the writer: after all commits so far if that is asked for.
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
            // Transactions before this one are gone, and what they left in memory with them.
            self.look_again(&turn, writer)?;
        }
        Ok(turn)
    }

    /// Reads from the newest pages what writers hand to each other.
    pub(super) fn look_again(&self, turn: &Turn, writer: &mut Writer) -> Result<(), StoreError> {
        let head = turn.read(HEAD)?;
        let head = head.as_deref().map(parse_head).transpose()?.flatten();
        let damaged = || StoreError::Damaged("the first page does not name the catalog".into());
        let head = head.ok_or_else(damaged)?;
        (writer.catalog, writer.is_older) = (head.catalog, head.is_older);
        (writer.dropped, writer.has_left) = (head.dropped, head.has_left);
        writer.counts.clear();
        // No group is under way: all that were have failed.
        writer.space = Some(Space::new(&self.pages.held(), self.mistaken)?);
        writer.failures = turn.failures();
        Ok(())
    }

    /// Waits for all commits and brings numbers of keys into the catalog. If that fails they are
    /// counted another time.
    fn end(&mut self) -> Result<(), StoreError> {
        let Ok(place) = self.writer.get_mut() else {
            return Ok(());
        };
        match std::mem::replace(place, Place::Lost) {
            Place::Here(writer) if !self.is_read_only && self.pages.is_ours() => {
                write_counts(writer, self.pages.turn()?)
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

fn write_counts(mut writer: Writer, turn: Turn) -> Result<(), StoreError> {
    // What is being dropped has pages that look free, and are not to be taken.
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
    /// Opens a store in a file or on a block device, and makes one if there is none.
    ///
    /// # Errors
    /// Something else is there, another process or handle has it open, or the system refuses.
    pub fn open(path: impl AsRef<Path>) -> Result<Store, StoreError> {
        Store::with(path, &OpenOptions::default())
    }

    /// Opens a store as [`Store::open`], with options.
    ///
    /// # Errors
    /// As there, or the options cannot be.
    pub fn with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Store, StoreError> {
        let path = path.as_ref();
        let right = Mistaken::default();
        if options.protocol != OpenOptions::default().protocol && options.would_make(path) {
            // Not all protocols can have tables. One that cannot leaves no file.
            let small = OpenOptions {
                bytes: 0,
                ..options.clone()
            };
            Store::on(Box::new(Memory::default()), &small)?;
        }
        let store = Store::over(SharedPages::open(path, options)?, options, right);
        store.map_err(|error| error.at(path))
    }

    /// Has commits join a group whether or not they find room beside it.
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

    /// As [`Store::on`], with a mistake made on purpose, if this build has mistakes.
    ///
    /// # Errors
    /// As there.
    #[doc(hidden)]
    pub fn mistaken(
        medium: Box<dyn Medium>,
        options: &OpenOptions,
        mistaken: Mistaken<Mistake>,
    ) -> Result<Store, StoreError> {
        Store::over(SharedPages::on(medium, options)?, options, mistaken)
    }

    fn over(
        pages: SharedPages,
        options: &OpenOptions,
        mistaken: Mistaken<Mistake>,
    ) -> Result<Store, StoreError> {
        let held = pages.held();
        let first = pages.snapshot()?.read_many(&[HEAD, Lpn(1)])?;
        let mut found = match &first[0] {
            Some(page) => parse_head(page)?,
            None => None,
        };
        if found.is_none() && !held.is_empty() {
            let pages = [0, 1].map(|at| first[at].as_deref().unwrap_or_default());
            return Err(StoreError::NotAStore(format!(
                "{}, and tables in a store of their own",
                Holds::of(pages).advice()
            )));
        }
        let mut space = Space::new(&held, mistaken)?;
        if found.is_none() {
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
            found = Some(Head {
                catalog,
                dropped: 0,
                has_left: false,
                is_older: false,
            });
        }
        // A store that is only read, and that holds nothing, has no writer.
        let writer = found.map_or(Place::Lost, |head| {
            Place::Here(Writer {
                catalog: head.catalog,
                dropped: head.dropped,
                has_left: head.has_left,
                cannot_sweep: false,
                is_older: head.is_older,
                failures: 0,
                counts: BTreeMap::new(),
                space: Some(space),
            })
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

    /// Begins to read the tables as they are: what is durable now. It waits for no writer.
    ///
    /// # Errors
    /// The store failed before, or a page is damaged.
    pub fn read(&self) -> Result<ReadTx, StoreError> {
        ReadTx::new(self.0.pages.snapshot()?)
    }

    /// Begins to write. Transactions that write take turns: this waits until the one before has
    /// committed or was rolled back. A transaction may be handed to another thread; it counts as
    /// one of that thread once its tables are used there.
    ///
    /// # Errors
    /// The store was opened for reading, or failed before. Or this thread is in a write transaction
    /// already ([`StoreError::Nested`]).
    pub fn write(&self) -> Result<WriteTx, StoreError> {
        self.begin_to_write(false)
    }

    /// As [`Store::write`]; `alone` with no commit under way: what finds no room fails by itself.
    pub(super) fn begin_to_write(&self, alone: bool) -> Result<WriteTx, StoreError> {
        match self.0.is_read_only {
            true => Err(StoreError::ReadOnly),
            false => self.begin(alone),
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

    /// The pages below.
    pub(crate) fn pages(&self) -> &SharedPages {
        &self.0.pages
    }

    /// Begins to write, after all commits so far if that is asked for.
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

    /// Closes the store, if this is the last handle of it: all commits are durable then. Dropping
    /// it does the same, but the error is lost. Readers that are left keep the file open.
    ///
    /// # Errors
    /// The medium fails, or a commit that was not waited for is lost: its group found no room. All
    /// other commits are there when the store is opened again.
    pub fn close(self) -> Result<(), StoreError> {
        let Some(mut inner) = Arc::into_inner(self.0) else {
            return Ok(());
        };
        let ended = inner.end();
        let pages = inner.pages.clone();
        drop(inner);
        ended.and(pages.close())
    }

    /// Collects old versions ahead of need, for a program or a thread that has nothing else to do:
    /// see [`PageStore::idle`](crate::PageStore::idle). It moves at most `pages` pages, and returns
    /// how many: none if nothing is left to do. A commit that comes meanwhile waits for it. Once
    /// there is nothing to collect, tables from which many rows were removed are compacted
    /// ([`Store::compact`]), if the store holds at most 64 times `pages` and no transaction or
    /// commit is under way; then it returns how many pages that gave back.
    ///
    /// # Errors
    /// The store was opened for reading, or the medium fails.
    pub fn idle(&self, pages: u32) -> Result<u32, StoreError> {
        match self.0.pages.idle(pages)? {
            0 => self.compact_at_leisure(pages),
            moved => Ok(moved),
        }
    }

    /// Checks all tables, at the turn of a writer: order and fill of their nodes, and that each
    /// page is used once or free. It reads everything.
    ///
    /// # Errors
    /// Says what does not hold, and in which table.
    pub fn check(&self) -> Result<(), String> {
        let say = |error: StoreError| error.to_string();
        let mut tx = self.begin(false).map_err(say)?;
        tx.check()
    }

    /// The number of pages that hold something.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.0.pages.held().len()
    }
}
