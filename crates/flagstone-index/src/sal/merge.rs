//! Flushes the logs of a set to its log region, and merges the region into the buckets, which
//! splits the set if groups wait for their share. [SAL] §3.2.

use super::logs::Log;
use super::{Sal, set_of};
use crate::bucket::{hash, pass};
use crate::{Key, Result, Value, damaged};
use flagstone::units::{Lpn, Nanos};

type Records = Vec<(Key, Value)>;

/// The records and pages that a merge reads of a set's first group.
struct Gathered {
    /// The records, by target bucket.
    records: Vec<Records>,
    /// Overflow pages available for reuse.
    pages: Vec<Lpn>,
}

impl Sal {
    /// Writes the buffered logs of a set to its log region. Merges the region if it is full.
    pub(super) fn flush_set(&mut self, mut now: Nanos, set: u32) -> Result<Nanos> {
        let (head_at, regions) = (self.head_page(set), self.regions);
        let count = self.logs.count(set) as usize;
        // The region's last log page with its number of logs, and the number of its log pages.
        let mut last = None;
        let mut pages = 0;
        if self.groups.has_region(set) {
            let (head, done) = self.region_head(now, set)?;
            pages = regions.len(head);
            last = Some(regions.page(head, pages - 1));
            now = done;
        }
        self.counts.flushes += 1;
        self.counts.logs_flushed += count as u64;
        if let Some((at, has)) = last
            && self.options.fills
            && has + count <= regions.page_logs
        {
            if at == head_at {
                return damaged(
                    at,
                    "it is the head of a log region, and one of its log pages",
                );
            }
            let (page, done) = self.cache.change(now, at)?;
            regions.check_page(page, set, at, has)?;
            let logs = self.take_logs(set);
            let page = self.cache.dirty_page(at).expect("it was changed just now");
            regions.append(page, set, &logs);
            let (head, done) = self.cache.change(done, head_at)?;
            regions.note(head, &logs);
            self.pending += logs.iter().map(|log| log.change.records()).sum::<i64>();
            self.flushed();
            return Ok(done);
        }
        let logs = self.take_logs(set);
        let needed = logs.len().div_ceil(regions.page_logs);
        // A region that would get too many pages is merged. So is one if the store lacks pages for
        // the logs: that frees those of the region.
        if pages + needed > regions.pages || (self.space.left() as usize) < needed {
            self.counts.merges_full += 1;
            return self.merge_with(now, set, logs);
        }
        if pages == 0 {
            let (head, done) = self.cache.fill(now, head_at)?;
            regions.start(head, set);
            self.groups.set_region(set, true);
            now = done;
        }
        for part in logs.chunks(regions.page_logs) {
            let page_at = self.space.take()?;
            let (page, done) = self.cache.fill(now, page_at)?;
            regions.append(page, set, part);
            let (head, done) = self.cache.change(done, head_at)?;
            if regions.len(head) >= regions.pages {
                return damaged(head_at, "it is the head of a log region, and was free");
            }
            regions.add_page(head, page_at);
            regions.note(head, part);
            now = done;
        }
        self.pending += logs.iter().map(|log| log.change.records()).sum::<i64>();
        self.flushed();
        Ok(now)
    }

    /// The head of a set's log region, which has at least one page.
    pub(super) fn region_head(&mut self, now: Nanos, set: u32) -> Result<(&[u8], Nanos)> {
        let (at, regions) = (self.head_page(set), self.regions);
        let (head, now) = self.cache.read(now, at)?;
        if !regions.is_head(head, set) {
            return damaged(
                at,
                format!("it is not the head of the log region of set {set}"),
            );
        }
        Ok((head, now))
    }

    /// Takes the logs of a set out of the log buffer, in ascending key order.
    fn take_logs(&mut self, set: u32) -> Vec<Log> {
        let mut logs = Vec::with_capacity(self.logs.count(set) as usize);
        let (groups, bits) = (&self.groups, self.options.group_bits);
        let of = |hash| set_of(groups, bits, hash);
        let region = |set| groups.has_region(set);
        self.logs.take(set, &of, &region, &mut logs);
        logs
    }

    /// Merges the logs of a set, from the log buffer and its log region, into the buckets, and
    /// splits the set.
    pub(super) fn merge(&mut self, now: Nanos, set: u32) -> Result<Nanos> {
        let logs = self.take_logs(set);
        self.merge_with(now, set, logs)
    }

