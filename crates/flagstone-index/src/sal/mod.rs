//! SAL-hashing: linear hashing whose groups of buckets are written whole, with a log region for
//! each set of groups that takes changes in and is merged when searches say so.
//!
//! Paper       \[SAL] §3.
//! Idea        A bucket is a page and a group a power of two of them, side by side. Changes wait in
//!             a log buffer by set of groups, go to the set's log region together, and into the
//!             buckets when the region is full or, by a coin whose odds are those of the ski
//!             rental, when it is searched. A group added splits no bucket: its records come when
//!             the set is merged, in the same coarse writes.
//! Cost        A search reads a bucket, in one page whether it overflows or not; a set with a log
//!             region costs its head more, and its filters' errors. A flush of a set writes two
//!             pages. A merge reads and writes each group of the set in one go.
//!
//!   bucket     bucket_head, records                           bucket.rs
//!   region     region_head, filters · log_head, logs          region.rs
//!   metadata   sal_meta, first pages of batches, two bytes a group, overflow index
//!
//! Invariants  1. Sets partition the groups; the first group of a set has its records, but for
//!                those in its log region and the log buffer, which are newer in this order.
//!             2. A key has at most one log in the buffer, of its set.
//!             3. A filter has every key of its log page.
//!             4. A bucket with more records than a page is virtually split: those whose next bit
//!                is set are in the page that the overflow index names.
//!             5. Sizes count the records of the buckets exactly, and others as far as known.
//!
//! Departures  D1. The merge distribution (3) with its −1 in the right place, and the coin at the
//!                 i-th lookup is the hazard: flipping π_i would merge later than (9) says.
//!             D2. The cost of a merge in (3) is the reads of region and group and the writes of
//!                 all groups, in reads; the paper leaves the p of its ski rental open.
//!             D3. Any bucket that overflows is split virtually, not only one that the cycle has
//!                 not reached: it costs nothing more. What still has no room is in a chain.
//!             D4. Logs that fit the last log page of a region are added to it instead of to a new
//!                 one, unless `append` is new-page: the region takes more of them before it is
//!                 full.
//!             D5. Batches of pages double only up to a setting, so that the last one leaves no
//!                 half of a store unused.
//!             D6. A log in a page has a byte for what it is, where the paper has four; in memory
//!                 it has r + 4 bytes as there.
//!             D7. Overflow pages of a merged group are written with it, in one request.
//!             D8. Buckets are never taken away: deleted records leave room for others.
//!             D9. The records of a page are in the order of their hashes, because pages are
//!                 written whole anyway: a search compares few keys.

pub mod analysis;
mod check;
mod costs;
mod groups;
mod logs;
mod merge;
mod options;
mod overflow;
mod region;
mod resize;
mod saved;
mod search;
#[cfg(test)]
mod tests;

use super::bucket::{Shape, hash};
use super::meta::Meta;
use super::space::Space;
use super::{
    BackingStore, Cache, Index, IndexError, Key, Result, Settings, Value, counters, of_cache,
};
use costs::Costs;
use flagstone::layout::Layout;
use flagstone::units::{Lpn, Nanos};
use groups::Groups;
use logs::{Change, Log, Logs};
pub(super) use options::INFO;
use options::{Options, Split};
use overflow::Overflows;
use region::Regions;
use resize::Budget;

/// Records that this module keeps.
pub const LAYOUTS: &[Layout] = &[
    saved::sal_meta::RECORD,
    region::region_head::RECORD,
    region::region_entry::RECORD,
    region::log_head::RECORD,
    region::log_entry::RECORD,
];

counters! {
    /// Counters.
    struct Counts {
        flushes,
        logs_flushed,
        /// Merges: of full regions, by chance at searches, and for an added group.
        merges_full,
        merges_coin,
        merges_eager,
        logs_merged,
        /// Merges that spread a set over several groups.
        lazy_splits,
        groups_added,
        region_lookups,
        log_pages_read,
        /// Bloom filters that were positive although the page lacked the key.
        filters_wrong,
        virtual_splits,
        chained_pages,
        log_buffer_grown,
        log_buffer_shrunk,
    }
}

struct Sal {
    cache: Cache,
    meta: Meta,
    space: Space,
    shape: Shape,
    regions: Regions,
    options: Options,
    groups: Groups,
    /// The first page of each batch: buckets, then the heads of its groups' log regions.
    batches: Vec<Lpn>,
    /// Whether a group was in the store when it was opened and was not written since. Its buckets
    /// may have been written with other settings. Only for checks, and not counted as memory.
    found: Vec<bool>,
    logs: Logs,
    overflows: Overflows,
    /// Number of records in buckets.
    stored: i64,
    /// Number of records by which the log regions change `stored`, as far as known.
    pending: i64,
    /// Above this number of records a group is added.
    limit: i64,
    dice: u64,
    costs: Costs,
    budget: Budget,
    counts: Counts,
}

