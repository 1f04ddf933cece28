//! The log buffer: changes waiting in memory, one per key, by set. [SAL] §3.2.
//!
//! A set's changes are in several short lists, so that a search walks only one. Lists are in a
//! table indexed by a hash of set and key. An entry takes 20 bytes, as in the paper, and two more
//! for the table.

use crate::bucket::hash;
use crate::{Key, Value};

/// Bytes of an entry: key, value, link. The paper's r + 4.
pub(super) const ENTRY_BYTES: usize = 20;

const NONE: u32 = (1 << 29) - 1;

/// Number of adjacent sets whose largest count is cached.
const BLOCK: usize = 64;

/// The change of a key, and its effect on the number of records as far as known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The key has a value and had none: one more record.
    Insert,
    /// The key has another value.
    Update,
    /// The key was deleted: one record less.
    Delete,
    /// The key was deleted, and was not counted.
    Cancel,
}

impl Change {
    pub(super) fn records(self) -> i64 {
        match self {
            Change::Insert => 1,
            Change::Delete => -1,
            Change::Update | Change::Cancel => 0,
        }
    }

    pub(super) fn is_delete(self) -> bool {
        matches!(self, Change::Delete | Change::Cancel)
    }

    pub(super) fn from_bits(bits: u32) -> Change {
        [
            Change::Insert,
            Change::Update,
            Change::Delete,
            Change::Cancel,
        ][bits as usize & 3]
    }

    /// Combines two changes of a key into one.
    fn then(self, later: Change) -> Change {
        // Whether the key had a value, as far as known, before the first change.
        let known = matches!(self, Change::Update | Change::Delete);
        match (known, later.is_delete()) {
            (true, false) => Change::Update,
            (true, true) => Change::Delete,
            (false, false) => Change::Insert,
            (false, true) => Change::Cancel,
        }
    }
}

/// A change of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) key: Key,
    pub(super) value: Value,
    pub(super) change: Change,
}

impl Log {
    /// The answer of a search that finds this change.
    pub(super) fn found(self) -> Option<Value> {
        (!self.change.is_delete()).then_some(self.value)
    }
}

/// The log buffer.
#[derive(Debug)]
pub(super) struct Logs {
    keys: Vec<Key>,
    values: Vec<Value>,
    /// Link to the next entry of a list; the highest bits are the change.
    links: Vec<u32>,
    /// Head of the list of unused entries.
    free: u32,
    heads: Vec<u32>,
    /// Lists per set, a power of two.
    lists: u32,
    /// Logs per set.
    counts: Vec<u32>,
    /// The largest count in each [`BLOCK`] sets, among sets with a log region, so that the search
    /// for the largest count need not visit all sets. A set gains or loses its region only while it
    /// has no waiting logs.
    tops: Vec<u32>,
    len: usize,
    /// Number of sets that have logs.
    sets: usize,
    capacity: usize,
    records: i64,
}

fn link(next: u32, change: Change) -> u32 {
    next | (change as u32) << 30
}

fn next(link: u32) -> u32 {
    link & NONE
}

impl Logs {
    /// A buffer for `capacity` changes of `sets` sets.
    pub(super) fn new(capacity: usize, sets: usize) -> Logs {
        let capacity = capacity.max(4).min(NONE as usize - 1);
        let table = (capacity / 2).next_power_of_two();
        Logs {
            keys: Vec::with_capacity(capacity + 1),
            values: Vec::with_capacity(capacity + 1),
            links: Vec::with_capacity(capacity + 1),
            free: NONE,
            heads: vec![NONE; table],
            lists: (table / sets.max(1)).max(1).next_power_of_two() as u32,
            counts: Vec::new(),
            tops: Vec::new(),
            len: 0,
            sets: 0,
            capacity,
            records: 0,
        }
    }

