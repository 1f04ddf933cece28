//! A call that panics on a store.

use crate::lab::{Hooks, Place, open, put, put_store};
use crate::support::{Sql, assert_well, text};
use flagstone_store::medium::Recorded;
use rusqlite::ErrorCode;
use std::time::Duration;

#[test]
fn a_store_on_which_a_call_has_panicked_is_not_closed_but_left() {
    let (medium, hooks) = (Recorded::default(), Hooks::default());
    let path = put(Place::Hooked(medium.clone(), hooks.clone()));
    let db = open(&path).expect("it opens");
    db.run("CREATE TABLE t (a); INSERT INTO t VALUES (1)");
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
}

#[test]
fn all_who_wait_for_a_flush_that_panics_hear_of_it() {
    let medium = Recorded::default();
    let path = put_store(medium.clone());
    let insert = "INSERT INTO t VALUES (1)";
    let [first, second, third] = std::array::from_fn(|_| open(&path).expect("it opens"));
    first.run("CREATE TABLE t (a)");
    for db in [&first, &second, &third] {
        db.run(insert);
    }
    medium.watch(Some(Box::new(|_: &Recorded| {
        // The others join a group, or wait for the turn to write.
        std::thread::sleep(Duration::from_millis(20));
        panic!("a mistake");
    })));
    let threads = [first, second, third].map(|db| {
        std::thread::spawn(move || {
            let told = db.execute_batch(insert);
            // Nobody believes to have committed, and nobody goes on.
            let told = told.expect_err("it is not durable").sqlite_error_code();
            assert_eq!(told, Some(ErrorCode::SystemIoFailure));
            db.execute_batch(insert)
                .expect_err("nobody knows what is half done");
        })
    });
    for thread in threads {
        thread.join().expect("it hears of it");
    }
    let path = put_store(medium.snapshot());
    let db = open(&path).expect("it opens");
    assert_eq!(text(&db, "SELECT count(*) FROM t"), "3");
    assert_well(&db);
}
