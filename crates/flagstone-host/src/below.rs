//! The device below the host. There are two kinds: transactions own pages, or share them.

use super::HostError;
use super::log::{LogPages, Tape};
use flagstone::commit::{
    Device, DeviceError, MergedPage, Pending, RecordDevice, Taken, spare_numbers,
};
use flagstone::ftl::{Cause, Ftl};
use flagstone::nand::Flash;
use flagstone::units::{Lpn, Nanos, TxId};

/// How a page of the pool is written to the device.
pub(super) enum As {
    /// In this device transaction.
    In(TxId),
    /// Outside of transactions: valid as soon as it is on flash.
    Apart,
    /// As a page version that lists these pending records.
    Listing(Vec<Pending>),
}

/// Makes the same call on either kind of device.
macro_rules! either {
    ($below:expr, $device:ident => $what:expr) => {
        match $below {
            Below::Pages {
                device: $device, ..
            } => $what,
            Below::Records {
                device: $device, ..
            } => $what,
        }
    };
}

/// A device below the host.
pub(super) enum Below {
    /// Transactions own pages.
    Pages {
        device: Box<Device>,
        /// A device transaction for pages that no host transaction owns. Its commit waits for these
        /// pages.
        apart: Option<TxId>,
    },
    /// Transactions share pages.
    Records {
        device: Box<RecordDevice>,
        /// The log's master page, held back while transactions are in doubt: the device accepts no
        /// pages until they are resolved.
        held: Option<(Lpn, Vec<u8>)>,
        in_doubt: bool,
        /// When all pages written so far are durable and all flags are set.
        safe_at: Nanos,
    },
}

impl Below {
    /// A page device: each host transaction is a device transaction.
    pub(super) fn pages(device: Device) -> Below {
        let device = Box::new(device);
        Below::Pages {
            device,
            apart: None,
        }
    }

    pub(super) fn records(device: RecordDevice) -> Below {
        Below::Records {
            device: Box::new(device),
            held: None,
            in_doubt: true,
            safe_at: Nanos::ZERO,
        }
    }

    /// From now on pages can be written [`As::Apart`].
    pub(super) fn begin_apart(&mut self, now: Nanos) -> Result<(), HostError> {
        if let Below::Pages { device, apart } = self {
            *apart = Some(device.begin_more(now)?);
        }
        Ok(())
    }

    /// Resolves the transactions in doubt: the log tells which have committed.
    pub(super) fn resolve(&mut self, now: Nanos, tape: &Tape) -> Result<Nanos, HostError> {
        let Below::Records {
            device,
            held,
            in_doubt,
            ..
        } = self
        else {
            return Ok(now);
        };
        let done = device.resolve(now, &tape.committed())?;
        *in_doubt = false;
        match held.take() {
            Some((at, bytes)) => self.put(done, at, &bytes),
            None => Ok(done),
        }
    }

    /// Reads a page in a device transaction, or its committed version.
    pub(super) fn read(
        &mut self,
        now: Nanos,
        tx: Option<TxId>,
        at: Lpn,
        into: &mut MergedPage,
    ) -> Result<Nanos, DeviceError> {
        match self {
            Below::Pages { device, .. } => {
                let (done, bytes) = device.read(now, tx, at)?;
                into.image.clear();
                into.image.extend_from_slice(bytes.unwrap_or_default());
                Ok(done)
            }
            Below::Records { device, .. } => device.read(now, at, into),
        }
    }

    /// Writes a page.
    pub(super) fn write(
        &mut self,
        now: Nanos,
        at: Lpn,
        image: &[u8],
        how: &As,
    ) -> Result<Taken, DeviceError> {
        match (self, how) {
            (Below::Pages { device, .. }, As::In(tx)) => device.write(now, *tx, at, image),
            (Below::Pages { device, apart }, _) => {
                let tx = apart.expect("`begin_apart` was called");
                device.write(now, tx, at, image)
            }
            (
                Below::Records {
                    device, safe_at, ..
                },
                how,
            ) => {
                let pending: &[Pending] = match how {
                    As::Listing(pending) => pending,
                    As::In(_) | As::Apart => &[],
                };
                let done = device.write(now, at, image, pending)?;
                *safe_at = done.max(*safe_at);
                Ok(Taken::new(now, done))
            }
        }
    }

    /// Waits until written pages are durable, unless their own commit does so.
    pub(super) fn wait_for_pages(&mut self, now: Nanos) -> Result<Nanos, HostError> {
        match self {
            Below::Pages { device, apart } => {
                let Some(tx) = apart else { return Ok(now) };
                let written = device.commit(now, *tx)?;
                let written = written.expect("plain waits for no group");
                *tx = device.begin_more(written)?;
                Ok(written)
            }
            Below::Records { safe_at, .. } => Ok(now.max(*safe_at)),
        }
    }

