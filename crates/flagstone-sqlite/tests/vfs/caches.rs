//! Pages that SQLite keeps from one transaction to the next: it forgets them when the database is
//! another one, and not before.

use crate::lab::{Hooks, Place, open, open_elsewhere, put, put_store, uri};
use crate::support::{BUSY, Sql, Stores, plain, text};
use flagstone_sqlite::{Trouble, TroubleKind};
use flagstone_store::medium::Recorded;
use rusqlite::{Connection, OpenFlags};
use std::time::Duration;

const VERSION: &str = "PRAGMA data_version";

#[test]
fn only_what_others_commit_is_another_version_of_the_data() {
    let stores = Stores::new();
    let [one, other] = [stores.open("a.flag"), stores.open("a.flag")];
    one.run("CREATE TABLE t (a)");
    text(&one, "SELECT count(*) FROM t");
    let mut version = text(&one, VERSION);
    for _ in 0..3 {
        for sql in ["SELECT count(*) FROM t", "SELECT a FROM t LIMIT 0; VACUUM"] {
            one.run(sql);
            one.run("INSERT INTO t VALUES (1); BEGIN; DELETE FROM t; ROLLBACK");
            assert_eq!(text(&one, VERSION), version, "{sql}");
        }
        other.run("INSERT INTO t VALUES (2)");
        let now = text(&one, VERSION);
        assert_ne!(now, version);
        version = now;
    }
}

/// The refusal of a store that another process has open.
fn in_use() -> Result<(), Trouble> {
    Err(Trouble::new(TroubleKind::Busy, "another process has it"))
}

/// Opens a database of the lab that is only read.
fn read_only(path: &std::path::Path) -> Connection {
    Connection::open(uri(path) + "&mode=ro").expect("it opens")
}

#[test]
fn a_store_that_another_process_had_meanwhile_is_read_anew() {
    for is_slow in [false, true] {
        let (medium, hooks) = (Recorded::default(), Hooks::default());
        let path = put(Place::Hooked(medium.clone(), hooks.clone()));
        let insert = "CREATE TABLE t (v); INSERT INTO t VALUES ('old')";
        open(&path).expect("it opens").run(insert);
        let reader = read_only(&path);
        assert_eq!(text(&reader, "SELECT v FROM t"), "old");
        // One that writes comes, and the store is closed for it. Another process is quicker, and
        // finds the counter that the store has. It may have the store for longer.
        let other = put_store(medium);
        let (again, theirs) = (hooks.clone(), other.to_path_buf());
        hooks.at_open(move || {
            let other = open_elsewhere(&theirs).expect("it opens");
            other.run("UPDATE t SET v = 'new'");
            if is_slow {
                again.at_open(in_use);
            }
            in_use()
        });
        let _writer = open(&path).expect("it waits");
        assert_eq!(text(&reader, "SELECT v FROM t"), "new");
    }
}

const VALUES: &str = "SELECT group_concat(v) FROM t";

/// A store with two rows whose values are 0, and a connection that has read them.
fn two_rows(stores: &Stores) -> Connection {
    let db = stores.open("a.flag");
    db.run("CREATE TABLE t (id INTEGER PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 0), (2, 0)");
    assert_eq!(text(&db, VALUES), "0,0");
    db
}

/// SQLite counts only the first transaction of a connection while it keeps its lock.
#[test]
fn transactions_that_sqlite_does_not_count_are_seen() {
    let stores = Stores::new();
    let other = two_rows(&stores);
    let db = stores.open("main.flag");
    // For all databases, but only the VFS of the main one is told.
    let settings = format!(
        "ATTACH '{}' AS s; PRAGMA locking_mode = EXCLUSIVE",
        stores.uri("a.flag", "")
    );
    db.run(&settings);
    for value in 1..4 {
        db.run(&format!("UPDATE s.t SET v = {value} WHERE id = 1"));
        assert_eq!(text(&other, VALUES), format!("{value},0"));
    }
    drop(db);
    other.run("UPDATE t SET v = 9 WHERE id = 2");
    assert_eq!(text(&stores.open("a.flag"), VALUES), "3,9");
}

#[test]
fn who_has_kept_its_locks_is_alone_until_it_lets_them_go() {
    let stores = Stores::new();
    let other = two_rows(&stores);
    other.busy_timeout(Duration::ZERO).expect("a setting");
    let is_busy = || other.refused(VALUES) == BUSY;
    let attached = plain(&stores.path("main.db"));
    let attach = format!("ATTACH '{}' AS s", stores.uri("a.flag", ""));
    attached.run(&attach);
    for (db, schema) in [(stores.open("a.flag"), "main"), (attached, "s")] {
        let mode = |mode| {
            db.run(&format!("PRAGMA {schema}.locking_mode = {mode}"));
        };
        let update = |value| {
            db.run(&format!("UPDATE t SET v = {value} WHERE id = 1"));
        };
        mode("EXCLUSIVE");
        update(1);
        mode("NORMAL");
        assert!(
            is_busy(),
            "{schema}: it has its lock until its next transaction ends"
        );
        update(2);
        assert_eq!(text(&other, VALUES), "2,0");
        // Without a lock there is nothing to wait for.
        mode("EXCLUSIVE");
        mode("NORMAL");
        assert!(!is_busy());
    }
    other.run("UPDATE t SET v = 9 WHERE id = 2");
    assert_eq!(text(&stores.open("a.flag"), VALUES), "2,9");
}

/// Two connections with one cache are one to the VFS: a commit of the first lets go of no lock that
/// the second counts on. Fails if they are recognised only by `cache=shared` in the URI.
#[test]
fn who_reads_through_a_shared_cache_reads_one_state() {
    let stores = Stores::new();
    let other = stores.open("a.flag");
    other.run(
        "CREATE TABLE t (v, filler); CREATE TABLE u (n);
         INSERT INTO u VALUES (0);
         WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c LIMIT 500)
         INSERT INTO t SELECT 0, zeroblob(1000) FROM c",
    );
    let by_flag = |parameters: &str, flags| {
        let flags = OpenFlags::default() | flags;
        let opened = Connection::open_with_flags(stores.uri("a.flag", parameters), flags);
        opened.expect("a database")
    };
    let none = OpenFlags::empty();
    for (parameters, flags) in [
        ("&cache=shared", none),
        ("", OpenFlags::SQLITE_OPEN_SHARED_CACHE),
    ] {
        let [writer, reader] = [(); 2].map(|()| by_flag(parameters, flags));
        // The first transaction of a connection joins no group.
        writer.run("UPDATE u SET n = n + 1");
        let mut statement = reader.prepare("SELECT v FROM t").expect("a statement");
        let mut rows = statement.query([]).expect("rows");
        let first = rows.next().expect("a row").expect("a row");
        let value: i64 = first.get(0).expect("a number");
        writer.run("UPDATE u SET n = n + 1");
        // It may have to wait for the reader, and then gives up.
        let _ = other.busy_timeout(Duration::ZERO);
        other.refused("UPDATE t SET v = v + 1");
        let mut read = 1;
        while let Some(row) = rows.next().expect("a row") {
            assert_eq!(row.get::<_, i64>(0), Ok(value), "{parameters}, row {read}");
            read += 1;
        }
        assert_eq!(read, 500);
    }
}
