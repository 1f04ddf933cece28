//! Pages in memory, by their numbers: the newest version of each, and since when it is the newest.
//!
//! ```text
//!   commits          ... 7 ──────── 8 ──────── 9 ...    the store counts them
//!   page 5           since 6 ────── since 8 ───────     the newest version, and since when
//!   a reader of 7    finds it       looks below         its snapshot is older than that
//! ```
//!
//! A page that is found here needs no look at where it lies, so no lock of the store, and it stays
//! when the collector moves it. A commit puts what it has written in place of what was there.
//!
//! A reader that has fetched a page may be late: a commit may have replaced that page meanwhile. So
//! a reader says which commit was the last one when it looked for the page. Its page is taken only
//! if no commit after that one has changed the page. `changed` knows that of groups of pages, and a
//! lock for each of a few larger groups keeps commits and readers apart.
//!
//! Older versions, which only readers of older snapshots ask for, are known by their place and the
//! generation of its block: such a page never changes.

use super::PageBytes;
use crate::flash::places::Place;
use crate::superblock::MEDIUM_PAGE_BYTES;
use flagstone::units::Lpn;
use quick_cache::{Weighter, sync::Cache};
use rustc_hash::FxBuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// A page: its number, or for an older version its place and the generation of its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Newest(Lpn),
    Older(u32, u64),
}

/// The bytes of a page, and the first commit whose readers see them.
type Held = (u64, PageBytes);

/// What a page takes in memory beside its bytes: the entry, the count of its users, the allocation.
const ENTRY_BYTES: u64 = 96;

/// Groups of pages of which the last change is known. A page of a group that a commit has changed
/// while another one of it was read is read once more, when it is asked for again.
const GROUPS: usize = 4096;

/// Locks, each for as many groups.
const LOCKS: usize = 64;

#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Held> for Bytes {
    fn weight(&self, _: &Key, held: &Held) -> u64 {
        held.1.len() as u64 + ENTRY_BYTES
    }
}

/// The pages in memory.
pub(super) struct Memory {
    cache: Cache<Key, Held, Bytes, FxBuildHasher>,
    /// By group: the last commit that has changed a page of it.
    changed: Box<[AtomicU64]>,
    locks: Box<[Mutex<()>]>,
}

/// The group of a page: neighbours are in several.
fn group(at: Lpn) -> usize {
    at.index() % GROUPS
}

impl Memory {
    /// Room for so many bytes of pages.
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

    /// The newest version of a page, if it is here and was there already at a commit; whatever it
    /// is for the holder of the turn, who has no such commit.
    #[inline]
    pub(super) fn newest(&self, at: Lpn, seen: Option<u64>) -> Option<PageBytes> {
        let (since, page) = self.cache.get(&Key::Newest(at))?;
        seen.is_none_or(|seen| since <= seen).then_some(page)
    }

    /// An older version of a page.
    pub(super) fn older(&self, place: &Place) -> Option<PageBytes> {
        let (_, page) = self.cache.get(&Key::Older(place.at.0, place.generation))?;
        Some(page)
    }

    /// Whether a page is here, and that it is asked for does not count.
    pub(super) fn has(&self, at: Lpn, seen: Option<u64>) -> bool {
        let held = self.cache.peek(&Key::Newest(at));
        held.is_some_and(|(since, _)| seen.is_none_or(|seen| since <= seen))
    }

    /// Keeps a page that was fetched. It was the newest version when `last` was the last commit,
    /// and readers see it from the commit `since` on.
    pub(super) fn fetched(&self, at: Lpn, page: &PageBytes, since: u64, last: u64) {
        let _alone = self.alone(at);
        if self.changed[group(at)].load(Ordering::Relaxed) <= last {
            let held = (since, PageBytes::clone(page));
            self.cache.insert(Key::Newest(at), held);
        }
    }

    /// Keeps an older version of a page that was fetched.
    pub(super) fn fetched_older(&self, place: &Place, page: &PageBytes) {
        let held = (0, PageBytes::clone(page));
        let key = Key::Older(place.at.0, place.generation);
        self.cache.insert(key, held);
    }

    /// Forgets all pages.
    pub(super) fn forget(&self) {
        self.cache.clear();
    }

    /// A commit has changed a page: it holds these bytes from now on, or nothing.
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
        // A reader has looked for the page after the first commit, and comes back after the second.
        memory.commits(AT, Some(&page(2)), 2);
        memory.fetched(AT, &page(1), 1, 1);
        assert_eq!(memory.newest(AT, Some(2)), Some(page(2)));
        assert_eq!(memory.newest(AT, None), Some(page(2)));
        // The same after it was thrown out, and after the page was given back.
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
