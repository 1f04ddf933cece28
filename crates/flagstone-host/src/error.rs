//! Errors of the host, with advice.

use flagstone::commit::DeviceError;
use flagstone::page::PageError;
use flagstone::settings::BadSetting;
use flagstone::units::{Lpn, TxId};
use std::fmt;

/// Why the host refused a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostError {
    /// Settings that contradict each other or do not suit the device.
    Config(String),
    /// No such transaction is live, or it is already committing.
    NoTransaction(TxId),
    /// The page is beyond the host's pages.
    OutOfRange {
        /// The page.
        page: Lpn,
        /// Pages of the host.
        pages: u32,
    },
    /// The record is longer than any page can hold.
    RecordTooLong {
        /// Length of the given record.
        bytes: usize,
        /// Maximum length of a record.
        limit: usize,
    },
    /// The page has no room for the record.
    PageFull {
        /// The page.
        page: Lpn,
        /// Bytes that the page would need, including records that live transactions may restore.
        needed: usize,
        /// Bytes per page.
        page_bytes: usize,
    },
    /// The log is full.
    LogFull {
        /// Number of log pages.
        pages: u32,
    },
    /// No page of the pool can be written out, and aborting a transaction would free no frame.
    PoolFull {
        /// Number of frames in the pool.
        frames: usize,
    },
    /// This log page does not contain what the host wrote there.
    LogDamaged(Lpn),
    /// This page is not a page of records.
    PageDamaged(Lpn, PageError),
    /// The device refused.
    Device(DeviceError),
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::Config(why) => f.write_str(why),
            HostError::NoTransaction(tx) => {
                write!(f, "{tx} is not a live transaction: begin one first")
            }
            HostError::OutOfRange { page, pages } => write!(
                f,
                "page {page} is beyond the host's pages, of which there are {pages}: use a lower \
                 page or a larger device"
            ),
            HostError::RecordTooLong { bytes, limit } => write!(
                f,
                "a record of {bytes} bytes does not fit a page, which has room for {limit}: split \
                 it, or use larger pages"
            ),
            HostError::PageFull {
                page,
                needed,
                page_bytes,
            } => write!(
                f,
                "page {page} would take {needed} of its {page_bytes} bytes, with what live \
                 transactions may put back: use another page"
            ),
            HostError::LogFull { pages } => write!(
                f,
                "one transaction takes more log than the {pages} pages there are: raise log_pages, \
                 or commit more often"
            ),
            HostError::PoolFull { frames } => write!(
                f,
                "the {frames} frames of the pool cannot be emptied: use more frames"
            ),
            HostError::LogDamaged(at) => write!(
                f,
                "page {at} is not the page of the log that it should be: the device was written by \
                 another stack or with another number of log pages"
            ),
            HostError::PageDamaged(at, error) => write!(
                f,
                "page {at}: {error}: the device was written by something else than a host"
            ),
            HostError::Device(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for HostError {}

impl From<BadSetting> for HostError {
    fn from(error: BadSetting) -> Self {
        HostError::Config(error.0)
    }
}

impl From<DeviceError> for HostError {
    fn from(error: DeviceError) -> Self {
        HostError::Device(error)
    }
}

impl HostError {
    /// The error for a record that does not fit into a page.
    pub(super) fn no_room(page: Lpn, error: PageError) -> HostError {
        match error {
            PageError::Full { needed, page_bytes } => HostError::PageFull {
                page,
                needed,
                page_bytes,
            },
            damaged => HostError::PageDamaged(page, damaged),
        }
    }
}
