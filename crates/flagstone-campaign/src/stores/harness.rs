//! The crash harness of stores: the common part of all runs. Clients use a store on a medium.
//! Copies of the medium made meanwhile are cut, and what a cut leaves is opened and compared with
//! the allowed states. Some of these stores are used and cut again. The contents of a store are a
//! [`World`]: pages, or tables in them.
//!
//! After a cut a store may hold one of several states: at least the last acknowledged commit, and
//! at most the last commit that had begun.

use super::on_chip::{Landed, OnChip};
use super::wide::WideTally;
use super::{StoreRunId, older};
use crate::campaign::caught;
use flagstone_store::medium::{Landing, Recorded};
use flagstone_store::{StoreError, StoreInfo};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;
use std::ops::{AddAssign, Range};
use std::sync::{Arc, Mutex};

/// Maximum number of cuts per run, since stores that are used again after a cut multiply.
const CUTS_MAX: u64 = 300;

/// A result, or the description of a violation.
pub(super) type Done<T> = Result<T, String>;

/// Counts over runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreTally {
    /// Power cuts.
    pub cuts: u64,
    /// Cuts of a store that had been cut before.
    pub cuts_again: u64,
    /// Transactions that were committed.
    pub committed: u64,
    /// Blocks collected.
    pub collections: u64,
    /// Pages that page stores moved in idle time.
    pub moved: u64,
    /// Discards of page stores right after a collection, during a transaction.
    pub discards: u64,
    /// Compactions that made a page store smaller.
    pub shrunk: u64,
    /// Blocks by which page stores grew.
    pub grown: u64,
    /// Comparisons of a snapshot with the state at the time it was taken.
    pub snapshots: u64,
    /// Commits in flight together with another one.
    pub grouped: u64,
    /// Commits that failed for lack of space.
    pub refused: u64,
    /// Results on the simulated chip, for runs with one.
    pub on_chip: Landed,
    /// Counts of what wide runs have drawn.
    pub wide: WideTally,
    /// Never-written pages that were read.
    pub empties: u64,
    /// Cuts after which the store did not hold an allowed state.
    pub violations: u64,
    /// The first violation.
    pub first: Option<String>,
}

/// Keeps `first`: the findings of a campaign have the violation of each run.
impl AddAssign for StoreTally {
    fn add_assign(&mut self, other: StoreTally) {
        self.cuts += other.cuts;
        self.cuts_again += other.cuts_again;
        self.committed += other.committed;
        self.collections += other.collections;
        self.moved += other.moved;
        self.discards += other.discards;
        self.shrunk += other.shrunk;
        self.grown += other.grown;
        self.snapshots += other.snapshots;
        self.grouped += other.grouped;
        self.refused += other.refused;
        self.on_chip.add(&other.on_chip);
        self.wide.add(&other.wide);
        self.empties += other.empties;
        self.violations += other.violations;
    }
}

/// The contents of a run's stores, and how clients use them.
pub(super) trait World: Sized {
    /// The committed contents at one moment.
    type State: Clone + Default;

    /// Number of client steps in a new store, and in one that was cut.
    const STEPS: [Range<u32>; 2];

    /// Draws the world of a run, and `n`: one in `n` medium operations is examined.
    fn draw(id: &StoreRunId, dice: &mut Pcg64Mcg) -> (Self, u32);

    /// Draws which of `pending` unsynced sectors are written.
    fn landing(pending: u64, dice: &mut Pcg64Mcg) -> Landing;

    /// Writes to a new store until it collects, with its own random numbers. Returns its contents.
    fn fill(run: &mut StoreRun<Self>, media: &Media) -> Done<Self::State>;

    /// Opens the store of a life, lets clients use it, and compares it with the newest state.
    fn live(
        run: &mut StoreRun<Self>,
        life: &mut Life<Self::State>,
        steps: u32,
        dice: &mut Pcg64Mcg,
    ) -> Done<()>;

