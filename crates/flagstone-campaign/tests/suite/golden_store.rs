//! Golden stores: what each version of the format of stores was like. A program opens those of all
//! versions that it reads and finds what they held, and refuses one of a later version and says
//! which it is.
//! data/golden/README.md says how it is made.

use super::golden_files;
use flagstone::units::Lpn;
use flagstone_store::medium::{Landing, Recorded};
use flagstone_store::{MEDIUM_PAGE_BYTES, OpenOptions, PageStore, STORE_VERSION, StoreError};
use std::path::PathBuf;

/// Pages of the golden store.
const PAGES: u32 = 40;
/// Its transactions, the last of which is not committed.
const TRANSACTIONS: u32 = 60;

/// The versions of stores. Encrypted ones had version 3, and have the one behind the last.
const VERSIONS: [u64; 3] = [1, 2, STORE_VERSION];

/// A golden store that was closed, or one that was not.
fn path(version: u64, closed: bool) -> PathBuf {
    let name = if closed { "closed" } else { "store" };
    golden_files::path(&format!("store-v{version}/{name}.zst"))
}

/// The pages that a transaction writes, and the byte that fills them.
fn writes(transaction: u32) -> impl Iterator<Item = (Lpn, Vec<u8>)> {
    (0..=transaction % 5).map(move |step| {
        let at = (transaction * 7 + step * 11) % PAGES;
        let len = 1 + (transaction * 97 + step * 1_009) as usize % PageStore::PAGE_BYTES;
        (Lpn(at), vec![(transaction + step) as u8; len])
    })
}

/// What the store holds.
fn held() -> Vec<Option<Vec<u8>>> {
    let mut pages = vec![None; PAGES as usize];
    for (at, bytes) in (0..TRANSACTIONS - 1).flat_map(writes) {
        pages[at.index()] = Some(bytes);
    }
    pages
}

/// A store whose power was cut while its last transaction was being written, or which was closed
/// then.
fn make(closed: bool) -> Result<Vec<u8>, StoreError> {
    let medium = Recorded::default();
    let mut options = OpenOptions::default();
    options.pages_per_block = 16;
    options.identity = Some(0x601d_e75c_0de5_11f3);
    let mut store = PageStore::on(Box::new(medium.clone()), &options)?;
    for transaction in 0..TRANSACTIONS {
        let tx = store.begin()?;
        for (at, bytes) in writes(transaction) {
            store.write(tx, at, &bytes)?;
        }
        if transaction + 1 < TRANSACTIONS {
            store.commit(tx)?;
        }
    }
    if closed {
        store.close()?;
    }
    Ok(medium.cut(Landing::Sectors(1)).to_vec())
}

fn open(bytes: &[u8]) -> (Recorded, Result<PageStore, StoreError>) {
    let medium = Recorded::with(bytes);
    let store = PageStore::on(Box::new(medium.clone()), &OpenOptions::existing());
    (medium, store)
}

/// Holds a store against what it has to hold.
fn compare(store: &mut PageStore) {
    let mut page = vec![0; PageStore::PAGE_BYTES];
    for (at, wanted) in held().into_iter().enumerate() {
        let found = store.read(None, Lpn(at as u32), &mut page);
        let found = found.expect("it can be read").map(|len| &page[..len]);
        assert_eq!(found, wanted.as_deref(), "page {at}");
    }
    assert!(store.check().expect("it can be read").is_well());
}

#[test]
fn a_golden_store_is_opened_with_what_it_held_or_refused_by_its_version() {
    for closed in [false, true] {
        let path = path(STORE_VERSION, closed);
        golden_files::make(&path, || make(closed).expect("a store"));
    }
    for version in VERSIONS {
        let (medium, store) = open(&golden_files::read(&path(version, false)));
        let mut store = store.expect("it opens");
        compare(&mut store);
        // None of them was closed; version 1 did not say.
        let info = store.info();
        let closed = (version > 1).then_some(false);
        assert_eq!(info.closed, closed);
        assert_eq!(info.life.since, u32::from(version == 1));
        // What writes to it makes it one of this version.
        let tx = store.begin().expect("it begins");
        let (at, bytes) = writes(TRANSACTIONS - 2).last().expect("a write");
        store.write(tx, at, &bytes).expect("room");
        store.commit(tx).expect("it commits");
        store.close().expect("it is closed");
        let (_, store) = open(&medium.to_vec());
        let mut store = store.expect("it opens");
        compare(&mut store);
        let info = store.info();
        assert_eq!(
            (info.closed, info.openings, info.life.commits > 0),
            (Some(true), 2, true)
        );
    }
    let mut bytes = golden_files::read(&path(STORE_VERSION, false));
    // Superblocks of another version. The next one is that of stores that are encrypted.
    for head in bytes.chunks_mut(MEDIUM_PAGE_BYTES).take(2) {
        head[8] += 2;
        let sum = crc32(&head[..124]);
        head[124..128].copy_from_slice(&sum.to_le_bytes());
    }
    let (_, opened) = open(&bytes);
    let Err(StoreError::NotAStore(why)) = opened else {
        panic!("{:?}", opened.err());
    };
    assert!(
        why.contains(&format!("has version {}", STORE_VERSION + 2)),
        "{why}"
    );
}

#[test]
fn a_golden_store_that_was_closed_is_opened_from_the_tables_that_it_left() {
    let (_, store) = open(&golden_files::read(&path(STORE_VERSION, true)));
    let mut store = store.expect("it opens");
    compare(&mut store);
    let info = store.info();
    assert_eq!((info.closed, info.resumed), (Some(true), true));
}

/// CRC-32C bit by bit, written down once more.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| match sum & 1 {
        1 => sum >> 1 ^ 0x82f6_3b78,
        _ => sum >> 1,
    };
    let each = |sum: u32, &byte: &u8| (0..8).fold(sum ^ u32::from(byte), step);
    !bytes.iter().fold(!0, each)
}
