//! Nodes in memory: order of use, loading from the log and writing back to it, and cleaning of the
//! log.

use super::super::{Result, damaged};
use super::log::Link;
use super::node::{Delta, Head, Node, apply};
use super::waiting::CELL;
use super::{BwDelta, LEFT_TO_DELETIONS, Mapped, NONE};
use flagstone::units::Nanos;

impl BwDelta {
    pub(super) fn entry(&self, number: u32) -> &Mapped {
        &self.map[number as usize]
    }

    /// Creates an empty node in memory, which the next settle writes. Returns its number.
    pub(super) fn create(&mut self, level: u8) -> u32 {
        let number = match self.unused.pop() {
            Some(number) => number,
            None => {
                // Grow by an eighth: doubling would waste memory.
                if self.map.len() == self.map.capacity() {
                    self.map.reserve_exact(self.map.len() / 8 + 16);
                }
                self.map.push(Mapped::UNUSED);
                self.map.len() as u32 - 1
            }
        };
        self.inherit(number, false);
        let slot = self.admit(number, level);
        let node = &mut self.nodes[slot as usize];
        node.rebased = true;
        self.mark(slot);
        number
    }

    /// Whether a node may have the size and the deltas that other settings allow.
    pub(super) fn is_inherited(&self, number: u32) -> bool {
        self.inherited.get(number as usize) == Some(&true)
    }

    /// Records whether a node may have the size and the deltas that other settings allow.
    pub(super) fn inherit(&mut self, number: u32, is: bool) {
        let at = number as usize;
        if is && at >= self.inherited.len() {
            self.inherited.resize(at + 1, false);
        }
        if let Some(inherited) = self.inherited.get_mut(at) {
            *inherited = is;
        }
    }

    /// Marks a node that must be written before the structure on flash is complete.
    pub(super) fn mark(&mut self, slot: u32) {
        let node = &mut self.nodes[slot as usize];
        if !node.structural {
            node.structural = true;
            self.pending.push(node.number);
        }
    }

    /// Gives a node a place in memory, as the most recently used. Its contents are empty; the
    /// caller fills them in.
    fn admit(&mut self, number: u32, level: u8) -> u32 {
        let entry = self.map[number as usize];
        let node = Node {
            number,
            level,
            links: Vec::new(),
            records: Vec::new(),
            rebased: false,
            deltas: Vec::new(),
            chain: u16::from(entry.chain),
            structural: false,
            counted: 0,
            newer: NONE,
            older: NONE,
        };
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.nodes[slot as usize] = node;
                slot
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        self.map[number as usize].at = slot;
        self.push_newest(slot);
        self.count(slot);
        slot
    }

    /// The place of a node that is in memory.
    ///
    /// # Panics
    /// The node is not in memory.
    #[inline]
    pub(super) fn slot_of(&self, number: u32) -> u32 {
        let slot = self.map[number as usize].slot();
        slot.expect("a node on the way is in memory")
    }

    /// The place of an inner node on the path, which is in memory unless a node occurs twice.
    pub(super) fn slot_above(&self, number: u32) -> Result<u32> {
        match self.map[number as usize].slot() {
            Some(slot) => Ok(slot),
            None => self.damaged(number, "stands above itself"),
        }
    }

    /// Marks a node in memory as most recently used.
    #[inline]
    pub(super) fn touch(&mut self, slot: u32) {
        self.counts.node_hits += 1;
        if self.newest != slot {
            self.unlink(slot);
            self.push_newest(slot);
        }
    }

    /// Makes a node the next to be evicted, if it is in memory.
    pub(super) fn cool(&mut self, number: u32) {
        let Some(slot) = self.map[number as usize].slot() else {
            return;
        };
        self.unlink(slot);
        let node = &mut self.nodes[slot as usize];
        (node.newer, node.older) = (self.oldest, NONE);
        match self.oldest {
            NONE => self.newest = slot,
            oldest => self.nodes[oldest as usize].older = slot,
        }
        self.oldest = slot;
    }

