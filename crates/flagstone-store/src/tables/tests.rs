//! Tests of tables: guarantees of transactions, savepoints and snapshots.

mod compacting;
mod dropping;
mod failing;
mod lost;
mod panicking;

use super::*;
use crate::error::StoreError;
use crate::medium::{Memory, Recorded};
use crate::pages::tests::assert_says;
use crate::pages::{OpenOptions, PageStore};
use std::ops::Bound;

fn store() -> Store {
    Store::on(Box::new(Memory::default()), &OpenOptions::default()).expect("a new store")
}

/// The current state of a table.
#[track_caller]
fn table_of(store: &Store, name: &str) -> Table {
    let read = store.read().expect("a snapshot");
    read.table(name).expect("a table")
}

#[track_caller]
fn assert_value(found: Result<Option<Value>, StoreError>, value: impl AsRef<[u8]>) {
    assert_eq!(found.expect("a table").as_deref(), Some(value.as_ref()));
}

/// Adds to a counter of a table.
#[track_caller]
fn add(tx: &mut WriteTx, table: &str, by: i64) {
    let mut table = tx.table(table).expect("a table");
    table.add(b"sum", by).expect("room");
}

fn pairs(range: impl Iterator<Item = Result<Pair, StoreError>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pair = |pair: Result<Pair, StoreError>| {
        let (key, value) = pair.expect("a pair");
        (key, value.to_vec())
    };
    range.map(pair).collect()
}

fn keys(range: impl Iterator<Item = Result<Pair, StoreError>>) -> Vec<u16> {
    let key = |(key, _): (Vec<u8>, Vec<u8>)| u16::from_be_bytes([key[0], key[1]]);
    pairs(range).into_iter().map(key).collect()
}

fn number(n: u16) -> [u8; 2] {
    n.to_be_bytes()
}

#[test]
fn a_commit_is_seen_by_later_snapshots_only() {
    let store = store();
    let before = store.read().expect("a snapshot");
    let mut tx = store.write().expect("a turn");
    let mut table = tx.table("t").expect("a new table");
    assert!(!table.insert(b"key", b"one").expect("room"));
    assert_value(table.get(b"key"), b"one");
    assert!(store.read().expect("a snapshot").table("t").is_err());
    tx.commit().expect("room");
    assert!(before.table("t").is_err());
    let first = table_of(&store, "t");
    let mut tx = store.write().expect("a turn");
    assert!(
        tx.table("t")
            .expect("a table")
            .insert(b"key", b"two")
            .expect("room")
    );
    tx.commit().expect("room");
    let mut tx = store.write().expect("a turn");
    assert!(
        tx.table("t")
            .expect("a table")
            .remove(b"key")
            .expect("room")
    );
    drop(tx);
    assert_value(first.get(b"key"), b"one");
    let last = table_of(&store, "t");
    assert_value(last.get(b"key"), b"two");
}

