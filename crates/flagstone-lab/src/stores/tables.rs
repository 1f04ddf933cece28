//! One run over tables: transactions with savepoints on several tables of both kinds, commits that
//! share a flush, readers of snapshots, and cuts of copies of the medium.
//!
//! What is there after a cut is one of the states after a commit: not older than the last commit
//! that was waited for, and not newer than the last one that had begun. A snapshot shows one such
//! state of the moment when it was taken, and shows the same each time.
//!
//! ```text
//!   tables.rs    what clients and readers do, and the cuts
//!   states.rs    what may be there, and how a reader is held against it
//!   crowded.rs   what else happens in half of the runs (`filled`)
//! ```

mod crowded;
mod states;

use super::RunId;
use super::lie::{Lie, Lying};
use super::run::{CUTS_MAX, Tally};
use crowded::Crowd;
use flagstone_store::medium::{Landing, Medium, Recorded};
use flagstone_store::tables::{Commit, Kind, Mistake, ReadTx, Store, TableMut, WriteTx};
use flagstone_store::{OpenOptions, PageStore, StoreError, StoreInfo};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use states::{History, Rows, Seen, State, bytes_of, compare};
use std::sync::{Arc, Mutex};

/// Tables that clients use, with the kind that each has whenever it is there.
const TABLES: [(&str, Kind); 4] = [
    ("apples", Kind::Ordered),
    ("brooks", Kind::Ordered),
    ("cities", Kind::Hashed),
    (
        "a table with a name that is as long as names may be and needs some room in the catalog",
        Kind::Ordered,
    ),
];

/// A key out of few: short, long, alike in front, or so long that only a hashed table takes it.
fn key(dice: &mut Pcg64Mcg, kind: Kind) -> Vec<u8> {
    let number = dice.random_range(0..300u32);
    match dice.random_range(0..8) {
        0 => Vec::new(),
        1 => number.to_be_bytes().to_vec(),
        2 => [&[b'p'; 300][..], number.to_string().as_bytes()].concat(),
        3 if kind == Kind::Hashed => [&[b'l'; 5_000][..], &number.to_be_bytes()].concat(),
        _ => format!("alike/{number:04}").into_bytes(),
    }
}

/// What may be there at a moment.
#[derive(Debug, Clone, Copy, Default)]
struct Right {
    /// The states, by their numbers.
    between: (u64, u64),
    /// Commits that a store which says that it was closed has counted, at least.
    commits: u64,
}

/// A copy of the medium, and what may be there.
struct Moment {
    medium: Recorded,
    right: Right,
}

/// What a run uses until its process ends: the medium, what may be there, and the copies of it that
/// are to be cut.
struct Life {
    medium: Recorded,
    history: History,
    moments: Arc<Mutex<Vec<Moment>>>,
    right: Arc<Mutex<Right>>,
    /// Commits that the store had counted when it was opened, and those after that.
    counted: u64,
    /// Commits that are under way: their state's number, and 1 if they surely change something.
    waiting: Vec<(u64, u64, Commit)>,
    readers: Vec<Reader>,
}

impl Life {
    fn new(medium: Recorded, history: History) -> Life {
        Life {
            medium,
            history,
            moments: Arc::default(),
            right: Arc::default(),
            counted: 0,
            waiting: Vec::new(),
            readers: Vec::new(),
        }
    }

    fn now(&self) -> Right {
        Right {
            between: self.history.now(),
            commits: self.counted,
        }
    }

    /// What may be there has changed.
    fn changed(&self) {
        *self.right.lock().expect("one thread") = self.now();
    }
}

/// A reader: its snapshot, and what it may see; one state, once it has looked.
struct Reader {
    tx: ReadTx,
    may_see: Vec<Arc<State>>,
}

pub(super) fn carry_out(id: &RunId) -> Tally {
    let mut dice = Pcg64Mcg::seed_from_u64(id.seed);
    let mut run = Run {
        id: *id,
        pages_per_block: [16, 16, 24, 32][dice.random_range(0..4)],
        every: [1, 2, 5][dice.random_range(0..3)],
        tag: 0,
        crowd: id.filled.then(|| Crowd::new(id.seed)),
        tally: Tally::default(),
    };
    let rounds = dice.random_range(5..40);
    let medium = Recorded::default();
    let filled = match id.filled {
        true => run.fill(&medium),
        false => Ok(State::new()),
    };
    let went_on = filled.and_then(|state| run.go_on(medium, state, rounds, id.depth, &mut dice));
    if let Err(what) = went_on {
        run.violated(what);
    }
    run.tally
}

