//! Keeps the pool consistent with the tree below: evicted leaves, splits and merges of nodes, new
//! and removed roots.

use super::super::super::bptree::{Above, Change, Shape, Span};
use super::{BlockId, Place, Pool, whole};
use crate::Key;
use flagstone::units::Lpn;

impl Above for Pool {
    const WATCHES: bool = true;

    /// Applies the requests of a dirty leaf to its page before eviction ([LazyBtree] §4.4.2.2).
    /// They keep waiting if the leaf would have to split, borrow or merge (D4).
    fn leaving(&mut self, at: Lpn, page: &mut [u8], shape: Shape) {
        if !self.on_eviction || self.requests.is_empty() {
            return;
        }
        let Some(len) = shape.leaf_len(page) else {
            return;
        };
        let (id, low, high) = match self.of_page(at) {
            Some(id) => {
                let Span { low, high, .. } = self.block(id).span();
                (id, low, high)
            }
            // The leaf's range is unknown, but all keys between its first and last belong to it.
            None => match shape.keys(page, len) {
                Some((low, high)) => (self.locate(low), low, high),
                None => return,
            },
        };
        // No node between that block's and the leaf has a block, so all requests are in one list.
        let own = self.requests.of(self.block(id).list);
        let own = own.filter(|(_, key, _)| (low..=high).contains(key));
        let mut changes: Vec<Change> = own
            .map(|(_, key, waiting)| (key, waiting.request.value()))
            .collect();
        changes.sort_unstable_by_key(|&(key, _)| key);
        if !changes.is_empty() && shape.amend(page, &changes).is_some() {
            self.counts.groups_committed += 1;
            self.counts.committed_on_eviction += 1;
            self.counts.requests_committed += changes.len() as u64;
            self.remove(id, low, high);
        }
    }

    /// Converts blocks of old nodes into blocks of new ones. Children move to the block that covers
    /// their range. Requests that waited above move down if the grown range covers them.
    fn reshaped(&mut self, old: &[Lpn], new: &[Span]) {
        let mut before: Vec<BlockId> = old.iter().filter_map(|&at| self.of_page(at)).collect();
        let Some(&one) = before.first() else {
            return;
        };
        let level = self.block(one).level();
        let parent = self.parent(one).expect("the root has no sibling");
        // Others are only in a damaged tree.
        before.retain(|&id| self.parent(id) == Some(parent));
        let mut children = Vec::new();
        let mut waiting: Vec<(Key, Place)> = Vec::new();
        for &id in &before {
            let Some(index) = self.find(id) else {
                continue;
            };
            self.orphan(index);
            let (block, below) = self.drop_block(index);
            children.extend(below);
            let own = self.requests.of(block.list);
            waiting.extend(own.map(|(place, key, _)| (key, place)));
        }
        // Requests of the old blocks are not pulled down, but are counted with the others below.
        let own_before = waiting.len() as u64;
        let mut above = self.block(parent).list;
        let inside = |key: Key| new.iter().any(|span| (span.low..=span.high).contains(&key));
        let mut pulled = 0;
        self.requests.unlink_where(&mut above, |place, key, _| {
            let goes = inside(key);
            if goes {
                pulled += 1;
                waiting.push((key, place));
            }
            goes
        });
        self.edit(parent, |block| {
            block.list = above;
            block.own -= pulled;
        });
        for &span in new {
            let has = |key: Key| span.low <= key && key <= span.high;
            let (inside, others): (Vec<BlockId>, Vec<BlockId>) =
                children.into_iter().partition(|&child| {
                    let Span { low, high, .. } = self.block(child).span();
                    has(low) && has(high)
                });
            children = others;
            let own = waiting.iter().filter(|&&(key, _)| has(key));
            let own: Vec<Place> = own.map(|&(_, place)| place).collect();
            if own.is_empty() && inside.is_empty() {
                continue;
            }
            self.counts.requests_pulled_down += own.len() as u64;
            let index = match self.of_page(span.at) {
                // Only in a damaged tree.
                Some(id) => self.index(id),
                None => {
                    let index = self.add(span, level);
                    self.adopt(self.index(parent), index);
                    index
                }
            };
            for child in inside {
                self.adopt(index, self.index(child));
            }
            // The age of requests waiting below counts, too.
            let policy = self.policy;
            for (_, one) in self.between(span.low, span.high) {
                self.block_at(index).arrive(one.stamp, policy);
            }
            self.start(index, own);
        }
        let counted = &mut self.counts.requests_pulled_down;
        *counted = counted.saturating_sub(own_before);
        self.tidy(parent);
    }

    fn grown(&mut self, root: Lpn) {
        let below = self.root;
        let level = self.block(below).level() + 1;
        let index = self.add(whole(root), level);
        self.root = self.id(index);
        self.adopt(index, self.index(below));
        // A leaf may be small while it is the root, but not any longer.
        self.edit(below, |_| ());
        self.tidy(below);
    }

    fn shrunk(&mut self, root: Lpn) {
        let (block, children) = self.drop_block(self.index(self.root));
        match children.first() {
            // The only child covers all keys, so that the old root had no requests of its own.
            Some(&child) => {
                self.root = self.id(self.index(child));
                self.edit(child, |_| ());
            }
            None => {
                let own: Vec<Place> = self.requests.of(block.list).map(|one| one.0).collect();
                let index = self.add(whole(root), block.level() - 1);
                self.root = self.id(index);
                self.start(index, own);
            }
        }
    }
}
