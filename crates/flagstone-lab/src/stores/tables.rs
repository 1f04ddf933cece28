//! One run over tables: transactions with savepoints on several tables of both kinds, commits that
//! share a flush, readers of snapshots, and cuts of copies of the medium.
//!
//! What is there after a cut is one of the states after a commit: not older than the last commit
//! that was waited for, and not newer than the last one that had begun. A snapshot shows one such
//! state of the moment when it was taken, and shows the same each time.

use super::RunId;
use super::lie::{Lie, Lying};
use super::run::{CUTS_MAX, Tally};
use flagstone::commit::DeviceError;
use flagstone_store::medium::{Landing, Recorded};
use flagstone_store::tables::{Commit, Kind, Mistake, Pair, ReadTx, Store, TableMut, WriteTx};
use flagstone_store::{OpenOptions, StoreError};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, VecDeque};
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

/// The number of a write, of which its bytes follow.
type Tag = u64;
type Rows = BTreeMap<Vec<u8>, Tag>;
/// The tables that there are, and what they hold.
type State = BTreeMap<&'static str, Rows>;

fn bytes_of(tag: Tag) -> Vec<u8> {
    let word = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let most = match word >> 54 {
        0 => 600_000,
        1..20 => 30_000,
        20..200 => 3_000,
        200..300 => 8,
        _ => 200,
    };
    let len = (word >> 20) as usize % (most + 1);
    let mut bytes = vec![word as u8; len];
    for (byte, known) in bytes.iter_mut().zip(tag.to_le_bytes()) {
        *byte = known;
    }
    bytes
}

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

/// States after commits, as far as a copy of the medium that is not cut yet may hold them.
struct History {
    states: VecDeque<Arc<State>>,
    /// The number of the first of them.
    first: u64,
    /// The number of the last one that was waited for.
    acknowledged: u64,
}

impl History {
    fn new(state: State) -> History {
        History {
            states: [Arc::new(state)].into(),
            first: 0,
            acknowledged: 0,
        }
    }

    /// The states that may be there now.
    fn now(&self) -> (u64, u64) {
        (self.acknowledged, self.last())
    }

    fn last(&self) -> u64 {
        self.first + self.states.len() as u64 - 1
    }

    fn newest(&self) -> Arc<State> {
        self.states.back().expect("there is one").clone()
    }

    /// Forgets what is older than what was acknowledged.
    fn forget(&mut self) {
        while self.first < self.acknowledged {
            self.states.pop_front();
            self.first += 1;
        }
    }

    fn among(&self, (from, to): (u64, u64)) -> Vec<Arc<State>> {
        let numbered = (self.first..).zip(&self.states);
        let among = numbered.filter(|(number, _)| (from..=to).contains(number));
        among.map(|(_, state)| state.clone()).collect()
    }
}

/// A copy of the medium, and which states may be there.
struct Moment {
    medium: Recorded,
    between: (u64, u64),
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
        tally: Tally::default(),
    };
    let rounds = dice.random_range(5..40);
    let medium = Recorded::default();
    if let Err(what) = run.go_on(medium, State::new(), rounds, id.depth, &mut dice) {
        run.violated(what);
    }
    run.tally
}

struct Run {
    id: RunId,
    pages_per_block: u32,
    every: u32,
    tag: u64,
    tally: Tally,
}

fn failed(what: &str) -> impl Fn(StoreError) -> String + '_ {
    move |error| format!("{what}: {error}")
}

impl Run {
    fn open(&self, medium: &Recorded) -> Result<Store, StoreError> {
        let mut options = OpenOptions::default();
        options.pages_per_block = self.pages_per_block;
        self.id.lock(&mut options);
        let lying = Lying::new(medium.clone(), self.id.lie, self.pages_per_block);
        let made = (self.id.lie == Lie::FreedPages).then_some(Mistake::FreedStaysFree);
        Store::mistaken(Box::new(lying), &options, made.into())
    }

