//! Fuzzing of the data in a store: tables, a disk, typed keys and values. Damage is written by
//! transactions, so all checksums are correct and the upper parsers see the damage.

use super::{EDIT, PAGES_PER_BLOCK};
use crate::medium::{Memory, Recorded, SECTOR_BYTES};
use crate::tables::{KeyCodec, TableKind};
use crate::{OpenOptions, PageStore, Store, StoreError, Volume};
use flagstone::units::Lpn;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::OnceLock;

/// Contents of tables: table name, key, value.
pub(super) type Tables = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn options() -> OpenOptions {
    OpenOptions {
        pages_per_block: PAGES_PER_BLOCK,
        ..OpenOptions::default()
    }
}

/// The pages of a store, as user data.
#[derive(Debug, Clone)]
pub struct Held(Vec<(Lpn, Vec<u8>)>);

impl Held {
    /// Reads the pages of a closed store.
    ///
    /// # Panics
    /// The medium holds no store, or a damaged one.
    pub fn by(medium: &Recorded) -> Held {
        let memory = Box::new(Memory::with(medium.to_vec()));
        let opened = PageStore::on(memory, &OpenOptions::existing());
        let mut store = opened.expect("it was closed");
        let (mut held, mut page) = (Vec::new(), vec![0; PageStore::PAGE_BYTES]);
        for at in store.held().collect::<Vec<_>>() {
            let bytes = store.read(None, at, &mut page).expect("it is whole");
            held.push((at, page[..bytes.unwrap_or(0)].to_vec()));
        }
        Held(held)
    }

    /// A medium with a store that holds these pages.
    ///
    /// # Panics
    /// A store cannot hold these pages.
    pub fn medium(&self) -> Memory {
        let medium = Recorded::default();
        let opened = PageStore::on(Box::new(medium.clone()), &options());
        let mut store = opened.expect("the medium is blank");
        let tx = store.begin().expect("none is live");
        for (at, bytes) in &self.0 {
            store.write(tx, *at, bytes).expect("there is room");
        }
        store.commit(tx).expect("the medium does not fail");
        store.close().expect("the medium does not fail");
        Memory::with(medium.to_vec())
    }

    /// Applies edits of [`EDIT`] bytes to the pages: the operation, a page (2), an offset (2), a
    /// value.
    pub fn damaged(&self, edits: &[u8]) -> Held {
        let mut pages = self.0.clone();
        for edit in edits.chunks_exact(EDIT) {
            let word = |at: usize| usize::from(u16::from_le_bytes([edit[at], edit[at + 1]]));
            let (count, value) = (pages.len(), edit[5]);
            let other = pages[word(3) % count].1.clone();
            let page = &mut pages[word(1) % count].1;
            // Damage the begin of a page more often: it holds most of the structure.
            let near = if edit[0] & 0x80 == 0 { 64 } else { usize::MAX };
            let place = word(3) % page.len().clamp(1, near);
            match edit[0] % 6 {
                0 => page[place] ^= value,
                1 => page[place] = value,
                // Overwrites an integer of up to eight bytes.
                2 => {
                    let end = (place + 8).min(page.len());
                    page[place..end].fill(value);
                }
                3 => *page = other,
                4 => page.truncate(place),
                _ => page[place..].fill(0),
            }
            // A store keeps no empty pages.
            pages.retain(|(_, bytes)| !bytes.is_empty());
            if pages.is_empty() {
                break;
            }
        }
        Held(pages)
    }
}

/// The contents of the sample tables.
pub(super) fn sample() -> Tables {
    let pairs = |count: u32, key: fn(u32) -> Vec<u8>, bytes: usize| {
        let value = |i: u32| vec![i as u8; bytes + i as usize % 40];
        (0..count).map(|i| (key(i), value(i))).collect()
    };
    let number = |i: u32| i.to_be_bytes().to_vec();
    let word = |i: u32| format!("a word, number {i}").into_bytes();
    Tables::from([
        ("empty".to_string(), BTreeMap::new()),
        ("hashed".to_string(), pairs(90, word, 60)),
        ("long values".to_string(), pairs(5, number, 9_000)),
        ("numbers".to_string(), pairs(300, number, 30)),
        ("words".to_string(), pairs(150, word, 300)),
    ])
}

/// The kind of a sample table.
fn kind_of(name: &str) -> TableKind {
    match name {
        "hashed" => TableKind::Hashed,
        _ => TableKind::Ordered,
    }
}

fn tables_whole() -> &'static Held {
    static WHOLE: OnceLock<Held> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let medium = Recorded::default();
        let opened = Store::on(Box::new(medium.clone()), &options());
        let store = opened.expect("the medium is blank");
        let mut tx = store.write().expect("nobody else writes");
        for (name, pairs) in sample() {
            let mut table = tx.open_table(&name, kind_of(&name)).expect("it is new");
            for (key, value) in pairs {
                table.insert(&key, &value).expect("there is room");
            }
        }
        tx.commit().expect("the medium does not fail");
        store.close().expect("the medium does not fail");
        Held::by(&medium)
    })
}

/// Tables in a store, with damage to its pages: the store's first page, the catalog, nodes, and
/// pages of long values. They are opened, checked, read and written.
pub fn tables(bytes: &[u8]) -> bool {
    use_tables(tables_whole().damaged(bytes).medium()).is_ok()
}

#[cfg(test)]
pub(super) fn tables_undamaged() -> Memory {
    tables_whole().medium()
}

