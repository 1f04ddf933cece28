//! The lazy-update pool: requests that wait, and the blocks that say how much is known of the nodes
//! they will go to.
//!
//! A block stands for a node: a group block for a leaf, an index block for an inner node. Blocks
//! form a tree of their own, with no more of the nodes than requests have led to. A request belongs
//! to the deepest block whose range has its key ([LazyBtree] §4.4.1; "invariant O" below).
//!
//! The paper gives each block an array of its requests and moves them to children as these are
//! made. Here all requests are in one ordered map, and a block says how many are its own: those in
//! its range and in that of no child. A move is a change of two numbers, invariant O cannot be
//! broken by one, and a query finds its key without asking blocks. Sibling pointers are arrays of
//! children in order.

mod check;
mod follow;

use super::super::bptree::{Change, Shape, Span};
use super::super::{Key, Value};
use super::select::Least;
use crate::units::Lpn;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// What is to be done with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// Insert it; whether the tree has it is not known, unless inserted keys are always new.
    Insert(Value),
    /// Give it, which the tree has, another value.
    Overwrite(Value),
    /// Remove it.
    Delete,
}

impl Request {
    /// The value that a query finds.
    pub(super) fn value(self) -> Option<Value> {
        match self {
            Request::Insert(value) | Request::Overwrite(value) => Some(value),
            Request::Delete => None,
        }
    }

    /// By how many entries a leaf grows, as far as can be told without reading it.
    fn growth(self) -> i64 {
        match self {
            Request::Insert(_) => 1,
            Request::Overwrite(_) => 0,
            Request::Delete => -1,
        }
    }
}

/// A request that waits, and when it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) request: Request,
    stamp: u64,
}

/// Requests side by side.
#[derive(Debug, Clone, Copy)]
struct Count {
    own: usize,
    /// By how many entries they make a leaf grow.
    growth: i64,
    /// When the newest and the oldest came.
    hit: u64,
    born: u64,
}

impl Default for Count {
    fn default() -> Count {
        Count {
            own: 0,
            growth: 0,
            hit: 0,
            born: u64::MAX,
        }
    }
}

impl Count {
    fn take(&mut self, waiting: &Waiting) {
        self.own += 1;
        self.growth += waiting.request.growth();
        self.hit = self.hit.max(waiting.stamp);
        self.born = self.born.min(waiting.stamp);
    }
}

/// A block, if it is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct BlockId {
    index: u32,
    serial: u32,
}

/// What is known of a node that requests lead to.
#[derive(Debug, Clone)]
pub(super) struct Block {
    /// The node, and its range.
    pub(super) span: Span,
    /// 0 in a group block.
    pub(super) level: u32,
    pub(super) parent: Option<BlockId>,
    /// In the order of their ranges.
    pub(super) children: Vec<BlockId>,
    /// Requests that are its own.
    pub(super) own: usize,
    /// By how many entries those make the node grow.
    pub(super) growth: i64,
    /// When a request came to it last.
    pub(super) hit: u64,
    /// No later than its oldest request came.
    pub(super) born: u64,
    /// Entries of the leaf, where they were looked up.
    pub(super) node_size: Option<usize>,
    /// In an index block: the best that there is below, from the last victim selection on until
    /// something below changes. Where it is known, it is known in all index blocks below.
    pub(super) least: Option<Least>,
}

/// What is counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Requests that came.
    pub(super) requests: u64,
    /// Requests that never reach the tree: both of a pair, and those that a later one replaces.
    pub(super) cancelled: u64,
    /// Groups that were committed as victims or by a flush.
    pub(super) groups: u64,
    /// Groups that were committed because their leaf left the memory dirty.
    pub(super) evicted: u64,
    /// Requests that were committed.
    pub(super) committed: u64,
    /// Blocks that were divided.
    pub(super) divided: u64,
    /// Requests that came into a block because its range grew.
    pub(super) pulled: u64,
    /// Blocks that a victim selection passed over by their bound.
    pub(super) pruned: u64,
    /// Victims with more than one group.
    pub(super) super_groups: u64,
    /// Groups of those.
    pub(super) super_members: u64,
}

/// How requests of the same key are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CancelOut {
    /// Nothing is known of the tree: an insertion and a deletion after it leave the deletion, and
    /// an insertion after a deletion overwrites.
    Sound,
    /// The same, but that inserted keys are new: an insertion and a deletion vanish.
    NewKeys,
    /// Whatever has the same key and the opposite type vanishes.
    AsPublished,
}

