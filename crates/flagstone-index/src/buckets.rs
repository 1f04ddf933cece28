//! Buckets of a hash index that grows by one bucket at a time: page allocation, and lists of
//! overflow pages. The index itself decides when which bucket splits (`linear`, `lazy_split`).
//!
//! ```text
//!   bucket   0   1   2 3   4 … 7   8 9   10 11   12 13   14 15   16 … 19   …
//!   run      0   1   2     3       4     5       6       7       8         …
//! ```
//!
//! Bucket pages are allocated in runs of consecutive pages. From 8 buckets on each doubling has
//! four runs, so at most a fifth of the pages is unused. A run is never freed: buckets that are
//! appended again find their pages there.
//!
//! A bucket's page is the head of a doubly linked list; overflow pages follow, each with at least
//! one record.

use super::bucket::{Shape, walk};
use super::meta::Meta;
use super::space::Space;
use super::{BackingStore, Cache, IndexError, IndexInfo, Key, Result, Settings, Value, damaged};
use flagstone::layout;
use flagstone::layout::{Layout, get, put};
use flagstone::units::{Lpn, Nanos};

layout! {
    /// The head of a linear or lazy-split hash index's own metadata; the first page of each run
    /// follows, four bytes each.
    pub buckets_head: 24 => {
        BUCKETS:  4, "how many buckets there are";
        CURSOR:   4, "the last bucket at the last global split, in a lazy-split index";
        RECORDS:  8, "records in all pages";
        OVERFLOW: 8, "overflow pages";
    }
}

/// Records that this module keeps.
pub(super) const LAYOUTS: &[Layout] = &[buckets_head::RECORD];

/// The run of a bucket, the bucket's place in it, and the run's number of pages.
fn run_of(bucket: u32) -> (usize, u32, u32) {
    let bits = u32::BITS - bucket.leading_zeros();
    match bits {
        0 => (0, 0, 1),
        // Buckets 1 to 7: one run for each doubling.
        1..=3 => {
            let pages = 1 << (bits - 1);
            (bits as usize, bucket - pages, pages)
        }
        // Four runs for each doubling, a quarter of its buckets each.
        _ => {
            let pages = 1 << (bits - 3);
            let quarter = (bucket / pages) & 3;
            (
                4 * (bits as usize - 3) + quarter as usize,
                bucket & (pages - 1),
                pages,
            )
        }
    }
}

/// The result of a search for a key in a bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lookup {
    /// Page, slot and value of the record, if it was found.
    pub(super) record: Option<(Lpn, usize, Value)>,
    /// The first page with room, unless the key was found before.
    pub(super) room: Option<Lpn>,
    /// The last page searched.
    pub(super) last: Lpn,
}

/// Buckets, their pages, and the number of their records.
pub(super) struct Buckets {
    pub(super) cache: Cache,
    pub(super) shape: Shape,
    meta: Meta,
    space: Space,
    /// The first page of each run.
    runs: Vec<Lpn>,
    /// Number of buckets.
    pub(super) count: u32,
    /// The last bucket at the last global split, for indexes that have those.
    pub(super) cursor: u32,
    pub(super) records: u64,
    pub(super) overflow: u64,
    /// Overflow pages available for reuse while buckets are rewritten.
    spare: Vec<Lpn>,
    /// Records that were inserted into a full bucket.
    pub(super) overflow_taken: u64,
}

