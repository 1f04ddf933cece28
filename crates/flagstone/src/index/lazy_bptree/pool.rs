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
use std::num::NonZeroU32;

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
    serial: NonZeroU32,
}

/// A block, and its range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Child {
    pub(super) low: Key,
    pub(super) high: Key,
    pub(super) id: BlockId,
}

/// What is known of a node that requests lead to, in a line of a processor's cache. When a request
/// came last is in its rank.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Block {
    /// The node, and its range.
    pub(super) span: Span,
    pub(super) parent: Option<BlockId>,
    /// What index blocks have beside.
    below: Option<Box<Below>>,
    /// No later than its oldest request came.
    pub(super) born: u64,
    /// Requests that are its own, and how many.
    list: List,
    pub(super) own: u32,
    /// By how many entries those make the node grow.
    pub(super) growth: i32,
    /// Entries of the leaf, or [`UNKNOWN`].
    size: u16,
    /// 0 in a group block.
    pub(super) level: u8,
}

/// The size of a leaf that was not looked up.
const UNKNOWN: u16 = u16::MAX;

/// What is below an index block.
#[derive(Debug, Default)]
struct Below {
    /// In the order of their ranges.
    children: Vec<Child>,
    /// The best that there is, from the last victim selection on until it may be another. Where it
    /// is known, it is known in all index blocks below.
    least: Option<Least>,
}

/// What a block leaves.
struct Dropped {
    level: u8,
    list: List,
    children: Vec<Child>,
}

/// What is asked of a block most: of a group, how good a victim it is.
#[derive(Debug, Clone, Copy)]
struct Seat {
    rank: Rank,
    serial: NonZeroU32,
    is_taken: bool,
}

impl Block {
    /// The blocks below, in the order of their ranges.
    #[inline]
    pub(super) fn children(&self) -> &[Child] {
        self.below.as_ref().map_or(&[], |below| &below.children)
    }

    /// The same, without ranges.
    pub(super) fn groups(&self) -> Vec<BlockId> {
        self.children().iter().map(|child| child.id).collect()
    }

    /// The best below, where it is known.
    #[inline]
    pub(super) fn least(&self) -> Option<Least> {
        self.below.as_ref()?.least
    }

    #[inline]
    fn least_mut(&mut self) -> Option<&mut Least> {
        self.below.as_mut()?.least.as_mut()
    }

    /// Entries of the leaf, where they were looked up.
    #[inline]
    pub(super) fn node_size(&self) -> Option<usize> {
        (self.size != UNKNOWN).then_some(usize::from(self.size))
    }

