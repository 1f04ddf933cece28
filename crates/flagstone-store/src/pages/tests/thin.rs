//! New stores in files take disk space only as they are written.

use super::{OpenOptions, PageStore, assert_says};
use crate::Volume;
use crate::error::StoreError;
use crate::medium::{Medium, Memory};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes allocated to a file.
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
    // Each opening starts a new block.
    for opening in 0..40 {
        let mut store = PageStore::open(&path, &OpenOptions::default()).expect("a store");
        assert!(store.check().expect("it can be read").is_well());
        holds(&mut store, 12);
        store.put(opening % 12, &[(opening % 12) as u8; 100]);
        store.close().expect("it closes");
    }
    assert!(taken(&path) <= 1 << 20, "{}", taken(&path));
    // Before it grows, the store has taken the room of all its blocks.
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
    // The marks of 16 blocks take a page each.
    assert!(taken(&path) <= 128 << 10, "{}", taken(&path));
    store.close().expect("it closes");
    let mut store = PageStore::open(&path, &options).expect("a store");
    holds(&mut store, 12);
}

/// A memory medium with holes, whose free room can be set.
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
        if self.left() >= Some(bytes) {
            Ok(())
        } else {
            Err(io::ErrorKind::StorageFull.into())
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
    // The store does not grow into room that it could not reserve, and continues.
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

/// A disk with few written places, the last one among them, takes room for these only, and collects
/// within that room.
#[test]
fn a_sparse_disk_takes_room_for_what_is_written_only() {
    const BYTES: u64 = 1 << 30;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk.flag");
    let store = PageStore::open(&path, &OpenOptions::default()).expect("a store");
    let mut disk = Volume::create(store, BYTES).expect("a disk");
    let places: Vec<u64> = (0..BYTES).step_by(64 << 20).chain([BYTES - 4096]).collect();
    let fill = |disk: &mut Volume<PageStore>, byte: u8| {
        for &at in &places {
            disk.write(at, &[byte; 4096]).expect("there is room");
        }
        disk.flush().expect("a flush");
    };
    fill(&mut disk, 1);
    let info = disk.pages().info();
    assert!(info.bytes > BYTES, "{info:?}");
    let least = taken(&path);
    assert!(least <= 9 << 20, "{least}");
    // Pages that are rewritten are collected, and take no more room.
    let again = |disk: &mut Volume<PageStore>| {
        for round in 0..200 {
            for at in (0..1 << 20).step_by(4096) {
                disk.write(at + 4096, &[round; 4096])
                    .expect("there is room");
            }
            disk.flush().expect("a flush");
        }
    };
    again(&mut disk);
    assert!(taken(&path) <= least + (4 << 20), "{}", taken(&path));
    let opened = || {
        let mut store = PageStore::open(&path, &OpenOptions::existing()).expect("a store");
        assert!(store.check().expect("it can be read").is_well());
        let mut disk = Volume::open(store).expect("a disk");
        let mut page = [0; 4096];
        for &at in &places {
            disk.read(at, &mut page).expect("it can be read");
            assert_eq!(page, [1; 4096], "at {at}");
        }
        disk
    };
    disk.close().expect("it closes");
    let mut disk = opened();
    assert!(
        disk.pages().in_service() < 5_000,
        "most blocks have no room"
    );
    again(&mut disk);
    assert!(taken(&path) <= least + (5 << 20), "{}", taken(&path));
    // The store allocates space in its blocks as it grows, like other stores.
    for at in (64 << 20..128 << 20).step_by(1 << 20).skip(1) {
        disk.write(at, &vec![9; 1 << 20]).expect("there is room");
    }
    disk.flush().expect("a flush");
    let full = taken(&path);
    assert!((63 << 20..130 << 20).contains(&full), "{full}");
    disk.close().expect("it closes");
    let mut disk = opened();
    disk.trim((64 << 20) + 4096, (63 << 20) + 4096)
        .expect("a trim");
    disk.compact().expect("it is compacted");
    assert!(taken(&path) <= 12 << 20, "{}", taken(&path));
    disk.close().expect("it closes");
    opened().close().expect("it closes");
}

/// Fails if a disk that fits into the first blocks of its store is told that it has room which
/// nothing has allocated.
#[test]
fn the_room_of_a_small_disk_is_reserved_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk.flag");
    let store = PageStore::open(&path, &OpenOptions::default()).expect("a store");
    let mut disk = Volume::create(store, 1 << 20).expect("a disk");
    disk.reserve().expect("there is room");
    assert!(taken(&path) >= 1 << 20, "{}", taken(&path));

    let medium = Holed::default();
    let left = |bytes| medium.left.store(bytes, Ordering::Relaxed);
    left(2 << 20);
    let store = PageStore::on(Box::new(medium.clone()), &OpenOptions::default());
    let mut disk = Volume::create(store.expect("a store"), 1 << 20).expect("a disk");
    left(500_000);
    assert_says(disk.reserve(), "the medium gives no more room");
    left(100 << 20);
    disk.reserve().expect("there is room");
    left(0);
    disk.write(0, &[7; 1 << 20]).expect("it was reserved");
    disk.flush().expect("it was reserved");
}

/// A store has grown into blocks that it has not written yet. A discard gives their room back, and
/// the store reserves it again.
#[test]
fn a_discard_gives_blocks_back_that_were_never_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.flag");
    let options = OpenOptions {
        bytes: 64 << 20,
        ..OpenOptions::default()
    };
    let mut store = PageStore::open(&path, &options).expect("a store");
    for at in 0..1_500 {
        store.put(at, &[at as u8; 100]);
    }
    let before = taken(&path);
    assert!(before >= 64 << 20, "{before}");
    let given = store.discard().expect("it is discarded");
    assert!(given > 50 << 20, "{given}");
    assert!(taken(&path) <= before - given, "{}", taken(&path));
    holds(&mut store, 1_500);
    store.close().expect("it closes");
    let mut store = PageStore::open(&path, &OpenOptions::existing()).expect("a store");
    for at in 1_500..9_000 {
        store.put(at, &[at as u8; 100]);
    }
    holds(&mut store, 9_000);
    assert!(taken(&path) >= 9_000 * 4096);
    assert!(store.check().expect("it can be read").is_well());
}

/// A discard keeps the free blocks that the collector needs. It runs after each commit, together
/// with idle work.
#[test]
fn a_discard_leaves_the_collector_its_free_blocks() {
    let options = OpenOptions {
        bytes: 16 << 20,
        pages_per_block: 16,
        ..OpenOptions::default()
    };
    let mut store = PageStore::on(Box::new(Memory::default()), &options).expect("a store");
    let mut given = 0;
    for at in (0..1_000).map(|at| at * 7919 % 150) {
        store.put(at, &[at as u8; 100]);
        let free = store.device().ftl().blocks().free_blocks();
        given += store.discard().expect("it is discarded");
        let ftl = store.device().ftl();
        assert!(ftl.blocks().free_blocks() >= free.min(ftl.collects_below() + 1));
        store.idle(8).expect("there is room");
    }
    assert!(given > 8 << 20, "{given}");
    holds(&mut store, 150);
}
