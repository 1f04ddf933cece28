//! Errors of stores.

use crate::tables::LostKeys;
use flagstone::commit::DeviceError;
use flagstone_btree::TreeError;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Errors of a store.
///
/// ```
/// use flagstone::units::Lpn;
/// use flagstone_store::{OpenOptions, PageStore, StoreError};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("pages.flag");
/// let missing = PageStore::open(&path, &OpenOptions::existing()).err();
/// assert!(missing.is_some_and(|error| error.to_string().contains("pages.flag")));
///
/// let mut options = OpenOptions::default();
/// options.pages_per_block = 16; // a small file
/// let open = PageStore::open(&path, &options)?;
/// let second = PageStore::open(&path, &OpenOptions::existing()).err();
/// assert!(matches!(second, Some(StoreError::InUse { .. })));
///
/// open.close()?;
/// let mut reading = PageStore::open(&path, &OpenOptions::existing().reading())?;
/// assert!(matches!(reading.begin(), Err(StoreError::ReadOnly)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A system call failed. Every later call fails until the store is opened again; data that was
    /// acknowledged before is safe.
    #[error("{what}: {error}{}", advice(error))]
    Io {
        /// The operation that was tried.
        what: String,
        /// The system's error.
        error: io::Error,
    },
    /// An earlier call failed, so it is unknown what is durable.
    #[error("the store failed before ({0}): close it and open it again")]
    Broken(String),
    /// There is no store here.
    #[error("{0}")]
    NotAStore(String),
    /// There is a store here, and it is damaged.
    #[error("{0}")]
    Damaged(String),
    /// The key is missing or wrong, or a key was given for a store that is not encrypted.
    #[error("{0}")]
    Key(String),
    /// Another process has the store open.
    #[error("{} is in use{}: close it there first", path.display(), by(*pid))]
    InUse {
        /// The store.
        path: PathBuf,
        /// The process id, if known.
        pid: Option<u32>,
    },
    /// No room, on the medium or within the store's size limit.
    #[error("the store is full: {0}")]
    Full(String),
    /// The store was opened for reading only.
    #[error("the store was opened for reading only")]
    ReadOnly,
    /// Invalid options.
    #[error("{0}")]
    Options(String),
    /// The snapshot was ended because its room was needed.
    #[error("the snapshot was ended because its space was needed: take another one")]
    SnapshotEnded,
    /// The request is invalid, or a page was lost.
    #[error("{}", of_device(.0))]
    Device(#[source] DeviceError),
    /// A table refuses the request, or one of its nodes is damaged.
    #[error(transparent)]
    Tree(TreeError),
    /// An operation on a table failed.
    #[error("table `{table}`{}: {error}", at_key(key.as_deref()))]
    Table {
        /// The table.
        table: String,
        /// The key, if the error concerns one key. Bytes that are not printable are escaped.
        key: Option<String>,
        /// The cause.
        error: Box<StoreError>,
    },
    /// Some keys of a table lie in a part that cannot be read.
    #[error(
        "{lost} cannot be read ({error}); an iterator continues after them, and \
         `TableMut::give_up_lost` removes them from the table"
    )]
    Lost {
        /// The keys.
        lost: LostKeys,
        /// Why the part cannot be read.
        error: Box<StoreError>,
    },
    /// The table does not exist, or is of another kind.
    #[error("{0}")]
    NoTable(String),
    /// This thread already has a write transaction on the store, and would wait for itself.
    #[error(
        "this thread already has a write transaction on the store, so this would deadlock: write \
         through that transaction, or end it first"
    )]
    Nested,
    /// An operation of the transaction failed after changing something.
    #[error("the transaction cannot continue ({0}): roll it back, or roll back to a savepoint")]
    Spoilt(String),
}

/// Translates a device error into terms of a file.
fn of_device(error: &DeviceError) -> String {
    match error {
        DeviceError::Unreadable(at) => format!(
            "page {at} is damaged and cannot be read: `flagstone store check` lists all damaged \
             pages, `flagstone store repair` salvages the other pages"
        ),
        other => other.to_string(),
    }
}

fn at_key(key: Option<&str>) -> String {
    key.map_or(String::new(), |key| format!(", key `{key}`"))
}

/// Adds the attempted operation to a system error.
pub(crate) trait Doing<T> {
    /// Returns the value, or the error together with the attempted operation.
    fn doing(self, what: impl Into<String>) -> Result<T, StoreError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl Into<String>) -> Result<T, StoreError> {
        self.map_err(|error| StoreError::io(what, error))
    }
}

impl From<TreeError> for StoreError {
    fn from(error: TreeError) -> Self {
        StoreError::Tree(error)
    }
}

/// Advice for system errors that the medium did not cause.
fn advice(error: &io::Error) -> &'static str {
    if is_out_of_descriptors(error) {
        ": an open store needs one file descriptor, sometimes two: raise the limit of open \
             files (`ulimit -n`), or close stores"
    } else {
        ""
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    number.is_some_and(|number| [libc::EMFILE, libc::ENFILE].contains(&number))
}

/// Names the process that has a store open. If it is an ancestor of this process, the name says so:
/// the ancestor must close the store, although this process has inherited the handle.
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
    /// Whether the limit of open files (process or system) is reached. The medium is not at fault.
    pub fn is_out_of_descriptors(&self) -> bool {
        matches!(self, StoreError::Io { error, .. } if is_out_of_descriptors(error))
    }

    /// Whether a page is damaged. Other pages of the store still work.
    pub fn is_damage(&self) -> bool {
        match self {
            StoreError::Damaged(_) | StoreError::Lost { .. } => true,
            StoreError::Device(error) => matches!(error, DeviceError::Unreadable(_)),
            StoreError::Tree(error) => matches!(error, TreeError::Damaged { .. }),
            StoreError::Table { error, .. } => error.is_damage(),
            _ => false,
        }
    }

    pub(crate) fn io(what: impl Into<String>, error: io::Error) -> StoreError {
        let what = what.into();
        StoreError::Io { what, error }
    }

    /// A copy of the error, for another thread that waited for the failed operation.
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
            // No flush ends with any of the other errors.
            other => StoreError::Broken(other.to_string()),
        }
    }

    /// Adds the path to the error.
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

/// The process that holds a lock on a file, according to the kernel's list of locks.
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
        // The process that took the lock may have ended, while a forked child still holds it.
        Path::new(&format!("/proc/{pid}")).exists().then_some(pid)
    })
}
