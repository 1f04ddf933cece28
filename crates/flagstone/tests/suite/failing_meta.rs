//! Failing programs of roots, mapping pages and log pages under every protocol: one or many in
//! turn, temporarily or permanently. Acknowledged data must stay readable, also after a restart,
//! and data must be gone after a reported rollback.

use flagstone::commit::{Device, DeviceError, Kind, Options};
use flagstone::dice::Dice;
use flagstone::forward_flash;
use flagstone::ftl::{Config, FtlError, PageKind, header};
use flagstone::layout::get;
use flagstone::nand::{Cell, Chip, Flash, FlashError, Geometry, Read, Shared, small};
use flagstone::settings::Settings;
use flagstone::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

const PAGES: u32 = 300;

const GEOMETRY: Geometry = Geometry {
    channels: 1,
    packages_per_channel: 2,
    blocks_per_plane: 60,
    pages_per_block: 6,
    strict_order: false,
    ..small::GEOMETRY
};

/// Which programs fail.
#[derive(Debug, Default)]
struct Plan {
    kinds: Vec<u8>,
    /// Number of programs of these kinds that succeed, and number of those that fail after them.
    pass: u32,
    fail: u32,
    /// One in this many erases fails during that time, and then all erases of that block.
    erases: Option<u32>,
    erased: u32,
    worn: BTreeSet<Pbn>,
    unreadable: BTreeSet<Ppn>,
}

impl Plan {
    fn of(plan: &Mutex<Plan>) -> MutexGuard<'_, Plan> {
        plan.lock().expect("no thread panics here")
    }

    /// Lets the next `programs` programs of a kind fail.
    fn fail_all(&mut self, kind: PageKind, programs: u32) {
        (self.kinds, self.fail) = (vec![kind as u8], programs);
    }
}

/// A chip whose programs fail as planned, and which can grow.
struct Failing {
    chip: Shared<Chip>,
    plan: Arc<Mutex<Plan>>,
    geometry: Geometry,
}

impl Flash for Failing {
    forward_flash!([chip] but geometry read program erase grow peek);

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn grow(&mut self, blocks: u32) -> Result<(), FlashError> {
        self.geometry.blocks_per_plane += blocks;
        Ok(())
    }

    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        let read = self.chip.read(now, at, data, spare)?;
        if Plan::of(&self.plan).unreadable.contains(&at) {
            Err(FlashError::Uncorrectable {
                at,
                done: read.done,
            })
        } else {
            Ok(read)
        }
    }

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        let done = self.chip.program(now, at, data, spare)?;
        let kind = get(spare, header::KIND) as u8 & 0x1f;
        let mut plan = Plan::of(&self.plan);
        if plan.fail == 0 || !plan.kinds.contains(&kind) {
            return Ok(done);
        }
        if plan.pass > 0 {
            plan.pass -= 1;
            return Ok(done);
        }
        plan.fail -= 1;
        plan.unreadable.insert(at);
        Err(FlashError::ProgramFailed { at, done })
    }

    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        let mut plan = Plan::of(&self.plan);
        if let Some(every) = plan.erases.filter(|_| plan.fail > 0 && plan.pass == 0) {
            plan.erased += 1;
            if plan.erased.is_multiple_of(every) {
                plan.worn.insert(block);
            }
        }
        if plan.worn.contains(&block) {
            return Err(FlashError::EraseFailed { block, done: now });
        }
        drop(plan);
        let done = self.chip.erase(now, block)?;
        let geometry = *self.chip.geometry();
        let of_others = |&at: &Ppn| geometry.block_of(at) != block;
        Plan::of(&self.plan).unreadable.retain(of_others);
        Ok(done)
    }
}

/// A live transaction, and its writes.
struct Live {
    tx: TxId,
    client: u32,
    pages: Vec<(u32, u8)>,
}

struct Run {
    kind: Kind,
    chip: Shared<Chip>,
    plan: Arc<Mutex<Plan>>,
    device: Device,
    now: Nanos,
    dice: Dice,
    holds: Vec<u8>,
    live: Vec<Live>,
    refused: u32,
    /// Of this many steps of a client, three end its transaction.
    ends: u32,
}

const CLIENTS: u32 = 3;

/// Cell type, blocks per plane, and [`Run::ends`].
type Shape = (Cell, u32, u32);

