//! SQLite on stores: what SQL does, for one connection.

use crate::support::{Sql, Stores, assert_well, plain, text};
use rusqlite::Connection;
use std::path::Path;
use std::time::Duration;

#[test]
fn transactions_savepoints_and_rollbacks() {
    let stores = Stores::new();
    let db = stores.open("a.flag");
    db.run(
        "CREATE TABLE t (a INTEGER PRIMARY KEY, b);
         INSERT INTO t VALUES (1, 'one'), (2, 'two');
         BEGIN; UPDATE t SET b = 'changed'; ROLLBACK;
         BEGIN;
           INSERT INTO t VALUES (3, 'three');
           SAVEPOINT s; UPDATE t SET b = 'inner'; ROLLBACK TO s; RELEASE s;
           SAVEPOINT u; INSERT INTO t VALUES (4, 'four'); RELEASE u;
         COMMIT",
    );
    let twice = db.execute_batch("INSERT INTO t VALUES (9, 'nine'), (1, 'one again')");
    twice.expect_err("there is one already");
    let all = "SELECT group_concat(b) FROM t";
    assert_eq!(text(&db, all), "one,two,three,four");
    drop(db);
    let db = stores.open("a.flag");
    assert_eq!(text(&db, all), "one,two,three,four");
    assert_well(&db);
    assert_eq!(stores.names(), ["a.flag"]);
}

/// Fills a table with blobs that a number determines, some of them large.
fn fill(db: &Connection, rows: u32) {
    db.run(
        "CREATE TABLE IF NOT EXISTS t (a INTEGER PRIMARY KEY, b BLOB, c TEXT);
         CREATE INDEX IF NOT EXISTS i ON t (c)",
    );
    let sql = "WITH RECURSIVE n(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM n WHERE x < ?1)
               INSERT INTO t (b, c) SELECT zeroblob(x * 7919 % 9000), hex(x * 7919) FROM n";
    db.execute(sql, [rows]).expect("rows");
}

fn sum(db: &Connection) -> String {
    let sql = "SELECT count(*) || ',' || total(length(b)) || ',' || max(c) FROM t";
    text(db, sql)
}

fn page_count(db: &Connection) -> u32 {
    let pages = text(db, "PRAGMA page_count");
    pages.parse().expect("a number")
}

/// Copies a database into a plain file.
fn vacuum_into_plain(db: &Connection, path: &Path) {
    db.run(&format!("VACUUM INTO 'file:{}?vfs=unix'", path.display()));
}

/// Copies a database page by page.
fn back_up(from: &Connection, to: &mut Connection, pages: i32) {
    let backup = rusqlite::backup::Backup::new(from, to).expect("a backup");
    let copied = backup.run_to_completion(pages, Duration::ZERO, None);
    copied.expect("it is copied");
}

/// Bytes that a plain database reserves in each page.
fn reserved_in(path: &Path) -> u8 {
    std::fs::read(path).expect("a file")[20]
}

#[test]
fn a_transaction_may_be_larger_than_the_cache() {
    let stores = Stores::new();
    let db = stores.open("a.flag");
    db.run("PRAGMA cache_size = 5");
    fill(&db, 300);
    let before = sum(&db);
    db.run("BEGIN; UPDATE t SET b = randomblob(6000), c = hex(a); DELETE FROM t WHERE a % 3");
    // It reads its own writes, which left the cache, and undoes a part and all of them.
    assert_eq!(text(&db, "SELECT count(*) FROM t"), "100");
    db.run("SAVEPOINT s; UPDATE t SET b = randomblob(8000); ROLLBACK TO s");
    assert_eq!(text(&db, "SELECT total(length(b)) FROM t"), "600000");
    db.run("ROLLBACK");
    assert_eq!(sum(&db), before);
    assert_well(&db);
    drop(db);
    let db = stores.open("a.flag");
    assert_eq!(sum(&db), before);
    db.run("PRAGMA cache_size = 5; BEGIN; UPDATE t SET b = zeroblob(5000)");
    // Closed in the middle: nothing of it stays.
    drop(db);
    let db = stores.open("a.flag");
    assert_eq!(sum(&db), before);
    assert_well(&db);
}

