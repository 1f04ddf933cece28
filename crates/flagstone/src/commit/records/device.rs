//! The record-level device: validates arguments, assigns transaction identifiers, makes room, and
//! counts requests.
use super::super::{doubt_tx, spare_numbers};
use super::collect::Records;
use super::format::list_bytes;
use super::merge::merge;
use super::recover::{Recovered, Torn, recover};
use super::versions::Version;
use super::{ENTRIES_MAX, Live, Mistake, Pending, RecordInfo, RecordKind, RecordOptions, Rules};
use crate::commit::device::{in_range, over_ftl};
use crate::commit::{DeviceError, RequestStats, Ruling};
use crate::ftl::{Cause, Config, Ftl, FtlError, collect_chosen, make_room};
use crate::mistakes::Mistaken;
use crate::nand::{Flash, Geometry};
use crate::page::{self, SlotNo};
use crate::units::{Lpn, Nanos, Pbn, TxId};
use std::collections::BTreeSet;

/// The result of [`RecordDevice::read`]. Its buffers can be reused.
///
/// Example: [`RecordDevice`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MergedPage {
    /// The image; empty for a page that was never written.
    pub image: Vec<u8>,
    /// Records of live transactions. They are in the image.
    pub pending: Vec<Pending>,
    /// Committed records that are older than the image: slot, and LSN of the image from which they
    /// were taken, or 0 if no image has the record. Some may be absent. All other records are as of
    /// the LSN of the image.
    pub restored: Vec<(SlotNo, u64)>,
}

/// Maximum bytes of an image that fits a page of a [`RecordDevice`] beside `entries` entries with
/// `slots` pending records in total.
pub fn room_beside(page_bytes: usize, entries: usize, slots: usize) -> usize {
    page_bytes.saturating_sub(list_bytes(entries, slots, 0))
}

/// A transactional device for pages of records that several transactions may have changed.
///
/// ```
/// use flagstone::commit::{DeviceError, MergedPage, Pending, RecordDevice, RecordKind};
/// use flagstone::commit::RecordOptions;
/// use flagstone::ftl::Config;
/// use flagstone::nand::Chip;
/// use flagstone::page::Page;
/// use flagstone::units::{Lpn, Nanos};
/// use std::collections::BTreeSet;
///
/// let (config, options) = (Config::default(), RecordOptions::default());
/// let chip = Box::new(Chip::default());
/// let mut device = RecordDevice::open(chip, RecordKind::CfcEx, config, &options, Nanos::ZERO)?;
/// // After a restart the host says which of the transactions in doubt its log commits: here none.
/// let now = device.resolve(device.recovered_at(), &BTreeSet::new())?;
/// let (one, two) = (device.begin(now)?, device.begin(now)?);
///
/// // One page goes to flash with the changes of both transactions in it.
/// let (mut page, mut image) = (Page::default(), Vec::new());
/// page.put(0, b"of one", 4096).expect("it fits");
/// page.put(1, b"of two", 4096).expect("it fits");
/// page.emit(4096, &mut image).expect("it fits");
/// let of = |tx, slot| Pending { tx, slots: vec![slot] };
/// let pending = [of(one, 0), of(two, 1)];
/// let now = device.write(now, Lpn(9), &image, &pending)?;
///
/// // One commits, the other is rolled back.
/// let now = device.commit(now, one)?;
/// let now = device.abort(now, two)?;
/// let mut found = MergedPage::default();
/// device.read(now, Lpn(9), &mut found)?;
/// let page = Page::parse(&found.image).expect("it is a page of records");
/// assert_eq!((page.get(0), page.get(1)), (Some(&b"of one"[..]), None));
/// # Ok::<(), DeviceError>(())
/// ```
pub struct RecordDevice {
    pub(super) ftl: Ftl,
    pub(super) records: Records,
    kind: RecordKind,
    pub(super) rules: Rules,
    max_c: u8,
    last_tx: TxId,
    /// Until [`RecordDevice::resolve`]: the flags that cuts have torn.
    unresolved: Option<Torn>,
    host: RequestStats,
    recovered_at: Nanos,
    pub(super) rulings: Vec<Ruling>,
}

over_ftl!(RecordDevice);

impl RecordDevice {
    /// Opens a device from its flash alone, blank or not. Transactions without a deciding flag are
    /// in doubt until [`RecordDevice::resolve`]; until then the device can only be read.
    ///
    /// # Errors
    /// The flash does not suit the protocol, or the power fails.
    pub fn open(
        flash: Box<dyn Flash>,
        kind: RecordKind,
        config: Config,
        options: &RecordOptions,
        now: Nanos,
    ) -> Result<RecordDevice, DeviceError> {
        RecordDevice::open_mistaken(flash, kind, config, options, Mistaken::default(), now)
    }

