//! Linear hashing: buckets split in turn, whichever is full.
//!
//! Paper       [LinearHashing]; the basis and a baseline of [SAL] §3.4, §4.
//! Idea        When there are more records than the load factor allows, the bucket that the split
//!             pointer names is split in two, and the pointer goes on to the next. A full bucket
//!             that has to wait for its turn has overflow pages. No directory is needed.
//! Cost        One page read a search, and one for each overflow page that is passed. An insertion
//!             reads the whole list and changes one page; a split reads a list and writes two.
//!
//!   pages     buckets.rs: buckets in runs of consecutive pages, doubly linked overflow pages
//!
//!   buckets   0 … p-1 | p … m-1 | m … m+p-1     p: the split pointer, m: the last power of two
//!              split     not yet   from splits
//!
//! Invariants  1. A key is in the list of the bucket that `address` gives, once.
//!             2. There are not more records than the load factor allows.
//!
//! Departures  D1. An insertion looks for its key first, since a key has one value: it reads the
//!                 whole list where the paper appends.
//!             D2. A bucket that is taken back leaves its page in its run for the next time.

use super::bucket::{address, hash};
use super::buckets::Buckets;
use super::{BackingStore, Index, IndexInfo, Key, Result, Settings, Value, counters, of_cache};
use flagstone::settings::settings;
use flagstone::units::Nanos;

pub(super) const INFO: IndexInfo = IndexInfo {
    name: "linear",
    idea: "buckets split in a fixed order as the index grows, and have overflow pages until then",
    paper: "[LinearHashing]",
    ordered: false,
    buffers: false,
    settings: settings! {
        load_factor: "0.75",
            "load factor above which a bucket splits, 0.1 to 4: records per slot of the bucket \
             pages";
        contract_below: "0.5",
            "load factor below which the last split is undone, 0 (never) to load_factor";
    },
    tiny: &[],
    costs: [
        "1 read, and 1 per overflow page passed",
        "1 read, 1 per overflow page, 1 program",
        "reads of a list, 2 programs",
    ],
};

struct Linear {
    buckets: Buckets,
    load_factor: f64,
    contract_below: f64,
    /// Above this number of records a bucket splits.
    most: u64,
    /// Below this number a split is undone.
    least: u64,
    /// Buffer for records moving from one bucket to two, or back.
    moved: Vec<(Key, Value)>,
    counts: Counts,
}

counters! {
    struct Counts {
        splits,
        contractions,
    }
}

/// Opens the index in a store. Splits buckets at once if it has more records than the load factor
/// allows.
pub(super) fn open(
    store: Box<dyn BackingStore>,
    settings: &Settings,
    now: Nanos,
) -> Result<(Box<dyn Index>, Nanos)> {
    let load_factor = settings.number(&INFO, "load_factor", 0.1, 4.0)?;
    let (buckets, now) = Buckets::open(store, &INFO, settings, now)?;
    let mut index = Linear {
        buckets,
        load_factor,
        contract_below: settings.number(&INFO, "contract_below", 0.0, load_factor)?,
        most: 0,
        least: 0,
        moved: Vec::new(),
        counts: Counts::default(),
    };
    index.set_limits();
    // The store may have been written with another load factor.
    let mut now = now;
    while index.buckets.records > index.most {
        now = index.split(now)?;
    }
    Ok((Box::new(index), now))
}

/// The bucket whose split creates `bucket`: `bucket` without its highest bit.
fn origin(bucket: u32) -> u32 {
    bucket & !(1 << bucket.ilog2())
}

impl Linear {
    /// Sets the numbers of records at which the next bucket splits, or the last split is undone.
    fn set_limits(&mut self) {
        let places = |count: u32| f64::from(count) * self.buckets.shape.capacity() as f64;
        let count = self.buckets.count;
        self.most = (places(count) * self.load_factor) as u64;
        self.least = if count > 1 {
            // After a contraction the other buckets must hold the records within the load factor.
            // With few buckets `contract_below` alone does not ensure that.
            let fit = (places(count - 1) * self.load_factor) as u64;
            ((places(count) * self.contract_below) as u64).min(fit + 1)
        } else {
            0
        };
    }

    #[inline]
    fn bucket(&self, key: Key) -> u32 {
        address(hash(key), self.buckets.count)
    }

    /// Splits the next bucket in turn.
    fn split(&mut self, now: Nanos) -> Result<Nanos> {
        // Records on two lists may need one overflow page more than on one.
        self.buckets.reserve(1)?;
        let new = self.buckets.append()?;
        let old = origin(new);
        self.moved.clear();
        let mut now = self.buckets.gather(now, old, &mut self.moved)?;
        let count = self.buckets.count;
        for bucket in [old, new] {
            let own = |key| address(hash(key), count) == bucket;
            now = self.buckets.rewrite(now, bucket, &self.moved, own)?;
        }
        self.counts.splits += 1;
        self.set_limits();
        self.buckets.release(now)
    }

    /// Undoes the last split.
    fn contract(&mut self, now: Nanos) -> Result<Nanos> {
        self.buckets.reserve(1)?;
        let last = self.buckets.count - 1;
        let old = origin(last);
        self.moved.clear();
        let now = self.buckets.gather(now, old, &mut self.moved)?;
        let now = self.buckets.gather(now, last, &mut self.moved)?;
        let now = self.buckets.drop_last(now)?;
        let now = self.buckets.rewrite(now, old, &self.moved, |_| true)?;
        self.counts.contractions += 1;
        self.set_limits();
        self.buckets.release(now)
    }
}

