//! The tree without the `Index` trait: searches, changes of single keys and of all keys of a leaf
//! at once, and the interface to a layer above.

use super::super::meta::Meta;
use super::super::space::Space;
use super::super::{
    BackingStore, Cache, IndexError, IndexInfo, Key, Result, Settings, Value, counters, damaged,
};
use super::node::{Change, PAGES_MAX, Shape};
use flagstone::layout;
use flagstone::layout::{Layout, get, put};
use flagstone::units::{Lpn, Nanos};

layout! {
    /// The tree's own metadata.
    pub tree_meta: 16 => {
        ROOT:        4, "the root";
        HEIGHT:      4, "levels; 1 if the root is a leaf";
        LEAF_ORDER:  4, "half the entries of a full leaf";
        INNER_ORDER: 4, "half the keys of a full inner node";
    }
}

/// Records that this module keeps.
pub(super) const LAYOUTS: &[Layout] = &[tree_meta::RECORD];

/// A node and its key bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Span {
    pub(in super::super) at: Lpn,
    pub(in super::super) low: Key,
    pub(in super::super) high: Key,
}

/// A layer above a tree that follows its changes. Only the tree reads and writes pages.
pub(in super::super) trait Above {
    /// Whether the layer is notified of dirty pages before they are evicted.
    const WATCHES: bool;

    /// Called before a dirty page is evicted. It may change the page if that is a leaf and keeps
    /// between d and 2d entries.
    fn leaving(&mut self, at: Lpn, page: &mut [u8], shape: Shape);

    /// Called after adjacent nodes under one parent were replaced by others with the same key
    /// range. Lower levels come first.
    fn reshaped(&mut self, old: &[Lpn], new: &[Span]);

    /// Called after a root was added above the old one, which is its only child.
    fn grown(&mut self, root: Lpn);

    /// Called after the root was removed and its only child became the root.
    fn shrunk(&mut self, root: Lpn);
}

impl Above for () {
    const WATCHES: bool = false;
    fn leaving(&mut self, _: Lpn, _: &mut [u8], _: Shape) {}
    fn reshaped(&mut self, _: &[Lpn], _: &[Span]) {}
    fn grown(&mut self, _: Lpn) {}
    fn shrunk(&mut self, _: Lpn) {}
}

/// A node on the way from the root to a leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) span: Span,
    /// Slot of the next child.
    pub(super) slot: usize,
}

counters! {
    /// Counters.
    pub(in super::super) struct Counts {
        /// Nodes created by splits: leaves and inner nodes.
        splits,
        merges,
        redistributions,
        /// How often the height increased.
        grown,
        /// How often the height decreased.
        shrunk,
    }
}

/// Up to this many changes of a leaf are applied one by one; more are merged with its entries.
const FEW: usize = 8;

/// A B+-tree.
pub(in super::super) struct Tree<A> {
    pub(in super::super) cache: Cache,
    pub(in super::super) above: A,
    pub(super) meta: Meta,
    pub(super) space: Space,
    pub(in super::super) shape: Shape,
    pub(in super::super) root: Lpn,
    /// Number of levels.
    pub(in super::super) height: u32,
    /// From the root to the last leaf searched for.
    pub(super) path: Vec<Step>,
    pub(in super::super) counts: Counts,
    /// Pages that were read to be written together. The layer above must not change them when they
    /// are evicted.
    pub(super) kept: Vec<Lpn>,
    scratch: Vec<(Key, Value)>,
}

/// Number of comparisons to bisect `len` keys.
#[inline]
pub(super) fn bisection(len: usize) -> u64 {
    u64::from(usize::BITS - len.leading_zeros())
}

/// Called before a frame is taken. The layer above may change the page about to be evicted.
fn last_chance<A: Above>(cache: &mut Cache, above: &mut A, kept: &[Lpn], shape: Shape) {
    if !A::WATCHES {
        return;
    }
    let Some(victim) = cache.next_victim() else {
        return;
    };
    if kept.contains(&victim) {
        return;
    }
    if let Some(page) = cache.dirty_page(victim) {
        above.leaving(victim, page, shape);
    }
}

