//! Pages for several threads: writers take turns, readers hold snapshots.
//!
//! [`SharedPages`] is a [`PageStore`] that a process shares. One [`Turn`] at a time reads the
//! newest pages and commits a set of changes, whole or not at all. A commit gives a [`Ticket`], and
//! the next turn may begin before the ticket is due: transactions whose tickets are waited for at
//! the same time become durable by one flush. A [`PageSnapshot`] shows what was durable when it was
//! taken, for as long as it is held. Only those threads wait for the medium whose commit, or whose
//! page, it is.

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

/// The bytes of a page, at most [`PageStore::PAGE_BYTES`]. They never change.
pub type PageBytes = Arc<[u8]>;

/// What a transaction does: the new bytes of a page, or nothing where the page is to hold nothing.
pub type Changes = BTreeMap<Lpn, Option<PageBytes>>;

/// A store of pages that threads share. A clone is a handle of the same store. When the last handle
/// or snapshot of it is dropped, it is closed.
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
    /// Commits whose tickets were not waited for are written nevertheless.
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
    /// As [`PageStore::open`], or its protocol cannot give snapshots: `seal` can.
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
        // A group has its changes in memory, and a transaction of the store is over with its call.
        store.recover_from_no_room(true, false);
        let groups = Groups::over(Arc::new(Core::new(store, cache)))?;
        Ok(SharedPages(Arc::new(Inner(groups))))
    }

    /// Waits for the turn to write. One that is dropped changes nothing. A store that was opened
    /// for reading has turns as well, to look at what is newest.
    ///
    /// # Errors
    /// The store failed before, or this process was forked since it was opened.
    pub fn turn(&self) -> Result<Turn, StoreError> {
        self.must_be_ours()?;
        Ok(Turn {
            failures: self.0.0.take_turn()?,
            pages: self.clone(),
        })
    }

    /// Has commits join a group whether or not they find room beside it.
    #[cfg(test)]
    pub(crate) fn ask_for_no_room(&self) {
        self.0.0.make(groups::Mistake::AsksForNoRoom);
    }

    /// Whether this process opened the store: one that was forked since has no part in it.
    pub(crate) fn is_ours(&self) -> bool {
        self.0.0.core().is_ours()
    }

    /// As an error, where it did not.
    pub(crate) fn must_be_ours(&self) -> Result<(), StoreError> {
        match self.is_ours() {
            true => Ok(()),
            false => Err(StoreError::Broken(
                "it is open in the process that this one was forked from: open it after the fork, \
                 and in one of the two"
                    .into(),
            )),
        }
    }

    /// Takes a snapshot of what is durable. It waits for no writer.
    ///
    /// # Errors
    /// The store failed before.
    pub fn snapshot(&self) -> Result<PageSnapshot, StoreError> {
        Ok(PageSnapshot(self.0.0.newest()?))
    }

    /// Collects old versions ahead of need as [`PageStore::idle`] does. A commit that comes
    /// meanwhile waits for it.
    ///
    /// # Errors
    /// As there, or this process was forked since the store was opened.
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

    /// Gives back the room that the store does not need, as [`PageStore::compact`] does, at a
    /// writer's turn. Others that read or write wait for it. Returns how many bytes the file has
    /// lost: none while somebody holds a snapshot of what was replaced since.
    ///
    /// # Errors
    /// As there, or this process was forked since the store was opened.
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

    /// Closes the store, if this is the last handle of it: all commits are durable then. Dropping
    /// it does the same, but the error is lost. A snapshot or a ticket that is left keeps the store
    /// open.
    ///
    /// # Errors
    /// The medium fails, or a commit is lost whose ticket was dropped: the error is that of the
    /// first such commit.
    pub fn close(self) -> Result<(), StoreError> {
        let Some(inner) = Arc::into_inner(self.0) else {
            return Ok(());
        };
        if !inner.0.core().is_ours() {
            return Ok(());
        }
        let waited = match inner.0.core().has_panicked() {
            true => Ok(()),
            false => inner.0.wait_for_all(),
        };
        let told = inner.0.lost().and(waited);
        let core = Arc::clone(inner.0.core());
        // The snapshot that readers begin with has the core as well.
        drop(inner);
        let closed = Arc::into_inner(core).map_or(Ok(()), Core::close);
        told.and(closed)
    }

    /// Calls a function with the store below.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut PageStore) -> T) -> T {
        act(&mut self.0.0.core().store())
    }

    /// Whether all commits so far are durable, or lost.
    pub(crate) fn has_no_open_group(&self) -> bool {
        self.0.0.has_no_open_group()
    }

    /// Waits until all commits so far are durable, or lost.
    pub(crate) fn wait_for_all(&self) -> Result<(), StoreError> {
        self.0.0.wait_for_all()
    }

    /// The pages that hold something durable, in ascending order.
    pub(crate) fn held(&self) -> Vec<Lpn> {
        self.0.0.core().store().held().collect()
    }
}