    /// Cuts a copy of the medium. May exclude some of the allowed states.
    fn cut(
        run: &mut StoreRun<Self>,
        medium: &Recorded,
        landing: Landing,
        may: &mut May<Self::State>,
    ) -> Done<Recorded> {
        let _ = (run, may);
        Ok(medium.cut(landing))
    }

    /// Cuts the chip that accompanies a medium, which was cut at operation `at`.
    fn cut_chip(run: &mut StoreRun<Self>, chip: &OnChip, at: u64, left: &Recorded) -> Done<OnChip> {
        let _ = (run, at, left);
        Ok(chip.clone())
    }

    /// Opens the store that a cut has left. Returns the state that it holds.
    fn recover(
        run: &mut StoreRun<Self>,
        left: &Media,
        may: May<Self::State>,
    ) -> Done<Arc<Self::State>>;
}

/// The states that are allowed.
pub(super) struct May<S> {
    /// Oldest first.
    pub(super) states: Vec<Arc<S>>,
    /// Minimum commit count of a store that is marked as closed.
    commits: u64,
}

impl<S> May<S> {
    /// Checks that a store marked as closed has counted every acknowledged commit.
    pub(super) fn counted(&self, info: &StoreInfo) -> Done<()> {
        if info.closed == Some(true) && info.life.commits < self.commits {
            Err(format!(
                "it says that it was closed after {} commits, and {} were acknowledged",
                info.life.commits, self.commits
            ))
        } else {
            Ok(())
        }
    }
}

/// Allowed states at one moment, as numbers, and the minimum commit count as in [`May`].
#[derive(Debug, Clone, Copy, Default)]
struct Right {
    between: (u64, u64),
    commits: u64,
}

/// A copy of the medium, and the allowed states.
struct Moment {
    medium: Recorded,
    right: Right,
    /// The operation of the accompanying chip at that moment, if there is a chip.
    on_chip: Option<u64>,
}

impl Moment {
    fn of(medium: &Recorded, chip: Option<&OnChip>, right: Right) -> Moment {
        Moment {
            medium: medium.snapshot(),
            right,
            on_chip: chip.map(OnChip::mark),
        }
    }
}

/// A medium, and optionally a simulated chip that executes the same operations.
pub(super) struct Media {
    pub(super) medium: Recorded,
    pub(super) chip: Option<OnChip>,
}

/// A medium from one cut to the next, and what is known about it.
pub(super) struct Life<S> {
    pub(super) media: Media,
    /// Maximum number of further cuts in a row.
    depth: u32,
    /// States after commits, as long as uncut copies of the medium may still hold them.
    states: VecDeque<Arc<S>>,
    /// The number of the first state, and of the last one whose commit was acknowledged.
    first: u64,
    acknowledged: u64,
    /// The store's commit count at its opening, plus the commits since then.
    counted: u64,
    /// Copies of the medium to cut.
    moments: Arc<Mutex<Vec<Moment>>>,
    right: Arc<Mutex<Right>>,
}

impl<S> Life<S> {
    pub(super) fn new(media: Media, state: S, depth: u32) -> Life<S> {
        Life {
            media,
            depth,
            states: [Arc::new(state)].into(),
            first: 0,
            acknowledged: 0,
            counted: 0,
            moments: Arc::default(),
            right: Arc::default(),
        }
    }

    /// Copies the medium at one in `every` of its operations.
    fn watch(&self, every: u32, mut dice: Pcg64Mcg) {
        let (moments, right) = (Arc::clone(&self.moments), Arc::clone(&self.right));
        let chip = self.media.chip.clone();
        let watcher = move |medium: &Recorded| {
            if dice.random_range(0..every) == 0 {
                let mut moments = moments.lock().expect("one thread");
                // Further copies would never be cut, and a compaction has thousands of operations.
                if (moments.len() as u64) < CUTS_MAX {
                    let right = *right.lock().expect("one thread");
                    moments.push(Moment::of(medium, chip.as_ref(), right));
                }
            }
        };
        self.media.medium.watch(Some(Box::new(watcher)));
    }

