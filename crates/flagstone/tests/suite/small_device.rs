//! The common fixture of all tests of page-level devices: a small device and the clock of its only
//! user. Concurrent clients, random cuts and an oracle are in the lab's campaigns; these tests
//! construct a case and cut the power explicitly.

use flagstone::commit::{Device, DeviceError, Kind, Options};
use flagstone::ftl::{Cause, Config, Operation, Slot};
use flagstone::nand::{Cell, Chip, Cut, Flash, Geometry, PowerCut, Shared, small};
use flagstone::settings::Settings;
use flagstone::units::{Lpn, Nanos, Pbn, TxId};
use std::sync::Arc;

pub(crate) use flagstone::nand::small::{EVERYTHING, NOTHING};

/// Number of logical pages: most of the device's capacity.
pub(crate) const PAGES: u32 = 104;

/// The first of five pages that only filler transactions write.
pub(crate) const FILLER: u32 = 40;

/// A pseudo-random number below `end`.
pub(crate) fn below(dice: &mut u32, end: u32) -> u32 {
    *dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (*dice >> 16) % end
}

/// Groups of one transaction, so that no commit waits, and short zones.
pub(crate) fn unwaited(kind: Kind) -> Options {
    let mut options = Options::default();
    options.settings = Settings::new()
        .with("group", 1)
        .with("zone_blocks", 8)
        .keep_those_of(kind.info());
    options
}

/// Default options, for the repaired or the printed form of a protocol.
pub(crate) fn form(as_published: bool) -> Options {
    let mut options = Options::default();
    options.as_published = as_published;
    options
}

/// Creates the device's flash from the chip with power cuts.
type Over = Arc<dyn Fn(Shared<PowerCut>) -> Box<dyn Flash>>;

pub(crate) struct Small {
    kind: Kind,
    pub(crate) options: Options,
    config: Config,
    over: Over,
    flash: Shared<PowerCut>,
    device: Option<Device>,
    pub(crate) now: Nanos,
}

/// A blank chip of a few small blocks.
pub(crate) fn chip() -> Chip {
    small::chip(Geometry {
        channels: 1,
        packages_per_channel: 2,
        blocks_per_plane: 32,
        pages_per_block: 5,
        cell: Cell::Mlc,
        ..small::GEOMETRY
    })
}

impl Small {
    pub(crate) fn new(kind: Kind, options: Options) -> Small {
        Small::on(chip(), Config::small(PAGES, Some(3)), kind, options)
    }

    /// Opens a device on a chip, blank or not.
    pub(crate) fn on(chip: Chip, config: Config, kind: Kind, options: Options) -> Small {
        Small::over(chip, config, kind, options, |flash| Box::new(flash))
    }

    /// Like [`Small::on`], with middleware between the device and the chip.
    pub(crate) fn over(
        chip: Chip,
        config: Config,
        kind: Kind,
        options: Options,
        over: impl Fn(Shared<PowerCut>) -> Box<dyn Flash> + 'static,
    ) -> Small {
        let flash = Shared::new(PowerCut::new(chip));
        let small = Small {
            kind,
            options,
            config,
            over: Arc::new(over),
            flash,
            device: None,
            now: Nanos::ZERO,
        };
        small.start()
    }

    /// Opens the device on the chip.
    fn start(mut self) -> Small {
        let flash = (self.over)(self.flash.clone());
        let (config, options) = (self.config, &self.options);
        let device = Device::open(flash, self.kind, config, options, Nanos::ZERO);
        let device = device.expect("recovery only reads, so that no cut falls into it");
        device.check().expect("the books agree after recovery");
        self.now = device.recovered_at();
        self.device = Some(device);
        self
    }

    /// Cuts the power and restarts. With `cut` the power will fail once more.
    fn again(mut self, dice: u64, cut: Option<Cut>) -> Small {
        self.device = None;
        small::restart(&mut self.flash, dice, false, cut);
        self.start()
    }

    /// Lets the power fail with `cut`, counted from now.
    pub(crate) fn arm(self, cut: Cut) -> Small {
        self.again(EVERYTHING, Some(cut))
    }

    /// Restarts after a power cut: the armed one, or one between two operations.
    pub(crate) fn restart(self, dice: u64) -> Small {
        let small = self.again(dice, None);
        let operations = small.flash.look(PowerCut::issued);
        assert_eq!(operations, 0, "recovery only reads");
        small
    }

