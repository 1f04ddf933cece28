//! Several connections, threads, databases and processes.

use crate::support::{BUSY, Sql, Stores, assert_well, plain, text};
use rusqlite::ffi::{sqlite3_vfs, sqlite3_vfs_find, sqlite3_vfs_register};
use rusqlite::{Connection, ErrorCode};
use std::collections::BTreeSet;
use std::ffi::{c_char, c_int};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn readers_see_what_is_committed_and_writers_take_turns() {
    let stores = Stores::new();
    let [writer, reader] = [(); 2].map(|()| stores.impatient("a.flag"));
    writer.run("CREATE TABLE t (a); INSERT INTO t VALUES (1)");
    writer.run("BEGIN IMMEDIATE; INSERT INTO t VALUES (2)");
    // Beside a writer that has not begun to write out, others read, and cannot mean to write.
    assert_eq!(text(&reader, "SELECT count(*) FROM t"), "1");
    assert_eq!(reader.refused("BEGIN IMMEDIATE"), BUSY, "one writer");
    // A reader goes on seeing what it saw, and another one what was committed since.
    reader.run("BEGIN");
    assert_eq!(text(&reader, "SELECT count(*) FROM t"), "1");
    writer.run("COMMIT");
    assert_eq!(text(&reader, "SELECT count(*) FROM t"), "1");
    let late = stores.open("a.flag");
    assert_eq!(text(&late, "SELECT count(*) FROM t"), "2");
    // It cannot write on the strength of what is out of date.
    assert_eq!(reader.refused("INSERT INTO t VALUES (3)"), BUSY);
    reader.run("COMMIT");
    reader.run("INSERT INTO t VALUES (3)");
    assert_eq!(text(&late, "SELECT count(*) FROM t"), "3");
    assert_well(&reader);
}

#[test]
fn a_store_is_copied_as_it_was_while_others_commit() {
    let stores = Stores::new();
    let [writer, reader] = [stores.open("a.flag"), stores.open("a.flag")];
    writer.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a);
             INSERT INTO t WITH RECURSIVE n (x) AS (VALUES (1) UNION ALL
             SELECT x + 1 FROM n WHERE x < 300) SELECT x, zeroblob(1500) FROM n",
    );
    let sum = "SELECT count(*) || ' ' || sum(length(a)) FROM t";
    reader.run("BEGIN");
    let before = text(&reader, sum);
    let mut copy = plain(&stores.path("copy.db"));
    {
        let backup = rusqlite::backup::Backup::new(&reader, &mut copy).expect("a copy begins");
        let mut steps = 0;
        while backup.step(7).expect("nobody waits") == rusqlite::backup::StepResult::More {
            steps += 1;
            writer.run("UPDATE t SET a = a || 'more' WHERE id % 3 = 0; DELETE FROM t WHERE id = 5");
        }
        assert!(steps > 10, "{steps} commits while it was copied");
    }
    assert_eq!(text(&copy, sum), before);
    assert_well(&copy);
    reader.run("COMMIT");
    assert_eq!(text(&reader, sum), text(&writer, sum));
    assert_ne!(text(&reader, sum), before);
}

#[test]
fn who_keeps_its_locks_is_alone() {
    let stores = Stores::new();
    let [alone, other] = [(); 2].map(|()| stores.impatient("a.flag"));
    alone.run("CREATE TABLE t (a); PRAGMA locking_mode = EXCLUSIVE");
    assert_eq!(text(&alone, "SELECT count(*) FROM t"), "0");
    // It reads, and goes on to hold the lock for that: nobody else commits.
    assert_eq!(outcome(&other, "INSERT INTO t VALUES (1)"), "busy");
    assert_eq!(outcome(&other, "SELECT count(*) FROM t"), "0");
    // It has written: nobody else reads.
    assert_eq!(outcome(&alone, "INSERT INTO t VALUES (1)"), "done");
    assert_eq!(outcome(&other, "SELECT count(*) FROM t"), "busy");
    alone.run("PRAGMA locking_mode = NORMAL; SELECT 1 FROM t");
    assert_eq!(outcome(&other, "INSERT INTO t VALUES (2)"), "done");
    assert_eq!(text(&alone, "SELECT count(*) FROM t"), "2");
}

