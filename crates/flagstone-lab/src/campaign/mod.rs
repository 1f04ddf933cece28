//! Power-cut campaigns: many short runs of a protocol, a database or an index on a small device,
//! each cut at a flash operation, recovered from flash alone, and held against an oracle.
//!
//! A run is a [`RunId`]: the same word gives the same run on every machine. A campaign draws run
//! ids from its seed, carries them out over the cores, and shrinks the first violation to a story.
//! Where the order of collections decides, runs also look at cuts on their way that did not fall.
//!
//! ```
//! use flagstone_lab::campaign::{Campaign, Cuts, Faults, Sabotage, Subject};
//!
//! let campaign = Campaign {
//!     subject: Subject::by_name("scc").expect("a protocol"),
//!     variant: None,
//!     published: false,
//!     cuts: Cuts::Sampled(100),
//!     depth: 2,
//!     ahead: false,
//!     unusual: false,
//!     device: None,
//!     faults: Faults::default(),
//!     seed: 1,
//!     sabotage: Sabotage::default(),
//!     stop_early: true,
//! };
//! let findings = campaign.run(&|_| ());
//! assert!(findings.work.cuts >= 100);
//! assert_eq!(findings.violations, []);
//! ```

mod subject;
mod work;
mod faults;
mod run_id;
mod oracle;
mod sabotage;
mod shape;
mod traits;
mod scene;
mod world;
mod value;
mod pages;
mod records;
mod keys;
mod bases;
mod cells;
mod landings;
mod every;
mod findings;
mod run;
mod draw;
mod long;
mod shrink;
mod story;
#[cfg(test)]
mod tests;

pub use faults::Faults;
pub use findings::Findings;
pub use long::{CHUNK_CUTS, Counterexample, LongCampaign, LongError, Tally};
pub(crate) use oracle::{name_of, payload, write_of};
pub(crate) use run::caught;
pub use run_id::{BaseId, Fall, RunId, RunIdError};
pub use sabotage::Sabotage;
pub use story::{Detail, tell};
pub use subject::{Below, Subject};
pub use traits::DeviceTraits;
pub use work::Work;

use bases::{Base, Bases};
use every::every_landing;
use run::{execute, explore};
use scene::Scene;
use std::cell::Cell;
use std::sync::{Arc, Once};

/// Which cuts a campaign tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cuts {
    /// So many, drawn at random.
    Sampled(u64),
    /// Every operation of a small run, several outcomes each.
    Exhaustive,
    /// Every landing of every cut of so many small runs.
    Landings(u64),
}

/// The task of a campaign with one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Campaign {
    /// The protocol, stack or index that is broken.
    pub subject: Subject,
    /// One of its modes, or none for the default.
    pub variant: Option<&'static str>,
    /// The form as printed.
    pub published: bool,
    /// Which cuts.
    pub cuts: Cuts,
    /// Power cuts of one run, one after the other.
    pub depth: u32,
    /// Whether the device collects ahead of need, in steps.
    pub ahead: bool,
    /// Whether databases have settings that few use.
    pub unusual: bool,
    /// The device that those of the runs are like, if a user has described one.
    pub device: Option<Arc<DeviceTraits>>,
    /// Faults besides the cuts.
    pub faults: Faults,
    /// Seed of everything.
    pub seed: u64,
    /// A lie of the flash, or a mistake above it; only for controls.
    pub sabotage: Sabotage,
    /// Stop at the first violation instead of counting all.
    pub stop_early: bool,
}

/// Runs that are handed out together; fewer where the last ones may not be needed.
const BATCH: usize = 512;
/// Enough to keep several cores at work.
const BATCH_LEAST: usize = 16;
const BATCH_FEW: usize = 64;
const BATCH_LANDINGS: usize = 8;

/// The work of a run, and the violation, if there is one.
type RunResult = (Work, Result<(), String>);

/// The work of a run of a campaign, and the violation that was found on its way, if one was: that
/// of the run itself, or of another one.
type Explored = (Work, Option<(RunId, String)>);

