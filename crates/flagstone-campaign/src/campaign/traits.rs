//! The properties of a user-described device that a campaign's devices adopt.
//!
//! A device of gigabytes cannot be filled, collected and cut thousands of times. So a run has its
//! own sizes: number of blocks, pages per block and bytes per page, drawn by the shape. Everything
//! else that a protocol can observe is the user's: planes (at most eight), bytes of a spare area,
//! cell type, program order, pages that share cells, latencies, and the configuration of the
//! translation layer.

use super::shape::Shape;
use flagstone::ftl::{PairedPages, VictimPolicy};
use flagstone::nand::{Cell, Pairing, Timing};
use flagstone_lab::device::DeviceSpec;
use sha2::{Digest, Sha256};

/// Maximum number of planes, to keep the total number of blocks small.
const PLANES_MAX: u32 = 8;

/// The properties that runs adopt from a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTraits {
    /// The name of the device.
    pub name: String,
    pub(super) layout: Layout,
}

/// The properties that determine a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) channels: u32,
    pub(super) planes_per_channel: u32,
    pub(super) spare_bytes: u32,
    pub(super) cell: Cell,
    pub(super) strict_order: bool,
    pub(super) pairing: Pairing,
    pub(super) paired_pages: PairedPages,
    pub(super) timing: Timing,
    pub(super) summary_pages: bool,
    pub(super) copies_stay: bool,
    pub(super) victims: VictimPolicy,
    pub(super) static_wear_gap: Option<u32>,
    pub(super) checksums: bool,
    pub(super) works_ahead: bool,
}

impl DeviceTraits {
    /// The properties of a device.
    pub fn of(spec: &DeviceSpec) -> DeviceTraits {
        let (geometry, config) = (&spec.geometry, &spec.config);
        let channels = geometry.channels.min(PLANES_MAX);
        let planes = geometry.packages_per_channel * geometry.planes_per_package;
        DeviceTraits {
            name: spec.name.clone(),
            layout: Layout {
                channels,
                planes_per_channel: planes.min(PLANES_MAX / channels),
                spare_bytes: geometry.spare_bytes,
                cell: geometry.cell,
                strict_order: geometry.strict_order,
                pairing: geometry.pairing,
                paired_pages: config.paired_pages,
                timing: spec.timing,
                summary_pages: config.summary_pages,
                copies_stay: config.copies_stay,
                victims: config.victims,
                static_wear_gap: config.static_wear_gap,
                checksums: config.checksums,
                works_ahead: config.works_ahead,
            },
        }
    }

    /// A digest that is part of run ids and changes with everything that a run depends on.
    pub(super) fn digest(&self) -> u32 {
        let hash = Sha256::digest(format!("{:?}", self.layout));
        u32::from_be_bytes(hash[..4].try_into().expect("four bytes"))
    }
}

impl Shape {
    /// Gives the device of a shape the properties of a user's device that shapes have. `Scene::new`
    /// takes the others (spare area, cell type, latencies, checksums) from the layout itself.
    pub(super) fn take_over(&mut self, traits: &DeviceTraits) {
        let (device, from) = (&mut self.device, &traits.layout);
        device.channels = from.channels;
        device.planes_per_channel = from.planes_per_channel;
        device.strict_order = from.strict_order;
        device.summary_pages = from.summary_pages;
        device.copies_stay = from.copies_stay;
        device.victims = from.victims;
        device.static_wear_gap = from.static_wear_gap;
        if from.pairing != Pairing::None {
            self.share_cells(from.pairing, from.paired_pages);
        }
    }
}