#[test]
fn a_read_sees_one_state_whatever_is_done_to_the_database_meanwhile() {
    let stores = Stores::new();
    let writer = stores.open("a.flag");
    writer.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a); PRAGMA cache_size = 5;
             INSERT INTO t WITH RECURSIVE n (x) AS (VALUES (1) UNION ALL
             SELECT x + 1 FROM n WHERE x < 400) SELECT x, zeroblob(2000) FROM n",
    );
    let readers: Vec<Connection> = (0..3).map(|_| stores.open("a.flag")).collect();
    let sum = "SELECT count(*) || ' ' || sum(length(a)) || ' ' || sum(unicode(a)) FROM t";
    let mut seen = Vec::new();
    for (round, reader) in readers.iter().enumerate() {
        reader.run("PRAGMA cache_size = 5; BEGIN");
        seen.push(text(reader, sum));
        // Larger than the cache, so that it is written out before it commits; then a shrunk file.
        let change = [
            "UPDATE t SET a = 'x' || id || zeroblob(2500)",
            "DELETE FROM t WHERE id % 3 > 0; VACUUM",
            "INSERT INTO t (a) SELECT 'more' FROM t; DROP TABLE IF EXISTS u; CREATE TABLE u (b)",
        ][round];
        writer.run(change);
    }
    for (reader, seen) in readers.iter().zip(&seen) {
        assert_eq!(&text(reader, sum), seen);
        assert_well(reader);
        assert_eq!(&text(reader, sum), seen);
        reader.run("COMMIT");
        assert_eq!(text(reader, sum), text(&writer, sum));
    }
    assert_eq!(
        seen.iter().collect::<std::collections::BTreeSet<_>>().len(),
        3
    );
    assert_well(&writer);
}

/// What happens to a statement: the value that it reads, "done" or "busy".
fn outcome(db: &Connection, sql: &str) -> String {
    let value = db.query_row(sql, [], |row| row.get::<_, u32>(0));
    match value {
        Ok(value) => value.to_string(),
        Err(rusqlite::Error::QueryReturnedNoRows) => "done".into(),
        Err(error) if error.sqlite_error_code() == BUSY => "busy".into(),
        Err(error) => panic!("{sql}: {error}"),
    }
}

#[test]
fn who_waits_for_whom_is_as_the_table_says() {
    let stores = Stores::new();
    let on_store = || stores.open("a.flag");
    let on_plain = |name| plain(&stores.path(name));
    let modes: [(&str, &dyn Fn() -> Connection); 3] = [
        ("memory", &on_store),
        ("wal", &|| on_plain("wal.db")),
        ("delete", &|| on_plain("delete.db")),
    ];
    let found = modes.map(|(mode, open)| {
        let [writer, reader] = [open(), open()];
        assert_eq!(
            text(&writer, &format!("PRAGMA journal_mode = {mode}")),
            mode
        );
        for db in [&writer, &reader] {
            db.busy_timeout(Duration::ZERO).expect("a setting");
        }
        let rows = "SELECT count(*) FROM t";
        let fill = "INSERT INTO t WITH RECURSIVE n (x) AS (VALUES (1) UNION ALL
            SELECT x + 1 FROM n WHERE x < 40) SELECT zeroblob(3000) FROM n";
        writer.run("CREATE TABLE t (a); INSERT INTO t VALUES (1); PRAGMA cache_size = 5");
        [
            // Beside a transaction that fits into the cache.
            outcome(&writer, "BEGIN IMMEDIATE"),
            outcome(&writer, "INSERT INTO t VALUES (2)"),
            outcome(&reader, rows),
            outcome(&reader, "BEGIN IMMEDIATE"),
            // A long read: the commit, and what the read sees then.
            outcome(&reader, "BEGIN"),
            outcome(&reader, rows),
            outcome(&writer, "COMMIT"),
            outcome(&reader, rows),
            outcome(&reader, "COMMIT"),
            outcome(&writer, if mode == "delete" { "COMMIT" } else { rows }),
            // Beside a transaction that is larger than the cache.
            outcome(&writer, "BEGIN"),
            outcome(&writer, fill),
            outcome(&reader, rows),
            outcome(&writer, "COMMIT"),
            outcome(&reader, rows),
        ]
    });
    let waits = [
        "done", "done", "1", "busy", "done", "1", "busy", "1", "done", "done", "done", "done",
        "busy", "done", "42",
    ];
    let wal = [
        "done", "done", "1", "busy", "done", "1", "done", "1", "done", "2", "done", "done", "2",
        "done", "42",
    ];
    assert_eq!(found[0], wal);
    assert_eq!(found[1], wal);
    assert_eq!(found[2], waits);
}

