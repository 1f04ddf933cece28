//! A medium as flash: a page with its spare area has 4096 bytes, and a mark begins each block.
//!
//! ```text
//!   medium   | superblock | superblock | mark 0 | page 0 | page 1 | ... | mark 1 | page 0 | ...
//!   page     | data 4032 | spare 50 | bytes of data 2 | generation 8 | CRC-32C 4 |
//!   mark     | magic | block | generation | CRC-32C | identity |
//! ```
//!
//! To *erase* a block is to write its mark with a new generation. A page is valid if its generation
//! equals that of the mark. So an erase invalidates all pages of a block at once, however many of
//! them have been overwritten when the power fails.
//!
//! Programs and erases wait in memory until a [`Flash::sync`] needs them or a mebibyte waits. They
//! are then written in the order of their offsets, adjacent ones at once. The new mark of a reused
//! block is durable before its first new page is written: until then its old pages are intact.
//!
//! | what is found | reads as |
//! |---|---|
//! | another generation than that of the mark, or no mark | blank |
//! | the generation, and a wrong checksum: torn, flipped, of another place | uncorrectable |
//! | anything, in a block whose mark is damaged | uncorrectable |
//! | a newer generation than that of the mark, and a right checksum: the mark was lost | the page |
//! | blank, where a page of this block with a higher number was found or written | uncorrectable, when its data is asked for |
//!
//! A store never uses a generation twice: the upper half is the number of the opening ([`BOOT`]),
//! which is durable before the first write of that opening. The [`Identity`] tells its generations
//! from those of an older store on the same medium.
//!
//! [`BOOT`]: crate::superblock::superblock::BOOT
//! [`Identity`]: crate::identity::Identity

mod beyond;
mod glance;
mod life;
mod page;
pub(crate) mod places;
pub(crate) mod rest;
mod says;
mod shrink;
pub(crate) mod thin;
mod trouble;

pub(crate) use beyond::{highest_page, last_used, told_generation};
pub use glance::{Glance, Shown};
pub use life::MediumStats;
pub(crate) use life::mark_at;
pub(crate) use life::{Notes, blocks_in, clear_marks, emit_mark, generation_in, is_mark_lost};
pub(crate) use life::{mark_sum, page_generation, signed_mark, signer_of};
pub use page::page_sum;
use page::{Judged, end_page, judge, sum};
pub(crate) use trouble::is_no_room;

use crate::medium::Medium;
use crate::superblock::{MEDIUM_PAGE_BYTES, Superblock};
use flagstone::layout;
use flagstone::nand::{Cell, Flash, FlashError, Geometry, Pairing, Read, SaidAtErase};
use flagstone::units::{Nanos, Pbn, Ppn};
use places::{Page, Places, READING};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

layout! {
    /// What follows the data of a page of a store.
    pub trailer: 64 => {
        SPARE:      50, "the spare area of the page, behind what its owner uses filled with 0xff";
        BYTES:      2,  "bytes of data";
        GENERATION: 8,  "the erase of its block that it follows, XOR the identity of the store";
        CRC:        4,  "CRC-32C of the bytes before, of the number of the page (4 bytes), and of the identity (8) if the store has one";
    }
}

layout! {
    /// The begin of the page before each block.
    pub mark: 28 => {
        MAGIC:      4, "Mark";
        BLOCK:      4, "the block";
        GENERATION: 8, "the erase: in the upper half the number of the opening of the store";
        CRC:        4, "CRC-32C of the bytes before, and of the identity if the store has one";
        IDENTITY:   8, "the identity of the store, for those who know it from nowhere else; or 0";
    }
}

layout! {
    /// What the translation layer says at an erase, at byte 64 of the page of the mark.
    pub mark_says: 23 => {
        NUMBER:    6,  "the last write sequence that was given out";
        STATEMENT: 13, "what was durable, as in the spare area of a page";
        CRC:       4,  "CRC-32C of the first 16 bytes of the mark, of the bytes before, and of the identity of the store";
    }
}

/// Offset of [`mark_says`] in the page of the mark.
pub(crate) const SAYS_AT: usize = 64;

const MARK_MAGIC: &[u8; 4] = b"Mark";

/// Data bytes of a page.
pub(crate) const DATA_BYTES: usize = MEDIUM_PAGE_BYTES - trailer::SIZE;
const SPARE_BYTES: usize = trailer::SPARE.end;

