//! Garbage collection, wear levelling and retirement of failing blocks: one engine moves the live
//! pages of a block and erases it, for whatever reason.

use super::moves::{begin, fetch_slots, finish, give_back, move_live};
use super::steps::InSteps;
use super::{BlockState, Cause, Ftl, FtlError, Owner, PairedPages, Victim, health, steps};
use crate::units::{Nanos, Pbn};

/// Number of blocks that static wear levelling examines after an erase.
const WEAR_SAMPLES: u32 = 4;

/// When to collect, and what a later call has to do.
#[derive(Debug, Clone)]
pub(super) struct Collector {
    /// Collection starts when fewer blocks than this are writable.
    pub(super) threshold_blocks: u32,
    /// Blocks reserved for the collector's copies.
    pub(super) reserve_blocks: u32,
    /// Host writes may use the collector's reserve (restart of a full device).
    pub(super) reserve_is_lent: bool,
    /// A block with fewer live pages than this is worth collecting.
    pub(super) dense_pages: u32,
    /// Full blocks in which a program failed.
    pub(super) retire: Vec<Pbn>,
    /// Victims whose failed collection must be completed first. Includes those that could not be
    /// erased and are not yet left out by a root.
    pub(super) owed: Vec<Pbn>,
    /// When the copies of collections that were given up or have failed are done. Their originals
    /// are dead, so no later collection of these blocks waits for the copies by itself.
    pub(super) copied: Nanos,
    /// The block in incremental collection. Not a candidate.
    pub(super) in_steps: Option<InSteps>,
    /// The next block that static wear levelling examines.
    pub(super) wear_cursor: u32,
}

/// Collects until enough blocks are free, and retires failed blocks. The host operation that needed
/// the room is not delayed explicitly: it competes with the collector in the planes' timelines.
#[inline]
pub(crate) fn make_room(ftl: &mut Ftl, owner: &mut dyn Owner, now: Nanos) -> Result<(), FtlError> {
    if ftl.blocks.writable() >= ftl.collector.threshold_blocks
        && ftl.collector.retire.is_empty()
        && ftl.collector.owed.is_empty()
        && !ftl.scrub.is_due(now)
    {
        return Ok(());
    }
    make_room_slowly(ftl, owner, now)
}

#[cold]
fn make_room_slowly(ftl: &mut Ftl, owner: &mut dyn Owner, now: Nanos) -> Result<(), FtlError> {
    while let Some(block) = ftl.collector.owed.pop() {
        match ftl.blocks.state(block) {
            BlockState::Bad => {
                let done = ftl.write_root(now);
                let done = done.inspect_err(|_| ftl.collector.owed.push(block))?;
                owner.erased(ftl, block, done);
            }
            _ => {
                collect_again(ftl, owner, now, block)?;
            }
        }
    }
    while let Some(block) = ftl.collector.retire.pop() {
        // A pinned block is retired later, like any other failed victim.
        if ftl.blocks.is_candidate(block) {
            collect_if_prepared(ftl, owner, now, block)?;
        }
    }
    if ftl.scrub.is_due(now) {
        health::step(ftl, owner, now)?;
    }
    if ftl.is_short() {
        steps::end(ftl, owner, now)?;
    }
    loop {
        let mut passed_over = Vec::new();
        let collected = collect_until_enough(ftl, owner, now, &mut passed_over);
        for block in passed_over {
            ftl.blocks.unpin(block);
        }
        collected?;
        if !ftl.is_short() || !ftl.end_oldest_snapshot() {
            return Ok(());
        }
    }
}

/// Collects until enough blocks are free. Pins meanwhile the blocks that are not worth it, and
/// those that the owner has no room to prepare: the erase of another block may make it. A later
/// call tries them again. Each is one candidate less, so that they add no endless round.
fn collect_until_enough(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
    passed_over: &mut Vec<Pbn>,
) -> Result<(), FtlError> {
    // With closed pairs, an owner that waits for single copies may leave nothing to gain.
    let pairs_close = ftl.config.paired_pages == PairedPages::Closed;
    let most = if pairs_close {
        u64::from(ftl.geometry.blocks())
    } else {
        u64::MAX
    };
    let last = ftl.stats.collections.saturating_add(most);
    while ftl.blocks.writable() < ftl.collector.threshold_blocks && ftl.stats.collections < last {
        let Some(victim) = choose(ftl) else {
            break;
        };
        if !owner.is_worth(ftl, victim) || !collect_if_prepared(ftl, owner, now, victim)? {
            ftl.blocks.pin(victim);
            passed_over.push(victim);
            continue;
        }
        if let Some(cold) = coldest(ftl)
            && owner.is_worth(ftl, cold)
        {
            collect_if_prepared(ftl, owner, now, cold)?;
        }
    }
    Ok(())
}

/// The block to collect next.
pub(super) fn choose(ftl: &mut Ftl) -> Option<Pbn> {
    (ftl.blocks).choose_victim(ftl.config.victims, ftl.collector.dense_pages)
}

