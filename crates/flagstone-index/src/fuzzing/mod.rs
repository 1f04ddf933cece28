//! Fuzzes indexes over damaged pages. The checksums are made to match the damage, so that nothing
//! below the index detects it.

#[cfg(test)]
mod tests;

use crate::{BackingError, BackingStore, Index, IndexError, IndexKind, Key, MemStore};
use crate::{Recoverable, Value};
use flagstone::units::{Lpn, Nanos};
use std::collections::BTreeMap;
use std::sync::OnceLock;

const ZERO: Nanos = Nanos::ZERO;
/// Bytes of one piece of damage: the kind of damage, a page (2), a place in it (2), and a value.
pub const EDIT: usize = 6;
const PAGE_BYTES: usize = 256;
const PAGES: u32 = 4096;
/// Keys of the history are below this number. Every third one is never present.
const KEYS: u64 = 150;

/// A way to use an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Used {
    Alone(IndexKind),
    /// With transactions, provided by those of its store.
    Recoverable(IndexKind),
}

/// All ways to use an index.
fn uses() -> Vec<Used> {
    let kinds = IndexKind::ALL.iter().copied();
    let alone = kinds.clone().map(Used::Alone);
    alone.chain(kinds.map(Used::Recoverable)).collect()
}

/// Pages that claim to support transactions, but roll none back: an index that stopped in the
/// middle of a change is reopened from the pages as they are.
struct Pages(MemStore);

impl Pages {
    fn with(images: &[Vec<u8>]) -> Box<dyn BackingStore> {
        let mut store = MemStore::new(PAGE_BYTES, PAGES);
        for (at, image) in (0..).map(Lpn).zip(images) {
            store.write(ZERO, &[(at, image)]).expect("it is there");
        }
        Box::new(Pages(store))
    }
}

impl BackingStore for Pages {
    fn page_bytes(&self) -> usize {
        self.0.page_bytes()
    }

    fn pages(&self) -> u32 {
        self.0.pages()
    }

    fn read(&mut self, now: Nanos, at: Lpn, into: &mut [u8]) -> Result<Nanos, BackingError> {
        self.0.read(now, at, into)
    }

