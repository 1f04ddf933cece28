//! Tables at rest: a close writes the tables of the device behind the last block, so that the next
//! opening need not read the blocks.
//!
//! ```text
//!   medium    | superblock | superblock | block 0 | ... | last block | at rest | ... |
//!   at rest   a page as all others; its generation is [`AT_REST`] and the sequence of the
//!             superblock that says so, its number counts from 0 there
//!   contents  | version 2 | generation 8, pages seen 2 of each block | tables of the device |
//! ```
//!
//! They are written if the opening wrote several times as much ([`is_worth`]). They are valid while
//! the superblock that names them is the newest one: the first write of an opening revokes them. A
//! store that grows overwrites them; as pages of a block they read as blank. If they are missing or
//! damaged, the blocks are read, as after a crash.

use super::{AT_REST, DATA_BYTES, Judged, MediumFlash, end_page, judge, medium_bytes};
use crate::medium::Medium;
use crate::medium::gaps::is_bad_sector;
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

/// Version of the format. Tables of other versions are ignored.
const VERSION: u16 = 1;
const VERSION_BYTES: usize = 2;

/// Whether a close leaves tables of `pages` pages after an opening that wrote `wrote` bytes. The
/// tables add at most a quarter to them.
pub(crate) fn is_worth(wrote: u64, pages: u32) -> bool {
    wrote / 16 >= u64::from(pages)
}

impl MediumFlash {
    /// Writes the tables that the next superblock will name. Returns their number of pages, or 0 if
    /// there is no space for them.
    pub(super) fn leave_tables(&mut self, tables: &[u8]) -> Result<u32, FlashError> {
        let generations = self.places.state().generations.clone();
        let bytes = VERSION_BYTES + generations.len() * rested_block::SIZE + tables.len();
        let pages = bytes.div_ceil(DATA_BYTES);
        let offset = medium_bytes(self.geometry.pages_per_block, self.geometry.blocks());
        // Lack of space is not a failure.
        let end = offset + (pages * MEDIUM_PAGE_BYTES) as u64;
        if self.medium().reserve(end).is_err() {
            return Ok(0);
        }
        self.places.has_written();
        let mut leaving = Leaving {
            flash: self,
            offset,
            generation: AT_REST | (self.superblock.sequence + 1),
            number: 0,
            filled: 0,
            pages: vec![[0; MEDIUM_PAGE_BYTES]; pages.min(PAGES_AT_ONCE)],
        };
        leaving.add(&VERSION.to_le_bytes())?;
        for (&generation, &seen) in generations.iter().zip(&self.seen) {
            let mut record = [0; rested_block::SIZE];
            put(&mut record, rested_block::GENERATION, generation);
            put(&mut record, rested_block::SEEN, seen.into());
            leaving.add(&record)?;
        }
        leaving.add(tables)?;
        leaving.write()?;
        Ok(pages as u32)
    }

    /// Invalidates the tables that superblock `of` names and its successor revokes: if the
    /// successor is lost, the older superblock would still name them.
    pub(super) fn spoil_tables(&self, of: &Superblock) -> Result<(), FlashError> {
        self.places.has_written();
        self.count(|stats| {
            stats.writes += 1;
            stats.bytes += MEDIUM_PAGE_BYTES as u64;
        });
        let place = medium_bytes(of.pages_per_block, of.blocks);
        let written = self.medium().write_at(place, &[0; MEDIUM_PAGE_BYTES]);
        written.map_err(|error| self.fails("taking the tables of the last close back", error))
    }

    /// Repeats [`Self::spoil_tables`] after an opening that was cut before it was durable.
    pub(super) fn spoil_tables_of_older(&self) -> Result<(), FlashError> {
        let mut page = [0; MEDIUM_PAGE_BYTES];
        let place = Superblock::place(self.superblock.sequence + 1);
        let older = self.medium().read_at(place, &mut page);
        let older = older.ok().and_then(|()| Superblock::parse(&page).ok()?);
        if let Some(older) = older
            && let Ok(Ok(Some(_))) = Left::read(self.medium(), &older)
        {
            self.spoil_tables(&older)?;
        }
        Ok(())
    }

