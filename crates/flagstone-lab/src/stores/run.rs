//! One run: clients on a store, and cuts of copies of its medium.

use super::RunId;
use super::lie::Lying;
use super::model::{Model, Pages, Writes, bytes_of};
use super::on_chip::{History, Noting};
use flagstone::commit::DeviceError;
use flagstone::units::{Lpn, SnapshotId, TxId};
use flagstone_store::medium::{Landing, Recorded};
use flagstone_store::{OpenOptions, PageStore, StoreError};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::sync::{Arc, Mutex};

/// Writes of a transaction that fills a store, and how many there are at most. Where their pages
/// lie is drawn with dice of their own.
const FILL_WRITES: u32 = 16;
const FILL_MAX: u32 = 4_000;
const FILL: u64 = 0xf111 << 40;
/// How a store grows is drawn with dice of their own as well.
const GROWTH: u64 = 0x9703 << 40;

/// Cuts of one run, at most: those of stores that were cut before multiply.
pub(super) const CUTS_MAX: u64 = 300;

/// What runs did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// Power cuts.
    pub cuts: u64,
    /// Of them, those of a store that had been cut before.
    pub cuts_again: u64,
    /// Transactions that were committed.
    pub committed: u64,
    /// Blocks that were collected.
    pub collections: u64,
    /// Blocks that were added to stores.
    pub grown: u64,
    /// Times that a snapshot was held against what was committed when it was taken.
    pub snapshots: u64,
    /// Commits that were under way together with another one.
    pub grouped: u64,
    /// Times that commits found no room.
    pub refused: u64,
    /// Cuts after which the simulated chip was recovered to the same state as the store.
    pub on_chip: u64,
    /// Of these, those after which it would be another one had all operations landed.
    pub on_chip_otherwise: u64,
    /// Cuts after which something else was there than had been acknowledged.
    pub violations: u64,
    /// The first of them.
    pub first: Option<String>,
}

impl Tally {
    /// Adds what another run did.
    pub fn add(&mut self, other: &Tally) {
        self.cuts += other.cuts;
        self.cuts_again += other.cuts_again;
        self.committed += other.committed;
        self.collections += other.collections;
        self.grown += other.grown;
        self.snapshots += other.snapshots;
        self.grouped += other.grouped;
        self.refused += other.refused;
        self.on_chip += other.on_chip;
        self.on_chip_otherwise += other.on_chip_otherwise;
        self.violations += other.violations;
    }
}

/// The store of a run, and how it is used.
#[derive(Debug, Clone, Copy)]
struct Shape {
    pages_per_block: u32,
    /// Pages that clients write to.
    pages: Pages,
    /// How much room the store takes before it collects, see [`OpenOptions::space`].
    space: f64,
    /// The most writes of a transaction.
    writes: u32,
    clients: usize,
    /// Of so many operations of the medium one is looked at.
    every: u32,
}

impl Shape {
    fn draw(dice: &mut Pcg64Mcg) -> Shape {
        let pages_per_block = [16, 16, 24, 32][dice.random_range(0..4)];
        Shape {
            pages_per_block,
            pages: Pages {
                count: dice.random_range(10..150),
                apart: 1,
            },
            space: OpenOptions::default().space,
            writes: [1, 2, 4, 12, 60][dice.random_range(0..5)],
            clients: dice.random_range(1..4),
            every: [1, 2, 5][dice.random_range(0..3)],
        }
    }
}

impl Shape {
    /// Has the store grow, by dice of its own: pages with high numbers come at any time, or old
    /// versions get more room than there is.
    fn grow(&mut self, seed: u64) {
        let mut dice = Pcg64Mcg::seed_from_u64(seed ^ GROWTH);
        match dice.random_range(0..3) {
            0 => self.space = 30.0,
            _ => self.pages.apart = dice.random_range(2..100),
        }
    }
}

/// A copy of the medium, whether it was made while a transaction committed, and what the device had
/// done by then, if that is noted.
struct Moment {
    medium: Recorded,
    in_commit: bool,
    done: Option<(History, usize)>,
}

fn so_far(history: Option<&History>) -> Option<(History, usize)> {
    history.map(|history| (history.clone(), history.len()))
}

/// What a store must hold.
#[derive(Debug, Clone, Copy)]
struct Right<'a> {
    model: &'a Model,
    /// With the transaction whose commit is under way.
    after: Option<&'a Model>,
    /// Transactions that a store which says that it was closed has counted, at least.
    commits: u64,
}

