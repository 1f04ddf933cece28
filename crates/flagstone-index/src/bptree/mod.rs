//! The B+-tree of the textbooks, on pages: a write of a leaf for nearly every change of a key.
//!
//! Paper       [LazyBtree] §2.2, "Basic" of its §5; below the lazy-update tree as well.
//! Idea        Entries in leaves, in order; inner nodes lead to them. Every node but the root is
//!             at least half full. Leaves name both neighbours.
//! Cost        As many reads as there are levels, less what the memory holds; one program for a
//!             change, four for a split, three or four for entries that move to a sibling and for
//!             a merge.
//!
//!   node.rs     nodes in pages            tree.rs      searches and changes
//!   balance.rs  splits, merges            range.rs     ranges
//!   check.rs    the check of the whole
//!
//! Invariants  1. A leaf has d to 2d entries, an inner node d to 2d keys and one child more; the
//!                root may have fewer, an inner root has a key.
//!             2. All keys of a child lie between those beside it in its parent.
//!             3. Links of leaves lead from the first to the last and back.
//!
//! Departures  D1. The paper says that entries are borrowed "from sibling nodes". Here those of
//!                 the right sibling under the same parent are tried first, then the left one's,
//!                 and both leaves have the same number afterwards.
//!             D2. A split leaves the odd entry on the left; with a batch of changes a leaf splits
//!                 in as many as it takes at once.
//!             D3. A range asks for several leaves at once where their parent names them
//!                 (`read_ahead`); with 1 it follows the links, as the textbooks do.

mod balance;
mod check;
mod node;
mod range;
#[cfg(test)]
mod tests;
mod tree;

use super::{BackingStore, Index, IndexInfo, Key, Result, Setting, Settings, Value, of_cache};
use flagstone::layout::Layout;
use flagstone::units::Nanos;

pub(super) use node::{Change, Shape};
pub(super) use tree::{Above, Span, Tree};

/// Records that this module keeps.
pub(super) const LAYOUTS: &[&[Layout]] = &[node::LAYOUTS, tree::LAYOUTS];

/// The setting that all trees have.
pub(super) const ORDER: Setting = Setting {
    name: "order",
    default: "0",
    what: "d: a node has d to 2d entries; 0 means as many as fit into a page",
};

/// The setting of trees whose ranges ask for several leaves at once.
pub(super) const READ_AHEAD: Setting = Setting {
    name: "read_ahead",
    default: "16",
    what: "maximum leaves per request of a range, and at most half of the leaves in memory; 1 \
           reads one by one",
};

/// Number of leaves that a range requests at once.
pub(super) fn read_ahead(settings: &Settings, info: &IndexInfo) -> Result<usize> {
    Ok(settings.number(info, READ_AHEAD.name, 1, 1 << 16)?)
}

pub(super) const INFO: IndexInfo = IndexInfo {
    name: "bptree",
    idea: "a B+-tree: entries in order in leaves that are linked both ways",
    paper: "[LazyBtree]",
    ordered: true,
    buffers: false,
    settings: &[ORDER, READ_AHEAD],
    tiny: &[("order", "2")],
    costs: ["height reads", "height reads, 1 program", "3 to 4 programs"],
};

struct BPlusTree {
    tree: Tree<()>,
    read_ahead: usize,
}

/// Opens a plain tree with no layer above it.
fn open_tree(
    store: Box<dyn BackingStore>,
    settings: &Settings,
    info: &'static IndexInfo,
    now: Nanos,
) -> Result<(Tree<()>, Nanos)> {
    let frames = info.memory(settings)? as usize / store.page_bytes();
    Tree::open(store, info, settings, frames, now, |_, _, _| ())
}

/// An in-memory tree for the tests of the lazy-update tree. `settings` may contain those of the
/// lazy-update tree.
#[cfg(test)]
pub(super) fn open_plain(settings: &Settings, pages: u32) -> Tree<()> {
    let open =
        |store, settings: &_, now| open_tree(store, settings, &super::lazy_bptree::INFO, now);
    super::model::blank(open, settings, 256, pages).0
}

pub(super) fn open(
    store: Box<dyn BackingStore>,
    settings: &Settings,
    now: Nanos,
) -> Result<(Box<dyn Index>, Nanos)> {
    let read_ahead = read_ahead(settings, &INFO)?;
    let (tree, now) = open_tree(store, settings, &INFO, now)?;
    Ok((Box::new(BPlusTree { tree, read_ahead }), now))
}

impl Index for BPlusTree {
    fn insert(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        self.tree.insert(now, key, value)
    }

    fn build(&mut self, now: Nanos, pairs: &[(Key, Value)]) -> Result<Nanos> {
        self.tree.build(now, pairs)
    }

    fn delete(&mut self, now: Nanos, key: Key) -> Result<Nanos> {
        self.tree.delete(now, key)
    }

    fn get(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos)> {
        self.tree.get(now, key)
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
        self.tree.range(now, from, to, self.read_ahead, into)
    }

    fn settle(&mut self, now: Nanos) -> Result<Nanos> {
        self.tree.settle(now)
    }

    fn check(&mut self) -> Result<(), String> {
        self.tree.check().map(|_| ())
    }

    of_cache!(tree.cache, tree.counts);

    fn memory(&self) -> Vec<(&'static str, u64)> {
        self.tree.memory()
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        self.tree.counts.figures()
    }
}