/// Opens tables, reads them in every way, and writes to them. Returns the earlier contents.
pub(super) fn use_tables(medium: Memory) -> Result<Tables, StoreError> {
    let store = Store::on(Box::new(medium), &OpenOptions::existing())?;
    let is_sound = store.check().is_ok();
    let read = store.read()?;
    let mut found = Tables::new();
    for (name, _) in read.tables()? {
        let table = read.table(&name)?;
        let mut pairs = BTreeMap::new();
        for pair in table.iter() {
            let (key, value) = pair?;
            pairs.insert(key, value.to_vec());
        }
        let backwards = table.iter().rev().map(|pair| Ok(pair?.0));
        let backwards = backwards.collect::<Result<Vec<_>, StoreError>>()?;
        let keys: Vec<&[u8]> = pairs.keys().map(Vec::as_slice).collect();
        let values = table.get_many(&keys)?;
        if is_sound {
            assert_eq!(table.len()?, keys.len() as u64, "{name}");
            assert_eq!(backwards.len(), keys.len(), "{name}");
            assert!(values.iter().all(Option::is_some), "{name}");
        }
        found.insert(name, pairs);
    }
    drop(read);
    let mut tx = store.write()?;
    for (name, pairs) in &found {
        let mut table = tx.table(name)?;
        for key in pairs.keys().step_by(7) {
            table.remove(key)?;
        }
        for i in 0..40u32 {
            table.insert(&i.to_le_bytes(), &vec![1; i as usize * 40])?;
        }
    }
    for name in found.keys().take(2) {
        tx.drop_table(name)?;
    }
    tx.commit()?;
    if is_sound {
        store.check().map_err(StoreError::Damaged)?;
    }
    store.close()?;
    Ok(found)
}

/// Size of the sample disk in bytes.
pub(super) const DISK_BYTES: u64 = 400 << 10;

/// Offset and data of request `i` of the disk's history.
fn request(i: u64) -> (u64, Vec<u8>) {
    let at = i * 31 * SECTOR_BYTES as u64 % DISK_BYTES;
    let bytes = (DISK_BYTES - at).min((1 + i % 20) * SECTOR_BYTES as u64);
    (at, vec![i as u8 + 1; bytes as usize])
}

/// Number of requests in the disk's history.
const REQUESTS: u64 = 30;

/// The contents of the sample disk.
#[cfg(test)]
pub(super) fn disk_sample() -> Vec<u8> {
    let mut whole = vec![0; DISK_BYTES as usize];
    for (at, bytes) in (0..REQUESTS).map(request) {
        whole[at as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    whole
}

fn disk_whole() -> &'static Held {
    static WHOLE: OnceLock<Held> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let medium = Recorded::default();
        let opened = PageStore::on(Box::new(medium.clone()), &options());
        let made = Volume::create(opened.expect("the medium is blank"), DISK_BYTES);
        let mut disk = made.expect("there is room");
        for (at, bytes) in (0..REQUESTS).map(request) {
            disk.write(at, &bytes).expect("there is room");
        }
        disk.close().expect("the medium does not fail");
        Held::by(&medium)
    })
}

/// A disk in a store, with damage to its pages: the first page, main pages, tails pages. It is
/// opened, read and written.
pub fn disk(bytes: &[u8]) -> bool {
    use_disk(disk_whole().damaged(bytes).medium()).is_ok()
}

#[cfg(test)]
pub(super) fn disk_undamaged() -> Memory {
    disk_whole().medium()
}

/// Opens a disk, reads and writes it. Returns its earlier contents, up to the sample's length.
pub(super) fn use_disk(medium: Memory) -> Result<Vec<u8>, StoreError> {
    let store = PageStore::on(Box::new(medium), &OpenOptions::existing())?;
    let mut disk = Volume::open(store)?;
    let mut found = vec![0; disk.size().min(DISK_BYTES) as usize];
    disk.read(0, &mut found)?;
    let last = disk.size() - SECTOR_BYTES as u64;
    disk.read(last, &mut [0; SECTOR_BYTES])?;
    disk.write(0, &[7; SECTOR_BYTES])?;
    disk.trim(last, SECTOR_BYTES as u64)?;
    disk.flush()?;
    disk.close()?;
    Ok(found)
}

/// Typed keys and values. A decoded value must encode to the same bytes. Encodings of keys must be
/// unique and sort as the values do.
pub fn typed(bytes: &[u8]) -> bool {
    fn is_key<K: KeyCodec + Ord + Debug>(bytes: &[u8]) -> bool {
        let encoded = |key: &K| {
            let mut bytes = Vec::new();
            key.encode(&mut bytes);
            bytes
        };
        let Some(key) = K::decode(bytes) else {
            return false;
        };
        assert_eq!(encoded(&key), bytes, "{key:?}");
        // A second encoding that differs in its last byte.
        let mut other = bytes.to_vec();
        let Some(last) = other.last_mut() else {
            return true;
        };
        *last ^= 1;
        if let Some(other) = K::decode(&other) {
            assert_eq!(key.cmp(&other), encoded(&key).cmp(&encoded(&other)));
        }
        true
    }
    let keys = [
        is_key::<u8>,
        is_key::<i64>,
        is_key::<u128>,
        is_key::<bool>,
        is_key::<String>,
        is_key::<[u8; 5]>,
        is_key::<Option<i16>>,
        is_key::<(String, u32)>,
        is_key::<(i32, Option<Vec<u8>>, bool)>,
    ];
    let taken = keys.map(|is_key| is_key(bytes));
    // Every byte string is a valid key.
    is_key::<Vec<u8>>(bytes);
    taken.contains(&true)
}