    /// Restarts with nothing in flight, once by recovery and once from tables at rest.
    pub(crate) fn both_ways(mut self, tables: Vec<u8>) -> (Small, Result<Small, String>) {
        self.device = None;
        let chip = self.flash.take().pull(NOTHING, false);
        self.flash = Shared::new(PowerCut::new(chip.clone()));
        let flash = Shared::new(PowerCut::new(chip));
        let (kind, config, now) = (self.kind, self.config, Nanos::ZERO);
        let of_it = Box::new(flash.clone());
        let resumed = Device::resume(of_it, kind, config, &self.options, now, tables);
        let (device, were_of_use) = resumed.expect("there is no cut");
        let resumed = match (device.check(), were_of_use) {
            (Err(why), _) => Err(why),
            (Ok(()), false) => Err("the tables were of no use".into()),
            (Ok(()), true) => Ok(Small {
                flash,
                now: device.recovered_at(),
                device: Some(device),
                options: self.options.clone(),
                over: Arc::clone(&self.over),
                ..self
            }),
        };
        (self.start(), resumed)
    }

    /// Restarts after a power cut. From then on blocks fail at their rated erases.
    pub(crate) fn wear_out(mut self, dice: u64, endurance: impl Fn(Pbn) -> u32) -> Small {
        self.device = None;
        let mut chip = self.flash.take().pull(dice, false);
        for block in (0..chip.geometry().blocks()).map(Pbn) {
            if chip.erase_counts()[block.index()] >= endurance(block) {
                chip.wear_out(block);
            }
        }
        self.flash = Shared::new(PowerCut::new(chip));
        self.start()
    }

    pub(crate) fn device(&mut self) -> &mut Device {
        self.device.as_mut().expect("the power is on")
    }

    /// Inspects the flash.
    pub(crate) fn chip<T>(&self, look: impl FnOnce(&Chip) -> T) -> T {
        self.flash.look(|power| look(power.chip()))
    }

    pub(crate) fn begin(&mut self) -> TxId {
        let now = self.now;
        self.device().begin(now).expect("a transaction can begin")
    }

    pub(crate) fn write(&mut self, tx: TxId, at: u32, value: u8) {
        self.try_write(tx, at, value).expect("it can be written");
    }

    pub(crate) fn try_write(&mut self, tx: TxId, at: u32, value: u8) -> Result<(), DeviceError> {
        let now = self.now;
        self.now = self.device().write(now, tx, Lpn(at), &[value])?.next;
        Ok(())
    }

    pub(crate) fn trim(&mut self, tx: TxId, at: u32) {
        let now = self.now;
        self.now = self
            .device()
            .trim(now, tx, Lpn(at))
            .expect("it can be trimmed")
            .next;
    }

    pub(crate) fn commit(&mut self, tx: TxId) {
        self.try_commit(tx).expect("it can commit");
    }

    /// Commits, and waits for the acknowledgement.
    pub(crate) fn try_commit(&mut self, tx: TxId) -> Result<(), DeviceError> {
        let now = self.now;
        let done = self.device().commit(now, tx)?;
        self.now = done.expect("no group is waited for");
        Ok(())
    }

    pub(crate) fn abort(&mut self, tx: TxId) {
        let now = self.now;
        self.now = self.device().abort(now, tx).expect("it can be aborted");
    }

    /// Runs a transaction that writes some pages and commits.
    pub(crate) fn put(&mut self, pages: &[(u32, u8)]) {
        self.try_put(pages).expect("the power is on");
    }

    /// Runs `count` transactions of one filler page.
    pub(crate) fn fill(&mut self, count: u32) {
        for i in 0..count {
            self.put(&[(FILLER + i % 5, 99)]);
        }
    }

    pub(crate) fn try_put(&mut self, pages: &[(u32, u8)]) -> Result<(), DeviceError> {
        let now = self.now;
        let tx = self.device().begin(now)?;
        for &(at, value) in pages {
            self.try_write(tx, at, value)?;
        }
        self.try_commit(tx)
    }

    /// Begins a transaction that writes `value` to pages.
    pub(crate) fn open(&mut self, value: u8, pages: &[u32]) -> TxId {
        self.try_open(value, pages)
            .expect("the device takes the pages")
    }