    /// Fails when ids or write sequences are nearly used up.
    pub(super) fn has_numbers(&self, last: TxId) -> Result<(), DeviceError> {
        let numbers = either!(self, device => {
            spare_numbers(device.ftl(), last.max(device.last_tx()))
        });
        Ok(numbers?)
    }

    /// Begins a device transaction for a host transaction. Returns its device identifier.
    pub(super) fn begin(&mut self, now: Nanos, tx: TxId) -> Result<TxId, DeviceError> {
        match self {
            Below::Pages { device, .. } => device.begin_more(now),
            Below::Records { device, .. } => device.enter(tx).map(|()| tx),
        }
    }

    /// Commits a device transaction. `None` if it waits for its group.
    pub(super) fn commit(&mut self, now: Nanos, tx: TxId) -> Result<Option<Nanos>, DeviceError> {
        match self {
            Below::Pages { device, .. } => device.commit(now, tx),
            Below::Records {
                device, safe_at, ..
            } => {
                let done = device.commit(now, tx)?;
                *safe_at = done.max(*safe_at);
                Ok(Some(done))
            }
        }
    }

    pub(super) fn abort(&mut self, now: Nanos, tx: TxId) -> Result<Nanos, DeviceError> {
        either!(self, device => device.abort(now, tx))
    }

    /// See [`Device::acknowledged`].
    pub(super) fn acknowledged(
        &mut self,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, DeviceError> {
        match self {
            Below::Pages { device, .. } => device.acknowledged(now, flush),
            Below::Records { .. } => Ok(Vec::new()),
        }
    }

    /// See [`Device::deadline`].
    pub(super) fn deadline(&self) -> Option<Nanos> {
        match self {
            Below::Pages { device, .. } => device.deadline(),
            Below::Records { .. } => None,
        }
    }

    /// Bytes of each structure in memory.
    pub(super) fn memory(&self) -> Vec<(&'static str, u64)> {
        either!(self, device => device.memory())
    }

    pub(super) fn reset_stats(&mut self) {
        either!(self, device => device.reset_stats())
    }

    /// See [`Ftl::erase_ahead`].
    pub(super) fn erase_ahead(&mut self, now: Nanos) -> Result<Nanos, DeviceError> {
        either!(self, device => device.erase_ahead(now))
    }

    /// See [`Flash::reached`](flagstone::nand::Flash::reached).
    pub(super) fn reached(&mut self, now: Nanos) {
        either!(self, device => device.reached(now));
    }

    pub(super) fn ftl(&self) -> &Ftl {
        either!(self, device => device.ftl())
    }

    /// See [`Ftl::lend_reserve`].
    pub(super) fn lend_reserve(&mut self, lent: bool) {
        either!(self, device => device.lend_reserve(lent));
    }

    pub(super) fn check(&self) -> Result<(), String> {
        either!(self, device => device.check())
    }

    pub(super) fn into_flash(self) -> Box<dyn Flash> {
        either!(self, device => device.into_flash())
    }
}

impl LogPages for Below {
    fn get(&mut self, now: Nanos, at: Lpn, into: &mut Vec<u8>) -> Result<Nanos, HostError> {
        match self {
            Below::Pages { device, .. } => {
                into.clear();
                let (done, bytes) = device.read_as(Cause::Log, now, None, at)?;
                into.extend_from_slice(bytes.unwrap_or_default());
                Ok(done)
            }
            Below::Records { device, .. } => {
                let mut page = MergedPage::default();
                let done = device.read_as(Cause::Log, now, at, &mut page)?;
                *into = page.image;
                Ok(done)
            }
        }
    }

    fn put(&mut self, now: Nanos, at: Lpn, bytes: &[u8]) -> Result<Nanos, HostError> {
        match self {
            Below::Pages { device, .. } => {
                let tx = device.begin(now)?;
                let taken = device.write_as(Cause::Log, now, tx, at, bytes)?;
                let done = device.commit(taken.next, tx)?;
                Ok(done.expect("plain waits for no group"))
            }
            Below::Records {
                held,
                in_doubt: true,
                ..
            } => {
                *held = Some((at, bytes.to_vec()));
                Ok(now)
            }
            Below::Records { device, .. } => {
                Ok(device.write_as(Cause::Log, now, at, bytes, &[])?)
            }
        }
    }
}
