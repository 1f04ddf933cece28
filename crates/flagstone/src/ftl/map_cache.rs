//! A mapping table of which only a part is in memory: DFTL (Gupta et al., ASPLOS 2009), which
//! [LightTx] §4.4 proposes for LightTx and MHL-D.
//!
//! The table is on flash in translation pages, and the directory of these pages is in memory. An
//! entry that is not cached is read from its translation page, which takes the time of a read. A
//! changed entry stays in memory until a checkpoint has written it, so that nothing is written
//! between two checkpoints; of the other entries the least recently used make room. A checkpoint
//! reads a translation page before it writes the changed entries into it.
//!
//! The simulator itself keeps the whole table. What is read from flash is compared with it, and a
//! difference is an error. [`Ftl::memory`] counts what a device would keep.

use super::{Cause, Ftl, FtlError, SLOT_BYTES};
use crate::units::{Lpn, Nanos, Ppn};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Memory of a cached entry in bytes: its logical page, its place, its neighbours in the order of
/// use, and its entry in an index of logical pages.
const CACHED_BYTES: u64 = 20;

/// Memory of the place of a translation page in bytes.
const DIRECTORY_BYTES: u64 = 4;

/// A cached entry.
#[derive(Debug, Clone, Copy)]
struct Cached {
    /// When its read is done.
    known: Nanos,
    /// The number of its last use; `None` if it has changed since the last checkpoint.
    used: Option<u64>,
}

/// Which entries of the mapping table are in memory.
#[derive(Debug, Clone)]
pub(super) struct MapCache {
    /// Number of entries for which there is memory.
    room: usize,
    entries: FxHashMap<Lpn, Cached>,
    /// The unchanged entries in the order of their last use.
    by_use: BTreeMap<u64, Lpn>,
    uses: u64,
}

impl MapCache {
    fn new(room: u32) -> MapCache {
        assert!(room > 0, "an empty cache is always full");
        MapCache {
            room: room as usize,
            entries: FxHashMap::default(),
            by_use: BTreeMap::new(),
            uses: 0,
        }
    }

    /// Uses a cached entry. Returns when it is known, or `None` if it is not cached.
    fn find(&mut self, at: Lpn) -> Option<Nanos> {
        let cached = self.entries.get_mut(&at)?;
        if let Some(used) = &mut cached.used {
            self.by_use.remove(used);
            self.uses += 1;
            *used = self.uses;
            self.by_use.insert(self.uses, at);
        }
        Some(cached.known)
    }

    /// Caches an unchanged entry that is known at `known`.
    fn insert(&mut self, at: Lpn, known: Nanos) {
        self.uses += 1;
        let used = Some(self.uses);
        self.entries.insert(at, Cached { known, used });
        self.by_use.insert(self.uses, at);
        self.make_room();
    }

    /// Drops the least recently used of the unchanged entries, as far as there are too many.
    fn make_room(&mut self) {
        while self.entries.len() > self.room
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }

    /// An entry gets a new value.
    pub(super) fn change(&mut self, at: Lpn) {
        let (known, used) = (Nanos::ZERO, None);
        let before = self.entries.insert(at, Cached { known, used });
        if let Some(used) = before.and_then(|cached| cached.used) {
            self.by_use.remove(&used);
        }
        self.make_room();
    }

    /// A checkpoint has written all changed entries.
    pub(super) fn written(&mut self) {
        let changed = self.entries.iter().filter(|(_, it)| it.used.is_none());
        let mut changed: Vec<Lpn> = changed.map(|(&at, _)| at).collect();
        changed.sort_unstable();
        for at in changed {
            self.insert(at, Nanos::ZERO);
        }
    }

    /// Number of entries that have changed since the last checkpoint.
    fn changed(&self) -> usize {
        self.entries.len() - self.by_use.len()
    }

    fn has_changed(&self, at: Lpn) -> bool {
        self.entries.get(&at).is_some_and(|it| it.used.is_none())
    }

    /// Memory of the cached entries in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.entries.len() as u64 * CACHED_BYTES
    }

    /// Checks that the order of use has all unchanged entries, and that there is room for them.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_listed =
            |(used, at): (&u64, &Lpn)| self.entries.get(at).and_then(|it| it.used) == Some(*used);
        let unchanged = self.entries.values().filter(|it| it.used.is_some());
        if !self.by_use.iter().all(is_listed) || unchanged.count() != self.by_use.len() {
            return Err("the cached mapping entries disagree with their order of use".into());
        }
        if self.entries.len() > self.room && !self.by_use.is_empty() {
            return Err(format!(
                "{} mapping entries are cached, there is room for {}",
                self.entries.len(),
                self.room
            ));
        }
        Ok(())
    }
}

impl Ftl {
    /// Limits the mapping table in memory to this number of entries. Nothing is cached at first.
    /// Call it when the device is mounted, before the first change of the table, which must be kept
    /// on flash ([`Format::persist_map`](super::Format::persist_map)).
    ///
    /// The owner then calls [`Ftl::look_up`] before it uses an entry, and makes a checkpoint if
    /// [`Ftl::map_cache_is_full`].
    pub fn cache_map(&mut self, entries: u32) {
        assert!(self.format.persist_map, "the mapping table is on flash");
        self.map.cache = Some(MapCache::new(entries));
    }

    /// Whether changed entries of the mapping table take all the memory for cached ones. A
    /// checkpoint makes them unchanged, so that others can be cached again.
    #[inline]
    pub fn map_cache_is_full(&self) -> bool {
        let cache = self.map.cache.as_ref();
        cache.is_some_and(|cache| cache.changed() >= cache.room)
    }

