//! The crash harness of stores: what runs have in common, whatever their stores hold. Clients use a
//! store on a medium, copies of the medium are cut on the way, and what a cut leaves is opened and
//! held against what may be there. Some of these stores are used and cut again. What a store holds
//! is a [`World`]: pages, or tables in them.
//!
//! After a cut a store may hold a range of states: not older than the last commit that was
//! acknowledged, and not newer than the last one that had begun.

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

/// Cuts of one run, at most: those of stores that were cut before multiply.
const CUTS_MAX: u64 = 300;

/// A result, or a violation.
pub(super) type Done<T> = Result<T, String>;

/// The counts of runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreTally {
    /// Power cuts.
    pub cuts: u64,
    /// Of them, those of a store that had been cut before.
    pub cuts_again: u64,
    /// Transactions that were committed.
    pub committed: u64,
    /// Blocks that were collected.
    pub collections: u64,
    /// Pages that stores of pages moved while they were idle.
    pub moved: u64,
    /// Times that stores of pages gave room back right after a collection, in a transaction.
    pub discards: u64,
    /// Times that stores of pages were compacted and became smaller.
    pub shrunk: u64,
    /// Blocks by which stores of pages grew.
    pub grown: u64,
    /// Times that a snapshot was held against what was committed when it was taken.
    pub snapshots: u64,
    /// Commits that were under way together with another one.
    pub grouped: u64,
    /// Times that commits found no room.
    pub refused: u64,
    /// What was found beside the medium, of runs with a simulated chip there.
    pub on_chip: Landed,
    /// What wide runs have drawn.
    pub wide: WideTally,
    /// Pages that were never written, and were looked at.
    pub empties: u64,
    /// Cuts after which something else was there than had been acknowledged.
    pub violations: u64,
    /// The first of them.
    pub first: Option<String>,
}

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

/// The contents of the stores of a run, and how they are used.
pub(super) trait World: Sized {
    /// The contents that are committed at a moment.
    type State: Clone + Default;

    /// Steps of the clients in a new store, and in one that was cut.
    const STEPS: [Range<u32>; 2];

    /// The world of a run. Of so many operations of the medium, one is looked at.
    fn draw(id: &StoreRunId, dice: &mut Pcg64Mcg) -> (Self, u32);

    /// Which of so many unsynced sectors land.
    fn landing(pending: u64, dice: &mut Pcg64Mcg) -> Landing;

    /// Writes to a new store until it collects, with dice of its own. Returns what it holds then.
    fn fill(run: &mut Run<Self>, media: &Media) -> Done<Self::State>;

    /// Opens the store of a life, lets clients use it, and holds it against the newest state.
    fn live(
        run: &mut Run<Self>,
        life: &mut Life<Self::State>,
        steps: u32,
        dice: &mut Pcg64Mcg,
    ) -> Done<()>;

    /// Cuts a copy of the medium. Of the states that may be there, it may leave out some.
    fn cut(
        run: &mut Run<Self>,
        medium: &Recorded,
        landing: Landing,
        may: &mut May<Self::State>,
    ) -> Done<Recorded> {
        let _ = (run, may);
        Ok(medium.cut(landing))
    }

    /// The chip that a cut leaves beside a medium which was cut at an operation.
    fn cut_chip(run: &mut Run<Self>, chip: &OnChip, at: u64, left: &Recorded) -> Done<OnChip> {
        let _ = (run, at, left);
        Ok(chip.clone())
    }

    /// Opens what a cut has left. Returns the state that it holds.
    fn recover(run: &mut Run<Self>, left: &Media, may: May<Self::State>) -> Done<Arc<Self::State>>;
}

/// The states that may be there.
pub(super) struct May<S> {
    /// The oldest first.
    pub(super) states: Vec<Arc<S>>,
    /// Commits that a store which says that it was closed has counted, at least.
    commits: u64,
}

impl<S> May<S> {
    /// A store that says that it was closed has counted all that was acknowledged.
    pub(super) fn counted(&self, info: &StoreInfo) -> Done<()> {
        match info.closed == Some(true) && info.life.commits < self.commits {
            true => Err(format!(
                "it says that it was closed after {} commits, and {} were acknowledged",
                info.life.commits, self.commits
            )),
            false => Ok(()),
        }
    }
}

/// The same at a moment: states by their numbers, and commits as in [`May`].
#[derive(Debug, Clone, Copy, Default)]
struct Right {
    between: (u64, u64),
    commits: u64,
}

/// A copy of the medium, and what may be there.
struct Moment {
    medium: Recorded,
    right: Right,
    /// The operation that the chip beside it is at, if there is one.
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

/// A medium, and perhaps a simulated chip beside it.
pub(super) struct Media {
    pub(super) medium: Recorded,
    pub(super) chip: Option<OnChip>,
}

/// A medium from one cut to the next, and what is known of it.
pub(super) struct Life<S> {
    pub(super) media: Media,
    /// Cuts in a row that may still follow.
    depth: u32,
    /// States after commits, as far as a copy of the medium that is not cut yet may hold them.
    states: VecDeque<Arc<S>>,
    /// The number of the first of them, and of the last one whose commit was acknowledged.
    first: u64,
    acknowledged: u64,
    /// Commits that the store had counted when it was opened, and those after that.
    counted: u64,
    /// Copies of the medium that are to be cut.
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

