//! A device that becomes larger while it is used, as a file can.
//!
//! New blocks lie behind the last one of the only plane, so that no page changes its number. The
//! area for roots stays where it is, which is why a mapping table on flash, or logs, do not grow.

use super::config::Sizes;
use super::{Addresses, Block, BlockState, EMPTY, Ftl, FtlError};
use crate::units::Pbn;

impl Ftl {
    /// Whether the device can become larger, if its medium can.
    pub fn can_grow(&self) -> bool {
        self.geometry.planes() == 1 && !self.format.persist_map && self.format.logs == 0
    }

    /// Asks the medium for so many more blocks and takes into service those that it has added.
    /// Returns how many these are.
    ///
    /// # Errors
    /// The device is of a form that cannot grow, or the power fails.
    pub fn grow(&mut self, blocks: u32) -> Result<u32, FtlError> {
        if !self.can_grow() {
            return Err(FtlError::Setting(
                "this device keeps its mapping table or logs in an area of fixed size, so it cannot \
                 grow: make it as large as it is to become"
                    .into(),
            ));
        }
        self.flash.grow(blocks)?;
        let geometry = *self.flash.geometry();
        let (old, new) = (self.geometry.blocks(), geometry.blocks());
        let in_service = self.blocks.iter();
        let bad = in_service
            .filter(|block| block.state == BlockState::Bad)
            .count();
        let sizes = Sizes::new(&geometry, &self.config, &self.format, new - bad as u32)
            .map_err(|error| FtlError::Setting(error.0))?;
        self.geometry = geometry;
        self.addresses = Addresses::new(&geometry);
        self.logical_pages = sizes.logical_pages;
        self.gc_threshold_blocks = self.gc_threshold_blocks.max(sizes.gc_threshold_blocks);
        self.map
            .resize(sizes.logical_pages as usize, EMPTY.to_le_bytes());
        self.live
            .resize((geometry.pages() as usize).div_ceil(64), 0);
        let blank = Block {
            state: BlockState::Free,
            stale: true,
            failing: false,
            live: 0,
            pins: 0,
        };
        self.blocks.resize(new as usize, blank);
        self.erases.resize(new as usize, 0);
        self.victims.grow(new);
        self.scrub.grow(&geometry, self.config.scrub);
        (old..new).for_each(|block| self.free_block(Pbn(block)));
        Ok(new - old)
    }
}