    /// Merges a set's log region, and `logs`, which are newer, into the buckets. Spreads the
    /// records over the groups of the set, each of which is a set of its own then.
    fn merge_with(&mut self, now: Nanos, set: u32, mut logs: Vec<Log>) -> Result<Nanos> {
        let (log_pages, mut now) = self.read_region(now, set, &mut logs)?;
        let merged = logs.len();
        // Newest first for each key: those of the buffer, then the region from the last page on.
        logs.sort_by_key(|log| log.key);
        logs.dedup_by_key(|log| log.key);
        let members: Vec<u32> = self.groups.members(set).collect();
        let (mut gathered, done) = self.gather(now, set, members.len())?;
        now = done;
        for records in &mut gathered.records {
            // One sorted run, or two if the bucket was split virtually.
            records.sort_by_key(|&(key, _)| hash(key));
        }
        for &log in &logs {
            let target = self.target(set, hash(log.key));
            self.apply(&mut gathered.records[target], log);
        }
        self.counts.lazy_splits += u64::from(members.len() > 1);
        self.groups.split(set);
        let size = self.group() as usize;
        for (&group, records) in members.iter().zip(gathered.records.chunks_mut(size)) {
            now = self.write_group(now, group, records, &mut gathered.pages)?;
        }
        if self.groups.has_region(set) || !log_pages.is_empty() {
            now = self.cache.forget(now, self.head_page(set))?;
        }
        self.groups.set_region(set, false);
        for page in log_pages.into_iter().chain(gathered.pages) {
            self.space.give(page)?;
            now = self.cache.forget(now, page)?;
        }
        self.counts.logs_merged += merged as u64;
        self.merged(merged);
        Ok(now)
    }

    /// Reads the log region of a set, if there is one, and appends its logs, newest first. Returns
    /// the region's log pages.
    fn read_region(
        &mut self,
        now: Nanos,
        set: u32,
        logs: &mut Vec<Log>,
    ) -> Result<(Vec<Lpn>, Nanos)> {
        if !self.groups.has_region(set) {
            return Ok((Vec::new(), now));
        }
        let regions = self.regions;
        let (head, now) = self.region_head(now, set)?;
        let entries: Vec<(Lpn, usize)> = (0..regions.len(head))
            .map(|i| regions.page(head, i))
            .collect();
        let pages: Vec<Lpn> = entries.iter().map(|&(at, _)| at).collect();
        let size = self.cache.page_bytes();
        let mut bytes = vec![0; pages.len() * size];
        let now = self.cache.read_past(now, &pages, &mut bytes)?;
        for (page, &(at, count)) in bytes.chunks(size).zip(&entries).rev() {
            regions.check_page(page, set, at, count)?;
            let before = logs.len();
            logs.extend(regions.iter(page));
            let records = logs[before..].iter().map(|log| log.change.records());
            self.pending -= records.sum::<i64>();
        }
        Ok((pages, now))
    }

    /// The bucket to which a merge of a set moves the records of a hash: its number among all
    /// buckets of the set's groups, in order.
    fn target(&self, set: u32, hash: u64) -> usize {
        let bits = self.options.group_bits;
        let member = match self.groups.size(set) {
            1 => 0,
            _ => self.groups.of(hash >> bits) >> self.groups.bitnum(set),
        };
        ((member << bits) | (hash as u32 & (self.group() - 1))) as usize
    }

    /// Reads the buckets of a set's first group with their overflow pages, and spreads the records
    /// over `members` groups. Removes the buckets from the overflow index.
    fn gather(&mut self, mut now: Nanos, set: u32, members: usize) -> Result<(Gathered, Nanos)> {
        let (group, size) = (self.group(), self.cache.page_bytes());
        let mut gathered = Gathered {
            records: vec![Vec::new(); members << self.options.group_bits],
            pages: Vec::new(),
        };
        let first = self.group_page(set).0;
        let mut pages: Vec<Lpn> = (first..first + group).map(Lpn).collect();
        let buckets = set * group..(set + 1) * group;
        let halves = buckets.filter_map(|bucket| self.overflows.remove(bucket));
        gathered.pages.extend(halves);
        pages.extend(&gathered.pages);
        let (mut bytes, mut passed) = (Vec::new(), 0);
        while !pages.is_empty() {
            bytes.resize(pages.len() * size, 0);
            now = self.cache.read_past(now, &pages, &mut bytes)?;
            let mut next = Vec::new();
            for (page, &at) in bytes.chunks(size).zip(&pages) {
                self.shape.check_read(page, at)?;
                for (key, value) in self.shape.records(page) {
                    let target = self.target(set, hash(key));
                    let Some(own) = gathered.records.get_mut(target) else {
                        return damaged(at, format!("key {key} is in set {set}, whose it is not"));
                    };
                    own.push((key, value));
                }
                if let Some(behind) = self.shape.next(page) {
                    pass(&mut passed, self.space.used().into(), at)?;
                    next.push(behind);
                }
            }
            gathered.pages.extend(&next);
            pages = next;
        }
        Ok((gathered, now))
    }

