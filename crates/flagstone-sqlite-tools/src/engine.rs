//! The ways in which a database is kept: in a store, or with a journal of SQLite's own.

use flagstone_sqlite::VFS_NAME;
use flagstone_store::KeySource;
use flagstone_terminal::Failure;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

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

    /// Opens a database, made if it is not there; [`Engine::set_up`] has to follow.
    pub(crate) fn open(self, path: &Path) -> Result<Connection, Failure> {
        match self {
            Engine::Flagstone => open_store(path, true, None),
            _ => Ok(Connection::open(path)?),
        }
    }

    /// Opens a database, made if it is not there, and has it kept this way. The connection waits up
    /// to a minute for others.
    pub(crate) fn connect(self, path: &Path) -> Result<Connection, Failure> {
        let db = self.open(path)?;
        self.set_up(&db)?;
        db.busy_timeout(Duration::from_secs(60))?;
        Ok(db)
    }

    /// Has a connection keep its database this way.
    pub(crate) fn set_up(self, db: &Connection) -> Result<(), Failure> {
        let pragmas = match self {
            Engine::Flagstone => "",
            Engine::WalFull => "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL",
            Engine::WalNormal => "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
            Engine::Delete => "PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL",
            Engine::Truncate => "PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=FULL",
        };
        db.execute_batch(pragmas)?;
        Ok(())
    }
}

/// Opens a database in a store.
pub(crate) fn open_store(
    path: &Path,
    create: bool,
    key: Option<&KeySource>,
) -> Result<Connection, Failure> {
    flagstone_sqlite::register!(rusqlite::ffi)?;
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, create);
    Ok(Connection::open_with_flags(uri_of(path, key)?, flags)?)
}

/// Opens a database in a store, to read it.
pub(crate) fn open_to_read(path: &Path, key: Option<&KeySource>) -> Result<Connection, Failure> {
    flagstone_sqlite::register!(rusqlite::ffi)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Ok(Connection::open_with_flags(uri_of(path, key)?, flags)?)
}

/// The name of a store for SQLite. It says where the key is, and never what it is.
pub(crate) fn uri_of(path: &Path, key: Option<&KeySource>) -> Result<String, Failure> {
    let mut uri = format!("file:{}?vfs={VFS_NAME}", escaped(path)?);
    match key {
        Some(KeySource::File(file)) => uri += &format!("&key_file={}", escaped(file)?),
        Some(KeySource::Variable(name)) => {
            uri += &format!("&key_env={}", escaped(Path::new(name))?);
        }
        None => {}
    }
    Ok(uri)
}

/// A path in a URI.
pub(crate) fn escaped(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().ok_or_else(|| {
        Failure::Usage(format!(
            "{} has bytes that are no text: use another name",
            path.display()
        ))
    })?;
    let escapes = [('%', "%25"), ('?', "%3f"), ('#', "%23"), ('&', "%26")];
    let escaped = escapes
        .into_iter()
        .fold(text.to_owned(), |text, (letter, code)| {
            text.replace(letter, code)
        });
    // Two slashes at the beginning would name a server.
    Ok(match escaped.starts_with("//") {
        true => format!("//{escaped}"),
        false => escaped,
    })
}
