//! The newest version of each logical page that counts, while recovery of SEAL finds versions.
//!
//! The mapping table holds it, so that this takes one bit a page.

use super::Mistake;
use crate::ftl::{Ftl, Slot};
use crate::mistakes::Mistaken;
use crate::units::{Lpn, Ppn};

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
    #[inline]
    pub(super) fn offer(
        &mut self,
        ftl: &mut Ftl,
        lpn: Lpn,
        slot: Slot,
        rank: (u64, u64),
        rank_of: impl Fn(Ppn) -> (u64, u64),
    ) {
        // The mapping table on flash has what counted before.
        if rank.0 <= self.unto {
            return;
        }
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
