//! Super groups: groups under one parent that save writes by being committed together
//! ([LazyBtree] §4.4.2.3).

use super::super::IndexError;
use super::LazyTree;
use super::pool::{Block, BlockId};
use super::select::{Policy, Score};
use crate::units::{Lpn, Nanos};

/// How super groups are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SuperGroups {
    None,
    /// The victim is a group; its super group is committed.
    First,
    /// The victim is a super group.
    Second,
}

/// What a commit does to the leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Normal,
    Split,
    /// It takes entries from a sibling, or merges with one.
    Underflow,
}

/// A group, with the place of its leaf among all of a parent.
type Member = (usize, BlockId);

/// The leaves under one parent, and the groups that wait for some.
struct Family {
    pages: Vec<Lpn>,
    groups: Vec<Member>,
}

impl LazyTree {
    fn family(&mut self, now: Nanos, parent: BlockId) -> Result<(Family, Nanos), IndexError> {
        let at = self.tree.above.block(parent).span.at;
        let (pages, now) = self.tree.look(now, at, |pool, page, shape| {
            let len = shape.inner_len(page)?;
            if pool.get(parent).is_some() {
                // Groups that were not formed yet cost nothing now.
                pool.divide(parent, page, shape);
            }
            let child = super::Shape::child;
            Some((0..=len).map(|slot| child(page, slot)).collect::<Vec<_>>())
        })?;
        let pool = &self.tree.above;
        let groups = pages.iter().enumerate();
        let groups = groups
            .filter_map(|(slot, &page)| Some((slot, pool.of_page(page)?)))
            .collect();
        Ok((Family { pages, groups }, now))
    }

    /// What committing a group does.
    pub(super) fn operation(
        &mut self,
        now: Nanos,
        id: BlockId,
    ) -> Result<(Operation, Nanos), IndexError> {
        if self.tree.above.get(id).is_none() {
            return Ok((Operation::Normal, now));
        }
        let now = self.size_up(now, id)?;
        let order = self.tree.shape.leaf_order;
        let after = |block: &Block| Some(block.node_size? as i64 + block.growth);
        let operation = match self.tree.above.get(id).and_then(after) {
            Some(after) if after > 2 * order as i64 => Operation::Split,
            Some(after) if after < order as i64 => Operation::Underflow,
            _ => Operation::Normal,
        };
        Ok((operation, now))
    }

    /// Entries of any leaf of a family.
    fn entries_of(&mut self, now: Nanos, page: Lpn) -> Result<(usize, Nanos), IndexError> {
        let pool = &self.tree.above;
        let known = pool.of_page(page).and_then(|id| pool.block(id).node_size);
        match known {
            Some(len) => Ok((len, now)),
            None => self
                .tree
                .look(now, page, |_, page, shape| shape.leaf_len(page)),
        }
    }

    /// Whether a group that makes its leaf too small merges it with the leaf to the right.
    fn merges_right(
        &mut self,
        mut now: Nanos,
        family: &Family,
        (slot, id): Member,
    ) -> Result<(bool, Nanos), IndexError> {
        let Some(block) = self.tree.above.get(id) else {
            return Ok((false, now));
        };
        let after = (block.node_size.unwrap_or(0) as i64 + block.growth).max(0) as usize;
        let mut right = false;
        for other in [slot + 1, slot.wrapping_sub(1)] {
            let Some(&page) = family.pages.get(other) else {
                continue;
            };
            let (len, done) = self.entries_of(now, page)?;
            now = done;
            if after + len >= 2 * self.tree.shape.leaf_order {
                return Ok((false, now));
            }
            right |= other > slot;
        }
        Ok((right, now))
    }

    /// Whether two groups save a write by going together: condition 1, by the cases of figure 3.
    /// Leaves are read only where it depends on them.
    fn saves(
        &mut self,
        now: Nanos,
        family: &Family,
        one: Member,
        two: Member,
    ) -> Result<(bool, Nanos), IndexError> {
        let (left, right) = if one.0 < two.0 {
            (one, two)
        } else {
            (two, one)
        };
        let distance = right.0 - left.0;
        let (first, now) = self.operation(now, one.1)?;
        if first == Operation::Normal && distance > 2 {
            return Ok((false, now));
        }
        let rebalances = first != Operation::Normal;
        if distance == 1 && rebalances {
            // Case 2, or 1.
            return Ok((true, now));
        }
        let (second, now) = self.operation(now, two.1)?;
        let both = rebalances && second != Operation::Normal;
        let either = rebalances || second != Operation::Normal;
        if both || (distance == 1 && either) {
            return Ok((true, now));
        }
        let (of_left, now) = self.operation(now, left.1)?;
        if distance == 2 && of_left == Operation::Underflow {
            // Case 3: the leaf between goes, and the one behind it gets another neighbour.
            return self.merges_right(now, family, left);
        }
        Ok((false, now))
    }