impl<A: Above> Tree<A> {
    /// Opens the tree in a store, or creates one with an empty leaf. `above` is created from the
    /// root, the number of levels and the shape of nodes.
    pub(in super::super) fn open(
        store: Box<dyn BackingStore>,
        info: &'static IndexInfo,
        settings: &Settings,
        frames: usize,
        now: Nanos,
        above: impl FnOnce(Lpn, u32, Shape) -> A,
    ) -> Result<(Tree<A>, Nanos)> {
        let value_bytes = info.value_bytes(settings)?;
        let order = settings.number(info, "order", 0, 1 << 13)?;
        let shape = Shape::new(store.page_bytes(), value_bytes, order)?;
        let pages = store.pages().min(PAGES_MAX);
        let mut cache = Cache::new(store, frames, info.buffer(settings)?);
        let ((meta, mut space, own), mut now) =
            Meta::load(&mut cache, info.name, value_bytes, now)?;
        space.limit(pages);
        let (root, height) = match own {
            Some(own) => {
                if own.len() != tree_meta::SIZE {
                    return damaged(Lpn(0), "the metadata is not that of a tree");
                }
                let field = |field| get(&own, field) as u32;
                let (leaf, inner) = (field(tree_meta::LEAF_ORDER), field(tree_meta::INNER_ORDER));
                if (leaf as usize, inner as usize) != (shape.leaf_order, shape.inner_order) {
                    return Err(IndexError::Settings(format!(
                        "the tree in the store has leaves of order {leaf} and inner nodes of \
                         order {inner}, the settings make {} and {}: open it with the order that \
                         it was made with",
                        shape.leaf_order, shape.inner_order
                    )));
                }
                (Lpn(field(tree_meta::ROOT)), field(tree_meta::HEIGHT))
            }
            None => {
                let root = space.take()?;
                let (page, done) = cache.fill(now, root)?;
                Shape::set_leaf_len(page, 0);
                now = done;
                (root, 1)
            }
        };
        if height == 0 || height > 64 {
            return damaged(Lpn(0), "the tree has no height that can be");
        }
        let tree = Tree {
            cache,
            above: above(root, height, shape),
            meta,
            space,
            shape,
            root,
            height,
            path: Vec::new(),
            counts: Counts::default(),
            kept: Vec::new(),
            scratch: Vec::new(),
        };
        Ok((tree, now))
    }

    /// Passes a node to `look`, which returns `None` if the page is no such node.
    #[inline]
    pub(in super::super) fn look<T>(
        &mut self,
        now: Nanos,
        at: Lpn,
        look: impl FnOnce(&mut A, &[u8], Shape) -> Option<T>,
    ) -> Result<(T, Nanos)> {
        let (above, kept, shape) = (&mut self.above, &self.kept, self.shape);
        let first = |cache: &mut Cache| last_chance(cache, above, kept, shape);
        let (page, now) = self.cache.read_after(now, at, first)?;
        match look(&mut self.above, page, self.shape) {
            Some(seen) => Ok((seen, now)),
            None => damaged(at, "it is not the node that its parent names"),
        }
    }

    /// A page to modify.
    pub(super) fn change(&mut self, now: Nanos, at: Lpn) -> Result<(&mut [u8], Nanos)> {
        let (above, kept, shape) = (&mut self.above, &self.kept, self.shape);
        let first = |cache: &mut Cache| last_chance(cache, above, kept, shape);
        Ok(self.cache.change_after(now, at, first)?)
    }

    /// A page to overwrite, initially zeros.
    pub(super) fn fill(&mut self, now: Nanos, at: Lpn) -> Result<(&mut [u8], Nanos)> {
        if A::WATCHES && !self.cache.holds(at) {
            last_chance(&mut self.cache, &mut self.above, &self.kept, self.shape);
        }
        Ok(self.cache.fill(now, at)?)
    }

    #[inline]
    pub(super) fn bisected(&mut self, len: usize) {
        self.cache.compared(bisection(len));
    }

    /// Descends from the root to the leaf that covers a key, recording `path`.
    #[inline]
    pub(super) fn descend(&mut self, mut now: Nanos, key: Key) -> Result<(Lpn, Nanos)> {
        self.path.clear();
        let mut span = Span {
            at: self.root,
            low: 0,
            high: Key::MAX,
        };
        for _ in 1..self.height {
            let (low, high) = (span.low, span.high);
            let ((len, slot, child), done) = self.look(now, span.at, |_, page, shape| {
                let len = shape.inner_len(page)?;
                let slot = Shape::route(page, len, key);
                let (low, high) = Shape::bounds(page, len, slot, low, high);
                let at = Shape::child(page, slot);
                Some((len, slot, Span { at, low, high }))
            })?;
            now = done;
            self.bisected(len);
            self.path.push(Step { span, slot });
            span = child;
        }
        self.path.push(Step { span, slot: 0 });
        Ok((span.at, now))
    }