#[test]
fn threads_share_a_store_and_lose_nothing() {
    const THREADS: u32 = 4;
    const EACH: u32 = 60;
    let stores = Stores::new();
    stores
        .open("a.flag")
        .run("CREATE TABLE t (a, b); CREATE INDEX i ON t (a)");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = stores.open("a.flag");
            scope.spawn(move || {
                db.busy_timeout(Duration::from_secs(60)).expect("a setting");
                for number in 0..EACH {
                    db.run("BEGIN IMMEDIATE");
                    let sum = text(&db, "SELECT count(*) FROM t");
                    let row = thread * EACH + number;
                    db.run(&format!("INSERT INTO t VALUES ({row}, {sum})"));
                    let undone = number % 5 == 4;
                    db.run(if undone { "ROLLBACK" } else { "COMMIT" });
                }
            });
        }
    });
    let db = stores.open("a.flag");
    assert_well(&db);
    let rows = (THREADS * EACH * 4 / 5).to_string();
    assert_eq!(text(&db, "SELECT count(*) FROM t"), rows);
    // Each counted those before it: the transactions were one after another.
    assert_eq!(text(&db, "SELECT count(DISTINCT b) FROM t"), rows);
}

/// A connection commits without a pause, and another one wants to commit once. Returns how many
/// commits of the first one it has waited for, for each of so many times.
fn commits_before_another(stores: &Stores, times: usize) -> Vec<u64> {
    let [busy, other] = [stores.open("a.flag"), stores.open("a.flag")];
    for db in [&busy, &other] {
        db.busy_timeout(Duration::from_secs(60)).expect("a setting");
    }
    busy.run("CREATE TABLE t (a)");
    let (commits, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (commits, is_over) = (&commits, &is_over);
        scope.spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                busy.run("INSERT INTO t VALUES (1)");
                commits.fetch_add(1, Ordering::SeqCst);
            }
        });
        let waited = (0..times).map(|_| {
            // The busy one goes on by itself.
            std::thread::sleep(Duration::from_millis(2));
            let before = commits.load(Ordering::SeqCst);
            other.run("INSERT INTO t VALUES (2)");
            commits.load(Ordering::SeqCst) - before
        });
        let waited = waited.collect();
        is_over.store(true, Ordering::SeqCst);
        waited
    })
}

#[test]
fn who_waits_to_write_is_next() {
    let mut waited = commits_before_another(&Stores::new(), 200);
    waited.sort_unstable();
    // The one under way. If nothing was promised, one in ten would wait for four to thirteen, and a
    // few for hundreds.
    assert!(waited[180] <= 2, "{waited:?}");
}

#[test]
fn who_has_given_up_waiting_holds_nobody_up() {
    let stores = Stores::new();
    let [one, other] = [stores.impatient("a.flag"), stores.open("a.flag")];
    other
        .busy_timeout(Duration::from_millis(5))
        .expect("a setting");
    one.run("CREATE TABLE t (a)");
    for _ in 0..10 {
        assert_eq!(outcome(&one, "BEGIN IMMEDIATE"), "done");
        assert_eq!(outcome(&other, "BEGIN IMMEDIATE"), "busy");
        assert_eq!(outcome(&one, "INSERT INTO t VALUES (1)"), "done");
        assert_eq!(outcome(&one, "COMMIT"), "done");
    }
}

#[test]
fn a_connection_that_is_closed_in_a_transaction_leaves_nothing() {
    let stores = Stores::new();
    let db = stores.open("a.flag");
    db.run("CREATE TABLE t (a PRIMARY KEY, b); INSERT INTO t VALUES (1, 1)");
    let other = stores.open("a.flag");
    db.run(
        "PRAGMA cache_size = 3; BEGIN;
         INSERT INTO t WITH RECURSIVE n(x) AS (VALUES (2) UNION ALL
           SELECT x + 1 FROM n WHERE x < 50) SELECT x, randomblob(4000) FROM n",
    );
    drop(db);
    assert_eq!(text(&other, "SELECT count(*) FROM t"), "1");
    assert_well(&other);
}

#[test]
fn attached_stores_are_atomic_each_by_itself() {
    let stores = Stores::new();
    let db = stores.open("a.flag");
    db.run(&format!("ATTACH '{}' AS b", stores.uri("b.flag", "")));
    let plain_uri = format!("file:{}?vfs=unix", stores.path("c.db").display());
    db.run(&format!("ATTACH '{plain_uri}' AS c"));
    db.run(
        "CREATE TABLE main.t (a); CREATE TABLE b.t (a); CREATE TABLE c.t (a);
         BEGIN; INSERT INTO main.t VALUES (1);
         INSERT INTO b.t VALUES (1); INSERT INTO c.t VALUES (1);
         COMMIT;
         BEGIN; INSERT INTO main.t VALUES (2);
         INSERT INTO b.t VALUES (2); INSERT INTO c.t VALUES (2);
         ROLLBACK",
    );
    drop(db);
    for db in [
        stores.open("a.flag"),
        stores.open("b.flag"),
        plain(&stores.path("c.db")),
    ] {
        assert_eq!(text(&db, "SELECT group_concat(a) FROM t"), "1");
        assert_well(&db);
    }
    assert_eq!(stores.names(), ["a.flag", "b.flag", "c.db"]);
}

