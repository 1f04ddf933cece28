//! Why a transactional device refuses a request.

use crate::ftl::FtlError;
use crate::units::{Lpn, TxId};
use std::fmt;

/// Why the device refused.
///
/// ```
/// use flagstone::prelude::*;
///
/// let mut device = Device::with_defaults(Chip::default(), Kind::Aw)?;
/// let tx = device.begin(Nanos::ZERO)?;
/// let (at, pages) = (Lpn(device.pages()), device.pages());
/// let beyond = device.write(Nanos::ZERO, tx, at, b"data");
/// assert_eq!(beyond, Err(DeviceError::OutOfRange { at, pages }));
///
/// let second = device.begin(Nanos::ZERO).unwrap_err();
/// assert_eq!(
///     second.to_string(),
///     "aw supports strict isolation only: end the live transaction first"
/// );
/// assert!(!second.is_power_loss());
/// # Ok::<(), DeviceError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// The protocol cannot work on this device.
    Unsuitable(String),
    /// No transaction with this identifier is live.
    NoTransaction(TxId),
    /// A transaction with this identifier is live already.
    AlreadyLive(TxId),
    /// The maximum number of transactions is live.
    TooManyLive {
        /// The protocol.
        protocol: &'static str,
        /// The maximum number.
        limit: u32,
    },
    /// Another live transaction has written the page.
    Conflict {
        /// The protocol.
        protocol: &'static str,
        /// The page.
        at: Lpn,
        /// The transaction that wrote it.
        holder: TxId,
    },
    /// The page is beyond the device.
    OutOfRange {
        /// The page.
        at: Lpn,
        /// Number of logical pages of the device.
        pages: u32,
    },
    /// More bytes than a page holds.
    TooLong {
        /// Bytes given.
        bytes: usize,
        /// Bytes of a page.
        page_bytes: u32,
    },
    /// The transaction has asked to commit and waits for its group.
    Committing(TxId),
    /// More live transactions have pending records in the page than a version can list.
    TooManyUpdaters {
        /// The page.
        at: Lpn,
        /// The maximum number in a version.
        limit: u8,
    },
    /// Two entries of a write list pending records of the same transaction.
    ListedTwice {
        /// The page.
        at: Lpn,
        /// The transaction.
        tx: TxId,
    },
    /// The page has pending records, but does not contain records.
    NoRecords(Lpn),
    /// Transactions have been in doubt since the restart.
    Unresolved,
    /// The page was lost to bit errors.
    Unreadable(Lpn),
    /// The protocol does not support snapshots.
    NoSnapshots {
        /// The protocol.
        protocol: &'static str,
    },
    /// The protocol takes writes in transactions only.
    TransactionsOnly {
        /// The protocol.
        protocol: &'static str,
    },
    /// The snapshot was ended because its room was needed.
    SnapshotEnded,
    /// The FTL cannot continue.
    Ftl(FtlError),
}

impl DeviceError {
    /// Whether the power failed: the device must be opened again from its flash.
    pub fn is_power_loss(&self) -> bool {
        *self == DeviceError::Ftl(FtlError::PowerLost)
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::Unsuitable(why) => f.write_str(why),
            DeviceError::NoTransaction(tx) => write!(f, "{tx} is not a live transaction"),
            DeviceError::AlreadyLive(tx) => write!(f, "{tx} is already a live transaction"),
            DeviceError::TooManyLive { protocol, limit: 1 } => write!(
                f,
                "{protocol} supports strict isolation only: end the live transaction first"
            ),
            DeviceError::TooManyLive { protocol, limit } => {
                write!(
                    f,
                    "{protocol} supports {limit} live transactions: end one first"
                )
            }
            DeviceError::Conflict {
                protocol,
                at,
                holder,
            } => write!(
                f,
                "page {at} is being written by {holder}: {protocol} supports transactions side by \
                 side only where no two write the same page"
            ),
            DeviceError::OutOfRange { at, pages } => {
                write!(
                    f,
                    "page {at} is beyond the device, which has {pages} logical pages"
                )
            }
            DeviceError::TooLong { bytes, page_bytes } => {
                write!(f, "{bytes} bytes do not fit a page of {page_bytes}")
            }
            DeviceError::Committing(tx) => write!(f, "{tx} is already committing"),
            DeviceError::TooManyUpdaters { at, limit } => write!(
                f,
                "page {at} has pending records of more than {limit} live transactions: let one end \
                 first, or raise max_c"
            ),
            DeviceError::ListedTwice { at, tx } => write!(
                f,
                "page {at} lists pending records of {tx} twice: put them into one entry"
            ),
            DeviceError::NoRecords(at) => {
                write!(
                    f,
                    "page {at} has pending records, but is no page of records"
                )
            }
            DeviceError::Unresolved => f.write_str(
                "transactions are in doubt: say which of them have committed (`resolve`) first",
            ),
            DeviceError::TransactionsOnly { protocol } => {
                write!(f, "{protocol} takes writes in transactions only: begin one")
            }
            DeviceError::NoSnapshots { protocol } => {
                write!(f, "{protocol} cannot give snapshots: use seal")
            }
            DeviceError::SnapshotEnded => {
                f.write_str("the snapshot was ended because its space was needed: take another one")
            }
            DeviceError::Unreadable(at) => {
                write!(
                    f,
                    "logical page {at} has more bit errors than its ECC corrects"
                )
            }
            DeviceError::Ftl(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DeviceError {}

impl From<FtlError> for DeviceError {
    fn from(error: FtlError) -> Self {
        DeviceError::Ftl(error)
    }
}
