//! Tests of `check`: a store may be intact although the trees of its database are not.

use flagstone::units::Lpn;
use flagstone_store::{OpenOptions, PageStore};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn run(arguments: &[&str], path: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flagstone-sqlite"));
    command.args(arguments).arg(path);
    command.output().expect("it runs")
}

#[test]
fn a_damaged_database_in_a_whole_store_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let (plain, path) = (folder.path().join("app.db"), folder.path().join("app.flag"));
    let db = rusqlite::Connection::open(&plain).expect("a database");
    db.execute_batch(
        "CREATE TABLE t (a INTEGER PRIMARY KEY, b); CREATE INDEX i ON t (b);
         INSERT INTO t WITH RECURSIVE n (x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM n
         WHERE x < 2000) SELECT x, hex(x * 7919) FROM n",
    )
    .expect("rows");
    drop(db);
    let mut import = Command::new(env!("CARGO_BIN_EXE_flagstone-sqlite"));
    let imported = import.arg("import").args([&plain, &path]).output();
    assert!(imported.expect("it runs").status.success());
    let well = run(&["check", "--json"], &path);
    let said = String::from_utf8_lossy(&well.stdout).into_owned();
    assert!(
        well.status.success() && said.contains(r#""ok":true"#),
        "{said}"
    );
    // Replace a page of the database by another one, as a torn copy may. The store stays intact.
    let mut store = PageStore::open(&path, &OpenOptions::existing()).expect("a store");
    let mut page = vec![0; PageStore::PAGE_BYTES];
    let bytes = store.read(None, Lpn(4), &mut page).expect("a page");
    page.truncate(bytes.expect("it is there"));
    let tx = store.begin().expect("a transaction");
    store.write(tx, Lpn(7), &page).expect("written");
    store.commit(tx).expect("committed");
    assert!(store.check().expect("it reads").is_well());
    drop(store);
    let found = run(&["check"], &path);
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert_eq!(found.status.code(), Some(1), "{said}");
    assert!(said.contains("the database is damaged"), "{said}");
    let found = run(&["check", "--json"], &path);
    assert!(String::from_utf8_lossy(&found.stdout).contains(r#""ok":false"#));
    // An error, and not a finding: the message names the file.
    let missing = run(&["check"], &folder.path().join("missing.flag"));
    assert_eq!(missing.status.code(), Some(2), "it is no verdict");
    assert!(String::from_utf8_lossy(&missing.stderr).contains("missing.flag"));
}

/// Copies a file as `cp` does while it is being written: its parts are from different moments.
fn copy(from: &Path, to: &Path) {
    let mut from = std::fs::File::open(from).expect("a file");
    let mut to = std::fs::File::create(to).expect("room");
    let mut piece = vec![0; 128 << 10];
    loop {
        let bytes = from.read(&mut piece).expect("it reads");
        if bytes == 0 {
            return;
        }
        to.write_all(&piece[..bytes]).expect("room");
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Commits a row, and deletes old ones. After each commit the row numbers have no gap.
fn commit_row(db: &rusqlite::Connection, n: u32) {
    let bytes = [100, 5000, 30000][n as usize % 3];
    db.execute("INSERT INTO t VALUES (?, randomblob(?))", [n, bytes])
        .expect("a row");
    db.execute("DELETE FROM t WHERE n < ?", [n.saturating_sub(300)])
        .expect("rows");
}

#[test]
fn no_torn_copy_of_a_store_in_use_is_called_well() {
    flagstone_sqlite::register!(rusqlite::ffi).expect("SQLite takes the VFS");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name| folder.path().join(name);
    let open = |name| {
        let uri = format!("file:{}?vfs=flagstone", path(name).display());
        rusqlite::Connection::open(uri).expect("a database")
    };
    let db = open("app.flag");
    db.execute_batch("CREATE TABLE t (n INTEGER PRIMARY KEY, b); CREATE INDEX i ON t (b)")
        .expect("tables");
    let done = AtomicBool::new(false);
    let [mut refused, mut damaged, mut called_well] = [0; 3];
    std::thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            (0..)
                .take_while(|_| !done.load(Ordering::Relaxed))
                .for_each(|n| commit_row(&db, n));
        });
        for _ in 0..25 {
            std::thread::sleep(Duration::from_millis(50));
            copy(&path("app.flag"), &path("torn.flag"));
            let verdict = run(&["check"], &path("torn.flag")).status.code();
            let torn = open("torn.flag");
            let said = |sql| torn.query_row(sql, [], |row| row.get::<_, String>(0));
            let whole = said("PRAGMA integrity_check").is_ok_and(|said| said == "ok")
                && said("SELECT CAST(max(n) - min(n) + 1 = count(*) AS TEXT) FROM t")
                    .is_ok_and(|said| said == "1");
            refused += i32::from(verdict == Some(2));
            damaged += i32::from(verdict == Some(1));
            called_well += i32::from(!whole && verdict == Some(0));
        }
        done.store(true, Ordering::Relaxed);
    });
    println!(
        "of 25 copies {refused} are of no whole store, {damaged} have a damaged database; \
         {called_well} are called well and are not"
    );
    assert!(refused + damaged > 0, "no copy was torn");
    assert_eq!(called_well, 0);
}
