//! Filled devices with a history, on which closed loops start.

use super::history::Ring;
use super::{ClosedError, History};
use crate::device::power_off;
use crate::replay;
use flagstone::commit::{RecordDevice, RecordKind, RecordOptions};
use flagstone::nand::Chip;
use flagstone::units::{Lpn, Nanos};
use std::collections::BTreeSet;

/// Everything that a filled device depends on, except its history. Equal fills give equal devices,
/// so a fill is the key of a cache of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Fill {
    /// The device without a history.
    pub(super) device: replay::Fill,
    /// Set if the device commits records.
    pub(super) records: Option<(RecordKind, RecordOptions)>,
    /// Set if the stack has a log.
    pub(super) log: Option<Logs>,
}

/// The log pages that a history writes, and those of the run, which follow them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Logs {
    pub(super) of_history: u32,
    pub(super) of_run: u32,
}

impl Logs {
    /// The log of a history on a device with `pages` logical pages.
    fn of_history(self, pages: u32) -> Ring {
        Ring {
            first: pages.saturating_sub(self.of_history + self.of_run),
            pages: self.of_history,
        }
    }
}

impl Fill {
    /// A device with a share of its pages in use, overwritten until the collector works, with
    /// `history` applied, and powered off.
    ///
    /// # Errors
    /// The device does not suit the protocol, or is too full.
    pub fn filled(&self, history: &History) -> Result<Chip, ClosedError> {
        let log = |pages| self.log.map(|log| log.of_history(pages));
        let Some((kind, options)) = &self.records else {
            let (mut device, now) = self.device.filled()?;
            let log = log(device.pages());
            let happened = history.on_pages(&mut device, now, log);
            happened.map_err(|error| self.device.failed(error))?;
            return Ok(power_off(device.into_flash()));
        };
        let fill = || {
            let spec = &self.device.device;
            let chip = spec.chip(spec.geometry.spare_bytes as usize);
            let mut device =
                RecordDevice::open(Box::new(chip), *kind, spec.config, options, Nanos::ZERO)?;
            let now = device.recovered_at();
            device.resolve(now, &BTreeSet::new())?;
            let order = self.device.order(device.pages(), RecordDevice::ftl);
            // Each page is a version by itself; the next need not wait for it.
            let now = order.write(&mut device, |device, now, page| {
                device.write(now, Lpn(page), &[], &[]).map(|_| now)
            })?;
            let log = log(device.pages()).expect("stacks with records have a log");
            history.on_records(&mut device, now, log)?;
            Ok(power_off(device.into_flash()))
        };
        fill().map_err(|error| self.device.failed(error).into())
    }
}
