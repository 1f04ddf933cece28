//! Who waits for whom where readers have no snapshots, or want none.

use crate::support::{Stores, text};
use rusqlite::{Connection, ErrorCode};
use std::time::Duration;

/// A connection that does not wait.
fn open(stores: &Stores, parameters: &str) -> Connection {
    let db = Connection::open(stores.uri("a.flag", parameters)).expect("a database");
    db.busy_timeout(Duration::ZERO).expect("a setting");
    db
}

/// Whether a statement is refused because others are in the way.
fn is_busy(db: &Connection, sql: &str) -> bool {
    let done = db.execute_batch(sql);
    done.is_err_and(|error| error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy))
}

const READ: &str = "SELECT a FROM t";

/// A writer that waits for a reader, both of which are open.
fn waiting_for_a_reader(stores: &Stores, parameters: &str, mode: &str) -> [Connection; 2] {
    let [writer, reader] = [(); 2].map(|()| open(stores, parameters));
    writer
        .execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)")
        .expect("a table");
    let begin = format!("PRAGMA locking_mode = {mode}; BEGIN; {READ}");
    reader.execute_batch(&begin).expect("it reads");
    writer
        .execute_batch("BEGIN; INSERT INTO t VALUES (2)")
        .expect("it fits into the cache");
    assert!(is_busy(&writer, "COMMIT"), "somebody reads");
    [writer, reader]
}

#[test]
fn no_reader_comes_before_a_writer_that_waits_for_readers() {
    let stores = Stores::new();
    let parameters = "&protocol=lighttx";
    let [writer, reader] = waiting_for_a_reader(&stores, parameters, "NORMAL");
    let late = open(&stores, parameters);
    assert!(is_busy(&late, READ), "a writer waits");
    reader.execute_batch("COMMIT").expect("it ends");
    assert!(is_busy(&late, READ), "a writer waits");
    writer.execute_batch("COMMIT").expect("nobody reads");
    assert_eq!(text(&late, "SELECT count(*) FROM t"), "2");
}

#[test]
fn who_would_be_alone_comes_after_a_writer_and_others_read_beside_it() {
    let stores = Stores::new();
    let [writer, reader] = waiting_for_a_reader(&stores, "", "EXCLUSIVE");
    let [late, alone] = [(); 2].map(|()| open(&stores, ""));
    alone
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE")
        .expect("a setting");
    assert!(is_busy(&alone, READ), "a writer waits");
    late.execute_batch(&format!("BEGIN; {READ}"))
        .expect("it has a snapshot");
    reader
        .execute_batch(&format!("COMMIT; PRAGMA locking_mode = NORMAL; {READ}"))
        .expect("it ends");
    writer.execute_batch("COMMIT").expect("nobody is alone");
    assert_eq!(text(&late, "SELECT count(*) FROM t"), "1");
    // It reads what is newest, and so may write.
    alone
        .execute_batch(&format!("{READ}; INSERT INTO t VALUES (3)"))
        .expect("nobody writes");
    assert_eq!(text(&alone, "SELECT count(*) FROM t"), "3");
}
