//! The effect of a cut program on pages that share its cells.

use super::{InFlight, PowerCut, Undo};
use crate::dice::Dice;
use crate::nand::{Damage, Flash};
use crate::units::Nanos;

impl PowerCut {
    /// Handles a program that has not landed. If it was issued, it may have begun: with probability
    /// 1/2 the pages below it are lost, safe or not. Without pairs no random bit is drawn.
    pub(super) fn disturb(&mut self, op: &InFlight, now: Nanos, bits: &mut Dice) {
        let (Some(cells), Undo::Program { at, .. }) = (&self.cells, &op.undo) else {
            return;
        };
        let geometry = *self.chip.geometry();
        let below = cells.below(geometry.page_in_block(*at));
        if below.is_empty() || op.issued > now || bits.next() & 1 == 0 {
            return;
        }
        for page in below.iter().map(|&page| geometry.page(op.block, page)) {
            if self.chip.is_programmed(page) {
                self.chip.set_damage(page, Some(Damage::Unreadable));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nand::{Cell, Chip, Cut, FlashError, Geometry, Pairing, Timing, small};
    use crate::units::Ppn;

    fn power(pairing: Pairing) -> PowerCut {
        let geometry = Geometry {
            pages_per_block: 6,
            cell: Cell::Mlc,
            pairing,
            ..small::GEOMETRY
        };
        PowerCut::new(Chip::new(geometry, Timing::default(), 16))
    }

    /// Programs pages and waits for each but the last, whose program is cut with these dice.
    /// Returns the pages that are unreadable afterwards.
    fn lost(pairing: Pairing, pages: u32, dice: u64) -> Vec<u32> {
        let mut flash = power(pairing).arm(Cut {
            at: u64::from(pages) - 1,
            dice,
            torn: false,
        });
        let mut now = Nanos::ZERO;
        for page in 0..pages {
            match flash.program(now, Ppn(page), b"page", &[]) {
                Ok(done) => now = flash.sync(now, done).unwrap(),
                Err(error) => assert_eq!((error, page), (FlashError::PowerLost, pages - 1)),
            }
        }
        let mut chip = flash.into_chip();
        let reads = |page: &u32| chip.read(now, Ppn(*page), &mut [], &mut []).is_err();
        (0..pages).filter(reads).collect()
    }

    #[test]
    fn a_cut_program_destroys_the_pages_below_it_and_no_others() {
        for (pairing, pages, below) in [
            (Pairing::Distance3, 3, vec![0]),
            (Pairing::Distance3, 5, vec![1]),
            (Pairing::Tlc, 5, vec![0, 2]),
            // A lower page has no page below it.
            (Pairing::Distance3, 4, vec![]),
            (Pairing::None, 3, vec![]),
        ] {
            let all: Vec<Vec<u32>> = (0..64).map(|dice| lost(pairing, pages, dice)).collect();
            assert!(
                all.contains(&vec![]),
                "{pairing} {pages}: a program may land"
            );
            assert!(all.contains(&below), "{pairing} {pages}: {below:?}");
            assert!(all.iter().all(|lost| lost.is_empty() || *lost == below));
        }
    }

    #[test]
    fn a_program_that_has_not_begun_destroys_nothing() {
        for dice in 0..64 {
            let mut flash = power(Pairing::Distance3);
            let done = flash.program(Nanos::ZERO, Ppn(0), b"safe", &[]).unwrap();
            let now = flash.sync(done, done).unwrap();
            flash.program(now, Ppn(1), b"other", &[]).unwrap();
            let later = now + Nanos::from_micros(1_000_000);
            let mut flash = flash.arm(Cut {
                at: 1,
                dice,
                torn: false,
            });
            flash.program(later, Ppn(2), b"upper", &[]).unwrap();
            let cut = flash.program(now, Ppn(6), b"elsewhere", &[]);
            assert_eq!(cut, Err(FlashError::PowerLost));
            let mut chip = flash.into_chip();
            assert!(chip.read(now, Ppn(0), &mut [], &mut []).is_ok(), "{dice}");
        }
    }
}