    /// The leaf that covers a key, starting at a node `level` levels above the leaves. `passed`
    /// sees each inner node.
    pub(in super::super) fn leaf_below(
        &mut self,
        mut now: Nanos,
        mut span: Span,
        level: u32,
        key: Key,
        mut passed: impl FnMut(&mut A, Lpn, &[u8], Shape),
    ) -> Result<(Span, Nanos)> {
        for _ in 0..level {
            let ((len, child), done) = self.look(now, span.at, |above, page, shape| {
                let len = shape.inner_len(page)?;
                passed(above, span.at, page, shape);
                let slot = Shape::route(page, len, key);
                let (low, high) = Shape::bounds(page, len, slot, span.low, span.high);
                let at = Shape::child(page, slot);
                Some((len, Span { at, low, high }))
            })?;
            now = done;
            self.bisected(len);
            span = child;
        }
        Ok((span, now))
    }

    /// The value of a key, looked up in the leaf that covers it, and the leaf's number of entries.
    #[inline]
    pub(in super::super) fn get_in(
        &mut self,
        now: Nanos,
        leaf: Lpn,
        key: Key,
    ) -> Result<(Option<Value>, usize, Nanos)> {
        let ((len, value), now) = self.look(now, leaf, |_, page, shape| {
            let len = shape.leaf_len(page)?;
            let slot = shape.find(page, len, key).ok();
            Some((len, slot.map(|slot| shape.value(page, slot))))
        })?;
        self.bisected(len);
        Ok((value, len, now))
    }

    /// The value of a key.
    #[inline]
    pub(super) fn get(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos)> {
        let (leaf, now) = self.descend(now, key)?;
        let (value, _, now) = self.get_in(now, leaf, key)?;
        Ok((value, now))
    }

    /// Sets the value of a key.
    pub(in super::super) fn insert(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        let (leaf, now) = self.descend(now, key)?;
        let ((len, slot), now) = self.look(now, leaf, |_, page, shape| {
            let len = shape.leaf_len(page)?;
            Some((len, shape.find(page, len, key)))
        })?;
        self.bisected(len);
        let shape = self.shape;
        match slot {
            Ok(slot) => {
                let (page, now) = self.change(now, leaf)?;
                shape.set_value(page, slot, value);
                Ok(now)
            }
            Err(slot) if len < 2 * shape.leaf_order => {
                let (page, now) = self.change(now, leaf)?;
                shape.insert(page, len, slot, key, value);
                Ok(now)
            }
            Err(_) => self.change_leaf(now, leaf, &[(key, Some(value))]),
        }
    }

    /// Removes a key.
    pub(in super::super) fn delete(&mut self, now: Nanos, key: Key) -> Result<Nanos> {
        let (leaf, now) = self.descend(now, key)?;
        let ((len, slot), now) = self.look(now, leaf, |_, page, shape| {
            let len = shape.leaf_len(page)?;
            Some((len, shape.find(page, len, key)))
        })?;
        self.bisected(len);
        let shape = self.shape;
        match slot {
            Err(_) => Ok(now),
            Ok(slot) if len > shape.leaf_order || self.height == 1 => {
                let (page, now) = self.change(now, leaf)?;
                shape.remove(page, len, slot);
                Ok(now)
            }
            Ok(_) => self.change_leaf(now, leaf, &[(key, None)]),
        }
    }

    /// Applies changes to a leaf with one write of it. The changes are sorted and covered by the
    /// leaf. Then the leaf splits, borrows or merges if needed.
    pub(in super::super) fn change_leaf(
        &mut self,
        now: Nanos,
        leaf: Lpn,
        changes: &[Change],
    ) -> Result<Nanos> {
        self.change_at(now, leaf, changes, false)
    }

    /// Like `change_leaf`, but searches the leaf that covers a key from the root.
    pub(in super::super) fn change_found(
        &mut self,
        now: Nanos,
        key: Key,
        changes: &[Change],
    ) -> Result<Nanos> {
        let (leaf, now) = self.descend(now, key)?;
        self.change_at(now, leaf, changes, true)
    }

