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

use super::config::Sizes;
use super::{BlockState, Ftl, FtlError};
use crate::nand::Geometry;
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
        let keeps_anchors = sizes.anchors as usize == self.journal.anchors();
        if !self.format.persist_map || (keeps_anchors && 4 * words <= room) {
            Ok((geometry, sizes))
        } else {
            Err(format!(
                "its root, which lists {} pages of the mapping table, would no longer fit a block",
                sizes.map_pages
            ))
        }
    }

    fn sizes_of(&self, geometry: &Geometry) -> Result<Sizes, String> {
        let good = geometry.blocks() - self.blocks.out_of_service();
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
        let threshold = &mut self.collector.threshold_blocks;
        *threshold = (*threshold).max(sizes.gc_threshold_blocks);
        self.map.resize(&sizes);
        self.blocks.resize(&geometry);
        self.scrub.grow(&geometry, self.config.scrub);
        let come = self.journal.grow(sizes.map_pages, new);
        for &block in &come {
            self.blocks.set_state(block, BlockState::Meta);
        }
        for block in (old..new).map(Pbn).filter(|block| !come.contains(block)) {
            self.blocks.set_free(block);
        }
        Ok(new - old)
    }
}
