//! The small device that a campaign tests, and the stack on it.

use super::cells::SCRUB;
use super::keys::Keys;
use super::pages::Pages;
use super::records::Records;
use super::sabotage::{Sabotage, Sabotaged};
use super::shape::{DatabaseShape, DeviceShape, Shape, TINY};
use super::world::{Story, World, is_damage};
use super::{BaseId, Below, Fall, Subject};
use flagstone::commit::{Device, DeviceError, Kind, Options, RecordDevice};
use flagstone::ftl::{Config, FtlError};
use flagstone::nand::{
    Ages, Aging, Cell, Chip, FaultPlan, Faulty, Geometry, Pairing, PowerCut, Shared, Timing, Tracer,
};
use flagstone::units::Nanos;
use flagstone_host::{self as host, Host, HostConfig, HostError};
use flagstone_index::{
    BackingError, BackingStore, DeviceStore, HostStore, IndexError, Recoverable, Settings,
};
use std::sync::Arc;
use thiserror::Error;

/// The stack of middleware around the chip.
pub(super) type Stack = Shared<Aging<Faulty<PowerCut>>>;

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
            IndexError::Store(BackingError::Device(error)) => error.into(),
            IndexError::Store(BackingError::Host(error)) => error.into(),
            error => NoStart::Other(error.to_string()),
        }
    }
}

/// Configuration of a device and the database on it.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub(super) subject: Subject,
    pub(super) options: Options,
    pub(super) host: HostConfig,
    pub(super) geometry: Geometry,
    pub(super) config: Config,
    pub(super) shape: Shape,
    /// Blocks for zones and for blocks that fail, beyond those that the device needs.
    pub(super) blocks_kept: u32,
    sabotage: Sabotage,
    timing: Timing,
}

/// A quarter of the log pages of a database below an index.
const INDEX_DATABASE_LOG_PAGES: u32 = 32;

/// Minimum and maximum blocks per plane, and maximum page size. A device that exceeds these limits
/// is unsuitable for another reason.
const BLOCKS_MIN: u32 = 4;
const BLOCKS_MAX: u32 = 512;
const PAGE_BYTES_MAX: u32 = 1024;

/// Blocks that program and erase failures may take per run.
const FAILING_BLOCKS: u32 = 6;

/// Stored bytes per spare area; also its size unless a user says otherwise.
const SPARE_BYTES: u32 = 64;

impl BaseId {
    /// The shape, as modified by faults and device description.
    pub(super) fn shape(&self) -> Shape {
        let mut shape = Shape::of(self.shape, self.subject);
        if self.faults.paired {
            shape.pair(self.shape);
        }
        if let Some(traits) = &self.device {
            shape.take_over(traits);
        }
        shape
    }
}