    /// Brings the mapping entry of a logical page into memory. Returns when it is known: at `now`
    /// if the whole table is in memory.
    ///
    /// # Errors
    /// Its translation page cannot be read.
    #[inline]
    pub fn look_up(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, FtlError> {
        if self.map.cache.is_none() {
            return Ok(now);
        }
        self.look_up_cached(now, at)
    }

    fn look_up_cached(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, FtlError> {
        let cache = self.map.cache.as_mut().expect("the caller looked");
        self.stats.map_lookups += 1;
        if let Some(known) = cache.find(at) {
            return Ok(now.max(known));
        }
        let page = self.map.translation_page_of(at);
        // Without a translation page, all of its unchanged entries are empty.
        let Some(from) = self.journal.translation_page(page) else {
            return Ok(now);
        };
        self.stats.map_misses += 1;
        let known = self.recall(now, page, from, at..Lpn(at.0 + 1))?;
        let cache = self.map.cache.as_mut().expect("the caller looked");
        cache.insert(at, known);
        Ok(known)
    }

    /// Reads a translation page to write its changed entries into it. Returns when it was read: at
    /// `now` if the whole table is in memory, or if there is no such page yet.
    pub(super) fn recall_to_write(&mut self, now: Nanos, page: u32) -> Result<Nanos, FtlError> {
        if self.map.cache.is_none() {
            return Ok(now);
        }
        match self.journal.translation_page(page) {
            Some(from) => self.recall(now, page, from, self.map.lpns_of(page)),
            None => Ok(now),
        }
    }

    /// Reads the translation page `page` at `from`, and checks its entries of the pages `lpns` that
    /// have not changed. Returns when it was read.
    fn recall(
        &mut self,
        now: Nanos,
        page: u32,
        from: Ppn,
        lpns: std::ops::Range<Lpn>,
    ) -> Result<Nanos, FtlError> {
        let mut data = std::mem::take(&mut self.page_buffer);
        let read = self.read(now, from, &mut data, &mut [], Cause::Mapping);
        let first = self.map.lpns_of(page).start.index();
        let cache = self
            .map
            .cache
            .as_ref()
            .expect("only a cache misses entries");
        let has = |at: Lpn, bytes: usize| {
            let here = (at.index() - first) * SLOT_BYTES;
            let kept = &self.map.words()[at.index()];
            cache.has_changed(at) || data[..bytes].get(here..here + SLOT_BYTES) == Some(kept)
        };
        let mut lpns = (lpns.start.0..lpns.end.0).map(Lpn);
        let wrong = match &read {
            Ok(read) => lpns.find(|&at| !has(at, read.data_bytes)),
            Err(_) => None,
        };
        self.page_buffer = data;
        match wrong {
            Some(at) => Err(FtlError::Damaged(format!(
                "the translation page at {from} has another entry for logical page {at}"
            ))),
            None => Ok(read?.done),
        }
    }

    /// Memory of the mapping table in bytes: the cached entries and the directory of the
    /// translation pages, or all entries.
    pub(super) fn memory_of_map(&self) -> u64 {
        match &self.map.cache {
            Some(cache) => cache.memory() + self.journal.translation_pages() * DIRECTORY_BYTES,
            None => self.map.bytes().len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    /// A cache as a list that is searched, the least recently used entry first. `forgets`: a wrong
    /// one, which lets changed entries go as well.
    struct Naive {
        list: Vec<(Lpn, bool)>,
        forgets: bool,
    }

    impl Naive {
        fn put(&mut self, at: Lpn, is_changed: bool, room: usize) {
            self.list.retain(|&(other, _)| other != at);
            self.list.push((at, is_changed));
            while self.list.len() > room
                && let Some(place) = self.list.iter().position(|it| self.forgets || !it.1)
            {
                self.list.remove(place);
            }
        }
    }

    /// Runs both caches. Returns whether they always had the same entries.
    fn same(seed: u64, room: u32, forgets: bool) -> bool {
        let mut dice = Dice(seed);
        let mut cache = MapCache::new(room);
        let list = Vec::new();
        let mut naive = Naive { list, forgets };
        for _ in 0..2_000 {
            let at = Lpn(dice.pick(20));
            let was = naive.list.iter().find(|it| it.0 == at).map(|it| it.1);
            match dice.pick(40) {
                0 => {
                    let (mut changed, left): (Vec<_>, Vec<_>) =
                        naive.list.drain(..).partition(|it| it.1);
                    changed.sort_unstable();
                    naive.list = left;
                    for (at, _) in changed {
                        naive.list.push((at, false));
                    }
                    while naive.list.len() > room as usize {
                        naive.list.remove(0);
                    }
                    cache.written();
                }
                1..10 => {
                    cache.change(at);
                    naive.put(at, true, room as usize);
                }
                _ => {
                    if cache.find(at).is_none() {
                        cache.insert(at, Nanos(7));
                    }
                    if was != Some(true) {
                        naive.put(at, false, room as usize);
                    }
                }
            }
            cache.check().expect("its tables agree");
            let has = |it: &(Lpn, bool)| {
                cache.entries.contains_key(&it.0) && cache.has_changed(it.0) == it.1
            };
            if naive.list.len() != cache.entries.len() || !naive.list.iter().all(has) {
                return false;
            }
        }
        true
    }

    #[test]
    fn it_keeps_what_changed_and_what_was_used_last() {
        for seed in 1..20 {
            for room in 1..12 {
                assert!(same(seed, room, false), "seed {seed}, room for {room}");
            }
        }
        assert!(
            !same(1, 4, true),
            "control: changed entries that are let go"
        );
    }
}
