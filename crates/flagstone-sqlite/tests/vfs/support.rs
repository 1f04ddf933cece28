//! What tests of the VFS share: connections, and a folder for stores.

use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A folder of stores, with the VFS registered.
pub(crate) struct Stores {
    folder: TempDir,
}

impl Stores {
    pub(crate) fn new() -> Stores {
        flagstone_sqlite::register!(rusqlite::ffi).expect("SQLite takes the VFS");
        Stores {
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The URI of a store, with parameters as `&protocol=scc`.
    pub(crate) fn uri(&self, name: &str, parameters: &str) -> String {
        format!(
            "file:{}?vfs=flagstone{parameters}",
            self.path(name).display()
        )
    }

    pub(crate) fn open(&self, name: &str) -> Connection {
        Connection::open(self.uri(name, "")).expect("a database")
    }

    /// A connection that does not wait for others.
    pub(crate) fn impatient(&self, name: &str) -> Connection {
        let db = self.open(name);
        db.busy_timeout(Duration::ZERO).expect("a setting");
        db
    }

    /// Names in the folder, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).expect("a folder");
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        };
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort();
        names
    }
}

/// A database in a plain file.
pub(crate) fn plain(path: &Path) -> Connection {
    let flags = OpenFlags::default();
    Connection::open_with_flags_and_vfs(path, flags, c"unix").expect("a database")
}

/// What becomes of statements.
pub(crate) trait Sql {
    /// Carries them out, which must succeed.
    fn run(&self, sql: &str);

    /// The code of their error; nothing if they succeed.
    fn refused(&self, sql: &str) -> Option<ErrorCode>;
}

impl Sql for Connection {
    #[track_caller]
    fn run(&self, sql: &str) {
        let done = self.execute_batch(sql);
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    fn refused(&self, sql: &str) -> Option<ErrorCode> {
        self.execute_batch(sql).err()?.sqlite_error_code()
    }
}

/// What is told to who does not wait and is in the way of others.
pub(crate) const BUSY: Option<ErrorCode> = Some(ErrorCode::DatabaseBusy);

/// What is told to who finds no room.
pub(crate) const FULL: Option<ErrorCode> = Some(ErrorCode::DiskFull);

/// The first value of the first row, as text.
#[track_caller]
pub(crate) fn text(db: &Connection, sql: &str) -> String {
    let value = db.query_row(sql, [], |row| row.get::<_, rusqlite::types::Value>(0));
    match value.unwrap_or_else(|error| panic!("{sql}: {error}")) {
        rusqlite::types::Value::Null => "null".into(),
        rusqlite::types::Value::Integer(number) => number.to_string(),
        rusqlite::types::Value::Real(number) => number.to_string(),
        rusqlite::types::Value::Text(text) => text,
        rusqlite::types::Value::Blob(bytes) => format!("{} bytes", bytes.len()),
    }
}

/// All is well with a database, for SQLite.
pub(crate) fn assert_well(db: &Connection) {
    assert_eq!(text(db, "PRAGMA integrity_check"), "ok");
}

/// Registers a VFS over databases that a test keeps itself.
pub(crate) fn register_lab(name: &str, backing: Box<dyn flagstone_sqlite::Backing>) {
    let functions = flagstone_sqlite::functions!(rusqlite::ffi);
    // SAFETY: the functions are those of the SQLite that is linked.
    let registered = unsafe { flagstone_sqlite::register_as(&functions, name, backing, false) };
    registered.expect("SQLite takes the VFS");
}
