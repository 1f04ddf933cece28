//! Reads concurrent with the writer: cached pages, and reads from the medium.
//!
//! The place of a page is looked up under the store's lock, briefly. The page is then read from the
//! medium without the lock. Meanwhile the collector may move the page, and its block may be erased
//! and rewritten. So the data is valid only with the generation that was looked up and the correct
//! checksum. Otherwise the place is looked up again: the page is damaged only if the place is
//! unchanged. If the snapshot was ended meanwhile, the second lookup reports it.
//!
//! Snapshots are immutable. So each caches pages that nearly every reader needs, such as inner
//! nodes, by page number alone: they are found without a lock. [`Memory`] caches the others.
//!
//! The store counts its commits. A snapshot stores the number of the last one that it shows.

use super::ahead::Ahead;
use super::memory::Memory;
use super::{Changes, PageBytes};
use crate::error::StoreError;
use crate::flash::places::{Found, Place, Places};
use crate::pages::PageStore;
use flagstone::commit::DeviceError;
use flagstone::units::{Lpn, SnapshotId};
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Maximum number of pages that a snapshot caches itself: half a mebibyte.
const OFTEN: usize = 128;

/// A snapshot to read: its id in the store, and the last commit that it shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    id: SnapshotId,
    commit: u64,
}

/// A looked-up page: its place, whether it is the newest version, and the last commit before.
struct Looked {
    place: Option<Place>,
    is_newest: bool,
    last: u64,
}

/// State shared by readers and the writer.
pub(super) struct Core {
    store: Mutex<PageStore>,
    pub(super) places: Arc<Places>,
    memory: Memory,
    /// Number of commits, counted under the store's lock.
    commits: AtomicU64,
    ahead: Ahead,
    /// Snapshots without readers that the store still holds.
    ended: Mutex<Vec<SnapshotId>>,
    read_only: bool,
    /// Whether a thread panicked while it changed the store.
    panicked: AtomicBool,
    /// The process that opened the store.
    process: u32,
}

/// The error after a thread has panicked: the state in memory is undefined.
fn panicked() -> StoreError {
    StoreError::Broken("a thread panicked that wrote to it".into())
}

impl Core {
    pub(super) fn new(store: PageStore, cache_bytes: u64) -> Core {
        let places = store.work_apart();
        let read_only = matches!(store.may_write(), Err(StoreError::ReadOnly));
        Core {
            ahead: Ahead::default(),
            places,
            store: Mutex::new(store),
            memory: Memory::new(cache_bytes),
            commits: AtomicU64::new(0),
            ended: Mutex::default(),
            read_only,
            panicked: AtomicBool::new(false),
            process: std::process::id(),
        }
    }

