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

use super::horizon::Programmed;
use super::root::RootImage;
use super::{BlockState, Cause, Ftl, FtlError, Header, Operation, PageKind, header};
use crate::layout;
use crate::layout::{get, put};
use crate::nand::FlashError;
use crate::units::{Lpn, Nanos, Pbn, Ppn};
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
    pub(super) block: Pbn,
    pub(super) state: MetaState,
    /// Number of its programmed pages.
    pub(super) next: u32,
    /// Translation pages in it that the current root refers to, or valid log pages.
    pub(super) live: u32,
    pub(super) is_log: bool,
    /// When it was erased ahead of its use; `None` if it was not.
    pub(super) erased: Option<Nanos>,
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
pub(super) struct MetaArea {
    pub(super) anchors: Vec<MetaBlock>,
    /// The anchors that hold the current root, in order. Empty if there is no root.
    pub(super) root_in: Vec<usize>,
    /// The anchor that is being written.
    pub(super) anchor_open: Option<usize>,
    pub(super) pool: Vec<MetaBlock>,
    /// The index of each block in the pool.
    pub(super) places: FxHashMap<Pbn, usize>,
    /// Whether roots list the pool's blocks. Before a device grows its geometry implies them.
    pub(super) is_named: bool,
    /// Blocks beyond the device that the pool will get when it grows.
    pub(super) promised: Vec<Pbn>,
    pub(super) open_map: Vec<Option<usize>>,
    pub(super) turn: usize,
    pub(super) open_log: Vec<Option<usize>>,
    /// The place of each translation page, according to the current root.
    pub(super) directory: Vec<u32>,
    pub(super) generation: u64,
    /// When the current root is durable. Blocks that it freed must not be erased earlier. A later
    /// root must not be issued earlier, since it repeats the contents of this one.
    pub(super) durable: Nanos,
    pub(super) log_from: u64,
    pub(super) bad: Vec<Pbn>,
    pub(super) blob: Vec<u8>,
    /// Translation pages of checkpoints whose root failed. They are kept until there is another
    /// root, since a restart may find the failed one after all.
    pub(super) rootless: Vec<Ppn>,
}

impl MetaArea {
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

impl Ftl {
    /// Writes the changed translation pages and a root; all logs start anew with it. A restart
    /// returns `blob` to the owner. Returns when the root is durable.
    pub fn checkpoint(&mut self, now: Nanos, blob: Vec<u8>) -> Result<Nanos, FtlError> {
        let mut dirty = self.map.take_changed();
        self.clean_map_blocks(&mut dirty);
        let written = self
            .write_map_pages(now, &dirty)
            .and_then(|(moved, durable)| {
                let now = self.sync(now, durable)?;
                self.root_with(now, &moved, blob)
            });
        if written.is_err() {
            // None of them is written yet.
            dirty.into_iter().for_each(|page| self.map.mark(page));
            self.meta.free_full_blocks();
        }
        written
    }

    /// Writes the root of a checkpoint that has moved these translation pages. If that fails,
    /// restores the state of the previous root.
    fn root_with(
        &mut self,
        now: Nanos,
        moved: &[(u32, Ppn)],
        blob: Vec<u8>,
    ) -> Result<Nanos, FtlError> {
        let before = (self.meta.directory.clone(), self.meta.log_from);
        let mut old = Vec::new();
        for &(page, at) in moved {
            let entry = &mut self.meta.directory[page as usize];
            old.push(Ppn(std::mem::replace(entry, at.0)));
        }
        self.meta.log_from = self.seq + 1;
        // An open log block takes no more pages: its pages are obsolete.
        for open in self.meta.open_log.iter_mut() {
            if let Some(index) = open.take() {
                self.meta.pool[index].state = MetaState::Full;
            }
        }
        let done = match self.keep_in_root(now, blob) {
            Ok(done) => done,
            Err(error) => {
                (self.meta.directory, self.meta.log_from) = before;
                self.meta.rootless.extend(moved.iter().map(|&(_, at)| at));
                return Err(error);
            }
        };
        self.stats.checkpoints += 1;
        old.retain(|&at| at.0 != NONE);
        old.append(&mut self.meta.rootless);
        let blocks = old.into_iter().map(|at| self.geometry.block_of(at));
        blocks.for_each(|block| self.meta.let_map_page_go(block));
        for block in self.meta.pool.iter_mut().filter(|block| block.is_log) {
            block.live = 0;
        }
        self.meta.free_full_blocks();
        Ok(done)
    }

