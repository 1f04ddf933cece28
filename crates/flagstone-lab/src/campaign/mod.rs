//! Power-cut campaigns: many short runs of a protocol, a database or an index on a small device,
//! each cut at a flash operation, recovered from flash alone, and held against an oracle.
//!
//! A run is a [`RunId`]: the same word gives the same run on every machine. A campaign draws run
//! ids from its seed, carries them out over the cores, and shrinks the first violation to a story.

mod subject;
mod work;
mod run_id;
mod oracle;
mod sabotage;
mod scene;
mod world;
mod pages;
mod records;
mod keys;
mod run;
mod shrink;
mod story;

pub use run_id::{RunId, RunIdError};
pub use sabotage::Sabotage;
pub use story::tell;
pub use subject::{Below, Subject};
pub use work::Work;

use flagstone::nand::Cut;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;
use run::{Base, execute, make_base};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, Once};

/// What goes wrong besides power cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// A program in flight at the cut may be torn, and so may an erase or a reprogram.
    pub torn: bool,
    /// Programs fail.
    pub program_fails: bool,
    /// Erases fail.
    pub erase_fails: bool,
    /// Bits flip, within what the ECC corrects.
    pub bits_correctable: bool,
    /// Bits flip beyond that: pages are lost, which must be reported. Runs of their own, without
    /// a restart.
    pub bits_beyond: bool,
}

impl Faults {
    /// The names that commands use, with what they switch on.
    pub const NAMES: [(&'static str, Faults); 6] = {
        let none = Faults {
            torn: false,
            program_fails: false,
            erase_fails: false,
            bits_correctable: false,
            bits_beyond: false,
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
        ]
    };

    /// Both.
    #[must_use]
    pub fn and(self, other: Faults) -> Faults {
        Faults::from_bits(self.bits() | other.bits()).expect("bits of faults")
    }

    fn bits(self) -> u8 {
        u8::from(self.torn)
            | u8::from(self.program_fails) << 1
            | u8::from(self.erase_fails) << 2
            | u8::from(self.bits_correctable) << 3
            | u8::from(self.bits_beyond) << 4
    }

    fn from_bits(bits: u8) -> Option<Faults> {
        (bits < 32).then_some(Faults {
            torn: bits & 1 != 0,
            program_fails: bits & 2 != 0,
            erase_fails: bits & 4 != 0,
            bits_correctable: bits & 8 != 0,
            bits_beyond: bits & 16 != 0,
        })
    }
}

/// Which cuts a campaign tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cuts {
    /// So many, drawn at random.
    Sampled(u64),
    /// Every operation of a small run, several outcomes each.
    Exhaustive,
}

/// What a campaign is to do with one protocol or stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Campaign {
    /// What is broken.
    pub subject: Subject,
    /// One of its modes, or none for the default.
    pub variant: Option<&'static str>,
    /// The form as printed.
    pub published: bool,
    /// Which cuts.
    pub cuts: Cuts,
    /// Power cuts of one run, one after the other.
    pub depth: u32,
    /// What goes wrong besides.
    pub faults: Faults,
    /// Seed of everything.
    pub seed: u64,
    /// A lie of the flash, or a mistake above it; only for controls.
    pub sabotage: Sabotage,
    /// Stop at the first violation instead of counting all.
    pub stop_early: bool,
}

/// What a campaign found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// Runs carried out.
    pub runs: u64,
    /// What they did.
    pub work: Work,
    /// Runs that ended in a violation, by the order of their drawing; the first few.
    pub violations: Vec<(RunId, String)>,
    /// How many there were.
    pub violations_total: u64,
}

const BASES: u32 = 24;
const BATCH: usize = 512;
const KEPT: usize = 16;

