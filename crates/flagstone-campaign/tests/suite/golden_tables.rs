//! Golden stores of tables: what each version of the format of tables was like. A program opens
//! those of all versions that it reads, finds what they held, and makes them of its own version
//! when it writes to them. It refuses one of a later version.
//! data/golden/README.md says how they are made.

use super::golden_files;
use flagstone::units::Lpn;
use flagstone_store::medium::{Landing, Recorded};
use flagstone_store::tables::VERSION;
use flagstone_store::{OpenOptions, PageStore, Store, StoreError, TableKind};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Transactions of the history.
const TRANSACTIONS: u32 = 40;
const KEYS: u32 = 30;

/// The page that says what a store holds.
const HEAD: Lpn = Lpn(0);

const TABLES: [(&str, TableKind); 2] = [
    ("ordered", TableKind::Ordered),
    ("hashed", TableKind::Hashed),
];

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn path(version: u64) -> PathBuf {
    golden_files::path(&format!("tables-v{version}/store.zst"))
}

/// What a transaction does to a table: a key, and its value or nothing.
fn changes(table: usize, transaction: u32) -> impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)> {
    (0..4).map(move |step| {
        let number = (transaction * 13 + step * 7 + table as u32) % KEYS;
        let key = format!("alike/{number:03}").into_bytes();
        // Lengths below, around and above those at which values have left their leaf.
        let most = [60, 1_100, 2_100, 9_000][(transaction as usize + step as usize) % 4];
        let len = (transaction * 389 + step * 977) as usize % most;
        let is_kept = !(transaction + step).is_multiple_of(9);
        (key, is_kept.then(|| vec![(transaction + step) as u8; len]))
    })
}

/// What a table holds.
fn rows(table: usize) -> Rows {
    let mut rows = Rows::new();
    for (key, value) in (0..TRANSACTIONS).flat_map(|transaction| changes(table, transaction)) {
        match value {
            Some(value) => _ = rows.insert(key, value),
            None => _ = rows.remove(&key),
        }
    }
    rows
}

/// A store that was not closed.
fn make() -> Result<Vec<u8>, StoreError> {
    let medium = Recorded::default();
    let mut options = OpenOptions::default();
    options.pages_per_block = 16;
    let store = Store::on(Box::new(medium.clone()), &options)?;
    for transaction in 0..TRANSACTIONS {
        let mut tx = store.write()?;
        for (number, (name, kind)) in TABLES.into_iter().enumerate() {
            let mut table = tx.open_table(name, kind)?;
            for (key, value) in changes(number, transaction) {
                match value {
                    Some(value) => table.insert(&key, &value)?,
                    None => table.remove(&key)?,
                };
            }
        }
        tx.commit()?;
    }
    Ok(medium.cut(Landing::Sectors(1)).to_vec())
}

fn open(medium: &Recorded, options: &OpenOptions) -> Result<Store, StoreError> {
    Store::on(Box::new(medium.clone()), options)
}

/// Holds a store against what it has to hold.
fn compare(store: &Store) {
    let read = store.read().expect("a snapshot");
    for (number, (name, kind)) in TABLES.into_iter().enumerate() {
        let table = read.table(name).expect("it is there");
        assert_eq!(table.kind(), kind);
        let pairs = table.iter().map(|pair| pair.expect("a pair"));
        let found: Rows = pairs.map(|(key, value)| (key, value.into())).collect();
        assert!(found == rows(number), "table `{name}`");
    }
    store.check().expect("all is in order");
}

/// The version that a store of tables says it has: page 0, bytes 16 and 17.
fn says(medium: &Recorded) -> u64 {
    let store = PageStore::on(Box::new(medium.clone()), &OpenOptions::existing().reading());
    let mut page = vec![0; PageStore::PAGE_BYTES];
    let read = store.expect("it opens").read(None, HEAD, &mut page);
    read.expect("it can be read").expect("it holds something");
    u64::from(u16::from_le_bytes([page[16], page[17]]))
}

#[test]
fn golden_tables_are_opened_with_what_they_held_or_refused_by_their_version() {
    golden_files::make(&path(VERSION), || make().expect("a store"));
    let existing = OpenOptions::existing();
    for version in 1..=VERSION {
        let medium = Recorded::with(&golden_files::read(&path(version)));
        compare(&open(&medium, &existing.clone().reading()).expect("it opens"));
        compare(&open(&medium, &existing).expect("it opens"));
        assert_eq!(says(&medium), version, "nothing was written to a table");
        // What writes to it makes it one of this version, and mends what it writes to.
        let store = open(&medium, &existing).expect("it opens");
        for (number, (name, _)) in TABLES.into_iter().enumerate() {
            let pairs: Vec<_> = rows(number).into_iter().collect();
            store.insert_all(name, &pairs).expect("room");
        }
        compare(&store);
        drop(store);
        assert_eq!(says(&medium), VERSION);
        compare(&open(&medium, &existing).expect("it opens"));
    }
    // One of a version that is still to come. The next one is that of stores that drop tables.
    let medium = Recorded::with(&golden_files::read(&path(VERSION)));
    let opened = PageStore::on(Box::new(medium.clone()), &existing);
    let (mut store, mut head) = (opened.expect("it opens"), vec![0; PageStore::PAGE_BYTES]);
    let read = store.read(None, HEAD, &mut head).expect("it can be read");
    head.truncate(read.expect("it holds something"));
    head[16] += 2;
    let tx = store.begin().expect("it begins");
    store.write(tx, HEAD, &head).expect("room");
    store.commit(tx).expect("it commits");
    drop(store);
    let refused = open(&medium, &existing).err().expect("refused").to_string();
    let wanted = format!("its tables are of version {}", VERSION + 2);
    assert!(refused.contains(&wanted), "{refused}");
}
