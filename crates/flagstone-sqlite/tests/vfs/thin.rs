//! A file system that has no room for what it had promised (btrfs, a thin volume) is a full disk:
//! the commit fails, and reads go on.

use crate::lab::{Place, open, put};
use crate::support::{FULL, Sql, assert_well, text};
use flagstone_store::medium::Tight;

const ROWS: &str = "SELECT count(*) FROM t";

#[test]
fn a_promise_that_is_broken_fails_the_commit_and_no_read() {
    let medium = Tight::default();
    let place = put(Place::Tight(medium.clone()));
    let (db, other) = (
        open(&place).expect("it opens"),
        open(&place).expect("it opens"),
    );
    db.run("CREATE TABLE t (a); INSERT INTO t VALUES (1), (2)");
    assert_eq!(text(&other, ROWS), "2");
    for round in 0..3 {
        medium.give(Some(0), 0);
        for insert in [
            "INSERT INTO t VALUES (zeroblob(100))",
            "INSERT INTO t VALUES (zeroblob(90000))",
        ] {
            assert_eq!(db.refused(insert), FULL, "round {round}");
            for connection in [&db, &other] {
                let rows = (2 + round).to_string();
                assert_eq!(
                    text(connection, ROWS),
                    rows,
                    "what was acknowledged, and no more"
                );
                assert_well(connection);
            }
            let why = text(&db, "PRAGMA flagstone_error");
            assert!(why.contains("room") || why.contains("space"), "{why}");
        }
        assert_eq!(other.refused("DELETE FROM t"), FULL);
        // There is room again: nobody has to close anything.
        medium.give(None, 0);
        db.run("INSERT INTO t VALUES ('more')");
        assert_eq!(text(&other, ROWS), (3 + round).to_string());
    }
    drop((db, other));
    let db = open(&place).expect("it opens");
    assert_eq!(text(&db, ROWS), "5");
    assert_well(&db);
}
