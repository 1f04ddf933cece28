//! A store that becomes smaller: its last blocks, which hold nothing that counts, go.
//!
//! ```text
//!   superblocks    n: 40 blocks     n+1: 20 blocks, up to 40 are left     n+3: 20 blocks
//!                                   n+2: the same
//!   medium         as it was        as it was ───────────── cut ──────────────┘
//! ```
//!
//! 1. Everything is durable that was moved out of the last blocks, and so are their erases.
//! 2. Both superblocks say how many blocks there are now, and up to which one something may be left
//!    ([`LEFT`]): should the newer one be lost, the other one asks for nothing that is gone. Marks
//!    behind the last block would otherwise be those of a store whose newest superblock was lost.
//! 3. The medium is cut. Where it refuses, the marks and pages of those blocks become zeros.
//! 4. When that is durable the next superblock says that nothing is left.
//!
//! A cut of the power between two of these steps leaves a store of the old size, or one of the new
//! size with something behind it, and its next opening that writes goes on with the third step.
//!
//! [`LEFT`]: crate::superblock::superblock::LEFT

use super::{MediumFlash, clear_marks, geometry, medium_bytes};
use flagstone::nand::FlashError;

impl MediumFlash {
    /// Counts this opening and says so in the superblock, before anything else is written; at the
    /// first call only.
    pub(super) fn begin_to_write(&mut self) -> Result<(), FlashError> {
        if self.counted {
            return Ok(());
        }
        self.count_opening()?;
        self.write_superblock(false)?;
        match self.superblock.left {
            0 => Ok(()),
            _ => self.cut_off(),
        }
    }

    /// Keeps the first so many blocks.
    pub(super) fn shrink_medium(&mut self, blocks: u32) -> Result<(), FlashError> {
        self.write_out()?;
        self.sync_medium()?;
        self.places.carry_out()?;
        self.begin_to_write()?;
        self.superblock.left = self.superblock.blocks;
        self.superblock.blocks = blocks;
        self.write_superblock(false)?;
        self.write_superblock(false)?;
        self.geometry = geometry(self.geometry.pages_per_block, blocks);
        let mut state = self.places.state();
        state.generations.truncate(blocks as usize);
        state.discarded.retain(|block| block.0 < blocks);
        drop(state);
        self.seen.truncate(blocks as usize);
        if let Some(taken) = &mut self.taken {
            taken.truncate(blocks as usize);
        }
        self.cut_off()
    }

    /// Cuts the medium behind the last block, and says so in the superblock.
    fn cut_off(&mut self) -> Result<(), FlashError> {
        let (pages, blocks) = (self.geometry.pages_per_block, self.superblock.blocks);
        let left = blocks..self.superblock.left;
        if self.medium().shorten(medium_bytes(pages, blocks)).is_err() {
            let cleared = clear_marks(self.medium(), pages, self.superblock.identity, left);
            cleared
                .map_err(|error| self.fails("clearing what is left of a larger store", error))?;
        }
        self.places.sync()?;
        self.superblock.left = 0;
        self.write_superblock(false)
    }
}
