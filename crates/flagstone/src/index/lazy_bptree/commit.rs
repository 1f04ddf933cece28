//! Commits: what a full pool does, and what a flush does.

use super::super::{IndexError, Key};
use super::LazyTree;
use super::pool::{BlockId, changes};
use super::super_group::SuperGroups;
use crate::units::Nanos;

impl LazyTree {
    /// Commits victims until the pool has room (algorithm 1).
    pub(super) fn make_room(&mut self, mut now: Nanos) -> Result<Nanos, IndexError> {
        while self.tree.above.is_full() {
            let (mut victims, done) = self.select(now)?;
            now = done;
            if let (SuperGroups::First, [victim], true) = (
                self.super_groups,
                victims.as_slice(),
                self.tree.above.is_full(),
            ) {
                (victims, now) = self.super_group(now, *victim)?;
            }
            // Reading nodes to choose among groups takes frames, and a dirty leaf that leaves its
            // frame has its group committed: it may have been a victim. But then there is room.
            if !self.tree.above.is_full() {
                break;
            }
            let first = self.tree.above.requests.keys().next().copied();
            now = match (victims.as_slice(), first) {
                ([], Some(key)) => self.commit_key(now, key)?,
                ([], None) => return Ok(now),
                (&[victim], _) => self.commit(now, victim)?,
                (victims, _) => self.commit_super_group(now, victims)?,
            };
        }
        Ok(now)
    }

    /// Commits a group: one read of the leaf, one write, or what splits and merges take.
    pub(super) fn commit(&mut self, now: Nanos, group: BlockId) -> Result<Nanos, IndexError> {
        let pool = &mut self.tree.above;
        let leaf = pool.block(group).span.at;
        let taken = pool.take(group);
        match self.tree.change_leaf(now, leaf, &changes(&taken)) {
            Ok(now) => {
                let counts = &mut self.tree.above.counts;
                counts.groups += 1;
                counts.committed += taken.len() as u64;
                Ok(now)
            }
            Err(error) => {
                self.tree.above.restore(taken);
                Err(error)
            }
        }
    }

    /// Commits the group of a key that waits; forms it first.
    fn commit_key(&mut self, mut now: Nanos, key: Key) -> Result<Nanos, IndexError> {
        let id = self.tree.above.locate(key);
        if self.tree.above.block(id).level > 0 {
            (_, now) = self.leaf_of(now, key)?;
        }
        if !self.tree.above.requests.contains_key(&key) {
            // Its leaf left the memory on the way.
            return Ok(now);
        }
        let group = self.tree.above.locate(key);
        self.commit(now, group)
    }

    /// Commits groups one after the other; what one does to the blocks of another is looked up.
    fn commit_super_group(
        &mut self,
        mut now: Nanos,
        groups: &[BlockId],
    ) -> Result<Nanos, IndexError> {
        let pool = &mut self.tree.above;
        pool.counts.super_groups += 1;
        pool.counts.super_members += groups.len() as u64;
        let mut ranges: Vec<(Key, Key)> = groups
            .iter()
            .map(|&id| pool.block(id).span)
            .map(|span| (span.low, span.high))
            .collect();
        ranges.sort_unstable();
        for (low, high) in ranges {
            while let Some((&key, _)) = self.tree.above.requests.range(low..=high).next() {
                now = self.commit_key(now, key)?;
            }
        }
        Ok(now)
    }

    /// Commits all that waits, from left to right.
    pub(super) fn commit_everything(&mut self, mut now: Nanos) -> Result<Nanos, IndexError> {
        while let Some((&key, _)) = self.tree.above.requests.first_key_value() {
            now = self.commit_key(now, key)?;
        }
        Ok(now)
    }
}
