//! The long life of a device in virtual time: light traffic on cells with growing bit errors
//! ([`flagstone::nand::Aging`]), restarts, and finally a read of every page.
//!
//! Most pages are written once at the beginning and read at the end. A tenth of them receives all
//! writes, one small transaction per hour, and a few reads; another tenth is read more often. Once
//! a month the device is switched off for an hour. The required contents of all pages are always
//! known; wrong contents are counted separately from errors. Instead of being switched off, the
//! device can lose its power at a random operation of any kind. Then the transaction with a commit
//! in flight must be there completely or not at all.

use crate::device::DeviceSpec;
use crate::replay::{Causes, flash_by_cause};
use flagstone::commit::{Device, DeviceError, Kind, Options};
use flagstone::ftl::FtlError;
use flagstone::nand::{Ages, Aging, Chip, Cut, PowerCut, Shared};
use flagstone::units::{Lpn, Nanos};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use std::collections::BTreeMap;

/// An hour of virtual time.
const HOUR: Nanos = Nanos(3_600 * 1_000_000_000);

/// Hours from one restart to the next: thirty days.
const POWER_ON: u64 = 30 * 24;

/// Fraction of the logical pages in use.
const FILL: f64 = 0.8;

/// The fewest logical pages: one to write and another that is only read, of those in use.
const PAGES_MIN: u32 = 3;

/// Reads per hour; one in four is of the written pages.
const READS: u32 = 12;

/// Parameters of a life.
#[derive(Debug, Clone)]
pub struct Life {
    /// The protocol.
    pub kind: Kind,
    /// A device whose bit errors grow.
    pub device: DeviceSpec,
    /// Duration in hours.
    pub hours: u64,
    /// Seed of the traffic, and of the selection of weak pages.
    pub seed: u64,
    /// Whether the device scrubs as its file says; `false` for the control.
    pub scrubs: bool,
    /// Whether the power fails at random operations, instead of an orderly power-off once a month.
    pub cuts: bool,
}

/// The result of a life.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LifeRecord {
    /// The protocol.
    pub protocol: &'static str,
    /// The device.
    pub device: String,
    /// Duration in hours.
    pub hours: u64,
    /// The seed.
    pub seed: u64,
    /// Whether the device scrubbed.
    pub scrubs: bool,
    /// Power cuts at an operation.
    pub cuts: u64,
    /// Number of pages in use.
    pub pages: u32,
    /// Pages that finally gave an error, were blank, or too old.
    pub pages_lost: u32,
    /// Reads that returned wrong data at any time: after a restart that could not read a page, an
    /// older version may be back.
    pub wrong: u64,
    /// The error after which the device stopped working, and the hours until then, if it did.
    pub stopped: Option<(u64, String)>,
    /// Reads before the end that failed.
    pub reads_failed: u64,
    /// Transactions committed.
    pub transactions: u64,
    /// Pages written by the host, including the fill.
    pub host_pages_written: u64,
    /// Flash operations by kind, then by cause; excluding restarts.
    pub flash: BTreeMap<&'static str, Causes>,
    /// Fraction of all programs that were for scrubbing.
    pub scrub_programs: f64,
    /// Number of blocks refreshed.
    pub refreshed: u64,
    /// Number of pages read by the patrol.
    pub patrolled: u64,
    /// Maximum number of bits that the ECC corrected in a read that caused a refresh.
    pub corrected_most: u16,
    /// Number of bits that the ECC can correct.
    pub ecc_bits: u16,
    /// Total number of erases.
    pub erases: u64,
}

impl LifeRecord {
    /// Whether no written data was lost or read wrong.
    pub fn is_whole(&self) -> bool {
        self.pages_lost == 0 && self.wrong == 0 && self.stopped.is_none()
    }
}

/// The bytes of a version of a page.
fn payload(page: u32, version: u32) -> [u8; 16] {
    let mut bytes = [0x5a; 16];
    bytes[..4].copy_from_slice(&page.to_le_bytes());
    bytes[4..8].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// Maximum number of operations until a cut: about three weeks of traffic.
const CUT_WITHIN: u64 = 3_000;

type Cells = Shared<Aging<PowerCut>>;

/// A device on its cells, and its required contents.
struct World<'a> {
    life: &'a Life,
    cells: Option<Cells>,
    device: Option<Device>,
    /// Time since power-on.
    now: Nanos,
    /// The version of each page; 0 if never written.
    versions: Vec<u32>,
    next_version: u32,
    /// Pages with a commit in flight, and their version.
    asks: Option<(Vec<u32>, u32)>,
    dice: Pcg64Mcg,
    record: LifeRecord,
}