    /// Whether this process opened the store. A forked process has its memory, but not its threads.
    /// A lock that one of these held stays locked there, and waiting for one of them never ends.
    pub(super) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    pub(super) fn store(&self) -> MutexGuard<'_, PageStore> {
        self.store.lock().expect("no thread panics here")
    }

    /// Closes the store. Returns a failure of the close, or an earlier one.
    pub(super) fn close(self) -> Result<(), StoreError> {
        if self.has_panicked() {
            self.abandon();
            return Err(panicked());
        }
        self.store.into_inner().map_err(|_| panicked())?.close()
    }

    /// Whether a thread has panicked while it changed the store.
    pub(super) fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::SeqCst) || self.store.is_poisoned()
    }

    /// Abandons the store after a panic, as if the process had died: its state in memory may be
    /// inconsistent, and a close would write it.
    pub(super) fn abandon(&self) {
        self.panicked.store(true, Ordering::SeqCst);
        let store = self.store.lock();
        store.unwrap_or_else(|held| held.into_inner()).abandon();
    }

    /// Checks that changes can be committed.
    pub(super) fn may_write(&self) -> Result<(), StoreError> {
        if self.read_only {
            Err(StoreError::ReadOnly)
        } else {
            self.is_well()
        }
    }

    /// An error if this process did not open the store: of the threads that may hold its locks, a
    /// forked process has none.
    pub(super) fn must_be_ours(&self) -> Result<(), StoreError> {
        if self.is_ours() {
            return Ok(());
        }
        Err(StoreError::Broken(
            "it is open in the process that this one was forked from: open it after the fork, and \
             in one of the two"
                .into(),
        ))
    }

    /// Checks that nothing has failed. Does not take the store's lock.
    pub(super) fn is_well(&self) -> Result<(), StoreError> {
        if self.has_panicked() {
            return Err(panicked());
        }
        match self.places.why_broken() {
            Some(why) => Err(StoreError::Broken(why)),
            None => Ok(()),
        }
    }

    /// Updates the cache after a commit. The caller holds the lock of the store.
    pub(super) fn has_committed(&self, changes: &Changes) {
        let commit = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        for (&at, page) in changes {
            self.memory.commits(at, page.as_ref(), commit);
        }
    }

    /// The bytes of a page: the last committed ones, or those in a snapshot.
    pub(super) fn read(&self, of: Option<Seen>, at: Lpn) -> Result<Option<PageBytes>, StoreError> {
        self.is_well()?;
        if let Some(page) = self.memory.newest(at, of.map(|seen| seen.commit)) {
            return Ok(Some(page));
        }
        self.must_be_ours()?;
        // A guard in the call expression would be held until the page was read.
        let looked = self.look(&self.store(), of, at)?;
        self.fetch(of, at, looked)
    }

    /// The bytes of several pages, as [`Core::read`]. Requests all pages that are not cached before
    /// it waits for the first.
    pub(super) fn read_many(
        &self,
        of: Option<Seen>,
        pages: &[Lpn],
    ) -> Result<Vec<Option<PageBytes>>, StoreError> {
        if self.places.expects() && pages.len() > 1 {
            let commit = of.map(|seen| seen.commit);
            let is_missing = |at: &&Lpn| !self.memory.has(**at, commit);
            let missing: Vec<Lpn> = pages.iter().filter(is_missing).copied().collect();
            self.must_be_ours()?;
            let store = self.store();
            let looked = missing.iter().map(|&at| self.look(&store, of, at));
            let looked: Result<Vec<Looked>, _> = looked.collect();
            drop(store);
            for place in looked?.iter().filter_map(|looked| looked.place.as_ref()) {
                if place.kept.is_none() {
                    self.places.expect(place.number, 1);
                }
            }
        }
        pages.iter().map(|&at| self.read(of, at)).collect()
    }

    /// Looks up the place of a page.
    fn look(&self, store: &PageStore, of: Option<Seen>, at: Lpn) -> Result<Looked, StoreError> {
        let id = of.map(|seen| seen.id);
        Ok(Looked {
            place: store.place(id, at)?,
            is_newest: id.is_none_or(|id| store.is_newest(id, at)),
            last: self.commits.load(Ordering::Relaxed),
        })
    }

    /// Reads page `at` of snapshot `of` from the place that was looked up, and caches it. If the
    /// place has other contents by now, looks it up again, until the place stays the same: then
    /// the page is damaged.
    fn fetch(
        &self,
        of: Option<Seen>,
        at: Lpn,
        mut looked: Looked,
    ) -> Result<Option<PageBytes>, StoreError> {
        loop {
            let Some(place) = looked.place else {
                return Ok(None);
            };
            if !looked.is_newest
                && let Some(page) = self.memory.older(&place)
            {
                return Ok(Some(page));
            }
            if let Some((first, pages)) = self.ahead.after(place.number) {
                self.places.expect(first, pages);
            }
            match self.places.read(&place) {
                Ok(Found::Whole(page)) => {
                    let since = of.map_or(looked.last, |seen| seen.commit);
                    if looked.is_newest {
                        self.memory.fetched(at, &page, since, looked.last);
                    } else if place.kept.is_none() {
                        // The place of a page that is only in memory may be given to another page
                        // with the same generation, if space was lacking.
                        self.memory.fetched_older(&place, &page);
                    }
                    return Ok(Some(page));
                }
                Ok(Found::Other) => {}
                Err(_) => return Err(self.store().failed()),
            }
            looked = self.look(&self.store(), of, at)?;
            if looked
                .place
                .as_ref()
                .is_some_and(|again| again.at == place.at && again.generation == place.generation)
            {
                return Err(StoreError::Device(DeviceError::Unreadable(at)));
            }
        }
    }

    /// Clears the cache after the store was reopened: it may hold pages that were never written.
    /// The caller holds the lock of the store.
    pub(super) fn forget(&self) {
        self.memory.forget();
    }

    /// Takes a snapshot.
    pub(super) fn take(store: &mut PageStore, core: &Arc<Core>) -> Result<Durable, StoreError> {
        Ok(Durable {
            seen: Seen {
                id: store.snapshot()?,
                commit: core.commits.load(Ordering::Relaxed),
            },
            epoch: AtomicU64::new(core.places.epoch()),
            core: Arc::clone(core),
            often: OnceLock::new(),
            noted: OnceLock::new(),
        })
    }

    /// Releases the snapshots that have no readers.
    pub(super) fn give_back(&self, store: &mut PageStore) {
        let ended = std::mem::take(&mut *self.ended.lock().expect("no thread panics here"));
        for id in ended {
            store.end_snapshot(id);
        }
    }
}

