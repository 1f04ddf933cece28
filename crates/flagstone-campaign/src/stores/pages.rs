//! Runs over pages: a few clients write, trim, commit and abort; readers use snapshots.

use super::StoreRunId;
use super::compacting::Compactor;
use super::discards::Discarder;
use super::harness::{Done, Life, May, Media, StoreRun, World, failed};
use super::lie::{Lie, Lying};
use super::model::{Model, Places, Writes, bulk_trimmed, bytes_of};
use super::on_chip::OnChip;
use super::pair::Pair;
use super::tight::Tight;
use super::whole;
use super::wide::{Heals, Wide, was_told};
use flagstone::commit::DeviceError;
use flagstone::units::{Lpn, SnapshotId, TxId};
use flagstone_store::medium::{Landing, Recorded};
use flagstone_store::{OpenOptions, PageStore, StoreError};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::ops::Range;
use std::sync::Arc;

/// Writes per transaction when a store is filled, and the maximum number of writes. Their pages are
/// drawn with separate random numbers.
const FILL_WRITES: u32 = 16;
const FILL_MAX: u32 = 4_000;
const FILL: u64 = 0xf111 << 40;

/// A store may exceed twice its need by this many pages.
const PAGES_MORE: u32 = 4_096;

/// A transaction with more pages exceeds the number of pages buffered for the medium.
const LARGE: u32 = 256;

/// Seed modifier for growth.
const GROWTH: u64 = 0x9703 << 40;

/// Seed modifier for idle work.
const IDLENESS: u64 = 0x1d1e << 40;

/// The store of a run, and how clients use it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pages {
    pub(super) pages_per_block: u32,
    /// Pages that clients write to.
    pub(super) pages: Places,
    /// Space bound of the store, see [`OpenOptions::space`].
    pub(super) space: f64,
    /// Maximum number of writes per transaction.
    writes: u32,
    pub(super) clients: usize,
    /// Whether requests for room sometimes fail.
    refuses: bool,
    /// Further draws of a wide run.
    pub(super) wide: Option<Wide>,
    /// The limit of the medium, if there is one.
    pub(super) tight: Option<Tight>,
}

impl Pages {
    /// Makes the store grow: high page numbers occur at any time, or old versions get more space
    /// than the store has. Uses its own random numbers.
    fn grow(&mut self, seed: u64) {
        let mut dice = Pcg64Mcg::seed_from_u64(seed ^ GROWTH);
        match dice.random_range(0..3) {
            0 => self.space = 30.0,
            _ => self.pages.apart = dice.random_range(2..100),
        }
        self.refuses = dice.random_range(0..3) == 0;
    }

    /// Lets clients write to about as many pages as a tight medium can hold.
    fn be_tight(&mut self) {
        let (Some(tight), Some(wide)) = (self.tight, &mut self.wide) else {
            return;
        };
        wide.bytes = 0;
        self.pages_per_block = tight.pages_per_block;
        self.pages.count = self.pages.count.max(tight.count);
        self.writes = self.writes.max(30);
    }

    /// Maximum number of blocks of the run's stores, if they begin small.
    fn most_blocks(&self) -> u32 {
        let lies = f64::from(self.pages.count * self.pages.apart);
        let holds = f64::from(self.pages.count) * self.space;
        let pages = 2.0 * lies.max(holds) + f64::from(PAGES_MORE);
        pages as u32 / self.pages_per_block
    }
}

/// Readers of snapshots. They use random numbers of their own: runs behave the same without them.
struct Readers {
    open: Vec<(SnapshotId, Model)>,
    dice: Pcg64Mcg,
}