/// The turn of a writer. It is given up when it is dropped or committed.
pub struct Turn {
    pages: SharedPages,
    failures: u64,
}

impl Turn {
    /// How many groups of transactions have found no room. What a writer keeps of pages in memory
    /// from one turn to the next holds only as long as this number stays the same.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// The newest bytes of a page, whether they are durable yet or not; nothing if it holds none.
    ///
    /// # Errors
    /// The page was lost, or the medium fails. Or a transaction before this one found no room
    /// ([`StoreError::Full`]), so that what this turn has read will not be: begin again.
    pub fn read(&self, at: Lpn) -> Result<Option<PageBytes>, StoreError> {
        self.pages.0.0.read(self.failures, at)
    }

    /// The newest bytes of several pages, read side by side.
    ///
    /// # Errors
    /// As [`Turn::read`].
    pub fn read_many(&self, pages: &[Lpn]) -> Result<Vec<Option<PageBytes>>, StoreError> {
        self.pages.0.0.read_many(self.failures, pages)
    }

    /// Commits changes, whole or not at all, and gives up the turn. The next turn sees them at
    /// once; snapshots see them when they are durable.
    ///
    /// # Errors
    /// The store was opened for reading, a page is too long, or as [`Turn::read`]: nothing has
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

/// A commit that may not be durable yet. One that is dropped becomes durable with a later one that
/// is waited for, or when the store is closed. If it is lost, [`SharedPages::close`] says so.
#[must_use = "a commit is durable when its ticket was waited for"]
pub struct Ticket {
    pages: SharedPages,
    /// Present until the ticket is waited for.
    outcome: Option<Outcome>,
}

impl Ticket {
    /// Waits until the commit is durable.
    ///
    /// # Errors
    /// The store is full ([`StoreError::Full`]): nothing has changed, and what later turns have
    /// read of this transaction is gone with it. Or the medium fails: whether the transaction has
    /// committed is open until the store is opened again. Or this process was forked since: the
    /// commit is up to the one that opened the store.
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

/// What was durable at a moment. To drop it gives it back.
#[derive(Clone)]
pub struct PageSnapshot(Arc<Durable>);

impl PageSnapshot {
    /// The bytes of a page; nothing if it held none.
    ///
    /// # Errors
    /// The snapshot has ended (see [`PageStore::snapshot`]), the page was lost, or the medium
    /// fails.
    pub fn read(&self, at: Lpn) -> Result<Option<PageBytes>, StoreError> {
        self.0.core.read(Some(self.0.seen), at)
    }

    /// The bytes of a page that nearly every reader asks for. Such pages are kept with the
    /// snapshot, a few of them, and are found there without any lock.
    ///
    /// # Errors
    /// As [`PageSnapshot::read`].
    pub(crate) fn read_often(&self, at: Lpn) -> Result<Option<PageBytes>, StoreError> {
        self.0.read_often(at)
    }

    /// The snapshot of the store below.
    pub(crate) fn id(&self) -> SnapshotId {
        self.0.id()
    }

    /// What its readers keep together: nothing changes it but they, and it goes with the snapshot.
    pub(crate) fn noted<T: Default + Send + Sync + 'static>(&self) -> &T {
        self.0.noted()
    }

    /// The bytes of several pages, read side by side.
    ///
    /// # Errors
    /// As [`PageSnapshot::read`].
    pub fn read_many(&self, pages: &[Lpn]) -> Result<Vec<Option<PageBytes>>, StoreError> {
        self.0.core.read_many(Some(self.0.seen), pages)
    }
}