/// A cache slot: page number and contents.
type Kept = OnceLock<(Lpn, PageBytes)>;

/// A snapshot of the store. Released when its last handle is dropped.
pub(super) struct Durable {
    pub(super) seen: Seen,
    pub(super) core: Arc<Core>,
    /// The epoch of the store when the snapshot was taken, or reopened.
    epoch: AtomicU64,
    /// Frequently read pages. Each page number maps to one slot.
    often: OnceLock<Box<[Kept]>>,
    noted: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Durable {
    /// The id of the snapshot in the underlying store.
    pub(super) fn id(&self) -> SnapshotId {
        self.seen.id
    }

    /// Whether the store was reopened since: it does not know the snapshot any more.
    pub(super) fn is_stale(&self) -> bool {
        self.epoch.load(Ordering::Acquire) != self.core.places.epoch()
    }

    /// Registers the snapshot with a store that was reopened and still holds the same data. Returns
    /// `false` if other snapshots are open.
    pub(super) fn reopen(&self, store: &mut PageStore) -> bool {
        let is_open = store.reopen_snapshot(self.seen.id);
        if is_open {
            self.epoch
                .store(self.core.places.epoch(), Ordering::Release);
        }
        is_open
    }

    /// The bytes of a page that nearly every reader needs. This snapshot caches it itself, in a
    /// slot by page number, so that later reads take no lock.
    pub(super) fn read_often(&self, at: Lpn) -> Result<Option<PageBytes>, StoreError> {
        let empty = || (0..OFTEN).map(|_| OnceLock::new()).collect();
        let place = &self.often.get_or_init(empty)[at.index() % OFTEN];
        if let Some((kept, page)) = place.get()
            && *kept == at
        {
            return Ok(Some(Arc::clone(page)));
        }
        let page = self.core.read(Some(self.seen), at)?;
        if let Some(page) = &page {
            // Another page may occupy the slot: the first one stays.
            let _ = place.set((at, Arc::clone(page)));
        }
        Ok(page)
    }

    /// State shared by the readers of this snapshot. Always of the same type.
    pub(super) fn noted<T: Default + Send + Sync + 'static>(&self) -> &T {
        let noted = self.noted.get_or_init(|| Box::new(T::default()));
        noted.downcast_ref().expect("readers agree on the type")
    }
}

impl Drop for Durable {
    /// A reader does not wait for the writer: if the store is busy, the next writer releases the
    /// snapshot.
    fn drop(&mut self) {
        // A reopened store does not know this snapshot, or uses its id for another reader.
        if !self.core.is_ours() || self.is_stale() {
            return;
        }
        let mut ended = self.core.ended.lock().expect("no thread panics here");
        ended.push(self.seen.id);
        drop(ended);
        if let Ok(mut store) = self.core.store.try_lock() {
            self.core.give_back(&mut store);
        }
    }
}