/// Carries a run out; `on_chip` holds what each cut leaves against the simulated chip as well.
pub(super) fn carry_out(id: &RunId, on_chip: bool) -> Tally {
    let mut dice = Pcg64Mcg::seed_from_u64(id.seed);
    let mut shape = Shape::draw(&mut dice);
    if id.grows {
        shape.grow(id.seed);
    }
    let mut run = Run {
        id: *id,
        shape,
        tag: 0,
        tally: Tally::default(),
    };
    let rounds = dice.random_range(10..80);
    let medium = Recorded::default();
    let history = on_chip.then(|| History::new(run.shape.pages_per_block));
    let filled = match id.filled {
        true => run.fill(&medium, history.as_ref()),
        false => Ok(Model::default()),
    };
    let begin = |model| run.go_on((medium, history), model, rounds, id.depth, &mut dice);
    let went_on = filled.and_then(begin);
    if let Err(what) = went_on {
        run.violated(what);
    }
    run.tally
}

struct Run {
    id: RunId,
    shape: Shape,
    tag: u64,
    tally: Tally,
}

/// Readers of snapshots, with dice of their own: runs do the same with them and without.
struct Readers {
    open: Vec<(SnapshotId, Model)>,
    dice: Pcg64Mcg,
}

impl Readers {
    /// One takes a snapshot, ends, or reads.
    fn step(&mut self, store: &mut PageStore, model: &Model, pages: Pages) -> Result<u64, String> {
        if !self.open.is_empty() && self.dice.random_range(0..8) == 0 {
            let at = self.dice.random_range(0..self.open.len());
            store.end_snapshot(self.open.swap_remove(at).0);
        }
        if self.open.len() < 4 && self.dice.random_range(0..8) == 0 {
            match store.snapshot() {
                Ok(id) => self.open.push((id, model.clone())),
                Err(StoreError::Device(DeviceError::NoSnapshots { .. })) => {}
                Err(error) => return Err(format!("snapshot: {error}")),
            }
        }
        let mut compared = 0;
        // Some end because their room is needed.
        let ftl = store.device().ftl();
        self.open
            .retain(|&(id, _)| ftl.snapshot_slot(id, Lpn(0)).is_some());
        for (id, then) in &self.open {
            if self.dice.random_range(0..4) == 0 {
                compared += 1;
                let read = |at, page: &mut [u8]| store.read_snapshot(*id, at, page);
                let same = then.compare_by(pages, read);
                same.map_err(|error| format!("in a snapshot, {error}"))?;
            }
        }
        Ok(compared)
    }
}

/// A client's transaction.
struct Client {
    tx: TxId,
    writes: Writes,
    left: u32,
}

