//! The steps of a collection: a block becomes the victim, its live pages move, and it is erased
//! once the copies are durable.

use super::checksum::WHOLE_BYTES_MAX;
use super::header;
use super::write::Target;
use super::{
    BlockState, Cause, Ftl, FtlError, Header, Moving, Owner, PageKind, PairedPages, Relocation,
    Stream, TAIL_BYTES_MAX, Victim,
};
use crate::layout::get;
use crate::nand::FlashError;
use crate::units::{Nanos, Pbn, Ppn};

/// Removes a block from the candidates, to be collected.
pub(super) fn begin(ftl: &mut Ftl, victim: Pbn) {
    ftl.blocks.take_candidate(victim, BlockState::Victim);
    if ftl.config.works_ahead {
        expect_live(ftl, victim);
    }
}

/// Makes a victim a candidate again, because its collection failed or was stopped.
pub(super) fn give_back(ftl: &mut Ftl, victim: Pbn) {
    if ftl.blocks.state(victim) == BlockState::Victim {
        ftl.blocks.fill(victim);
    }
}

/// Number of reads announced at a time when a block is read page by page.
const ASKED: u32 = 32;

/// After a read, announces the reads of the following pages, in groups.
pub(super) fn expect_behind(ftl: &Ftl, at: Ppn, page: u32) {
    let behind = ftl.data_pages - page - 1;
    if page.is_multiple_of(ASKED) && behind > 0 {
        ftl.flash.expect(Ppn(at.0 + 1), behind.min(ASKED));
    }
}

/// Announces the reads of a victim's live pages: one request per run of adjacent pages.
fn expect_live(ftl: &Ftl, victim: Pbn) {
    let end = ftl.geometry.page(victim, 0).0 + ftl.data_pages;
    let mut next = end - ftl.data_pages;
    while next < end {
        let first = next;
        while next < end && ftl.blocks.is_live(Ppn(next)) {
            next += 1;
        }
        match next - first {
            0 => next += 1,
            live => ftl.flash.expect(Ppn(first), live),
        }
    }
}

/// The progress of a collection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moves {
    /// The first page not yet examined. The end of the block if no live page is left.
    pub(super) next: u32,
    /// When all copies are durable.
    pub(super) durable: Nanos,
    /// Whether a page could not be read: the block becomes stuck.
    pub(super) lost: bool,
}

/// Moves live pages of a victim: at most `most`, beginning at page `first`.
pub(super) fn move_live(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    victim: Victim,
    first: u32,
    most: u32,
) -> Result<Moves, FtlError> {
    let mut left = most;
    let mut moves = Moves {
        next: first,
        durable: Nanos::ZERO,
        lost: false,
    };
    while moves.next < ftl.data_pages && left > 0 {
        if ftl.blocks.live_in(victim.block) == 0 {
            moves.next = ftl.data_pages;
            break;
        }
        let from = ftl.geometry.page(victim.block, moves.next);
        moves.next += 1;
        if !ftl.blocks.is_live(from) {
            continue;
        }
        left -= 1;
        let moved = relocate(ftl, owner, victim, from);
        if moved.is_err() {
            ftl.collector.copied = ftl.collector.copied.max(moves.durable);
        }
        match moved? {
            Moved::To(done) => moves.durable = moves.durable.max(done),
            Moved::Dropped => {}
            Moved::Lost => {
                ftl.blocks.set_state(victim.block, BlockState::Stuck);
                moves.lost = true;
                break;
            }
        }
    }
    Ok(moves)
}

/// Erases a victim without live pages, once the copies are durable. Returns when the erase is done.
pub(super) fn finish(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    victim: Victim,
    durable: Nanos,
) -> Result<Nanos, FtlError> {
    let block = victim.block;
    let now = ftl.sync(victim.prepared, durable.max(ftl.collector.copied))?;
    let now = owner.before_erase(ftl, now, victim)?;
    debug_assert_eq!(
        ftl.blocks.live_in(block),
        0,
        "block {block} still has live pages"
    );
    let failing = ftl.blocks.is_failing(block);
    let done = match ftl.erase(now, block, victim.cause)? {
        Some(done) if !failing => {
            ftl.blocks.set_free(block);
            done
        }
        erased => match ftl.retire_now(erased.unwrap_or(now), block) {
            Ok(done) => done,
            Err(error) => {
                match erased {
                    Some(done) => owner.erased(ftl, block, done),
                    // A restart reads the block until a root leaves it out.
                    None => ftl.collector.owed.push(block),
                }
                return Err(error);
            }
        },
    };
    owner.erased(ftl, block, done);
    Ok(done)
}