/// Maximum number of pages that wait to be written.
const WAITING_MAX: usize = (1 << 20) / MEDIUM_PAGE_BYTES;

/// Pages of the medium before the first mark: the superblocks.
const HEAD_PAGES: u64 = 2;

/// This bit is set in the generation of tables at rest (see [`rest`]), and of no block.
pub(crate) const AT_REST: u64 = 1 << 63;
/// The generation of a block that was never erased.
pub(crate) const NEVER: u64 = 0;
/// Placeholder for a generation whose mark has not been read yet.
const UNKNOWN: u64 = u64::MAX;
/// The mark of a block is neither valid nor all zeros: none of the block's pages can be read.
pub(crate) const DAMAGED: u64 = u64::MAX - 1;

/// Names the operation in errors about unreadable marks.
const READING_MARK: &str = "reading a mark";

/// A medium that is used as flash.
pub(crate) struct MediumFlash {
    places: Arc<Places>,
    geometry: Geometry,
    superblock: Superblock,
    /// Openings that the superblock on the medium counted when this flash began.
    openings: u32,
    /// Whether the superblock counts this opening.
    counted: bool,
    read_only: bool,
    /// Erases of this opening.
    erases: u32,
    /// By block: one past the highest page that was found or written.
    seen: Vec<u16>,
    /// For a store with holes: the pages that each block has allocated, see [`thin`].
    taken: Option<Vec<thin::Taken>>,
    /// Reused blocks whose mark is not durable, even after all pending steps.
    unmarked: BTreeSet<Pbn>,
    /// Buffer for reads of a part of a page.
    buffer: Box<[u8; DATA_BYTES]>,
    /// Instants of the last operation and of the last durable one. They are counters, not times.
    clock: Nanos,
    durable: Nanos,
    /// The epoch of `places` when this flash began to use it.
    epoch: u64,
}

/// The geometry of a store with `blocks` blocks.
pub(crate) fn geometry(pages_per_block: u32, blocks: u32) -> Geometry {
    Geometry {
        channels: 1,
        packages_per_channel: 1,
        planes_per_package: 1,
        blocks_per_plane: blocks,
        pages_per_block,
        page_bytes: DATA_BYTES as u32,
        spare_bytes: SPARE_BYTES as u32,
        cell: Cell::Mlc,
        strict_order: true,
        pairing: Pairing::None,
    }
}

/// The page number of a block's mark on the medium.
pub(crate) fn mark_page(pages_per_block: u32, block: u32) -> u64 {
    HEAD_PAGES + u64::from(block) * (u64::from(pages_per_block) + 1)
}

/// Size in bytes of a medium with `blocks` blocks.
pub(crate) fn medium_bytes(pages_per_block: u32, blocks: u32) -> u64 {
    mark_page(pages_per_block, blocks) * MEDIUM_PAGE_BYTES as u64
}

impl MediumFlash {
    pub(crate) fn new(
        medium: Box<dyn Medium>,
        superblock: Superblock,
        read_only: bool,
    ) -> MediumFlash {
        let generations = vec![UNKNOWN; superblock.blocks as usize];
        let notes = Notes::new(superblock.life);
        notes.boot.store(superblock.boot + 1, Ordering::Relaxed);
        let places = Places::new(medium, notes, generations, superblock.identity);
        MediumFlash::over(Arc::new(places), superblock, read_only)
    }

    /// A flash over shared state: new, or left by a flash that found no room. Generations of blocks
    /// are read from their marks when they are first needed.
    fn over(places: Arc<Places>, superblock: Superblock, read_only: bool) -> MediumFlash {
        let taken = thin::begin(places.medium(), superblock.blocks, read_only);
        MediumFlash {
            epoch: places.epoch(),
            places,
            geometry: geometry(superblock.pages_per_block, superblock.blocks),
            openings: superblock.boot,
            counted: false,
            read_only,
            erases: 0,
            seen: vec![0; superblock.blocks as usize],
            taken,
            unmarked: BTreeSet::new(),
            buffer: Box::new([0; DATA_BYTES]),
            clock: Nanos::ZERO,
            durable: Nanos::ZERO,
            superblock,
        }
    }

    /// Shared notes of failures, counters and damage.
    pub(crate) fn notes(&self) -> Notes {
        self.places.notes.clone()
    }

    /// The state that other threads share with this flash.
    pub(crate) fn places(&self) -> Arc<Places> {
        Arc::clone(&self.places)
    }

    fn count(&self, change: impl FnOnce(&mut MediumStats)) {
        self.places.count(change);
    }

