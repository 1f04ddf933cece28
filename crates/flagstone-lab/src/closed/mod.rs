//! The closed loop: clients in virtual time over a database ([`Host`]) on a simulated device.
//!
//! A device is filled until the collector works, and a database is opened on it. Clients run, first
//! to warm up and then to be measured. Transactions still running then complete. After a power
//! cycle the restart is measured as well. With `Plan::check` every read of the run, and every
//! record after the restart, is compared with the committed data.
//!
//! In contrast, [`replay`] plays page writes on a device. Here records are read and
//! written through a buffer pool under locks, and transactions wait for each other and are
//! restarted. Which of them conflict depends on the stack.

mod fill;
mod history;
mod record;
mod recorded;
mod terms;

pub use fill::Fill;
pub use history::{History, Past};
pub use record::{ClosedRecord, ClosedTiming};
pub use recorded::{Recorded, Recording};
pub use terms::Terms;
pub use terms::log_pages;

use crate::device::{DeviceSpec, chip_of, power_off};
use crate::driver::{Admission, Driver, DriverError, Oracle, Source, Span};
use crate::effort;
use crate::occupied::Occupied;
use crate::replay::{self, Erases, ReplayError};
use fill::Logs;
use flagstone::commit::{Options, RecordDevice, RecordKind, RecordOptions};
use flagstone::ftl::{Cause, Operation};
use flagstone::nand::Chip;
use flagstone::settings::Settings;
use flagstone::units::Nanos;
use flagstone_host::{Granularity, Host, HostConfig, HostError, Stack, Step};
use std::time::Instant;
use thiserror::Error;

/// One run.
#[derive(Debug, Clone)]
pub struct Closed {
    /// The recovery manager and the protocol below it.
    pub stack: Stack,
    /// The protocol's variant.
    pub options: Options,
    /// The device.
    pub device: DeviceSpec,
    /// Settings of the recovery manager.
    pub settings: Settings,
    /// Settings of the eviction policy.
    pub policy_settings: Settings,
    /// Conditions of the run, shared with experiment files.
    pub terms: Terms,
    /// Name of the workload, for the record.
    pub workload: String,
}

/// Why a run is not possible.
#[derive(Debug, Error)]
pub enum ClosedError {
    /// The device cannot be filled.
    #[error(transparent)]
    Fill(#[from] ReplayError),
    /// The database cannot be opened.
    #[error("{stack} on {device}: {error}")]
    Open {
        /// The stack.
        stack: Stack,
        /// The device.
        device: String,
        /// The cause.
        error: HostError,
    },
    /// The database has too few pages.
    #[error(
        "the transactions use {needed} pages, but {stack} on {device} has {available}: use a \
         larger device (--device) or a shorter trace"
    )]
    TooLarge {
        /// The stack.
        stack: Stack,
        /// The device.
        device: String,
        /// Number of pages used.
        needed: u32,
        /// Pages of the database.
        available: u32,
    },
    /// The run failed.
    #[error("{stack} on {device}: {error}")]
    Run {
        /// The stack.
        stack: Stack,
        /// The device.
        device: String,
        /// The cause.
        error: DriverError,
    },
}

impl Closed {
    /// The unit of locking.
    pub fn granularity(&self) -> Granularity {
        self.terms.locks.unwrap_or(self.stack.granularity())
    }

    /// The database's settings.
    pub fn host(&self) -> HostConfig {
        let mut host = self.terms.host();
        host.settings = self.settings.clone();
        host.policy_settings = self.policy_settings.clone();
        host
    }

    /// The device's fill, without the log of a history.
    pub fn device_fill(&self) -> replay::Fill {
        replay::Fill {
            kind: self.stack.below(),
            options: self.options.clone(),
            device: self.device.clone(),
            share: self.terms.fill,
            overwrite: self.terms.overwrite,
            seed: self.terms.seed,
        }
    }

    /// Options of a device that commits records.
    fn record_options(&self, kind: RecordKind) -> Result<RecordOptions, ClosedError> {
        let options = self.host().record_options(kind);
        options.map_err(|error| self.not_open(error))
    }

    /// Approximate number of pages in the database: those of the device, less those of the log.
    ///
    /// # Errors
    /// The device does not suit the stack.
    pub fn capacity(&self) -> Result<u32, ClosedError> {
        let pages = self.device_fill().capacity()?;
        if let Some(kind) = self.stack.record_kind() {
            let DeviceSpec {
                geometry, config, ..
            } = &self.device;
            RecordDevice::suits(kind, geometry, config, &self.record_options(kind)?)
                .map_err(ReplayError::Refused)?;
        }
        let log = match self.stack {
            Stack::Force(_) => 0,
            Stack::Wal | Stack::CfcEx | Stack::AfcEx => self.terms.log_pages,
        };
        Ok(pages.saturating_sub(log))
    }

    /// The device on which the run starts, before its history.
    ///
    /// # Errors
    /// A setting of the recovery manager is invalid.
    pub fn fill(&self) -> Result<Fill, ClosedError> {
        let records = self.stack.record_kind();
        let options = |kind| self.record_options(kind).map(|options| (kind, options));
        let log = match self.stack {
            Stack::Force(_) => None,
            Stack::Wal | Stack::CfcEx | Stack::AfcEx => Some(Logs {
                of_history: self.terms.history_log.unwrap_or(self.terms.log_pages),
                of_run: self.terms.log_pages,
            }),
        };
        Ok(Fill {
            device: self.device_fill(),
            records: records.map(options).transpose()?,
            log,
        })
    }