#[test]
fn many_may_read_where_nobody_writes() {
    let stores = Stores::new();
    stores
        .open("a.flag")
        .run("CREATE TABLE t (a); INSERT INTO t VALUES (1)");
    let reader = Connection::open(stores.uri("a.flag", "&mode=ro")).expect("a database");
    assert_eq!(text(&reader, "SELECT a FROM t"), "1");
    let refused = reader.refused("INSERT INTO t VALUES (2)");
    assert_eq!(refused, Some(ErrorCode::ReadOnly));
    // One that writes comes, waits for a reader, and the reader sees what it wrote.
    reader.run("BEGIN");
    assert_eq!(text(&reader, "SELECT a FROM t"), "1");
    let writer = stores.impatient("a.flag");
    assert_eq!(writer.refused("INSERT INTO t VALUES (3)"), BUSY);
    reader.run("COMMIT");
    writer.run("INSERT INTO t VALUES (3)");
    assert_eq!(text(&reader, "SELECT group_concat(a) FROM t"), "1,3");
    assert_well(&reader);
}

#[test]
fn a_store_that_another_opened_is_busy_until_it_is_closed() {
    let stores = Stores::new();
    stores
        .open("a.flag")
        .run("CREATE TABLE t (a); INSERT INTO t VALUES (1)");
    // As another process would: the library locks the file, not the name.
    let other = flagstone_store::PageStore::open(
        &stores.path("a.flag"),
        &flagstone_store::OpenOptions::existing(),
    )
    .expect("a store");
    let db = stores.impatient("a.flag");
    assert_eq!(db.refused("SELECT a FROM t"), BUSY, "it is in use");
    db.busy_timeout(Duration::from_secs(60)).expect("a setting");
    let closing = std::thread::scope(|scope| {
        let waits = scope.spawn(|| text(&stores.open("a.flag"), "SELECT a FROM t"));
        std::thread::sleep(Duration::from_millis(50));
        drop(other);
        waits.join()
    });
    assert_eq!(closing.expect("it waited"), "1");
    assert_eq!(text(&db, "SELECT a FROM t"), "1");
}

#[test]
fn those_who_wait_for_another_process_share_the_store_then() {
    let stores = Stores::new();
    let sql = "CREATE TABLE t (a); INSERT INTO t VALUES (1)";
    stores.open("a.flag").run(sql);
    std::fs::hard_link(stores.path("a.flag"), stores.path("b.flag")).expect("a link");
    let options = flagstone_store::OpenOptions::existing();
    let other = flagstone_store::PageStore::open(&stores.path("a.flag"), &options);
    let other = other.expect("a store");
    let waiting = ["a.flag", "a.flag", "b.flag"].map(|name| stores.open(name));
    drop(other);
    let late = ["a.flag", "b.flag"].map(|name| stores.open(name));
    for db in waiting.iter().chain(&late) {
        db.busy_timeout(Duration::ZERO).expect("a setting");
        assert_eq!(outcome(db, "SELECT a FROM t"), "1");
    }
}

#[test]
fn links_lead_to_the_same_store_and_a_new_file_is_another() {
    let stores = Stores::new();
    let db = stores.open("a.flag");
    db.run("CREATE TABLE t (a)");
    std::os::unix::fs::symlink(stores.path("a.flag"), stores.path("soft.flag")).expect("a link");
    std::fs::hard_link(stores.path("a.flag"), stores.path("hard.flag")).expect("a link");
    for name in ["soft.flag", "hard.flag"] {
        stores
            .impatient(name)
            .run(&format!("INSERT INTO t VALUES ('{name}')"));
    }
    assert_eq!(text(&db, "SELECT count(*) FROM t"), "2");
    for name in ["a.flag", "soft.flag", "hard.flag"] {
        std::fs::remove_file(stores.path(name)).expect("a name");
    }
    let new = stores.open("a.flag");
    assert_eq!(text(&new, "SELECT count(*) FROM sqlite_schema"), "0");
    new.run("CREATE TABLE u (a)");
    assert_eq!(text(&db, "SELECT count(*) FROM t"), "2");
}

