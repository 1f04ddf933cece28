//! Transactions over several databases, one of which fails to commit: nothing of them stays, in
//! none of the databases and not for a moment.

use crate::lab::{Hooks, Place, Put, full, open, put, put_store, super_journals, uri};
use crate::support::{FULL, Sql, Stores, assert_well, plain, text};
use flagstone_store::medium::Recorded;
use rusqlite::Connection;
use std::path::Path;

/// Stores of the lab, the first of which is the main database of a connection and the others are
/// attached to it as `s1`, `s2` and so on.
struct Together {
    media: Vec<Recorded>,
    hooks: Vec<Hooks>,
    paths: Vec<Put>,
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
            db.run(&attach);
        }
        db
    }

    /// A table `t` with the rows 1 and 2 in each, whose values are 0.
    fn filled(stores: usize) -> (Together, Connection) {
        let together = Together::new(stores);
        for path in &together.paths {
            let db = open(path).expect("it opens");
            db.run("CREATE TABLE t (id INTEGER PRIMARY KEY, v INT)");
            db.run("INSERT INTO t VALUES (1, 0), (2, 0)");
        }
        let db = together.connect();
        (together, db)
    }

    /// What each of the stores holds once it is opened anew, from what was made durable.
    fn values(&self) -> Vec<String> {
        let values = self.media.iter().map(|medium| {
            let path = put_store(medium.snapshot());
            let db = open(&path).expect("it opens");
            assert_well(&db);
            text(&db, VALUES)
        });
        values.collect()
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
        db.run("ROLLBACK");
    }
}