    fn medium(&self) -> &dyn Medium {
        self.places.medium()
    }

    /// The page number of a block's mark on the medium.
    fn mark_of(&self, block: Pbn) -> u64 {
        mark_page(self.geometry.pages_per_block, block.0)
    }

    /// The page number of a flash page on the medium.
    fn place_of(&self, at: Ppn) -> u64 {
        let in_block = self.geometry.page_in_block(at);
        self.mark_of(self.geometry.block_of(at)) + 1 + u64::from(in_block)
    }

    /// The generation of a block. Reads its mark, and compares it with the block's pages, if the
    /// generation is unknown.
    fn generation(&mut self, block: Pbn) -> Result<u64, FlashError> {
        let generation = self.places.generation(block);
        if generation != UNKNOWN {
            return Ok(generation);
        }
        let known = match self.read_mark(block) {
            Err(error) if self.places.forgives(READING_MARK, &error) => {
                self.places.notes.damage().marks.insert(block.0);
                DAMAGED
            }
            read => read.map_err(|error| self.fails(READING_MARK, error))?,
        };
        let known = self.doubt_mark(block, known);
        self.places.state().generations[block.index()] = known;
        Ok(known)
    }

    /// The block whose mark follows `at` on the medium, if its generation is still unknown: an
    /// opening reads the last page of each block, and with it the mark of the next block.
    fn next_mark(&self, at: Ppn) -> Option<Pbn> {
        let next = Pbn(self.geometry.block_of(at).0 + 1);
        let is_last = self.geometry.page_in_block(at) + 1 == self.geometry.pages_per_block;
        if !is_last {
            return None;
        }
        let state = self.places.state();
        let is_unknown = state.generations.get(next.index()) == Some(&UNKNOWN);
        (is_unknown && state.kept(self.mark_of(next)).is_none()).then_some(next)
    }

    fn fails(&self, what: &'static str, error: io::Error) -> FlashError {
        self.places.fails(what, error)
    }

    fn tick(&mut self, now: Nanos) -> Nanos {
        self.clock = self.clock.max(now) + Nanos(1);
        self.clock
    }

    /// Buffers a page until it is written.
    fn keep(&mut self, place: u64, page: Page) -> Result<(), FlashError> {
        let mut state = self.places.state();
        let obsolete = state.waiting.insert(place, page);
        state.spend(obsolete);
        let is_crowded = state.waiting.len() >= WAITING_MAX;
        drop(state);
        if is_crowded { self.write_out() } else { Ok(()) }
    }

    /// Enqueues the write of all waiting pages. If a page waits in a reused block whose mark is not
    /// durable, all marks and a sync go first: the old pages stay valid until then.
    fn write_out(&mut self) -> Result<(), FlashError> {
        if self.places.state().waiting.is_empty() {
            return Ok(());
        }
        let begun = self.begin_to_write();
        if self.places.waits_for_room() {
            return self.places.ignore_no_room(begun);
        }
        begun?;
        let (first, stride) = (HEAD_PAGES, u64::from(self.geometry.pages_per_block) + 1);
        let block_of = |place: u64| Pbn(((place - first) / stride) as u32);
        let is_mark = |place: u64| (place - first).is_multiple_of(stride);
        let overtakes = |&place: &u64| !is_mark(place) && self.unmarked.contains(&block_of(place));
        let mut state = self.places.state();
        let marks_are_first = state.waiting.keys().any(overtakes);
        if marks_are_first {
            let marks = state
                .waiting
                .keys()
                .copied()
                .filter(|&place| is_mark(place));
            let marks: Vec<u64> = marks.collect();
            state.ask_for_pages(marks);
            state.ask_for_sync();
        }
        let all: Vec<u64> = state.waiting.keys().copied().collect();
        state.ask_for_pages(all);
        drop(state);
        if marks_are_first {
            self.unmarked.clear();
        }
        self.places.asked()
    }

    /// Enqueues a sync.
    fn sync_medium(&mut self) -> Result<(), FlashError> {
        self.places.state().ask_for_sync();
        self.unmarked.clear();
        self.places.asked()
    }
}