/// The pool.
pub(super) struct Pool {
    pub(super) requests: BTreeMap<Key, Waiting>,
    blocks: Vec<(u32, Option<Block>)>,
    free: Vec<u32>,
    by_page: FxHashMap<Lpn, BlockId>,
    pub(super) root: BlockId,
    /// Requests that have room.
    pub(super) capacity: usize,
    cancel_out: CancelOut,
    /// Whether requests are committed to a dirty leaf that leaves the memory.
    on_eviction: bool,
    clock: u64,
    /// Of a division, to be used again.
    parts: Vec<(Span, Count)>,
    pub(super) counts: Counts,
}

impl Pool {
    pub(super) fn new(
        root: Lpn,
        height: u32,
        capacity: usize,
        cancel_out: CancelOut,
        on_eviction: bool,
    ) -> Pool {
        let mut pool = Pool {
            requests: BTreeMap::new(),
            blocks: Vec::new(),
            free: Vec::new(),
            by_page: FxHashMap::default(),
            root: BlockId {
                index: 0,
                serial: 0,
            },
            capacity,
            cancel_out,
            on_eviction,
            clock: 0,
            parts: Vec::new(),
            counts: Counts::default(),
        };
        pool.root = pool.add(whole(root), height - 1, None);
        pool
    }

    pub(super) fn is_full(&self) -> bool {
        self.requests.len() >= self.capacity
    }

    /// Bytes of requests and blocks, with the room that their structures keep.
    pub(super) fn memory(&self) -> (u64, u64) {
        // Nodes of an ordered map are two thirds full, more or less.
        let requests = self.requests.len() * size_of::<(Key, Waiting)>() * 3 / 2;
        let blocks = self.blocks.capacity() * size_of::<(u32, Option<Block>)>();
        let pages = self.by_page.capacity() * (size_of::<(Lpn, BlockId)>() + 1);
        let children = |(_, block): &(u32, Option<Block>)| {
            let block = block.as_ref()?;
            Some(block.children.capacity() * size_of::<BlockId>())
        };
        let children: usize = self.blocks.iter().filter_map(children).sum();
        (requests as u64, (blocks + pages + children) as u64)
    }

    pub(super) fn get(&self, id: BlockId) -> Option<&Block> {
        let (serial, block) = &self.blocks[id.index as usize];
        block.as_ref().filter(|_| *serial == id.serial)
    }

    pub(super) fn block(&self, id: BlockId) -> &Block {
        self.get(id).expect("a block that is there")
    }

    /// A block to change: what was known of it and those above as a whole is forgotten.
    pub(super) fn block_mut(&mut self, id: BlockId) -> &mut Block {
        let mut next = Some(id);
        while let Some(at) = next {
            let Some(block) = self.slot_mut(at) else {
                break;
            };
            let known = block.least.take().is_some();
            next = block.parent.filter(|_| known || block.level == 0);
        }
        self.slot_mut(id).expect("a block that is there")
    }

    fn slot_mut(&mut self, id: BlockId) -> Option<&mut Block> {
        self.blocks[id.index as usize].1.as_mut()
    }

    /// Keeps the best that there is below an index block.
    pub(super) fn remember(&mut self, id: BlockId, least: Least) {
        self.slot_mut(id).expect("a block that is there").least = Some(least);
    }

    /// Makes a block, of whose requests nothing is counted yet.
    fn add(&mut self, span: Span, level: u32, parent: Option<BlockId>) -> BlockId {
        let block = Block {
            span,
            level,
            parent,
            children: Vec::new(),
            own: 0,
            growth: 0,
            hit: 0,
            born: u64::MAX,
            node_size: None,
            least: None,
        };
        let index = match self.free.pop() {
            Some(index) => {
                let slot = &mut self.blocks[index as usize];
                *slot = (slot.0 + 1, Some(block));
                index
            }
            None => {
                self.blocks.push((0, Some(block)));
                self.blocks.len() as u32 - 1
            }
        };
        let serial = self.blocks[index as usize].0;
        let id = BlockId { index, serial };
        self.by_page.insert(span.at, id);
        id
    }

    fn drop_block(&mut self, id: BlockId) -> Block {
        self.free.push(id.index);
        let block = self.blocks[id.index as usize].1.take();
        let block = block.expect("a block that is there");
        if self.by_page.get(&block.span.at) == Some(&id) {
            self.by_page.remove(&block.span.at);
        }
        block
    }