    /// Takes over the block states in `left`.
    pub(crate) fn believe(&mut self, left: &Left) {
        let mut state = self.places.state();
        for (block, record) in left.blocks.chunks_exact(rested_block::SIZE).enumerate() {
            state.generations[block] = get(record, rested_block::GENERATION);
            self.seen[block] = get(record, rested_block::SEEN) as u16;
        }
    }
}

/// Number of pages that are written or read at a time, to bound the memory for a second copy.
const PAGES_AT_ONCE: usize = if cfg!(test) { 2 } else { 256 };

/// Writes the tables of a close in pieces.
struct Leaving<'a> {
    flash: &'a MediumFlash,
    /// Offset of the next pages on the medium.
    offset: u64,
    generation: u64,
    /// Number of the first page in the buffer.
    number: u32,
    /// Data bytes in the buffer.
    filled: usize,
    pages: Vec<[u8; MEDIUM_PAGE_BYTES]>,
}

impl Leaving<'_> {
    fn add(&mut self, mut bytes: &[u8]) -> Result<(), FlashError> {
        while !bytes.is_empty() {
            if self.filled == self.pages.len() * DATA_BYTES {
                self.write()?;
            }
            let (page, from) = (self.filled / DATA_BYTES, self.filled % DATA_BYTES);
            let (now, later) = bytes.split_at(bytes.len().min(DATA_BYTES - from));
            self.pages[page][from..][..now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
        }
        Ok(())
    }

    /// Writes the buffered pages, the last one possibly in part.
    fn write(&mut self) -> Result<(), FlashError> {
        let count = self.filled.div_ceil(DATA_BYTES);
        let pages = &mut self.pages[..count];
        for (page, number) in pages.iter_mut().zip(self.number..) {
            let has = self.filled.min(DATA_BYTES);
            let (data, end) = page.split_at_mut(DATA_BYTES);
            data[has..].fill(0);
            end_page(
                data,
                end,
                has,
                self.generation,
                Ppn(number),
                self.flash.superblock.identity,
            );
            self.filled -= has;
        }
        let bytes = pages.as_flattened();
        let written = self.flash.medium().write_at(self.offset, bytes);
        written.map_err(|error| self.flash.fails("writing what a close leaves", error))?;
        self.flash.count(|stats| {
            stats.writes += 1;
            stats.bytes += bytes.len() as u64;
        });
        self.offset += bytes.len() as u64;
        self.number += count as u32;
        Ok(())
    }
}

/// The tables that a close left.
pub(crate) struct Left {
    /// One [`rested_block`] per block.
    blocks: Vec<u8>,
    /// The tables of the device.
    pub(crate) tables: Vec<u8>,
}

impl Left {
    /// Reads the tables that the last close left, if any.
    ///
    /// # Errors
    /// The medium fails. The inner error says why the tables are not valid.
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
        let at_once = PAGES_AT_ONCE.min(superblock.rested as usize);
        let mut pages = vec![[0; MEDIUM_PAGE_BYTES]; at_once];
        for first in (0..superblock.rested).step_by(PAGES_AT_ONCE) {
            let count = (superblock.rested - first).min(PAGES_AT_ONCE as u32);
            let pages = &mut pages[..count as usize];
            let at = offset + u64::from(first) * MEDIUM_PAGE_BYTES as u64;
            match medium.read_at(at, pages.as_flattened_mut()) {
                Err(error) if is_bad_sector(&error) => {
                    return Ok(Err(format!(
                        "page {first} of them, or one behind it: {error}"
                    )));
                }
                read => read?,
            }
            for (page, number) in pages.iter().zip(first..) {
                let (data, end) = page.split_at(DATA_BYTES);
                let judged = judge(data, end, Ppn(number), generation, superblock.identity);
                let Judged::Whole(has) = judged else {
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
