//! Tries every outcome of every cut of a small run, where other campaigns draw outcomes.
//!
//! Clients work until the power fails at operation 0, 1, 2 and so on. Each time every combination
//! of landed operations is tried, and a restart is compared with the oracle. At depths 2 and 3
//! clients continue after up to 32 of these outcomes, and the power fails at each of the next
//! operations, again with every outcome.

use super::Explored;
use super::bases::Made;
use super::run::{CutRun, caught};
use super::run_id::{Fall, RunId};
use super::work::Work;
use flagstone::nand::{Aim, Cut};
use flagstone_lab::stop;

/// Operations at which the power fails: in the initial run, and after each outcome.
const OPERATIONS: u64 = 40;
const OPERATIONS_AGAIN: u64 = 8;

/// Outcomes tried per cut, initially and after another cut. Of more outcomes, a sample is tried.
const LANDINGS: usize = 1024;
const LANDINGS_AGAIN: usize = 16;

/// Maximum number of outcomes per cut after which clients continue.
const GOES_ON: usize = 32;

/// A walk through all cuts of a run.
struct Walk<'a> {
    /// The run, without cuts.
    id: &'a RunId,
    depth: usize,
    progress: &'a (dyn Fn(u64) + Sync),
    work: Work,
    /// The first violated run, and the violation.
    found: Option<(RunId, String)>,
}

/// Cuts a run everywhere, up to `depth` times in a row, until there is a violation.
pub(super) fn every_landing(
    id: &RunId,
    base: &Made,
    depth: u32,
    progress: &(dyn Fn(u64) + Sync),
) -> Explored {
    let base = match base {
        Ok(base) => base,
        Err(what) => return (Work::default(), Some((id.clone(), what.clone()))),
    };
    let mut walk = Walk {
        id,
        depth: depth as usize,
        progress,
        work: Work::default(),
        found: None,
    };
    let run = CutRun::new(id, base, &None).enumerating();
    walk.cut_everywhere(&run, &mut Vec::new());
    (walk.work, walk.found)
}

impl Walk<'_> {
    /// Cuts `run` at each operation, and its continuations again up to the depth. `run` continues
    /// after the outcome that `cuts` names. Stops at a violation.
    fn cut_everywhere(&mut self, run: &CutRun<'_>, cuts: &mut Vec<Fall>) {
        let phase = cuts.len();
        let (operations, landings_max) = match phase {
            0 => (OPERATIONS, LANDINGS),
            _ => (OPERATIONS_AGAIN, LANDINGS_AGAIN),
        };
        let torn = self.id.base.faults.torn;
        // The work until the last cut of this phase, which contains that until earlier ones.
        let mut longest = Work::default();
        for at in 0..operations {
            let fall = |dice, torn| Fall {
                cut: Cut { at, dice, torn },
                aim: Aim::Exact,
            };
            stop::point();
            let mut this = run.clone();
            let (work, moment) = until(|work| this.until_cut(phase, fall(0, false), work));
            let moment = match moment {
                Ok(Some(moment)) => moment,
                Ok(None) => break,
                Err(what) => return self.violated(cuts, fall(0, false), what),
            };
            longest = work;
            let landings = moment.landings(landings_max, torn);
            self.work.points += 1;
            self.work.points_whole += u64::from(landings.whole);
            self.work.cuts += landings.each.len() as u64;
            (self.progress)(landings.each.len() as u64);
            let stride = landings.each.len().div_ceil(GOES_ON);
            for (number, (dice, torn)) in landings.each.into_iter().enumerate() {
                let landed = this.clone().landing(moment.land(dice, torn));
                let look = landed.clone();
                let (work, outcome) = until(|work| look.restart(work));
                self.work += work;
                if let Err(what) = outcome {
                    return self.violated(cuts, fall(dice, torn), what);
                }
                if phase + 1 < self.depth && number % stride == 0 {
                    cuts.push(fall(dice, torn));
                    self.cut_everywhere(&landed, cuts);
                    cuts.pop();
                    if self.found.is_some() {
                        return;
                    }
                }
            }
        }
        // One cut of this phase is counted above, as outcomes.
        self.work += Work { cuts: 0, ..longest };
    }

    /// Records the violation of the run with `cuts` and then `last`.
    fn violated(&mut self, cuts: &[Fall], last: Fall, what: String) {
        let mut id = self.id.clone();
        id.cuts = cuts.iter().copied().chain([last]).collect();
        self.found = Some((id, what));
    }
}

/// Executes `run`. Also returns the work done. A panic counts as a violation.
fn until<T>(run: impl FnOnce(&mut Work) -> Result<T, String>) -> (Work, Result<T, String>) {
    let mut work = Work::default();
    let outcome = caught(|| run(&mut work));
    (work, outcome)
}
