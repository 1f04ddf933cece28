//! The interface between the loop of a run and its adaptors: the subject, clients that use it at
//! random from a seed, and the oracle of what they may see.

use super::BaseId;
use super::cells;
use super::oracle::Oracle;
use super::shape::{Habits, Shape};
use super::work::Work;
use crate::explain::{Remark, Shown, Tale};
use crate::payload::{Contents, Place, show};
use flagstone::commit::{DeviceError, Ruling};
use flagstone::ftl::FtlError;
use flagstone::units::{Nanos, TxId};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};

/// A report being recorded, if there is one.
pub(super) type Story = Option<Tale>;

/// Why a run stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// The power failed.
    PowerLost,
    /// A needed page was lost to bit errors; only if these are injected.
    Damaged,
    /// The device is full, and the subject cannot continue; only if that may happen.
    Full,
    /// A violation.
    Violation(String),
}

pub(super) type Done<T> = Result<T, Stop>;

/// A subject with its clients. Lives from one power-on to the next.
pub(super) trait World {
    /// One step of a random client.
    fn step(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()>;

    /// Fills the pages if records may overflow them, before anything else happens.
    fn fill(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        let _ = (known, dice);
        Ok(())
    }

    /// Reads every place. Leaves out places destroyed by bit errors where these are allowed.
    fn read_all(
        &mut self,
        known: &mut Known,
        damaged: &mut BTreeSet<Place>,
    ) -> Done<BTreeMap<Place, Contents>>;

    /// Runs a small transaction alone on a newly started device. It must commit, however full the
    /// device is.
    fn prove(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()>;

    /// When recovery was complete.
    fn recovered_at(&self) -> Nanos;

    /// Reports the decisions of a restart, and the resulting tables.
    fn introduce(&self, known: &Known) {
        let _ = known;
    }

    /// Checks invariants.
    fn check(&mut self) -> Result<(), String>;

    /// Adds the work since power-on.
    fn count(&mut self, work: &mut Work);
}

/// State that survives power cuts, and the clock.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) oracle: Oracle,
    pub(super) now: Nanos,
    /// Number of concurrent transactions.
    pub(super) clients: usize,
    /// Number of logical pages used.
    pub(super) pages: u32,
    pub(super) habits: Habits,
    /// Whether pages may be lost to bit errors, if reported.
    pub(super) damage_allowed: bool,
    /// Whether days of virtual time pass now and then.
    pub(super) ages: bool,
    /// Whether the device may be full.
    pub(super) may_fill: bool,
    /// Whether the log may be too short for a transaction.
    pub(super) least_log: bool,
    /// How often something was given up because the device was full.
    pub(super) full: u64,
    next_name: u64,
    story: Story,
}

impl Known {
    /// The state at the start of a run on a device with the contents of `oracle`. Transactions are
    /// named from `first_name` on.
    pub(super) fn new(id: &BaseId, shape: &Shape, oracle: Oracle, first_name: u64) -> Known {
        Known {
            oracle,
            now: Nanos::ZERO,
            clients: id.clients as usize,
            pages: id.pages,
            habits: shape.habits,
            damage_allowed: false,
            ages: id.faults.aging,
            may_fill: shape.device.may_fill,
            least_log: shape.database.log_pages.is_none(),
            full: 0,
            next_name: first_name,
            story: None,
        }
    }

    pub(super) fn tell(&mut self, story: Story) {
        self.story = story;
    }

    /// The first unused transaction name. The next run begins with it, so that every payload is
    /// unique.
    pub(super) fn next_name(&self) -> u64 {
        self.next_name
    }

    /// A new name for a transaction.
    pub(super) fn name(&mut self) -> u64 {
        self.next_name += 1;
        self.next_name - 1
    }

    /// Notes that a full device has refused a request.
    pub(super) fn note_full(&mut self) {
        self.full += 1;
        self.note(|| "the device is full".into());
    }

    /// Adds a note to the report, if there is one.
    pub(super) fn note(&self, text: impl FnOnce() -> String) {
        if let Some(story) = &self.story {
            let text = text();
            // A note about a transaction begins with its name.
            let name = text
                .strip_prefix('#')
                .and_then(|text| text.split(' ').next());
            story.say(self.now, name.and_then(|name| name.parse().ok()), text);
        }
    }

