//! The quality of groups as victims, and the best ones below each block. Maintained while requests
//! change, so that victim selection examines blocks instead of groups.

use super::{Block, BlockId, Pool};
use std::cmp::Ordering;

/// A commit policy. Ties go to the least recently hit group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Policy {
    /// The group with the most requests.
    Big,
    /// The group with the fewest leaf writes per request.
    Cost,
    /// The least recently hit group.
    Lru,
    /// The group whose first request is the oldest.
    Fifo,
}

/// The quality of a victim: the lower `gain / size`, the better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct Score {
    pub(in super::super) gain: u64,
    pub(in super::super) size: u64,
}

impl Score {
    /// Gains are small unless sizes are 1, so the products cannot overflow.
    #[inline]
    pub(in super::super) fn order(self, other: Score) -> Ordering {
        (self.gain * other.size).cmp(&(other.gain * self.size))
    }
}

/// A group's score, as far as known, and the time of its last hit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct Rank {
    pub(in super::super) score: Score,
    pub(in super::super) hit: u64,
}

impl Rank {
    /// Whether this rank is better. Ties go to the group not hit for longer.
    #[inline]
    fn is_better(self, other: Rank) -> bool {
        match self.score.order(other.score) {
            Ordering::Less => true,
            Ordering::Equal => self.hit < other.hit,
            Ordering::Greater => false,
        }
    }
}

/// The best victims below an index block, including its own list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct Least {
    /// The best group. If victims are super groups: the best of those, and one of its groups.
    pub(in super::super) group: Option<(Rank, BlockId)>,
    /// The best list that is not divided.
    pub(in super::super) list: Option<Score>,
    /// The number of such lists.
    pub(in super::super) lists: u64,
}

impl Least {
    /// Takes a group if it is better than the present one. Returns whether it is.
    #[inline]
    pub(in super::super) fn group(&mut self, rank: Rank, id: BlockId) -> bool {
        let better = self.group.is_none_or(|(least, _)| rank.is_better(least));
        if better {
            self.group = Some((rank, id));
        }
        better
    }

    fn list(&mut self, score: Score, lists: u64) {
        self.lists += lists;
        if self.list.is_none_or(|least| score.order(least).is_lt()) {
            self.list = Some(score);
        }
    }
}

impl Pool {
    /// Number of leaf pages that a commit writes: |D| of equation 5. A leaf of unknown size counts
    /// as one.
    fn gain(&self, block: &Block) -> u64 {
        let order = self.leaf_order as u64;
        let Some(size) = block.node_size() else {
            return 1;
        };
        let after = (size as i64 + i64::from(block.growth)).max(0) as u64;
        if after > 2 * order {
            after.div_ceil(2 * order)
        } else if after < order && block.parent.is_some() {
            2
        } else {
            1
        }
    }

    /// The score of a group. For the cost-based policy, a lower bound if the size of the leaf is
    /// unknown.
    pub(in super::super) fn score(&self, block: &Block, hit: u64) -> Score {
        let size = u64::from(block.own);
        match self.policy {
            Policy::Big => Score { gain: 1, size },
            Policy::Cost => Score {
                gain: self.gain(block),
                size,
            },
            Policy::Lru => Score { gain: hit, size: 1 },
            Policy::Fifo => Score {
                gain: block.born,
                size: 1,
            },
        }
    }

    /// A lower bound of the scores of all groups that an index block's requests can form.
    pub(in super::super) fn bound(&self, block: &Block) -> Score {
        match self.policy {
            Policy::Big | Policy::Cost => Score {
                gain: 1,
                size: u64::from(block.own),
            },
            Policy::Lru | Policy::Fifo => Score {
                gain: block.born,
                size: 1,
            },
        }
    }

    /// The rank of a group.
    #[inline]
    pub(in super::super) fn rank(&self, group: BlockId) -> Rank {
        self.seats[group.index as usize].rank
    }

    /// Records that a block received a request.
    #[inline]
    pub(super) fn hit(&mut self, id: BlockId, stamp: u64) {
        self.seats[id.index as usize].rank.hit = stamp;
    }

    /// The best below an index block.
    pub(in super::super) fn least(&mut self, id: BlockId) -> Least {
        if let Some(least) = self.block(id).least() {
            return least;
        }
        let least = self.summed_up(id, Pool::least);
        self.remember(id, least);
        least
    }

