//! Files that are no store: SQLite says so, and changes nothing.

use crate::support::{Sql, Stores, text};
use rusqlite::{Connection, OpenFlags};

/// What begins with zeros and is something else.
fn others() -> Vec<Vec<u8>> {
    let mut image = vec![0; 400_000];
    image[0x8001..0x8006].copy_from_slice(b"CD001");
    vec![vec![0; 8192], vec![0; 1 << 20], image]
}

#[test]
fn a_select_makes_no_store_of_something_else() {
    let stores = Stores::new();
    for bytes in others() {
        std::fs::write(stores.path("other"), &bytes).expect("room");
        for parameters in [
            "",
            "&mode=rw",
            "&mode=ro",
            "&mode=ro&create=force",
            "&mode=rw&create=force",
        ] {
            let db = Connection::open(stores.uri("other", parameters)).expect("at the first lock");
            for sql in ["SELECT count(*) FROM sqlite_master", "CREATE TABLE t (x)"] {
                let said = db
                    .execute_batch(sql)
                    .expect_err("it is no store")
                    .to_string();
                assert!(said.contains("not a database"), "{said}");
            }
            let why = text(&db, "PRAGMA flagstone_error");
            assert!(why.contains("not a Flagstone store"), "{why}");
            drop(db);
            let left = std::fs::read(stores.path("other")).expect("it can be read");
            assert!(left == bytes, "it was changed");
        }
        // With the word it is given up; a store that is there is not.
        for rows in ["1", "2"] {
            let db = Connection::open(stores.uri("other", "&create=force")).expect("a store");
            db.run("CREATE TABLE IF NOT EXISTS t (x); INSERT INTO t VALUES (1)");
            assert_eq!(text(&db, "SELECT count(*) FROM t"), rows);
        }
    }
    let flags = OpenFlags::default();
    let wrong = Connection::open_with_flags(stores.uri("new.flag", "&create=yes"), flags);
    assert!(wrong.is_err());
    // An empty file is as good as none.
    std::fs::write(stores.path("empty"), []).expect("room");
    let db = Connection::open(stores.uri("empty", "")).expect("a store");
    db.run("CREATE TABLE t (x)");
}
