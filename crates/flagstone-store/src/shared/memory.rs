//! The page cache of a shared store: the newest version of each page, and since which commit.
//!
//! ```text
//!   commits          ... 7 ──────── 8 ──────── 9 ...    the store counts them
//!   page 5           since 6 ────── since 8 ───────     the newest version, and since when
//!   a reader of 7    finds it       looks below         its snapshot is older than that
//! ```
//!
//! A cached page needs no lookup of its place, so no lock of the store, and is not affected when
//! the collector moves it. A commit replaces the pages that it has written.
//!
//! A reader may insert a page after a later commit has replaced it. So the reader states which
//! commit was the last one when it looked the page up. The page is inserted only if no later commit
//! has changed it. `changed` records that by groups of pages. A lock for each of several larger
//! groups keeps commits and readers apart.
//!
//! Older versions, for readers of older snapshots, are identified by their place and the generation
//! of the block: such a page never changes.

use super::PageBytes;
use crate::flash::places::Place;
use crate::superblock::MEDIUM_PAGE_BYTES;
use flagstone::units::Lpn;
use quick_cache::{Weighter, sync::Cache};
use rustc_hash::FxBuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Key of a page: its number, or for an older version its place and the block's generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Newest(Lpn),
    Older(u32, u64),
}

/// The bytes of a page, and the first commit whose readers see them.
type Held = (u64, PageBytes);

/// Memory of a cached page beside its bytes: the entry, the reference count, the allocation.
const ENTRY_BYTES: u64 = 96;

/// Number of groups of pages. If a commit changes a page of a group while another page of the group
/// is being read, the latter is not cached and has to be read again.
const GROUPS: usize = 4096;

/// Number of locks. Each serves the same number of groups.
const LOCKS: usize = 64;

#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Held> for Bytes {
    fn weight(&self, _: &Key, held: &Held) -> u64 {
        held.1.len() as u64 + ENTRY_BYTES
    }
}

/// The page cache.
pub(super) struct Memory {
    cache: Cache<Key, Held, Bytes, FxBuildHasher>,
    /// By group: the last commit that changed a page of the group.
    changed: Box<[AtomicU64]>,
    locks: Box<[Mutex<()>]>,
}

/// The group of a page. Adjacent pages are in different groups.
fn group(at: Lpn) -> usize {
    at.index() % GROUPS
}

impl Memory {
    /// A cache of `bytes` bytes.
    pub(super) fn new(bytes: u64) -> Memory {
        let pages = bytes / MEDIUM_PAGE_BYTES as u64;
        Memory {
            cache: Cache::with(
                pages as usize,
                bytes,
                Bytes,
                FxBuildHasher,
                Default::default(),
            ),
            changed: (0..GROUPS).map(|_| AtomicU64::new(0)).collect(),
            locks: (0..LOCKS).map(|_| Mutex::default()).collect(),
        }
    }

    fn alone(&self, at: Lpn) -> MutexGuard<'_, ()> {
        let lock = &self.locks[group(at) % LOCKS];
        lock.lock().expect("no thread panics here")
    }

    /// The newest version of a page, if it is cached and was already the newest at commit `seen`.
    /// The holder of the turn passes `None` and gets it in any case.
    #[inline]
    pub(super) fn newest(&self, at: Lpn, seen: Option<u64>) -> Option<PageBytes> {
        let (since, page) = self.cache.get(&Key::Newest(at))?;
        seen.is_none_or(|seen| since <= seen).then_some(page)
    }

    /// A cached older version of a page.
    pub(super) fn older(&self, place: &Place) -> Option<PageBytes> {
        let (_, page) = self.cache.get(&Key::Older(place.at.0, place.generation))?;
        Some(page)
    }

    /// Whether a page is cached. Does not count as a use.
    pub(super) fn has(&self, at: Lpn, seen: Option<u64>) -> bool {
        let held = self.cache.peek(&Key::Newest(at));
        held.is_some_and(|(since, _)| seen.is_none_or(|seen| since <= seen))
    }

    /// Inserts a page that was read. `last` was the last commit when it was looked up, and readers
    /// see it from commit `since` on.
    pub(super) fn fetched(&self, at: Lpn, page: &PageBytes, since: u64, last: u64) {
        let _alone = self.alone(at);
        if self.changed[group(at)].load(Ordering::Relaxed) <= last {
            let held = (since, PageBytes::clone(page));
            self.cache.insert(Key::Newest(at), held);
        }
    }

    /// Inserts an older version that was read.
    pub(super) fn fetched_older(&self, place: &Place, page: &PageBytes) {
        let held = (0, PageBytes::clone(page));
        let key = Key::Older(place.at.0, place.generation);
        self.cache.insert(key, held);
    }

    /// Drops all pages.
    pub(super) fn forget(&self) {
        self.cache.clear();
    }

    /// Records that a commit changed a page. `page`: its new contents; `None` if trimmed.
    pub(super) fn commits(&self, at: Lpn, page: Option<&PageBytes>, commit: u64) {
        let _alone = self.alone(at);
        self.changed[group(at)].store(commit, Ordering::Relaxed);
        match page {
            Some(page) => {
                let held = (commit, PageBytes::clone(page));
                self.cache.insert(Key::Newest(at), held);
            }
            None => _ = self.cache.remove(&Key::Newest(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Lpn = Lpn(5);

    fn page(byte: u8) -> PageBytes {
        vec![byte; 8].into()
    }

    #[test]
    fn who_fetched_a_page_too_early_does_not_bring_it_back() {
        let memory = Memory::new(1 << 20);
        memory.commits(AT, Some(&page(1)), 1);
        // A reader looks the page up after the first commit, and returns after the second.
        memory.commits(AT, Some(&page(2)), 2);
        memory.fetched(AT, &page(1), 1, 1);
        assert_eq!(memory.newest(AT, Some(2)), Some(page(2)));
        assert_eq!(memory.newest(AT, None), Some(page(2)));
        // The reader does not bring the old page back after an eviction or a trim either.
        memory.cache.clear();
        memory.fetched(AT, &page(1), 1, 1);
        assert_eq!(memory.newest(AT, Some(2)), None);
        memory.commits(AT, None, 3);
        memory.fetched(AT, &page(2), 2, 2);
        assert_eq!(memory.newest(AT, Some(3)), None);
    }

    #[test]
    fn readers_of_a_snapshot_see_no_later_commit() {
        let memory = Memory::new(1 << 20);
        memory.fetched(AT, &page(1), 4, 4);
        assert_eq!(memory.newest(AT, Some(3)), None);
        assert_eq!(memory.newest(AT, Some(4)), Some(page(1)));
        memory.commits(AT, Some(&page(2)), 5);
        assert_eq!(memory.newest(AT, Some(4)), None);
        assert_eq!(memory.newest(AT, Some(5)), Some(page(2)));
        assert!(memory.has(AT, Some(5)) && !memory.has(AT, Some(4)));
    }
}
