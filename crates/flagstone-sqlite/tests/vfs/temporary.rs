//! What SQLite keeps for a while stays off the store: temporary tables, sorts, and statements that
//! are taken back.

use crate::support::{Sql, Stores, text};

/// Rows whose sort and temporary copy are larger than the cache of the connection.
const ROWS: u32 = 20_000;

#[test]
fn temporary_tables_and_sorts_stay_off_the_store() {
    let stores = Stores::new();
    let db = stores.open("app.flag");
    db.run(&format!(
        "PRAGMA temp_store = FILE; PRAGMA cache_size = 20; PRAGMA temp.cache_size = 20;
         CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
         INSERT INTO note SELECT i, printf('%08d note', i * 7919 % 100003) FROM n;"
    ));
    let of_store = || {
        let store = stores.path("app.flag").metadata().expect("it is there");
        (store.len(), text(&db, "PRAGMA page_count"), stores.names())
    };
    let before = of_store();
    db.run(
        "CREATE TEMP TABLE copy AS SELECT * FROM note;
         CREATE INDEX temp.by_text ON copy (text);
         UPDATE copy SET text = text || text || text;",
    );
    let sorted = "SELECT group_concat(text) FROM (SELECT text FROM note ORDER BY text)";
    assert!(text(&db, sorted).starts_with("00000"));
    assert_eq!(text(&db, "SELECT count(*) FROM copy"), ROWS.to_string());
    assert_eq!(of_store(), before);
    drop(db);
    let db = stores.open("app.flag");
    assert!(db.prepare("SELECT * FROM copy").is_err());
    assert_eq!(text(&db, "PRAGMA integrity_check"), "ok");
}

/// The control: the same table that is not temporary is in the store.
#[test]
fn a_table_that_is_not_temporary_is_in_the_store() {
    let stores = Stores::new();
    let db = stores.open("app.flag");
    let pages = || text(&db, "PRAGMA page_count").parse::<u32>();
    let before = pages().expect("a number");
    db.run(
        "CREATE TABLE copy (bytes);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
         INSERT INTO copy SELECT zeroblob(1000) FROM n;",
    );
    assert!(pages().expect("a number") > before + 40);
}
