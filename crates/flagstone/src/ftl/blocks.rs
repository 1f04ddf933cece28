//! The blocks of the device: what each is used for, which of its pages are live, how often it was
//! erased, which blocks can be written, and which can be collected.
//!
//! All changes that move a block from one use to another are here, since they keep several tables
//! in step: a candidate for collection is listed by its number of live pages, and a free block by
//! its erases.

use super::VictimPolicy;
use super::pool::{Pool, Zone};
use super::victims::{Victims, View};
use crate::nand::{Addresses, Geometry};
use crate::units::{Nanos, Pbn, Ppn};

/// The present use of a block. Example: [`Ftl::mount`](super::Ftl::mount).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockState {
    /// Can be allocated.
    Free,
    /// Reserved by the owner to be allocated next.
    Zone,
    /// Being written.
    Open,
    /// Full and waiting for its summary page, see [`Ftl::summarise`](super::Ftl::summarise). Cannot
    /// be collected.
    Closing,
    /// Written; a candidate for collection unless pinned.
    Full,
    /// Being collected.
    Victim,
    /// Holds a live page that cannot be read. The block is not erased, so that the loss stays
    /// visible.
    Stuck,
    /// Out of service.
    Bad,
    /// Belongs to the area for roots, mapping pages and logs.
    Meta,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    state: BlockState,
    /// It must be erased before it is written.
    stale: bool,
    /// Released by the mount with pages in it, and not erased since: see [`super::health`].
    left: bool,
    /// Whether a program in the block failed: it is retired once its live pages are elsewhere.
    failing: bool,
    live: u16,
    pins: u16,
}

impl Block {
    /// A block of which nothing is known yet.
    const UNKNOWN: Block = Block {
        state: BlockState::Free,
        stale: true,
        left: false,
        failing: false,
        live: 0,
        pins: 0,
    };

    fn is_candidate(&self) -> bool {
        self.state == BlockState::Full && self.pins == 0
    }
}

/// The blocks of the device. Example: [`Ftl::mount`](super::Ftl::mount).
#[derive(Debug, Clone)]
pub struct Blocks {
    pub(super) addresses: Addresses,
    all: Vec<Block>,
    /// A bit for each page: whether it is live.
    live: Vec<u64>,
    live_pages: u64,
    pub(super) erases: Vec<u32>,
    erases_total: u64,
    /// When the last erase of any block is done.
    pub(super) erased_until: Nanos,
    free: Pool,
    pub(super) zone: Option<Zone>,
    pub(super) victims: Victims,
    /// Blocks from this one on are not allocated: the device will end there.
    pub(super) end: Option<Pbn>,
    /// Blocks from this one on are not allocated: the medium has no room for them yet.
    room_end: Option<Pbn>,
}

impl Blocks {
    /// Number of live pages.
    pub fn live_pages(&self) -> u64 {
        self.live_pages
    }

    /// Whether a page is live.
    #[inline]
    pub fn is_live(&self, at: Ppn) -> bool {
        self.live[at.index() / 64] >> (at.0 % 64) & 1 == 1
    }

    /// The present use of a block.
    pub fn state(&self, id: Pbn) -> BlockState {
        self.of(id).state
    }

    /// Number of live pages in a block.
    pub fn live_in(&self, id: Pbn) -> u32 {
        self.of(id).live.into()
    }

    /// Number of erases of a block, as far as known: after a restart from its summary page; a block
    /// without one has the mean of the others.
    pub fn erases_of(&self, id: Pbn) -> u32 {
        self.erases[id.index()]
    }

    /// Number of blocks that can be allocated at once.
    pub fn free_blocks(&self) -> u32 {
        self.free.len()
    }

    /// Number of blocks that are bad from the factory or have failed since.
    pub fn out_of_service(&self) -> u32 {
        let bad = |block: &&Block| block.state == BlockState::Bad;
        self.all.iter().filter(bad).count() as u32
    }

    /// Data blocks in service.
    pub fn for_data(&self) -> Vec<Pbn> {
        let is_for_data = |id: &Pbn| !matches!(self.state(*id), BlockState::Bad | BlockState::Meta);
        self.ids().filter(is_for_data).collect()
    }

    /// The smallest number of live pages among the candidates for collection.
    pub fn fewest_live(&self) -> Option<u32> {
        self.victims.iter().next().map(|(_, live)| live)
    }

