//! Scrubbing: data is rewritten before its bit errors exceed the ECC.
//!
//! ```text
//!   a read had `bits` or more corrected --> its block is queued --> the block is collected
//!   ^                                                               (roots, mapping pages and logs
//!   the patrol reads what nobody else reads, page after page         are copied as they are)
//! ```
//!
//! Reads for any reason report corrected bits, including those of a restart. The *patrol* reads
//! every page of every used block once in a configured time. That includes summary pages, and dead
//! pages, since a restart may need their spare areas. It begins at a place derived from the write
//! sequence, so that a device that restarts often still reads all of its pages in time. The patrol
//! erases a free block that has pages from before the last restart: nothing refreshes them, and the
//! next restart would take an unreadable one for a torn one.
//!
//! Scrubbing happens before requests, like collection, one block per request. [`tend`] does all due
//! work without a request. An open block is closed early. If the owner holds a block back, or a log
//! block cannot be copied, the owner is asked to release it ([`Owner::let_go`]). If a block cannot
//! be refreshed now, it is retried after a pause. A block with a lost page is not refreshed. A
//! request that reads does the due work as well, and goes on if there is no room for it.

use crate::ftl::collector::{collect_for, unless_it_waits};
use crate::ftl::{BlockState, Cause, Ftl, FtlError, Owner, Scrub, make_room};
use crate::nand::{FlashError, Geometry};
use crate::units::{Nanos, Pbn, Ppn};
use std::collections::VecDeque;

/// Pause before a block that could not be refreshed is retried.
const PAUSE: Nanos = Nanos::from_micros(100_000);

/// An instant that never comes.
const NEVER: Nanos = Nanos(u64::MAX);

/// The queue of blocks to refresh, and the position of the patrol.
#[derive(Debug, Clone)]
pub(in crate::ftl) struct Scrubber {
    /// Number of corrected bits from which on a block is refreshed. The largest number if scrubbing
    /// is off.
    bits: u16,
    /// Time between two pages of the patrol.
    step: Nanos,
    /// When work is due.
    due: Nanos,
    /// When the patrol reads its next page.
    next_read: Nanos,
    /// That page; `None` before the first.
    cursor: Option<u32>,
    /// Blocks to refresh, each with its earliest time.
    queue: VecDeque<(Pbn, Nanos)>,
    /// Whether a block is in the queue. Empty without scrubbing.
    queued: Vec<bool>,
    buffer: Vec<u8>,
}

impl Scrubber {
    pub(in crate::ftl) fn new(geometry: &Geometry, scrub: Option<Scrub>) -> Scrubber {
        let Some(Scrub { bits, patrol }) = scrub else {
            return Scrubber {
                bits: u16::MAX,
                step: NEVER,
                due: NEVER,
                next_read: NEVER,
                cursor: None,
                queue: VecDeque::new(),
                queued: Vec::new(),
                buffer: Vec::new(),
            };
        };
        let step = match patrol {
            Nanos::ZERO => NEVER,
            time => Nanos((time.0 / u64::from(geometry.pages())).max(1)),
        };
        Scrubber {
            bits: bits.clamp(1, u16::MAX - 1),
            step,
            due: step,
            next_read: step,
            cursor: None,
            queue: VecDeque::new(),
            queued: vec![false; geometry.blocks() as usize],
            buffer: vec![0; geometry.page_bytes as usize],
        }
    }

    /// Adapts to a device that has grown.
    pub(in crate::ftl) fn grow(&mut self, geometry: &Geometry, scrub: Option<Scrub>) {
        if let Some(scrub) = scrub {
            self.queued.resize(geometry.blocks() as usize, false);
            self.step = Scrubber::new(geometry, Some(scrub)).step;
        }
    }

    #[inline]
    pub(in crate::ftl) fn bits(&self) -> u16 {
        self.bits
    }

    /// Whether work is due at `now`.
    #[inline]
    pub(in crate::ftl) fn is_due(&self, now: Nanos) -> bool {
        now >= self.due
    }

    /// Queues a block, unless it is queued already.
    fn put(&mut self, block: Pbn, not_before: Nanos) {
        let queued = &mut self.queued[block.index()];
        if !*queued {
            *queued = true;
            self.queue.push_back((block, not_before));
            self.due = self.due.min(not_before);
        }
    }

    /// Postpones a block that could not be refreshed, even if the attempt has queued it again.
    fn postpone(&mut self, block: Pbn, not_before: Nanos) {
        self.queue.retain(|&(queued, _)| queued != block);
        self.queued[block.index()] = false;
        self.put(block, not_before);
    }

    /// Takes the next block to refresh.
    fn take(&mut self, now: Nanos) -> Option<Pbn> {
        let place = self.queue.iter().position(|&(_, from)| from <= now)?;
        let (block, _) = self.queue.remove(place)?;
        self.queued[block.index()] = false;
        Some(block)
    }

    /// Updates when work is due.
    fn plan(&mut self) {
        let queued = self.queue.iter().map(|&(_, from)| from).min();
        self.due = queued.unwrap_or(NEVER).min(self.next_read);
    }
}

/// Does the work that is due at `now`, without a host request. An idle device should call this
/// periodically.
pub(crate) fn tend(ftl: &mut Ftl, owner: &mut dyn Owner, now: Nanos) -> Result<(), FtlError> {
    while ftl.scrub.is_due(now) {
        make_room(ftl, owner, now)?;
    }
    Ok(())
}

