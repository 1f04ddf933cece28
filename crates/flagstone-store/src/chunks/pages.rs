//! The pages that chunks are stored in: those of a store, or of a simulated device.

use super::Chunks;
use crate::error::StoreError;
use crate::pages::{Looked, PageStore};
use flagstone::commit::Info;
use flagstone::units::{Lpn, SnapshotId, TxId};

/// Selects a version of a page.
///
/// Example: [`Pages`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// The version written by this transaction; if it wrote none, the committed version.
    Of(Option<TxId>),
    /// The version in this snapshot.
    At(SnapshotId),
}

/// Pages with transactions.
///
/// The pages of a store, with bytes at chunks over them:
///
/// ```
/// use flagstone_store::medium::Memory;
/// use flagstone_store::{Chunks, Cut, OpenOptions, PageStore, Pages, StoreError, Version};
///
/// let pages = PageStore::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// // Page 0 is left to the caller.
/// let cut = Cut::new(pages.page_bytes(), 1);
/// assert_eq!(cut.chunk(), 4096);
/// let mut chunks = Chunks::new(pages, cut);
/// chunks.set_size(1 << 20);
/// chunks.write(3, &[7; 4096], true)?;
/// chunks.commit()?;
///
/// chunks.write(3, &[8; 4096], true)?;
/// let mut bytes = [0; 4];
/// chunks.read(Version::Of(chunks.tx()), 3, 4000, &mut bytes)?;
/// assert_eq!(bytes, [8; 4]);
/// chunks.abort();
/// chunks.read(Version::Of(None), 3, 4000, &mut bytes)?;
/// assert_eq!(bytes, [7; 4]);
/// # Ok::<(), StoreError>(())
/// ```
pub trait Pages {
    /// Bytes of a page.
    fn page_bytes(&self) -> usize;

    /// Maximum number of pages that can hold data at once, not counting the reserve for
    /// transactions. `None` if unknown, as for a file that grows.
    fn pages_max(&self) -> Option<u64>;

    /// Whether a write of the page needs additional room because it was never written.
    fn is_new(&self, at: Lpn) -> bool {
        !self.holds(at)
    }

    /// Whether there is room for `pages` pages, numbered up to `highest`, whatever they held,
    /// without growing the medium.
    fn has_room(&mut self, pages: u64, highest: Lpn) -> bool {
        let _ = (pages, highest);
        true
    }

    /// Reserves room for the live transaction beyond what it has written: for `new` pages that hold
    /// nothing, and for `again` pages that are overwritten or trimmed. None is above `highest`.
    ///
    /// # Errors
    /// There is no such room, or the medium fails.
    fn find_room(&mut self, new: u64, again: u64, highest: Lpn) -> Result<(), StoreError> {
        let _ = (new, again, highest);
        Ok(())
    }

    /// The commit protocol.
    fn protocol(&self) -> &'static Info;

    /// The highest page that holds committed data.
    fn highest(&self) -> Option<Lpn>;

    /// Whether a page holds committed data.
    fn holds(&self, at: Lpn) -> bool;

    /// Starts a transaction.
    ///
    /// # Errors
    /// The store cannot be written to, or the maximum number of transactions is live.
    fn begin(&mut self) -> Result<TxId, StoreError>;

    /// Reads a page into `into`, which is at least one page long. Returns the page's length in
    /// bytes, or `None` if it holds nothing.
    ///
    /// # Errors
    /// The page was lost, or the medium fails.
    fn read(
        &mut self,
        version: Version,
        at: Lpn,
        into: &mut [u8],
    ) -> Result<Option<usize>, StoreError>;

    /// Writes a page in a transaction.
    ///
    /// # Errors
    /// There is no room, or the medium fails.
    fn write(&mut self, tx: TxId, at: Lpn, data: &[u8]) -> Result<(), StoreError>;

    /// Removes the contents of a page in a transaction.
    ///
    /// # Errors
    /// As [`Pages::write`].
    fn trim(&mut self, tx: TxId, at: Lpn) -> Result<(), StoreError>;

    /// Commits a transaction: it is durable when this returns.
    ///
    /// # Errors
    /// As [`Pages::write`].
    fn commit(&mut self, tx: TxId) -> Result<(), StoreError>;

    /// Rolls a transaction back.
    ///
    /// # Errors
    /// The medium fails.
    fn abort(&mut self, tx: TxId) -> Result<(), StoreError>;

    /// Closes the pages. Everything committed is durable, and the next opening needs no recovery.
    ///
    /// # Errors
    /// The medium fails.
    fn close(self) -> Result<(), StoreError>;
}

impl Pages for PageStore {
    fn page_bytes(&self) -> usize {
        PageStore::PAGE_BYTES
    }

    fn pages_max(&self) -> Option<u64> {
        self.most_pages()
    }

    fn is_new(&self, at: Lpn) -> bool {
        PageStore::is_new(self, at)
    }

    fn has_room(&mut self, pages: u64, highest: Lpn) -> bool {
        self.has_room_for(pages, highest)
    }

    fn find_room(&mut self, new: u64, again: u64, highest: Lpn) -> Result<(), StoreError> {
        PageStore::find_room(self, new, again, highest)
    }

    fn protocol(&self) -> &'static Info {
        self.device().info()
    }

    fn highest(&self) -> Option<Lpn> {
        PageStore::highest(self)
    }

    fn holds(&self, at: Lpn) -> bool {
        PageStore::holds(self, at)
    }

    fn begin(&mut self) -> Result<TxId, StoreError> {
        PageStore::begin(self)
    }

    fn read(
        &mut self,
        version: Version,
        at: Lpn,
        into: &mut [u8],
    ) -> Result<Option<usize>, StoreError> {
        match version {
            Version::Of(tx) => PageStore::read(self, tx, at, into),
            Version::At(snapshot) => self.read_snapshot(snapshot, at, into),
        }
    }

    fn write(&mut self, tx: TxId, at: Lpn, data: &[u8]) -> Result<(), StoreError> {
        PageStore::write(self, tx, at, data)
    }

    fn trim(&mut self, tx: TxId, at: Lpn) -> Result<(), StoreError> {
        PageStore::trim(self, tx, at)
    }

    fn commit(&mut self, tx: TxId) -> Result<(), StoreError> {
        PageStore::commit(self, tx)
    }

    fn abort(&mut self, tx: TxId) -> Result<(), StoreError> {
        PageStore::abort(self, tx)
    }

    fn close(self) -> Result<(), StoreError> {
        PageStore::close(self)
    }
}

impl Chunks<PageStore> {
    /// Looks up the place of a chunk, in the committed version or in a snapshot. `None` if a part
    /// of the chunk outside of its main page is not zero.
    ///
    /// # Errors
    /// The snapshot has ended, or the store failed before.
    pub fn look(&self, of: Option<SnapshotId>, chunk: u64) -> Result<Option<Looked>, StoreError> {
        let tails = self.cut.tails_page(chunk / self.cut.sharing());
        let Some(main) = self.cut.main_page(chunk) else {
            return Ok(None);
        };
        if self.cut.tail > 0 && !self.pages.is_empty(of, tails)? {
            return Ok(None);
        }
        self.pages.look(of, main)
    }
}
