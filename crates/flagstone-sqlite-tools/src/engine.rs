//! The ways in which a database is kept: in a store, or with a journal of SQLite's own.

use flagstone_terminal::Failure;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// How a database is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// In a store.
    Flagstone,
    /// A write-ahead log that is synced at each commit.
    WalFull,
    /// A write-ahead log that is not: the last commits may be lost.
    WalNormal,
    /// A rollback journal that is deleted at each commit.
    Delete,
    /// A rollback journal that is emptied at each commit.
    Truncate,
}

impl Engine {
    pub(crate) const ALL: [(Engine, &'static str); 5] = [
        (Engine::Flagstone, "flagstone"),
        (Engine::WalFull, "wal-full"),
        (Engine::WalNormal, "wal-normal"),
        (Engine::Delete, "delete"),
        (Engine::Truncate, "truncate"),
    ];

    pub(crate) fn name(self) -> &'static str {
        let mut all = Engine::ALL.iter();
        all.find(|(engine, _)| *engine == self)
            .expect("all are named")
            .1
    }

    /// Opens a database that is kept this way, made if it is not there.
    pub(crate) fn open(self, path: &Path) -> Result<Connection, Failure> {
        let db = match self {
            Engine::Flagstone => open_store(path, true)?,
            _ => Connection::open(path)?,
        };
        let pragmas = match self {
            Engine::Flagstone => "",
            Engine::WalFull => "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL",
            Engine::WalNormal => "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
            Engine::Delete => "PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL",
            Engine::Truncate => "PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=FULL",
        };
        db.execute_batch(pragmas)?;
        Ok(db)
    }
}

/// Opens a database in a store.
pub(crate) fn open_store(path: &Path, create: bool) -> Result<Connection, Failure> {
    flagstone_sqlite::register!(rusqlite::ffi)?;
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, create);
    let name = flagstone_sqlite::VFS_NAME;
    Ok(Connection::open_with_flags_and_vfs(path, flags, name)?)
}
