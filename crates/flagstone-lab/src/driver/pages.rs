//! A page device as a backend: a record is its page, written pages are empty, and deleting a record
//! trims its page.

use super::Backend;
use crate::effort;
use flagstone::commit::{Device, DeviceError};
use flagstone::units::{Lpn, Nanos, TxId};
use flagstone_host::{HostError, Rid, Step};
use rustc_hash::FxHashMap;

/// A device, and additional state of its transactions.
pub(crate) struct PageDevice<'a> {
    device: &'a mut Device,
    /// Live transactions, with the instant at which each one's programs are complete.
    live: FxHashMap<TxId, Nanos>,
    /// Number of transactions that wait for their group.
    grouped: usize,
    /// Whether a rollback waits until its requests, now useless, complete, as barriers in replayed
    /// recordings do ([LightTx] §4.2).
    barriers: bool,
}

impl<'a> PageDevice<'a> {
    pub(crate) fn new(device: &'a mut Device, barriers: bool) -> Self {
        PageDevice {
            device,
            live: FxHashMap::default(),
            grouped: 0,
            barriers,
        }
    }
}

impl Backend for PageDevice<'_> {
    fn begin(&mut self, now: Nanos) -> Result<Option<TxId>, HostError> {
        match self.device.begin(now) {
            Ok(tx) => {
                self.live.insert(tx, now);
                Ok(Some(tx))
            }
            Err(DeviceError::TooManyLive { .. }) if !self.live.is_empty() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn touch(&mut self, now: Nanos, tx: TxId, page: Lpn) -> Result<Step<()>, HostError> {
        effort::did(effort::REPLAYED);
        let (done, _) = self.device.read(now, Some(tx), page)?;
        Ok(Step::Done((), done))
    }

    fn read(
        &mut self,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        _: &mut Vec<u8>,
    ) -> Result<Step<bool>, HostError> {
        effort::did(effort::REPLAYED);
        let (done, bytes) = self.device.read(now, Some(tx), rid.page)?;
        Ok(Step::Done(bytes.is_some(), done))
    }

    /// Writes or trims a page. With barriers, the transaction keeps when its last write is done.
    fn write(
        &mut self,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError> {
        effort::did(effort::REPLAYED);
        if bytes.is_none() {
            let taken = self.device.trim(now, tx, rid.page)?;
            return Ok(Step::Done((), taken.next));
        }
        let taken = self.device.write(now, tx, rid.page, &[])?;
        if self.barriers
            && let Some(written) = self.live.get_mut(&tx)
        {
            *written = taken.done.max(*written);
        }
        Ok(Step::Done((), taken.next))
    }

    fn commit(&mut self, now: Nanos, tx: TxId) -> Result<Step<()>, HostError> {
        Ok(match self.device.commit(now, tx)? {
            Some(done) => {
                self.live.remove(&tx);
                Step::Done((), done)
            }
            None => {
                self.grouped += 1;
                Step::Waits
            }
        })
    }

    fn abort(&mut self, now: Nanos, tx: TxId) -> Result<Nanos, HostError> {
        let done = self.device.abort(now, tx)?;
        let written = self.live.remove(&tx).filter(|_| self.barriers);
        Ok(written.map_or(done, |written| done.max(written)))
    }

    fn woken(&mut self) -> Vec<TxId> {
        Vec::new()
    }

    fn acknowledged(&mut self, now: Nanos, flush: bool) -> Result<Vec<(TxId, Nanos)>, HostError> {
        let done = self.device.acknowledged(now, flush)?;
        self.grouped -= done.len();
        for (tx, _) in &done {
            self.live.remove(tx);
        }
        Ok(done)
    }

    fn deadline(&self) -> Option<Nanos> {
        self.device.deadline().filter(|_| self.grouped > 0)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        self.device.memory()
    }

    fn reached(&mut self, now: Nanos) {
        self.device.reached(now);
    }
}
