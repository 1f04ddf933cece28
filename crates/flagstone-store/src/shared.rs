//! Pages for several threads: writers take turns, readers use snapshots.
//!
//! [`SharedPages`] is a [`PageStore`] that threads share. One [`Turn`] at a time reads the newest
//! pages and commits a set of changes atomically. A commit returns a [`Ticket`], and the next turn
//! may begin before the ticket is durable: transactions whose tickets are awaited at the same time
//! share one flush. A [`PageSnapshot`] shows the durable state at the time it was taken. A thread
//! waits for the medium only for its own commits and page reads.

mod ahead;
mod groups;
mod memory;
mod reads;
#[cfg(test)]
pub(crate) mod tests;

use crate::error::StoreError;
use crate::medium::Medium;
use crate::pages::{OpenOptions, PageStore};
use flagstone::commit::DeviceError;
use flagstone::units::{Lpn, SnapshotId};
use groups::{Groups, Outcome};
use reads::{Core, Durable};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The bytes of a page, at most [`PageStore::PAGE_BYTES`]. Immutable.
///
/// Example: [`SharedPages`].
pub type PageBytes = Arc<[u8]>;

/// The changes of a transaction: the new bytes of each page; `None` trims the page.
///
/// Example: [`SharedPages`].
pub type Changes = BTreeMap<Lpn, Option<PageBytes>>;

/// A store of pages shared by threads. A clone is a handle to the same store. Dropping the last
/// handle or snapshot closes the store.
///
/// ```
/// use flagstone::units::Lpn;
/// use flagstone_store::{Changes, OpenOptions, SharedPages};
///
/// let folder = tempfile::tempdir()?;
/// let pages = SharedPages::open(&folder.path().join("pages.flag"), &OpenOptions::default())?;
/// let before = pages.snapshot()?;
/// let changes = Changes::from([(Lpn(3), Some(b"three"[..].into()))]);
/// let ticket = pages.turn()?.commit(changes)?; // the next turn can begin
/// ticket.wait()?; // the commit is durable
/// assert!(before.read(Lpn(3))?.is_none());
/// assert_eq!(pages.snapshot()?.read(Lpn(3))?.as_deref(), Some(&b"three"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedPages(Arc<Inner>);

struct Inner(Groups);

impl Drop for Inner {
    /// Commits whose tickets were not awaited are written nevertheless.
    fn drop(&mut self) {
        let core = self.0.core();
        if !core.is_ours() {
            return;
        }
        if core.has_panicked() {
            core.abandon();
        } else if !std::thread::panicking() {
            let _ = self.0.wait_for_all();
        }
    }
}

