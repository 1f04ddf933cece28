//! Selects the group to commit when the pool is full: [LazyBtree] §4.2 to §4.4.2.1.

use super::super::Result;
use super::LazyTree;
use super::pool::{BlockId, Least, Policy, Rank};
use super::super_group::SuperGroups;
use flagstone::units::Nanos;
use std::cmp::Ordering;

/// The best victim so far.
#[derive(Debug, Clone, Copy)]
struct Best {
    id: BlockId,
    rank: Rank,
}

impl Best {
    /// Whether a group is better. With `ties`, an equally good group is better if it was hit
    /// earlier.
    #[inline]
    fn loses(&self, rank: Rank, ties: bool) -> bool {
        match rank.score.order(self.rank.score) {
            Ordering::Less => true,
            Ordering::Equal => ties && rank.hit < self.rank.hit,
            Ordering::Greater => false,
        }
    }

    /// Whether a search with this result could skip everything below a block.
    fn is_ahead(&self, least: &Least, ties: bool) -> bool {
        least
            .list
            .is_none_or(|list| list.order(self.rank.score).is_gt())
            && least.group.is_none_or(|(rank, _)| !self.loses(rank, ties))
    }
}

impl LazyTree {
    /// Determines the size of a group's leaf, if it is unknown and matters. It does not matter for
    /// a leaf that keeps its number of entries, since that can neither split nor underflow.
    pub(super) fn size_up(&mut self, now: Nanos, id: BlockId) -> Result<Nanos> {
        let block = self.tree.above.block(id);
        if block.node_size().is_some() || block.growth() == 0 {
            return Ok(now);
        }
        let at = block.span().at;
        let (len, now) = self
            .tree
            .look(now, at, |_, page, shape| shape.leaf_len(page))?;
        if self.tree.above.get(id).is_some() {
            self.tree.above.learn_of(id, len);
        }
        Ok(now)
    }

    /// Divides the list of an index block.
    pub(super) fn divide(&mut self, now: Nanos, id: BlockId) -> Result<Nanos> {
        let at = self.tree.above.block(id).span().at;
        let ((), now) = self.tree.look(now, at, |pool, page, shape| {
            shape.inner_len(page)?;
            if pool.get(id).is_some() {
                pool.divide(id, page, shape);
            }
            Some(())
        })?;
        Ok(now)
    }

    /// Selects the victims. May return none if evictions of leaves committed requests meanwhile;
    /// there may be room then.
    pub(super) fn select(&mut self, mut now: Nanos) -> Result<(Vec<BlockId>, Nanos)> {
        if self.super_groups == SuperGroups::Second {
            now = self.form_groups(now)?;
            return self.select_super_group(now);
        }
        if !self.prune {
            now = self.form_groups(now)?;
            if self.skip && self.tree.above.is_full() && self.policy() != Policy::Cost {
                // All scores are known, and so is the best one.
                let pool = &mut self.tree.above;
                let best = match pool.block(pool.root).level() {
                    0 => Some(pool.root),
                    _ => pool.best_below(pool.root),
                };
                return Ok((best.into_iter().collect(), now));
            }
        }
        let (victim, now) = self.search(now, self.prune, self.exact_ties)?;
        Ok((victim.into_iter().collect(), now))
    }

    /// Algorithm 3: moves all requests to groups.
    pub(super) fn form_groups(&mut self, mut now: Nanos) -> Result<Nanos> {
        let mut stack = vec![self.tree.above.root];
        while let Some(id) = stack.pop() {
            let Some(block) = self.tree.above.get(id) else {
                continue;
            };
            if block.level() > 0 && block.own > 0 {
                now = self.divide(now, id)?;
            }
            let pool = &self.tree.above;
            if pool.get(id).is_some_and(|block| block.level() > 1) {
                stack.extend(pool.groups(id));
            }
        }
        Ok(now)
    }

    /// Algorithm 5: searches the blocks, leaving out those that cannot have a victim (`prune`), or
    /// that are only as good as the best so far (unless `exact_ties`). Skips parts of the pool in
    /// which all would be left out; this only saves time.
    pub(super) fn search(
        &mut self,
        mut now: Nanos,
        prune: bool,
        exact_ties: bool,
    ) -> Result<(Option<BlockId>, Nanos)> {
        let skip = prune && self.skip;
        let mut best: Option<Best> = None;
        let mut stack = vec![self.tree.above.root];
        while let Some(id) = stack.pop() {
            let Some(block) = self
                .tree
                .above
                .get(id)
                .filter(|_| self.tree.above.is_full())
            else {
                continue;
            };
            if block.level() == 0 {
                now = self.weigh(now, id, &mut best, prune, exact_ties)?;
                continue;
            }
            if let Some(best) = best.filter(|_| skip) {
                let least = self.tree.above.least(id);
                if best.is_ahead(&least, exact_ties) {
                    self.tree.above.counts.blocks_pruned += u64::from(least.lists);
                    continue;
                }
            }
            let block = self.tree.above.block(id);
            if block.own > 0 {
                let bound = self.tree.above.bound(block);
                let may = best.is_none_or(|best| bound.order(best.rank.score).is_le());
                if may {
                    now = self.divide(now, id)?;
                } else {
                    self.tree.above.counts.blocks_pruned += 1;
                }
            }
            let Some(block) = self.tree.above.get(id) else {
                continue;
            };
            if block.level() > 1 {
                stack.extend(self.tree.above.groups(id));
            } else if skip && exact_ties && self.policy() != Policy::Cost {
                // Scores are known, and so is the best one.
                if let Some(group) = self.tree.above.best_below(id) {
                    now = self.weigh(now, group, &mut best, prune, exact_ties)?;
                }
            } else {
                now = self.weigh_all(now, id, &mut best, prune, exact_ties)?;
            }
        }
        Ok((best.map(|best| best.id), now))
    }

    /// Examines the groups under a block, the last one first. Omits groups whose ranks cannot win.
    fn weigh_all(
        &mut self,
        mut now: Nanos,
        parent: BlockId,
        best: &mut Option<Best>,
        prune: bool,
        exact_ties: bool,
    ) -> Result<Nanos> {
        let mut end = usize::MAX;
        while self.tree.above.is_full() {
            let pool = &self.tree.above;
            let may = |rank| !prune || best.is_none_or(|best| best.loses(rank, exact_ties));
            let Some((next, group)) = pool.last_group(parent, end, may) else {
                break;
            };
            now = self.weigh(now, group, best, prune, exact_ties)?;
            end = next;
        }
        Ok(now)
    }

    /// Compares a group with the best so far. Reads its leaf if the score depends on it and may be
    /// better.
    #[inline]
    fn weigh(
        &mut self,
        mut now: Nanos,
        id: BlockId,
        best: &mut Option<Best>,
        prune: bool,
        exact_ties: bool,
    ) -> Result<Nanos> {
        if self.tree.above.block(id).own == 0 {
            return Ok(now);
        }
        let loses =
            |best: &Option<Best>, rank, ties| best.is_none_or(|best| best.loses(rank, ties));
        if prune && !loses(best, self.tree.above.rank(id), exact_ties) {
            return Ok(now);
        }
        if self.policy() == Policy::Cost {
            now = self.size_up(now, id)?;
        }
        // A group committed meanwhile has freed space and ends the search.
        if self.tree.above.get(id).is_some() {
            let rank = self.tree.above.rank(id);
            if loses(best, rank, true) {
                *best = Some(Best { id, rank });
            }
        }
        Ok(now)
    }
}
