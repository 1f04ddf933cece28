//! What processes that were killed leave beside stores: super-journals, which nobody would find.

use crate::support::{Sql, Stores};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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
