//! A B+-tree of byte strings, keys and values of any length, for a key-value store to stand on.
//!
//! Paper       \[PrefixBTree]: what inner nodes keep of keys, and what all keys of a node begin
//!             with. Slots, and pages for long values, are those of the textbooks.
//! Idea        Entries lie in leaves, in order; inner nodes lead to them. A key between two leaves
//!             is the shortest that tells them apart, and a node keeps once what its keys begin
//!             with alike; so more entries fit a page, and a comparison looks at fewer bytes.
//!             A node splits or merges by bytes and not by entries.
//! Cost        As many reads as there are levels, less what the memory holds; one program for a
//!             change, three for a split, for entries that move to a sibling, two for a merge. A
//!             value of more than half of a page has pages of its own, that are written in one
//!             request and read in one.
//!
//!   node.rs     nodes in pages            byte_tree.rs searches, changes, long values
//!   apart.rs    cutting a node in two     balance.rs   splits, merges
//!   nodes.rs    the pages below           check.rs     the check of the whole
//!   walk.rs     reading, both ways        tree.rs      the tree as an index
//!   range.rs    ranges of an index        numbers.rs   numbers as byte strings
//!   lower.rs    pages to lower numbers    merge.rs     sparse nodes to fuller ones
//!
//! Invariants  1. No entry takes more than half of a node; a key has an eighth of one at most.
//!             2. The entries of a node other than the root would fill a quarter of a page or more
//!                without a prefix.
//!             3. All keys of a child lie between those beside it in its parent.
//!             4. The pages of a long value are named by its entry, or by pages that its entry
//!                names where there are too many of them; and by nothing else.
//!
//! Departures  D1. Leaves do not name their neighbours. A range finds the next leaf from above,
//!                 where the nodes are in memory, and asks for as many at once as it needs and may
//!                 (`read_ahead`); a split or merge has a page less to write.
//!             D2. What happens to nodes with too little is our own: one that would not fill a
//!                 quarter of a page without prefixes merges with a sibling or takes from one.
//!             D3. A prefix is not made longer when keys go, and shorter only by a key without it:
//!                 the node is then written anew.
//!             D4. A node that an entry at its end has made too full is cut near there: a quarter
//!                 goes to the right. Keys that come in order leave three quarters behind and not
//!                 a half.
//!
//! The trait of all indexes has numbers for keys and values. Here they become byte strings, of the
//! lengths that the settings say; byte strings themselves come in by `Index::bytes`.
//!
//! A store of tables uses the same tree without an index: [`ByteTree`] changes pages of any kind
//! ([`Nodes`]), and [`Walk`] reads pages that do not change.

mod apart;
mod balance;
mod byte_tree;
mod check;
mod fell;
mod lost;
mod lower;
mod merge;
mod node;
mod nodes;
mod numbers;
mod range;
#[cfg(test)]
mod tests;
mod tree;
mod walk;

use super::bptree::READ_AHEAD;
use super::{BackingStore, Settings, Value, damaged, of_cache};
use super::{Index, IndexError, IndexInfo, Key, Result};
use crate::layout::Layout;
use crate::settings::settings;
use crate::units::{Lpn, Nanos};
use byte_tree::Sizes;
use numbers::{Lengths, Numbers};

pub use byte_tree::{ByteTree, Limits, Root, write_empty};
pub use fell::Felled;
pub use lost::Lost;
pub use merge::MergeFrom;
pub use nodes::Nodes;
pub use tree::ByteIndex;
pub use walk::{AllFound, Cursor, FoundValue, Gap, Images, Walk};

/// Records that this module keeps.
pub(super) const LAYOUTS: &[&[Layout]] = &[node::LAYOUTS, tree::LAYOUTS];

pub(super) const INFO: IndexInfo = IndexInfo {
    name: "prefix-bptree",
    idea: "a B+-tree of byte strings: what keys begin with alike is kept once",
    paper: "[PrefixBTree]",
    ordered: true,
    buffers: false,
    settings: settings! {
        ..READ_AHEAD;
        key_bytes: "8",
            "bytes of a byte string that stands for a key, 8 or more, or lengths as 9..60";
        record_bytes: "0",
            "bytes that a value is filled up to, or lengths as 20..2000, short ones more often";
    },
    tiny: &[("key_bytes", "8..20"), ("record_bytes", "8..300")],
    costs: [
        "height reads, 1 more of a long value",
        "height reads, 1 program, those of a long value",
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
    let limits = Sizes::new(store.page_bytes())?.limits;
    let numbers = Numbers {
        key: lengths(settings, "key_bytes", 8, limits.key)?,
        value: lengths(settings, "record_bytes", 0, limits.value)?,
        value_bytes: settings.value_bytes(&INFO)?,
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
        let at = self.tree.bytes.path.last().map_or(Lpn(0), |step| step.at);
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
        let mut figures = self.tree.bytes.counts.figures();
        let pages = self.tree.bytes.nodes.space.used();
        figures.push(("pages", f64::from(pages)));
        figures
    }
}
