//! The check of a database in a store, whose pages may be whole and its trees not.

use flagstone::units::Lpn;
use flagstone_store::{OpenOptions, PageStore};
use std::path::Path;
use std::process::{Command, Output};

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
    // A page of the database becomes another one, as in a torn copy: the store below is whole.
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
    // What is no verdict is an error, and says which file.
    let missing = run(&["check"], &folder.path().join("missing.flag"));
    assert_eq!(missing.status.code(), Some(2), "it is no verdict");
    assert!(String::from_utf8_lossy(&missing.stderr).contains("missing.flag"));
}