    /// Loads a node if necessary and marks it as used. Returns its place in memory.
    #[inline]
    pub(super) fn whole(&mut self, number: u32, level: u8, now: Nanos) -> Result<(u32, Nanos)> {
        if let Some(slot) = self.map[number as usize].slot() {
            self.touch(slot);
            return Ok((slot, now));
        }
        self.counts.node_misses += 1;
        self.load(number, level, now)
    }

    /// Reads the fragments of a node, newest first, and applies its waiting deltas.
    fn load(&mut self, number: u32, level: u8, mut now: Nanos) -> Result<(u32, Nanos)> {
        self.counts.loads += 1;
        let mut link = self.map[number as usize].link;
        let (mut records, mut links) = (Vec::new(), Vec::new());
        self.found.clear();
        loop {
            let (bytes, done) = self.log.read(&mut self.cache, link, now)?;
            now = done;
            self.counts.fragments_read += 1;
            let head = Head::parse(bytes).filter(|head| {
                let is_it = head.node == number && head.level == level;
                // Each fragment of a chain has at least one delta.
                is_it
                    && self.codec.length(head) == bytes.len()
                    && links.len() <= usize::from(u8::MAX)
            });
            let Some(head) = head else {
                let why = format!("the log has no fragment of node {number} there");
                return damaged(self.log.page_of(link), why);
            };
            links.push(link);
            if head.is_base {
                self.codec.read_base(&head, bytes, &mut records);
                break;
            }
            self.codec.read_deltas(&head, bytes, &mut self.found);
            link = head.prev;
        }
        let entry = &mut self.map[number as usize];
        let mut deltas = Vec::new();
        if entry.waiting > 0 {
            self.waiting.take(entry.at, entry.waiting, &mut deltas);
            (entry.at, entry.waiting) = (NONE, 0);
        }
        for &delta in self.found.iter().rev().chain(&deltas) {
            apply(&mut records, delta);
        }
        let nodes = 1..self.map.len() as u64;
        let leads_on = !records.is_empty() && records.iter().all(|(_, at)| nodes.contains(at));
        if level > 0 && !leads_on {
            return self.damaged(number, "names a child that cannot be");
        }
        let slot = self.admit(number, level);
        let node = &mut self.nodes[slot as usize];
        node.chain += deltas.len() as u16;
        (node.records, node.links, node.deltas) = (records, links, deltas);
        self.count(slot);
        Ok((slot, now))
    }

    /// The error for a damaged node.
    pub(super) fn damaged<T>(&self, number: u32, what: &str) -> Result<T> {
        let at = self.log.page_of(self.map[number as usize].link);
        damaged(at, format!("node {number} {what}"))
    }

    /// Adds a waiting delta to a leaf that is not in memory. Returns the leaf's number of deltas.
    pub(super) fn wait(&mut self, leaf: u32, delta: Delta) -> u16 {
        let entry = &mut self.map[leaf as usize];
        entry.at = self.waiting.push(entry.at, entry.waiting, delta);
        entry.waiting += 1;
        self.counts.blind_deltas += 1;
        u16::from(entry.chain) + u16::from(entry.waiting)
    }

    /// Writes the waiting deltas of a leaf, if any, as one fragment.
    pub(super) fn flush_waiting(&mut self, leaf: u32, now: Nanos) -> Result<Nanos> {
        let entry = self.map[leaf as usize];
        if entry.waiting == 0 {
            return Ok(now);
        }
        self.found.clear();
        let deltas = self.waiting.list(entry.at, entry.waiting);
        self.found.extend(deltas);
        self.found.reverse();
        let head = Head {
            node: leaf,
            version: entry.version,
            level: 0,
            is_base: false,
            count: self.found.len(),
            prev: entry.link,
        };
        self.codec.deltas(&head, &self.found, &mut self.bytes);
        let (log, space) = (&mut self.log, &mut self.space);
        let (link, done) = log.append(&mut self.cache, space, &self.bytes, now)?;
        // Frees the cells; the deltas are in the log.
        self.found.clear();
        self.waiting.take(entry.at, entry.waiting, &mut self.found);
        let chain = entry.chain + entry.waiting;
        self.map[leaf as usize] = Mapped {
            link,
            at: NONE,
            chain,
            waiting: 0,
            ..entry
        };
        self.counts.deltas_flushed += 1;
        Ok(done)
    }