#[test]
fn iterators_go_both_ways_within_any_bounds() {
    let store = store();
    let mut tx = store.write().expect("a turn");
    let mut table = tx.table("numbers").expect("a new table");
    let value = [7; 100];
    for n in (0..3000).step_by(3) {
        table.insert(&number(n), &value).expect("room");
    }
    let all: Vec<u16> = (0..3000).step_by(3).collect();
    assert_eq!(keys(table.iter().expect("a table")), all);
    tx.commit().expect("room");
    let table = table_of(&store, "numbers");
    assert_eq!(keys(table.iter()), all);
    let mut down = all.clone();
    down.reverse();
    assert_eq!(keys(table.iter().rev()), down);
    let bounds = |n| [Bound::Included(n), Bound::Excluded(n), Bound::Unbounded];
    for (low, high) in [
        (0, 0),
        (5, 6),
        (299, 2000),
        (300, 2001),
        (2000, 100),
        (2997, 5000),
    ] {
        for from in bounds(low) {
            for to in bounds(high) {
                // A map panics at such an empty range.
                let is_in = |&&n: &&u16| {
                    let above = match from {
                        Bound::Included(low) => n >= low,
                        Bound::Excluded(low) => n > low,
                        Bound::Unbounded => true,
                    };
                    let below = match to {
                        Bound::Included(high) => n <= high,
                        Bound::Excluded(high) => n < high,
                        Bound::Unbounded => true,
                    };
                    above && below
                };
                let mut expected: Vec<u16> = all.iter().filter(is_in).copied().collect();
                let range = || {
                    let range = (from.map(number), to.map(number));
                    table.range(range).expect("it is ordered")
                };
                assert_eq!(keys(range()), expected);
                // From both ends alternately, until they meet.
                let (mut both, mut ends) = (range(), (Vec::new(), Vec::new()));
                while let Some(front) = both.next() {
                    ends.0.extend(keys(std::iter::once(front)));
                    ends.1.extend(keys(both.next_back().into_iter()));
                }
                ends.0.extend(ends.1.into_iter().rev());
                assert_eq!(ends.0, expected, "{from:?} {to:?}");
                expected.reverse();
                assert_eq!(keys(range().rev()), expected);
            }
        }
    }
    let prefix = table.prefix(&[2]).expect("it is ordered");
    let expected: Vec<u16> = all.iter().copied().filter(|n| n >> 8 == 2).collect();
    assert_eq!(keys(prefix), expected);
    assert_eq!(keys(table.prefix(b"").expect("it is ordered")), all);
    assert_eq!(keys(table.prefix(b"\xff").expect("it is ordered")), []);
    let some: Vec<[u8; 2]> = [9, 10, 2997, 0, 9].map(number).to_vec();
    let found = table.get_many(&some).expect("a table");
    let there: Vec<bool> = found.iter().map(Option::is_some).collect();
    assert_eq!(there, [true, false, true, true, true]);
}

/// Fails if savepoints of two transactions can have the same number.
#[test]
fn a_savepoint_of_another_transaction_is_refused() {
    let (store, other) = (store(), store());
    let strange = {
        let mut tx = store.write().expect("a turn");
        let mut beside = other.write().expect("a turn");
        [tx.savepoint(), beside.savepoint()]
    };
    let mut tx = store.write().expect("a turn");
    let own = tx.savepoint();
    add(&mut tx, "t", 1);
    for savepoint in strange {
        for refused in [tx.rollback_to(savepoint), tx.release(savepoint)] {
            assert!(
                matches!(refused, Err(StoreError::Options(_))),
                "{refused:?}"
            );
        }
    }
    let table = tx.table("t").expect("a table");
    assert!(table.get(b"sum").expect("a table").is_some());
    tx.rollback_to(own).expect("a savepoint");
    assert!(tx.tables().expect("a catalog").is_empty());
}

#[test]
fn savepoints_nest_and_free_pages_come_back() {
    let store = store();
    let mut tx = store.write().expect("a turn");
    let fill = |tx: &mut WriteTx, numbers: std::ops::Range<u16>| {
        let mut table = tx.table("t").expect("a table");
        for n in numbers {
            table.insert(&number(n), &[1; 900]).expect("room");
        }
    };
    let count = |tx: &mut WriteTx| tx.table("t").expect("a table").len().expect("a table");
    fill(&mut tx, 0..20);
    let outer = tx.savepoint();
    fill(&mut tx, 20..60);
    let inner = tx.savepoint();
    fill(&mut tx, 60..100);
    tx.table("other")
        .expect("a new table")
        .insert(b"k", b"v")
        .expect("room");
    tx.rollback_to(inner).expect("a savepoint");
    assert_eq!(count(&mut tx), 60);
    assert_eq!(tx.tables().expect("a catalog").len(), 1);
    fill(&mut tx, 60..70);
    tx.release(inner).expect("a savepoint");
    assert_eq!(count(&mut tx), 70);
    tx.drop_table("t").expect("it is there");
    assert!(tx.rollback_to(inner).is_err(), "it was released");
    tx.rollback_to(outer).expect("a savepoint");
    assert_eq!(count(&mut tx), 20);
    tx.rollback_to(outer).expect("it stays");
    tx.commit().expect("room");
    let read = store.read().expect("a snapshot");
    let table = read.table("t").expect("a table");
    assert_eq!(keys(table.iter()), (0..20).collect::<Vec<u16>>());
    store.check().expect("each page is used once or free");
}

