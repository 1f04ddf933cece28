//! Replay: fills a device, plays a script on it in virtual time with all counters, and finally
//! cycles the power to measure a restart.
//!
//! Virtual time is deterministic: runs with equal configuration and seed give equal figures, on
//! every machine and with any number of threads. Only `timing` depends on the machine.
//!
//! ```
//! use flagstone::commit::{Kind, Options};
//! use flagstone_lab::device::DeviceSpec;
//! use flagstone_lab::replay::{InputName, Setup, Terms, script_of};
//! use flagstone_lab::workload::{Pattern, Workload};
//!
//! let workload = Workload {
//!     pattern: Pattern::Uniform,
//!     pages: 1_000,
//!     requests: 400,
//!     read_share: 0.0,
//!     pages_per_transaction: 4,
//!     seed: 1,
//! };
//! let setup = Setup {
//!     kind: Kind::LightTx,
//!     options: Options::default(),
//!     device: DeviceSpec::load("small")?,
//!     isolation: None,
//!     terms: Terms::default(),
//! };
//! let source = InputName { name: workload.pattern.to_string(), sha256: None };
//! let record = setup.run(&script_of(&workload)?, &source)?;
//! assert_eq!(record.transactions_committed, 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod clock;
mod fill;
mod played;
mod record;
mod script;
mod terms;
mod times;

pub use fill::Fill;
pub use played::Played;
pub use record::{Causes, Erases, Latency, ReplayRecord, Timing, by_cause, flash_by_cause};
pub use record::{given, memory_of};
pub(crate) use script::page_ratio;
pub use script::{Script, ScriptError, Transaction};
pub use terms::Terms;
pub use times::{Times, write_times};

use crate::device::{DeviceSpec, chip_of, power_off};
use crate::driver::{Admission, Counted, Driver, DriverError, PageDevice, Plan, Span};
use crate::effort;
use crate::image::{self, ImageError};
use crate::occupied::Occupied;
use crate::stop;
use crate::workload::{Request, Workload, WorkloadError};
use fill::Batch;
use flagstone::commit::{Device, DeviceError, Isolation, Kind, Options};
use flagstone::ftl::{Cause, Operation};
use flagstone::units::{Lpn, Nanos};
use flagstone_host::HostError;
use std::path::Path;
use std::time::Instant;
use thiserror::Error;

/// One run: a protocol on a device with a script.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The protocol.
    pub kind: Kind,
    /// Its variant.
    pub options: Options,
    /// The device.
    pub device: DeviceSpec,
    /// How far transactions overlap; `None` for the loosest level that the protocol supports.
    pub isolation: Option<Isolation>,
    /// Conditions of the run, shared with experiment files.
    pub terms: Terms,
}

/// Why a run is not possible.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The protocol does not support the run.
    #[error("{0}")]
    Refused(String),
    /// The device stopped.
    #[error("{protocol} on {device}: {source}")]
    Device {
        /// The protocol.
        protocol: &'static str,
        /// The device.
        device: String,
        /// The cause.
        source: DeviceError,
    },
    /// The script does not suit the device.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The workload cannot be drawn.
    #[error("{0}")]
    Workload(#[from] WorkloadError),
    /// The saved device cannot be used.
    #[error("{0}")]
    Image(ImageError),
}

// Not derived: the source would repeat the message.
impl From<ImageError> for ReplayError {
    fn from(error: ImageError) -> Self {
        ReplayError::Image(error)
    }
}

impl ReplayError {
    /// Whether the protocol refused the request, as opposed to a failed run.
    pub fn is_refusal(&self) -> bool {
        matches!(self, ReplayError::Refused(_))
    }
}

/// The script of a synthetic workload, with one begin per microsecond for open loops.
///
/// # Errors
/// The workload cannot be drawn.
pub fn script_of(workload: &Workload) -> Result<Script, WorkloadError> {
    let mut script = Script::default();
    let mut transactions = workload.transactions()?;
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    let mut start_ns = 0;
    while let Some(requests) = transactions.advance() {
        stop::point();
        reads.clear();
        writes.clear();
        for request in requests {
            match request {
                Request::Read(at) => reads.push(at.0),
                Request::Write(at) => writes.push(at.0),
            }
        }
        script.push(start_ns, false, &reads, &[], &writes);
        start_ns += 1_000;
    }
    Ok(script)
}

