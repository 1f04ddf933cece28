//! Reads beside the writer: pages in memory, and the way to those that are not.
//!
//! Where a page is, is looked up under the lock of the store, for an instant. It is read from the
//! medium outside of that lock. Meanwhile the collector may move the page, and its block may be
//! erased and written again. So what was read counts only if it has the generation that was looked
//! up, and the right checksum. Otherwise the place is looked up again: the page is damaged only if
//! it is still the same. A snapshot that was ended by force meanwhile says so at that second look.
//!
//! A snapshot does not change. So it keeps pages that nearly every reader asks for, such as inner
//! nodes, by their numbers alone: they are found without the lock, and without the look-up.
//!
//! A page in memory is known by its place and the generation of its block: such a page never
//! changes, so that no entry is ever stale.

use super::PageBytes;
use crate::error::StoreError;
use crate::flash::places::{Found, Place, Places};
use crate::medium::Expecting;
use crate::pages::PageStore;
use crate::superblock::MEDIUM_PAGE_BYTES;
use flagstone::commit::DeviceError;
use flagstone::units::{Lpn, SnapshotId};
use quick_cache::{Weighter, sync::Cache};
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// A page: its place, and the generation of its block.
type Key = (u32, u64);

/// What a page takes in memory beside its bytes: the entry, the count of its users, the allocation.
const ENTRY_BYTES: u64 = 96;

/// Pages that a snapshot keeps at most, beside the cache: half a mebibyte.
const OFTEN: usize = 128;

#[derive(Clone)]
struct Bytes;

impl Weighter<Key, PageBytes> for Bytes {
    fn weight(&self, _: &Key, page: &PageBytes) -> u64 {
        page.len() as u64 + ENTRY_BYTES
    }
}

/// What readers and the writer share.
pub(super) struct Core {
    store: Mutex<PageStore>,
    pub(super) places: Arc<Places>,
    cache: Cache<Key, PageBytes, Bytes>,
    expecting: Option<Expecting>,
    /// Snapshots that nobody reads any more and that the store still holds.
    ended: Mutex<Vec<SnapshotId>>,
    read_only: bool,
}

impl Core {
    pub(super) fn new(store: PageStore, cache_bytes: u64) -> Core {
        let places = store.work_apart();
        let read_only = matches!(store.may_write(), Err(StoreError::ReadOnly));
        let pages = cache_bytes / MEDIUM_PAGE_BYTES as u64;
        Core {
            expecting: places.medium().expecting(),
            places,
            store: Mutex::new(store),
            cache: Cache::with_weighter(pages as usize, cache_bytes, Bytes),
            ended: Mutex::default(),
            read_only,
        }
    }