impl Scene {
    /// The smallest device of the shape that the subject works on, plus the shape's additions.
    ///
    /// # Errors
    /// The subject works on no such device; the text says why.
    pub(super) fn new(id: &BaseId) -> Result<Scene, String> {
        let shape = id.shape();
        let like = id.device.as_deref().map(|traits| &traits.layout);
        let device = &shape.device;
        let mut options = Options::default();
        options.as_published = id.published;
        options.settings = settings_of(id, device);
        options.mistake = id.sabotage.of_protocol();
        let host = host(id, &shape);
        let log_pages = match id.subject.below() {
            Below::Protocol(_) | Below::Stack(host::Stack::Force(_)) => 0,
            Below::Stack(_) => host.log_pages,
        };
        let data_pages = match id.subject {
            Subject::Index(..) => shape.index_pages,
            _ => id.pages,
        };
        let mut config = Config::default();
        config.over_provision = 0.0;
        config.logical_pages = Some(data_pages + log_pages);
        config.gc_threshold = 0.0;
        config.victims = device.victims;
        config.static_wear_gap = device.static_wear_gap;
        config.copies_stay = device.copies_stay;
        config.summary_pages = device.summary_pages;
        config.works_ahead =
            id.ahead || like.is_some_and(|like| like.works_ahead && id.subject.collects_in_steps());
        config.scrub = (id.faults.aging && id.sabotage != Sabotage::Unscrubbed).then_some(SCRUB);
        config.checksums = id.sabotage != Sabotage::Unchecked
            && (id.faults.silent || like.is_some_and(|like| like.checksums));
        let shares_cells = device.pairing != Pairing::None;
        if shares_cells && id.sabotage != Sabotage::PairsIgnored {
            config.paired_pages = device.paired_pages;
        }
        let mut geometry = Geometry {
            channels: device.channels,
            packages_per_channel: 1,
            planes_per_package: device.planes_per_channel,
            blocks_per_plane: BLOCKS_MIN,
            pages_per_block: device.pages_per_block,
            page_bytes: device.page_bytes,
            spare_bytes: like.map_or(SPARE_BYTES, |like| like.spare_bytes),
            cell: match like {
                Some(like) => like.cell,
                None if shares_cells => Cell::Mlc,
                None => Cell::Slc {
                    // The page itself, and a flag for each transaction with records in it.
                    partial_programs: 1 + id.subject.protocol().map_or(shape.database.max_c, |_| 1),
                },
            },
            strict_order: device.strict_order,
            pairing: device.pairing,
        };
        if id.faults.paired && !id.subject.suits_mlc() {
            return Err(format!(
                "{} sets flags in place, which the cells of devices with paired pages do not allow",
                id.subject
            ));
        }
        while let Err(why) = suits(id.subject, &host, &geometry, &config) {
            geometry.blocks_per_plane += 1;
            if geometry.blocks_per_plane <= BLOCKS_MAX {
                continue;
            }
            // The spare areas of a block may not fit its summary page.
            geometry.page_bytes *= 2;
            geometry.blocks_per_plane = BLOCKS_MIN;
            if geometry.page_bytes > PAGE_BYTES_MAX {
                let like = match &id.device {
                    Some(traits) => format!("like {}", traits.name),
                    None => format!("of shape {}", id.shape),
                };
                return Err(format!("no device {like} suits {}: {why}", id.subject));
            }
        }
        // For pages of live transactions, uncommitted leftovers, zones, and failing blocks.
        let zoned = id
            .subject
            .protocol()
            .is_some_and(|kind| kind.info().format.zoned);
        // SEAL's lots are not zones: a tiny device has no blocks to spare for them.
        let is_tiny = id.shape >= TINY && id.subject == Subject::Protocol(Kind::SealR);
        geometry.blocks_per_plane += device.spare_blocks;
        let blocks_needed = geometry.blocks();
        geometry.blocks_per_plane += if zoned && !is_tiny { 7 } else { 0 };
        if id.faults.aging {
            // A refresh takes blocks while clients have filled the others.
            geometry.blocks_per_plane += 2;
            if !matches!(id.subject, Subject::Protocol(_)) {
                return Err(format!("{} does not scrub in campaigns", id.subject));
            }
        }
        if id.faults.program_fails || id.faults.erase_fails {
            geometry.blocks_per_plane += FAILING_BLOCKS.div_ceil(geometry.planes());
        }
        let own_timing = Timing {
            program: device.program,
            transfer_ps_per_byte: device.transfer_ps_per_byte,
            ..Timing::default()
        };
        Ok(Scene {
            subject: id.subject,
            options,
            host,
            geometry,
            config,
            timing: like.map_or(own_timing, |like| like.timing),
            sabotage: id.sabotage,
            blocks_kept: geometry.blocks() - blocks_needed,
            shape,
        })
    }

    /// A chip without contents.
    pub(super) fn blank(&self) -> Chip {
        Chip::new(self.geometry, self.timing, SPARE_BYTES as usize)
    }

    /// Wraps a chip in middleware that records up to `moments` moments, and starts the device on
    /// it.
    pub(super) fn open(
        &self,
        (chip, ages): (Chip, Ages),
        (cut, moments): (Option<Fall>, usize),
        plan: FaultPlan,
        story: &Story,
    ) -> (Stack, Result<Box<dyn World>, NoStart>) {
        let mut power = PowerCut::new(chip).keeping(moments);
        if story.is_some() {
            power = power.telling();
        }
        if let Some(Fall { cut, aim }) = cut {
            power = power.arm(cut).aim(aim);
        }
        let stack = Shared::new(Aging::new(Faulty::new(power, plan), ages));
        let flash = Sabotaged::new(stack.clone(), self.sabotage);
        let flash: Box<dyn flagstone::nand::Flash> = match story {
            Some(story) => Box::new(Tracer::new(flash, Arc::clone(&story.operations))),
            None => Box::new(flash),
        };
        (stack, self.world(flash, story.is_some()))
    }

