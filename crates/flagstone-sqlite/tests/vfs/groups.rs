//! Transactions of several connections that share a flush: what was told or seen survives every
//! cut, transactions are whole, and what fails takes nothing else with it.
//!
//! A thread counts its transactions in a row of its own, and all of them in a row that they share,
//! and notes each in a log. So any state says whether transactions are whole, and what a thread was
//! told, or a reader saw, says how high the counts must be.

use crate::lab::{Early, Place, Put, open, put, put_store};
use crate::support::{BUSY, FULL, Sql};
use flagstone::commit::Kind;
use flagstone_store::medium::{Landing, Recorded};
use rusqlite::Connection;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const THREADS: usize = 4;

type Counts = [u64; THREADS];

/// What threads were told, or have seen.
#[derive(Default)]
struct Told([AtomicU64; THREADS]);

impl Told {
    fn tell(&self, thread: usize, count: u64) {
        self.0[thread].fetch_max(count, Ordering::SeqCst);
    }

    fn get(&self) -> Counts {
        std::array::from_fn(|thread| self.0[thread].load(Ordering::SeqCst))
    }
}

/// The counts of a state.
///
/// # Errors
/// It cannot be read, or some transaction is there in part.
fn counts(db: &Connection) -> Result<Counts, String> {
    let read = || {
        let mut counts = Counts::default();
        let mut rows = db.prepare("SELECT id, n FROM counts WHERE id < 100 ORDER BY id")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            counts[row.get::<_, usize>(0)?] = row.get(1)?;
        }
        Ok(counts)
    };
    let begin = db.execute_batch("BEGIN");
    let counts = begin.and_then(|()| read());
    let all = |sql| db.query_row(sql, [], |row| row.get::<_, u64>(0));
    let shared = all("SELECT n FROM counts WHERE id = 100");
    let logged = all("SELECT count(*) FROM log");
    let ended = db.execute_batch("COMMIT");
    let failed = |error: rusqlite::Error| error.to_string();
    let (counts, shared) = (counts.map_err(failed)?, shared.map_err(failed)?);
    let logged = logged.map_err(failed)?;
    ended.map_err(failed)?;
    let sum: u64 = counts.iter().sum();
    if sum == shared && shared == logged {
        Ok(counts)
    } else {
        Err(format!("{counts:?}, {shared} of all, {logged} in the log"))
    }
}

fn make_tables(path: &Path) {
    let db = open(path).expect("it opens");
    db.run(
        "CREATE TABLE counts (id INTEGER PRIMARY KEY, n INT);
         CREATE TABLE log (thread INT, n INT, data);
         INSERT INTO counts VALUES (0, 0), (1, 0), (2, 0), (3, 0), (100, 0)",
    );
}

/// A transaction of a thread, with a blob of so many bytes in its log.
fn raise(
    db: &Connection,
    thread: usize,
    count: u64,
    begin: &str,
    bytes: u64,
) -> rusqlite::Result<()> {
    let raised = format!(
        "{begin};
         UPDATE counts SET n = {count} WHERE id = {thread};
         UPDATE counts SET n = n + 1 WHERE id = 100;
         INSERT INTO log VALUES ({thread}, {count}, zeroblob({bytes}))"
    );
    let done = db.execute_batch(&raised);
    let done = done.and_then(|()| db.execute_batch("COMMIT"));
    if done.is_err() && !db.is_autocommit() {
        db.execute_batch("ROLLBACK")?;
    }
    done
}

/// What a thread does, so many times; it ends when a commit fails with anything but BUSY and FULL.
/// Returns the transactions that it was told of, and those that found no room.
fn work(path: &Path, thread: usize, rounds: u64, told: &Told) -> (u64, u64) {
    let Ok(db) = open(path) else {
        return (0, 0);
    };
    let (mut done, mut full) = (0, 0);
    for round in 0..rounds {
        let kind = (round * 7 + thread as u64 * 3) % 20;
        let begin = match kind {
            0..=3 => "BEGIN",
            // Whoever has read may be too late to write.
            4..=5 => "BEGIN; SELECT count(*) FROM log",
            _ => "BEGIN IMMEDIATE",
        };
        let bytes = match kind {
            // Too large for a group.
            6 => 1 << 20,
            7 => 9000,
            _ => 10,
        };
        if kind == 8 {
            let undone = format!("{begin}; UPDATE counts SET n = 77 WHERE id < 200; ROLLBACK");
            let _ = db.execute_batch(&undone);
            continue;
        }
        loop {
            match raise(&db, thread, done + 1, begin, bytes) {
                Ok(()) => {
                    done += 1;
                    told.tell(thread, done);
                    break;
                }
                Err(error) if error.sqlite_error_code() == BUSY => {}
                Err(error) if error.sqlite_error_code() == FULL => {
                    full += 1;
                    break;
                }
                Err(_) => return (done, full),
            }
        }
    }
    (done, full)
}

/// A moment of a medium, and what had been told before.
struct Moment(Counts, Recorded);

struct Ran {
    moments: Vec<Moment>,
    path: Put,
    done: Counts,
    full: u64,
}

