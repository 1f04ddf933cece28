//! Checks sets, regions, filters, buckets, overflow pages, sizes, and page use.

use super::Sal;
use super::region::region_head;
use crate::bucket::{hash, pass};
use flagstone::layout::get;
use flagstone::units::Lpn;

impl Sal {
    /// Checks everything. A set has the number of its first group; a group that leads no set is
    /// empty, since its records are still with that group.
    pub(super) fn check_all(&mut self) -> Result<(), String> {
        self.groups.check()?;
        self.overflows.check()?;
        self.check_logs()?;
        let mut used = self.meta.pages().to_vec();
        self.check_batches(&mut used)?;
        let (mut stored, mut pending) = (0, 0);
        for set in 0..self.groups.len() {
            if !self.groups.leads(set) {
                if self.groups.has_region(set) {
                    return Err(format!("group {set} is empty and has a log region"));
                }
                let mut buckets = set * self.group()..(set + 1) * self.group();
                if buckets.any(|bucket| self.overflows.has(bucket)) {
                    return Err(format!("group {set} is empty and has overflow pages"));
                }
                continue;
            }
            if self.groups.has_region(set) {
                pending += self.check_region(set, &mut used)?;
            }
            for bucket in set * self.group()..(set + 1) * self.group() {
                stored += self.check_bucket(set, bucket, &mut used)?;
            }
        }
        if (stored, pending) != (self.stored, self.pending) {
            return Err(format!(
                "there are {stored} records and {pending} to come, and it counts {} and {}",
                self.stored, self.pending
            ));
        }
        self.space.check(used)
    }

    /// Checks that every log in the buffer is found, and counted with its set.
    fn check_logs(&self) -> Result<(), String> {
        self.logs.check(&|set| self.groups.has_region(set))?;
        let all = self.logs.all();
        let mut counts = vec![0; self.logs.counts().len()];
        for log in &all {
            let set = self.set_of(hash(log.key));
            let (found, _) = self.logs.find(set, log.key, hash(log.key));
            if found != Some(*log) {
                return Err(format!("the log of key {} is not found", log.key));
            }
            counts[set as usize] += 1;
        }
        let sets = counts.iter().filter(|&&count| count > 0).count();
        let records: i64 = all.iter().map(|log| log.change.records()).sum();
        let sizes = (self.logs.len(), self.logs.sets(), self.logs.records());
        if counts != self.logs.counts() || sizes != (all.len(), sets, records) {
            return Err("the log buffer counts other logs than it has".to_string());
        }
        Ok(())
    }

    /// Checks that the batches have pages for all groups. Appends these pages to `used`.
    fn check_batches(&self, used: &mut Vec<Lpn>) -> Result<(), String> {
        let mut group = 0;
        for (i, first) in self.batches.iter().enumerate() {
            let (batch, start, groups) = self.batch(group);
            if (batch, start) != (i, group) {
                return Err(format!("batch {i} does not begin with group {group}"));
            }
            let pages = (groups << self.options.group_bits) + groups;
            used.extend((first.0..first.0 + pages).map(Lpn));
            group += groups;
        }
        if group < self.groups.len() {
            return Err(format!("group {group} has no pages"));
        }
        Ok(())
    }

    fn inspect(&mut self, at: Lpn) -> Result<Vec<u8>, String> {
        self.cache.inspect(at).map_err(|error| error.to_string())
    }

    /// Checks the log region of a set, and appends its log pages to `used`. Returns by how many
    /// records the region changes the index.
    fn check_region(&mut self, set: u32, used: &mut Vec<Lpn>) -> Result<i64, String> {
        let at = self.head_page(set);
        let head = self.inspect(at)?;
        let regions = self.regions;
        if !regions.is_head(&head, set) {
            return Err(format!("page {at} is not the head of set {set}"));
        }
        let (mut records, mut logs) = (0, 0);
        for i in 0..regions.len(&head) {
            let (at, count) = regions.page(&head, i);
            let page = self.inspect(at)?;
            if !regions.is_page(&page, set, count) || count == 0 {
                return Err(format!("page {at} has not {count} logs of set {set}"));
            }
            for log in regions.iter(&page) {
                if self.set_of(hash(log.key)) != set {
                    return Err(format!("key {} is in the region of set {set}", log.key));
                }
                if !regions.may_have(&head, i, &regions.probes(log.key)) {
                    return Err(format!("the filter of page {at} misses key {}", log.key));
                }
                records += log.change.records();
            }
            logs += count as u64;
            used.push(at);
        }
        if logs != get(&head, region_head::LOGS) {
            return Err(format!("the region of set {set} has {logs} logs"));
        }
        Ok(records)
    }

    /// Checks the two halves of a bucket, and appends their overflow pages to `used`. Returns the
    /// number of records.
    fn check_bucket(&mut self, set: u32, bucket: u32, used: &mut Vec<Lpn>) -> Result<i64, String> {
        let half = self.overflows.find(bucket);
        let starts = [(Some(self.bucket_page(bucket)), false), (half, true)];
        let mut keys = Vec::new();
        for (start, second) in starts {
            let (mut next, mut passed) = (start, 0);
            let mut full = true;
            while let Some(at) = next {
                let counted = pass(&mut passed, self.space.used().into(), at);
                counted.map_err(|error| error.to_string())?;
                let page = self.inspect(at)?;
                self.shape.check(&page)?;
                if !full {
                    return Err(format!("page {at} follows one with room, bucket {bucket}"));
                }
                let hashes = self.shape.records(&page).map(|(key, _)| hash(key));
                if !hashes.is_sorted() {
                    return Err(format!("page {at} is not in the order of its hashes"));
                }
                for (key, _) in self.shape.records(&page) {
                    let home = self.home(self.set_of(hash(key)), hash(key));
                    let belongs = if half.is_some() {
                        home.1 == second
                    } else {
                        true
                    };
                    if home.0 != bucket || !belongs || self.set_of(hash(key)) != set {
                        return Err(format!("key {key} is in page {at}, bucket {bucket}"));
                    }
                    keys.push(key);
                }
                if second || Some(at) != start {
                    used.push(at);
                }
                full = self.shape.is_full(&page);
                next = self.shape.next(&page);
            }
        }
        let len = keys.len();
        keys.sort_unstable();
        keys.dedup();
        if keys.len() < len {
            return Err(format!("bucket {bucket} has a key twice"));
        }
        if half.is_some() && len <= self.shape.capacity() {
            return Err(format!("bucket {bucket} is split virtually for nothing"));
        }
        let splits = self.options.virtual_split && self.found.get(set as usize) != Some(&true);
        if half.is_none() && len > self.shape.capacity() && splits {
            return Err(format!("bucket {bucket} overflows and is not split"));
        }
        Ok(len as i64)
    }
}