#[test]
fn pages_of_any_size_with_vacuum() {
    for page in [512, 1024, 2048, 4096, 8192, 65536] {
        let stores = Stores::new();
        let db = stores.open("a.flag");
        db.run(&format!("PRAGMA page_size = {page}"));
        fill(&db, 120);
        assert_eq!(text(&db, "PRAGMA page_size"), page.to_string());
        let before = sum(&db);
        db.run("DELETE FROM t WHERE a > 60; VACUUM; PRAGMA cache_size = 7");
        let pages = page_count(&db);
        assert_well(&db);
        fill(&db, 60);
        drop(db);
        let db = stores.open("a.flag");
        assert_well(&db);
        assert_eq!(text(&db, "SELECT count(*) FROM t"), "120");
        assert!(page_count(&db) >= pages);
        assert_ne!(before, "");
    }
}

#[test]
fn a_new_database_has_reserved_bytes_without_being_asked() {
    let stores = Stores::new();
    let db = stores.open("a.flag");
    fill(&db, 50);
    db.run("VACUUM");
    // Without a VFS it is another store.
    db.run(&format!(
        "VACUUM INTO '{}'",
        stores.path("b.flag").display()
    ));
    assert_eq!(sum(&stores.open("b.flag")), sum(&db));
    vacuum_into_plain(&db, &stores.path("plain.db"));
    let bytes = std::fs::read(stores.path("plain.db")).expect("a file");
    assert_eq!((bytes[20], bytes.len() % 4096), (64, 0));
    assert!(bytes.chunks(4096).all(|page| page[4032..] == [0; 64]));
    let out = plain(&stores.path("plain.db"));
    assert_well(&out);
    assert_eq!(sum(&out), sum(&db));
}

#[test]
fn vacuum_into_a_store_reserves_bytes_too() {
    let stores = Stores::new();
    let db = plain(&stores.path("plain.db"));
    fill(&db, 80);
    let into = format!("VACUUM INTO '{}'", stores.uri("in.flag", ""));
    db.run(&into);
    let store = stores.open("in.flag");
    assert_well(&store);
    assert_eq!(sum(&store), sum(&db));
    vacuum_into_plain(&store, &stores.path("back.db"));
    assert_eq!(reserved_in(&stores.path("back.db")), 64);
    // A second time it is refused, as for any file.
    let again = db.execute_batch(&into).expect_err("it is not empty");
    assert!(again.to_string().contains("already exists"), "{again}");
}

/// Bytes that a database reserves in each page.
fn reserved(stores: &Stores, db: &Connection) -> u8 {
    // Page by page: VACUUM INTO would copy the number that is wanted.
    let path = stores.path("header.db");
    back_up(db, &mut plain(&path), 100);
    let bytes = reserved_in(&path);
    std::fs::remove_file(path).expect("a file");
    bytes
}

#[test]
fn a_backup_goes_both_ways_and_vacuum_reserves_bytes_later() {
    let stores = Stores::new();
    let from = plain(&stores.path("plain.db"));
    from.run("PRAGMA journal_mode = WAL");
    fill(&from, 80);
    let mut store = stores.open("in.flag");
    back_up(&from, &mut store, 5);
    assert_well(&store);
    assert_eq!(sum(&store), sum(&from));
    // Apart at first. VACUUM makes room for the store.
    assert_eq!(reserved(&stores, &store), 0);
    store.run("INSERT INTO t (b) VALUES ('more'); VACUUM");
    assert_eq!(reserved(&stores, &store), 64);
    assert_well(&store);
    let mut back = plain(&stores.path("back.db"));
    back_up(&store, &mut back, 100);
    assert_well(&back);
    assert_eq!(sum(&store), sum(&back));
    drop(back);
    assert_eq!(reserved_in(&stores.path("back.db")), 64);
}

#[test]
fn no_journal_mode_is_silently_unsafe() {
    let stores = Stores::new();
    let db = stores.open("a.flag");
    fill(&db, 20);
    assert_eq!(text(&db, "PRAGMA journal_mode"), "memory");
    let nines = "SELECT count(*) FROM t WHERE length(b) = 9000";
    for mode in ["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "OFF", "WAL"] {
        assert_eq!(
            text(&db, &format!("PRAGMA journal_mode = {mode}")),
            "memory",
            "{mode}"
        );
        db.run("PRAGMA cache_size = 3; BEGIN; UPDATE t SET b = zeroblob(9000); ROLLBACK");
        assert_eq!(text(&db, nines), "0");
    }
    for (locking, synchronous) in [
        ("EXCLUSIVE", "FULL"),
        ("NORMAL", "OFF"),
        ("EXCLUSIVE", "OFF"),
    ] {
        db.run(&format!(
            "PRAGMA locking_mode = {locking}; PRAGMA synchronous = {synchronous};
             BEGIN; UPDATE t SET b = zeroblob(9000); ROLLBACK;
             UPDATE t SET c = '{locking}{synchronous}'; VACUUM"
        ));
        assert_well(&db);
    }
    drop(db);
    let db = stores.open("a.flag");
    assert_eq!(
        text(&db, "SELECT count(*) FROM t WHERE c = 'EXCLUSIVEOFF'"),
        "20"
    );
    assert_eq!(text(&db, nines), "0");
}