pub(super) fn open(
    store: Box<dyn BackingStore>,
    settings: &Settings,
    now: Nanos,
) -> Result<(Box<dyn Index>, Nanos)> {
    let (index, now) = start(store, settings, now)?;
    Ok((Box::new(index), now))
}

/// Opens the index in a store, or makes one of two empty groups in a blank store.
fn start(store: Box<dyn BackingStore>, settings: &Settings, now: Nanos) -> Result<(Sal, Nanos)> {
    let value_bytes = INFO.value_bytes(settings)?;
    let options = Options::new(settings)?;
    let page_bytes = store.page_bytes();
    let shape = Shape::new(page_bytes, value_bytes);
    let regions = Regions::new(page_bytes, value_bytes, options.false_positive);
    let regions = regions.ok_or_else(|| {
        IndexError::Settings(
            "a page has no room for a Bloom filter of one page of logs: raise false_positive of \
             sal"
            .to_string(),
        )
    })?;
    let given = |name: &str| -> Result<Option<f64>> {
        let number: f64 = settings.number(&INFO, name, 0.0, 1000.0)?;
        Ok((number > 0.0).then_some(number))
    };
    let costs = Costs::new(given("speedup")?, given("write_read")?);
    let budget = Budget::new(settings, page_bytes, shape.capacity(), options)?;
    let mut cache = Cache::new(store, budget.frames(0), INFO.buffer(settings)?);
    let ((meta, space, own), now) = Meta::load(&mut cache, INFO.name, value_bytes, now)?;
    let mut index = Sal {
        cache,
        meta,
        space,
        shape,
        regions,
        options,
        groups: Groups::new(),
        batches: Vec::new(),
        found: Vec::new(),
        logs: Logs::new(budget.logs(2), 2),
        overflows: Overflows::new(),
        stored: 0,
        pending: 0,
        limit: 0,
        dice: settings.number(&INFO, "seed", 0, u64::MAX)?,
        costs,
        budget,
        counts: Counts::default(),
    };
    match own {
        Some(own) => index.restore(&own)?,
        None => index.take_batch()?,
    }
    index.grown();
    Ok((index, now))
}

impl Sal {
    /// Buckets per group.
    fn group(&self) -> u32 {
        1 << self.options.group_bits
    }

    /// A group's batch: index, first group, and number of groups.
    fn batch(&self, group: u32) -> (usize, u32, u32) {
        // The first batch has two groups, each further one as many as all before it, up to `most`.
        let most = self.options.batch;
        if group < 2 {
            (0, 0, 2)
        } else if group < most {
            let bits = group.ilog2();
            (bits as usize, 1 << bits, 1 << bits)
        } else {
            let i = most.ilog2() + group / most - 1;
            (i as usize, group & !(most - 1), most)
        }
    }

    /// The first page of a group; its buckets are consecutive.
    fn group_page(&self, group: u32) -> Lpn {
        let (batch, first, _) = self.batch(group);
        Lpn(self.batches[batch].0 + ((group - first) << self.options.group_bits))
    }

    /// The page of a bucket.
    #[inline]
    fn bucket_page(&self, bucket: u32) -> Lpn {
        let first = self.group_page(bucket >> self.options.group_bits);
        Lpn(first.0 + (bucket & (self.group() - 1)))
    }

    /// The head page of a set's log region, which belongs to its first group.
    fn head_page(&self, set: u32) -> Lpn {
        let (batch, first, groups) = self.batch(set);
        Lpn(self.batches[batch].0 + (groups << self.options.group_bits) + (set - first))
    }

    /// Allocates the pages of the next batch: buckets, and a head for each group.
    fn take_batch(&mut self) -> Result<()> {
        let (batch, _, groups) = self.batch(match self.batches.len() {
            0 => 0,
            _ => self.groups.len(),
        });
        debug_assert_eq!(batch, self.batches.len());
        let pages = (groups << self.options.group_bits) + groups;
        self.batches.push(self.space.take_run(pages)?);
        Ok(())
    }

    /// Called after the number of groups changed.
    fn grown(&mut self) {
        let buckets = self.groups.len() << self.options.group_bits;
        let places = f64::from(buckets) * self.shape.capacity() as f64;
        self.limit = (self.options.load_factor * places) as i64;
        self.overflows.grow(buckets);
    }

    /// The set of a key.
    #[inline]
    fn set_of(&self, hash: u64) -> u32 {
        set_of(&self.groups, self.options.group_bits, hash)
    }

    /// The bucket with a set's records of a hash, and whether the hash belongs to its second half.
    #[inline]
    fn home(&self, set: u32, hash: u64) -> (u32, bool) {
        let bits = self.options.group_bits;
        let bucket = (set << bits) | (hash as u32 & ((1 << bits) - 1));
        (bucket, hash >> (bits + self.groups.depth(set)) & 1 == 1)
    }