    /// Discards the copies made during the first opening: a store under creation holds no data that
    /// could be lost.
    pub(super) fn leave_out_opening(&self) {
        self.take_moments();
    }

    /// Records that the store was opened, with its commit count.
    pub(super) fn opened(&mut self, commits: u64) {
        self.counted = commits;
        self.changed();
    }

    /// Whether no cut has happened yet, given the `depth` of the run.
    pub(super) fn is_first(&self, depth: u32) -> bool {
        self.depth == depth
    }

    /// The copies made since the last call.
    fn take_moments(&self) -> Vec<Moment> {
        std::mem::take(&mut *self.moments.lock().expect("one thread"))
    }

    fn right(&self) -> Right {
        Right {
            between: (self.acknowledged, self.first + self.states.len() as u64 - 1),
            commits: self.counted,
        }
    }

    /// Tells the watcher the new allowed states.
    fn changed(&self) {
        *self.right.lock().expect("one thread") = self.right();
    }

    /// The currently allowed states.
    pub(super) fn may(&self) -> May<S> {
        self.may_at(self.right())
    }

    fn may_at(&self, Right { between, commits }: Right) -> May<S> {
        let numbered = (self.first..).zip(&self.states);
        let among = numbered.filter(|(number, _)| (between.0..=between.1).contains(number));
        let states = among.map(|(_, state)| state.clone()).collect();
        May { states, commits }
    }

    /// The state after the last commit that has begun.
    pub(super) fn newest(&self) -> Arc<S> {
        self.states.back().expect("there is one").clone()
    }

    /// Begins a commit that leads to `state`. Returns the state's number.
    pub(super) fn ask(&mut self, state: S) -> u64 {
        self.states.push_back(Arc::new(state));
        self.changed();
        self.right().between.1
    }

    /// Records an acknowledged commit. `counts` says whether it surely changes something; a commit
    /// without changes may leave no trace.
    pub(super) fn acknowledge(&mut self, number: u64, counts: bool) {
        self.acknowledged = self.acknowledged.max(number);
        self.counted += u64::from(counts);
        self.changed();
    }

    /// Removes the states from number `from` on, whose commits failed.
    pub(super) fn lose(&mut self, from: u64) -> Done<()> {
        let acknowledged = self.acknowledged;
        if acknowledged >= from {
            return Err(format!(
                "commit {from} found no room, and {acknowledged} was acknowledged"
            ));
        }
        self.states.truncate((from - self.first) as usize);
        self.changed();
        Ok(())
    }
}

/// Adds the name of the failed call to an error.
pub(super) fn failed(what: &str) -> impl Fn(StoreError) -> String + '_ {
    move |error| format!("{what}: {error}")
}

/// The state of a run in progress.
pub(super) struct StoreRun<W> {
    pub(super) id: StoreRunId,
    pub(super) world: W,
    pub(super) tally: StoreTally,
    /// The number of the last write, which determines its bytes.
    pub(super) tag: u64,
    /// One in this many medium operations is examined.
    every: u32,
}

/// Executes a run, with a simulated chip beside the medium if requested. A panic of a store counts
/// as a violation.
pub(super) fn carry_out<W: World>(id: &StoreRunId, on_chip: bool) -> StoreTally {
    let mut dice = Pcg64Mcg::seed_from_u64(id.seed);
    let (world, every) = W::draw(id, &mut dice);
    let mut run = StoreRun {
        every,
        ..StoreRun::of(id, world)
    };
    let ended = caught(|| {
        let steps = dice.random_range(W::STEPS[0].clone());
        let media = Media {
            medium: older::medium::<W>(id)?,
            chip: on_chip.then(OnChip::blank),
        };
        let state = if id.filled {
            W::fill(&mut run, &media)?
        } else {
            W::State::default()
        };
        run.go_on(Life::new(media, state, id.depth), steps, &mut dice)
    });
    if let Err(what) = ended {
        run.violated(what);
    }
    run.tally
}

