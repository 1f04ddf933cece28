//! The lazy-update B+-tree: changes wait in memory and are committed to leaves in groups.
//!
//! Paper       [LazyBtree] §3 and §4.
//! Idea        Requests to insert and delete wait in a pool. When it is full, those that belong to
//!             one leaf are committed with one write of it. The pool knows by its blocks which
//!             requests belong together, and learns that from queries and victim selections.
//! Cost        A search that the pool answers reads nothing; another starts at the deepest node
//!             that the pool knows of. A commit writes a leaf for the whole group.
//!
//!   pool.rs     requests and blocks        commit.rs    commits, flush
//!   select.rs   victims                    super_group.rs  groups that save by going together
//!
//! Invariants  O. A request belongs to the deepest block whose range has its key.
//!             1. The tree below is one by itself at every instant ([`super::bptree`]).
//!             2. A query sees the pool before the tree.
//!
//! Departures  D1. Cancel-out. The paper removes both requests of a pair of the same key and
//!                 opposite type. That loses updates: a deletion and an insertion after it leave
//!                 the tree's old value; an insertion over a key that the tree has, and a deletion,
//!                 leave the key. Here the first pair becomes a request to overwrite, and of the
//!                 second the deletion stays, unless inserted keys are known to be new
//!                 (`cancel_out`). `as-published` keeps the paper's rule.
//!             D2. Requests are also found by their keys, past the blocks; lists have no order, and
//!                 children are side by side instead of having sibling pointers (see pool.rs).
//!             D3. The paper does not say what becomes of the blocks of nodes that split, merge or
//!                 move entries ("might be updated correspondingly"). Here they get the new ranges,
//!                 and requests above that the new ranges have come down.
//!             D4. A group that would make its leaf split or take from a sibling is not committed
//!                 when its leaf is swapped out: eviction would evict. Requests that have no group
//!                 yet are, where they lie between the leaf's first key and its last.
//!             D5. Algorithm 5 passes over groups that are as good as the best so far, so that the
//!                 rule for ties seldom acts. That saves reads of leaves with the cost-based
//!                 policy, where `ties` = `exact` looks at them; with others, which read none for
//!                 it, the rule acts always, as §4.2 has it.
//!             D6. An update of a key is one request that overwrites, not a pair, except
//!                 `as-published`.
//!             D7. A super group may be of groups that a merge with the leaf to the right brings
//!                 together (case 3); one with the left leaf changes no pointer two leaves away.
//!             D8. The pool's share of the memory counts requests at the paper's size, that of an
//!                 entry; what requests and blocks really need is told by `memory`. With `charged`
//!                 = `memory` the share counts that, and what a division of lists may add to it.
//!             D9. Algorithm 6 asks what each sibling group does to its leaf. Where victims are
//!                 groups, that is asked of those beside a victim that does not rebalance only as
//!                 far as it is known or the leaf is in memory; a victim that does rebalance looks
//!                 up its siblings. Whether a leaf merges is told by what is known of those beside
//!                 it. Sizes of leaves are known from searches too.

mod commit;
#[cfg(test)]
mod departures;
#[cfg(test)]
mod examples;
mod pool;
#[cfg(test)]
mod reference;
mod select;
mod super_group;
#[cfg(test)]
mod tests;

use super::bptree::{ORDER, Shape, Span, Tree};
use super::{BackingStore, Index, IndexError, IndexInfo, Key, Result, Settings, Value, of_cache};
use flagstone::settings::settings;
use flagstone::units::Nanos;
use pool::{BlockId, CancelOut, Policy, Pool, Request, Room, Rules};
use super_group::SuperGroups;

pub(super) const INFO: IndexInfo = IndexInfo {
    name: "lazy-bptree",
    idea: "a B+-tree whose changes are buffered in memory and written in groups, one group per \
           leaf",
    paper: "[LazyBtree]",
    ordered: true,
    buffers: true,
    settings: settings! {
        ..ORDER;
        pool_share: "0.5", "share of the memory for buffered requests, 0 to 0.99";
        charged: "paper",
            "what is counted of that: paper (the bytes of the keys and values of requests), or \
             memory (all that is kept: requests, blocks, and their indexes)";
        policy: "cost", "which group is committed: big, cost, lru or fifo";
        split_link: "true",
            "whether policy cost counts the leaf after a split, whose link to the left changes";
        prune: "true", "whether groups are formed, and leaves read, only where the victim can be";
        ties: "published",
            "with prune and cost: published skips groups that tie with the best, exact does not";
        super_group: "none",
            "groups committed together: none, first (of the victim) or second (as victims)";
        on_eviction: "true",
            "whether requests are applied to a dirty leaf when it is evicted";
        from_root: "false", "whether searches start at the root instead of the pool's blocks";
        commit: "batch",
            "how a group is applied: batch, or one-by-one (each request from the root)";
        cancel_out: "sound",
            "how requests for the same key cancel out: sound, new-keys (inserted keys are new) or \
             as-published";
    },
    tiny: &[("order", "2"), ("pool_share", "0.2")],
    costs: [
        "0 to height reads",
        "1/group of height reads and 1 program",
        "3 to 4 programs",
    ],
};

