//! The Bw-delta tree: changes are added to leaves that are not read, and to their log on flash.
//!
//! Paper       [SAL] §4.1, which measures against it and calls it B^w_Delta: the tree of [BwTree]
//!             for one thread, over the log-structured store of [Llama].
//! Idea        A table in memory says where each node is: in memory, or its newest fragment in
//!             the log. A change is a delta in front of its leaf, whether that is in memory or
//!             not. Deltas of leaves that are not in memory wait; those of a leaf go to the log
//!             together, as one fragment, which names the one before it, down to a base. After
//!             eight deltas the leaf gets a new base, and is split or merged if it has to be.
//!             Fragments lie one behind the other, whatever page ends there, and are written many
//!             pages at a time.
//! Cost        A search reads each fragment of the leaf, one page or two. An insertion reads
//!             nothing, but for every eighth into a leaf, and programs a fraction of a page.
//! Symbols     paper: PID, mapping table, LSS     here: number of a node, map, log
//!
//!   map       number ──> memory            deltas ─ deltas ─ records
//!                    └─> newest fragment   [deltas] ──> [deltas] ──> [base]
//!
//!   log       | segment, full | segment, free | segment, full | segment in memory, being filled |
//!
//!   files     options.rs: settings · log.rs: segments · node.rs: nodes and fragments
//!             waiting.rs: deltas in memory · residents.rs: nodes in memory, cleaning
//!             tree.rs: the way to a leaf, splits and merges · check.rs
//!
//! Invariants  1. An inner node names its children by the lowest key that leads to them, in order;
//!                the leftmost of them by 0.
//!             2. A node but the root has node_min to node_max records after a consolidation, and
//!                at most chain_max deltas from then to the next.
//!             3. After a settle all nodes whose neighbours or children changed are on flash. Only
//!                deltas of leaves may be in memory alone.
//!             4. A fragment is live if its version is that of its node in the map.
//!
//! Departures  D1. A node that is in memory whole has its deltas applied; they count as a chain
//!                 all the same, so that the same is read and written.
//!             D2. The map is kept whole in memory, beyond the budget as a directory is, unless
//!                 `map_charged` is set. A settle writes the pages of it that changed; there is no
//!                 log of it.
//!             D3. A node that is cleaned is consolidated: its fragments become one base.
//!             D4. Inner nodes that have too few or too many children are mended at once, leaves
//!                 when they are consolidated.
//!             D5. Deltas of leaves that are not in memory have a share of it. When that is full,
//!                 an eighth of them is written, of the leaves that have the most, whenever these
//!                 were used: so a fragment has several deltas, and few of them make a leaf.
//!             D6. A leaf that was read for a consolidation alone is the first to leave; inner
//!                 nodes leave when no leaf is left in memory.
//!             D7. An update is one delta. The code that the paper names can only insert and
//!                 delete, so that it is two there; `update` = pair does the same, and has deleted
//!                 where the second is refused.

mod check;
mod log;
mod node;
mod options;
mod residents;
#[cfg(test)]
mod tests;
mod tree;
mod waiting;

use super::meta::Meta;
use super::space::Space;
use super::{
    BackingStore, Cache, Index, IndexError, IndexInfo, IndexStats, Key, Result, Settings, Value,
    counters,
};
use flagstone::layout;
use flagstone::layout::{Layout, get, put};
use flagstone::units::{Lpn, Nanos};
use flagstone_host::buffer::PoolStats;
use log::{LONGEST, Link, Log, Segment};
use node::{Codec, Delta, Head, Node, bw_fragment};
pub(super) use options::INFO;
use waiting::Waiting;

layout! {
    /// The head of a bw-delta index's own metadata. The map follows, with room for the next power
    /// of two of nodes, and the segments.
    pub bw_head: 28 => {
        ROOT:          4, "the number of the root";
        HEIGHT:        4, "levels above the leaves";
        NODES:         4, "numbers of nodes that were ever given, and one more";
        SEGMENTS:      4, "segments of the log";
        SEGMENT_PAGES: 4, "pages of a segment";
        CURRENT:       4, "the segment that is being filled";
        FILL:          4, "bytes of it that are";
    }
}

