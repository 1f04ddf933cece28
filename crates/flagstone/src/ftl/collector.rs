//! Garbage collection, wear levelling and the retirement of failing blocks: one engine that moves
//! the live pages of a block and erases it, whatever the reason.

use super::victims::View;
use super::{
    BlockState, Cause, Fate, Ftl, FtlError, Header, Owner, PairedPages, Stream, TAIL_BYTES_MAX,
    header, scrub, steps,
};
use crate::layout::get;
use crate::nand::FlashError;
use crate::units::{Nanos, Pbn};

/// Blocks that static wear levelling looks at after an erase.
const WEAR_SAMPLES: u32 = 4;

/// Collects until enough blocks are free, and retires blocks that failed. The host's operation that
/// asked for room is not held back: it meets the collector's work in the planes' timelines.
#[inline]
pub(crate) fn make_room(ftl: &mut Ftl, owner: &mut dyn Owner, now: Nanos) -> Result<(), FtlError> {
    if ftl.writable_blocks() >= ftl.gc_threshold_blocks
        && ftl.retire.is_empty()
        && !ftl.scrub.is_due(now)
    {
        return Ok(());
    }
    make_room_slowly(ftl, owner, now)
}

#[cold]
fn make_room_slowly(ftl: &mut Ftl, owner: &mut dyn Owner, now: Nanos) -> Result<(), FtlError> {
    while let Some(block) = ftl.retire.pop() {
        match ftl.blocks[block.index()].state {
            BlockState::Full if ftl.blocks[block.index()].pins == 0 => {
                collect(ftl, owner, now, block)?;
            }
            // Pinned: once it can be collected, it is retired like any other victim that failed.
            _ => {}
        }
    }
    if ftl.scrub.is_due(now) {
        scrub::step(ftl, owner, now)?;
    }
    if ftl.is_short() {
        steps::end(ftl, owner, now)?;
    }
    loop {
        let mut passed_over = Vec::new();
        let collected = collect_until_enough(ftl, owner, now, &mut passed_over);
        for block in passed_over {
            ftl.unpin(block);
        }
        collected?;
        if !ftl.is_short() || !ftl.end_oldest_snapshot() {
            return Ok(());
        }
    }
}

/// Collects until enough blocks are free. Blocks that are not worth it are pinned meanwhile.
fn collect_until_enough(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
    passed_over: &mut Vec<Pbn>,
) -> Result<(), FtlError> {
    // Where pairs are closed, an owner that waits for single copies may leave nothing to gain.
    let pairs_close = ftl.config.paired_pages == PairedPages::Closed;
    let most = if pairs_close {
        u64::from(ftl.geometry.blocks())
    } else {
        u64::MAX
    };
    let last = ftl.stats.collections.saturating_add(most);
    while ftl.writable_blocks() < ftl.gc_threshold_blocks && ftl.stats.collections < last {
        let Some(victim) = choose(ftl) else { break };
        if !owner.is_worth(ftl, victim) {
            ftl.pin(victim);
            passed_over.push(victim);
            continue;
        }
        collect(ftl, owner, now, victim)?;
        if let Some(cold) = coldest(ftl)
            && owner.is_worth(ftl, cold)
        {
            collect(ftl, owner, now, cold)?;
        }
    }
    Ok(())
}

pub(super) fn choose(ftl: &mut Ftl) -> Option<Pbn> {
    ftl.victims.skip_empty();
    ftl.config.victims.choose(&View {
        victims: &ftl.victims,
        erases: &ftl.erases,
        erases_mean: erases_mean(ftl),
        dense_pages: ftl.dense_pages,
    })
}

fn erases_mean(ftl: &Ftl) -> u32 {
    (ftl.erases_total / u64::from(ftl.geometry.blocks())) as u32
}

/// Static wear levelling: of the next few blocks in turn, one that is too far behind the mean. Its
/// pages move to a worn block, and it joins the free ones.
fn coldest(ftl: &mut Ftl) -> Option<Pbn> {
    let gap = ftl.config.static_wear_gap?;
    let mean = erases_mean(ftl);
    for _ in 0..WEAR_SAMPLES {
        let id = Pbn(ftl.wear_cursor);
        ftl.wear_cursor = (ftl.wear_cursor + 1) % ftl.geometry.blocks();
        let block = &ftl.blocks[id.index()];
        if block.state == BlockState::Full
            && block.pins == 0
            && ftl.erases[id.index()].saturating_add(gap) < mean
            && ftl.writable_blocks() > ftl.gc_reserve_blocks
        {
            return Some(id);
        }
    }
    None
}

