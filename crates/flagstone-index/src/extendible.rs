//! Extendible hashing: a directory in memory that doubles, and buckets that split one at a time.
//!
//! Paper       [Extendible]; a baseline of [SAL] §4.
//! Idea        The last bits of a key's hash are an index into a directory of bucket pages. A full
//!             bucket splits by one more bit; if it was the directory's last, that doubles.
//! Cost        One page read a search. An insertion changes one page, a split two.
//!
//!   page      bucket_head, its tag the bucket's depth; records
//!   metadata  the directory's depth, its entries, records counted
//!
//! Invariants  1. Entries whose last `depth` bits are equal, and no others, name the same bucket.
//!             2. A bucket has overflow pages only at the greatest depth, of this opening or an
//!                earlier one.
//!
//! Departures  D1. Buckets never merge and the directory never halves: deleted records leave room
//!                 for others. The paper's load factor does not drive it either.

use super::bucket::{Seat, Shape, hash, pass, walk};
use super::meta::Meta;
use super::space::Space;
use super::{BackingStore, Settings, Value, counters, damaged, of_cache};
use super::{Cache, Index, IndexInfo, Key, Result};
use flagstone::settings::settings;
use flagstone::units::{Lpn, Nanos};

pub(super) const INFO: IndexInfo = IndexInfo {
    name: "extendible",
    idea: "an in-memory directory that doubles; buckets split one at a time",
    paper: "[Extendible]",
    ordered: false,
    buffers: false,
    settings: settings! {
        depth_max: "24",
            "maximum number of hash bits of the directory, 1 to 30; beyond it, buckets overflow";
    },
    tiny: &[("depth_max", "4")],
    costs: ["1 read", "1 read, 1 program", "2 programs"],
};

struct Extendible {
    cache: Cache,
    meta: Meta,
    space: Space,
    shape: Shape,
    depth_max: u32,
    /// Number of hash bits that the directory uses.
    depth: u32,
    directory: Vec<Lpn>,
    counts: Counts,
}

counters! {
    struct Counts {
        splits,
        doublings,
    }
}

/// Opens the index in a store. A blank store gets one empty bucket.
pub(super) fn open(
    store: Box<dyn BackingStore>,
    settings: &Settings,
    now: Nanos,
) -> Result<(Box<dyn Index>, Nanos)> {
    let value_bytes = INFO.value_bytes(settings)?;
    let page_bytes = store.page_bytes();
    let frames = INFO.memory(settings)? as usize / page_bytes;
    let mut cache = Cache::new(store, frames, INFO.buffer(settings)?);
    let ((meta, space, own), now) = Meta::load(&mut cache, INFO.name, value_bytes, now)?;
    let mut index = Extendible {
        cache,
        meta,
        space,
        shape: Shape::new(page_bytes, value_bytes),
        depth_max: settings.number(&INFO, "depth_max", 1, 30)?,
        depth: 0,
        directory: Vec::new(),
        counts: Counts::default(),
    };
    match own {
        Some(own) => {
            let words: Vec<u32> = own
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
                .collect();
            let sound = words
                .first()
                .is_some_and(|&depth| depth <= 30 && words.len() == 1 + (1usize << depth));
            if !sound {
                return damaged(
                    Lpn(0),
                    "the directory has not as many entries as its depth says",
                );
            }
            index.depth = words[0];
            index.directory = words[1..].iter().map(|&page| Lpn(page)).collect();
        }
        None => {
            let first = index.space.take()?;
            index.cache.fill(now, first)?;
            index.directory.push(first);
        }
    }
    Ok((Box::new(index), now))
}

impl Extendible {
    fn bucket(&self, key: Key) -> Lpn {
        self.directory[(hash(key) & ((1 << self.depth) - 1)) as usize]
    }

    /// The place of a key, or the place where it would be inserted: the first page of its bucket
    /// with space, or the last one.
    fn seek(&mut self, now: Nanos, key: Key) -> Result<(Seat, Nanos)> {
        let (shape, first, used) = (self.shape, self.bucket(key), self.space.used().into());
        let mut room = None;
        let ((last, record), now) = walk(&mut self.cache, shape, now, first, used, |at, page| {
            if room.is_none() && !shape.is_full(page) {
                room = Some(at);
            }
            shape.search(page, key)
        })?;
        let at = room.filter(|_| record.is_none()).unwrap_or(last);
        Ok(((at, record), now))
    }

    /// Splits the full bucket of a key by one more bit.
    fn split(&mut self, now: Nanos, key: Key) -> Result<Nanos> {
        let old = self.bucket(key);
        let new = self.space.take()?;
        let (page, now) = self.cache.read(now, old)?;
        self.shape.check_read(page, old)?;
        let records: Vec<(Key, Value)> = self.shape.records(page).collect();
        let depth = u32::from(self.shape.tag(page));
        if depth > self.depth {
            let why = format!("a bucket of {depth} bits, the directory has {}", self.depth);
            return damaged(old, why);
        }
        if depth == self.depth {
            self.directory.extend_from_within(..);
            self.depth += 1;
            self.counts.doublings += 1;
        }
        self.counts.splits += 1;
        let shape = self.shape;
        let mut now = now;
        for (at, bit) in [(old, 0), (new, 1)] {
            let (page, done) = self.cache.fill(now, at)?;
            now = done;
            shape.set_tag(page, depth as u16 + 1);
            for &(key, value) in &records {
                if (hash(key) >> depth) & 1 == bit {
                    shape.push(page, key, value);
                }
            }
        }
        // Of the directory entries that name the old bucket, every second now names the new one.
        let first = (hash(key) & ((1 << depth) - 1)) as usize + (1 << depth);
        for entry in self.directory[first..].iter_mut().step_by(2 << depth) {
            *entry = new;
        }
        Ok(now)
    }
}