    /// Number of blocks, counted from the first, that can be allocated: the medium has room for
    /// them.
    pub fn with_room(&self) -> u32 {
        self.room_end.map_or(self.len(), |end| end.0)
    }

    /// Blocks of a new device, all free, but not in the pool of free blocks yet.
    pub(super) fn new(geometry: &Geometry, is_zoned: bool) -> Blocks {
        let (planes, blocks) = (geometry.planes(), geometry.blocks());
        Blocks {
            addresses: Addresses::new(geometry),
            all: vec![Block::UNKNOWN; blocks as usize],
            live: vec![0; (geometry.pages() as usize).div_ceil(64)],
            live_pages: 0,
            erases: vec![0; blocks as usize],
            erases_total: 0,
            erased_until: Nanos::ZERO,
            free: Pool::new(planes),
            zone: is_zoned.then(|| Zone::new(planes)),
            victims: Victims::new(blocks, geometry.pages_per_block),
            end: None,
            room_end: None,
        }
    }

    /// Adapts to another number of blocks. Removed ones hold nothing and are no candidates.
    pub(super) fn resize(&mut self, geometry: &Geometry) {
        let blocks = geometry.blocks();
        self.addresses = Addresses::new(geometry);
        self.all.resize(blocks as usize, Block::UNKNOWN);
        self.erases.resize(blocks as usize, 0);
        self.sum_erases();
        let words = (geometry.pages() as usize).div_ceil(64);
        self.live.resize(words, 0);
        self.victims.resize(blocks);
        self.room_end = self.room_end.filter(|end| end.0 < blocks);
    }

