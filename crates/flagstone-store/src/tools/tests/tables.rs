//! Tables of damaged stores: a repair says which keys are lost, and all that it leaves is whole.

use super::*;

const ROWS: u32 = 600;

fn value(n: u32) -> Vec<u8> {
    format!("value {n:06} ").repeat(10).into_bytes()
}

/// A store of two tables, and of a table that is damaged where the last one has these bytes.
fn damaged(folder: &TempDir, mark: &[u8]) -> PathBuf {
    let path = folder.path().join("tables.flag");
    let store = Store::with(&path, &options()).expect("a new store");
    let mut tx = store.write().expect("a turn");
    for name in ["other", "rows"] {
        let mut table = tx.table(name).expect("a table");
        for n in 0..ROWS {
            table.insert(&n.to_be_bytes(), &value(n)).expect("room");
        }
    }
    tx.commit().expect("room");
    store.close().expect("no fault");
    let mut bytes = fs::read(&path).expect("it can be read");
    let place = bytes.windows(mark.len()).rposition(|bytes| bytes == mark);
    bytes[place.expect("it was written")] ^= 1;
    fs::write(&path, bytes).expect("room");
    path
}

/// Fails if a repair names other keys than those that are lost, or if what it leaves leads to pages
/// that a later write takes for something else.
#[test]
fn a_repair_names_the_keys_that_are_lost_and_leaves_whole_tables() {
    let folder = TempDir::new().expect("a folder");
    let path = damaged(&folder, &value(300));
    let to = folder.path().join("to.flag");
    let report = salvage(&path, &to);
    assert!(!report.is_whole());
    let ([keys], 1) = (&report.keys[..], report.lost.len()) else {
        panic!("{report:?}");
    };
    let number = |key: &[u8]| u32::from_be_bytes(*key.first_chunk().expect("four bytes"));
    let (from, behind) = (
        number(&keys.from),
        number(keys.to.as_deref().expect("the end")),
    );
    assert!(
        (from..behind).contains(&300) && behind - from < 60,
        "{keys}"
    );
    assert!(keys.to_string().starts_with("table `"), "{keys}");

    let store = Store::open(&to).expect("a store");
    store.check().expect("tables are whole");
    let read = store.read().expect("a snapshot");
    for name in ["other", "rows"] {
        let table = read.table(name).expect("a table");
        for n in 0..ROWS {
            let is_lost = name == keys.table && (from..behind).contains(&n);
            let found = table.get(&n.to_be_bytes()).expect("it can be read");
            assert_eq!(found.as_deref(), (!is_lost).then_some(&value(n)[..]), "{n}");
        }
    }
    // New pages of another table change nothing of this one, which gets its keys back.
    let mut tx = store.write().expect("a turn");
    for name in ["new", &keys.table] {
        let mut table = tx.table(name).expect("a table");
        for n in 0..ROWS {
            table.insert(&n.to_be_bytes(), &value(n)).expect("room");
        }
    }
    tx.commit().expect("room");
    store.check().expect("tables are whole");
    let table = store.read().expect("a snapshot").table(&keys.table);
    assert_eq!(
        table.expect("a table").len().expect("a number"),
        ROWS.into()
    );
}

/// Fails if a store without the catalog is given up, or if the repair says nothing of it.
#[test]
fn a_repair_says_that_the_catalog_is_lost_and_keeps_the_pages() {
    let folder = TempDir::new().expect("a folder");
    let path = damaged(&folder, b"rows");
    let to = folder.path().join("to.flag");
    let report = salvage(&path, &to);
    assert!(
        report.missing.iter().any(|why| why.contains("catalog")),
        "{report:?}"
    );
    assert_eq!((report.lost.len(), report.keys.len()), (1, 0));
    let held = PageStore::open(&to, &OpenOptions::existing().reading()).expect("a store");
    assert!(held.held().count() as u64 > report.pages);
}
