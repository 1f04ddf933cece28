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
            // Too many: a sample, evenly spread.
            (false, false) => (0..most).map(|i| all[i * all.len() / most]).collect(),
            // Too many to enumerate: nothing, everything, and the multiples of a large odd number.
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