    /// As [`RecordDevice::open`], with a mistake made on purpose.
    ///
    /// # Errors
    /// As [`RecordDevice::open`].
    pub fn open_mistaken(
        flash: Box<dyn Flash>,
        kind: RecordKind,
        config: Config,
        options: &RecordOptions,
        mistake: Mistaken<Mistake>,
        now: Nanos,
    ) -> Result<RecordDevice, DeviceError> {
        RecordDevice::suits(kind, flash.geometry(), &config, options)
            .map_err(DeviceError::Unsuitable)?;
        let rules = Rules {
            as_published: options.as_published,
            flags_all: options.flags_all,
            mistake,
        };
        let (mut ftl, mounted) = Ftl::mount(flash, config, options.format(), now)?;
        let Recovered {
            records,
            torn,
            last_tx,
            done,
            rulings,
        } = recover(&mut ftl, mounted, kind, rules, options.tells)?;
        Ok(RecordDevice {
            ftl,
            records,
            kind,
            rules,
            max_c: options.max_c,
            last_tx: doubt_tx(last_tx)?,
            unresolved: Some(torn),
            host: RequestStats::default(),
            recovered_at: done,
            rulings,
        })
    }

    /// Checks whether a device's cells and spare areas suit the protocol.
    ///
    /// # Errors
    /// Says what does not.
    pub fn suits(
        kind: RecordKind,
        geometry: &Geometry,
        config: &Config,
        options: &RecordOptions,
    ) -> Result<(), String> {
        let (name, max_c) = (kind.info().name, options.max_c);
        if !(1..=ENTRIES_MAX as u8).contains(&max_c) {
            return Err(format!(
                "max_c is {max_c}, it must be from 1 to {ENTRIES_MAX}"
            ));
        }
        let programs = geometry.cell.programs_per_page();
        if programs <= max_c {
            return Err(format!(
                "{name} with max_c {max_c} programs a page up to {} times, {} cells allow \
                 {programs}; use an SLC device with partial_programs of at least {}, or a lower \
                 max_c",
                max_c + 1,
                geometry.cell,
                max_c + 1
            ));
        }
        if geometry.strict_order {
            return Err(format!(
                "{name} sets flags in place, which a device of strict program order forbids"
            ));
        }
        if geometry.page_bytes > u32::from(u16::MAX) {
            return Err(format!("{name} supports pages of up to {} bytes", u16::MAX));
        }
        Ftl::capacity(geometry, config, &options.format())
            .map(|_| ())
            .map_err(|error| error.0)
    }

