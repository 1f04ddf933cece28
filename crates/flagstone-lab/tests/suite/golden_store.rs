//! A golden store: what each version of the format of stores was like. A program opens that of its
//! own version and finds what it held, and refuses one of another version and says which it is.
//! data/golden/README.md says how it is made.

use flagstone::units::Lpn;
use flagstone_store::medium::{Landing, Recorded};
use flagstone_store::{MEDIUM_PAGE_BYTES, OpenOptions, STORE_VERSION, Store, StoreError};
use std::fs;
use std::path::{Path, PathBuf};

/// Pages of the golden store.
const PAGES: u32 = 40;
/// Its transactions, the last of which is not committed.
const TRANSACTIONS: u32 = 60;

fn folder() -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/golden");
    golden.join(format!("store-v{STORE_VERSION}"))
}

/// The pages that a transaction writes, and the byte that fills them.
fn writes(transaction: u32) -> impl Iterator<Item = (Lpn, Vec<u8>)> {
    (0..=transaction % 5).map(move |step| {
        let at = (transaction * 7 + step * 11) % PAGES;
        let len = 1 + (transaction * 97 + step * 1_009) as usize % Store::PAGE_BYTES;
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

/// A store whose power was cut while its last transaction was being written.
fn make() -> Result<Vec<u8>, StoreError> {
    let medium = Recorded::default();
    let mut options = OpenOptions::default();
    options.pages_per_block = 16;
    let mut store = Store::on(Box::new(medium.clone()), &options)?;
    for transaction in 0..TRANSACTIONS {
        let tx = store.begin()?;
        for (at, bytes) in writes(transaction) {
            store.write(tx, at, &bytes)?;
        }
        if transaction + 1 < TRANSACTIONS {
            store.commit(tx)?;
        }
    }
    Ok(medium.cut(Landing::Sectors(1)).to_vec())
}

#[test]
fn a_golden_store_is_opened_with_what_it_held_or_refused_by_its_version() {
    let path = folder().join("store.zst");
    if std::env::var_os("FLAGSTONE_BLESS").is_some() && !path.exists() {
        let bytes = make().expect("a store");
        let packed = zstd::stream::encode_all(&bytes[..], 19).expect("a vector takes it");
        fs::create_dir_all(folder()).expect("it can be made");
        fs::write(&path, packed).expect("it can be written");
    }
    let packed = fs::read(&path).expect("the golden store of this version");
    let mut bytes = zstd::stream::decode_all(&packed[..]).expect("a golden store is whole");
    let open = |bytes: &[u8]| {
        let medium = Box::new(Recorded::with(bytes));
        Store::on(medium, &OpenOptions::existing())
    };
    let mut store = open(&bytes).expect("it opens");
    let mut page = vec![0; Store::PAGE_BYTES];
    for (at, wanted) in held().into_iter().enumerate() {
        let found = store.read(None, Lpn(at as u32), &mut page);
        let found = found.expect("it can be read").map(|len| &page[..len]);
        assert_eq!(found, wanted.as_deref(), "page {at}");
    }
    assert!(store.check().expect("it can be read").is_well());
    // Superblocks of another version.
    for head in bytes.chunks_mut(MEDIUM_PAGE_BYTES).take(2) {
        head[8] += 1;
        let sum = crc32(&head[..60]);
        head[60..64].copy_from_slice(&sum.to_le_bytes());
    }
    let Err(StoreError::NotAStore(why)) = open(&bytes) else {
        panic!("it is opened");
    };
    assert!(
        why.contains(&format!("has version {}", STORE_VERSION + 1)),
        "{why}"
    );
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
