//! Lazy-split hashing: buckets are appended empty, and the old ones are split later, all at once.
//!
//! Paper       [LazySplit]; a baseline of [SAL] §4, and the origin of its lazy splits.
//! Idea        When there are more records than the load factor allows, a bucket is appended and
//!             no record moves. A key's bucket is then the newest that its hash names, and its
//!             record may also lie in the bucket that had to split for it, or in that one's.
//!             When there are four times as many buckets as after the last split, all are split.
//! Cost        One to three lists of pages a search: the newest bucket and those before it. An
//!             insertion looks through the same lists for room, an update for the key. A global
//!             split reads and writes every page once.
//! Symbols     paper: split cursor     here: cursor, the last bucket at the last global split
//!
//!   pages     buckets.rs: buckets in runs of consecutive pages, doubly linked overflow pages
//!
//!   list of a key, cursor 3, 16 buckets     13 (1101b) ──> 5 (101b) ──> 1 (1b), at most the cursor
//!
//! Invariants  1. A key is in buckets of its list only, at most once in each; what comes first in
//!                the list is its newest value.
//!             2. A list has at most three buckets, since there are at most 4 (cursor + 1).
//!             3. There are not more records than the load factor allows.
//!
//! Departures  D1. An insertion ends at the first bucket that has the key or room. Older values
//!                 may stay further down the list, where no search sees them; they count as
//!                 records until the next global split drops them. An update, of a key that is
//!                 there, goes to the record where it is and leaves none.
//!             D2. If no bucket of a list has room, the newest gets an overflow page.
//!             D3. Buckets are never taken back: deleted records leave room for others.

use super::bucket::{address, hash};
use super::buckets::{Buckets, Lookup};
use super::{BackingStore, Index, IndexInfo, Key, Result, Settings, Value, counters, of_cache};
use flagstone::settings::{BadSetting, settings};
use flagstone::units::Nanos;

pub(super) const INFO: IndexInfo = IndexInfo {
    name: "lazy-split",
    idea: "empty buckets are appended; the old buckets split later, all at once",
    paper: "[LazySplit]",
    ordered: false,
    buffers: false,
    settings: settings! {
        load_factor: "0.75",
            "load factor above which a bucket is appended, 0.1 to 4: records per slot of the \
             bucket pages";
        first_buckets: "1", "buckets of a new index, as if just split: a power of two to 65,536";
    },
    tiny: &[],
    costs: [
        "1 to 3 reads, and 1 per overflow page passed",
        "1 to 3 reads, 1 per overflow page, 1 program",
        "all pages are read and programmed each time the buckets quadruple",
    ],
};

struct LazySplit {
    buckets: Buckets,
    load_factor: f64,
    /// Above this number of records a bucket is appended.
    most: u64,
    /// Buffer for records moving from one bucket to four.
    moved: Vec<(Key, Value)>,
    counts: Counts,
}

counters! {
    struct Counts {
        global_splits,
        appended,
        /// Old values dropped by a global split.
        shadowed,
        /// Lists searched, and buckets searched.
        lists,
        probes,
        longest_list,
    }
}

/// Opens the index in a store. Appends buckets at once if it has more records than the load factor
/// allows.
pub(super) fn open(
    store: Box<dyn BackingStore>,
    settings: &Settings,
    now: Nanos,
) -> Result<(Box<dyn Index>, Nanos)> {
    let (buckets, now) = Buckets::open(store, &INFO, settings, now)?;
    let mut index = LazySplit {
        buckets,
        load_factor: settings.number(&INFO, "load_factor", 0.1, 4.0)?,
        most: 0,
        moved: Vec::new(),
        counts: Counts::default(),
    };
    index.begin_with(settings.number(&INFO, "first_buckets", 1, 1 << 16)?)?;
    index.set_limit();
    // The store may have been written with another load factor.
    let mut now = now;
    while index.buckets.records > index.most {
        now = index.append(now)?;
    }
    Ok((Box::new(index), now))
}

/// The bucket that follows `bucket` in its lists.
#[inline]
fn older(bucket: u32, cursor: u32) -> Option<u32> {
    (bucket > cursor).then(|| bucket & !(1 << bucket.ilog2()))
}

/// The buckets that may contain a key, newest first.
fn list(key: Key, buckets: u32, cursor: u32) -> impl Iterator<Item = u32> {
    let newest = address(hash(key), buckets);
    std::iter::successors(Some(newest), move |&bucket| older(bucket, cursor))
}

