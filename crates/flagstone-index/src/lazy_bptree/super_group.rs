//! Super groups: groups under one parent that save writes when committed together ([LazyBtree]
//! §4.4.2.3).
//!
//! Each parent has at most one super group of several groups: by case 1 all rebalancing groups are
//! in it, by cases 2 and 3 some near them, and other groups save nothing. So algorithm 6 needs no
//! pairs (tests compare it with the version by pairs, `reference.rs`). Ranges tell which groups are
//! neighbours; the parent is read for case 3 only.

use super::super::Result;
use super::LazyTree;
use super::pool::{Block, BlockId, Least, Policy, Rank, Score};
use flagstone::units::{Lpn, Nanos};

/// Use of super groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SuperGroups {
    None,
    /// The victim is a group; its super group is committed.
    First,
    /// The victim is a super group.
    Second,
}

/// The effect of a commit on its leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Normal,
    Split,
    /// The leaf borrows from a sibling, or merges with one.
    Underflow,
}

impl LazyTree {
    /// The effect of committing a group. If the size of its leaf is unknown, uses the leaf if it is
    /// in memory, and reads it if `reads`; a group about which nothing is known counts as normal.
    pub(super) fn operation(
        &mut self,
        mut now: Nanos,
        id: BlockId,
        reads: bool,
    ) -> Result<(Operation, Nanos)> {
        let Some(block) = self.tree.above.get(id) else {
            return Ok((Operation::Normal, now));
        };
        if reads || self.tree.cache.holds(block.span().at) {
            now = self.size_up(now, id)?;
        }
        let order = self.tree.shape.leaf_order;
        let after = |block: &Block| Some(block.node_size()? as i64 + i64::from(block.growth()));
        let operation = match self.tree.above.get(id).and_then(after) {
            Some(after) if after > 2 * order as i64 => Operation::Split,
            Some(after) if after < order as i64 => Operation::Underflow,
            _ => Operation::Normal,
        };
        Ok((operation, now))
    }

    /// Whether the first of two groups makes its leaf too small, so that it merges with the right
    /// leaf, and the second group's leaf comes after that one: case 3.
    fn merges_up_to(
        &mut self,
        now: Nanos,
        parent: BlockId,
        one: BlockId,
        two: BlockId,
    ) -> Result<(bool, Nanos)> {
        // A growing leaf never becomes too small.
        let shrinks = |block: &Block| block.growth() < 0;
        if !self.tree.above.get(one).is_some_and(shrinks) {
            return Ok((false, now));
        }
        let (operation, now) = self.operation(now, one, false)?;
        let pool = &self.tree.above;
        let (Some(above), Some(left), Some(right)) =
            (pool.get(parent), pool.get(one), pool.get(two))
        else {
            return Ok((false, now));
        };
        if operation != Operation::Underflow {
            return Ok((false, now));
        }
        let after =
            (left.node_size().unwrap_or(0) as i64 + i64::from(left.growth())).max(0) as usize;
        let (at, left, right) = (above.span().at, left.span().at, right.span().at);
        let (near, mut now) = self.tree.look(now, at, |_, page, shape| {
            let len = shape.inner_len(page)?;
            let child = |slot| (slot <= len).then(|| super::Shape::child(page, slot));
            let slot = (0..=len).find(|&slot| child(slot) == Some(left))?;
            let other = slot.checked_sub(1).and_then(child);
            // The siblings to the right and to the left, and the leaf after the right one.
            Some([child(slot + 1), other, child(slot + 2)])
        })?;
        if near[2] != Some(right) {
            return Ok((false, now));
        }
        // If a sibling can lend entries there is no merge.
        for page in near[..2].iter().flatten() {
            let (len, done) = self.entries_of(now, *page)?;
            now = done;
            if len.is_none_or(|len| after + len >= 2 * self.tree.shape.leaf_order) {
                return Ok((false, now));
            }
        }
        Ok((true, now))
    }

