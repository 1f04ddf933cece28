//! Runs over tables: transactions with savepoints on several tables of both kinds, commits that
//! share a flush, and readers of snapshots. A snapshot must show a state that could have existed
//! when it was taken, and always the same one.
//!
//! ```text
//!   tables.rs    what clients and readers do
//!   states.rs    what tables hold, and how a reader is held against that
//!   crowded.rs   what else happens in half of the runs (`filled`)
//!   wide.rs      what else is drawn in some of the runs (`wide`)
//!   scattered.rs rows deleted here and there, and a compaction, in a fourth of the runs
//! ```

mod crowded;
mod scattered;
pub(super) mod states;
mod wide;

use super::StoreRunId;
use super::harness::{Done, Life, May, Media, StoreRun, World, failed};
use super::lie::{Lie, Lying};
use super::tight::Tight;
use super::whole;
use super::wide::{Heals, was_told};
use crowded::Crowd;
use flagstone_store::medium::{Landing, Medium, Recorded};
use flagstone_store::tables::{Commit, ReadTx, Store, TableKind, TableMut, WriteTx};
use flagstone_store::{OpenOptions, PageStore, StoreError, StoreInfo};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use scattered::Scatter;
use states::{Rows, Seen, State, bytes_of, compare};
use std::ops::Range;
use std::sync::Arc;
use wide::Wide;

/// Tables that clients use, with their kinds.
const TABLES: [(&str, TableKind); 4] = [
    ("apples", TableKind::Ordered),
    ("brooks", TableKind::Ordered),
    ("cities", TableKind::Hashed),
    (
        "a table with a name that is as long as names may be and needs some room in the catalog",
        TableKind::Ordered,
    ),
];

/// One of a few keys: short, long, with a common prefix, or too long for an ordered table.
fn key(dice: &mut Pcg64Mcg, kind: TableKind) -> Vec<u8> {
    let number = dice.random_range(0..300u32);
    match dice.random_range(0..8) {
        0 => Vec::new(),
        1 => number.to_be_bytes().to_vec(),
        2 => [&[b'p'; 300][..], number.to_string().as_bytes()].concat(),
        3 if kind == TableKind::Hashed => [&[b'l'; 5_000][..], &number.to_be_bytes()].concat(),
        _ => format!("alike/{number:04}").into_bytes(),
    }
}

/// A reader: its snapshot, and the allowed states; one state after its first look.
struct Reader {
    tx: ReadTx,
    may_see: Vec<Arc<State>>,
}

/// The stores of a run, and how clients use them.
pub(super) struct Tables {
    pages_per_block: u32,
    crowd: Option<Crowd>,
    wide: Option<Wide>,
    scatter: Option<Scatter>,
    /// The limit of the medium, if there is one.
    tight: Option<Tight>,
}

impl Tables {
    /// Stores without crowding.
    pub(super) fn plain(pages_per_block: u32) -> Tables {
        Tables {
            pages_per_block,
            crowd: None,
            wide: None,
            scatter: None,
            tight: None,
        }
    }
}

impl Tables {
    /// Whether the medium sometimes lacks room.
    fn may_be_full(&self) -> bool {
        self.crowd.is_some() || self.tight.is_some()
    }
}

/// Commits in flight: the number of their state, and whether they surely change something.
type Waiting = Vec<(u64, bool, Commit)>;

