//! A transactional store of pages on a medium: the device of the simulations, where it keeps data.
//!
//! A [`PageStore`] is a [`Device`] over a [`MediumFlash`]. It grows as it fills, turns failures of
//! the medium into errors that name it, and otherwise does what its device does.

use crate::encryption;
use crate::error::{Doing, StoreError};
mod beside;
mod compact;
mod create;
mod idle;
mod look;
mod options;
mod recover;
mod room;

pub use beside::{Asked, Looked};
pub(crate) use compact::LEISURE;
pub use look::{CheckReport, PageFacts, StoreInfo};
#[cfg(feature = "encryption")]
pub(crate) use look::{doubt_blank, doubt_head};
pub use options::OpenOptions;

use crate::flash::places::Places;
use crate::flash::rest::{Left, is_worth};
use crate::flash::thin;
use crate::flash::{DATA_BYTES, MediumFlash, MediumStats, Notes};
use crate::medium::gaps::{Gaps, Misreads};
use crate::medium::{Disk, Medium};
use crate::superblock::{Head, Superblock};
use flagstone::commit::{Device, DeviceError, Options};
use flagstone::ftl::{Config, FtlError, Slot};
use flagstone::nand::Flash;
use flagstone::units::{Lpn, Nanos, SnapshotId, TxId};
use recover::AtNoRoom;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Blocks of a new store: the fewest with which the collector works, and a few.
pub(crate) const FIRST_BLOCKS: u32 = 16;

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
    /// Pages that were never written, and whose writers have been told that there is room.
    promised: u64,
    /// Whether blocks that it has may find no room, see `flash::thin`.
    is_thin: bool,
    /// Whether this opening has given room back that blocks need again.
    has_holes: bool,
    /// The last write sequence when an idle store was found to be as small as it should be.
    left_alone_at: u64,
    /// Blocks that its medium has room for, where that is known.
    most_blocks: Option<u32>,
    /// Whether the tables of the last close spared this opening the reading of the blocks.
    resumed: bool,
    /// What is wrong with those tables, if that was looked at.
    left_wrong: Option<String>,
    /// What the medium has refused to read under an opening that salvages.
    misreads: Misreads,
    /// Its name, if it has one, and options with its key.
    path: Option<PathBuf>,
    keyed: OpenOptions,
    /// The settings of the translation layer.
    config: Config,
    at_no_room: AtNoRoom,
    /// The last write that found no room, after which the store was opened again.
    no_room: Option<String>,
    /// Whether there may be no room still.
    is_short: bool,
    /// Live transactions, if they are to go on then.
    live: BTreeMap<TxId, recover::Live>,
}

impl PageStore {
    /// Bytes of a page.
    pub const PAGE_BYTES: usize = DATA_BYTES;