layout! {
    /// A node in the map of a bw-delta index.
    pub bw_entry: 11 => {
        LINK:    8, "position and length of its newest fragment, 0 if the number is not used";
        VERSION: 2, "of its base, and of the fragments behind that";
        CHAIN:   1, "deltas since its last consolidation";
    }
}

layout! {
    /// A segment in the log of a bw-delta index.
    pub bw_segment: 8 => {
        FIRST: 4, "its first page";
        LIVE:  4, "bytes of fragments that belong to a node; 0 if it is free";
    }
}

/// Records that this module keeps.
pub(super) const LAYOUTS: &[Layout] = &[
    bw_head::RECORD,
    bw_entry::RECORD,
    bw_segment::RECORD,
    bw_fragment::RECORD,
];

/// Space that insertions leave for deletions, in segments: a deletion also appends a fragment, and
/// frees bytes only when other fragments are moved.
const LEFT_TO_DELETIONS: u32 = 4;

/// Marks a node that is not in memory.
const NONE: u32 = u32::MAX;

/// A node's row in the map: its newest fragment on flash, and its place in memory.
#[derive(Debug, Clone, Copy)]
struct Mapped {
    link: Link,
    /// The node's index among the nodes in memory, or that of its newest waiting delta.
    at: u32,
    version: u16,
    /// Deltas on flash since the last consolidation.
    chain: u8,
    /// Number of deltas waiting for a leaf that is not in memory.
    waiting: u8,
}

impl Mapped {
    const UNUSED: Mapped = Mapped {
        link: Link::NONE,
        at: NONE,
        version: 0,
        chain: 0,
        waiting: 0,
    };

    /// The node's index among the nodes in memory, if it is in memory.
    #[inline]
    fn slot(&self) -> Option<u32> {
        (self.waiting == 0 && self.at != NONE).then_some(self.at)
    }
}

struct BwDelta {
    cache: Cache,
    meta: Meta,
    space: Space,
    log: Log,
    codec: Codec,
    chain_max: u16,
    node_max: usize,
    node_min: usize,
    log_factor: f64,
    delta_share: f64,
    /// Whether an update is stored as two deltas.
    pairs: bool,
    root: u32,
    /// The root's level.
    height: u8,
    /// Indexed by node number; number 0 is unused.
    map: Vec<Mapped>,
    /// Numbers that no node has.
    unused: Vec<u32>,
    /// Nodes of the store that was opened, by number, until their size is right: they may have been
    /// written with other settings. Empty for a new tree. Only for checks, and not counted as
    /// memory.
    inherited: Vec<bool>,
    /// Nodes in memory, including vacant slots.
    nodes: Vec<Node>,
    vacant: Vec<u32>,
    /// The slots of the most and of the least recently used node.
    newest: u32,
    oldest: u32,
    waiting: Waiting,
    /// The node at which the next search for deltas to write starts.
    hand: usize,
    /// Bytes of nodes in memory, and bytes of inner nodes among them.
    used: usize,
    inner: usize,
    /// The limit for nodes and deltas, and for the map if that is charged.
    budget: usize,
    map_charged: bool,
    /// Nodes that the next settle must write.
    pending: Vec<u32>,
    /// The inner nodes on the way to a leaf.
    path: Vec<u32>,
    /// Deltas read for a node, newest first, and a buffer for a fragment to write.
    found: Vec<Delta>,
    bytes: Vec<u8>,
    accesses: PoolStats,
    counts: Counts,
}

counters! {
    struct Counts {
        node_hits,
        node_misses,
        blind_deltas,
        delta_hits,
        loads,
        fragments_read,
        consolidations,
        splits,
        merges,
        redistributions,
        bases_flushed,
        deltas_flushed,
        evictions,
        segments_cleaned,
        nodes_relocated,
    }
}

pub(super) fn open(
    store: Box<dyn BackingStore>,
    settings: &Settings,
    now: Nanos,
) -> Result<(Box<dyn Index>, Nanos)> {
    let (index, now) = start(store, settings, now)?;
    Ok((Box::new(index), now))
}

