//! The storage below an index: the trait, and pages in memory as its simplest implementation.

use crate::commit::DeviceError;
use crate::ftl::{Ftl, FtlError};
use crate::host::HostError;
use crate::units::{Lpn, Nanos};
use std::fmt;

/// Why the store below an index refused or could not go on.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum BackingError {
    /// The page is beyond the store's.
    OutOfRange {
        /// The page.
        at: Lpn,
        /// Pages of the store.
        pages: u32,
    },
    /// The device below refused.
    Device(DeviceError),
    /// The database below refused.
    Host(HostError),
    /// The transaction has to be rolled back, and may be tried again. With the reason.
    Restart(String),
    /// A file or block device failed. With the message of the system.
    Io(String),
}

impl BackingError {
    /// Whether the transaction has to be rolled back.
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

/// Pages of one size, numbered from 0. A page that was never written reads as zeros.
///
/// A request for several pages is done side by side: all pages start at the same instant, and the
/// answer is when the last is done.
pub trait BackingStore {
    /// Bytes of a page.
    fn page_bytes(&self) -> usize;

    /// The number of pages.
    fn pages(&self) -> u32;

    /// Reads a page into `into`, which has the bytes of one.
    ///
    /// # Errors
    /// There is no such page, or the store cannot go on.
    fn read(&mut self, now: Nanos, at: Lpn, into: &mut [u8]) -> Result<Nanos, BackingError>;

    /// Reads several pages side by side, one after the other into `into`.
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

    /// Writes pages side by side, in any order. On a store with transactions they belong to the
    /// transaction that was begun, or are one of their own.
    ///
    /// # Errors
    /// As [`BackingStore::read`].
    fn write(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, BackingError>;

    /// Says that the content of a page is not needed any more. It may read as zeros or not.
    ///
    /// # Errors
    /// As [`BackingStore::read`].
    fn trim(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, BackingError>;

    /// Whether the store has transactions. By default it has none: then [`BackingStore::begin`]
    /// and [`BackingStore::abort`] do nothing, and [`BackingStore::commit`] makes the pages durable
    /// that were written.
    fn transactional(&self) -> bool {
        false
    }

    /// Begins a transaction. There is one at a time.
    ///
    /// # Errors
    /// One was begun already, or the store cannot go on.
    fn begin(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        Ok(now)
    }

    /// Commits: all pages written since the beginning are durable at the instant of the answer.
    ///
    /// # Errors
    /// As [`BackingStore::read`].
    fn commit(&mut self, now: Nanos) -> Result<Nanos, BackingError>;

    /// Rolls back: the pages are as they were when the transaction began. Without a transaction
    /// nothing is done.
    ///
    /// # Errors
    /// As [`BackingStore::read`].
    fn abort(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        Ok(now)
    }

    /// The store that this one is a part of.
    fn below(&mut self) -> Option<&mut dyn BackingStore> {
        None
    }

    /// Gives the store back that this one is a part of.
    fn into_below(self: Box<Self>) -> Option<Box<dyn BackingStore>> {
        None
    }

    /// The translation layer of a simulated device, to look at.
    fn ftl(&self) -> Option<&Ftl> {
        None
    }

    /// Checks the invariants of the layers below, in tests and campaigns.
    ///
    /// # Errors
    /// Says which one does not hold.
    fn verify(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Pages in memory that take no time: for tests, and to measure an index alone.
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
                // A page at a time would copy everything each time.
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
