//! Golden stores that are encrypted, by a key and by a passphrase: a program opens them and finds
//! what they held, and nothing by another key. data/golden/README.md says how they are made.

use super::golden_files;
use flagstone::units::Lpn;
use flagstone_store::medium::{Landing, Recorded};
use flagstone_store::{Key, OpenOptions, PageStore, StoreError};
use std::path::PathBuf;

/// The versions of the format of encrypted stores, as their superblocks have them.
const VERSIONS: [u64; 2] = [3, VERSION];
const VERSION: u64 = 5;
/// Pages of the store, fewer than others have: no page can be compressed.
const PAGES: u32 = 7;
const TRANSACTIONS: u32 = 12;

fn path(version: u64, kind: &str) -> PathBuf {
    golden_files::path(&format!("encrypted-v{version}/{kind}.zst"))
}

fn key(kind: &str) -> Key {
    match kind {
        "key" => Key::raw([7; 32]),
        _ => Key::passphrase("a golden store".into()),
    }
}

fn open(medium: &Recorded, key: Key) -> Result<PageStore, StoreError> {
    let mut options = OpenOptions::default();
    options.pages_per_block = 16;
    options.identity = Some(0x601d_e75c_0de5_11f5);
    options.key = Some(key);
    PageStore::on(Box::new(medium.clone()), &options)
}

/// The page that a transaction writes, and its bytes.
fn write(transaction: u32) -> (Lpn, Vec<u8>) {
    let len = 1 + (transaction * 997) as usize % PageStore::PAGE_BYTES;
    let at = Lpn(transaction * 3 % PAGES);
    (at, vec![transaction as u8 + 1; len])
}

/// A store whose power was cut before its last transaction committed.
fn make(kind: &str) -> Result<Vec<u8>, StoreError> {
    let medium = Recorded::default();
    let mut store = open(&medium, key(kind))?;
    for transaction in 0..TRANSACTIONS {
        let tx = store.begin()?;
        let (at, bytes) = write(transaction);
        store.write(tx, at, &bytes)?;
        if transaction + 1 < TRANSACTIONS {
            store.commit(tx)?;
        }
    }
    Ok(medium.cut(Landing::Everything).to_vec())
}

#[test]
fn golden_encrypted_stores_are_opened_by_their_key_alone() {
    for kind in ["key", "passphrase"] {
        golden_files::make(&path(VERSION, kind), || make(kind).expect("a store"));
    }
    let all = VERSIONS.map(|version| ["key", "passphrase"].map(|kind| (version, kind)));
    for (version, kind) in all.into_iter().flatten() {
        let golden = golden_files::read(&path(version, kind));
        let mut held = vec![None; PAGES as usize];
        for (at, bytes) in (0..TRANSACTIONS - 1).map(write) {
            held[at.index()] = Some(bytes);
        }
        // What it holds is nowhere to be read.
        let shown = [9; 64];
        assert!(held.contains(&Some(write(8).1)) && write(8).1.starts_with(&shown));
        assert!(!golden.windows(64).any(|bytes| bytes == shown));
        let mut store = open(&Recorded::with(&golden), key(kind)).expect("it opens");
        let mut page = vec![0; PageStore::PAGE_BYTES];
        for (at, wanted) in held.into_iter().enumerate() {
            let found = store.read(None, Lpn(at as u32), &mut page);
            let found = found.expect("it can be read").map(|len| &page[..len]);
            assert_eq!(found, wanted.as_deref(), "page {at}");
        }
        assert!(store.check().expect("it can be read").is_well());
        for other in [Key::raw([8; 32]), Key::passphrase("another".into())] {
            let refused = open(&Recorded::with(&golden), other).err();
            assert!(matches!(refused, Some(StoreError::Key(_))), "{refused:?}");
        }
    }
}
