//! Filled devices, on which runs start.

use super::ReplayError;
use crate::device::DeviceSpec;
use crate::effort;
use crate::stop;
use flagstone::commit::{Device, DeviceError, Kind, Options};
use flagstone::ftl::Ftl;
use flagstone::nand::Chip;
use flagstone::units::{Lpn, Nanos};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Everything that a filled device depends on. Equal fills give equal devices, so a fill is the key
/// of a cache of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Fill {
    /// The protocol.
    pub kind: Kind,
    /// Its variant.
    pub options: Options,
    /// The device.
    pub device: DeviceSpec,
    /// Share of the logical pages that are written in order.
    pub share: f64,
    /// Whether these are then overwritten at random, until the collector works all the time.
    pub overwrite: bool,
    /// Seed of the overwrites.
    pub seed: u64,
}

impl Fill {
    /// Number of logical pages of the device under this protocol.
    ///
    /// # Errors
    /// The device does not suit the protocol.
    pub fn capacity(&self) -> Result<u32, ReplayError> {
        let format = self
            .kind
            .info()
            .format_on(&self.device.geometry, &self.options)
            .map_err(|error| ReplayError::Refused(error.0))?;
        self.kind
            .suits(&self.device.geometry, &self.device.config)
            .map_err(ReplayError::Refused)?;
        Ftl::capacity(&self.device.geometry, &self.device.config, &format)
            .map_err(|error| ReplayError::Refused(error.0))
    }

    /// Checks whether a blank device starts under this protocol with these options.
    ///
    /// # Errors
    /// The protocol or the device refuses them.
    pub fn starts(&self) -> Result<(), ReplayError> {
        self.capacity()?;
        self.open(self.blank()).map(|_| ())
    }

    pub(super) fn blank(&self) -> Chip {
        let spare_kept = self.kind.info().format.spare_bytes(&self.device.config);
        self.device.chip(spare_kept)
    }

    pub(super) fn open(&self, chip: Chip) -> Result<Device, ReplayError> {
        Device::open(
            Box::new(chip),
            self.kind,
            self.device.config,
            &self.options,
            Nanos::ZERO,
        )
        .map_err(|source| self.failed(source))
    }

    pub(crate) fn failed(&self, source: DeviceError) -> ReplayError {
        match source {
            DeviceError::Unsuitable(why) => ReplayError::Refused(why),
            source => ReplayError::Device {
                protocol: self.kind.info().name,
                device: self.device.name.clone(),
                source,
            },
        }
    }

    /// A device that was filled, and overwritten until the collector works; and the instant at
    /// which that is complete.
    ///
    /// # Errors
    /// The device does not suit the protocol or is too full.
    pub fn filled(&self) -> Result<(Device, Nanos), ReplayError> {
        let mut device = self.open(self.blank())?;
        let now = self.write(&mut device);
        let now = now.map_err(|source| self.failed(source))?;
        Ok((device, now))
    }

    /// Fills a blank device.
    pub(super) fn write(&self, device: &mut Device) -> Result<Nanos, DeviceError> {
        let mut batch = Batch::new();
        let order = self.order(device.pages(), Device::ftl);
        let now = order.write(device, |device, now, page| batch.write(device, now, page))?;
        batch.end(device, now)
    }

    /// The fill order for a device of any kind with `pages` logical pages.
    pub(crate) fn order<D>(&self, pages: u32, ftl: fn(&D) -> &Ftl) -> Order<D> {
        Order {
            pages: (f64::from(pages) * self.share.clamp(0.0, 1.0)) as u32,
            overwrite: self.overwrite,
            seed: self.seed,
            ftl,
        }
    }

