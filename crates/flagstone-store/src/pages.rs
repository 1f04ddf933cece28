//! A transactional store of pages on a medium: the device of the simulations, where it keeps data.
//!
//! A [`PageStore`] is a [`Device`] over a [`MediumFlash`]. It grows as it fills, turns failures of
//! the medium into errors that name it, and otherwise does what its device does.

use crate::encryption;
use crate::error::StoreError;
mod beside;
mod create;
mod look;
mod options;

pub use beside::{Asked, Looked};
pub use look::{CheckReport, PageFacts, StoreInfo};
#[cfg(feature = "encryption")]
pub(crate) use look::{doubt_blank, doubt_head};
pub use options::OpenOptions;

use crate::flash::places::Places;
use crate::flash::rest::{Left, is_worth};
use crate::flash::{DATA_BYTES, MediumFlash, MediumStats, Notes};
use crate::medium::{Disk, Medium};
use crate::superblock::{Head, Superblock};
use flagstone::commit::{Device, DeviceError, Options};
use flagstone::ftl::{BlockState, Config, FtlError, Slot};
use flagstone::nand::Flash;
use flagstone::units::{Lpn, Nanos, Pbn, SnapshotId, TxId};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Blocks of a new store: the fewest with which the collector works, and a few.
pub(crate) const FIRST_BLOCKS: u32 = 16;

/// Blocks that a store has beside what it holds, however narrow its bound is: without them the
/// collector has nowhere to move pages to.
const COLLECTOR_BLOCKS: f64 = 3.0;

/// How many times its bound a store may take while snapshots are open, and pages that it may take
/// anyway: blocks with pages of theirs are not collected. Beyond that the oldest snapshots end.
const SNAPSHOT_ROOM: f64 = 2.0;
const SNAPSHOT_PAGES: f64 = 4096.0;

/// A store of pages with transactions.
pub struct PageStore {
    device: Device,
    now: Nanos,
    /// The share of the device that may hold something before it grows.
    fill: f64,
    read_only: bool,
    opened: Head,
    notes: Notes,
    places: Arc<Places>,
    broken: Option<String>,
    /// No page above this one holds anything.
    highest: u32,
    /// Pages that may hold something.
    in_service: u64,
    /// Whether the tables of the last close spared this opening the reading of the blocks.
    resumed: bool,
    /// What is wrong with those tables, if that was looked at.
    left_wrong: Option<String>,
    /// Its name, if it has one, and options with its key.
    path: Option<PathBuf>,
    keyed: OpenOptions,
}

impl PageStore {
    /// Bytes of a page.
    pub const PAGE_BYTES: usize = DATA_BYTES;

