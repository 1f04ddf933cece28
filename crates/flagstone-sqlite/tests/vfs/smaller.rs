//! Databases of which most was deleted: after VACUUM their files are small.

use crate::support::{Sql, Stores, assert_well, text};
use rusqlite::Connection;

/// Fills a table with so many rows of 2,000 bytes.
fn fill(db: &Connection, rows: u32) {
    db.run("CREATE TABLE t (id INTEGER PRIMARY KEY, bytes)");
    for first in (0..rows).step_by(2_000) {
        db.run(&format!(
            "WITH RECURSIVE n (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n
                 WHERE i < {first} + 1999)
             INSERT INTO t SELECT i, randomblob(2000) FROM n;"
        ));
    }
}

#[test]
fn after_a_vacuum_the_file_is_at_most_twice_what_the_database_has() {
    let stores = Stores::new();
    let bytes = || {
        std::fs::metadata(stores.path("app.flag"))
            .expect("it is there")
            .len()
    };
    let db = stores.open("app.flag");
    fill(&db, 40_000);
    let before = bytes();
    db.run("DELETE FROM t WHERE id % 10 > 0; VACUUM");
    let sum = text(&db, "SELECT count(*) || hex(max(bytes)) FROM t");
    let live: u64 = text(&db, "PRAGMA page_count").parse().expect("a number");
    let live = live * 4096;
    assert!(
        bytes() <= 2 * live + (1 << 20),
        "{} of {before} for {live}",
        bytes()
    );
    assert_well(&db);
    drop(db);
    let db = stores.open("app.flag");
    assert_eq!(text(&db, "SELECT count(*) || hex(max(bytes)) FROM t"), sum);
    assert_eq!(text(&db, "PRAGMA flagstone_check"), "ok");
    // It grows again.
    db.run("INSERT INTO t SELECT id + 1, bytes FROM t");
    assert_eq!(text(&db, "SELECT count(*) FROM t"), "8000");
    assert_well(&db);
}

/// A reader goes on with what it has seen, and the file is cut when it has ended.
#[test]
fn a_reader_beside_a_vacuum_sees_what_it_saw() {
    let stores = Stores::new();
    let bytes = || {
        std::fs::metadata(stores.path("app.flag"))
            .expect("it is there")
            .len()
    };
    let (db, reader) = (stores.open("app.flag"), stores.open("app.flag"));
    fill(&db, 12_000);
    reader.run("BEGIN");
    assert_eq!(text(&reader, "SELECT count(*) FROM t"), "12000");
    db.run("DELETE FROM t WHERE id % 10 > 0; VACUUM");
    let before = bytes();
    assert_eq!(
        text(&reader, "SELECT sum(length(bytes)) FROM t"),
        "24000000"
    );
    reader.run("COMMIT");
    assert_eq!(text(&reader, "SELECT count(*) FROM t"), "1200");
    db.run("UPDATE t SET bytes = randomblob(2000) WHERE id = 0");
    assert!(bytes() < before / 2, "{} of {before}", bytes());
    assert_well(&reader);
}
