//! One run: a device, a workload, and a sequence of power cuts with a check after each.

use super::bases::{Base, Made};
use super::cells;
use super::faults::fault_plan;
use super::landings::{Around, MOMENTS, Seen};
use super::oracle::Oracle;
use super::run_id::{Fall, RunId};
use super::scene::{NoStart, Scene, Stack};
use super::work::Work;
use super::world::{Known, Stop, Story, World};
use super::{Explored, RunResult, Subject};
use crate::explain::{Remark, image};
use crate::payload::{Contents, show};
use flagstone::nand::{Ages, Chip, Moment};
use flagstone::units::Nanos;
use flagstone_lab::stop::Stopped;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Client steps after the last cut.
const STEPS_AFTER: u64 = 25;
/// Client steps of a run whose faults destroy pages.
const STEPS_OF_DAMAGE: u64 = 400;
/// Invariants are checked after each recovery, and after this many steps.
const CHECK_EVERY: u64 = 64;
/// Probability of an immediate restart after a cut that is not the last.
const RESTARTS: f64 = 0.3;
/// An instant after every acknowledgement.
const AT_LEISURE: Nanos = Nanos(u64::MAX);
/// Maximum number of steps of a phase whose cut does not occur because its operation is never
/// issued.
const STEPS_MAX: u64 = 3_000;

/// Executes `run`; converts a panic into an error.
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let outcome = flagstone_lab::quiet::quietly(|| catch_unwind(AssertUnwindSafe(run)));
    outcome.unwrap_or_else(|panic| {
        if panic.is::<Stopped>() {
            // The caller has requested a stop.
            resume_unwind(panic);
        }
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without a word")))
    })
}

/// Executes a run. Panics of the stack (a broken flash rule, a failed assertion) are violations.
pub(super) fn execute(id: &RunId, base: &Made, story: &Story) -> RunResult {
    let mut work = Work::default();
    let result = match base {
        Err(what) => Err(what.clone()),
        Ok(base) => caught(|| CutRun::new(id, base, story).phases(&mut work)),
    };
    (work, result)
}

/// Executes a run; `around` says whether to try additional cuts.
pub(super) fn explore(id: &RunId, base: &Made, around: bool) -> Explored {
    let (true, Ok(base)) = (around, base) else {
        let (work, result) = execute(id, base, &None);
        return (work, result.err().map(|what| (id.clone(), what)));
    };
    let mut work = Work::default();
    let mut run = CutRun::new(id, base, &None);
    run.around = Some(Around::default());
    let result = caught(|| run.phases(&mut work));
    let found = run.around.and_then(|around| around.found);
    let own = || result.err().map(|what| (id.clone(), what));
    (work, found.or_else(own))
}

/// A run in progress.
#[derive(Clone)]
pub(super) struct CutRun<'a> {
    id: &'a RunId,
    base: &'a Base,
    /// The scene of the current opening, or of the last one.
    scene: Scene,
    /// Number of openings so far.
    openings: u64,
    known: Known,
    dice: Pcg64Mcg,
    /// The flash while the power is off, and the ages of its cells.
    chip: Option<Chip>,
    ages: Ages,
    /// When the power last failed. Everything acknowledged by then must survive.
    failed_at: Nanos,
    story: &'a Story,
    /// The additional cuts of the run, if it tries any.
    around: Option<Around>,
    /// Whether to keep the moment of a cut, to enumerate its outcomes.
    enumerates: bool,
    moment: Option<Moment>,
}

/// How a phase between two power cuts ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// At a power cut.
    Cut(Fall),
    /// After a while, with the power switched off in an orderly way.
    Leisure,
    /// At once: power off right after power on.
    Restart,
}

