//! Processes that are forked while a connection is open, as the workers of a server that has loaded
//! its application before (`gunicorn --preload`). SQLite's documentation says not to carry a
//! connection over a fork.

use crate::support::{BUSY, Sql, Stores, assert_well, text};
use rusqlite::Connection;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(code: i32) -> !;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
}

/// Forks a process that does something and ends, whatever it has inherited. Returns its number.
fn forked(act: impl FnOnce()) -> i32 {
    // SAFETY: this program has one thread that uses SQLite, and the process ends in the same call.
    let child = unsafe { fork() };
    assert!(child >= 0, "there is no process to be had");
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        // SAFETY: it ends the process.
        unsafe { _exit(i32::from(done.is_err())) };
    }
    child
}

fn has_ended_well(child: i32) -> bool {
    let mut status = 0;
    // SAFETY: the status is written to a number that is there.
    unsafe { waitpid(child, &mut status, 0) == child && status == 0 }
}

fn connect(folder: &Path) -> Connection {
    let path = folder.join("a.flag");
    let uri = format!("file:{}?vfs=flagstone", path.display());
    Connection::open(uri).expect("a connection")
}

#[test]
fn a_forked_process_hears_what_to_do_and_connects_once_its_parent_has_closed() {
    const CHILD: &str = "FLAGSTONE_TEST_FORKS";
    if let Ok(folder) = std::env::var(CHILD) {
        return fork_with_a_connection(folder.as_ref());
    }
    let stores = Stores::new();
    let mut child = Command::new(std::env::current_exe().expect("a path"));
    let test = "forked::a_forked_process_hears_what_to_do_and_connects_once_its_parent_has_closed";
    child.args(["--exact", test, "--nocapture"]);
    child.env(CHILD, stores.path(""));
    assert!(child.status().expect("it runs").success());
}

fn fork_with_a_connection(folder: &Path) {
    flagstone_sqlite::register!(rusqlite::ffi).expect("SQLite takes the VFS");
    let db = connect(folder);
    db.run("CREATE TABLE t (a); INSERT INTO t VALUES (1)");
    let sum = "SELECT sum(a) FROM t";

    // While its parent has the store open it gets no connection.
    let child = forked(|| {
        let read = db.query_row(sum, [], |row| row.get::<_, i64>(0));
        read.expect_err("an inherited connection");
        let why = text(&db, "PRAGMA flagstone_error");
        assert!(
            why.contains("forked") && why.contains("open it again in this process"),
            "{why}"
        );
        let own = connect(folder);
        assert_eq!(own.refused(sum), BUSY);
        let why = text(&own, "PRAGMA flagstone_error");
        assert!(why.contains("the parent of this one"), "{why}");
    });
    assert!(has_ended_well(child));
    db.run("INSERT INTO t VALUES (2)");

    // Once its parent has closed it does, and the connection that it inherited does no harm.
    let (mut here, mut there) = UnixStream::pair().expect("a socket");
    let child = forked(|| {
        there.read_exact(&mut [0]).expect("the parent writes");
        let own = connect(folder);
        own.run("INSERT INTO t VALUES (4)");
        db.query_row(sum, [], |row| row.get::<_, i64>(0))
            .expect_err("an inherited connection");
        assert_eq!(text(&own, sum), "7");
        assert_well(&own);
        // It closes its own by hand: what it has inherited is never dropped.
        own.close().expect("it closes");
    });
    db.close().expect("it closes");
    here.write_all(b"1").expect("the child reads");
    assert!(has_ended_well(child));
    let db = connect(folder);
    assert_eq!(text(&db, sum), "7");
    assert_well(&db);
}
