//! The transactional device: a flash, an FTL and a protocol behind one interface.
//!
//! It validates every argument, assigns transaction identifiers, enforces the isolation that the
//! protocol supports, makes room before a protocol needs it, and counts the host's requests.

use super::live::LiveTable;
use super::{
    Content, DeviceError, Found, Info, Isolation, Kind, Options, Protocol, Recovered, Ruling,
    Taken, Way, Write, doubt_tx, spare_numbers,
};
use crate::ftl::{Cause, Config, Format, Ftl, FtlError, Mounted};
use crate::ftl::{collect, finish_steps, make_room, step, tend_before_read};
use crate::nand::{Flash, FlashError};
use crate::units::{Lpn, Nanos, TxId};
pub use compact::Aim;
pub(super) use over_ftl::over_ftl;
use rustc_hash::FxHashMap;

/// Counters of the host's requests. Those that fail are not counted.
///
/// ```
/// use flagstone::prelude::*;
///
/// let mut device = Device::with_defaults(Chip::default(), Kind::Cfc)?;
/// let tx = device.begin(Nanos::ZERO)?;
/// device.write(Nanos::ZERO, tx, Lpn(0), b"data")?;
/// device.abort(Nanos::ZERO, tx)?;
/// let host = device.request_stats();
/// assert_eq!((host.begun, host.committed, host.aborted, host.pages_written), (1, 0, 1, 1));
/// # Ok::<(), DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RequestStats {
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
///
/// Transactions run concurrently, as far as the protocol's [`Isolation`] allows. The caller must
/// avoid conflicts, or roll a transaction back:
///
/// ```
/// use flagstone::prelude::*;
///
/// let mut device = Device::with_defaults(Chip::default(), Kind::Scc)?;
/// let now = device.recovered_at();
/// let (one, two) = (device.begin(now)?, device.begin(now)?);
/// device.write(now, one, Lpn(5), b"one")?;
/// let refused = device.write(now, two, Lpn(5), b"two").unwrap_err();
/// assert!(matches!(refused, DeviceError::Conflict { holder, .. } if holder == one));
///
/// let now = device.abort(now, one)?;
/// device.write(now, two, Lpn(5), b"two")?;
/// let now = device.commit(now, two)?.expect("SCC answers a commit at once");
/// assert_eq!(device.read(now, None, Lpn(5))?.1, Some(&b"two"[..]));
/// # Ok::<(), DeviceError>(())
/// ```
pub struct Device {
    ftl: Ftl,
    protocol: Box<dyn Protocol>,
    info: &'static Info,
    live: LiveTable,
    writers: FxHashMap<Lpn, TxId>,
    last_tx: TxId,
    host: RequestStats,
    recovered_at: Nanos,
    rulings: Vec<Ruling>,
    buffer: Vec<u8>,
}

over_ftl!(Device);