    /// Algorithm 6: the super group of a group.
    pub(super) fn super_group(
        &mut self,
        now: Nanos,
        id: BlockId,
    ) -> Result<(Vec<BlockId>, Nanos), IndexError> {
        let Some(parent) = self.tree.above.block(id).parent else {
            return Ok((vec![id], now));
        };
        let (family, now) = self.family(now, parent)?;
        self.closure(now, &family, id)
    }

    fn closure(
        &mut self,
        mut now: Nanos,
        family: &Family,
        id: BlockId,
    ) -> Result<(Vec<BlockId>, Nanos), IndexError> {
        let groups = family.groups.iter().copied();
        let (mut members, mut candidates): (Vec<Member>, Vec<Member>) =
            groups.partition(|&(_, other)| other == id);
        let mut next = 0;
        while next < members.len() {
            let member = members[next];
            let (operation, done) = self.operation(now, member.1)?;
            now = done;
            let mut others = Vec::new();
            for candidate in candidates {
                let far = member.0.abs_diff(candidate.0) > 2;
                let (saves, done) = if far && operation == Operation::Normal {
                    (false, now)
                } else {
                    self.saves(now, family, member, candidate)?
                };
                now = done;
                if saves {
                    members.push(candidate);
                } else {
                    others.push(candidate);
                }
            }
            candidates = others;
            next += 1;
        }
        // Some may have been committed because their leaves left the memory.
        let members = members.into_iter().map(|(_, id)| id);
        let alive = |&id: &BlockId| self.tree.above.get(id).is_some();
        Ok((members.filter(alive).collect(), now))
    }

    /// The second approach: the super group with the least `H(S)`, the sum of the gains of its
    /// groups over the sum of their requests. All groups have been formed.
    pub(super) fn select_super_group(
        &mut self,
        mut now: Nanos,
    ) -> Result<(Vec<BlockId>, Nanos), IndexError> {
        let mut best: Option<(Score, u64, Vec<BlockId>)> = None;
        for parent in self.parents() {
            let Some(block) = self.tree.above.get(parent) else {
                continue;
            };
            let mut family = if block.level == 0 {
                let (pages, groups) = (vec![block.span.at], vec![(0, parent)]);
                Family { pages, groups }
            } else {
                let (family, done) = self.family(now, parent)?;
                now = done;
                family
            };
            while let Some(&(_, id)) = family.groups.first() {
                if !self.tree.above.is_full() {
                    return Ok((Vec::new(), now));
                }
                let (members, done) = self.closure(now, &family, id)?;
                now = done;
                let taken = |other: &BlockId| *other == id || members.contains(other);
                family.groups.retain(|(_, other)| !taken(other));
                let (mut score, mut hit) = (Score { gain: 0, size: 0 }, 0);
                for &member in &members {
                    let block = self.tree.above.block(member);
                    let own = self.score(block);
                    score.gain += own.gain;
                    score.size += own.size;
                    hit = hit.max(block.hit);
                }
                if self.policy == Policy::Big {
                    score.gain = 1;
                }
                let better = best.as_ref().is_none_or(|(least, when, _)| {
                    let order = score.order(*least);
                    order.is_lt() || (order.is_eq() && hit < *when)
                });
                if score.size > 0 && better {
                    best = Some((score, hit, members));
                }
            }
        }
        let members = best.map_or_else(Vec::new, |(_, _, members)| members);
        let alive = |&id: &BlockId| self.tree.above.get(id).is_some();
        Ok((members.into_iter().filter(alive).collect(), now))
    }

    /// Blocks with groups: of level 1, or the root if that is a group itself.
    fn parents(&self) -> Vec<BlockId> {
        let pool = &self.tree.above;
        let mut parents = Vec::new();
        let mut stack = vec![pool.root];
        while let Some(id) = stack.pop() {
            let block = pool.block(id);
            if block.level <= 1 {
                parents.push(id);
            } else {
                stack.extend(&block.children);
            }
        }
        parents
    }
}
