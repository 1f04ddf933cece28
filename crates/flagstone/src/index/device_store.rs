//! Pages of an index on a transactional device: each write a transaction of the device, or all
//! those between begin and commit together.

use super::{Store, StoreError};
use crate::commit::Device;
use crate::nand::Flash;
use crate::units::{Lpn, Nanos, TxId};

/// A device as a store.
pub struct DeviceStore {
    device: Device,
    open: Option<TxId>,
}

impl DeviceStore {
    /// All logical pages of a device.
    pub fn new(device: Device) -> DeviceStore {
        DeviceStore { device, open: None }
    }

    /// The device.
    pub fn device(&mut self) -> &mut Device {
        &mut self.device
    }

    /// Gives the device back. A transaction that was begun stays so.
    pub fn into_device(self) -> Device {
        self.device
    }

    /// Commits, whatever the protocol waits for.
    fn end(&mut self, now: Nanos, tx: TxId) -> Result<Nanos, StoreError> {
        if let Some(done) = self.device.commit(now, tx)? {
            return Ok(done);
        }
        // One transaction at a time: no other will join the group.
        let done = self.device.acknowledged(now, true)?;
        let mine = done.iter().find(|(other, _)| *other == tx);
        Ok(mine.expect("a flush ends every commit that waits").1)
    }
}

impl Store for DeviceStore {
    fn page_bytes(&self) -> usize {
        self.device.geometry().page_bytes as usize
    }

    fn pages(&self) -> u32 {
        self.device.pages()
    }

    fn read(&mut self, now: Nanos, at: Lpn, into: &mut [u8]) -> Result<Nanos, StoreError> {
        let (done, data) = self.device.read(now, self.open, at)?;
        let data = data.unwrap_or_default();
        into[..data.len()].copy_from_slice(data);
        into[data.len()..].fill(0);
        Ok(done)
    }

    fn write(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, StoreError> {
        let tx = match self.open {
            Some(tx) => tx,
            None => self.device.begin(now)?,
        };
        let mut done = now;
        for &(at, data) in pages {
            // All are asked for at once: that is what spreads them over the parallel units.
            done = done.max(self.device.write(now, tx, at, data)?);
        }
        if self.open.is_some() {
            return Ok(done);
        }
        self.end(done, tx)
    }

    fn trim(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, StoreError> {
        match self.open {
            Some(tx) => Ok(self.device.trim(now, tx, at)?),
            None => {
                let tx = self.device.begin(now)?;
                let done = self.device.trim(now, tx, at)?;
                self.end(done, tx)
            }
        }
    }

    fn transactional(&self) -> bool {
        self.device.info().atomic
    }

    fn begin(&mut self, now: Nanos) -> Result<Nanos, StoreError> {
        if self.device.info().atomic {
            assert!(self.open.is_none(), "one transaction at a time");
            self.open = Some(self.device.begin(now)?);
        }
        Ok(now)
    }

    fn commit(&mut self, now: Nanos) -> Result<Nanos, StoreError> {
        match self.open.take() {
            Some(tx) => self.end(now, tx),
            None => Ok(now),
        }
    }

    fn abort(&mut self, now: Nanos) -> Result<Nanos, StoreError> {
        match self.open.take() {
            Some(tx) => Ok(self.device.abort(now, tx)?),
            None => Ok(now),
        }
    }

    fn into_flash(self: Box<Self>) -> Option<Box<dyn Flash>> {
        Some(self.device.into_flash())
    }
}
