//! Moments at which the power could have failed. The device continues after such a moment, and any
//! number of outcomes of a cut can be examined separately. A real cut is also recorded as a moment,
//! if its aim names what has landed.

use super::{Aim, PowerCut, Undo};
use crate::nand::Chip;
use crate::units::{Nanos, Pbn};

/// A moment at which one collection has overtaken another: an erase is issued while the erase of
/// another block has yet to begin, and programs or reprograms of other blocks are in flight. If the
/// first erase lands and these do not, the two collections have happened in reverse order. With
/// [`Aim::Exact`], the moment at which the power fails.
///
/// ```
/// use flagstone::nand::small::{TINY, chip};
/// use flagstone::nand::{Aim, Cut, Flash, FlashError, PowerCut};
/// use flagstone::units::{Nanos, Ppn};
///
/// // Two programs are in flight when the power fails.
/// let cut = Cut { at: 1, dice: 0, torn: false };
/// let mut flash = PowerCut::new(chip(TINY)).arm(cut).aim(Aim::Exact).keeping(1);
/// flash.program(Nanos::ZERO, Ppn(0), b"one", &[])?;
/// let failed = flash.program(Nanos::ZERO, Ppn(4), b"two", &[]);
/// assert_eq!(failed, Err(FlashError::PowerLost));
///
/// // Each of the two has landed or not: four outcomes.
/// let moment = &flash.moments()[0];
/// let landings = moment.landings(100, false);
/// assert!(landings.whole);
/// let mut outcomes: Vec<[bool; 2]> = Vec::new();
/// for &(dice, torn) in &landings.each {
///     let chip = moment.land(dice, torn);
///     outcomes.push([Ppn(0), Ppn(4)].map(|at| chip.is_programmed(at)));
/// }
/// outcomes.sort();
/// assert_eq!(outcomes, [[false, false], [false, true], [true, false], [true, true]]);
/// # Ok::<(), FlashError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Moment {
    at: u64,
    pub(super) now: Nanos,
    aim: Aim,
    /// The device directly after the operation was issued.
    pub(super) power: Box<PowerCut>,
}

impl Moment {
    /// The number of the issued operation: a cut with this [`Cut::at`](super::Cut::at) and the aim
    /// of the moment, [`Aim::Adverse`] or [`Aim::Exact`], falls here.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The chip as a restart finds it after a cut at this moment.
    pub fn land(&self, dice: u64, torn: bool) -> Chip {
        let mut power = PowerCut::clone(&self.power).aim(self.aim);
        power.land(self.now, dice, torn);
        power.into_chip()
    }
}

impl PowerCut {
    /// Records the first `moments` [`Moment`]s.
    #[must_use]
    pub fn keeping(mut self, moments: usize) -> Self {
        self.moments_max = moments;
        self
    }

    /// The recorded moments, in the order of their operations.
    pub fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// Called when the erase of a block has just been issued.
    pub(super) fn note_moment(&mut self, now: Nanos, block: Pbn) {
        if self.moments.len() < self.moments_max
            && self.aim != Aim::Exact
            && self.is_moment(now, block)
        {
            self.note(now, Aim::Adverse);
        }
    }

    /// Called when the power fails, before anything has landed.
    pub(super) fn note_cut(&mut self, now: Nanos) {
        if self.moments.len() < self.moments_max && self.aim == Aim::Exact {
            self.note(now, Aim::Exact);
        }
    }

    fn note(&mut self, now: Nanos, aim: Aim) {
        let moments = std::mem::take(&mut self.moments);
        let power = Box::new(self.clone());
        self.moments = moments;
        let at = self.issued - 1;
        self.moments.push(Moment {
            at,
            now,
            aim,
            power,
        });
    }

    fn is_moment(&self, now: Nanos, block: Pbn) -> bool {
        let (mut behind, mut in_flight) = (false, false);
        for op in self.in_flight.iter().filter(|op| op.block != block) {
            match op.undo {
                Undo::Erase { .. } => behind |= op.issued > now && op.waited.is_none(),
                _ => in_flight |= op.waited.is_none_or(|end| end > now),
            }
        }
        behind && in_flight
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nand::{Cut, Flash, FlashError, small};
    use crate::units::Ppn;

    const BLOCKS: [Pbn; 2] = [Pbn(2), Pbn(3)];

    /// Programs a page of each of two blocks, and moves both to other blocks: the copy of the
    /// second collection is done earlier.
    fn two_collections(power: &mut PowerCut) -> Result<(), FlashError> {
        let page = |block: u32| small::GEOMETRY.page(Pbn(block), 0);
        let mut now = Nanos::ZERO;
        for block in BLOCKS {
            let done = power.program(now, page(block.0), b"old", &[])?;
            now = power.sync(done, done)?;
        }
        let copied = power.program(now, page(4), b"copy", &[])?;
        let later = power.sync(now, copied)?;
        power.erase(later, BLOCKS[0])?;
        power.erase(now, BLOCKS[1])?;
        let done = power.program(later, page(5), b"new", &[])?;
        power.sync(later, done).map(|_| ())
    }

    fn contents(chip: &Chip) -> Vec<bool> {
        let geometry = small::GEOMETRY;
        let pages = 0..geometry.blocks() * geometry.pages_per_block;
        pages.map(|at| chip.is_programmed(Ppn(at))).collect()
    }

    #[test]
    fn a_moment_lands_as_a_cut_at_its_operation_does() {
        let mut power = PowerCut::new(small::chip(small::GEOMETRY)).keeping(9);
        two_collections(&mut power).expect("there is no cut");
        let [moment] = power.moments() else {
            panic!("{} moments, not one", power.moments().len());
        };
        let mut all = Vec::new();
        for dice in 0..32 {
            let (at, torn) = (moment.at(), dice % 3 == 0);
            let cut = Cut { at, dice, torn };
            let chip = small::chip(small::GEOMETRY);
            let mut other = PowerCut::new(chip).arm(cut).aim(Aim::Adverse);
            assert_eq!(two_collections(&mut other), Err(FlashError::PowerLost));
            let landed = contents(&other.into_chip());
            assert_eq!(contents(&moment.land(dice, torn)), landed, "{dice}");
            all.push(landed);
        }
        // If it lands alone, the copy is lost, its original exists, and the other block is erased.
        let page = |block: Pbn| small::GEOMETRY.page(block, 0).0 as usize;
        let [copied, erased] = BLOCKS.map(|block| all[0][page(block)]);
        assert_eq!((copied, erased, all[0][page(Pbn(4))]), (true, false, false));
        all.sort();
        all.dedup();
        assert!(all.len() > 2, "the dice decide nothing");
    }
}
