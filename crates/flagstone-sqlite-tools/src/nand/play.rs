//! Recorded writes on a simulated device, and what they cost there.

use super::{Role, Trace};
use crate::engine::Engine;
use flagstone::commit::{Device, DeviceError, Kind, Options};
use flagstone::ftl::{Cause, Operation};
use flagstone::units::{Lpn, Nanos};
use flagstone_lab::device::DeviceSpec;
use flagstone_lab::steady;
use flagstone_terminal::Failure;

/// How often each page of a database is written over, at random, before what was recorded: then the
/// collector is at work.
const AGEING: f64 = 1.0;

/// What a workload came to on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Played {
    transactions: u64,
    /// Pages that the host wrote.
    host: u64,
    pub(crate) programs: u64,
    pub(crate) erases: u64,
    /// Erases that the cells of all blocks stand.
    rated: u64,
    pages_per_block: u32,
    took: Nanos,
}

impl Played {
    fn a_transaction(&self, count: u64) -> f64 {
        count as f64 / self.transactions as f64
    }

    /// Programs, a transaction.
    pub(crate) fn programs(&self) -> f64 {
        self.a_transaction(self.programs)
    }

    /// Erases, a thousand transactions.
    pub(crate) fn erases(&self) -> f64 {
        self.a_transaction(self.erases) * 1e3
    }

    /// Pages programmed for each that the host wrote.
    pub(crate) fn amplification(&self) -> Option<f64> {
        (self.host > 0).then(|| self.programs as f64 / self.host as f64)
    }

    /// Transactions until all blocks have had the erases that their cells are rated for. What fills
    /// a block is erased in the end: programs say it more exactly than the few erases of a run.
    pub(crate) fn lasts(&self) -> Option<f64> {
        let blocks = self.programs as f64 / f64::from(self.pages_per_block);
        (self.programs > 0).then(|| self.rated as f64 * self.transactions as f64 / blocks)
    }

    /// Transactions a second of virtual time.
    pub(crate) fn rate(&self) -> Option<f64> {
        (self.took > Nanos::ZERO).then(|| self.transactions as f64 / (self.took.0 as f64 / 1e9))
    }
}

/// A device that what was recorded fits.
pub(super) struct Fits {
    spec: DeviceSpec,
    logical_pages: u32,
}

/// The protocol below a database.
fn kind(engine: Engine) -> Kind {
    match engine {
        Engine::Flagstone => Kind::Seal,
        _ => Kind::Plain,
    }
}

impl Fits {
    /// A device with the chips of another one, and so many blocks that `pages` fill a share of what
    /// it offers.
    pub(super) fn new(spec: &DeviceSpec, pages: u32, fill: f64) -> Result<Fits, Failure> {
        let logical_pages = (f64::from(pages.max(1)) / fill).ceil() as u32;
        let mut spec = spec.clone();
        spec.factory_bad.clear();
        spec.config.logical_pages = Some(logical_pages);
        let per_block = spec.geometry.planes() * spec.geometry.pages_per_block;
        let raw = f64::from(logical_pages) / (1.0 - spec.config.over_provision);
        let mut blocks = (raw / f64::from(per_block)).ceil() as u32;
        // What the layer needs for itself does not shrink with a small device.
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

    /// Plays what was recorded, on a device that holds the database and has been written over.
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
        // Journals and logs lie in the last pages.
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