    fn summed_up(&mut self, id: BlockId, below: fn(&mut Pool, BlockId) -> Least) -> Least {
        let mut least = Least::default();
        let block = self.block(id);
        if block.own > 0 {
            least.list(self.bound(block), 1);
        }
        if block.level == 1 {
            for child in block.children() {
                least.group(self.rank(child.id), child.id);
            }
            return least;
        }
        for child in 0..block.children().len() {
            let child = self.block(id).children()[child].id;
            let of_child = below(self, child);
            if let Some((rank, id)) = of_child.group {
                least.group(rank, id);
            }
            if let Some(list) = of_child.list {
                least.list(list, of_child.lists);
            }
        }
        least
    }

    /// Stores the best victims below an index block.
    pub(in super::super) fn remember(&mut self, id: BlockId, least: Least) {
        if let Some(below) = &mut self.slot_mut(id).below {
            below.least = Some(least);
        }
    }

    /// Invalidates the cached results for a block and its parents.
    pub(super) fn forget(&mut self, id: BlockId) {
        let mut next = Some(id);
        while let Some(at) = next {
            let block = self.slot_mut(at);
            let known = match &mut block.below {
                Some(below) => below.least.take().is_some(),
                None => true,
            };
            next = block.parent.filter(|_| known);
        }
    }

    /// Changes a block. Updates the cached results of its parents, if a comparison suffices for
    /// that.
    pub(in super::super) fn edit(&mut self, id: BlockId, change: impl FnOnce(&mut Block)) {
        let block = self.block(id);
        if block.level == 0 {
            change(self.slot_mut(id));
            return self.rerank(id);
        }
        let (own, bound) = (block.own, self.bound(block));
        change(self.slot_mut(id));
        let block = self.block(id);
        let (own_now, now) = (block.own, self.bound(block));
        let grew = own == 0 || (own_now >= own && now.order(bound).is_le());
        if self.second_hand || !grew {
            self.forget(id);
        } else if own_now > 0 {
            let mut next = Some(id);
            while let Some(block) = next.map(|at| self.slot_mut(at)) {
                let Some(least) = block.least_mut() else {
                    break;
                };
                least.list(now, u64::from(own == 0));
                next = block.parent;
            }
        }
    }

    fn rerank(&mut self, id: BlockId) {
        let block = self.block(id);
        let hit = self.rank(id).hit;
        let (score, empty) = (self.score(block, hit), block.own == 0);
        let rank = Rank { score, hit };
        self.seats[id.index as usize].rank = rank;
        if self.second_hand || empty {
            return self.forget(id);
        }
        let mut next = self.block(id).parent;
        while let Some(at) = next {
            let block = self.slot_mut(at);
            let Some(least) = block.least_mut() else {
                break;
            };
            match least.group {
                Some((before, best)) if best == id && before != rank => {
                    if !rank.is_better(before) {
                        return self.forget(at);
                    }
                    least.group = Some((rank, id));
                }
                _ => {
                    if !least.group(rank, id) {
                        break;
                    }
                }
            }
            next = block.parent;
        }
    }

    /// Called after an index block above the leaves was divided into new groups.
    pub(super) fn was_divided(&mut self, id: BlockId, before: Option<Least>, groups: &[BlockId]) {
        self.forget(id);
        let Some(mut least) = before.filter(|_| !self.second_hand) else {
            return;
        };
        (least.list, least.lists) = (None, 0);
        for &group in groups {
            least.group(self.rank(group), group);
        }
        self.remember(id, least);
    }

    /// Changes the policy.
    #[cfg(test)]
    pub(in super::super) fn judge_by(&mut self, policy: Policy) {
        self.policy = policy;
        let mut stack = vec![self.root];
        while let Some(id) = stack.pop() {
            self.forget(id);
            self.edit(id, |_| ());
            stack.extend(self.block(id).groups());
        }
    }

    /// Checks the cached results of index blocks about the blocks below.
    pub(super) fn check_least(&mut self) -> Result<(), String> {
        fn anew(pool: &mut Pool, id: BlockId) -> Least {
            pool.summed_up(id, anew)
        }
        let mut stack = vec![self.root];
        while let Some(id) = stack.pop() {
            let block = self.block(id);
            let (at, least, rank) = (block.span.at, block.least(), self.rank(id));
            stack.extend(block.groups());
            if block.level == 0 {
                if block.own > 0 && self.score(block, rank.hit) != rank.score {
                    return Err(format!("the group of page {at} has another rank"));
                }
            } else if !self.second_hand && least.is_some_and(|least| least != anew(self, id)) {
                return Err(format!(
                    "the block of page {at} does not know the best victim below it"
                ));
            }
        }
        Ok(())
    }
}