/// SQLite names the column of an answer that comes from a VFS after the answer itself. Programs
/// that read by name ask the table of that name.
#[test]
fn the_journal_mode_has_its_name_in_the_table_of_the_pragma() {
    let stores = Stores::new();
    let db = stores.open("a.flag");
    let mode = "SELECT journal_mode FROM pragma_journal_mode";
    assert_eq!(text(&db, mode), "memory");
    let statement = db.prepare("PRAGMA journal_mode").expect("a pragma");
    assert_eq!(statement.column_names(), ["memory"]);
    let statement = db.prepare("SELECT * FROM pragma_journal_mode");
    assert_eq!(statement.expect("a table").column_names(), ["journal_mode"]);
}

#[test]
fn a_wish_for_a_log_is_answered_with_the_mode_that_stays() {
    let stores = Stores::new();
    let db = stores.open("a.flag");
    // As many programs begin: what follows must not be lost.
    db.run("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON");
    assert_eq!(text(&db, "PRAGMA main.journal_mode = wal"), "memory");
    assert_eq!(text(&db, "PRAGMA foreign_keys"), "1");
    fill(&db, 20);
    assert_eq!(stores.names(), ["a.flag"], "there is no log");
    drop(db);
    // Who wants to hear of it says so.
    let strict = Connection::open(stores.uri("a.flag", "&wal=refuse")).expect("a database");
    let wal = strict.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()));
    let why = wal.expect_err("refused").to_string();
    assert!(why.contains("needs no write-ahead log"), "{why}");
    assert_eq!(text(&strict, "PRAGMA journal_mode"), "memory");
    assert_eq!(text(&strict, "SELECT count(*) FROM t"), "20");
    let other = Connection::open(stores.uri("a.flag", "&wal=on"));
    other.expect_err("there is no such value");
}

#[test]
fn modes_that_come_by_way_of_a_plain_database_are_not_unsafe_either() {
    let stores = Stores::new();
    let db = plain(&stores.path("plain.db"));
    db.run(&format!("ATTACH '{}' AS store", stores.uri("a.flag", "")));
    db.run("CREATE TABLE store.t (a); INSERT INTO store.t VALUES (1)");
    assert_eq!(text(&db, "PRAGMA journal_mode = OFF"), "off");
    let write = db.execute("INSERT INTO store.t VALUES (2)", []);
    write.expect_err("a store is not written to without a journal");
    assert_eq!(text(&db, "SELECT group_concat(a) FROM store.t"), "1");
    assert!(text(&db, "PRAGMA store.flagstone_error").contains("journal_mode=OFF"));
    assert_eq!(text(&db, "PRAGMA store.journal_mode = MEMORY"), "memory");
    db.run("INSERT INTO store.t VALUES (3)");
    db.run("PRAGMA locking_mode = EXCLUSIVE");
    let _ = db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()));
    let _ = db.execute("INSERT INTO store.t VALUES (4)", []);
    drop(db);
    let db = stores.open("a.flag");
    assert_well(&db);
    assert!(["1,3", "1,3,4"].contains(&text(&db, "SELECT group_concat(a) FROM t").as_str()));
}

#[test]
fn auto_vacuum_gives_pages_back() {
    for mode in ["FULL", "INCREMENTAL"] {
        let stores = Stores::new();
        let db = stores.open("a.flag");
        db.run(&format!("PRAGMA auto_vacuum = {mode}"));
        fill(&db, 200);
        let before = page_count(&db);
        db.run("DELETE FROM t WHERE a > 20");
        let mut vacuum = db.prepare("PRAGMA incremental_vacuum").expect("a pragma");
        let mut rows = vacuum.query([]).expect("it works");
        while rows.next().expect("it works").is_some() {}
        drop(rows);
        drop(vacuum);
        assert!(page_count(&db) < before / 2);
        assert_well(&db);
        drop(db);
        let db = stores.open("a.flag");
        assert!(page_count(&db) < before / 2);
        assert_well(&db);
    }
}

