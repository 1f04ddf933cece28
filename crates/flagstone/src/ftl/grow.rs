//! Growth of a device in use, as of a file.
//!
//! New blocks are added after the last one of the only plane, so page numbers do not change. A
//! mapping table on flash then needs more blocks, and the root lists them:
//!
//! ```text
//!   root      | ... | pool: the blocks of the area, those to come included | bad | directory | ...
//!   grow      1. a root names the blocks that the area is to have     2. the medium grows
//! ```
//!
//! The root is durable before the medium grows. So a restart finds a device of the old size whose
//! root lists blocks beyond it, or one of the new size with a large enough area. Anchors stay in
//! place: a device can grow as long as its root fits into them.

use super::config::{Mistake, Sizes};
use super::meta::{MetaBlock, NONE};
use super::{Addresses, Block, BlockState, EMPTY_BYTE, Ftl, FtlError, SLOT_BYTES};
use crate::nand::{Flash, Geometry};
use crate::units::{Nanos, Pbn};

impl Ftl {
    /// Why the device cannot grow by `blocks` blocks; `None` if it can. The medium may still lack
    /// room.
    pub fn why_not_grow(&self, blocks: u32) -> Option<String> {
        self.larger(blocks).err()
    }

    /// Number of data blocks after growth by `blocks` blocks, or why that is not possible.
    ///
    /// # Errors
    /// As [`Ftl::why_not_grow`].
    pub fn data_blocks_with(&self, blocks: u32) -> Result<u32, String> {
        let (geometry, sizes) = self.larger(blocks)?;
        let meta = sizes.anchors + sizes.map_blocks + sizes.log_blocks;
        Ok(geometry.blocks().saturating_sub(meta))
    }

    /// Geometry and area sizes with `blocks` more blocks.
    fn larger(&self, blocks: u32) -> Result<(Geometry, Sizes), String> {
        if self.geometry.planes() != 1 {
            return Err("it has several planes".into());
        }
        let mut geometry = self.geometry;
        let more = geometry.blocks_per_plane.checked_add(blocks);
        geometry.blocks_per_plane = more.ok_or("it has all blocks that can be numbered")?;
        geometry.validate().map_err(|error| error.to_string())?;
        let sizes = self.sizes_of(&geometry)?;
        // The lists in a root: two blocks suffice for two roots if each root fits into a block.
        let lists = if self.format.zoned {
            u64::from(geometry.blocks()) / 5 + 256
        } else {
            256
        };
        let words = u64::from(sizes.map_pages + sizes.map_blocks + sizes.log_blocks) + lists;
        let room = self.pairs.meta_pages.len() as u64
            * u64::from(self.geometry.page_bytes.saturating_sub(32));
        let keeps_anchors = sizes.anchors as usize == self.meta.anchors.len();
        if !self.format.persist_map || (keeps_anchors && 4 * words <= room) {
            Ok((geometry, sizes))
        } else {
            Err(format!(
                "its root, which lists {} pages of the mapping table, would no longer fit a block",
                sizes.map_pages
            ))
        }
    }

    /// Number of blocks, counted from the first, that can be allocated: the medium has room for
    /// them.
    pub fn blocks_with_room(&self) -> u32 {
        self.room_end.map_or(self.geometry.blocks(), |end| end.0)
    }

    /// Limits allocation to the first `blocks` blocks until the next call. On a sparse medium a
    /// device can have more blocks than the medium has room for: it then offers high logical pages,
    /// and collects within the first `blocks` blocks.
    pub fn give_out(&mut self, blocks: u32) {
        let before = self.end_of_given_out();
        self.room_end = (blocks < self.geometry.blocks()).then_some(Pbn(blocks));
        self.move_end_of_given_out(before);
    }

    /// The first block that must not be allocated, because the device will end there or the medium
    /// has no room for it.
    pub(super) fn end_of_given_out(&self) -> Pbn {
        let ends = [self.end, self.room_end].into_iter().flatten();
        ends.fold(Pbn(self.geometry.blocks()), Pbn::min)
    }

    /// Removes free blocks from the pool, or returns them, after a change of the first block that
    /// must not be allocated. `before` is its old value.
    pub(super) fn move_end_of_given_out(&mut self, before: Pbn) {
        let end = self.end_of_given_out();
        if end < before {
            self.free.take_from(end);
        }
        for block in (before.0..end.0).map(Pbn) {
            if self.block_state(block) == BlockState::Free {
                self.free_block(block);
            }
        }
    }