    /// A database on a device.
    ///
    /// # Errors
    /// Contradictory settings, or a device written by another stack.
    pub fn open(&self, chip: Chip) -> Result<Host, ClosedError> {
        let host = Host::open(
            Box::new(chip),
            self.stack,
            self.device.config,
            &self.options,
            &self.host(),
            Nanos::ZERO,
        );
        host.map_err(|error| self.not_open(error))
    }

    fn not_open(&self, error: HostError) -> ClosedError {
        ClosedError::Open {
            stack: self.stack,
            device: self.device.name.clone(),
            error,
        }
    }

    /// Number of transactions played, from a source of `all`; `None` if unknown.
    fn transactions(&self, all: Option<u64>) -> Option<u64> {
        let counts = [self.terms.warm_up, self.terms.transactions];
        let counts = counts.map(|count| Some(count).filter(|&count| count != u64::MAX).or(all));
        let sum = counts[0]?.saturating_add(counts[1]?);
        Some(all.map_or(sum, |all| all.min(sum)))
    }

    /// Approximate cost of [`Closed::run`] with a source of `transactions` transactions, in the
    /// unit of [`effort`].
    pub fn effort(&self, transactions: u64) -> u64 {
        let played = self
            .transactions(Some(transactions))
            .unwrap_or(transactions);
        self.device_fill().filling() + played * effort::TRANSACTED
    }

    /// Executes the run, on a device that it fills, without a history.
    ///
    /// # Errors
    /// The device or the database fails, or a read is wrong.
    pub fn run(&self, source: &mut impl Source) -> Result<ClosedRecord, ClosedError> {
        self.run_on(self.fill()?.filled(&History::default())?, source)
    }

    /// Executes the run on a device from [`Fill::filled`].
    ///
    /// # Errors
    /// As [`Closed::run`].
    pub fn run_on(
        &self,
        chip: Chip,
        source: &mut impl Source,
    ) -> Result<ClosedRecord, ClosedError> {
        let wall = Instant::now();
        let mut host = self.open(chip)?;
        if source.pages() > host.pages() {
            return Err(ClosedError::TooLarge {
                stack: self.stack,
                device: self.device.name.clone(),
                needed: source.pages(),
                available: host.pages(),
            });
        }
        let failed = |error| ClosedError::Run {
            stack: self.stack,
            device: self.device.name.clone(),
            error,
        };
        // A device that was only filled has had time to erase the remaining blocks.
        let start = if self.terms.overwrite {
            host.recovered_at()
        } else {
            host.erase_ahead(host.recovered_at())
                .map_err(|error| self.not_open(error))?
        };
        let mut driver = Driver::new(self.terms.plan(), Admission::Free, host, source, start);
        if let Some(transactions) = self.transactions(None) {
            effort::left(transactions * effort::TRANSACTED);
        }
        let simulated = Instant::now();
        driver
            .run(Span::Transactions(self.terms.warm_up))
            .map_err(failed)?;
        driver.engine().reset_stats();
        let erased = chip_of(driver.engine().ftl()).erase_counts().to_vec();
        let busy_before = chip_of(driver.engine().ftl()).busy();
        let measured = Span::Transactions(self.terms.transactions);
        let counted = driver.run(measured).map_err(failed)?;
        let simulated_wall_s = simulated.elapsed().as_secs_f64();
        let (_, ended) = driver.issued_and_completed();
        let load = driver.load(counted.from);
        let host = driver.engine();
        let erases = Erases::between(&erased, chip_of(host.ftl()).erase_counts());
        let mut record = ClosedRecord::new(self, host, &host.stats(), &counted, load, erases);
        let busy = [busy_before, chip_of(host.ftl()).busy()];
        let window = Nanos(record.virtual_ns);
        record.occupied = Occupied::within(window, busy, host.ftl().stats(), &self.device);
        driver.drain().map_err(failed)?;
        (record.issued, _) = driver.issued_and_completed();

        let (host, oracle) = driver.into_parts();
        let mut host = self.open(power_off(host.into_flash()))?;
        record.recovery_ns = host.recovered_at().0;
        record.recovery_pages_read = host.ftl().stats().count(Operation::Read, Cause::Recovery);
        if let Some(oracle) = oracle {
            record.records_checked = Some(check(&mut host, &oracle).map_err(failed)?);
        }
        record.timing = Some(ClosedTiming {
            wall_s: wall.elapsed().as_secs_f64(),
            simulated_wall_s,
            transactions_per_wall_minute: ended as f64 / simulated_wall_s.max(1e-9) * 60.0,
        });
        Ok(record)
    }
}

/// Compares every record ever written with the committed data. Returns their number.
fn check(host: &mut Host, oracle: &Oracle) -> Result<u64, DriverError> {
    let mut now = host.recovered_at();
    let failed = |at, error| DriverError::Host { at, error };
    let (mut tx, mut bytes, mut checked) = (None, Vec::new(), 0);
    for (rid, _) in oracle.committed() {
        // One transaction per thousand records, to keep the number of locks low.
        if checked % 1_000 == 0
            && let Some(over) = tx.take()
        {
            host.commit(now, over).map_err(|error| failed(now, error))?;
        }
        let reader = match tx {
            Some(tx) => tx,
            None => *tx.insert(host.begin(now).map_err(|error| failed(now, error))?),
        };
        let step = host.read(now, reader, rid, &mut bytes);
        let Step::Done(there, done) = step.map_err(|error| failed(now, error))? else {
            return Err(DriverError::Stuck {
                at: now,
                waiting: 1,
            });
        };
        let found = there.then_some(&bytes[..]);
        let read = oracle.read(reader, rid, found);
        read.map_err(|wrong| DriverError::WrongRead { at: now, wrong })?;
        now = done;
        checked += 1;
    }
    Ok(checked)
}

#[cfg(test)]
mod tests;
