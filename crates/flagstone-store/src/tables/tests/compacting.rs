//! Compaction of tables with any contents, in a full store, and beside other transactions.

use super::*;
use crate::medium::{Disk, Recorded};
use flagstone::mistakes::Mistaken;
use std::os::unix::fs::MetadataExt;

/// Values in leaves, in pages of their own, and so long that other pages list their pages.
fn value(n: u16) -> Vec<u8> {
    let len = match n % 100 {
        0 => 700_000,
        1..20 => 9_000,
        _ => 900,
    };
    vec![n as u8; len]
}

const KINDS: [(&str, TableKind); 3] = [
    ("first", TableKind::Ordered),
    ("hashed", TableKind::Hashed),
    ("last", TableKind::Ordered),
];

fn fill(store: &Store, rows: u16) {
    for (name, kind) in KINDS {
        let mut tx = store.write().expect("a turn");
        let mut table = tx.open_table(name, kind).expect("a table");
        for n in 1..=rows {
            table.insert(&number(n), &value(n)).expect("room");
        }
        tx.commit().expect("room");
    }
}

/// Deletes all rows but every `kept`-th.
fn thin_out(store: &Store, rows: u16, kept: u16) {
    for (name, _) in KINDS {
        let mut tx = store.write().expect("a turn");
        let mut table = tx.table(name).expect("a table");
        for n in (1..=rows).filter(|n| n % kept > 0) {
            table.remove(&number(n)).expect("it is there");
        }
        tx.commit().expect("room");
    }
}

#[track_caller]
fn assert_rows(store: &Store, rows: u16, kept: u16) {
    store.check().expect("each page is used once or free");
    for (name, _) in KINDS {
        let table = table_of(store, name);
        let left = (1..=rows).filter(|n| n % kept == 0);
        assert_eq!(table.len().expect("a number"), left.clone().count() as u64);
        for n in left {
            assert_value(table.get(&number(n)), value(n));
        }
    }
}

/// Fails if the store does not shrink, if a page is lost or used twice, or if a value whose pages
/// other pages list has changed.
#[test]
fn what_is_left_of_tables_has_the_lowest_pages() {
    for kept in [1, 2, 50, 500] {
        let store = store();
        fill(&store, 1_000);
        thin_out(&store, 1_000, kept);
        let end = store.compact().expect("room");
        assert_eq!(end, store.held() as u64, "one of {kept} is left");
        assert_rows(&store, 1_000, kept);
        // Merged parents may have made a few leaves neighbours.
        let again = store.compact().expect("room");
        assert!(
            (end - end / 100..=end).contains(&again),
            "{again} and {end} pages"
        );
    }
}

#[test]
fn a_full_store_is_compacted_a_few_pages_at_a_time() {
    let medium = Recorded::default();
    medium.give_at_most(Some(6 << 20));
    let options = OpenOptions {
        pages_per_block: 16,
        ..OpenOptions::default()
    };
    let store = Store::on(Box::new(medium), &options).expect("a store");
    fill(&store, 99);
    thin_out(&store, 99, 3);
    let mut more = 0;
    while store.insert("more", &number(more), &[7; 3_000]).is_ok() {
        more += 1;
    }
    for n in (0..more).filter(|n| n % 4 > 0) {
        store.remove("more", &number(n)).expect("it gives room");
    }
    let end = store.compact().expect("it needs little room");
    assert!(end >= store.held() as u64);
    assert_rows(&store, 99, 3);
    let left = table_of(&store, "more").len().expect("a number");
    assert_eq!(left, u64::from(more.div_ceil(4)));
}