struct LazyTree {
    tree: Tree<Pool>,
    /// Whether groups are formed, and leaves read, only where the victim can be (algorithm 5).
    prune: bool,
    /// Whether a group as good as the best so far is looked at, since it may win by the rule for
    /// ties.
    exact_ties: bool,
    /// Whether a search skips parts of the pool without visiting them.
    skip: bool,
    super_groups: SuperGroups,
    /// Whether searches start at the root instead of at the deepest node that the pool knows.
    from_root: bool,
    /// Whether a commit applies the requests of a group one after the other, as a B+-tree without a
    /// pool would.
    one_by_one: bool,
}

pub(super) fn open(
    store: Box<dyn BackingStore>,
    settings: &Settings,
    now: Nanos,
) -> Result<(Box<dyn Index>, Nanos)> {
    let (tree, now) = LazyTree::open(store, settings, now)?;
    Ok((Box::new(tree), now))
}

impl LazyTree {
    fn open(
        store: Box<dyn BackingStore>,
        settings: &Settings,
        now: Nanos,
    ) -> Result<(LazyTree, Nanos)> {
        let policy = settings.choice(
            &INFO,
            "policy",
            &[
                ("big", Policy::Big),
                ("cost", Policy::Cost),
                ("lru", Policy::Lru),
                ("fifo", Policy::Fifo),
            ],
        )?;
        let super_groups = settings.choice(
            &INFO,
            "super_group",
            &[
                ("none", SuperGroups::None),
                ("first", SuperGroups::First),
                ("second", SuperGroups::Second),
            ],
        )?;
        let by_size = matches!(policy, Policy::Big | Policy::Cost);
        if super_groups == SuperGroups::Second && !by_size {
            return Err(IndexError::Settings(
                "super_group second has no victims by lru or fifo: use big or cost, or first"
                    .to_string(),
            ));
        }
        let cancel_out = settings.choice(
            &INFO,
            "cancel_out",
            &[
                ("sound", CancelOut::Sound),
                ("new-keys", CancelOut::NewKeys),
                ("as-published", CancelOut::AsPublished),
            ],
        )?;
        let exact_ties =
            settings.choice(&INFO, "ties", &[("published", false), ("exact", true)])?;
        let one_by_one =
            settings.choice(&INFO, "commit", &[("batch", false), ("one-by-one", true)])?;
        let on_eviction = settings.flag(&INFO, "on_eviction")?;
        let share: f64 = settings.number(&INFO, "pool_share", 0.0, 0.99)?;
        let memory = INFO.memory(settings)? as f64;
        let value_bytes = INFO.value_bytes(settings)?;
        // No more requests than there are times for.
        let bytes = (memory * share) as u32 as usize;
        let as_in_paper =
            settings.choice(&INFO, "charged", &[("paper", true), ("memory", false)])?;
        let room = if as_in_paper {
            Room::Requests((bytes / (8 + value_bytes)).max(1))
        } else {
            Room::Bytes(bytes)
        };
        let frames = (memory * (1.0 - share)) as usize / store.page_bytes();
        let rules = Rules {
            room,
            value_bytes,
            cancel_out,
            on_eviction,
            policy,
            split_link: settings.flag(&INFO, "split_link")?,
            super_groups: super_groups == SuperGroups::Second,
        };
        let (tree, now) = Tree::open(
            store,
            &INFO,
            settings,
            frames,
            now,
            |root, height, shape| Pool::new(root, height, shape, rules),
        )?;
        let lazy = LazyTree {
            tree,
            prune: settings.flag(&INFO, "prune")?,
            exact_ties: exact_ties || policy != Policy::Cost,
            skip: true,
            super_groups,
            from_root: settings.flag(&INFO, "from_root")?,
            one_by_one,
        };
        Ok((lazy, now))
    }

    /// Adds a request, after making room (algorithm 1).
    fn request(&mut self, now: Nanos, key: Key, request: Request) -> Result<Nanos> {
        let now = self.make_room(now)?;
        self.tree.cache.compared(self.comparisons());
        self.tree.above.put(key, request);
        Ok(now)
    }

    /// Number of comparisons of a lookup in the pool.
    fn comparisons(&self) -> u64 {
        u64::from(usize::BITS - self.tree.above.requests.len().leading_zeros())
    }

