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
//! queries do not search lists. A block has its children in an array, for bisection. All is in
//! arrays, which name each other by indexes of four bytes.
//!
//! ```text
//!   requests.rs  requests and lists           blocks.rs  blocks, and how they hang together
//!   table.rs     requests by key, blocks by page
//!   least.rs     the best victim below each   follow.rs  what the tree below does
//!   room.rs      memory, and when it is full  clock.rs   times of arrival
//!   check.rs     the check of the whole
//! ```

mod blocks;
mod check;
mod clock;
mod follow;
mod least;
mod requests;
mod room;
mod table;

use super::super::bptree::{Shape, Span};
use super::super::{Key, counters};
use blocks::{Below, NONE, Owed};
pub(super) use blocks::{Block, BlockId};
use clock::NEVER;
use flagstone::units::Lpn;
pub(super) use least::{Least, Policy, Rank, Score};
use requests::{Place, Requests};
pub(super) use requests::{Request, Waiting};
pub(super) use room::Room;
use table::Table;

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
    /// What index blocks have beside.
    belows: Vec<Below>,
    by_page: Table,
    pub(super) root: BlockId,
    pub(super) room: Room,
    owed: Owed,
    cancel_out: CancelOut,
    /// Whether evicting a dirty leaf commits its requests.
    pub(super) on_eviction: bool,
    clock: u32,
    pub(super) policy: Policy,
    /// Whether a split counts as writing the next leaf as well.
    split_link: bool,
    /// Half the entries of a full leaf.
    leaf_order: usize,
    /// Whether the best victim below a block is cached by searches and invalidated at each change.
    /// `true` if victims are super groups.
    second_hand: bool,
    pub(super) counts: Counts,
}

/// Configuration of a pool.
pub(super) struct Rules {
    pub(super) room: Room,
    pub(super) value_bytes: usize,
    pub(super) cancel_out: CancelOut,
    pub(super) on_eviction: bool,
    pub(super) policy: Policy,
    pub(super) split_link: bool,
    /// Whether victims are super groups.
    pub(super) super_groups: bool,
}