    /// Notes that a transaction has begun with this device identifier.
    pub(super) fn note_begin(&self, name: u64, tx: TxId) {
        if let Some(story) = &self.story {
            story.remark(Remark::Called {
                who: name,
                tx: tx.0,
            });
        }
        self.note(|| format!("#{name} begins with id {}", tx.0));
    }

    /// Notes when a commit is durable and its client is told.
    pub(super) fn note_done(&self, name: u64, done: Nanos) {
        if let Some(story) = &self.story {
            story.remark(Remark::Said {
                now: self.now,
                who: Some(name),
                text: format!("#{name} is acknowledged"),
                done: Some(done),
            });
        }
    }

    /// Adds a view of a device to the report.
    pub(super) fn show(&self, shown: impl FnOnce() -> Shown) {
        if let Some(story) = &self.story {
            story.remark(Remark::Shows(Box::new(shown())));
        }
    }

    /// Adds the decisions of a restart to the report.
    pub(super) fn note_rulings(&self, rulings: &[Ruling]) {
        if let Some(story) = &self.story {
            story.remark(Remark::Ruled(rulings.to_vec()));
        }
    }

    /// With some probability lets days pass, if cells age. Returns whether days have passed, after
    /// which maintenance is due.
    pub(super) fn pass_days(&mut self, dice: &mut Pcg64Mcg) -> bool {
        let away = if self.ages { cells::away(dice) } else { None };
        self.now += away.unwrap_or(Nanos::ZERO);
        away.is_some()
    }

    /// Advances the clock by nothing, by a little, or by enough for everything in flight to
    /// complete.
    pub(super) fn pass_time(&mut self, dice: &mut Pcg64Mcg) {
        if dice.random_range(0..100) < self.habits.at_once {
            return;
        }
        let micros = match dice.random_range(0..5) {
            0..3 => dice.random_range(0..300),
            3 => dice.random_range(0..2_000),
            _ => 10_000,
        };
        self.now += Nanos::from_micros(micros);
    }

    /// Draws the plan of a new transaction: brief, patient (four times as many writes) or ordinary.
    pub(super) fn intent(&self, dice: &mut Pcg64Mcg) -> Intent {
        let Habits {
            writes,
            brief,
            patient,
            aborts,
            ..
        } = self.habits;
        let mut of_hundred = |share| dice.random_range(0..100) < share;
        let (brief, patient, aborts) = (of_hundred(brief), of_hundred(patient), of_hundred(aborts));
        let (writes, times) = match (brief, patient) {
            (true, _) => (2..=3, 1),
            (_, true) => (1..=writes, 4),
            _ if self.habits.brief > 0 => (writes / 2..=writes, 1),
            _ => (1..=writes, 1),
        };
        Intent {
            writes: times * dice.random_range(writes),
            aborts: aborts && !brief,
            stays: if brief { 0 } else { self.habits.stays },
            brief,
        }
    }

    /// A random page; some pages are far more frequent than others, unless clients fill the device.
    pub(super) fn some_page(&self, dice: &mut Pcg64Mcg) -> u32 {
        if !self.habits.persists && dice.random_bool(0.7) {
            dice.random_range(0..self.pages.div_ceil(3))
        } else {
            dice.random_range(0..self.pages)
        }
    }
}

/// The plan of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Intent {
    /// Number of writes left.
    pub(super) writes: u32,
    /// Whether it is rolled back afterwards.
    pub(super) aborts: bool,
    /// Percent of writes that go to the previous write's page.
    pub(super) stays: u32,
    pub(super) brief: bool,
}

/// Whether the device has no block left to write to.
pub(super) fn is_full(error: &DeviceError) -> bool {
    matches!(error, DeviceError::Ftl(FtlError::Full { .. }))
}

/// Whether the error reports a page lost to bit errors.
pub(super) fn is_damage(error: &DeviceError) -> bool {
    matches!(
        error,
        DeviceError::Unreadable(_) | DeviceError::Ftl(FtlError::Unreadable { .. })
    )
}

/// Describes bytes that were read.
pub(super) fn show_bytes(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "nothing".into(),
        Some(bytes) => match bytes.try_into() {
            Ok(payload) => show(&Some(payload)),
            Err(_) => format!(
                "{} bytes that no transaction of this run has written",
                bytes.len()
            ),
        },
    }
}
