//! Draws the runs of a campaign.

use super::run_id::{BaseId, Fall, RunId};
use super::shape::{COLLIDING, Shape, TINY, UNUSUAL};
use super::{Campaign, Cuts};
use flagstone::nand::{Aim, Cut};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Sampled campaigns have one base per this many runs, within these bounds.
const RUNS_A_BASE: u64 = 32;
const BASES: (u64, u64) = (8, 64);
/// If collections can overtake each other, all but one in this many bases have shapes for that, and
/// a campaign has more bases.
const OTHERS: u64 = 8;
const BASES_COLLIDING: u64 = 512;
/// Range of shape and age numbers: few enough for short ids, and many enough for a campaign.
const NUMBERS: u32 = COLLIDING;

/// Exhaustive campaigns: number of runs, operations cut in each, operations cut after each
/// recovery, and outcomes per cut.
const EXHAUSTIVE_RUNS: u64 = 4;
const EXHAUSTIVE_OPERATIONS: u64 = 160;
const EXHAUSTIVE_AGAIN: u64 = 10;
const EXHAUSTIVE_OUTCOMES: usize = 4;
/// Dice of cuts: nothing lands, everything lands, and two random outcomes.
const OUTCOMES: [u64; EXHAUSTIVE_OUTCOMES] = [NOTHING_LANDS, EVERYTHING_LANDS, 0x51, 0xa3];
/// Dice whose first draw modulo 8 is 0 and 1: [`flagstone::nand::PowerCut`] then lands nothing, or
/// everything.
const NOTHING_LANDS: u64 = 6;
const EVERYTHING_LANDS: u64 = 1;

impl Campaign {
    /// All runs, in order.
    pub(super) fn ids<'a>(&'a self) -> Box<dyn Iterator<Item = RunId> + 'a> {
        match self.cuts {
            Cuts::Sampled(cuts) => {
                let runs = cuts.div_ceil(u64::from(self.depth.max(1)));
                let most = if self.looks_around() {
                    BASES_COLLIDING
                } else {
                    BASES.1
                };
                let bases = (runs / RUNS_A_BASE).clamp(BASES.0, most);
                Box::new((0..runs).map(move |n| self.sample(n, bases)))
            }
            Cuts::Exhaustive => Box::new(self.every_operation()),
            Cuts::Landings(runs) => Box::new((0..runs).map(|n| self.small_run(n))),
        }
    }

    /// Run `n` of a sampled campaign with `bases` bases.
    fn sample(&self, n: u64, bases: u64) -> RunId {
        let mut dice = Pcg64Mcg::seed_from_u64(self.seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let base = self.base(dice.random_range(0..bases));
        let shape = base.shape();
        let flags = self.subject.sets_flags() && !shape.device.strict_order;
        let cuts = (0..self.depth.max(1)).map(|phase| {
            // Later cuts fall early more often: into recovery, and just after it.
            let reach = match (phase, dice.random_range(0..3)) {
                (0, _) if shape.habits.persists => 600,
                (0, 0) => 400,
                (0, _) | (_, 0) => 120,
                _ => 12,
            };
            let aim = match dice.random_range(0..8) {
                0 => Aim::Erase,
                1 if flags => Aim::OverFlag,
                1..3 => Aim::Overtaking,
                3..5 if flags => Aim::Reprogram,
                5 => Aim::OverErase,
                _ => Aim::Any,
            };
            let torn = if aim == Aim::Reprogram { 0.8 } else { 0.4 };
            let cut = Cut {
                at: dice.random_range(0..reach),
                dice: dice.random_range(0..=0xffff),
                torn: self.faults.torn && dice.random_bool(torn),
            };
            Fall { cut, aim }
        });
        RunId {
            cuts: cuts.collect(),
            seed: dice.random_range(0..u64::from(u32::MAX)),
            base,
        }
    }

    /// Run `n` for trying every outcome; without cuts yet.
    fn small_run(&self, n: u64) -> RunId {
        let mut dice = Pcg64Mcg::seed_from_u64(self.seed ^ n.wrapping_mul(0xd134_2543_de82_ef95));
        let mut base = self.base(1);
        base.shape = TINY + dice.random_range(0..NUMBERS);
        base.age = dice.random_range(1..NUMBERS);
        let Shape { clients, pages, .. } = Shape::of(base.shape, self.subject);
        (base.clients, base.pages) = (clients, pages);
        RunId {
            base,
            seed: dice.random_range(0..u64::from(u32::MAX)),
            cuts: Vec::new(),
        }
    }

    /// Base `n`: the plain shape first, then others drawn from the campaign's seed; one in eight is
    /// blank.
    fn base(&self, n: u64) -> BaseId {
        let seed = self
            .seed
            .wrapping_mul(0xd134_2543_de82_ef95)
            .wrapping_add(n);
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let shape = match n {
            _ if self.unusual => UNUSUAL + dice.random_range(1..NUMBERS),
            0 => 0,
            _ if self.looks_around() && !n.is_multiple_of(OTHERS) => {
                COLLIDING + dice.random_range(1..NUMBERS)
            }
            _ => dice.random_range(1..NUMBERS),
        };
        let age = if self.faults.destroys() || n % 8 == 7 {
            0
        } else {
            dice.random_range(1..NUMBERS)
        };
        let Shape { clients, pages, .. } = Shape::of(shape, self.subject);
        BaseId {
            subject: self.subject,
            variant: self.variant,
            ahead: self.ahead,
            device: self.device.clone(),
            published: self.published,
            sabotage: self.sabotage,
            shape,
            age,
            clients,
            pages,
            faults: self.faults,
        }
    }

    /// Cuts at every operation of a few small runs, with several outcomes; at depths 2 and 3 also
    /// at each of the first operations after each recovery.
    fn every_operation<'a>(&'a self) -> impl Iterator<Item = RunId> + 'a {
        // Number of operations cut after recovery `depth - 1`; one pass if there is no such cut.
        let again = |depth: u32| {
            if self.depth >= depth {
                EXHAUSTIVE_AGAIN
            } else {
                1
            }
        };
        (0..EXHAUSTIVE_RUNS).flat_map(move |run| {
            let mut id = self.sample(run, 1);
            id.base = self.base(run);
            (0..EXHAUSTIVE_OPERATIONS).flat_map(move |at| {
                let id = id.clone();
                (0..again(2)).flat_map(move |second| {
                    let id = id.clone();
                    (0..again(3)).flat_map(move |third| {
                        let mut id = id.clone();
                        (0..EXHAUSTIVE_OUTCOMES).map(move |outcome| {
                            let torn = self.faults.torn && outcome >= 2;
                            let dice = OUTCOMES[outcome];
                            let dice = if outcome >= 2 { dice + at } else { dice };
                            let ats = [at, second, third];
                            id.cuts = ats[..self.depth.clamp(1, 3) as usize]
                                .iter()
                                .map(|&at| Fall {
                                    cut: Cut { at, dice, torn },
                                    aim: Aim::Any,
                                })
                                .collect();
                            id.clone()
                        })
                    })
                })
            })
        })
    }
}