/// Moves what is live in a full block elsewhere and erases the block. Returns when the erase is
/// done; it is not yet waited for.
pub(crate) fn collect(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    start: Nanos,
    victim: Pbn,
) -> Result<Nanos, FtlError> {
    ftl.stats.collections += 1;
    let done = collect_for(Cause::Gc, ftl, owner, start, victim)?;
    ftl.stats.gc_ns += done.since(start);
    Ok(done)
}

/// As [`collect`], counted as `cause`. What the owner does of its own counts as it says.
pub(super) fn collect_for(
    cause: Cause,
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    start: Nanos,
    victim: Pbn,
) -> Result<Nanos, FtlError> {
    begin(ftl, victim);
    let prepared = owner.prepare(ftl, start, victim)?;
    fetch_slots(ftl, victim);
    let moved = move_live(cause, ftl, owner, prepared, victim, (0, ftl.data_pages))?;
    let durable = prepared.max(moved.durable);
    match moved.lost {
        true => Ok(durable),
        false => finish(cause, ftl, owner, prepared, victim, durable),
    }
}

/// Takes a block from the candidates: it is being collected.
pub(super) fn begin(ftl: &mut Ftl, victim: Pbn) {
    let block = &mut ftl.blocks[victim.index()];
    assert!(
        block.state == BlockState::Full && block.pins == 0,
        "block {victim} is no victim"
    );
    block.state = BlockState::Victim;
    ftl.victims.remove(victim, block.live.into());
}

/// What became of the live pages of a victim.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moves {
    /// The first page that was not looked at; the end of the block if nothing is live any more.
    pub(super) next: u32,
    /// Pages that were copied or dropped.
    pub(super) count: u32,
    /// When all copies are durable.
    pub(super) durable: Nanos,
    /// One of them cannot be read: the block is stuck.
    pub(super) lost: bool,
}

/// Moves live pages of a victim, from the page `first` on and at most so many, at `now`.
pub(super) fn move_live(
    cause: Cause,
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
    victim: Pbn,
    (first, most): (u32, u32),
) -> Result<Moves, FtlError> {
    let mut moves = Moves {
        next: first,
        count: 0,
        durable: Nanos::ZERO,
        lost: false,
    };
    while moves.next < ftl.data_pages && moves.count < most {
        if ftl.blocks[victim.index()].live == 0 {
            moves.next = ftl.data_pages;
            break;
        }
        let from = ftl.geometry.page(victim, moves.next);
        moves.next += 1;
        if !ftl.is_live(from) {
            continue;
        }
        moves.count += 1;
        match relocate(cause, ftl, owner, now, from)? {
            Moved::To(done) => moves.durable = moves.durable.max(done),
            Moved::Dropped => {}
            Moved::Lost => {
                ftl.blocks[victim.index()].state = BlockState::Stuck;
                moves.lost = true;
                break;
            }
        }
    }
    Ok(moves)
}

/// Erases a victim whose pages have moved, once the copies are durable. Returns when the erase is
/// done.
pub(super) fn finish(
    cause: Cause,
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    prepared: Nanos,
    victim: Pbn,
    durable: Nanos,
) -> Result<Nanos, FtlError> {
    let now = ftl.sync(prepared, durable)?;
    let now = owner.before_erase(ftl, now, victim)?;
    debug_assert_eq!(
        ftl.blocks[victim.index()].live,
        0,
        "block {victim} still has live pages"
    );
    let failing = ftl.blocks[victim.index()].failing;
    let done = match ftl.erase(now, victim, cause)? {
        Some(done) if !failing => {
            ftl.free_block(victim);
            done
        }
        Some(done) => ftl.retire_now(done, victim)?,
        None => ftl.retire_now(now, victim)?,
    };
    owner.erased(ftl, victim, done);
    Ok(done)
}

