//! Faults of a run other than power cuts, and when they occur.

use super::{RunId, Subject};
use flagstone::nand::{Fault, FaultPlan};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// Kinds of faults other than power cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// A cut may tear a program, an erase or a reprogram in flight.
    pub torn: bool,
    /// Programs fail.
    pub program_fails: bool,
    /// Erases fail.
    pub erase_fails: bool,
    /// Bits flip, at most as many as the ECC corrects.
    pub bits_correctable: bool,
    /// More bits flip than the ECC corrects: pages are lost, which must be reported. Such runs are
    /// separate and have no restart.
    pub bits_beyond: bool,
    /// Pages read wrong undetected by the ECC, on a device with checksums. Separate runs like those
    /// of `bits_beyond`.
    pub silent: bool,
    /// Pages share cells, and an interrupted program destroys its paired pages, on a device that
    /// handles this.
    pub paired: bool,
    /// Bit errors grow with wear, time and reads, on a device that scrubs.
    pub aging: bool,
}

impl Faults {
    /// All faults that a device survives in any combination: `all` in commands.
    pub const ALL: Faults = Faults {
        torn: true,
        program_fails: true,
        erase_fails: true,
        bits_correctable: true,
        bits_beyond: false,
        silent: false,
        paired: false,
        aging: false,
    };

    /// Command names and the faults that they select.
    pub const NAMES: [(&'static str, Faults); 9] = {
        let none = Faults {
            torn: false,
            program_fails: false,
            erase_fails: false,
            bits_correctable: false,
            bits_beyond: false,
            silent: false,
            paired: false,
            aging: false,
        };
        [
            ("none", none),
            ("torn", Faults { torn: true, ..none }),
            (
                "program-failure",
                Faults {
                    program_fails: true,
                    ..none
                },
            ),
            (
                "erase-failure",
                Faults {
                    erase_fails: true,
                    ..none
                },
            ),
            (
                "bit-errors",
                Faults {
                    bits_correctable: true,
                    ..none
                },
            ),
            (
                "bit-errors-beyond-ecc",
                Faults {
                    bits_beyond: true,
                    ..none
                },
            ),
            (
                "silent",
                Faults {
                    silent: true,
                    ..none
                },
            ),
            (
                "paired",
                Faults {
                    paired: true,
                    ..none
                },
            ),
            (
                "aging",
                Faults {
                    aging: true,
                    ..none
                },
            ),
        ]
    };

    /// Whether this includes all faults of `other`.
    pub(super) fn has(self, other: Faults) -> bool {
        self.and(other) == self
    }

    /// Whether pages are permanently lost: such runs have no restart.
    pub(super) fn destroys(self) -> bool {
        self.bits_beyond || self.silent
    }

    /// All bits.
    pub(super) const BITS_MAX: u8 = 255;

    /// The union of both.
    #[must_use]
    pub fn and(self, other: Faults) -> Faults {
        Faults::from_bits(self.bits() | other.bits())
    }

    /// One bit per fault.
    pub(super) fn bits(self) -> u8 {
        u8::from(self.torn)
            | u8::from(self.program_fails) << 1
            | u8::from(self.erase_fails) << 2
            | u8::from(self.bits_correctable) << 3
            | u8::from(self.bits_beyond) << 4
            | u8::from(self.silent) << 5
            | u8::from(self.paired) << 6
            | u8::from(self.aging) << 7
    }

    pub(super) fn from_bits(bits: u8) -> Faults {
        Faults {
            torn: bits & 1 != 0,
            program_fails: bits & 2 != 0,
            erase_fails: bits & 4 != 0,
            bits_correctable: bits & 8 != 0,
            bits_beyond: bits & 16 != 0,
            silent: bits & 32 != 0,
            paired: bits & 64 != 0,
            aging: bits & 128 != 0,
        }
    }
}

/// Draws the faults of a phase: each kind that the run has, with probability 0.7, at one of the
/// first operations of its kind. Phases without a cut (`usize::MAX`) have none.
pub(super) fn fault_plan(id: &RunId, phase: usize, dice: &mut Pcg64Mcg) -> FaultPlan {
    let mut faults = Vec::new();
    let mut strike = |wanted: bool, fault: Fault, within: u64, dice: &mut Pcg64Mcg| {
        if wanted && phase < 3 && dice.random_bool(0.7) {
            faults.push((dice.random_range(0..within), fault));
        }
    };
    strike(id.base.faults.program_fails, Fault::ProgramFails, 150, dice);
    strike(id.base.faults.erase_fails, Fault::EraseFails, 20, dice);
    for _ in 0..4 {
        strike(
            id.base.faults.bits_correctable,
            Fault::BitErrors { bits: 4 },
            400,
            dice,
        );
    }
    // An index rarely reads pages that are not cached.
    let (times, within) = match id.base.subject {
        Subject::Index(..) => (3, 200),
        _ => (1, 900),
    };
    for _ in 0..times {
        let lost = Fault::BitErrors { bits: 40 };
        strike(id.base.faults.bits_beyond, lost, within, dice);
    }
    if id.base.faults.silent {
        for n in 0..6 {
            let silent = match dice.random() {
                dice if n % 2 == 0 => Fault::SilentFlips { dice },
                dice => Fault::SilentSwap { dice },
            };
            strike(true, silent, within, dice);
        }
    }
    let mut plan = FaultPlan::default();
    plan.faults = faults;
    plan.correctable_bits = 8;
    plan
}
