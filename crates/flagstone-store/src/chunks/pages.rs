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

    /// Pages that can hold something at once, beside what transactions need; nothing if there can
    /// be more.
    fn pages_max(&self) -> Option<u64>;

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
        // It grows.
        None
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