/// Opens the index in a store, or makes a tree of one empty leaf. Memory that the log's buffers and
/// the page cache leave is the budget of nodes and deltas.
fn start(
    store: Box<dyn BackingStore>,
    settings: &Settings,
    now: Nanos,
) -> Result<(BwDelta, Nanos)> {
    let value_bytes = INFO.value_bytes(settings)?;
    if settings.text(&INFO, "buffer") != "lru" {
        return Err(IndexError::Settings(
            "bw-delta keeps nodes and not pages in memory: the least recently used goes, and \
             `buffer` can only be lru"
                .to_string(),
        ));
    }
    let page_bytes = store.page_bytes();
    let memory = INFO.memory(settings)? as usize;
    // The log's buffers take at most an eighth of the memory.
    let most = (memory / 16 / page_bytes).max(2) as u32;
    let segment_pages = settings.number(&INFO, "segment_pages", 2, 4096)?.min(most);
    let mut cache = Cache::new(store, 4, INFO.buffer(settings)?);
    let ((meta, space, own), mut now) = Meta::load(&mut cache, INFO.name, value_bytes, now)?;
    let mut index = BwDelta::new(cache, meta, space, Codec { value_bytes }, settings)?;
    match own {
        Some(own) => now = index.resume(&own, now)?,
        None => {
            index.log = Log::new(page_bytes, segment_pages);
            index.log.start(&mut index.space)?;
            index.root = index.create(0);
        }
    }
    if index.longest() > index.log.segment_bytes().min(LONGEST) {
        return Err(IndexError::Settings(format!(
            "a node of {} records has up to {} bytes, more than the {} of a segment of the log: \
             use a smaller node_max, more memory or more segment_pages",
            index.node_max,
            index.longest(),
            index.log.segment_bytes()
        )));
    }
    let buffers = 2 * index.log.segment_bytes() + index.longest() + 6 * page_bytes;
    index.budget = memory.saturating_sub(buffers);
    Ok((index, now))
}

impl BwDelta {
    /// An index without nodes, which has no log and no budget yet: see [`start`].
    fn new(
        cache: Cache,
        meta: Meta,
        space: Space,
        codec: Codec,
        settings: &Settings,
    ) -> Result<BwDelta> {
        let node_max = settings.number(&INFO, "node_max", 3, 4000)?;
        Ok(BwDelta {
            log: Log::new(cache.page_bytes(), 1),
            cache,
            meta,
            space,
            codec,
            chain_max: settings.number(&INFO, "chain_max", 1, 200)?,
            node_max,
            node_min: settings.number(&INFO, "node_min", 2, node_max.div_ceil(2))?,
            log_factor: settings.number(&INFO, "log_factor", 1.1, 10.0)?,
            delta_share: settings.number(&INFO, "delta_share", 0.1, 0.95)?,
            pairs: settings.choice(&INFO, "update", &[("blind", false), ("pair", true)])?,
            root: 0,
            height: 0,
            map: vec![Mapped::UNUSED],
            unused: Vec::new(),
            inherited: Vec::new(),
            nodes: Vec::new(),
            vacant: Vec::new(),
            newest: NONE,
            oldest: NONE,
            waiting: Waiting::new(settings.number(&INFO, "chain_max", 1, 200)?),
            hand: 1,
            used: 0,
            inner: 0,
            budget: 0,
            map_charged: settings.flag(&INFO, "map_charged")?,
            pending: Vec::new(),
            path: Vec::new(),
            found: Vec::new(),
            bytes: Vec::new(),
            accesses: PoolStats::default(),
            counts: Counts::default(),
        })
    }

    /// Size of the longest possible fragment.
    fn longest(&self) -> usize {
        let head = Head {
            node: 1,
            version: 0,
            level: 0,
            is_base: false,
            count: self.node_max + 2 * usize::from(self.chain_max),
            prev: Link::NONE,
        };
        let inner = Head { level: 1, ..head };
        self.codec.length(&head).max(self.codec.length(&inner))
    }