    /// Number of entries of any leaf, if known or if the leaf is in memory.
    pub(super) fn entries_of(&mut self, now: Nanos, page: Lpn) -> Result<(Option<usize>, Nanos)> {
        let pool = &self.tree.above;
        let known = pool.of_page(page).and_then(|id| pool.block(id).node_size());
        if known.is_some() || !self.tree.cache.holds(page) {
            return Ok((known, now));
        }
        let (len, now) = self
            .tree
            .look(now, page, |_, page, shape| shape.leaf_len(page))?;
        Ok((Some(len), now))
    }

    /// Whether a normal group saves a write together with a rebalancing one near it: cases 2 and 3.
    /// `groups` are all groups under one parent, in order. Reads no leaf (D9).
    fn goes_along(
        &mut self,
        mut now: Nanos,
        parent: BlockId,
        groups: &[BlockId],
        place: usize,
    ) -> Result<(bool, Nanos)> {
        let id = groups[place];
        let left = place.checked_sub(1).map(|place| groups[place]);
        for other in [left, groups.get(place + 1).copied()] {
            if let Some(other) = other.filter(|&other| self.are_neighbours(id, other)) {
                let (operation, done) = self.operation(now, other, false)?;
                now = done;
                if operation != Operation::Normal {
                    return Ok((true, now));
                }
            }
        }
        // The leaf between may have a group or none.
        let farther = match left {
            Some(left) if self.are_neighbours(id, left) => {
                let farther = place.checked_sub(2).map(|place| groups[place]);
                farther.filter(|&farther| self.are_neighbours(farther, left))
            }
            other => other,
        };
        match farther {
            Some(farther) => self.merges_up_to(now, parent, farther, id),
            None => Ok((false, now)),
        }
    }

    fn are_neighbours(&self, one: BlockId, two: BlockId) -> bool {
        let pool = &self.tree.above;
        let (Some(one), Some(two)) = (pool.get(one), pool.get(two)) else {
            return false;
        };
        let meet =
            |left: &Block, right: &Block| left.span().high.checked_add(1) == Some(right.span().low);
        meet(one, two) || meet(two, one)
    }

    /// The rebalancing groups under a parent, and groups that save a write together with one of
    /// them.
    fn together(
        &mut self,
        mut now: Nanos,
        parent: BlockId,
        groups: &[BlockId],
    ) -> Result<(Vec<BlockId>, Nanos)> {
        let mut rebalance = Vec::new();
        for &id in groups {
            let (operation, done) = self.operation(now, id, true)?;
            now = done;
            rebalance.push(operation != Operation::Normal);
        }
        let mut members = Vec::new();
        for (place, &id) in groups.iter().enumerate() {
            // Cases 2 and 3: up to two groups to the left, or one to the right.
            let from = place.saturating_sub(2);
            let near = &rebalance[from..(place + 2).min(groups.len())];
            let mut member = rebalance[place];
            if !member && near.contains(&true) {
                (member, now) = self.goes_along(now, parent, groups, place)?;
            }
            if member {
                members.push(id);
            }
        }
        // Some groups may have been committed by evictions of their leaves.
        members.retain(|&id| self.tree.above.get(id).is_some());
        Ok((members, now))
    }

    /// Algorithm 6: the super group of a group.
    pub(super) fn super_group(&mut self, now: Nanos, id: BlockId) -> Result<(Vec<BlockId>, Nanos)> {
        let Some(parent) = self.tree.above.parent(id) else {
            return Ok((vec![id], now));
        };
        // The group's leaf will be changed, so reading it costs nothing extra.
        let now = self.size_up(now, id)?;
        let (operation, mut now) = self.operation(now, id, false)?;
        if operation == Operation::Normal {
            let groups = self.groups(parent);
            let Some(place) = groups.iter().position(|&other| other == id) else {
                return Ok((Vec::new(), now));
            };
            let (along, done) = self.goes_along(now, parent, &groups, place)?;
            now = done;
            if !along {
                return Ok((self.alive(vec![id]), now));
            }
        }
        // The parent will be written. Groups that were not formed yet cost nothing now.
        if self
            .tree
            .above
            .get(parent)
            .is_some_and(|block| block.own > 0)
        {
            now = self.divide(now, parent)?;
        }
        let groups = self.groups(parent);
        let (members, now) = self.together(now, parent, &groups)?;
        if members.contains(&id) {
            return Ok((members, now));
        }
        Ok((self.alive(vec![id]), now))
    }