    /// Applies a log to a bucket's records, which are sorted by hash.
    fn apply(&mut self, records: &mut Records, log: Log) {
        let wanted = hash(log.key);
        let at = records.partition_point(|&(key, _)| hash(key) < wanted);
        let there = records.get(at).is_some_and(|&(key, _)| key == log.key);
        self.cache
            .compared(u64::from(records.len().max(1).ilog2()) + 1);
        match (there, log.found()) {
            (true, Some(value)) => records[at].1 = value,
            (true, None) => {
                records.remove(at);
                self.stored -= 1;
            }
            (false, Some(value)) => {
                records.insert(at, (log.key, value));
                self.stored += 1;
            }
            (false, None) => {}
        }
    }

    /// Writes the buckets of a group in one request, with the overflow pages that they need: those
    /// of `spare` first.
    fn write_group(
        &mut self,
        now: Nanos,
        group: u32,
        records: &mut [Records],
        spare: &mut Vec<Lpn>,
    ) -> Result<Nanos> {
        let (size, room) = (self.cache.page_bytes(), self.shape.capacity());
        let (bits, first) = (self.options.group_bits, self.group_page(group).0);
        let next_bit = bits + self.groups.depth(group);
        let second = |&(key, _): &(Key, Value)| hash(key) >> next_bit & 1 == 1;
        if let Some(found) = self.found.get_mut(group as usize) {
            *found = false;
        }
        let mut images = vec![0; records.len() * size];
        let mut pages: Vec<Lpn> = Vec::with_capacity(records.len());
        // Overflow pages follow the buckets, with their contents.
        let mut behind: Vec<(Lpn, Records)> = Vec::new();
        for (i, (records, image)) in records.iter_mut().zip(images.chunks_mut(size)).enumerate() {
            pages.push(Lpn(first + i as u32));
            if records.len() > room && self.options.virtual_split {
                let half: Records = records.extract_if(.., |record| second(record)).collect();
                let page = self.take_page(spare)?;
                self.overflows.insert((group << bits) + i as u32, page);
                self.counts.virtual_splits += 1;
                behind.push((page, half));
            }
            let rest = self.fill_bucket(image, records, spare)?;
            behind.extend(rest);
        }
        let mut done = 0;
        while done < behind.len() {
            let (page, records) = std::mem::take(&mut behind[done]);
            let start = images.len();
            images.resize(start + size, 0);
            let rest = self.fill_bucket(&mut images[start..], &records, spare)?;
            behind.extend(rest);
            pages.push(page);
            done += 1;
        }
        let whole: Vec<(Lpn, &[u8])> = pages.iter().copied().zip(images.chunks(size)).collect();
        let end = self.cache.write_past(now, &whole)?;
        self.costs.coarse(whole.len(), end.since(now));
        Ok(end)
    }

    fn take_page(&mut self, spare: &mut Vec<Lpn>) -> Result<Lpn> {
        match spare.pop() {
            Some(page) => Ok(page),
            None => self.space.take(),
        }
    }

    /// Writes as many records into a page as fit. Returns the page for the rest, with the rest.
    fn fill_bucket(
        &mut self,
        image: &mut [u8],
        records: &[(Key, Value)],
        spare: &mut Vec<Lpn>,
    ) -> Result<Option<(Lpn, Records)>> {
        let (fit, rest) = records.split_at(records.len().min(self.shape.capacity()));
        for &(key, value) in fit {
            self.shape.push(image, key, value);
        }
        if rest.is_empty() {
            return Ok(None);
        }
        let page = self.take_page(spare)?;
        self.counts.chained_pages += 1;
        self.shape.set_next(image, Some(page));
        Ok(Some((page, rest.to_vec())))
    }
}
