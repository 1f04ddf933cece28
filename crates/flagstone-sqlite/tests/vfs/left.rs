//! What processes that were killed leave beside stores: super-journals, which nobody would find.

use crate::lab::super_journals;
use crate::support::{Sql, Stores};
use rusqlite::Connection;
use std::io::BufRead;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A super-journal that lists one journal.
fn put_super_journal(at: &Path, journal: &Path) {
    let mut names = journal.as_os_str().as_bytes().to_vec();
    names.push(0);
    std::fs::write(at, names).expect("room");
}

/// A journal that names a super-journal, as SQLite writes it.
fn put_journal(at: &Path, super_journal: &Path) {
    const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    let name = super_journal.as_os_str().as_bytes();
    let mut journal = vec![7; 100];
    journal.extend_from_slice(name);
    journal.extend_from_slice(&(name.len() as u32).to_be_bytes());
    journal.extend_from_slice(&[0; 4]);
    journal.extend_from_slice(&MAGIC);
    std::fs::write(at, journal).expect("room");
}

#[test]
fn super_journals_that_nobody_needs_do_not_pile_up() {
    let stores = Stores::new();
    let path = |name: &str| stores.path(name);
    let ends = ["000001900", "000002901", "00000A9FF"];
    let [left, needed, live] = ends.map(|end| path(&format!("a.flag-mj{end}")));
    put_super_journal(&left, &path("b.flag-journal"));
    put_super_journal(&needed, &path("p.db-journal"));
    put_journal(&path("p.db-journal"), &needed);
    put_super_journal(&live, &path("b.flag-journal"));
    let other = path("a.flag-mj-of-mine");
    put_super_journal(&other, &path("b.flag-journal"));
    let lock = std::fs::File::open(&live).expect("a file");
    lock.lock().expect("as a process that commits has it");
    let db = stores.open("a.flag");
    db.run(&format!("ATTACH '{}' AS b", stores.uri("b.flag", "")));
    db.run("CREATE TABLE t (a); CREATE TABLE b.u (a)");
    assert!(
        left.exists(),
        "one database needs none, and nobody has looked"
    );
    let both = "BEGIN; INSERT INTO t VALUES (1); INSERT INTO u VALUES (1); COMMIT";
    db.run(both);
    assert!(!left.exists());
    for kept in [&needed, &live, &other] {
        assert!(kept.exists(), "{}", kept.display());
    }
    // Its own is gone, as always.
    let ours = |name: &String| name.starts_with("a.flag-mj");
    assert_eq!(stores.names().iter().filter(|name| ours(name)).count(), 3);
}

#[test]
fn super_journals_of_120_killed_writers_do_not_pile_up() {
    const CHILD: &str = "FLAGSTONE_TEST_TWO_STORES";
    if let Ok(folder) = std::env::var(CHILD) {
        return commit_to_two_stores(folder.as_ref());
    }
    let stores = Stores::new();
    let (mut left, mut most) = (0, 0);
    for kill in 0..120_u64 {
        let mut child = Command::new(std::env::current_exe().expect("a path"));
        child.args([
            "--exact",
            "left::super_journals_of_120_killed_writers_do_not_pile_up",
        ]);
        child.args(["--nocapture"]).stdout(Stdio::piped());
        let folder = stores.path("");
        let mut child = child.env(CHILD, folder).spawn().expect("it runs");
        let lines = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
        let begun = |line: &std::io::Result<String>| line.as_ref().is_ok_and(|l| l == "begun");
        assert!(lines.lines().any(|line| begun(&line)), "it commits");
        // At any moment of its commits.
        std::thread::sleep(Duration::from_micros(kill * 97 % 5000));
        child.kill().expect("it lives");
        child.wait().expect("it ended");
        let now = super_journals(&stores.path("a.flag"));
        left += usize::from(now > 0);
        most = most.max(now);
    }
    println!("of 120 killed writers {left} left a super-journal; {most} at a time at most");
    assert!(left > 0, "no kill came in time");
    assert_eq!(most, 1, "each writer removes what the one before has left");
    let db = two_stores(&stores.path(""));
    db.run(BOTH);
    assert_eq!(super_journals(&stores.path("a.flag")), 0);
}

const BOTH: &str = "BEGIN; INSERT INTO t VALUES (1); INSERT INTO u VALUES (1); COMMIT";

fn two_stores(folder: &Path) -> Connection {
    let uri = |name| format!("file:{}?vfs=flagstone", folder.join(name).display());
    let db = Connection::open(uri("a.flag")).expect("a database");
    db.run(&format!("ATTACH '{}' AS b", uri("b.flag")));
    db.run("CREATE TABLE IF NOT EXISTS t (a); CREATE TABLE IF NOT EXISTS b.u (a)");
    db
}

/// Commits until it is killed.
fn commit_to_two_stores(folder: &Path) {
    flagstone_sqlite::register!(rusqlite::ffi).expect("SQLite takes the VFS");
    let db = two_stores(folder);
    db.run(BOTH);
    println!("begun");
    loop {
        db.run(BOTH);
    }
}