impl Index for Linear {
    fn insert(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        let bucket = self.bucket(key);
        let (found, now) = self.buckets.seek(now, bucket, key)?;
        let now = self.buckets.put(now, found, key, value)?;
        if self.buckets.records > self.most {
            return self.split(now);
        }
        Ok(now)
    }

    fn delete(&mut self, now: Nanos, key: Key) -> Result<Nanos> {
        let bucket = self.bucket(key);
        let (found, now) = self.buckets.seek(now, bucket, key)?;
        let Some((at, slot, _)) = found.record else {
            return Ok(now);
        };
        let now = self.buckets.remove(now, at, slot)?;
        // On a full store this is deferred until a deletion frees a page for the move.
        if self.buckets.records < self.least && self.buckets.has_room() {
            return self.contract(now);
        }
        Ok(now)
    }

    fn get(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos)> {
        let bucket = self.bucket(key);
        let (found, now) = self.buckets.seek(now, bucket, key)?;
        Ok((found.record.map(|(_, _, value)| value), now))
    }

    fn settle(&mut self, now: Nanos) -> Result<Nanos> {
        self.buckets.settle(now)
    }

    fn check(&mut self) -> Result<(), String> {
        let count = self.buckets.count;
        self.buckets.check(|bucket, keys| {
            let stray = |key: &&Key| address(hash(**key), count) != bucket;
            match keys.iter().find(stray) {
                Some(key) => Err(format!("key {key} is in the wrong bucket, {bucket}")),
                None => Ok(()),
            }
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
    use super::super::IndexKind;
    use super::super::model::{History, blank, figure};
    use super::*;
    use flagstone::dice::Dice;

    const KIND: IndexKind = IndexKind::Linear;

    #[test]
    fn agrees_with_a_map_where_lists_are_long() {
        let settings = Settings::new()
            .with("memory", 1024)
            .with("load_factor", 3)
            .with("contract_below", 2.5);
        History::of(KIND, settings).assert_agrees(3);
    }

    #[test]
    fn agrees_with_a_map_on_the_smallest_pages() {
        for value_bytes in [1, 4, 8] {
            let settings = Settings::new()
                .with("memory", 256)
                .with("value_bytes", value_bytes);
            let history = History {
                page_bytes: 64,
                ..History::of(KIND, settings)
            };
            history.assert_agrees(1);
        }
    }

    #[test]
    fn buckets_split_in_turn_and_every_way_to_change_them_happens() {
        let settings = Settings::new().with("memory", 4 * 256);
        let (mut index, mut now) = blank(open, &settings, 256, 4096);
        let mut dice = Dice(7);
        let keys: Vec<Key> = (0..2000).map(|_| dice.next()).collect();
        let mut most: f64 = 0.0;
        for (i, &key) in keys.iter().enumerate() {
            now = index.insert(now, key, 1).expect("room");
            // 15 records per page: one more bucket for each 11.25 records.
            let buckets = ((i + 1) as f64 / 11.25).ceil();
            assert_eq!(figure(index.as_ref(), "buckets"), buckets);
            assert_eq!(figure(index.as_ref(), "splits"), buckets - 1.0);
            most = most.max(figure(index.as_ref(), "overflow_pages"));
        }
        assert!(most > 10.0 && figure(index.as_ref(), "overflow_taken") > most);
        assert_eq!(index.check(), Ok(()));
        for &key in &keys {
            now = index.delete(now, key).expect("a good store");
        }
        assert_eq!(index.check(), Ok(()));
        assert_eq!(figure(index.as_ref(), "overflow_pages"), 0.0);
        assert_eq!(figure(index.as_ref(), "buckets"), 1.0);
        assert!(figure(index.as_ref(), "contractions") > 100.0);
        // D2: growing again takes no additional pages.
        let pages = index.memory();
        for &key in &keys {
            now = index.insert(now, key, 1).expect("room");
        }
        assert_eq!(index.check(), Ok(()));
        assert_eq!(index.memory()[1], pages[1]);
    }

    #[test]
    fn the_split_sequence_is_the_papers() {
        let order: Vec<u32> = (1..16).map(origin).collect();
        assert_eq!(order, [0, 0, 1, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn an_insertion_of_a_key_that_is_there_replaces_it_d1() {
        let settings = Settings::new().with("load_factor", 4);
        let (mut index, mut now) = blank(open, &settings, 64, 4096);
        for round in 1..=3 {
            for key in 0..40 {
                now = index.insert(now, key, round).expect("room");
            }
        }
        assert_eq!(figure(index.as_ref(), "records"), 40.0);
        assert_eq!(index.get(now, 39).expect("a good store").0, Some(3));
    }

    #[test]
    fn a_store_that_is_opened_with_another_load_factor_is_split_at_once() {
        let settings = Settings::new().with("load_factor", 2);
        let (mut index, mut now) = blank(open, &settings, 256, 4096);
        for key in 0..500 {
            now = index.insert(now, key, 1).expect("room");
        }
        now = index.settle(now).expect("a good store");
        let (mut index, _) = open(index.into_store(), &Settings::new(), now).expect("an index");
        assert_eq!(index.check(), Ok(()));
        assert_eq!(figure(index.as_ref(), "buckets"), (500.0 / 11.25f64).ceil());
    }
}
