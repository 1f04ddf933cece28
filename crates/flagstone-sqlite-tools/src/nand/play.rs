//! Plays recorded writes on a simulated device and measures their cost.

use super::{Role, Trace};
use crate::engine::Engine;
use flagstone::commit::{Device, DeviceError, Kind, Options};
use flagstone::ftl::{Cause, Operation};
use flagstone::units::{Lpn, Nanos};
use flagstone_lab::device::DeviceSpec;
use flagstone_lab::steady;
use flagstone_terminal::Failure;

/// How many times, on average, the pages of a database are overwritten at random before the
/// recording is played, so that garbage collection is under way.
const AGEING: f64 = 1.0;

/// The cost of a workload on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Played {
    transactions: u64,
    /// Pages written by the host.
    host: u64,
    pub(crate) programs: u64,
    pub(crate) erases: u64,
    /// Rated erases of all blocks together.
    rated: u64,
    pages_per_block: u32,
    took: Nanos,
}

impl Played {
    fn a_transaction(&self, count: u64) -> f64 {
        count as f64 / self.transactions as f64
    }

    /// Programs for each transaction.
    pub(crate) fn programs(&self) -> f64 {
        self.a_transaction(self.programs)
    }

    /// Erases for each thousand transactions.
    pub(crate) fn erases(&self) -> f64 {
        self.a_transaction(self.erases) * 1e3
    }

    /// Write amplification: pages programmed for each page that the host wrote.
    pub(crate) fn amplification(&self) -> Option<f64> {
        (self.host > 0).then(|| self.programs as f64 / self.host as f64)
    }

    /// Transactions until all blocks reach their rated erases. Erases are derived from programs,
    /// since each full block is erased eventually, and a run has too few erases to count.
    pub(crate) fn lasts(&self) -> Option<f64> {
        let blocks = self.programs as f64 / f64::from(self.pages_per_block);
        (self.programs > 0).then(|| self.rated as f64 * self.transactions as f64 / blocks)
    }

    /// Transactions per second of virtual time.
    pub(crate) fn rate(&self) -> Option<f64> {
        (self.took > Nanos::ZERO).then(|| self.transactions as f64 / (self.took.0 as f64 / 1e9))
    }
}

/// A device sized for a recording.
pub(super) struct Fits {
    spec: DeviceSpec,
    logical_pages: u32,
}

/// The protocol of the device below a database.
fn kind(engine: Engine) -> Kind {
    match engine {
        Engine::Flagstone => Kind::Seal,
        _ => Kind::Plain,
    }
}

impl Fits {
    /// A device with the chips of `spec`, and with enough blocks that `pages` fill the share `fill`
    /// of its logical pages.
    pub(super) fn new(spec: &DeviceSpec, pages: u32, fill: f64) -> Result<Fits, Failure> {
        let logical_pages = (f64::from(pages.max(1)) / fill).ceil() as u32;
        let mut spec = spec.clone();
        spec.factory_bad.clear();
        spec.config.logical_pages = Some(logical_pages);
        let per_block = spec.geometry.planes() * spec.geometry.pages_per_block;
        let raw = f64::from(logical_pages) / (1.0 - spec.config.over_provision);
        let mut blocks = (raw / f64::from(per_block)).ceil() as u32;
        // The FTL's reserve does not shrink with the device: a small one may need more.
        loop {
            spec.geometry.blocks_per_plane = blocks;
            let suits = [Kind::Seal, Kind::Plain]
                .into_iter()
                .try_for_each(|kind| kind.suits(&spec.geometry, &spec.config));
            match suits {
                Ok(()) => break,
                Err(why) if blocks > raw as u32 => return Err(Failure::Usage(why)),
                Err(_) => blocks += 1,
            }
        }
        Ok(Fits {
            spec,
            logical_pages,
        })
    }

    /// Fills a device with the database, ages it, and plays the recording on it.
    pub(super) fn play(
        &self,
        engine: Engine,
        trace: &Trace,
        transactions: u64,
        seed: u64,
    ) -> Result<Played, Failure> {
        let failed = |error: DeviceError| {
            Failure::Failed(format!("{} in virtual time: {error}", engine.name()))
        };
        let (kind, spec) = (kind(engine), &self.spec);
        let chip = spec.chip(kind.info().format.spare_bytes(&spec.config));
        let (options, start) = (Options::default(), Nanos::ZERO);
        let opened = Device::open(Box::new(chip), kind, spec.config, &options, start);
        let mut device = opened.map_err(failed)?;
        let aged = steady::age(&mut device, trace.begins_with.max(1), AGEING, seed, start);
        let began = aged.map_err(|error| Failure::Failed(error.to_string()))?;
        device.reset_stats();
        let mut now = began;
        // Journals and logs use the last logical pages.
        let journal = self.logical_pages - trace.pages_of(Role::Journal);
        let mut host = 0;
        for pages in &trace.syncs {
            let tx = device.begin(now).map_err(failed)?;
            for &(role, page) in pages {
                let at = match role {
                    Role::Database => page,
                    Role::Journal => journal + page,
                };
                now = device.write(now, tx, Lpn(at), &[]).map_err(failed)?.next;
            }
            host += pages.len() as u64;
            let committed = device.commit(now, tx).map_err(failed)?;
            now = committed.expect("neither protocol has groups");
        }
        let stats = device.stats();
        Ok(Played {
            transactions,
            host,
            programs: stats.total(Operation::Program)
                - stats.count(Operation::Program, Cause::Recovery),
            erases: stats.total(Operation::Erase),
            rated: u64::from(spec.endurance) * u64::from(spec.geometry.blocks()),
            pages_per_block: spec.geometry.pages_per_block,
            took: Nanos(now.0 - began.0),
        })
    }
}
