//! The tree above the log: descent, consolidation, splits and merges, ranges.

use super::super::{Key, Result, Value};
use super::node::Delta;
use super::{BwDelta, LEFT_TO_DELETIONS};
use flagstone::units::Nanos;

impl BwDelta {
    /// Returns the number of the leaf that covers a key, without reading the leaf. Records the
    /// inner nodes on the way in `path`; all are loaded.
    #[inline]
    pub(super) fn descend(&mut self, key: Key, mut now: Nanos) -> Result<(u32, Nanos)> {
        self.path.clear();
        let mut number = self.root;
        for level in (1..=self.height).rev() {
            let (slot, done) = self.whole(number, level, now)?;
            now = done;
            let node = &self.nodes[slot as usize];
            self.cache
                .compared(u64::from(node.records.len().ilog2()) + 1);
            self.path.push(number);
            number = match node.child(key) {
                Some(at) => node.records[at].1 as u32,
                None => return self.damaged(number, "begins above a key that leads to it"),
            };
        }
        Ok((number, now))
    }

    /// Sets or removes the value of a key in its leaf.
    pub(super) fn change(&mut self, key: Key, value: Option<Value>, now: Nanos) -> Result<Nanos> {
        if value.is_some() && self.segments_left() < LEFT_TO_DELETIONS {
            return Err(self.space.full());
        }
        let (leaf, mut now) = self.descend(key, now)?;
        let delta = Delta { key, value };
        match self.map[leaf as usize].slot() {
            Some(_) => self.accesses.write_hits += 1,
            None => self.accesses.write_misses += 1,
        }
        if let Some(slot) = self.map[leaf as usize].slot() {
            self.touch(slot);
            let records = self.nodes[slot as usize].records.len() + 1;
            self.cache.compared(u64::from(records.ilog2()) + 1);
            if self.prepend(slot, delta) && self.nodes[slot as usize].chain >= self.chain_max {
                now = self.consolidate(leaf, self.path.len(), now)?;
            }
        } else if self.wait(leaf, delta) >= self.chain_max {
            now = self.consolidate(leaf, self.path.len(), now)?;
            // The leaf was read only to be rewritten, so evict it first.
            self.cool(leaf);
        }
        self.finish(now)
    }

    /// Makes the next fragment of a node a base, and splits or merges the node if its size is
    /// wrong. `depth` is the number of nodes of `path` above it.
    fn consolidate(&mut self, number: u32, depth: usize, now: Nanos) -> Result<Nanos> {
        let level = self.height - depth as u8;
        let (slot, now) = self.whole(number, level, now)?;
        self.rebase(slot);
        self.counts.consolidations += 1;
        let records = self.nodes[slot as usize].records.len();
        if records > self.node_max {
            return self.split(slot, depth, now);
        }
        if records < self.node_min && depth > 0 {
            return self.merge(number, depth, now);
        }
        self.inherit(number, false);
        Ok(now)
    }

    /// Makes the next fragment of a node a base.
    fn rebase(&mut self, slot: u32) {
        let node = &mut self.nodes[slot as usize];
        node.rebased = true;
        node.deltas.clear();
        node.chain = 0;
    }

    /// Splits a node into as many as its records need, and adds the new ones to the node above.
    fn split(&mut self, slot: u32, depth: usize, now: Nanos) -> Result<Nanos> {
        let node = &self.nodes[slot as usize];
        let (number, level) = (node.number, node.level);
        let (records, pieces) = (
            node.records.len(),
            node.records.len().div_ceil(self.node_max),
        );
        self.mark(slot);
        // A new root is created above the old one.
        let parent = match depth.checked_sub(1) {
            Some(above) => self.path[above],
            None => {
                let root = self.create(level + 1);
                let above = self.slot_of(root);
                self.nodes[above as usize]
                    .records
                    .push((0, u64::from(number)));
                (self.root, self.height) = (root, self.height + 1);
                root
            }
        };
        let above = self.slot_above(parent)?;
        for piece in (1..pieces).rev() {
            let new = self.create(level);
            let right = self.slot_of(new);
            let moved = self.nodes[slot as usize]
                .records
                .split_off(piece * records / pieces);
            let delta = Delta {
                key: moved[0].0,
                value: Some(u64::from(new)),
            };
            self.nodes[right as usize].records = moved;
            self.count(right);
            self.prepend(above, delta);
            self.counts.splits += 1;
        }
        self.nodes[slot as usize]
            .records
            .shrink_to(records / pieces + 8);
        self.count(slot);
        self.mark(above);
        self.balance(parent, depth.saturating_sub(1), now)
    }