impl Index for Extendible {
    /// Splits the key's bucket until it has room. A bucket that may not split gets an overflow
    /// page.
    fn insert(&mut self, mut now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        loop {
            let ((at, slot), done) = self.seek(now, key)?;
            now = done;
            let (shape, is_head) = (self.shape, at == self.bucket(key));
            let (page, done) = self.cache.change(now, at)?;
            now = done;
            if let Some((slot, _)) = slot {
                shape.replace(page, slot, value);
                return Ok(now);
            }
            if !shape.is_full(page) {
                shape.push(page, key, value);
                return Ok(now);
            }
            // A bucket with overflow pages splits no more: an earlier opening had a lower
            // `depth_max`.
            if u32::from(shape.tag(page)) < self.depth_max && is_head {
                now = self.split(now, key)?;
                continue;
            }
            let next = self.space.take()?;
            let depth = shape.tag(page);
            shape.set_next(page, Some(next));
            let (page, done) = self.cache.fill(now, next)?;
            shape.set_tag(page, depth);
            shape.push(page, key, value);
            return Ok(done);
        }
    }

    fn delete(&mut self, now: Nanos, key: Key) -> Result<Nanos> {
        let ((at, slot), mut now) = self.seek(now, key)?;
        if let Some((slot, _)) = slot {
            let (page, done) = self.cache.change(now, at)?;
            self.shape.remove(page, slot);
            now = done;
        }
        Ok(now)
    }

    fn get(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos)> {
        let ((_, found), now) = self.seek(now, key)?;
        Ok((found.map(|(_, value)| value), now))
    }

    fn settle(&mut self, now: Nanos) -> Result<Nanos> {
        let mut own = self.depth.to_le_bytes().to_vec();
        for page in &self.directory {
            own.extend_from_slice(&page.0.to_le_bytes());
        }
        self.meta
            .settle(&mut self.cache, &mut self.space, &own, now)
    }

    fn check(&mut self) -> Result<(), String> {
        let mut used = self.meta.pages().to_vec();
        for (i, &first) in self.directory.iter().enumerate() {
            let (mut next, mut passed) = (Some(first), 0);
            while let Some(at) = next {
                let counted = pass(&mut passed, self.space.used().into(), at);
                counted.map_err(|error| error.to_string())?;
                let page = self.cache.inspect(at).map_err(|error| error.to_string())?;
                self.shape.check(&page)?;
                let depth = u32::from(self.shape.tag(&page));
                if depth > self.depth {
                    return Err(format!("bucket {at} is deeper than the directory"));
                }
                let mask = (1u64 << depth) - 1;
                if self.directory[i & mask as usize] != first {
                    return Err(format!("entry {i} names another bucket than its like"));
                }
                for (key, _) in self.shape.records(&page) {
                    if (hash(key) ^ i as u64) & mask != 0 {
                        return Err(format!("key {key} is in the wrong bucket, page {at}"));
                    }
                }
                next = self.shape.next(&page);
                if i as u64 & mask == i as u64 {
                    used.push(at);
                }
            }
        }
        self.space.check(used)
    }

    of_cache!(cache, counts);

    fn memory(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("page_cache", self.cache.memory()),
            (
                "directory",
                (self.directory.len() * size_of::<Lpn>()) as u64,
            ),
            ("free_pages", self.space.memory()),
        ]
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        self.counts.figures()
    }
}

#[cfg(test)]
mod tests {
    use super::super::IndexKind;
    use super::super::model::{History, blank};
    use super::*;

    #[test]
    fn agrees_with_a_map_where_the_directory_grows_without_end() {
        let settings = Settings::new().with("memory", 6 * 256);
        History::of(IndexKind::Extendible, settings).assert_agrees(4);
    }

    /// Fails if a split forgets the overflow pages of a bucket, which it has since the store was
    /// opened with another `depth_max`.
    #[test]
    fn a_store_that_is_opened_with_another_depth_max_keeps_its_records() {
        let settings = |depth_max: u32| Settings::new().with("depth_max", depth_max);
        let (mut index, mut now) = blank(open, &settings(2), 256, 4096);
        for key in 0..400 {
            now = index.insert(now, key, key + 1).expect("room");
        }
        now = index.settle(now).expect("a good store");
        let (mut index, mut now) = open(index.into_store(), &settings(24), now).expect("an index");
        for key in 400..800 {
            now = index.insert(now, key, key + 1).expect("room");
        }
        for key in 0..800 {
            let (found, _) = index.get(now, key).expect("a good store");
            assert_eq!(found, Some(key + 1), "{key}");
        }
        assert_eq!(index.check(), Ok(()));
    }

    /// Fails if a new record takes an overflow page although a page before it has space.
    #[test]
    fn records_that_come_and_go_take_no_more_pages() {
        let settings = Settings::new().with("depth_max", 1);
        let (mut index, mut now) = blank(open, &settings, 256, 256);
        for key in 0..400 {
            now = index.insert(now, key, key).expect("room");
        }
        for key in 400..20_000 {
            now = index.delete(now, key - 400).expect("it is there");
            now = index.insert(now, key, key).expect("room that others left");
        }
        assert_eq!(index.check(), Ok(()));
    }
}