impl SharedPages {
    /// Opens a store in a file or on a block device.
    ///
    /// # Errors
    /// As [`PageStore::open`], or its protocol does not support snapshots; `seal` does.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<SharedPages, StoreError> {
        SharedPages::over(PageStore::open(path, options)?, options.cache)
    }

    /// Opens a store on a medium.
    ///
    /// # Errors
    /// As [`SharedPages::open`].
    pub fn on(medium: Box<dyn Medium>, options: &OpenOptions) -> Result<SharedPages, StoreError> {
        SharedPages::over(PageStore::on(medium, options)?, options.cache)
    }

    fn over(mut store: PageStore, cache: u64) -> Result<SharedPages, StoreError> {
        // A group's changes are in memory, and a transaction of the store ends within one call.
        store.recover_from_no_room(true, false);
        let groups = Groups::over(Arc::new(Core::new(store, cache)))?;
        Ok(SharedPages(Arc::new(Inner(groups))))
    }

    /// Waits for the turn to write. Dropping the turn changes nothing. A store opened for reading
    /// has turns as well, to read the newest pages.
    ///
    /// # Errors
    /// The store failed before, or this process was forked after the store was opened.
    pub fn turn(&self) -> Result<Turn, StoreError> {
        self.must_be_ours()?;
        Ok(Turn {
            failures: self.0.0.take_turn()?,
            pages: self.clone(),
        })
    }

    /// Lets commits join a group without checking for room: a mistake for controls.
    #[cfg(test)]
    pub(crate) fn ask_for_no_room(&self) {
        self.0.0.make(groups::Mistake::AsksForNoRoom);
    }

    /// Whether this process opened the store. A forked process must not use it.
    pub(crate) fn is_ours(&self) -> bool {
        self.0.0.core().is_ours()
    }

    /// An error if this process did not open the store.
    pub(crate) fn must_be_ours(&self) -> Result<(), StoreError> {
        self.0.0.core().must_be_ours()
    }

    /// Takes a snapshot of the durable state. Does not wait for writers.
    ///
    /// # Errors
    /// The store failed before, or this process was forked after the store was opened.
    pub fn snapshot(&self) -> Result<PageSnapshot, StoreError> {
        self.must_be_ours()?;
        Ok(PageSnapshot(self.0.0.newest()?))
    }

    /// Collects old versions ahead of need, like [`PageStore::idle`]. Commits wait for it.
    ///
    /// # Errors
    /// As [`PageStore::idle`], or this process was forked after the store was opened.
    pub fn idle(&self, pages: u32) -> Result<u32, StoreError> {
        self.must_be_ours()?;
        let core = self.0.0.core();
        let (moved, epoch) = {
            let mut store = core.store();
            (store.idle(pages), core.places.epoch())
        };
        let moved = moved.and_then(|moved| match core.places.carry_out_of(epoch) {
            Ok(()) => Ok(moved),
            Err(_) => Err(core.store().failed()),
        });
        self.0.0.newest().and(moved)
    }

    /// Gives back room that the store does not need, like [`PageStore::compact`], in a writer's
    /// turn. Other readers and writers wait. Returns the number of bytes by which the file has
    /// shrunk: 0 while a snapshot uses pages that were replaced since.
    ///
    /// # Errors
    /// As [`PageStore::compact`], or this process was forked after the store was opened.
    pub fn compact(&self) -> Result<u64, StoreError> {
        let turn = self.turn()?;
        match self.wait_for_all() {
            Ok(()) | Err(StoreError::Full(_)) => {}
            Err(error) => return Err(error),
        }
        let core = self.0.0.core();
        let mut store = core.store();
        core.give_back(&mut store);
        let gone = store.compact();
        drop(store);
        drop(turn);
        self.0.0.newest().and(gone)
    }

    /// Closes the store if this is its last handle, after making all commits durable. Dropping the
    /// handle does the same, but ignores errors. A remaining snapshot or ticket keeps the store
    /// open.
    ///
    /// # Errors
    /// The medium fails, or a commit whose ticket was dropped is lost: the error of the first such
    /// commit.
    pub fn close(self) -> Result<(), StoreError> {
        let Some(inner) = Arc::into_inner(self.0) else {
            return Ok(());
        };
        if !inner.0.core().is_ours() {
            return Ok(());
        }
        let waited = if inner.0.core().has_panicked() {
            Ok(())
        } else {
            inner.0.wait_for_all()
        };
        let told = inner.0.lost().and(waited);
        let core = Arc::clone(inner.0.core());
        // The cached snapshot of readers also holds the core.
        drop(inner);
        let closed = Arc::into_inner(core).map_or(Ok(()), Core::close);
        told.and(closed)
    }

    /// Calls a function with the underlying store.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut PageStore) -> T) -> T {
        act(&mut self.0.0.core().store())
    }

    /// Whether all commits so far are durable or failed.
    pub(crate) fn has_no_open_group(&self) -> bool {
        self.0.0.has_no_open_group()
    }

    /// Waits until all commits so far are durable or failed.
    pub(crate) fn wait_for_all(&self) -> Result<(), StoreError> {
        self.0.0.wait_for_all()
    }

    /// The pages that hold durable data, in ascending order.
    pub(crate) fn held(&self) -> Vec<Lpn> {
        self.0.0.core().store().held().collect()
    }
}

/// A writer's turn. It ends when it is dropped or committed.
///
/// ```
/// use flagstone::units::Lpn;
/// use flagstone_store::medium::Memory;
/// use flagstone_store::{Changes, OpenOptions, SharedPages, StoreError};
///
/// let pages = SharedPages::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// let first = pages.turn()?.commit(Changes::from([(Lpn(0), Some([1].into()))]))?;
///
/// // The next turn sees the commit, although nobody has waited for it.
/// let turn = pages.turn()?;
/// let count = turn.read(Lpn(0))?.map_or(0, |page| page[0]);
/// let second = turn.commit(Changes::from([(Lpn(0), Some([count + 1].into()))]))?;
/// first.wait()?;
/// second.wait()?;
/// assert_eq!(pages.snapshot()?.read(Lpn(0))?.as_deref(), Some(&[2][..]));
/// # Ok::<(), StoreError>(())
/// ```
pub struct Turn {
    pages: SharedPages,
    failures: u64,
}

