//! Iterates over the pairs of a table, from both ends.

use super::catalog::TableKind;
use super::hashed;
use super::lost::LostKeys;
use super::read::{Source, Table, Value, in_table};
use crate::error::StoreError;
use crate::shared::PageBytes;
use flagstone_btree::{Cursor, FoundValue};
use std::collections::VecDeque;
use std::ops::{self, Bound, RangeBounds};

/// A key and its value.
///
/// Example: [`Range`].
pub type Pair = (Vec<u8>, Value);

/// The value of a key in a tree.
type Found = FoundValue<PageBytes>;

/// An entry of a tree: a key or its hash, and the value.
type Entry = (Vec<u8>, Found);

/// A range of keys: `from..to`, `from..=to`, `from..`, `..to`, `..=to`, `..`, or two bounds. Keys
/// are anything that converts to bytes.
///
/// Example: [`Range`].
pub trait KeyRange {
    /// The bounds of the range.
    fn ends(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

fn owned<K: AsRef<[u8]>>(range: impl RangeBounds<K>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    (owned(range.start_bound()), owned(range.end_bound()))
}

macro_rules! key_ranges {
    ($($range:ty),+) => {
        $(impl<K: AsRef<[u8]>> KeyRange for $range {
            fn ends(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
                owned::<K>(self)
            }
        })+
    };
}

key_ranges!(
    ops::Range<K>,
    ops::RangeInclusive<K>,
    ops::RangeFrom<K>,
    ops::RangeTo<K>,
    ops::RangeToInclusive<K>,
    (Bound<K>, Bound<K>)
);

impl KeyRange for ops::RangeFull {
    fn ends(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

/// Iterates over pairs of a table, by ascending key.
///
/// At a damaged page it yields a [`StoreError::Lost`], which names the unreadable keys, and
/// continues after them. After any other error it ends.
///
/// ```
/// use flagstone_store::medium::Memory;
/// use flagstone_store::tables::{KeyRange, Pair, Range, Source};
/// use flagstone_store::{OpenOptions, Store, StoreError, Table};
///
/// /// The keys of a range, in descending order.
/// fn keys(table: &Table, range: impl KeyRange) -> Result<Vec<Vec<u8>>, StoreError> {
///     let range = table.range(range)?;
///     range.rev().map(|pair: Result<Pair, _>| Ok(pair?.0)).collect()
/// }
///
/// let store = Store::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// store.insert_all("users", &[("ada", "1815"), ("emmy", "1882"), ("grace", "1906")])?;
/// let users = store.read()?.table("users")?;
/// assert_eq!(keys(&users, "b"..)?, [&b"grace"[..], b"emmy"]);
/// assert_eq!(keys(&users, "a"..="emmy")?, [&b"emmy"[..], b"ada"]);
/// # Ok::<(), StoreError>(())
/// ```
pub struct Range<S> {
    table: Table<S>,
    /// Bounds of the keys that are left.
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    front: Option<Cursor<PageBytes>>,
    back: Option<Cursor<PageBytes>>,
    /// Hashed tables: remaining records of the current hash, at either end.
    ahead: VecDeque<Pair>,
    behind: VecDeque<Pair>,
    is_over: bool,
}

/// The smallest key greater than `key`.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// Makes `key` an excluded bound.
fn exclude(end: &mut Bound<Vec<u8>>, key: &[u8]) {
    match end {
        Bound::Excluded(end) => {
            end.clear();
            end.extend_from_slice(key);
        }
        end => *end = Bound::Excluded(key.to_vec()),
    }
}

impl<S: Source> Range<S> {
    pub(super) fn new(table: &Table<S>, low: Bound<Vec<u8>>, high: Bound<Vec<u8>>) -> Range<S> {
        Range {
            table: table.clone(),
            low,
            high,
            front: None,
            back: None,
            ahead: VecDeque::new(),
            behind: VecDeque::new(),
            is_over: false,
        }
    }

    /// Whether a key is at or above the low bound.
    fn is_above(&self, key: &[u8]) -> bool {
        match &self.low {
            Bound::Unbounded => true,
            Bound::Included(low) => key >= &low[..],
            Bound::Excluded(low) => key > &low[..],
        }
    }

    /// Whether a key is at or below the high bound.
    fn is_below(&self, key: &[u8]) -> bool {
        match &self.high {
            Bound::Unbounded => true,
            Bound::Included(high) => key <= &high[..],
            Bound::Excluded(high) => key < &high[..],
        }
    }

    /// The next entry of the tree: writes its key to `key` and returns its value.
    fn next_entry(&mut self, key: &mut Vec<u8>) -> Result<Option<Found>, StoreError> {
        let walk = &self.table.walk;
        if self.front.is_none() {
            let cursor = self.front.insert(Cursor::default());
            match &self.low {
                Bound::Unbounded => walk.go_to(cursor, &[])?,
                Bound::Included(low) => walk.go_to(cursor, low)?,
                Bound::Excluded(low) => walk.go_to(cursor, &behind(low))?,
            }
        }
        walk.next(self.front.as_mut().expect("it was put there"), key)
    }

    /// The last remaining entry of the tree, like [`Range::next_entry`].
    fn previous_entry(&mut self, key: &mut Vec<u8>) -> Result<Option<Found>, StoreError> {
        let walk = &self.table.walk;
        if self.back.is_none() {
            let cursor = self.back.insert(Cursor::default());
            match &self.high {
                Bound::Unbounded => walk.go_to_end(cursor)?,
                Bound::Excluded(high) => walk.go_to(cursor, high)?,
                Bound::Included(high) => walk.go_to(cursor, &behind(high))?,
            }
        }
        walk.previous(self.back.as_mut().expect("it was put there"), key)
    }

    /// The next entry in the range. At damage, the lost keys within the range are an error, and the
    /// range continues behind them.
    fn step(&mut self) -> Result<Option<Entry>, StoreError> {
        loop {
            let mut key = Vec::new();
            let error = match self.next_entry(&mut key) {
                Ok(Some(found)) if self.is_below(&key) => {
                    exclude(&mut self.low, &key);
                    return Ok(Some((key, found)));
                }
                Ok(_) => return Ok(None),
                Err(error) if error.is_damage() => error,
                Err(error) => return Err(error),
            };
            let lost = self.lost(self.front.as_ref(), key)?;
            if !self.is_below(&lost.from) {
                return Ok(None);
            }
            if self.is_before(&lost) {
                continue;
            }
            match lost.to.clone() {
                Some(to) => self.low = Bound::Included(to),
                None => self.high = Bound::Excluded(lost.from.clone()),
            }
            let error = Box::new(error);
            return Err(StoreError::Lost { lost, error });
        }
    }

    /// The last remaining entry in the range, like [`Range::step`].
    fn step_back(&mut self) -> Result<Option<Entry>, StoreError> {
        loop {
            let mut key = Vec::new();
            let error = match self.previous_entry(&mut key) {
                Ok(Some(found)) if self.is_above(&key) => {
                    exclude(&mut self.high, &key);
                    return Ok(Some((key, found)));
                }
                Ok(_) => return Ok(None),
                Err(error) if error.is_damage() => error,
                Err(error) => return Err(error),
            };
            let lost = self.lost(self.back.as_ref(), key)?;
            if self.is_before(&lost) {
                return Ok(None);
            }
            if !self.is_below(&lost.from) {
                continue;
            }
            self.high = Bound::Excluded(lost.from.clone());
            let error = Box::new(error);
            return Err(StoreError::Lost { lost, error });
        }
    }

    /// The keys lost by damage: those at a cursor that points at no entry, or `key`, whose value is
    /// unreadable.
    fn lost(
        &self,
        cursor: Option<&Cursor<PageBytes>>,
        key: Vec<u8>,
    ) -> Result<LostKeys, StoreError> {
        let (name, kind) = (self.table.name(), self.table.kind());
        let gap = cursor
            .map(|cursor| self.table.walk.gap(cursor))
            .transpose()?;
        Ok(match gap.flatten() {
            Some((from, to)) => LostKeys::new(name, kind, from, to),
            None => LostKeys::of_value(name, kind, key),
        })
    }

    /// Whether all lost keys lie before the low bound.
    fn is_before(&self, lost: &LostKeys) -> bool {
        let Some(to) = &lost.to else {
            return false;
        };
        match &self.low {
            Bound::Unbounded => false,
            Bound::Included(low) => to <= low,
            Bound::Excluded(low) => *to <= behind(low),
        }
    }

    fn pairs(found: FoundValue<PageBytes>) -> VecDeque<Pair> {
        let pair = |place: hashed::Place| {
            let key = found[place.key].to_vec();
            (key, Value::part(found.clone(), place.value))
        };
        hashed::records(&found).map(pair).collect()
    }

    fn front_pair(&mut self) -> Result<Option<Pair>, StoreError> {
        if self.table.kind() == TableKind::Ordered {
            let step = self.step()?;
            return Ok(step.map(|(key, found)| (key, Value::of(found))));
        }
        while self.ahead.is_empty() {
            match self.step()? {
                Some((_, found)) => self.ahead = Self::pairs(found),
                None => return Ok(self.behind.pop_front()),
            }
        }
        Ok(self.ahead.pop_front())
    }

    fn back_pair(&mut self) -> Result<Option<Pair>, StoreError> {
        if self.table.kind() == TableKind::Ordered {
            let step = self.step_back()?;
            return Ok(step.map(|(key, found)| (key, Value::of(found))));
        }
        while self.behind.is_empty() {
            match self.step_back()? {
                Some((_, found)) => self.behind = Self::pairs(found),
                None => return Ok(self.ahead.pop_back()),
            }
        }
        Ok(self.behind.pop_back())
    }

    fn yielded(
        &mut self,
        answer: Result<Option<Pair>, StoreError>,
    ) -> Option<Result<Pair, StoreError>> {
        if let Err(error @ StoreError::Lost { .. }) = answer {
            return Some(Err(error));
        }
        self.is_over = !matches!(answer, Ok(Some(_)));
        answer
            .map_err(in_table(self.table.name(), None))
            .transpose()
    }
}

impl<S: Source> Iterator for Range<S> {
    type Item = Result<Pair, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let pair = self.front_pair();
        self.yielded(pair)
    }
}

impl<S: Source> DoubleEndedIterator for Range<S> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let pair = self.back_pair();
        self.yielded(pair)
    }
}

impl<S: Source> std::iter::FusedIterator for Range<S> {}
