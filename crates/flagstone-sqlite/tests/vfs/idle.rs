//! What a store does for a database while its application has nothing else to do.

use crate::support::{Sql, Stores, text};

#[test]
fn a_store_collects_ahead_when_it_is_told_to() {
    let stores = Stores::new();
    let db = stores.open("app.flag");
    db.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, bytes);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)
         INSERT INTO t SELECT i, zeroblob(900) FROM n;",
    );
    for round in 0..40 {
        let some = "UPDATE t SET bytes = zeroblob(901) WHERE id % 40 = ?1";
        db.execute(some, [round * 7 % 40]).expect("an update");
        db.execute(some, [round * 11 % 40]).expect("an update");
    }
    let idle = || {
        let moved = text(&db, "PRAGMA flagstone_idle = 64");
        moved.parse::<u32>().expect("a number")
    };
    let moved: Vec<u32> = std::iter::repeat_with(idle)
        .take_while(|&moved| moved > 0)
        .collect();
    assert!(
        !moved.is_empty() && moved.iter().all(|&pages| pages <= 64),
        "{moved:?}"
    );
    assert_eq!(idle(), 0);
    assert_eq!(text(&db, "PRAGMA integrity_check"), "ok");
    assert_eq!(text(&db, "PRAGMA flagstone_check"), "ok");
    let refused = db.query_row("PRAGMA flagstone_idle", [], |row| row.get::<_, String>(0));
    assert!(refused.is_err());
}