impl LazySplit {
    /// Appends buckets to an index without records, which then is as after a global split.
    fn begin_with(&mut self, first: u32) -> Result<()> {
        if !first.is_power_of_two() {
            let why = format!("first_buckets of lazy-split is `{first}`: use a power of two");
            return Err(BadSetting(why).into());
        }
        if self.buckets.count == 1 && self.buckets.records == 0 {
            while self.buckets.count < first {
                self.buckets.append()?;
            }
            self.buckets.cursor = first - 1;
        }
        Ok(())
    }

    fn set_limit(&mut self) {
        let places = f64::from(self.buckets.count) * self.buckets.shape.capacity() as f64;
        self.most = (places * self.load_factor) as u64;
    }

    /// Searches a key's list up to the first bucket that has the key or, with `room`, has space. If
    /// there is neither, returns the result of the newest bucket, which gets an overflow page (D2).
    #[inline]
    fn seek(&mut self, now: Nanos, key: Key, room: bool) -> Result<(Lookup, Nanos)> {
        let mut bucket = address(hash(key), self.buckets.count);
        let (first, mut now) = self.buckets.seek(now, bucket, key)?;
        let mut found = first;
        let mut length = 1;
        while found.record.is_none() && !(room && found.room.is_some()) {
            let Some(next) = older(bucket, self.buckets.cursor) else {
                found = first;
                break;
            };
            bucket = next;
            length += 1;
            (found, now) = self.buckets.seek(now, bucket, key)?;
        }
        let counts = &mut self.counts;
        counts.lists += 1;
        counts.probes += length;
        counts.longest_list = counts.longest_list.max(length);
        Ok((found, now))
    }

    /// Appends a bucket, and splits all waiting buckets if there are enough. If an earlier split
    /// found no room, makes up for it first, since lists would become longer.
    fn append(&mut self, mut now: Nanos) -> Result<Nanos> {
        if self.is_split_due() {
            now = self.split_all(now)?;
        }
        self.buckets.append()?;
        self.counts.appended += 1;
        self.set_limit();
        if self.is_split_due() {
            return self.split_all(now);
        }
        Ok(now)
    }

    fn is_split_due(&self) -> bool {
        self.buckets.count == 4 * (self.buckets.cursor + 1)
    }

    /// Moves every record into the bucket that its hash names.
    fn split_all(&mut self, mut now: Nanos) -> Result<Nanos> {
        let old = self.buckets.cursor + 1;
        let count = self.buckets.count;
        for base in 0..old {
            // Records on four lists may need three overflow pages more than on one.
            self.buckets.reserve(3)?;
            self.moved.clear();
            // In every list the higher bucket comes first, so the first of equal keys is newest.
            for bucket in [3, 2, 1, 0].map(|part| base + part * old) {
                now = self.buckets.gather(now, bucket, &mut self.moved)?;
            }
            let all = self.moved.len();
            self.moved.sort_by_key(|&(key, _)| key);
            self.moved.dedup_by_key(|&mut (key, _)| key);
            self.counts.shadowed += (all - self.moved.len()) as u64;
            for bucket in [0, 1, 2, 3].map(|part| base + part * old) {
                let own = |key| address(hash(key), count) == bucket;
                now = self.buckets.rewrite(now, bucket, &self.moved, own)?;
            }
            now = self.buckets.release(now)?;
        }
        self.buckets.cursor = count - 1;
        self.counts.global_splits += 1;
        Ok(now)
    }
}

impl Index for LazySplit {
    fn insert(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        let (found, now) = self.seek(now, key, true)?;
        let now = self.buckets.put(now, found, key, value)?;
        if self.buckets.records > self.most {
            return self.append(now);
        }
        Ok(now)
    }

    fn update(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        let (found, now) = self.seek(now, key, false)?;
        match found.record {
            Some(_) => self.buckets.put(now, found, key, value),
            None => self.insert(now, key, value),
        }
    }

    fn delete(&mut self, mut now: Nanos, key: Key) -> Result<Nanos> {
        // Older values further down the list must be deleted as well.
        loop {
            let (found, done) = self.seek(now, key, false)?;
            now = done;
            let Some((at, slot, _)) = found.record else {
                return Ok(now);
            };
            now = self.buckets.remove(now, at, slot)?;
        }
    }

    fn get(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos)> {
        let (found, now) = self.seek(now, key, false)?;
        Ok((found.record.map(|(_, _, value)| value), now))
    }

    fn settle(&mut self, now: Nanos) -> Result<Nanos> {
        self.buckets.settle(now)
    }

