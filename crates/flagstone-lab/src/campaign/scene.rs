//! The small device that a campaign breaks, and the stack on it.

use super::keys::{Index, Keys};
use super::pages::Pages;
use super::records::Records;
use super::sabotage::{Sabotage, Sabotaged};
use super::world::{Story, World, is_damage};
use super::{Below, RunId, Subject};
use flagstone::buffer::PolicyKind;
use flagstone::commit::{Device, DeviceError, Group, Options};
use flagstone::ftl::{Config, FtlError, VictimPolicy};
use flagstone::host::{self, Host, HostConfig, HostError};
use flagstone::index::sal::Transactions;
use flagstone::index::{
    DeviceStore, HostStore, IndexError, IndexKind, Recoverable, Settings, Store, StoreError,
};
use flagstone::nand::{
    Cell, Chip, Cut, Fault, FaultPlan, Faulty, Geometry, PowerCut, Shared, Timing, Tracer,
};
use flagstone::units::Nanos;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::rc::Rc;
use thiserror::Error;

/// The stack of middleware around the chip.
pub(super) type Stack = Shared<Faulty<PowerCut>>;

/// Why a device did not start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum NoStart {
    #[error("the power is gone")]
    PowerLost,
    #[error("a page that recovery needs is unreadable")]
    Unreadable,
    #[error("{0}")]
    Other(String),
}

impl From<DeviceError> for NoStart {
    fn from(error: DeviceError) -> NoStart {
        match error {
            DeviceError::Ftl(FtlError::PowerLost) => NoStart::PowerLost,
            error if is_damage(&error) => NoStart::Unreadable,
            error => NoStart::Other(error.to_string()),
        }
    }
}

impl From<HostError> for NoStart {
    fn from(error: HostError) -> NoStart {
        match error {
            HostError::Device(error) => error.into(),
            error => NoStart::Other(error.to_string()),
        }
    }
}

impl From<IndexError> for NoStart {
    fn from(error: IndexError) -> NoStart {
        match error {
            IndexError::Store(StoreError::Device(error)) => error.into(),
            IndexError::Store(StoreError::Host(error)) => error.into(),
            error => NoStart::Other(error.to_string()),
        }
    }
}

/// How a device is built, and the database on it.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    subject: Subject,
    pub(super) options: Options,
    host: HostConfig,
    pub(super) geometry: Geometry,
    pub(super) config: Config,
    pub(super) sabotage: Sabotage,
    timing: Timing,
    /// Whether log regions of the index grow until they are full.
    fills_regions: bool,
}

/// Whether a database of records is on a device of many planes and slow programs, with hardly any
/// frames: pages that supersede others are still in flight when those are collected. Some of the
/// aged devices are like that.
fn is_wide(id: &RunId) -> bool {
    let records = matches!(
        id.subject,
        Subject::Stack(host::Stack::CfcEx | host::Stack::AfcEx)
    );
    records && id.base % 4 == 3
}

/// Pages of the log of a database.
const LOG_PAGES: u32 = 32;

/// Pages of an index, its journal and metadata included.
const INDEX_PAGES: u32 = 96;

/// Pages of the log of an index that recovers itself, and after how many flushes it takes a
/// checkpoint.
const INDEX_LOG_PAGES: u32 = 96;
const INDEX_CHECKPOINT_EVERY: u64 = 5;

const TIMING: Timing = Timing {
    read: Nanos::from_micros(25),
    program: Nanos::from_micros(200),
    reprogram: Nanos::from_micros(200),
    erase: Nanos::from_micros(1500),
    transfer_ps_per_byte: 0,
};

