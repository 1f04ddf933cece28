//! Who waits for whom where readers have no snapshots, or want none.

use crate::support::{BUSY, Sql, Stores, text};
use rusqlite::Connection;
use std::time::Duration;

/// A connection that does not wait.
fn open(stores: &Stores, parameters: &str) -> Connection {
    let db = Connection::open(stores.uri("a.flag", parameters)).expect("a database");
    db.busy_timeout(Duration::ZERO).expect("a setting");
    db
}

const READ: &str = "SELECT a FROM t";

/// A writer that waits for a reader, both of which are open.
fn waiting_for_a_reader(stores: &Stores, parameters: &str, mode: &str) -> [Connection; 2] {
    let [writer, reader] = [(); 2].map(|()| open(stores, parameters));
    writer.run("CREATE TABLE t (a); INSERT INTO t VALUES (1)");
    let begin = format!("PRAGMA locking_mode = {mode}; BEGIN; {READ}");
    reader.run(&begin);
    writer.run("BEGIN; INSERT INTO t VALUES (2)");
    assert_eq!(writer.refused("COMMIT"), BUSY, "somebody reads");
    [writer, reader]
}

#[test]
fn no_reader_comes_before_a_writer_that_waits_for_readers() {
    let stores = Stores::new();
    let parameters = "&protocol=lighttx";
    let [writer, reader] = waiting_for_a_reader(&stores, parameters, "NORMAL");
    let late = open(&stores, parameters);
    assert_eq!(late.refused(READ), BUSY, "a writer waits");
    reader.run("COMMIT");
    assert_eq!(late.refused(READ), BUSY, "a writer waits");
    writer.run("COMMIT");
    assert_eq!(text(&late, "SELECT count(*) FROM t"), "2");
}

#[test]
fn who_would_be_alone_comes_after_a_writer_and_others_read_beside_it() {
    let stores = Stores::new();
    let [writer, reader] = waiting_for_a_reader(&stores, "", "EXCLUSIVE");
    let [late, alone] = [(); 2].map(|()| open(&stores, ""));
    alone.run("PRAGMA locking_mode = EXCLUSIVE");
    assert_eq!(alone.refused(READ), BUSY, "a writer waits");
    late.run(&format!("BEGIN; {READ}"));
    reader.run(&format!("COMMIT; PRAGMA locking_mode = NORMAL; {READ}"));
    writer.run("COMMIT");
    assert_eq!(text(&late, "SELECT count(*) FROM t"), "1");
    // It reads what is newest, and so may write.
    alone.run(&format!("{READ}; INSERT INTO t VALUES (3)"));
    assert_eq!(text(&alone, "SELECT count(*) FROM t"), "3");
}