    /// Applies changes to a leaf. `on_path` says whether the current path leads to the leaf; only
    /// rebalancing needs the path.
    fn change_at(
        &mut self,
        mut now: Nanos,
        leaf: Lpn,
        changes: &[Change],
        on_path: bool,
    ) -> Result<Nanos> {
        let Some(&(key, _)) = changes.first() else {
            return Ok(now);
        };
        if changes.len() <= FEW {
            let (done, when) = self.change_few(now, leaf, changes)?;
            now = when;
            if done {
                return Ok(now);
            }
        }
        let mut entries = std::mem::take(&mut self.scratch);
        let ((len, differs), now) = self.look(now, leaf, |_, page, shape| {
            let len = shape.leaf_len(page)?;
            Some((len, shape.merge(page, len, changes, &mut entries)))
        })?;
        self.cache.compared((len + changes.len()) as u64);
        let shape = self.shape;
        let underfull = entries.len() < shape.leaf_order && self.height > 1;
        let done = if !differs {
            Ok(now)
        } else if underfull || entries.len() > 2 * shape.leaf_order {
            let (found, now) = if on_path {
                (leaf, now)
            } else {
                self.descend(now, key)?
            };
            if found == leaf {
                self.balance_leaf(now, &entries)
            } else {
                damaged(leaf, "it is not where its keys lead")
            }
        } else {
            let (page, now) = self.change(now, leaf)?;
            shape.write_entries(page, &entries);
            Ok(now)
        };
        self.scratch = entries;
        done
    }

    /// Applies a few changes to a leaf one by one, if it keeps between d and 2d entries (a root
    /// leaf: at most 2d). Returns `true` if nothing is left to do: they were applied, or change
    /// nothing.
    fn change_few(&mut self, now: Nanos, leaf: Lpn, changes: &[Change]) -> Result<(bool, Nanos)> {
        let ((mut len, after, differs), now) = self.look(now, leaf, |_, page, shape| {
            let len = shape.leaf_len(page)?;
            let (mut after, mut differs) = (len, false);
            for &(key, value) in changes {
                let found = shape.find(page, len, key);
                after = after + usize::from(found.is_err() && value.is_some())
                    - usize::from(found.is_ok() && value.is_none());
                differs |= found.ok().map(|slot| shape.value(page, slot)) != value;
            }
            Some((len, after, differs))
        })?;
        changes.iter().for_each(|_| self.bisected(len));
        let shape = self.shape;
        let least = if self.height > 1 { shape.leaf_order } else { 0 };
        if !differs || !(least..=2 * shape.leaf_order).contains(&after) {
            return Ok((!differs, now));
        }
        let (page, now) = self.change(now, leaf)?;
        // Deletions first, so that insertions find space.
        for &(key, _) in changes.iter().filter(|change| change.1.is_none()) {
            if let Ok(slot) = shape.find(page, len, key) {
                shape.remove(page, len, slot);
                len -= 1;
            }
        }
        for &(key, value) in changes {
            let Some(value) = value else {
                continue;
            };
            match shape.find(page, len, key) {
                Ok(slot) => shape.set_value(page, slot, value),
                Err(slot) => {
                    shape.insert(page, len, slot, key, value);
                    len += 1;
                }
            }
        }
        Ok((true, now))
    }

    /// Writes changed pages.
    pub(in super::super) fn settle(&mut self, now: Nanos) -> Result<Nanos> {
        let mut own = [0; tree_meta::SIZE];
        put(&mut own, tree_meta::ROOT, u64::from(self.root.0));
        put(&mut own, tree_meta::HEIGHT, u64::from(self.height));
        let (leaf, inner) = (self.shape.leaf_order, self.shape.inner_order);
        put(&mut own, tree_meta::LEAF_ORDER, leaf as u64);
        put(&mut own, tree_meta::INNER_ORDER, inner as u64);
        self.meta
            .settle(&mut self.cache, &mut self.space, &own, now)
    }

    /// Whether applying `changes` changes of different keys may need more pages than are free: each
    /// may split a leaf, which may need pages on all levels.
    pub(in super::super) fn may_lack_room(&self, changes: u32) -> bool {
        let most = 2 * u64::from(changes) + 2 * u64::from(self.height) + 4;
        u64::from(self.space.left()) < most
    }

    /// Bytes of the structures in memory.
    pub(in super::super) fn memory(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("page_cache", self.cache.memory()),
            ("free_pages", self.space.memory()),
        ]
    }
}