impl Run {
    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::default().with_protocol(self.id.protocol);
        options.pages_per_block = self.shape.pages_per_block;
        options.space = self.shape.space;
        self.id.lock(&mut options);
        options
    }

    fn open(&self, medium: &Recorded, history: Option<&History>) -> Result<PageStore, StoreError> {
        let below = Lying::new(medium.clone(), self.id.lie, self.shape.pages_per_block);
        let options = self.options();
        match history.cloned() {
            Some(history) => PageStore::on(Box::new(Noting { below, history }), &options),
            None => PageStore::on(Box::new(below), &options),
        }
    }

    fn violated(&mut self, what: String) {
        self.tally.violations += 1;
        self.tally.first.get_or_insert(what);
    }

    /// Writes to a store until it collects, with dice of its own.
    fn fill(&mut self, medium: &Recorded, history: Option<&History>) -> Result<Model, String> {
        let mut dice = Pcg64Mcg::seed_from_u64(self.id.seed ^ FILL);
        let mut model = Model::default();
        let opened = self.open(medium, history);
        let mut store = opened.map_err(|error| format!("it does not open: {error}"))?;
        let failed = |error| format!("while it is filled: {error}");
        for _ in 0..FILL_MAX {
            if store.device().stats().collections > 0 {
                break;
            }
            let tx = store.begin().map_err(failed)?;
            let mut writes = Writes::new();
            for _ in 0..FILL_WRITES {
                let at = self
                    .shape
                    .pages
                    .at(dice.random_range(0..self.shape.pages.count));
                // Under some protocols a transaction writes a page once.
                if writes.contains_key(&at) {
                    continue;
                }
                self.tag += 1;
                match store.write(tx, Lpn(at), &bytes_of(self.tag)) {
                    Ok(()) => _ = writes.insert(at, Some(self.tag)),
                    Err(StoreError::Full(_)) => break,
                    Err(error) => return Err(failed(error)),
                }
            }
            store.commit(tx).map_err(failed)?;
            model = model.with(&writes);
        }
        store.close().map_err(failed)?;
        Ok(model)
    }

    /// Opens a store and uses it, with cuts on the way. The error is a violation that ends it.
    fn go_on(
        &mut self,
        (medium, history): (Recorded, Option<History>),
        mut model: Model,
        rounds: u32,
        depth: u32,
        dice: &mut Pcg64Mcg,
    ) -> Result<(), String> {
        let moments: Arc<Mutex<Vec<Moment>>> = Arc::default();
        let in_commit: Arc<Mutex<bool>> = Arc::default();
        medium.watch(Some({
            let (moments, in_commit) = (Arc::clone(&moments), Arc::clone(&in_commit));
            let (every, mut dice) = (self.shape.every, Pcg64Mcg::seed_from_u64(dice.random()));
            let history = history.clone();
            Box::new(move |medium: &Recorded| {
                if dice.random_range(0..every) == 0 {
                    moments.lock().expect("one thread").push(Moment {
                        medium: medium.snapshot(),
                        in_commit: *in_commit.lock().expect("one thread"),
                        done: so_far(history.as_ref()),
                    });
                }
            })
        }));
        let opened = self.open(&medium, history.as_ref());
        let mut store = opened.map_err(|error| format!("it does not open: {error}"))?;
        let began = store.device().geometry().blocks();
        // Whatever lies in a store that is being made, or whether there is one, is nobody's loss.
        moments.lock().expect("one thread").clear();
        let (mut commits, mut wrote) = (store.info().life.commits, false);
        let mut clients: Vec<Client> = Vec::new();
        let most = store.device().live_max().unwrap_or(u32::MAX) as usize;
        let mut readers = Readers {
            open: Vec::new(),
            dice: Pcg64Mcg::seed_from_u64(self.id.seed ^ self.tag << 32),
        };
        for _ in 0..rounds {
            self.tally.snapshots += readers.step(&mut store, &model, self.shape.pages)?;
            if dice.random_range(0..64) == 0 {
                clients.clear();
                readers.open.clear();
                self.tally.collections += store.device().stats().collections;
                store.close().map_err(|error| format!("close: {error}"))?;
                let opened = self.open(&medium, history.as_ref());
                store = opened.map_err(|error| format!("it does not open again: {error}"))?;
                let right = Right::now(&model, commits);
                right.counted(&store)?;
                // What an opening that wrote nothing has found stays as it is.
                if wrote && store.info().closed != Some(true) {
                    return Err("it was closed, and does not say so".into());
                }
                wrote = false;
                self.look(&moments, right, depth, dice);
            }
            if clients.len() < self.shape.clients.min(most) {
                let tx = store.begin().map_err(|error| format!("begin: {error}"))?;
                let left = dice.random_range(0..=self.shape.writes);
                let writes = Writes::new();
                clients.push(Client { tx, writes, left });
            }
            let at = dice.random_range(0..clients.len());
            if clients[at].left > 0 {
                self.write(&mut store, &mut clients[at], dice)?;
                self.look(&moments, Right::now(&model, commits), depth, dice);
                continue;
            }
            let client = clients.swap_remove(at);
            if dice.random_range(0..6) == 0 {
                let aborted = store.abort(client.tx);
                aborted.map_err(|error| format!("abort: {error}"))?;
                self.look(&moments, Right::now(&model, commits), depth, dice);
                continue;
            }
            let after = model.with(&client.writes);
            *in_commit.lock().expect("one thread") = true;
            let committed = store.commit(client.tx);
            *in_commit.lock().expect("one thread") = false;
            committed.map_err(|error| format!("commit: {error}"))?;
            self.tally.committed += 1;
            let right = Right {
                after: Some(&after),
                ..Right::now(&model, commits)
            };
            self.look(&moments, right, depth, dice);
            model = after;
            // A transaction that wrote nothing may leave no trace.
            commits += u64::from(!client.writes.is_empty());
            wrote |= !client.writes.is_empty();
            if dice.random_range(0..4) == 0 {
                let medium = medium.snapshot();
                let in_commit = false;
                let done = so_far(history.as_ref());
                let moment = Moment {
                    medium,
                    in_commit,
                    done,
                };
                self.cut(&moment, Right::now(&model, commits), depth, dice);
            }
        }
        medium.watch(None);
        self.tally.collections += store.device().stats().collections;
        self.tally.grown += u64::from(store.device().geometry().blocks() - began);
        model.compare(&mut store, self.shape.pages)
    }

    /// One client writes a page, or several that it has left.
    fn write(
        &mut self,
        store: &mut PageStore,
        client: &mut Client,
        dice: &mut Pcg64Mcg,
    ) -> Result<(), String> {
        for _ in 0..dice.random_range(1..=client.left.min(8)) {
            client.left -= 1;
            let at = self
                .shape
                .pages
                .at(dice.random_range(0..self.shape.pages.count));
            self.tag += 1;
            let (tag, trims) = (self.tag, dice.random_range(0..8) == 0);
            let written = match trims {
                true => store.trim(client.tx, Lpn(at)),
                false => store.write(client.tx, Lpn(at), &bytes_of(tag)),
            };
            match written {
                Ok(()) => {
                    client.writes.insert(at, (!trims).then_some(tag));
                }
                // The protocol does not take this page now: another one will do.
                Err(StoreError::Device(
                    DeviceError::Conflict { .. } | DeviceError::WrittenTwice { .. },
                )) => {}
                // Old versions that transactions still need fill a store that cannot grow.
                Err(StoreError::Full(_)) => {
                    client.left = 0;
                    return Ok(());
                }
                Err(error) => return Err(format!("write: {error}")),
            }
        }
        Ok(())
    }

    /// Cuts all copies that were made since the last look.
    fn look(
        &mut self,
        moments: &Mutex<Vec<Moment>>,
        right: Right<'_>,
        depth: u32,
        dice: &mut Pcg64Mcg,
    ) {
        let moments = std::mem::take(&mut *moments.lock().expect("one thread"));
        for moment in moments {
            let after = right.after.filter(|_| moment.in_commit);
            self.cut(&moment, Right { after, ..right }, depth, dice);
        }
    }

    /// Cuts a copy, opens what is left, and holds it against what may be there.
    fn cut(&mut self, moment: &Moment, right: Right<'_>, depth: u32, dice: &mut Pcg64Mcg) {
        if self.tally.cuts >= CUTS_MAX {
            return;
        }
        let (pending, number) = (moment.medium.pending(), dice.random());
        let landing = Landing::draw(pending, dice.random_range(0..8), number);
        self.tally.cuts += 1;
        self.tally.cuts_again += u64::from(depth < self.id.depth);
        let left = moment.medium.cut(landing);
        let cuts = self.tally.cuts;
        let place = |what: String| format!("after cut {cuts}, {landing:?}: {what}");
        let found = self.compare(&left, right, moment.done.as_ref());
        let found = found.map_err(place);
        match found {
            Ok(found) if depth > 1 && dice.random_range(0..6) == 0 => {
                let rounds = dice.random_range(1..12);
                let history = moment
                    .done
                    .as_ref()
                    .map(|(history, count)| history.begin(*count));
                if let Err(what) = self.go_on((left, history), found, rounds, depth - 1, dice) {
                    let what = format!("after cut {} and more: {what}", self.tally.cuts);
                    self.violated(what);
                }
            }
            Ok(_) => {}
            Err(what) => self.violated(what),
        }
    }

    /// Opens what a cut has left; says which of the two states it holds.
    fn compare(
        &mut self,
        left: &Recorded,
        right: Right<'_>,
        done: Option<&(History, usize)>,
    ) -> Result<Model, String> {
        let Right { model, after, .. } = right;
        let opened = self.open(left, None);
        let mut store = opened.map_err(|error| format!("it does not open: {error}"))?;
        store.device().check()?;
        right.counted(&store)?;
        if let Some((history, count)) = done {
            let otherwise = history.compare(*count, left, &mut store, self.shape.pages)?;
            self.tally.on_chip += 1;
            self.tally.on_chip_otherwise += u64::from(otherwise);
        }
        let without = model.compare(&mut store, self.shape.pages);
        let with = after.map(|after| (after, after.compare(&mut store, self.shape.pages)));
        match (without, with) {
            (Ok(()), _) => Ok(model.clone()),
            (_, Some((after, Ok(())))) => Ok(after.clone()),
            (Err(what), None) => Err(what),
            (Err(what), Some((_, Err(other)))) => {
                Err(format!("{what}; with the commit in doubt {other}"))
            }
        }
    }
}

impl<'a> Right<'a> {
    /// Nobody commits.
    fn now(model: &'a Model, commits: u64) -> Right<'a> {
        Right {
            model,
            after: None,
            commits,
        }
    }

    /// A store that says that it was closed has counted all that was committed.
    fn counted(&self, store: &PageStore) -> Result<(), String> {
        let info = store.info();
        match info.closed == Some(true) && info.life.commits < self.commits {
            true => Err(format!(
                "it says that it was closed after {} commits, and {} were acknowledged",
                info.life.commits, self.commits
            )),
            false => Ok(()),
        }
    }
}
