//! Why a store refused, or cannot go on.

use crate::tables::LostKeys;
use flagstone::commit::DeviceError;
use flagstone::index::IndexError;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a store refused, or cannot go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The system refused. After this, nothing succeeds until the store is opened again; what was
    /// acknowledged before is there.
    #[error("{what}: {error}{}", advice(error))]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        error: io::Error,
    },
    /// An earlier call failed, so that it is not known what is durable.
    #[error("the store failed before ({0}): close it and open it again")]
    Broken(String),
    /// There is no store here.
    #[error("{0}")]
    NotAStore(String),
    /// There is a store here, and it is damaged.
    #[error("{0}")]
    Damaged(String),
    /// The store is encrypted and its key is missing or another one; or it is not encrypted.
    #[error("{0}")]
    Key(String),
    /// Another process has it open.
    #[error("{} is in use{}: close it there first", path.display(), by(*pid))]
    InUse {
        /// The store.
        path: PathBuf,
        /// The process, if it is known.
        pid: Option<u32>,
    },
    /// There is no room, on the medium or within the bound of the store.
    #[error("the store is full: {0}")]
    Full(String),
    /// It was opened to be read.
    #[error("the store was opened for reading only")]
    ReadOnly,
    /// Options that cannot be.
    #[error("{0}")]
    Options(String),
    /// A snapshot has ended, because its room was needed.
    #[error("the snapshot has ended, because its room was needed: take another one")]
    SnapshotEnded,
    /// The request is wrong, or a page was lost.
    #[error("{}", of_device(.0))]
    Device(#[source] DeviceError),
    /// A request that a table refuses, or a node of it that is damaged.
    #[error(transparent)]
    Index(IndexError),
    /// What failed in a table, and at which key.
    #[error("table `{table}`{}: {error}", at_key(key.as_deref()))]
    Table {
        /// The table.
        table: String,
        /// The key, as far as it is one key's, with bytes that are no letters escaped.
        key: Option<String>,
        /// What failed.
        error: Box<StoreError>,
    },
    /// Keys of a table lie in a part of it that cannot be read.
    #[error(
        "{lost} cannot be read ({error}); an iterator goes on behind them, and \
         `TableMut::give_up_lost` has the table go on without them"
    )]
    Lost {
        /// The keys.
        lost: LostKeys,
        /// Why that part cannot be read.
        error: Box<StoreError>,
    },
    /// There is no such table, or it is of another kind.
    #[error("{0}")]
    NoTable(String),
    /// This thread is in a write transaction of the store already, and would wait for itself.
    #[error(
        "this thread is in a write transaction of the store already, and would wait for itself: \
         write through that transaction, or end it first"
    )]
    Nested,
    /// An operation of the transaction failed half-way.
    #[error("the transaction cannot go on ({0}): roll it back, or roll back to a savepoint")]
    Spoilt(String),
}

/// What a device says, in words for those who have a file and no chip.
fn of_device(error: &DeviceError) -> String {
    match error {
        DeviceError::Unreadable(at) => format!(
            "page {at} is damaged, and cannot be read: `flagstone store check` lists all that are, \
             `flagstone store repair` salvages the others"
        ),
        other => other.to_string(),
    }
}

fn at_key(key: Option<&str>) -> String {
    key.map_or(String::new(), |key| format!(", key `{key}`"))
}

/// What a call of the system was for, where it fails.
pub(crate) trait Doing<T> {
    /// The answer, or the error with what was tried.
    fn doing(self, what: impl Into<String>) -> Result<T, StoreError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl Into<String>) -> Result<T, StoreError> {
        self.map_err(|error| StoreError::io(what, error))
    }
}

impl From<IndexError> for StoreError {
    fn from(error: IndexError) -> Self {
        StoreError::Index(error)
    }
}

/// What to do about a refusal of the system that is not the medium's.
fn advice(error: &io::Error) -> &'static str {
    match is_out_of_descriptors(error) {
        true => {
            ": a store that is open takes a descriptor, and a second one now and then: raise the \
             limit of open files (`ulimit -n`), or close stores"
        }
        false => "",
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    number.is_some_and(|number| [libc::EMFILE, libc::ENFILE].contains(&number))
}

/// Names the process that has a store open. One that has forked this process is named as that: it
/// has to close the store, although this process has inherited the handle.
fn by(pid: Option<u32>) -> String {
    match pid {
        None => String::new(),
        Some(pid) if pid == std::os::unix::process::parent_id() => {
            format!(" by process {pid}, the parent of this one")
        }
        Some(pid) => format!(" by process {pid}"),
    }
}

impl StoreError {
    /// Whether the process, or the system, has as many files open as it may. The medium is well.
    pub fn is_out_of_descriptors(&self) -> bool {
        matches!(self, StoreError::Io { error, .. } if is_out_of_descriptors(error))
    }

    /// Whether a page is damaged. The store is well otherwise, and goes on.
    pub fn is_damage(&self) -> bool {
        match self {
            StoreError::Damaged(_) | StoreError::Lost { .. } => true,
            StoreError::Device(error) => matches!(error, DeviceError::Unreadable(_)),
            StoreError::Index(error) => matches!(error, IndexError::Damaged { .. }),
            StoreError::Table { error, .. } => error.is_damage(),
            _ => false,
        }
    }

    pub(crate) fn io(what: impl Into<String>, error: io::Error) -> StoreError {
        let what = what.into();
        StoreError::Io { what, error }
    }

    /// The same once more, for another thread that waited for what failed.
    pub(crate) fn again(&self) -> StoreError {
        match self {
            StoreError::Io { what, error } => {
                let other = || io::Error::new(error.kind(), error.to_string());
                let number = error.raw_os_error();
                let error = number.map_or_else(other, io::Error::from_raw_os_error);
                StoreError::io(what.clone(), error)
            }
            StoreError::Full(why) => StoreError::Full(why.clone()),
            StoreError::ReadOnly => StoreError::ReadOnly,
            StoreError::SnapshotEnded => StoreError::SnapshotEnded,
            StoreError::Device(error) => StoreError::Device(error.clone()),
            StoreError::Broken(why) => StoreError::Broken(why.clone()),
            // No flush ends with any of the others.
            other => StoreError::Broken(other.to_string()),
        }
    }

    /// The same, saying where.
    pub(crate) fn at(self, path: &Path) -> StoreError {
        let at = |why: String| format!("{}: {why}", path.display());
        match self {
            StoreError::NotAStore(why) => StoreError::NotAStore(at(why)),
            StoreError::Damaged(why) => StoreError::Damaged(at(why)),
            StoreError::Key(why) => StoreError::Key(at(why)),
            StoreError::Io { what, error } => StoreError::Io {
                what: at(what),
                error,
            },
            other => other,
        }
    }

    pub(crate) fn in_use(path: &Path) -> StoreError {
        StoreError::InUse {
            path: path.to_path_buf(),
            pid: holder(path),
        }
    }
}

/// The process that has a file locked, by the kernel's list of locks.
fn holder(path: &Path) -> Option<u32> {
    let inode = std::fs::metadata(path).ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_flock = words.next()? == "FLOCK";
        let pid = words.nth(2)?;
        let place = words.next()?;
        let is_it = place.rsplit(':').next()?.parse() == Ok(inode);
        let pid = (is_flock && is_it).then(|| pid.parse::<u32>().ok())??;
        // The process that took the lock may be gone, and one that it forked has it still.
        Path::new(&format!("/proc/{pid}")).exists().then_some(pid)
    })
}
