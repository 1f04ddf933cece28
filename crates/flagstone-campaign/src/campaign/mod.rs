//! Power-cut campaigns: many short runs of a protocol, a database or an index on a small device,
//! each cut at a flash operation, recovered from flash alone, and compared with an oracle.
//!
//! A run is a [`RunId`]: equal ids give equal runs on every machine. A campaign draws run ids from
//! its seed, executes them on all cores, and shrinks the first violation to a short report. Where
//! the order of collections matters, runs also try cuts that did not actually occur.
//!
//! ```
//! use flagstone_campaign::campaign::{Campaign, Cuts, Faults, Sabotage, Subject};
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
mod reopening;
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
use std::sync::Arc;

/// The cuts that a campaign tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cuts {
    /// At least this number, drawn at random.
    Sampled(u64),
    /// Every operation of a small run, with several outcomes each.
    Exhaustive,
    /// Every outcome of every cut of this number of small runs.
    Landings(u64),
}

/// The task of a campaign with one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Campaign {
    /// The protocol, stack or index to test.
    pub subject: Subject,
    /// One of its modes; `None` for the default.
    pub variant: Option<&'static str>,
    /// Test the protocol as published instead of the repaired variant.
    pub published: bool,
    /// The cuts to try.
    pub cuts: Cuts,
    /// Power cuts per run, in sequence.
    pub depth: u32,
    /// Whether the device collects ahead of need, in steps.
    pub ahead: bool,
    /// Whether databases have unusual settings, devices and indexes are full, and some devices and
    /// databases have other settings at each opening.
    pub unusual: bool,
    /// The user's device description that the runs' devices imitate.
    pub device: Option<Arc<DeviceTraits>>,
    /// Faults other than cuts.
    pub faults: Faults,
    /// Seed of the campaign.
    pub seed: u64,
    /// A lie of the flash, or a mistake above it, for controls only.
    pub sabotage: Sabotage,
    /// Stop at the first violation instead of counting all.
    pub stop_early: bool,
}

/// Number of runs per batch. The last batches are smaller, since not all of their runs may be
/// needed.
const BATCH: usize = 512;
/// Minimum batch size: enough to occupy several cores.
const BATCH_LEAST: usize = 16;
/// Maximum batch size if each run tries additional cuts, or if the first violation ends the
/// campaign.
const BATCH_FEW: usize = 64;
/// Batch size if each run tries every outcome, which takes long.
const BATCH_LANDINGS: usize = 8;

/// The work of a run, and its violation, if there is one.
type RunResult = (Work, Result<(), String>);

/// The work of a campaign's run, and the violation found during it, if any: of this run, or of
/// another one.
type Explored = (Work, Option<(RunId, String)>);

impl Campaign {
    /// A campaign of 20,000 cuts, two in a row, without other faults.
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

    /// Executes the campaign. `progress` receives the number of cuts.
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

    /// The number of cuts in a row, if every outcome is tried.
    fn every_landing(&self) -> Option<u32> {
        matches!(self.cuts, Cuts::Landings(_)).then_some(self.depth.clamp(1, 3))
    }

    /// Whether runs try additional cuts, see [`landings`].
    fn looks_around(&self) -> bool {
        let sampled = matches!(self.cuts, Cuts::Sampled(_));
        sampled && self.subject.hands_flags_on() && !self.faults.destroys()
    }

    /// Size of the next batch; 0 ends the campaign. `around` says whether runs try additional cuts.
    /// The size does not affect findings, except for a campaign that stops early: it ends with the
    /// batch that found something.
    fn next_batch(&self, findings: &Findings, around: bool) -> usize {
        if self.stop_early && findings.violations_total > 0 {
            return 0;
        }
        let largest = match self.every_landing() {
            Some(_) => BATCH_LANDINGS,
            None if around || self.stop_early => BATCH_FEW,
            None => BATCH,
        };
        let Cuts::Sampled(cuts) = self.cuts else {
            return largest;
        };
        // Runs after the last cut are not counted. A run has about `depth` cuts; if it has fewer,
        // another batch makes up for them.
        let left = cuts.saturating_sub(findings.work.cuts) as usize;
        let runs = left.div_ceil(self.depth.max(1) as usize);
        runs.clamp(BATCH_LEAST, largest)
    }

    /// Whether all requested cuts have been tried. Each outcome counts.
    fn has_enough(&self, findings: &Findings) -> bool {
        matches!(self.cuts, Cuts::Sampled(cuts) if findings.work.cuts >= cuts)
    }

    /// Searches for the smallest run that still fails like `id`.
    pub fn shrink(&self, id: &RunId) -> RunId {
        shrink::shrink(id)
    }
}

/// Whether a run with a deliberate mistake also fails without it.
fn fails_without_mistake(id: &RunId) -> bool {
    let mut right = id.clone();
    right.base.sabotage = Sabotage::None;
    id.base.sabotage != Sabotage::None && replay(&right).1.is_err()
}

/// Whether a subject works on devices like a user-described one.
///
/// # Errors
/// It does not; the text says why.
pub fn suits(subject: Subject, device: &Arc<DeviceTraits>) -> Result<(), String> {
    Scene::new(&BaseId::plain(subject, Some(Arc::clone(device)))).map(|_| ())
}

/// Executes one run. Returns its work, and the violation if there is one.
pub fn replay(id: &RunId) -> RunResult {
    execute(id, &Base::make(&id.base, &None), &None)
}