    /// Approximate cost of [`Fill::filled`], in the unit of [`effort`].
    pub fn filling(&self) -> u64 {
        let geometry = &self.device.geometry;
        let filled = f64::from(self.capacity().unwrap_or(0)) * self.share.clamp(0.0, 1.0);
        let overwritten = if self.overwrite {
            // The remaining pages, until few blocks are free; then half of the filled pages.
            (geometry.pages() as f64 * 0.97 - filled).max(0.0) + filled / 2.0
        } else {
            0.0
        };
        filled as u64 * effort::FILLED + overwritten as u64 * effort::OVERWRITTEN
    }
}

/// The sequence of pages that a fill writes.
pub(crate) struct Order<D> {
    pages: u32,
    overwrite: bool,
    seed: u64,
    ftl: fn(&D) -> &Ftl,
}

/// Overwrites, as a multiple of the flash pages, after which the collector counts as working
/// regardless of free blocks.
const PASSES_MAX: u64 = 4;

impl<D> Order<D> {
    /// Writes all pages in order, then overwrites at random until the free blocks are used up and
    /// half of the device's contents have been rewritten: from then on the collector works
    /// constantly.
    pub(crate) fn write(
        &self,
        device: &mut D,
        mut write: impl FnMut(&mut D, Nanos, u32) -> Result<Nanos, DeviceError>,
    ) -> Result<Nanos, DeviceError> {
        let mut now = Nanos::ZERO;
        for page in 0..self.pages {
            stop::point();
            effort::did(effort::FILLED);
            now = write(device, now, page)?;
        }
        let mut dice = Pcg64Mcg::seed_from_u64(self.seed ^ 0xf111);
        let mut left = if self.overwrite { self.pages / 2 } else { 0 };
        let few = few_blocks((self.ftl)(device));
        let writes_max = PASSES_MAX * u64::from((self.ftl)(device).geometry().pages());
        let mut made = 0;
        while left > 0 && made < writes_max {
            stop::point();
            effort::did(effort::OVERWRITTEN);
            if (self.ftl)(device).blocks().free_blocks() <= few {
                left -= 1;
            }
            now = write(device, now, dice.random_range(0..self.pages))?;
            made += 1;
        }
        Ok(now)
    }
}

/// With this few free blocks the collector works. Blocks set aside by zones count as used.
fn few_blocks(ftl: &Ftl) -> u32 {
    let geometry = ftl.geometry();
    let share = (f64::from(geometry.blocks()) * ftl.config().gc_threshold).ceil() as u32;
    share.max(ftl.gc_least_blocks()) + geometry.planes()
}

/// Writes in transactions of a fixed size, for the fill.
pub(super) struct Batch {
    tx: Option<flagstone::units::TxId>,
    written: Vec<u32>,
}

const BATCH_PAGES: usize = 32;

impl Batch {
    pub(super) fn new() -> Batch {
        Batch {
            tx: None,
            written: Vec::with_capacity(BATCH_PAGES),
        }
    }

    /// Writes a page in the current transaction. If that is full or has written the page, ends it
    /// and begins another one.
    pub(super) fn write(
        &mut self,
        device: &mut Device,
        now: Nanos,
        page: u32,
    ) -> Result<Nanos, DeviceError> {
        let mut now = now;
        // A host writes a page once per transaction.
        if self.written.len() == BATCH_PAGES || self.written.contains(&page) {
            now = self.end(device, now)?;
        }
        let tx = match self.tx {
            Some(tx) => tx,
            None => *self.tx.insert(device.begin(now)?),
        };
        self.written.push(page);
        device
            .write(now, tx, Lpn(page), &[])
            .map(|taken| taken.next)
    }

    pub(super) fn end(&mut self, device: &mut Device, now: Nanos) -> Result<Nanos, DeviceError> {
        self.written.clear();
        match self.tx.take() {
            None => Ok(now),
            Some(tx) => match device.commit(now, tx)? {
                Some(done) => Ok(done),
                None => {
                    let done = device.acknowledged(now, true)?;
                    Ok(done.iter().map(|(_, at)| *at).max().unwrap_or(now))
                }
            },
        }
    }
}
