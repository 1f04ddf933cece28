//! Errors of raw NAND devices.

use std::io;
use std::path::{Path, PathBuf};

/// Why an MTD device cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MtdError {
    /// The device is not NAND, or its geometry is not supported.
    #[error("{}: {why}", path.display())]
    Unsuited {
        /// The path of the device.
        path: PathBuf,
        /// Why the device does not suit, and what to use instead.
        why: String,
    },
    /// Another process has the device open.
    #[error("{} is in use by another process: close it there first", .0.display())]
    InUse(PathBuf),
    /// A system call failed.
    #[error("{}: {what}: {error}", path.display())]
    Io {
        /// The path of the device.
        path: PathBuf,
        /// What was attempted.
        what: String,
        /// The error of the system.
        error: io::Error,
    },
}

impl MtdError {
    pub(crate) fn unsuited(path: &Path, why: &str) -> MtdError {
        MtdError::Unsuited {
            path: path.into(),
            why: why.into(),
        }
    }

    pub(crate) fn io(path: &Path, what: &str, error: io::Error) -> MtdError {
        MtdError::Io {
            path: path.into(),
            what: what.into(),
            error,
        }
    }
}