#[test]
fn values_have_any_length_and_their_pages_come_back() {
    let store = store();
    let long = |n: usize| -> Vec<u8> { (0..n).map(|i| (i % 251) as u8).collect() };
    let lengths = [
        0, 1, 900, 1100, 1990, 2010, 4032, 4033, 400_000, 500_000, 3_000_000,
    ];
    for kind in [TableKind::Ordered, TableKind::Hashed] {
        let mut tx = store.write().expect("a turn");
        let mut table = tx.open_table("long", kind).expect("a new table");
        for n in lengths {
            table
                .insert(n.to_string().as_bytes(), &long(n))
                .expect("room");
        }
        tx.commit().expect("room");
        store.check().expect("each page is used once or free");
        let table = table_of(&store, "long");
        for n in lengths {
            let value = table.get(n.to_string().as_bytes()).expect("a table");
            assert!(value.expect("it is there") == long(n), "{n} bytes, {kind}");
        }
        let mut tx = store.write().expect("a turn");
        let mut table = tx.table("long").expect("a table");
        for n in lengths {
            assert!(table.remove(n.to_string().as_bytes()).expect("it is there"));
        }
        assert_eq!(table.len().expect("a table"), 0);
        tx.drop_table("long").expect("it is there");
        tx.commit().expect("room");
        store.check().expect("each page is used once or free");
        assert_eq!(store.held(), 2, "the head and the catalog");
    }
}

/// Pairs of keys with equal hashes. The second key was computed from the first by inverting XXH3,
/// which is a bijection for keys of each length from 4 to 8 bytes.
pub(super) const COLLIDING: [[&[u8]; 2]; 3] = [
    [b"alike", &[194, 228, 203, 92, 151, 29, 235, 157]],
    [b"other", &[144, 208, 146, 248, 254, 178, 11, 218]],
    [b"four", &[239, 86, 166, 196, 103, 119, 147, 204]],
];

/// Fails if changing a key affects or finds the records of other keys with the same hash.
#[test]
fn keys_of_one_hash_share_a_place_and_nothing_else() {
    let store = store();
    for [one, two] in COLLIDING {
        assert_eq!(hashed::hash(one), hashed::hash(two));
        let mut tx = store.write().expect("a turn");
        let mut table = tx.open_table("t", TableKind::Hashed).expect("a table");
        assert!(!table.insert(one, b"one").expect("room"));
        assert!(!table.remove(two).expect("a table"));
        assert!(!table.insert(two, b"two").expect("room"));
        assert!(table.insert(one, &[1; 3000]).expect("room"));
        assert_value(table.get(two), b"two");
        assert_eq!(
            table.get(one).expect("a table").as_deref(),
            Some(&[1; 3000][..])
        );
        tx.commit().expect("room");
        let mut found = Vec::new();
        let table = table_of(&store, "t");
        for (key, _) in pairs(table.iter()) {
            found.push(key);
        }
        found.sort_unstable();
        let mut both = [one.to_vec(), two.to_vec()];
        both.sort_unstable();
        assert_eq!(found, both);
        let many = table.get_many(&[two, one]).expect("a table");
        assert!(many[0].as_deref() == Some(b"two") && many[1].as_deref() == Some(&[1; 3000]));
        assert!(store.remove("t", one).expect("room"));
        let table = table_of(&store, "t");
        assert!(table.get(one).expect("a table").is_none());
        assert_value(table.get(two), b"two");
        assert!(store.remove("t", two).expect("room"));
        store.check().expect("each page is used once or free");
    }
}

#[test]
fn errors_name_the_table_and_the_key_and_change_nothing() {
    let store = store();
    let mut tx = store.write().expect("a turn");
    let mut table = tx.table("users").expect("a new table");
    table.insert(b"ada", b"1").expect("room");
    let long = vec![b'x'; 2000];
    let refused = table.insert(&long, b"").unwrap_err().to_string();
    assert!(refused.starts_with("table `users`, key `xxx"), "{refused}");
    assert_says(table.insert(&long, b""), "a key of 2000 bytes is too long");
    assert_says(table.add(b"ada", 1), "a counter has 8 bytes");
    assert_eq!(table.add(b"hits", 5).expect("room"), 5);
    assert_eq!(table.add(b"hits", -7).expect("room"), -2);
    let refused = tx.open_table("users", TableKind::Hashed);
    assert_says(refused, "is ordered, not hashed");
    let mut hashed = tx
        .open_table("sessions", TableKind::Hashed)
        .expect("a new table");
    hashed.insert(&long, b"long").expect("keys of any length");
    assert!(hashed.range(..b"x").is_err());
    assert_value(hashed.get(&long), b"long");
    tx.commit().expect("room");
    let read = store.read().expect("a snapshot");
    let there = "there is no table `user`: there are `sessions`, `users`";
    assert_says(read.table("user"), there);
    assert_eq!(
        read.table("users")
            .expect("a table")
            .len()
            .expect("a table"),
        2
    );
}

