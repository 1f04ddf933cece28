//! The lazy-update pool: requests that wait, and the blocks that say how much is known of the nodes
//! they will go to.
//!
//! A block stands for a node: a group block for a leaf, an index block for an inner node. Blocks
//! form a tree of their own, with no more of the nodes than requests have led to. A request belongs
//! to the deepest block whose range has its key ([LazyBtree] §4.4.1; "invariant O" below), and is
//! in the list of that block.
//!
//! The paper's blocks have an array of requests and pointers to the first child and the next
//! sibling. Here a request is linked into its block's list and also found by a hash of its key, so
//! that a query does not search lists; and a block has its children's ranges side by side, to be
//! bisected.
//!
//!   requests.rs  requests and lists       least.rs   the best victim below each block
//!   follow.rs    what the tree below does check.rs   the check of the whole

mod check;
mod follow;
mod least;
mod requests;

use super::super::Key;
use super::super::bptree::{Shape, Span};
use super::select::Policy;
use crate::units::Lpn;
pub(super) use least::{Least, Rank, Score};
use requests::{List, Place, Requests};
pub(super) use requests::{Request, Waiting};
use rustc_hash::FxHashMap;

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

/// A block, and its range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Child {
    pub(super) low: Key,
    pub(super) high: Key,
    pub(super) id: BlockId,
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
    pub(super) children: Vec<Child>,
    /// Requests that are its own, and how many.
    list: List,
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

impl Block {
    /// The blocks below.
    pub(super) fn groups(&self) -> Vec<BlockId> {
        self.children.iter().map(|child| child.id).collect()
    }
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
    pub(super) requests: Requests,
    blocks: Vec<(u32, Option<Block>)>,
    free: Vec<u32>,
    /// Those of groups, by the index of the block.
    ranks: Vec<Rank>,
    by_page: FxHashMap<Lpn, BlockId>,
    pub(super) root: BlockId,
    /// Requests that have room.
    pub(super) capacity: usize,
    cancel_out: CancelOut,
    /// Whether requests are committed to a dirty leaf that leaves the memory.
    on_eviction: bool,
    clock: u64,
    pub(super) policy: Policy,
    /// Half the entries of a full leaf.
    leaf_order: usize,
    /// Whether what is known of the best below a block is told by who looked for it, and is
    /// forgotten at each change: victims are super groups.
    second_hand: bool,
    /// Of divisions, to be used again.
    moving: Vec<(Key, Place)>,
    made: Vec<BlockId>,
    pub(super) counts: Counts,
}

/// How a pool works.
pub(super) struct Rules {
    /// Requests that have room.
    pub(super) capacity: usize,
    pub(super) cancel_out: CancelOut,
    pub(super) on_eviction: bool,
    pub(super) policy: Policy,
    /// Whether victims are super groups.
    pub(super) super_groups: bool,
}

impl Pool {
    pub(super) fn new(root: Lpn, height: u32, shape: Shape, rules: Rules) -> Pool {
        let mut pool = Pool {
            requests: Requests::new(),
            blocks: Vec::new(),
            free: Vec::new(),
            ranks: Vec::new(),
            by_page: FxHashMap::default(),
            root: BlockId {
                index: 0,
                serial: 0,
            },
            capacity: rules.capacity,
            cancel_out: rules.cancel_out,
            on_eviction: rules.on_eviction,
            clock: 0,
            policy: rules.policy,
            leaf_order: shape.leaf_order,
            second_hand: rules.super_groups,
            moving: Vec::new(),
            made: Vec::new(),
            counts: Counts::default(),
        };
        pool.root = pool.add(whole(root), height - 1, None);
        pool
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.requests.len() >= self.capacity
    }

    /// Bytes of requests and blocks, with the room that their structures keep.
    pub(super) fn memory(&self) -> (u64, u64) {
        let blocks = self.blocks.capacity() * size_of::<(u32, Option<Block>)>();
        let ranks = self.ranks.capacity() * size_of::<Rank>();
        let pages = self.by_page.capacity() * (size_of::<(Lpn, BlockId)>() + 1);
        let children = |(_, block): &(u32, Option<Block>)| {
            let block = block.as_ref()?;
            Some(block.children.capacity() * size_of::<Child>())
        };
        let children: usize = self.blocks.iter().filter_map(children).sum();
        let blocks = blocks + ranks + pages + children;
        (self.requests.memory() as u64, blocks as u64)
    }

