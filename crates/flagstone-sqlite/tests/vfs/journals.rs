//! A journal ends with its transaction, whatever mode it came by.

use crate::lab::{Hooks, Place, full, open, put, uri};
use crate::support::{Sql, Stores, assert_well, plain, text};
use flagstone_store::medium::Recorded;

#[test]
fn a_journal_of_a_transaction_that_failed_is_not_played_back_later() {
    for mode in ["DELETE", "TRUNCATE", "PERSIST", "MEMORY"] {
        let (stores, hooks) = (Stores::new(), Hooks::default());
        let path = put(Place::Hooked(Recorded::default(), hooks.clone()));
        let other = open(&path).expect("it opens");
        other.run(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v INT, b);
                 INSERT INTO t WITH RECURSIVE n (x) AS (VALUES (1) UNION ALL
                 SELECT x + 1 FROM n WHERE x < 200) SELECT x, 0, zeroblob(3000) FROM n",
        );
        let db = plain(&stores.path("main.db"));
        let settings = format!(
            "ATTACH '{}' AS s; PRAGMA journal_mode = {mode};
             PRAGMA s.cache_size = 10",
            uri(&path)
        );
        db.run(&settings);
        // It fails when it has written some pages out.
        hooks.at_write(20, full);
        db.execute_batch("UPDATE s.t SET v = 1")
            .expect_err("there is no room");
        other.run("UPDATE t SET v = 7");
        let sevens = "SELECT count(*) FROM t WHERE v = 7";
        for db in [&db, &other] {
            assert_eq!(text(db, sevens), "200", "{mode}");
        }
        assert_well(&other);
    }
}