    /// Starts the subject on `flash`. With `tells`, restarts report their decisions.
    fn world(
        &self,
        flash: Box<dyn flagstone::nand::Flash>,
        tells: bool,
    ) -> Result<Box<dyn World>, NoStart> {
        let mut options = self.options.clone();
        options.tells = tells;
        let (config, options) = (self.config, &options);
        let device = |flash, kind| Device::open(flash, kind, config, options, Nanos::ZERO);
        let host = |flash, on| Host::open(flash, on, config, options, &self.host, Nanos::ZERO);
        Ok(match self.subject {
            Subject::Protocol(kind) => Box::new(Pages::new(device(flash, kind)?)),
            Subject::Stack(on) => Box::new(Records::new(host(flash, on)?)),
            Subject::Index(index, below) => {
                let (store, now): (Box<dyn BackingStore>, Nanos) = match below {
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
                let settings = index.info().tiny();
                let (mut opened, now) = Recoverable::open(index, store, &settings, now)?;
                opened.make(self.sabotage.of_index());
                // A database that was told of a lost page has stopped.
                let goes_on = matches!(below, Below::Protocol(_));
                Box::new(Keys::new(opened, goes_on, now))
            }
        })
    }
}

/// Whether the subject works on a device.
///
/// # Errors
/// It does not; the text says why.
pub(super) fn suits(
    subject: Subject,
    host: &HostConfig,
    geometry: &Geometry,
    config: &Config,
) -> Result<(), String> {
    match subject.below() {
        Below::Protocol(kind) => kind.suits(geometry, config),
        Below::Stack(stack) => match stack.record_kind() {
            Some(kind) => {
                let records = host.record_options(kind).expect("settings of the stack");
                RecordDevice::suits(kind, geometry, config, &records)
            }
            None => stack.below().suits(geometry, config),
        },
    }
}

/// The settings of a shape that the protocol has, and those of its mode.
fn settings_of(id: &BaseId, device: &DeviceShape) -> Settings {
    let Some(kind) = id.subject.protocol() else {
        return Settings::new();
    };
    let mut settings = device.settings.clone().keep_those_of(kind.info());
    if id.ahead && (1..TINY).contains(&id.shape) {
        // Three of four devices reach the limit of undecided blocks: 0 stands for a high limit.
        let limit = [0, 2, 4, 8][id.shape as usize % 4];
        settings.set("undecided", limit);
    }
    set_mode(id, kind, &mut settings);
    settings
}

/// Sets the settings of the run's mode.
pub(super) fn set_mode(id: &BaseId, kind: Kind, settings: &mut Settings) {
    let mut modes = kind.info().modes.iter();
    if let Some(mode) = modes.find(|mode| Some(mode.name) == id.variant) {
        for (name, value) in mode.settings {
            settings.set(name, value);
        }
    }
}

/// The configuration of the database; unused if the subject has none. An index needs more frames,
/// and a longer log.
fn host(id: &BaseId, shape: &Shape) -> HostConfig {
    let DatabaseShape {
        frames,
        policy,
        log_pages,
        log_buffer_bytes,
        mut checkpoint_every,
        max_c,
        group_wait,
        steal,
        write_through,
        granularity,
        ref settings,
    } = shape.database;
    let mut host = HostConfig::default();
    host.frames = frames;
    host.policy = policy;
    (host.steal, host.write_through, host.granularity) = (steal, write_through, granularity);
    host.mistake = id.sabotage.of_host();
    if matches!(id.subject, Subject::Index(..)) {
        // A transaction of an index changes any number of pages, which must fit into the pool. For
        // faults that destroy pages the pool is small, so that pages are read from flash.
        host.frames += if id.faults.destroys() { 1 } else { 24 };
        checkpoint_every *= 4;
    }
    let Below::Stack(stack) = id.subject.below() else {
        return host;
    };
    let settings = (settings.clone())
        .with("log_buffer_bytes", log_buffer_bytes)
        .with("checkpoint_every", checkpoint_every)
        .with("max_c", max_c)
        .with("group_wait_us", group_wait.0 / 1_000);
    host.settings = settings.keep_those_of(stack.manager());
    let least = host.log_pages_min(stack, shape.device.page_bytes as usize);
    let least = least.expect("a shape has settings that are possible");
    host.log_pages = match (id.subject, log_pages) {
        // One change of an index changes several pages, and none of them may be left out.
        (Subject::Index(..), _) => 4 * least.max(INDEX_DATABASE_LOG_PAGES),
        (_, pages) => pages.unwrap_or(least).max(least),
    };
    host
}
