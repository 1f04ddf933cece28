//! Other cuts on the way of a run, at erases with which one collection overtakes another.
//!
//! Such a [`Moment`](flagstone::nand::Moment) is rare, and rarer still is the landing that does
//! harm. So a run goes on through it. On the side, its device is looked at as a landing of that
//! moment leaves it, after a restart of its own. Where something is wrong there, that is a run by
//! itself: the cuts that fell before, and a last one at the moment ([`Aim::Adverse`]). Only a run
//! that is violated when it is carried out counts, so that its run id repeats it.

use super::RunId;
use super::bases::Base;
use super::oracle::Oracle;
use super::run::{Run, caught};
use super::run_id::Fall;
use super::scene::Stack;
use super::work::Work;
use flagstone::nand::{Aim, Cut, PowerCut};
use flagstone::units::Nanos;

/// Moments of a phase that are looked at.
pub(super) const MOMENTS: usize = 64;

/// Of so many landings all but one are the worst for a collection that was overtaken: of what is in
/// flight, only the erase that overtakes it has landed. The other one is drawn.
const DRAWN: u64 = 8;

/// The oracle at a moment.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) oracle: Oracle,
    /// Commits that were acknowledged by then must be there.
    pub(super) failed_at: Nanos,
}

/// The other cuts of a run.
#[derive(Clone, Default)]
pub(super) struct Around {
    /// For each moment of the phase.
    seen: Vec<Seen>,
    /// The first run that is violated, and what is wrong.
    pub(super) found: Option<(RunId, String)>,
}

impl Around {
    /// Notes what is known at the moments that have come since it was called last.
    pub(super) fn see(&mut self, stack: &Stack, oracle: &Oracle, failed_at: Nanos) {
        let moments = stack.look(|aging| aging.inner().inner().moments().len());
        let oracle = oracle.clone();
        self.seen.resize_with(moments, || Seen {
            oracle: oracle.clone(),
            failed_at,
        });
    }

    /// Looks at a landing of each moment of a phase, which has ended.
    ///
    /// # Errors
    /// What is wrong with the run that ends there.
    pub(super) fn look(
        &mut self,
        (id, base): (&RunId, &Base),
        phase: usize,
        power: &PowerCut,
        work: &mut Work,
    ) -> Result<(), String> {
        for (moment, seen) in power.moments().iter().zip(self.seen.drain(..)) {
            let cut = cut(id, moment.at());
            let chip = moment.land(cut.dice, cut.torn);
            work.cuts += 1;
            if caught(|| Run::landed(id, base, chip, seen).restart(work)).is_ok() {
                continue;
            }
            let mut other = id.clone();
            other.cuts.truncate(phase);
            let aim = Aim::Adverse;
            other.cuts.push(Fall { cut, aim });
            let run = || Run::new(&other, base, &None).phases(&mut Work::default());
            if let Err(what) = caught(run) {
                self.found = Some((other, what.clone()));
                return Err(what);
            }
        }
        Ok(())
    }
}

/// The cut at a moment, which hangs on the run's seed and the operation.
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
