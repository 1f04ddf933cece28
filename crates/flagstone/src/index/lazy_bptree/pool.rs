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
//! that a query does not search lists. A block has its children's ranges side by side, to be
//! bisected.
//!
//! ```text
//!   requests.rs  requests and lists           blocks.rs  blocks, and how they hang together
//!   least.rs     the best victim below each   follow.rs  what the tree below does
//!   check.rs     the check of the whole
//! ```

mod blocks;
mod check;
mod follow;
mod least;
mod requests;

use super::super::bptree::{Shape, Span};
use super::super::{Key, counters};
use crate::units::Lpn;
use blocks::{Below, Seat, UNKNOWN};
pub(super) use blocks::{Block, BlockId, Child};
pub(super) use least::{Least, Policy, Rank, Score};
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

counters! {
    /// What is counted.
    pub(super) struct Counts {
        /// Requests that came.
        requests,
        /// Requests that never reach the tree: both of a pair, and those that a later one replaces.
        cancelled,
        /// Requests that were committed.
        requests_committed,
        /// Groups that were: as victims, by a flush, or because their leaf left the memory dirty.
        groups_committed,
        /// Groups of the last kind.
        committed_on_eviction,
        /// Victims with more than one group.
        super_groups_committed,
        /// Groups of those.
        super_group_members,
        /// Blocks that were divided.
        blocks_divided,
        /// Blocks that a victim selection passed over by their bound.
        blocks_pruned,
        /// Requests that came into a block because its range grew.
        requests_pulled_down,
    }
}

/// How requests of the same key are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CancelOut {
    /// Nothing is known of the tree: an insertion and a deletion after it leave the deletion, and
    /// an insertion after a deletion overwrites.
    Sound,
    /// The same, but that inserted keys are new: an insertion and a deletion vanish.
    NewKeys,
    /// A request with the same key and the opposite type vanishes.
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
    /// Whether the best victim below a block was noted by the search for it, and is forgotten at
    /// each change: victims are super groups.
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

    /// Divides the own requests of an index block by the entries of its node, into new children
    /// (lines 6 to 11 of algorithm 3).
    pub(super) fn divide(&mut self, id: BlockId, page: &[u8], shape: Shape) {
        let block = self.block(id);
        let (span, level, least, list) = (block.span, block.level, block.least(), block.list);
        let divides = block.own > 0 && level > 0;
        let Some(len) = shape.inner_len(page).filter(|_| divides) else {
            return;
        };
        self.counts.blocks_divided += 1;
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

/// The request that waits after a request came to one of the same key.
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
