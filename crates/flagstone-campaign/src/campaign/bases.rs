//! Aged devices on which runs start.

use super::BaseId;
use super::cells::cells;
use super::oracle::Oracle;
use super::run::caught;
use super::sabotage::Sabotage;
use super::scene::Scene;
use super::world::{Known, Stop, Story};
use flagstone::nand::{Ages, Chip, FaultPlan};
use flagstone::units::Nanos;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock};

/// A used device and its contents, fully determined by its [`BaseId`].
pub(super) struct Base {
    pub(super) scene: Scene,
    pub(super) chip: Chip,
    /// The ages of its cells.
    pub(super) ages: Ages,
    pub(super) oracle: Oracle,
    pub(super) next_name: u64,
}

/// A base, or the violation found while it was aged.
pub(super) type Made = Result<Base, String>;

/// Client steps during aging.
const STEPS: u64 = 600;

impl Base {
    /// Creates the device and ages it.
    ///
    /// # Errors
    /// A violation was found.
    pub(super) fn make(id: &BaseId, story: &Story) -> Made {
        let blank = |scene: Scene| Base {
            chip: scene.blank(),
            ages: cells(id, &scene.geometry),
            scene,
            oracle: Oracle::default(),
            next_name: 1,
        };
        let scene = Scene::new(id)?;
        if id.age == 0 {
            return Ok(blank(scene));
        }
        // A control may fail here; on a blank device it fails soon enough.
        let is_control = id.published || id.sabotage != Sabotage::None || !id.subject.is_atomic();
        match caught(|| age(id, scene.clone(), story)) {
            Err(_) if is_control => Ok(blank(scene)),
            aged => aged.map_err(|what| format!("while the device is aged: {what}")),
        }
    }
}

/// Lets clients use the device of `scene` for [`STEPS`] steps, cuts the power, and restarts it. The
/// contents found become the initial ones of runs.
fn age(id: &BaseId, scene: Scene, story: &Story) -> Made {
    let stopped = |stop| match stop {
        Stop::Violation(what) => what,
        Stop::PowerLost | Stop::Damaged | Stop::Full => "the device stops by itself".into(),
    };
    let open = |cells| {
        let (stack, world) = scene.open(cells, (None, 0), FaultPlan::default(), story);
        (stack, world.map_err(|error| error.to_string()))
    };
    let mut dice = Pcg64Mcg::seed_from_u64(u64::from(id.age) ^ 0xba5e_0000);
    let mut known = Known::new(id, &scene.shape, Oracle::default(), 1);
    known.tell(story.clone());
    let mut cells_now = (scene.blank(), cells(id, &scene.geometry));
    let mut steps = 0;
    while steps < STEPS {
        let (stack, world) = open(cells_now);
        let mut world = world?;
        known.now = world.recovered_at();
        if steps == 0 {
            match world.fill(&mut known, &mut dice) {
                Ok(()) | Err(Stop::Full) => {}
                outcome => outcome.map_err(stopped)?,
            }
        }
        while steps < STEPS {
            steps += 1;
            match world.step(&mut known, &mut dice) {
                // A full device is restarted, and aging continues.
                Err(Stop::Full) => break,
                outcome => outcome.map_err(stopped)?,
            }
        }
        drop(world);
        let (faulty, mut ages) = stack.take().into_parts();
        ages.rest(Nanos::ZERO);
        cells_now = (faulty.into_inner().pull(id.age.into(), false), ages);
    }
    // The oracle adopts those in-doubt commits that survived.
    let (stack, world) = open(cells_now);
    let mut world = world?;
    known.now = world.recovered_at();
    let found = world.read_all(&mut known, &mut BTreeSet::new());
    known.oracle.verify(u64::MAX, &found.map_err(stopped)?)?;
    drop(world);
    let (faulty, mut ages) = stack.take().into_parts();
    ages.rest(Nanos::ZERO);
    Ok(Base {
        scene,
        chip: faulty.into_inner().into_chip(),
        ages,
        next_name: known.next_name(),
        oracle: known.oracle,
    })
}

/// A created base.
pub(super) struct Kept(Arc<OnceLock<Made>>);

impl Deref for Kept {
    type Target = Made;

    fn deref(&self) -> &Made {
        self.0.get().expect("it was made before it was handed out")
    }
}

/// Bases, each created once.
#[derive(Default)]
pub(super) struct Bases {
    /// By id as text, which names everything that a base depends on.
    made: Mutex<BTreeMap<String, Arc<OnceLock<Made>>>>,
}

impl Bases {
    pub(super) fn get(&self, id: &BaseId) -> Kept {
        let mut made = self.made.lock().expect("nothing panics here");
        let kept = Arc::clone(made.entry(id.to_string()).or_default());
        drop(made);
        kept.get_or_init(|| Base::make(id, &None));
        Kept(kept)
    }
}
