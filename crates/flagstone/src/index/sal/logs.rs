//! The log buffer: changes that wait in memory, one a key, by set. [SAL] §3.2.
//!
//! The changes of a set are in several short lists, so that a search walks one of them. Lists lie
//! in a table by a hash of set and key; 20 bytes an entry, as the paper counts them, and two of the
//! table.

use crate::index::bucket::hash;
use crate::index::{Key, Value};

/// Bytes of an entry: key, value, link. The paper's r + 4.
pub(super) const ENTRY_BYTES: usize = 20;

const NONE: u32 = (1 << 29) - 1;

/// Sets side by side whose largest count is kept.
const BLOCK: usize = 64;

/// What happened to a key, and by how much that changes the number of records, as far as it is
/// known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It has a value, and had none: one more.
    Insert,
    /// It has another value.
    Update,
    /// It is gone: one less.
    Delete,
    /// It is gone, and was not counted.
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

    /// The one change that two changes of a key come to.
    fn then(self, later: Change) -> Change {
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
    /// What a search that finds it answers.
    pub(super) fn found(self) -> Option<Value> {
        (!self.change.is_delete()).then_some(self.value)
    }
}

/// The log buffer.
#[derive(Debug)]
pub(super) struct Logs {
    keys: Vec<Key>,
    values: Vec<Value>,
    /// The next of a list, and the change in the highest bits.
    links: Vec<u32>,
    /// Entries that are not used, a list.
    free: u32,
    heads: Vec<u32>,
    /// Lists of a set, a power of two.
    lists: u32,
    /// Logs by set.
    counts: Vec<u32>,
    /// The largest count of each [`BLOCK`] sets, of those with a log region, so that the search for
    /// the largest count need not look at all sets. A set gets and loses its region when no logs of
    /// it wait.
    tops: Vec<u32>,
    len: usize,
    /// Sets that have some.
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
    /// A buffer of so many changes, for so many sets.
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

    /// The list of a key of a set.
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

    /// The change of a key that waits, and how many keys were compared.
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

    /// Adds a change of a key of a set, with a log region or without; an earlier one goes.
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

    /// After the count of a set went down from `before`.
    fn lower(&mut self, set: u32, before: u32, region: &dyn Fn(u32) -> bool) {
        let block = set as usize / BLOCK;
        if self.tops.get(block).is_some_and(|&top| top <= before) {
            self.tops[block] = self.top(block, region);
        }
    }

    fn top(&self, block: usize, region: &dyn Fn(u32) -> bool) -> u32 {
        let first = block * BLOCK;
        let counts = self.counts[first..].iter().take(BLOCK).enumerate();
        counts.fold(0, |top, (i, &count)| match count > top {
            true if region((first + i) as u32) => count,
            _ => top,
        })
    }

    /// The set with the most logs among those with a log region and at least `least`, the first of
    /// equal ones.
    pub(super) fn largest(&self, least: u32, region: &dyn Fn(u32) -> bool) -> Option<u32> {
        let tops = self.tops.iter().enumerate();
        let largest = tops.max_by_key(|&(block, &top)| (top, std::cmp::Reverse(block)));
        let (block, &top) = largest.filter(|&(_, &top)| top >= least.max(1))?;
        let mut sets = (block * BLOCK) as u32..self.counts.len() as u32;
        sets.find(|&set| self.count(set) == top && region(set))
    }

    /// Takes the entries of a list out for which it is `wanted`.
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

    /// Takes all changes of a set out, by ascending key; `set_of` gives the set of a hash, `region`
    /// says which sets have a log region.
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

    /// Whether the largest counts are those.
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

    /// The same changes in a buffer of another size, or with lists for another number of sets.
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

    /// Whether there are lists for so many sets.
    pub(super) fn suits(&self, sets: usize) -> bool {
        self.lists == 1 || self.heads.len() >= sets * self.lists as usize / 2
    }

    /// Changes of a set.
    #[inline]
    pub(super) fn count(&self, set: u32) -> u32 {
        self.counts.get(set as usize).copied().unwrap_or(0)
    }

    /// Changes by set; sets behind have none.
    pub(super) fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// Changes there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Sets that have some.
    pub(super) fn sets(&self) -> usize {
        self.sets
    }

    /// Changes that fit.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn is_full(&self) -> bool {
        self.len >= self.capacity
    }

    /// By how many records they change the index, as far as it is known.
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
