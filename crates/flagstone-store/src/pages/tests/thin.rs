//! New stores in files take room as they are written to.

use super::{OpenOptions, PageStore, assert_says};
use crate::error::StoreError;
use crate::medium::{Medium, Memory};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a file that take room.
fn taken(path: &Path) -> u64 {
    std::fs::metadata(path).expect("a file").blocks() * 512
}

fn holds(store: &mut PageStore, pages: u32) {
    for at in 0..pages {
        assert_eq!(store.page(at).as_deref(), Some(&[at as u8; 100][..]));
    }
}

#[test]
fn a_new_store_takes_64_kib_and_more_only_for_what_it_holds() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.flag");
    let mut store = PageStore::open(&path, &OpenOptions::default()).expect("a store");
    store.put(0, &[0; 100]);
    assert!(taken(&path) <= 64 << 10, "{}", taken(&path));
    for at in 0..12 {
        store.put(at, &[at as u8; 100]);
    }
    assert!(taken(&path) <= 64 << 10, "{}", taken(&path));
    store.close().expect("it closes");
    // The summary of a block.
    assert!(taken(&path) <= 68 << 10, "{}", taken(&path));
    // Each opening begins a block.
    for opening in 0..40 {
        let mut store = PageStore::open(&path, &OpenOptions::default()).expect("a store");
        assert!(store.check().expect("it can be read").is_well());
        holds(&mut store, 12);
        store.put(opening % 12, &[(opening % 12) as u8; 100]);
        store.close().expect("it closes");
    }
    assert!(taken(&path) <= 1 << 20, "{}", taken(&path));
    // Before it grows it takes the room of all its blocks.
    let mut store = PageStore::open(&path, &OpenOptions::default()).expect("a store");
    for at in 0..1_500 {
        store.put(at, &[at as u8; 100]);
    }
    let info = store.info();
    assert!(info.blocks > 16 && taken(&path) >= info.bytes, "{info:?}");
    holds(&mut store, 1_500);
    store.close().expect("it closes");
    let mut store = PageStore::open(&path, &OpenOptions::default()).expect("a store");
    assert!(store.check().expect("it can be read").is_well());
    holds(&mut store, 1_500);
}

#[cfg(feature = "encryption")]
#[test]
fn a_new_store_that_is_encrypted_takes_its_marks_beside() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.flag");
    let options = OpenOptions {
        key: Some(crate::Key::raw([1; 32])),
        ..OpenOptions::default()
    };
    let mut store = PageStore::open(&path, &options).expect("a store");
    for at in 0..12 {
        store.put(at, &[at as u8; 100]);
    }
    // The marks of 16 blocks are a page each.
    assert!(taken(&path) <= 128 << 10, "{}", taken(&path));
    store.close().expect("it closes");
    let mut store = PageStore::open(&path, &options).expect("a store");
    holds(&mut store, 12);
}

/// Memory with holes, and with so much room left as it is told.
#[derive(Clone, Default)]
struct Holed {
    below: Arc<Memory>,
    left: Arc<AtomicU64>,
}

impl Medium for Holed {
    crate::forward_medium!(below: read_at write_at sync bytes reserve);

    fn is_thin(&self) -> bool {
        true
    }

    fn take(&self, _: u64, bytes: u64) -> io::Result<()> {
        match self.left() >= Some(bytes) {
            true => Ok(()),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    fn left(&self) -> Option<u64> {
        Some(self.left.load(Ordering::Relaxed))
    }
}

#[test]
fn a_store_that_may_find_no_room_refuses_a_write_and_is_well() {
    let medium = Holed::default();
    let left = |bytes| medium.left.store(bytes, Ordering::Relaxed);
    left(100 << 20);
    let options = OpenOptions::default();
    let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
    for at in 0..12 {
        store.put(at, &[at as u8; 100]);
    }
    left(1_000);
    let tx = store.begin().expect("it begins");
    let refused = store.write(tx, flagstone::units::Lpn(1), b"one");
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    store.abort(tx).expect("it aborts");
    holds(&mut store, 12);
    // There is room again.
    left(2 << 20);
    store.put(1, &[1; 100]);
    // It does not grow into room that it could not take, and goes on.
    let tx = store.begin().expect("it begins");
    let grown = (0..3_000).try_for_each(|at| store.write(tx, flagstone::units::Lpn(at), b"more"));
    assert_says(grown, "the medium gives no more room");
    store.abort(tx).expect("it aborts");
    holds(&mut store, 12);
    store.put(2, &[2; 100]);
    store.close().expect("it closes");
    let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
    holds(&mut store, 12);
}
