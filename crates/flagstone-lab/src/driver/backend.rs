//! The calls that a driver makes: those of [`Host`]. A page device implements them as well, and
//! tests drive a database that makes mistakes.

use flagstone::units::{Lpn, Nanos, TxId};
use flagstone_host::{Host, HostError, Rid, Step};

/// A database or a device in virtual time, with the methods and the contract of [`Host`].
#[allow(missing_docs, reason = "see Host")]
pub trait Backend {
    /// Like [`Host::begin`]; returns `None` if the maximum number of transactions is live.
    fn begin(&mut self, now: Nanos) -> Result<Option<TxId>, HostError>;
    fn touch(&mut self, now: Nanos, tx: TxId, page: Lpn) -> Result<Step<()>, HostError>;
    fn read(
        &mut self,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        into: &mut Vec<u8>,
    ) -> Result<Step<bool>, HostError>;
    fn write(
        &mut self,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError>;
    fn commit(&mut self, now: Nanos, tx: TxId) -> Result<Step<()>, HostError>;
    fn abort(&mut self, now: Nanos, tx: TxId) -> Result<Nanos, HostError>;
    fn woken(&mut self) -> Vec<TxId>;
    fn acknowledged(&mut self, now: Nanos, flush: bool) -> Result<Vec<(TxId, Nanos)>, HostError>;
    fn deadline(&self) -> Option<Nanos>;
    fn memory(&self) -> Vec<(&'static str, u64)>;
    fn reached(&mut self, now: Nanos);
}

impl Backend for Host {
    fn begin(&mut self, now: Nanos) -> Result<Option<TxId>, HostError> {
        self.begin(now).map(Some)
    }

    fn touch(&mut self, now: Nanos, tx: TxId, page: Lpn) -> Result<Step<()>, HostError> {
        self.touch(now, tx, page)
    }

    fn read(
        &mut self,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        into: &mut Vec<u8>,
    ) -> Result<Step<bool>, HostError> {
        self.read(now, tx, rid, into)
    }

    fn write(
        &mut self,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError> {
        self.write(now, tx, rid, bytes)
    }

    fn commit(&mut self, now: Nanos, tx: TxId) -> Result<Step<()>, HostError> {
        self.commit(now, tx)
    }

    fn abort(&mut self, now: Nanos, tx: TxId) -> Result<Nanos, HostError> {
        self.abort(now, tx)
    }

    fn woken(&mut self) -> Vec<TxId> {
        self.woken()
    }

    fn acknowledged(&mut self, now: Nanos, flush: bool) -> Result<Vec<(TxId, Nanos)>, HostError> {
        self.acknowledged(now, flush)
    }

    fn deadline(&self) -> Option<Nanos> {
        self.deadline()
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        self.memory()
    }

    fn reached(&mut self, now: Nanos) {
        self.reached(now);
    }
}
