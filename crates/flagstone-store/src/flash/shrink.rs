//! Shrinks a store: removes its last blocks, which hold no valid data.
//!
//! ```text
//!   superblocks    n: 40 blocks     n+1: 20 blocks, up to 40 are left     n+3: 20 blocks
//!                                   n+2: the same
//!   medium         as it was        as it was ───────────── cut ──────────────┘
//! ```
//!
//! 1. All pages moved out of the last blocks are durable, and so are these blocks' erases.
//! 2. Both superblocks give the new number of blocks, and the block up to which remains may exist
//!    ([`LEFT`]). If the newer one is lost, the older one refers to nothing that is gone. Otherwise
//!    marks behind the last block would look like those of a store with a lost superblock.
//! 3. The medium is truncated. If it refuses, the marks and pages of those blocks are zeroed.
//! 4. Once that is durable, the next superblock says that there are no remains.
//!
//! A power cut between two steps leaves a store of the old size, or one of the new size with
//! remains. The next opening that writes continues with step 3.
//!
//! [`LEFT`]: crate::superblock::superblock::LEFT

use super::{MediumFlash, clear_marks, geometry, medium_bytes};
use flagstone::nand::FlashError;

impl MediumFlash {
    /// Writes a superblock that counts this opening, before anything else is written. Only the
    /// first call has an effect.
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

    /// Shrinks the store to its first `blocks` blocks, in the steps above. The caller has moved all
    /// valid data out of the others.
    pub(super) fn shrink_medium(&mut self, blocks: u32) -> Result<(), FlashError> {
        self.write_out()?;
        self.sync_medium()?;
        self.places.carry_out()?;
        self.begin_to_write()?;
        self.superblock.left = self.superblock.blocks;
        self.superblock.blocks = blocks;
        // Both copies.
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

    /// Truncates the medium behind the last block, and updates the superblock.
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