#[test]
fn a_store_without_syncs_that_fails_fails_the_transaction() {
    let (together, db) = Together::filled(3);
    // Of the main database alone: the transaction has a super-journal for the others.
    db.run("PRAGMA synchronous = OFF");
    assert_eq!(text(&db, "PRAGMA s1.synchronous"), "2");
    together.hooks[0].at_commit(full);
    fails(&db, &count_up(3));
    assert_eq!(together.values(), ["0,0"; 3]);
    db.run(&count_up(3));
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
fn reads_beside_a_failure(which: Reader, settings: &str) -> [String; 3] {
    let (together, db) = Together::filled(2);
    db.run(settings);
    let path = together.paths[0].to_path_buf();
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
    db.run("UPDATE t SET v = 7 WHERE id = 2");
    let seen = text(&reader, VALUES);
    // From what the reader has in its cache, unless it sees that this is out of date.
    reader.run("UPDATE t SET v = v + 1 WHERE id = 1");
    drop((db, reader));
    [between, seen, together.values().swap_remove(0)]
}

#[test]
fn nobody_sees_what_a_transaction_takes_back_and_nothing_is_lost_by_it() {
    let no_super_journal = "PRAGMA main.journal_mode = MEMORY; PRAGMA s1.journal_mode = MEMORY";
    for which in [Reader::Old, Reader::Idle, Reader::New] {
        for settings in ["", no_super_journal] {
            let found = reads_beside_a_failure(which, settings);
            assert_eq!(found, ["0,0", "0,7", "1,7"], "{which:?} {settings}");
        }
    }
}

#[test]
fn stores_before_the_one_that_fails_take_the_transaction_back() {
    let (together, db) = Together::filled(4);
    for failing in 0..4 {
        together.hooks[failing].at_commit(full);
        fails(&db, &count_up(4));
        assert_eq!(together.values(), ["0,0"; 4], "store {failing} fails");
        assert_eq!(super_journals(&together.paths[0]), 0);
    }
    db.run(&count_up(4));
    assert_eq!(together.values(), ["100,0"; 4]);
    assert_eq!(super_journals(&together.paths[0]), 0);
}

#[test]
fn a_store_that_cannot_take_it_back_keeps_what_it_has_committed() {
    let (together, db) = Together::filled(2);
    let reader = open(&together.paths[0]).expect("it opens");
    let first = together.hooks[0].clone();
    together.hooks[1].at_commit(move || {
        first.at_commit(full);
        full()
    });
    assert_eq!(db.refused(&count_up(2)), FULL);
    assert!(db.is_autocommit());
    for db in [&db, &reader] {
        assert_eq!(text(db, VALUES), "100,0");
    }
    assert_eq!(super_journals(&together.paths[0]), 0);
    db.run(&count_up(2));
    assert_eq!(text(&reader, VALUES), "200,0");
    assert_eq!(together.values(), ["200,0", "100,0"]);
}

/// A plain database `p` with as much as the stores.
fn attach_plain(db: &Connection, path: &Path) {
    let attach = format!("ATTACH 'file:{}?vfs=unix' AS p", path.display());
    db.run(&attach);
    db.run("CREATE TABLE p.t (id INTEGER PRIMARY KEY, v INT)");
    db.run("INSERT INTO p.t VALUES (1, 0), (2, 0)");
}

/// What a plain database holds when SQLite alone opens it.
fn plain_values(path: &Path) -> String {
    let db = plain(path);
    assert_well(&db);
    text(&db, VALUES)
}

/// Files that SQLite may have left beside a plain database.
fn beside(stores: &Stores) -> Vec<String> {
    let names = stores.names().into_iter();
    names.filter(|name| name != "p.db").collect()
}

#[test]
fn a_plain_database_takes_back_what_a_store_cannot_commit() {
    for mode in ["DELETE", "TRUNCATE", "PERSIST"] {
        let stores = Stores::new();
        let path = stores.path("p.db");
        let together = Together::filled(2).0;
        let db = open(&together.paths[0]).expect("it opens");
        attach_plain(&db, &path);
        let attach = format!("ATTACH '{}' AS s1", uri(&together.paths[1]));
        db.run(&attach);
        let mode = format!("PRAGMA p.journal_mode = {mode}");
        db.run(&mode);
        // What a cut would leave while the last store commits.
        let left = stores.path("left");
        let (of, at) = (together.paths[0].to_path_buf(), left.clone());
        let plain_path = path.clone();
        together.hooks[1].at_commit(move || {
            std::fs::create_dir(&at).expect("a folder");
            let folder = of.parent().expect("a folder");
            let start = format!("{}-mj", of.file_name().expect("a name").display());
            for (folder, start) in [
                (folder, &*start),
                (plain_path.parent().expect("one"), "p.db"),
            ] {
                for entry in std::fs::read_dir(folder).expect("it can be read") {
                    let entry = entry.expect("an entry");
                    if entry.file_name().to_string_lossy().starts_with(start) {
                        std::fs::copy(entry.path(), at.join(entry.file_name())).expect("a copy");
                    }
                }
            }
            full()
        });
        let update = "UPDATE p.t SET v = v + 100 WHERE id = 1; COMMIT";
        fails(&db, &count_up(2).replace("COMMIT", update));
        assert_eq!(text(&db, "SELECT group_concat(v) FROM p.t"), "0,0");
        drop(db);
        assert_eq!(plain_values(&path), "0,0", "{mode}");
        assert_eq!(together.values(), ["0,0"; 2]);
        assert_eq!(super_journals(&together.paths[0]), 0);
        // The cut: its journal is played back, and then nobody needs the super-journal.
        let mut files = 0;
        for entry in std::fs::read_dir(&left).expect("it can be read") {
            let entry = entry.expect("an entry");
            let name = entry.file_name();
            let folder = if name.to_string_lossy().starts_with("p.db") {
                path.parent()
            } else {
                together.paths[0].parent()
            };
            std::fs::copy(entry.path(), folder.expect("one").join(name)).expect("a copy");
            files += 1;
        }
        assert_eq!((files, super_journals(&together.paths[0])), (3, 1));
        assert_eq!(plain_values(&path), "0,0", "{mode} and a cut");
        assert_eq!(super_journals(&together.paths[0]), 0);
    }
}

#[test]
fn stores_beside_a_plain_main_database_leave_no_super_journal() {
    for mode in ["DELETE", "TRUNCATE", "PERSIST"] {
        for locking in ["NORMAL", "EXCLUSIVE"] {
            let stores = Stores::new();
            let (together, _) = Together::filled(2);
            let db = plain(&stores.path("p.db"));
            for (number, path) in together.paths.iter().enumerate() {
                let attach = format!("ATTACH '{}' AS s{number}", uri(path));
                db.run(&attach);
            }
            // For the stores as well.
            let settings = format!("PRAGMA journal_mode = {mode}; PRAGMA locking_mode = {locking}");
            db.run(&settings);
            for failing in [1, 0] {
                together.hooks[failing].at_commit(full);
                fails(&db, &count_up(2).replace("main", "s0"));
                assert_eq!(together.values(), ["0,0"; 2], "{settings}");
                assert_eq!(beside(&stores), [""; 0], "{settings}");
            }
            db.run(&count_up(2).replace("main", "s0"));
            assert_eq!(together.values(), ["100,0"; 2]);
            assert_eq!(beside(&stores), [""; 0], "{settings}");
        }
    }
}
