//! Searching: log buffer, log region, bucket; and the coin by which a search merges a log region.
//! [SAL] §3.2, §3.3.

use super::options::Split;
use super::region::FILTERS;
use super::{Sal, analysis};
use crate::index::bucket::hash;
use crate::index::{IndexError, Key, Value};
use crate::units::{Lpn, Nanos};

impl Sal {
    /// Searches the log region of a set: what the newest log of the key says. It may be merged
    /// instead; then nothing is found.
    fn search_region(
        &mut self,
        now: Nanos,
        set: u32,
        key: Key,
    ) -> Result<(Option<Option<Value>>, Nanos), IndexError> {
        let (at, regions) = (self.head_page(set), self.regions);
        let (head, mut now) = self.cache.read(now, at)?;
        if !regions.is_head(head, set) {
            let why = format!("it is not the head of the log region of set {set}");
            return Err(IndexError::Damaged { at, why });
        }
        let pages = regions.len(head);
        let probes = regions.probes(key);
        let mut fired = [Lpn(0); FILTERS];
        let mut found = 0;
        for i in (0..pages).rev() {
            if regions.may_have(head, i, &probes) {
                fired[found] = regions.page(head, i).0;
                found += 1;
            }
        }
        self.counts.region_lookups += 1;
        if self.flip(set, pages) {
            self.counts.coin += 1;
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
            self.counts.wrong += 1;
        }
        Ok((None, now))
    }

    /// Whether the log region is merged at this lookup. §3.3.
    fn flip(&mut self, set: u32, pages: usize) -> bool {
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

    /// The p of the ski rental: what a merge costs, in the additional reads of a search.
    pub(super) fn rental(&self, set: u32, pages: usize) -> u32 {
        let (group, pages) = (f64::from(self.group()), pages as f64);
        let reads = pages + 1.0 + group * (1.0 + self.budget.overflow_bound);
        let written = f64::from(self.groups.size(set)) * group;
        let writes = written * self.costs.ratio() / self.costs.speedup();
        let penalty = 1.0 + pages * self.options.false_positive;
        ((reads + writes) / penalty).round().clamp(1.0, 255.0) as u32
    }

    /// The value of a key.
    pub(super) fn seek(
        &mut self,
        now: Nanos,
        key: Key,
    ) -> Result<(Option<Value>, Nanos), IndexError> {
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
        // A merge may have made the set another.
        let (bucket, second) = self.home(self.set_of(hash), hash);
        let half = if second {
            self.overflows.find(bucket)
        } else {
            None
        };
        let mut at = half.unwrap_or_else(|| self.bucket_page(bucket));
        loop {
            let (page, done) = self.cache.read(now, at)?;
            let (slot, len) = (self.shape.find(page, key), self.shape.len(page));
            let value = slot.map(|slot| self.shape.record(page, slot).1);
            let next = self.shape.next(page);
            now = done;
            let compared = slot.map_or(len, |slot| slot + 1);
            self.cache.compared(compared as u64);
            match next {
                Some(next) if slot.is_none() => at = next,
                _ => return Ok((value, now)),
            }
        }
    }
}