#[test]
fn a_store_without_its_name_is_not_written_to() {
    let stores = Stores::new();
    let [first, second] = ["a.flag", "b.flag"].map(|name| stores.path(name));
    let db = stores.open("a.flag");
    db.run("CREATE TABLE t (a)");
    std::fs::hard_link(&first, &second).expect("a link");
    let linked = stores.open("b.flag");
    let insert = "INSERT INTO t VALUES (1)";
    let refused = |db: &Connection| {
        let error = db.execute_batch(insert).expect_err("it would be lost");
        let moved = rusqlite::ffi::SQLITE_READONLY_DBMOVED;
        let code = error.sqlite_error().map(|error| error.extended_code);
        assert_eq!(code, Some(moved), "{error}");
    };
    // Gone, and another file by that name. The other name still leads to the store.
    std::fs::remove_file(&first).expect("a name");
    refused(&db);
    std::fs::write(&first, "another").expect("a file");
    refused(&db);
    linked.run(insert);
    // Back again.
    std::fs::rename(&second, &first).expect("a name");
    refused(&linked);
    db.run(insert);
    assert_eq!(text(&db, "SELECT count(*) FROM t"), "2");
    assert_well(&db);
}

#[test]
fn a_store_is_copied_and_checked_beside_a_writer() {
    let stores = Stores::new();
    let db = stores.open("a.flag");
    let rows = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) \
                INSERT INTO t SELECT i, 0, zeroblob(200) FROM n";
    db.run("CREATE TABLE t (i INTEGER PRIMARY KEY, a, b)");
    db.run(rows);
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let db = stores.open("a.flag");
            let mut rounds = 0;
            while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                db.run("UPDATE t SET a = a + 1");
                rounds += 1;
            }
            rounds
        });
        for round in 0..3 {
            let name = format!("copy-{round}.flag");
            let to = stores.path(&name);
            let backup = format!("PRAGMA flagstone_backup='{}'", to.display());
            assert!(text(&db, &backup).ends_with(" pages"));
            assert_eq!(text(&db, "PRAGMA flagstone_check"), "ok");
            let copy = stores.open(&name);
            assert_well(&copy);
            // Of one transaction.
            assert_eq!(text(&copy, "SELECT count(DISTINCT a) FROM t"), "1");
            assert_eq!(text(&copy, "SELECT count(*) FROM t"), "2000");
            let again = db
                .query_row(&backup, [], |_| Ok(()))
                .expect_err("it is there");
            assert!(
                again.to_string().contains("the file exists already"),
                "{again}"
            );
        }
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(writer.join().expect("it does not panic") > 3);
    });
    let unnamed = db.query_row("PRAGMA flagstone_backup", [], |_| Ok(()));
    let unnamed = unnamed.expect_err("it has no name").to_string();
    assert!(unnamed.contains("give the path of a new file"), "{unnamed}");
}

/// What the functions below have given SQLite, by address.
static REGISTERED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// SQLite's function, with time for another thread to ask as well before the answer is used.
unsafe extern "C" fn slow_find(name: *const c_char) -> *mut sqlite3_vfs {
    // SAFETY: as for this function.
    let found = unsafe { sqlite3_vfs_find(name) };
    std::thread::sleep(Duration::from_millis(20));
    found
}

/// SQLite's function, noted.
unsafe extern "C" fn noted_register(vfs: *mut sqlite3_vfs, is_default: c_int) -> c_int {
    let mut registered = REGISTERED.lock().expect("nobody has panicked");
    registered.insert(vfs.addr());
    // SAFETY: as for this function.
    unsafe { sqlite3_vfs_register(vfs, is_default) }
}

/// Each of two VFSs of one name would have stores of its own, and find those of the other one
/// locked for ever.
#[test]
#[expect(
    clippy::missing_transmute_annotations,
    reason = "the types that they become have no public names"
)]
fn threads_that_register_at_once_have_one_vfs() {
    let mut functions = flagstone_sqlite::functions!(rusqlite::ffi);
    // SAFETY: the types differ in their names only.
    unsafe {
        functions.vfs_find = std::mem::transmute(slow_find as *const ());
        functions.vfs_register = std::mem::transmute(noted_register as *const ());
    }
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (name, files) = ("flagstone-at-once", Box::new(flagstone_sqlite::Files));
                // SAFETY: the functions are those of the SQLite that is linked.
                unsafe { flagstone_sqlite::register_as(&functions, name, files, false) }
                    .expect("SQLite takes the VFS");
            });
        }
    });
    assert_eq!(REGISTERED.lock().expect("nobody has panicked").len(), 1);
}
