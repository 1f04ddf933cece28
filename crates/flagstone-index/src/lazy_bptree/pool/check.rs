//! Checks the pool against the tree below it.

use super::super::super::bptree::Span;
use super::{NEVER, Pool, Room};
use crate::Key;
use flagstone::units::Lpn;
use std::collections::BTreeMap;

impl Pool {
    /// Checks ranges, counts and invariant O. `nodes` lists the nodes of the tree with levels and
    /// entries.
    ///
    /// # Errors
    /// Describes the inconsistency.
    pub(in super::super) fn check(&mut self, nodes: &[(Span, u32, usize)]) -> Result<(), String> {
        let nodes: BTreeMap<Lpn, (Span, u32, usize)> =
            nodes.iter().map(|&node| (node.0.at, node)).collect();
        let (len, memory) = (self.requests.len(), self.memory());
        let fits = match self.room {
            Room::Requests(requests) => len <= requests,
            Room::Bytes(bytes) => len <= 1 || memory.0 + memory.1 <= bytes as u64,
        };
        if !fits {
            let room = self.room;
            return Err(format!("{len} requests in {memory:?} bytes, of {room:?}"));
        }
        let all = self.between(0, Key::MAX);
        let (mut owned, mut seen, mut owed) = (0, 0, [0; 2]);
        let mut stack = vec![self.root];
        while let Some(id) = stack.pop() {
            let block = self.get(id).ok_or("a block names one that is gone")?;
            let (span, level) = (block.span(), u32::from(block.level()));
            let Span { at, low, high } = span;
            let groups = || self.groups(id);
            seen += 1;
            owned += block.own as usize;
            owed[0] += (block.own * level) as usize;
            owed[1] += (block.own * level.saturating_sub(1)) as usize;
            let Some(&(of_node, level_of_node, len)) = nodes.get(&at) else {
                return Err(format!("a block stands for page {at}, which is no node"));
            };
            if (span, level) != (of_node, level_of_node) {
                return Err(format!(
                    "the block of page {at} has {low}..={high} at level {level}, the node has \
                     {}..={} at level {level_of_node}",
                    of_node.low, of_node.high
                ));
            }
            if block.node_size().is_some_and(|size| size != len) {
                return Err(format!(
                    "the block of page {at} says that it has {:?} entries, not {len}",
                    block.node_size()
                ));
            }
            if self.of_page(at) != Some(id) {
                return Err(format!("the block of page {at} is not found by it"));
            }
            if id != self.root && block.own == 0 && groups().len() == 0 {
                return Err(format!("the block of page {at} is empty"));
            }
            let (mut own, mut growth) = (0, 0);
            let (mut oldest, mut latest) = (NEVER, 0);
            for (_, key, waiting) in self.requests.of(block.list) {
                own += 1;
                growth += waiting.request.growth();
                (oldest, latest) = (oldest.min(waiting.stamp), latest.max(waiting.stamp));
                let child = self.child_with(self.index(id), key);
                if !(low..=high).contains(&key) || child.is_some() {
                    return Err(format!(
                        "invariant O: the request for key {key} does not belong to the block of \
                         page {at}"
                    ));
                }
            }
            let fits = if block.has_latest(self.policy) {
                block.time >= latest
            } else {
                block.time <= oldest
            };
            if !fits {
                return Err(format!(
                    "the block of page {at} does not have the time of its requests"
                ));
            }
            let counted = (block.own, block.growth());
            if counted != (own, if level == 0 { growth } else { 0 }) {
                return Err(format!(
                    "the block of page {at} has {own} requests in its list, and says {counted:?}"
                ));
            }
            let mut from = Some(low);
            for child in groups() {
                let range = self.block(child).span();
                let inside = from.is_some_and(|from| from <= range.low);
                if !inside || range.high > high || self.parent(child) != Some(id) {
                    return Err(format!(
                        "a child of the block of page {at} is out of its place"
                    ));
                }
                from = range.high.checked_add(1);
            }
            stack.extend(groups());
        }
        if (owned, seen, self.blocks.len()) != (self.requests.len(), self.by_page.len(), seen)
            || owed != [self.owed.blocks, self.owed.indexes]
            || all.iter().any(|&(key, _)| self.requests.get(key).is_none())
        {
            return Err(format!(
                "blocks have {owned} requests of {}, and {seen} blocks of {} are reached",
                self.requests.len(),
                self.by_page.len()
            ));
        }
        self.check_least()
    }
}
