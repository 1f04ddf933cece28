//! The newest version of each logical page that counts, while recovery of SEAL finds versions.
//!
//! The mapping table holds it, so that this takes one bit a page.

use super::Mistake;
use crate::ftl::{Ftl, FtlError, Slot};
use crate::mistakes::Mistaken;
use crate::units::{Lpn, Nanos, Ppn};

/// Maps each logical page to the version that counts and has the highest place, and of two with the
/// same place the one with the higher write sequence.
pub(super) struct Newest {
    /// Logical pages that were mapped to a version here, as bits. Others are where the mapping
    /// table on flash has them.
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

    /// A version counts, at a place and with a write sequence. `rank_of` says both of another one.
    /// A list of trims is read at an instant, for the pages that it names. Returns when that was.
    ///
    /// # Errors
    /// The list cannot be read, unless the restart salvages.
    #[inline]
    pub(super) fn offer(
        &mut self,
        ftl: &mut Ftl,
        (lpn, slot, is_list): (Lpn, Slot, bool),
        rank: (u64, u64),
        (now, salvages): (Nanos, bool),
        rank_of: impl Fn(Ppn) -> (u64, u64),
    ) -> Result<Nanos, FtlError> {
        // The mapping table on flash has what counted before.
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

    /// What decides between two versions: place, write sequence, and of copies the page.
    fn key(&self, (place, seq): (u64, u64), slot: Slot) -> (u64, u64, u32) {
        let place = match self.mistake.is(Mistake::OrderBySeq) {
            true => seq,
            false => place,
        };
        let inside = match self.mistake.is(Mistake::AnyOrderInside) {
            true => 0,
            false => seq,
        };
        // The bit that says *trimmed* comes last.
        (place, inside, slot.encode().rotate_left(1))
    }
}
