//! What a close leaves for the next opening: the tables of the device at rest, behind the last
//! block, so that the opening need not read the blocks.
//!
//! ```text
//!   medium    | superblock | superblock | block 0 | ... | last block | at rest | ... |
//!   at rest   a page as all others; its generation is [`AT_REST`] and the sequence of the
//!             superblock that says so, its number counts from 0 there
//!   contents  | version 2 | generation 8, pages seen 2 of each block | tables of the device |
//! ```
//!
//! They are left if the opening wrote several times as much ([`is_worth`]). They count while the
//! superblock that speaks of them is the newest one: the first write of an opening takes them back.
//! A store that grows writes over them; to a block they are blank pages. Where they are missing or
//! wrong the blocks are read, as after a crash.

use super::{DATA_BYTES, Judged, MediumFlash, end_page, judge, medium_bytes};
use crate::medium::Medium;
use crate::superblock::{MEDIUM_PAGE_BYTES, Superblock};
use flagstone::layout;
use flagstone::layout::{get, put};
use flagstone::nand::FlashError;
use flagstone::units::Ppn;
use std::io;

layout! {
    /// A block, in what a close leaves for the next opening.
    pub rested_block: 10 => {
        GENERATION: 8, "its generation; all ones if that was not looked at";
        SEEN:       2, "pages below this one were found or written";
    }
}

/// Set in the generation of pages at rest, and of no block.
const AT_REST: u64 = 1 << 63;

/// What is at rest, and how. Other versions are passed over.
const VERSION: u16 = 1;
const VERSION_BYTES: usize = 2;

/// Whether an opening that wrote so much leaves the tables of so many pages. It writes a quarter
/// more by it at most.
pub(crate) fn is_worth(wrote: u64, pages: u32) -> bool {
    wrote / 16 >= u64::from(pages)
}

impl MediumFlash {
    /// Writes tables, for the superblock that comes next. Returns how many pages they take: none if
    /// there is no room for them.
    pub(super) fn leave_tables(&mut self, tables: &[u8]) -> Result<u32, FlashError> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        let generations = self.places.state().generations.clone();
        for (&generation, &seen) in generations.iter().zip(&self.seen) {
            let mut record = [0; rested_block::SIZE];
            put(&mut record, rested_block::GENERATION, generation);
            put(&mut record, rested_block::SEEN, seen.into());
            bytes.extend(record);
        }
        bytes.extend_from_slice(tables);
        let generation = AT_REST | (self.superblock.sequence + 1);
        let pages = bytes.chunks(DATA_BYTES).zip(0..);
        let pages: Vec<[u8; MEDIUM_PAGE_BYTES]> = pages
            .map(|(chunk, number)| {
                let mut page = [0; MEDIUM_PAGE_BYTES];
                let (data, end) = page.split_at_mut(DATA_BYTES);
                data[..chunk.len()].copy_from_slice(chunk);
                end_page(data, end, chunk.len(), generation, Ppn(number));
                page
            })
            .collect();
        let bytes = (pages.len() * MEDIUM_PAGE_BYTES) as u64;
        let offset = medium_bytes(self.geometry.pages_per_block, self.geometry.blocks());
        // No room for them is an answer, and no failure.
        if self.medium().reserve(offset + bytes).is_err() {
            return Ok(0);
        }
        self.places.has_written();
        let written = self.medium().write_at(offset, pages.as_flattened());
        written.map_err(|error| self.fails("writing what a close leaves", error))?;
        self.count(|stats| {
            stats.writes += 1;
            stats.bytes += bytes;
        });
        Ok(pages.len() as u32)
    }

    /// Takes what tables say of blocks for what is on the medium.
    pub(crate) fn believe(&mut self, left: &Left) {
        let mut state = self.places.state();
        for (block, record) in left.blocks.chunks_exact(rested_block::SIZE).enumerate() {
            state.generations[block] = get(record, rested_block::GENERATION);
            self.seen[block] = get(record, rested_block::SEEN) as u16;
        }
    }
}

/// Pages of what a close has left that are read at once.
const READ_PAGES: usize = 256;

/// What a close has left.
pub(crate) struct Left {
    /// A [`rested_block`] for each block.
    blocks: Vec<u8>,
    /// The tables of the device.
    pub(crate) tables: Vec<u8>,
}

impl Left {
    /// Reads what the last close has left, if it has left anything.
    ///
    /// # Errors
    /// The medium fails; within, what is wrong with what is there.
    pub(crate) fn read(
        medium: &dyn Medium,
        superblock: &Superblock,
    ) -> io::Result<Result<Option<Left>, String>> {
        if superblock.closed != Some(true) || superblock.rested == 0 {
            return Ok(Ok(None));
        }
        let offset = medium_bytes(superblock.pages_per_block, superblock.blocks);
        let bytes = u64::from(superblock.rested) * MEDIUM_PAGE_BYTES as u64;
        if medium.bytes()? < offset + bytes {
            return Ok(Err("the end of the store is missing".into()));
        }
        let generation = AT_REST | superblock.sequence;
        let of_blocks = VERSION_BYTES + superblock.blocks as usize * rested_block::SIZE;
        let all = superblock.rested as usize * DATA_BYTES;
        let mut blocks = Vec::with_capacity(of_blocks.min(all));
        let mut tables = Vec::with_capacity(all.saturating_sub(of_blocks));
        // A few pages at a time: in memory the tables are there once.
        let mut pages = vec![[0; MEDIUM_PAGE_BYTES]; READ_PAGES.min(superblock.rested as usize)];
        for first in (0..superblock.rested).step_by(READ_PAGES) {
            let count = (superblock.rested - first).min(READ_PAGES as u32);
            let pages = &mut pages[..count as usize];
            let at = offset + u64::from(first) * MEDIUM_PAGE_BYTES as u64;
            medium.read_at(at, pages.as_flattened_mut())?;
            for (page, number) in pages.iter().zip(first..) {
                let (data, end) = page.split_at(DATA_BYTES);
                let Judged::Whole(has) = judge(data, end, Ppn(number), generation) else {
                    return Ok(Err(format!("page {number} of them is damaged")));
                };
                let (of_block, others) = data[..has].split_at(has.min(of_blocks - blocks.len()));
                blocks.extend_from_slice(of_block);
                tables.extend_from_slice(others);
            }
        }
        if !blocks.starts_with(&VERSION.to_le_bytes()) {
            return Ok(Ok(None));
        }
        if blocks.len() < of_blocks {
            return Ok(Err("they end early".into()));
        }
        blocks.drain(..VERSION_BYTES);
        Ok(Ok(Some(Left { blocks, tables })))
    }
}