impl Run {
    fn new(kind: Kind, (cell, blocks_per_plane, ends): Shape, seed: u64) -> Option<Run> {
        let geometry = Geometry {
            cell,
            blocks_per_plane,
            strict_order: seed % 2 == 1,
            ..GEOMETRY
        };
        let chip = Shared::new(small::chip(geometry));
        let plan = Arc::default();
        let device = match open(kind, &chip, &plan) {
            Err(DeviceError::Unsuitable(_)) => return None,
            opened => opened.expect("it is blank"),
        };
        Some(Run {
            kind,
            now: device.recovered_at(),
            device,
            chip,
            plan,
            dice: Dice(seed),
            holds: vec![0; PAGES as usize],
            live: Vec::new(),
            refused: 0,
            ends,
        })
    }

    fn restart(&mut self) -> Result<(), String> {
        let opened = open(self.kind, &self.chip, &self.plan);
        self.device = opened.map_err(|error| format!("it does not start: {error}"))?;
        self.now = self.device.recovered_at();
        self.live.clear();
        self.look("after a restart")
    }

    fn look(&mut self, when: &str) -> Result<(), String> {
        self.device
            .check()
            .map_err(|why| format!("{when}: {why}"))?;
        let now = self.now;
        let value = |device: &mut Device, tx, at| {
            let read = device.read(now, tx, Lpn(at));
            let (_, bytes) = read.map_err(|error| format!("{when}, page {at}: {error}"))?;
            Ok::<u8, String>(bytes.map_or(0, |bytes| *bytes.first().unwrap_or(&255)))
        };
        for at in 0..PAGES {
            let (value, wanted) = (value(&mut self.device, None, at)?, self.holds[at as usize]);
            if value != wanted {
                return Err(format!("{when}, page {at} holds {value}, not {wanted}"));
            }
        }
        for live in &self.live {
            for &(at, wanted) in &live.pages {
                let value = value(&mut self.device, Some(live.tx), at)?;
                if value != wanted {
                    return Err(format!("{when}, {at} in {} holds {value}", live.tx));
                }
            }
        }
        Ok(())
    }

    fn refuse(&mut self, what: &str, error: &DeviceError) -> Result<(), String> {
        self.refused += 1;
        match error {
            DeviceError::Ftl(FtlError::MetaFull | FtlError::Full { .. }) => Ok(()),
            other => Err(format!("{what}: {other}")),
        }
    }

    /// Rolls a transaction back. If that fails, restarts the device.
    fn abort(&mut self, at: usize) -> Result<(), String> {
        let live = self.live.remove(at);
        match self.device.abort(self.now, live.tx) {
            Ok(done) => self.now = done,
            Err(error) => {
                self.refuse("abort", &error)?;
                self.restart()?;
            }
        }
        Ok(())
    }