impl Campaign {
    /// Two cuts in a row, 20,000 in all, and nothing else that goes wrong.
    pub fn new(subject: Subject) -> Campaign {
        Campaign {
            subject,
            variant: None,
            published: false,
            cuts: Cuts::Sampled(20_000),
            depth: 2,
            ahead: false,
            unusual: false,
            device: None,
            faults: Faults::default(),
            seed: 1,
            sabotage: Sabotage::None,
            stop_early: false,
        }
    }

    /// Carries the campaign out; `progress` hears of cuts as they are done.
    pub fn run(&self, progress: &(dyn Fn(u64) + Sync)) -> Findings {
        let bases = Bases::default();
        let around = self.looks_around();
        let carry_out = |id: &RunId| match self.every_landing() {
            Some(depth) => every_landing(id, &Base::make(&id.base, &None), depth, progress),
            None => {
                let found = explore(id, &bases.get(&id.base), around);
                progress(found.0.cuts);
                found
            }
        };
        Findings::of(
            self.ids(),
            |findings| self.next_batch(findings, around),
            carry_out,
            fails_without_mistake,
            |findings| self.has_enough(findings),
        )
    }

    /// How many cuts there are in a row, if every landing of them is tried.
    fn every_landing(&self) -> Option<u32> {
        matches!(self.cuts, Cuts::Landings(_)).then_some(self.depth.clamp(1, 3))
    }

    /// Whether runs look at other cuts on their way, see [`landings`].
    fn looks_around(&self) -> bool {
        let sampled = matches!(self.cuts, Cuts::Sampled(_));
        sampled && self.subject.hands_flags_on() && !self.faults.destroys()
    }

    /// How many runs are handed out next. What is found does not depend on it, but for a campaign
    /// that stops early: that one ends with the batch in which something was found.
    fn next_batch(&self, findings: &Findings, around: bool) -> usize {
        if self.stop_early && findings.violations_total > 0 {
            return 0;
        }
        let most = match self.every_landing() {
            Some(_) => BATCH_LANDINGS,
            None if around || self.stop_early => BATCH_FEW,
            None => BATCH,
        };
        let Cuts::Sampled(cuts) = self.cuts else {
            return most;
        };
        // Runs beyond the last cut are not counted. A run has about a cut for each that may follow
        // another; where it has fewer, a further batch makes up for them.
        let left = cuts.saturating_sub(findings.work.cuts) as usize;
        let runs = left.div_ceil(self.depth.max(1) as usize);
        runs.clamp(BATCH_LEAST, most)
    }

    /// Whether all cuts that were asked for have been tried. Each landing is one.
    fn has_enough(&self, findings: &Findings) -> bool {
        matches!(self.cuts, Cuts::Sampled(cuts) if findings.work.cuts >= cuts)
    }

    /// Looks for the smallest run that still fails like `id`.
    pub fn shrink(&self, id: &RunId) -> RunId {
        shrink::shrink(id)
    }
}

/// Whether a run in which a mistake is made on purpose fails without it as well.
fn fails_without_mistake(id: &RunId) -> bool {
    let mut right = id.clone();
    right.base.sabotage = Sabotage::None;
    id.base.sabotage != Sabotage::None && replay(&right).1.is_err()
}

/// Whether a subject works on devices like one that a user has described.
///
/// # Errors
/// Says why it does not.
pub fn suits(subject: Subject, device: &Arc<DeviceTraits>) -> Result<(), String> {
    Scene::new(&BaseId::plain(subject, Some(Arc::clone(device)))).map(|_| ())
}

/// Carries one run out and says what it did and what is wrong, if anything.
pub fn replay(id: &RunId) -> RunResult {
    execute(id, &Base::make(&id.base, &None), &None)
}

/// Carries out `run` with panics of the stack under test, which are findings, kept from being
/// printed as they happen. Other threads are not touched.
pub(crate) fn quietly<T>(run: impl FnOnce() -> T) -> T {
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