#[test]
fn handles_go_to_other_threads() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    shared::<Store>();
    shared::<ReadTx>();
    shared::<Table>();
    shared::<Value>();
    sent::<Range<Snapshot>>();
    sent::<WriteTx>();
    sent::<Commit>();
}

#[test]
fn a_store_says_what_it_holds() {
    use crate::volume::Volume;
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let pages = |name: &str| PageStore::open(&path(name), &OpenOptions::default()).expect("pages");
    for (name, at, bytes) in [
        ("database.flag", 1, &b"SQLite format 3\0 and so on"[..]),
        ("pages.flag", 7, b"a layout of its own"),
    ] {
        pages(name).put(at, bytes);
    }
    drop(Volume::create(pages("disk.flag"), 1 << 20).expect("a disk"));
    drop(Store::open(path("tables.flag")).expect("a new store"));
    let said = |refused: Option<StoreError>| refused.map(|error| error.to_string());
    let no_tables = |name: &str| said(Store::open(path(name)).err());
    let no_disk = |name: &str| said(Volume::open(pages(name)).err());
    let no_new = |name: &str| said(Volume::create(pages(name), 4096).err());
    for (name, what) in [
        (
            "database.flag",
            "holds an SQLite database: open it by SQLite",
        ),
        (
            "pages.flag",
            "holds pages of another kind: open it as a `PageStore`",
        ),
        ("disk.flag", "holds a disk: open it as one"),
        ("tables.flag", "holds tables: open it as a `Store`"),
    ] {
        let says = |refused: &Option<String>| refused.as_ref().is_some_and(|it| it.contains(what));
        for (refused, kind) in [(no_tables(name), "tables"), (no_disk(name), "disk")] {
            let is_one = name.starts_with(kind);
            assert_eq!(says(&refused), !is_one, "{name}: {refused:?}");
        }
        let refused = no_new(name);
        assert!(refused.is_some() && (says(&refused) || name.starts_with("disk")));
    }
    let named = "disk.flag: the store holds a disk";
    assert_says(Store::open(path("disk.flag")), named);
}

#[test]
fn a_store_is_what_it_was_when_it_is_opened_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tables.flag");
    let store = Store::open(&path).expect("a new store");
    for kind in [TableKind::Ordered, TableKind::Hashed] {
        let mut tx = store.write().expect("a turn");
        let name = kind.to_string();
        let mut table = tx.open_table(&name, kind).expect("a new table");
        let all: Vec<_> = (0..1000).map(|n| (number(n), n.to_string())).collect();
        table.insert_all(&all).expect("room");
        tx.commit().expect("room");
    }
    store.close().expect("a file");
    let store = Store::with(&path, &OpenOptions::existing().reading()).expect("it is there");
    assert!(matches!(store.write(), Err(StoreError::ReadOnly)));
    let read = store.read().expect("a snapshot");
    assert_eq!(read.tables().expect("a catalog").len(), 2);
    for kind in [TableKind::Ordered, TableKind::Hashed] {
        let table = read.table(&kind.to_string()).expect("a table");
        assert_eq!(table.kind(), kind);
        assert_eq!(table.keys, Some(1000), "the close has counted");
        let mut found = keys(table.iter());
        let mut back = keys(table.iter().rev());
        back.reverse();
        assert_eq!(found, back);
        found.sort_unstable();
        assert_eq!(found, (0..1000).collect::<Vec<u16>>());
    }
    store.check().expect("each page is used once or free");
}