impl Scene {
    /// The smallest device on which the protocol works with a little room to spare, so that the
    /// collector, checkpoints and zone slides never rest.
    pub(super) fn new(id: &RunId, sabotage: Sabotage) -> Scene {
        let options = Options {
            as_published: id.published,
            block_flags: id.variant != Some("page-flags"),
            group: match id.variant {
                Some("page-full") => Group::PageFull,
                _ => Group::Count(3),
            },
            group_timeout: Nanos::from_micros(900),
            zone_blocks: 6,
            log_heads: 2,
        };
        let wide = is_wide(id);
        // So small that pages are evicted, checkpoints taken, and the log comes round, all the
        // time.
        let host = HostConfig {
            frames: if wide { 2 } else { 3 + (id.seed % 6) as usize },
            policy: PolicyKind::ALL[(id.seed % PolicyKind::ALL.len() as u64) as usize],
            log_pages: LOG_PAGES,
            log_buffer_bytes: 300,
            checkpoint_every: 3,
            // A device is made for one, and runs share aged devices.
            max_c: 2 + (id.base % 2) as u8,
            group_wait: match id.subject {
                Subject::Stack(host::Stack::Wal) if id.seed % 3 == 2 => Nanos::from_micros(500),
                _ => Nanos::ZERO,
            },
            sabotage: sabotage.of_host(),
            ..HostConfig::default()
        };
        let host = match id.subject {
            // A transaction changes as many pages as the index likes. Where pages are to be lost,
            // they have to be read.
            Subject::Index(..) => HostConfig {
                frames: host.frames + if id.faults.bits_beyond { 1 } else { 24 },
                log_pages: 4 * LOG_PAGES,
                checkpoint_every: 12,
                ..host
            },
            _ => host,
        };
        let log_pages = match id.subject.below() {
            Below::Protocol(_) | Below::Stack(host::Stack::Force(_)) => 0,
            Below::Stack(_) => host.log_pages,
        };
        let data_pages = match id.subject {
            Subject::Index(..) if id.subject.recovers_itself() => INDEX_PAGES + INDEX_LOG_PAGES,
            Subject::Index(..) => INDEX_PAGES,
            _ => id.pages,
        };
        let config = Config {
            over_provision: 0.0,
            logical_pages: Some(data_pages + log_pages),
            gc_threshold: 0.0,
            victims: VictimPolicy::WearAware { margin: 3 },
            static_wear_gap: Some(6),
            copies_stay: false,
            summary_pages: true,
        };
        let mut geometry = Geometry {
            channels: 1,
            packages_per_channel: 1,
            planes_per_package: if wide { 8 } else { 2 },
            blocks_per_plane: 4,
            pages_per_block: 6,
            page_bytes: 256,
            spare_bytes: 64,
            cell: Cell::Slc {
                // The page itself, and a flag for each transaction that has records in it.
                partial_programs: 1 + u8::max(1, id.subject.protocol().map_or(host.max_c, |_| 1)),
            },
            strict_order: is_strict(id),
        };
        let suits = |geometry: &Geometry| match id.subject.protocol() {
            Some(kind) => kind.suits(geometry, &config).is_ok(),
            // The same needs as the page-level form, and room for versions side by side.
            None => {
                let blocks = (data_pages + log_pages).div_ceil(geometry.pages_per_block);
                geometry.blocks_per_plane > 12.max(blocks * 3 / 4)
            }
        };
        while !suits(&geometry) {
            geometry.blocks_per_plane += 1;
        }
        // Pages of live transactions, uncommitted leftovers, zones; and blocks that faults take.
        let zoned = id
            .subject
            .protocol()
            .is_some_and(|kind| kind.info().format.zoned);
        geometry.blocks_per_plane += match (zoned, wide) {
            (true, _) => 12,
            (_, true) => 1,
            _ => 5,
        };
        geometry.blocks_per_plane += 2 * u32::from(id.faults.bits() != 0);
        Scene {
            subject: id.subject,
            options,
            host,
            geometry,
            config,
            sabotage,
            timing: Timing {
                program: Nanos::from_micros(if wide { 1000 } else { 200 }),
                ..TIMING
            },
            fills_regions: id.subject.recovers_itself() && id.base % 3 == 1,
        }
    }

    /// An index that recovers itself merges a log region when a search makes it, mostly. On some
    /// devices it does so when the region is full only, and regions are as short as can be.
    fn settings(&self, index: IndexKind) -> Settings {
        let tiny = index.info().tiny();
        match self.fills_regions {
            true => tiny.with("split", "lazy").with("false_positive", 0.0001),
            false => tiny,
        }
    }

