//! What people are told: which file, which process, and only as long as it holds.

use crate::support::{BUSY, Sql, Stores, register_lab, text};
use flagstone_store::{OpenOptions, PageStore};
use rusqlite::{Connection, ErrorCode};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::process::Command;

const ASK: &str = "PRAGMA flagstone_error";

#[test]
fn each_file_has_its_own_error_until_what_failed_succeeds() {
    let stores = Stores::new();
    let (a, b) = (stores.impatient("a.flag"), stores.open("b.flag"));
    a.run("CREATE TABLE t (a)");
    b.run("CREATE TABLE t (a)");
    drop(a);
    // Another holder of the same file, as another process is.
    let path = stores.path("a.flag");
    let held = PageStore::open(&path, &OpenOptions::default()).expect("nobody has it");
    let a = stores.impatient("a.flag");
    for _ in 0..3 {
        assert_eq!(a.refused("INSERT INTO t VALUES (1)"), BUSY);
    }
    let why = text(&a, ASK);
    let pid = std::process::id().to_string();
    assert!(why.contains("a.flag") && why.contains(&pid), "{why}");
    assert_eq!(text(&b, ASK), "", "nothing is wrong with that one");
    // One that cannot be made at all is said where somebody asks.
    Connection::open(stores.uri("c.flag", "&protocol=nonsense")).expect_err("no such protocol");
    let why = text(&b, ASK);
    assert!(why.contains("c.flag") && why.contains("nonsense"), "{why}");
    assert!(text(&a, ASK).contains("a.flag"), "its own comes first");
    drop(held);
    a.run("INSERT INTO t VALUES (1)");
    assert!(!text(&a, ASK).contains("a.flag"), "it is over");
}

/// Fails if a connection without locks takes every file that it cannot open for one that another
/// process has, so that a busy timeout waits for nothing, or never opens a store that was busy.
#[test]
fn a_connection_without_locks_is_told_what_is_wrong_with_a_file() {
    // With errors of its own: those of a closed connection are told to all others.
    let stores = Stores::new();
    register_lab("without locks", Box::new(flagstone_sqlite::Files));
    let open = |name: &str, parameters: &str| {
        let path = stores.path(name);
        Connection::open(format!(
            "file:{}?vfs=without%20locks{parameters}",
            path.display()
        ))
    };
    std::fs::write(stores.path("other"), [7; 9_000]).expect("room");
    let store = stores.path("a.flag");
    stores.open("a.flag").run("CREATE TABLE t (a)");
    for without in ["&nolock=1", "&immutable=1", "&mode=ro&nolock=1"] {
        let read = |name: &str| {
            let db = open(name, without)?;
            db.busy_timeout(std::time::Duration::ZERO)?;
            db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        };
        let refused = |name: &str| {
            let read: rusqlite::Result<u32> = read(name);
            read.expect_err("it cannot be read").sqlite_error_code()
        };
        let code = refused("other");
        assert_eq!(code, Some(ErrorCode::NotADatabase), "{without}");
        let held = PageStore::open(&store, &OpenOptions::default()).expect("nobody has it");
        assert_eq!(refused("a.flag"), BUSY, "{without}");
        drop(held);
        assert_eq!(read("a.flag"), Ok(1), "{without}");
    }
    let held = PageStore::open(&store, &OpenOptions::default()).expect("nobody has it");
    let db = open("a.flag", "&nolock=1").expect("busy later");
    assert_eq!(db.refused("SELECT * FROM t"), BUSY);
    assert!(text(&db, ASK).contains("in use"), "{}", text(&db, ASK));
    drop(held);
    db.run("SELECT * FROM t");
    assert!(!text(&db, ASK).contains("in use"), "it is over");
}

#[test]
fn a_store_in_use_is_logged_once() {
    const CHILD: &str = "FLAGSTONE_TEST_LOGS";
    if let Ok(folder) = std::env::var(CHILD) {
        return log_of_a_store_in_use(folder.as_ref());
    }
    let folder = tempfile::tempdir().expect("a folder");
    // The log of SQLite is set up before anything else of it.
    let test = "errors::a_store_in_use_is_logged_once";
    let mut child = Command::new(std::env::current_exe().expect("a path"));
    child.args(["--exact", test]).env(CHILD, folder.path());
    assert!(child.status().expect("it runs").success());
    let lines = std::fs::read_to_string(folder.path().join("log")).expect("a log");
    let in_use = lines.lines().filter(|line| line.contains("in use")).count();
    assert_eq!(in_use, 2, "once each time that it is in use:\n{lines}");
}

fn log_of_a_store_in_use(folder: &std::path::Path) {
    use std::io::Write;
    static LOG: std::sync::Mutex<Option<std::fs::File>> = std::sync::Mutex::new(None);
    unsafe extern "C" fn log(_: *mut c_void, _: c_int, line: *const c_char) {
        // SAFETY: SQLite gives a string.
        let line = unsafe { CStr::from_ptr(line) }.to_string_lossy();
        if let Some(file) = &mut *LOG.lock().expect("one thread") {
            writeln!(file, "{line}").expect("room");
        }
    }
    *LOG.lock().expect("one thread") =
        Some(std::fs::File::create(folder.join("log")).expect("a file"));
    // SAFETY: nothing of SQLite runs yet in this process.
    let code = unsafe {
        let log: unsafe extern "C" fn(*mut c_void, c_int, *const c_char) = log;
        let nothing = std::ptr::null_mut::<c_void>();
        rusqlite::ffi::sqlite3_config(rusqlite::ffi::SQLITE_CONFIG_LOG, log, nothing)
    };
    assert_eq!(code, 0, "it is taken");
    flagstone_sqlite::register!(rusqlite::ffi).expect("SQLite takes the VFS");
    let path = folder.join("a.flag");
    let db = || Connection::open(format!("file:{}?vfs=flagstone", path.display()));
    db().expect("a store").run("CREATE TABLE t (a)");
    for _ in 0..2 {
        let held = PageStore::open(&path, &OpenOptions::default()).expect("nobody has it");
        let waits = db().expect("busy later");
        waits
            .busy_timeout(std::time::Duration::from_millis(300))
            .expect("a setting");
        assert_eq!(waits.refused("INSERT INTO t VALUES (1)"), BUSY);
        assert_eq!(waits.refused("INSERT INTO t VALUES (1)"), BUSY);
        drop(held);
        waits.run("INSERT INTO t VALUES (1)");
    }
}

#[test]
fn damage_that_an_opening_has_met_is_over_when_the_store_is_opened() {
    let stores = Stores::new();
    let db = stores.open("a.flag");
    db.run("CREATE TABLE t (a)");
    drop(db);
    let path = stores.path("a.flag");
    let whole = std::fs::read(&path).expect("a store");
    // Without its second half the store is damaged.
    std::fs::write(&path, &whole[..whole.len() / 2]).expect("room");
    let db = stores.open("a.flag");
    db.refused("SELECT * FROM t");
    assert!(text(&db, ASK).contains("a.flag"), "{}", text(&db, ASK));
    std::fs::write(&path, &whole).expect("room");
    text(&db, "SELECT count(*) FROM t");
    assert_eq!(text(&db, ASK), "", "it is over");
}
