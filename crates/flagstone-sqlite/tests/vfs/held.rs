//! What other connections may do while a group of transactions waits for the disk.

use crate::lab::{Early, Place, Put, open, put, put_store};
use crate::support::{BUSY, FULL, Sql, text};
use flagstone_store::medium::Recorded;
use rusqlite::{Connection, ErrorCode};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const COUNT: &str = "SELECT count(*) FROM t";
const SMALL: &str = "UPDATE t SET a = a + 1 WHERE rowid = 1";
const INSERT: &str = "INSERT INTO t VALUES (1, 'a row')";
/// Finds no room in a store that is filled.
const LARGE: &str = "INSERT INTO t VALUES (5, zeroblob(400000))";

/// Longer than anything takes that does not wait for the disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// Long enough for what does not wait to be over.
const A_WHILE: Duration = Duration::from_millis(60);

/// A database on a disk that can be held.
struct Held {
    medium: Recorded,
    path: Put,
    release: Option<Sender<()>>,
}

impl Held {
    fn new() -> Held {
        let medium = Recorded::default();
        Held::at(put_store(medium.clone()), medium)
    }

    /// A database whose transactions join a group before it is known whether they find room.
    fn that_joins_early() -> Held {
        let medium = Recorded::default();
        let place = Place::Early(medium.clone(), Early::Joins);
        Held::at(put(place), medium)
    }

    fn at(path: Put, medium: Recorded) -> Held {
        let db = open(&path).expect("it opens");
        db.run("CREATE TABLE t (a, b)");
        Held {
            medium,
            path,
            release: None,
        }
    }

    /// A connection that has committed a row, and does not wait for others.
    fn connection(&self) -> Connection {
        let db = open(&self.path).expect("it opens");
        db.run(INSERT);
        db.busy_timeout(Duration::ZERO).expect("a setting");
        db
    }

    /// Holds the disk before the next write, until it is released. Says when that has come.
    fn hold(&mut self) -> Receiver<()> {
        let (release, released) = channel();
        let (come, has_come) = channel();
        let (once, released) = (Mutex::new(Some(come)), Mutex::new(released));
        self.release = Some(release);
        self.medium.watch(Some(Box::new(move |_: &Recorded| {
            if let Some(come) = once.lock().expect("one at a time").take() {
                come.send(()).expect("it listens");
                let released = released.lock().expect("one at a time");
                let _ = released.recv_timeout(PATIENCE);
            }
        })));
        has_come
    }

    /// Has a connection commit, and holds the disk as soon as it waits for that.
    fn hold_a_commit(&mut self, db: Connection, sql: &'static str) -> Doing<Connection> {
        let has_come = self.hold();
        let doing = doing(move || {
            db.run(sql);
            db
        });
        has_come.recv_timeout(PATIENCE).expect("it commits");
        doing
    }

    fn release(&mut self) {
        drop(self.release.take());
    }

    /// Fills the store, so that a small transaction finds room and a large one does not, and has
    /// transactions share flushes again.
    fn fill(&self, db: &Connection) {
        self.medium
            .give_at_most(Some(self.medium.to_vec().len() as u64));
        let fill = "INSERT INTO t VALUES (4, zeroblob(40000))";
        while db.execute_batch(fill).is_ok() {}
        // They commit by themselves for a while after that.
        for _ in 0..80 {
            db.run(SMALL);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
        self.medium.watch(None);
    }
}

/// What a query finds while a statement that may write is not over, though in another database.
fn text_while_writing(db: &Connection, query: &str, has_rows: bool) -> String {
    let mut insert = db
        .prepare("INSERT INTO own VALUES (1), (2) RETURNING a")
        .expect("it is right");
    let mut rows = insert.query([]).expect("it runs");
    assert!(!has_rows || rows.next().expect("it runs").is_some());
    text(db, query)
}

/// What a thread of its own does.
struct Doing<T>(Receiver<T>);

fn doing<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Doing<T> {
    let (done, is_done) = channel();
    std::thread::spawn(move || {
        let _ = done.send(act());
    });
    Doing(is_done)
}

impl<T> Doing<T> {
    /// It is over soon.
    fn ends(self) -> T {
        self.0.recv_timeout(PATIENCE).expect("it is over")
    }

