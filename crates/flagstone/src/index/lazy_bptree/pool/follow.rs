//! How the pool follows the tree below: leaves that are swapped out, nodes that split and merge,
//! roots that come and go.

use super::super::super::bptree::{Above, Change, Shape, Span};
use super::{Block, BlockId, Pool, Waiting, whole};
use crate::index::Key;
use crate::units::Lpn;

impl Above for Pool {
    const WATCHES: bool = true;

    /// [LazyBtree] §4.4.2.2: requests of a dirty leaf that is about to be swapped out.
    fn leaving(&mut self, at: Lpn, page: &mut [u8], shape: Shape) {
        if !self.on_eviction || self.requests.is_empty() {
            return;
        }
        let Some(len) = shape.leaf_len(page) else {
            return;
        };
        let range = match self.of_page(at) {
            Some(id) => {
                let Span { low, high, .. } = self.block(id).span;
                Some((low, high))
            }
            // Its range is not known, but that all between its keys are its own is.
            None => shape.keys(page, len),
        };
        let Some((low, high)) = range else {
            return;
        };
        let change = |(&key, waiting): (&Key, &Waiting)| (key, waiting.request.value());
        let changes: Vec<Change> = self.requests.range(low..=high).map(change).collect();
        if !changes.is_empty() && shape.amend(page, &changes).is_some() {
            self.counts.evicted += 1;
            self.counts.committed += changes.len() as u64;
            for (key, _) in changes {
                self.remove(key);
            }
        }
    }

    /// Blocks of the nodes before become blocks of those after. Their children go to the one that
    /// has their range, and requests that waited above because only a part of the range had a block
    /// come down.
    fn reshaped(&mut self, old: &[Lpn], new: &[Span]) {
        let before: Vec<BlockId> = old.iter().filter_map(|&at| self.of_page(at)).collect();
        let Some(&one) = before.first() else {
            return;
        };
        let level = self.block(one).level;
        let parent = self.block(one).parent.expect("the root has no sibling");
        let mut children = Vec::new();
        let mut own_before = 0;
        for &id in &before {
            let block = self.drop_block(id);
            children.extend(block.children);
            own_before += block.own;
            let above = self.block_mut(parent);
            above.own += block.own;
            above.growth += block.growth;
            above.children.retain(|&child| child != id);
        }
        for &span in new {
            let id = self.add_counted(span, level, Some(parent));
            let (inside, others) = children.into_iter().partition(|&child| {
                let Span { low, high, .. } = self.block(child).span;
                span.low <= low && high <= span.high
            });
            children = others;
            self.adopt(id, inside);
            let Block { own, growth, .. } = *self.block(id);
            if own == 0 && self.block(id).children.is_empty() {
                self.drop_block(id);
                continue;
            }
            let above = self.block_mut(parent);
            above.children.push(id);
            above.own -= own;
            above.growth -= growth;
            self.counts.pulled += own as u64;
        }
        self.counts.pulled -= own_before as u64;
        self.sort_children(parent);
        self.tidy(parent);
    }

    fn grown(&mut self, root: Lpn) {
        let below = self.root;
        let level = self.block(below).level + 1;
        self.root = self.add(whole(root), level, None);
        let new = self.root;
        self.block_mut(below).parent = Some(new);
        self.block_mut(new).children.push(below);
        self.tidy(below);
    }

    fn shrunk(&mut self, root: Lpn) {
        let block = self.drop_block(self.root);
        match block.children.first() {
            Some(&child) => {
                self.root = child;
                self.block_mut(child).parent = None;
            }
            None => self.root = self.add_counted(whole(root), block.level - 1, None),
        }
    }
}
