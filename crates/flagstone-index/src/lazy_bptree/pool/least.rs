//! The quality of groups as victims, and the best ones below each block. Maintained while requests
//! change, so that victim selection examines blocks instead of groups.

use super::{Block, BlockId, NONE, Pool};
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
    pub(in super::super) gain: u32,
    pub(in super::super) size: u32,
}

impl Score {
    #[inline]
    pub(in super::super) fn order(self, other: Score) -> Ordering {
        let times = |gain: u32, size: u32| u64::from(gain) * u64::from(size);
        times(self.gain, other.size).cmp(&times(other.gain, self.size))
    }
}

/// A group's score, as far as known, and the time of its last hit. With the policy Fifo, where
/// scores differ, it is the group's age.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct Rank {
    pub(in super::super) score: Score,
    pub(in super::super) hit: u32,
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
    pub(in super::super) group: Option<(Rank, u32)>,
    /// The best list that is not divided.
    pub(in super::super) list: Option<Score>,
    /// The number of such lists.
    pub(in super::super) lists: u32,
}

impl Least {
    /// Takes a group if it is better than the present one. Returns whether it is.
    #[inline]
    pub(in super::super) fn group(&mut self, rank: Rank, index: u32) -> bool {
        let better = self.group.is_none_or(|(least, _)| rank.is_better(least));
        if better {
            self.group = Some((rank, index));
        }
        better
    }

    fn list(&mut self, score: Score, lists: u32) {
        self.lists += lists;
        if self.list.is_none_or(|least| score.order(least).is_lt()) {
            self.list = Some(score);
        }
    }
}

impl Pool {
    /// Number of leaf pages that a commit writes: |D| of equation 5. A split also writes the next
    /// leaf, whose link to the left changes, unless `split_link` is off. A leaf of unknown size
    /// counts as one.
    #[inline]
    fn gain(&self, block: &Block) -> u32 {
        let order = self.leaf_order;
        let Some(size) = block.node_size() else {
            return 1;
        };
        let after = (size as i64 + i64::from(block.growth())).max(0) as usize;
        if after > 2 * order {
            after.div_ceil(2 * order) as u32 + u32::from(self.split_link)
        } else if after < order && block.parent != NONE {
            2
        } else {
            1
        }
    }

    /// The score of a group. For the cost-based policy, a lower bound if the size of the leaf is
    /// unknown.
    #[inline]
    pub(in super::super) fn score(&self, block: &Block) -> Score {
        match self.policy {
            Policy::Cost => Score {
                gain: self.gain(block),
                size: block.own,
            },
            _ => self.bound(block),
        }
    }

    /// A lower bound of the scores of all groups that an index block's requests can form.
    #[inline]
    pub(in super::super) fn bound(&self, block: &Block) -> Score {
        match self.policy {
            Policy::Big | Policy::Cost => Score {
                gain: 1,
                size: block.own,
            },
            Policy::Lru | Policy::Fifo => Score {
                gain: block.time,
                size: 1,
            },
        }
    }

    /// The rank of a group.
    #[inline]
    pub(in super::super) fn rank(&self, group: BlockId) -> Rank {
        self.rank_of(self.block(group))
    }

    #[inline]
    fn rank_of(&self, group: &Block) -> Rank {
        Rank {
            score: self.score(group),
            hit: group.time,
        }
    }

    /// The last of the first `end` groups below a block whose rank satisfies a test, and its place
    /// among them. A better rank must satisfy it, too.
    pub(in super::super) fn last_group(
        &self,
        parent: BlockId,
        end: usize,
        is_it: impl Fn(Rank) -> bool,
    ) -> Option<(usize, BlockId)> {
        let children = self
            .get(parent)
            .map(|_| self.children(self.index(parent)))?;
        let left = &children[..end.min(children.len())];
        let passes = |&child: &u32| self.rank_if(child, &is_it).is_some();
        let place = left.iter().rposition(passes)?;
        Some((place, self.id(left[place])))
    }

    /// The rank of a group if it satisfies `is_it`, which any better rank must satisfy, too. Tests
    /// the group's bound first: that is cheaper than its score, and few groups pass.
    #[inline]
    fn rank_if(&self, group: u32, is_it: impl Fn(Rank) -> bool) -> Option<Rank> {
        let group = &self.blocks[group as usize];
        let (score, hit) = (self.bound(group), group.time);
        (is_it(Rank { score, hit }) && is_it(self.rank_of(group))).then(|| self.rank_of(group))
    }

    /// The best below an index block, if known.
    #[inline]
    pub(in super::super) fn known_least(&self, index: u32) -> Option<Least> {
        self.belows[self.blocks[index as usize].below()?].least
    }

    /// The best below an index block.
    pub(in super::super) fn least(&mut self, id: BlockId) -> Least {
        self.least_below(self.index(id))
    }

    /// The best group below an index block.
    pub(in super::super) fn best_below(&mut self, id: BlockId) -> Option<BlockId> {
        let (_, group) = self.least(id).group?;
        Some(self.id(group))
    }

