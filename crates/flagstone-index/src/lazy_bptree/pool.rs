//! The lazy-update pool: waiting requests, and blocks that record what is known about their target
//! nodes.
//!
//! A block represents a node: a group block a leaf, an index block an inner node. Blocks form a
//! tree that covers only nodes that requests have led to. A request belongs to the deepest block
//! whose range covers its key ([LazyBtree] §4.4.1; "invariant O" below), and is in that block's
//! list.
//!
//! The paper's blocks have an array of requests, and pointers to the first child and the next
//! sibling. Here a request is linked into its block's list and also found by a hash of its key, so
//! queries do not search lists. A block has its children's ranges in an array, for bisection.
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
use blocks::{Below, Seat, UNKNOWN};
pub(super) use blocks::{Block, BlockId, Child};
use flagstone::units::Lpn;
pub(super) use least::{Least, Policy, Rank, Score};
use requests::{List, Place, Requests};
pub(super) use requests::{Request, Waiting};
use rustc_hash::FxHashMap;
use std::num::NonZeroU32;

/// Sums over several requests.
#[derive(Debug, Clone, Copy)]
struct Count {
    own: usize,
    /// Number of entries by which they enlarge a leaf.
    growth: i64,
    /// Arrival of the newest and of the oldest request.
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
    /// Counters.
    pub(super) struct Counts {
        /// Requests added.
        requests,
        /// Requests that never reach the tree: both of a pair, and those replaced by a later one.
        cancelled,
        /// Requests that were committed.
        requests_committed,
        /// Groups committed: as victims, by a flush, or because their dirty leaf was evicted.
        groups_committed,
        /// Groups committed because their dirty leaf was evicted.
        committed_on_eviction,
        /// Victims with more than one group.
        super_groups_committed,
        /// Groups in those victims.
        super_group_members,
        /// Blocks divided.
        blocks_divided,
        /// Blocks that a victim selection skipped because of their bound.
        blocks_pruned,
        /// Requests moved into a block because its range grew.
        requests_pulled_down,
    }
}

/// How requests for the same key are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CancelOut {
    /// Assumes nothing about the tree: an insertion and a later deletion leave the deletion, and an
    /// insertion after a deletion overwrites.
    Sound,
    /// Like `Sound`, but inserted keys are new: an insertion and a later deletion cancel out.
    NewKeys,
    /// Requests of the same key and opposite types cancel out.
    AsPublished,
}

/// The pool.
pub(super) struct Pool {
    pub(super) requests: Requests,
    blocks: Vec<Block>,
    /// Seats by block index.
    seats: Vec<Seat>,
    free: Vec<u32>,
    by_page: FxHashMap<Lpn, BlockId>,
    pub(super) root: BlockId,
    /// Maximum number of requests.
    pub(super) capacity: usize,
    cancel_out: CancelOut,
    /// Whether evicting a dirty leaf commits its requests.
    pub(super) on_eviction: bool,
    clock: u64,
    pub(super) policy: Policy,
    /// Half the entries of a full leaf.
    leaf_order: usize,
    /// Whether the best victim below a block is cached by searches and invalidated at each change.
    /// `true` if victims are super groups.
    second_hand: bool,
    /// Buffer of divisions, for reuse.
    moving: Vec<(Key, Place)>,
    made: Vec<BlockId>,
    pub(super) counts: Counts,
}

/// Configuration of a pool.
pub(super) struct Rules {
    /// Maximum number of requests.
    pub(super) capacity: usize,
    pub(super) cancel_out: CancelOut,
    pub(super) on_eviction: bool,
    pub(super) policy: Policy,
    /// Whether victims are super groups.
    pub(super) super_groups: bool,
}

impl Pool {
    /// An entry in the index of pages, with its control byte.
    const ENTRY: usize = size_of::<(Lpn, BlockId)>() + 1;
    /// About the most that is kept for a request: its slot, its place in the index of keys, a group
    /// block for it alone, and an index block for that.
    pub(super) const BYTES_A_REQUEST: usize = {
        let seat = size_of::<Seat>() + size_of::<Child>();
        let block = size_of::<Block>() + seat + Pool::ENTRY;
        Requests::BYTES_A_REQUEST + 2 * block
    };

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

    /// Bytes of requests and blocks, including spare capacity.
    pub(super) fn memory(&self) -> (u64, u64) {
        let blocks = self.blocks.capacity() * size_of::<Block>();
        let seats = self.seats.capacity() * size_of::<Seat>();
        let pages = self.by_page.capacity() * Pool::ENTRY;
        let below = self
            .blocks
            .iter()
            .filter_map(|block| block.below.as_ref())
            .map(|below| size_of::<Below>() + below.children.capacity() * size_of::<Child>());
        let blocks = blocks + seats + pages + below.sum::<usize>();
        (self.requests.memory() as u64, blocks as u64)
    }

    /// Records the size of a leaf.
    pub(super) fn learn(&mut self, at: Lpn, len: usize) {
        if let Some(id) = self.of_page(at) {
            self.learn_of(id, len);
        }
    }

    /// Records the size of a group's leaf.
    pub(super) fn learn_of(&mut self, id: BlockId, len: usize) {
        if self.block(id).node_size() != Some(len) {
            self.edit(id, |block| block.set_node_size(len));
        }
    }

    /// Requests with keys from `low` to `high`, sorted by key.
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

    /// Adds a request: `Insert` or `Delete`, or `Overwrite` for an update of an existing key.
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

    /// Distributes the own requests of an index block to new children, by the entries of its node
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
            let (low, high) = Shape::bounds(page, len, slot, span.low, span.high);
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

    /// Assigns requests to a new block.
    fn start(&mut self, id: BlockId, list: List, count: Count) {
        self.hit(id, count.hit);
        self.edit(id, |block| {
            (block.list, block.own) = (list, count.own as u32);
            (block.growth, block.born) = (count.growth as i32, count.born);
        });
    }

    /// Removes a group block and returns its requests in `into`, sorted by key.
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

    /// Restores requests that could not be committed.
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

    /// Removes committed requests of a block, with keys from `low` to `high`.
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

/// Combines a new request with an old one for the same key. Returns the request that waits then.
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
