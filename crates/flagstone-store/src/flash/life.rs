//! The life of a store as its flash sees it: the first write of an opening, growth, the close, and
//! what is found damaged.
//!
//! ```text
//!   closed ──first write: superblock, not closed──> open ──close: sync, superblock──> closed
//!                                                     └──killed, cut, failed: not closed
//! ```
//!
//! The superblock stops saying *closed* before anything else of an opening is durable, since it
//! counts the opening in the same write. It says *closed* again when all that was written is
//! durable. A flash that failed does not close.

use super::trouble::Trouble;
use super::{
    AT_REST, DAMAGED, DATA_BYTES, MARK_MAGIC, MediumFlash, NEVER, READING_MARK, geometry, mark,
    mark_page, medium_bytes, sum, trailer,
};
use crate::encryption::sealed_mark;
use crate::identity::Identity;
use crate::medium::Medium;
use crate::medium::gaps::Misreads;
use crate::superblock::{Lifetime, MEDIUM_PAGE_BYTES};
use flagstone::commit::Kind;
use flagstone::layout::{get, put};
use flagstone::nand::FlashError;
use flagstone::units::{Pbn, Ppn};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Counters of what a store does to its medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MediumStats {
    /// Writes of consecutive pages.
    pub writes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Bytes that were given to the store to write.
    pub user_bytes: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Blocks that were erased.
    pub erases: u64,
}

/// What is damaged beside pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Damage {
    /// Blocks whose mark is neither a mark nor zeros, or was lost, so that none of their pages can
    /// be read.
    pub(crate) marks: BTreeSet<u32>,
    /// Blocks whose first mark a cut has taken, and the generation of their pages.
    cut: BTreeMap<u32, u64>,
    /// Blocks whose mark is of an opening that the superblock does not know.
    pub(crate) newer: BTreeSet<u32>,
    /// Blocks whose mark is older than their pages: its last write was lost.
    pub(crate) older: BTreeSet<u32>,
}

/// What a flash tells the store above it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes {
    pub(crate) trouble: Trouble,
    stats: Arc<Mutex<MediumStats>>,
    damage: Arc<Mutex<Damage>>,
    refused: Arc<Mutex<Option<String>>>,
    before: Arc<Mutex<Lifetime>>,
    tables: Arc<Mutex<Option<Vec<u8>>>>,
    sealed: Arc<AtomicU64>,
    /// Reads that the medium has refused and that cost no more than their pages.
    pub(crate) misreads: Misreads,
    is_abandoned: Arc<AtomicBool>,
    /// The number of this opening, in the generations of what it erases.
    pub(super) boot: Arc<AtomicU32>,
    /// The process that opened the store.
    pub(super) process: u32,
}

impl Notes {
    pub(super) fn new(before: Lifetime) -> Notes {
        Notes {
            before: Arc::new(Mutex::new(before)),
            process: std::process::id(),
            ..Notes::default()
        }
    }

    /// Whether the store may be closed when its last handle is dropped: not in a process that was
    /// forked since it was opened, not in a thread that panics, and not if it was abandoned.
    pub(crate) fn may_close(&self) -> bool {
        let is_abandoned = self.is_abandoned.load(Ordering::Relaxed);
        self.process == std::process::id() && !std::thread::panicking() && !is_abandoned
    }

    /// Every block has its summary, once all is durable that was written; `last` is the number of
    /// the last program.
    pub(crate) fn seal_unto(&self, last: Option<u64>) {
        self.sealed.store(last.unwrap_or(0), Ordering::Relaxed);
    }

    /// The store is not closed when its last handle is dropped.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    /// What was counted before this opening.
    pub(crate) fn before(&self) -> MutexGuard<'_, Lifetime> {
        self.before.lock().expect("no thread panics here")
    }

    /// What was counted, with this opening.
    pub(crate) fn life(&self) -> Lifetime {
        self.before().after(&self.stats())
    }

    pub(crate) fn stats(&self) -> MutexGuard<'_, MediumStats> {
        self.stats.lock().expect("no thread panics here")
    }

    /// Why the medium gave no more room when it was asked last.
    pub(crate) fn refused(&self) -> MutexGuard<'_, Option<String>> {
        self.refused.lock().expect("no thread panics here")
    }

    /// What the close that comes now shall leave for the next opening.
    pub(crate) fn tables(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.tables.lock().expect("no thread panics here")
    }

    pub(crate) fn damage(&self) -> MutexGuard<'_, Damage> {
        self.damage.lock().expect("no thread panics here")
    }
}

