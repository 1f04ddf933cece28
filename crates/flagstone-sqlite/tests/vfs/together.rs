//! Transactions over several databases, one of which fails to commit: nothing of them stays, in
//! none of the databases and not for a moment.

use crate::lab::{Hooks, Place, full, open, put, take_away};
use crate::support::{assert_well, text};
use flagstone::commit::Kind;
use flagstone_store::medium::Recorded;
use rusqlite::Connection;
use std::path::{Path, PathBuf};

/// Stores of the lab, the first of which is the main database of a connection and the others are
/// attached to it as `s1`, `s2` and so on.
struct Together {
    media: Vec<Recorded>,
    hooks: Vec<Hooks>,
    paths: Vec<PathBuf>,
}

/// The URI of a store of the lab.
fn uri(path: &Path) -> String {
    format!("file:{}?vfs=flagstone-lab", path.display())
}

impl Together {
    fn new(stores: usize) -> Together {
        let media = vec![(); stores].into_iter().map(|()| Recorded::default());
        let media: Vec<Recorded> = media.collect();
        let hooks: Vec<Hooks> = media.iter().map(|_| Hooks::default()).collect();
        let places = media.iter().zip(&hooks);
        let paths = places.map(|(medium, hooks)| put(Place::Hooked(medium.clone(), hooks.clone())));
        Together {
            paths: paths.collect(),
            media,
            hooks,
        }
    }

    /// A connection to all of them.
    fn connect(&self) -> Connection {
        let db = open(&self.paths[0]).expect("it opens");
        for (number, path) in self.paths.iter().enumerate().skip(1) {
            let attach = format!("ATTACH '{}' AS s{number}", uri(path));
            db.execute_batch(&attach).expect("attached");
        }
        db
    }

    /// A table `t` with the rows 1 and 2 in each, whose values are 0.
    fn filled(stores: usize) -> (Together, Connection) {
        let together = Together::new(stores);
        for path in &together.paths {
            open(path)
                .and_then(|db| {
                    db.execute_batch(
                        "CREATE TABLE t (id INTEGER PRIMARY KEY, v INT);
                         INSERT INTO t VALUES (1, 0), (2, 0)",
                    )
                })
                .expect("a table");
        }
        let db = together.connect();
        (together, db)
    }

    /// What each of the stores holds once it is opened anew, from what was made durable.
    fn values(&self) -> Vec<String> {
        let values = self.media.iter().map(|medium| {
            let path = put(Place::Store(medium.snapshot(), Kind::Seal));
            let db = open(&path).expect("it opens");
            assert_well(&db);
            let values = text(&db, VALUES);
            drop(db);
            take_away(&path);
            values
        });
        values.collect()
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        self.paths.iter().for_each(|path| take_away(path));
    }
}

const VALUES: &str = "SELECT group_concat(v) FROM t";

/// One transaction that counts the first row up in so many stores.
fn count_up(stores: usize) -> String {
    let updates = (0..stores).map(|number| {
        let name = if number == 0 {
            "main".into()
        } else {
            format!("s{number}")
        };
        format!("UPDATE {name}.t SET v = v + 100 WHERE id = 1;")
    });
    format!("BEGIN; {} COMMIT", updates.collect::<String>())
}

/// A transaction fails, and the connection rolls it back if SQLite did not.
fn fails(db: &Connection, sql: &str) {
    db.execute_batch(sql).expect_err("it does not commit");
    if !db.is_autocommit() {
        db.execute_batch("ROLLBACK").expect("it ends");
    }
}

#[test]
fn a_store_without_syncs_that_fails_fails_the_transaction() {
    let (together, db) = Together::filled(3);
    // Of the main database alone: the transaction has a super-journal for the others.
    db.execute_batch("PRAGMA synchronous = OFF")
        .expect("a setting");
    assert_eq!(text(&db, "PRAGMA s1.synchronous"), "2");
    together.hooks[0].at_commit(full);
    fails(&db, &count_up(3));
    assert_eq!(together.values(), ["0,0"; 3]);
    db.execute_batch(&count_up(3)).expect("there is room");
    assert_eq!(together.values(), ["100,0"; 3]);
}

/// Who reads the first store while a transaction fails in the second one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// It has read before.
    Old,
    /// It was open before.
    Idle,
    /// It comes then: the transaction had the store to itself when it began.
    New,
}

/// What a reader of the first store sees while a transaction fails in the second one, what it sees
/// when another one has committed, and what is there when it has written as well.
fn reads_beside_a_failure(which: Reader) -> [String; 3] {
    let (together, db) = Together::filled(2);
    let path = together.paths[0].clone();
    let reader = (which != Reader::New).then(|| open(&path).expect("it opens"));
    if let (Reader::Old, Some(reader)) = (which, &reader) {
        text(reader, VALUES);
    }
    let (tell, told) = std::sync::mpsc::channel();
    together.hooks[1].at_commit(move || {
        let reader = reader.unwrap_or_else(|| open(&path).expect("it opens"));
        let seen = text(&reader, VALUES);
        tell.send((reader, seen)).expect("it listens");
        full()
    });
    fails(&db, &count_up(2));
    let (reader, between) = told.recv().expect("the store was asked");
    db.execute_batch("UPDATE t SET v = 7 WHERE id = 2")
        .expect("it commits");
    let seen = text(&reader, VALUES);
    // From what the reader has in its cache, unless it sees that this is out of date.
    reader
        .execute_batch("UPDATE t SET v = v + 1 WHERE id = 1")
        .expect("it commits");
    drop((db, reader));
    [between, seen, together.values().swap_remove(0)]
}

#[test]
fn nobody_sees_what_a_transaction_takes_back_and_nothing_is_lost_by_it() {
    for which in [Reader::Old, Reader::Idle, Reader::New] {
        let found = reads_beside_a_failure(which);
        assert_eq!(found, ["0,0", "0,7", "1,7"], "{which:?}");
    }
}