    fn check(&mut self) -> Result<(), String> {
        let (count, cursor) = (self.buckets.count, self.buckets.cursor);
        if count > 4 * (cursor + 1) || !(cursor + 1).is_power_of_two() {
            return Err(format!(
                "{count} buckets do not go with the cursor {cursor}"
            ));
        }
        self.buckets.check(|bucket, keys| {
            for &key in keys {
                if !list(key, count, cursor).any(|other| other == bucket) {
                    return Err(format!("key {key} is in bucket {bucket}, not in its list"));
                }
                if list(key, count, cursor).count() > 3 {
                    return Err(format!(
                        "the list of key {key} is longer than three buckets"
                    ));
                }
            }
            Ok(())
        })?;
        self.buckets.check_load(self.load_factor, self.most)
    }

    of_cache!(buckets.cache, counts, buckets.overflow_taken);

    fn memory(&self) -> Vec<(&'static str, u64)> {
        self.buckets.memory()
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        let mut figures = self.counts.figures();
        figures.extend(self.buckets.figures());
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{History, blank, figure};
    use super::super::{IndexKind, MemStore};
    use super::*;
    use flagstone::dice::Dice;
    use flagstone::units::Lpn;

    const KIND: IndexKind = IndexKind::LazySplit;

    #[test]
    fn agrees_with_a_map_where_lists_are_long() {
        let settings = Settings::new().with("memory", 1024).with("load_factor", 3);
        History::of(KIND, settings).assert_agrees(3);
    }

    #[test]
    fn begins_with_as_many_buckets_as_it_is_told() {
        let first = |buckets: u32| {
            let settings = Settings::new().with("memory", 1024);
            settings.with("first_buckets", buckets)
        };
        History::of(KIND, first(8)).assert_agrees(3);
        let (index, _) = blank(open, &first(8), 256, 1 << 16);
        assert_eq!(figure(&*index, "buckets"), 8.0);
        let store = Box::new(MemStore::new(256, 64));
        let error = open(store, &first(3), Nanos::ZERO).err().expect("three");
        assert!(error.to_string().contains("a power of two"), "{error}");
    }

    fn small(load_factor: f64) -> (Box<dyn Index>, Nanos) {
        let settings = Settings::new()
            .with("memory", 4 * 256)
            .with("load_factor", load_factor);
        blank(open, &settings, 256, 1 << 16)
    }

    /// Fails if a global split that finds no room is never tried again, or if pages that it has
    /// reserved are lost.
    #[test]
    fn a_global_split_without_room_is_made_up_for_in_a_larger_store() {
        let settings = Settings::new()
            .with("memory", 4 * 256)
            .with("load_factor", 1.5);
        let mut made_up_for = 0;
        for pages in 16..100 {
            let (mut index, mut now) = blank(open, &settings, 256, pages);
            let mut dice = Dice(u64::from(pages));
            let splits = loop {
                let (key, before) = (dice.below(4_000), figure(&*index, "global_splits"));
                match index.insert(now, key, 1) {
                    Ok(done) => now = done,
                    // The record is there, and the next bucket or the split is not.
                    Err(_) => {
                        now = index.delete(now, key).expect("it needs no room");
                        break before;
                    }
                }
            };
            assert_eq!(index.check(), Ok(()), "{pages} pages, full");
            now = index.settle(now).expect("its metadata has its pages");
            assert_eq!(index.check(), Ok(()), "{pages} pages, settled");
            let mut store = index.into_store();
            let mut larger = Box::new(MemStore::new(256, 4 * pages));
            let mut page = [0; 256];
            for at in (0..pages).map(Lpn) {
                now = store.read(now, at, &mut page).expect("it is there");
                larger.write(now, &[(at, &page)]).expect("it is larger");
            }
            let (mut index, mut now) = open(larger, &settings, now).expect("it is whole");
            for key in (0..200).map(|i| 5_000 + i) {
                now = index.insert(now, key, 1).expect("there is room");
            }
            assert_eq!(index.check(), Ok(()), "{pages} pages, larger");
            made_up_for += u32::from(figure(&*index, "global_splits") > 0.0 && splits > 0.0);
        }
        assert!(made_up_for > 3, "{made_up_for}");
    }

    #[test]
    fn the_list_of_a_bucket_drops_the_highest_bit_until_the_cursor() {
        let list = |bucket, cursor| -> Vec<u32> {
            std::iter::successors(Some(bucket), |&bucket| older(bucket, cursor)).collect()
        };
        assert_eq!(list(13, 3), [13, 5, 1]);
        assert_eq!(list(9, 3), [9, 1]);
        assert_eq!(list(3, 3), [3]);
        // Three buckets are the maximum, for every possible cursor.
        for cursor in [0, 3, 15, 63, 255, 1023] {
            let lengths = (0..4 * (cursor + 1)).map(|bucket| list(bucket, cursor).len());
            assert_eq!(lengths.max(), Some(3));
        }
    }

    #[test]
    fn all_buckets_split_at_four_times_as_many_and_no_list_is_longer_than_three() {
        let (mut index, mut now) = small(0.75);
        let mut dice = Dice(3);
        let mut keys = Vec::new();
        let mut splits = Vec::new();
        for _ in 0..4000 {
            let before = figure(index.as_ref(), "global_splits");
            let key = dice.next();
            keys.push(key);
            now = index.insert(now, key, 1).expect("room");
            if figure(index.as_ref(), "global_splits") > before {
                splits.push(figure(index.as_ref(), "buckets"));
                assert_eq!(index.check(), Ok(()));
                // Now every list has one bucket.
                index.reset_stats();
                for &key in &keys {
                    now = index.get(now, key).expect("a good store").1;
                }
                assert_eq!(figure(index.as_ref(), "longest_list"), 1.0);
            }
        }
        assert_eq!(splits, [4.0, 16.0, 64.0, 256.0]);
        index.reset_stats();
        for &key in &keys {
            now = index.get(now, key).expect("a good store").1;
            now = index.get(now, !key).expect("a good store").1;
        }
        assert!(figure(index.as_ref(), "longest_list") <= 3.0);
        assert_eq!(index.check(), Ok(()));
    }

    #[test]
    fn three_buckets_are_looked_through_just_before_a_global_split() {
        let (mut index, mut now) = small(0.75);
        for key in 0..2800 {
            now = index.insert(now, key, 1).expect("room");
        }
        assert_eq!(figure(index.as_ref(), "buckets"), 249.0);
        index.reset_stats();
        for key in 0..2800 {
            now = index.get(now, key).expect("a good store").1;
        }
        assert_eq!(figure(index.as_ref(), "longest_list"), 3.0);
        let mean = figure(index.as_ref(), "probes") / figure(index.as_ref(), "lists");
        assert!((1.2..2.5).contains(&mean), "{mean} buckets a search");
    }

    #[test]
    fn no_search_sees_an_old_value_and_a_global_split_drops_it_d1_d2() {
        let (mut index, mut now) = small(1.5);
        for round in 1..=4 {
            for key in 0..3000 {
                now = index.insert(now, key, round).expect("room");
            }
            for key in 0..3000 {
                let (found, done) = index.get(now, key).expect("a good store");
                (now, _) = (done, assert_eq!(found, Some(round)));
            }
        }
        assert!(figure(index.as_ref(), "records") > 3000.0);
        assert!(figure(index.as_ref(), "overflow_taken") > 0.0);
        for key in 3000..9000 {
            now = index.insert(now, key, 5).expect("room");
        }
        assert!(figure(index.as_ref(), "shadowed") > 0.0);
        assert_eq!(index.check(), Ok(()));
        // A deletion also finds old values.
        for key in 0..9000 {
            now = index.delete(now, key).expect("a good store");
            let (found, done) = index.get(now, key).expect("a good store");
            (now, _) = (done, assert_eq!(found, None));
        }
        assert_eq!(figure(index.as_ref(), "records"), 0.0);
        // D3.
        assert!(figure(index.as_ref(), "buckets") > 300.0);
        assert_eq!(index.check(), Ok(()));
    }

    #[test]
    fn an_update_goes_to_the_record_where_it_is() {
        let (mut index, mut now) = small(0.75);
        for key in 0..2800 {
            now = index.insert(now, key, 1).expect("room");
        }
        let counts = |index: &dyn Index| {
            ["records", "buckets", "overflow_pages"].map(|name| figure(index, name))
        };
        let before = counts(index.as_ref());
        for key in (0..2800).rev() {
            now = index.update(now, key, 2).expect("room");
        }
        assert_eq!(counts(index.as_ref()), before);
        // For missing keys an update is an insertion.
        now = index.update(now, 5000, 3).expect("room");
        for (key, value) in [(0, Some(2)), (2799, Some(2)), (5000, Some(3)), (5001, None)] {
            assert_eq!(index.get(now, key).expect("a good store").0, value);
        }
        assert_eq!(index.check(), Ok(()));
    }
}
