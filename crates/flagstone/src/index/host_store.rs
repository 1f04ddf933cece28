//! Pages of an index as records of a database: a page is the one record of a page of the host, so
//! that an index operation is recoverable with every recovery manager there is.

use super::{Store, StoreError};
use crate::ftl::Ftl;
use crate::host::{Host, HostError, Rid, Step};
use crate::units::{Lpn, Nanos, TxId};

/// A database as a store, with one client.
pub struct HostStore {
    host: Host,
    page_bytes: usize,
    open: Option<TxId>,
    /// When the last transaction was over: its locks stand until then.
    free_at: Nanos,
    buffer: Vec<u8>,
}

impl HostStore {
    /// All pages of a database that are not its log.
    pub fn new(host: Host) -> HostStore {
        HostStore {
            page_bytes: host.record_bytes_max(),
            host,
            open: None,
            free_at: Nanos::ZERO,
            buffer: Vec::new(),
        }
    }

    /// The database.
    pub fn host(&mut self) -> &mut Host {
        &mut self.host
    }

    /// Gives the database back. A transaction that was begun stays so.
    pub fn into_host(self) -> Host {
        self.host
    }

    /// Does something in the transaction that was begun, or in one of its own.
    fn within(
        &mut self,
        now: Nanos,
        what: impl FnOnce(&mut HostStore, Nanos, TxId) -> Result<Nanos, StoreError>,
    ) -> Result<Nanos, StoreError> {
        if let Some(tx) = self.open {
            return what(self, now, tx);
        }
        let now = now.max(self.free_at);
        let tx = self.host.begin(now)?;
        match what(self, now, tx) {
            Ok(done) => self.end(done, tx),
            Err(StoreError::Restart(why)) => {
                self.free_at = self.host.abort(now, tx)?;
                Err(StoreError::Restart(why))
            }
            Err(error) => Err(error),
        }
    }

    fn end(&mut self, now: Nanos, tx: TxId) -> Result<Nanos, StoreError> {
        if let Step::Done((), done) = self.host.commit(now, tx)? {
            self.free_at = done;
            return Ok(done);
        }
        let done = self.host.acknowledged(now, true)?;
        let mine = done.iter().find(|(other, _)| *other == tx);
        // A lone client waits for no lock, so what it waits for is its group.
        self.free_at = mine.expect("a flush ends every commit that waits").1;
        Ok(self.free_at)
    }
}

/// The result of a step, of which a lone client never has to wait.
fn done<T>(step: Step<T>) -> Result<(T, Nanos), StoreError> {
    match step {
        Step::Done(result, when) => Ok((result, when)),
        Step::Waits => unreachable!("a lone client waits for nobody"),
        Step::Abort { why, .. } => Err(StoreError::Restart(format!(
            "{why:?}: give the database more frames or log pages"
        ))),
    }
}

impl Store for HostStore {
    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn pages(&self) -> u32 {
        self.host.pages()
    }

    fn read(&mut self, now: Nanos, at: Lpn, into: &mut [u8]) -> Result<Nanos, StoreError> {
        let mut record = std::mem::take(&mut self.buffer);
        record.clear();
        let read = self.within(now, |store, now, tx| {
            let rid = Rid { page: at, slot: 0 };
            Ok(done(store.host.read(now, tx, rid, &mut record)?)?.1)
        });
        into[..record.len()].copy_from_slice(&record);
        into[record.len()..].fill(0);
        self.buffer = record;
        read
    }

    fn write(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, StoreError> {
        self.within(now, |store, now, tx| {
            let mut last = now;
            for &(at, data) in pages {
                // Zeros at the end come back by themselves.
                let len = data
                    .iter()
                    .rposition(|&byte| byte != 0)
                    .map_or(0, |i| i + 1);
                let rid = Rid { page: at, slot: 0 };
                let step = store.host.write(now, tx, rid, Some(&data[..len]))?;
                last = last.max(done(step)?.1);
            }
            Ok(last)
        })
    }

    fn trim(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, StoreError> {
        self.within(now, |store, now, tx| {
            let rid = Rid { page: at, slot: 0 };
            Ok(done(store.host.write(now, tx, rid, None)?)?.1)
        })
    }

    fn transactional(&self) -> bool {
        true
    }

    fn begin(&mut self, now: Nanos) -> Result<Nanos, StoreError> {
        assert!(self.open.is_none(), "one transaction at a time");
        let now = now.max(self.free_at);
        self.open = Some(self.host.begin(now)?);
        Ok(now)
    }

    fn commit(&mut self, now: Nanos) -> Result<Nanos, StoreError> {
        let tx = self.open.take();
        let tx = tx.ok_or(HostError::NoTransaction(TxId(0)))?;
        self.end(now, tx)
    }

    fn abort(&mut self, now: Nanos) -> Result<Nanos, StoreError> {
        let tx = self.open.take();
        let tx = tx.ok_or(HostError::NoTransaction(TxId(0)))?;
        self.free_at = self.host.abort(now, tx)?;
        Ok(self.free_at)
    }

    fn ftl(&self) -> Option<&Ftl> {
        Some(self.host.ftl())
    }

    fn verify(&self) -> Result<(), String> {
        self.host.verify()
    }
}
