//! A transactional page store on a medium: the device of the simulations, over real storage.
//!
//! A [`PageStore`] is a [`Device`] over a [`MediumFlash`]. It grows as it fills, and reports
//! failures of the medium as errors that name it. Otherwise it behaves like its device.

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

/// Number of blocks of a new store: the minimum for the collector, plus a few.
pub(crate) const FIRST_BLOCKS: u32 = 16;

/// A store of pages with transactions. Example: [`flagstone_store`](crate).
pub struct PageStore {
    device: Device,
    now: Nanos,
    /// The share of the device that may hold data before the store grows.
    fill: f64,
    read_only: bool,
    opened: Head,
    notes: Notes,
    places: Arc<Places>,
    broken: Option<String>,
    /// The highest page that may hold data.
    highest: u32,
    /// Number of pages that may hold data.
    in_service: u64,
    /// Number of never-written pages for which [`PageStore::find_room`] has already reserved space.
    promised: u64,
    /// Whether the last blocks may have no space on the medium yet, see `flash::thin`.
    is_thin: bool,
    /// Whether this handle has discarded space that its blocks need again.
    has_holes: bool,
    /// The last write sequence when idle work found nothing to compact.
    left_alone_at: u64,
    /// Maximum number of blocks on the medium, if known.
    most_blocks: Option<u32>,
    /// Whether this opening used the tables of the last close and did not read the blocks.
    resumed: bool,
    /// The differences between those tables and the medium, if they were compared.
    left_wrong: Option<String>,
    /// Sectors that the medium refused to read during a salvaging opening.
    misreads: Misreads,
    /// The path of the file, if the store has one, and options with its key.
    path: Option<PathBuf>,
    keyed: OpenOptions,
    /// The settings of the translation layer.
    config: Config,
    at_no_room: AtNoRoom,
    /// The error of the last write that found no space, after which the store was reopened.
    no_room: Option<String>,
    /// Whether the medium may still lack space.
    is_short: bool,
    /// The epoch of `places` in which the first commit was left to the caller, until
    /// [`PageStore::outcome`] says what became of it.
    left_in: Option<u64>,
    /// Live transactions, if they survive a reopening after lack of space.
    live: BTreeMap<TxId, recover::Live>,
}

impl PageStore {
    /// Data bytes per page.
    pub const PAGE_BYTES: usize = DATA_BYTES;

    /// Opens a store in a file or on a block device, and locks it: another handle can open it only
    /// if both handles are read-only.
    ///
    /// # Errors
    /// There is no store and `options` do not create one, something else is stored there, another
    /// handle holds the lock, or the system call fails.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<PageStore, StoreError> {
        // Validate the options before a file is created.
        options.must_be_possible()?;
        let options = &options.only_to_salvage();
        if options.would_make(path) {
            create::shape(options)?;
        }
        let disk = Disk::open(path, options.create, options.read_only)?;
        let opened = PageStore::on(Box::new(disk), options).map(|mut store| {
            store.path = Some(path.to_path_buf());
            store
        });
        let store = opened.map_err(|error| error.at(path))?;
        // Nothing was written to the store yet. Its file may be new, or an earlier creator stopped
        // before making its name durable.
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