    pub(super) fn set_node_size(&mut self, size: usize) {
        self.size = size as u16;
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
    blocks: Vec<Block>,
    /// Of each block, at the same index.
    seats: Vec<Seat>,
    free: Vec<u32>,
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
            seats: Vec::new(),
            free: Vec::new(),
            by_page: FxHashMap::default(),
            root: BlockId {
                index: 0,
                serial: NonZeroU32::MIN,
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
        pool.root = pool.add(whole(root), height as u8 - 1, None);
        pool
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.requests.len() >= self.capacity
    }

    /// Bytes of requests and blocks, with the room that their structures keep.
    pub(super) fn memory(&self) -> (u64, u64) {
        let blocks = self.blocks.capacity() * size_of::<Block>();
        let seats = self.seats.capacity() * size_of::<Seat>();
        let pages = self.by_page.capacity() * (size_of::<(Lpn, BlockId)>() + 1);
        let below = self
            .blocks
            .iter()
            .filter_map(|block| block.below.as_ref())
            .map(|below| size_of::<Below>() + below.children.capacity() * size_of::<Child>());
        let blocks = blocks + seats + pages + below.sum::<usize>();
        (self.requests.memory() as u64, blocks as u64)
    }

    #[inline]
    pub(super) fn get(&self, id: BlockId) -> Option<&Block> {
        let seat = &self.seats[id.index as usize];
        (seat.is_taken && seat.serial == id.serial).then(|| &self.blocks[id.index as usize])
    }

    /// A block that is there.
    #[inline]
    pub(super) fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.index as usize]
    }

    #[inline]
    fn slot_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.index as usize]
    }

    /// A block to spoil, for tests.
    #[cfg(test)]
    pub(super) fn block_mut(&mut self, id: BlockId) -> &mut Block {
        self.slot_mut(id)
    }

    /// Loses what is below a block, for tests.
    #[cfg(test)]
    pub(super) fn lose_children(&mut self, id: BlockId) {
        self.slot_mut(id).below = Some(Box::default());
    }

    /// Makes a block without requests.
    fn add(&mut self, span: Span, level: u8, parent: Option<BlockId>) -> BlockId {
        let block = Block {
            span,
            parent,
            below: (level > 0).then(Box::default),
            born: u64::MAX,
            list: List::EMPTY,
            own: 0,
            growth: 0,
            size: UNKNOWN,
            level,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.blocks[index as usize] = block;
                index
            }
            None => {
                self.blocks.push(block);
                self.seats.push(Seat {
                    rank: Rank::default(),
                    serial: NonZeroU32::MIN,
                    is_taken: false,
                });
                self.blocks.len() as u32 - 1
            }
        };
        let seat = &mut self.seats[index as usize];
        seat.serial = seat.serial.checked_add(1).unwrap_or(NonZeroU32::MIN);
        seat.is_taken = true;
        seat.rank = Rank::default();
        let serial = seat.serial;
        let id = BlockId { index, serial };
        self.by_page.insert(span.at, id);
        id
    }

    /// Removes a block; what is below it and its requests are the caller's.
    fn drop_block(&mut self, id: BlockId) -> Dropped {
        self.free.push(id.index);
        self.seats[id.index as usize].is_taken = false;
        let block = &mut self.blocks[id.index as usize];
        let (at, level, list) = (block.span.at, block.level, block.list);
        let below = block.below.take();
        if self.by_page.get(&at) == Some(&id) {
            self.by_page.remove(&at);
        }
        let children = below.map_or_else(Vec::new, |below| below.children);
        Dropped {
            level,
            list,
            children,
        }
    }

    /// The child of a block whose range has a key.
    #[inline]
    fn child_with(&self, id: BlockId, key: Key) -> Option<BlockId> {
        let children = self.block(id).children();
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
        if self.block(id).node_size() != Some(len) {
            self.edit(id, |block| block.set_node_size(len));
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
            let children = block.children();
            let first = children.partition_point(|child| child.high < low);
            let inside = children[first..].iter();
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
                self.requests
                    .remove_where(&mut list, |at, _, _| at == place);
                self.counts.cancelled += 2;
            }
        }
        let growth = |request: Option<Request>| request.map_or(0, Request::growth) as i32;
        self.hit(id, stamp);
        self.edit(id, |block| {
            (block.list, block.own) = (list, own);
            block.born = block.born.min(stamp);
            block.growth += growth(joined) - growth(old);
        });
        self.tidy(id);
    }

    /// Removes a block without requests and children, and what is above it in turn.
    fn tidy(&mut self, id: BlockId) {
        let block = self.block(id);
        if block.own > 0 || !block.children().is_empty() {
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
        let Some(below) = &mut self.slot_mut(parent).below else {
            return;
        };
        let children = &mut below.children;
        let place = children.partition_point(|child| child.low < span.low);
        if children.get(place).is_some_and(|child| child.id == id) {
            children.remove(place);
        }
    }

    /// Puts blocks under a parent.
    fn adopt(&mut self, parent: BlockId, id: BlockId) {
        let Span { low, high, .. } = self.block(id).span;
        self.slot_mut(id).parent = Some(parent);
        let Some(below) = &mut self.slot_mut(parent).below else {
            return;
        };
        let children = &mut below.children;
        let place = children.partition_point(|child| child.low < low);
        children.insert(place, Child { low, high, id });
    }

    /// Divides the own requests of an index block by the entries of its node, into new children
    /// (lines 6 to 11 of algorithm 3).
    pub(super) fn divide(&mut self, id: BlockId, page: &[u8], shape: Shape) {
        let block = self.block(id);
        let (span, level, least, list) = (block.span, block.level, block.least(), block.list);
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
        self.hit(id, count.hit);
        self.edit(id, |block| {
            (block.list, block.own) = (list, count.own as u32);
            (block.growth, block.born) = (count.growth as i32, count.born);
        });
    }

    /// Takes the requests of a group block out, in the order of their keys; the block goes.
    pub(super) fn take(&mut self, id: BlockId, into: &mut Vec<(Key, Waiting)>) {
        into.clear();
        let mut list = self.block(id).list;
        self.requests.remove_where(&mut list, |_, key, waiting| {
            into.push((key, waiting));
            true
        });
        into.sort_unstable_by_key(|&(key, _)| key);
        self.edit(id, |block| {
            (block.list, block.own) = (List::EMPTY, 0);
            (block.growth, block.born) = (0, u64::MAX);
            block.size = UNKNOWN;
        });
        self.tidy(id);
    }

    /// Puts requests back that could not be committed.
    pub(super) fn restore(&mut self, taken: &[(Key, Waiting)]) {
        for &(key, waiting) in taken {
            let id = self.locate(key);
            let mut list = self.block(id).list;
            self.requests.push(&mut list, key, waiting);
            self.hit(id, self.rank(id).hit.max(waiting.stamp));
            self.edit(id, |block| {
                block.list = list;
                block.own += 1;
                block.growth += waiting.request.growth() as i32;
                block.born = block.born.min(waiting.stamp);
            });
        }
    }

    /// Removes the requests of a block, of keys from one to another: they were committed.
    fn remove(&mut self, id: BlockId, low: Key, high: Key) {
        let mut list = self.block(id).list;
        let (mut removed, mut growth) = (0, 0);
        self.requests.remove_where(&mut list, |_, key, waiting| {
            let goes = (low..=high).contains(&key);
            if goes {
                removed += 1;
                growth += waiting.request.growth() as i32;
            }
            goes
        });
        self.edit(id, |block| {
            block.list = list;
            block.own -= removed;
            block.growth -= growth;
            block.size = UNKNOWN;
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
