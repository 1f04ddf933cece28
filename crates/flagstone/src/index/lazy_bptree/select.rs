//! Which group is committed when the pool is full: [LazyBtree] §4.2 to §4.4.2.1.

use super::super::IndexError;
use super::LazyTree;
use super::pool::{Block, BlockId};
use super::super_group::SuperGroups;
use crate::units::Nanos;
use std::cmp::Ordering;

/// A commit policy. Among groups that are as good, the least recently hit one is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// The group of most requests.
    Big,
    /// The group with the least leaf writes for each request.
    Cost,
    /// The group that was least recently hit.
    Lru,
    /// The group whose first request is the oldest.
    Fifo,
}

/// How good a victim is: the lower `gain / size`, the better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Score {
    pub(super) gain: u64,
    pub(super) size: u64,
}

impl Score {
    /// Gains are small where sizes are not 1, so that products fit.
    #[inline]
    pub(super) fn order(self, other: Score) -> Ordering {
        (self.gain * other.size).cmp(&(other.gain * self.size))
    }
}

/// The best of all that is below an index block, and of its own list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Least {
    /// Of groups, with when it was hit; by their scores as far as they are known. With super groups
    /// as victims: of those, and one of its groups.
    pub(super) group: Option<(Score, u64, BlockId)>,
    /// Of lists that are not divided.
    list: Option<Score>,
    /// Those lists.
    lists: u64,
}

impl Least {
    /// Takes a group in, if it is better; tells whether it is.
    pub(super) fn group(&mut self, score: Score, hit: u64, id: BlockId) -> bool {
        let better = self.group.is_none_or(|(least, when, _)| {
            let order = score.order(least);
            order.is_lt() || (order.is_eq() && hit < when)
        });
        if better {
            self.group = Some((score, hit, id));
        }
        better
    }

    fn list(&mut self, score: Score, lists: u64) {
        self.lists += lists;
        if self.list.is_none_or(|least| score.order(least).is_lt()) {
            self.list = Some(score);
        }
    }

    /// Whether nothing of it would be looked at by a search that has found `best`.
    fn is_behind(&self, best: &Best, exact_ties: bool) -> bool {
        self.list.is_none_or(|list| list.order(best.score).is_gt())
            && self
                .group
                .is_none_or(|(score, hit, _)| !best.loses(score, hit, exact_ties))
    }
}

/// Victims, the best so far.
struct Best {
    id: BlockId,
    score: Score,
    hit: u64,
}

impl Best {
    /// Whether a group is better; `ties` says whether one that is as good is, if it was hit before.
    fn loses(&self, score: Score, hit: u64, ties: bool) -> bool {
        match score.order(self.score) {
            Ordering::Less => true,
            Ordering::Equal => ties && hit < self.hit,
            Ordering::Greater => false,
        }
    }
}

impl LazyTree {
    /// The pages of leaves that a commit writes: |D| of equation 5. A leaf whose size is not known
    /// counts as one.
    pub(super) fn gain(&self, block: &Block) -> u64 {
        let order = self.tree.shape.leaf_order as u64;
        let Some(size) = block.node_size else {
            return 1;
        };
        let after = (size as i64 + block.growth).max(0) as u64;
        if after > 2 * order {
            after.div_ceil(2 * order)
        } else if after < order && self.tree.height > 1 {
            2
        } else {
            1
        }
    }

    /// The score of a group; for the cost-based policy a lower bound of it where the size of the
    /// leaf is not known.
    pub(super) fn score(&self, block: &Block) -> Score {
        let size = block.own as u64;
        match self.policy {
            Policy::Big => Score { gain: 1, size },
            Policy::Cost => Score {
                gain: self.gain(block),
                size,
            },
            Policy::Lru => Score {
                gain: block.hit,
                size: 1,
            },
            Policy::Fifo => Score {
                gain: block.born,
                size: 1,
            },
        }
    }

    /// A lower bound of the scores of all groups that the requests of an index block will be.
    fn bound(&self, block: &Block) -> Score {
        match self.policy {
            Policy::Big | Policy::Cost => Score {
                gain: 1,
                size: block.own as u64,
            },
            Policy::Lru | Policy::Fifo => Score {
                gain: block.born,
                size: 1,
            },
        }
    }

    /// The best below an index block.
    fn least(&mut self, id: BlockId) -> Least {
        let block = self.tree.above.block(id);
        if let Some(least) = block.least {
            return least;
        }
        let least = self.summed_up(id, LazyTree::least);
        self.tree.above.remember(id, least);
        least
    }

    fn summed_up(&mut self, id: BlockId, below: fn(&mut LazyTree, BlockId) -> Least) -> Least {
        let mut least = Least::default();
        let block = self.tree.above.block(id);
        if block.own > 0 {
            least.list(self.bound(block), 1);
        }
        if block.level == 1 {
            for &child in &block.children {
                let group = self.tree.above.block(child);
                least.group(self.score(group), group.hit, child);
            }
            return least;
        }
        for child in 0..block.children.len() {
            let child = self.tree.above.block(id).children[child];
            let of_child = below(self, child);
            if let Some((score, hit, id)) = of_child.group {
                least.group(score, hit, id);
            }
            if let Some(list) = of_child.list {
                least.list(list, of_child.lists);
            }
        }
        least
    }