#[test]
fn an_empty_store_that_is_opened_for_reading_has_no_damage() {
    let medium = Recorded::default();
    let made = PageStore::on(Box::new(medium.clone()), &OpenOptions::default());
    made.and_then(PageStore::close).expect("a new store");
    let reading = OpenOptions::existing().reading();
    let store = Store::on(Box::new(medium), &reading).expect("an empty store");
    assert_eq!(store.check(), Ok(()));
    let tables = store.read().and_then(|read| read.tables());
    assert!(tables.expect("no catalog").is_empty());
}

#[test]
fn calls_that_are_transactions_of_their_own_do_what_transactions_do() {
    let store = store();
    assert!(!store.remove("t", b"key").expect("no table is no error"));
    assert!(
        store.read().expect("a snapshot").table("t").is_err(),
        "none was made"
    );
    assert!(!store.insert("t", b"key", b"1").expect("room"));
    assert!(store.insert("t", b"key", b"2").expect("room"));
    assert_eq!(store.add("t", b"sum", 3).expect("room"), 3);
    assert_eq!(store.add("t", b"sum", -1).expect("room"), 2);
    let longer = |value: Option<&[u8]>| Some([value.unwrap_or(b"none"), b"!"].concat());
    assert!(store.update("t", b"key", longer).expect("room"));
    assert!(!store.update("t", b"other", longer).expect("room"));
    assert!(store.update("t", b"sum", |_| None).expect("room"));
    assert!(!store.remove("t", b"sum").expect("room"));
    let table = table_of(&store, "t");
    let wanted: [(&[u8], &[u8]); 2] = [(b"key", b"2!"), (b"other", b"none!")];
    let found = pairs(table.iter());
    let found: Vec<(&[u8], &[u8])> = found.iter().map(|(k, v)| (&k[..], &v[..])).collect();
    assert_eq!(found, wanted);
    // Threads: no update comes between another thread's read and its write.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..50 {
                    let more = |value: Option<&[u8]>| {
                        let count = value.map_or(0, |bytes| bytes[0]);
                        Some(vec![count + 1; 500])
                    };
                    store.update("counts", &number(n), more).expect("room");
                }
            });
        }
    });
    let table = table_of(&store, "counts");
    assert!(
        pairs(table.iter())
            .iter()
            .all(|(_, value)| *value == [4; 500])
    );
    store.check().expect("each page is used once or free");
}

#[test]
fn pairs_that_threads_write_by_one_call_each_are_all_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tables.flag");
    let store = Store::open(&path).expect("a new store");
    let pairs = |from: u16, value: &str| -> Vec<_> {
        let numbers = (0..700).map(|n| n * 8 + from);
        numbers
            .map(|n| (number(n), format!("{value} {n}")))
            .collect()
    };
    for round in ["first", "second"] {
        std::thread::scope(|scope| {
            for from in 0..4 {
                let (store, pairs) = (&store, &pairs);
                scope.spawn(move || store.insert_all("t", &pairs(from, round)).expect("room"));
            }
        });
    }
    let read = store.read().expect("a snapshot");
    let table = read.table("t").expect("it was made");
    for from in 0..4 {
        for (key, value) in pairs(from, "second") {
            let found = table.get(&key).expect("a table");
            assert_eq!(found.as_deref(), Some(value.as_bytes()));
        }
    }
    assert_eq!(table.iter().count(), 2800);
    // All or nothing: the last key is too long.
    let long = [(vec![1], vec![1]), (vec![2; 1 << 20], vec![1])];
    assert!(store.insert_all("t", &long).is_err());
    assert!(!table_of(&store, "t").contains(&[1]).expect("it"));
    store.check().expect("all is in order");
}

#[test]
fn errors_and_values_are_told_in_words_for_files() {
    let lost = StoreError::Device(flagstone::commit::DeviceError::Unreadable(
        flagstone::units::Lpn(7),
    ));
    let told = lost.to_string();
    assert!(
        told.contains("page 7") && told.contains("store check"),
        "{told}"
    );
    assert!(!told.contains("ECC"), "{told}");
    let store = store();
    store.insert("t", b"key", b"val\0ue").expect("written");
    let value = table_of(&store, "t").get(b"key").expect("it can be read");
    assert_eq!(format!("{value:?}"), r#"Some(Value("val\\x00ue"))"#);
}
