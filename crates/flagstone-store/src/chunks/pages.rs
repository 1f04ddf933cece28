//! What chunks need of pages: a store has them, and a simulated device as well.

use super::Chunks;
use crate::error::StoreError;
use crate::pages::{Looked, PageStore};
use flagstone::commit::Info;
use flagstone::units::{Lpn, SnapshotId, TxId};

/// Which version of a page is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// That of a transaction if it wrote one, else the committed one.
    Of(Option<TxId>),
    /// That of a snapshot.
    At(SnapshotId),
}

/// Pages with transactions.
pub trait Pages {
    /// Bytes of a page.
    fn page_bytes(&self) -> usize;

    /// Pages that can hold something at once, beside what transactions need; nothing if nobody
    /// knows, as of a file that grows.
    fn pages_max(&self) -> Option<u64>;

    /// Whether a page takes room that it did not take before: it was never written.
    fn is_new(&self, at: Lpn) -> bool {
        !self.holds(at)
    }

    /// Whether there is room for so many pages up to `highest`, whatever they held, without
    /// the medium being asked for more.
    fn has_room(&mut self, pages: u64, highest: Lpn) -> bool {
        let _ = (pages, highest);
        true
    }

    /// Sees to it that the live transaction finds room for so many pages beside what it has
    /// written: `new` that hold nothing, and `again` that are overwritten or trimmed, none of them
    /// above `highest`.
    ///
    /// # Errors
    /// There is no such room, or the medium fails.
    fn find_room(&mut self, new: u64, again: u64, highest: Lpn) -> Result<(), StoreError> {
        let _ = (new, again, highest);
        Ok(())
    }

    /// The commit protocol.
    fn protocol(&self) -> &'static Info;

    /// The highest page that holds something that is committed.
    fn highest(&self) -> Option<Lpn>;

    /// Whether a page holds something that is committed.
    fn holds(&self, at: Lpn) -> bool;

    /// Starts a transaction.
    ///
    /// # Errors
    /// Nothing can be written, or as many are live as can be.
    fn begin(&mut self) -> Result<TxId, StoreError>;

    /// Reads a page into `into`, which has room for one. Returns how many bytes it has, or nothing
    /// if it holds nothing.
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

    /// Says in a transaction that a page holds nothing any more.
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

    /// Lets go of the pages: all that is committed is durable, and the next opening finds it at
    /// once.
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
    /// Looks up where a chunk is, the last committed version or that of a snapshot, if its main
    /// page has all of it but zeros.
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
