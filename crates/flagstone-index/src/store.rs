//! The storage below an index: a trait, and pages in memory as its simplest implementation.

use flagstone::commit::DeviceError;
use flagstone::ftl::{Ftl, FtlError};
use flagstone::units::{Lpn, Nanos};
use flagstone_host::HostError;
use std::fmt;

/// Why the store below an index refused a request or cannot continue.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum BackingError {
    /// The page is beyond the store's pages.
    OutOfRange {
        /// The page.
        at: Lpn,
        /// Number of pages in the store.
        pages: u32,
    },
    /// The device below refused.
    Device(DeviceError),
    /// The database below refused.
    Host(HostError),
    /// The transaction must be rolled back and may be retried. With the reason.
    Restart(String),
    /// A file or block device failed. With the system's message.
    Io(String),
}

impl BackingError {
    /// Whether the transaction must be rolled back.
    pub fn is_restart(&self) -> bool {
        matches!(self, BackingError::Restart(_))
    }

    /// Whether a simulated device has lost its power.
    pub fn is_power_loss(&self) -> bool {
        let lost = DeviceError::Ftl(FtlError::PowerLost);
        match self {
            BackingError::Device(error) => *error == lost,
            BackingError::Host(HostError::Device(error)) => *error == lost,
            _ => false,
        }
    }
}

impl fmt::Display for BackingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackingError::OutOfRange { at, pages } => {
                write!(f, "page {at} is beyond the store, which has {pages} pages")
            }
            BackingError::Device(error) => error.fmt(f),
            BackingError::Host(error) => error.fmt(f),
            BackingError::Restart(why) => write!(f, "the transaction has to be rolled back: {why}"),
            BackingError::Io(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for BackingError {}

impl From<DeviceError> for BackingError {
    fn from(error: DeviceError) -> Self {
        BackingError::Device(error)
    }
}

impl From<HostError> for BackingError {
    fn from(error: HostError) -> Self {
        BackingError::Host(error)
    }
}

/// Pages of one size, numbered from 0. A never-written page reads as zeros.
///
/// A request for several pages is parallel: all pages start at the same instant, and the returned
/// instant is when the last one is done.
pub trait BackingStore {
    /// Bytes per page.
    fn page_bytes(&self) -> usize;

    /// The number of pages.
    fn pages(&self) -> u32;

    /// Reads a page into `into`, which has the size of a page.
    ///
    /// # Errors
    /// There is no such page, or the store cannot continue.
    fn read(&mut self, now: Nanos, at: Lpn, into: &mut [u8]) -> Result<Nanos, BackingError>;

    /// Reads several pages in parallel and concatenates them in `into`.
    ///
    /// # Errors
    /// As [`BackingStore::read`].
    fn read_many(
        &mut self,
        now: Nanos,
        pages: &[Lpn],
        into: &mut [u8],
    ) -> Result<Nanos, BackingError> {
        let mut done = now;
        for (&at, page) in pages.iter().zip(into.chunks_mut(self.page_bytes())) {
            done = done.max(self.read(now, at, page)?);
        }
        Ok(done)
    }

    /// Writes pages in parallel, in any order. Data shorter than a page is padded with zeros. On a
    /// store with transactions the pages belong to the live transaction, or form one of their own.
    ///
    /// # Errors
    /// As [`BackingStore::read`].
    fn write(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, BackingError>;

    /// Declares the contents of a page as no longer needed. It may or may not read as zeros.
    ///
    /// # Errors
    /// As [`BackingStore::read`].
    fn trim(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, BackingError>;

    /// Whether the store has transactions. By default it has none: then [`BackingStore::begin`] and
    /// [`BackingStore::abort`] do nothing, and [`BackingStore::commit`] makes written pages
    /// durable.
    fn transactional(&self) -> bool {
        false
    }

    /// Begins a transaction. There is one at a time.
    ///
    /// # Errors
    /// A transaction is live, or the store cannot continue.
    fn begin(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        Ok(now)
    }

    /// Commits: all pages written since the begin are durable at the returned instant.
    ///
    /// # Errors
    /// As [`BackingStore::read`].
    fn commit(&mut self, now: Nanos) -> Result<Nanos, BackingError>;

    /// Rolls back: the pages are as they were when the transaction began. Does nothing without a
    /// transaction.
    ///
    /// # Errors
    /// As [`BackingStore::read`].
    fn abort(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        Ok(now)
    }

    /// The store of which this one is a part, if it is a part of one.
    fn below(&mut self) -> Option<&mut dyn BackingStore> {
        None
    }

    /// Returns the store of which this one is a part, if it is a part of one.
    fn into_below(self: Box<Self>) -> Option<Box<dyn BackingStore>> {
        None
    }

    /// The translation layer of a simulated device, for inspection.
    fn ftl(&self) -> Option<&Ftl> {
        None
    }

    /// Checks the invariants of the layers below, in tests and campaigns.
    ///
    /// # Errors
    /// Describes the violated invariant.
    fn verify(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Pages in memory that take no time, for tests and for measuring an index alone.
pub struct MemStore {
    page_bytes: usize,
    pages: u32,
    bytes: Vec<u8>,
}

impl MemStore {
    /// Blank pages.
    pub fn new(page_bytes: usize, pages: u32) -> MemStore {
        MemStore {
            page_bytes,
            pages,
            bytes: Vec::new(),
        }
    }

    fn check(&self, at: Lpn) -> Result<usize, BackingError> {
        if at.0 >= self.pages {
            let pages = self.pages;
            return Err(BackingError::OutOfRange { at, pages });
        }
        Ok(at.index() * self.page_bytes)
    }
}

impl BackingStore for MemStore {
    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn pages(&self) -> u32 {
        self.pages
    }

    fn read(&mut self, now: Nanos, at: Lpn, into: &mut [u8]) -> Result<Nanos, BackingError> {
        let start = self.check(at)?;
        match self.bytes.get(start..start + self.page_bytes) {
            Some(page) => into.copy_from_slice(page),
            None => into.fill(0),
        }
        Ok(now)
    }

    fn write(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, BackingError> {
        for &(at, data) in pages {
            let start = self.check(at)?;
            if self.bytes.len() < start + self.page_bytes {
                // Growing page by page would copy everything each time.
                let len = (start + self.page_bytes).max(self.bytes.len() * 2);
                self.bytes
                    .resize(len.min(self.pages as usize * self.page_bytes), 0);
            }
            let page = &mut self.bytes[start..start + self.page_bytes];
            page[..data.len()].copy_from_slice(data);
            page[data.len()..].fill(0);
        }
        Ok(now)
    }

    fn trim(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, BackingError> {
        let start = self.check(at)?;
        if let Some(page) = self.bytes.get_mut(start..start + self.page_bytes) {
            page.fill(0);
        }
        Ok(now)
    }

    fn commit(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        Ok(now)
    }
}