/// Prefetches the mapping entries of the pages to be copied. They are far apart in memory: waiting
/// for each would take a third of the collector's time.
pub(super) fn fetch_slots(ftl: &Ftl, victim: Pbn) {
    let first = ftl.geometry.page(victim, 0).0;
    let pages = (first..first + ftl.data_pages).map(Ppn);
    let mut live = pages.filter(|&page| ftl.blocks.is_live(page));
    loop {
        let (mut lpns, mut count) = ([0; 64], 0);
        for page in live.by_ref().take(lpns.len()) {
            let Some(spare) = ftl.flash.hint(page) else {
                return;
            };
            lpns[count] = get(spare, header::LPN) as usize;
            count += 1;
        }
        let slots = lpns[..count]
            .iter()
            .filter_map(|&lpn| ftl.map.words().get(lpn));
        std::hint::black_box(slots.fold(0, |all, slot| all ^ u32::from_le_bytes(*slot)));
        if count < lpns.len() {
            return;
        }
    }
}

/// Copies a live page as the collector would, outside of a collection. Returns when the copy is
/// done, or `None` if the page cannot be read.
pub(crate) fn move_page(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
    from: Ppn,
) -> Result<Option<Nanos>, FtlError> {
    let victim = Victim {
        block: ftl.blocks.addresses.block_of(from),
        prepared: now,
        cause: Cause::Gc,
    };
    Ok(match relocate(ftl, owner, victim, from)? {
        Moved::To(done) => Some(done),
        Moved::Dropped => Some(now),
        Moved::Lost => None,
    })
}

/// What became of a live page of a victim.
enum Moved {
    /// It was copied. The copy is done at this instant.
    To(Nanos),
    /// The owner did not need it.
    Dropped,
    /// It cannot be read, or is not the version that it should be. It stays.
    Lost,
}

/// Copies a live page of a victim as its owner decides ([`Owner::relocate`]), and kills the
/// original. The copy stays in its plane while there is room, if the device copies inside planes,
/// by setting, or to leave fewer pages blank.
fn relocate(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    victim: Victim,
    from: Ppn,
) -> Result<Moved, FtlError> {
    let cause = victim.cause;
    let record = ftl.record_bytes();
    let used = match ftl.format.word_flag {
        Some(_) => ftl.bytes_read(record),
        None => record,
    };
    let mut spare = [0xff; WHOLE_BYTES_MAX];
    let mut data = std::mem::take(&mut ftl.page_buffer);
    let plane = ftl.geometry.plane_of(ftl.blocks.addresses.block_of(from));
    let room = ftl.may_open(Stream::Gc, plane);
    // A refresh must not use copy-back, which would copy bit errors.
    let inside = room && cause == Cause::Gc && ftl.flash.copies_inside();
    // In each plane with a copy, waiting for the copies closes pairs.
    let one_plane = ftl.config.copies_stay || ftl.config.paired_pages == PairedPages::Closed;
    let stays = inside || (room && one_plane);
    ftl.stats.add_read(cause, false);
    let read = ftl.read_to_copy(victim.prepared, from, &mut data, &mut spare[..used], inside);
    ftl.stats.inside += u64::from(inside);
    let head = match &read {
        Ok(read) => Header::parse(&spare).filter(|head| match head.kind {
            PageKind::Trims => ftl.believes_list(from, &data[..read.data_bytes]),
            _ => ftl.believes(from, head.lpn),
        }),
        Err(_) => None,
    };
    let moved = match (read, head) {
        (Ok(read), Some(header)) => {
            let tail = &spare[header::SIZE..record];
            let page = Moving {
                victim,
                from,
                header,
                tail,
            };
            let mut new_tail = [0; TAIL_BYTES_MAX];
            let new_tail = &mut new_tail[..tail.len()];
            new_tail.copy_from_slice(tail);
            let fate = owner.relocate(ftl, &page, new_tail);
            if fate == Relocation::Drop {
                Ok(Moved::Dropped)
            } else {
                let seq = (fate == Relocation::Copy).then_some(header.seq);
                let version = (header.kind, header.lpn, seq);
                let is_list = header.kind == PageKind::Trims;
                if is_list && fate == Relocation::Renew {
                    ftl.shorten_list(owner, from, &mut data);
                }
                let bytes = &data[..read.data_bytes];
                let gc = Target {
                    stream: Stream::Gc,
                    plane: stays.then_some(plane),
                    inside,
                    word: ftl.word_of(&spare),
                };
                let fill = |to, copy: &mut [u8]| {
                    copy.copy_from_slice(new_tail);
                    owner.place(&page, to, copy);
                };
                let copied = ftl.append_to(read.done, gc, version, bytes, cause, fill);
                copied.map(|to| {
                    ftl.stats.relocated += u64::from(cause == Cause::Gc);
                    if is_list {
                        ftl.move_list(&data, from, to.at);
                    }
                    owner.relocated(ftl, &page, to);
                    Moved::To(to.done)
                })
            }
        }
        (Ok(_), None) | (Err(FlashError::Uncorrectable { .. }), _) => Ok(Moved::Lost),
        (Err(other), _) => Err(other.into()),
    };
    ftl.page_buffer = data;
    if matches!(moved, Ok(Moved::To(_) | Moved::Dropped)) {
        ftl.kill(from);
    }
    moved
}
