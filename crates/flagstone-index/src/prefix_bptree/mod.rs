//! The index of byte strings: the B+-tree of [`flagstone_btree`], whose header describes it, over a
//! store with a cache, with metadata and a count of its keys.
//!
//!   tree.rs     the tree as an index      framed.rs    the pages below, in a cache
//!   numbers.rs  numbers as byte strings
//!
//! The trait of all indexes has numbers for keys and values. Here they become byte strings, of the
//! lengths that the settings say; byte strings themselves come in by `Index::bytes`.

mod framed;
mod numbers;
#[cfg(test)]
mod tests;
mod tree;

use super::bptree::READ_AHEAD;
use super::{BackingStore, Settings, Value, damaged, of_cache};
use super::{Index, IndexError, IndexInfo, Key, Result};
use flagstone::layout::Layout;
use flagstone::settings::settings;
use flagstone::units::{Lpn, Nanos};
use flagstone_btree::Limits;
use numbers::{Lengths, Numbers};

pub use tree::ByteIndex;

/// Records that this module keeps.
pub(super) const LAYOUTS: &[Layout] = tree::LAYOUTS;

pub(super) const INFO: IndexInfo = IndexInfo {
    name: "prefix-bptree",
    idea: "a B+-tree of byte strings: common prefixes of keys are stored once per node",
    paper: "[PrefixBTree]",
    ordered: true,
    buffers: false,
    settings: settings! {
        ..READ_AHEAD;
        key_bytes: "8",
            "length in bytes of the byte string for a key, at least 8, or a range such as 9..60; \
             always as the index was made with";
        record_bytes: "0",
            "length in bytes that values are padded to, or a range such as 20..2000 (short ones \
             more often)";
    },
    tiny: &[("key_bytes", "8..20"), ("record_bytes", "8..300")],
    costs: [
        "height reads, 1 more for a long value",
        "height reads, 1 program, and those of a long value",
        "2 to 3 programs",
    ],
};

struct PrefixBPlusTree {
    tree: ByteIndex,
    numbers: Numbers,
    /// Buffers for a key and a value, and a second value for comparison.
    key: Vec<u8>,
    value: Vec<u8>,
    scratch: Vec<u8>,
}

/// The lengths that a setting gives, which must lie between `least` and `most`.
fn lengths(settings: &Settings, name: &str, least: usize, most: usize) -> Result<Lengths> {
    let text = settings.text(&INFO, name);
    let lengths = Lengths::parse(text).filter(|l| l.least >= least && l.most <= most);
    lengths.ok_or_else(|| {
        IndexError::Settings(format!(
            "{name} of {} is `{text}`: use a number from {least} to {most}, or two as 10..20; pages \
             of more bytes take more",
            INFO.name
        ))
    })
}

pub(super) fn open(
    store: Box<dyn BackingStore>,
    settings: &Settings,
    now: Nanos,
) -> Result<(Box<dyn Index>, Nanos)> {
    let limits = Limits::of(store.page_bytes())?;
    let numbers = Numbers {
        key: lengths(settings, "key_bytes", 8, limits.key)?,
        value: lengths(settings, "record_bytes", 0, limits.value)?,
        value_bytes: INFO.value_bytes(settings)?,
    };
    let (tree, now) = ByteIndex::open(store, settings, now)?;
    let (key, value, scratch) = Default::default();
    let index = PrefixBPlusTree {
        tree,
        numbers,
        key,
        value,
        scratch,
    };
    Ok((Box::new(index), now))
}

impl PrefixBPlusTree {
    /// The error for a key whose bytes do not encode a number.
    fn strange<T>(&self) -> Result<T> {
        let at = self.tree.bytes.last_leaf().unwrap_or(Lpn(0));
        damaged(
            at,
            "a key or value is not what was written, or key_bytes and record_bytes are not those \
             that it was written with",
        )
    }
}

impl Index for PrefixBPlusTree {
    fn insert(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        self.numbers.key(key, &mut self.key);
        self.numbers.value(key, value, &mut self.value);
        let (_, now) = self.tree.change(now, &self.key, Some(&self.value))?;
        Ok(now)
    }

    fn delete(&mut self, now: Nanos, key: Key) -> Result<Nanos> {
        self.numbers.key(key, &mut self.key);
        Ok(self.tree.change(now, &self.key, None)?.1)
    }

    fn get(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos)> {
        self.numbers.key(key, &mut self.key);
        let (found, now) = self.tree.bytes.get(now, &self.key, &mut self.value)?;
        if !found {
            return Ok((None, now));
        }
        match self.numbers.value_of(key, &self.value, &mut self.scratch) {
            Some(value) => Ok((Some(value), now)),
            None => self.strange(),
        }
    }

    fn range(
        &mut self,
        now: Nanos,
        from: Key,
        to: Key,
        into: &mut Vec<(Key, Value)>,
    ) -> Result<Nanos> {
        if from > to {
            return Ok(now);
        }
        let (numbers, scratch) = (self.numbers, &mut self.scratch);
        numbers.key(from, &mut self.key);
        let beyond = to.checked_add(1);
        if let Some(beyond) = beyond {
            numbers.key(beyond, &mut self.value);
        }
        let to = beyond.map(|_| &self.value[..]);
        let mut sound = true;
        // The whole range is wanted, so that the first request reads as many leaves as allowed.
        let first = self.tree.read_ahead;
        let now = self
            .tree
            .range_ahead(now, &self.key, to, first, &mut |key, value| {
                let pair = numbers.key_of(key, scratch).and_then(|key| {
                    let value = numbers.value_of(key, value, scratch)?;
                    Some((key, value))
                });
                sound = pair.is_some();
                into.extend(pair);
                sound
            })?;
        if sound { Ok(now) } else { self.strange() }
    }

    fn bytes(&mut self) -> Option<&mut ByteIndex> {
        Some(&mut self.tree)
    }

    fn settle(&mut self, now: Nanos) -> Result<Nanos> {
        self.tree.settle(now)
    }

    fn check(&mut self) -> Result<(), String> {
        self.tree.check()
    }

    of_cache!(tree.bytes.nodes.cache, tree.bytes.counts);

    fn memory(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("page_cache", self.tree.bytes.nodes.cache.memory()),
            ("free_pages", self.tree.bytes.nodes.space.memory()),
        ]
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        let counts = self.tree.bytes.counts;
        let mut figures = [
            ("splits", counts.splits),
            ("merges", counts.merges),
            ("redistributions", counts.redistributions),
            ("grown", counts.grown),
            ("shrunk", counts.shrunk),
            ("large_values", counts.large_values),
        ]
        .map(|(name, count)| (name, count as f64))
        .to_vec();
        let pages = self.tree.bytes.nodes.space.used();
        figures.push(("pages", f64::from(pages)));
        figures
    }
}