    pub(super) fn blank(&self) -> Chip {
        Chip::new(self.geometry, self.timing, 64)
    }

    /// Puts the middleware around a chip and starts the device on it.
    pub(super) fn open(
        &self,
        chip: Chip,
        cut: Option<Cut>,
        plan: FaultPlan,
        story: &Story,
    ) -> (Stack, Result<Box<dyn World>, NoStart>) {
        let mut power = PowerCut::new(chip);
        if story.is_some() {
            power = power.telling();
        }
        if let Some(cut) = cut {
            power = power.arm(cut);
        }
        let stack = Shared::new(Faulty::new(power, plan));
        let flash = Sabotaged::new(stack.clone(), self.sabotage);
        let flash: Box<dyn flagstone::nand::Flash> = match story {
            Some(story) => Box::new(Tracer::new(flash, Rc::clone(story))),
            None => Box::new(flash),
        };
        (stack, self.world(flash))
    }

    fn world(&self, flash: Box<dyn flagstone::nand::Flash>) -> Result<Box<dyn World>, NoStart> {
        let (config, options) = (self.config, &self.options);
        let device = |flash, kind| Device::open(flash, kind, config, options, Nanos::ZERO);
        let host = |flash, on| Host::open(flash, on, config, options, &self.host, Nanos::ZERO);
        Ok(match self.subject {
            Subject::Protocol(kind) => Box::new(Pages::new(device(flash, kind)?)),
            Subject::Stack(on) => Box::new(Records::new(host(flash, on)?)),
            Subject::Index(index, below) => {
                let (store, now): (Box<dyn Store>, Nanos) = match below {
                    Below::Protocol(kind) => {
                        let device = device(flash, kind)?;
                        let now = device.recovered_at();
                        (Box::new(DeviceStore::new(device)), now)
                    }
                    Below::Stack(on) => {
                        let host = host(flash, on)?;
                        let now = host.recovered_at();
                        (Box::new(HostStore::new(host)), now)
                    }
                };
                let settings = self.settings(index);
                if self.subject.recovers_itself() {
                    let (log, every) = (INDEX_LOG_PAGES, INDEX_CHECKPOINT_EVERY);
                    let flaw = self.sabotage.flaw();
                    let opened = Transactions::with(store, &settings, log, every, now, flaw);
                    let (index, now) = opened?;
                    return Ok(Box::new(Keys::new(Index::Own(Box::new(index)), now)));
                }
                let (opened, now) = Recoverable::open(index, store, &settings, now)?;
                // A database that was told of a lost page has stopped.
                let goes_on = matches!(below, Below::Protocol(_));
                Box::new(Keys::new(Index::Store(opened, goes_on), now))
            }
        })
    }
}

/// Whether a run's device demands ascending order inside a block: some do, so that what a protocol
/// does instead of reprogramming is broken as well.
pub(super) fn is_strict(id: &RunId) -> bool {
    id.subject.may_reprogram() && id.seed % 7 == 6
}

/// The faults of one phase of a run, by its seed.
pub(super) fn fault_plan(id: &RunId, phase: usize, dice: &mut Pcg64Mcg) -> FaultPlan {
    let mut faults = Vec::new();
    let mut strike = |wanted: bool, fault: Fault, within: u64, dice: &mut Pcg64Mcg| {
        if wanted && phase < 3 && dice.random_bool(0.7) {
            faults.push((dice.random_range(0..within), fault));
        }
    };
    strike(id.faults.program_fails, Fault::ProgramFails, 150, dice);
    strike(id.faults.erase_fails, Fault::EraseFails, 20, dice);
    for _ in 0..4 {
        strike(
            id.faults.bits_correctable,
            Fault::BitErrors { bits: 4 },
            400,
            dice,
        );
    }
    // An index reads little that it has not in memory.
    let (times, within) = match id.subject {
        Subject::Index(..) => (3, 200),
        _ => (1, 900),
    };
    for _ in 0..times {
        let lost = Fault::BitErrors { bits: 40 };
        strike(id.faults.bits_beyond, lost, within, dice);
    }
    FaultPlan {
        faults,
        correctable_bits: 8,
    }
}
