//! The transactional device: a flash, an FTL and a protocol behind one interface.
//!
//! It checks every argument, gives out transaction identifiers, keeps the isolation that the
//! protocol supports, makes room before a protocol needs it, and counts what the host asked for.

use super::live::LiveTable;
use super::{
    Content, DeviceError, Found, Info, Isolation, Kind, Options, Protocol, Recovered, Taken, Way,
    Write, doubt_tx,
};
use crate::ftl::{Cause, Config, Ftl, FtlError, Stats, collect, make_room};
use crate::nand::{Flash, FlashError, Geometry};
use crate::units::{Lpn, Nanos, TxId};
use rustc_hash::FxHashMap;

/// What the host asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostStats {
    /// Transactions begun.
    pub begun: u64,
    /// Transactions whose commit was acknowledged.
    pub committed: u64,
    /// Transactions rolled back.
    pub aborted: u64,
    /// Pages written, trims included.
    pub pages_written: u64,
    /// Pages read.
    pub pages_read: u64,
}

/// A transactional device.
pub struct Device {
    ftl: Ftl,
    protocol: Box<dyn Protocol>,
    info: &'static Info,
    live: LiveTable,
    writers: FxHashMap<Lpn, TxId>,
    last_tx: TxId,
    host: HostStats,
    recovered_at: Nanos,
    buffer: Vec<u8>,
}

impl Device {
    /// Starts a device from its flash alone, blank or not.
    ///
    /// # Errors
    /// A flash that does not suit the protocol, or the power failing meanwhile.
    pub fn open(
        flash: Box<dyn Flash>,
        kind: Kind,
        config: Config,
        options: &Options,
        now: Nanos,
    ) -> Result<Device, DeviceError> {
        kind.suits(flash.geometry(), &config)
            .map_err(DeviceError::Unsuitable)?;
        let format = kind.info().format_on(flash.geometry(), options);
        let format = format.map_err(|error| DeviceError::Unsuitable(error.0))?;
        let (mut ftl, mounted) = Ftl::mount(flash, config, format, now)?;
        let Recovered {
            protocol,
            last_tx,
            done,
        } = kind.recover(&mut ftl, mounted, options)?;
        Ok(Device {
            buffer: Vec::new(),
            ftl,
            protocol,
            info: kind.info(),
            live: LiveTable::default(),
            writers: FxHashMap::default(),
            last_tx: doubt_tx(last_tx)?,
            host: HostStats::default(),
            recovered_at: done,
        })
    }