struct Run {
    id: RunId,
    pages_per_block: u32,
    every: u32,
    tag: u64,
    crowd: Option<Crowd>,
    tally: Tally,
}

fn failed(what: &str) -> impl Fn(StoreError) -> String + '_ {
    move |error| format!("{what}: {error}")
}

impl Run {
    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::default();
        options.pages_per_block = self.pages_per_block;
        options.space = self.crowd.as_ref().map_or(options.space, Crowd::space);
        self.id.lock(&mut options);
        options
    }

    fn open(&self, medium: &Recorded) -> Result<Store, StoreError> {
        self.open_with(medium, &self.options())
    }

    fn open_with(&self, medium: &Recorded, options: &OpenOptions) -> Result<Store, StoreError> {
        let lying = Lying::new(medium.clone(), self.id.lie, self.pages_per_block);
        let made = (self.id.lie == Lie::FreedPages).then_some(Mistake::FreedStaysFree);
        let medium: Box<dyn Medium> = match &self.crowd {
            Some(crowd) => Box::new(crowd.bound(lying)),
            None => Box::new(lying),
        };
        Store::mistaken(medium, options, made.into())
    }

    /// What the store below the tables says of itself.
    fn info(&self, medium: &Recorded) -> Result<StoreInfo, String> {
        let lying = Lying::new(medium.snapshot(), self.id.lie, self.pages_per_block);
        let opened = PageStore::on(Box::new(lying), &self.options().reading());
        opened
            .map(|store| store.info())
            .map_err(failed("it does not open for reading"))
    }

    fn violated(&mut self, what: String) {
        self.tally.violations += 1;
        self.tally.first.get_or_insert(what);
    }

    fn is_crowded_once_in(&mut self, times: u32) -> bool {
        self.crowd
            .as_mut()
            .is_some_and(|crowd| crowd.once_in(times))
    }

    /// Opens a store and uses it, with cuts on the way. The error is a violation that ends it.
    fn go_on(
        &mut self,
        medium: Recorded,
        state: State,
        rounds: u32,
        depth: u32,
        dice: &mut Pcg64Mcg,
    ) -> Result<(), String> {
        let mut life = Life::new(medium, History::new(state));
        life.medium.watch(Some({
            let (moments, right) = (Arc::clone(&life.moments), Arc::clone(&life.right));
            let (every, mut dice) = (self.every, Pcg64Mcg::seed_from_u64(dice.random()));
            Box::new(move |medium: &Recorded| {
                if dice.random_range(0..every) == 0 {
                    moments.lock().expect("one thread").push(Moment {
                        medium: medium.snapshot(),
                        right: *right.lock().expect("one thread"),
                    });
                }
            })
        }));
        let mut store = self
            .open(&life.medium)
            .map_err(failed("it does not open"))?;
        if self.crowd.is_none() {
            // Whatever lies in a store that is being made, or whether there is one, is nobody's
            // loss.
            life.moments.lock().expect("one thread").clear();
        }
        // Whether an open store can be opened for reading is no matter here: cuts will tell.
        life.counted = self.info(&life.medium).map_or(0, |info| info.life.commits);
        life.changed();
        for _ in 0..rounds {
            self.read(&store, &mut life, dice)?;
            if let Some(crowd) = &mut self.crowd {
                crowd.bound_room(&life.medium);
            }
            if dice.random_range(0..24) == 0 {
                self.wait(&mut life)?;
                life.readers.clear();
                drop(store);
                self.look(&life, depth, dice);
                store = self
                    .open(&life.medium)
                    .map_err(failed("it does not open again"))?;
            }
            let mut tx = store.write().map_err(failed("begin"))?;
            let before = life.history.newest();
            let mut after = (*before).clone();
            self.change(&mut tx, &mut after, dice)?;
            if dice.random_range(0..8) == 0 {
                drop(tx);
                continue;
            }
            // One that changes nothing may leave no trace.
            let counts = u64::from(after != *before);
            life.history.states.push_back(Arc::new(after));
            life.changed();
            let commit = tx.commit_later().map_err(failed("commit"))?;
            self.tally.committed += 1;
            life.waiting.push((life.history.last(), counts, commit));
            // Now and then several commits are under way, and share a flush.
            if dice.random_range(0..3) > 0 {
                self.wait_beside(&store, &mut life)?;
            }
            self.look(&life, depth, dice);
            if dice.random_range(0..4) == 0 {
                let right = life.now();
                let medium = life.medium.snapshot();
                self.cut(&Moment { medium, right }, &life.history, depth, dice);
            }
            life.history.forget();
        }
        self.wait(&mut life)?;
        life.medium.watch(None);
        if let Some(crowd) = &self.crowd {
            crowd.give_room();
            self.tally.collections += self.info(&life.medium)?.life.erases;
        }
        store.check()?;
        let read = store.read().map_err(failed("a snapshot"))?;
        compare(&read, &[life.history.newest()]).map(|_| ())
    }

    /// Waits for all commits that are under way, the last one first or the first one first. Those
    /// that find no room never were, nor those behind them.
    fn wait(&mut self, life: &mut Life) -> Result<bool, String> {
        self.tally.grouped += life.waiting.len().saturating_sub(1) as u64;
        if life.waiting.len().is_multiple_of(2) {
            life.waiting.reverse();
        }
        let mut lost = u64::MAX;
        for (number, counts, commit) in std::mem::take(&mut life.waiting) {
            match commit.wait() {
                Ok(()) => {
                    life.history.acknowledged = life.history.acknowledged.max(number);
                    life.counted += counts;
                    life.changed();
                }
                Err(StoreError::Full(_)) if self.crowd.is_some() => lost = lost.min(number),
                Err(error) => return Err(failed("waiting for a commit")(error)),
            }
        }
        if lost == u64::MAX {
            return Ok(false);
        }
        let acknowledged = life.history.acknowledged;
        if acknowledged >= lost {
            return Err(format!(
                "commit {lost} found no room, and {acknowledged} was acknowledged"
            ));
        }
        self.tally.refused += 1;
        life.history.lose(lost);
        life.changed();
        Ok(true)
    }

    /// Waits for all commits, in a crowded run now and then while a transaction is live: what finds
    /// no room takes it along.
    fn wait_beside(&mut self, store: &Store, life: &mut Life) -> Result<(), String> {
        if !self.is_crowded_once_in(4) {
            return self.wait(life).map(|_| ());
        }
        let mut tx = store.write().map_err(failed("begin"))?;
        let mut after = (*life.history.newest()).clone();
        if self.is_crowded_once_in(2) {
            tx.table("apples").map_err(failed("a table"))?;
            after.entry("apples").or_default();
        }
        let are_lost = self.wait(life)?;
        match tx.commit_later() {
            Err(StoreError::Full(_)) if are_lost => {}
            Err(error) => return Err(failed("a transaction beside others")(error)),
            Ok(_) if are_lost => {
                return Err("a transaction commits whose past found no room".into());
            }
            Ok(commit) => {
                life.history.states.push_back(Arc::new(after));
                life.changed();
                life.waiting.push((life.history.last(), 0, commit));
            }
        }
        Ok(())
    }

    /// A reader takes a snapshot, ends, or looks.
    fn read(&mut self, store: &Store, life: &mut Life, dice: &mut Pcg64Mcg) -> Result<(), String> {
        let (readers, history) = (&mut life.readers, &life.history);
        if !readers.is_empty() && dice.random_range(0..8) == 0 {
            readers.swap_remove(dice.random_range(0..readers.len()));
        }
        if readers.len() < 4 && dice.random_range(0..6) == 0 {
            let tx = store.read().map_err(failed("a snapshot"))?;
            let may_see = history.among(history.now());
            readers.push(Reader { tx, may_see });
        }
        for at in (0..readers.len()).rev() {
            if dice.random_range(0..4) > 0 {
                continue;
            }
            match compare(&readers[at].tx, &readers[at].may_see) {
                Ok(Seen::State(state)) => readers[at].may_see = vec![state],
                Ok(Seen::Ended) => drop(readers.swap_remove(at)),
                Err(what) => return Err(format!("in a snapshot, {what}")),
            }
            self.tally.snapshots += 1;
        }
        Ok(())
    }

    /// What one transaction does.
    fn change(
        &mut self,
        tx: &mut WriteTx,
        state: &mut State,
        dice: &mut Pcg64Mcg,
    ) -> Result<(), String> {
        let steps = [1, 2, 8, 60][dice.random_range(0..4)];
        let mut savepoints = Vec::new();
        for _ in 0..steps {
            match dice.random_range(0..30) {
                0 => savepoints.push((tx.savepoint(), state.clone())),
                1 if !savepoints.is_empty() => {
                    let at = dice.random_range(0..savepoints.len());
                    savepoints.truncate(at + 1);
                    let (savepoint, then) = &savepoints[at];
                    tx.rollback_to(*savepoint).map_err(failed("a savepoint"))?;
                    *state = then.clone();
                }
                4 if self.is_crowded_once_in(3) => {
                    let crowd = self.crowd.as_mut().expect("it is a crowded run");
                    crowd.change_many(tx, state)?;
                }
                2 if !savepoints.is_empty() => {
                    let at = dice.random_range(0..savepoints.len());
                    tx.release(savepoints[at].0)
                        .map_err(failed("a savepoint"))?;
                    savepoints.truncate(at);
                }
                3 if self.crowd.is_some() || dice.random_range(0..4) == 0 => {
                    let (name, _) = self.table(dice);
                    let dropped = tx.drop_table(name);
                    match (dropped, state.remove(name)) {
                        (Ok(()), Some(_)) | (Err(StoreError::NoTable(_)), None) => {}
                        (dropped, _) => return Err(format!("dropping `{name}`: {dropped:?}")),
                    }
                }
                _ => {
                    let (name, kind) = self.table(dice);
                    let mut table = tx.open_table(name, kind).map_err(failed("a table"))?;
                    let rows = state.entry(name).or_default();
                    self.change_table(&mut table, rows, dice)?;
                }
            }
        }
        Ok(())
    }

    /// A table that a client uses.
    fn table(&mut self, dice: &mut Pcg64Mcg) -> (&'static str, Kind) {
        let crowded = self.crowd.as_mut().and_then(Crowd::table);
        crowded.unwrap_or_else(|| TABLES[dice.random_range(0..TABLES.len())])
    }

    fn change_table(
        &mut self,
        table: &mut TableMut<'_>,
        rows: &mut Rows,
        dice: &mut Pcg64Mcg,
    ) -> Result<(), String> {
        let name = table.name().to_string();
        let wrong = |what: String| Err(format!("table `{name}`: {what}"));
        let mut key = key(dice, table.kind());
        self.tag += 1;
        if let Some(crowd) = &mut self.crowd {
            self.tag = crowd.tag(self.tag);
        }
        match dice.random_range(0..20) {
            0..10 => {
                let was = table.insert(&key, &bytes_of(self.tag));
                let was = was.map_err(failed("an insertion"))?;
                if was != rows.insert(key, self.tag).is_some() {
                    return wrong(format!("it says that a key was there: {was}"));
                }
            }
            10..15 => {
                // Mostly of keys that are there.
                if let Some((there, _)) = rows.range(key.clone()..).next() {
                    key = there.clone();
                }
                let was = table.remove(&key).map_err(failed("a removal"))?;
                if was != rows.remove(&key).is_some() {
                    return wrong(format!("it says that a key was there: {was}"));
                }
            }
            15 => {
                let tag = self.tag;
                let pairs = (0..dice.random_range(1..40u64)).map(|i| {
                    let key = format!("batch/{:03}", (tag + i * 7) % 500);
                    (key.into_bytes(), bytes_of(tag + i))
                });
                let pairs: Vec<(Vec<u8>, Vec<u8>)> = pairs.collect();
                table.insert_all(&pairs).map_err(failed("insertions"))?;
                self.tag += pairs.len() as u64;
                rows.extend((tag..).zip(pairs).map(|(tag, (key, _))| (key, tag)));
            }
            16 if dice.random_range(0..8) == 0 => {
                table.clear().map_err(failed("clearing"))?;
                rows.clear();
            }
            17 => {
                let found = table.len().map_err(failed("counting"))?;
                if found != rows.len() as u64 {
                    return wrong(format!("it has {found} keys, not {}", rows.len()));
                }
            }
            _ => {
                let found = table.get(&key).map_err(failed("a search"))?;
                if found.as_deref() != rows.get(&key).map(|&tag| bytes_of(tag)).as_deref() {
                    return wrong(format!("key `{}` has another value", key.escape_ascii()));
                }
            }
        }
        Ok(())
    }

    /// Cuts all copies that were made since the last look.
    fn look(&mut self, life: &Life, depth: u32, dice: &mut Pcg64Mcg) {
        let moments = std::mem::take(&mut *life.moments.lock().expect("one thread"));
        for moment in moments {
            self.cut(&moment, &life.history, depth, dice);
        }
    }

    /// Cuts a copy, opens what is left, and holds it against the states that may be there.
    fn cut(&mut self, moment: &Moment, history: &History, depth: u32, dice: &mut Pcg64Mcg) {
        if self.tally.cuts >= CUTS_MAX {
            return;
        }
        let pending = moment.medium.pending();
        let landing = Landing::draw(pending, dice.random_range(0..8), dice.random());
        self.tally.cuts += 1;
        self.tally.cuts_again += u64::from(depth < self.id.depth);
        let place = format!("after cut {}, {landing:?}", self.tally.cuts);
        let states = history.among(moment.right.between);
        let commits = moment.right.commits;
        let cut = match self.is_crowded_once_in(4) {
            false => Ok((moment.medium.cut(landing), states)),
            true => self.end_and_cut(&moment.medium, &states, commits, landing),
        };
        let recovered = cut.and_then(|(left, states)| {
            let found = self.recover(&left, &states, commits)?;
            Ok((left, found))
        });
        match recovered {
            Ok((left, found)) if depth > 1 && dice.random_range(0..6) == 0 => {
                let rounds = dice.random_range(1..8);
                if let Err(what) = self.go_on(left, (*found).clone(), rounds, depth - 1, dice) {
                    self.violated(format!("{place}, and more: {what}"));
                }
            }
            Ok(_) => {}
            Err(what) => self.violated(format!("{place}: {what}")),
        }
    }

    /// Ends the process where a copy was made, opens the store in another one, and cuts the power
    /// under that. What somebody has read there must stay.
    fn end_and_cut(
        &mut self,
        medium: &Recorded,
        states: &[Arc<State>],
        commits: u64,
        landing: Landing,
    ) -> Result<(Recorded, Vec<Arc<State>>), String> {
        let medium = medium.snapshot();
        self.counted(&medium, commits)?;
        let opened = self.open(&medium);
        let store = opened.map_err(failed("it does not open after its process ended"))?;
        let state = seen(&store, states)?;
        Ok((medium.cut(landing), vec![state]))
    }

    /// A store that says that it was closed has counted all that was acknowledged.
    fn counted(&self, left: &Recorded, commits: u64) -> Result<(), String> {
        let info = self.info(left)?;
        match info.closed == Some(true) && info.life.commits < commits {
            true => Err(format!(
                "it says that it was closed after {} commits, and {commits} were acknowledged",
                info.life.commits
            )),
            false => Ok(()),
        }
    }

    /// Opens what a cut has left; says which of the states it holds.
    fn recover(
        &mut self,
        left: &Recorded,
        states: &[Arc<State>],
        commits: u64,
    ) -> Result<Arc<State>, String> {
        self.counted(left, commits)?;
        let mut states = states.to_vec();
        if self.is_crowded_once_in(3) {
            // Who only reads sees what an opening to write finds then.
            let opened = self.open_with(&left.snapshot(), &self.options().reading());
            let store = opened.map_err(failed("it does not open for reading"))?;
            states = vec![seen(&store, &states)?];
        }
        let store = self.open(left).map_err(failed("it does not open"))?;
        store.check()?;
        seen(&store, &states)
    }
}

/// The one of several states that a store holds.
fn seen(store: &Store, states: &[Arc<State>]) -> Result<Arc<State>, String> {
    let read = store.read().map_err(failed("a snapshot"))?;
    match compare(&read, states)? {
        Seen::State(state) => Ok(state),
        Seen::Ended => Err("the only snapshot has ended".into()),
    }
}