impl Buckets {
    /// Opens the buckets in a store. A blank store gets one empty bucket.
    pub(super) fn open(
        store: Box<dyn BackingStore>,
        info: &'static IndexInfo,
        settings: &Settings,
        now: Nanos,
    ) -> Result<(Buckets, Nanos)> {
        let value_bytes = info.value_bytes(settings)?;
        let (page_bytes, pages) = (store.page_bytes(), store.pages());
        let frames = info.memory(settings)? as usize / page_bytes;
        let mut cache = Cache::new(store, frames, info.buffer(settings)?);
        let ((meta, space, own), now) = Meta::load(&mut cache, info.name, value_bytes, now)?;
        let mut buckets = Buckets {
            cache,
            shape: Shape::new(page_bytes, value_bytes),
            meta,
            space,
            runs: Vec::new(),
            count: 0,
            cursor: 0,
            records: 0,
            overflow: 0,
            spare: Vec::new(),
            overflow_taken: 0,
        };
        let Some(own) = own else {
            buckets.append()?;
            return Ok((buckets, now));
        };
        let damaged = || IndexError::Damaged {
            at: Lpn(0),
            why: "it has not the runs of pages that its number of buckets needs".to_string(),
        };
        let (head, runs) = own
            .split_at_checked(buckets_head::SIZE)
            .ok_or_else(damaged)?;
        buckets.count = get(head, buckets_head::BUCKETS) as u32;
        buckets.cursor = get(head, buckets_head::CURSOR) as u32;
        buckets.records = get(head, buckets_head::RECORDS);
        buckets.overflow = get(head, buckets_head::OVERFLOW);
        for run in runs.chunks_exact(4) {
            buckets.runs.push(Lpn(get(run, 0..4) as u32));
        }
        let last = buckets.count.checked_sub(1).ok_or_else(damaged)?;
        // There are at least the runs of the last bucket. There may be more, since runs are kept
        // when buckets are dropped, but not more than bucket numbers can have.
        let possible = run_of(last).0 + 1..run_of(u32::MAX).0 + 2;
        if !possible.contains(&buckets.runs.len()) || buckets.cursor > last {
            return Err(damaged());
        }
        let mut ends = (0..).zip(&buckets.runs).map(|(run, first)| {
            let (_, _, len) = run_of(first_of(run));
            first.0.checked_add(len)
        });
        if !ends.all(|end| end.is_some_and(|end| end <= pages)) {
            return Err(damaged());
        }
        Ok((buckets, now))
    }

    /// The page of a bucket.
    #[inline]
    pub(super) fn page(&self, bucket: u32) -> Lpn {
        let (run, offset, _) = run_of(bucket);
        Lpn(self.runs[run].0 + offset)
    }

    /// Appends a bucket; returns its number. Its page is not written: never-written pages read as
    /// zeros, an empty bucket, and former bucket pages were trimmed or will be written.
    pub(super) fn append(&mut self) -> Result<u32> {
        let bucket = self.count;
        let (run, _, pages) = run_of(bucket);
        if run == self.runs.len() {
            self.runs.push(self.space.take_run(pages)?);
        }
        self.count += 1;
        Ok(bucket)
    }

    /// Searches a bucket for a key, to the end of its list.
    #[inline]
    pub(super) fn seek(&mut self, now: Nanos, bucket: u32, key: Key) -> Result<(Lookup, Nanos)> {
        let (shape, first, overflow) = (self.shape, self.page(bucket), self.overflow);
        let mut room = None;
        let ((last, record), now) =
            walk(&mut self.cache, shape, now, first, overflow, |at, page| {
                if room.is_none() && !shape.is_full(page) {
                    room = Some(at);
                }
                shape.search(page, key)
            })?;
        let record = record.map(|(slot, value)| (last, slot, value));
        Ok((Lookup { record, room, last }, now))
    }

    /// Sets the value of a key: in its record if it was found, or in the first page with space, or
    /// in a new overflow page at the end of the list.
    #[inline]
    pub(super) fn put(
        &mut self,
        now: Nanos,
        found: Lookup,
        key: Key,
        value: Value,
    ) -> Result<Nanos> {
        let shape = self.shape;
        if let Some((at, slot, _)) = found.record {
            let (page, done) = self.cache.change(now, at)?;
            shape.replace(page, slot, value);
            return Ok(done);
        }
        if let Some(at) = found.room {
            let (page, done) = self.cache.change(now, at)?;
            shape.push(page, key, value);
            self.records += 1;
            return Ok(done);
        }
        let new = self.space.take()?;
        let (page, now) = self.cache.change(now, found.last)?;
        shape.set_next(page, Some(new));
        let (page, now) = self.cache.fill(now, new)?;
        shape.set_prev(page, found.last);
        shape.push(page, key, value);
        self.records += 1;
        self.overflow += 1;
        self.overflow_taken += 1;
        Ok(now)
    }

