//! Repair of damaged tables: it lists the lost keys and leaves consistent tables.

use super::*;

const ROWS: u32 = 600;

fn value(n: u32) -> Vec<u8> {
    format!("value {n:06} ").repeat(10).into_bytes()
}

/// A store with three tables; the page of the last one that contains `mark` is damaged.
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

/// Fails if a repair lists other keys than the lost ones, or leaves references to pages that later
/// writes reuse.
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
    // New pages of another table do not affect this table, which gets its keys back.
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

/// Fails if a repair gives up a store without a catalog, or does not report the loss.
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

/// Fails if `--newest` does not repair the tables.
#[test]
fn the_newest_versions_of_pages_make_tables_without_the_keys_that_are_lost() {
    let folder = TempDir::new().expect("a folder");
    let path = damaged(&folder, &value(300));
    let to = folder.path().join("to.flag");
    let hints = Hints {
        newest: true,
        ..Hints::default()
    };
    let report = mend(&path, &to, &hints).expect("versions");
    assert!(!report.is_whole());
    let [keys] = &report.keys[..] else {
        panic!("{report:?}");
    };
    let store = Store::open(&to).expect("a store");
    store.check().expect("tables are whole");
    let read = store.read().expect("a snapshot");
    let mut lost = 0;
    for name in ["other", "rows"] {
        let table = read.table(name).expect("a table");
        for n in 0..ROWS {
            let found = table.get(&n.to_be_bytes()).expect("it can be read");
            let key = n.to_be_bytes().to_vec();
            let is_lost = name == keys.table && key >= keys.from && Some(&key) < keys.to.as_ref();
            assert_eq!(found.as_deref(), (!is_lost).then_some(&value(n)[..]), "{n}");
            lost += u32::from(is_lost);
        }
    }
    assert!((1..60).contains(&lost), "{lost}");
    drop(read);
    store
        .insert("rows", &300_u32.to_be_bytes(), b"again")
        .expect("room");
    store.check().expect("tables are whole");
}

/// Pages of different moments may be inconsistent. Fails if a repair leaves such tables without
/// saying so.
#[test]
fn versions_that_do_not_fit_together_are_told() {
    let folder = TempDir::new().expect("a folder");
    let (path, to) = (folder.path().join("a.flag"), folder.path().join("b.flag"));
    let store = Store::with(&path, &options()).expect("a new store");
    for round in 0..60_u32 {
        let mut tx = store.write().expect("a turn");
        let mut table = tx.table("rows").expect("a table");
        for n in 0..40 {
            let key = (round * 40 + n) * 7919 % 1500;
            let value = value(round * 40 + n);
            table.insert(&key.to_be_bytes(), &value).expect("room");
            table.remove(&(key + 3).to_be_bytes()).expect("room");
        }
        tx.commit().expect("room");
    }
    store.close().expect("no fault");
    let whole = fs::read(&path).expect("it can be read");
    let hints = Hints {
        newest: true,
        ..Hints::default()
    };
    let (mut told, mut mended) = (0, 0);
    for number in (0..blocks_of(&path) * PAGES).step_by(5) {
        fs::write(&path, &whole).expect("room");
        flip(&path, page_offset(number / PAGES, number % PAGES) + 9);
        let report = mend(&path, &to, &hints).expect("versions");
        let is_told = report.missing.iter().any(|why| why.contains("tables"));
        let opened = Store::open(&to);
        let checked = opened.map_err(|error| error.to_string());
        match checked.and_then(|store| store.check()) {
            Ok(()) => mended += 1,
            Err(why) => {
                assert!(is_told, "{number}: {why}, {report:?}");
                told += 1;
            }
        }
    }
    println!("{mended} mended, {told} told");
    assert!(mended > 20, "{mended}, {told}");
}