/// Static wear levelling: examines the next few blocks, and returns one that is too far behind the
/// mean. Its pages move to a worn block, and it becomes free.
fn coldest(ftl: &mut Ftl) -> Option<Pbn> {
    let gap = ftl.config.static_wear_gap?;
    let mean = ftl.blocks.erases_mean();
    for _ in 0..WEAR_SAMPLES {
        let id = Pbn(ftl.collector.wear_cursor);
        ftl.collector.wear_cursor = (ftl.collector.wear_cursor + 1) % ftl.geometry.blocks();
        if ftl.blocks.is_candidate(id)
            && ftl.blocks.erases[id.index()].saturating_add(gap) < mean
            && ftl.blocks.writable() > ftl.collector.reserve_blocks
        {
            return Some(id);
        }
    }
    None
}

/// Moves the live pages out of a full block and erases it. Returns when the erase is done; it is
/// not durable yet. A block with a lost page becomes stuck instead: then returns when the copies
/// of its other pages are durable.
pub(crate) fn collect(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    start: Nanos,
    victim: Pbn,
) -> Result<Nanos, FtlError> {
    let collected = collect_for(Cause::Gc, ftl, owner, start, victim);
    count(ftl, start, collected)
}

/// Counts a collection that began at `start`, and the time that it took, if it did not fail.
fn count(
    ftl: &mut Ftl,
    start: Nanos,
    collected: Result<Nanos, FtlError>,
) -> Result<Nanos, FtlError> {
    if let Ok(done) = &collected {
        ftl.stats.collections += 1;
        ftl.stats.gc_ns += done.since(start);
    }
    collected
}

/// Collects a block unless its owner finds no room to prepare it and lets it wait. Returns whether
/// it was collected.
fn collect_if_prepared(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
    victim: Pbn,
) -> Result<bool, FtlError> {
    let collected = collect(ftl, owner, now, victim);
    unless_it_waits(ftl, owner, victim, collected)
}

/// Whether a collection with this result was done; `false` if its owner found no room to prepare
/// the block and lets it wait.
pub(super) fn unless_it_waits(
    ftl: &Ftl,
    owner: &dyn Owner,
    victim: Pbn,
    collected: Result<Nanos, FtlError>,
) -> Result<bool, FtlError> {
    match collected {
        Err(FtlError::Full { .. }) if owner.lets_wait() && ftl.blocks.is_candidate(victim) => {
            Ok(false)
        }
        collected => collected.map(|_| true),
    }
}

/// Completes a collection that failed: some pages of the block may exist twice.
fn collect_again(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
    block: Pbn,
) -> Result<Nanos, FtlError> {
    give_back(ftl, block);
    begin(ftl, block);
    let prepared = owner.prepare(ftl, now, block);
    let collected = collect_prepared(Cause::Gc, ftl, owner, block, prepared);
    count(ftl, now, collected)
}

/// Like [`collect`], for a block that the caller of the device has chosen. Completes a collection
/// that failed first. Returns `None` if the block is no candidate, or becomes stuck.
pub(crate) fn collect_chosen(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
    block: Pbn,
) -> Result<Option<Nanos>, FtlError> {
    if ftl.owes_a_collection() {
        make_room(ftl, owner, now)?;
    }
    if block.0 >= ftl.geometry.blocks() || !ftl.blocks.is_candidate(block) {
        return Ok(None);
    }
    let done = collect(ftl, owner, now, block)?;
    Ok((ftl.blocks.state(block) != BlockState::Stuck).then_some(done))
}

/// Like [`collect`], counted under `cause`. The owner's operations count under its own causes.
///
/// If the collection fails and the owner allows steps, the victim becomes a candidate again, as
/// between two steps; so it does if nothing was moved and the owner lets it wait. For other owners
/// nothing is written or committed before the collection is complete: until then some pages exist
/// twice, and the owner knows one copy.
pub(super) fn collect_for(
    cause: Cause,
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    start: Nanos,
    victim: Pbn,
) -> Result<Nanos, FtlError> {
    begin(ftl, victim);
    let prepared = owner.prepare(ftl, start, victim);
    if matches!(prepared, Err(FtlError::Full { .. })) && owner.lets_wait() {
        give_back(ftl, victim);
        return prepared;
    }
    collect_prepared(cause, ftl, owner, victim, prepared)
}

/// The rest of a collection, after [`Owner::prepare`] has returned this.
fn collect_prepared(
    cause: Cause,
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    block: Pbn,
    prepared: Result<Nanos, FtlError>,
) -> Result<Nanos, FtlError> {
    let collected = prepared.and_then(|prepared| {
        let victim = Victim {
            block,
            prepared,
            cause,
        };
        move_and_erase(ftl, owner, victim)
    });
    if collected.is_err() {
        if ftl.format.in_steps {
            give_back(ftl, block);
        } else if ftl.blocks.state(block) == BlockState::Victim {
            ftl.collector.owed.push(block);
        }
    }
    collected
}

fn move_and_erase(ftl: &mut Ftl, owner: &mut dyn Owner, victim: Victim) -> Result<Nanos, FtlError> {
    fetch_slots(ftl, victim.block);
    let moved = move_live(ftl, owner, victim, 0, ftl.data_pages)?;
    let durable = victim.prepared.max(moved.durable);
    if moved.lost {
        Ok(durable)
    } else {
        finish(ftl, owner, victim, durable)
    }
}

impl Ftl {
    /// Whether a failed collection must be completed before anything is written or committed.
    /// [`make_room`] does so first.
    pub(crate) fn owes_a_collection(&self) -> bool {
        !self.collector.owed.is_empty()
    }
}