impl Flash for MediumFlash {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        self.places.is_well()?;
        let block = self.geometry.block_of(at);
        let generation = self.generation(block)?;
        let place = self.place_of(at);
        let done = now;
        let mut end = [0; trailer::SIZE + mark::SIZE];
        // A page that is read whole is read directly into the caller's buffer.
        let is_whole = data.len() >= DATA_BYTES;
        let kept = self.places.state().kept(place).map(Arc::clone);
        if let Some(page) = kept {
            if is_whole {
                data[..DATA_BYTES].copy_from_slice(&page[..DATA_BYTES])
            } else {
                self.buffer.copy_from_slice(&page[..DATA_BYTES])
            }
            end[..trailer::SIZE].copy_from_slice(&page[DATA_BYTES..]);
        } else if generation != NEVER {
            let next = self.next_mark(at);
            let into = if is_whole {
                &mut data[..DATA_BYTES]
            } else {
                &mut self.buffer[..]
            };
            let behind = match next {
                Some(_) => &mut end[..],
                None => &mut end[..trailer::SIZE],
            };
            let offset = place * MEDIUM_PAGE_BYTES as u64;
            let (medium, mut next) = (self.places.medium(), next);
            let mut got = medium.read_split(offset, into, behind);
            if next.is_some() && got.is_err() {
                // The page may be intact although the mark after it cannot be read.
                next = None;
                let behind = &mut end[..trailer::SIZE];
                got = medium.read_split(offset, into, behind);
            }
            match got {
                Err(error) if self.places.forgives(READING, &error) => {
                    return Err(FlashError::Uncorrectable { at, done });
                }
                got => got.map_err(|error| self.places.fails(READING, error))?,
            }
            if let Some(next) = next {
                let bytes = end[trailer::SIZE..].try_into().expect("it has that size");
                // A block with a zeroed mark is examined when it is first used.
                let known = match self.judge_mark(next, &bytes) {
                    NEVER => UNKNOWN,
                    known => self.doubt_mark(next, known),
                };
                self.places.state().generations[next.index()] = known;
            }
        }
        let end = &end[..trailer::SIZE];
        let in_block = self.geometry.page_in_block(at) as u16;
        let bytes = if is_whole {
            &data[..DATA_BYTES]
        } else {
            &self.buffer[..]
        };
        let generation = self.adopt(at, bytes, end, generation);
        match judge(bytes, end, at, generation, self.superblock.identity) {
            Judged::Whole(bytes) => {
                let filled = data.len().min(bytes);
                if !is_whole {
                    data[..filled].copy_from_slice(&self.buffer[..filled]);
                }
                spare.copy_from_slice(&end[..spare.len()]);
                let seen = &mut self.seen[block.index()];
                *seen = (*seen).max(in_block + 1);
                let data_bytes = filled;
                Ok(Read {
                    done,
                    data_bytes,
                    corrected: 0,
                })
            }
            Judged::Blank if data.is_empty() || in_block >= self.seen[block.index()] => {
                spare.fill(0xff);
                Ok(Read {
                    done,
                    data_bytes: 0,
                    corrected: 0,
                })
            }
            Judged::Blank | Judged::Wrong => Err(FlashError::Uncorrectable { at, done }),
        }
    }

    /// Buffers the page with its trailer until a sync or a full buffer writes it. Room on the
    /// medium that the block lacks is allocated at once.
    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.places.is_well()?;
        let block = self.geometry.block_of(at);
        let in_block = self.geometry.page_in_block(at) as u16;
        let mut state = self.places.state();
        let generation = state.generations[block.index()];
        let mut page = state.spent_page();
        let was_discarded = state.discarded.remove(&block);
        drop(state);
        if was_discarded {
            self.prepare_pages(block)?;
        } else {
            self.take_page(at)?;
        }
        assert!(
            generation != UNKNOWN && generation != NEVER && self.seen[block.index()] <= in_block,
            "page {at} is programmed before its block is erased"
        );
        let filled = Arc::get_mut(&mut page).expect("nobody else has it");
        let (bytes, end) = filled.split_at_mut(DATA_BYTES);
        bytes[..data.len()].copy_from_slice(data);
        bytes[data.len()..].fill(0);
        end[trailer::SPARE].fill(0xff);
        end[..spare.len()].copy_from_slice(spare);
        let identity = self.superblock.identity;
        end_page(bytes, end, data.len(), generation, at, identity);
        self.seen[block.index()] = in_block + 1;
        let done = self.tick(now);
        self.keep(self.place_of(at), page)?;
        Ok(done)
    }

    fn reprogram(&mut self, _: Nanos, at: Ppn, _: usize, _: &[u8]) -> Result<Nanos, FlashError> {
        panic!("page {at} cannot be reprogrammed: a store takes protocols only that need not");
    }

    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        self.erase_saying(now, block, 0, &[])
    }

    /// Buffers a mark with a new generation, and drops pages of the block that still wait. A block
    /// that was never erased gets its room on the medium. `number` and `says` are the statement of
    /// the translation layer ([`mark_says`]).
    fn erase_saying(
        &mut self,
        now: Nanos,
        block: Pbn,
        number: u64,
        says: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.places.is_well()?;
        if self.read_only {
            return Err(self.fails("erasing a block", io::ErrorKind::ReadOnlyFilesystem.into()));
        }
        let first = self.mark_of(block);
        let offset = first * MEDIUM_PAGE_BYTES as u64;
        let bytes = (self.geometry.pages_per_block as usize + 1) * MEDIUM_PAGE_BYTES;
        if self.generation(block)? != NEVER {
            self.unmarked.insert(block);
            // The medium may still be preparing the block.
            self.medium().end_preparing(offset, bytes);
            self.take_block(block, false)?;
        } else if !self.take_block(block, true)? {
            self.prepare(offset, bytes)?;
            // A growing store uses its blocks in ascending order. The pages of the next one are
            // examined before they are zeroed.
            let next = Pbn(block.0 + 1);
            if next.0 < self.geometry.blocks() && self.generation(next)? == NEVER {
                self.medium().prepare_ahead(offset + bytes as u64, bytes);
            }
        }
        let pages = first..=first + u64::from(self.geometry.pages_per_block);
        self.erases += 1;
        self.count(|stats| stats.erases += 1);
        // The number of this opening, whether or not its superblock is written already.
        let boot = self.superblock.boot + u32::from(!self.counted);
        let generation = u64::from(boot) << 32 | u64::from(self.erases);
        self.seen[block.index()] = 0;
        let mut state = self.places.state();
        let obsolete: Vec<u64> = state
            .waiting
            .range(pages)
            .map(|(&place, _)| place)
            .collect();
        for place in obsolete {
            let page = state.waiting.remove(&place);
            state.spend(page);
        }
        state.generations[block.index()] = generation;
        let mut page = state.spent_page();
        drop(state);
        let filled = Arc::get_mut(&mut page).expect("nobody else has it");
        filled.fill(0);
        filled[..mark::SIZE].copy_from_slice(&emit_mark(
            block.0,
            generation,
            self.superblock.identity,
        ));
        if says.len() == mark_says::STATEMENT.len() {
            self.put_says(filled, number, says);
        }
        let done = self.tick(now);
        self.keep(first, page)?;
        Ok(done)
    }

    fn sync(&mut self, now: Nanos, until: Nanos) -> Result<Nanos, FlashError> {
        self.places.is_well()?;
        if until > self.durable && self.clock > self.durable {
            self.write_out()?;
            self.sync_medium()?;
            self.durable = self.clock;
        }
        Ok(now.max(until))
    }

    fn said_at_erase(&self) -> Option<SaidAtErase> {
        self.newest_mark_says()
    }

    fn is_factory_bad(&self, _: Pbn) -> bool {
        false
    }

    fn never_fails(&self) -> bool {
        true
    }

    fn last_erase(&self) -> u8 {
        self.erases as u8
    }

    fn last_erase_before(&self, block: Pbn) -> u8 {
        let generation = self.places.generation(block);
        self.last_erase_of_opening(generation >> 32) as u8
    }

    fn was_erased_after(&self, block: Pbn, other: Pbn, erase: u8) -> bool {
        self.erased_after(block, other, erase)
    }

    fn grow(&mut self, blocks: u32) -> Result<(), FlashError> {
        self.places.is_well()?;
        self.grow_medium(blocks)
    }

    fn can_shrink(&self) -> bool {
        !self.read_only && self.medium().can_shorten()
    }

    fn shrink(&mut self, blocks: u32) -> Result<(), FlashError> {
        self.places.is_well()?;
        self.shrink_medium(blocks)
    }

    fn expect(&self, first: Ppn, pages: u32) {
        // A block that was never erased has no pages to read.
        if self.places.generation(self.geometry.block_of(first)) == NEVER {
            return;
        }
        self.places.expect(self.place_of(first), pages);
    }

    fn peek(&self, at: Ppn, data: &mut [u8], spare: &mut [u8]) -> Option<usize> {
        self.glance_at(at, data, spare)
    }
}

#[cfg(test)]
mod tests;