impl Device {
    /// Opens a device from its flash alone, blank or not, with default settings, at time zero.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn with_defaults(flash: impl Flash + 'static, kind: Kind) -> Result<Device, DeviceError> {
        let options = Options::default();
        Device::open(
            Box::new(flash),
            kind,
            Config::default(),
            &options,
            Nanos::ZERO,
        )
    }

    /// Opens a device from its flash alone, blank or not. The flash does not say which protocol
    /// wrote it: `kind`, `as_published`, and `block_flags` of CFC and AFC must be those it was
    /// written with, else pages can be lost. Other settings that change the format are refused.
    ///
    /// # Errors
    /// The protocol cannot work on this flash, the flash has an unknown format, or the power fails.
    pub fn open(
        flash: Box<dyn Flash>,
        kind: Kind,
        config: Config,
        options: &Options,
        now: Nanos,
    ) -> Result<Device, DeviceError> {
        let recover = |ftl: &mut Ftl, mounted| kind.recover(ftl, mounted, options);
        Device::open_with(flash, kind.info(), recover, config, options, now)
    }

    /// Opens a device with a protocol that [`Kind`] does not list. `recover` gets the mounted
    /// translation layer, and the result of the mount. It determines which version of each page
    /// counts, calls [`Ftl::revive`] for each live page, and ends with [`Ftl::finish_mount`].
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn open_with(
        flash: Box<dyn Flash>,
        info: &'static Info,
        recover: impl FnOnce(&mut Ftl, Mounted) -> Result<Recovered, FtlError>,
        config: Config,
        options: &Options,
        now: Nanos,
    ) -> Result<Device, DeviceError> {
        let format = format(flash.as_ref(), info, &config, options)?;
        let (mut ftl, mounted) = Ftl::mount(flash, config, format, now)?;
        let recovered = recover(&mut ftl, mounted)?;
        Device::with(ftl, info, recovered)
    }

    fn with(ftl: Ftl, info: &'static Info, found: Recovered) -> Result<Device, DeviceError> {
        Ok(Device {
            buffer: Vec::new(),
            ftl,
            protocol: found.protocol,
            info,
            live: LiveTable::default(),
            writers: FxHashMap::default(),
            last_tx: doubt_tx(found.last_tx)?,
            host: RequestStats::default(),
            recovered_at: found.done,
            rulings: found.rulings,
        })
    }

    /// The description of the protocol.
    pub fn info(&self) -> &'static Info {
        self.info
    }

    /// Grows the device, if its medium can grow; see [`Ftl::grow`]. Returns the number of added
    /// blocks.
    ///
    /// # Errors
    /// The device has a form that cannot grow, or the power fails.
    pub fn grow(&mut self, now: Nanos, blocks: u32) -> Result<u32, DeviceError> {
        let added = self.ftl.grow(now, blocks)?;
        self.protocol.grown(&self.ftl);
        Ok(added)
    }

    /// Limits allocation to the first `blocks` blocks until the next call. On a sparse medium a
    /// device can have more blocks than the medium has room for: it then offers high logical pages,
    /// and collects within the first `blocks` blocks.
    pub fn give_out(&mut self, blocks: u32) {
        self.ftl.blocks.give_out(blocks);
    }

    /// Resets the counters, for example after a warm-up.
    pub fn reset_stats(&mut self) {
        self.ftl.reset_stats();
        self.host = RequestStats::default();
    }

    /// The live transactions.
    pub fn live(&self) -> impl Iterator<Item = TxId> + '_ {
        self.live.ids()
    }

    /// Maximum number of live transactions, if bounded.
    pub fn live_max(&self) -> Option<u32> {
        match self.info.isolation {
            Isolation::Strict => Some(1),
            _ => self.protocol.live_max().or(self.info.live_max),
        }
    }

    /// Memory of each structure in bytes.
    pub fn memory(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.ftl.memory().to_vec();
        all.extend(self.protocol.memory());
        all
    }

    /// Starts a transaction.
    ///
    /// # Errors
    /// The maximum number of transactions is live, or identifiers or sequences are nearly used up.
    pub fn begin(&mut self, now: Nanos) -> Result<TxId, DeviceError> {
        spare_numbers(&self.ftl, self.last_tx)?;
        self.begin_more(now)
    }

    /// Like [`Device::begin`], but may use the reserve of numbers: for work in progress.
    ///
    /// # Errors
    /// The maximum number of transactions is live, or the power fails.
    pub fn begin_more(&mut self, now: Nanos) -> Result<TxId, DeviceError> {
        if let Some(limit) = self.live_max()
            && self.live.len() as u32 >= limit
        {
            return Err(DeviceError::TooManyLive {
                protocol: self.info.name,
                limit,
            });
        }
        finish_steps(&mut self.ftl, self.protocol.as_mut(), now)?;
        let tx = TxId(self.last_tx.0 + 1);
        self.protocol.begin(&mut self.ftl, now, tx)?;
        self.last_tx = tx;
        self.live.begin(tx);
        self.host.begun += 1;
        Ok(tx)
    }

    /// Continues the transaction and snapshot numbers of `before`, which this device replaces after
    /// reopening the same flash.
    pub fn number_after(&mut self, before: &Device) {
        self.last_tx = self.last_tx.max(before.last_tx);
        self.ftl.snapshots.number_after(&before.ftl.snapshots);
    }

    /// Writes a page in a transaction. The page becomes durable with the transaction.
    ///
    /// # Errors
    /// The device refuses the request, or cannot continue.
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

    /// Like [`Device::write`], but counted under `cause`: a host's log is counted separately.
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

    /// Writes a page outside of any transaction (LightTx, §3.2). Returns when it is durable. It is
    /// counted as a transaction of one page.
    ///
    /// # Errors
    /// The protocol takes writes in transactions only, or as [`Device::begin`] and
    /// [`Device::write`]. Without power loss, the page is then unchanged.
    pub fn write_outside(
        &mut self,
        now: Nanos,
        at: Lpn,
        data: &[u8],
    ) -> Result<Nanos, DeviceError> {
        if !self.info.outside {
            let protocol = self.info.name;
            return Err(DeviceError::TransactionsOnly { protocol });
        }
        let tx = self.begin(now)?;
        self.protocol.outside(tx);
        let written = self
            .write(now, tx, at, data)
            .and_then(|taken| self.commit(taken.next, tx));
        match written {
            Ok(done) => Ok(done.expect("a write outside of transactions waits for no group")),
            Err(error) if error.is_power_loss() => Err(error),
            Err(error) => {
                self.abort(now, tx)?;
                Err(error)
            }
        }
    }

    /// Trims a page in a transaction: it reads as empty once the transaction has committed.
    ///
    /// # Errors
    /// As [`Device::write`].
    pub fn trim(&mut self, now: Nanos, tx: TxId, at: Lpn) -> Result<Taken, DeviceError> {
        let (content, cause) = (Content::Trim, Cause::Host);
        self.put(now, tx, Write { at, content, cause })
    }

    /// Writes or trims a page once the arguments are valid. Under [`Isolation::NoPageConflict`] a
    /// page belongs to its first writer until that transaction ends; if the write fails, to nobody.
    fn put(&mut self, now: Nanos, tx: TxId, write: Write<'_>) -> Result<Taken, DeviceError> {
        let at = write.at;
        in_range(&self.ftl, at)?;
        let live = self
            .live
            .get_mut(tx)
            .ok_or(DeviceError::NoTransaction(tx))?;
        if live.committing {
            return Err(DeviceError::Committing(tx));
        }
        let mut is_noted = false;
        if self.info.isolation == Isolation::NoPageConflict {
            match self.writers.get(&at) {
                Some(&holder) if holder != tx => {
                    return Err(DeviceError::Conflict {
                        protocol: self.info.name,
                        at,
                        holder,
                    });
                }
                Some(_) => {}
                None => {
                    self.writers.insert(at, tx);
                    live.pages.push(at);
                    is_noted = true;
                }
            }
        }
        let put = self.put_noted(now, tx, write);
        if is_noted && put.is_err() {
            // The page can be requested again.
            self.writers.remove(&at);
            self.live.get_mut(tx).map(|live| live.pages.pop());
        }
        put
    }

    /// [`Device::put`] after its checks: does work that is due, makes room, and calls the protocol.
    #[inline]
    fn put_noted(&mut self, now: Nanos, tx: TxId, write: Write<'_>) -> Result<Taken, DeviceError> {
        self.protocol.settle(&mut self.ftl, now)?;
        step(&mut self.ftl, self.protocol.as_mut(), now)?;
        self.make_way(now, tx)?;
        let taken = self.protocol.write(&mut self.ftl, now, tx, write)?;
        self.host.pages_written += 1;
        Ok(taken)
    }

    /// Makes room for a request, and does the work that the protocol requires before it.
    #[inline]
    fn make_way(&mut self, now: Nanos, tx: TxId) -> Result<(), DeviceError> {
        self.protocol.settle(&mut self.ftl, now)?;
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

    /// Like [`Device::collect`], without completing a collection that failed first.
    #[cfg(test)]
    pub(super) fn collect_at_once(
        &mut self,
        now: Nanos,
        block: crate::units::Pbn,
    ) -> Result<Nanos, FtlError> {
        collect(&mut self.ftl, self.protocol.as_mut(), now, block)
    }

    /// Reads a page: the version of `tx` if it wrote one, otherwise the last committed version.
    /// Returns when it was read, and the bytes, if the page holds any.
    ///
    /// # Errors
    /// The page is beyond the device or lost to bit errors, or the power failed.
    pub fn read(
        &mut self,
        now: Nanos,
        tx: Option<TxId>,
        at: Lpn,
    ) -> Result<(Nanos, Option<&[u8]>), DeviceError> {
        self.read_as(Cause::Host, now, tx, at)
    }

    /// Like [`Device::read`], but counted under `cause`.
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

    /// Like [`Device::read`], into a buffer of a page's size. Returns the number of bytes.
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

    /// [`Device::read_into`], counted under `cause`. Does due scrubbing first: a device that is
    /// only read must refresh its blocks as well. Scrubbing that finds no room waits.
    fn get(
        &mut self,
        cause: Cause,
        now: Nanos,
        tx: Option<TxId>,
        at: Lpn,
        into: &mut [u8],
    ) -> Result<(Nanos, Option<usize>), DeviceError> {
        in_range(&self.ftl, at)?;
        if let Some(tx) = tx
            && !self.live.holds(tx)
        {
            return Err(DeviceError::NoTransaction(tx));
        }
        tend_before_read(&mut self.ftl, self.protocol.as_mut(), now)?;
        let now = match self.ftl.look_up(now, at) {
            Err(FtlError::Unreadable { .. }) => return Err(DeviceError::Unreadable(at)),
            known => known?,
        };
        let found = self.protocol.find(&self.ftl, tx, at);
        let read = read_found(&mut self.ftl, now, cause, found, at, into)?;
        self.host.pages_read += 1;
        Ok(read)
    }

    /// Commits a transaction. Returns when it is durable, or `None` if it waits for its group.
    /// [`Device::acknowledged`] reports it later.
    ///
    /// # Errors
    /// There is no such transaction, or the device cannot continue.
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

    /// Rolls a transaction back. Returns when the device has finished.
    ///
    /// # Errors
    /// There is no such transaction, it waits for its commit, or the device cannot continue.
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

    /// When waiting commits stop waiting for their group. The host should then call
    /// [`Device::acknowledged`].
    pub fn deadline(&self) -> Option<Nanos> {
        self.protocol.deadline()
    }

    /// Returns commits that waited for their group and became durable, each with its time. `flush`
    /// commits all waiting ones, for example because every client waits.
    ///
    /// # Errors
    /// The device cannot continue.
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

    /// Checks the invariants of the protocol and of the FTL. For tests and campaigns.
    ///
    /// # Errors
    /// Names the invariant that is violated.
    pub fn check(&self) -> Result<(), String> {
        self.ftl.check()?;
        self.protocol.check(&self.ftl)
    }

    /// A copy of this device over a copy of its flash.
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
            rulings: self.rulings.clone(),
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

/// The format that a protocol needs on this flash.
fn format(
    flash: &dyn Flash,
    info: &Info,
    config: &Config,
    options: &Options,
) -> Result<Format, DeviceError> {
    info.suits(flash.geometry(), config)
        .map_err(DeviceError::Unsuitable)?;
    let format = info.format_on(flash.geometry(), options);
    format.map_err(|error| DeviceError::Unsuitable(error.0))
}

/// Refuses a page beyond the device.
#[inline]
pub(super) fn in_range(ftl: &Ftl, at: Lpn) -> Result<(), DeviceError> {
    let pages = ftl.logical_pages();
    if at.0 < pages {
        Ok(())
    } else {
        Err(DeviceError::OutOfRange { at, pages })
    }
}

/// Reads a version of a page from the place that was found. Returns when it was read, and its
/// length.
fn read_found(
    ftl: &mut Ftl,
    now: Nanos,
    cause: Cause,
    found: Found<'_>,
    at: Lpn,
    into: &mut [u8],
) -> Result<(Nanos, Option<usize>), DeviceError> {
    match found {
        Found::Nothing => Ok((now, None)),
        Found::Held(bytes) => {
            into[..bytes.len()].copy_from_slice(bytes);
            Ok((now, Some(bytes.len())))
        }
        Found::Flash(page) => match ftl.read(now, page, into, &mut [], cause) {
            Ok(read) => Ok((read.done, Some(read.data_bytes))),
            Err(FlashError::Uncorrectable { .. }) => Err(DeviceError::Unreadable(at)),
            Err(other) => Err(FtlError::from(other).into()),
        },
    }
}

mod compact;
mod idle;
mod looking;
mod over_ftl;
mod rest;
mod snapshots;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::Kind;
    use crate::nand::small;

    /// Why the device refuses: a number with six bytes on flash would wrap around.
    #[test]
    fn a_device_beyond_its_numbers_would_not_start_again() {
        let (config, options) = (Config::small(24, None), Options::default());
        let open = |flash| Device::open(flash, Kind::Plain, config, &options, Nanos::ZERO);
        let mut device = open(Box::new(small::chip(small::GEOMETRY))).expect("a blank device");
        let sequence = (1 << 47) - 1 - device.ftl.last_seq();
        device.ftl.skip_sequences(sequence);
        let tx = TxId(1);
        device.live.begin(tx);
        for at in 0..20 {
            device
                .write(Nanos::ZERO, tx, Lpn(at), &[1])
                .expect("it takes them");
        }
        let again = open(device.into_flash());
        let why = again.err().expect("it is refused").to_string();
        assert!(why.contains("write sequence"), "{why}");
    }
}