    pub(super) fn store(&self) -> MutexGuard<'_, PageStore> {
        self.store.lock().expect("no thread panics here")
    }

    /// Whether changes can be committed.
    pub(super) fn may_write(&self) -> Result<(), StoreError> {
        match self.read_only {
            true => Err(StoreError::ReadOnly),
            false => self.is_well(),
        }
    }

    /// Whether nothing has failed: the lock of the store is not asked for.
    pub(super) fn is_well(&self) -> Result<(), StoreError> {
        match self.places.why_broken() {
            Some(why) => Err(StoreError::Broken(why.to_owned())),
            None => Ok(()),
        }
    }

    /// Keeps a page in memory that was just written.
    pub(super) fn keep(&self, place: &Place, page: &PageBytes) {
        self.cache.insert(key(place), Arc::clone(page));
    }

    /// The bytes of a page, the last committed ones or those of a snapshot.
    pub(super) fn read(
        &self,
        of: Option<SnapshotId>,
        at: Lpn,
    ) -> Result<Option<PageBytes>, StoreError> {
        let place = self.store().place(of, at)?;
        self.fetch(of, at, place)
    }

    /// The bytes of several pages. Those that are not in memory are asked for before the first of
    /// them is waited for.
    pub(super) fn read_many(
        &self,
        of: Option<SnapshotId>,
        pages: &[Lpn],
    ) -> Result<Vec<Option<PageBytes>>, StoreError> {
        let store = self.store();
        let places: Result<Vec<_>, _> = pages.iter().map(|&at| store.place(of, at)).collect();
        drop(store);
        let places = places?;
        if let (Some(expecting), true) = (&self.expecting, pages.len() > 1) {
            let missing = places
                .iter()
                .flatten()
                .filter(|place| place.kept.is_none() && self.cache.peek(&key(place)).is_none());
            for place in missing {
                expecting(place.number * MEDIUM_PAGE_BYTES as u64, MEDIUM_PAGE_BYTES);
            }
        }
        let each = pages.iter().zip(places);
        each.map(|(&at, place)| self.fetch(of, at, place)).collect()
    }

    fn fetch(
        &self,
        of: Option<SnapshotId>,
        at: Lpn,
        place: Option<Place>,
    ) -> Result<Option<PageBytes>, StoreError> {
        let mut place = place;
        loop {
            let Some(looked) = place else {
                return Ok(None);
            };
            if let Some(page) = self.cache.get(&key(&looked)) {
                return Ok(Some(page));
            }
            match self.places.read(&looked) {
                Ok(Found::Whole(page)) => {
                    self.keep(&looked, &page);
                    return Ok(Some(page));
                }
                Ok(Found::Other) => {}
                Err(_) => return Err(self.store().failed()),
            }
            place = self.store().place(of, at)?;
            if place
                .as_ref()
                .is_some_and(|again| key(again) == key(&looked))
            {
                return Err(StoreError::Device(DeviceError::Unreadable(at)));
            }
        }
    }

    /// Takes a snapshot.
    pub(super) fn take(store: &mut PageStore, core: &Arc<Core>) -> Result<Durable, StoreError> {
        Ok(Durable {
            id: store.snapshot()?,
            core: Arc::clone(core),
            often: OnceLock::new(),
            noted: OnceLock::new(),
        })
    }

    /// Gives back the snapshots that nobody reads any more.
    pub(super) fn give_back(&self, store: &mut PageStore) {
        let ended = std::mem::take(&mut *self.ended.lock().expect("no thread panics here"));
        for id in ended {
            store.end_snapshot(id);
        }
    }
}

fn key(place: &Place) -> Key {
    (place.at.0, place.generation)
}

/// A place for a page, and which page it is.
type Kept = OnceLock<(Lpn, PageBytes)>;

/// A snapshot of the store. The last one who drops it gives it back.
pub(super) struct Durable {
    pub(super) id: SnapshotId,
    pub(super) core: Arc<Core>,
    /// Pages that are asked for often, each in one place that its number says.
    often: OnceLock<Box<[Kept]>>,
    noted: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Durable {
    /// The bytes of a page that is asked for often.
    pub(super) fn read_often(&self, at: Lpn) -> Result<Option<PageBytes>, StoreError> {
        let empty = || (0..OFTEN).map(|_| OnceLock::new()).collect();
        let place = &self.often.get_or_init(empty)[at.index() % OFTEN];
        if let Some((kept, page)) = place.get()
            && *kept == at
        {
            return Ok(Some(Arc::clone(page)));
        }
        let page = self.core.read(Some(self.id), at)?;
        if let Some(page) = &page {
            // Another page may have the place: the first one keeps it.
            let _ = place.set((at, Arc::clone(page)));
        }
        Ok(page)
    }

    /// What readers of this snapshot keep together: one thing, always of the same type.
    pub(super) fn noted<T: Default + Send + Sync + 'static>(&self) -> &T {
        let noted = self.noted.get_or_init(|| Box::new(T::default()));
        noted.downcast_ref().expect("readers agree on the type")
    }
}

impl Drop for Durable {
    /// A reader does not wait for the writer: where the store is busy, the next writer gives it
    /// back.
    fn drop(&mut self) {
        let mut ended = self.core.ended.lock().expect("no thread panics here");
        ended.push(self.id);
        drop(ended);
        if let Ok(mut store) = self.core.store.try_lock() {
            self.core.give_back(&mut store);
        }
    }
}
