//! The first blocks of a store, which allocate their room in pieces.
//!
//! A new store is a file of 16 blocks and mostly a hole. A process with a thousand small stores
//! uses only a few pages of each, so a block allocates room as it is written:
//!
//! ```text
//!   block    | mark .. 5 | 6 .. 13 | 14 .. 29 | 30 .. 61 | 62 .. 93 | 94 .. |
//!   pages      6           8         16         32         32         32
//! ```
//!
//! A piece is filled with zeros, bypassing the system's cache, as a whole block is in other stores
//! ([`Medium::prepare`]). Room for the next piece is not guaranteed: until a store has grown, or
//! all of its first blocks are allocated, it checks the free room before each write
//! ([`Medium::left`]). Growth allocates all of the first blocks.

use super::{MEDIUM_PAGE_BYTES, MediumFlash};
use crate::medium::Medium;
use crate::pages::FIRST_BLOCKS;
use flagstone::nand::FlashError;
use flagstone::units::{Pbn, Ppn};

/// Pages in the first piece of a block, mark included. With the two superblocks and the second
/// piece a store takes 64 KiB.
const FIRST_PIECE: u32 = 6;

/// Maximum pages of a piece. Larger pieces would write more zeros ahead of the data.
const PIECE_MOST: u32 = 32;

/// Free room of the file system that a thin store requires for a write: for the pieces of a few
/// blocks, the summaries of a close, and the journal of the file system.
const LEFT_LEAST: u64 = 1 << 20;

/// Whether the free space is too small for a write to a thin store.
pub(crate) fn is_short(medium: &dyn Medium) -> bool {
    medium.left().is_some_and(|left| left < LEFT_LEAST)
}

/// Whether a store of `blocks` blocks has holes in place of blocks.
pub(crate) fn is_thin(medium: &dyn Medium, blocks: u32) -> bool {
    blocks == FIRST_BLOCKS && medium.is_thin()
}

/// The allocation of each block of a thin store that is opened for writing. All are unknown at
/// first. `None` for other stores.
pub(super) fn begin(medium: &dyn Medium, blocks: u32, read_only: bool) -> Option<Vec<Taken>> {
    let is_thin = !read_only && is_thin(medium, blocks);
    is_thin.then(|| vec![Taken::default(); blocks as usize])
}

/// The allocated part of a block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Taken {
    /// Number of allocated pages from the begin, mark included.
    pages: u32,
    /// Whether the other pages were never written.
    is_new: bool,
}

impl MediumFlash {
    /// The end of the piece that contains `page`. Pages are counted from the mark.
    fn end_of_piece(&self, page: u32) -> u32 {
        let mut end = FIRST_PIECE;
        while end <= page {
            end = (2 * end + 2).min(end + PIECE_MOST);
        }
        end.min(self.geometry.pages_per_block + 1)
    }

    /// Allocates the first piece of a block that is being erased. `is_new`: no piece is allocated
    /// yet. Returns whether blocks allocate their room in pieces.
    pub(super) fn take_block(&mut self, block: Pbn, is_new: bool) -> Result<bool, FlashError> {
        let Some(taken) = &mut self.taken else {
            return Ok(false);
        };
        let of_block = &mut taken[block.index()];
        if is_new {
            *of_block = Taken { pages: 0, is_new };
        }
        self.take_page(self.geometry.page(block, 0))?;
        Ok(true)
    }

    /// Allocates the piece that contains a page which is being programmed.
    #[inline]
    pub(super) fn take_page(&mut self, at: Ppn) -> Result<(), FlashError> {
        match self.taken {
            None => Ok(()),
            Some(_) => self.take_piece(at),
        }
    }

    /// Implements [`Self::take_page`] for a store that allocates in pieces.
    #[cold]
    fn take_piece(&mut self, at: Ppn) -> Result<(), FlashError> {
        let block = self.geometry.block_of(at);
        // Counted from the mark.
        let page = self.geometry.page_in_block(at) + 1;
        let taken = self.taken.as_ref().map(|taken| taken[block.index()]);
        let Taken {
            pages: begin,
            is_new,
        } = taken.unwrap_or_default();
        // A close may write the summary in the last page while pages before it are blank. The write
        // itself allocates that page.
        let is_alone = page == self.geometry.pages_per_block && begin < page;
        if page < begin || is_alone {
            return Ok(());
        }
        let end = self.end_of_piece(page);
        let offset = (self.mark_of(block) + u64::from(begin)) * MEDIUM_PAGE_BYTES as u64;
        let bytes = (end - begin) as usize * MEDIUM_PAGE_BYTES;
        if is_new {
            self.prepare(offset, bytes)?;
        } else {
            // An earlier opening wrote to the block, so its allocation is unknown.
            let took = self.medium().take(offset, bytes as u64);
            took.map_err(|error| self.fails("taking room for a block", error))?;
        }
        if let Some(taken) = &mut self.taken {
            taken[block.index()].pages = end;
        }
        Ok(())
    }

    /// Prepares the pages of a block whose space was discarded.
    pub(super) fn prepare_pages(&self, block: Pbn) -> Result<(), FlashError> {
        let offset = (self.mark_of(block) + 1) * MEDIUM_PAGE_BYTES as u64;
        let bytes = self.geometry.pages_per_block as usize * MEDIUM_PAGE_BYTES;
        self.prepare(offset, bytes)
    }

    /// Allocates room for all existing blocks when the store grows. Returns whether there was
    /// enough; if not, the medium's error is noted.
    pub(super) fn take_all(&mut self) -> bool {
        if self.taken.is_none() {
            return true;
        }
        let bytes = super::medium_bytes(self.geometry.pages_per_block, self.geometry.blocks());
        match self.medium().take(0, bytes) {
            Ok(()) => self.taken = None,
            Err(error) => *self.places.notes.refused() = Some(error.to_string()),
        }
        self.taken.is_none()
    }
}