    /// Merges a node with its left neighbour under the same parent, or the right one if it is the
    /// first. If both have too many records for one node, each gets half of them. An inherited
    /// neighbour may have so many or so few that the result has a wrong size as well.
    fn merge(&mut self, number: u32, depth: usize, now: Nanos) -> Result<Nanos> {
        let parent = self.path[depth - 1];
        let above = self.slot_above(parent)?;
        let entries = &self.nodes[above as usize].records;
        let at = entries
            .iter()
            .position(|&(_, child)| child == u64::from(number));
        let Some(at) = at else {
            return self.damaged(number, "is not named by the node above it");
        };
        if entries.len() == 1 {
            // Only below a root that is about to be removed.
            return Ok(now);
        }
        let at = at.max(1);
        let (left, right) = (entries[at - 1].1 as u32, entries[at].1 as u32);
        let old = entries[at].0;
        if self.is_inherited(left) || self.is_inherited(right) {
            self.inherit(left, true);
            self.inherit(right, true);
        }
        let level = self.height - depth as u8;
        let (left, now) = self.whole(left, level, now)?;
        let (right_slot, now) = self.whole(right, level, now)?;
        self.rebase(left);
        self.rebase(right_slot);
        let moved = std::mem::take(&mut self.nodes[right_slot as usize].records);
        let records = &mut self.nodes[left as usize].records;
        records.extend_from_slice(&moved);
        let all = records.len();
        self.mark(left);
        self.mark(above);
        let delta = Delta {
            key: old,
            value: None,
        };
        self.prepend(above, delta);
        if all <= self.node_max {
            self.discard(right_slot)?;
            self.counts.merges += 1;
        } else {
            let moved = self.nodes[left as usize].records.split_off(all / 2);
            let delta = Delta {
                key: moved[0].0,
                value: Some(u64::from(right)),
            };
            self.nodes[right_slot as usize].records = moved;
            self.mark(right_slot);
            self.count(right_slot);
            self.prepend(above, delta);
            self.counts.redistributions += 1;
        }
        self.count(left);
        self.balance(parent, depth - 1, now)
    }

    /// Called after a change below: consolidates an inner node if necessary, and removes a root
    /// with a single child.
    fn balance(&mut self, number: u32, depth: usize, now: Nanos) -> Result<Nanos> {
        let slot = self.slot_above(number)?;
        let node = &self.nodes[slot as usize];
        let records = node.records.len();
        if number == self.root && records == 1 {
            self.root = node.records[0].1 as u32;
            self.height -= 1;
            self.discard(slot)?;
            return Ok(now);
        }
        if node.chain >= self.chain_max || !self.fits(number, records) {
            return self.consolidate(number, depth, now);
        }
        Ok(now)
    }

    /// Appends the records with `from <= key <= to` below a node.
    pub(super) fn collect(
        &mut self,
        number: u32,
        level: u8,
        from: Key,
        to: Key,
        into: &mut Vec<(Key, Value)>,
        now: Nanos,
    ) -> Result<Nanos> {
        let (slot, now) = self.whole(number, level, now)?;
        let records = &self.nodes[slot as usize].records;
        self.cache.compared(records.len() as u64);
        if level == 0 {
            let start = records.partition_point(|&(key, _)| key < from);
            let wanted = records[start..].iter().take_while(|&&(key, _)| key <= to);
            into.extend(wanted);
            return self.finish(now);
        }
        let start = records.partition_point(|&(low, _)| low <= from);
        let start = start.saturating_sub(1);
        let below = records[start..].iter().take_while(|&&(low, _)| low <= to);
        let below: Vec<u32> = below.map(|&(_, child)| child as u32).collect();
        let mut now = now;
        for child in below {
            now = self.collect(child, level - 1, from, to, into, now)?;
        }
        Ok(now)
    }
}
