//! Additional cuts of a run, at erases with which one collection overtakes another.
//!
//! Such a [`Moment`](flagstone::nand::Moment) is rare, and the harmful outcome is rarer still. So a
//! run continues through it, and separately its device is restarted with an outcome of that moment
//! and checked. If something is wrong, that defines another run: the cuts so far, plus a cut at the
//! moment ([`Aim::Adverse`]). It counts only if that run is violated when executed by itself, so
//! that its run id repeats the violation.

use super::RunId;
use super::bases::Base;
use super::oracle::Oracle;
use super::run::{CutRun, caught};
use super::run_id::Fall;
use super::scene::Stack;
use super::work::Work;
use flagstone::nand::{Aim, Cut, PowerCut};
use flagstone::units::Nanos;

/// Moments per phase that are checked.
pub(super) const MOMENTS: usize = 64;

/// One of this many outcomes is random. The others are the worst case for an overtaken collection:
/// of the operations in flight, only the overtaking erase has landed.
const DRAWN: u64 = 8;

/// The oracle at one moment.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) oracle: Oracle,
    /// Every commit acknowledged by this instant must survive.
    pub(super) failed_at: Nanos,
}

/// The additional cuts of a run.
#[derive(Clone, Default)]
pub(super) struct Around {
    /// The oracle at each moment of the phase.
    seen: Vec<Seen>,
    /// The first violated run, and the violation.
    pub(super) found: Option<(RunId, String)>,
}

impl Around {
    /// Records the oracle for moments since the last call.
    pub(super) fn see(&mut self, stack: &Stack, oracle: &Oracle, failed_at: Nanos) {
        let moments = stack.look(|aging| aging.inner().inner().moments().len());
        let oracle = oracle.clone();
        self.seen.resize_with(moments, || Seen {
            oracle: oracle.clone(),
            failed_at,
        });
    }

    /// Checks one outcome of each moment of a finished phase.
    ///
    /// # Errors
    /// The violation of the run that is cut at that moment.
    pub(super) fn look(
        &mut self,
        (id, base): (&RunId, &Base),
        (phase, openings): (usize, u64),
        power: &PowerCut,
        work: &mut Work,
    ) -> Result<(), String> {
        for (moment, seen) in power.moments().iter().zip(self.seen.drain(..)) {
            let cut = cut(id, moment.at());
            let chip = moment.land(cut.dice, cut.torn);
            work.cuts += 1;
            if caught(|| CutRun::landed((id, base), openings, chip, seen).restart(work)).is_ok() {
                continue;
            }
            let mut other = id.clone();
            other.cuts.truncate(phase);
            let aim = Aim::Adverse;
            other.cuts.push(Fall { cut, aim });
            let run = || CutRun::new(&other, base, &None).phases(&mut Work::default());
            if let Err(what) = caught(run) {
                self.found = Some((other, what.clone()));
                return Err(what);
            }
        }
        Ok(())
    }
}

/// The cut at a moment, determined by the run's seed and the operation.
fn cut(id: &RunId, at: u64) -> Cut {
    let drawn = (id.seed ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    Cut {
        at,
        dice: if drawn.is_multiple_of(DRAWN) {
            drawn >> 16
        } else {
            0
        },
        torn: id.base.faults.torn && (drawn / DRAWN).is_multiple_of(2),
    }
}
