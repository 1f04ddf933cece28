//! The pool of a device that grows: a root lists its blocks, before the medium has them.

use super::{Journal, MetaBlock, NONE};
use crate::ftl::config::{Mistake, Sizes};
use crate::ftl::{BlockState, Ftl, FtlError};
use crate::nand::Flash;
use crate::units::{Nanos, Pbn};

impl Journal {
    /// Adapts to a device of `blocks` blocks whose mapping table has `map_pages` pages. Returns the
    /// new blocks of the pool.
    pub(in crate::ftl) fn grow(&mut self, map_pages: u32, blocks: u32) -> Vec<Pbn> {
        self.directory.resize(map_pages as usize, NONE);
        let (come, later): (Vec<Pbn>, _) =
            (self.promised.drain(..)).partition(|block| block.0 < blocks);
        self.promised = later;
        for &block in &come {
            self.take(MetaBlock::blank(block));
        }
        come
    }
}

impl Ftl {
    /// Sets the area for translation pages and logs to the blocks that a root lists.
    pub(in crate::ftl) fn take_pool(&mut self, pool: &[Pbn]) -> Result<(), FtlError> {
        self.journal.doubt_pool(&self.geometry, pool)?;
        let state = |flash: &dyn Flash, block| {
            if flash.is_factory_bad(block) {
                BlockState::Bad
            } else {
                BlockState::Free
            }
        };
        self.journal.places.clear();
        for before in std::mem::take(&mut self.journal.pool) {
            self.blocks
                .set_state(before.block, state(self.flash.as_ref(), before.block));
        }
        self.journal.is_named = true;
        for &block in pool {
            if block.0 < self.blocks.len() {
                self.blocks.set_state(block, BlockState::Meta);
                self.journal.take(MetaBlock::blank(block));
            } else {
                self.journal.promised.push(block);
            }
        }
        Ok(())
    }

    /// Writes a root that lists the future blocks of the area for mapping pages, including those
    /// beyond the device, unless there is such a root. Returns when it is durable.
    pub(in crate::ftl) fn promise(&mut self, now: Nanos, sizes: &Sizes) -> Result<(), FtlError> {
        let wanted = (sizes.map_blocks + sizes.log_blocks) as usize;
        let more = wanted.saturating_sub(self.journal.pool.len()) as u32;
        let end = self.geometry.blocks();
        let promised: Vec<Pbn> = (end..end + more).map(Pbn).collect();
        if self.journal.is_named && self.journal.promised == promised {
            return Ok(());
        }
        let was_named = std::mem::replace(&mut self.journal.is_named, true);
        let before = std::mem::replace(&mut self.journal.promised, promised);
        if !self.config.mistake.is(Mistake::GrowthUnnamed) {
            // A root that could not be written does not count.
            self.write_root(now).inspect_err(|_| {
                (self.journal.is_named, self.journal.promised) = (was_named, before);
            })?;
        }
        Ok(())
    }
}