    /// Removes a record. Unlinks an overflow page that becomes empty.
    pub(super) fn remove(&mut self, now: Nanos, at: Lpn, slot: usize) -> Result<Nanos> {
        let shape = self.shape;
        let Some(records) = self.records.checked_sub(1) else {
            return damaged(at, "it has a record more than the whole index");
        };
        let (page, mut now) = self.cache.change(now, at)?;
        shape.remove(page, slot);
        self.records = records;
        if shape.len(page) > 0 {
            return Ok(now);
        }
        let (prev, next) = (shape.prev(page), shape.next(page));
        let Some(prev) = prev else { return Ok(now) };
        let Some(overflow) = self.overflow.checked_sub(1) else {
            return damaged(at, "it is an overflow page more than the whole index has");
        };
        let (page, done) = self.cache.change(now, prev)?;
        shape.set_next(page, next);
        now = done;
        if let Some(next) = next {
            let (page, done) = self.cache.change(now, next)?;
            shape.set_prev(page, prev);
            now = done;
        }
        self.overflow = overflow;
        self.space.give(at)?;
        Ok(self.cache.forget(now, at)?)
    }

    /// Whether [`Buckets::reserve`] would find a page.
    pub(super) fn has_room(&self) -> bool {
        !self.spare.is_empty() || self.space.left() > 0
    }

    /// Ensures that rewriting buckets can use `pages` more overflow pages than they have.
    pub(super) fn reserve(&mut self, pages: usize) -> Result<()> {
        while self.spare.len() < pages {
            self.spare.push(self.space.take()?);
        }
        Ok(())
    }

    /// Appends all records of a bucket to `into`, in the order of its list, and counts them out.
    /// The caller will rewrite the bucket; its overflow pages become spare.
    pub(super) fn gather(
        &mut self,
        mut now: Nanos,
        bucket: u32,
        into: &mut Vec<(Key, Value)>,
    ) -> Result<Nanos> {
        let first = self.page(bucket);
        let mut at = first;
        loop {
            let (page, done) = self.cache.read(now, at)?;
            self.shape.check_read(page, at)?;
            now = done;
            let is_overflow = u64::from(at != first);
            let left = self.records.checked_sub(self.shape.len(page) as u64);
            let (Some(left), Some(pages)) = (left, self.overflow.checked_sub(is_overflow)) else {
                return damaged(at, "its bucket has more than the whole index");
            };
            (self.records, self.overflow) = (left, pages);
            into.extend(self.shape.records(page));
            let next = self.shape.next(page);
            if at != first {
                self.spare.push(at);
            }
            match next {
                Some(next) => at = next,
                None => return Ok(now),
            }
        }
    }

    /// Rewrites a gathered bucket with those of `records` whose keys satisfy `own`. Overflow pages
    /// come from the spare ones first.
    pub(super) fn rewrite(
        &mut self,
        mut now: Nanos,
        bucket: u32,
        records: &[(Key, Value)],
        mut own: impl FnMut(Key) -> bool,
    ) -> Result<Nanos> {
        let shape = self.shape;
        let mut at = self.page(bucket);
        let (mut page, done) = self.cache.fill(now, at)?;
        now = done;
        for &(key, value) in records {
            if !own(key) {
                continue;
            }
            if shape.is_full(page) {
                let next = match self.spare.pop() {
                    Some(next) => next,
                    None => self.space.take()?,
                };
                shape.set_next(page, Some(next));
                let (new, done) = self.cache.fill(now, next)?;
                shape.set_prev(new, at);
                (page, at, now) = (new, next, done);
                self.overflow += 1;
            }
            shape.push(page, key, value);
            self.records += 1;
        }
        Ok(now)
    }

    /// Frees overflow pages that no bucket needed.
    pub(super) fn release(&mut self, mut now: Nanos) -> Result<Nanos> {
        while let Some(page) = self.spare.pop() {
            self.space.give(page)?;
            now = self.cache.forget(now, page)?;
        }
        Ok(now)
    }

    /// Removes the last bucket. Its records were gathered before.
    pub(super) fn drop_last(&mut self, now: Nanos) -> Result<Nanos> {
        self.count -= 1;
        let page = self.page(self.count);
        Ok(self.cache.forget(now, page)?)
    }