    pub(crate) fn try_open(&mut self, value: u8, pages: &[u32]) -> Result<TxId, DeviceError> {
        let now = self.now;
        let tx = self.device().begin(now)?;
        for &at in pages {
            self.try_write(tx, at, value)?;
        }
        Ok(tx)
    }

    /// Commits a transaction that writes `value` to pages, and checks the device.
    pub(crate) fn set(&mut self, value: u8, pages: &[u32]) {
        let tx = self.open(value, pages);
        self.commit(tx);
        self.check();
    }

    /// Rolls back a transaction that writes `value` to pages.
    pub(crate) fn roll_back(&mut self, value: u8, pages: &[u32]) {
        let tx = self.open(value, pages);
        self.abort(tx);
    }

    /// The values of the first `pages` pages.
    pub(crate) fn values(&mut self, pages: u32) -> Vec<u8> {
        (0..pages).map(|at| self.value(at)).collect()
    }

    /// The value of a page: 0 if it holds nothing.
    pub(crate) fn value(&mut self, at: u32) -> u8 {
        self.value_in(None, at)
    }

    pub(crate) fn value_in(&mut self, tx: Option<TxId>, at: u32) -> u8 {
        let now = self.now;
        let (_, bytes) = self.device().read(now, tx, Lpn(at)).expect("it reads");
        bytes.map_or(0, |bytes| bytes[0])
    }

    /// Overwrites pages in random order until `done` returns `true`; meanwhile blocks with valid
    /// pages are collected.
    pub(crate) fn churn(&mut self, pages: std::ops::Range<u32>, done: impl Fn(&Device) -> bool) {
        let mut dice = 1u32;
        for _ in 0..4_000 {
            let at = below(&mut dice, pages.len() as u32);
            self.put(&[(pages.start + at, 99)]);
            if done(self.device()) {
                return;
            }
        }
        panic!("it never comes to that");
    }

    /// Whether a transaction that finds the device full at its commit leaves nothing behind after
    /// its rollback. For protocols that keep no pages of ended transactions.
    pub(crate) fn gives_up_cleanly(kind: Kind, options: &Options) -> bool {
        let mut room = None;
        loop {
            let mut small = Small::new(kind, options.clone());
            (0..PAGES).for_each(|at| small.put(&[(at, 1)]));
            let live: Vec<TxId> = (0..4).map(|_| small.begin()).collect();
            let mut writes = (0..room.unwrap_or(u32::MAX)).map(|n| (n / PAGES, n % PAGES));
            let failed =
                writes.find(|&(tx, at)| small.try_write(live[tx as usize], at, 2).is_err());
            if let Some((tx, at)) = failed {
                room = Some(tx * PAGES + at);
                continue;
            }
            let last = live[((room.expect("it is full before") - 1) / PAGES) as usize];
            assert!(
                small.try_commit(last).is_err(),
                "there was room for its last page"
            );
            live.into_iter().for_each(|tx| small.abort(tx));
            small.check();
            let ftl = small.device().ftl();
            let mapped = (0..PAGES).filter(|&at| ftl.slot(Lpn(at)).ppn().is_some());
            return ftl.blocks().live_pages() == mapped.count() as u64;
        }
    }

    /// The place of a page.
    pub(crate) fn slot(&mut self, at: u32) -> Slot {
        self.device().ftl().slot(Lpn(at))
    }

    /// The block that holds a page.
    pub(crate) fn block_of(&mut self, at: u32) -> Pbn {
        let page = self.slot(at).ppn().expect("it was written");
        self.device().geometry().block_of(page)
    }

    /// Collects a full block.
    pub(crate) fn collect(&mut self, block: Pbn) {
        let now = self.now;
        let done = self.device().collect(now, block);
        let done = done.expect("it can be collected");
        self.now = done.expect("it is full");
        self.check();
    }

    pub(crate) fn count(&mut self, operation: Operation, cause: Cause) -> u64 {
        self.device().stats().count(operation, cause)
    }

    /// Memory of a structure in bytes.
    pub(crate) fn memory(&mut self, name: &str) -> u64 {
        let all = self.device().memory();
        let found = all.iter().find(|(structure, _)| *structure == name);
        found.expect("it is counted").1
    }

    pub(crate) fn checkpoints(&mut self) -> u64 {
        self.device().stats().checkpoints
    }

    pub(crate) fn check(&mut self) {
        self.device().check().expect("the books agree");
    }
}