impl<W: World> StoreRun<W> {
    /// A run at its beginning; runs with rot and older stores use its clients only.
    pub(super) fn of(id: &StoreRunId, world: W) -> StoreRun<W> {
        StoreRun {
            id: *id,
            world,
            tally: StoreTally::default(),
            tag: 0,
            every: 1,
        }
    }

    fn violated(&mut self, what: String) {
        self.tally.violations += 1;
        self.tally.first.get_or_insert(what);
    }

    /// Uses a store, with cuts in between. The error is a violation that ends the run.
    fn go_on(&mut self, mut life: Life<W::State>, steps: u32, dice: &mut Pcg64Mcg) -> Done<()> {
        life.watch(self.every, Pcg64Mcg::seed_from_u64(dice.random()));
        let ended = W::live(self, &mut life, steps, dice);
        life.media.medium.watch(None);
        ended
    }

    /// Cuts all copies that were made since the last call.
    pub(super) fn look(&mut self, life: &Life<W::State>, dice: &mut Pcg64Mcg) {
        for moment in life.take_moments() {
            self.cut(&moment, life, dice);
        }
        life.media.chip.iter().for_each(OnChip::forget);
    }

    /// Like `look`; sometimes it also cuts the current medium.
    pub(super) fn look_after_commit(&mut self, life: &mut Life<W::State>, dice: &mut Pcg64Mcg) {
        self.look(life, dice);
        if dice.random_range(0..4) == 0 {
            let Media { medium, chip } = &life.media;
            let now = Moment::of(medium, chip.as_ref(), life.right());
            self.cut(&now, life, dice);
        }
        while life.first < life.acknowledged {
            life.states.pop_front();
            life.first += 1;
        }
    }

    /// Cuts the current medium `times` times.
    pub(super) fn cut_now(&mut self, life: &Life<W::State>, times: u32, dice: &mut Pcg64Mcg) {
        let Media { medium, chip } = &life.media;
        let now = Moment::of(medium, chip.as_ref(), life.right());
        for _ in 0..times {
            self.cut(&now, life, dice);
        }
    }

    /// Cuts a copy, opens what is left, and compares it with the allowed states. Once in six times,
    /// clients then use that store, which is cut again.
    fn cut(&mut self, moment: &Moment, life: &Life<W::State>, dice: &mut Pcg64Mcg) {
        let Moment { medium, right, .. } = moment;
        if self.tally.cuts >= CUTS_MAX {
            return;
        }
        let landing = W::landing(medium.pending(), dice);
        self.tally.cuts += 1;
        self.tally.cuts_again += u64::from(life.depth < self.id.depth);
        let place = format!("after cut {}, {landing:?}", self.tally.cuts);
        let mut may = life.may_at(*right);
        let found = W::cut(self, medium, landing, &mut may).and_then(|medium| {
            let beside = life.media.chip.as_ref().zip(moment.on_chip);
            let chip = beside.map(|(chip, at)| W::cut_chip(self, chip, at, &medium));
            let chip = chip.transpose()?;
            let left = Media { medium, chip };
            Ok((W::recover(self, &left, may)?, left))
        });
        match found {
            Ok((found, left)) if life.depth > 1 && dice.random_range(0..6) == 0 => {
                let steps = dice.random_range(W::STEPS[1].clone());
                let next = Life::new(left, (*found).clone(), life.depth - 1);
                if let Err(what) = self.go_on(next, steps, dice) {
                    self.violated(format!("{place}, and more: {what}"));
                }
            }
            Ok(_) => {}
            Err(what) => self.violated(format!("{place}: {what}")),
        }
    }
}