    /// Restores the state from the metadata.
    fn resume(&mut self, own: &[u8], now: Nanos) -> Result<Nanos> {
        let damaged = || IndexError::Damaged {
            at: Lpn(0),
            why: "the map of nodes or the table of segments makes no sense".to_string(),
        };
        let (head, rest) = own.split_at_checked(bw_head::SIZE).ok_or_else(damaged)?;
        let number = |field| get(head, field) as usize;
        let nodes = number(bw_head::NODES);
        let room = nodes.next_power_of_two() * bw_entry::SIZE;
        let (map, rest) = rest.split_at_checked(room).ok_or_else(damaged)?;
        for (i, entry) in map
            .chunks_exact(bw_entry::SIZE)
            .take(nodes)
            .enumerate()
            .skip(1)
        {
            let entry = Mapped {
                link: Link(get(entry, bw_entry::LINK)),
                at: NONE,
                waiting: 0,
                version: get(entry, bw_entry::VERSION) as u16,
                chain: get(entry, bw_entry::CHAIN) as u8,
            };
            if entry.link == Link::NONE {
                self.unused.push(i as u32);
            }
            self.inherit(i as u32, true);
            self.map.push(entry);
        }
        // Check before a count determines the size of a buffer.
        let segment_pages = number(bw_head::SEGMENT_PAGES) as u32;
        let pages = self.cache.store().pages();
        if !(1..=pages).contains(&segment_pages) {
            return Err(damaged());
        }
        self.log = Log::new(self.cache.page_bytes(), segment_pages);
        for segment in rest.chunks_exact(bw_segment::SIZE) {
            self.log.segments.push(Segment {
                first: Lpn(get(segment, bw_segment::FIRST) as u32),
                live: get(segment, bw_segment::LIVE) as u32,
            });
        }
        self.root = number(bw_head::ROOT) as u32;
        self.height = number(bw_head::HEIGHT) as u8;
        let (current, fill) = (number(bw_head::CURRENT), number(bw_head::FILL));
        let log = self.log.segments.len() * self.log.segment_bytes();
        let sound = self.log.segments.len() == number(bw_head::SEGMENTS)
            && current < self.log.segments.len()
            && fill <= self.log.segment_bytes()
            && (1..nodes).contains(&(self.root as usize))
            && self
                .log
                .segments
                .iter()
                .all(|s| u64::from(s.first.0) + u64::from(segment_pages) <= u64::from(pages))
            && self
                .log
                .segments
                .iter()
                .all(|s| s.live as usize <= self.log.segment_bytes())
            && self
                .map
                .iter()
                .all(|e| e.link.at() + e.link.length() <= log);
        if !sound {
            return Err(damaged());
        }
        self.log.resume(&mut self.cache, current as u32, fill, now)
    }

    /// Encodes the map of nodes and the table of segments: see [`bw_head`].
    fn metadata(&self) -> Vec<u8> {
        let mut own = vec![0; bw_head::SIZE];
        put(&mut own, bw_head::ROOT, u64::from(self.root));
        put(&mut own, bw_head::HEIGHT, u64::from(self.height));
        put(&mut own, bw_head::NODES, self.map.len() as u64);
        put(&mut own, bw_head::SEGMENTS, self.log.segments.len() as u64);
        put(
            &mut own,
            bw_head::SEGMENT_PAGES,
            u64::from(self.log.segment_pages),
        );
        put(&mut own, bw_head::CURRENT, u64::from(self.log.current));
        put(&mut own, bw_head::FILL, self.log.fill as u64);
        let room = self.map.len().next_power_of_two() * bw_entry::SIZE;
        own.resize(bw_head::SIZE + room, 0);
        let entries = own[bw_head::SIZE..].chunks_exact_mut(bw_entry::SIZE);
        for (into, entry) in entries.zip(&self.map) {
            put(into, bw_entry::LINK, entry.link.0);
            put(into, bw_entry::VERSION, u64::from(entry.version));
            put(into, bw_entry::CHAIN, u64::from(entry.chain));
        }
        for segment in &self.log.segments {
            let mut into = [0; bw_segment::SIZE];
            put(&mut into, bw_segment::FIRST, u64::from(segment.first.0));
            put(&mut into, bw_segment::LIVE, u64::from(segment.live));
            own.extend_from_slice(&into);
        }
        own
    }
}