    /// The groups under a parent that may be gone.
    fn groups(&self, parent: BlockId) -> Vec<BlockId> {
        let pool = &self.tree.above;
        let groups = pool.get(parent).map(|_| pool.groups(parent).collect());
        groups.unwrap_or_default()
    }

    /// Those of the groups that were not committed meanwhile.
    pub(super) fn alive(&self, mut groups: Vec<BlockId>) -> Vec<BlockId> {
        groups.retain(|&id| self.tree.above.get(id).is_some());
        groups
    }

    /// The best super group under a parent, and all its groups. A group that saves nothing with
    /// others counts as a super group, and so does a root that is a leaf.
    fn best_under(&mut self, now: Nanos, parent: BlockId) -> Result<(Least, Vec<BlockId>, Nanos)> {
        let (groups, members, now) = if self.tree.above.block(parent).level() == 0 {
            (vec![parent], Vec::new(), now)
        } else {
            let groups = self.groups(parent);
            let (members, now) = self.together(now, parent, &groups)?;
            (self.alive(groups), members, now)
        };
        let (mut least, mut best) = (Least::default(), Vec::new());
        let alone = groups.iter().filter(|id| !members.contains(id));
        let alone = alone.map(std::slice::from_ref);
        let together = Some(&members[..]).filter(|members| !members.is_empty());
        for super_group in alone.chain(together) {
            let (mut score, mut hit) = (Score::default(), 0);
            for &member in super_group {
                let own = self.tree.above.rank(member);
                score.gain += own.score.gain;
                score.size += own.score.size;
                hit = hit.max(own.hit);
            }
            if self.policy() == Policy::Big {
                score.gain = 1;
            }
            let index = self.tree.above.index(super_group[0]);
            if score.size > 0 && least.group(Rank { score, hit }, index) {
                best = super_group.to_vec();
            }
        }
        Ok((least, best, now))
    }

    /// The second approach: selects the super group with the least `H(S)`, the sum of its groups'
    /// gains over the sum of their requests. All groups are formed. The best one is cached for
    /// parents without changes.
    pub(super) fn select_super_group(&mut self, mut now: Nanos) -> Result<(Vec<BlockId>, Nanos)> {
        let mut all = Least::default();
        let mut best = None;
        for parent in self.parents() {
            if self.tree.above.get(parent).is_none() {
                continue;
            }
            let known = self.tree.above.known_least(self.tree.above.index(parent));
            let least = match known.filter(|_| self.skip) {
                Some(least) => least,
                None => {
                    let (least, _, done) = self.best_under(now, parent)?;
                    now = done;
                    if !self.tree.above.is_full() {
                        return Ok((Vec::new(), now));
                    }
                    if self
                        .tree
                        .above
                        .get(parent)
                        .is_some_and(|block| block.level() > 0)
                    {
                        let index = self.tree.above.index(parent);
                        self.tree.above.remember(index, least);
                    }
                    least
                }
            };
            if let Some((rank, id)) = least.group
                && all.group(rank, id)
            {
                best = Some(parent);
            }
        }
        let Some(parent) = best.filter(|&parent| self.tree.above.get(parent).is_some()) else {
            return Ok((Vec::new(), now));
        };
        let (_, victims, now) = self.best_under(now, parent)?;
        Ok((self.alive(victims), now))
    }

    /// Blocks with groups: of level 1, or the root if that is a group itself.
    fn parents(&self) -> Vec<BlockId> {
        let pool = &self.tree.above;
        let mut parents = Vec::new();
        let mut stack = vec![pool.root];
        while let Some(id) = stack.pop() {
            let block = pool.block(id);
            if block.level() <= 1 {
                parents.push(id);
            } else {
                stack.extend(pool.groups(id));
            }
        }
        parents
    }
}