    /// A number in [0, 1) from the index's own generator (splitmix64).
    fn draw(&mut self) -> f64 {
        self.dice = self.dice.wrapping_add(0x9E37_79B9_7F4A_7C15);
        (hash(self.dice) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The number of records, as far as known.
    fn records(&self) -> i64 {
        self.stored + self.pending + self.logs.records()
    }

    /// Adds a group if there are too many records for the existing ones. Algorithms 1 and 2.
    fn grow(&mut self, mut now: Nanos) -> Result<Nanos> {
        if self.records() < self.limit {
            return Ok(now);
        }
        let group = self.groups.len();
        if self.batch(group).0 == self.batches.len() {
            self.take_batch()?;
        }
        let set = self.groups.add();
        self.counts.groups_added += 1;
        self.grown();
        if self.options.split == Split::Eager {
            self.counts.merges_eager += 1;
            now = self.merge(now, set)?;
        }
        if !self.logs.suits(self.groups.sets()) {
            self.rebuild_logs(self.logs.capacity());
        }
        Ok(now)
    }

    /// Rebuilds the log buffer for `capacity` logs and for the present sets.
    fn rebuild_logs(&mut self, capacity: usize) {
        let (groups, bits) = (&self.groups, self.options.group_bits);
        let of = |hash| set_of(groups, bits, hash);
        let region = |set| groups.has_region(set);
        self.logs.rebuild(capacity, groups.sets(), &of, &region);
    }

    /// Adds a change to the log buffer.
    fn log(&mut self, mut now: Nanos, log: Log) -> Result<Nanos> {
        let hash = hash(log.key);
        let set = self.set_of(hash);
        let region = self.groups.has_region(set);
        let compared = self.logs.put(set, region, hash, log);
        self.cache.compared(compared);
        while self.logs.is_full() {
            now = self.make_room(now)?;
        }
        self.resize(now)
    }
}

/// The set of a key.
#[inline]
fn set_of(groups: &Groups, group_bits: u32, hash: u64) -> u32 {
    groups.set_of(groups.of(hash >> group_bits))
}

impl Index for Sal {
    fn insert(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        let now = self.grow(now)?;
        let change = Change::Insert;
        self.log(now, Log { key, value, change })
    }

    fn update(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        let change = Change::Update;
        self.log(now, Log { key, value, change })
    }

    fn delete(&mut self, now: Nanos, key: Key) -> Result<Nanos> {
        let (value, change) = (0, Change::Delete);
        self.log(now, Log { key, value, change })
    }

    fn get(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos)> {
        let (reads, writes) = self.cache.transfers();
        let (value, done) = self.seek(now, key)?;
        if done > now {
            let (more_reads, more_writes) = self.cache.transfers();
            self.costs
                .singles(more_reads - reads, more_writes - writes, done.since(now));
        }
        Ok((value, done))
    }

    fn settle(&mut self, now: Nanos) -> Result<Nanos> {
        let own = self.emit();
        self.meta
            .settle(&mut self.cache, &mut self.space, &own, now)
    }

    fn flush(&mut self, mut now: Nanos) -> Result<Nanos> {
        let merges = self.options.split == Split::Eager;
        for set in 0..self.groups.len() {
            let waits = self.logs.count(set) > 0;
            if merges && self.groups.leads(set) && (waits || self.groups.has_region(set)) {
                now = self.merge(now, set)?;
            } else if waits {
                now = self.flush_set(now, set)?;
            }
        }
        self.settle(now)
    }

    /// A change takes at most one log page or overflow page. A merge that it starts frees pages
    /// only after writing all.
    fn may_lack_room(&self, changes: u32) -> bool {
        let most = u64::from(changes) * 2 + u64::from(self.group()) * 2 + 8;
        u64::from(self.space.left()) < most
    }

    fn check(&mut self) -> Result<(), String> {
        self.check_all()
    }

    of_cache!(cache, counts);

    fn memory(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("page_cache", self.cache.memory()),
            ("log_buffer", self.logs.memory()),
            ("groups", self.groups.memory()),
            ("overflow_index", self.overflows.memory()),
            ("free_pages", self.space.memory()),
        ]
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        let regions = (0..self.groups.len()).filter(|&x| self.groups.has_region(x));
        let mut figures = self.counts.figures();
        figures.extend([
            ("records", self.records() as f64),
            ("pages_used", f64::from(self.space.used())),
            ("groups", f64::from(self.groups.len())),
            ("sets", self.groups.sets() as f64),
            ("log_regions", regions.count() as f64),
            ("overflow_entries", self.overflows.len() as f64),
            ("overflow_memory_pages", self.overflows.pages() as f64),
            ("cluster_splits", self.overflows.splits() as f64),
            ("log_buffer_pages", self.budget.pages() as f64),
            ("speedup", self.costs.speedup()),
            ("write_read", self.costs.ratio()),
        ]);
        figures
    }
}
