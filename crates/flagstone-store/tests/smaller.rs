//! Files of stores of which most was deleted: compacted, a store takes at most twice what it holds
//! and a mebibyte, whether it holds tables, a disk or nothing.

use flagstone_store::tables::{Store, TableKind};
use flagstone_store::{MEDIUM_PAGE_BYTES, OpenOptions, PageStore, Volume};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Options of stores. Those with a key keep their size.
fn options() -> Vec<OpenOptions> {
    vec![OpenOptions::default()]
}

/// Bytes of room that a file takes, and its length.
fn taken(path: &Path) -> (u64, u64) {
    let meta = std::fs::metadata(path).expect("it is there");
    (meta.blocks() * 512, meta.len())
}

/// Bytes of what a store holds, in pages of the medium.
fn live(path: &Path, options: &OpenOptions) -> u64 {
    let mut reading = options.clone().reading();
    reading.create = false;
    let store = PageStore::open(path, &reading).expect("it opens");
    store.info().pages * MEDIUM_PAGE_BYTES as u64
}

/// The bound of the room, and, of a store whose highest page is as low as it can be, of the length:
/// 15 blocks are for roots and the collector, and a few pages are what a close leaves.
#[track_caller]
fn assert_small(path: &Path, options: &OpenOptions, is_low: bool) {
    let (live, (room, length)) = (live(path, options), taken(path));
    assert!(
        room <= 2 * live + (1 << 20),
        "{room} bytes of room for {live}"
    );
    let of_block = u64::from(options.pages_per_block + 1) * MEDIUM_PAGE_BYTES as u64;
    let most = live * 11 / 10 + 16 * of_block + (64 << 10);
    assert!(!is_low || length <= most, "{length} bytes long for {live}");
}

#[test]
fn tables_of_which_most_was_deleted() {
    for options in options() {
        for (rows, of) in [(40_000, 100), (40_000, 10)] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("rows.flag");
            let store = Store::with(&path, &options).expect("it opens");
            let key = |row: u32| row.wrapping_mul(2_654_435_761).to_be_bytes();
            for first in (0..rows).step_by(5_000) {
                let mut tx = store.write().expect("a turn");
                let mut table = tx.open_table("rows", TableKind::Ordered).expect("a table");
                for row in first..first + 5_000 {
                    table.insert(&key(row), &[7; 1_000]).expect("room");
                }
                tx.commit().expect("it commits");
            }
            for first in (0..rows).step_by(5_000) {
                let mut tx = store.write().expect("a turn");
                let mut table = tx.open_table("rows", TableKind::Ordered).expect("a table");
                for row in (first..first + 5_000).filter(|row| row % of > 0) {
                    table.remove(&key(row)).expect("it goes");
                }
                tx.commit().expect("it commits");
            }
            store.compact().expect("it is compacted");
            for row in (0..rows).step_by(of as usize) {
                let tx = store.read().expect("a snapshot");
                let table = tx.table("rows").expect("it is there");
                let found = table.get(&key(row)).expect("a search");
                assert_eq!(found.as_deref(), Some(&[7; 1_000][..]));
            }
            store.close().expect("it closes");
            assert_small(&path, &options, true);
            let store = Store::with(&path, &options).expect("it opens");
            store.check().expect("it is well");
        }
    }
}

/// The disk that a test trims: the last chunk of it stays, or not.
fn trimmed(path: &Path, options: &OpenOptions, keeps_last: bool) -> Volume<PageStore> {
    const BYTES: u64 = 48 << 20;
    let pages = PageStore::open(path, options).expect("a store");
    let mut disk = Volume::create(pages, BYTES).expect("a disk");
    for at in (0..BYTES).step_by(1 << 20) {
        disk.write(at, &vec![(at >> 20) as u8 + 1; 1 << 20])
            .expect("room");
        disk.flush().expect("it is durable");
    }
    let end = BYTES - if keeps_last { 1 << 16 } else { 0 };
    disk.trim(1 << 20, end - (1 << 20)).expect("it trims");
    disk.flush().expect("it is durable");
    disk
}

#[test]
fn disks_of_which_most_was_trimmed() {
    for options in options() {
        for (keeps_last, is_idle) in [(false, false), (true, false), (false, true)] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("disk.flag");
            let mut disk = trimmed(&path, &options, keeps_last);
            if is_idle {
                while disk.pages_mut().idle(256).expect("no fault") > 0 {}
            } else {
                _ = disk.compact().expect("it is compacted")
            }
            let mut sector = [0; 512];
            for (at, held) in [
                (0, 1),
                (1 << 20, 0),
                ((48 << 20) - 512, if keeps_last { 48 } else { 0 }),
            ] {
                disk.read(at, &mut sector).expect("it is there");
                assert_eq!(sector, [held; 512]);
            }
            drop(disk);
            assert_small(&path, &options, !keeps_last && !is_idle);
        }
    }
}

/// Writes or trims 20,000 pages of a store, 500 in a transaction.
fn fill(store: &mut PageStore, byte: Option<u8>) {
    for first in (0..20_000).step_by(500) {
        let tx = store.begin().expect("it begins");
        for at in (first..first + 500).map(flagstone::units::Lpn) {
            match byte {
                Some(byte) => store.write(tx, at, &[byte; 1_000]),
                None => store.trim(tx, at),
            }
            .expect("room");
        }
        store.commit(tx).expect("it commits");
    }
}

