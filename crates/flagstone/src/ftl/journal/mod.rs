//! The area at the front of the planes for roots, mapping pages and logs.
//!
//! ```text
//!   anchors: 5 blocks or more, in turn        | root 7 1/2 | root 7 2/2 | root 8 1/2 | ...
//!   the rest: a block holds either            | map 3 | map 9 | map 3 | ...   translation pages
//!                                      or     | log 0 | log 0 | ...           pages of one log
//! ```
//!
//! A *root* says where each translation page is, which blocks are bad, and from which write
//! sequence on log pages count. It keeps a few bytes for the owner. The newest root all of whose
//! parts are there is the one that counts. A checkpoint is over when its root is durable. Until
//! then nothing that the previous root refers to is erased. The anchors that hold the current root
//! are never erased to make room for the next one. A root that fits a block lies in one; a larger
//! one begins a block and goes on in others.

mod append;
mod checkpoint;
mod doubt;
mod grow;
mod image;
mod logs;
mod mount;
mod refresh;
mod roots;

pub(crate) use image::{RootImage, is_root};
pub(super) use mount::meta_blocks;

use super::config::Sizes;
use super::health::Spares;
use crate::layout;
use crate::units::{Nanos, Pbn, Ppn};
use rustc_hash::FxHashMap;

layout! {
    /// The head of the data of a root's part.
    pub root_part: 18 => {
        MAGIC:      4, "RTFS";
        GENERATION: 8, "counts roots; a root is never numbered twice";
        PART:       2, "which part this is, from 0";
        PARTS:      2, "how many there are";
        BYTES:      2, "bytes of contents that follow";
    }
}

layout! {
    /// How the contents of a root begin. Behind it are the blocks that are out of service, the
    /// pages of the mapping table, and what the protocol keeps, each behind its length in four
    /// bytes.
    pub root_contents: 8 => {
        LOG_FROM: 8, "write sequence from which pages of the logs count";
    }
}

/// The first bytes of every part of a root.
pub(super) const MAGIC: u64 = 0x5346_5452;

/// Marks a translation page that does not exist.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetaState {
    /// To be erased, then written.
    Free,
    Open,
    Full,
    Bad,
}

#[derive(Debug, Clone)]
pub(super) struct MetaBlock {
    block: Pbn,
    state: MetaState,
    /// Number of its programmed pages.
    next: u32,
    /// Translation pages in it that the current root refers to, or valid log pages.
    live: u32,
    is_log: bool,
    /// When it was erased ahead of its use; `None` if it was not.
    erased: Option<Nanos>,
}

impl MetaBlock {
    /// A block whose contents are unknown or obsolete.
    pub(super) fn blank(block: Pbn) -> MetaBlock {
        MetaBlock {
            block,
            state: MetaState::Free,
            next: 0,
            live: 0,
            is_log: false,
            erased: None,
        }
    }
}

/// Roots, translation pages and logs.
#[derive(Debug, Clone)]
pub(super) struct Journal {
    anchors: Vec<MetaBlock>,
    /// The anchors that hold the current root, in order. Empty if there is no root.
    root_in: Vec<usize>,
    /// The anchor that is being written.
    anchor_open: Option<usize>,
    pool: Vec<MetaBlock>,
    /// The index of each block in the pool.
    places: FxHashMap<Pbn, usize>,
    /// Whether roots list the pool's blocks. Before a device grows its geometry implies them.
    is_named: bool,
    /// Blocks beyond the device that the pool will get when it grows.
    promised: Vec<Pbn>,
    open_map: Vec<Option<usize>>,
    turn: usize,
    open_log: Vec<Option<usize>>,
    /// The place of each translation page, according to the current root.
    directory: Vec<u32>,
    generation: u64,
    /// When the current root is durable. Blocks that it freed must not be erased earlier. A later
    /// root must not be issued earlier, since it repeats the contents of this one.
    durable: Nanos,
    log_from: u64,
    bad: Vec<Pbn>,
    blob: Vec<u8>,
    /// Translation pages of checkpoints whose root failed. They are kept until there is another
    /// root, since a restart may find the failed one after all.
    rootless: Vec<Ppn>,
}