    fn write(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, BackingError> {
        self.0.write(now, pages)
    }

    fn trim(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, BackingError> {
        self.0.trim(now, at)
    }

    fn transactional(&self) -> bool {
        true
    }

    fn commit(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        self.0.commit(now)
    }
}

/// The changes of the history: a key, and its new value, or `None` to delete it.
fn changes() -> impl Iterator<Item = (Key, Option<Value>)> {
    (0..400).map(|n| {
        let key = n * 37 % KEYS;
        (key - key % 3 + n % 2, (n % 7 != 0).then_some(n + 7))
    })
}

/// The number of changes in a transaction.
const CHANGES: usize = 4;

/// The entries that the index must hold after the history.
#[cfg(test)]
fn records() -> BTreeMap<Key, Value> {
    let mut records = BTreeMap::new();
    for (key, value) in changes() {
        match value {
            Some(value) => records.insert(key, value),
            None => records.remove(&key),
        };
    }
    records
}

/// An index opened in one of the ways of use.
enum Opened {
    Alone(Box<dyn Index>),
    Recoverable(Box<Recoverable>),
}

impl Opened {
    fn on(store: Box<dyn BackingStore>, used: Used) -> Result<Opened, IndexError> {
        Ok(match used {
            Used::Alone(kind) => Opened::Alone(kind.open(store, &kind.info().tiny(), ZERO)?.0),
            Used::Recoverable(kind) => {
                let opened = Recoverable::open(kind, store, &kind.info().tiny(), ZERO)?;
                Opened::Recoverable(Box::new(opened.0))
            }
        })
    }

    fn index(&mut self) -> &mut dyn Index {
        match self {
            Opened::Alone(index) => index.as_mut(),
            Opened::Recoverable(all) => all.index(),
        }
    }

    fn get(&mut self, key: Key) -> Result<Option<Value>, IndexError> {
        let found = match self {
            Opened::Alone(index) => index.get(ZERO, key),
            Opened::Recoverable(all) => all.get(ZERO, key),
        };
        Ok(found?.0)
    }

    /// Makes changes, in one transaction if the index has transactions.
    fn change(&mut self, changes: &[(Key, Option<Value>)]) -> Result<(), IndexError> {
        match self {
            Opened::Alone(index) => {
                for &(key, value) in changes {
                    match value {
                        Some(value) => index.insert(ZERO, key, value)?,
                        None => index.delete(ZERO, key)?,
                    };
                }
                index.settle(ZERO)?;
            }
            Opened::Recoverable(all) => {
                all.begin(ZERO)?;
                for &(key, value) in changes {
                    match value {
                        Some(value) => all.insert(ZERO, key, value)?,
                        None => all.delete(ZERO, key)?,
                    };
                }
                all.commit(ZERO)?;
            }
        }
        Ok(())
    }
}

/// The contents of all pages after the history.
fn images(used: Used) -> Vec<Vec<u8>> {
    let blank = Pages::with(&[]);
    let mut opened = Opened::on(blank, used).expect("it is blank");
    let all: Vec<_> = changes().collect();
    for some in all.chunks(CHANGES) {
        opened.change(some).expect("there is room");
    }
    let mut store = match opened {
        Opened::Alone(mut index) => {
            index.flush(ZERO).expect("there is room");
            index.into_store()
        }
        Opened::Recoverable(all) => all.into_store(),
    };
    let mut images = Vec::new();
    for at in (0..PAGES).map(Lpn) {
        let mut image = vec![0; PAGE_BYTES];
        store.read(ZERO, at, &mut image).expect("it is there");
        images.push(image);
    }
    let used = images
        .iter()
        .rposition(|image| image.iter().any(|&b| b != 0));
    images.truncate(used.map_or(0, |last| last + 1));
    images
}

/// Opens, checks, searches and changes an index over damaged pages. The first byte chooses the
/// index and its way of use; each [`EDIT`] bytes after it damage its pages after a history.
pub fn index(bytes: &[u8]) -> bool {
    open_damaged(bytes).is_ok()
}

/// The entries found in a damaged index, or the first error.
fn open_damaged(bytes: &[u8]) -> Result<BTreeMap<Key, Value>, IndexError> {
    static WHOLE: OnceLock<Vec<(Used, Vec<Vec<u8>>)>> = OnceLock::new();
    let all = WHOLE.get_or_init(|| uses().into_iter().map(|of| (of, images(of))).collect());
    let Some((&which, edits)) = bytes.split_first() else {
        return Err(IndexError::Settings("it names no index".into()));
    };
    let (used, whole) = &all[usize::from(which) % all.len()];
    let mut images = whole.clone();
    for edit in edits.chunks_exact(EDIT) {
        damage(&mut images, edit);
    }
    use_pages(*used, &images)
}

/// Carries out an edit of [`EDIT`] bytes: its kind, a page, a place in it, and a value.
fn damage(images: &mut [Vec<u8>], edit: &[u8]) {
    let word = |at: usize| usize::from(u16::from_le_bytes([edit[at], edit[at + 1]]));
    let (at, place, value) = (word(1) % images.len(), word(3) % PAGE_BYTES, edit[5]);
    let other = images[word(3) % images.len()].clone();
    let image = &mut images[at];
    match edit[0] % 6 {
        0 => image[place] ^= value,
        1 => image[place] = value,
        // Changes a number of up to eight bytes.
        2 => image[place..(place + 8).min(PAGE_BYTES)].fill(value),
        3 => image[place..].fill(value),
        4 => image.fill(0),
        _ => *image = other,
    }
}

/// Opens, checks, searches and changes an index. Returns the entries that it held.
fn use_pages(used: Used, images: &[Vec<u8>]) -> Result<BTreeMap<Key, Value>, IndexError> {
    let mut opened = Opened::on(Pages::with(images), used)?;
    // The check detects more damage than searches encounter.
    let _ = opened.index().check();
    let (mut found, mut first) = (BTreeMap::new(), Ok(()));
    // Searches continue after an error, like those of a user who then asks for another key.
    for key in 0..KEYS {
        match opened.get(key) {
            Ok(value) => found.extend(value.map(|value| (key, value))),
            Err(error) => first = first.and(Err(error)),
        }
    }
    if let Opened::Alone(index) = &mut opened
        && index.info().ordered
    {
        let ranged = index.range(ZERO, 0, Key::MAX, &mut Vec::new());
        first = first.and(ranged.map(|_| ()));
    }
    for key in (0..KEYS).step_by(CHANGES) {
        let keys = key..key + CHANGES as u64;
        let changes = keys.map(|key| (key, (key % 3 != 0).then_some(key)));
        opened.change(&changes.collect::<Vec<_>>())?;
    }
    opened.index().flush(ZERO)?;
    let _ = opened.index().check();
    first.map(|()| found)
}