impl Campaign {
    /// Carries the campaign out; `progress` hears of cuts as they are done.
    pub fn run(&self, progress: &(dyn Fn(u64) + Sync)) -> Findings {
        let bases = Bases {
            campaign: self,
            made: Mutex::new(BTreeMap::new()),
        };
        let mut findings = Findings::default();
        let mut ids = self.ids();
        loop {
            let batch: Vec<RunId> = ids.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                break;
            }
            let results: Vec<(Work, Result<(), String>)> = batch
                .par_iter()
                .map(|id| {
                    let result = execute(id, self.sabotage, &bases.get(id), &None);
                    progress(result.0.cuts);
                    result
                })
                .collect();
            for (id, (work, result)) in batch.into_iter().zip(results) {
                findings.runs += 1;
                findings.work += work;
                if let Err(what) = result {
                    findings.violations_total += 1;
                    if findings.violations.len() < KEPT {
                        findings.violations.push((id, what));
                    }
                }
            }
            if self.stop_early && findings.violations_total > 0 {
                break;
            }
        }
        findings
    }

    fn ids<'a>(&'a self) -> Box<dyn Iterator<Item = RunId> + 'a> {
        match self.cuts {
            Cuts::Sampled(cuts) => {
                let runs = cuts.div_ceil(u64::from(self.depth.max(1)));
                Box::new((0..runs).map(|n| self.sample(n)))
            }
            Cuts::Exhaustive => Box::new(self.every_operation()),
        }
    }

    /// The `n`th run of a sampled campaign.
    fn sample(&self, n: u64) -> RunId {
        let mut dice = Pcg64Mcg::seed_from_u64(self.seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let cuts = (0..self.depth.max(1)).map(|phase| {
            // Later cuts fall early more often: into recovery, and into what comes right after it.
            let reach = match (phase, dice.random_range(0..3)) {
                (0, 0) => 400,
                (0, _) | (_, 0) => 120,
                _ => 12,
            };
            Cut {
                at: dice.random_range(0..reach),
                dice: dice.random_range(0..=0xffff),
                torn: self.faults.torn && dice.random_bool(0.4),
            }
        });
        let cuts = cuts.collect();
        let base = if self.faults.bits_beyond {
            0
        } else {
            dice.random_range(0..BASES)
        };
        RunId {
            subject: self.subject,
            variant: self.variant,
            published: self.published,
            seed: dice.random_range(0..u64::from(u32::MAX)),
            base,
            clients: CLIENTS,
            pages: PAGES,
            faults: self.faults,
            cuts,
        }
    }

    /// Every operation of a few small runs, with several outcomes of what was in flight; at depth 2
    /// and 3 also every one of the first operations after each recovery.
    fn every_operation<'a>(&'a self) -> impl Iterator<Item = RunId> + 'a {
        let again = |depth: u32| {
            if self.depth >= depth {
                EXHAUSTIVE_AGAIN
            } else {
                1
            }
        };
        (0..EXHAUSTIVE_RUNS).flat_map(move |run| {
            let mut id = self.sample(run);
            id.base = 1 + run as u32 % (BASES - 1);
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
                                .map(|&at| Cut { at, dice, torn })
                                .collect();
                            id.clone()
                        })
                    })
                })
            })
        })
    }

    /// Looks for the smallest run that still fails like `id`, and tells it.
    pub fn shrink(&self, id: &RunId) -> RunId {
        shrink::shrink(id, self.sabotage)
    }
}

/// Clients and pages of a sampled run.
const CLIENTS: u32 = 4;
const PAGES: u32 = 24;
const EXHAUSTIVE_RUNS: u64 = 4;
const EXHAUSTIVE_OPERATIONS: u64 = 160;
const EXHAUSTIVE_AGAIN: u64 = 10;
const EXHAUSTIVE_OUTCOMES: usize = 4;
/// Dice that let nothing and everything in flight land, and two that toss coins.
const OUTCOMES: [u64; EXHAUSTIVE_OUTCOMES] = [NOTHING_LANDS, EVERYTHING_LANDS, 0x51, 0xa3];
/// See [`flagstone::nand::PowerCut`]: what the first draw modulo 8 decides.
const NOTHING_LANDS: u64 = 6;
const EVERYTHING_LANDS: u64 = 1;

/// Aged devices, made once each.
struct Bases<'a> {
    campaign: &'a Campaign,
    made: Mutex<BTreeMap<(u32, bool), Base>>,
}

impl Bases<'_> {
    fn get(&self, id: &RunId) -> Base {
        // Some devices demand ascending order, see `Scene::new`.
        let key = (id.base, scene::is_strict(id));
        if let Some(base) = self.made.lock().expect("no run panics here").get(&key) {
            return base.clone();
        }
        let base = make_base(id, self.campaign.sabotage);
        self.made
            .lock()
            .expect("no run panics here")
            .entry(key)
            .or_insert(base)
            .clone()
    }
}

/// Carries one run out and says what it did and what is wrong, if anything.
pub fn replay(id: &RunId, sabotage: Sabotage) -> (Work, Result<(), String>) {
    execute(id, sabotage, &make_base(id, sabotage), &None)
}

/// Carries out `run` with panics of the stack under test, which are findings, kept from being
/// printed as they happen. Other threads are not touched.
fn quietly<T>(run: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                loud(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let outcome = run();
    QUIET.set(before);
    outcome
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}
