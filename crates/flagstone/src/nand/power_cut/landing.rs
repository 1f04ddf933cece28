//! Enumerates the landings of a cut: which operations in flight have landed, chosen one by one
//! instead of at random.
//!
//! ```text
//!   dice   | operation 0 | operation 1 | ... | which one is torn |     a bit each: it has landed
//!          0             1                   48                 64
//! ```
//!
//! The operations that have begun are numbered in the order of their issue. After the 48th the bits
//! repeat.

use super::{Damage, InFlight, Moment, PowerCut, Undo, orders};
use crate::nand::Chip;
use crate::units::{Nanos, Pbn, Ppn};

/// Number of operations that have their own bit.
const NAMED: u32 = 48;

/// Up to this number of operations all combinations are tried; beyond, a sample.
const TRIED: usize = 14;

/// An operation that changes the flash.
///
/// ```
/// use flagstone::nand::{Change, Chip, Damage, Flash, FlashError, Left, PowerCut};
/// use flagstone::units::{Nanos, Ppn};
///
/// let mut flash = PowerCut::new(Chip::default());
/// for page in 0..3 {
///     flash.program(Nanos::ZERO, Ppn(page), b"data", &[])?;
/// }
/// let in_flight = [0, 1, 2].map(|page| Change::Program(Ppn(page)));
/// assert_eq!(flash.in_flight(), in_flight);
///
/// // The power fails: the first program has landed, the second one not, the third one is torn.
/// let chip = flash.pull_as(&[Left::All, Left::Nothing, Left::Torn]);
/// assert!(chip.is_programmed(Ppn(0)) && !chip.is_programmed(Ppn(1)));
/// assert_eq!(chip.damage(Ppn(2)), Some(Damage::Unreadable));
/// # Ok::<(), FlashError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// A program of a page, also of its spare area only.
    Program(Ppn),
    /// An erase of a block.
    Erase(Pbn),
}

/// What a power cut leaves of an operation in flight.
///
/// Example: [`Change`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Left {
    /// The whole operation.
    All,
    /// Nothing.
    Nothing,
    /// An unreadable page. Only programs can be torn.
    Torn,
}

/// The possible outcomes of a cut at one moment.
///
/// Example: [`Moment`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Landings {
    /// The dice of each cut, and whether it tears an operation.
    pub each: Vec<(u64, bool)>,
    /// Whether these are all outcomes, except for the contents of a torn operation.
    pub whole: bool,
}

/// Which operations the dice of a cut let land.
pub(super) fn named(ops: &[InFlight], now: Nanos, dice: u64) -> Vec<bool> {
    let mut number = 0;
    let lands = |op: &InFlight| {
        let has_begun = op.issued <= now;
        let bit = dice >> (number % NAMED) & 1;
        number += u32::from(has_begun);
        has_begun && bit == 1
    };
    ops.iter().map(lands).collect()
}

/// The index of the torn operation among those that can be torn.
pub(super) fn torn(dice: u64) -> usize {
    (dice >> NAMED) as usize
}

/// Lets all operations land that must precede one that has landed.
pub(super) fn close(ops: &[InFlight], landed: &mut [bool]) {
    for later in (0..ops.len()).rev() {
        if !landed[later] {
            continue;
        }
        for earlier in 0..later {
            if ops[earlier].block == ops[later].block && orders(&ops[earlier], &ops[later]) {
                landed[earlier] = true;
            }
        }
    }
}

/// Operations that can be torn: nothing that depends on them has landed or is undone later.
pub(super) fn can_be_torn(ops: &[InFlight], now: Nanos, landed: &[bool]) -> Vec<usize> {
    let is_followed = |i: usize| {
        (i + 1..ops.len()).any(|j| ops[j].block == ops[i].block && orders(&ops[i], &ops[j]))
    };
    (0..ops.len())
        .filter(|&i| !landed[i] && ops[i].issued <= now && !is_followed(i))
        .collect()
}

impl PowerCut {
    /// The operations that no sync has waited for, in the order of their issue.
    pub fn in_flight(&self) -> Vec<Change> {
        let unsafe_ones = self.in_flight.iter().filter(|op| op.waited.is_none());
        let change = |op: &InFlight| match op.undo {
            Undo::Program { at, .. } | Undo::Reprogram { at, .. } => Change::Program(at),
            Undo::Erase { .. } => Change::Erase(op.block),
        };
        unsafe_ones.map(change).collect()
    }