    /// Checks what index blocks know of what is below them.
    pub(super) fn check_least(&mut self) -> Result<(), String> {
        fn anew(lazy: &mut LazyTree, id: BlockId) -> Least {
            lazy.summed_up(id, anew)
        }
        if self.super_groups == SuperGroups::Second {
            return Ok(());
        }
        let mut stack = vec![self.tree.above.root];
        while let Some(id) = stack.pop() {
            let Block {
                span, level, least, ..
            } = *self.tree.above.block(id);
            if level > 0 && least.is_some_and(|least| least != anew(self, id)) {
                return Err(format!(
                    "the block of page {} does not know the best victim below it",
                    span.at
                ));
            }
            stack.extend(&self.tree.above.block(id).children);
        }
        Ok(())
    }

    /// Looks up the entries of a group's leaf, if they are not known and matter: a leaf that keeps
    /// its size is neither too large afterwards nor too small.
    pub(super) fn size_up(&mut self, now: Nanos, id: BlockId) -> Result<Nanos, IndexError> {
        let block = self.tree.above.block(id);
        if block.node_size.is_some() || block.growth == 0 {
            return Ok(now);
        }
        let at = block.span.at;
        let (len, now) = self
            .tree
            .look(now, at, |_, page, shape| shape.leaf_len(page))?;
        if self.tree.above.get(id).is_some() {
            self.tree.above.block_mut(id).node_size = Some(len);
        }
        Ok(now)
    }

    /// Divides the list of an index block.
    pub(super) fn divide(&mut self, now: Nanos, id: BlockId) -> Result<Nanos, IndexError> {
        let at = self.tree.above.block(id).span.at;
        let ((), now) = self.tree.look(now, at, |pool, page, shape| {
            shape.inner_len(page)?;
            if pool.get(id).is_some() {
                pool.divide(id, page, shape);
            }
            Some(())
        })?;
        Ok(now)
    }

    /// The victims. None, if requests were committed on the way, because their leaf left the
    /// memory, and there may be room.
    pub(super) fn select(&mut self, mut now: Nanos) -> Result<(Vec<BlockId>, Nanos), IndexError> {
        if self.super_groups == SuperGroups::Second {
            now = self.form_groups(now)?;
            return self.select_super_group(now);
        }
        if !self.prune {
            now = self.form_groups(now)?;
        }
        let (victim, now) = self.search(now, self.prune, self.exact_ties)?;
        Ok((victim.into_iter().collect(), now))
    }

    /// Algorithm 3: all requests go to groups.
    pub(super) fn form_groups(&mut self, mut now: Nanos) -> Result<Nanos, IndexError> {
        let mut stack = vec![self.tree.above.root];
        while let Some(id) = stack.pop() {
            let Some(block) = self.tree.above.get(id) else {
                continue;
            };
            if block.level > 0 && block.own > 0 {
                now = self.divide(now, id)?;
            }
            let block = self.tree.above.get(id).filter(|block| block.level > 1);
            stack.extend(block.map_or(&[][..], |block| &block.children));
        }
        Ok(now)
    }

    /// Algorithm 5: goes through the blocks, and leaves out those that can have no victim
    /// (`prune`), or that are only as good as one that was found (unless `exact_ties`). Parts of
    /// the pool in which all would be left out are not gone through; only the time differs.
    pub(super) fn search(
        &mut self,
        mut now: Nanos,
        prune: bool,
        exact_ties: bool,
    ) -> Result<(Option<BlockId>, Nanos), IndexError> {
        let skip = prune && self.skip;
        let mut best: Option<Best> = None;
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        stack.push(self.tree.above.root);
        while let Some(id) = stack.pop() {
            let Some(block) = self
                .tree
                .above
                .get(id)
                .filter(|_| self.tree.above.is_full())
            else {
                continue;
            };
            if block.level == 0 {
                now = self.weigh(now, id, &mut best, prune, exact_ties)?;
                continue;
            }
            if let Some(best) = best.as_ref().filter(|_| skip) {
                let least = self.least(id);
                if least.is_behind(best, exact_ties) {
                    self.tree.above.counts.pruned += least.lists;
                    continue;
                }
            }
            let block = self.tree.above.block(id);
            if block.own > 0 {
                let bound = self.bound(block);
                let may = best
                    .as_ref()
                    .is_none_or(|best| bound.order(best.score).is_le());
                if may {
                    now = self.divide(now, id)?;
                } else {
                    self.tree.above.counts.pruned += 1;
                }
            }
            let Some(block) = self.tree.above.get(id) else {
                continue;
            };
            if skip && block.level == 1 && exact_ties && self.policy != Policy::Cost {
                // Scores are known, so that the best of them is.
                if let Some((.., group)) = self.least(id).group {
                    now = self.weigh(now, group, &mut best, prune, exact_ties)?;
                }
            } else {
                stack.extend(&block.children);
            }
        }
        self.stack = stack;
        Ok((best.map(|best| best.id), now))
    }

    /// Compares a group with the best so far, and reads its leaf if the score depends on it and may
    /// be better.
    #[inline]
    fn weigh(
        &mut self,
        mut now: Nanos,
        id: BlockId,
        best: &mut Option<Best>,
        prune: bool,
        exact_ties: bool,
    ) -> Result<Nanos, IndexError> {
        let block = self.tree.above.block(id);
        if block.own == 0 {
            return Ok(now);
        }
        let (least, hit) = (self.score(block), block.hit);
        let loses = |best: &Option<Best>, score, ties| {
            best.as_ref()
                .is_none_or(|best| best.loses(score, hit, ties))
        };
        if prune && !loses(best, least, exact_ties) {
            return Ok(now);
        }
        if self.policy == Policy::Cost {
            now = self.size_up(now, id)?;
        }
        // A group that was committed on the way has made room, and ends the search.
        if let Some(block) = self.tree.above.get(id) {
            let score = self.score(block);
            if loses(best, score, true) {
                *best = Some(Best { id, score, hit });
            }
        }
        Ok(now)
    }
}