    /// Opens a store in a file or on a block device. No other handle can open it until it is
    /// dropped, except to read, if this one only reads.
    ///
    /// # Errors
    /// There is none and none is to be made, something else is there, another handle has it open,
    /// or the system refuses.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<PageStore, StoreError> {
        // Before there is a file.
        options.must_be_possible()?;
        if options.would_make(path) {
            create::shape(options)?;
        }
        let disk = Disk::open(path, options.create, options.read_only)?;
        let opened = PageStore::on(Box::new(disk), options).map(|mut store| {
            store.path = Some(path.to_path_buf());
            store
        });
        let store = opened.map_err(|error| error.at(path))?;
        // Nothing was written to it yet: its file may have been made just now, or by somebody who
        // did not come as far as this.
        if !options.read_only && store.opened.superblock.boot == 0 {
            sync_folder_of(path).doing("making the name of the store durable")?;
        }
        Ok(store)
    }

    /// Opens a store on a medium.
    ///
    /// # Errors
    /// As [`PageStore::open`].
    pub fn on(medium: Box<dyn Medium>, options: &OpenOptions) -> Result<PageStore, StoreError> {
        let mut store = PageStore::through(medium, options, |flash| flash)?;
        store.recover_from_no_room(true, true);
        Ok(store)
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
        options.must_be_possible()?;
        let misreads = Misreads::default();
        let medium = match options.salvage {
            true => Box::new(Gaps::over(medium, misreads.clone())),
            false => medium,
        };
        let medium = encryption::dress(medium, options)?;
        let mut found = Superblock::find(medium.as_ref())?;
        // A making that failed may have left its superblock in the cache of the system alone.
        let is_doubtful = |head: &Head| {
            let superblock = &head.superblock;
            let is_whole = superblock.closed == Some(true) && superblock.boot > 0;
            superblock.blocks > 0 && (!is_whole || options.uncached)
        };
        if found.head.as_ref().is_some_and(is_doubtful) {
            medium
                .refresh()
                .doing("making durable what an earlier opening left")?;
            found.head = Superblock::read(medium.as_ref())?.or(found.head);
        }
        let head = match found.head {
            Some(head) if !create::is_unfinished(medium.as_ref(), &head)? => head,
            _ => create::create(medium.as_ref(), options, &found)?,
        };
        let superblock = head.superblock;
        look::doubt_head(medium.as_ref(), &head)?;
        let left = Left::read(medium.as_ref(), &superblock);
        let left = left.doing("reading what the last close has left")?;
        // An opening that is to read the medium believes nothing that it can find out, and
        // compares. Tables are not believed beside a damaged superblock either: that one may have
        // been the newer one, which took them back.
        let (believed, compared) = match left {
            left if options.uncached => (None, left),
            Ok(left) if head.damaged.is_none() && superblock.sealed.is_some() => (left, Ok(None)),
            _ => (None, Ok(None)),
        };
        let expecting = medium.expecting();
        let most_blocks = medium.most().map(|bytes| {
            let blocks = create::blocks_within(superblock.pages_per_block, bytes);
            blocks.max(superblock.blocks)
        });
        let mut flash = MediumFlash::new(medium, superblock, options.read_only);
        let (notes, places) = (flash.notes(), flash.places());
        let kind = superblock.protocol;
        let mut defaults = Options::default();
        defaults.ended = superblock.sealed;
        defaults.salvages = options.salvage;
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
        if !resumed && !options.salvage {
            look::doubt_damaged_marks(&notes)?;
        }
        look::doubt_pages(places.medium(), &head, device.pages())?;
        let left_wrong = match compared {
            Ok(Some(left)) => device.ftl().compare_with_rest(&left.tables).err(),
            Ok(None) => None,
            Err(why) => Some(why),
        };
        let is_thin = !options.read_only && thin::is_thin(places.medium(), superblock.blocks);
        let mut store = PageStore {
            is_thin,
            has_holes: false,
            left_alone_at: u64::MAX,
            resumed,
            left_wrong,
            misreads,
            path: None,
            keyed: OpenOptions::default().with_key_of(options),
            now: device.recovered_at(),
            fill: 1.0 / options.space,
            read_only: options.read_only,
            opened: head,
            highest: device.pages(),
            in_service: 0,
            promised: 0,
            most_blocks,
            device,
            notes,
            places,
            broken: None,
            config: options.config(),
            at_no_room: AtNoRoom::Breaks,
            no_room: None,
            is_short: false,
            live: BTreeMap::new(),
        };
        store.places.forgive_misreads(true);
        store.highest = store.highest().map_or(0, |at| at.0);
        store.find_blocks_without_room();
        store.in_service = store.in_service();
        Ok(store)
    }

    /// Starts a transaction.
    ///
    /// # Errors
    /// The store was opened for reading, or as many are live as the protocol supports.
    pub fn begin(&mut self) -> Result<TxId, StoreError> {
        self.may_write_now()?;
        let begun = self.device.begin(self.now);
        let tx = self.translate(begun)?;
        self.note_begun(tx);
        Ok(tx)
    }

    /// Writes a page in a transaction; at most [`PageStore::PAGE_BYTES`].
    ///
    /// # Errors
    /// The request is wrong, the store is full, or the medium fails.
    pub fn write(&mut self, tx: TxId, at: Lpn, data: &[u8]) -> Result<(), StoreError> {
        self.may_write_now()?;
        let number = self.number_to_write(tx)?;
        self.note_write(tx, at, Some(data));
        let done = self.write_in_device(number, at, data);
        self.note_written(tx, done)?;
        self.notes.stats().user_bytes += data.len() as u64;
        Ok(())
    }

    /// Writes a page in a transaction of the device.
    fn write_in_device(&mut self, tx: TxId, at: Lpn, data: &[u8]) -> Result<(), StoreError> {
        self.make_room_at(at, self.is_new(at))?;
        self.highest = self.highest.max(at.0);
        let taken = self.with_room(|device, now| device.write(now, tx, at, data))?;
        self.now = self.now.max(taken.next);
        Ok(())
    }

    /// Says in a transaction that a page holds nothing any more.
    ///
    /// # Errors
    /// As [`PageStore::write`].
    pub fn trim(&mut self, tx: TxId, at: Lpn) -> Result<(), StoreError> {
        self.may_write_now()?;
        let number = self.number_to_write(tx)?;
        self.note_write(tx, at, None);
        let done = self.trim_in_device(number, at);
        self.note_written(tx, done)
    }

    /// Trims a page in a transaction of the device.
    fn trim_in_device(&mut self, tx: TxId, at: Lpn) -> Result<(), StoreError> {
        // A page that was trimmed before takes no room, nor does one of many trims.
        let takes_room = self.is_blank(at) && self.pages_of_trims(2) > 1;
        self.make_room_at(at, takes_room)?;
        let taken = self.with_room(|device, now| device.trim(now, tx, at))?;
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
        self.mend();
        if let Some(tx) = tx
            && let Some(rescued) = self.read_rescued(tx, at, into)
        {
            self.is_well()?;
            return Ok(rescued);
        }
        let tx = self.number_to_read(tx);
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
        let (_, bytes) = read.map_err(|error| self.error_of(error))?;
        Ok(bytes)
    }

    /// Takes a snapshot of what is committed, for a reader that goes on seeing that. It copies
    /// nothing; pages that are replaced meanwhile keep their room until
    /// [`PageStore::end_snapshot`]. A store may take twice its bound ([`OpenOptions::space`]) so,
    /// or 32 MiB; then the oldest snapshots end.
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
    /// There is no such transaction, the store is full, or the medium fails. In a store that is
    /// full the transaction lives on: it can be committed later, or rolled back. After a failure of
    /// the medium it is open whether the transaction has committed; the store says so when it is
    /// opened again.
    pub fn commit(&mut self, tx: TxId) -> Result<(), StoreError> {
        self.may_write_now()?;
        let number = self.number_to_write(tx)?;
        self.make_room()?;
        if let Err(error) = self.commit_in_device(number) {
            // One that found no room may have landed whole.
            if !matches!(error, StoreError::Full(_)) || !self.has_all_of(tx) {
                return Err(error);
            }
        }
        self.end_live(tx);
        self.notes.stats().commits += 1;
        Ok(())
    }

    /// Rolls a transaction back.
    ///
    /// # Errors
    /// There is no such transaction, or the medium fails.
    pub fn abort(&mut self, tx: TxId) -> Result<(), StoreError> {
        self.mend();
        self.may_write()?;
        if let Some(number) = self.end_live(tx) {
            let aborted = self.device.abort(self.now, number);
            self.now = self.translate(aborted)?.max(self.now);
        }
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
    /// store does the same, but the error is lost. Transactions that live are rolled back.
    ///
    /// # Errors
    /// The medium fails, or has failed before. The store is then one that was not closed: what was
    /// acknowledged is there.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.mend();
        self.is_well()?;
        self.come_to_rest()?;
        let notes = self.notes.clone();
        drop(self);
        match notes.trouble.take() {
            Some((what, error)) => Err(StoreError::io(what, error)),
            None => Ok(()),
        }
    }

    /// Ends the blocks that are being written, as a close does first if the opening has written
    /// anything. Returns the number of the last program, if every block has its summary then. For
    /// campaigns that follow a store on a flash of their own.
    ///
    /// # Errors
    /// The medium fails.
    #[doc(hidden)]
    pub fn end_blocks(&mut self) -> Result<Option<u64>, StoreError> {
        let ended = self.device.end_blocks(self.now);
        self.translate(ended)
    }

    /// Gives the close that follows what it leaves for the next opening.
    fn come_to_rest(&mut self) -> Result<(), StoreError> {
        // Before anything is locked: in a process that was forked meanwhile it may stay so.
        if !self.notes.may_close() {
            return Ok(());
        }
        self.mend();
        // Nothing was written since it was opened again.
        if self.is_short {
            return Ok(());
        }
        let wrote = self.notes.stats().bytes;
        let may = !self.read_only && self.broken.is_none();
        // A device that has given its tables is not to be used any more.
        let has_rested = self.notes.tables().is_some();
        if may && !has_rested && wrote > 0 {
            let sealed = self.end_blocks()?;
            self.notes.seal_unto(sealed);
        }
        // A thin store is small, and few openings write enough to be worth the room of its tables.
        let is_thin = self.is_thin && wrote < THIN_WRITES;
        let is_worth = !is_thin && is_worth(wrote, self.device.pages());
        if may && !has_rested && is_worth {
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

    /// Whether the store is broken because a write found no room, though the file system had
    /// promised it (btrfs, a thin volume): one that does not open itself again
    /// ([`PageStore::break_at_no_room`], or another protocol than `seal` or `seal-r`). What is
    /// durable is as it was: the store may be opened again, to be read as long as there is no room.
    pub fn has_lost_room(&self) -> bool {
        self.notes.trouble.is_for_room()
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = Lpn> + '_ {
        (0..self.device.pages())
            .map(Lpn)
            .filter(|&at| self.holds(at))
    }

    pub(crate) fn is_well(&self) -> Result<(), StoreError> {
        match self.broken.clone().or_else(|| self.places.why_broken()) {
            Some(why) => Err(StoreError::Broken(why)),
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

    /// Turns an answer of the device into one of the store, after a request that may have written:
    /// what found no room is an error, whatever the device says.
    fn translate<T>(&mut self, answer: Result<T, DeviceError>) -> Result<T, StoreError> {
        match self.places.waits_for_room() {
            true => Err(self.take_failure()),
            false => answer.map_err(|error| self.error_of(error)),
        }
    }

    fn error_of(&mut self, error: DeviceError) -> StoreError {
        match error {
            DeviceError::Ftl(FtlError::PowerLost) => self.take_failure(),
            DeviceError::Ftl(FtlError::Full { live, pages, .. }) => {
                let why = self.why_no_more();
                StoreError::Full(format!("{live} of {pages} pages are in use, and {why}"))
            }
            DeviceError::SnapshotEnded => StoreError::SnapshotEnded,
            other => StoreError::Device(other),
        }
    }
}

impl Drop for PageStore {
    /// Closes. An error is lost, and the store stays one that was not closed.
    fn drop(&mut self) {
        let _ = self.come_to_rest();
    }
}

/// Makes the name of a file durable, where it is and not where a link to it is.
fn sync_folder_of(path: &Path) -> std::io::Result<()> {
    let path = path.canonicalize()?;
    match path.parent() {
        Some(folder) => std::fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Bytes that an opening of a thin store writes at least to leave tables for the next one.
const THIN_WRITES: u64 = 1 << 20;

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