/// Snapshots keep their view, and a thread writes between the steps.
#[test]
fn others_read_and_write_while_tables_are_compacted() {
    let store = store();
    fill(&store, 600);
    let before = store.read().expect("a snapshot");
    thin_out(&store, 600, 5);
    let writes = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..200u16 {
                let mut tx = store.write().expect("a turn");
                add(&mut tx, "counter", 1);
                let mut table = tx.table("own").expect("a table");
                table.insert(&number(n), &value(n + 1)).expect("room");
                tx.commit().expect("room");
            }
        });
        let mut times = 0;
        while !writer.is_finished() || times == 0 {
            store.compact().expect("room");
            times += 1;
        }
        times
    });
    assert!(writes > 0);
    let end = store.compact().expect("room");
    assert_eq!(end, store.held() as u64);
    assert_rows(&store, 600, 5);
    assert_eq!(table_of(&store, "own").len().expect("a number"), 200);
    let seen = before.table("first").expect("it was there");
    assert_eq!(seen.len().expect("a number"), 600);
    assert_value(seen.get(&number(201)), value(201));
}

/// Rows of tables from which scattered rows are deleted.
struct Scattered {
    kind: TableKind,
    rows: u32,
    key: fn(u32) -> Vec<u8>,
    /// Length of a value in bytes.
    len: fn(u32) -> usize,
}

fn short(n: u32) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

fn alike(n: u32) -> Vec<u8> {
    [&[b'a'; 200][..], &n.to_be_bytes()].concat()
}

/// Keys that only their full length tells apart, so inner nodes hold few.
fn wide(n: u32) -> Vec<u8> {
    [&n.to_be_bytes()[..], &[b'w'; 400][..], &n.to_be_bytes()].concat()
}

const SCATTERED: [Scattered; 7] = {
    const fn rows(
        kind: TableKind,
        rows: u32,
        key: fn(u32) -> Vec<u8>,
        len: fn(u32) -> usize,
    ) -> Scattered {
        Scattered {
            kind,
            rows,
            key,
            len,
        }
    }
    [
        rows(TableKind::Ordered, 100_000, short, |_| 60),
        rows(TableKind::Ordered, 60_000, short, |_| 108),
        rows(TableKind::Ordered, 40_000, alike, |n| (n % 40) as usize),
        rows(TableKind::Ordered, 10_000, wide, |_| 100),
        rows(TableKind::Ordered, 12_000, short, |_| 1_300),
        rows(TableKind::Ordered, 6_000, short, |n| {
            (n * n % 2_000) as usize
        }),
        rows(TableKind::Hashed, 60_000, short, |_| 100),
    ]
};

impl Scattered {
    fn value(&self, n: u32) -> Vec<u8> {
        vec![n as u8; (self.len)(n)]
    }

    /// Whether a row stays, if about one row of `kept` does.
    fn stays(n: u32, kept: u32) -> bool {
        n.wrapping_mul(2_654_435_761) >> 8 < (1 << 24) / kept
    }

    /// Fills a table in a scattered order, then deletes most rows. Returns the bytes of the
    /// remaining rows.
    fn play(&self, store: &Store, kept: u32) -> u64 {
        let mut live = 0;
        for first in (0..self.rows).step_by(10_000) {
            let mut tx = store.write().expect("a turn");
            let mut table = tx.open_table("t", self.kind).expect("a table");
            for n in first..self.rows.min(first + 10_000) {
                let n = (u64::from(n) * 7_919 % u64::from(self.rows)) as u32;
                table.insert(&(self.key)(n), &self.value(n)).expect("room");
            }
            tx.commit().expect("room");
        }
        for first in (0..self.rows).step_by(10_000) {
            let mut tx = store.write().expect("a turn");
            let mut table = tx.table("t").expect("a table");
            for n in first..self.rows.min(first + 10_000) {
                let key = (self.key)(n);
                if Scattered::stays(n, kept) {
                    live += (key.len() + (self.len)(n)) as u64;
                } else {
                    table.remove(&key).expect("it is there");
                }
            }
            tx.commit().expect("room");
        }
        live
    }