/// Threads that commit and a thread that reads, over a medium, which is prepared when the tables
/// are there.
fn run(medium: &Recorded, place: Place, rounds: u64, prepare: impl FnOnce()) -> Ran {
    let path = put(place);
    make_tables(&path);
    prepare();
    let told = Arc::new(Told::default());
    let moments = Arc::new(Mutex::new(Vec::new()));
    medium.watch(Some({
        let (told, moments) = (Arc::clone(&told), Arc::clone(&moments));
        Box::new(move |medium: &Recorded| {
            let told = told.get();
            let mut moments = moments.lock().expect("one at a time");
            moments.push(Moment(told, medium.snapshot()));
            // As a disk does; others join meanwhile.
            std::thread::sleep(Duration::from_micros(300));
        })
    }));
    let is_over = AtomicBool::new(false);
    let (at, told) = (&*path, told.as_ref());
    let (mut done, mut full) = (Counts::default(), 0);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let reader = scope.spawn(move || {
            let db = open(at).expect("it opens");
            while !is_over.load(Ordering::SeqCst) {
                // A medium that has failed refuses it.
                if let Ok(seen) = counts(&db) {
                    (0..THREADS).for_each(|thread| told.tell(thread, seen[thread]));
                }
            }
        });
        let threads = (0..THREADS).map(|thread| {
            let work = move || work(at, thread, rounds, told);
            scope.spawn(work)
        });
        let threads: Vec<_> = threads.collect();
        for (thread, ended) in threads.into_iter().enumerate() {
            let (its_own, without_room) = ended.join().expect("it does not panic");
            done[thread] = its_own;
            full += without_room;
        }
        is_over.store(true, Ordering::SeqCst);
        reader.join().expect("what it reads is whole");
    });
    medium.watch(None);
    let moments = std::mem::take(&mut *moments.lock().expect("one at a time"));
    Ran {
        moments,
        path,
        done,
        full,
    }
}

/// Whether a medium has lost what was told.
fn is_lost(told: &Counts, medium: Recorded) -> bool {
    let path = put_store(medium);
    let found = open(&path).map_err(|error| error.to_string());
    let found = found.and_then(|db| counts(&db));
    match found {
        Ok(found) => (0..THREADS).any(|thread| found[thread] < told[thread]),
        Err(_) => true,
    }
}

/// Cuts at moments after which something was lost.
fn losses(moments: &[Moment], every: usize) -> usize {
    let mut lost = 0;
    for (number, Moment(told, medium)) in moments.iter().enumerate().step_by(every) {
        for kind in 0..3 {
            let landing = Landing::draw(medium.pending(), kind, number as u64);
            lost += usize::from(is_lost(told, medium.cut(landing)));
        }
    }
    lost
}

fn store(medium: &Recorded) -> Place {
    Place::Store(medium.clone(), Kind::Seal)
}

#[test]
fn what_was_told_or_seen_survives_every_cut_and_transactions_are_whole() {
    let medium = Recorded::default();
    let ran = run(&medium, store(&medium), 40, || ());
    assert!(ran.done.iter().sum::<u64>() > 100, "{:?}", ran.done);
    assert_eq!(losses(&ran.moments, 1), 0, "of {}", ran.moments.len());
    let db = open(&ran.path).expect("it opens");
    assert_eq!(counts(&db), Ok(ran.done));
}

#[test]
fn control_a_medium_that_lies_and_answers_that_come_too_early_are_found() {
    let medium = Recorded::default();
    medium.lie();
    let ran = run(&medium, store(&medium), 12, || ());
    assert!(losses(&ran.moments, 1) > 0, "a medium that lies");
    for mistake in [Early::Shows, Early::Acknowledges] {
        let medium = Recorded::default();
        let ran = run(&medium, Place::Early(medium.clone(), mistake), 40, || ());
        assert!(losses(&ran.moments, 1) > 0, "{mistake:?}");
    }
}

#[test]
fn what_finds_no_room_is_not_there_and_the_others_go_on() {
    let medium = Recorded::default();
    let ran = run(&medium, store(&medium), 60, || {
        medium.give_at_most(Some(3 << 20));
    });
    assert!(ran.full > 0, "{:?}", ran.done);
    let db = open(&ran.path).expect("it opens");
    assert_eq!(counts(&db), Ok(ran.done));
    medium.give_at_most(None);
    raise(&db, 0, ran.done[0] + 1, "BEGIN", 10).expect("there is room");
    assert_eq!(counts(&db).map(|counts| counts[0]), Ok(ran.done[0] + 1));
    assert_eq!(losses(&ran.moments, 5), 0);
}

#[test]
fn a_medium_that_fails_tells_all_and_loses_nothing() {
    for operation in (30..90).step_by(7) {
        let medium = Recorded::default();
        let ran = run(&medium, store(&medium), 40, || {
            medium.fail_at(Some(medium.operations() + operation));
        });
        medium.fail_at(None);
        for kind in 0..3 {
            let landing = Landing::draw(medium.pending(), kind, operation);
            let path = put_store(medium.cut(landing));
            let found = counts(&open(&path).expect("it opens")).expect("it is whole");
            for (found, told) in found.into_iter().zip(ran.done) {
                assert!((told..=told + 1).contains(&found), "{found}, told {told}");
            }
        }
    }
}