impl Life {
    /// Simulates the life.
    ///
    /// # Errors
    /// The protocol does not run on this device, or the device does not age.
    pub fn run(&self) -> Result<LifeRecord, String> {
        let Some(growth) = self.device.growth.clone() else {
            return Err(format!(
                "the bit errors of device {} do not grow: its file has no [aging]",
                self.device.name
            ));
        };
        let (geometry, config) = (&self.device.geometry, &self.device.config);
        self.kind.suits(geometry, config)?;
        let ecc_bits = growth.ecc_bits;
        let chip = self
            .device
            .chip(self.kind.info().format.spare_bytes(config));
        let ages = Ages::new(geometry, growth, self.seed);
        let mut world = World {
            life: self,
            cells: Some(Shared::new(Aging::new(PowerCut::new(chip), ages))),
            device: None,
            now: Nanos::ZERO,
            versions: Vec::new(),
            next_version: 1,
            asks: None,
            dice: Pcg64Mcg::seed_from_u64(self.seed),
            record: LifeRecord {
                protocol: self.kind.info().name,
                device: self.device.name.clone(),
                hours: self.hours,
                seed: self.seed,
                scrubs: self.scrubs,
                ecc_bits,
                ..LifeRecord::default()
            },
        };
        world.start().map_err(|error| error.to_string())?;
        let pages = world.device().pages();
        if pages < PAGES_MIN {
            return Err(format!(
                "device {} has {pages} logical pages under {}: a life needs {PAGES_MIN}",
                self.device.name, self.kind
            ));
        }
        let mut hour = 0;
        if let Err(error) = world.live(&mut hour) {
            world.record.stopped = Some((hour, error.to_string()));
        }
        Ok(world.end())
    }
}