    /// Cuts the power now, between two operations. `left` states the outcome of each operation in
    /// [`PowerCut::in_flight`]. Returns the chip as a restart finds it. An operation with outcome
    /// `Nothing` never reached the chip: its page can be programmed.
    ///
    /// # Panics
    /// `left` has another length than the operations in flight, an operation has landed before
    /// which another of its block has not, an erase is torn, or the power is off.
    pub fn pull_as(mut self, left: &[Left]) -> Chip {
        assert!(!self.off, "the power is off");
        let mut ops = std::mem::take(&mut self.in_flight);
        ops.retain(|op| op.waited.is_none());
        assert_eq!(ops.len(), left.len(), "operations in flight");
        let landed: Vec<bool> = left.iter().map(|left| *left != Left::Nothing).collect();
        let mut closed = landed.clone();
        close(&ops, &mut closed);
        assert_eq!(landed, closed, "an operation overtook one of its block");
        let taken_back: Vec<Pbn> = (ops.iter().zip(left))
            .filter(|(_, left)| **left == Left::Nothing)
            .map(|(op, _)| op.block)
            .collect();
        for (op, left) in ops.into_iter().zip(left).rev() {
            match (left, &op.undo) {
                (Left::All, _) => {}
                (Left::Nothing, _) => self.take_back(op, None),
                (Left::Torn, &Undo::Program { at, .. }) => {
                    self.chip.set_damage(at, Some(Damage::Unreadable));
                }
                (Left::Torn, _) => panic!("only programs are left torn"),
            }
        }
        for block in taken_back {
            self.chip.go_on_behind_last(block);
        }
        self.chip.reset_time();
        self.chip
    }
}

impl Moment {
    /// All outcomes if there are at most `most`; otherwise `most` of them, evenly spread. With
    /// `torn`, also each of them with each operation torn that can be.
    pub fn landings(&self, most: usize, torn: bool) -> Landings {
        let mut ops = self.power.in_flight.clone();
        ops.retain(|op| op.waited.is_none_or(|end| end > self.now));
        let begun = ops.iter().filter(|op| op.issued <= self.now).count();
        let is_closed = |&dice: &u64| {
            let landed = named(&ops, self.now, dice);
            let mut closed = landed.clone();
            close(&ops, &mut closed);
            landed == closed
        };
        let all: Vec<u64> = if begun <= TRIED {
            (0..1 << begun).filter(is_closed).collect()
        } else {
            Vec::new()
        };
        let whole = !all.is_empty() && all.len() <= most;
        let chosen = match (whole, all.is_empty()) {
            (true, _) => all,
            (false, false) => (0..most).map(|i| all[i * all.len() / most]).collect(),
            // Nothing, everything, and the multiples of a large odd number.
            (false, true) => (0..most as u64)
                .map(|i| match i {
                    0 => 0,
                    1 => u64::MAX >> (u64::BITS - NAMED),
                    _ => i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - NAMED),
                })
                .collect(),
        };
        let mut each = Vec::new();
        for dice in chosen {
            each.push((dice, false));
            if torn {
                let mut landed = named(&ops, self.now, dice);
                close(&ops, &mut landed);
                let count = can_be_torn(&ops, self.now, &landed).len() as u64;
                each.extend((0..count).map(|which| (which << NAMED | dice, true)));
            }
        }
        Landings { each, whole }
    }
}

#[cfg(test)]
mod tests {
    use crate::nand::{Aim, Change, Chip, Cut, Flash, FlashError, Left, PowerCut, small};
    use crate::units::{Nanos, Pbn, Ppn};

    /// A safe page, a page in flight in each of two blocks, and the erase of the first block.
    fn work(power: &mut PowerCut) -> Result<(), FlashError> {
        let page = |block: u32, at: u32| small::GEOMETRY.page(Pbn(block), at);
        let done = power.program(Nanos::ZERO, page(2, 0), b"safe", &[])?;
        let now = power.sync(done, done)?;
        power.program(now, page(2, 1), b"one", &[])?;
        power.program(now, page(3, 0), b"two", &[])?;
        power.erase(now, Pbn(2))?;
        power.program(now, page(3, 1), b"three", &[]).map(|_| ())
    }