    /// The child of a block whose range has a key.
    fn child_with(&self, id: BlockId, key: Key) -> Option<BlockId> {
        let children = &self.block(id).children;
        let after = children.partition_point(|&child| self.block(child).span.low <= key);
        let child = *children.get(after.checked_sub(1)?)?;
        (key <= self.block(child).span.high).then_some(child)
    }

    /// The deepest block whose range has a key.
    pub(super) fn locate(&self, key: Key) -> BlockId {
        let mut id = self.root;
        while let Some(child) = self.child_with(id, key) {
            id = child;
        }
        id
    }

    /// The block of a node.
    pub(super) fn of_page(&self, at: Lpn) -> Option<BlockId> {
        self.by_page.get(&at).copied()
    }

    /// A leaf with so many entries was seen.
    pub(super) fn learn(&mut self, at: Lpn, len: usize) {
        if let Some(id) = self.of_page(at)
            && self.block(id).node_size != Some(len)
        {
            self.block_mut(id).node_size = Some(len);
        }
    }

    /// Takes a request that came: `Insert` and `Delete` as they are, `Overwrite` for an update of a
    /// key that is known to be there.
    pub(super) fn put(&mut self, key: Key, new: Request) {
        if self.cancel_out == CancelOut::AsPublished
            && let Request::Overwrite(value) = new
        {
            // Two requests, [LazyBtree] §3.
            self.put(key, Request::Delete);
            self.put(key, Request::Insert(value));
            return;
        }
        self.clock += 1;
        self.counts.requests += 1;
        let id = self.locate(key);
        let old = self.requests.get(&key).map(|waiting| waiting.request);
        let joined = join(self.cancel_out, old, new);
        let stamp = self.clock;
        let growth = |request: Option<Request>| request.map_or(0, Request::growth);
        let block = self.block_mut(id);
        block.hit = stamp;
        block.born = block.born.min(stamp);
        block.growth += growth(joined) - growth(old);
        match (old, joined) {
            (None, Some(request)) => {
                block.own += 1;
                self.requests.insert(key, Waiting { request, stamp });
            }
            (Some(_), Some(request)) => {
                self.requests.insert(key, Waiting { request, stamp });
                self.counts.cancelled += 1;
            }
            (_, None) => {
                block.own -= 1;
                self.requests.remove(&key);
                self.counts.cancelled += 2;
                self.tidy(id);
            }
        }
    }

    /// Removes a block without requests and children, and what is above it in turn.
    fn tidy(&mut self, id: BlockId) {
        let block = self.block(id);
        let Some(parent) = block.parent else {
            return;
        };
        if block.own > 0 || !block.children.is_empty() {
            return;
        }
        self.drop_block(id);
        self.block_mut(parent).children.retain(|&child| child != id);
        self.tidy(parent);
    }

    /// Counts the requests of a range.
    fn count(&self, low: Key, high: Key) -> Count {
        let mut count = Count::default();
        for (_, waiting) in self.requests.range(low..=high) {
            count.take(waiting);
        }
        count
    }

    /// Divides the own requests of an index block by the entries of its node, into new children
    /// (lines 6 to 11 of algorithm 3).
    pub(super) fn divide(&mut self, id: BlockId, page: &[u8], shape: Shape) {
        let (span, level, own) = {
            let block = self.block(id);
            (block.span, block.level, block.own)
        };
        let Some(len) = shape.inner_len(page).filter(|_| own > 0 && level > 0) else {
            return;
        };
        self.counts.divided += 1;
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        let mut children = self.block(id).children.iter();
        let mut child = children.next().map(|&child| self.block(child));
        let mut waiting = self.requests.range(span.low..=span.high);
        let mut left = own;
        while left > 0 {
            let Some((&key, one)) = waiting.next() else {
                break;
            };
            while child.is_some_and(|child| child.span.high < key) {
                child = children.next().map(|&child| self.block(child));
            }
            if let Some(Span { high, .. }) =
                child.map(|child| child.span).filter(|span| span.low <= key)
            {
                // A child of a higher block has too many to step over.
                if level > 1 && high < span.high {
                    waiting = self.requests.range(high + 1..=span.high);
                } else if high == span.high {
                    break;
                }
                continue;
            }
            if parts.last().is_none_or(|(part, _)| part.high < key) {
                let slot = Shape::route(page, len, key);
                let (low, high) = Shape::bounds(page, len, slot, (span.low, span.high));
                let at = Shape::child(page, slot);
                parts.push((Span { at, low, high }, Count::default()));
            }
            parts.last_mut().expect("a part").1.take(one);
            left -= 1;
        }
        for &(span, count) in &parts {
            let made = self.add_with(span, level - 1, Some(id), count);
            let children = &self.block(id).children;
            let place = children.partition_point(|&child| self.block(child).span.low < span.low);
            self.block_mut(id).children.insert(place, made);
        }
        let block = self.block_mut(id);
        (block.own, block.growth, block.born) = (0, 0, u64::MAX);
        self.parts = parts;
    }

