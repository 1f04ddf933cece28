//! One run: a device, a workload, power cuts one after the other, and a look at what is left after
//! each.

use super::Subject;
use super::oracle::Oracle;
use super::run_id::RunId;
use super::sabotage::Sabotage;
use super::scene::{NoStart, Scene, fault_plan};
use super::work::Work;
use super::world::{Known, Stop, Story, World};
use flagstone::nand::{Chip, Cut, Entry, FaultPlan, OpKind};
use flagstone::units::Nanos;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A device that has seen some use, and what it holds.
#[derive(Clone)]
pub(super) struct Base {
    chip: Chip,
    oracle: Oracle,
    next_name: u64,
    /// What went wrong while it was aged, which is a violation like any other.
    violation: Option<String>,
}

/// Steps of the clients after the last cut, and while a base is made.
const STEPS_AFTER: u64 = 25;
const STEPS_OF_BASE: u64 = 600;
const STEPS_OF_DAMAGE: u64 = 400;
/// After everything that was ever acknowledged.
const AT_LEISURE: Nanos = Nanos(u64::MAX);
/// Without a cut in reach a phase ends here: the operation that was to be cut does not come.
const STEPS_MAX: u64 = 3_000;

/// Ages a device: 0 leaves it blank.
pub(super) fn make_base(id: &RunId, sabotage: Sabotage) -> Base {
    let scene = Scene::new(id, sabotage);
    let blank = Base {
        chip: scene.blank(),
        oracle: Oracle::default(),
        next_name: 1,
        violation: None,
    };
    if id.base == 0 {
        return blank;
    }
    let aged = caught(|| age(id, &scene, blank.chip.clone()));
    // A control may not come this far; it fails soon enough on a blank device.
    let is_control = id.published || sabotage != Sabotage::None || !id.subject.is_atomic();
    aged.unwrap_or_else(|what| Base {
        violation: (!is_control).then(|| format!("while the device is aged: {what}")),
        ..blank
    })
}

fn age(id: &RunId, scene: &Scene, chip: Chip) -> Result<Base, String> {
    let stopped = |stop| match stop {
        Stop::Violation(what) => what,
        Stop::PowerLost | Stop::Damaged => "the device stops by itself".into(),
    };
    let open = |chip| {
        let (stack, world) = scene.open(chip, None, FaultPlan::default(), &None);
        (stack, world.map_err(|error| error.to_string()))
    };
    let mut dice = Pcg64Mcg::seed_from_u64(u64::from(id.base) ^ 0xba5e_0000);
    let mut known = Known::new(Oracle::default(), id.clients, id.pages, 1);
    let (stack, world) = open(chip);
    let mut world = world?;
    for _ in 0..STEPS_OF_BASE {
        world.step(&mut known, &mut dice).map_err(stopped)?;
    }
    drop(world);
    let chip = stack.take().into_inner().pull(u64::from(id.base), false);
    // Whatever was in doubt is settled by looking.
    let (stack, world) = open(chip);
    let mut world = world?;
    let found = world.read_all(&mut known, &mut BTreeSet::new());
    known.oracle.verify(u64::MAX, &found.map_err(stopped)?)?;
    drop(world);
    Ok(Base {
        chip: stack.take().into_inner().into_chip(),
        next_name: known.next_name(),
        oracle: known.oracle,
        violation: None,
    })
}

/// Carries `run` out; a panic is an error like any other.
fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let outcome = super::quietly(|| catch_unwind(AssertUnwindSafe(run)));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without a word")))
    })
}

/// Carries a run out. Panics of the stack (a broken flash rule, a failed assertion) are violations.
pub(super) fn execute(
    id: &RunId,
    sabotage: Sabotage,
    base: &Base,
    story: &Story,
) -> (Work, Result<(), String>) {
    let mut work = Work::default();
    let result = match &base.violation {
        Some(what) => Err(what.clone()),
        None => caught(|| Run::new(id, sabotage, base, story).phases(&mut work)),
    };
    (work, result)
}

struct Run<'a> {
    id: &'a RunId,
    scene: Scene,
    known: Known,
    dice: Pcg64Mcg,
    chip: Chip,
    /// When the power failed last: what was acknowledged by then must be there.
    failed_at: Nanos,
    story: &'a Story,
}