    fn violated(&mut self, what: String) {
        self.tally.violations += 1;
        self.tally.first.get_or_insert(what);
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
        let moments: Arc<Mutex<Vec<Moment>>> = Arc::default();
        let between: Arc<Mutex<(u64, u64)>> = Arc::default();
        medium.watch(Some({
            let (moments, between) = (Arc::clone(&moments), Arc::clone(&between));
            let (every, mut dice) = (self.every, Pcg64Mcg::seed_from_u64(dice.random()));
            Box::new(move |medium: &Recorded| {
                if dice.random_range(0..every) == 0 {
                    moments.lock().expect("one thread").push(Moment {
                        medium: medium.snapshot(),
                        between: *between.lock().expect("one thread"),
                    });
                }
            })
        }));
        let mut store = self.open(&medium).map_err(failed("it does not open"))?;
        // Whatever lies in a store that is being made, or whether there is one, is nobody's loss.
        moments.lock().expect("one thread").clear();
        let mut history = History::new(state);
        let mut waiting: Vec<(u64, Commit)> = Vec::new();
        let mut readers: Vec<Reader> = Vec::new();
        for _ in 0..rounds {
            self.read(&store, &history, &mut readers, dice)?;
            if dice.random_range(0..24) == 0 {
                self.wait(&mut waiting, &mut history, &between)?;
                readers.clear();
                drop(store);
                self.look(&moments, &history, depth, dice);
                store = self
                    .open(&medium)
                    .map_err(failed("it does not open again"))?;
            }
            let mut tx = store.write().map_err(failed("begin"))?;
            let mut after = (*history.newest()).clone();
            self.change(&mut tx, &mut after, dice)?;
            if dice.random_range(0..8) == 0 {
                drop(tx);
                continue;
            }
            history.states.push_back(Arc::new(after));
            *between.lock().expect("one thread") = history.now();
            let commit = tx.commit_later().map_err(failed("commit"))?;
            self.tally.committed += 1;
            waiting.push((history.last(), commit));
            // Now and then several commits are under way, and share a flush.
            if dice.random_range(0..3) > 0 {
                self.wait(&mut waiting, &mut history, &between)?;
            }
            self.look(&moments, &history, depth, dice);
            if dice.random_range(0..4) == 0 {
                let between = history.now();
                let medium = medium.snapshot();
                self.cut(&Moment { medium, between }, &history, depth, dice);
            }
            history.forget();
        }
        self.wait(&mut waiting, &mut history, &between)?;
        medium.watch(None);
        store.check()?;
        let read = store.read().map_err(failed("a snapshot"))?;
        compare(&read, &[history.newest()]).map(|_| ())
    }

    /// Waits for all commits that are under way, the last one first or the first one first.
    fn wait(
        &mut self,
        waiting: &mut Vec<(u64, Commit)>,
        history: &mut History,
        between: &Mutex<(u64, u64)>,
    ) -> Result<(), String> {
        self.tally.grouped += waiting.len().saturating_sub(1) as u64;
        if waiting.len().is_multiple_of(2) {
            waiting.reverse();
        }
        for (number, commit) in waiting.drain(..) {
            commit.wait().map_err(failed("waiting for a commit"))?;
            history.acknowledged = history.acknowledged.max(number);
            *between.lock().expect("one thread") = history.now();
        }
        Ok(())
    }