    /// Frees the places of translation pages to which no root will refer.
    pub(super) fn let_map_pages_go(&mut self, moved: &[(u32, Ppn)]) {
        for &(_, at) in moved {
            self.meta.let_map_page_go(self.geometry.block_of(at));
        }
    }

    /// Writes a root with a new `blob` for the owner. The mapping table on flash is unchanged.
    /// Returns when the root is durable.
    pub(crate) fn keep_in_root(&mut self, now: Nanos, blob: Vec<u8>) -> Result<Nanos, FtlError> {
        let before = std::mem::replace(&mut self.meta.blob, blob);
        let written = self.write_root(now);
        if written.is_err() {
            self.meta.blob = before;
        }
        written
    }

    /// Programs translation pages. Returns the place of each, and when the last is done.
    fn write_map_pages(
        &mut self,
        now: Nanos,
        pages: &[u32],
    ) -> Result<(Vec<(u32, Ppn)>, Nanos), FtlError> {
        let mut durable = now;
        let mut moved = Vec::with_capacity(pages.len());
        for &page in pages {
            let slots = self.map.translation_page(page).to_vec();
            let header = Header {
                kind: PageKind::Map,
                lpn: Lpn(page),
                seq: self.next_seq(),
            };
            let written = self.meta_append(now, header, &slots, Cause::Mapping);
            let (index, at, done) = written.inspect_err(|_| {
                self.let_map_pages_go(&moved);
            })?;
            self.meta.pool[index].live += 1;
            moved.push((page, at));
            durable = durable.max(done);
        }
        Ok((moved, durable))
    }

    /// The owner's bytes in the last checkpoint.
    pub fn blob(&self) -> &[u8] {
        &self.meta.blob
    }

    /// Adds translation pages to those of a checkpoint, to free the blocks that hold them: as many
    /// as needed for the largest possible next checkpoint to fit.
    fn clean_map_blocks(&self, pages: &mut Vec<u32>) {
        let per_block = self.pairs.meta_pages.len() as u32;
        let reserve = self.meta.full_checkpoint_blocks(per_block);
        if reserve == 0 {
            return;
        }
        // By block: its live pages that are not rewritten.
        let mut left: Vec<u32> = self.meta.pool.iter().map(|block| block.live).collect();
        for &page in pages.iter() {
            let at = self.meta.directory[page as usize];
            if at != NONE {
                let place = self.meta.place(self.geometry.block_of(Ppn(at)));
                left[place.expect("translation pages lie in the pool")] -= 1;
            }
        }
        let full = |&i: &usize| self.meta.pool[i].state == MetaState::Full;
        let is_log = |&i: &usize| self.meta.pool[i].is_log;
        let (logs, mut order): (Vec<usize>, _) = (0..left.len()).filter(full).partition(is_log);
        order.sort_by_key(|&i| (left[i], i));
        let mut written = pages.len() as u32;
        // The logs start anew with the checkpoint.
        let free = self.meta.free_blocks() + logs.len();
        let mut chosen = Vec::new();
        for i in order {
            let used = written.div_ceil(per_block) as usize + self.meta.open_map.len();
            if left[i] > 0 && free + chosen.len() >= reserve + used {
                break;
            }
            written += left[i];
            chosen.push(self.meta.pool[i].block);
        }
        chosen.sort_unstable();
        let cleaned = (0..self.meta.directory.len() as u32).filter(|&page| {
            let at = self.meta.directory[page as usize];
            at != NONE
                && chosen
                    .binary_search(&self.geometry.block_of(Ppn(at)))
                    .is_ok()
        });
        pages.extend(cleaned);
        pages.sort_unstable();
        pages.dedup();
    }