    /// Bytes of the map of nodes.
    pub(super) fn map_bytes(&self) -> usize {
        self.map.capacity() * size_of::<Mapped>() + self.unused.capacity() * 4
    }

    /// Bytes that nodes and deltas may take.
    pub(super) fn room(&self) -> usize {
        if !self.map_charged {
            return self.budget;
        }
        let (_, segments) = self.log.memory();
        let rest = self
            .budget
            .saturating_sub(self.map_bytes() + segments as usize);
        rest.max(self.budget / 8)
    }

    /// Maximum number of waiting deltas.
    pub(super) fn delta_room(&self) -> usize {
        let room = self.room();
        let rest = room.saturating_sub(self.inner);
        let share = (rest as f64 * self.delta_share) as usize;
        share.max(room / 8) / CELL
    }

    /// Writes an eighth of the waiting deltas: those of the leaves with the most (D5). Goes at most
    /// once round the map of nodes, from where the last call stopped.
    fn flush_most(&mut self, mut now: Nanos) -> Result<Nanos> {
        let goal = self.waiting.used.div_ceil(8);
        let threshold = self.waiting.threshold(goal);
        let end = self.waiting.used - goal;
        for _ in 0..self.map.len() {
            self.hand = if self.hand + 1 < self.map.len() {
                self.hand + 1
            } else {
                1
            };
            if self.map[self.hand].waiting >= threshold {
                now = self.flush_waiting(self.hand as u32, now)?;
                if self.waiting.used <= end {
                    break;
                }
            }
        }
        Ok(now)
    }

    /// Whether a base may have this many records.
    pub(super) fn fits(&self, number: u32, records: usize) -> bool {
        records <= self.node_max && (records >= self.node_min || number == self.root)
    }

    /// Writes a node to the log, if it has changes: a base if it is `rebased`, otherwise its new
    /// deltas as a fragment that names the one before.
    pub(super) fn flush_node(&mut self, slot: u32, now: Nanos) -> Result<Nanos> {
        let node = &self.nodes[slot as usize];
        if !node.is_dirty() {
            return Ok(now);
        }
        let number = node.number;
        let entry = self.map[number as usize];
        if node.rebased {
            let version = entry.version.wrapping_add(1);
            self.codec.base(node, version, &mut self.bytes);
            let (log, space) = (&mut self.log, &mut self.space);
            let (link, done) = log.append(&mut self.cache, space, &self.bytes, now)?;
            // A node of the wrong size is consolidated, and thereby split or merged, with the next
            // delta.
            let fits = self.fits(number, self.nodes[slot as usize].records.len());
            let chain = if fits { 0 } else { self.chain_max - 1 };
            let node = &mut self.nodes[slot as usize];
            for old in node.links.drain(..) {
                self.log.kill(old)?;
            }
            node.links.push(link);
            node.rebased = false;
            node.structural = false;
            node.chain = chain;
            let entry = &mut self.map[number as usize];
            (entry.link, entry.version, entry.chain) = (link, version, chain as u8);
            self.counts.bases_flushed += 1;
            self.count(slot);
            return Ok(done);
        }
        let head = Head {
            node: number,
            version: entry.version,
            level: node.level,
            is_base: false,
            count: node.deltas.len(),
            prev: entry.link,
        };
        self.codec.deltas(&head, &node.deltas, &mut self.bytes);
        let (log, space) = (&mut self.log, &mut self.space);
        let (link, done) = log.append(&mut self.cache, space, &self.bytes, now)?;
        let node = &mut self.nodes[slot as usize];
        node.links.push(link);
        node.deltas.clear();
        node.structural = false;
        let entry = &mut self.map[number as usize];
        (entry.link, entry.chain) = (link, node.chain as u8);
        self.counts.deltas_flushed += 1;
        self.count(slot);
        Ok(done)
    }