impl Pool {
    /// An empty pool: a block for the root, at `height - 1` levels above the leaves.
    pub(super) fn new(root: Lpn, height: u32, shape: Shape, rules: Rules) -> Pool {
        let mut pool = Pool {
            requests: Requests::new(rules.value_bytes),
            blocks: Vec::new(),
            belows: Vec::new(),
            by_page: Table::default(),
            root: BlockId::first(root),
            room: rules.room,
            owed: Owed::default(),
            cancel_out: rules.cancel_out,
            on_eviction: rules.on_eviction,
            clock: 0,
            policy: rules.policy,
            split_link: rules.split_link,
            leaf_order: shape.leaf_order,
            second_hand: rules.super_groups,
            counts: Counts::default(),
        };
        pool.add(whole(root), height as u8 - 1);
        pool
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
            self.edit(id, |block| block.set_node_size(Some(len)));
        }
    }

    /// Requests with keys from `low` to `high`, sorted by key.
    pub(super) fn between(&self, low: Key, high: Key) -> Vec<(Key, Waiting)> {
        let mut found = Vec::new();
        let mut stack = vec![self.index(self.root)];
        while let Some(index) = stack.pop() {
            let own = self.requests.of(self.blocks[index as usize].list);
            let own = own.filter(|(_, key, _)| (low..=high).contains(key));
            found.extend(own.map(|(_, key, waiting)| (key, waiting)));
            let child = |index: u32| &self.blocks[index as usize];
            let children = self.children(index);
            let first = children.partition_point(|&index| child(index).high < low);
            let inside = children[first..].iter();
            stack.extend(inside.take_while(|&&index| child(index).low <= high));
        }
        found.sort_unstable_by_key(|&(key, _)| key);
        found
    }

    /// Adds a request: `Insert` or `Delete`, or `Overwrite` for an update of an existing key.
    /// Combines it with the request that waits for the same key, if there is one (D1).
    pub(super) fn put(&mut self, key: Key, new: Request) {
        if self.cancel_out == CancelOut::AsPublished
            && let Request::Overwrite(value) = new
        {
            // Two requests, [LazyBtree] §3.
            self.put(key, Request::Delete);
            self.put(key, Request::Insert(value));
            return;
        }
        let stamp = self.tick();
        self.counts.requests += 1;
        let id = self.locate(key);
        let place = self.requests.place(key);
        let old = place.map(|place| self.requests.waiting(place).1.request);
        let joined = join(self.cancel_out, old, new);
        let (mut list, mut own) = (self.block(id).list, self.block(id).own);
        match (place, joined) {
            // Never: only a pair cancels out.
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
            // Both of a pair cancel out.
            (Some(place), None) => {
                own -= 1;
                self.requests
                    .remove_where(&mut list, |at, _, _| at == place);
                self.counts.cancelled += 2;
            }
        }
        let growth = |request: Option<Request>| request.map_or(0, Request::growth);
        let policy = self.policy;
        self.edit(id, |block| {
            (block.list, block.own) = (list, own);
            block.arrive(stamp, policy);
            block.grow(growth(joined) - growth(old));
        });
        self.fill();
        self.tidy(id);
    }

    /// Once many slots are free, moves the last requests there and releases the memory behind them.
    fn fill(&mut self) {
        if !self.requests.has_many_free() {
            return;
        }
        let mut holes = self.requests.take_free();
        while let Some(hole) = holes.pop() {
            let (key, last) = self.requests.last();
            let index = self.locate_index(key);
            let list = &mut self.blocks[index as usize].list;
            // Only in a damaged tree is the last request elsewhere.
            if hole != last && !self.requests.relink(list, last, hole) {
                holes.push(hole);
                break;
            }
            self.requests.fill(hole);
        }
        self.requests.free(holes);
        self.requests.settle();
    }

    /// Distributes the own requests of an index block to new children, by the entries of its node,
    /// which is in `page` (lines 6 to 11 of algorithm 3). Does nothing for a group or an empty
    /// list.
    pub(super) fn divide(&mut self, id: BlockId, page: &[u8], shape: Shape) {
        let index = self.index(id);
        let block = self.blocks[index as usize];
        let (level, policy) = (block.level(), self.policy);
        let divides = block.own > 0 && level > 0;
        let Some(len) = shape.inner_len(page).filter(|_| divides) else {
            return;
        };
        self.counts.blocks_divided += 1;
        let least = self.known_least(index).filter(|_| level == 1);
        self.owe(level, block.own, 0);
        self.block_at(index).clear(policy);
        let own = self.requests.of(block.list);
        let mut own: Vec<(Key, Place)> = own.map(|(place, key, _)| (key, place)).collect();
        own.sort_unstable_by_key(|&(key, _)| key);
        // The child of the request before, with the highest key of its range; and all new children.
        let (mut last, mut made) = (None, Vec::new());
        for (key, place) in own {
            let child = match last {
                Some((child, high)) if key <= high => child,
                _ => {
                    let slot = Shape::route(page, len, key);
                    let (low, high) = Shape::bounds(page, len, slot, block.low, block.high);
                    let at = Shape::child(page, slot);
                    if self.of_page(at).is_some() {
                        // Only in a damaged tree is the node elsewhere, too.
                        self.receive(index, place);
                        continue;
                    }
                    let child = self.add(Span { at, low, high }, level - 1);
                    self.adopt(index, child);
                    last = Some((child, high));
                    made.push(child);
                    child
                }
            };
            self.receive(child, place);
        }
        self.was_divided(index, least, &made);
    }

    /// Adds a request that is in no list to a block. The results cached above are left as they are.
    fn receive(&mut self, index: u32, place: Place) {
        let (_, waiting) = self.requests.waiting(place);
        let policy = self.policy;
        let block = &mut self.blocks[index as usize];
        self.requests.link(&mut block.list, place);
        block.own += 1;
        block.grow(waiting.request.growth());
        block.arrive(waiting.stamp, policy);
        let (level, own) = (block.level(), block.own);
        self.owe(level, own - 1, own);
    }

    /// Assigns requests, which are in no list, to a new block. Then updates what is cached above
    /// it.
    fn start(&mut self, index: u32, own: Vec<Place>) {
        for place in own {
            self.receive(index, place);
        }
        self.edit(self.id(index), |_| ());
    }

    /// Takes the requests of a group block, sorted by key. The block goes, unless it is the root.
    pub(super) fn take(&mut self, id: BlockId) -> Vec<(Key, Waiting)> {
        let mut taken = Vec::new();
        let mut list = self.block(id).list;
        self.requests.remove_where(&mut list, |_, key, waiting| {
            taken.push((key, waiting));
            true
        });
        taken.sort_unstable_by_key(|&(key, _)| key);
        let policy = self.policy;
        self.edit(id, |block| {
            block.clear(policy);
            block.set_node_size(None);
        });
        self.fill();
        self.tidy(id);
        taken
    }

    /// Restores requests that could not be committed.
    pub(super) fn restore(&mut self, taken: &[(Key, Waiting)]) {
        let policy = self.policy;
        for &(key, waiting) in taken {
            let id = self.locate(key);
            let mut list = self.block(id).list;
            self.requests.push(&mut list, key, waiting);
            self.edit(id, |block| {
                block.list = list;
                block.own += 1;
                block.grow(waiting.request.growth());
                block.arrive(waiting.stamp, policy);
            });
        }
    }

    /// Removes the requests of a block with keys from `low` to `high`, which were committed. The
    /// size of its leaf is unknown then.
    fn remove(&mut self, id: BlockId, low: Key, high: Key) {
        let mut list = self.block(id).list;
        let (mut removed, mut growth) = (0, 0);
        self.requests.remove_where(&mut list, |_, key, waiting| {
            let goes = (low..=high).contains(&key);
            if goes {
                removed += 1;
                growth += waiting.request.growth();
            }
            goes
        });
        self.edit(id, |block| {
            block.list = list;
            block.own -= removed;
            block.grow(-growth);
            block.set_node_size(None);
        });
        self.fill();
        self.tidy(id);
    }
}

fn whole(at: Lpn) -> Span {
    let (low, high) = (0, Key::MAX);
    Span { at, low, high }
}

/// Combines a new request with an old one for the same key (D1). Returns the request that waits
/// then, or `None` if they cancel out.
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