#[test]
fn protocols_by_name() {
    let stores = Stores::new();
    for protocol in ["seal", "scc", "lighttx", "mixsl", "aw"] {
        let uri = stores.uri(
            &format!("{protocol}.flag"),
            &format!("&protocol={protocol}"),
        );
        let db = Connection::open(uri).expect("a database");
        fill(&db, 30);
        drop(db);
        assert_well(&stores.open(&format!("{protocol}.flag")));
    }
    for (protocol, why) in [
        ("nonsense", "no commit protocol"),
        ("cfc", "reprograms pages"),
        ("plain", "does not keep transactions atomic"),
    ] {
        let uri = stores.uri("new.flag", &format!("&protocol={protocol}"));
        Connection::open(uri).expect_err("it cannot be");
        let message = text(&stores.open("seal.flag"), "PRAGMA flagstone_error");
        assert!(message.contains(why), "{message}");
    }
    assert!(
        !stores
            .path("new.flag")
            .metadata()
            .is_ok_and(|meta| meta.len() > 0)
    );
    // One that was made by somebody else.
    let mut options = flagstone_store::OpenOptions::default();
    options.protocol = flagstone::commit::Kind::Plain;
    drop(flagstone_store::PageStore::open(&stores.path("plain.flag"), &options).expect("a store"));
    Connection::open(stores.uri("plain.flag", "")).expect_err("it is not atomic");
}

#[test]
fn what_is_no_store_is_refused() {
    let stores = Stores::new();
    fill(&plain(&stores.path("plain.db")), 3);
    // As with a file that is no database: it opens, and the first statement fails.
    let opened = Connection::open(stores.uri("plain.db", "")).expect("nobody has looked yet");
    let attached = stores.open("a.flag");
    let uri = stores.uri("plain.db", "");
    for error in [
        opened.execute_batch("CREATE TABLE t (a)"),
        opened.execute_batch("SELECT * FROM sqlite_schema"),
        attached.execute("ATTACH ?1 AS b", [uri]).map(|_| ()),
    ] {
        let error = error.expect_err("it is no store");
        let code = error.sqlite_error_code();
        assert_eq!(code, Some(rusqlite::ErrorCode::NotADatabase), "{error}");
    }
    let why = text(&attached, "PRAGMA flagstone_error");
    assert!(why.contains("plain.db"), "{why}");
    drop(opened);
    assert_well(&plain(&stores.path("plain.db")));
    let missing = Connection::open(stores.uri("missing.flag", "&mode=rw"));
    assert!(missing.is_err() && !stores.path("missing.flag").exists());
    let folder = Connection::open(stores.uri("", "")).expect_err("it is a folder");
    let code = folder.sqlite_error_code();
    assert_eq!(code, Some(rusqlite::ErrorCode::CannotOpen), "{folder}");
}

/// SQLite before 3.39 does not say the names of databases.
#[test]
fn an_older_sqlite_is_safe_too() {
    let stores = Stores::new();
    let mut functions = flagstone_sqlite::functions!(rusqlite::ffi);
    functions.db_name = None;
    let files = Box::new(flagstone_sqlite::Files);
    // SAFETY: the functions are those of the SQLite that is linked.
    unsafe { flagstone_sqlite::register_as(&functions, "flagstone-old", files, false) }
        .expect("SQLite takes the VFS");
    let uri = |name: &str| format!("file:{}?vfs=flagstone-old", stores.path(name).display());
    let db = Connection::open(uri("a.flag")).expect("a database");
    fill(&db, 30);
    assert_eq!(reserved(&stores, &db), 64);
    assert_eq!(text(&db, "PRAGMA journal_mode = MEMORY"), "memory");
    db.run("UPDATE t SET c = 'changed'");
    drop(db);
    let db = plain(&stores.path("plain.db"));
    let attach = format!("ATTACH '{}' AS b", uri("b.flag"));
    db.run(&attach);
    db.run("CREATE TABLE b.t (a); INSERT INTO b.t VALUES (1)");
    assert_eq!(text(&db, "PRAGMA b.journal_mode = MEMORY"), "memory");
    db.run("INSERT INTO b.t VALUES (2)");
    assert_eq!(text(&db, "PRAGMA journal_mode = OFF"), "off");
    db.execute("INSERT INTO b.t VALUES (3)", [])
        .expect_err("it may have none");
    db.run("DETACH b");
    db.run(&attach);
    db.run("INSERT INTO b.t VALUES (4)");
    assert_eq!(text(&db, "SELECT group_concat(a) FROM b.t"), "1,2,4");
    assert_eq!(text(&db, "PRAGMA b.integrity_check"), "ok");
}