    fn add_counted(&mut self, span: Span, level: u32, parent: Option<BlockId>) -> BlockId {
        let count = self.count(span.low, span.high);
        self.add_with(span, level, parent, count)
    }

    fn add_with(
        &mut self,
        span: Span,
        level: u32,
        parent: Option<BlockId>,
        count: Count,
    ) -> BlockId {
        let id = self.add(span, level, parent);
        let block = self.block_mut(id);
        (block.own, block.growth) = (count.own, count.growth);
        (block.hit, block.born) = (count.hit, count.born);
        id
    }

    /// Gives a block that was counted alone its children.
    fn adopt(&mut self, id: BlockId, children: Vec<BlockId>) {
        for &child in &children {
            let Span { low, high, .. } = self.block(child).span;
            let Count { own, growth, .. } = self.count(low, high);
            let block = self.block_mut(id);
            block.own -= own;
            block.growth -= growth;
            self.block_mut(child).parent = Some(id);
        }
        self.block_mut(id).children = children;
    }

    fn sort_children(&mut self, id: BlockId) {
        let mut children = std::mem::take(&mut self.block_mut(id).children);
        children.sort_unstable_by_key(|&child| self.block(child).span.low);
        self.block_mut(id).children = children;
    }

    /// Takes the requests of a group block out, in the order of their keys; the block goes.
    pub(super) fn take(&mut self, id: BlockId) -> Vec<(Key, Waiting)> {
        let Span { low, high, .. } = self.block(id).span;
        let taken: Vec<(Key, Waiting)> = self
            .requests
            .range(low..=high)
            .map(|(&key, &waiting)| (key, waiting))
            .collect();
        for (key, _) in &taken {
            self.requests.remove(key);
        }
        let block = self.block_mut(id);
        (block.own, block.growth, block.born) = (0, 0, u64::MAX);
        block.node_size = None;
        self.tidy(id);
        taken
    }

    /// Puts requests back that could not be committed.
    pub(super) fn restore(&mut self, taken: Vec<(Key, Waiting)>) {
        for (key, waiting) in taken {
            let id = self.locate(key);
            let block = self.block_mut(id);
            block.own += 1;
            block.growth += waiting.request.growth();
            block.hit = block.hit.max(waiting.stamp);
            block.born = block.born.min(waiting.stamp);
            self.requests.insert(key, waiting);
        }
    }

    /// Removes a request that was committed.
    fn remove(&mut self, key: Key) {
        let id = self.locate(key);
        if let Some(waiting) = self.requests.remove(&key) {
            let block = self.block_mut(id);
            block.own -= 1;
            block.growth -= waiting.request.growth();
            block.node_size = None;
            self.tidy(id);
        }
    }
}

fn whole(at: Lpn) -> Span {
    let (low, high) = (0, Key::MAX);
    Span { at, low, high }
}

/// What waits after a request came to one of the same key.
fn join(cancel_out: CancelOut, old: Option<Request>, new: Request) -> Option<Request> {
    use Request::{Delete, Insert, Overwrite};
    let published = cancel_out == CancelOut::AsPublished;
    Some(match (old, new) {
        (None, new) => new,
        (Some(Delete), Insert(_)) | (Some(Insert(_) | Overwrite(_)), Delete) if published => {
            return None;
        }
        (Some(Insert(_)), Delete) if cancel_out == CancelOut::NewKeys => return None,
        (Some(Insert(_)), Insert(value) | Overwrite(value)) => Insert(value),
        (Some(Delete | Overwrite(_)), Insert(value) | Overwrite(value)) => Overwrite(value),
        (Some(_), Delete) => Delete,
    })
}

/// Requests as a leaf takes them.
pub(super) fn changes(taken: &[(Key, Waiting)]) -> Vec<Change> {
    let change = |&(key, waiting): &(Key, Waiting)| (key, waiting.request.value());
    taken.iter().map(change).collect()
}