impl Journal {
    /// The journal of a device whose roots were not read yet, in these blocks.
    pub(super) fn new(anchors: &[Pbn], pool: &[Pbn], sizes: &Sizes, logs: u8) -> Journal {
        let blank = |&block: &Pbn| MetaBlock::blank(block);
        Journal {
            anchors: anchors.iter().map(blank).collect(),
            root_in: Vec::new(),
            anchor_open: None,
            pool: pool.iter().map(blank).collect(),
            places: pool.iter().enumerate().map(|(i, &b)| (b, i)).collect(),
            is_named: false,
            promised: Vec::new(),
            open_map: vec![None; sizes.map_lanes as usize],
            turn: 0,
            open_log: vec![None; logs as usize],
            directory: vec![NONE; sizes.map_pages as usize],
            generation: 0,
            durable: Nanos::ZERO,
            log_from: 0,
            bad: Vec::new(),
            blob: Vec::new(),
            rootless: Vec::new(),
        }
    }

    /// Number of roots written so far.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// For tests: the place of each translation page.
    #[cfg(test)]
    pub(super) fn directory(&self) -> &[u32] {
        &self.directory
    }

    /// The place of a translation page, according to the current root.
    pub(super) fn translation_page(&self, page: u32) -> Option<Ppn> {
        let at = self.directory[page as usize];
        (at != NONE).then_some(Ppn(at))
    }

    /// Number of translation pages.
    pub(super) fn translation_pages(&self) -> u64 {
        self.directory.len() as u64
    }

    /// Number of anchors.
    pub(super) fn anchors(&self) -> usize {
        self.anchors.len()
    }

    /// Lists a block as out of service in the next root.
    pub(super) fn list_bad(&mut self, block: Pbn) {
        self.bad.push(block);
    }

    /// Spare blocks for roots, and for mapping pages and logs; without a pool, those for roots
    /// twice.
    pub(super) fn spares(&self, pages_per_block: u32) -> [Spares; 2] {
        let spares = |area: &[MetaBlock], needs: usize| {
            let bad = area.iter().filter(|it| it.state == MetaState::Bad);
            Spares {
                left: (area.len() - bad.count()).saturating_sub(needs) as u32,
                new: area.len().saturating_sub(needs) as u32,
            }
        };
        // Two roots, since the next one is written before the current one is obsolete.
        let roots = spares(&self.anchors, 2 * self.root_in.len().max(1));
        if self.pool.is_empty() {
            return [roots; 2];
        }
        let table = self.full_checkpoint_blocks(pages_per_block);
        // Two mapping tables for the same reason, and two blocks for each log.
        let needs = 2 * table + 2 * self.open_log.len();
        [roots, spares(&self.pool, needs)]
    }

    /// The index of a block in the pool.
    pub(super) fn place(&self, block: Pbn) -> Option<usize> {
        self.places.get(&block).copied()
    }

    /// Adds a block to the pool.
    pub(super) fn take(&mut self, block: MetaBlock) {
        self.places.insert(block.block, self.pool.len());
        self.pool.push(block);
    }

    /// The open blocks for log or mapping pages, by lane.
    fn open(&mut self, is_log: bool) -> &mut [Option<usize>] {
        if is_log {
            &mut self.open_log
        } else {
            &mut self.open_map
        }
    }

    /// Frees the full blocks of the pool that hold nothing any more.
    fn free_full_blocks(&mut self) {
        for block in &mut self.pool {
            if block.state == MetaState::Full && block.live == 0 {
                block.state = MetaState::Free;
            }
        }
    }

    /// Records that the root no longer refers to a translation page in this block.
    pub(super) fn let_map_page_go(&mut self, block: Pbn) {
        let place = self.place(block);
        self.pool[place.expect("translation pages lie in the pool")].live -= 1;
    }

    /// Whether a block has pages that a reader or a restart may need.
    pub(super) fn holds_something(&self, block: Pbn) -> bool {
        match self.place(block) {
            Some(index) => self.pool[index].live > 0,
            None => (self.root_in.iter()).any(|&index| self.anchors[index].block == block),
        }
    }

    pub(super) fn is_log(&self, block: Pbn) -> bool {
        let place = self.place(block);
        place.is_some_and(|index| self.pool[index].is_log)
    }

    pub(super) fn free_blocks(&self) -> usize {
        self.pool
            .iter()
            .filter(|b| b.state == MetaState::Free)
            .count()
    }

    /// Number of blocks that a checkpoint of every translation page may need.
    pub(super) fn full_checkpoint_blocks(&self, pages_per_block: u32) -> usize {
        if self.directory.is_empty() {
            return 0;
        }
        (self.directory.len() as u32).div_ceil(pages_per_block) as usize + self.open_map.len()
    }
}
