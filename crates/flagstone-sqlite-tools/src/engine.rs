//! Engines: the ways to keep a database, in a store or with one of SQLite's own journal modes.

use flagstone_sqlite::VFS_NAME;
use flagstone_store::KeySource;
use flagstone_terminal::Failure;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// A way to keep a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// In a Flagstone store.
    Flagstone,
    /// A write-ahead log that is synced at each commit (`synchronous = FULL`).
    WalFull,
    /// A write-ahead log that is not synced at each commit: the last commits may be lost.
    WalNormal,
    /// A rollback journal, deleted at each commit.
    Delete,
    /// A rollback journal, truncated at each commit.
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

    /// Opens or creates a database and sets its journal mode. The connection waits up to a minute
    /// while other connections hold locks.
    pub(crate) fn connect(self, path: &Path) -> Result<Connection, Failure> {
        let db = match self {
            Engine::Flagstone => open_store(path, true, None)?,
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
        db.busy_timeout(Duration::from_secs(60))?;
        Ok(db)
    }
}

/// Opens a database in a store, with `flags`.
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

/// Opens a database in a store for reading.
pub(crate) fn open_to_read(path: &Path, key: Option<&KeySource>) -> Result<Connection, Failure> {
    flagstone_sqlite::register!(rusqlite::ffi)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Ok(Connection::open_with_flags(uri_of(path, key)?, flags)?)
}

/// The URI under which SQLite opens a store. It says where the key is, never the key itself.
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

/// A path, percent-encoded for a URI.
pub(crate) fn escaped(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().ok_or_else(|| {
        Failure::Usage(format!(
            "{}: the path is not valid UTF-8: use another name",
            path.display()
        ))
    })?;
    let escapes = [('%', "%25"), ('?', "%3f"), ('#', "%23"), ('&', "%26")];
    let escaped = escapes
        .into_iter()
        .fold(text.to_owned(), |text, (letter, code)| {
            text.replace(letter, code)
        });
    // In a URI, two slashes at the start would introduce a server name.
    Ok(if escaped.starts_with("//") {
        format!("//{escaped}")
    } else {
        escaped
    })
}