    #[track_caller]
    fn assert_rows(&self, store: &Store, kept: u32) {
        store.check().expect("each page is used once or free");
        let table = table_of(store, "t");
        let mut left: Vec<u32> = (0..self.rows)
            .filter(|&n| Scattered::stays(n, kept))
            .collect();
        assert_eq!(table.len().expect("a number"), left.len() as u64);
        for &n in &left {
            assert_value(table.get(&(self.key)(n)), self.value(n));
        }
        if self.kind == TableKind::Ordered {
            left.sort_by_key(|&n| (self.key)(n));
            let keys: Vec<Vec<u8>> = pairs(table.iter())
                .into_iter()
                .map(|(key, _)| key)
                .collect();
            assert!(keys.into_iter().eq(left.into_iter().map(self.key)));
        }
    }
}

/// Twice the live bytes and a megabyte: the bound of a compacted file.
fn bound(live: u64) -> u64 {
    2 * live + (1 << 20)
}

/// A store in a file of its own.
struct InFile {
    store: Store,
    folder: tempfile::TempDir,
}

impl InFile {
    fn new(mistake: Option<Mistake>) -> InFile {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = Disk::open(&folder.path().join("store"), true, false).expect("a file");
        let options = OpenOptions::default();
        let store = Store::mistaken(Box::new(disk), &options, Mistaken::from(mistake));
        InFile {
            store: store.expect("a new store"),
            folder,
        }
    }

    /// Bytes allocated to the file.
    fn bytes(&self) -> u64 {
        let file = self.folder.path().join("store").metadata();
        file.expect("a file").blocks() * 512
    }
}

/// Fails if nodes stay sparse, or if rows are lost on the way.
#[test]
fn what_is_left_of_scattered_rows_takes_twice_its_bytes_at_most() {
    let mut above = 0;
    for scattered in &SCATTERED {
        let files = [None, Some(Mistake::MergesNothing)].map(|mistake| {
            let file = InFile::new(mistake);
            let live = scattered.play(&file.store, 10);
            file.store.compact().expect("room");
            scattered.assert_rows(&file.store, 10);
            (file.bytes(), live)
        });
        let [(bytes, live), (control, _)] = files;
        let text = format!(
            "{} rows: {bytes} bytes for {live}, control {control}",
            scattered.rows
        );
        println!("{text}");
        assert!(bytes <= bound(live), "{text}");
        assert!(bytes <= control / 4 * 3, "{text}");
        above += usize::from(control > bound(live));
    }
    assert!(above > 0, "no control is above the bound");
}

/// An open, idle store reaches the bound as well. Fails if idle work leaves tables as they are,
/// never ends, or repeats the same work.
#[test]
fn idle_work_compacts_sparse_tables() {
    for scattered in &SCATTERED {
        let file = InFile::new(None);
        let store = &file.store;
        let live = scattered.play(store, 20);
        let before = file.bytes();
        let mut times = 0;
        while store.idle(256).expect("room") > 0 {
            times += 1;
            assert!(times < 1_000);
        }
        let bytes = file.bytes();
        println!(
            "{} rows: {before} bytes, {bytes} for {live}",
            scattered.rows
        );
        assert!(bytes <= bound(live), "{bytes} bytes for {live}");
        scattered.assert_rows(store, 20);
        let held = store.held();
        assert_eq!((store.idle(256).expect("room"), store.held()), (0, held));
    }
}

/// Fails if idle work waits for a transaction or takes a snapshot's pages, or if tables stay sparse
/// once both are gone.
#[test]
fn idle_work_leaves_writers_and_snapshots_alone() {
    let store = store();
    let end = || store.pages().held().last().map_or(0, |at| at.0);
    let be_idle = || while store.idle(256).expect("room") > 0 {};
    fill(&store, 600);
    let read = store.read().expect("a snapshot");
    thin_out(&store, 600, 600);
    let before = end();
    be_idle();
    assert_eq!(end(), before);
    let first = read.table("first").expect("a table");
    assert_value(first.get(&number(7)), value(7));
    drop((read, first));
    let tx = store.write().expect("a turn");
    be_idle();
    assert_eq!(end(), before);
    drop(tx);
    be_idle();
    assert!(end() < before / 2);
    assert_rows(&store, 600, 600);
}