    fn cut(dice: u64, torn: bool) -> PowerCut {
        let cut = Cut { at: 4, dice, torn };
        let power = PowerCut::new(small::chip(small::GEOMETRY));
        let mut power = power.arm(cut).aim(Aim::Exact).keeping(1);
        assert_eq!(work(&mut power), Err(FlashError::PowerLost));
        power
    }

    fn contents(chip: &Chip) -> Vec<bool> {
        let pages = [(2, 0), (2, 1), (3, 0), (3, 1)];
        let at = |(block, page)| small::GEOMETRY.page(Pbn(block), page);
        pages.map(|place| chip.is_programmed(at(place))).to_vec()
    }

    #[test]
    fn every_landing_is_there_once() {
        let power = cut(0, false);
        let landings = power.moments()[0].landings(100, false);
        assert!(landings.whole);
        let mut found = Vec::new();
        for (dice, torn) in landings.each {
            let landed = contents(&power.moments()[0].land(dice, torn));
            // A cut with these dice leaves the same contents.
            assert_eq!(landed, contents(&cut(dice, torn).into_chip()), "{dice:x}");
            found.push(landed);
        }
        // The erase takes both pages of its block, whether or not the second one has landed. So
        // block 2 has three outcomes, and the two pages of block 3 have four.
        assert_eq!(found.len(), 12);
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 12);
    }

    #[test]
    fn each_operation_that_can_be_torn_is_torn_once() {
        let power = cut(0, false);
        let landings = power.moments()[0].landings(100, true).each;
        let torn = |wanted: u64| {
            let all = landings.iter().filter(|(_, torn)| *torn);
            all.filter(|(dice, _)| dice & 0xffff_ffff_ffff == wanted)
                .count()
        };
        // If nothing has landed: either page of block 3, or the erase. If all has: none.
        assert_eq!((torn(0), torn(0b1111)), (3, 0));
        let pages = |dice| {
            let chip = power.moments()[0].land(dice, true);
            let damaged = (0..small::GEOMETRY.pages()).map(|at| chip.damage(Ppn(at)).is_some());
            damaged.collect::<Vec<bool>>()
        };
        assert_ne!(pages(0), pages(1 << 48));
    }

    #[test]
    fn what_somebody_else_knows_to_have_landed_is_left() {
        let mut power = PowerCut::new(small::chip(small::GEOMETRY));
        work(&mut power).expect("no cut is armed");
        let at = |block, page| small::GEOMETRY.page(Pbn(block), page);
        let ops = [
            Change::Program(at(2, 1)),
            Change::Program(at(3, 0)),
            Change::Erase(Pbn(2)),
            Change::Program(at(3, 1)),
        ];
        assert_eq!(power.in_flight(), ops);
        let (all, none, torn) = (Left::All, Left::Nothing, Left::Torn);
        let left = |left: [Left; 4]| power.clone().pull_as(&left);
        assert_eq!(contents(&left([none; 4])), [true, false, false, false]);
        assert_eq!(contents(&left([all; 4])), [false, false, true, true]);
        assert_eq!(
            contents(&left([none, all, none, none])),
            [true, false, true, false]
        );
        let chip = left([all, none, none, torn]);
        assert_eq!(contents(&chip), [true, true, false, true]);
        let damaged = [(2, 1), (3, 0), (3, 1)].map(|(b, p)| chip.damage(at(b, p)).is_some());
        assert_eq!(damaged, [false, false, true]);
    }

    #[test]
    fn what_has_not_landed_can_be_programmed_then() {
        let mut power = PowerCut::new(small::chip(small::GEOMETRY));
        work(&mut power).expect("no cut is armed");
        let mut chip = power.pull_as(&[Left::All, Left::Nothing, Left::Nothing, Left::Nothing]);
        let at = small::GEOMETRY.page(Pbn(3), 0);
        chip.program(Nanos::ZERO, at, &[1], &[])
            .expect("it is there");
    }

    #[test]
    fn of_too_many_landings_a_sample_is_taken() {
        let power = cut(0, false);
        let some = power.moments()[0].landings(5, false);
        assert_eq!((some.each.len(), some.whole), (5, false));
    }
}