    #[inline]
    pub(super) fn get(&self, id: BlockId) -> Option<&Block> {
        let (serial, block) = &self.blocks[id.index as usize];
        block.as_ref().filter(|_| *serial == id.serial)
    }

    #[inline]
    pub(super) fn block(&self, id: BlockId) -> &Block {
        self.get(id).expect("a block that is there")
    }

    #[inline]
    fn slot_mut(&mut self, id: BlockId) -> &mut Block {
        let block = self.blocks[id.index as usize].1.as_mut();
        block.expect("a block that is there")
    }

    /// A block to spoil, for tests.
    #[cfg(test)]
    pub(super) fn block_mut(&mut self, id: BlockId) -> &mut Block {
        self.slot_mut(id)
    }

    /// Makes a block without requests.
    fn add(&mut self, span: Span, level: u32, parent: Option<BlockId>) -> BlockId {
        let block = Block {
            span,
            level,
            parent,
            children: Vec::new(),
            list: List::EMPTY,
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
                self.ranks.push(Rank::default());
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
    #[inline]
    fn child_with(&self, id: BlockId, key: Key) -> Option<BlockId> {
        let children = &self.block(id).children;
        let after = children.partition_point(|child| child.low <= key);
        let child = children.get(after.checked_sub(1)?)?;
        (key <= child.high).then_some(child.id)
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
    #[inline]
    pub(super) fn of_page(&self, at: Lpn) -> Option<BlockId> {
        self.by_page.get(&at).copied()
    }

    /// A leaf with so many entries was seen.
    pub(super) fn learn(&mut self, at: Lpn, len: usize) {
        if let Some(id) = self.of_page(at) {
            self.learn_of(id, len);
        }
    }

    /// The same, of a group.
    pub(super) fn learn_of(&mut self, id: BlockId, len: usize) {
        if self.block(id).node_size != Some(len) {
            self.edit(id, |block| block.node_size = Some(len));
        }
    }

    /// Requests of keys from one to another, in their order.
    pub(super) fn between(&self, low: Key, high: Key) -> Vec<(Key, Waiting)> {
        let mut found = Vec::new();
        let mut stack = vec![self.root];
        while let Some(id) = stack.pop() {
            let block = self.block(id);
            let own = self.requests.of(block.list);
            let own = own.filter(|(_, key, _)| (low..=high).contains(key));
            found.extend(own.map(|(_, key, waiting)| (key, waiting)));
            let first = block.children.partition_point(|child| child.high < low);
            let inside = block.children[first..].iter();
            let inside = inside.take_while(|child| child.low <= high);
            stack.extend(inside.map(|child| child.id));
        }
        found.sort_unstable_by_key(|&(key, _)| key);
        found
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
        let stamp = self.clock;
        let place = self.requests.place(key);
        let old = place.map(|place| self.requests.waiting(place).1.request);
        let joined = join(self.cancel_out, old, new);
        let mut list = self.block(id).list;
        let mut own = self.block(id).own;
        match (place, joined) {
            (None, None) => {}
            (None, Some(request)) => {
                own += 1;
                let waiting = Waiting { request, stamp };
                self.requests.push(&mut list, key, waiting);
            }
            (Some(place), Some(request)) => {
                self.requests.replace(place, Waiting { request, stamp });
                self.counts.cancelled += 1;
            }
            (Some(place), None) => {
                own -= 1;
                self.requests.unlink(&mut list, place);
                self.requests.remove(place);
                self.counts.cancelled += 2;
            }
        }
        let growth = |request: Option<Request>| request.map_or(0, Request::growth);
        self.edit(id, |block| {
            (block.list, block.own) = (list, own);
            block.hit = stamp;
            block.born = block.born.min(stamp);
            block.growth += growth(joined) - growth(old);
        });
        self.tidy(id);
    }

    /// Removes a block without requests and children, and what is above it in turn.
    fn tidy(&mut self, id: BlockId) {
        let block = self.block(id);
        if block.own > 0 || !block.children.is_empty() {
            return;
        }
        let Some(parent) = block.parent else {
            return;
        };
        self.orphan(id);
        self.drop_block(id);
        self.tidy(parent);
    }

    /// Takes a block away from its parent.
    fn orphan(&mut self, id: BlockId) {
        let Block { span, parent, .. } = *self.block(id);
        let parent = parent.expect("the root has no sibling");
        self.forget(parent);
        let children = &mut self.slot_mut(parent).children;
        let place = children.partition_point(|child| child.low < span.low);
        if children.get(place).is_some_and(|child| child.id == id) {
            children.remove(place);
        }
    }

    /// Puts blocks under a parent.
    fn adopt(&mut self, parent: BlockId, id: BlockId) {
        let Span { low, high, .. } = self.block(id).span;
        self.slot_mut(id).parent = Some(parent);
        let children = &mut self.slot_mut(parent).children;
        let place = children.partition_point(|child| child.low < low);
        children.insert(place, Child { low, high, id });
    }

    /// Divides the own requests of an index block by the entries of its node, into new children
    /// (lines 6 to 11 of algorithm 3).
    pub(super) fn divide(&mut self, id: BlockId, page: &[u8], shape: Shape) {
        let block = self.block(id);
        let (span, level, least, list) = (block.span, block.level, block.least, block.list);
        let divides = block.own > 0 && level > 0;
        let Some(len) = shape.inner_len(page).filter(|_| divides) else {
            return;
        };
        self.counts.divided += 1;
        let mut moving = std::mem::take(&mut self.moving);
        let mut made = std::mem::take(&mut self.made);
        moving.clear();
        made.clear();
        let own = self.requests.of(list);
        moving.extend(own.map(|(place, key, _)| (key, place)));
        moving.sort_unstable_by_key(|&(key, _)| key);
        let block = self.slot_mut(id);
        (block.list, block.own) = (List::EMPTY, 0);
        (block.growth, block.born) = (0, u64::MAX);
        let mut rest = &moving[..];
        while let Some(&(key, _)) = rest.first() {
            let slot = Shape::route(page, len, key);
            let (low, high) = Shape::bounds(page, len, slot, (span.low, span.high));
            let at = Shape::child(page, slot);
            let part = rest.iter().take_while(|&&(key, _)| key <= high).count();
            let (part, others) = rest.split_at(part);
            let child = self.add(Span { at, low, high }, level - 1, Some(id));
            let places = part.iter().map(|&(_, place)| place);
            let mut count = Count::default();
            let mut list = List::EMPTY;
            for place in places {
                count.take(&self.requests.waiting(place).1);
                self.requests.link(&mut list, place);
            }
            self.start(child, list, count);
            self.adopt(id, child);
            made.push(child);
            rest = others;
        }
        let least = least.filter(|_| level == 1);
        self.was_divided(id, least, &made);
        (self.moving, self.made) = (moving, made);
    }

    /// Gives a new block its requests.
    fn start(&mut self, id: BlockId, list: List, count: Count) {
        self.edit(id, |block| {
            (block.list, block.own, block.growth) = (list, count.own, count.growth);
            (block.hit, block.born) = (count.hit, count.born);
        });
    }

    /// Takes the requests of a group block out, in the order of their keys; the block goes.
    pub(super) fn take(&mut self, id: BlockId, into: &mut Vec<(Key, Waiting)>) {
        into.clear();
        let mut next = self.requests.of(self.block(id).list).next();
        let mut list = self.block(id).list;
        while let Some((place, key, waiting)) = next {
            into.push((key, waiting));
            self.requests.unlink(&mut list, place);
            self.requests.remove(place);
            next = self.requests.of(list).next();
        }
        into.sort_unstable_by_key(|&(key, _)| key);
        self.edit(id, |block| {
            (block.list, block.own) = (List::EMPTY, 0);
            (block.growth, block.born) = (0, u64::MAX);
            block.node_size = None;
        });
        self.tidy(id);
    }

    /// Puts requests back that could not be committed.
    pub(super) fn restore(&mut self, taken: &[(Key, Waiting)]) {
        for &(key, waiting) in taken {
            let id = self.locate(key);
            let mut list = self.block(id).list;
            self.requests.push(&mut list, key, waiting);
            self.edit(id, |block| {
                block.list = list;
                block.own += 1;
                block.growth += waiting.request.growth();
                block.hit = block.hit.max(waiting.stamp);
                block.born = block.born.min(waiting.stamp);
            });
        }
    }

    /// Removes requests of a block that were committed.
    fn remove(&mut self, id: BlockId, committed: &[Key]) {
        let mut list = self.block(id).list;
        let mut growth = 0;
        for &key in committed {
            if let Some(place) = self.requests.place(key) {
                growth += self.requests.waiting(place).1.request.growth();
                self.requests.unlink(&mut list, place);
                self.requests.remove(place);
            }
        }
        self.edit(id, |block| {
            block.list = list;
            block.own -= committed.len();
            block.growth -= growth;
            block.node_size = None;
        });
        self.tidy(id);
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