    /// Writes changed pages, and the metadata. Frees pages that a split without room has reserved.
    pub(super) fn settle(&mut self, now: Nanos) -> Result<Nanos> {
        let now = self.release(now)?;
        let mut own = vec![0; buckets_head::SIZE];
        put(&mut own, buckets_head::BUCKETS, u64::from(self.count));
        put(&mut own, buckets_head::CURSOR, u64::from(self.cursor));
        put(&mut own, buckets_head::RECORDS, self.records);
        put(&mut own, buckets_head::OVERFLOW, self.overflow);
        for run in &self.runs {
            own.extend_from_slice(&run.0.to_le_bytes());
        }
        self.meta
            .settle(&mut self.cache, &mut self.space, &own, now)
    }

    /// Checks pages, lists and counts. `each` sees the keys of a bucket in the order of its list.
    pub(super) fn check(
        &mut self,
        mut each: impl FnMut(u32, &[Key]) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut used = [self.meta.pages(), &self.spare].concat();
        for (run, &first) in self.runs.iter().enumerate() {
            let (_, _, pages) = run_of(first_of(run));
            used.extend((first.0..first.0 + pages).map(Lpn));
        }
        let (mut records, mut overflow, mut keys) = (0, 0, Vec::new());
        for bucket in 0..self.count {
            keys.clear();
            let mut at = self.page(bucket);
            let mut prev = None;
            loop {
                let page = self.cache.inspect(at).map_err(|error| error.to_string())?;
                self.shape.check(&page)?;
                if self.shape.prev(&page) != prev {
                    return Err(format!("page {at} of bucket {bucket} is linked wrongly"));
                }
                if prev.is_some() {
                    used.push(at);
                    overflow += 1;
                    if self.shape.len(&page) == 0 {
                        return Err(format!("overflow page {at} is empty"));
                    }
                }
                keys.extend(self.shape.records(&page).map(|(key, _)| key));
                prev = Some(at);
                match self.shape.next(&page) {
                    Some(_) if overflow > u64::from(self.space.used()) => {
                        return Err(format!("the list of bucket {bucket} has no end"));
                    }
                    Some(next) => at = next,
                    None => break,
                }
            }
            records += keys.len() as u64;
            each(bucket, &keys)?;
            keys.sort_unstable();
            if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(format!("key {} is twice in bucket {bucket}", pair[0]));
            }
        }
        if (records, overflow) != (self.records, self.overflow) {
            return Err(format!(
                "there are {records} records and {overflow} overflow pages, counted were {} and {}",
                self.records, self.overflow
            ));
        }
        self.space.check(used)
    }

    /// Checks that there are not more records than `most`, the number that the load factor allows.
    pub(super) fn check_load(&self, load_factor: f64, most: u64) -> Result<(), String> {
        // Except on tiny pages, a bucket makes room for more than the record that requested it.
        let step = load_factor * self.shape.capacity() as f64;
        if step >= 1.0 && self.records > most {
            let (records, count) = (self.records, self.count);
            return Err(format!(
                "{records} records are more than the load factor of {load_factor} allows in \
                 {count} buckets"
            ));
        }
        Ok(())
    }

    /// Number of buckets, pages and records.
    pub(super) fn figures(&self) -> [(&'static str, f64); 4] {
        [
            ("overflow_taken", self.overflow_taken as f64),
            ("overflow_pages", self.overflow as f64),
            ("buckets", f64::from(self.count)),
            ("records", self.records as f64),
        ]
    }

    /// Bytes of each structure in memory.
    pub(super) fn memory(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("page_cache", self.cache.memory()),
            ("runs", (self.runs.len() * size_of::<Lpn>()) as u64),
            ("free_pages", self.space.memory()),
        ]
    }
}

/// The first bucket of a run.
fn first_of(run: usize) -> u32 {
    match run {
        0 => 0,
        1..=3 => 1 << (run - 1),
        _ => (4 + (run as u32 & 3)) << (run / 4),
    }
}

#[cfg(test)]
mod tests;