impl Turn {
    /// The number of groups that failed for lack of room. Pages that a writer caches from one turn
    /// to the next are valid only while this number stays the same.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// The newest bytes of a page, durable or not. `None` if the page holds nothing.
    ///
    /// # Errors
    /// The page was lost, or the medium fails. Or an earlier transaction found no room
    /// ([`StoreError::Full`]), which invalidates what this turn has read: begin again.
    pub fn read(&self, at: Lpn) -> Result<Option<PageBytes>, StoreError> {
        self.pages.0.0.read(self.failures, at)
    }

    /// The newest bytes of several pages, read concurrently.
    ///
    /// # Errors
    /// As [`Turn::read`].
    pub fn read_many(&self, pages: &[Lpn]) -> Result<Vec<Option<PageBytes>>, StoreError> {
        self.pages.0.0.read_many(self.failures, pages)
    }

    /// Commits changes atomically and ends the turn. The next turn sees them at once, snapshots
    /// once they are durable.
    ///
    /// # Errors
    /// The store was opened for reading, a page is too long, or as [`Turn::read`]. Nothing has
    /// changed.
    pub fn commit(self, changes: Changes) -> Result<Ticket, StoreError> {
        let lengths = changes.values().flatten().map(|page| page.len());
        let longest = lengths.max().unwrap_or(0);
        if longest > PageStore::PAGE_BYTES {
            return Err(StoreError::Device(DeviceError::TooLong {
                bytes: longest,
                page_bytes: PageStore::PAGE_BYTES as u32,
            }));
        }
        Ok(Ticket {
            outcome: Some(self.pages.0.0.add(self.failures, changes)?),
            pages: self.pages.clone(),
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.pages.is_ours() {
            self.pages.0.0.give_turn_up();
        }
    }
}

/// A commit that may not be durable yet. The commit of a dropped ticket becomes durable with a
/// later awaited one, or when the store is closed. If it fails, [`SharedPages::close`] reports it.
///
/// Examples: [`SharedPages`], [`Turn`].
#[must_use = "a commit is durable when its ticket was waited for"]
pub struct Ticket {
    pages: SharedPages,
    /// Present until the ticket is awaited.
    outcome: Option<Outcome>,
}

impl Ticket {
    /// Waits until the commit is durable.
    ///
    /// # Errors
    /// The store is full ([`StoreError::Full`]): nothing has changed, and later turns that have
    /// read this transaction fail too. Or the medium fails: whether the transaction has committed
    /// is unknown until the store is opened again. Or this process was forked: the commit is up to
    /// the process that opened the store.
    pub fn wait(mut self) -> Result<(), StoreError> {
        self.pages.must_be_ours()?;
        let outcome = self.outcome.take().expect("a ticket is waited for once");
        self.pages.0.0.wait(&outcome)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome.take()
            && self.pages.is_ours()
        {
            self.pages.0.0.leave(outcome);
        }
    }
}

/// A snapshot of the durable state. Dropping the last handle releases it.
///
/// Example: [`SharedPages`].
#[derive(Clone)]
pub struct PageSnapshot(Arc<Durable>);

impl PageSnapshot {
    /// The bytes of a page; `None` if the page holds nothing.
    ///
    /// # Errors
    /// The snapshot has ended (see [`PageStore::snapshot`]), the page was lost, or the medium
    /// fails.
    pub fn read(&self, at: Lpn) -> Result<Option<PageBytes>, StoreError> {
        self.0.core.read(Some(self.0.seen), at)
    }

    /// The bytes of a page that nearly every reader needs. A few such pages are kept with the
    /// snapshot and found there without a lock.
    ///
    /// # Errors
    /// As [`PageSnapshot::read`].
    pub(crate) fn read_often(&self, at: Lpn) -> Result<Option<PageBytes>, StoreError> {
        self.0.read_often(at)
    }

    /// The id of the snapshot in the underlying store.
    pub(crate) fn id(&self) -> SnapshotId {
        self.0.id()
    }

    /// State shared by the readers of this snapshot, and dropped with it.
    pub(crate) fn noted<T: Default + Send + Sync + 'static>(&self) -> &T {
        self.0.noted()
    }

    /// The bytes of several pages, read concurrently.
    ///
    /// # Errors
    /// As [`PageSnapshot::read`].
    pub fn read_many(&self, pages: &[Lpn]) -> Result<Vec<Option<PageBytes>>, StoreError> {
        self.0.core.read_many(Some(self.0.seen), pages)
    }
}