    /// A reader takes a snapshot, ends, or looks.
    fn read(
        &mut self,
        store: &Store,
        history: &History,
        readers: &mut Vec<Reader>,
        dice: &mut Pcg64Mcg,
    ) -> Result<(), String> {
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
                2 if !savepoints.is_empty() => {
                    let at = dice.random_range(0..savepoints.len());
                    tx.release(savepoints[at].0)
                        .map_err(failed("a savepoint"))?;
                    savepoints.truncate(at);
                }
                3 if dice.random_range(0..4) == 0 => {
                    let (name, _) = TABLES[dice.random_range(0..TABLES.len())];
                    let dropped = tx.drop_table(name);
                    match (dropped, state.remove(name)) {
                        (Ok(()), Some(_)) | (Err(StoreError::NoTable(_)), None) => {}
                        (dropped, _) => return Err(format!("dropping `{name}`: {dropped:?}")),
                    }
                }
                _ => {
                    let (name, kind) = TABLES[dice.random_range(0..TABLES.len())];
                    let mut table = tx.open_table(name, kind).map_err(failed("a table"))?;
                    let rows = state.entry(name).or_default();
                    self.change_table(&mut table, rows, dice)?;
                }
            }
        }
        Ok(())
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
    fn look(
        &mut self,
        moments: &Mutex<Vec<Moment>>,
        history: &History,
        depth: u32,
        dice: &mut Pcg64Mcg,
    ) {
        let moments = std::mem::take(&mut *moments.lock().expect("one thread"));
        for moment in moments {
            self.cut(&moment, history, depth, dice);
        }
    }

    /// Cuts a copy, opens what is left, and holds it against the states that may be there.
    fn cut(&mut self, moment: &Moment, history: &History, depth: u32, dice: &mut Pcg64Mcg) {
        if self.tally.cuts >= CUTS_MAX {
            return;
        }
        let landing = Landing::draw(
            moment.medium.pending(),
            dice.random_range(0..8),
            dice.random(),
        );
        self.tally.cuts += 1;
        self.tally.cuts_again += u64::from(depth < self.id.depth);
        let left = moment.medium.cut(landing);
        let place = format!("after cut {}, {landing:?}", self.tally.cuts);
        match self.recover(&left, &history.among(moment.between)) {
            Ok(found) if depth > 1 && dice.random_range(0..6) == 0 => {
                let rounds = dice.random_range(1..8);
                if let Err(what) = self.go_on(left, (*found).clone(), rounds, depth - 1, dice) {
                    self.violated(format!("{place}, and more: {what}"));
                }
            }
            Ok(_) => {}
            Err(what) => self.violated(format!("{place}: {what}")),
        }
    }

    /// Opens what a cut has left; says which of the states it holds.
    fn recover(&self, left: &Recorded, states: &[Arc<State>]) -> Result<Arc<State>, String> {
        let store = self.open(left).map_err(failed("it does not open"))?;
        store.check()?;
        let read = store.read().map_err(failed("a snapshot"))?;
        match compare(&read, states)? {
            Seen::State(state) => Ok(state),
            Seen::Ended => Err("the only snapshot has ended".into()),
        }
    }
}

/// What a reader sees.
enum Seen {
    State(Arc<State>),
    /// Its room was needed.
    Ended,
}

fn has_ended(error: &StoreError) -> bool {
    match error {
        StoreError::Table { error, .. } => has_ended(error),
        StoreError::Device(DeviceError::SnapshotEnded) => true,
        _ => false,
    }
}

/// Finds the state that a reader sees among those that it may see. The error says what differs
/// from the newest of them.
fn compare(read: &ReadTx, states: &[Arc<State>]) -> Result<Seen, String> {
    let mut why = "there is no state that it may see".to_string();
    for state in states {
        match is_in(read, state) {
            Ok(Ok(())) => return Ok(Seen::State(state.clone())),
            Ok(Err(what)) => why = what,
            Err(error) if has_ended(&error) => return Ok(Seen::Ended),
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(why)
}

/// Holds the tables of a reader against a state. The inner error says what differs.
fn is_in(read: &ReadTx, state: &State) -> Result<Result<(), String>, StoreError> {
    let found: Vec<String> = read.tables()?.into_iter().map(|(name, _)| name).collect();
    let wanted: Vec<&str> = state.keys().copied().collect();
    if found != wanted {
        return Ok(Err(format!("the tables are {found:?}, not {wanted:?}")));
    }
    for (name, rows) in state {
        let table = read.table(name)?;
        let differs = |what: String| Ok(Err(format!("table `{name}`: {what}")));
        let mut pairs = table.iter().collect::<Result<Vec<Pair>, _>>()?;
        let mut back = table.iter().rev().collect::<Result<Vec<Pair>, _>>()?;
        if table.kind() == Kind::Hashed {
            pairs.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            back.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        }
        back.reverse();
        let keys = |pairs: &[Pair]| pairs.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
        if keys(&pairs) != keys(&back) {
            return differs("it has other keys from the end than from the begin".into());
        }
        if table.len()? != rows.len() as u64 || pairs.len() != rows.len() {
            return differs(format!("it has {} keys, not {}", pairs.len(), rows.len()));
        }
        let all: Vec<&Vec<u8>> = rows.keys().collect();
        let many = table.get_many(&all)?;
        for (((key, value), (wanted, tag)), again) in pairs.iter().zip(rows).zip(many) {
            let bytes = bytes_of(*tag);
            let same = key == wanted && **value == *bytes;
            if !same || again.as_deref() != Some(&bytes[..]) {
                let key = wanted.escape_ascii();
                return differs(format!(
                    "key `{key}` does not have the value of write {tag}"
                ));
            }
        }
    }
    Ok(Ok(()))
}