#[test]
fn a_store_that_was_emptied() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pages.flag");
    let options = OpenOptions::default();
    let mut store = PageStore::open(&path, &options).expect("a store");
    fill(&mut store, Some(7));
    fill(&mut store, None);
    assert!(store.compact().expect("it is compacted") > 60 << 20);
    drop(store);
    assert_small(&path, &options, true);
}

/// The superblock that says what is left of a larger store, and a store that has grown again since:
/// its blocks are not what was left.
#[test]
fn an_older_superblock_of_a_store_that_grew_again() {
    const PAGE: usize = MEDIUM_PAGE_BYTES;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pages.flag");
    let options = OpenOptions::default();
    let mut store = PageStore::open(&path, &options).expect("a store");
    fill(&mut store, Some(7));
    fill(&mut store, None);
    store.compact().expect("it is compacted");
    let heads = std::fs::read(&path).expect("it is there")[..2 * PAGE].to_vec();
    fill(&mut store, Some(8));
    drop(store);
    let grown = std::fs::read(&path).expect("it is there");
    // The older one of the two, and the newer one, which says that nothing is left.
    for keeps in [0, 1] {
        let mut bytes = grown.clone();
        bytes[..2 * PAGE].fill(0);
        bytes[keeps * PAGE..][..PAGE].copy_from_slice(&heads[keeps * PAGE..][..PAGE]);
        std::fs::write(&path, bytes).expect("a file");
        let error = PageStore::open(&path, &options)
            .err()
            .expect("it lacks pages");
        assert!(
            error
                .to_string()
                .contains("older than the data of the store"),
            "{error}"
        );
    }
}

/// The superblock from before a store grew, where of the first new block the mark and the first
/// page are lost as well: its other pages tell that it is there.
#[test]
fn an_older_superblock_of_a_store_that_grew_into_a_block_without_a_mark() {
    const PAGE: usize = MEDIUM_PAGE_BYTES;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pages.flag");
    let options = OpenOptions::default();
    let mut store = PageStore::open(&path, &options).expect("a store");
    let write = |store: &mut PageStore, at| {
        let tx = store.begin().expect("it begins");
        store
            .write(tx, flagstone::units::Lpn(at), &[7; 100])
            .expect("room");
        store.commit(tx).expect("it commits");
        std::fs::read(&path).expect("it is there")
    };
    let before = write(&mut store, 0);
    let end = before.len();
    let page = |bytes: &[u8], nth: usize| {
        bytes
            .get(end + nth * PAGE..)
            .map(|from| from[..PAGE].to_vec())
    };
    let mut pages = 1;
    let grown = loop {
        let bytes = write(&mut store, pages);
        pages += 1;
        if page(&bytes, 3).is_some_and(|page| page.iter().any(|&byte| byte != 0)) {
            break bytes;
        }
        assert!(pages < 10_000, "it has not grown");
    };
    drop(store);
    // With the mark and the page nothing else is lost.
    for lost in [2, 0] {
        let mut bytes = grown.clone();
        bytes[..2 * PAGE].copy_from_slice(&before[..2 * PAGE]);
        bytes[end..][..lost * PAGE].fill(0);
        let damaged = folder.path().join(format!("{lost}.flag"));
        std::fs::write(&damaged, bytes).expect("a file");
        let error = PageStore::open(&damaged, &options).err();
        let error = error.expect("it lacks pages").to_string();
        assert!(
            error.contains("older than the data of the store"),
            "{error}"
        );
        let repaired = folder.path().join(format!("{lost}-repaired.flag"));
        let report = flagstone_store::tools::repair(
            &damaged,
            &repaired,
            &options,
            &flagstone_store::tools::Hints::default(),
            false,
            &mut |_, _| (),
        );
        let report = report.expect("it is repaired");
        assert_eq!(report.is_whole(), lost == 0, "{report:?}");
        let reading = options.clone().reading();
        let store = PageStore::open(&repaired, &reading).expect("it opens");
        let there = store.info().pages;
        assert_eq!(there == u64::from(pages), lost == 0, "{there} of {pages}");
    }
}

/// Fails if a disk that is trimmed moves pages, fills blocks with zeros or writes a root for blocks
/// that nothing reads any more: a commit writes its list of trims, and a page of tails at most.
#[test]
fn trimming_a_disk_writes_two_pages_a_commit() {
    const MIB: u64 = 1 << 20;
    let folder = tempfile::tempdir().expect("a folder");
    let store = PageStore::open(&folder.path().join("disk"), &OpenOptions::default());
    let mut disk = Volume::create(store.expect("a store"), 64 * MIB).expect("a disk");
    // Chunks of the first commit stay where most others are trimmed, and more commits than there
    // may be undecided blocks follow.
    for at in (0..64 * MIB).step_by(4 << 20) {
        disk.write(at, &[1; 4096]).expect("room");
    }
    disk.flush().expect("room");
    for at in (0..64 * MIB).step_by(MIB as usize) {
        disk.write(at, &[2; MIB as usize]).expect("room");
        disk.flush().expect("room");
    }
    let (before, mut commits) = (disk.pages().medium_stats().bytes, 0);
    for at in (MIB..64 * MIB).step_by(8 << 20) {
        disk.trim(at, (8 * MIB).min(64 * MIB - at)).expect("room");
        disk.flush().expect("room");
        commits += 1;
    }
    let bytes = disk.pages().medium_stats().bytes - before;
    let pages = bytes / MEDIUM_PAGE_BYTES as u64;
    assert!(
        pages <= 2 * commits + 4,
        "{pages} pages in {commits} commits"
    );
}