    /// Releases a node's place in memory.
    pub(super) fn drop_resident(&mut self, slot: u32) {
        self.unlink(slot);
        let node = &mut self.nodes[slot as usize];
        self.map[node.number as usize].at = NONE;
        self.used -= node.counted;
        if node.level > 0 {
            self.inner -= node.counted;
        }
        (node.records, node.deltas, node.links) = (Vec::new(), Vec::new(), Vec::new());
        self.vacant.push(slot);
    }

    /// Discards a node in memory that is no longer needed.
    pub(super) fn discard(&mut self, slot: u32) -> Result<()> {
        let node = &mut self.nodes[slot as usize];
        let number = node.number;
        for link in node.links.drain(..) {
            self.log.kill(link)?;
        }
        self.drop_resident(slot);
        let entry = &mut self.map[number as usize];
        (entry.link, entry.chain) = (Link::NONE, 0);
        self.unused.push(number);
        Ok(())
    }

    /// Ends an operation: evicts what exceeds the memory limit, and cleans the log if necessary.
    #[inline]
    pub(super) fn finish(&mut self, now: Nanos) -> Result<Nanos> {
        let mut now = self.fit(now)?;
        for _ in 0..4 {
            let Some(segment) = self.to_clean() else {
                break;
            };
            now = self.clean(segment, now)?;
            now = self.fit(now)?;
        }
        Ok(now)
    }

    /// Evicts deltas and nodes until the rest fits.
    #[inline]
    pub(super) fn fit(&mut self, mut now: Nanos) -> Result<Nanos> {
        loop {
            if self.waiting.used > self.delta_room() {
                now = self.flush_most(now)?;
            } else if self.used + self.waiting.bytes() <= self.room() {
                break;
            } else if !self.compact() {
                if self.oldest == NONE {
                    break;
                }
                now = self.evict(now)?;
            }
        }
        Ok(now)
    }

    /// Releases memory of more deltas than may wait now. Returns whether there was any.
    fn compact(&mut self) -> bool {
        let room = self.delta_room();
        if self.waiting.bytes() / CELL <= room + room / 8 + 32 {
            return false;
        }
        let lists = self.map.iter_mut().filter(|entry| entry.waiting > 0);
        let lists = lists.map(|entry| (&mut entry.at, entry.waiting));
        self.waiting.compact(room, lists);
        true
    }

    /// Evicts the least recently used leaf, or an inner node if there is no leaf. Deltas that are
    /// not on flash wait if there is room for them; otherwise the node is written.
    fn evict(&mut self, now: Nanos) -> Result<Nanos> {
        // Leaves go first: an inner node saves a read for each search below it.
        while self.used > self.inner && self.nodes[self.oldest as usize].level > 0 {
            let inner = self.oldest;
            self.unlink(inner);
            self.push_newest(inner);
        }
        let slot = self.oldest;
        self.counts.evictions += 1;
        let dirty = self.nodes[slot as usize].is_dirty();
        let evicted = &mut self.accesses.evicted_for_reads;
        if dirty {
            evicted.dirty += 1
        } else {
            evicted.clean += 1
        }
        let node = &mut self.nodes[slot as usize];
        let may_wait = node.level == 0 && !node.rebased && !node.structural;
        let deltas = node.deltas.len();
        if may_wait && deltas > 0 && self.waiting.used + deltas <= self.delta_room() {
            let (number, deltas) = {
                let node = &mut self.nodes[slot as usize];
                (node.number, std::mem::take(&mut node.deltas))
            };
            self.drop_resident(slot);
            let entry = &mut self.map[number as usize];
            for delta in deltas {
                entry.at = self.waiting.push(entry.at, entry.waiting, delta);
                entry.waiting += 1;
            }
            return Ok(now);
        }
        let now = self.flush_node(slot, now)?;
        self.drop_resident(slot);
        Ok(now)
    }