    /// Copies the medium at one of so many of its operations.
    fn watch(&self, every: u32, mut dice: Pcg64Mcg) {
        let (moments, right) = (Arc::clone(&self.moments), Arc::clone(&self.right));
        let chip = self.media.chip.clone();
        let watcher = move |medium: &Recorded| {
            if dice.random_range(0..every) == 0 {
                let mut moments = moments.lock().expect("one thread");
                // More of them are never cut, and a compaction has thousands of operations.
                if (moments.len() as u64) < CUTS_MAX {
                    let right = *right.lock().expect("one thread");
                    moments.push(Moment::of(medium, chip.as_ref(), right));
                }
            }
        };
        self.media.medium.watch(Some(Box::new(watcher)));
    }

    /// Leaves out the copies of the first opening: a store that is being made holds nothing that
    /// could be lost.
    pub(super) fn leave_out_opening(&self) {
        self.take_moments();
    }

    /// The store was opened, and has counted so many commits.
    pub(super) fn opened(&mut self, commits: u64) {
        self.counted = commits;
        self.changed();
    }

    /// Whether no cut was before it.
    pub(super) fn is_first(&self, depth: u32) -> bool {
        self.depth == depth
    }

    /// The copies that were made since it was called last.
    fn take_moments(&self) -> Vec<Moment> {
        std::mem::take(&mut *self.moments.lock().expect("one thread"))
    }

    fn right(&self) -> Right {
        Right {
            between: (self.acknowledged, self.first + self.states.len() as u64 - 1),
            commits: self.counted,
        }
    }

    /// Tells the watcher that other states may be there.
    fn changed(&self) {
        *self.right.lock().expect("one thread") = self.right();
    }

    /// The states that may be there now.
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

    /// A commit begins that leads to a state. Returns the number of that.
    pub(super) fn ask(&mut self, state: S) -> u64 {
        self.states.push_back(Arc::new(state));
        self.changed();
        self.right().between.1
    }

    /// A commit was acknowledged. It `counts` if it surely changes something: one that does not may
    /// leave no trace.
    pub(super) fn acknowledge(&mut self, number: u64, counts: bool) {
        self.acknowledged = self.acknowledged.max(number);
        self.counted += u64::from(counts);
        self.changed();
    }

    /// Takes back the states from a number on: their commits failed.
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

/// Names the call that has failed.
pub(super) fn failed(what: &str) -> impl Fn(StoreError) -> String + '_ {
    move |error| format!("{what}: {error}")
}

/// A run that is being carried out.
pub(super) struct Run<W> {
    pub(super) id: StoreRunId,
    pub(super) world: W,
    pub(super) tally: StoreTally,
    /// The number of the last write, of which its bytes follow.
    pub(super) tag: u64,
    every: u32,
}

/// Carries a run out, with a simulated chip beside the medium if asked for. A panic of a store is a
/// violation like any other.
pub(super) fn carry_out<W: World>(id: &StoreRunId, on_chip: bool) -> StoreTally {
    let mut dice = Pcg64Mcg::seed_from_u64(id.seed);
    let (world, every) = W::draw(id, &mut dice);
    let mut run = Run {
        every,
        ..Run::of(id, world)
    };
    let ended = caught(|| {
        let steps = dice.random_range(W::STEPS[0].clone());
        let media = Media {
            medium: older::medium::<W>(id)?,
            chip: on_chip.then(OnChip::blank),
        };
        let state = match id.filled {
            true => W::fill(&mut run, &media)?,
            false => W::State::default(),
        };
        run.go_on(Life::new(media, state, id.depth), steps, &mut dice)
    });
    if let Err(what) = ended {
        run.violated(what);
    }
    run.tally
}

impl<W: World> Run<W> {
    /// A run that another campaign carries out.
    pub(super) fn of(id: &StoreRunId, world: W) -> Run<W> {
        Run {
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

    /// Uses a store, with cuts on the way. The error is a violation that ends it.
    fn go_on(&mut self, mut life: Life<W::State>, steps: u32, dice: &mut Pcg64Mcg) -> Done<()> {
        life.watch(self.every, Pcg64Mcg::seed_from_u64(dice.random()));
        let ended = W::live(self, &mut life, steps, dice);
        life.media.medium.watch(None);
        ended
    }

    /// Cuts all copies that were made since the last look.
    pub(super) fn look(&mut self, life: &Life<W::State>, dice: &mut Pcg64Mcg) {
        for moment in life.take_moments() {
            self.cut(&moment, life, dice);
        }
        life.media.chip.iter().for_each(OnChip::forget);
    }

    /// The same after a commit, and now and then with a cut of the medium as it is now.
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

    /// Cuts the medium as it is now so many times.
    pub(super) fn cut_now(&mut self, life: &Life<W::State>, times: u32, dice: &mut Pcg64Mcg) {
        let Media { medium, chip } = &life.media;
        let now = Moment::of(medium, chip.as_ref(), life.right());
        for _ in 0..times {
            self.cut(&now, life, dice);
        }
    }

    /// Cuts a copy, opens what is left, and holds it against the states that may be there.
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