    /// The description of the protocol.
    pub fn info(&self) -> &'static RecordInfo {
        self.kind.info()
    }

    /// Maximum bytes of an image that fits a page beside `entries` entries with `slots` pending
    /// records in total.
    pub fn room(&self, entries: usize, slots: usize) -> usize {
        room_beside(self.ftl.geometry().page_bytes as usize, entries, slots)
    }

    /// Maximum number of live transactions with pending records in one page.
    pub fn max_c(&self) -> u8 {
        self.max_c
    }

    /// Resets the counters, for example after a warm-up.
    pub fn reset_stats(&mut self) {
        self.ftl.reset_stats();
        self.host = RequestStats::default();
        self.records.merged = 0;
    }

    /// Number of versions that the collector need not copy because they were merged.
    pub fn merged(&self) -> u64 {
        self.records.merged
    }

    /// Memory of each structure in bytes.
    pub fn memory(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.ftl.memory().to_vec();
        all.push(("live_versions", self.records.versions.bytes()));
        let lists = self.records.live.values().map(|live| live.lpns.len());
        let lists = lists.sum::<usize>() * size_of::<Lpn>();
        let live = self.records.live.len() * size_of::<(TxId, Live)>();
        all.push(("live_transactions", (lists + live) as u64));
        all.extend(self.records.verdicts.memory());
        all
    }

    /// Transactions without a deciding flag.
    pub fn in_doubt(&self) -> impl Iterator<Item = TxId> + '_ {
        let live = self.records.live.iter();
        live.filter(|(_, live)| live.in_doubt).map(|(&tx, _)| tx)
    }

    /// Decides the transactions in doubt, once, after [`RecordDevice::open`]: those in `committed`
    /// have committed according to the host's log, and get their flags; the others are aborted. The
    /// host must keep its log until the returned instant.
    ///
    /// # Errors
    /// The device cannot continue.
    pub fn resolve(
        &mut self,
        now: Nanos,
        committed: &BTreeSet<TxId>,
    ) -> Result<Nanos, DeviceError> {
        let Some(torn) = self.unresolved.clone() else {
            return Ok(now);
        };
        let mut done = now;
        let in_doubt: Vec<TxId> = self.in_doubt().collect();
        for tx in in_doubt {
            if committed.contains(&tx) {
                self.log_says_committed(tx);
                done = done.max(self.end_committed(now, tx)?);
            } else {
                self.end_aborted(tx);
            }
        }
        let mended = self.mend(done, torn)?;
        self.unresolved = None;
        Ok(mended)
    }

    fn ready(&self) -> Result<(), DeviceError> {
        match self.unresolved {
            Some(_) => Err(DeviceError::Unresolved),
            None => Ok(()),
        }
    }

    /// Begins a transaction. Its identifier was not used before, see [`RecordDevice::raise_tx`].
    ///
    /// # Errors
    /// There are transactions in doubt.
    pub fn begin(&mut self, _now: Nanos) -> Result<TxId, DeviceError> {
        self.ready()?;
        spare_numbers(&self.ftl, self.last_tx)?;
        let tx = TxId(self.last_tx.0 + 1);
        self.last_tx = tx;
        self.records.live.insert(tx, Live::default());
        self.host.begun += 1;
        Ok(tx)
    }

    /// Begins a transaction with an identifier that the caller has not used before.
    ///
    /// # Errors
    /// As [`RecordDevice::begin`], or a transaction with this identifier is live.
    pub fn enter(&mut self, tx: TxId) -> Result<(), DeviceError> {
        self.ready()?;
        if self.records.is_live(tx) {
            return Err(DeviceError::AlreadyLive(tx));
        }
        self.raise_tx(tx);
        self.records.live.insert(tx, Live::default());
        self.host.begun += 1;
        Ok(())
    }

    /// Excludes identifiers up to `seen`, which the host has found in its log, from further use.
    pub fn raise_tx(&mut self, seen: TxId) {
        self.last_tx = self.last_tx.max(seen);
    }

    /// Writes a version of a page. Records not listed in `pending` are committed: `now` must not be
    /// before that is durable. A record that a live transaction has pending in the previous version
    /// must be listed again, otherwise it is given up. Returns when the version is durable.
    ///
    /// # Errors
    /// The device refuses the request, or cannot continue.
    pub fn write(
        &mut self,
        now: Nanos,
        at: Lpn,
        image: &[u8],
        pending: &[Pending],
    ) -> Result<Nanos, DeviceError> {
        self.write_as(Cause::Host, now, at, image, pending)
    }

    /// Like [`RecordDevice::write`], but counted under `cause`: a host's log is counted separately.
    ///
    /// # Errors
    /// As [`RecordDevice::write`].
    pub fn write_as(
        &mut self,
        cause: Cause,
        now: Nanos,
        at: Lpn,
        image: &[u8],
        pending: &[Pending],
    ) -> Result<Nanos, DeviceError> {
        self.ready()?;
        in_range(&self.ftl, at)?;
        let listed = || pending.iter().filter(|pending| !pending.slots.is_empty());
        let entries = listed().count();
        if entries > usize::from(self.max_c) {
            let limit = self.max_c;
            return Err(DeviceError::TooManyUpdaters { at, limit });
        }
        for (index, &Pending { tx, .. }) in listed().enumerate() {
            if !self.records.is_live(tx) {
                return Err(DeviceError::NoTransaction(tx));
            }
            if listed().take(index).any(|other| other.tx == tx) {
                return Err(DeviceError::ListedTwice { at, tx });
            }
        }
        let room = self.room(entries, listed().map(|p| p.slots.len()).sum());
        if image.len() > room {
            return Err(DeviceError::TooLong {
                bytes: image.len(),
                page_bytes: room as u32,
            });
        }
        if entries > 0 && page::Page::parse(image).is_err() {
            return Err(DeviceError::NoRecords(at));
        }
        make_room(&mut self.ftl, &mut self.records, now)?;
        let pending = listed().map(|pending| (pending.tx, pending.slots.as_slice().into()));
        let done = self
            .records
            .write(&mut self.ftl, now, at, image, cause, pending)?;
        self.host.pages_written += 1;
        Ok(done)
    }

    /// Reads a page: its newest version, with each aborted record replaced by its newest committed
    /// copy. Records of live transactions remain, and are listed. Returns when it was read.
    ///
    /// # Errors
    /// The page is beyond the device or lost to bit errors, or the power failed.
    pub fn read(
        &mut self,
        now: Nanos,
        at: Lpn,
        into: &mut MergedPage,
    ) -> Result<Nanos, DeviceError> {
        self.read_as(Cause::Host, now, at, into)
    }

    /// Like [`RecordDevice::read`], but counted under `cause`.
    ///
    /// # Errors
    /// As [`RecordDevice::read`].
    pub fn read_as(
        &mut self,
        cause: Cause,
        now: Nanos,
        at: Lpn,
        into: &mut MergedPage,
    ) -> Result<Nanos, DeviceError> {
        in_range(&self.ftl, at)?;
        into.image.clear();
        into.pending.clear();
        into.restored.clear();
        let live = &self.records.live;
        let undecided = |tx: TxId| live.contains_key(&tx);
        let single;
        let list = match self.records.versions.get(at) {
            Some(list) => list,
            None => {
                let Some(page) = self.ftl.slot(at).ppn() else {
                    self.host.pages_read += 1;
                    return Ok(now);
                };
                // A page without a list has one version, and no pending records.
                single = [Version {
                    at: page,
                    held: Vec::new(),
                }];
                &single
            }
        };
        let merged = merge(&mut self.ftl, now, list, undecided, cause);
        let merged = merged.map_err(|error| match error {
            FtlError::Unreadable { .. } => DeviceError::Unreadable(at),
            other => other.into(),
        })?;
        self.host.pages_read += 1;
        into.image = merged.image;
        into.restored = merged.restored;
        for held in list[0].held.iter().filter(|held| undecided(held.tx)) {
            into.pending.push(Pending {
                tx: held.tx,
                slots: held.slots.to_vec(),
            });
        }
        Ok(merged.done)
    }

    /// Commits the pending records of a transaction. Returns when that is durable.
    ///
    /// # Errors
    /// There is no such transaction, or the device cannot continue.
    pub fn commit(&mut self, now: Nanos, tx: TxId) -> Result<Nanos, DeviceError> {
        self.ready()?;
        if !self.records.is_live(tx) {
            return Err(DeviceError::NoTransaction(tx));
        }
        if self.ftl.owes_a_collection() {
            make_room(&mut self.ftl, &mut self.records, now)?;
        }
        let done = self.end_committed(now, tx)?;
        self.host.committed += 1;
        Ok(done)
    }

    fn end_committed(&mut self, now: Nanos, tx: TxId) -> Result<Nanos, DeviceError> {
        let done = self.records.verdicts.commit(&mut self.ftl, now, tx)?;
        let ended = self.records.live.remove(&tx).expect("it is live");
        let live = &self.records.live;
        for at in ended.lpns {
            let undecided = |tx| live.contains_key(&tx);
            self.records
                .versions
                .commit(&mut self.ftl, at, tx, done, undecided);
        }
        Ok(done)
    }

    /// Collects a block that the caller has chosen, even if that gains no space: moves its live
    /// pages and erases it. A block that is being written is closed first. Returns when the erase
    /// is done, or `None` if the block cannot be collected now: it holds nothing, the FTL keeps its
    /// own pages there, the protocol needs it, or a page in it is lost to bit errors.
    ///
    /// # Errors
    /// Transactions are in doubt, no block is left for the live pages, or the power fails.
    pub fn collect(&mut self, now: Nanos, block: Pbn) -> Result<Option<Nanos>, DeviceError> {
        self.ready()?;
        self.ftl.end_block(block);
        Ok(collect_chosen(
            &mut self.ftl,
            &mut self.records,
            now,
            block,
        )?)
    }

    /// Rolls a transaction back. Returns when the device has finished.
    ///
    /// # Errors
    /// There is no such transaction.
    pub fn abort(&mut self, now: Nanos, tx: TxId) -> Result<Nanos, DeviceError> {
        self.ready()?;
        if !self.records.is_live(tx) {
            return Err(DeviceError::NoTransaction(tx));
        }
        self.end_aborted(tx);
        self.host.aborted += 1;
        Ok(now)
    }

    fn end_aborted(&mut self, tx: TxId) {
        self.records.verdicts.abort(&mut self.ftl, tx);
        let ended = self.records.live.remove(&tx).expect("it is live");
        let live = &self.records.live;
        for at in ended.lpns {
            let undecided = |tx| live.contains_key(&tx);
            self.records
                .versions
                .prune(&mut self.ftl, at, Nanos::ZERO, undecided);
        }
    }

    /// Checks the invariants of the protocol and of the FTL. For tests and campaigns.
    ///
    /// # Errors
    /// Names the invariant that is violated.
    pub fn check(&self) -> Result<(), String> {
        self.ftl.check()?;
        let live = &self.records.live;
        let table = &self.records.verdicts;
        self.records.versions.check(&self.ftl, |tx| {
            !live.contains_key(&tx) && !table.is_aborted(tx)
        })?;
        table.check(&self.ftl)
    }
}
