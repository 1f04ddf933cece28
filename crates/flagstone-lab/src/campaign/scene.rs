//! The small device that a campaign breaks, and the stack on it.

use super::RunId;
use super::pages::Pages;
use super::sabotage::{Sabotage, Sabotaged};
use super::world::World;
use flagstone::commit::{Device, DeviceError, Group, Kind, Options};
use flagstone::ftl::{Config, FtlError, VictimPolicy};
use flagstone::nand::{
    Cell, Chip, Cut, Entry, Fault, FaultPlan, Faulty, Geometry, PowerCut, Shared, Timing, Tracer,
};
use flagstone::units::Nanos;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::cell::RefCell;
use std::rc::Rc;
use thiserror::Error;

/// A story that is being told, if one is.
pub(super) type Story = Option<Rc<RefCell<Vec<Entry>>>>;

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
            DeviceError::Ftl(FtlError::Unreadable { .. }) => NoStart::Unreadable,
            error => NoStart::Other(error.to_string()),
        }
    }
}

/// How a protocol's device is built.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub(super) kind: Kind,
    pub(super) options: Options,
    pub(super) geometry: Geometry,
    pub(super) config: Config,
    pub(super) sabotage: Sabotage,
}

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
        let config = Config {
            over_provision: 0.0,
            logical_pages: Some(id.pages),
            gc_threshold: 0.0,
            victims: VictimPolicy::WearAware { margin: 3 },
            static_wear_gap: Some(6),
            summary_pages: true,
        };
        let mut geometry = Geometry {
            channels: 1,
            packages_per_channel: 1,
            planes_per_package: 2,
            blocks_per_plane: 4,
            pages_per_block: 6,
            page_bytes: 256,
            spare_bytes: 64,
            cell: Cell::Slc {
                partial_programs: 2,
            },
            strict_order: is_strict(id),
        };
        while id.kind.suits(&geometry, &config).is_err() {
            geometry.blocks_per_plane += 1;
        }
        // Pages of live transactions, uncommitted leftovers, zones; and blocks that faults take.
        geometry.blocks_per_plane += if id.kind.info().format.zoned { 12 } else { 5 };
        geometry.blocks_per_plane += 2 * u32::from(id.faults.bits() != 0);
        Scene {
            kind: id.kind,
            options,
            geometry,
            config,
            sabotage,
        }
    }

    pub(super) fn blank(&self) -> Chip {
        Chip::new(self.geometry, TIMING, 64)
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
        let device = Device::open(flash, self.kind, self.config, &self.options, Nanos::ZERO);
        let world = device.map(|device| Box::new(Pages::new(device)) as Box<dyn World>);
        (stack, world.map_err(NoStart::from))
    }
}

/// Whether a run's device demands ascending order inside a block: some do, so that what a protocol
/// does instead of reprogramming is broken as well.
pub(super) fn is_strict(id: &RunId) -> bool {
    id.kind.info().reprograms && id.seed % 7 == 6
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
    strike(
        id.faults.bits_beyond,
        Fault::BitErrors { bits: 40 },
        900,
        dice,
    );
    FaultPlan {
        faults,
        correctable_bits: 8,
    }
}
