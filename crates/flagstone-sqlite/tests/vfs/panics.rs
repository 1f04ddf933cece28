//! A call that panics on a store.

use crate::lab::{Hooks, Place, open, put, take_away};
use crate::support::{assert_well, text};
use flagstone_store::medium::Recorded;

#[test]
fn a_store_on_which_a_call_has_panicked_is_not_closed_but_left() {
    let (medium, hooks) = (Recorded::default(), Hooks::default());
    let path = put(Place::Hooked(medium.clone(), hooks.clone()));
    let db = open(&path).expect("it opens");
    db.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)")
        .expect("a table");
    hooks.at_commit(|| panic!("a mistake"));
    db.execute_batch("INSERT INTO t VALUES (2)")
        .expect_err("it is not committed");
    let late = open(&path).err().map(|error| error.to_string());
    assert!(late.is_some(), "not while others have it");
    // Nothing of what is in memory is written.
    let before = medium.operations();
    drop(db);
    assert_eq!(medium.operations(), before);
    let db = open(&path).expect("it opens");
    assert_eq!(text(&db, "SELECT group_concat(a) FROM t"), "1");
    assert_well(&db);
    drop(db);
    assert!(medium.operations() > before, "a close writes");
    take_away(&path);
}
