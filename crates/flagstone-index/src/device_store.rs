//! Pages of an index on a transactional device. Each write is a device transaction, or all writes
//! between begin and commit are one.
//!
//! Writes of a transaction are buffered until commit and then issued in parallel. Each page is
//! written once, as some protocols require.

use super::{BackingError, BackingStore};
use flagstone::commit::Device;
use flagstone::ftl::Ftl;
use flagstone::units::{Lpn, Nanos, TxId};
use std::collections::BTreeMap;

/// Pages written by the transaction; `None` for a trimmed page.
type Waiting = BTreeMap<Lpn, Option<Box<[u8]>>>;

/// A device as a store.
pub struct DeviceStore {
    device: Device,
    open: Option<Waiting>,
}

impl DeviceStore {
    /// Uses all logical pages of a device.
    pub fn new(device: Device) -> DeviceStore {
        DeviceStore { device, open: None }
    }

    /// The device.
    pub fn device(&mut self) -> &mut Device {
        &mut self.device
    }

    /// Writes pages, or trims those without data, in a transaction of the device.
    fn put<'a>(
        &mut self,
        now: Nanos,
        pages: impl Iterator<Item = (Lpn, Option<&'a [u8]>)>,
    ) -> Result<Nanos, BackingError> {
        let tx = self.device.begin(now)?;
        let put = self.put_in(now, tx, pages);
        if put.is_err() {
            // Roll back. If that fails, the device cannot continue either.
            let _ = self.device.abort(now, tx);
        }
        put
    }

    /// Writes or trims pages in `tx`, and commits it. Returns when it is durable.
    fn put_in<'a>(
        &mut self,
        now: Nanos,
        tx: TxId,
        pages: impl Iterator<Item = (Lpn, Option<&'a [u8]>)>,
    ) -> Result<Nanos, BackingError> {
        let mut done = now;
        for (at, data) in pages {
            // Issue all at one instant, which spreads them over the parallel units.
            let taken = match data {
                Some(data) => self.device.write(now, tx, at, data)?.next,
                None => self.device.trim(now, tx, at)?.next,
            };
            done = done.max(taken);
        }
        if let Some(done) = self.device.commit(done, tx)? {
            return Ok(done);
        }
        // There is one transaction at a time, so no other will join the group.
        let ended = self.device.acknowledged(done, true)?;
        let mine = ended.iter().find(|(other, _)| *other == tx);
        Ok(mine.expect("a flush ends every commit that waits").1)
    }

    fn check(&self, at: Lpn) -> Result<(), BackingError> {
        let pages = self.device.pages();
        if at.0 >= pages {
            return Err(BackingError::OutOfRange { at, pages });
        }
        Ok(())
    }
}

impl BackingStore for DeviceStore {
    fn page_bytes(&self) -> usize {
        self.device.geometry().page_bytes as usize
    }

    fn pages(&self) -> u32 {
        self.device.pages()
    }

    fn read(&mut self, now: Nanos, at: Lpn, into: &mut [u8]) -> Result<Nanos, BackingError> {
        let own = self.open.as_ref().and_then(|waiting| waiting.get(&at));
        let (done, bytes) = match own {
            Some(data) => {
                let data = data.as_deref().unwrap_or_default();
                into[..data.len()].copy_from_slice(data);
                (now, Some(data.len()))
            }
            None => self.device.read_into(now, None, at, into)?,
        };
        into[bytes.unwrap_or(0)..].fill(0);
        Ok(done)
    }

    fn write(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, BackingError> {
        for &(at, _) in pages {
            self.check(at)?;
        }
        match &mut self.open {
            Some(waiting) => {
                waiting.extend(pages.iter().map(|&(at, data)| (at, Some(data.into()))));
                Ok(now)
            }
            None => self.put(now, pages.iter().map(|&(at, data)| (at, Some(data)))),
        }
    }

    fn trim(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, BackingError> {
        self.check(at)?;
        match &mut self.open {
            Some(waiting) => {
                waiting.insert(at, None);
                Ok(now)
            }
            None => self.put(now, std::iter::once((at, None))),
        }
    }

    fn transactional(&self) -> bool {
        self.device.info().atomic
    }

    fn begin(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        if self.transactional() {
            assert!(self.open.is_none(), "one transaction at a time");
            self.open = Some(Waiting::new());
        }
        Ok(now)
    }

    fn commit(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        match self.open.take() {
            Some(waiting) if !waiting.is_empty() => {
                self.put(now, waiting.iter().map(|(&at, data)| (at, data.as_deref())))
            }
            _ => Ok(now),
        }
    }

    fn abort(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        self.open = None;
        Ok(now)
    }

    fn ftl(&self) -> Option<&Ftl> {
        Some(self.device.ftl())
    }

    fn verify(&self) -> Result<(), String> {
        self.device.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone::commit::{Kind, Options};
    use flagstone::ftl::Config;
    use flagstone::nand::small;

    /// Fails if the device still has the transaction: it would refuse others, or others that write
    /// the same page.
    #[test]
    fn pages_that_could_not_be_written_leave_no_transaction_behind() {
        for &kind in Kind::ALL.iter().filter(|kind| kind.info().atomic) {
            let flash = Box::new(small::chip(flagstone::nand::Geometry {
                strict_order: false,
                ..small::GEOMETRY
            }));
            let (config, options) = (Config::small(100, None), Options::default());
            let device = Device::open(flash, kind, config, &options, Nanos::ZERO);
            let mut store = DeviceStore::new(device.expect("a blank device"));
            let long = vec![1; store.page_bytes() + 1];
            let [good, bad] = [(Lpn(0), &[7][..]), (Lpn(1), &long)];
            let refused = store.write(Nanos::ZERO, &[good, bad]);
            assert!(refused.is_err(), "{kind}");
            let now = store.begin(Nanos::ZERO).expect("begun");
            store.write(now, &[good, bad]).expect("it waits in memory");
            assert!(store.commit(now).is_err(), "{kind}");
            let written = store.write(now, &[good]);
            written.unwrap_or_else(|error| panic!("{kind}: {error}"));
            assert_eq!(store.device().live().count(), 0, "{kind}");
        }
    }
}
