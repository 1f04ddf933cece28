//! The life cycle of a store's flash: the first write of an opening, growth, the close, and the
//! damage that is found.
//!
//! ```text
//!   closed ──first write: superblock, not closed──> open ──close: sync, superblock──> closed
//!                                                     └──killed, cut, failed: not closed
//! ```
//!
//! The first write of an opening replaces the superblock by one that is not *closed* and counts the
//! opening. This is durable before anything else of the opening. The superblock says *closed* again
//! once everything that was written is durable. A flash that has failed does not close.

use super::trouble::Trouble;
use super::{
    AT_REST, DAMAGED, DATA_BYTES, MARK_MAGIC, MediumFlash, NEVER, geometry, mark, mark_page,
    medium_bytes, sum, trailer,
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

/// Counters of the operations of a store on its medium. Example: [`StoreInfo`](crate::StoreInfo).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MediumStats {
    /// Writes; consecutive pages are one write.
    pub writes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Bytes that callers gave the store to write.
    pub user_bytes: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Blocks that were erased.
    pub erases: u64,
}

/// Damage found outside of pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Damage {
    /// Blocks none of whose pages can be read: the mark is damaged or was lost.
    pub(crate) marks: BTreeSet<u32>,
    /// Blocks whose first mark was lost in a power cut, and the generation of their pages.
    cut: BTreeMap<u32, u64>,
    /// Pages of the medium that a power cut has torn, in blocks without a mark.
    pub(super) torn: Vec<u64>,
    /// Blocks whose mark has an opening number above that of the superblock.
    pub(crate) newer: BTreeSet<u32>,
    /// Blocks whose mark is older than their pages: the last write of the mark was lost.
    pub(crate) older: BTreeSet<u32>,
}

/// What a flash reports to the store above it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes {
    pub(crate) trouble: Trouble,
    stats: Arc<Mutex<MediumStats>>,
    damage: Arc<Mutex<Damage>>,
    refused: Arc<Mutex<Option<String>>>,
    before: Arc<Mutex<Lifetime>>,
    tables: Arc<Mutex<Option<Vec<u8>>>>,
    sealed: Arc<AtomicU64>,
    /// Reads that the medium refused, and that cost no more than their pages.
    pub(crate) misreads: Misreads,
    is_abandoned: Arc<AtomicBool>,
    /// The number of this opening: the upper half of the generations of its erases.
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

    /// Whether dropping the last handle may close the store. It may not in a process that was
    /// forked since the opening, in a panicking thread, or after [`Notes::abandon`].
    pub(crate) fn may_close(&self) -> bool {
        let is_abandoned = self.is_abandoned.load(Ordering::Relaxed);
        self.process == std::process::id() && !std::thread::panicking() && !is_abandoned
    }

    /// Notes for the close that every full block has its summary, up to `last`, the number of the
    /// last program.
    pub(crate) fn seal_unto(&self, last: Option<u64>) {
        self.sealed.store(last.unwrap_or(0), Ordering::Relaxed);
    }

    /// Keeps the store from being closed when its last handle is dropped.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    /// Lifetime counters before this opening.
    pub(crate) fn before(&self) -> MutexGuard<'_, Lifetime> {
        self.before.lock().expect("no thread panics here")
    }

    /// Lifetime counters, this opening included.
    pub(crate) fn life(&self) -> Lifetime {
        self.before().after(&self.stats())
    }

    pub(crate) fn stats(&self) -> MutexGuard<'_, MediumStats> {
        self.stats.lock().expect("no thread panics here")
    }

    /// The error of the medium's last refusal to grow.
    pub(crate) fn refused(&self) -> MutexGuard<'_, Option<String>> {
        self.refused.lock().expect("no thread panics here")
    }

    /// The tables that the coming close is to leave for the next opening.
    pub(crate) fn tables(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.tables.lock().expect("no thread panics here")
    }

    pub(crate) fn damage(&self) -> MutexGuard<'_, Damage> {
        self.damage.lock().expect("no thread panics here")
    }
}