impl Lifetime {
    /// As it is after an opening that did this.
    fn after(self, stats: &MediumStats) -> Lifetime {
        Lifetime {
            user_bytes: self.user_bytes + stats.user_bytes,
            medium_bytes: self.medium_bytes + stats.bytes,
            erases: self.erases + stats.erases,
            commits: self.commits + stats.commits,
            ..self
        }
    }
}

/// What a page of the medium begins with: a mark, if it is one of those where marks lie.
pub(crate) fn mark_at(medium: &dyn Medium, place: u64) -> io::Result<[u8; mark::SIZE]> {
    let mut bytes = [0; mark::SIZE];
    medium.read_at(place * MEDIUM_PAGE_BYTES as u64, &mut bytes)?;
    Ok(bytes)
}

/// The checksum of a mark in a store.
pub(crate) fn mark_sum(bytes: &[u8], identity: Identity) -> u64 {
    let before = &bytes[..mark::CRC.start];
    let number = identity.number().to_le_bytes();
    u64::from(match identity {
        Identity::NONE => crate::sum::crc32c(before),
        _ => crate::sum::crc32c_of(&[before, &number]),
    })
}

fn is_mark(bytes: &[u8], block: u32, identity: Identity) -> bool {
    bytes[mark::MAGIC] == *MARK_MAGIC
        && get(bytes, mark::BLOCK) == u64::from(block)
        && (1..AT_REST).contains(&get(bytes, mark::GENERATION))
        && get(bytes, mark::CRC) == mark_sum(bytes, identity)
}

/// What a mark says in a store: a generation, [`NEVER`] for zeros, [`DAMAGED`] for anything else.
/// The mark of another store is none.
pub(crate) fn generation_in(bytes: &[u8; mark::SIZE], block: u32, identity: Identity) -> u64 {
    match is_mark(bytes, block, identity) {
        true => get(bytes, mark::GENERATION),
        false if bytes.iter().all(|&byte| byte == 0) => NEVER,
        false => DAMAGED,
    }
}

/// The pages of a block that tell of its generation where it has no mark: the last one, the first
/// sixteen, and then ones that lie twice as far each time.
pub(super) fn pages_that_tell(pages_per_block: u32) -> impl Iterator<Item = u32> {
    let last = pages_per_block - 1;
    let powers = (4..u32::BITS).map(|power| 1 << power);
    let pages = (0..16).chain(powers);
    std::iter::once(last).chain(pages.take_while(move |&page| page < last))
}

/// Bytes of a mark with all places where it may say whose it is.
pub(crate) const SIGNED_BYTES: usize = mark::IDENTITY.start + sealed_mark::SIZE;

/// Where no superblock tells the identity of a store: reads the begin of a page as a mark that says
/// itself whose it is.
pub(crate) fn signed_mark(medium: &dyn Medium, place: u64) -> io::Result<[u8; SIGNED_BYTES]> {
    let mut bytes = [0; SIGNED_BYTES];
    medium.read_at(place * MEDIUM_PAGE_BYTES as u64, &mut bytes)?;
    Ok(bytes)
}

/// The block that a page marks, and the identity of the store, which may be encrypted; nothing for
/// a page that is no mark of any store.
pub(crate) fn signer_of(bytes: &[u8; SIGNED_BYTES]) -> Option<(u32, Identity)> {
    let block = get(bytes, mark::BLOCK) as u32;
    let sealed = mark::IDENTITY.start + sealed_mark::IDENTITY.start;
    let places = [mark::IDENTITY, sealed..sealed + Identity::BYTES];
    let said = places.map(|place| Identity::parse(get(bytes, place)));
    let may = said.into_iter().flatten().chain([Identity::NONE]);
    let mut signers = may.filter(|&identity| is_mark(bytes, block, identity));
    signers.next().map(|identity| (block, identity))
}

/// The mark of a block; zeros for [`NEVER`].
pub(crate) fn emit_mark(block: u32, generation: u64, identity: Identity) -> Vec<u8> {
    let mut bytes = vec![0; mark::SIZE];
    if generation != NEVER {
        bytes[mark::MAGIC].copy_from_slice(MARK_MAGIC);
        put(&mut bytes, mark::BLOCK, block.into());
        put(&mut bytes, mark::GENERATION, generation);
        let sum = mark_sum(&bytes, identity);
        put(&mut bytes, mark::CRC, sum);
        put(&mut bytes, mark::IDENTITY, identity.number());
    }
    bytes
}

