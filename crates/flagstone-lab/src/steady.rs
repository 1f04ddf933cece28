//! Brings a device into its steady state, and runs one transaction after another.
//!
//! A device that was filled once and never overwritten collects no garbage: measured on it, all
//! policies look alike. [`age`] writes every page once in order, then as many again at random.

use crate::workload::{Request, Workload, WorkloadError};
use flagstone::commit::{Device, DeviceError};
use flagstone::units::{Lpn, Nanos, TxId};

/// The result of a complete run. An incomplete run is an error, never a shorter report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// Pages read.
    pub reads: u64,
    /// Pages written.
    pub writes: u64,
    /// Transactions whose commit was acknowledged.
    pub transactions: u64,
    /// When the last commit was acknowledged.
    pub now: Nanos,
}

/// Why a run was not completed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SteadyError {
    /// The workload cannot be drawn.
    #[error("{0}")]
    Workload(WorkloadError),
    /// The device refused a request.
    #[error("after {completed} requests the device refused: {error}")]
    Device {
        /// Number of completed requests before.
        completed: u64,
        /// The cause.
        error: DeviceError,
    },
    /// Fewer commits were acknowledged, or fewer requests executed, than were issued.
    #[error(
        "{} requests in {} transactions were issued, {} in {} completed",
        issued.0, issued.1, completed.0, completed.1
    )]
    Lost {
        /// Requests and transactions issued.
        issued: (u64, u64),
        /// Requests and transactions completed.
        completed: (u64, u64),
    },
}

// Not derived: the source would repeat the message.
impl From<WorkloadError> for SteadyError {
    fn from(error: WorkloadError) -> Self {
        SteadyError::Workload(error)
    }
}

/// Runs a workload from `now` on. Each transaction begins when the previous one has committed, or
/// waits for its group. Written pages hold no data.
///
/// # Errors
/// See [`SteadyError`].
pub fn run(device: &mut Device, workload: &Workload, now: Nanos) -> Result<Done, SteadyError> {
    let mut transactions = workload.transactions()?;
    let requests = workload.requests;
    drive(device, requests, now, |run| match transactions.advance() {
        Some(requests) => run.transaction(requests),
        None => Ok(0),
    })
}

/// Writes each of the first `pages` pages in order, then `overwrites` times as many at random.
/// Returns when that is complete.
///
/// # Errors
/// See [`SteadyError`].
pub fn age(
    device: &mut Device,
    pages: u32,
    overwrites: f64,
    seed: u64,
    now: Nanos,
) -> Result<Nanos, SteadyError> {
    let mut in_order = (0..pages).map(Lpn);
    let filled = drive(device, pages.into(), now, |run| match in_order.next() {
        Some(page) => run.transaction(&[Request::Write(page)]),
        None => Ok(0),
    })?;
    let requests = (f64::from(pages) * overwrites).round() as u64;
    let workload = Workload::uniform_writes(pages, requests, seed);
    Ok(run(device, &workload, filled.now)?.now)
}

/// Runs transactions until one has no requests; `next` runs one and returns its number of requests.
/// Fails unless the device has counted all of them, and `wanted` requests in total.
#[inline]
fn drive(
    device: &mut Device,
    wanted: u64,
    now: Nanos,
    mut next: impl FnMut(&mut SteadyRun<'_>) -> Result<u64, DeviceError>,
) -> Result<Done, SteadyError> {
    let before = *device.request_stats();
    let mut run = SteadyRun {
        device,
        done: Done {
            now,
            ..Done::default()
        },
        waiting: 0,
    };
    let mut issued = (0, 0);
    let outcome = loop {
        match next(&mut run) {
            Ok(0) => break run.flush(),
            Ok(requests) => issued = (issued.0 + requests, issued.1 + 1),
            Err(error) => break Err(error),
        }
    };
    let done = run.done;
    outcome.map_err(|error| SteadyError::Device {
        completed: done.reads + done.writes,
        error,
    })?;
    let after = *device.request_stats();
    let completed = (
        after.pages_read + after.pages_written - before.pages_read - before.pages_written,
        after.committed - before.committed,
    );
    let counted = (done.reads + done.writes, done.transactions);
    if issued.0 != wanted || completed != issued || counted != issued {
        let issued = (wanted, issued.1);
        return Err(SteadyError::Lost { issued, completed });
    }
    Ok(done)
}

struct SteadyRun<'a> {
    device: &'a mut Device,
    done: Done,
    /// Number of commits not yet acknowledged.
    waiting: u64,
}

impl SteadyRun<'_> {
    /// Runs a transaction. A write in conflict with a transaction that waits for its group
    /// completes the group first. Returns the number of requests.
    #[inline]
    fn transaction(&mut self, requests: &[Request]) -> Result<u64, DeviceError> {
        let tx = self.begin()?;
        for &request in requests {
            match request {
                Request::Read(at) => {
                    self.done.now = self.device.read(self.done.now, Some(tx), at)?.0;
                    self.done.reads += 1;
                }
                Request::Write(at) => {
                    let mut outcome = self.device.write(self.done.now, tx, at, &[]);
                    if self.waiting > 0 && matches!(outcome, Err(DeviceError::Conflict { .. })) {
                        self.flush()?;
                        outcome = self.device.write(self.done.now, tx, at, &[]);
                    }
                    self.done.now = outcome?.next;
                    self.done.writes += 1;
                }
            }
        }
        match self.device.commit(self.done.now, tx)? {
            Some(done) => {
                self.done.now = done;
                self.done.transactions += 1;
            }
            None => self.waiting += 1,
        }
        if self.waiting > 0 {
            self.acknowledge(false)?;
        }
        Ok(requests.len() as u64)
    }

    fn begin(&mut self) -> Result<TxId, DeviceError> {
        match self.device.begin(self.done.now) {
            Err(DeviceError::TooManyLive { .. }) if self.waiting > 0 => {
                self.flush()?;
                self.device.begin(self.done.now)
            }
            outcome => outcome,
        }
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        if self.waiting > 0 {
            self.acknowledge(true)?;
        }
        Ok(())
    }

    fn acknowledge(&mut self, flush: bool) -> Result<(), DeviceError> {
        for (_, done) in self.device.acknowledged(self.done.now, flush)? {
            self.done.now = self.done.now.max(done);
            self.done.transactions += 1;
            self.waiting -= 1;
        }
        Ok(())
    }
}