/// Does part of the work that is due at `now`, before a read. A device without room for it can
/// still be read: the work waits.
#[inline]
pub(crate) fn tend_before_read(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
) -> Result<(), FtlError> {
    if !ftl.scrub.is_due(now) {
        return Ok(());
    }
    match make_room(ftl, owner, now) {
        Err(FtlError::Full { .. } | FtlError::MetaFull) => Ok(()),
        done => done,
    }
}

/// Reads the pages that the patrol has to read by `now`, and refreshes one block.
pub(in crate::ftl) fn step(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
) -> Result<(), FtlError> {
    if now >= ftl.scrub.next_read {
        ftl.patrol(now)?;
    }
    let mut refreshed = Ok(true);
    if let Some(block) = ftl.scrub.take(now) {
        refreshed = refresh(ftl, owner, now, block);
        if refreshed != Ok(true) {
            ftl.scrub.postpone(block, now + PAUSE);
        }
    }
    ftl.scrub.plan();
    refreshed.map(|_| ())
}

/// Rewrites the contents of a block, if it has any. Returns `false` if that is not possible now.
fn refresh(ftl: &mut Ftl, owner: &mut dyn Owner, now: Nanos, block: Pbn) -> Result<bool, FtlError> {
    match ftl.blocks.state(block) {
        BlockState::Meta => {
            let is_done = ftl.refresh_meta(now, block)?;
            if !is_done && ftl.journal.is_log(block) {
                // There is no space for copies, or a page is lost: the owner may start its log
                // anew.
                owner.let_go(ftl, now, block)?;
            }
            return Ok(is_done || !ftl.holds_something(block));
        }
        BlockState::Open | BlockState::Closing | BlockState::Full => {}
        // The block holds no data, or data that cannot be moved.
        _ => return Ok(true),
    }
    let can_collect = |ftl: &Ftl| ftl.blocks.is_candidate(block);
    if ftl.blocks.writable() <= ftl.collector.reserve_blocks {
        return Ok(false);
    }
    ftl.end_block(block);
    if !can_collect(ftl) {
        owner.let_go(ftl, now, block)?;
    }
    if !can_collect(ftl) || ftl.blocks.writable() <= ftl.collector.reserve_blocks {
        return Ok(false);
    }
    ftl.stats.refreshed += 1;
    let collected = collect_for(Cause::Scrub, ftl, owner, now, block);
    unless_it_waits(ftl, owner, block, collected)
}

impl Ftl {
    /// Queues the block of a page that was read with many bit errors.
    #[cold]
    pub(in crate::ftl) fn wants_refresh(&mut self, at: Ppn, corrected: u16) {
        // A read may report the largest number of corrected bits even if scrubbing is off.
        if self.config.scrub.is_none() {
            return;
        }
        let block = self.geometry.block_of(at);
        // A restart also reads old roots, which need no refresh.
        if self.holds_something(block) {
            self.stats.corrected_most = self.stats.corrected_most.max(corrected);
        }
        self.scrub.put(block, Nanos::ZERO);
    }

    /// Reads the pages whose turn has come since the last call, at most the whole device once.
    /// Erases a free block with leftovers instead of reading it.
    fn patrol(&mut self, now: Nanos) -> Result<(), FtlError> {
        let (pages, step) = (self.geometry.pages(), self.scrub.step);
        // Multiplicative hashing: restarts in short succession begin far apart.
        let start = self.seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let start = (start * u64::from(pages)) >> 32;
        let mut cursor = self.scrub.cursor.unwrap_or(start as u32);
        let due = (now.since(self.scrub.next_read).0 / step.0).saturating_add(1);
        // If more than the whole device is due, it is read once, and the schedule starts anew.
        self.scrub.next_read = if due > u64::from(pages) {
            now + step
        } else {
            Nanos(self.scrub.next_read.0 + due * step.0)
        };
        let mut buffer = std::mem::take(&mut self.scrub.buffer);
        let mut outcome = Ok(());
        for _ in 0..due.min(pages.into()) {
            let at = Ppn(cursor);
            cursor = (cursor + 1) % pages;
            let block = self.geometry.block_of(at);
            if outcome.is_ok() && self.holds_leftovers(block) {
                outcome = self.erase(now, block, Cause::Gc).map(drop); // Earlier than otherwise.
            } else if outcome.is_ok() && self.holds_something(block) {
                self.stats.add_read(Cause::Scrub, false);
                self.stats.patrolled += 1;
                match self.read_page(now, at, &mut buffer, &mut []) {
                    // A torn page, or one that is already lost: its readers report that.
                    Ok(_) | Err(FlashError::Uncorrectable { .. }) => {}
                    Err(other) => outcome = Err(other.into()),
                }
            }
        }
        self.scrub.cursor = Some(cursor);
        self.scrub.buffer = buffer;
        outcome
    }

    /// Whether a block has pages that a reader or a restart may need.
    fn holds_something(&self, block: Pbn) -> bool {
        match self.blocks.state(block) {
            BlockState::Open | BlockState::Closing | BlockState::Full => true,
            BlockState::Meta => self.journal.holds_something(block),
            _ => false,
        }
    }

    /// Whether a block is free and has pages from before the last restart that nobody needs, but
    /// that the next restart reads.
    fn holds_leftovers(&self, block: Pbn) -> bool {
        self.blocks.state(block) == BlockState::Free && self.blocks.is_left(block)
    }
}

#[cfg(test)]
mod tests;
