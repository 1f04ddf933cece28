//! Errors of raw NAND devices.

use std::io;
use std::path::{Path, PathBuf};

/// Why an MTD device cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MtdError {
    /// It is no NAND, or its shape is not supported.
    #[error("{}: {why}", path.display())]
    Unsuited {
        /// The device.
        path: PathBuf,
        /// What does not suit, and what to name instead.
        why: String,
    },
    /// Another process has it open.
    #[error("{} is in use by another process: close it there", .0.display())]
    InUse(PathBuf),
    /// A system call failed.
    #[error("{}: {what}: {error}", path.display())]
    Io {
        /// The device.
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