    /// Opens a store in a file or on a block device. Nobody else can open it until it is dropped,
    /// but others who only read if this one only reads.
    ///
    /// # Errors
    /// There is none and none is to be made, something else is there, somebody has it open, or the
    /// system refuses.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<PageStore, StoreError> {
        let is_new = !path.exists();
        let disk = Disk::open(path, options.create, options.read_only)?;
        let opened = PageStore::on(Box::new(disk), options).map(|mut store| {
            store.path = Some(path.to_path_buf());
            store
        });
        let opened = opened.map_err(|error| error.at(path));
        if is_new && opened.is_ok() {
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            let folder = std::fs::File::open(folder.unwrap_or(Path::new(".")));
            let synced = folder.and_then(|folder| folder.sync_all());
            synced
                .map_err(|error| StoreError::io("making the name of the store durable", error))?;
        }
        opened
    }

    /// Opens a store on a medium.
    ///
    /// # Errors
    /// As [`PageStore::open`].
    pub fn on(medium: Box<dyn Medium>, options: &OpenOptions) -> Result<PageStore, StoreError> {
        PageStore::through(medium, options, |flash| flash)
    }

    /// As [`PageStore::on`], with another flash in front of that of the medium, or in its place:
    /// campaigns listen there, and put a simulated chip there. What the store keeps on the medium
    /// beside its flash (superblocks, tables of a close) stays on the medium.
    ///
    /// # Errors
    /// As there.
    #[doc(hidden)]
    pub fn through(
        medium: Box<dyn Medium>,
        options: &OpenOptions,
        dress: impl FnOnce(Box<dyn Flash>) -> Box<dyn Flash>,
    ) -> Result<PageStore, StoreError> {
        if !(options.space >= 1.1 && options.space <= 100.0) {
            return Err(StoreError::Options(format!(
                "the bound of the store is {} times what it holds: use 1.1 to 100",
                options.space
            )));
        }
        let medium = encryption::dress(medium, options)?;
        let (mut head, is_new) = match Superblock::read(medium.as_ref())? {
            Some(head) => (head, false),
            None => (create::create(medium.as_ref(), options)?, true),
        };
        // A making that failed may have left its superblock in the cache of the system alone.
        let is_whole = head.superblock.closed == Some(true) && head.superblock.boot > 0;
        let is_doubtful = !is_whole && !is_new && !options.read_only;
        if is_doubtful || options.uncached {
            let refreshed = medium.refresh();
            let what = "making durable what an earlier opening left";
            refreshed.map_err(|error| StoreError::io(what, error))?;
            head = Superblock::read(medium.as_ref())?.unwrap_or(head);
        }
        let superblock = head.superblock;
        look::doubt_head(medium.as_ref(), &head)?;
        let left = Left::read(medium.as_ref(), &superblock);
        let what = "reading what the last close has left";
        let left = left.map_err(|error| StoreError::io(what, error))?;
        // An opening that is to read the medium believes nothing that it can find out, and
        // compares. Tables are not believed beside a damaged superblock either: that one may have
        // been the newer one, which took them back.
        let (believed, compared) = match left {
            left if options.uncached => (None, left),
            Ok(left) if head.damaged.is_none() => (left, Ok(None)),
            _ => (None, Ok(None)),
        };
        let expecting = medium.expecting();
        let mut flash = MediumFlash::new(medium, superblock, options.read_only);
        let (notes, places) = (flash.notes(), flash.places());
        let (kind, defaults) = (superblock.protocol, Options::default());
        let device = match believed {
            Some(left) => {
                flash.believe(&left);
                let (flash, tables) = (dress(Box::new(flash)), left.tables);
                Device::resume(
                    flash,
                    kind,
                    options.config(),
                    &defaults,
                    Nanos::ZERO,
                    tables,
                )
            }
            None => std::thread::scope(|scope| {
                for thread in 0..look::ASKING {
                    let Some(expecting) = &expecting else { break };
                    let asks = move || look::expect_marks(expecting, &superblock, thread);
                    // Where there is no thread to be had, one read follows the other.
                    let _ = std::thread::Builder::new().spawn_scoped(scope, asks);
                }
                let flash = dress(Box::new(flash));
                let opened = Device::open(flash, kind, options.config(), &defaults, Nanos::ZERO);
                opened.map(|device| (device, false))
            }),
        };
        let (device, resumed) = device.map_err(|error| match notes.trouble.take() {
            Some((what, error)) => StoreError::io(what, error),
            None => StoreError::Damaged(format!(
                "the store cannot be opened: {error}: `flagstone store repair` salvages what can \
                 be read"
            )),
        })?;
        look::doubt_marks(&notes)?;
        let left_wrong = match compared {
            Ok(Some(left)) => device.ftl().compare_with_rest(&left.tables).err(),
            Ok(None) => None,
            Err(why) => Some(why),
        };
        let mut store = PageStore {
            resumed,
            left_wrong,
            path: None,
            keyed: OpenOptions::default().with_key_of(options),
            now: device.recovered_at(),
            fill: 1.0 / options.space,
            read_only: options.read_only,
            opened: head,
            highest: device.pages(),
            in_service: 0,
            device,
            notes,
            places,
            broken: None,
        };
        store.highest = store.highest().map_or(0, |at| at.0);
        store.in_service = store.in_service();
        Ok(store)
    }

    /// Starts a transaction.
    ///
    /// # Errors
    /// The store was opened for reading, or as many are live as the protocol supports.
    pub fn begin(&mut self) -> Result<TxId, StoreError> {
        self.may_write()?;
        let begun = self.device.begin(self.now);
        self.translate(begun)
    }

    /// Writes a page in a transaction; at most [`PageStore::PAGE_BYTES`].
    ///
    /// # Errors
    /// The request is wrong, the store is full, or the medium fails.
    pub fn write(&mut self, tx: TxId, at: Lpn, data: &[u8]) -> Result<(), StoreError> {
        self.may_write()?;
        self.make_room(at)?;
        self.highest = self.highest.max(at.0);
        let taken = self.device.write(self.now, tx, at, data);
        let taken = self.translate(taken)?;
        self.now = self.now.max(taken.next);
        self.notes.stats().user_bytes += data.len() as u64;
        Ok(())
    }

    /// Says in a transaction that a page holds nothing any more.
    ///
    /// # Errors
    /// As [`PageStore::write`].
    pub fn trim(&mut self, tx: TxId, at: Lpn) -> Result<(), StoreError> {
        self.may_write()?;
        self.make_room(at)?;
        let taken = self.device.trim(self.now, tx, at);
        let taken = self.translate(taken)?;
        self.now = self.now.max(taken.next);
        Ok(())
    }

    /// Reads a page into `into`, which has room for one: the transaction's own version if it wrote
    /// one, else the last committed one. Returns how many bytes it has, or nothing if it was never
    /// written, or trimmed.
    ///
    /// # Errors
    /// The request is wrong, the page was lost, or the medium fails.
    pub fn read(
        &mut self,
        tx: Option<TxId>,
        at: Lpn,
        into: &mut [u8],
    ) -> Result<Option<usize>, StoreError> {
        self.read_by(at, |device, now| device.read_into(now, tx, at, into))
    }

    /// Reads a page in one of the ways of the device. One beyond it holds nothing.
    fn read_by(
        &mut self,
        at: Lpn,
        read: impl FnOnce(&mut Device, Nanos) -> Result<(Nanos, Option<usize>), DeviceError>,
    ) -> Result<Option<usize>, StoreError> {
        self.is_well()?;
        if at.0 >= self.device.pages() {
            return Ok(None);
        }
        let read = read(&mut self.device, self.now);
        let (_, bytes) = self.translate(read)?;
        Ok(bytes)
    }

    /// Takes a snapshot of what is committed, for a reader that goes on seeing that. It copies
    /// nothing; pages that are replaced meanwhile keep their room until
    /// [`PageStore::end_snapshot`]. A store may take twice its bound ([`OpenOptions::space`]) so,
    /// or 16 MiB; then the oldest snapshots end.
    ///
    /// # Errors
    /// The protocol cannot give snapshots: `seal` can.
    pub fn snapshot(&mut self) -> Result<SnapshotId, StoreError> {
        self.is_well()?;
        let taken = self.device.snapshot();
        self.translate(taken)
    }

    /// Gives a snapshot back.
    pub fn end_snapshot(&mut self, id: SnapshotId) {
        self.device.end_snapshot(id);
    }

    /// Whether nothing was committed since a snapshot was taken.
    pub fn is_current(&self, id: SnapshotId) -> bool {
        self.device.ftl().is_current(id)
    }

    /// Reads a page of a snapshot as [`PageStore::read`] does.
    ///
    /// # Errors
    /// The snapshot has ended, the page was lost, or the medium fails.
    pub fn read_snapshot(
        &mut self,
        id: SnapshotId,
        at: Lpn,
        into: &mut [u8],
    ) -> Result<Option<usize>, StoreError> {
        self.read_by(at, |device, now| device.read_snapshot(now, id, at, into))
    }

    /// Commits a transaction: it is durable when this returns.
    ///
    /// # Errors
    /// There is no such transaction, the store is full, or the medium fails. After a failure of the
    /// medium it is open whether the transaction has committed; the store says so when it is opened
    /// again.
    pub fn commit(&mut self, tx: TxId) -> Result<(), StoreError> {
        self.may_write()?;
        self.make_room(Lpn(0))?;
        let committed = self.device.commit(self.now, tx);
        match self.translate(committed)? {
            Some(done) => self.now = self.now.max(done),
            None => {
                let flushed = self.device.acknowledged(self.now, true);
                for (_, done) in self.translate(flushed)? {
                    self.now = self.now.max(done);
                }
            }
        }
        self.notes.stats().commits += 1;
        Ok(())
    }

    /// Rolls a transaction back.
    ///
    /// # Errors
    /// There is no such transaction, or the medium fails.
    pub fn abort(&mut self, tx: TxId) -> Result<(), StoreError> {
        self.may_write()?;
        let aborted = self.device.abort(self.now, tx);
        self.now = self.translate(aborted)?.max(self.now);
        Ok(())
    }

    /// The highest page that holds something that is committed.
    pub fn highest(&self) -> Option<Lpn> {
        let ftl = self.device.ftl();
        let top = (self.highest + 1).min(self.device.pages());
        let holds = |&at: &u32| matches!(ftl.slot(Lpn(at)), Slot::Page(_));
        (0..top).rev().find(holds).map(Lpn)
    }

    /// Whether a page holds something that is committed.
    pub fn holds(&self, at: Lpn) -> bool {
        at.0 < self.device.pages() && matches!(self.device.ftl().slot(at), Slot::Page(_))
    }

    /// Closes the store: all that it wrote is made durable, and the superblock says so. To drop a
    /// store does the same, but tells nobody what failed. Transactions that live are rolled back.
    ///
    /// # Errors
    /// The medium fails. The store is then one that was not closed: what was acknowledged is there.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.come_to_rest()?;
        let notes = self.notes.clone();
        drop(self);
        match notes.trouble.take() {
            Some((what, error)) => Err(StoreError::io(what, error)),
            None => Ok(()),
        }
    }

    /// Gives the close that follows what it leaves for the next opening.
    fn come_to_rest(&mut self) -> Result<(), StoreError> {
        let wrote = self.notes.stats().bytes;
        let may = self.notes.may_close() && !self.read_only && self.broken.is_none();
        // A device that has given its tables is not to be used any more.
        let has_rested = self.notes.tables().is_some();
        if may && !has_rested && is_worth(wrote, self.device.pages()) {
            let tables = self.device.rest_for_good(self.now);
            let tables = self.translate(tables)?;
            *self.notes.tables() = tables;
        }
        Ok(())
    }

    /// What was done to the medium since the store was opened.
    pub fn medium_stats(&self) -> MediumStats {
        *self.notes.stats()
    }

    /// The device, to look at.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = Lpn> + '_ {
        (0..self.device.pages())
            .map(Lpn)
            .filter(|&at| self.holds(at))
    }

    pub(crate) fn is_well(&self) -> Result<(), StoreError> {
        match self.broken.as_deref().or(self.notes.trouble.why()) {
            Some(why) => Err(StoreError::Broken(why.to_owned())),
            None => Ok(()),
        }
    }

    pub(crate) fn may_write(&self) -> Result<(), StoreError> {
        self.is_well()?;
        match self.read_only {
            true => Err(StoreError::ReadOnly),
            false => Ok(()),
        }
    }

    /// Grows the store if `at` lies beyond it, or if little is left and what it holds is not to be
    /// crowded any more.
    fn make_room(&mut self, at: Lpn) -> Result<(), StoreError> {
        while at.0 >= self.device.pages() {
            if self.grow()? == 0 {
                let why = self.why_no_more();
                return Err(StoreError::Full(format!(
                    "page {at} lies beyond it, and {why}"
                )));
            }
        }
        let ftl = self.device.ftl();
        if ftl.free_blocks() <= ftl.collects_below() {
            let (open, retained) = ftl.snapshots();
            let live = ftl.live_pages() as f64;
            // What snapshots keep from being collected is no reason to grow as long as other blocks
            // are worth it.
            let is_held_up = open > 0
                && ftl.fewest_live().is_none_or(|pages| {
                    f64::from(pages) > self.fill * f64::from(ftl.data_pages_per_block())
                });
            let live = live - retained as f64;
            let bound = match is_held_up {
                false => live,
                true => (live * SNAPSHOT_ROOM).max(SNAPSHOT_PAGES * self.fill),
            };
            let room = self.in_service as f64;
            let reserve = COLLECTOR_BLOCKS * f64::from(ftl.data_pages_per_block());
            if bound > (room * self.fill).min(room - reserve) {
                self.grow()?;
            }
        }
        Ok(())
    }

    /// Pages that may hold something.
    fn in_service(&self) -> u64 {
        let ftl = self.device.ftl();
        let out = |block| matches!(ftl.block_state(block), BlockState::Bad | BlockState::Meta);
        let blocks = (0..ftl.geometry().blocks()).filter(|&block| !out(Pbn(block)));
        blocks.count() as u64 * u64::from(ftl.data_pages_per_block())
    }

    /// Blocks that the store grows by at a time: an eighth.
    fn next_blocks(&self) -> u32 {
        (self.device.geometry().blocks() / 8).max(8)
    }

    /// Grows the store. Returns how many blocks were added: none if there is no room.
    fn grow(&mut self) -> Result<u32, StoreError> {
        let more = self.next_blocks();
        if self.device.ftl().why_not_grow(more).is_some() {
            return Ok(0);
        }
        let grown = self.device.grow(self.now, more);
        let grown = self.translate(grown)?;
        self.in_service = self.in_service();
        Ok(grown)
    }

    /// Why the store does not grow.
    fn why_no_more(&self) -> String {
        let ftl = self.device.ftl();
        match (ftl.why_not_grow(self.next_blocks()), &*self.notes.refused()) {
            (Some(why), _) => format!(
                "with {} and blocks of {} pages it cannot grow any more: {why}",
                self.device.info().name,
                ftl.geometry().pages_per_block
            ),
            (None, Some(error)) => format!("the medium gives no more room: {error}"),
            (None, None) => "the medium has no room for more".into(),
        }
    }

    /// Turns an answer of the device into one of the store.
    fn translate<T>(&mut self, answer: Result<T, DeviceError>) -> Result<T, StoreError> {
        answer.map_err(|error| match error {
            DeviceError::Ftl(FtlError::PowerLost) => match self.notes.trouble.take() {
                Some((what, error)) => {
                    self.broken = Some(format!("{what}: {error}"));
                    StoreError::io(what, error)
                }
                None => StoreError::Broken(self.broken.clone().unwrap_or_default()),
            },
            DeviceError::Ftl(FtlError::Full { live, pages, .. }) => {
                let why = self.why_no_more();
                StoreError::Full(format!("{live} of {pages} pages are in use, and {why}"))
            }
            other => StoreError::Device(other),
        })
    }
}

impl Drop for PageStore {
    /// Closes. What fails is noted by nobody, and the store stays one that was not closed.
    fn drop(&mut self) {
        let _ = self.come_to_rest();
    }
}

/// The settings of the translation layer of a store.
pub(crate) fn config() -> Config {
    let mut config = Config::default();
    config.over_provision = 0.0;
    config.gc_threshold = 0.0;
    // A file does not wear out.
    config.static_wear_gap = None;
    config.victims = flagstone::ftl::VictimPolicy::Greedy;
    config.thin = true;
    config.works_ahead = true;
    config
}

#[cfg(test)]
pub(crate) mod tests;