impl Readers {
    /// A reader takes a snapshot, ends, or reads.
    fn step(&mut self, pair: &mut Pair, model: &Model, pages: Places) -> Result<u64, String> {
        if !self.open.is_empty() && self.dice.random_range(0..8) == 0 {
            let at = self.dice.random_range(0..self.open.len());
            pair.end_snapshot(self.open.swap_remove(at).0);
        }
        if self.open.len() < 4 && self.dice.random_range(0..8) == 0 {
            match pair.snapshot() {
                Ok(id) => self.open.push((id, model.clone())),
                Err(StoreError::Device(DeviceError::NoSnapshots { .. })) => {}
                Err(error) => return Err(format!("snapshot: {error}")),
            }
        }
        let (mut compared, store) = (0, pair.store());
        // Some snapshots end because their room is needed.
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

/// In a third of the runs the store is sometimes idle, and collects ahead or releases space. Uses
/// its own random numbers, so that clients behave the same with and without it.
struct Idler {
    dice: Option<Pcg64Mcg>,
}

impl Idler {
    fn of(seed: u64, tag: u64) -> Idler {
        let mut dice = Pcg64Mcg::seed_from_u64(seed ^ IDLENESS);
        let is_one = dice.random_range(0..3) == 0;
        Idler {
            dice: is_one.then(|| Pcg64Mcg::seed_from_u64(seed ^ IDLENESS ^ tag << 32)),
        }
    }

    fn step(&mut self, store: &mut Pair) -> Result<u64, StoreError> {
        let Some(dice) = &mut self.dice else {
            return Ok(0);
        };
        if dice.random_range(0..6) > 0 {
            return Ok(0);
        }
        if dice.random_range(0..6) == 0 {
            store.discard()?;
        }
        store.idle(dice.random_range(1..40)).map(u64::from)
    }
}

/// A live transaction of a client.
pub(super) struct LiveTx {
    pub(super) tx: TxId,
    writes: Writes,
    /// Number of writes left before it ends.
    left: u32,
}

impl StoreRun<Pages> {
    /// The options of the run's stores, without and with the key.
    fn options(&self) -> [OpenOptions; 2] {
        let mut options = OpenOptions::default().with_protocol(self.id.protocol);
        options.pages_per_block = self.world.pages_per_block;
        options.space = self.world.space;
        if let Some(wide) = &self.world.wide {
            wide.set(&mut options);
        }
        options.identity = Some(self.id.identity());
        options.force = self.id.forces();
        options.mistake = crate::made(self.id.lie.of_device());
        let mut locked = options.clone();
        self.id.lock(&mut locked);
        [options, locked]
    }

    /// Opens the store on a medium that may lie, be limited or refuse room, and the one on the chip
    /// if there is a chip.
    fn open(&self, media: &Media) -> Result<Pair, StoreError> {
        let [options, locked] = self.options();
        let Pages {
            pages_per_block,
            refuses,
            ..
        } = self.world;
        let lying = || {
            let lying = Lying::new(media.medium.clone(), self.id.lie, pages_per_block);
            let end = self.world.tight.map(|tight| tight.end(pages_per_block));
            let lying = lying.ending_at(end);
            if refuses {
                lying.refusing(self.id.seed)
            } else {
                lying
            }
        };
        match &media.chip {
            Some(chip) => Pair::open(lying, chip, [&options, &locked], self.world.most_blocks()),
            None => Pair::alone(lying(), &locked),
        }
    }

    fn close(&self, pair: Pair, media: &Media) -> Done<()> {
        let closed = pair.close(&media.medium, &self.options()[1])?;
        closed.map_err(failed("close"))
    }

    /// Checks a store that is marked as closed: it lost nothing that it wrote before, not even what
    /// the next opening can do without (its tables, and pages that nothing refers to).
    fn closed_whole(&self, left: &Recorded) -> Done<()> {
        let [_, locked] = self.options();
        let mut reading = locked.uncached();
        (reading.create, reading.read_only) = (false, true);
        let opened = PageStore::on(Box::new(left.snapshot()), &reading);
        let mut store = opened.map_err(failed("it does not open for reading"))?;
        if store.info().closed != Some(true) {
            return Ok(());
        }
        let report = store.check().map_err(failed("check"))?;
        if report.is_well() {
            Ok(())
        } else {
            Err(format!("it says that it was closed, and {report:?}"))
        }
    }

    /// Checks that copies of a whole store have its contents.
    fn hold_copies(&mut self, medium: &Recorded, state: &Model) -> Done<()> {
        let [_, locked] = self.options();
        whole::hold(medium, &locked, |copy| {
            let opened = PageStore::on(Box::new(copy.clone()), &locked);
            let mut store = opened.map_err(failed("it does not open"))?;
            state.compare(&mut store, self.world.pages)
        })?;
        self.tally.wide.copies += whole::COPIES;
        Ok(())
    }

    /// One client performs one or several of the remaining writes of its transaction. None remain
    /// once a write finds no space.
    fn write(&mut self, store: &mut Pair, live: &mut LiveTx, dice: &mut Pcg64Mcg) -> Done<()> {
        // Up to 8; of a transaction with more than LARGE left, any number up to all.
        let at_once = if live.left > LARGE { live.left } else { 8 };
        for _ in 0..dice.random_range(1..=live.left.min(at_once)) {
            live.left -= 1;
            let at = self.world.pages.draw(dice);
            self.tag += 1;
            let (tag, trims) = (self.tag, dice.random_range(0..8) == 0);
            let written = if trims {
                store.trim(live.tx, Lpn(at))
            } else {
                store.write(live.tx, Lpn(at), &bytes_of(tag))
            };
            match written {
                Ok(()) => {
                    live.writes.insert(at, (!trims).then_some(tag));
                    if trims {
                        // A page that the store refuses is left out.
                        for at in bulk_trimmed(self.id.seed, tag, self.world.pages) {
                            if store.trim(live.tx, Lpn(at)).is_ok() {
                                live.writes.insert(at, None);
                            }
                        }
                    }
                }
                // The protocol cannot accept this page now. Try another one.
                Err(StoreError::Device(DeviceError::Conflict { .. })) => {}
                // A store that cannot grow is full of old versions that transactions still need.
                Err(StoreError::Full(_)) => {
                    self.tally.refused += 1;
                    live.left = 0;
                    return Ok(());
                }
                Err(error) => return Err(format!("write: {error}")),
            }
        }
        Ok(())
    }
}

impl StoreRun<Pages> {
    /// Uses the store of a life until its steps are done or its medium fails.
    fn live(&mut self, life: &mut Life<Model>, steps: u32, dice: &mut Pcg64Mcg) -> Done<()> {
        let run = self;
        let opened = run.open(&life.media);
        let mut store = opened.map_err(failed("it does not open"))?;
        let began = store.store().device().geometry().blocks();
        life.leave_out_opening();
        life.opened(store.store().info().life.commits);
        let wide = run.world.wide;
        let medium = life.media.medium.clone();
        let _heals = Heals(medium.clone());
        medium.fail_at(wide.and_then(|wide| Some(medium.operations() + wide.fails_after?)));
        let refused = run.tally.refused;
        let mut wrote = false;
        let mut live: Vec<LiveTx> = Vec::new();
        let most = store.store().device().live_max().unwrap_or(u32::MAX) as usize;
        let most = run.world.clients.min(most);
        let mut readers = Readers {
            open: Vec::new(),
            dice: Pcg64Mcg::seed_from_u64(run.id.seed ^ run.tag << 32),
        };
        let mut idler = Idler::of(run.id.seed, run.tag);
        let mut discarder = Discarder::of(run.id.seed, run.tag);
        let mut compactor = Compactor::of(run.id.seed, run.tag);
        for _ in 0..steps {
            let moved = idler.step(&mut store).map_err(failed("while it is idle"))?;
            run.tally.moved += moved;
            let compared = readers.step(&mut store, &life.newest(), run.world.pages)?;
            run.tally.snapshots += compared;
            if dice.random_range(0..wide.map_or(64, |wide| wide.closes)) == 0 {
                live.clear();
                run.tally.wide.closes += 1;
                readers.open.clear();
                run.tally.collections += store.store().device().stats().collections;
                run.close(store, &life.media)?;
                let opened = run.open(&life.media);
                store = opened.map_err(failed("it does not open again"))?;
                store.compare()?;
                let info = store.store().info();
                life.may().counted(&info)?;
                // An opening that wrote nothing leaves the closed mark unchanged.
                if wrote && info.closed != Some(true) {
                    return Err("it was closed, and does not say so".into());
                }
                wrote = false;
                run.look(life, dice);
            }
            if let Some(trims) = compactor.is_due(run.world.pages) {
                let (trims, all) = (trims, std::mem::take(&mut live));
                run.compact(&mut store, life, (all, trims), dice)?;
            }
            if live.len() < most {
                let tx = store.begin().map_err(failed("begin"))?;
                let mut left = dice.random_range(0..=run.world.writes);
                if let Some(large) = wide.and_then(|wide| wide.large)
                    && dice.random_range(0..8) == 0
                {
                    left = large;
                    run.tally.wide.large += 1;
                }
                let writes = Writes::new();
                live.push(LiveTx { tx, writes, left });
            }
            let at = dice.random_range(0..live.len());
            if live[at].left > 0 {
                run.write(&mut store, &mut live[at], dice)?;
                let discarded = discarder.step(&mut store);
                run.tally.discards += discarded.map_err(failed("discard"))?;
                run.look(life, dice);
                continue;
            }
            let LiveTx { tx, writes, .. } = live.swap_remove(at);
            if dice.random_range(0..6) == 0 {
                store.abort(tx).map_err(failed("abort"))?;
                run.look(life, dice);
                continue;
            }
            let number = life.ask(life.newest().with(&writes));
            match store.commit(tx) {
                Ok(()) => run.tally.committed += 1,
                // A commit without space is rolled back without a trace.
                Err(StoreError::Full(_)) => {
                    run.tally.refused += 1;
                    life.lose(number)?;
                    store.abort(tx).map_err(failed("abort"))?;
                    run.look(life, dice);
                    continue;
                }
                Err(error) => return Err(failed("commit")(error)),
            }
            // A transaction without writes may leave no trace.
            life.acknowledge(number, !writes.is_empty());
            wrote |= !writes.is_empty();
            run.look_after_commit(life, dice);
        }
        if run.world.tight.is_some() && run.tally.refused > refused {
            readers
                .open
                .drain(..)
                .for_each(|(id, _)| store.end_snapshot(id));
            run.relieve(&mut store, life, live)?;
        }
        let alone = store.store();
        run.tally.collections += alone.device().stats().collections;
        run.tally.grown += u64::from(alone.device().geometry().blocks().saturating_sub(began));
        life.newest().compare(alone, run.world.pages)?;
        life.media.chip.as_ref().map_or(Ok(()), OnChip::same)
    }
}

impl World for Pages {
    type State = Model;

    const STEPS: [Range<u32>; 2] = [10..80, 1..12];

    fn draw(id: &StoreRunId, dice: &mut Pcg64Mcg) -> (Pages, u32) {
        let mut pages = Pages {
            pages_per_block: [16, 16, 24, 32][dice.random_range(0..4)],
            pages: Places {
                count: dice.random_range(10..150),
                apart: 1,
            },
            space: OpenOptions::default().space,
            writes: [1, 2, 4, 12, 60][dice.random_range(0..5)],
            clients: dice.random_range(1..4),
            refuses: false,
            wide: None,
            tight: Tight::of(id),
        };
        if id.grows {
            pages.grow(id.seed);
        }
        let rarely = if id.wide {
            Wide::draw(id.seed, &mut pages)
        } else {
            1
        };
        pages.be_tight();
        (pages, [1, 2, 5][dice.random_range(0..3)] * rarely)
    }

    fn landing(pending: u64, dice: &mut Pcg64Mcg) -> Landing {
        let number = dice.random();
        Landing::draw(pending, dice.random_range(0..8), number)
    }

    fn fill(run: &mut StoreRun<Pages>, media: &Media) -> Done<Model> {
        let mut dice = Pcg64Mcg::seed_from_u64(run.id.seed ^ FILL);
        let mut model = Model::default();
        // The limit of the medium applies only after filling.
        let tight = run.world.tight.take();
        let opened = run.open(media);
        run.world.tight = tight;
        let mut store = opened.map_err(failed("it does not open"))?;
        let failed = |error| failed("while it is filled")(error);
        for _ in 0..FILL_MAX {
            if store.store().device().stats().collections > 0 {
                break;
            }
            let tx = store.begin().map_err(failed)?;
            let mut writes = Writes::new();
            for _ in 0..FILL_WRITES {
                let at = run.world.pages.draw(&mut dice);
                // Under some protocols a transaction can write a page only once.
                if writes.contains_key(&at) {
                    continue;
                }
                run.tag += 1;
                match store.write(tx, Lpn(at), &bytes_of(run.tag)) {
                    Ok(()) => _ = writes.insert(at, Some(run.tag)),
                    Err(StoreError::Full(_)) => break,
                    Err(error) => return Err(failed(error)),
                }
            }
            store.commit(tx).map_err(failed)?;
            model = model.with(&writes);
        }
        run.close(store, media)?;
        Ok(model)
    }

    fn live(
        run: &mut StoreRun<Pages>,
        life: &mut Life<Model>,
        steps: u32,
        dice: &mut Pcg64Mcg,
    ) -> Done<()> {
        if let (Some(wide), true) = (run.world.wide, life.is_first(run.id.depth)) {
            wide.count(&run.world, &mut run.tally.wide);
            run.tally.wide.sparse += u64::from(run.id.is_sparse());
        }
        let lived = run.live(life, steps, dice);
        match lived {
            // The failure was reported, and a cut of the medium shows that nothing else happened.
            Err(what) if run.world.wide.is_some() && was_told(&what) => {
                run.tally.wide.failures += 1;
                run.look(life, dice);
                run.cut_now(life, 4, dice);
                Ok(())
            }
            lived => lived,
        }
    }

    fn cut_chip(
        run: &mut StoreRun<Pages>,
        chip: &OnChip,
        at: u64,
        left: &Recorded,
    ) -> Done<OnChip> {
        let [_, locked] = run.options();
        let (chip, landed) = chip.cut(at, left, &locked, run.id.lie)?;
        run.tally.on_chip.add(&landed);
        Ok(chip)
    }

    fn recover(run: &mut StoreRun<Pages>, left: &Media, may: May<Model>) -> Done<Arc<Model>> {
        run.closed_whole(&left.medium)?;
        let wide = run.world.wide.filter(|_| run.id.lie == Lie::None);
        let copied = wide.filter(|wide| wide.copies_after(run.tally.cuts));
        let copied = copied.map(|_| left.medium.snapshot());
        let mut pair = run.open(left).map_err(failed("it does not open"))?;
        pair.compare_at_last()?;
        let by_tables = left.chip.as_ref().map_or(0, OnChip::take_by_tables);
        run.tally.on_chip.by_tables += by_tables;
        let store = pair.store();
        store.device().check()?;
        may.counted(&store.info())?;
        let mut differs = Vec::new();
        for state in may.states {
            match state.compare(store, run.world.pages) {
                Ok(()) => {
                    run.tally.empties += run.world.pages.never_written().count() as u64;
                    if let Some(medium) = copied {
                        run.hold_copies(&medium, &state)?;
                    }
                    return Ok(state);
                }
                Err(what) => differs.push(what),
            }
        }
        Err(differs.join("; with the commit in doubt "))
    }
}