    fn sizes_of(&self, geometry: &Geometry) -> Result<Sizes, String> {
        let in_service = self.blocks.iter();
        let bad = in_service.filter(|block| block.state == BlockState::Bad);
        let good = geometry.blocks() - bad.count() as u32;
        Sizes::new(geometry, &self.config, &self.format, good).map_err(|error| error.0)
    }

    /// Asks the medium for `blocks` more blocks and puts the added ones into service. Returns their
    /// number.
    ///
    /// # Errors
    /// The device has a form that cannot grow, or the power fails.
    pub fn grow(&mut self, now: Nanos, blocks: u32) -> Result<u32, FtlError> {
        let larger = self.larger(blocks);
        let (_, sizes) =
            larger.map_err(|why| FtlError::Setting(format!("this device cannot grow: {why}")))?;
        if self.format.persist_map {
            self.promise(now, &sizes)?;
        }
        self.flash.grow(blocks)?;
        let geometry = *self.flash.geometry();
        let (old, new) = (self.geometry.blocks(), geometry.blocks());
        if new == old {
            return Ok(0);
        }
        let sizes = self.sizes_of(&geometry).map_err(FtlError::Setting)?;
        self.geometry = geometry;
        self.addresses = Addresses::new(&geometry);
        self.logical_pages = sizes.logical_pages;
        self.gc_threshold_blocks = self.gc_threshold_blocks.max(sizes.gc_threshold_blocks);
        let entries = sizes.logical_pages as usize;
        self.map.resize(entries * SLOT_BYTES, EMPTY_BYTE);
        let map_pages = sizes.map_pages as usize;
        self.meta.directory.resize(map_pages, NONE);
        self.dirty_map_pages.resize(map_pages.div_ceil(64), 0);
        self.live
            .resize((geometry.pages() as usize).div_ceil(64), 0);
        let blank = Block {
            state: BlockState::Free,
            stale: true,
            left: false,
            failing: false,
            live: 0,
            pins: 0,
        };
        self.blocks.resize(new as usize, blank);
        self.erases.resize(new as usize, 0);
        self.victims.grow(new);
        self.scrub.grow(&geometry, self.config.scrub);
        let (come, later): (Vec<Pbn>, _) =
            (self.meta.promised.drain(..)).partition(|block| block.0 < new);
        self.meta.promised = later;
        for &block in &come {
            self.blocks[block.index()].state = BlockState::Meta;
            self.meta.take(MetaBlock::blank(block));
        }
        for block in (old..new).map(Pbn).filter(|block| !come.contains(block)) {
            self.free_block(block);
        }
        Ok(new - old)
    }

    /// Sets the area for translation pages and logs to the blocks that a root lists.
    pub(super) fn take_pool(&mut self, pool: &[Pbn]) -> Result<(), FtlError> {
        self.doubt_pool(pool)?;
        let state = |flash: &dyn Flash, block| {
            if flash.is_factory_bad(block) {
                BlockState::Bad
            } else {
                BlockState::Free
            }
        };
        self.meta.places.clear();
        for before in std::mem::take(&mut self.meta.pool) {
            self.blocks[before.block.index()].state = state(self.flash.as_ref(), before.block);
        }
        self.meta.is_named = true;
        for &block in pool {
            match self.blocks.get_mut(block.index()) {
                Some(entry) => {
                    entry.state = BlockState::Meta;
                    self.meta.take(MetaBlock::blank(block));
                }
                None => self.meta.promised.push(block),
            }
        }
        Ok(())
    }

    /// Writes a root that lists the future blocks of the area for mapping pages, including those
    /// beyond the device, unless there is such a root. Returns when it is durable.
    fn promise(&mut self, now: Nanos, sizes: &Sizes) -> Result<(), FtlError> {
        let wanted = (sizes.map_blocks + sizes.log_blocks) as usize;
        let more = wanted.saturating_sub(self.meta.pool.len()) as u32;
        let end = self.geometry.blocks();
        let promised: Vec<Pbn> = (end..end + more).map(Pbn).collect();
        if self.meta.is_named && self.meta.promised == promised {
            return Ok(());
        }
        let was_named = std::mem::replace(&mut self.meta.is_named, true);
        let before = std::mem::replace(&mut self.meta.promised, promised);
        if !self.config.mistake.is(Mistake::GrowthUnnamed) {
            // A root that could not be written does not count.
            self.write_root(now).inspect_err(|_| {
                (self.meta.is_named, self.meta.promised) = (was_named, before);
            })?;
        }
        Ok(())
    }
}