    fn policy(&self) -> Policy {
        self.tree.above.policy
    }

    /// Finds the leaf of a key, starting at the deepest node that the pool knows, and divides the
    /// lists of blocks on the way (algorithm 4). Returns the leaf's group if that node is the leaf.
    fn leaf_of(&mut self, now: Nanos, key: Key) -> Result<(Span, Option<BlockId>, Nanos)> {
        let id = self.tree.above.locate(key);
        let block = self.tree.above.block(id);
        let (mut span, mut level) = (block.span(), u32::from(block.level()));
        // The deepest block has no child that covers the key. If its own list is empty, no request
        // waits on the way to the leaf, and no list has to be divided.
        let waits = block.own > 0 && level > 0;
        if self.from_root {
            let root = self.tree.above.block(self.tree.above.root);
            (span, level) = (root.span(), u32::from(root.level()));
        } else if level == 0 {
            return Ok((span, Some(id), now));
        }
        let (leaf, now) =
            self.tree
                .leaf_below(now, span, level, key, |pool, at, page, shape| {
                    if let Some(id) = pool.of_page(at).filter(|_| waits) {
                        pool.divide(id, page, shape);
                    }
                })?;
        Ok((leaf, None, now))
    }
}

impl Index for LazyTree {
    fn insert(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        self.request(now, key, Request::Insert(value))
    }

    fn build(&mut self, now: Nanos, pairs: &[(Key, Value)]) -> Result<Nanos> {
        self.tree.build(now, pairs)
    }

    fn update(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        self.request(now, key, Request::Overwrite(value))
    }

    fn delete(&mut self, now: Nanos, key: Key) -> Result<Nanos> {
        self.request(now, key, Request::Delete)
    }

    /// Answers from the pool if a request waits for the key, otherwise from the leaf, whose size
    /// the pool learns if it needs sizes.
    fn get(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos)> {
        self.tree.cache.compared(self.comparisons());
        if let Some(request) = self.tree.above.requests.get(key) {
            return Ok((request.value(), now));
        }
        let (leaf, group, now) = self.leaf_of(now, key)?;
        let (value, len, now) = self.tree.get_in(now, leaf.at, key)?;
        if self.policy() == Policy::Cost || self.super_groups != SuperGroups::None {
            let pool = &mut self.tree.above;
            // The group is gone if its leaf was evicted during the search.
            match group.filter(|&id| pool.get(id).is_some()) {
                Some(id) => pool.learn_of(id, len),
                None => pool.learn(leaf.at, len),
            }
        }
        Ok((value, now))
    }

    /// Merges the waiting requests of the range with the entries of the leaves.
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
        // Take the requests before leaves are read, since reading may commit some of them.
        let waiting = self.tree.above.between(from, to);
        let (leaf, _, now) = self.leaf_of(now, from)?;
        if waiting.is_empty() {
            return self.tree.range_from(now, leaf.at, from, to, into);
        }
        let mut found = Vec::new();
        let now = self.tree.range_from(now, leaf.at, from, to, &mut found)?;
        let mut found = found.into_iter().peekable();
        for (key, waiting) in waiting {
            while let Some(entry) = found.next_if(|&(other, _)| other < key) {
                into.push(entry);
            }
            found.next_if(|&(other, _)| other == key);
            into.extend(waiting.request.value().map(|value| (key, value)));
        }
        into.extend(found);
        Ok(now)
    }

    fn settle(&mut self, now: Nanos) -> Result<Nanos> {
        self.tree.settle(now)
    }

    fn flush(&mut self, now: Nanos) -> Result<Nanos> {
        let now = self.commit_everything(now)?;
        self.settle(now)
    }

    fn may_lack_room(&self, changes: u32) -> bool {
        self.tree.may_lack_room(changes)
    }

    fn check(&mut self) -> Result<(), String> {
        let nodes = self.tree.check()?;
        self.tree.above.check(&nodes)
    }

    of_cache!(tree.cache, tree.counts, tree.above.counts);

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let (requests, blocks) = self.tree.above.memory();
        let mut memory = self.tree.memory();
        memory.extend([("requests", requests), ("blocks", blocks)]);
        memory
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        let (pool, tree) = (&self.tree.above, &self.tree.counts);
        let counts = &pool.counts;
        let rebalancings = tree.splits + tree.merges + tree.redistributions;
        let per_commit = counts.requests_committed as f64 / counts.groups_committed.max(1) as f64;
        let mut figures = counts.figures();
        figures.extend([
            ("rebalancings", rebalancings as f64),
            ("pool_requests", pool.requests.len() as f64),
            ("pool_capacity", pool.capacity() as f64),
            ("requests_per_commit", per_commit),
        ]);
        figures.extend(tree.figures());
        figures
    }
}