impl Setup {
    /// The isolation level of the run.
    ///
    /// # Errors
    /// The protocol does not support it.
    pub fn isolation(&self) -> Result<Isolation, ReplayError> {
        let info = self.kind.info();
        match self.isolation {
            None => Ok(info.isolation),
            Some(asked) if asked <= info.isolation => Ok(asked),
            Some(asked) => Err(ReplayError::Refused(format!(
                "{} supports {} isolation at the most, not {asked}",
                info.name, info.isolation
            ))),
        }
    }

    /// The device on which the run starts.
    pub fn fill(&self) -> Fill {
        Fill {
            kind: self.kind,
            options: self.options.clone(),
            device: self.device.clone(),
            share: self.terms.fill,
            overwrite: self.terms.overwrite,
            seed: self.terms.seed,
        }
    }

    /// As [`Fill::capacity`].
    ///
    /// # Errors
    /// The device does not suit the protocol.
    pub fn capacity(&self) -> Result<u32, ReplayError> {
        self.fill().capacity()
    }

    fn failed(&self, source: DeviceError) -> ReplayError {
        self.fill().failed(source)
    }

    /// Writes pages that a script reads before it writes them and that the device lacks: reading an
    /// empty page would cost nothing. Returns their number.
    fn fill_for_reads(
        &self,
        device: &mut Device,
        filled: Nanos,
        script: &Script,
    ) -> Result<(u64, Nanos), DeviceError> {
        let mut pages = script.read_first();
        pages.retain(|&page| device.ftl().slot(Lpn(page)).ppn().is_none());
        let (mut batch, mut now) = (Batch::new(), filled);
        for &page in &pages {
            stop::point();
            now = batch.write(device, now, page)?;
        }
        Ok((pages.len() as u64, batch.end(device, now)?))
    }

    /// Executes the run.
    ///
    /// # Errors
    /// The protocol lacks support, the script does not fit, or the device fails.
    pub fn run(&self, script: &Script, source: &InputName) -> Result<ReplayRecord, ReplayError> {
        self.run_timed(script, source).map(|(record, _)| record)
    }

    /// Executes the run; also returns the times of each transaction.
    ///
    /// # Errors
    /// As [`Setup::run`].
    pub fn run_timed(
        &self,
        script: &Script,
        source: &InputName,
    ) -> Result<(ReplayRecord, Times), ReplayError> {
        script.fits(self.device.geometry.page_bytes, self.capacity()?)?;
        let wall = Instant::now();
        let (device, filled) = self.fill().filled()?;
        let (record, counted) = self.run_on(device, filled, wall, script, source)?;
        let times = Times::of(record.protocol, self.terms.seed, &counted);
        Ok((record, times))
    }

    /// Executes the run on a copy of a device from [`Fill::filled`], which other runs can use
    /// again.
    ///
    /// # Errors
    /// As [`Setup::run`].
    pub fn run_filled(
        &self,
        (device, filled): &(Device, Nanos),
        script: &Script,
        source: &InputName,
    ) -> Result<ReplayRecord, ReplayError> {
        script.fits(self.device.geometry.page_bytes, self.capacity()?)?;
        let wall = Instant::now();
        let device = device.duplicate(Box::new(chip_of(device.ftl()).clone()));
        let (record, _) = self.run_on(device, *filled, wall, script, source)?;
        Ok(record)
    }

    /// Executes the run on a saved device that was filled before. It has been power-cycled since
    /// then; its fill level is as found.
    ///
    /// # Errors
    /// As [`Setup::run`] and [`image::load`].
    pub fn run_saved(
        &self,
        image: &Path,
        script: &Script,
        source: &InputName,
    ) -> Result<ReplayRecord, ReplayError> {
        script.fits(self.device.geometry.page_bytes, self.capacity()?)?;
        let wall = Instant::now();
        let device = image::load(
            image,
            &self.device.geometry,
            self.device.timing,
            self.device.copy_back,
            &self.saved(),
        )?;
        let pages = (0..device.pages()).map(|at| device.ftl().slot(Lpn(at)).ppn());
        let fill = pages.flatten().count() as f64 / f64::from(device.pages());
        let mut found = self.clone();
        found.terms.fill = fill;
        let start = device.recovered_at();
        let (record, _) = found.run_on(device, start, wall, script, source)?;
        Ok(record)
    }