    /// Programs a translation or log page into an open block of its kind.
    pub(super) fn meta_append(
        &mut self,
        now: Nanos,
        head: Header,
        data: &[u8],
        cause: Cause,
    ) -> Result<(usize, Ppn, Nanos), FtlError> {
        let is_log = head.kind == PageKind::Log;
        let lane = if is_log {
            head.lpn.index()
        } else {
            self.meta.turn = (self.meta.turn + 1) % self.meta.open_map.len();
            self.meta.turn
        };
        let mut now = now;
        let mut spare = [0xff; header::SIZE];
        head.emit(&mut spare);
        loop {
            let index = match self.meta.open(is_log)[lane] {
                Some(index) => index,
                None => {
                    let (index, erased) = self.meta_open(now, is_log, lane)?;
                    now = erased;
                    index
                }
            };
            let (block, next) = (self.meta.pool[index].block, self.meta.pool[index].next);
            let at = self
                .geometry
                .page(block, self.pairs.meta_pages[next as usize]);
            self.meta.pool[index].next += 1;
            self.stats.add(Operation::Program, cause);
            let outcome = self.program_checked(now, at, data, &spare, Programmed::Other);
            let ends = next + 1 == self.pairs.meta_pages.len() as u32 || outcome.is_err();
            if ends {
                self.meta.pool[index].state = MetaState::Full;
                self.meta.open(is_log)[lane] = None;
            }
            match outcome {
                Ok(done) => return Ok((index, at, done)),
                Err(FlashError::ProgramFailed { done, .. }) => now = done,
                Err(other) => return Err(other.into()),
            }
        }
    }

    /// Opens a free block of the pool, preferably on the plane of the lane.
    fn meta_open(
        &mut self,
        now: Nanos,
        is_log: bool,
        lane: usize,
    ) -> Result<(usize, Nanos), FtlError> {
        let mut now = now.max(self.meta.durable);
        loop {
            let planes = self.geometry.planes();
            let wanted = if is_log {
                self.log_plane(lane as u32)
            } else {
                lane as u32 * (planes / self.meta.open_map.len() as u32).max(1)
            };
            let index = (0..self.meta.pool.len())
                .filter(|&i| self.meta.pool[i].state == MetaState::Free)
                .min_by_key(|&i| {
                    let block = self.meta.pool[i].block;
                    let plane = self.geometry.plane_of(block);
                    (
                        (plane + planes - wanted % planes) % planes,
                        self.blocks.erases[block.index()],
                        i,
                    )
                })
                .ok_or(FtlError::MetaFull)?;
            let block = self.meta.pool[index].block;
            let erased = match self.meta.pool[index].erased.take() {
                Some(done) => Some(now.max(done)),
                None => self.erase(now, block, Cause::Mapping)?,
            };
            match erased {
                Some(done) => {
                    let entry = &mut self.meta.pool[index];
                    (entry.state, entry.next, entry.live) = (MetaState::Open, 0, 0);
                    entry.is_log = is_log;
                    self.meta.open(is_log)[lane] = Some(index);
                    return Ok((index, done));
                }
                None => {
                    self.meta.pool[index].state = MetaState::Bad;
                    now = self.retire_now(now, block)?;
                }
            }
        }
    }

    /// Writes a root of the present state. Returns when it is durable.
    pub(super) fn write_root(&mut self, now: Nanos) -> Result<Nanos, FtlError> {
        let in_pool = self.meta.pool.iter().map(|block| block.block);
        let in_pool = in_pool.chain(self.meta.promised.iter().copied());
        let image = RootImage {
            log_from: self.meta.log_from,
            bad: self.meta.bad.clone(),
            directory: self.meta.directory.clone(),
            blob: self.meta.blob.clone(),
            pool: self.meta.is_named.then(|| in_pool.collect()),
        };
        let bytes = image.emit();
        let room = self.geometry.page_bytes as usize - root_part::SIZE;
        let mut now = now.max(self.meta.durable);
        // Each failed attempt uses up an anchor, or some of its pages.
        for _ in 0..4 {
            self.meta.generation += 1;
            let mut anchors = Vec::new();
            match self.write_parts(now, &mut anchors, &bytes, room)? {
                Ok(done) => {
                    self.meta.root_in = anchors;
                    self.meta.durable = self.sync(now, done)?;
                    return Ok(self.meta.durable);
                }
                Err(failed) => now = failed,
            }
        }
        Err(FtlError::MetaFull)
    }

