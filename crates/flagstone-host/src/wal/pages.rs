//! Raw pages: a device without transactions, with `write` and `sync`.
//!
//! The device has the protocol `plain`, whose transactions only collect the programs that a commit
//! waits for. All writes since the last sync are in one of them, which the sync commits. A page of
//! the log is in one of its own.

use super::super::HostError;
use super::super::log::LogPages;
use flagstone::commit::{Device, Kind, Options};
use flagstone::ftl::{Cause, Config};
use flagstone::nand::Flash;
use flagstone::units::{Lpn, Nanos, TxId};

pub(crate) struct Pages {
    pub(crate) device: Box<Device>,
    /// The writes that [`Pages::sync`] waits for.
    unsynced: TxId,
}

impl Pages {
    pub(super) fn open(
        flash: Box<dyn Flash>,
        config: Config,
        options: &Options,
        now: Nanos,
    ) -> Result<Pages, HostError> {
        let mut device = Device::open(flash, Kind::Plain, config, options, now)?;
        let unsynced = device.begin_more(device.recovered_at())?;
        let device = Box::new(device);
        Ok(Pages { device, unsynced })
    }

    /// Reads a page. Returns when it arrives, and its bytes: none if it was never written.
    pub(super) fn read(&mut self, now: Nanos, at: Lpn) -> Result<(Nanos, &[u8]), HostError> {
        let (done, bytes) = self.device.read(now, None, at)?;
        Ok((done, bytes.unwrap_or_default()))
    }

    /// Writes a page, which is valid as soon as it is on flash. Returns when the device accepts the
    /// next write.
    pub(super) fn write(&mut self, now: Nanos, at: Lpn, bytes: &[u8]) -> Result<Nanos, HostError> {
        Ok(self.device.write(now, self.unsynced, at, bytes)?.next)
    }

    /// Waits until all writes are durable.
    pub(super) fn sync(&mut self, now: Nanos) -> Result<Nanos, HostError> {
        let written = self.device.commit(now, self.unsynced)?;
        let written = written.expect("plain waits for no group");
        self.unsynced = self.device.begin_more(written)?;
        Ok(written)
    }
}

impl LogPages for Pages {
    fn get(&mut self, now: Nanos, at: Lpn, into: &mut Vec<u8>) -> Result<Nanos, HostError> {
        into.clear();
        let (done, bytes) = self.device.read_as(Cause::Log, now, None, at)?;
        into.extend_from_slice(bytes.unwrap_or_default());
        Ok(done)
    }

    fn put(&mut self, now: Nanos, at: Lpn, bytes: &[u8]) -> Result<Nanos, HostError> {
        let tx = self.device.begin_more(now)?;
        let taken = self.device.write_as(Cause::Log, now, tx, at, bytes)?;
        let done = self.device.commit(taken.next, tx)?;
        Ok(done.expect("plain waits for no group"))
    }
}
