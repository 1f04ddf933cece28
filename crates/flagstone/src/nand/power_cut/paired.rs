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