    fn waits(&self) {
        assert!(self.0.recv_timeout(A_WHILE).is_err(), "it waits");
    }
}

#[test]
fn who_reads_waits_for_nobody_and_who_writes_reads_what_is_newest() {
    let mut held = Held::new();
    let [first, second, writer, reader] = std::array::from_fn(|_| held.connection());
    let first = held.hold_a_commit(first, INSERT);
    assert_eq!(text(&reader, COUNT), "4");
    let second = doing(move || second.run(INSERT));
    second.waits();
    writer.run("BEGIN IMMEDIATE");
    assert_eq!(text(&writer, COUNT), "6");
    assert_eq!(text(&reader, COUNT), "4");
    let writer = doing(move || writer.run("ROLLBACK"));
    // It was shown what is not durable.
    writer.waits();
    first.waits();
    second.waits();
    held.release();
    first.ends();
    second.ends();
    writer.ends();
    assert_eq!(text(&reader, COUNT), "6");
}

#[test]
fn who_has_read_what_is_durable_is_too_late_to_write() {
    let mut held = Held::new();
    let [first, late] = std::array::from_fn(|_| held.connection());
    let first = held.hold_a_commit(first, INSERT);
    late.run("BEGIN");
    assert_eq!(text(&late, COUNT), "2");
    assert_eq!(late.refused(INSERT), BUSY);
    late.run("ROLLBACK");
    let late = doing(move || late.run(INSERT));
    late.waits();
    held.release();
    first.ends();
    late.ends();
    assert_eq!(text(&held.connection(), COUNT), "5");
}

#[test]
fn who_reads_but_seemed_to_write_waits_for_the_disk() {
    let mut held = Held::new();
    let [first, reader] = std::array::from_fn(|_| held.connection());
    reader.run("CREATE TEMP TABLE own (a)");
    assert_eq!(text(&reader, COUNT), "2");
    let first = held.hold_a_commit(first, INSERT);
    let reading = doing(move || text_while_writing(&reader, COUNT, true));
    reading.waits();
    held.release();
    assert_eq!(reading.ends(), "3");
    first.ends();
}

#[test]
fn what_is_no_small_transaction_of_one_database_waits_for_the_group() {
    let large = "INSERT INTO t VALUES (2, zeroblob(1500000))".to_string();
    let cuts = "DELETE FROM t WHERE a = 3".to_string();
    let (attach, both) = (
        "ATTACH ':memory:' AS m; CREATE TABLE m.t (a)",
        "BEGIN; INSERT INTO m.t VALUES (1); INSERT INTO main.t VALUES (1, 2); COMMIT",
    );
    let alone = format!("PRAGMA locking_mode = EXCLUSIVE; {INSERT}");
    let reads_on = format!("BEGIN IMMEDIATE; {INSERT}");
    for (before, act) in [
        ("", large.as_str()),
        (
            "PRAGMA auto_vacuum = FULL; VACUUM; INSERT INTO t VALUES (3, zeroblob(90000))",
            &cuts,
        ),
        (attach, both),
        ("", &alone),
        ("", "VACUUM"),
        ("", &reads_on),
    ] {
        let mut held = Held::new();
        let [first, other, reader] = std::array::from_fn(|_| held.connection());
        other.run(before);
        let seen: u64 = text(&reader, COUNT).parse().expect("a number");
        let first = held.hold_a_commit(first, INSERT);
        let act = act.to_string();
        let other = doing(move || {
            other.run(&act);
            if !other.is_autocommit() {
                // While it reads on, its commit is no part of a group.
                let mut rows = other.prepare("SELECT a FROM t").expect("it is right");
                let mut rows = rows.query([]).expect("it runs");
                assert!(rows.next().expect("it runs").is_some());
                other.run("COMMIT");
                let mut left = 0;
                while rows.next().expect("it reads on").is_some() {
                    left += 1;
                }
                assert!(left > 1, "{left}");
            }
            other
        });
        other.waits();
        assert_eq!(text(&reader, COUNT), seen.to_string());
        held.release();
        let other = other.ends();
        first.ends();
        assert_eq!(text(&other, "PRAGMA integrity_check"), "ok");
    }
}

#[test]
fn who_has_read_what_finds_no_room_begins_again() {
    let mut held = Held::that_joins_early();
    let [first, second, third] = std::array::from_fn(|_| held.connection());
    held.fill(&third);
    let rows: u64 = text(&third, COUNT).parse().expect("a number");
    let first = held.hold_a_commit(first, "UPDATE t SET a = 7 WHERE rowid = 1");
    let second = doing(move || (second.refused(LARGE), second));
    second.waits();
    third.run("BEGIN IMMEDIATE");
    assert_eq!(text(&third, COUNT), (rows + 1).to_string());
    held.release();
    let (refused, second) = second.ends();
    assert_eq!(refused, FULL);
    assert_eq!(third.refused(&format!("{INSERT}; COMMIT")), FULL);
    assert!(third.is_autocommit() || third.execute_batch("ROLLBACK").is_ok());
    let first = first.ends();
    held.medium.give_at_most(None);
    for (db, more) in [(&third, 1), (&second, 2), (&first, 3)] {
        assert_eq!(text(db, COUNT), (rows + more - 1).to_string());
        db.run(INSERT);
        assert_eq!(text(db, "PRAGMA integrity_check"), "ok");
    }
    assert_eq!(text(&first, "SELECT count(*) FROM t WHERE a = 5"), "0");
    assert_eq!(text(&second, "SELECT a FROM t WHERE rowid = 1"), "7");
}

/// A transaction that does not fit comes while a group forms. Returns what one of the group hears,
/// and what it hears itself.
fn one_too_many(mut held: Held) -> [Option<ErrorCode>; 2] {
    let [first, second, large, third] = std::array::from_fn(|_| held.connection());
    held.fill(&third);
    let rows: u32 = text(&third, COUNT).parse().expect("a number");
    let first = held.hold_a_commit(first, SMALL);
    let second = doing(move || second.refused("UPDATE t SET a = 7 WHERE rowid = 2"));
    second.waits();
    let large = doing(move || (large.refused(LARGE), large));
    large.waits();
    held.release();
    let (refused, large) = large.ends();
    let heard = [second.ends(), refused];
    first.ends();
    // All go on.
    third.run(SMALL);
    large.run(SMALL);
    assert_eq!(text(&third, COUNT), rows.to_string());
    assert_eq!(text(&large, "PRAGMA integrity_check"), "ok");
    heard
}

#[test]
fn a_transaction_that_does_not_fit_fails_alone() {
    assert_eq!(one_too_many(Held::new()), [None, FULL]);
}

#[test]
fn control_one_that_joins_before_it_has_room_takes_the_group_with_it() {
    assert_eq!(one_too_many(Held::that_joins_early()), [FULL, FULL]);
}

#[test]
fn small_transactions_share_flushes() {
    let held = Held::new();
    held.medium.watch(Some(Box::new(|_: &Recorded| {
        std::thread::sleep(Duration::from_millis(1));
    })));
    let before = held.medium.syncs();
    let threads = (0..4).map(|_| {
        let db = open(&held.path).expect("it opens");
        std::thread::spawn(move || {
            for _ in 0..50 {
                db.run(INSERT);
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    for thread in threads {
        thread.join().expect("it commits");
    }
    let syncs = held.medium.syncs() - before;
    assert_eq!(text(&held.connection(), COUNT), "201");
    assert!(syncs < 150, "{syncs} for 200 transactions");
}

#[test]
fn who_seems_to_write_reads_one_state_while_another_writes_out() {
    for other in [INSERT, "BEGIN EXCLUSIVE; ROLLBACK"] {
        let mut held = Held::new();
        let [first, writer, reader] = std::array::from_fn(|_| held.connection());
        reader.run("CREATE TEMP TABLE own (a)");
        let first = held.hold_a_commit(first, INSERT);
        let reading = doing(move || {
            let seen = text_while_writing(&reader, COUNT, true);
            (seen, reader)
        });
        reading.waits();
        let writer = doing(move || writer.run(other));
        writer.waits();
        held.release();
        let (seen, reader) = reading.ends();
        assert_eq!(seen, "4", "{other}");
        writer.ends();
        first.ends();
        reader.run(INSERT);
        let rows = 5 + i32::from(other == INSERT);
        assert_eq!(text(&reader, COUNT), rows.to_string(), "{other}");
        assert_eq!(text(&held.connection(), COUNT), (rows + 1).to_string());
    }
}

#[test]
fn who_seems_to_write_is_shown_nothing_of_the_first_page_before_the_disk_has_it() {
    for is_late in [true, false] {
        let mut held = Held::new();
        let [first, reader] = std::array::from_fn(|_| held.connection());
        let other = held.connection();
        reader.run("CREATE TEMP TABLE own (a)");
        if is_late {
            reader.run("BEGIN");
            assert_eq!(text(&reader, COUNT), "3");
            other.run(INSERT);
            assert_eq!(reader.refused(INSERT), BUSY);
            reader.run("ROLLBACK");
        }
        let first = held.hold_a_commit(first, "PRAGMA user_version = 7");
        let query = "PRAGMA user_version";
        let reading = doing(move || text_while_writing(&reader, query, !is_late));
        reading.waits();
        held.release();
        assert_eq!(reading.ends(), "7");
        first.ends();
    }
}

#[test]
fn who_was_too_late_to_write_once_waits_for_nobody_later() {
    let mut held = Held::new();
    let [first, late, other] = std::array::from_fn(|_| held.connection());
    late.run("BEGIN");
    assert_eq!(text(&late, COUNT), "3");
    other.run(INSERT);
    assert_eq!(late.refused(INSERT), BUSY);
    late.run("ROLLBACK");
    assert_eq!(text(&late, COUNT), "4");
    let first = held.hold_a_commit(first, INSERT);
    assert_eq!(text(&late, COUNT), "4");
    first.waits();
    held.release();
    first.ends();
}

#[test]
fn a_connection_that_begins_to_keep_its_locks_is_no_part_of_a_group() {
    let held = Held::new();
    let [keeps, other] = std::array::from_fn(|_| held.connection());
    keeps.run("PRAGMA cache_size = 5; BEGIN; PRAGMA cache_spill = 5");
    for _ in 0..40 {
        // Pages leave the cache.
        keeps.run("INSERT INTO t VALUES (3, zeroblob(3000))");
    }
    keeps.run("PRAGMA locking_mode = EXCLUSIVE; COMMIT");
    assert_eq!(text(&keeps, COUNT), "42");
    let refused = other.refused(INSERT);
    assert_eq!(text(&keeps, COUNT), "42");
    assert_eq!(refused, BUSY);
}

#[test]
fn a_schema_that_found_no_room_is_forgotten() {
    let mut held = Held::new();
    let [first, second, third] = std::array::from_fn(|_| held.connection());
    held.fill(&third);
    let first = held.hold_a_commit(first, SMALL);
    let second = doing(move || {
        second.refused("BEGIN; CREATE TABLE u (a); INSERT INTO u VALUES (zeroblob(400000)); COMMIT")
    });
    second.waits();
    let looking = doing(move || {
        // It may be busy by now, or see the table.
        if third.execute_batch("BEGIN IMMEDIATE").is_ok() {
            let _ = third.prepare("SELECT a FROM u");
            std::thread::sleep(A_WHILE);
            let _ = third.execute_batch("ROLLBACK");
        }
        third
    });
    std::thread::sleep(A_WHILE / 2);
    held.release();
    assert_eq!(second.ends(), FULL);
    let (first, third) = (first.ends(), looking.ends());
    held.medium.give_at_most(None);
    first.run("CREATE TABLE v (b); INSERT INTO v VALUES ('of another table')");
    let found = third.query_row("SELECT a FROM u", [], |row| row.get::<_, String>(0));
    assert!(found.is_err(), "{found:?}");
    assert_eq!(text(&third, "SELECT b FROM v"), "of another table");
}

#[test]
fn who_has_read_what_finds_no_room_reads_no_other_state_after_it() {
    let mut held = Held::that_joins_early();
    let [first, second, third] = std::array::from_fn(|_| held.connection());
    held.fill(&third);
    let first = held.hold_a_commit(first, SMALL);
    let second = doing(move || second.refused(LARGE));
    second.waits();
    third.run("BEGIN IMMEDIATE");
    text(&third, COUNT);
    held.release();
    assert_eq!(second.ends(), FULL);
    first.ends();
    let sum = "SELECT sum(length(CAST(b AS TEXT))) + sum(unicode(substr(b, 300000))) FROM t";
    assert_eq!(third.refused(sum), FULL);
}

#[test]
fn nobody_reads_the_first_page_of_a_group_that_the_disk_has_refused() {
    for operation in 1..4 {
        let held = Held::new();
        let [first, reader] = std::array::from_fn(|_| held.connection());
        let fails = held.medium.operations() + operation;
        held.medium.fail_at(Some(fails));
        let done = first.execute_batch("PRAGMA user_version = 7");
        let read = reader.query_row("PRAGMA user_version", [], |row| row.get::<_, u32>(0));
        if done.is_err() {
            assert!(!read.is_ok_and(|read| read == 7), "{operation}");
        }
    }
}

#[test]
fn who_reads_on_after_it_rolled_back_reads_on_in_one_state() {
    for finds_room in [true, false] {
        let mut held = Held::that_joins_early();
        let [first, second, third, other] = std::array::from_fn(|_| held.connection());
        held.fill(&third);
        let first = held.hold_a_commit(first, SMALL);
        let bytes = if finds_room { 10 } else { 400000 };
        let insert = format!("INSERT INTO t VALUES (5, zeroblob({bytes}))");
        let second = doing(move || second.refused(&insert));
        second.waits();
        third.run("BEGIN IMMEDIATE");
        let rows: u32 = text(&third, COUNT).parse().expect("a number");
        let mut select = third
            .prepare("SELECT a FROM t ORDER BY rowid DESC")
            .expect("it is right");
        let mut reading = select.query([]).expect("it runs");
        let newest = reading.next().expect("it runs").expect("a row");
        assert_eq!(newest.get(0), Ok(5));
        held.release();
        let refused = second.ends();
        assert_eq!(refused, FULL.filter(|_| !finds_room));
        first.ends();
        third.run("ROLLBACK");
        other.run(SMALL);
        let (mut more, mut failed) = (0, None);
        loop {
            match reading.next() {
                Ok(Some(_)) => more += 1,
                Ok(None) => break,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if finds_room {
            assert_eq!((more, failed), (rows - 1, None))
        } else {
            assert!(failed.is_some(), "{more} of {rows}")
        }
    }
}