    /// The place of a set's list number `part` in the table.
    #[inline]
    fn slot(&self, set: u32, part: u32) -> usize {
        let mixed = (u64::from(set) * u64::from(self.lists) + u64::from(part))
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 40) as usize & (self.heads.len() - 1)
    }

    #[inline]
    fn part(&self, hash: u64) -> u32 {
        (hash >> 40) as u32 & (self.lists - 1)
    }

    /// The waiting change of a key, and the number of keys compared.
    #[inline]
    pub(super) fn find(&self, set: u32, key: Key, hash: u64) -> (Option<Log>, u64) {
        if self.count(set) == 0 {
            return (None, 0);
        }
        let mut compared = 0;
        let mut at = self.heads[self.slot(set, self.part(hash))];
        while at != NONE {
            compared += 1;
            if self.keys[at as usize] == key {
                return (Some(self.log(at)), compared);
            }
            at = next(self.links[at as usize]);
        }
        (None, compared)
    }

    fn log(&self, at: u32) -> Log {
        let at = at as usize;
        Log {
            key: self.keys[at],
            value: self.values[at],
            change: Change::from_bits(self.links[at] >> 30),
        }
    }

    /// Adds a change of a key of `set`, or combines it with an earlier one. `region` says whether
    /// the set has a log region. Returns the number of keys compared.
    #[inline]
    pub(super) fn put(&mut self, set: u32, region: bool, hash: u64, log: Log) -> u64 {
        let slot = self.slot(set, self.part(hash));
        let mut compared = 0;
        let mut at = self.heads[slot];
        while at != NONE {
            let i = at as usize;
            compared += 1;
            if self.keys[i] == log.key {
                let old = Change::from_bits(self.links[i] >> 30);
                let change = old.then(log.change);
                self.records += change.records() - old.records();
                self.values[i] = log.value;
                self.links[i] = link(next(self.links[i]), change);
                return compared;
            }
            at = next(self.links[i]);
        }
        let link = link(self.heads[slot], log.change);
        if self.free == NONE {
            at = self.keys.len() as u32;
            self.keys.push(log.key);
            self.values.push(log.value);
            self.links.push(link);
        } else {
            at = self.free;
            let i = at as usize;
            self.free = next(self.links[i]);
            (self.keys[i], self.values[i], self.links[i]) = (log.key, log.value, link);
        }
        self.heads[slot] = at;
        self.len += 1;
        self.records += log.change.records();
        if self.counts.len() <= set as usize {
            self.counts.resize(set as usize + 1, 0);
            self.tops.resize(set as usize / BLOCK + 1, 0);
        }
        let (count, top) = (
            &mut self.counts[set as usize],
            &mut self.tops[set as usize / BLOCK],
        );
        *count += 1;
        *top = (*top).max(if region { *count } else { 0 });
        self.sets += usize::from(*count == 1);
        compared
    }

    /// Updates the largest count of a block after the count of a set decreased from `before`.
    fn lower(&mut self, set: u32, before: u32, region: &dyn Fn(u32) -> bool) {
        let block = set as usize / BLOCK;
        if self.tops.get(block).is_some_and(|&top| top <= before) {
            self.tops[block] = self.top(block, region);
        }
    }

    /// The largest count in a block, among sets with a log region.
    fn top(&self, block: usize, region: &dyn Fn(u32) -> bool) -> u32 {
        let first = block * BLOCK;
        let counts = self.counts[first..].iter().take(BLOCK).enumerate();
        counts.fold(0, |top, (i, &count)| {
            let is_it = count > top && region((first + i) as u32);
            if is_it { count } else { top }
        })
    }

    /// The set with the most logs, among those with a log region and at least `least` logs; the
    /// first one if equal.
    pub(super) fn largest(&self, least: u32, region: &dyn Fn(u32) -> bool) -> Option<u32> {
        let tops = self.tops.iter().enumerate();
        let largest = tops.max_by_key(|&(block, &top)| (top, std::cmp::Reverse(block)));
        let (block, &top) = largest.filter(|&(_, &top)| top >= least.max(1))?;
        let mut sets = (block * BLOCK) as u32..self.counts.len() as u32;
        sets.find(|&set| self.count(set) == top && region(set))
    }

    /// Removes the entries of a list for which `wanted` is true, and passes each to `taken`. All
    /// must be of `set`; the list may have entries of other sets, too.
    fn unlink(
        &mut self,
        slot: usize,
        set: u32,
        wanted: &mut dyn FnMut(Log) -> bool,
        taken: &mut dyn FnMut(Log),
    ) {
        let (mut before, mut at) = (NONE, self.heads[slot]);
        while at != NONE {
            let i = at as usize;
            let after = next(self.links[i]);
            let log = self.log(at);
            if !wanted(log) {
                (before, at) = (at, after);
                continue;
            }
            if before == NONE {
                self.heads[slot] = after;
            } else {
                let b = before as usize;
                self.links[b] = link(after, Change::from_bits(self.links[b] >> 30));
            }
            self.links[i] = self.free;
            self.free = at;
            self.len -= 1;
            self.records -= log.change.records();
            let count = &mut self.counts[set as usize];
            *count -= 1;
            self.sets -= usize::from(*count == 0);
            taken(log);
            at = after;
        }
    }

    /// Moves all changes of a set to `into`, in ascending key order. `set_of` maps a hash to its
    /// set, `region` tells which sets have a log region.
    pub(super) fn take(
        &mut self,
        set: u32,
        set_of: &dyn Fn(u64) -> u32,
        region: &dyn Fn(u32) -> bool,
        into: &mut Vec<Log>,
    ) {
        let before = self.count(set);
        if before == 0 {
            return;
        }
        for part in 0..self.lists {
            let slot = self.slot(set, part);
            self.unlink(
                slot,
                set,
                &mut |log| set_of(hash(log.key)) == set,
                &mut |log| {
                    into.push(log);
                },
            );
            if self.count(set) == 0 {
                break;
            }
        }
        self.lower(set, before, region);
        into.sort_unstable_by_key(|log| log.key);
    }

    /// Checks the cached largest counts.
    pub(super) fn check(&self, region: &dyn Fn(u32) -> bool) -> Result<(), String> {
        match (0..self.tops.len()).find(|&block| self.tops[block] != self.top(block, region)) {
            Some(block) => Err(format!(
                "the log buffer knows another largest set than there is in block {block}"
            )),
            None => Ok(()),
        }
    }

    /// All changes, for a check.
    pub(super) fn all(&self) -> Vec<Log> {
        let mut all = Vec::with_capacity(self.len);
        for &head in &self.heads {
            let mut at = head;
            while at != NONE {
                all.push(self.log(at));
                at = next(self.links[at as usize]);
            }
        }
        all
    }

    /// Rebuilds the buffer with another size, or with lists for another number of sets.
    pub(super) fn rebuild(
        &mut self,
        capacity: usize,
        sets: usize,
        set_of: &dyn Fn(u64) -> u32,
        region: &dyn Fn(u32) -> bool,
    ) {
        let mut new = Logs::new(capacity.max(self.len), sets);
        new.capacity = capacity.max(4);
        for log in self.all() {
            let hash = hash(log.key);
            let set = set_of(hash);
            new.put(set, region(set), hash, log);
        }
        *self = new;
    }

    /// Whether there are lists for `sets` sets.
    pub(super) fn suits(&self, sets: usize) -> bool {
        self.lists == 1 || self.heads.len() >= sets * self.lists as usize / 2
    }

    /// Number of changes of a set.
    #[inline]
    pub(super) fn count(&self, set: u32) -> u32 {
        self.counts.get(set as usize).copied().unwrap_or(0)
    }

    /// Number of changes by set; further sets have none.
    pub(super) fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// Number of changes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Number of sets that have changes.
    pub(super) fn sets(&self) -> usize {
        self.sets
    }

    /// Maximum number of changes.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn is_full(&self) -> bool {
        self.len >= self.capacity
    }

    /// By how many records the changes enlarge the index, as far as known.
    pub(super) fn records(&self) -> i64 {
        self.records
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> u64 {
        let entries = self.keys.capacity() * ENTRY_BYTES;
        let words = self.heads.len() + self.counts.capacity() + self.tops.capacity();
        (entries + words * 4) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_set_is_the_one_that_a_scan_finds() {
        const SETS: u32 = 300;
        let set_of = |hash: u64| (hash % u64::from(SETS)) as u32;
        let region = |set: u32| !set.is_multiple_of(3);
        let mut logs = Logs::new(4000, SETS as usize);
        for key in 0..6000u64 {
            let (key, value, change) = (key * 7, 0, Change::Insert);
            let hash = hash(key);
            let set = set_of(hash);
            logs.put(set, region(set), hash, Log { key, value, change });
            if key % 3 == 0 {
                logs.take((key % 301) as u32, &set_of, &region, &mut Vec::new());
            }
            logs.check(&region).expect("counts by block");
            let least = (key % 40) as u32 + 1;
            let scan = (0..logs.counts().len() as u32)
                .filter(|&set| logs.count(set) >= least && region(set))
                .max_by_key(|&set| (logs.count(set), std::cmp::Reverse(set)));
            assert_eq!(logs.largest(least, &region), scan);
        }
        assert!(logs.len() > 500, "{}", logs.len());
    }
}
