//! Commits of the pool: when it is full, and in a flush.

use super::super::bptree::Change;
use super::super::{Key, Result};
use super::LazyTree;
use super::pool::{BlockId, Waiting};
use super::super_group::SuperGroups;
use flagstone::units::Nanos;

impl LazyTree {
    /// Commits victims until the pool, `tree.above`, has room (algorithm 1).
    pub(super) fn make_room(&mut self, mut now: Nanos) -> Result<Nanos> {
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
            // Choosing among groups reads nodes, which takes frames. A dirty leaf evicted then has
            // its group committed, which may have been a victim. If that made room, nothing is left
            // to do; otherwise the victims that remain are committed.
            if !self.tree.above.is_full() {
                break;
            }
            victims = self.alive(victims);
            now = match victims.as_slice() {
                // Nothing was found, or all was committed meanwhile: the group of the lowest key.
                [] => match self.tree.above.between(0, Key::MAX).first() {
                    Some(&(key, _)) => self.commit_key(now, key)?,
                    None => return Ok(now),
                },
                &[victim] => self.commit(now, victim)?,
                victims => self.commit_super_group(now, victims)?,
            };
        }
        Ok(now)
    }

    /// Commits a group: one read and one write of its leaf, plus splits and merges.
    pub(super) fn commit(&mut self, now: Nanos, group: BlockId) -> Result<Nanos> {
        let pool = &mut self.tree.above;
        let leaf = pool.block(group).span().at;
        let taken = pool.take(group);
        let of = |&(key, waiting): &(Key, Waiting)| (key, waiting.request.value());
        let changes: Vec<Change> = taken.iter().map(of).collect();
        let done = if self.one_by_one {
            self.apply_one_by_one(now, &changes)
        } else {
            self.tree.change_leaf(now, leaf, &changes)
        };
        let pool = &mut self.tree.above;
        if done.is_ok() {
            pool.counts.groups_committed += 1;
            pool.counts.requests_committed += taken.len() as u64;
        } else {
            pool.restore(&taken);
        }
        done
    }

    /// Applies each request of a group from the root. Meanwhile, leaves that are evicted do not get
    /// the requests that wait for them.
    fn apply_one_by_one(&mut self, mut now: Nanos, changes: &[Change]) -> Result<Nanos> {
        let amends = std::mem::replace(&mut self.tree.above.on_eviction, false);
        let applied = changes.iter().try_for_each(|change| {
            now = (self.tree).change_found(now, change.0, std::slice::from_ref(change))?;
            Ok(())
        });
        self.tree.above.on_eviction = amends;
        applied.map(|()| now)
    }

    /// Commits the group of a waiting key; forms the group first.
    fn commit_key(&mut self, mut now: Nanos, key: Key) -> Result<Nanos> {
        let id = self.tree.above.locate(key);
        if self.tree.above.block(id).level() > 0 {
            (.., now) = self.leaf_of(now, key)?;
        }
        if self.tree.above.requests.get(key).is_none() {
            // The leaf was evicted meanwhile, which committed the request.
            return Ok(now);
        }
        let group = self.tree.above.locate(key);
        self.commit(now, group)
    }

    /// Commits groups one by one. Looks up the blocks of each group again, since an earlier commit
    /// may have changed them.
    fn commit_super_group(&mut self, mut now: Nanos, groups: &[BlockId]) -> Result<Nanos> {
        let pool = &mut self.tree.above;
        pool.counts.super_groups_committed += 1;
        pool.counts.super_group_members += groups.len() as u64;
        let mut ranges: Vec<(Key, Key)> = groups
            .iter()
            .map(|&id| pool.block(id).span())
            .map(|span| (span.low, span.high))
            .collect();
        ranges.sort_unstable();
        for (low, high) in ranges {
            now = self.commit_between(now, low, high)?;
        }
        Ok(now)
    }

    /// Commits all waiting requests, from left to right.
    pub(super) fn commit_everything(&mut self, now: Nanos) -> Result<Nanos> {
        self.commit_between(now, 0, Key::MAX)
    }

    /// Commits the groups of all requests with keys from `low` to `high`, from left to right.
    fn commit_between(&mut self, mut now: Nanos, low: Key, high: Key) -> Result<Nanos> {
        for (key, _) in self.tree.above.between(low, high) {
            if self.tree.above.requests.get(key).is_some() {
                now = self.commit_key(now, key)?;
            }
        }
        Ok(now)
    }
}