impl Index for BwDelta {
    fn info(&self) -> &'static IndexInfo {
        &INFO
    }

    fn insert(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        self.change(key, Some(value), now)
    }

    fn update(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        let now = if self.pairs {
            self.change(key, None, now)?
        } else {
            now
        };
        self.change(key, Some(value), now)
    }

    fn delete(&mut self, now: Nanos, key: Key) -> Result<Nanos> {
        self.change(key, None, now)
    }

    /// Answers from a waiting delta of the key if there is one, without reading the leaf.
    fn get(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos)> {
        let (leaf, now) = self.descend(key, now)?;
        let entry = self.map[leaf as usize];
        if entry.waiting > 0 {
            self.cache.compared(u64::from(entry.waiting));
            let mut deltas = self.waiting.list(entry.at, entry.waiting);
            let found = deltas.find(|delta| delta.key == key);
            drop(deltas);
            if let Some(delta) = found {
                self.counts.delta_hits += 1;
                self.accesses.read_hits += 1;
                return Ok((delta.value, self.finish(now)?));
            }
        }
        match self.map[leaf as usize].slot() {
            Some(_) => self.accesses.read_hits += 1,
            None => self.accesses.read_misses += 1,
        }
        let (slot, now) = self.whole(leaf, 0, now)?;
        let records = &self.nodes[slot as usize].records;
        self.cache
            .compared(u64::from((records.len() + 1).ilog2()) + 1);
        let found = records.binary_search_by_key(&key, |&(key, _)| key);
        let value = found.ok().map(|at| records[at].1);
        Ok((value, self.finish(now)?))
    }

    fn range(
        &mut self,
        now: Nanos,
        from: Key,
        to: Key,
        into: &mut Vec<(Key, Value)>,
    ) -> Result<Nanos> {
        if from > to {
            return Ok(now);
        }
        self.collect(self.root, self.height, from, to, into, now)
    }

    /// Writes nodes whose structure has changed, and what the log has in memory.
    fn settle(&mut self, mut now: Nanos) -> Result<Nanos> {
        while let Some(&number) = self.pending.last() {
            if let Some(slot) = self.map[number as usize].slot()
                && self.nodes[slot as usize].structural
            {
                now = self.flush_node(slot, now)?;
            }
            self.pending.pop();
        }
        now = self.fit(now)?;
        now = self.log.write(&mut self.cache, now)?;
        let own = self.metadata();
        self.meta
            .settle(&mut self.cache, &mut self.space, &own, now)
    }

    fn flush(&mut self, mut now: Nanos) -> Result<Nanos> {
        for number in 1..self.map.len() as u32 {
            now = match self.map[number as usize].slot() {
                Some(slot) => self.flush_node(slot, now)?,
                None => self.flush_waiting(number, now)?,
            };
        }
        now = self.finish(now)?;
        self.settle(now)
    }

    /// A change rewrites at most one leaf.
    fn may_lack_room(&self, changes: u32) -> bool {
        let bytes = u64::from(changes) * self.longest() as u64;
        let most = bytes.div_ceil(self.log.segment_bytes() as u64);
        u64::from(self.segments_left()) < most + 2 * u64::from(LEFT_TO_DELETIONS)
    }

    fn check(&mut self) -> Result<(), String> {
        self.check_all()
    }

    /// Counts node accesses: a search finds its leaf in memory, or a delta that answers it; a
    /// change finds its leaf, or adds a delta without it.
    fn stats(&self) -> IndexStats {
        IndexStats {
            pool: self.accesses,
            ..self.cache.stats()
        }
    }

    fn reset_stats(&mut self) {
        self.cache.reset_stats();
        self.accesses = PoolStats::default();
        self.counts = Counts::default();
        self.log.sealed = 0;
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let (buffers, segments) = self.log.memory();
        vec![
            ("page_cache", self.cache.memory()),
            ("nodes", self.used as u64),
            ("deltas", self.waiting.bytes() as u64),
            ("log_buffers", buffers),
            ("map", self.map_bytes() as u64),
            ("segments", segments),
        ]
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        let mut figures = self.counts.figures();
        let nodes = self.map.len() - 1 - self.unused.len();
        figures.extend([
            ("segments_sealed", self.log.sealed as f64),
            ("height", f64::from(self.height)),
            ("nodes", nodes as f64),
            ("live_bytes", self.log.live as f64),
            ("log_bytes", self.log.used() as f64),
        ]);
        figures
    }

    fn store(&mut self) -> &mut dyn BackingStore {
        self.cache.store()
    }

    fn into_store(self: Box<Self>) -> Box<dyn BackingStore> {
        self.cache.into_store()
    }
}