    /// Number of segments that can still be filled.
    pub(super) fn segments_left(&self) -> u32 {
        self.space.fresh() / self.log.segment_pages + self.log.free.len() as u32
    }

    /// The segment to clean: the one with the fewest live bytes, if the log has too many dead bytes
    /// compared with its live ones, or the store has few free pages. Ignores unused ends of
    /// segments where no fragment fitted.
    #[inline]
    fn to_clean(&self) -> Option<u32> {
        let (used, live) = (self.log.used(), self.log.live);
        let spare = 2 * self.log.segment_bytes() as u64;
        if used <= live + spare {
            return None;
        }
        let left = self.segments_left();
        let is_short = left <= LEFT_TO_DELETIONS;
        if used as f64 <= live as f64 * self.log_factor + spare as f64 && !is_short {
            return None;
        }
        let segment = self.log.victim()?;
        let live = self.log.segments[segment as usize].live as usize;
        (live + self.longest() <= self.log.segment_bytes()).then_some(segment)
    }

    /// Cleans a segment: each node with a fragment in it that is live is rewritten as one new
    /// fragment, and the segment is free then. A rewritten node has a new version, so its other
    /// fragments, of the old one, are dead.
    fn clean(&mut self, segment: u32, mut now: Nanos) -> Result<Nanos> {
        if self.log.segments[segment as usize].live > 0 {
            now = self.log.begin_cleaning(&mut self.cache, segment, now)?;
            let mut offset = 0;
            while let Some(head) = Head::parse(self.log.image(offset)) {
                offset += self.codec.length(&head);
                let entry = self.map.get(head.node as usize);
                let is_live = entry
                    .is_some_and(|entry| entry.link != Link::NONE && entry.version == head.version);
                if is_live {
                    let moved = self.relocate(head.node, head.level, now);
                    now = moved.inspect_err(|_| self.log.stop_cleaning())?;
                }
            }
            if self.log.segments[segment as usize].live > 0 {
                self.log.stop_cleaning();
                let at = self.log.segments[segment as usize].first;
                return damaged(
                    at,
                    "a segment of the log has live bytes that no fragment has",
                );
            }
        }
        self.log.end_cleaning(segment);
        self.counts.segments_cleaned += 1;
        Ok(now)
    }

    /// Rewrites a node as one fragment at the end of the log.
    pub(super) fn relocate(&mut self, number: u32, level: u8, now: Nanos) -> Result<Nanos> {
        let was_here = self.map[number as usize].slot();
        let (slot, now) = match was_here {
            Some(slot) => (slot, now),
            None => self.load(number, level, now)?,
        };
        let node = &mut self.nodes[slot as usize];
        node.rebased = true;
        node.deltas.clear();
        let now = self.flush_node(slot, now)?;
        if was_here.is_none() {
            self.drop_resident(slot);
        }
        self.counts.nodes_relocated += 1;
        Ok(now)
    }

    /// Adds a delta to a node. Returns whether it changed anything.
    #[inline]
    pub(super) fn prepend(&mut self, slot: u32, delta: Delta) -> bool {
        let node = &mut self.nodes[slot as usize];
        if !apply(&mut node.records, delta) {
            return false;
        }
        if !node.rebased {
            node.deltas.push(delta);
        }
        node.chain += 1;
        self.count(slot);
        true
    }

    /// Recounts the bytes of a node.
    #[inline]
    pub(super) fn count(&mut self, slot: u32) {
        let node = &mut self.nodes[slot as usize];
        let bytes = node.bytes();
        self.used = self.used - node.counted + bytes;
        if node.level > 0 {
            self.inner = self.inner - node.counted + bytes;
        }
        node.counted = bytes;
    }

    fn push_newest(&mut self, slot: u32) {
        let node = &mut self.nodes[slot as usize];
        (node.newer, node.older) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.nodes[newest as usize].newer = slot,
        }
        self.newest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let (newer, older) = {
            let node = &self.nodes[slot as usize];
            (node.newer, node.older)
        };
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
    }
}