/// Looks at the mapping of the pages that are about to be copied. They lie far apart, and waiting
/// for one after the other would be a third of the collector's work; here the waits overlap.
fn fetch_slots(ftl: &Ftl, victim: Pbn) {
    let first = ftl.geometry.page(victim, 0).0;
    let pages = (first..first + ftl.data_pages).map(crate::units::Ppn);
    let mut live = pages.filter(|&page| ftl.is_live(page));
    loop {
        let (mut lpns, mut count) = ([0; 64], 0);
        for page in live.by_ref().take(lpns.len()) {
            let Some(spare) = ftl.flash.hint(page) else {
                return;
            };
            lpns[count] = get(spare, header::LPN) as usize;
            count += 1;
        }
        let slots = lpns[..count].iter().filter_map(|&lpn| ftl.map.get(lpn));
        std::hint::black_box(slots.fold(0, |all, slot| all ^ u32::from_le_bytes(*slot)));
        if count < lpns.len() {
            return;
        }
    }
}

/// Copies a live page to where the collector would, outside of a collection. Returns when the copy
/// is done, or nothing for a page that cannot be read.
pub(crate) fn move_page(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
    from: crate::units::Ppn,
) -> Result<Option<Nanos>, FtlError> {
    Ok(match relocate(Cause::Gc, ftl, owner, now, from)? {
        Moved::To(done) => Some(done),
        Moved::Dropped => Some(now),
        Moved::Lost => None,
    })
}

enum Moved {
    To(Nanos),
    Dropped,
    Lost,
}

fn relocate(
    cause: Cause,
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
    from: crate::units::Ppn,
) -> Result<Moved, FtlError> {
    let record = ftl.record_bytes();
    let mut spare = [0xff; header::SIZE + TAIL_BYTES_MAX];
    let mut data = std::mem::take(&mut ftl.page_buffer);
    let plane = ftl.geometry.plane_of(ftl.addresses.block_of(from));
    let room = ftl.may_open(Stream::Gc, plane);
    // A refresh is for the errors that copy-back would hand on.
    let inside = room && cause == Cause::Gc && ftl.flash.copy_back(true);
    // Each plane with a copy has pairs that the wait for the copies closes.
    let one_plane = ftl.config.copies_stay || ftl.config.paired_pages == PairedPages::Closed;
    let stays = inside || (room && one_plane);
    ftl.stats.add_read(cause, false);
    let read = ftl.read_page(now, from, &mut data, &mut spare[..record]);
    if inside {
        ftl.flash.copy_back(false);
        ftl.stats.inside += 1;
    }
    let moved = match read {
        Ok(read) => {
            let head = Header::parse(&spare).expect("a live page holds a version");
            let tail = &mut spare[header::SIZE..record];
            let fate = owner.relocate(ftl, from, &head, tail);
            if fate == Fate::Drop {
                Ok(Moved::Dropped)
            } else {
                let page = (
                    head.kind,
                    head.lpn,
                    (fate == Fate::Copy).then_some(head.seq),
                );
                let bytes = &data[..read.data_bytes];
                ftl.inside = inside.then_some(plane);
                let gc = (Stream::Gc, stays.then_some(plane));
                let copied = ftl.append_with(read.done, gc, page, bytes, cause, |to, copy| {
                    copy.copy_from_slice(tail);
                    owner.place(to, copy);
                });
                ftl.inside = None;
                copied.map(|to| {
                    ftl.stats.relocated += u64::from(cause == Cause::Gc);
                    ftl.snapshots.is_moving = true;
                    owner.relocated(ftl, &head, from, to);
                    ftl.snapshots.is_moving = false;
                    Moved::To(to.done)
                })
            }
        }
        Err(FlashError::Uncorrectable { .. }) => Ok(Moved::Lost),
        Err(other) => Err(other.into()),
    };
    ftl.page_buffer = data;
    if matches!(moved, Ok(Moved::To(_) | Moved::Dropped)) {
        ftl.kill(from);
    }
    moved
}

impl Ftl {
    /// Takes a block out of service for good and makes that durable: its old contents may still be
    /// readable, and a restart must not believe them.
    pub(super) fn retire_now(&mut self, now: Nanos, id: Pbn) -> Result<Nanos, FtlError> {
        self.blocks[id.index()].state = BlockState::Bad;
        self.stats.retired += 1;
        self.meta.bad.push(id);
        self.write_root(now)
    }
}