    /// Like [`PageStore::on`], but with `dress` wrapping or replacing the flash of the medium:
    /// campaigns listen there, or put in a simulated chip. What the store keeps on the medium
    /// beside its flash (superblocks, tables of a close) stays on the medium.
    ///
    /// # Errors
    /// As [`PageStore::on`].
    #[doc(hidden)]
    pub fn through(
        medium: Box<dyn Medium>,
        options: &OpenOptions,
        dress: impl FnOnce(Box<dyn Flash>) -> Box<dyn Flash>,
    ) -> Result<PageStore, StoreError> {
        options.must_be_possible()?;
        let options = &options.only_to_salvage();
        let misreads = Misreads::default();
        let medium = if options.salvage {
            Box::new(Gaps::over(medium, misreads.clone()))
        } else {
            medium
        };
        let medium = encryption::dress(medium, options)?;
        let mut found = Superblock::find(medium.as_ref())?;
        // A failed creation may have left its superblock only in the system's cache.
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
        // An uncached opening trusts nothing that it can recompute, and compares. Tables beside a
        // damaged superblock are not trusted either: the damaged one may have been newer and have
        // revoked them.
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
                    // Without a thread the reads are not overlapped.
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
            left_in: None,
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
    /// The store is read-only, the protocol's maximum number of transactions is live, or the
    /// medium has no room for a step of a collection that was under way.
    pub fn begin(&mut self) -> Result<TxId, StoreError> {
        self.may_write_now()?;
        let begun = self.device.begin(self.now);
        let tx = self.translate(begun)?;
        self.note_begun(tx);
        Ok(tx)
    }

    /// Writes a page in a transaction. `data` has at most [`PageStore::PAGE_BYTES`] bytes.
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

    /// Writes a page in a transaction of the underlying device.
    fn write_in_device(&mut self, tx: TxId, at: Lpn, data: &[u8]) -> Result<(), StoreError> {
        self.make_room_at(at, self.is_new(at))?;
        self.highest = self.highest.max(at.0);
        let taken = self.with_room(|device, now| device.write(now, tx, at, data))?;
        self.now = self.now.max(taken.next);
        Ok(())
    }

    /// Trims a page in a transaction: the page holds nothing afterwards.
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

    /// Trims a page in a transaction of the underlying device.
    fn trim_in_device(&mut self, tx: TxId, at: Lpn) -> Result<(), StoreError> {
        // A page that is already trimmed takes no space, nor does one trim among many.
        let takes_room = self.is_blank(at) && self.pages_of_trims(2) > 1;
        self.make_room_at(at, takes_room)?;
        let taken = self.with_room(|device, now| device.trim(now, tx, at))?;
        self.now = self.now.max(taken.next);
        Ok(())
    }

    /// Reads a page into `into`, which must hold a whole page. Reads the transaction's own version
    /// if it wrote one, else the last committed one. Returns the length in bytes, or `None` if the
    /// page was trimmed or never written.
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

    /// Reads a page with one of the device's read calls. A page beyond the device holds nothing.
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

    /// Takes a snapshot of the committed state for a reader. Nothing is copied, but replaced pages
    /// keep their room until [`PageStore::end_snapshot`]. Open snapshots may enlarge the store to
    /// twice its bound ([`OpenOptions::space`]), or 32 MiB; beyond that the oldest ones end.
    ///
    /// # Errors
    /// The protocol has no snapshots; `seal` has.
    pub fn snapshot(&mut self) -> Result<SnapshotId, StoreError> {
        self.is_well()?;
        let taken = self.device.snapshot();
        self.translate(taken)
    }

    /// Ends a snapshot.
    pub fn end_snapshot(&mut self, id: SnapshotId) {
        self.device.end_snapshot(id);
    }

    /// Whether nothing was committed since a snapshot was taken.
    pub fn is_current(&self, id: SnapshotId) -> bool {
        self.device.ftl().snapshots().is_current(id)
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
        self.is_well()?;
        self.must_be_open(id)?;
        self.read_by(at, |device, now| device.read_snapshot(now, id, at, into))
    }

    /// Commits a transaction: it is durable when this returns.
    ///
    /// # Errors
    /// There is no such transaction, the store is full, or the medium fails. If the store is full
    /// the transaction stays live: it can be committed later, or rolled back. After a failure of
    /// the medium the outcome is unknown until the store is reopened.
    pub fn commit(&mut self, tx: TxId) -> Result<(), StoreError> {
        self.commit_uncounted(tx)?;
        self.note_commit();
        self.notes.stats().commits += 1;
        Ok(())
    }

    /// Like [`PageStore::commit`], for a caller that counts the commit once its outcome is known.
    ///
    /// # Errors
    /// As [`PageStore::commit`].
    pub(crate) fn commit_uncounted(&mut self, tx: TxId) -> Result<(), StoreError> {
        self.may_write_now()?;
        let number = self.number_to_write(tx)?;
        self.make_room()?;
        if let Err(error) = self.commit_in_device(number) {
            // A commit that found no space may still be complete on the medium.
            if !matches!(error, StoreError::Full(_)) || !self.has_all_of(tx) {
                return Err(error);
            }
        }
        self.end_live(tx);
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

    /// The highest page that holds committed data.
    pub fn highest(&self) -> Option<Lpn> {
        let ftl = self.device.ftl();
        let top = (self.highest + 1).min(self.device.pages());
        let holds = |&at: &u32| matches!(ftl.slot(Lpn(at)), Slot::Page(_));
        (0..top).rev().find(holds).map(Lpn)
    }

    /// Whether a page holds committed data.
    pub fn holds(&self, at: Lpn) -> bool {
        at.0 < self.device.pages() && matches!(self.device.ftl().slot(at), Slot::Page(_))
    }

    /// Closes the store: makes all writes durable and marks the superblock as closed. Dropping the
    /// store does the same but loses the error. Live transactions are rolled back.
    ///
    /// # Errors
    /// The medium fails, or has failed before. The store then counts as not closed; all
    /// acknowledged commits are on it.
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

    /// Finishes the open blocks, as a close does first if this handle has written anything. Returns
    /// the number of the last program if every block then has its summary. Used by campaigns that
    /// follow a store on a flash of their own.
    ///
    /// # Errors
    /// The medium fails.
    #[doc(hidden)]
    pub fn end_blocks(&mut self) -> Result<Option<u64>, StoreError> {
        let ended = self.device.end_blocks(self.now);
        self.translate(ended)
    }

    /// Writes the tables that the close leaves for the next opening.
    fn come_to_rest(&mut self) -> Result<(), StoreError> {
        // Check before locking: in a forked process a lock may be held forever.
        if !self.notes.may_close() {
            return Ok(());
        }
        self.mend();
        // Nothing was written since the store was reopened.
        if self.is_short {
            return Ok(());
        }
        let wrote = self.notes.stats().bytes;
        let may = !self.read_only && self.broken.is_none();
        // A device whose tables were taken must not be used any more.
        let has_rested = self.notes.tables().is_some();
        if may && !has_rested && wrote > 0 {
            let sealed = self.end_blocks()?;
            self.notes.seal_unto(sealed);
        }
        // A thin store is small: most openings write too little to justify the space for tables.
        let is_thin = self.is_thin && wrote < THIN_WRITES;
        let is_worth = !is_thin && is_worth(wrote, self.device.pages());
        if may && !has_rested && is_worth {
            let tables = self.device.rest_for_good(self.now);
            let tables = self.translate(tables)?;
            *self.notes.tables() = tables;
        }
        Ok(())
    }

    /// Counters of the medium's operations since the store was opened.
    pub fn medium_stats(&self) -> MediumStats {
        *self.notes.stats()
    }

    /// The device, for inspection.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether the store is broken because a write found no room, although the file system had
    /// reserved it (btrfs, a thin volume). Only happens to stores that do not reopen themselves
    /// ([`PageStore::break_at_no_room`], or a protocol other than `seal` and `seal-r`). Durable
    /// data is intact. As long as there is no room, the store can be opened read-only.
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
        if self.read_only {
            Err(StoreError::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Translates an answer of the device after a request that may have written. If the medium had
    /// no room this is an error, whatever the device answered.
    fn translate<T>(&mut self, answer: Result<T, DeviceError>) -> Result<T, StoreError> {
        if self.places.waits_for_room() {
            Err(self.take_failure())
        } else {
            answer.map_err(|error| self.error_of(error))
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
    /// Closes the store. An error is lost, and the store counts as not closed.
    fn drop(&mut self) {
        let _ = self.come_to_rest();
    }
}

/// Makes a file name durable: syncs the folder of the file itself, not of a symbolic link to it.
fn sync_folder_of(path: &Path) -> std::io::Result<()> {
    let path = path.canonicalize()?;
    match path.parent() {
        Some(folder) => std::fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Minimum number of bytes an opening of a thin store must write before its close leaves tables.
const THIN_WRITES: u64 = 1 << 20;

/// Translation layer settings of a store.
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
