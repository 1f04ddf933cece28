//! Checks the whole tree: reachability, order, sizes, fragments, segments, memory.

use super::super::{Key, Value};
use super::log::Link;
use super::node::{Delta, Head, apply};
use super::{BwDelta, NONE};
use flagstone::units::Lpn;

impl BwDelta {
    /// Checks every node, from the root down; then the numbers of nodes, the log, and the memory.
    pub(super) fn check_all(&mut self) -> Result<(), String> {
        let mut seen = vec![false; self.map.len()];
        let mut fragments: Vec<Link> = Vec::new();
        // Number and level of a node, and its key bounds: from the lowest to below the highest.
        let root = (self.root, self.height, 0, None);
        let mut todo: Vec<(u32, u8, Key, Option<Key>)> = vec![root];
        while let Some((number, level, low, high)) = todo.pop() {
            let fail = |what: String| Err(format!("node {number} at level {level}: {what}"));
            match seen.get_mut(number as usize) {
                Some(seen) if number != 0 && !*seen => *seen = true,
                Some(_) => return fail("it is reached twice".to_string()),
                None => return fail("there is no such number".to_string()),
            }
            let records = match self.content(number, level, &mut fragments) {
                Ok(records) => records,
                Err(what) => return fail(what),
            };
            if let Some(pair) = records.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
                return fail(format!(
                    "keys {} and {} are not in order",
                    pair[0].0, pair[1].0
                ));
            }
            let outside = |&&(key, _): &&(Key, Value)| key < low || high.is_some_and(|h| key >= h);
            if let Some((key, _)) = records.iter().find(outside) {
                return fail(format!("key {key} is not from {low} to below {high:?}"));
            }
            // A leaf may have new deltas since its consolidation; inner nodes are consolidated at
            // once.
            let slack = if level == 0 {
                usize::from(self.chain_max)
            } else {
                0
            };
            let (least, most) = (self.node_min.saturating_sub(slack), self.node_max + slack);
            let is_root = number == self.root;
            let is_wrong = records.len() > most || (records.len() < least && !is_root);
            if is_wrong && !self.is_inherited(number) {
                return fail(format!(
                    "{} records are not {least} to {most}",
                    records.len()
                ));
            }
            if level == 0 {
                continue;
            }
            if records.first().map(|&(key, _)| key) != Some(low) || records.len() < 2 {
                return fail(
                    "an inner node begins with its lowest key and has two children".into(),
                );
            }
            for (i, &(key, child)) in records.iter().enumerate() {
                let next = records.get(i + 1).map(|&(key, _)| key).or(high);
                todo.push((child as u32, level - 1, key, next));
            }
        }
        self.check_numbers(&seen)?;
        self.check_log(fragments)?;
        self.check_memory()
    }

    /// The records of a node. Fails if flash and memory both have them and differ.
    fn content(
        &mut self,
        number: u32,
        level: u8,
        fragments: &mut Vec<Link>,
    ) -> Result<Vec<(Key, Value)>, String> {
        let entry = *self.entry(number);
        let mut links = Vec::new();
        let mut records = Vec::new();
        let mut found: Vec<Delta> = Vec::new();
        let mut link = entry.link;
        while link != Link::NONE {
            let bytes = self.log.inspect(&mut self.cache, link)?;
            let head = Head::parse(&bytes).ok_or("a fragment is not there")?;
            if (head.node, head.version, head.level) != (number, entry.version, level) {
                return Err(format!("the fragment at {} is another node's", link.at()));
            }
            if self.codec.length(&head) != link.length() || links.contains(&link) {
                return Err(format!("the fragment at {} has a wrong length", link.at()));
            }
            links.push(link);
            if head.is_base {
                self.codec.read_base(&head, &bytes, &mut records);
            } else {
                self.codec.read_deltas(&head, &bytes, &mut found);
                if head.prev == Link::NONE {
                    return Err("its deltas have no base".to_string());
                }
            }
            link = head.prev;
        }
        for &delta in found.iter().rev() {
            apply(&mut records, delta);
        }
        fragments.extend_from_slice(&links);
        if entry.link != Link::NONE && found.len() > usize::from(entry.chain) {
            return Err(format!(
                "{} deltas, counted were {}",
                found.len(),
                entry.chain
            ));
        }
        let Some(slot) = entry.slot() else {
            if entry.link == Link::NONE {
                return Err("it is nowhere".to_string());
            }
            let chain = u16::from(entry.chain) + u16::from(entry.waiting);
            if entry.waiting > 0 && (level > 0 || chain >= self.chain_max) {
                return Err(format!("{chain} deltas, of which some wait"));
            }
            let deltas: Vec<Delta> = self.waiting.list(entry.at, entry.waiting).collect();
            for &delta in deltas.iter().rev() {
                apply(&mut records, delta);
            }
            return Ok(records);
        };
        let node = &self.nodes[slot as usize];
        if (node.number, node.level) != (number, level) {
            return Err("another node is in its place in memory".to_string());
        }
        let waits = self.chain_max > 1 && !self.is_inherited(number);
        if node.chain >= self.chain_max && waits {
            return Err(format!(
                "it has {} deltas and was not consolidated",
                node.chain
            ));
        }
        if (entry.link == Link::NONE || level > 0) && node.is_dirty() && !node.structural {
            return Err("a settle would not write it".to_string());
        }
        links.sort_unstable();
        let mut here = node.links.clone();
        here.sort_unstable();
        if here != links {
            return Err("it remembers other fragments than there are".to_string());
        }
        if node.rebased {
            return Ok(node.records.clone());
        }
        for &delta in &node.deltas {
            apply(&mut records, delta);
        }
        if node.records != records {
            return Err("memory and flash have different records".to_string());
        }
        Ok(records)
    }

    /// Checks that every number belongs to a reached node, or is unused.
    fn check_numbers(&self, seen: &[bool]) -> Result<(), String> {
        let mut unused = vec![false; seen.len()];
        for &number in &self.unused {
            if std::mem::replace(&mut unused[number as usize], true) {
                return Err(format!("number {number} is unused twice"));
            }
        }
        for number in 1..seen.len() {
            let entry = &self.map[number];
            if seen[number] == unused[number] {
                return Err(format!("number {number} is unused and reached, or neither"));
            }
            if unused[number] && (entry.link != Link::NONE || entry.at != NONE) {
                return Err(format!("number {number} is unused and has a place"));
            }
        }
        Ok(())
    }

    /// Checks that fragments do not overlap, and that the live bytes of each segment are correct.
    fn check_log(&mut self, mut fragments: Vec<Link>) -> Result<(), String> {
        fragments.sort_unstable();
        let overlaps = |pair: &&[Link]| pair[0].at() + pair[0].length() > pair[1].at();
        if let Some(pair) = fragments.windows(2).find(overlaps) {
            return Err(format!(
                "fragments at {} and {} overlap",
                pair[0].at(),
                pair[1].at()
            ));
        }
        let mut live = vec![0; self.log.segments.len()];
        for link in fragments {
            live[link.at() / self.log.segment_bytes()] += link.length() as u32;
        }
        let mut used: Vec<Lpn> = self.meta.pages().to_vec();
        for (i, segment) in self.log.segments.iter().enumerate() {
            if segment.live != live[i] {
                return Err(format!(
                    "segment {i} has {} live bytes, counted were {}",
                    live[i], segment.live
                ));
            }
            if self.log.free.contains(&(i as u32)) && segment.live > 0 {
                return Err(format!("segment {i} is free and has live bytes"));
            }
            used.extend(self.log.pages_of(i as u32));
        }
        let total: u64 = live.iter().map(|&live| u64::from(live)).sum();
        if total != self.log.live {
            return Err(format!(
                "{total} bytes live, counted were {}",
                self.log.live
            ));
        }
        self.space.check(used)
    }

    /// Checks that the order of use has every node in memory, and that byte counts are right.
    fn check_memory(&self) -> Result<(), String> {
        let (mut at, mut newer, mut bytes, mut nodes) = (self.newest, NONE, 0, 0);
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.newer != newer || self.map[node.number as usize].slot() != Some(at) {
                return Err(format!(
                    "the order of use is broken at node {}",
                    node.number
                ));
            }
            if node.counted != node.bytes() {
                return Err(format!(
                    "the bytes of node {} changed uncounted",
                    node.number
                ));
            }
            bytes += node.counted;
            nodes += 1;
            (newer, at) = (at, node.older);
        }
        if bytes != self.used || nodes + self.vacant.len() != self.nodes.len() {
            return Err("nodes in memory are not counted rightly".to_string());
        }
        let deltas = self.waiting.bytes();
        if self.used + deltas > self.room() && nodes > 0 {
            return Err(format!(
                "nodes use {bytes} bytes and deltas {deltas} of {}",
                self.room()
            ));
        }
        let lists = self.map.iter().filter(|entry| entry.waiting > 0);
        self.waiting
            .check(lists.map(|entry| (entry.at, entry.waiting)))
    }
}

#[cfg(test)]
mod tests;