    fn least_below(&mut self, index: u32) -> Least {
        if let Some(least) = self.known_least(index) {
            return least;
        }
        let least = self.summed_up(index, Pool::least_below);
        self.remember(index, least);
        least
    }

    /// Computes the best victims below an index block, from its list and its groups, or from what
    /// `below` returns for its children if these are index blocks.
    fn summed_up(&mut self, index: u32, below: fn(&mut Pool, u32) -> Least) -> Least {
        let mut least = Least::default();
        let block = &self.blocks[index as usize];
        if block.own > 0 {
            least.list(self.bound(block), 1);
        }
        if block.level() == 1 {
            for &child in self.children(index) {
                let is_better = |rank: Rank| least.group.is_none_or(|best| rank.is_better(best.0));
                if let Some(rank) = self.rank_if(child, is_better) {
                    least.group = Some((rank, child));
                }
            }
            return least;
        }
        for child in 0..self.children(index).len() {
            let of_child = below(self, self.children(index)[child]);
            if let Some((rank, group)) = of_child.group {
                least.group(rank, group);
            }
            if let Some(list) = of_child.list {
                least.list(list, of_child.lists);
            }
        }
        least
    }

    fn least_mut(&mut self, index: u32) -> Option<&mut Least> {
        let below = self.blocks[index as usize].below()?;
        self.belows[below].least.as_mut()
    }

    /// Stores the best victims below an index block.
    pub(in super::super) fn remember(&mut self, index: u32, least: Least) {
        if let Some(below) = self.blocks[index as usize].below() {
            self.belows[below].least = Some(least);
        }
    }

    /// Invalidates the cached results for a block and its parents.
    pub(super) fn forget(&mut self, index: u32) {
        let mut next = index;
        while let Some(block) = self.blocks.get(next as usize) {
            let below = block.below().map(|below| &mut self.belows[below]);
            if below.is_some_and(|below| below.least.take().is_none()) {
                // If unknown here, it is unknown above.
                break;
            }
            next = block.parent;
        }
    }

    /// Changes a block, and updates the cached victims above it by comparison with its new bound or
    /// rank. Forgets them if that does not suffice: a block that got worse may have been the best.
    pub(in super::super) fn edit(&mut self, id: BlockId, change: impl FnOnce(&mut Block)) {
        let index = self.index(id);
        let block = &self.blocks[index as usize];
        let (level, own, bound) = (block.level(), block.own, self.bound(block));
        change(self.block_at(index));
        if level == 0 {
            return self.rerank(index);
        }
        let block = &self.blocks[index as usize];
        let (own_now, now) = (block.own, self.bound(block));
        self.owe(level, own, own_now);
        let grew = own == 0 || (own_now >= own && now.order(bound).is_le());
        if self.second_hand || !grew {
            self.forget(index);
        } else if own_now > 0 {
            let mut next = index;
            while next != NONE
                && let Some(least) = self.least_mut(next)
            {
                least.list(now, u32::from(own == 0));
                next = self.blocks[next as usize].parent;
            }
        }
    }

    /// Updates the cached victims above a group that has changed.
    fn rerank(&mut self, index: u32) {
        let block = &self.blocks[index as usize];
        let (rank, mut next) = (self.rank_of(block), block.parent);
        if self.second_hand || block.own == 0 {
            return self.forget(index);
        }
        while next != NONE
            && let Some(least) = self.least_mut(next)
        {
            match least.group {
                // It was the best. If it got worse, another one may be the best now.
                Some((before, best)) if best == index && before != rank => {
                    if !rank.is_better(before) {
                        return self.forget(next);
                    }
                    least.group = Some((rank, index));
                }
                _ => {
                    if !least.group(rank, index) {
                        break;
                    }
                }
            }
            next = self.blocks[next as usize].parent;
        }
    }

    /// Called after the list of an index block was divided among new blocks, `groups`. `before` is
    /// what was known of its best victims; `None` if nothing, or if the new blocks are not groups.
    pub(super) fn was_divided(&mut self, index: u32, before: Option<Least>, groups: &[u32]) {
        self.forget(index);
        let Some(mut least) = before.filter(|_| !self.second_hand) else {
            return;
        };
        (least.list, least.lists) = (None, 0);
        for &group in groups {
            least.group(self.rank_of(&self.blocks[group as usize]), group);
        }
        self.remember(index, least);
    }

    /// Changes the policy.
    #[cfg(test)]
    pub(in super::super) fn judge_by(&mut self, policy: Policy) {
        self.policy = policy;
        for below in &mut self.belows {
            below.least = None;
        }
    }

    /// Checks the cached results of index blocks about the blocks below.
    pub(super) fn check_least(&mut self) -> Result<(), String> {
        fn anew(pool: &mut Pool, index: u32) -> Least {
            pool.summed_up(index, anew)
        }
        for index in 0..self.blocks.len() as u32 {
            let least = self.known_least(index).filter(|_| !self.second_hand);
            if least.is_some_and(|least| least != anew(self, index)) {
                let at = self.blocks[index as usize].at;
                return Err(format!(
                    "the block of page {at} does not know the best victim below it"
                ));
            }
        }
        Ok(())
    }
}
