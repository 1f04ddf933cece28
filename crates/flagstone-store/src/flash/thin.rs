//! The first blocks of a store, which take their room piece by piece.
//!
//! A new store is a file of 16 blocks, most of it a hole. A process with a thousand small stores
//! has a few pages in each, so a block takes room as it is written to:
//!
//! ```text
//!   block    | mark .. 5 | 6 .. 13 | 14 .. 29 | 30 .. 61 | 62 .. 93 | 94 .. |
//!   pages      6           8         16         32         32         32
//! ```
//!
//! A piece is filled with zeros past the cache of the system as a whole block is elsewhere
//! ([`Medium::prepare`]). Nothing promises that there is room for the next piece: until a store has
//! grown, or has taken all of its first blocks, it asks for free room before each write
//! ([`Medium::left`]). A store that grows takes all of its first blocks.

use super::{MEDIUM_PAGE_BYTES, MediumFlash};
use crate::medium::Medium;
use crate::pages::FIRST_BLOCKS;
use flagstone::nand::FlashError;
use flagstone::units::{Pbn, Ppn};

/// Pages of the medium that the first piece of a block has, the mark included. With the two
/// superblocks and the second piece a store takes 64 KiB.
const FIRST_PIECE: u32 = 6;

/// Pages of a piece at most: a page is written twice, once as zeros, and no more of them ahead.
const PIECE_MOST: u32 = 32;

/// Free room of a file system that a thin store needs for a write: for the pieces of a few blocks,
/// the summaries of a close, and the journal of the file system.
const LEFT_LEAST: u64 = 1 << 20;

/// Whether a store has still to take room for blocks that it has, and may be left without.
pub(crate) fn is_short(medium: &dyn Medium) -> bool {
    medium.left().is_some_and(|left| left < LEFT_LEAST)
}

/// Whether a store of `blocks` blocks has holes where blocks are to be.
pub(crate) fn is_thin(medium: &dyn Medium, blocks: u32) -> bool {
    blocks == FIRST_BLOCKS && medium.is_thin()
}

/// What the blocks of a store that is opened to be written are known to have taken: nothing, if it
/// has holes.
pub(super) fn begin(medium: &dyn Medium, blocks: u32, read_only: bool) -> Option<Vec<Taken>> {
    let is_thin = !read_only && is_thin(medium, blocks);
    is_thin.then(|| vec![Taken::default(); blocks as usize])
}

/// What a block has taken.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Taken {
    /// Its first pages, the mark included.
    pages: u32,
    /// Whether nothing was ever written to the others.
    is_new: bool,
}

impl MediumFlash {
    /// Pages of the medium that a piece ends behind which has page `page`, counted from the mark.
    fn end_of_piece(&self, page: u32) -> u32 {
        let mut end = FIRST_PIECE;
        while end <= page {
            end = (2 * end + 2).min(end + PIECE_MOST);
        }
        end.min(self.geometry.pages_per_block + 1)
    }

    /// Begins with the first piece of a block that is being erased: all pieces of one that is new
    /// have still to be taken. Returns whether blocks take their room so.
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

    /// Takes room for the piece of a page that is being programmed.
    #[inline]
    pub(super) fn take_page(&mut self, at: Ppn) -> Result<(), FlashError> {
        match self.taken {
            None => Ok(()),
            Some(_) => self.take_piece(at),
        }
    }

    #[cold]
    fn take_piece(&mut self, at: Ppn) -> Result<(), FlashError> {
        let (block, page) = (
            self.geometry.block_of(at),
            self.geometry.page_in_block(at) + 1,
        );
        let taken = self.taken.as_ref().map(|taken| taken[block.index()]);
        let Taken {
            pages: begin,
            is_new,
        } = taken.unwrap_or_default();
        // A summary of a block that a close has ended early stands by itself.
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
            // An earlier opening has written to the block, so that it is not known what it took.
            let took = self.medium().take(offset, bytes as u64);
            took.map_err(|error| self.fails("taking room for a block", error))?;
        }
        if let Some(taken) = &mut self.taken {
            taken[block.index()].pages = end;
        }
        Ok(())
    }

    /// Has the medium make the pages of a block ready whose room was given back.
    pub(super) fn prepare_pages(&self, block: Pbn) -> Result<(), FlashError> {
        let offset = (self.mark_of(block) + 1) * MEDIUM_PAGE_BYTES as u64;
        let bytes = self.geometry.pages_per_block as usize * MEDIUM_PAGE_BYTES;
        self.prepare(offset, bytes)
    }

    /// Takes room for all blocks that there are, since the store is about to grow. Returns whether
    /// there is so much. A medium that refuses has noted why.
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
