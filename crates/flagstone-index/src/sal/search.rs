//! Searches log buffer, log region and bucket; a search may randomly merge a log region. [SAL]
//! §3.2, §3.3.

use super::options::Split;
use super::region::FILTERS;
use super::{Sal, analysis};
use crate::bucket::{Shape, hash, walk};
use crate::{Key, Result, Value};
use flagstone::units::{Lpn, Nanos};

impl Sal {
    /// Searches the log region of `set` for the newest log of `key`. Returns the log's value,
    /// `Some(None)` if the log is a deletion, or `None` if the region has no log of the key. At
    /// random it merges the region into its buckets instead (§3.3). Then it returns `None` as well:
    /// the answer is in the key's bucket.
    fn search_region(
        &mut self,
        now: Nanos,
        set: u32,
        key: Key,
    ) -> Result<(Option<Option<Value>>, Nanos)> {
        let regions = self.regions;
        let (head, mut now) = self.region_head(now, set)?;
        let pages = regions.len(head);
        let probes = regions.probes(key);
        // The log pages whose filters accept the key, newest first: the first `found` of the array.
        // All filters are probed before a merge or a read, as `head` borrows from the cache.
        let mut fired = [Lpn(0); FILTERS];
        let mut found = 0;
        for i in (0..pages).rev() {
            if regions.may_have(head, i, &probes) {
                fired[found] = regions.page(head, i).0;
                found += 1;
            }
        }
        self.counts.region_lookups += 1;
        if self.draws_merge(set, pages) && self.may_merge(set) {
            self.counts.merges_coin += 1;
            now = self.merge(now, set)?;
            return Ok((None, self.resize(now)?));
        }
        for &at in &fired[..found] {
            let (page, done) = self.cache.read(now, at)?;
            let (answer, compared) = regions.find(page, key);
            now = done;
            self.cache.compared(compared);
            self.counts.log_pages_read += 1;
            if answer.is_some() {
                return Ok((answer, now));
            }
            self.counts.filters_wrong += 1;
        }
        Ok((None, now))
    }

    /// Counts a lookup of `set`, and draws whether it shall merge the log region of `pages` log
    /// pages. §3.3.
    fn draws_merge(&mut self, set: u32, pages: usize) -> bool {
        let lookups = self.groups.lookups(set) + 1;
        self.groups.set_lookups(set, lookups);
        match self.options.split {
            Split::Lazy => false,
            Split::Eager => true,
            Split::Adaptive => {
                let hazard = analysis::merge_hazard(self.rental(set, pages), lookups);
                hazard >= 1.0 || self.draw() < hazard
            }
        }
    }

    /// Whether there is space for a merge, which a search can do without: pages are freed only
    /// after all groups of the set are written, and each bucket may overflow.
    fn may_merge(&self, set: u32) -> bool {
        let buckets = self.groups.size(set) << self.options.group_bits;
        self.space.left() >= 2 * buckets
    }

    /// The ski rental's p: the cost of a merge, in additional reads per search.
    pub(super) fn rental(&self, set: u32, pages: usize) -> u32 {
        let (group, pages) = (f64::from(self.group()), pages as f64);
        let reads = pages + 1.0 + group * (1.0 + self.budget.overflow_bound);
        let written = f64::from(self.groups.size(set)) * group;
        let writes = written * self.costs.ratio() / self.costs.speedup();
        let penalty = 1.0 + pages * self.options.false_positive;
        ((reads + writes) / penalty).round().clamp(1.0, 255.0) as u32
    }

    /// The value of a key.
    pub(super) fn seek(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos)> {
        let hash = hash(key);
        let set = self.set_of(hash);
        let mut now = now;
        let (log, compared) = self.logs.find(set, key, hash);
        self.cache.compared(compared);
        if let Some(log) = log {
            return Ok((log.found(), now));
        }
        if self.groups.has_region(set) {
            let (found, done) = self.search_region(now, set, key)?;
            if let Some(value) = found {
                return Ok((value, done));
            }
            now = done;
        } else if self.logs.count(set) > 0 {
            let lookups = self.groups.lookups(set);
            self.groups.set_lookups(set, lookups + 1);
        }
        // A merge may have changed the key's set.
        let (bucket, second) = self.home(self.set_of(hash), hash);
        let half = if second {
            self.overflows.find(bucket)
        } else {
            None
        };
        let first = half.unwrap_or_else(|| self.bucket_page(bucket));
        let (shape, used) = (self.shape, self.space.used());
        let found = |_, page: &[u8]| find(shape, page, hash);
        let ((_, record), now) = walk(&mut self.cache, shape, now, first, used.into(), found)?;
        Ok((record.map(|(_, value)| value), now))
    }
}

/// The slot of a hash in a page sorted by hash, searched near the position for evenly spread
/// hashes. Also returns the number of keys compared.
#[inline]
pub(super) fn find(shape: Shape, page: &[u8], wanted: u64) -> (Option<usize>, u64) {
    let len = shape.len(page);
    if len == 0 {
        return (None, 0);
    }
    let at = |slot| hash(shape.key(page, slot));
    let mut slot = (((wanted >> 32) * len as u64) >> 32) as usize;
    let mut found = at(slot);
    let mut compared = 1;
    if found < wanted {
        while found < wanted && slot + 1 < len {
            slot += 1;
            found = at(slot);
            compared += 1;
        }
    } else {
        while found > wanted && slot > 0 {
            slot -= 1;
            found = at(slot);
            compared += 1;
        }
    }
    // No two keys have the same hash.
    ((found == wanted).then_some(slot), compared)
}
