//! SQLite on a Flagstone store: a VFS named `flagstone`.
//!
//! A database is one file. Each transaction of SQLite is one transaction of the store, so no
//! journal is written and none is ever found hot. The VFS is loaded as an extension, or linked:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("app.flag");
//! flagstone_sqlite::register!(rusqlite::ffi)?;
//! let db = rusqlite::Connection::open(format!("file:{}?vfs=flagstone", path.display()))?;
//! db.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)")?;
//! # Ok(())
//! # }
//! ```
//!
//! From SQLite down to the store:
//!
//! ```text
//!  ffi       SQLite's structures and calls: all that is unsafe
//!  stores    open stores by path, connections of this process, their locks
//!  journal   rollback journals, in memory
//!  file      bytes of a database file in pages of a store
//! ```
//!
//! docs/sqlite.md says how to use it and what is safe.
#![deny(unsafe_code)]

mod bytes;
mod errors;
#[allow(unsafe_code, reason = "SQLite calls, and is called, through C")]
mod ffi;
mod file;
#[doc(hidden)]
pub mod fuzzing;
mod journal;
mod locks;
mod pragma;
mod stores;

pub use bytes::{Bytes, Trouble, TroubleKind, View};
pub use ffi::{Functions, flagstone_sqlite_auto_extension, register, register_as};
pub use file::StoreFile;
pub use stores::{Backing, Files, How};

/// The name of the VFS.
pub const VFS_NAME: &str = "flagstone";
