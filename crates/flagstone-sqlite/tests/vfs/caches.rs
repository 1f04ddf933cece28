//! Pages that SQLite keeps from one transaction to the next: it forgets them when the database is
//! another one, and not before.

use crate::lab::{Hooks, Place, open, put, take_away};
use crate::support::{Stores, text};
use flagstone::commit::Kind;
use flagstone_sqlite::{Trouble, TroubleKind};
use flagstone_store::medium::Recorded;
use rusqlite::Connection;

const VERSION: &str = "PRAGMA data_version";

#[test]
fn only_what_others_commit_is_another_version_of_the_data() {
    let stores = Stores::new();
    let [one, other] = [stores.open("a.flag"), stores.open("a.flag")];
    one.execute_batch("CREATE TABLE t (a)").expect("a table");
    text(&one, "SELECT count(*) FROM t");
    let mut version = text(&one, VERSION);
    for _ in 0..3 {
        for sql in ["SELECT count(*) FROM t", "SELECT a FROM t LIMIT 0; VACUUM"] {
            one.execute_batch(sql).expect("it works");
            one.execute_batch("INSERT INTO t VALUES (1); BEGIN; DELETE FROM t; ROLLBACK")
                .expect("it works");
            assert_eq!(text(&one, VERSION), version, "{sql}");
        }
        other
            .execute_batch("INSERT INTO t VALUES (2)")
            .expect("it commits");
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
    Connection::open(format!("file:{}?vfs=flagstone-lab&mode=ro", path.display()))
        .expect("it opens")
}

#[test]
fn a_store_that_another_process_had_meanwhile_is_read_anew() {
    let (medium, hooks) = (Recorded::default(), Hooks::default());
    let path = put(Place::Hooked(medium.clone(), hooks.clone()));
    let insert = "CREATE TABLE t (v); INSERT INTO t VALUES ('old')";
    open(&path)
        .and_then(|db| db.execute_batch(insert))
        .expect("a table");
    let reader = read_only(&path);
    assert_eq!(text(&reader, "SELECT v FROM t"), "old");
    // One that writes comes, and the store is closed for it. Another process is quicker, and finds
    // the counter that the store has.
    let again = hooks.clone();
    hooks.at_open(move || {
        again.at_open(in_use);
        in_use()
    });
    let writer = open(&path).expect("it waits");
    let other = put(Place::Store(medium, Kind::Seal));
    open(&other)
        .and_then(|db| db.execute_batch("UPDATE t SET v = 'new'"))
        .expect("it commits");
    assert_eq!(text(&reader, "SELECT v FROM t"), "new");
    drop((reader, writer));
    for path in [path, other] {
        take_away(&path);
    }
}