impl StoreRun<Tables> {
    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::default();
        options.pages_per_block = self.world.pages_per_block;
        options.space = self
            .world
            .crowd
            .as_ref()
            .map_or(options.space, Crowd::space);
        if let Some(wide) = &self.world.wide {
            wide.set(&mut options);
        }
        options.identity = Some(self.id.identity());
        options.force = self.id.forces();
        self.id.lock(&mut options);
        options
    }

    fn open(&self, medium: &Recorded) -> Result<Store, StoreError> {
        self.open_with(medium, &self.options())
    }

    fn open_with(&self, medium: &Recorded, options: &OpenOptions) -> Result<Store, StoreError> {
        let pages_per_block = self.world.pages_per_block;
        let end = self.world.tight.map(|tight| tight.end(pages_per_block));
        let lying = Lying::new(medium.clone(), self.id.lie, pages_per_block).ending_at(end);
        let made = self.id.lie.of_tables();
        let medium: Box<dyn Medium> = match &self.world.crowd {
            Some(crowd) => Box::new(crowd.bound(lying)),
            None => Box::new(lying),
        };
        Store::mistaken(medium, options, crate::made(made))
    }

    /// The description of the store below the tables.
    fn info(&self, medium: &Recorded) -> Result<StoreInfo, String> {
        let lying = Lying::new(medium.snapshot(), self.id.lie, self.world.pages_per_block);
        let opened = PageStore::on(Box::new(lying), &self.options().reading());
        opened
            .map(|store| store.info())
            .map_err(failed("it does not open for reading"))
    }

    /// Returns `true` once in `times` calls of a crowded run, never in another run.
    fn is_crowded_once_in(&mut self, times: u32) -> bool {
        self.world
            .crowd
            .as_mut()
            .is_some_and(|crowd| crowd.once_in(times))
    }

    /// Waits for all commits in flight, in forward or reverse order. A commit without space fails,
    /// and so do all later ones. Returns whether any failed.
    fn wait(&mut self, waiting: &mut Waiting, life: &mut Life<State>) -> Done<bool> {
        self.tally.grouped += waiting.len().saturating_sub(1) as u64;
        if waiting.len().is_multiple_of(2) {
            waiting.reverse();
        }
        let mut lost = u64::MAX;
        for (number, counts, commit) in waiting.drain(..) {
            match commit.wait() {
                Ok(()) => life.acknowledge(number, counts),
                Err(StoreError::Full(_)) if self.world.may_be_full() => lost = lost.min(number),
                Err(error) => return Err(failed("waiting for a commit")(error)),
            }
        }
        if lost == u64::MAX {
            return Ok(false);
        }
        life.lose(lost)?;
        self.tally.refused += 1;
        Ok(true)
    }

    /// Waits for all commits. In a crowded run this sometimes happens during a live transaction,
    /// which fails together with a commit that finds no space.
    fn wait_beside(
        &mut self,
        store: &Store,
        waiting: &mut Waiting,
        life: &mut Life<State>,
    ) -> Done<()> {
        if !self.is_crowded_once_in(4) {
            return self.wait(waiting, life).map(|_| ());
        }
        let mut tx = store.write().map_err(failed("begin"))?;
        let mut after = (*life.newest()).clone();
        if self.is_crowded_once_in(2) {
            tx.table("apples").map_err(failed("a table"))?;
            after.entry("apples").or_default();
        }
        let are_lost = self.wait(waiting, life)?;
        match tx.commit_later() {
            Err(StoreError::Full(_)) if are_lost || self.world.may_be_full() => Ok(()),
            Err(error) => Err(failed("a transaction beside others")(error)),
            Ok(_) if are_lost => Err("a transaction commits whose past found no room".into()),
            Ok(commit) => {
                waiting.push((life.ask(after), false, commit));
                Ok(())
            }
        }
    }

    /// A reader takes a snapshot, ends, or reads.
    fn read(
        &mut self,
        store: &Store,
        readers: &mut Vec<Reader>,
        life: &Life<State>,
        dice: &mut Pcg64Mcg,
    ) -> Done<()> {
        if !readers.is_empty() && dice.random_range(0..8) == 0 {
            readers.swap_remove(dice.random_range(0..readers.len()));
        }
        if readers.len() < 4 && dice.random_range(0..6) == 0 {
            let tx = store.read().map_err(failed("a snapshot"))?;
            let may_see = life.may().states;
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

    /// The steps of one transaction, which change `state` like the store: rows, savepoints, tables
    /// that are dropped, and in crowded runs many tables at once.
    pub(super) fn change(
        &mut self,
        tx: &mut WriteTx,
        state: &mut State,
        dice: &mut Pcg64Mcg,
    ) -> Done<()> {
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
                    let crowd = self.world.crowd.as_mut().expect("it is a crowded run");
                    crowd.change_many(tx, state)?;
                }
                2 if !savepoints.is_empty() => {
                    let at = dice.random_range(0..savepoints.len());
                    tx.release(savepoints[at].0)
                        .map_err(failed("a savepoint"))?;
                    savepoints.truncate(at);
                }
                3 if self.world.crowd.is_some() || dice.random_range(0..4) == 0 => {
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
    fn table(&mut self, dice: &mut Pcg64Mcg) -> (&'static str, TableKind) {
        let crowded = self.world.crowd.as_mut().and_then(Crowd::table);
        crowded.unwrap_or_else(|| TABLES[dice.random_range(0..TABLES.len())])
    }

    /// One step on a table: changes `table` and its model `rows` alike, or compares them.
    fn change_table(
        &mut self,
        table: &mut TableMut<'_>,
        rows: &mut Rows,
        dice: &mut Pcg64Mcg,
    ) -> Done<()> {
        let name = table.name().to_string();
        let wrong = |what: String| Err(format!("table `{name}`: {what}"));
        let mut key = key(dice, table.kind());
        self.tag += 1;
        if let Some(crowd) = &mut self.world.crowd {
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
                // Mostly existing keys.
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
}

impl StoreRun<Tables> {
    /// Uses the store of a life until its steps are done or its medium fails.
    fn live(&mut self, life: &mut Life<State>, steps: u32, dice: &mut Pcg64Mcg) -> Done<()> {
        let run = self;
        let (mut waiting, mut readers) = (Waiting::new(), Vec::new());
        let refused = run.tally.refused;
        let opened = run.open(&life.media.medium);
        let mut store = opened.map_err(failed("it does not open"))?;
        if run.world.crowd.is_none() {
            life.leave_out_opening();
        }
        // Ignore whether an open store can be opened read-only; the cuts test that.
        let info = run.info(&life.media.medium);
        life.opened(info.map_or(0, |info| info.life.commits));
        let medium = life.media.medium.clone();
        let _heals = Heals(medium.clone());
        let fails = run.world.wide.as_ref().and_then(|wide| wide.fails_after);
        medium.fail_at(fails.map(|after| medium.operations() + after));
        for _ in 0..steps {
            run.read(&store, &mut readers, life, dice)?;
            if let Some(crowd) = &mut run.world.crowd {
                crowd.bound_room(&life.media.medium);
            }
            let closes = match &mut run.world.wide {
                Some(wide) => {
                    run.tally.moved += wide.idle(&store)?;
                    if wide.compacts() {
                        // This waits for all commits, so commits without space fail here.
                        run.wait(&mut waiting, life)?;
                        store.compact().map_err(failed("while it is compacted"))?;
                        run.tally.wide.compactions += 1;
                    }
                    run.world.wide.as_mut().is_some_and(Wide::closes)
                }
                None => dice.random_range(0..24) == 0,
            };
            if closes {
                run.tally.wide.closes += 1;
                run.wait(&mut waiting, life)?;
                readers.clear();
                drop(store);
                run.look(life, dice);
                let opened = run.open(&life.media.medium);
                store = opened.map_err(failed("it does not open again"))?;
            }
            run.scatter_now_and_then(&store, &mut waiting, life)?;
            let mut tx = store.write().map_err(failed("begin"))?;
            let before = life.newest();
            let mut after = (*before).clone();
            run.change(&mut tx, &mut after, dice)?;
            run.change_rows(&mut tx, &mut after)?;
            let rolls_back = dice.random_range(0..8) == 0;
            if rolls_back && run.world.wide.as_mut().is_none_or(Wide::rolls_back) {
                // This waits for all commits, so commits without space fail here.
                drop(tx);
                run.wait(&mut waiting, life)?;
                continue;
            }
            // A commit without changes may leave no trace.
            let counts = after != *before;
            let number = life.ask(after);
            let commit = match tx.commit_later() {
                // The commit fails alone, unless commits that it waited for failed because promised
                // space was gone.
                Err(StoreError::Full(_)) if run.world.may_be_full() => {
                    life.lose(number)?;
                    run.tally.refused += 1;
                    run.wait(&mut waiting, life)?;
                    continue;
                }
                commit => commit.map_err(failed("commit"))?,
            };
            run.tally.committed += 1;
            waiting.push((number, counts, commit));
            // Sometimes several commits are in flight, and share a flush.
            let under_way = waiting.len();
            run.tally.wide.group = run.tally.wide.group.max(under_way as u64);
            let waits = match &mut run.world.wide {
                Some(wide) => wide.waits(under_way),
                None => dice.random_range(0..3) > 0,
            };
            if waits {
                run.wait_beside(&store, &mut waiting, life)?;
            }
            run.look_after_commit(life, dice);
        }
        run.wait(&mut waiting, life)?;
        if let Some(crowd) = &run.world.crowd {
            crowd.give_room();
            run.tally.collections += run.info(&life.media.medium)?.life.erases;
        }
        if run.world.tight.is_some() && run.tally.refused > refused {
            readers.clear();
            run.relieve(&store, life)?;
        }
        store.check()?;
        seen(&store, &[life.newest()]).map(|_| ())
    }
}

impl World for Tables {
    type State = State;

    const STEPS: [Range<u32>; 2] = [5..40, 1..8];

    fn draw(id: &StoreRunId, dice: &mut Pcg64Mcg) -> (Tables, u32) {
        let mut tables = Tables {
            crowd: id.filled.then(|| Crowd::new(id.seed)),
            scatter: Scatter::draw(id),
            tight: Tight::of(id),
            ..Tables::plain([16, 16, 24, 32][dice.random_range(0..4)])
        };
        let every = [1, 2, 5][dice.random_range(0..3)];
        if !id.wide {
            return (tables, every);
        }
        let mut wide = Wide::draw(id.seed);
        if let Some(tight) = tables.tight {
            wide.be_tight(tight);
        }
        tables.pages_per_block = wide.pages_per_block;
        let rarely = wide.rarely();
        tables.wide = Some(wide);
        (tables, every * rarely)
    }

    fn landing(pending: u64, dice: &mut Pcg64Mcg) -> Landing {
        Landing::draw(pending, dice.random_range(0..8), dice.random())
    }

    fn fill(run: &mut StoreRun<Tables>, media: &Media) -> Done<State> {
        // The limit of the medium applies only after filling.
        let tight = run.world.tight.take();
        let filled = run.fill(&media.medium);
        run.world.tight = tight;
        filled
    }

    fn live(
        run: &mut StoreRun<Tables>,
        life: &mut Life<State>,
        steps: u32,
        dice: &mut Pcg64Mcg,
    ) -> Done<()> {
        if let (Some(wide), true) = (&run.world.wide, life.is_first(run.id.depth)) {
            wide.count(&mut run.tally.wide);
            run.tally.wide.sparse += u64::from(run.id.is_sparse());
        }
        let lived = run.live(life, steps, dice);
        run.world.crowd.iter().for_each(Crowd::give_room);
        match lived {
            // As in runs over pages, a later cut shows that the failure changed nothing.
            Err(what) if run.world.wide.is_some() && was_told(&what) => {
                run.tally.wide.failures += 1;
                run.look(life, dice);
                run.cut_now(life, 4, dice);
                Ok(())
            }
            lived => lived,
        }
    }

    /// Sometimes ends the process when the copy is made. Another process opens the store, and the
    /// power is cut during that. What the other process has read must remain.
    fn cut(
        run: &mut StoreRun<Tables>,
        medium: &Recorded,
        landing: Landing,
        may: &mut May<State>,
    ) -> Done<Recorded> {
        if !run.is_crowded_once_in(4) {
            return Ok(medium.cut(landing));
        }
        let medium = medium.snapshot();
        // An ordered failure of the medium ends with the process.
        medium.fail_at(None);
        may.counted(&run.info(&medium)?)?;
        let opened = run.open(&medium);
        let store = opened.map_err(failed("it does not open after its process ended"))?;
        may.states = vec![seen(&store, &may.states)?];
        Ok(medium.cut(landing))
    }

    fn recover(run: &mut StoreRun<Tables>, left: &Media, mut may: May<State>) -> Done<Arc<State>> {
        let left = &left.medium;
        let wide = run.world.wide.as_ref().filter(|_| run.id.lie == Lie::None);
        let copied = wide.filter(|wide| wide.copies_after(run.tally.cuts));
        let copied = copied.map(|_| left.snapshot());
        may.counted(&run.info(left)?)?;
        if run.is_crowded_once_in(3) {
            // A read-only opening must show the state that a later opening for writing finds.
            let opened = run.open_with(&left.snapshot(), &run.options().reading());
            let store = opened.map_err(failed("it does not open for reading"))?;
            may.states = vec![seen(&store, &may.states)?];
        }
        let store = run.open(left).map_err(failed("it does not open"))?;
        store.check()?;
        let state = seen(&store, &may.states)?;
        if let Some(medium) = copied {
            whole::hold(&medium, &run.options(), |copy| {
                let store = Store::on(Box::new(copy.clone()), &run.options());
                let store = store.map_err(failed("it does not open"))?;
                store.check()?;
                seen(&store, std::slice::from_ref(&state)).map(|_| ())
            })?;
            run.tally.wide.copies += whole::COPIES;
        }
        Ok(state)
    }
}

/// Finds the one of several states that a store holds.
fn seen(store: &Store, states: &[Arc<State>]) -> Result<Arc<State>, String> {
    let read = store.read().map_err(failed("a snapshot"))?;
    match compare(&read, states)? {
        Seen::State(state) => Ok(state),
        Seen::Ended => Err("the only snapshot has ended".into()),
    }
}
