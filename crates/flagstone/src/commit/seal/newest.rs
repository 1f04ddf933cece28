//! The newest counting version of each logical page, while recovery of SEAL finds versions.
//!
//! Stored in the mapping table itself, plus one bit per page.

use super::Mistake;
use crate::ftl::{Ftl, FtlError, Slot};
use crate::mistakes::Mistaken;
use crate::units::{Lpn, Nanos, Ppn};

/// Maps each logical page to the counting version with the highest place; among equal places, with
/// the higher write sequence.
pub(super) struct Newest {
    /// Bit set of logical pages that were mapped here. Others are as in the mapping table on flash.
    mapped: Vec<u64>,
    /// The mapping table on flash has all commits up to this place.
    unto: u64,
    mistake: Mistaken<Mistake>,
}

impl Newest {
    pub(super) fn new(logical_pages: u32, unto: u64, mistake: Mistaken<Mistake>) -> Newest {
        Newest {
            mapped: vec![0; logical_pages.div_ceil(64) as usize],
            unto,
            mistake,
        }
    }

    /// Adds a version that counts, with its place and write sequence. `rank_of` returns these of
    /// another version. Reads a list of trims for its logical pages. Returns when that was read.
    ///
    /// # Errors
    /// The list is unreadable, unless the restart salvages.
    #[inline]
    pub(super) fn offer(
        &mut self,
        ftl: &mut Ftl,
        lpn: Lpn,
        slot: Slot,
        is_list: bool,
        rank: (u64, u64),
        now: Nanos,
        salvages: bool,
        rank_of: impl Fn(Ppn) -> (u64, u64),
    ) -> Result<Nanos, FtlError> {
        // The mapping table on flash has all earlier versions.
        if rank.0 <= self.unto {
            return Ok(now);
        }
        if !is_list {
            self.offer_one(ftl, lpn, slot, rank, &rank_of);
            return Ok(now);
        }
        let at = slot.ppn().expect("a list is on a page");
        match ftl.read_trims(now, at, lpn) {
            Ok((read, named)) => {
                for lpn in named {
                    self.offer_one(ftl, lpn, slot, rank, &rank_of);
                }
                Ok(read)
            }
            Err(FtlError::Unreadable { at }) if salvages => {
                ftl.note_lost_trims(at);
                Ok(now)
            }
            Err(FtlError::Unreadable { at }) => Err(ftl.lost_trims(at)),
            Err(error) => Err(error),
        }
    }

    /// Maps one logical page to the version, unless the version that was mapped here before ranks
    /// higher.
    #[inline]
    fn offer_one(
        &mut self,
        ftl: &mut Ftl,
        lpn: Lpn,
        slot: Slot,
        rank: (u64, u64),
        rank_of: &impl Fn(Ppn) -> (u64, u64),
    ) {
        let (word, bit) = (lpn.index() / 64, lpn.0 % 64);
        if self.mapped[word] >> bit & 1 == 1 {
            let other = ftl.slot(lpn);
            let at = other.ppn().expect("a version is on a page");
            if self.key(rank, slot) < self.key(rank_of(at), other) {
                return;
            }
        }
        self.mapped[word] |= 1 << bit;
        ftl.set_slot(lpn, slot);
    }

    /// The sort key of a version: place, write sequence, and physical page for copies.
    fn key(&self, (place, seq): (u64, u64), slot: Slot) -> (u64, u64, u32) {
        let place = if self.mistake.is(Mistake::OrderBySeq) {
            seq
        } else {
            place
        };
        let inside = if self.mistake.is(Mistake::AnyOrderInside) {
            0
        } else {
            seq
        };
        // The bit for *trimmed* is the least significant.
        (place, inside, slot.encode().rotate_left(1))
    }
}