/// The generation of a page that is whole by its own checksum, with its number among those of
/// blocks.
pub(crate) fn page_generation(
    page: &[u8; MEDIUM_PAGE_BYTES],
    number: u32,
    identity: Identity,
) -> Option<u64> {
    let end = &page[DATA_BYTES..];
    let is_whole = get(end, trailer::CRC) == sum(&page[..DATA_BYTES], end, Ppn(number), identity)
        && get(end, trailer::BYTES) as usize <= DATA_BYTES;
    is_whole.then(|| identity.combine(get(end, trailer::GENERATION)))
}

/// Blocks that begin within the first `bytes` of a medium: the last one may be cut off.
pub(crate) fn blocks_in(bytes: u64, pages_per_block: u32) -> u32 {
    let head = medium_bytes(pages_per_block, 0);
    let block = medium_bytes(pages_per_block, 1) - head;
    let blocks = bytes.saturating_sub(head).div_ceil(block);
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

/// Zeroes the marks of `blocks`, which begin to exist, where they are not zeros. A block device may
/// hold marks of an older store there, or anything else. The caller syncs the medium before the
/// superblock counts these blocks.
///
/// A mark of this store itself is from a later time than its superblock: an older copy of the store
/// was put back. Generations will repeat, so the pages of such a block are zeroed as well.
pub(crate) fn clear_marks(
    medium: &dyn Medium,
    pages_per_block: u32,
    identity: Identity,
    blocks: std::ops::Range<u32>,
) -> io::Result<()> {
    for block in blocks {
        let place = mark_page(pages_per_block, block);
        let bytes = mark_at(medium, place)?;
        let pages = match generation_in(&bytes, block, identity) {
            NEVER => continue,
            DAMAGED => 1,
            _ => 1 + pages_per_block as usize,
        };
        let offset = place * MEDIUM_PAGE_BYTES as u64;
        medium.write_at(offset, &vec![0; pages * MEDIUM_PAGE_BYTES])?;
    }
    Ok(())
}

/// Whether a mark that is zeros was durable and is lost, by the generation of the pages of its
/// block and the openings that the superblock counts. A cut may have taken the first mark of a
/// block, but the next opening that writes writes it again before anything else: not if the pages
/// are of an earlier one than the last. Then an erase that came after the pages may be lost with
/// the mark. Only an opening under `seal` reads all blocks, and so finds all such marks.
pub(crate) fn is_mark_lost(protocol: Kind, openings: u32, generation: u64) -> bool {
    let is_earlier = generation != NEVER && ((generation >> 32) as u32) < openings;
    is_earlier && protocol == Kind::Seal
}

impl MediumFlash {
    /// The generation that the mark of a block gives it.
    pub(super) fn read_mark(&self, block: Pbn) -> io::Result<u64> {
        let bytes = mark_at(self.medium(), self.mark_of(block))?;
        Ok(self.judge_mark(block, &bytes))
    }

    /// The generation that a mark gives its block. What is wrong with the mark is noted.
    pub(super) fn judge_mark(&self, block: Pbn, bytes: &[u8; mark::SIZE]) -> u64 {
        let generation = generation_in(bytes, block.0, self.superblock.identity);
        match generation {
            DAMAGED => {
                self.places.notes.damage().marks.insert(block.0);
            }
            known => self.doubt_opening(block, known),
        }
        generation
    }

    /// The generation of a block without a mark, by some of its pages: its mark was lost, or has
    /// not landed. A block that was never used has none. Stores without an identity cannot tell
    /// their own pages from those of an older store.
    pub(super) fn generation_of_pages(&self, block: Pbn) -> u64 {
        let pages = self.geometry.pages_per_block;
        if self.superblock.identity == Identity::NONE {
            return NEVER;
        }
        let places = pages_that_tell(pages);
        let found = places.filter_map(|page| self.generation_of(self.geometry.page(block, page)));
        let newest = found.max().unwrap_or(NEVER);
        self.doubt_opening(block, newest);
        newest
    }

    /// The generation of a block whose mark says `known`. If the mark was lost, the one of the
    /// block's last summary may be there instead: its first page tells.
    pub(super) fn doubt_mark(&self, block: Pbn, known: u64) -> u64 {
        if known == NEVER {
            let newest = self.generation_of_pages(block);
            return self.doubt_zeros(block, newest);
        }
        if known == DAMAGED || self.superblock.identity == Identity::NONE {
            return known;
        }
        let first = self.generation_of(self.geometry.page(block, 0));
        let Some(newer) = first.filter(|&first| first > known) else {
            return known;
        };
        self.places.notes.damage().older.insert(block.0);
        self.doubt_opening(block, newer);
        newer
    }

    /// The generation of a block whose mark is zeros, by that of its pages.
    fn doubt_zeros(&self, block: Pbn, newest: u64) -> u64 {
        let openings = self.superblock.boot - u32::from(self.counted);
        let mut damage = self.places.notes.damage();
        if is_mark_lost(self.superblock.protocol, openings, newest) {
            damage.marks.insert(block.0);
            return DAMAGED;
        }
        if newest != NEVER && self.superblock.protocol == Kind::Seal {
            damage.cut.insert(block.0, newest);
        }
        newest
    }

    /// Writes the marks again that a cut has taken, and waits for them.
    fn write_marks_again(&self) -> io::Result<()> {
        let cut = std::mem::take(&mut self.places.notes.damage().cut);
        if cut.is_empty() {
            return Ok(());
        }
        for (block, generation) in cut {
            let mut page = emit_mark(block, generation, self.superblock.identity);
            page.resize(MEDIUM_PAGE_BYTES, 0);
            let offset = self.mark_of(Pbn(block)) * MEDIUM_PAGE_BYTES as u64;
            self.medium().write_at(offset, &page)?;
        }
        self.medium().sync()
    }

    /// Notes a block of an opening that the superblock does not know.
    fn doubt_opening(&self, block: Pbn, generation: u64) {
        if (generation >> 32) as u32 > self.superblock.boot {
            self.places.notes.damage().newer.insert(block.0);
        }
    }

    /// The generation of the block of a page that was read. The mark of a block that had pages
    /// before is durable before new ones are: so a page with a newer generation says that the mark
    /// was lost.
    pub(super) fn adopt(&self, at: Ppn, data: &[u8], end: &[u8], generation: u64) -> u64 {
        let identity = self.superblock.identity;
        let said = identity.combine(get(end, trailer::GENERATION));
        let may_be = !matches!(generation, NEVER | DAMAGED) && identity != Identity::NONE;
        if !may_be || said <= generation || said >= Identity::LEAST {
            return generation;
        }
        let is_whole = get(end, trailer::CRC) == sum(data, end, at, identity)
            && get(end, trailer::BYTES) as usize <= DATA_BYTES;
        if !is_whole {
            return generation;
        }
        let block = self.geometry.block_of(at);
        // The first page is the newest: behind it pages of an earlier erase may lie.
        let said = said.max(self.generation_of_pages(block));
        self.places.notes.damage().older.insert(block.0);
        self.places.state().generations[block.index()] = said;
        said
    }

    /// The generation that a page on the medium has, if it is whole.
    fn generation_of(&self, at: Ppn) -> Option<u64> {
        let mut page = [0; MEDIUM_PAGE_BYTES];
        let offset = self.place_of(at) * MEDIUM_PAGE_BYTES as u64;
        self.medium().read_at(offset, &mut page).ok()?;
        let said = page_generation(&page, at.0, self.superblock.identity);
        said.filter(|&said| said < Identity::LEAST)
    }

    /// Whether there was never a mark of a block, not even one that is damaged now.
    pub(super) fn is_untouched(&mut self, block: Pbn) -> Result<bool, FlashError> {
        let place = self.mark_of(block);
        let read = mark_at(self.medium(), place);
        let bytes = match read {
            // Its first use says what becomes of it.
            Err(error) if self.places.forgives(READING_MARK, &error) => return Ok(false),
            read => read.map_err(|error| self.fails(READING_MARK, error))?,
        };
        Ok(bytes == [0; mark::SIZE] && self.places.state().kept(place).is_none())
    }

    /// Has the medium make a range ready that is written piece by piece from now on.
    #[cold]
    pub(super) fn prepare(&self, offset: u64, bytes: usize) -> Result<(), FlashError> {
        let prepared = self.medium().prepare(offset, bytes);
        let wrote = prepared.map_err(|error| self.fails("preparing a block", error))?;
        self.count(|stats| stats.bytes += wrote);
        Ok(())
    }

    /// Writes the next superblock.
    pub(super) fn write_superblock(&mut self, closed: bool) -> Result<(), FlashError> {
        // Even if it was for want of room: what was asked for before this was not written.
        if self.places.notes.trouble.is_noted() {
            return Err(FlashError::PowerLost);
        }
        self.count(|stats| {
            stats.writes += 1;
            stats.bytes += MEDIUM_PAGE_BYTES as u64;
            stats.syncs += 1;
        });
        let before = self.superblock;
        let had_rested = before.rested > 0;
        self.say_closed(closed);
        let written = self.superblock.write(self.places.medium());
        written.map_err(|error| self.fails("writing the superblock", error))?;
        if had_rested && !closed {
            self.spoil_tables(&before)?;
        }
        Ok(())
    }

    /// Has the superblock that is written next say what was counted, and whether all is durable.
    fn say_closed(&mut self, closed: bool) {
        self.superblock.closed = Some(closed);
        if !closed {
            (self.superblock.rested, self.superblock.sealed) = (0, None);
        }
        self.superblock.life = self.places.notes.life();
    }

    /// Counts this opening in the superblock that is written next, if it is not counted yet.
    pub(super) fn count_opening(&mut self) -> Result<(), FlashError> {
        if self.counted {
            return Ok(());
        }
        let written = self.write_marks_again();
        written.map_err(|error| self.fails("writing marks that a cut has taken", error))?;
        self.counted = true;
        self.superblock.boot += 1;
        let is_unclosed = self.superblock.closed == Some(false);
        self.places.notes.before().unclosed += u32::from(is_unclosed);
        if is_unclosed {
            self.spoil_tables_of_older()?;
        }
        Ok(())
    }

    /// Grows by blocks, if the medium has room for them. Only the first write of an opening waits
    /// for the medium: later the superblock that counts the blocks is one of the steps, behind all
    /// that was asked for before it, and ahead of all that is written to the new blocks.
    pub(super) fn grow_medium(&mut self, blocks: u32) -> Result<(), FlashError> {
        let (pages, has) = (self.geometry.pages_per_block, self.geometry.blocks());
        let wanted = has.saturating_add(blocks);
        let larger = geometry(pages, wanted);
        let bytes = medium_bytes(pages, wanted);
        if self.read_only || larger.validate().is_err() {
            return Ok(());
        }
        // No room is an answer, and no failure: nothing that counts was touched.
        if !self.take_all() {
            return Ok(());
        }
        if self.superblock.left > 0 {
            // What is left of a larger store is cut off before there is room for a new one.
            self.begin_to_write()?;
        }
        let is_longer = if self.places.grows_sparse() {
            self.medium().lengthen(bytes)
        } else {
            self.medium().reserve(bytes)
        };
        if let Err(error) = is_longer {
            *self.places.notes.refused() = Some(error.to_string());
            return Ok(());
        }
        if self.superblock.rested > 0 {
            // Tables of the last close lie where blocks are to be: a cut that finds them written
            // over must not find a superblock that speaks of them.
            self.begin_to_write()?;
        }
        let cleared = clear_marks(self.medium(), pages, self.superblock.identity, has..wanted);
        cleared.map_err(|error| self.fails("clearing marks of new blocks", error))?;
        self.superblock.blocks = wanted;
        self.count_opening()?;
        self.ask_for_superblock();
        self.geometry = larger;
        let mut state = self.places.state();
        state.generations.resize(wanted as usize, super::UNKNOWN);
        drop(state);
        self.seen.resize(wanted as usize, 0);
        self.places.asked()
    }

    /// Asks for the superblock of a store that has grown, durable before and after: it must not
    /// speak of room that a cut takes away.
    fn ask_for_superblock(&mut self) {
        self.say_closed(false);
        let (place, bytes) = self.superblock.advance();
        let mut state = self.places.state();
        state.ask_for_sync();
        let mut page = state.spent_page();
        let filled = Arc::get_mut(&mut page).expect("nobody else has it");
        filled.copy_from_slice(&bytes);
        state.ask_for_page(place / MEDIUM_PAGE_BYTES as u64, page);
        state.ask_for_sync();
        // Marks that wait in memory are not durable by it.
        let marks = |block: &Pbn| mark_page(self.geometry.pages_per_block, block.0);
        self.unmarked
            .retain(|block| state.waiting.contains_key(&marks(block)));
    }

    /// Says in the superblock that all is durable, if this opening wrote anything. What waits in
    /// memory belongs to no transaction that was acknowledged, and is left out. Tables that were
    /// given for it are left for the next opening.
    fn close(&mut self) -> Result<(), FlashError> {
        if self.read_only || !self.counted || !self.places.notes.may_close() {
            return Ok(());
        }
        // After a failure another flash may have taken the place of this one.
        if self.places.notes.trouble.is_noted() || !self.is_current() {
            return Ok(());
        }
        self.places.carry_out()?;
        let tables = self.places.notes.tables().take();
        let rested = match tables {
            Some(tables) => self.leave_tables(&tables)?,
            None => 0,
        };
        if self.places.is_unsynced() {
            self.places.sync()?;
        }
        self.superblock.rested = rested;
        let sealed = self.places.notes.sealed.load(Ordering::Relaxed);
        self.superblock.sealed = Some(sealed).filter(|&number| number > 0);
        self.write_superblock(true)
    }
}

impl Drop for MediumFlash {
    /// Closes. What fails is noted, and the store stays one that was not closed.
    fn drop(&mut self) {
        let _ = self.close();
    }
}