impl<'a> CutRun<'a> {
    /// A run that begins with the chip, contents and cell ages of `base`, without additional cuts.
    pub(super) fn new(id: &'a RunId, base: &'a Base, story: &'a Story) -> CutRun<'a> {
        let scene = base.scene.clone();
        let mut known = Known::new(&id.base, &scene.shape, base.oracle.clone(), base.next_name);
        known.tell(story.clone());
        CutRun {
            id,
            base,
            scene,
            openings: 0,
            known,
            dice: Pcg64Mcg::seed_from_u64(id.seed),
            chip: Some(base.chip.clone()),
            ages: base.ages.clone(),
            failed_at: AT_LEISURE,
            story,
            around: None,
            enumerates: false,
            moment: None,
        }
    }

    /// Makes the run keep the moments of its cuts.
    pub(super) fn enumerating(mut self) -> CutRun<'a> {
        self.enumerates = true;
        self
    }

    /// Lets the clients work until a cut. Returns `None` if the power did not fail.
    pub(super) fn until_cut(
        &mut self,
        phase: usize,
        fall: Fall,
        work: &mut Work,
    ) -> Result<Option<Moment>, String> {
        self.moment = None;
        self.cut_phase(phase, fall, work)?;
        Ok(self.moment.take())
    }

    /// Continues the run with `chip`, one outcome of its last cut.
    pub(super) fn landing(mut self, chip: Chip) -> CutRun<'a> {
        self.chip = Some(chip);
        self
    }

    /// A run after `openings` openings and a cut that left this chip.
    pub(super) fn landed(
        (id, base): (&'a RunId, &'a Base),
        openings: u64,
        chip: Chip,
        seen: Seen,
    ) -> CutRun<'a> {
        let mut run = CutRun::new(id, base, &None);
        run.openings = openings;
        run.known.oracle = seen.oracle;
        run.failed_at = seen.failed_at;
        run.chip = Some(chip);
        run
    }

    /// Starts the device and checks it.
    pub(super) fn restart(mut self, work: &mut Work) -> Result<(), String> {
        self.phase(usize::MAX, Until::Restart, work)
    }

    /// Executes all phases of the run: one until each cut, then work with an orderly power-off and
    /// an immediate restart, in either order. Faults that destroy pages have one phase of their
    /// own.
    pub(super) fn phases(&mut self, work: &mut Work) -> Result<(), String> {
        if self.id.base.faults.destroys() {
            self.known.damage_allowed = true;
            return self.damage_phase(work);
        }
        for (phase, &cut) in self.id.cuts.iter().enumerate() {
            self.cut_phase(phase, cut, work)?;
        }
        // A clean restart must change nothing.
        let mut last = [Until::Leisure, Until::Restart];
        if self.dice.random_bool(0.5) {
            last.reverse();
        }
        last.into_iter()
            .try_for_each(|until| self.phase(usize::MAX, until, work))
    }

    fn cut_phase(&mut self, phase: usize, fall: Fall, work: &mut Work) -> Result<(), String> {
        // The state recovered after a cut must survive another restart, even if nothing happened in
        // between.
        if phase > 0 && self.dice.random_bool(RESTARTS) {
            self.phase(usize::MAX, Until::Restart, work)?;
        }
        self.phase(phase, Until::Cut(fall), work)
    }

    /// Starts the device, checks it, and lets the clients work until the power fails. `phase` is
    /// the number of the cut that ends it, from 0; `usize::MAX` in phases without a cut, which have
    /// no injected faults.
    fn phase(&mut self, phase: usize, until: Until, work: &mut Work) -> Result<(), String> {
        self.known.note(|| match until {
            Until::Cut(_) => format!("The power is on, until cut {}", phase + 1),
            Until::Leisure => "The power is on".into(),
            Until::Restart => "The power is on, and off at once".into(),
        });
        let cut = match until {
            Until::Cut(fall) => Some(fall),
            _ => None,
        };
        let plan = fault_plan(self.id, phase, &mut self.dice);
        let looks = self.around.is_some() && cut.is_some();
        let in_doubt = looks.then(|| self.known.oracle.clone());
        let moments = if looks {
            MOMENTS
        } else {
            usize::from(self.enumerates)
        };
        let cells = self.take_cells();
        self.reopen();
        let (stack, world) = (self.scene).open(cells, (cut, moments), plan, self.story);
        let mut recovering = true;
        let outcome = match world {
            Ok(mut world) => {
                let world = world.as_mut();
                world.introduce(&self.known);
                let outcome = self.looked_at(world, work);
                recovering = outcome == Err(Stop::PowerLost);
                self.see(&stack, in_doubt.as_ref());
                let outcome = outcome.and_then(|()| self.work_on(world, &stack, until, work));
                world.count(work);
                outcome
            }
            Err(NoStart::PowerLost) => Err(Stop::PowerLost),
            Err(error) => Err(Stop::Violation(format!("recovery fails: {error}"))),
        };
        self.see(&stack, in_doubt.as_ref());
        let (faulty, ages) = stack.take().into_parts();
        let power = faulty.into_inner();
        self.ages = ages;
        work.operations += power.issued();
        let ended = outcome.as_ref().err().filter(|stop| **stop == Stop::Full);
        work.full += std::mem::take(&mut self.known.full) + u64::from(ended.is_some());
        match outcome {
            // A subject that stopped on a full device must continue after a restart.
            Ok(()) | Err(Stop::PowerLost | Stop::Full) => {}
            Err(Stop::Damaged) => unreachable!("damage stops only runs of its own"),
            Err(Stop::Violation(what)) => return Err(what),
        }
        if let Some(around) = &mut self.around {
            around.look((self.id, self.base), (phase, self.openings), &power, work)?;
        }
        if let Some(Fall { cut, .. }) = cut {
            work.cuts += 1;
            work.cuts_in_recovery += u64::from(recovering);
            if power.is_off() {
                // A cut during recovery leaves the same commits in doubt as the cut before it.
                if !recovering {
                    self.failed_at = self.known.now;
                }
                self.tell_cut(&power);
                self.moment = power.moments().first().cloned();
                self.chip = Some(power.into_chip());
            } else {
                // The operation of the cut was never issued. A pulled plug can only undo operations
                // that no sync has waited for, and so nothing that was acknowledged.
                self.failed_at = AT_LEISURE;
                self.chip = Some(power.pull(cut.dice, cut.torn));
            }
        } else {
            // Orderly power-off: everything in flight completes.
            self.failed_at = AT_LEISURE;
            self.chip = Some(power.into_chip());
        }
        Ok(())
    }

    /// Draws the settings of the next opening, and reports those that differ from the last one's.
    fn reopen(&mut self) {
        let scene = self.base.scene.reopened(self.id, self.openings);
        self.openings += 1;
        if self.story.is_some()
            && let Some(changed) = scene.changed(&self.scene)
        {
            self.known
                .note(|| format!("It is opened with other settings: {changed}"));
        }
        self.scene = scene;
    }

    /// The flash, after the time without power.
    fn take_cells(&mut self) -> (Chip, Ages) {
        let chip = self.chip.take();
        let mut ages = std::mem::replace(&mut self.ages, Ages::still());
        if self.id.base.faults.aging {
            ages.rest(cells::off(&mut self.dice));
        }
        let chip = chip.expect("a phase puts it back, or the run is over");
        (chip, ages)
    }

    /// Records the oracle for additional cuts. During a recovery `in_doubt` is the oracle from
    /// before the recovery, to which the device is still held.
    fn see(&mut self, stack: &Stack, in_doubt: Option<&Oracle>) {
        if let Some(around) = &mut self.around {
            match in_doubt {
                Some(oracle) => around.see(stack, oracle, self.failed_at),
                None => around.see(stack, &self.known.oracle, self.known.now),
            }
        }
    }

    /// Checks the subject after recovery: invariants hold, and the contents are allowed.
    fn looked_at(&mut self, world: &mut dyn World, work: &mut Work) -> Result<(), Stop> {
        self.known.now = world.recovered_at();
        let found = world.read_all(&mut self.known, &mut BTreeSet::new())?;
        self.known
            .oracle
            .verify(self.failed_at.0, &found)
            .map_err(Stop::Violation)?;
        world.check().map_err(Stop::Violation)?;
        work.recoveries += 1;
        Ok(())
    }

    /// Lets the clients work for the steps of a phase. Before an orderly power-off of a device that
    /// may be full, a transaction alone must commit.
    fn work_on(
        &mut self,
        world: &mut dyn World,
        stack: &Stack,
        until: Until,
        work: &mut Work,
    ) -> Result<(), Stop> {
        let steps = match until {
            Until::Cut(_) => STEPS_MAX,
            Until::Leisure => STEPS_AFTER,
            Until::Restart => 0,
        };
        if until == Until::Leisure && self.known.may_fill {
            world.prove(&mut self.known, &mut self.dice)?;
        }
        for step in 0..steps {
            work.steps += 1;
            let outcome = world.step(&mut self.known, &mut self.dice);
            self.see(stack, None);
            outcome?;
            if step % CHECK_EVERY == CHECK_EVERY / 8 {
                world.check().map_err(Stop::Violation)?;
            }
        }
        Ok(())
    }

    /// Uncorrectable or undetected bit errors destroy pages permanently: readers must get an error,
    /// and never wrong bytes. There is no restart, since nothing is guaranteed after one. A
    /// database that was told of a lost page has stopped, and its pool is not checked. The same
    /// holds for an index that cannot be reopened from its pages.
    fn damage_phase(&mut self, work: &mut Work) -> Result<(), String> {
        let plan = fault_plan(self.id, 0, &mut self.dice);
        let cells = self.take_cells();
        self.reopen();
        let (stack, world) = self.scene.open(cells, (None, 0), plan, self.story);
        let outcome = match world {
            Ok(mut world) => {
                let outcome = (0..STEPS_OF_DAMAGE).try_for_each(|_| {
                    work.steps += 1;
                    world.step(&mut self.known, &mut self.dice)
                });
                world.count(work);
                let stopped = !matches!(self.id.base.subject, Subject::Protocol(_));
                match outcome {
                    Err(Stop::Violation(what)) => Err(what),
                    Err(_) if stopped => Ok(()),
                    _ => match world.read_all(&mut self.known, &mut BTreeSet::new()) {
                        // A waiting commit may or may not be visible yet.
                        Ok(mut found) => {
                            self.known.oracle.leave_out_doubtful(&mut found);
                            self.compare(&found)
                        }
                        Err(Stop::Violation(what)) => Err(what),
                        Err(_) => Ok(()),
                    },
                }
            }
            // The damage hit pages that recovery needs: an error is allowed.
            Err(NoStart::Unreadable) => Ok(()),
            Err(error) => Err(format!("recovery fails: {error}")),
        };
        work.cuts += 1;
        drop(stack);
        outcome
    }

    /// Compares pages that were read with what a reader should see.
    fn compare(&self, found: &std::collections::BTreeMap<u32, Contents>) -> Result<(), String> {
        for (&page, contents) in found {
            let right = self.known.oracle.read(page);
            if *contents != right {
                return Err(format!(
                    "page {page} holds {}, not {}",
                    show(contents),
                    show(&right)
                ));
            }
        }
        Ok(())
    }

    /// Reports the outcome of operations in flight at a cut, and the contents of the flash.
    fn tell_cut(&self, power: &flagstone::nand::PowerCut) {
        if let Some(story) = self.story {
            let (now, fates) = (self.known.now, power.fates().to_vec());
            story.remark(Remark::Cut { now, fates });
            story.remark(Remark::Image(image(power.chip())));
        }
    }
}