    /// What is known of the protocol.
    pub fn info(&self) -> &'static Info {
        self.info
    }

    /// Logical pages that can be addressed.
    pub fn pages(&self) -> u32 {
        self.ftl.logical_pages()
    }

    /// The shape of the flash.
    pub fn geometry(&self) -> &Geometry {
        self.ftl.geometry()
    }

    /// Flash operations since the start.
    pub fn stats(&self) -> &Stats {
        self.ftl.stats()
    }

    /// What the host asked for since the start.
    pub fn host_stats(&self) -> &HostStats {
        &self.host
    }

    /// Erases free blocks before they are needed; see [`Ftl::erase_ahead`].
    ///
    /// # Errors
    /// The power fails.
    pub fn erase_ahead(&mut self, now: Nanos) -> Result<Nanos, DeviceError> {
        self.ftl.erase_ahead(now).map_err(DeviceError::from)
    }

    /// Forgets what was counted so far: the end of a warm-up.
    pub fn reset_stats(&mut self) {
        self.ftl.reset_stats();
        self.host = HostStats::default();
    }

    /// When recovery was over.
    pub fn recovered_at(&self) -> Nanos {
        self.recovered_at
    }

    /// Transactions that have begun and not ended.
    pub fn live(&self) -> impl Iterator<Item = TxId> + '_ {
        self.live.ids()
    }

    /// Transactions that can be live at once, if that is bounded.
    pub fn live_max(&self) -> Option<u32> {
        match self.info.isolation {
            Isolation::Strict => Some(1),
            _ => self.protocol.live_max().or(self.info.live_max),
        }
    }

    /// The last transaction that began, here or before the restart, as far as the flash knows.
    pub fn last_tx(&self) -> TxId {
        self.last_tx
    }

    /// The layer below, to look at.
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    /// See [`Ftl::lend_reserve`].
    pub(crate) fn lend_reserve(&mut self, lent: bool) {
        self.ftl.lend_reserve(lent);
    }

    /// Bytes of each structure in memory.
    pub fn memory(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.ftl.memory().to_vec();
        all.extend(self.protocol.memory());
        all
    }

    /// The flash, which is all that a power cut leaves.
    pub fn into_flash(self) -> Box<dyn Flash> {
        self.ftl.into_flash()
    }

    /// Starts a transaction.
    ///
    /// # Errors
    /// As many are live as the protocol supports.
    pub fn begin(&mut self, now: Nanos) -> Result<TxId, DeviceError> {
        if let Some(limit) = self.live_max()
            && self.live.len() as u32 >= limit
        {
            return Err(DeviceError::TooManyLive {
                protocol: self.info.name,
                limit,
            });
        }
        let tx = TxId(self.last_tx.0 + 1);
        self.protocol.begin(&mut self.ftl, now, tx)?;
        self.last_tx = tx;
        self.live.begin(tx);
        self.host.begun += 1;
        Ok(tx)
    }

    /// Writes a page in a transaction. What was written is durable once the transaction is.
    ///
    /// # Errors
    /// A request that the device cannot take, or a device that cannot go on.
    #[inline]
    pub fn write(
        &mut self,
        now: Nanos,
        tx: TxId,
        at: Lpn,
        data: &[u8],
    ) -> Result<Taken, DeviceError> {
        self.write_as(Cause::Host, now, tx, at, data)
    }

    /// As [`Device::write`], counted as `cause`: a host's log is counted apart from its data.
    ///
    /// # Errors
    /// As [`Device::write`].
    #[inline]
    pub fn write_as(
        &mut self,
        cause: Cause,
        now: Nanos,
        tx: TxId,
        at: Lpn,
        data: &[u8],
    ) -> Result<Taken, DeviceError> {
        if data.len() > self.ftl.geometry().page_bytes as usize {
            let page_bytes = self.ftl.geometry().page_bytes;
            return Err(DeviceError::TooLong {
                bytes: data.len(),
                page_bytes,
            });
        }
        let content = Content::Data(data);
        self.put(now, tx, Write { at, content, cause })
    }

    /// Gives a page back in a transaction: it reads as empty once the transaction has committed.
    ///
    /// # Errors
    /// As [`Device::write`].
    pub fn trim(&mut self, now: Nanos, tx: TxId, at: Lpn) -> Result<Taken, DeviceError> {
        let (content, cause) = (Content::Trim, Cause::Host);
        self.put(now, tx, Write { at, content, cause })
    }

    fn put(&mut self, now: Nanos, tx: TxId, write: Write<'_>) -> Result<Taken, DeviceError> {
        let at = write.at;
        let pages = self.ftl.logical_pages();
        if at.0 >= pages {
            return Err(DeviceError::OutOfRange { at, pages });
        }
        let live = self
            .live
            .get_mut(tx)
            .ok_or(DeviceError::NoTransaction(tx))?;
        if live.committing {
            return Err(DeviceError::Committing(tx));
        }
        if self.info.isolation == Isolation::NoPageConflict || !self.info.rewrites {
            match self.writers.get(&at) {
                Some(&holder) if holder != tx => {
                    return Err(DeviceError::Conflict {
                        protocol: self.info.name,
                        at,
                        holder,
                    });
                }
                Some(_) if !self.info.rewrites => {
                    return Err(DeviceError::WrittenTwice {
                        protocol: self.info.name,
                        at,
                    });
                }
                Some(_) => {}
                None => {
                    self.writers.insert(at, tx);
                    live.pages.push(at);
                }
            }
        }
        self.make_way(now, tx)?;
        self.host.pages_written += 1;
        Ok(self.protocol.write(&mut self.ftl, now, tx, write)?)
    }

    /// Makes room for a request, and does what the protocol needs done before.
    #[inline]
    fn make_way(&mut self, now: Nanos, tx: TxId) -> Result<(), DeviceError> {
        let (ftl, protocol) = (&mut self.ftl, self.protocol.as_mut());
        make_room(ftl, protocol, now)?;
        let mut round = 0;
        while let Some(way) = protocol.in_the_way(ftl, now, tx, round)? {
            if let Way::Collect(block) = way {
                collect(ftl, protocol, now, block)?;
            }
            make_room(ftl, protocol, now)?;
            round += 1;
        }
        Ok(())
    }

    /// Collects a block, whatever it costs.
    #[cfg(test)]
    pub(super) fn collect(
        &mut self,
        now: Nanos,
        block: crate::units::Pbn,
    ) -> Result<Nanos, FtlError> {
        collect(&mut self.ftl, self.protocol.as_mut(), now, block)
    }

    /// Reads a page: a transaction's own version if it wrote one, else the last committed one. The
    /// result is when it was read and the bytes, none for a page that holds nothing.
    ///
    /// # Errors
    /// A page beyond the device, one lost to bit errors, or a device without power.
    pub fn read(
        &mut self,
        now: Nanos,
        tx: Option<TxId>,
        at: Lpn,
    ) -> Result<(Nanos, Option<&[u8]>), DeviceError> {
        self.read_as(Cause::Host, now, tx, at)
    }

    /// As [`Device::read`], counted as `cause`.
    ///
    /// # Errors
    /// As [`Device::read`].
    pub fn read_as(
        &mut self,
        cause: Cause,
        now: Nanos,
        tx: Option<TxId>,
        at: Lpn,
    ) -> Result<(Nanos, Option<&[u8]>), DeviceError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(self.ftl.geometry().page_bytes as usize, 0);
        let read = self.get(cause, now, tx, at, &mut buffer);
        self.buffer = buffer;
        let (done, bytes) = read?;
        Ok((done, bytes.map(|bytes| &self.buffer[..bytes])))
    }

    /// As [`Device::read`], into a buffer of a page: the result says how many bytes of it were
    /// filled.
    ///
    /// # Errors
    /// As [`Device::read`].
    pub fn read_into(
        &mut self,
        now: Nanos,
        tx: Option<TxId>,
        at: Lpn,
        into: &mut [u8],
    ) -> Result<(Nanos, Option<usize>), DeviceError> {
        self.get(Cause::Host, now, tx, at, into)
    }

    fn get(
        &mut self,
        cause: Cause,
        now: Nanos,
        tx: Option<TxId>,
        at: Lpn,
        into: &mut [u8],
    ) -> Result<(Nanos, Option<usize>), DeviceError> {
        let pages = self.ftl.logical_pages();
        if at.0 >= pages {
            return Err(DeviceError::OutOfRange { at, pages });
        }
        if let Some(tx) = tx
            && !self.live.holds(tx)
        {
            return Err(DeviceError::NoTransaction(tx));
        }
        self.host.pages_read += 1;
        match self.protocol.find(&self.ftl, tx, at) {
            Found::Nothing => Ok((now, None)),
            Found::Held(bytes) => {
                into[..bytes.len()].copy_from_slice(bytes);
                Ok((now, Some(bytes.len())))
            }
            Found::Flash(page) => match self.ftl.read(now, page, into, &mut [], cause) {
                Ok(read) => Ok((read.done, Some(read.data_bytes))),
                Err(FlashError::Uncorrectable { .. }) => Err(DeviceError::Unreadable(at)),
                Err(other) => Err(FtlError::from(other).into()),
            },
        }
    }

    /// Commits a transaction. Returns when it is durable, or nothing if it waits for its group:
    /// then [`Device::acknowledged`] will tell.
    ///
    /// # Errors
    /// No such transaction, or a device that cannot go on.
    pub fn commit(&mut self, now: Nanos, tx: TxId) -> Result<Option<Nanos>, DeviceError> {
        let live = self.live.get_mut(tx);
        if live.ok_or(DeviceError::NoTransaction(tx))?.committing {
            return Err(DeviceError::Committing(tx));
        }
        self.make_way(now, tx)?;
        match self.protocol.commit(&mut self.ftl, now, tx)? {
            Some(done) => {
                self.end(tx);
                self.host.committed += 1;
                Ok(Some(done))
            }
            None => {
                self.live.get_mut(tx).expect("checked above").committing = true;
                Ok(None)
            }
        }
    }

    /// Rolls a transaction back. Returns when the device is done with it.
    ///
    /// # Errors
    /// No such transaction, one that waits for its commit, or a device that cannot go on.
    pub fn abort(&mut self, now: Nanos, tx: TxId) -> Result<Nanos, DeviceError> {
        let live = self.live.get_mut(tx);
        if live.ok_or(DeviceError::NoTransaction(tx))?.committing {
            return Err(DeviceError::Committing(tx));
        }
        let done = self.protocol.abort(&mut self.ftl, now, tx)?;
        self.end(tx);
        self.host.aborted += 1;
        Ok(done)
    }

    /// When commits that wait for their group stop waiting: the host should call
    /// [`Device::acknowledged`] then.
    pub fn deadline(&self) -> Option<Nanos> {
        self.protocol.deadline()
    }

    /// Commits that waited and are durable, with the instant of each. `flush` asks for all that
    /// wait now, for example because every client does.
    ///
    /// # Errors
    /// A device that cannot go on.
    pub fn acknowledged(
        &mut self,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, DeviceError> {
        make_room(&mut self.ftl, self.protocol.as_mut(), now)?;
        let done = self.protocol.acknowledge(&mut self.ftl, now, flush)?;
        for &(tx, _) in &done {
            self.end(tx);
            self.host.committed += 1;
        }
        Ok(done)
    }

    /// Checks the invariants of the protocol and of the FTL, in tests and campaigns.
    ///
    /// # Errors
    /// Says which one does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.ftl.check()?;
        self.protocol.check(&self.ftl)
    }

    /// A device that is as this one is, over a copy of its flash.
    #[must_use]
    pub fn duplicate(&self, flash: Box<dyn Flash>) -> Device {
        Device {
            ftl: self.ftl.duplicate(flash),
            protocol: self.protocol.duplicate(),
            info: self.info,
            live: self.live.clone(),
            writers: self.writers.clone(),
            last_tx: self.last_tx,
            host: self.host,
            recovered_at: self.recovered_at,
            buffer: Vec::new(),
        }
    }

    fn end(&mut self, tx: TxId) {
        let writers = &mut self.writers;
        self.live.end(tx, |at| {
            writers.remove(&at);
        });
    }
}