    /// Writes all parts of a root. Returns the anchors that hold them; the inner error is the time
    /// at which a part failed.
    fn write_parts(
        &mut self,
        now: Nanos,
        anchors: &mut Vec<usize>,
        bytes: &[u8],
        room: usize,
    ) -> Result<Result<Nanos, Nanos>, FtlError> {
        let parts = bytes.len().div_ceil(room);
        let (mut now, mut durable) = (now, now);
        for (part, contents) in bytes.chunks(room).enumerate() {
            // A root that fits into a block stays in one.
            let wanted = match part {
                0 => (parts as u32).min(self.pairs.meta_pages.len() as u32),
                _ => 1,
            };
            let (anchor, erased) = self.anchor_with_room(now, wanted, anchors)?;
            if anchors.last() != Some(&anchor) {
                anchors.push(anchor);
            }
            (now, durable) = (erased, durable.max(erased));
            let mut data = vec![0; root_part::SIZE];
            put(&mut data, root_part::MAGIC, MAGIC);
            put(&mut data, root_part::GENERATION, self.meta.generation);
            put(&mut data, root_part::PART, part as u64);
            put(&mut data, root_part::PARTS, parts as u64);
            put(&mut data, root_part::BYTES, contents.len() as u64);
            data.extend_from_slice(contents);
            let seq = self.next_seq();
            let mut spare = [0xff; header::SIZE];
            Header {
                kind: PageKind::Root,
                lpn: Lpn(part as u32),
                seq,
            }
            .emit(&mut spare);
            let entry = &mut self.meta.anchors[anchor];
            let page = self.pairs.meta_pages[entry.next as usize];
            let at = self.geometry.page(entry.block, page);
            entry.next += 1;
            self.stats.add(Operation::Program, Cause::Mapping);
            let what = if part + 1 == parts {
                Programmed::Root(self.meta.generation)
            } else {
                Programmed::Other
            };
            match self.program_checked(now, at, &data, &spare, what) {
                Ok(done) => durable = durable.max(done),
                Err(FlashError::ProgramFailed { done, .. }) => {
                    self.meta.anchors[anchor].state = MetaState::Full;
                    self.meta.anchor_open = None;
                    return Ok(Err(done));
                }
                Err(other) => return Err(other.into()),
            }
        }
        Ok(Ok(durable))
    }

    /// An anchor with room for `pages` pages: the open one, or the next one, erased, that holds
    /// neither the current root nor the one being written.
    fn anchor_with_room(
        &mut self,
        now: Nanos,
        pages: u32,
        taken: &[usize],
    ) -> Result<(usize, Nanos), FtlError> {
        if let Some(open) = self.meta.anchor_open {
            if self.meta.anchors[open].next + pages <= self.pairs.meta_pages.len() as u32 {
                return Ok((open, now));
            }
            self.meta.anchors[open].state = MetaState::Full;
            self.meta.anchor_open = None;
        }
        let count = self.meta.anchors.len();
        let first = taken
            .last()
            .or(self.meta.root_in.last())
            .map_or(0, |i| i + 1);
        for step in 0..count {
            let index = (first + step) % count;
            if self.meta.root_in.contains(&index)
                || taken.contains(&index)
                || self.meta.anchors[index].state == MetaState::Bad
            {
                continue;
            }
            let block = self.meta.anchors[index].block;
            if let Some(done) = self.erase(now, block, Cause::Mapping)? {
                self.meta.anchors[index].state = MetaState::Open;
                self.meta.anchors[index].next = 0;
                self.meta.anchor_open = Some(index);
                // Later programs exist only if the erase has landed. A root must not be older than
                // the one it replaces.
                return Ok((index, self.sync(now, done)?));
            }
            self.meta.anchors[index].state = MetaState::Bad;
            self.meta.bad.push(block);
            self.blocks.set_state(block, BlockState::Bad);
        }
        Err(FtlError::MetaFull)
    }

    /// Parses the part of a root: generation, index, number of parts, contents.
    pub(super) fn parse_root_part(data: &[u8]) -> Option<(u64, usize, usize, &[u8])> {
        if data.len() < root_part::SIZE || get(data, root_part::MAGIC) != MAGIC {
            return None;
        }
        let bytes = get(data, root_part::BYTES) as usize;
        let contents = data.get(root_part::SIZE..root_part::SIZE + bytes)?;
        Some((
            get(data, root_part::GENERATION),
            get(data, root_part::PART) as usize,
            get(data, root_part::PARTS) as usize,
            contents,
        ))
    }
}