    /// The configuration stored in a saved device.
    pub fn saved(&self) -> image::Setup {
        image::Setup {
            kind: self.kind,
            config: self.device.config,
            options: self.options.clone(),
        }
    }

    fn run_on(
        &self,
        mut device: Device,
        filled: Nanos,
        wall: Instant,
        script: &Script,
        source: &InputName,
    ) -> Result<(ReplayRecord, Counted), ReplayError> {
        let isolation = self.isolation()?;
        let (unwritten, filled) = self
            .fill_for_reads(&mut device, filled, script)
            .map_err(|source| self.failed(source))?;
        // A device that was only filled has had time to erase the remaining blocks.
        let start = if self.terms.overwrite {
            filled
        } else {
            device
                .erase_ahead(filled)
                .map_err(|source| self.failed(source))?
        };
        device.reset_stats();
        effort::left(script.effort());
        let erased_before = erase_counts(&device).to_vec();
        let busy_before = chip_of(device.ftl()).busy();
        let window = Instant::now();
        let barriers = isolation == Isolation::Strict || self.terms.speedup.is_some();
        let mut driver = Driver::new(
            self.plan(),
            Admission::isolated(isolation),
            PageDevice::new(&mut device, barriers),
            Played::new(script).with_recorded_aborts(self.terms.recorded_aborts),
            start,
        );
        let counted = driver.run(Span::Transactions(u64::MAX));
        let counted = counted.map_err(|error| match error {
            DriverError::Host {
                error: HostError::Device(source),
                ..
            } => self.failed(source),
            defect => panic!("{defect}"),
        })?;
        let load = driver.load(Nanos::ZERO);
        let pages_under_way = driver.pages_under_way();
        let window_s = window.elapsed().as_secs_f64();
        let all = script.transactions().len() as u64;
        assert_eq!(
            driver.issued_and_completed(),
            (all, all),
            "every transaction began, and has ended"
        );
        let host = *device.request_stats();
        assert_eq!(
            host.begun,
            host.committed + host.aborted,
            "the device agrees"
        );
        let erases = Erases::between(&erased_before, erase_counts(&device));
        let mut record =
            ReplayRecord::new(self, isolation, source, &device, &counted, load, erases);
        let page_bytes = u64::from(self.device.geometry.page_bytes);
        record.bytes_under_way = pages_under_way.map(|pages| pages * page_bytes);
        let busy = [busy_before, chip_of(device.ftl()).busy()];
        let window = Nanos(record.virtual_ns);
        record.occupied = Occupied::within(window, busy, device.stats(), &self.device);
        let (recovery_ns, recovery_pages_read) = self.restart(device)?;
        record.pages_filled_for_reads = unwritten;
        record.recovery_ns = recovery_ns;
        record.recovery_pages_read = recovery_pages_read;
        let pages = host.pages_written + host.pages_read;
        record.timing = Some(Timing {
            wall_s: wall.elapsed().as_secs_f64(),
            host_pages_per_s: pages as f64 / window_s.max(1e-9),
            peak_rss_bytes: record::peak_rss_bytes(),
        });
        Ok((record, counted))
    }

    fn plan(&self) -> Plan {
        Plan {
            clients: self.terms.clients,
            speedup: self.terms.speedup,
            abort_ratio: self.terms.abort_ratio,
            back_off: Nanos::ZERO,
            seed: self.terms.seed,
            check: false,
        }
    }

    /// Cycles the power. Returns the recovery time, and the number of pages read.
    fn restart(&self, device: Device) -> Result<(u64, u64), ReplayError> {
        let device = self.fill().open(power_off(device.into_flash()))?;
        Ok((
            device.recovered_at().0,
            device.stats().count(Operation::Read, Cause::Recovery),
        ))
    }
}

fn erase_counts(device: &Device) -> &[u32] {
    chip_of(device.ftl()).erase_counts()
}

/// Describes the input, for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputName {
    /// Name of the trace or of the workload.
    pub name: String,
    /// Checksum of the trace file; `None` for a workload.
    pub sha256: Option<String>,
}
