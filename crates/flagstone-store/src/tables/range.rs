//! Pairs of a table one by one, from both ends.

use super::catalog::TableKind;
use super::hashed;
use super::read::{Source, Table, Value, in_table};
use crate::error::StoreError;
use crate::shared::PageBytes;
use flagstone::index::prefix_bptree::{Cursor, FoundValue};
use std::collections::VecDeque;
use std::ops::{self, Bound, RangeBounds};

/// A key and its value.
pub type Pair = (Vec<u8>, Value);

/// An entry of a tree: a key, or the hash of one, and what lies behind it.
type Entry = (Vec<u8>, FoundValue<PageBytes>);

/// A range of keys: `from..to`, `from..=to`, `from..`, `..to`, `..=to`, `..`, or two bounds, of
/// anything that is bytes.
pub trait KeyRange {
    /// Its ends.
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

/// Iterates over pairs of a table, by ascending key. After an error it gives nothing more.
pub struct Range<S> {
    table: Table<S>,
    /// The keys that are left lie between these.
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    front: Option<Cursor<PageBytes>>,
    back: Option<Cursor<PageBytes>>,
    /// Of a hashed table: records behind one hash that are left, from either end.
    ahead: VecDeque<Pair>,
    behind: VecDeque<Pair>,
    is_over: bool,
}

/// The first key that can be behind a key.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// Makes a key an open end.
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

    /// Whether a key is not before the low end.
    fn is_above(&self, key: &[u8]) -> bool {
        match &self.low {
            Bound::Unbounded => true,
            Bound::Included(low) => key >= &low[..],
            Bound::Excluded(low) => key > &low[..],
        }
    }

    /// Whether a key is not behind the high end.
    fn is_below(&self, key: &[u8]) -> bool {
        match &self.high {
            Bound::Unbounded => true,
            Bound::Included(high) => key <= &high[..],
            Bound::Excluded(high) => key < &high[..],
        }
    }

    /// The next entry of the tree.
    fn step(&mut self) -> Result<Option<Entry>, StoreError> {
        let walk = &self.table.walk;
        if self.front.is_none() {
            self.front = Some(match &self.low {
                Bound::Unbounded => walk.seek(&[])?,
                Bound::Included(low) => walk.seek(low)?,
                Bound::Excluded(low) => walk.seek(&behind(low))?,
            });
        }
        let cursor = self.front.as_mut().expect("it was put there");
        let mut key = Vec::new();
        let found = walk.next(cursor, &mut key)?;
        let Some(found) = found.filter(|_| self.is_below(&key)) else {
            return Ok(None);
        };
        exclude(&mut self.low, &key);
        Ok(Some((key, found)))
    }

    /// The last entry of the tree that is left.
    fn step_back(&mut self) -> Result<Option<Entry>, StoreError> {
        let walk = &self.table.walk;
        if self.back.is_none() {
            self.back = Some(match &self.high {
                Bound::Unbounded => walk.end()?,
                Bound::Excluded(high) => walk.seek(high)?,
                Bound::Included(high) => walk.seek(&behind(high))?,
            });
        }
        let cursor = self.back.as_mut().expect("it was put there");
        let mut key = Vec::new();
        let found = walk.previous(cursor, &mut key)?;
        let Some(found) = found.filter(|_| self.is_above(&key)) else {
            return Ok(None);
        };
        exclude(&mut self.high, &key);
        Ok(Some((key, found)))
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