    /// Number of blocks.
    pub(super) fn len(&self) -> u32 {
        self.all.len() as u32
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = Pbn> + use<> {
        (0..self.len()).map(Pbn)
    }

    /// Memory of the tables in bytes, without the lists of trims.
    pub(super) fn memory(&self) -> u64 {
        let per_block = size_of::<Block>() as u64 + 4 + 8 + 8;
        u64::from(self.len()) * per_block + self.live.len() as u64 * 8
    }

    #[inline]
    fn of(&self, id: Pbn) -> &Block {
        &self.all[id.index()]
    }

    #[inline]
    fn of_mut(&mut self, id: Pbn) -> &mut Block {
        &mut self.all[id.index()]
    }

    /// Whether a block must be erased before it is written.
    pub(super) fn is_stale(&self, id: Pbn) -> bool {
        self.of(id).stale
    }

    /// Whether the block of a page was not erased since the restart.
    pub(super) fn is_from_before(&self, at: Ppn) -> bool {
        self.is_stale(self.addresses.block_of(at))
    }

    /// Whether the mount has released a block with pages in it, which was not erased since.
    pub(super) fn is_left(&self, id: Pbn) -> bool {
        self.of(id).left
    }

    /// Whether a program in a block failed: it is retired once its live pages are elsewhere.
    pub(super) fn is_failing(&self, id: Pbn) -> bool {
        self.of(id).failing
    }

    /// Records that a program in a block failed.
    pub(super) fn fail(&mut self, id: Pbn) {
        self.of_mut(id).failing = true;
    }

    /// Sets the use of a block that is neither in the pool of free blocks nor a candidate.
    pub(super) fn set_state(&mut self, id: Pbn, state: BlockState) {
        self.of_mut(id).state = state;
    }

    /// Releases a candidate during the mount, with what is left in it.
    pub(super) fn leave(&mut self, id: Pbn) {
        self.take_candidate(id, BlockState::Free);
        self.of_mut(id).left = true;
    }

    /// Marks a page that was just programmed as live.
    #[inline]
    pub(super) fn programmed(&mut self, at: Ppn, id: Pbn) {
        self.live[at.index() / 64] |= 1 << (at.0 % 64);
        self.live_pages += 1;
        self.of_mut(id).live += 1;
    }

    /// Marks a page as live. Does not update the candidates for collection; the caller must.
    pub(super) fn set_live(&mut self, at: Ppn) {
        let word = &mut self.live[at.index() / 64];
        let bit = 1u64 << (at.0 % 64);
        assert!(*word & bit == 0, "page {at} is revived twice");
        *word |= bit;
        self.live_pages += 1;
        let id = self.addresses.block_of(at);
        self.of_mut(id).live += 1;
    }

    /// Marks a page as live.
    pub(super) fn revive(&mut self, at: Ppn) {
        let id = self.addresses.block_of(at);
        if self.is_candidate(id) {
            self.victims.remove(id, self.live_in(id));
            self.set_live(at);
            self.victims.insert(id, self.live_in(id));
        } else {
            self.set_live(at);
        }
    }

    /// Marks a page as dead.
    ///
    /// # Panics
    /// The page is not live: two tables disagree.
    #[inline]
    pub(super) fn kill(&mut self, at: Ppn) {
        let word = &mut self.live[at.index() / 64];
        let bit = 1u64 << (at.0 % 64);
        assert!(*word & bit != 0, "page {at} is killed twice");
        *word &= !bit;
        self.live_pages -= 1;
        let id = self.addresses.block_of(at);
        let block = &mut self.all[id.index()];
        let live = u32::from(block.live);
        block.live -= 1;
        if block.is_candidate() {
            self.victims.lose_page(id, live);
        } else if block.state == BlockState::Stuck && block.live == 0 {
            // Nothing is lost any more that the block could show.
            self.fill(id);
        }
    }

    /// Whether a block is a candidate for collection.
    pub(crate) fn is_candidate(&self, id: Pbn) -> bool {
        self.of(id).is_candidate()
    }

    /// Keeps a block from being collected, until [`Blocks::unpin`] was called as often as this.
    pub fn pin(&mut self, id: Pbn) {
        if self.is_candidate(id) {
            self.victims.remove(id, self.live_in(id));
        }
        self.of_mut(id).pins += 1;
    }

    /// Reverts one [`Blocks::pin`].
    pub fn unpin(&mut self, id: Pbn) {
        self.of_mut(id).pins -= 1;
        if self.is_candidate(id) {
            self.victims.insert(id, self.live_in(id));
        }
    }

    /// Marks a block as full: a candidate for collection, unless it is pinned.
    pub(super) fn fill(&mut self, id: Pbn) {
        self.of_mut(id).state = BlockState::Full;
        if self.of_mut(id).pins == 0 {
            self.victims.insert(id, self.live_in(id));
        }
    }

    /// The block to collect next. A block with `dense_pages` live pages is not worth it.
    pub(super) fn choose_victim(&mut self, policy: VictimPolicy, dense_pages: u32) -> Option<Pbn> {
        self.victims.skip_empty();
        policy.choose(&View {
            victims: &self.victims,
            erases: &self.erases,
            erases_mean: self.erases_mean(),
            dense_pages,
        })
    }

    /// Gives a full block that is not pinned another use: it is no candidate any more.
    pub(super) fn take_candidate(&mut self, id: Pbn, state: BlockState) {
        assert!(self.is_candidate(id), "block {id} is no candidate");
        self.victims.remove(id, self.live_in(id));
        self.of_mut(id).state = state;
    }

    /// Makes a block free. It enters the pool unless it lies beyond the end of the device to be.
    pub(super) fn set_free(&mut self, id: Pbn) {
        self.of_mut(id).state = BlockState::Free;
        if id < self.end_of_given_out() {
            let plane = self.addresses.plane_of(id);
            self.free.put(plane, id, self.erases[id.index()]);
        }
    }

    /// Takes a block of a plane to be written, and the time from which on it may be.
    pub(super) fn take(&mut self, plane: u32, now: Nanos) -> Option<(Pbn, Nanos)> {
        match &mut self.zone {
            Some(zone) => zone.take(plane, now),
            None => self.free.take(plane).map(|block| (block, now)),
        }
    }

    /// Whether a plane has a block to be written.
    pub(super) fn has_writable(&self, plane: u32) -> bool {
        match &self.zone {
            Some(zone) => zone.has(plane),
            None => self.free.has(plane),
        }
    }

    /// Number of writable blocks: free ones, and reserved ones that are not yet open. Collection
    /// starts when they run short.
    #[inline]
    pub(super) fn writable(&self) -> u32 {
        self.free.len() + self.zone_left()
    }

    /// Records the erase of a block, done at `done`.
    pub(super) fn erased(&mut self, id: Pbn, done: Nanos) {
        self.erases[id.index()] += 1;
        self.erases_total += 1;
        self.erased_until = self.erased_until.max(done);
        let block = self.of_mut(id);
        (block.stale, block.left) = (false, false);
    }

    pub(super) fn sum_erases(&mut self) {
        self.erases_total = self.erases.iter().map(|&erases| u64::from(erases)).sum();
    }

    /// The mean number of erases of a block.
    pub(super) fn erases_mean(&self) -> u32 {
        (self.erases_total / u64::from(self.len())) as u32
    }

    /// Reserves up to `blocks` free blocks, spread over the planes, and returns them. A zoned
    /// device writes only to reserved blocks. [`Blocks::zone_from`] sets from when on.
    pub fn zone_add(&mut self, blocks: u32) -> Vec<Pbn> {
        let mut added = Vec::new();
        let planes = self.free.planes();
        let zone = self.zone.as_mut();
        let zone = zone.expect("the owner asked for a zoned device");
        zone.begin();
        let mut plane = 0;
        let mut empty = 0;
        while (added.len() as u32) < blocks && empty < planes {
            match self.free.take(plane) {
                Some(block) => {
                    empty = 0;
                    self.all[block.index()].state = BlockState::Zone;
                    zone.put(plane, block, self.erases[block.index()]);
                    added.push(block);
                }
                None => empty += 1,
            }
            plane = (plane + 1) % planes;
        }
        added
    }

    /// Returns the blocks that were reserved last to the free ones. Nothing on flash records the
    /// reservation.
    pub fn zone_give_back(&mut self) {
        let added = self.zone.as_mut().map(Zone::take_newer);
        added.into_iter().flatten().for_each(|id| self.set_free(id));
    }

    /// Sets when the blocks that were reserved last may be written.
    pub fn zone_from(&mut self, from: Nanos) {
        if let Some(zone) = &mut self.zone {
            zone.may_be_written(from);
        }
    }

    /// Number of reserved blocks that are not yet open.
    #[inline]
    pub fn zone_left(&self) -> u32 {
        self.zone.as_ref().map_or(0, |zone| zone.len())
    }

    /// Limits allocation to the first `blocks` blocks until the next call, because the medium has
    /// no room for others.
    pub fn give_out(&mut self, blocks: u32) {
        let before = self.end_of_given_out();
        self.room_end = (blocks < self.len()).then_some(Pbn(blocks));
        self.move_end_of_given_out(before);
    }

    /// Stops allocating blocks from `end` on, because the device will end there; `None` allows all
    /// blocks again.
    pub(crate) fn end_at(&mut self, end: Option<Pbn>) {
        let before = self.end_of_given_out();
        self.end = end;
        self.move_end_of_given_out(before);
    }

    /// The first block that must not be allocated.
    fn end_of_given_out(&self) -> Pbn {
        let ends = [self.end, self.room_end].into_iter().flatten();
        ends.fold(Pbn(self.len()), Pbn::min)
    }

    /// Removes free blocks from the pool, or returns them, after a change of the first block that
    /// must not be allocated. `before` is its old value.
    fn move_end_of_given_out(&mut self, before: Pbn) {
        let end = self.end_of_given_out();
        if end < before {
            self.free.take_from(end);
        }
        for id in (before.0..end.0).map(Pbn) {
            if self.state(id) == BlockState::Free {
                self.set_free(id);
            }
        }
    }

    /// Checks that the tables agree: live pages, counts per block, candidates for collection.
    pub(super) fn check(&self, pages_per_block: u32) -> Result<(), String> {
        let mut candidates = 0;
        for (index, block) in self.all.iter().enumerate() {
            let first = index as u32 * pages_per_block;
            let pages = (first..first + pages_per_block).map(Ppn);
            let live = pages.filter(|&at| self.is_live(at)).count();
            if live != usize::from(block.live) {
                return Err(format!(
                    "block {index} counts {} live pages of {live}",
                    block.live
                ));
            }
            candidates += u32::from(block.is_candidate());
            let empty = matches!(block.state, BlockState::Free | BlockState::Zone);
            if empty && (live > 0 || block.pins > 0) {
                return Err(format!(
                    "block {index} is {:?} with {live} live pages",
                    block.state
                ));
            }
        }
        if candidates == self.victims.len() {
            Ok(())
        } else {
            Err(format!(
                "{candidates} candidates, {} in the lists",
                self.victims.len()
            ))
        }
    }
}