impl World<'_> {
    fn device(&mut self) -> &mut Device {
        self.device.as_mut().expect("it is on")
    }

    /// Starts the device from its cells.
    fn start(&mut self) -> Result<(), DeviceError> {
        let mut config = self.life.device.config;
        if !self.life.scrubs {
            config.scrub = None;
        }
        let device = Device::open(
            Box::new(self.cells.clone().expect("it has cells")),
            self.life.kind,
            config,
            &Options::default(),
            Nanos::ZERO,
        )?;
        self.now = device.recovered_at();
        self.device = Some(device);
        Ok(())
    }

    /// Restarts the device after an hour without power, again if the power fails during that.
    /// Decides the transaction that was in doubt.
    fn restart(&mut self) -> Result<(), DeviceError> {
        loop {
            self.off();
            self.start()?;
            let Some((pages, version)) = self.asks.clone() else {
                return Ok(());
            };
            let (versions, wrong) = (self.versions.clone(), self.record.wrong);
            match self.decide(&pages, version) {
                Err(DeviceError::Ftl(FtlError::PowerLost)) => {
                    (self.versions, self.record.wrong) = (versions, wrong);
                }
                outcome => {
                    self.asks = None;
                    return outcome;
                }
            }
        }
    }

    /// Determines whether a transaction that wrote `version` to `pages` has committed: all or none
    /// of its writes must be present. Under a protocol without transactions each page is decided
    /// separately. Pages that cannot be read go with the others.
    fn decide(&mut self, pages: &[u32], version: u32) -> Result<(), DeviceError> {
        let before = self.record.wrong;
        let mut there = 0;
        let mut lost = Vec::new();
        for &at in pages {
            let old = std::mem::replace(&mut self.versions[at as usize], version);
            if !self.read(at)? {
                self.versions[at as usize] = old;
                lost.push(at);
            } else if self.record.wrong > before {
                (self.record.wrong, self.versions[at as usize]) = (before, old);
                self.read(at)?;
            } else {
                there += 1;
            }
        }
        let is_torn = there != 0 && there + lost.len() != pages.len();
        if there > 0 {
            lost.iter()
                .for_each(|&at| self.versions[at as usize] = version);
        }
        self.record.wrong += u64::from(is_torn && self.life.kind.info().atomic);
        Ok(())
    }

    /// Switches the device off for an hour. If the life has power cuts, arms the next one.
    fn off(&mut self) {
        self.count();
        self.device = None;
        let (chip, mut ages) = self.take_cells();
        ages.rest(HOUR);
        let mut power = PowerCut::new(chip);
        if self.life.cuts {
            power = power.arm(Cut {
                at: self.dice.random_range(0..CUT_WITHIN),
                dice: self.dice.random(),
                torn: self.dice.random(),
            });
        }
        self.cells = Some(Shared::new(Aging::new(power, ages)));
    }

    fn take_cells(&mut self) -> (Chip, Ages) {
        let cells = self.cells.take().expect("it has cells").take();
        let (power, ages) = cells.into_parts();
        self.record.cuts += u64::from(power.is_off());
        let dice = self.dice.random();
        (power.pull(dice, false), ages)
    }

    /// Adds the counters since power-on.
    fn count(&mut self) {
        let Some(device) = &self.device else { return };
        let (stats, record) = (device.stats(), &mut self.record);
        let scrubs = self.life.scrubs && self.life.device.config.scrub.is_some();
        for (kind, causes) in flash_by_cause(stats, scrubs) {
            let all = record.flash.entry(kind).or_default();
            for (cause, count) in causes {
                *all.entry(cause).or_default() += count;
            }
        }
        record.refreshed += stats.refreshed;
        record.patrolled += stats.patrolled;
        record.corrected_most = record.corrected_most.max(stats.corrected_most);
        let host = device.request_stats();
        record.transactions += host.committed;
        record.host_pages_written += host.pages_written;
    }

    /// Fills the device, then lets the hours pass. `hour` is the number of hours passed, also after
    /// an error.
    fn live(&mut self, hour: &mut u64) -> Result<(), DeviceError> {
        let pages = (f64::from(self.device().pages()) * FILL) as u32;
        self.record.pages = pages;
        self.versions = vec![0; pages as usize];
        let all: Vec<u32> = (0..pages).collect();
        for some in all.chunks(8) {
            self.write(some, true)?;
        }
        let hot = (pages / 10).max(1);
        // Hours since the device was last switched on.
        let mut since = 0;
        if self.life.cuts {
            self.restart()?;
        }
        for passed in 0..self.life.hours {
            *hour = passed;
            if since == POWER_ON && !self.life.cuts {
                self.restart()?;
                since = 0;
            }
            self.now = self.now.max(Nanos(HOUR.0 * since));
            since += 1;
            match self.hour(hot) {
                Err(DeviceError::Ftl(FtlError::PowerLost)) => {
                    self.restart()?;
                    since = 0;
                }
                outcome => outcome?,
            }
        }
        *hour = self.life.hours;
        self.restart()
    }

    /// The traffic of one hour: writes to the first `hot` pages, reads of these and of as many
    /// others.
    fn hour(&mut self, hot: u32) -> Result<(), DeviceError> {
        let mut written: Vec<u32> = (0..self.dice.random_range(1..5))
            .map(|_| self.dice.random_range(0..hot))
            .collect();
        written.sort_unstable();
        written.dedup();
        let commits = self.dice.random_bool(0.9) || !self.life.kind.info().atomic;
        self.write(&written, commits)?;
        for _ in 0..READS {
            let among = if self.dice.random_bool(0.25) {
                0..hot
            } else {
                hot..2 * hot
            };
            let page = self.dice.random_range(among);
            self.read(page)?;
        }
        let now = self.now;
        self.device().tend(now)
    }

    /// A transaction that writes a new version of each page.
    fn write(&mut self, pages: &[u32], commits: bool) -> Result<(), DeviceError> {
        let version = self.next_version;
        self.next_version += 1;
        // Under a protocol without transactions each page counts separately.
        if !self.life.kind.info().atomic {
            self.asks = Some((pages.to_vec(), version));
        }
        let now = self.now;
        let tx = self.device().begin(now)?;
        for &page in pages {
            let now = self.now;
            let taken = self
                .device()
                .write(now, tx, Lpn(page), &payload(page, version))?;
            self.now = taken.next;
        }
        let now = self.now;
        if !commits {
            self.now = self.device().abort(now, tx)?;
            return Ok(());
        }
        self.asks = Some((pages.to_vec(), version));
        self.now = match self.device().commit(now, tx)? {
            Some(done) => done,
            // The commit waits for its group, which no other transaction will join.
            None => {
                let done = self.device().acknowledged(now, true)?;
                done.last().map_or(now, |&(_, done)| done)
            }
        };
        self.asks = None;
        for &page in pages {
            self.versions[page as usize] = version;
        }
        Ok(())
    }

    /// Reads a page. Returns `false` if the read fails.
    fn read(&mut self, page: u32) -> Result<bool, DeviceError> {
        let right = payload(page, self.versions[page as usize]);
        let is_none = self.versions[page as usize] == 0;
        let now = self.now;
        let (done, is_right) = match self.device().read(now, None, Lpn(page)) {
            Ok((done, bytes)) => (done, bytes == (!is_none).then_some(&right[..])),
            Err(DeviceError::Unreadable(_)) => {
                self.record.reads_failed += 1;
                return Ok(false);
            }
            Err(other) => return Err(other),
        };
        self.now = done;
        self.record.wrong += u64::from(!is_right);
        Ok(true)
    }

    /// Reads every page, if the device still starts.
    fn end(mut self) -> LifeRecord {
        let failed = self.record.reads_failed;
        if self.record.stopped.is_some() {
            self.off();
            let _ = self.start();
        }
        for page in 0..self.versions.len() as u32 {
            let wrong = self.record.wrong;
            let is_there = self.device.is_some() && matches!(self.read(page), Ok(true));
            if !is_there || self.record.wrong > wrong {
                self.record.pages_lost += 1;
            }
        }
        self.record.reads_failed = failed;
        self.count();
        self.device = None;
        let (chip, _) = self.take_cells();
        let mut record = self.record;
        record.erases = chip.erase_counts().iter().map(|&n| u64::from(n)).sum();
        let programs: u64 = record.flash.get("program").map_or(0, |c| c.values().sum());
        let count = |cause| Some(*record.flash.get("program")?.get(cause)?);
        record.scrub_programs = count("scrub").unwrap_or(0) as f64 / programs.max(1) as f64;
        record
    }
}
