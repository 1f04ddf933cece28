//! Where databases are stored: in files and on block devices.

use crate::bytes::{Bytes, Trouble, TroubleKind};
use crate::file::{StoreFile, must_be_atomic};
use flagstone::commit::Kind;
use flagstone_store::{KeySource, OpenOptions, PageStore};
use std::path::Path;

/// Options for opening a database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct How {
    /// Create it if it does not exist.
    pub create: bool,
    /// Create it even over other data, which is then lost ([`OpenOptions::force`]).
    pub force: bool,
    /// Open it for reading only.
    pub read_only: bool,
    /// The commit protocol of a new store, by name.
    pub protocol: Option<String>,
    /// The source of the key of an encrypted store; a new store is encrypted with it.
    pub key: Option<KeySource>,
    /// Whether several SQLite connections may act as one (`cache=shared`).
    pub shares_cache: bool,
}

impl How {
    /// The same options, for reading only.
    pub(super) fn to_read(&self) -> How {
        How {
            create: false,
            force: false,
            read_only: true,
            ..self.clone()
        }
    }
}

/// The storage of databases: opens them by path.
pub trait Backing: Send + Sync {
    /// Opens a database.
    ///
    /// # Errors
    /// It does not exist, is something else, or another process has it open.
    fn open(&self, path: &Path, how: &How) -> Result<Box<dyn Bytes>, Trouble>;
}

/// Stores in files and on block devices.
#[derive(Debug, Clone, Copy, Default)]
pub struct Files;

impl Backing for Files {
    /// Opens the store at `path`, and the database file in it. A folder is reported as something
    /// that cannot be opened, as by SQLite's own VFS.
    fn open(&self, path: &Path, how: &How) -> Result<Box<dyn Bytes>, Trouble> {
        let mut options = OpenOptions::default();
        options.create = how.create;
        options.force = how.force;
        options.read_only = how.read_only;
        if let Some(name) = &how.protocol {
            options.protocol = Kind::by_name(name).ok_or_else(|| {
                Trouble::new(
                    TroubleKind::CannotOpen,
                    format!("there is no commit protocol {name}: `flagstone protocols` lists them"),
                )
            })?;
        }
        // Checked before a file is created.
        must_be_atomic(options.protocol.info())?;
        let options = options.with_key_from(how.key.as_ref())?;
        let store = PageStore::open(path, &options).map_err(|error| {
            let mut trouble = Trouble::from(error);
            if trouble.kind == TroubleKind::NotAStore && path.is_dir() {
                trouble.kind = TroubleKind::CannotOpen;
            }
            trouble
        })?;
        Ok(Box::new(StoreFile::new(store)?))
    }
}