impl<'a> Run<'a> {
    fn new(id: &'a RunId, sabotage: Sabotage, base: &Base, story: &'a Story) -> Run<'a> {
        let mut known = Known::new(base.oracle.clone(), id.clients, id.pages, base.next_name);
        known.tell(story.clone());
        Run {
            id,
            scene: Scene::new(id, sabotage),
            known,
            dice: Pcg64Mcg::seed_from_u64(id.seed),
            chip: base.chip.clone(),
            failed_at: AT_LEISURE,
            story,
        }
    }

    fn phases(mut self, work: &mut Work) -> Result<(), String> {
        if self.id.faults.bits_beyond {
            self.known.damage_allowed = true;
            return self.damage_phase(work);
        }
        for (phase, &cut) in self.id.cuts.iter().enumerate() {
            self.phase(phase, Some(cut), work)?;
        }
        self.phase(self.id.cuts.len(), None, work)?;
        // A clean restart changes nothing.
        self.phase(self.id.cuts.len() + 1, None, work)
    }

    /// Starts the device, looks at it, and lets the clients work until the power fails.
    fn phase(&mut self, phase: usize, cut: Option<Cut>, work: &mut Work) -> Result<(), String> {
        self.known
            .note(|| format!("--- power on ({}) ---", ordinal(phase)));
        let plan = fault_plan(self.id, phase, &mut self.dice);
        let (stack, world) = self.scene.open(self.chip.clone(), cut, plan, self.story);
        let mut recovering = true;
        let outcome = match world {
            Ok(mut world) => {
                let world = world.as_mut();
                let outcome = self.looked_at(world, work);
                recovering = outcome == Err(Stop::PowerLost);
                let outcome = outcome.and_then(|()| self.work_on(world, cut, work));
                world.count(work);
                outcome
            }
            Err(NoStart::PowerLost) => Err(Stop::PowerLost),
            Err(error) => Err(Stop::Violation(format!("recovery fails: {error}"))),
        };
        let power = stack.take().into_inner();
        work.operations += power.issued();
        match outcome {
            Ok(()) | Err(Stop::PowerLost) => {}
            Err(Stop::Damaged) => unreachable!("damage stops only runs of its own"),
            Err(Stop::Violation(what)) => return Err(what),
        }
        if let Some(cut) = cut {
            work.cuts += 1;
            work.cuts_in_recovery += u64::from(recovering);
            if power.is_off() {
                // A cut during recovery finds what the cut before it left in doubt.
                if !recovering {
                    self.failed_at = self.known.now;
                }
                self.tell_fates(&power);
                self.chip = power.into_chip();
            } else {
                self.failed_at = AT_LEISURE;
                self.chip = power.pull(cut.dice, cut.torn);
            }
        } else {
            // The machine is switched off at leisure: everything in flight lands.
            self.failed_at = AT_LEISURE;
            self.chip = power.into_chip();
        }
        Ok(())
    }

    /// After recovery: the books agree, and what is there may be there.
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

    fn work_on(
        &mut self,
        world: &mut dyn World,
        cut: Option<Cut>,
        work: &mut Work,
    ) -> Result<(), Stop> {
        let steps = if cut.is_some() {
            STEPS_MAX
        } else {
            STEPS_AFTER
        };
        for step in 0..steps {
            work.steps += 1;
            world.step(&mut self.known, &mut self.dice)?;
            if step % 16 == 7 {
                world.check().map_err(Stop::Violation)?;
            }
        }
        Ok(())
    }

    /// Bit errors beyond what ECC corrects destroy pages for good: a reader must be told, and must
    /// never be given other bytes. Nothing is promised after a restart, so there is none. A
    /// database that was told of a lost page has stopped: what its pool holds is not looked at.
    /// So has an index that cannot be started anew from its pages.
    fn damage_phase(&mut self, work: &mut Work) -> Result<(), String> {
        let plan = fault_plan(self.id, 0, &mut self.dice);
        let (stack, world) = self.scene.open(self.chip.clone(), None, plan, self.story);
        let outcome = match world {
            Ok(mut world) => {
                let outcome = (0..STEPS_OF_DAMAGE).try_for_each(|_| {
                    work.steps += 1;
                    world.step(&mut self.known, &mut self.dice)
                });
                world.count(work);
                let stopped = !matches!(self.id.subject, Subject::Protocol(_));
                match outcome {
                    Err(Stop::Violation(what)) => Err(what),
                    Err(_) if stopped => Ok(()),
                    _ => match world.read_all(&mut self.known, &mut BTreeSet::new()) {
                        // A commit that waits may or may not be visible yet.
                        Ok(mut found) => {
                            self.known.oracle.leave_out_doubtful(&mut found);
                            self.compare(&found)
                        }
                        Err(Stop::Violation(what)) => Err(what),
                        Err(_) => Ok(()),
                    },
                }
            }
            // The damage struck the very pages that recovery needs: it may say so.
            Err(NoStart::Unreadable) => Ok(()),
            Err(error) => Err(format!("recovery fails: {error}")),
        };
        work.cuts += 1;
        drop(stack);
        outcome
    }

    fn compare(
        &self,
        found: &std::collections::BTreeMap<u32, super::oracle::Contents>,
    ) -> Result<(), String> {
        for (&page, contents) in found {
            let right = self.known.oracle.read(page);
            if *contents != right {
                return Err(format!(
                    "page {page} holds {}, not {}",
                    super::oracle::show(contents),
                    super::oracle::show(&right)
                ));
            }
        }
        Ok(())
    }

    fn tell_fates(&self, power: &flagstone::nand::PowerCut) {
        if let Some(story) = self.story {
            for fate in power.fates() {
                let what = match (fate.landed, fate.torn) {
                    (true, _) => "landed",
                    (false, true) => "is torn",
                    (false, false) => "did not happen",
                };
                let kind = OpKind::Note(format!("power cut: {} {what}", fate.what));
                story.borrow_mut().push(Entry {
                    now: self.known.now,
                    kind,
                    error: None,
                });
            }
        }
    }
}

fn ordinal(phase: usize) -> String {
    match phase {
        0 => "first".into(),
        1 => "second".into(),
        2 => "third".into(),
        n => format!("{}th", n + 1),
    }
}
