//! Readers beside a commit that waits for the disk: they do not wait, and see nothing that a power
//! cut could still take back.

use crate::lab::{Early, Place, open, put, put_store, uri};
use crate::support::{Sql, Stores, text};
use flagstone::commit::Kind;
use flagstone_store::medium::{Landing, Recorded};
use rusqlite::Connection;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const COUNT: &str = "SELECT count(*) FROM t";

/// Longer than any read takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Rows that a reader counts, as often as it is asked.
fn count_for(reader: Connection, asked: Receiver<()>) -> Receiver<u64> {
    let (answers, answered) = channel();
    std::thread::spawn(move || {
        while asked.recv().is_ok() {
            let count = text(&reader, COUNT).parse().expect("a number");
            if answers.send(count).is_err() {
                break;
            }
        }
    });
    answered
}

/// Rows of the database that a cut leaves of which nothing lands that was not synced.
fn durable_rows(medium: &Recorded) -> u64 {
    let path = put_store(medium.cut(Landing::Nothing));
    let db = open(&path).expect("it opens");
    text(&db, COUNT).parse().expect("a number")
}

/// Commits so many rows one by one. Before each write and each sync of the medium the rows are
/// counted, by what `counter` makes: returns that count, and how many rows were durable.
fn counts_while_rows_are_committed<F: Fn() -> u64 + Send + Sync + 'static>(
    place: fn(Recorded) -> Place,
    rows: u64,
    counter: impl FnOnce(&Path) -> F,
) -> Vec<(u64, u64)> {
    let medium = Recorded::default();
    let path = put(place(medium.clone()));
    let writer = open(&path).expect("it opens");
    writer.run("CREATE TABLE t (a)");
    let count = counter(&path);
    let seen = Arc::new(Mutex::new(Vec::new()));
    medium.watch(Some({
        let seen = Arc::clone(&seen);
        Box::new(move |medium: &Recorded| {
            let pair = (count(), durable_rows(medium));
            seen.lock().expect("one at a time").push(pair);
        })
    }));
    for row in 0..rows {
        writer.run(&format!("INSERT INTO t VALUES ({row})"));
    }
    medium.watch(None);
    std::mem::take(&mut *seen.lock().expect("one at a time"))
}

/// As a reader counts them that begins then. Its URI has parameters as `&nolock=1`.
fn counts_of_a_reader(place: fn(Recorded) -> Place, parameters: &str) -> Vec<(u64, u64)> {
    counts_while_rows_are_committed(place, 20, |path| {
        let (ask, asked) = channel();
        let reader = Connection::open(uri(path) + parameters).expect("it opens");
        let counted = Mutex::new(count_for(reader, asked));
        move || {
            ask.send(()).expect("it listens");
            let count = counted
                .lock()
                .expect("one at a time")
                .recv_timeout(PATIENCE);
            count.expect("a reader does not wait for a commit")
        }
    })
}

fn store(medium: Recorded) -> Place {
    Place::Store(medium, Kind::Seal)
}

#[test]
fn who_reads_while_a_commit_waits_sees_what_is_durable() {
    for parameters in ["", "&nolock=1"] {
        let counts = counts_of_a_reader(store, parameters);
        assert!(counts.len() >= 40, "{} moments", counts.len());
        for (seen, durable) in &counts {
            assert_eq!(seen, durable, "{parameters} of {counts:?}");
        }
    }
}

#[test]
fn control_who_reads_what_is_newest_sees_what_a_cut_takes_back() {
    let counts = counts_of_a_reader(|medium| Place::Early(medium, Early::Shows), "");
    let early = counts.iter().filter(|(seen, durable)| seen > durable);
    assert!(early.count() >= 20, "of {counts:?}");
}

/// Rows of a copy that a connection makes.
fn rows_of_copy(db: &Connection, to: &Path) -> u64 {
    let backup = format!("PRAGMA flagstone_backup='{}'", to.display());
    assert!(text(db, &backup).ends_with(" pages"));
    let copy = Connection::open(format!("file:{}?vfs=flagstone", to.display()));
    let rows = text(&copy.expect("it opens"), COUNT);
    std::fs::remove_file(to).expect("it was made");
    rows.parse().expect("a number")
}

#[test]
fn a_copy_beside_a_commit_that_waits_is_of_what_is_durable() {
    let stores = Stores::new();
    let to = stores.path("copy.flag");
    let seen = counts_while_rows_are_committed(store, 5, |path| {
        let other = Mutex::new(open(path).expect("it opens"));
        move || rows_of_copy(&other.lock().expect("one at a time"), &to)
    });
    assert!(seen.len() >= 10, "{} moments", seen.len());
    for (copied, durable) in &seen {
        assert_eq!(copied, durable, "of {seen:?}");
    }
}
