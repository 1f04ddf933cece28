//! The library as SQLite loads it, by the table of functions. A program of its own: in the other
//! one the VFS is linked.

use rusqlite::{Connection, LoadExtensionGuard};
use std::path::PathBuf;

/// The shared library, which is built beside this program.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("a path");
    program.with_file_name("libflagstone_sqlite.so")
}

fn load(entry: Option<&str>) {
    let db = Connection::open_in_memory().expect("memory");
    // SAFETY: it is the library of this crate.
    unsafe {
        let _guard = LoadExtensionGuard::new(&db).expect("it is allowed");
        db.load_extension(library(), entry).expect("it is loaded");
    }
    // The connection that loaded it is closed here, and the library stays.
}

fn value(db: &Connection, sql: &str) -> String {
    let get = |row: &rusqlite::Row| row.get::<_, String>(0);
    db.query_row(sql, [], get).expect("a value")
}

#[test]
fn a_loaded_library_serves_all_connections_that_follow() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.flag");
    let uri = format!("file:{}?vfs=flagstone", path.display());
    Connection::open(&uri).expect_err("there is no such VFS yet");
    load(None);
    load(Some("sqlite3_flagstonesqlite_init"));
    let db = Connection::open(&uri).expect("a database");
    db.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES ('here')")
        .expect("it works");
    assert_eq!(value(&db, "PRAGMA journal_mode"), "memory");
    let out = folder.path().join("out.db");
    db.execute(
        "VACUUM INTO ?1",
        [format!("file:{}?vfs=unix", out.display())],
    )
    .expect("copied");
    assert_eq!(std::fs::read(&out).expect("a file")[20], 64);
    drop(db);
    // A connection that could not be made cannot be asked; one that loads the library can.
    let wrong = Connection::open(format!("{uri}&wal=on"));
    wrong.expect_err("there is no such value");
    let loader = Connection::open_in_memory().expect("memory");
    // SAFETY: it is the library of this crate.
    unsafe {
        let _guard = LoadExtensionGuard::new(&loader).expect("it is allowed");
        loader
            .load_extension(library(), None::<&str>)
            .expect("it is loaded");
    }
    let why = value(&loader, "SELECT flagstone_error()");
    assert!(why.contains("app.flag") && why.contains("`wal`"), "{why}");
    drop(Connection::open(&uri).expect("a database"));
    assert_eq!(value(&loader, "SELECT flagstone_error()"), "");
    // As the default: a name alone is a store. Plain files are there by the name of their VFS.
    load(Some("flagstone_sqlite_default_init"));
    let db = Connection::open(&path).expect("a database");
    assert_eq!(value(&db, "SELECT a FROM t"), "here");
    assert_eq!(value(&db, "PRAGMA integrity_check"), "ok");
    let plain = Connection::open(format!("file:{}?vfs=unix", out.display())).expect("a database");
    assert_eq!(value(&plain, "SELECT a FROM t"), "here");
}
