//! Super groups computed from pairs of groups, as in [LazyBtree] §4.4.2.3: the reference for
//! `super_group.rs`.

use super::super::Result;
use super::LazyTree;
use super::pool::BlockId;
use super::super_group::Operation;
use flagstone::units::{Lpn, Nanos};

/// A group, with the position of its leaf under the parent.
type Member = (usize, BlockId);

/// The leaves under one parent, and the groups waiting for some of them.
struct Family {
    pages: Vec<Lpn>,
    groups: Vec<Member>,
}

impl LazyTree {
    /// The leaves under the node of `parent`, and their groups, which are formed first.
    fn family(&mut self, now: Nanos, parent: BlockId) -> Result<(Family, Nanos)> {
        let at = self.tree.above.block(parent).span().at;
        let (pages, now) = self.tree.look(now, at, |pool, page, shape| {
            let len = shape.inner_len(page)?;
            if pool.get(parent).is_some() {
                // The node is at hand: forming groups reads nothing more.
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

    /// Whether a group that makes its leaf too small merges it with the right leaf.
    fn merges_right(
        &mut self,
        mut now: Nanos,
        family: &Family,
        (slot, id): Member,
    ) -> Result<(bool, Nanos)> {
        let Some(block) = self.tree.above.get(id) else {
            return Ok((false, now));
        };
        let after =
            (block.node_size().unwrap_or(0) as i64 + i64::from(block.growth())).max(0) as usize;
        let mut right = false;
        for other in [slot + 1, slot.wrapping_sub(1)] {
            let Some(&page) = family.pages.get(other) else {
                continue;
            };
            let (len, done) = self.entries_of(now, page)?;
            now = done;
            if len.is_none_or(|len| after + len >= 2 * self.tree.shape.leaf_order) {
                return Ok((false, now));
            }
            right |= other > slot;
        }
        Ok((right, now))
    }

    /// Whether committing two groups together saves a write: condition 1, by the cases of figure 3.
    /// Reads leaves only if the result depends on them.
    fn saves(
        &mut self,
        now: Nanos,
        family: &Family,
        one: Member,
        two: Member,
    ) -> Result<(bool, Nanos)> {
        let (left, right) = if one.0 < two.0 {
            (one, two)
        } else {
            (two, one)
        };
        let distance = right.0 - left.0;
        let (first, now) = self.operation(now, one.1, true)?;
        if first == Operation::Normal && distance > 2 {
            return Ok((false, now));
        }
        let rebalances = first != Operation::Normal;
        if distance == 1 && rebalances {
            // Case 2, or 1.
            return Ok((true, now));
        }
        let (second, now) = self.operation(now, two.1, true)?;
        let both = rebalances && second != Operation::Normal;
        let either = rebalances || second != Operation::Normal;
        if both || (distance == 1 && either) {
            return Ok((true, now));
        }
        let (of_left, now) = self.operation(now, left.1, true)?;
        if distance == 2 && of_left == Operation::Underflow {
            // Case 3: the leaf between disappears, and the next one gets another neighbour.
            return self.merges_right(now, family, left);
        }
        Ok((false, now))
    }

    /// The super group of a group by algorithm 6 as printed: tries pairs until none qualifies.
    pub(super) fn super_group_by_pairs(
        &mut self,
        now: Nanos,
        id: BlockId,
    ) -> Result<(Vec<BlockId>, Nanos)> {
        let Some(parent) = self.tree.above.parent(id) else {
            return Ok((vec![id], now));
        };
        let (family, now) = self.family(now, parent)?;
        self.closure(now, &family, id)
    }

    /// The groups of a family that are reached from a group by pairs that save a write.
    fn closure(
        &mut self,
        mut now: Nanos,
        family: &Family,
        id: BlockId,
    ) -> Result<(Vec<BlockId>, Nanos)> {
        let groups = family.groups.iter().copied();
        let (mut members, mut candidates): (Vec<Member>, Vec<Member>) =
            groups.partition(|&(_, other)| other == id);
        let mut next = 0;
        while next < members.len() {
            let member = members[next];
            let (operation, done) = self.operation(now, member.1, true)?;
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
        // Some groups may have been committed by evictions of their leaves.
        let members = members.into_iter().map(|(_, id)| id);
        let alive = |&id: &BlockId| self.tree.above.get(id).is_some();
        Ok((members.filter(alive).collect(), now))
    }
}
