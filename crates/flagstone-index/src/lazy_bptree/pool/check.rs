//! Checks the pool against the tree below it.

use super::super::super::bptree::Span;
use super::{Count, Pool};
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
        if self.requests.len() > self.capacity {
            return Err(format!(
                "{} requests wait, {} have room",
                self.requests.len(),
                self.capacity
            ));
        }
        let all = self.between(0, Key::MAX);
        let mut owned = 0;
        let mut seen = 0;
        let mut stack = vec![self.root];
        while let Some(id) = stack.pop() {
            let block = self.get(id).ok_or("a block names one that is gone")?;
            let Span { at, low, high } = block.span;
            seen += 1;
            owned += block.own as usize;
            let Some(&(span, level, len)) = nodes.get(&at) else {
                return Err(format!("a block stands for page {at}, which is no node"));
            };
            if (span, level) != (block.span, u32::from(block.level)) {
                return Err(format!(
                    "the block of page {at} has {low}..={high} at level {}, the node has {}..={} \
                     at level {level}",
                    block.level, span.low, span.high
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
            if id != self.root && block.own == 0 && block.children().is_empty() {
                return Err(format!("the block of page {at} is empty"));
            }
            let mut count = Count::default();
            for (_, key, waiting) in self.requests.of(block.list) {
                count.take(&waiting);
                let child = block.children().iter();
                let mut child = child.filter(|child| (child.low..=child.high).contains(&key));
                if !(low..=high).contains(&key) || child.next().is_some() {
                    return Err(format!(
                        "invariant O: the request for key {key} does not belong to the block of \
                         page {at}"
                    ));
                }
            }
            if count.own > 0 && block.level == 0 && block.born > count.born {
                return Err(format!(
                    "the block of page {at} is younger than its requests"
                ));
            }
            if (count.own, count.growth) != (block.own as usize, i64::from(block.growth)) {
                return Err(format!(
                    "the block of page {at} has {} requests in its list, and says that it has {}",
                    count.own, block.own
                ));
            }
            let mut from = Some(low);
            for of_child in block.children() {
                let child = self.get(of_child.id);
                let child = child.ok_or("a block names one that is gone")?;
                let inside = from.is_some_and(|from| from <= child.span.low);
                let range = (child.span.low, child.span.high);
                if !inside
                    || child.span.high > high
                    || child.parent != Some(id)
                    || range != (of_child.low, of_child.high)
                {
                    return Err(format!(
                        "a child of the block of page {at} is out of its place"
                    ));
                }
                from = child.span.high.checked_add(1);
            }
            stack.extend(block.children().iter().map(|child| child.id));
        }
        if (owned, seen) != (self.requests.len(), self.by_page.len())
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