    /// Executes one step of a client.
    fn step(&mut self) -> Result<(), String> {
        let client = self.dice.pick(CLIENTS);
        let Some(at) = self.live.iter().position(|live| live.client == client) else {
            match self.device.begin(self.now) {
                Ok(tx) => self.live.push(Live {
                    tx,
                    client,
                    pages: Vec::new(),
                }),
                Err(DeviceError::TooManyLive { .. }) => {}
                Err(error) => {
                    self.refuse("begin", &error)?;
                    self.look("after a begin that failed")?;
                }
            }
            return Ok(());
        };
        let tx = self.live[at].tx;
        match self.dice.pick(self.ends) {
            0 => {
                self.abort(at)?;
                if self.dice.one_in(4) {
                    self.look("after a rollback")?;
                }
            }
            1 | 2 => match self.device.commit(self.now, tx) {
                Ok(done) => {
                    self.now = done.expect("no group is waited for");
                    for (page, value) in self.live.remove(at).pages {
                        self.holds[page as usize] = value;
                    }
                }
                Err(error) => {
                    self.refuse("commit", &error)?;
                    self.look("after a commit that failed")?;
                    if self.dice.one_in(2) {
                        self.abort(at)?;
                        self.look("after a commit that failed was taken back")?;
                    }
                }
            },
            _ => {
                // Each client has its own pages.
                let page = self.dice.pick(PAGES / CLIENTS) * CLIENTS + client;
                let value = self.dice.pick(250) as u8 + 1;
                match self.device.write(self.now, tx, Lpn(page), &[value]) {
                    Ok(taken) => {
                        self.now = taken.next;
                        let pages = &mut self.live[at].pages;
                        pages.retain(|&(p, _)| p != page);
                        pages.push((page, value));
                    }
                    Err(error) => {
                        self.refuse("write", &error)?;
                        self.look("after a write that failed")?;
                        if self.dice.one_in(2) {
                            self.abort(at)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn steps(&mut self, count: u32) -> Result<(), String> {
        for _ in 0..count {
            self.step()?;
            if self.dice.one_in(50) {
                self.look("on the way")?;
            }
        }
        self.look("at the end")
    }
}

fn open(kind: Kind, chip: &Shared<Chip>, plan: &Arc<Mutex<Plan>>) -> Result<Device, DeviceError> {
    let shown = *chip.geometry();
    open_as(kind, (chip, shown), plan, Config::small(PAGES, Some(3)), 1)
}

fn open_as(
    kind: Kind,
    (chip, geometry): (&Shared<Chip>, Geometry),
    plan: &Arc<Mutex<Plan>>,
    config: Config,
    group: u32,
) -> Result<Device, DeviceError> {
    let mut options = Options::default();
    options.settings = Settings::new()
        .with("group", group)
        .with("zone_blocks", 8)
        .keep_those_of(kind.info());
    let (chip, plan) = (chip.clone(), Arc::clone(plan));
    let flash = Box::new(Failing {
        chip,
        plan,
        geometry,
    });
    Device::open(flash, kind, config, &options, Nanos::ZERO)
}

/// Executes a run. Returns the number of refused operations.
fn run(
    kind: Kind,
    shape: Shape,
    kinds: &[PageKind],
    erases: Option<u32>,
    (pass, fail): (u32, u32),
    seed: u64,
) -> Result<u32, String> {
    // The geometry may be too small for the protocol.
    let Some(mut run) = Run::new(kind, shape, seed) else {
        return Ok(0);
    };
    run.steps(1500)?;
    {
        let mut plan = Plan::of(&run.plan);
        plan.kinds = kinds.iter().map(|&kind| kind as u8).collect();
        (plan.pass, plan.fail, plan.erases) = (pass, fail, erases);
    }
    run.steps(1500)?;
    if run.dice.one_in(2) {
        run.restart()?;
    }
    Plan::of(&run.plan).fail = 0;
    run.steps(1000)?;
    run.restart()?;
    run.steps(500)?;
    run.restart()?;
    Ok(run.refused)
}

/// A run: its shape, the failing kinds, the rate of failing erases, the numbers of succeeding and
/// failing programs, and the seed.
type Planned = (Shape, &'static [PageKind], Option<u32>, (u32, u32), u64);

/// Executes runs with all protocols.
fn all(runs: &[Planned]) {
    let (mut wrong, mut ever) = (Vec::new(), 0);
    for &kind in Kind::ALL.iter().filter(|kind| kind.info().atomic) {
        let mut refused = 0;
        for &((cell, blocks, ends), kinds, erases, fails, seed) in runs {
            let cell = if kind.info().reprograms {
                GEOMETRY.cell
            } else {
                cell
            };
            let shape = (cell, blocks, ends);
            match run(kind, shape, kinds, erases, fails, seed) {
                Ok(more) => refused += more,
                Err(why) => wrong.push(format!(
                    "{kind} {shape:?} {kinds:?} {erases:?} {fails:?} {seed}: {why}"
                )),
            }
        }
        ever += u32::from(refused > 0);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(ever >= 10, "only {ever} protocols ever refused anything");
}

/// Fails if a failed checkpoint drops unwritten changes, or if zones are written that no root
/// lists.
#[test]
fn nothing_is_lost_where_roots_mapping_pages_or_log_pages_fail() {
    use PageKind::{Log, Map, Root};
    let mut runs = Vec::new();
    for (kinds, erases) in [
        (&[Root][..], None),
        (&[Map], None),
        (&[Log], None),
        (&[Root, Map, Log], None),
        (&[Root], Some(3)),
        (&[Root], Some(9)),
    ] {
        for fail in [4, 30, 60, u32::MAX] {
            for seed in 0..2 {
                let pass = match erases {
                    None => Dice(seed + u64::from(fail)).pick(12),
                    Some(_) => 0,
                };
                let cell = [GEOMETRY.cell, Cell::Mlc][seed as usize % 2];
                runs.push(((cell, 60, 8), kinds, erases, (pass, fail), seed));
            }
        }
    }
    all(&runs);
}

/// Fails if a device without space for the last page of a transaction, or for its flag, forgets
/// that the transaction has one.
#[test]
fn nothing_is_lost_where_commits_find_no_room_and_are_asked_for_again() {
    let mut runs: Vec<Planned> = Vec::new();
    for blocks in [44, 46, 50] {
        for ends in [30, 100, 300] {
            for seed in 0..4 {
                let shape = (GEOMETRY.cell, blocks, ends);
                runs.push((shape, &[], None, (0, 0), seed));
            }
        }
    }
    all(&runs);
}

/// Fails if a group is lost because its log page could not be written.
#[test]
fn a_group_whose_log_page_fails_commits_later() {
    let chip = Shared::new(small::chip(GEOMETRY));
    let plan: Arc<Mutex<Plan>> = Arc::default();
    let config = Config::small(PAGES, Some(3));
    let shown = *chip.geometry();
    let opened = open_as(Kind::GMixSl, (&chip, shown), &plan, config, 4);
    let mut device = opened.expect("it is blank");
    let mut now = device.recovered_at();
    let fail = |programs| Plan::of(&plan).fail_all(PageKind::Log, programs);
    let mut txs = Vec::new();
    for at in 0..4u8 {
        let tx = device.begin(now).expect("there is room");
        let written = device.write(now, tx, Lpn(at.into()), &[at + 1]);
        now = written.expect("there is room").next;
        txs.push(tx);
    }
    for &tx in &txs[..3] {
        assert_eq!(device.commit(now, tx), Ok(None), "it waits");
    }
    fail(u32::MAX);
    let full = DeviceError::Ftl(FtlError::MetaFull);
    assert_eq!(device.acknowledged(now, true), Err(full.clone()));
    assert_eq!(
        device.commit(now, txs[3]),
        Err(full),
        "it would be the last"
    );
    fail(0);
    now = device.abort(now, txs[3]).expect("it did not commit");
    let told = device.acknowledged(now, true).expect("there is room again");
    let told: Vec<TxId> = told.into_iter().map(|(tx, _)| tx).collect();
    assert_eq!(told, txs[..3]);
    drop(device);
    let mut device = open(Kind::GMixSl, &chip, &plan).expect("it starts");
    for at in 0..4u8 {
        let (_, bytes) = device.read(now, None, Lpn(at.into())).expect("it reads");
        let wanted = [at + 1];
        assert_eq!(bytes, (at < 3).then_some(&wanted[..]));
    }
}

/// Fails if a root that could not be written is taken for one that lists the blocks of the larger
/// table.
#[test]
fn a_device_that_failed_to_grow_grows_when_it_is_asked_again() {
    let before = Geometry {
        packages_per_channel: 1,
        blocks_per_plane: 120,
        ..GEOMETRY
    };
    let after = Geometry {
        blocks_per_plane: 180,
        ..before
    };
    let mappers = Kind::ALL.iter();
    for &kind in mappers.filter(|kind| kind.info().format.persist_map) {
        let chip = Shared::new(small::chip(after));
        let plan: Arc<Mutex<Plan>> = Arc::default();
        let mut config = Config::default();
        (config.over_provision, config.gc_threshold) = (0.5, 0.0);
        let open = |shown| open_as(kind, (&chip, shown), &plan, config, 1);
        let mut device = open(before).expect("it is blank");
        let mut now = device.recovered_at();
        let pages = device.pages();
        for at in 0..pages {
            let tx = device.begin(now).expect("there is room");
            let taken = device.write(now, tx, Lpn(at), &[at as u8]);
            now = taken.expect("there is room").next;
            let done = device.commit(now, tx).expect("there is room");
            now = done.expect("it is alone");
        }
        let fail = |programs| Plan::of(&plan).fail_all(PageKind::Root, programs);
        fail(u32::MAX);
        assert!(device.grow(now, 60).is_err(), "{kind}");
        fail(0);
        assert_eq!(device.grow(now, 60), Ok(60), "{kind}");
        drop(device);
        let mut device = open(after).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert!(device.pages() > pages);
        device.check().expect("the books agree");
        for at in 0..pages {
            let read = device.read(now, None, Lpn(at)).expect("it reads");
            assert_eq!(read.1, Some(&[at as u8][..]), "{kind}, page {at}");
        }
    }
}