impl Lifetime {
    /// The lifetime counters after an opening with these statistics.
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

/// Reads a mark from page `place` of the medium.
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

/// The generation in a mark of this store: [`NEVER`] for zeros, [`DAMAGED`] for anything that is no
/// mark of this store.
pub(crate) fn generation_in(bytes: &[u8; mark::SIZE], block: u32, identity: Identity) -> u64 {
    if is_mark(bytes, block, identity) {
        get(bytes, mark::GENERATION)
    } else if bytes.iter().all(|&byte| byte == 0) {
        NEVER
    } else {
        DAMAGED
    }
}

/// The pages from which the generation of a block is told if its mark is missing: the last one, the
/// first sixteen, then pages at doubling distances.
pub(super) fn pages_that_tell(pages_per_block: u32) -> impl Iterator<Item = u32> {
    let last = pages_per_block - 1;
    let powers = (4..u32::BITS).map(|power| 1 << power);
    let pages = (0..16).chain(powers);
    std::iter::once(last).chain(pages.take_while(move |&page| page < last))
}

/// Bytes of a mark, including those in which an encrypted store keeps its identity.
pub(crate) const SIGNED_BYTES: usize = mark::IDENTITY.start + sealed_mark::SIZE;

/// Reads the begin of a page as a mark that carries its own identity. Used if no superblock tells
/// the identity of the store.
pub(crate) fn signed_mark(medium: &dyn Medium, place: u64) -> io::Result<[u8; SIGNED_BYTES]> {
    let mut bytes = [0; SIGNED_BYTES];
    medium.read_at(place * MEDIUM_PAGE_BYTES as u64, &mut bytes)?;
    Ok(bytes)
}

/// The block that a mark belongs to, and the identity of its store, which may be encrypted. `None`
/// if the page is no mark of any store.
pub(crate) fn signer_of(bytes: &[u8; SIGNED_BYTES]) -> Option<(u32, Identity)> {
    let block = get(bytes, mark::BLOCK) as u32;
    let sealed = mark::IDENTITY.start + sealed_mark::IDENTITY.start;
    let places = [mark::IDENTITY, sealed..sealed + Identity::BYTES];
    let said = places.map(|place| Identity::parse(get(bytes, place)));
    let may = said.into_iter().flatten().chain([Identity::NONE]);
    let mut signers = may.filter(|&identity| is_mark(bytes, block, identity));
    signers.next().map(|identity| (block, identity))
}

/// Encodes the mark of a block; zeros for [`NEVER`].
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

/// The generation of a page with a correct checksum, given its page number `number` (counted over
/// all blocks).
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

/// Number of blocks that begin within the first `bytes` of a medium. The last may be cut off.
pub(crate) fn blocks_in(bytes: u64, pages_per_block: u32) -> u32 {
    let head = medium_bytes(pages_per_block, 0);
    let block = medium_bytes(pages_per_block, 1) - head;
    let blocks = bytes.saturating_sub(head).div_ceil(block);
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

/// Zeroes the marks of the new blocks `blocks` where they are not zeros: a block device may hold
/// marks of an older store there, or other data. The caller syncs the medium before the superblock
/// counts these blocks.
///
/// A valid mark of this store itself means that the superblock is from an older copy of the store.
/// Generations will then repeat, so the pages of such a block are zeroed as well.
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

/// Whether a zeroed mark was durable and is lost, given the generation of the block's pages and the
/// number of openings in the superblock. A cut can take the first mark of a block, but the next
/// opening that writes restores it first. So if the pages are from an earlier opening than the last
/// one, the mark was lost, and perhaps a later erase with it. Applies only under `seal`, whose
/// openings read all blocks.
pub(crate) fn is_mark_lost(protocol: Kind, openings: u32, generation: u64) -> bool {
    let is_earlier = generation != NEVER && ((generation >> 32) as u32) < openings;
    is_earlier && protocol == Kind::Seal
}

impl MediumFlash {
    /// Reads the mark of a block and returns its generation.
    pub(super) fn read_mark(&self, block: Pbn) -> io::Result<u64> {
        let bytes = mark_at(self.medium(), self.mark_of(block))?;
        Ok(self.judge_mark(block, &bytes))
    }

    /// The generation in a mark. Notes a damaged mark.
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

    /// The generation of a block with a missing mark, told from some of its pages: the mark was
    /// lost, or has not landed. [`NEVER`] if the block was never used, and in stores without an
    /// identity, which cannot tell their pages from those of an older store.
    pub(super) fn generation_of_pages(&self, block: Pbn) -> u64 {
        self.told_by_pages(block).0
    }

    /// [`Self::generation_of_pages`], and the torn ones among the pages that tell it, as pages of
    /// the medium.
    fn told_by_pages(&self, block: Pbn) -> (u64, Vec<u64>) {
        let (mut newest, mut torn) = (NEVER, Vec::new());
        if self.superblock.identity == Identity::NONE {
            return (newest, torn);
        }
        for page in pages_that_tell(self.geometry.pages_per_block) {
            let at = self.geometry.page(block, page);
            match self.told_by(at) {
                Some((generation, true)) => newest = newest.max(generation),
                Some((_, false)) => torn.push(self.place_of(at)),
                None => {}
            }
        }
        self.doubt_opening(block, newest);
        (newest, torn)
    }

    /// The generation of a block whose mark says `known`. If the block's last mark was lost, its
    /// first page has a newer generation, which is returned.
    pub(super) fn doubt_mark(&self, block: Pbn, known: u64) -> u64 {
        if known == NEVER {
            return self.doubt_zeros(block);
        }
        if known == DAMAGED || self.superblock.identity == Identity::NONE {
            return known;
        }
        let first = self.told_by(self.geometry.page(block, 0));
        let Some((newer, _)) = first.filter(|&(first, is_whole)| is_whole && first > known) else {
            return known;
        };
        self.places.notes.damage().older.insert(block.0);
        self.doubt_opening(block, newer);
        newer
    }

    /// The generation of a block with a zeroed mark, told by its pages; [`DAMAGED`] if
    /// [`is_mark_lost`]. Notes for [`Self::settle_cut`] a mark that a cut has taken, and torn pages
    /// of a block that looks unused.
    fn doubt_zeros(&self, block: Pbn) -> u64 {
        let (newest, torn) = self.told_by_pages(block);
        let mut damage = self.places.notes.damage();
        if is_mark_lost(self.superblock.protocol, self.openings, newest) {
            damage.marks.insert(block.0);
            return DAMAGED;
        }
        if newest != NEVER && self.superblock.protocol == Kind::Seal {
            damage.cut.insert(block.0, newest);
        }
        if newest == NEVER {
            damage.torn.extend(torn);
        }
        newest
    }

    /// Restores the marks that were lost in a cut, zeroes torn pages of blocks that look unused,
    /// and syncs this.
    ///
    /// An unused block gets pages before its mark is durable. If a second cut tears them over torn
    /// ones with the same data in some sectors, an older page becomes whole, and the block looks
    /// like one whose mark was lost after it was durable.
    fn settle_cut(&self) -> io::Result<()> {
        let mut damage = self.places.notes.damage();
        let (cut, torn) = (
            std::mem::take(&mut damage.cut),
            std::mem::take(&mut damage.torn),
        );
        drop(damage);
        if cut.is_empty() && torn.is_empty() {
            return Ok(());
        }
        for place in torn {
            let offset = place * MEDIUM_PAGE_BYTES as u64;
            self.medium().write_at(offset, &[0; MEDIUM_PAGE_BYTES])?;
        }
        for (block, generation) in cut {
            let mut page = emit_mark(block, generation, self.superblock.identity);
            page.resize(MEDIUM_PAGE_BYTES, 0);
            let offset = self.mark_of(Pbn(block)) * MEDIUM_PAGE_BYTES as u64;
            self.medium().write_at(offset, &page)?;
        }
        self.medium().sync()
    }

    /// Notes the block if its generation is from an opening that the superblock does not count.
    fn doubt_opening(&self, block: Pbn, generation: u64) {
        if (generation >> 32) as u32 > self.superblock.boot {
            self.places.notes.damage().newer.insert(block.0);
        }
    }

    /// The generation of a block after one of its pages was read. The new mark of a reused block is
    /// durable before its pages are: so a page with a newer generation shows that the mark was
    /// lost.
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
        // The first page has the newest generation: later pages may be left from an earlier erase.
        let said = said.max(self.generation_of_pages(block));
        self.places.notes.damage().older.insert(block.0);
        self.places.state().generations[block.index()] = said;
        said
    }

    /// The generation in a page on the medium, and whether its checksum is correct. `None` for a
    /// page of another store or none.
    fn told_by(&self, at: Ppn) -> Option<(u64, bool)> {
        let mut page = [0; MEDIUM_PAGE_BYTES];
        let offset = self.place_of(at) * MEDIUM_PAGE_BYTES as u64;
        self.medium().read_at(offset, &mut page).ok()?;
        let identity = self.superblock.identity;
        let said = identity.combine(get(&page[DATA_BYTES..], trailer::GENERATION));
        let is_whole = page_generation(&page, at.0, identity).is_some();
        (1..Identity::LEAST)
            .contains(&said)
            .then_some((said, is_whole))
    }

    /// Prepares a range of the medium that will be written piece by piece.
    #[cold]
    pub(super) fn prepare(&self, offset: u64, bytes: usize) -> Result<(), FlashError> {
        let prepared = self.medium().prepare(offset, bytes);
        let wrote = prepared.map_err(|error| self.fails("preparing a block", error))?;
        self.count(|stats| stats.bytes += wrote);
        Ok(())
    }

    /// Writes the next superblock, which says *closed* if `closed` is set. Otherwise it revokes the
    /// tables at rest, and their first page is zeroed: an older superblock must not find them
    /// valid.
    pub(super) fn write_superblock(&mut self, closed: bool) -> Result<(), FlashError> {
        // Also after a failure for lack of room: writes that were asked for before are missing.
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

    /// Sets the counters and the closed flag for the next superblock.
    fn say_closed(&mut self, closed: bool) {
        self.superblock.closed = Some(closed);
        if !closed {
            (self.superblock.rested, self.superblock.sealed) = (0, None);
        }
        self.superblock.life = self.places.notes.life();
    }

    /// Counts this opening in the next superblock, unless it is counted already. First writes what
    /// the opening only found: marks that a cut has taken, and tables at rest to be spoilt.
    pub(super) fn count_opening(&mut self) -> Result<(), FlashError> {
        if self.counted {
            return Ok(());
        }
        let written = self.settle_cut();
        written.map_err(|error| self.fails("settling what a cut has torn", error))?;
        self.counted = true;
        self.superblock.boot += 1;
        let is_unclosed = self.superblock.closed == Some(false);
        self.places.notes.before().unclosed += u32::from(is_unclosed);
        if is_unclosed {
            self.spoil_tables_of_older()?;
        }
        Ok(())
    }

    /// Adds blocks if the medium has room for them. Only the first write of an opening waits for
    /// the medium. Later the superblock that counts the blocks is enqueued: after all earlier
    /// steps, and before every write to the new blocks.
    pub(super) fn grow_medium(&mut self, blocks: u32) -> Result<(), FlashError> {
        let (pages, has) = (self.geometry.pages_per_block, self.geometry.blocks());
        let wanted = has.saturating_add(blocks);
        let larger = geometry(pages, wanted);
        let bytes = medium_bytes(pages, wanted);
        if self.read_only || larger.validate().is_err() {
            return Ok(());
        }
        if self.superblock.left > 0 {
            // Remains of a larger store are cut off before the file grows again.
            self.begin_to_write()?;
        }
        // Lack of room is not a failure: no durable state has changed.
        let before = self.medium().bytes();
        let before = before.map_err(|error| self.fails("asking for the length", error))?;
        let is_longer = if self.places.grows_sparse() {
            self.medium().lengthen(bytes)
        } else {
            self.medium().reserve(bytes)
        };
        if let Err(error) = is_longer {
            *self.places.notes.refused() = Some(error.to_string());
            return Ok(());
        }
        if !self.take_all() {
            // A failure is harmless: the file stays longer than its superblock says.
            let _ = self.medium().shorten(before);
            return Ok(());
        }
        if self.superblock.rested > 0 {
            // The tables of the last close lie where the new blocks will be. If a cut leaves them
            // overwritten, no superblock may refer to them.
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

    /// Enqueues the superblock of a grown store, with a sync before and after it: it must not count
    /// blocks whose space a cut takes away.
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
        // Marks that still wait in memory are not covered by these syncs.
        let marks = |block: &Pbn| mark_page(self.geometry.pages_per_block, block.0);
        self.unmarked
            .retain(|block| state.waiting.contains_key(&marks(block)));
    }

    /// Writes a superblock that says *closed*, if this opening wrote anything. Pages that wait in
    /// memory belong to no acknowledged transaction and are dropped. Leaves the tables that were
    /// given for the next opening.
    fn close(&mut self) -> Result<(), FlashError> {
        if self.read_only || !self.counted || !self.places.notes.may_close() {
            return Ok(());
        }
        // After a failure nothing more is written, and another flash may have replaced this one.
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
    /// Closes the store. A failure is noted, and the store then counts as not closed.
    fn drop(&mut self) {
        let _ = self.close();
    }
}
