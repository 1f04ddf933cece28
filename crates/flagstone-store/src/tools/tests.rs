//! Backups and compactions must keep the contents; repairs of stores with all kinds of damage.

mod heads;
mod tables;

use super::*;
use crate::flash::{mark_page, medium_bytes};
use crate::identity::Identity;
use crate::medium::Disk;
use crate::pages::tests::assert_says;
use crate::superblock::{MEDIUM_PAGE_BYTES, Superblock};
use flagstone::commit::Kind;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions as Files};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use tempfile::TempDir;

const PAGES: u32 = 16;

type Contents = BTreeMap<u32, Vec<u8>>;

fn options() -> OpenOptions {
    OpenOptions {
        pages_per_block: PAGES,
        ..OpenOptions::default()
    }
}

/// Creates a store in which pages were written several times. Returns its contents.
fn used(path: &Path, transactions: u32) -> Contents {
    let mut store = PageStore::open(path, &options()).expect("a store");
    let mut pages = Contents::new();
    for number in 0..transactions {
        let tx = store.begin().expect("it begins");
        for step in 0..=number % 4 {
            let at = (number * 7 + step * 31) % 200;
            let data = vec![number as u8; 1 + (number * 41) as usize % 4000];
            store.write(tx, Lpn(at), &data).expect("room");
            pages.insert(at, data);
        }
        store.commit(tx).expect("it commits");
    }
    store.close().expect("it closes");
    pages
}

fn contents(path: &Path) -> Contents {
    let mut store = PageStore::open(path, &OpenOptions::existing().reading()).expect("a store");
    assert!(store.check().expect("it can be read").is_well());
    let pages = crate::pages::tests::contents(&mut store).into_iter();
    pages
        .map(|(at, page)| (at, page.expect("it can be read")))
        .collect()
}

fn quiet() -> impl FnMut(u64, u64) {
    |_, _| ()
}

/// A folder, a used store in it, and the store's contents.
fn place() -> (TempDir, PathBuf, Contents) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.flag");
    let pages = used(&path, 600);
    (folder, path, pages)
}

fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).expect("a folder");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).into_string().expect("text"))
        .collect();
    names.sort();
    names
}

/// Repairs into a file that may exist already.
fn mend(path: &Path, to: &Path, hints: &Hints) -> Result<Repaired, StoreError> {
    repair(path, to, &options(), hints, true, &mut quiet())
}

/// Salvages what can be read of a damaged store.
fn salvage(path: &Path, to: &Path) -> Repaired {
    mend(path, to, &Hints::default()).expect("it can be salvaged")
}

#[test]
fn a_compaction_keeps_everything_but_room() {
    let (folder, path, mut pages) = place();
    let mut store = PageStore::open(&path, &OpenOptions::existing()).expect("the store");
    store.put_all(300..3_000, &[1; 4000]);
    let tx = store.begin().expect("it begins");
    for at in 400..3_000 {
        store.trim(tx, Lpn(at)).expect("room");
    }
    store.commit(tx).expect("it commits");
    let busy = compact(&path, &options(), &mut quiet());
    assert!(matches!(busy, Err(StoreError::InUse { .. })), "{busy:?}");
    let before = store.info().life;
    store.close().expect("it closes");
    pages.extend((300..400).map(|at| (at, vec![1; 4000])));
    let needed = {
        let store = PageStore::open(&path, &OpenOptions::existing().reading()).expect("a store");
        bytes_of_copy(&store)
    };
    let (mut last, mut steps) = (0, 0);
    let copied = compact(&path, &options(), &mut |done, of| {
        assert!(done > last && done <= of);
        (last, steps) = (done, of);
    });
    let copied = copied.expect("it can be compacted");
    assert_eq!((last, copied.pages), (steps, pages.len() as u64));
    assert!(copied.bytes * 3 < copied.bytes_before, "{copied:?}");
    assert_eq!(copied.bytes, needed, "it took what it said");
    let length = fs::metadata(&path).expect("it is there").len();
    // Tables of the close follow: four bytes per page.
    assert!(
        (needed + 1..needed + needed / 512).contains(&length),
        "{length}"
    );
    assert!(contents(&path) == pages);
    assert_eq!(names(&folder), ["store.flag"]);
    // The lifetime counters continue, and include the copy.
    let store = PageStore::open(&path, &OpenOptions::existing()).expect("the store");
    let life = store.info().life;
    assert_eq!(
        (life.user_bytes, life.commits),
        (before.user_bytes, before.commits)
    );
    assert!(life.medium_bytes > before.medium_bytes, "{life:?}");
    assert_eq!(store.info().closed, Some(true));
}

/// Fails if the highest page determines the size of tables from which most was deleted.
#[test]
fn compacted_tables_take_what_they_hold() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("tables.flag");
    let store = Store::open(&path).expect("a new store");
    for batch in 0..8u32 {
        let mut tx = store.write().expect("a turn");
        let mut table = tx.table("rows").expect("a table");
        for n in batch * 4000..(batch + 1) * 4000 {
            table.insert(&n.to_be_bytes(), &[7; 700]).expect("room");
        }
        tx.commit().expect("room");
    }
    let mut tx = store.write().expect("a turn");
    let mut table = tx.table("rows").expect("a table");
    for n in (0..32_000u32).filter(|n| n % 400 > 0) {
        table.remove(&n.to_be_bytes()).expect("it is there");
    }
    tx.commit().expect("room");
    store.close().expect("no fault");
    let copied = compact(&path, &OpenOptions::existing(), &mut quiet()).expect("room beside it");
    let live = copied.pages * MEDIUM_PAGE_BYTES as u64;
    // Unwritten parts are holes.
    let takes = metadata(&path).expect("a file").blocks() * 512;
    assert!(takes <= 2 * live + (1 << 20), "{takes}, {copied:?}");
    let store = Store::open(&path).expect("it is there");
    store.check().expect("all is well");
    let table = store.read().expect("a snapshot").table("rows");
    assert_eq!(table.expect("a table").len().expect("a number"), 80);
}

#[test]
fn what_cannot_be_compacted_is_as_it_was() {
    let (folder, path, pages) = place();
    let other = folder.path().join("other.flag");
    fs::hard_link(&path, &other).expect("a link");
    // The file has two names.
    assert_says(compact(&path, &options(), &mut quiet()), "hard link");
    fs::remove_file(&other).expect("it is there");
    // With a symbolic link, its target is compacted, and the link stays.
    std::os::unix::fs::symlink(&path, &other).expect("a link");
    compact(&other, &options(), &mut quiet()).expect("it can be compacted");
    assert!(fs::symlink_metadata(&other).expect("a link").is_symlink());
    assert!(contents(&path) == pages);
    // Remains of a killed process are removed.
    fs::write(folder.path().join(".store.flag.draft"), [1; 50_000]).expect("room");
    compact(&path, &options(), &mut quiet()).expect("it can be compacted");
    assert_eq!(names(&folder), ["other.flag", "store.flag"]);
}

/// Stores with a mapping table or log on the medium grow and shrink like others.
#[test]
fn a_store_of_any_protocol_is_compacted_to_what_it_holds() {
    let kinds = flagstone::commit::Kind::ALL.iter();
    for &kind in kinds.filter(|kind| kind.info().atomic && !kind.info().reprograms) {
        let folder = tempfile::tempdir().expect("a place");
        let path = folder.path().join("store.flag");
        let mut options = options().with_protocol(kind);
        options.pages_per_block = 16;
        let mut store = PageStore::open(&path, &options).expect("a store");
        let first = store.device().geometry().blocks();
        for first in (0..2_000).step_by(20) {
            store.put_all(first..first + 20, b"there");
        }
        assert!(store.device().geometry().blocks() > 3 * first, "{kind}");
        for first in (40..2_000).step_by(20) {
            let tx = store.begin().expect("a transaction");
            for at in (first..first + 20).map(flagstone::units::Lpn) {
                store.trim(tx, at).expect("room");
            }
            store.commit(tx).expect("room");
        }
        store.close().expect("room");
        let before = contents(&path);
        compact(&path, &options, &mut quiet()).expect("it can be compacted");
        assert!(contents(&path) == before, "{kind}");
        let store = PageStore::open(&path, &OpenOptions::existing()).expect("a store");
        let now = store.device().geometry().blocks();
        assert!(now <= 2 * first, "{kind}: {now} blocks, {first} at first");
    }
}

#[test]
fn a_backup_is_a_store_and_replaces_nothing_unasked() {
    let (folder, path, pages) = place();
    let to = folder.path().join("backup.flag");
    backup(&path, &to, &options(), false, &mut quiet()).expect("a backup");
    assert!(contents(&to) == pages && contents(&path) == pages);
    let again = backup(&path, &to, &options(), false, &mut quiet());
    assert_says(again, "--force");
    fs::write(&to, "precious").expect("room");
    backup(&path, &to, &options(), true, &mut quiet()).expect("a backup");
    assert!(contents(&to) == pages);
    for own in [&path, &folder.path().join("link.flag")] {
        let _ = std::os::unix::fs::symlink(&path, own);
        let refused = backup(&path, own, &options(), true, &mut quiet());
        assert_says(refused, "is the input store itself");
    }
    // Neither from a store that is open for writing, nor over one.
    let open = PageStore::open(&path, &OpenOptions::existing()).expect("the store");
    let error = backup(&path, &to, &options(), true, &mut quiet()).expect_err("it is in use");
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    drop(open);
    let open = PageStore::open(&to, &OpenOptions::existing()).expect("the store");
    let error = backup(&path, &to, &options(), true, &mut quiet()).expect_err("it is in use");
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    drop(open);
    let nowhere = Path::new("/nowhere/b.flag");
    let refused = backup(&path, nowhere, &options(), false, &mut quiet());
    assert_says(refused, "no folder");
    assert_eq!(names(&folder), ["backup.flag", "link.flag", "store.flag"]);
}

/// Damages a file at a place.
fn flip(path: &Path, offset: u64) {
    let file = Files::new()
        .read(true)
        .write(true)
        .open(path)
        .expect("it is there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset)
        .expect("it is that long");
    byte[0] ^= 0x10;
    file.write_all_at(&byte, offset).expect("room");
}

fn page_offset(block: u32, page: u32) -> u64 {
    (mark_page(PAGES, block) + 1 + u64::from(page)) * MEDIUM_PAGE_BYTES as u64
}

/// Whether a check finds damage, or the opening before it fails.
fn is_found(path: &Path) -> Result<bool, StoreError> {
    match PageStore::open(path, &OpenOptions::existing().reading().uncached()) {
        Ok(mut store) => Ok(!store.check()?.is_well()),
        Err(StoreError::Damaged(_)) => Ok(true),
        Err(other) => Err(other),
    }
}

#[test]
fn every_damaged_page_is_found_and_all_others_are_salvaged() {
    let (folder, path, pages) = place();
    let whole = fs::read(&path).expect("it can be read");
    let blocks = blocks_of(&path);
    let (mut harmed, mut lost) = (0, 0);
    let to = folder.path().join("to.flag");
    for number in (0..blocks * PAGES).step_by(7) {
        fs::write(&path, &whole).expect("room");
        let (block, page) = (number / PAGES, number % PAGES);
        let offset = page_offset(block, page);
        let is_written = whole[offset as usize..][..4096]
            .iter()
            .any(|&byte| byte != 0);
        flip(&path, offset + 100 + u64::from(number % 3_900));
        let report = salvage(&path, &to);
        let salvaged = contents(&to);
        // All pages except the lost ones are unchanged.
        let lost_pages: Vec<u32> = report.lost.iter().map(|at| at.0).collect();
        let mut right = pages.clone();
        right.retain(|at, _| !lost_pages.contains(at));
        if salvaged != right {
            harmed += 1;
            assert!(
                is_found(&path).expect("it opens"),
                "page {page} of block {block}"
            );
            assert!(
                !report.is_whole(),
                "page {page} of block {block}: {report:?}"
            );
        }
        lost += u64::from(!report.lost.is_empty());
        if !report.lost.is_empty() {
            assert!(is_written && is_found(&path).expect("it opens"));
        }
    }
    println!(
        "{lost} of {} runs lost a page, {harmed} without its number",
        blocks * PAGES / 7
    );
    assert!(lost > 10);
}

fn identity_of(path: &Path) -> u64 {
    let disk = Disk::open(path, false, true).expect("it is there");
    let head = Superblock::read(&disk).expect("it can be read");
    head.expect("a store").superblock.identity.number()
}

fn blocks_of(path: &Path) -> u32 {
    let store = PageStore::open(path, &OpenOptions::existing().reading()).expect("a store");
    store.info().blocks
}

#[test]
fn without_checksums_a_check_finds_no_damage() {
    let (_folder, path, pages) = place();
    let blocks = blocks_of(&path);
    let mut changed = 0;
    for number in (0..blocks * PAGES).step_by(23) {
        let offset = page_offset(number / PAGES, number % PAGES);
        let file = Files::new().read(true).write(true).open(&path);
        let file = file.expect("it is there");
        let mut page = [0; MEDIUM_PAGE_BYTES];
        file.read_exact_at(&mut page, offset)
            .expect("it is that long");
        page[0] ^= 0x10;
        let identity = identity_of(&path);
        let sum = crate::page_sum(&page[..MEDIUM_PAGE_BYTES - 4], number, identity);
        page[MEDIUM_PAGE_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        let generation = crate::flash::page_generation(&page, number, Identity::of(identity));
        if generation.is_some_and(|generation| generation > 0) {
            file.write_all_at(&page, offset).expect("room");
            changed += 1;
        }
    }
    assert!(changed > 5);
    // Summaries are damaged as well, which the opening may detect in other ways.
    assert!(contents(&path) != pages);
}

#[test]
fn damaged_marks_are_made_up_for_by_the_pages_behind_them() {
    let (folder, path, pages) = place();
    let whole = fs::read(&path).expect("it can be read");
    let to = folder.path().join("to.flag");
    let mut named = 0;
    for block in 0..blocks_of(&path) {
        fs::write(&path, &whole).expect("room");
        let offset = mark_page(PAGES, block) * MEDIUM_PAGE_BYTES as u64;
        flip(&path, offset + u64::from(block % 20));
        assert!(is_found(&path).unwrap_or(true), "the mark of block {block}");
        let report = salvage(&path, &to);
        assert!(
            contents(&to) == pages,
            "the mark of block {block}: {report:?}"
        );
        named += report.missing.len(); // An erase may be lost with the mark.
    }
    assert!(named > 10, "{named}");
}

#[test]
fn a_superblock_or_both_can_be_damaged() {
    let (folder, path, pages) = place();
    let whole = fs::read(&path).expect("it can be read");
    let to = folder.path().join("to.flag");
    for copy in [0, 4096] {
        for byte in [0, 9, 11, 13, 17, 21, 30, 44, 60, 126] {
            fs::write(&path, &whole).expect("room");
            flip(&path, copy + byte);
            assert!(is_found(&path).unwrap_or(true), "byte {byte} at {copy}");
            let report = salvage(&path, &to);
            assert!(contents(&to) == pages && report.is_whole(), "{report:?}");
            assert!(!report.mended.is_empty());
        }
    }
    flip(&path, 5);
    let refused = PageStore::open(&path, &OpenOptions::existing());
    assert!(matches!(refused, Err(StoreError::NotAStore(_))));
    // The protocol is unknown.
    assert_says(mend(&path, &to, &Hints::default()), "--protocol seal");
    for pages_per_block in [None, Some(PAGES)] {
        let hints = Hints {
            protocol: Some(flagstone::commit::Kind::Seal),
            pages_per_block,
            newest: false,
        };
        let report = mend(&path, &to, &hints).expect("it can be salvaged");
        assert!(contents(&to) == pages && report.is_whole(), "{report:?}");
    }
    // Zeroed superblocks do not make a blank medium if blocks follow.
    let file = Files::new().write(true).open(&path).expect("it is there");
    file.write_all_at(&[0; 8192], 0).expect("room");
    let zeroed = fs::read(&path).expect("it can be read");
    let refused = PageStore::open(&path, &OpenOptions::default());
    assert_says(refused, "store repair");
    assert!(fs::read(&path).expect("it can be read") == zeroed);
    let odd = Hints {
        protocol: Some(flagstone::commit::Kind::Seal),
        pages_per_block: Some(20),
        newest: false,
    };
    assert!(mend(&path, &to, &odd).is_err(), "marks are not there");
}

#[test]
fn a_missing_end_is_damage_and_what_is_left_can_be_salvaged() {
    let (folder, path, pages) = place();
    let whole = fs::read(&path).expect("it can be read");
    let to = folder.path().join("to.flag");
    let blocks = blocks_of(&path);
    let end = medium_bytes(PAGES, blocks);
    for cut in [1, 4096, 100_000, end / 2] {
        fs::write(&path, &whole[..(end - cut) as usize]).expect("room");
        let refused = PageStore::open(&path, &OpenOptions::existing());
        assert_says(refused, "the end of the store is missing");
        let report = salvage(&path, &to);
        let salvaged = contents(&to);
        assert!(salvaged == pages || !report.is_whole(), "{cut}: {report:?}");
    }
}

#[test]
fn no_damage_makes_an_opening_a_check_or_a_repair_panic() {
    let (folder, path, _) = place();
    let whole = fs::read(&path).expect("it can be read");
    let to = folder.path().join("to.flag");
    let mut state = 15_u64;
    let mut below = |end: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % end
    };
    let (mut opened, mut refused, mut salvaged) = (0, 0, 0);
    for round in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..=below(12) {
            // Superblocks and marks as often as pages.
            let page = match below(3) {
                0 => below(2),
                1 => mark_page(PAGES, below(30) as u32) as usize,
                _ => below(bytes.len() / 4096),
            };
            let at = (page * 4096 + below(64)).min(bytes.len() - 64);
            match below(4) {
                0 => bytes[at] ^= 1 << below(8),
                1 => bytes[at..at + 64].fill(0),
                2 => bytes[at..at + 64]
                    .iter_mut()
                    .for_each(|byte| *byte = below(256) as u8),
                _ => {
                    let from = below(bytes.len() / 4096) * 4096;
                    let end = bytes.len().min(from + 4096);
                    bytes.copy_within(from..end, (page * 4096).min(whole.len() - 4096));
                }
            }
        }
        let cut = below(bytes.len());
        bytes.truncate(if below(8) == 0 { cut } else { bytes.len() });
        let medium = crate::medium::Memory::with(bytes.clone());
        match PageStore::on(Box::new(medium), &OpenOptions::existing()) {
            Ok(mut store) => {
                opened += 1;
                let _ = store.check();
                let tx = store.begin().expect("it begins");
                let _ = store.write(tx, Lpn(1), &[1; 9]);
                let _ = store.commit(tx);
            }
            Err(_) => refused += 1,
        }
        if round % 10 == 0 {
            fs::write(&path, bytes).expect("room");
            let hints = Hints {
                protocol: Some(flagstone::commit::Kind::Seal),
                pages_per_block: Some(PAGES),
                newest: round % 20 == 0,
            };
            if mend(&path, &to, &hints).is_ok() {
                salvaged += 1;
                contents(&to);
            }
        }
    }
    println!("{opened} opened, {refused} refused, {salvaged} of 30 salvaged");
    assert!(opened > 50 && refused > 50 && salvaged > 20);
}

#[test]
fn stores_of_all_protocols_are_salvaged() {
    use flagstone::commit::Kind;
    let folder = tempfile::tempdir().expect("a folder");
    let (path, to) = (folder.path().join("a.flag"), folder.path().join("b.flag"));
    for &protocol in Kind::ALL {
        let info = protocol.info();
        if info.reprograms || !info.atomic {
            continue;
        }
        let _ = fs::remove_file(&path);
        let mut options = options().with_protocol(protocol);
        options.bytes = 6 << 20;
        let mut store = PageStore::open(&path, &options).expect("a store");
        let mut pages = Contents::new();
        for number in 0..400_u32 {
            let tx = store.begin().expect("it begins");
            for at in [number * 7 % 90, 90 + number * 11 % 60] {
                store
                    .write(tx, Lpn(at), &[number as u8; 2000])
                    .expect("room");
                pages.insert(at, vec![number as u8; 2000]);
            }
            store.commit(tx).expect("it commits");
        }
        store.close().expect("it closes");
        assert!(contents(&path) == pages);
        let whole = fs::read(&path).expect("it can be read");
        let blocks = blocks_of(&path);
        for number in (0..blocks * PAGES).step_by(67) {
            let offset = page_offset(number / PAGES, number % PAGES);
            if whole[offset as usize..][..4096]
                .iter()
                .all(|&byte| byte == 0)
            {
                continue;
            }
            fs::write(&path, &whole).expect("room");
            flip(&path, offset + 500);
            // If a root or a log is damaged, only the newest versions can be salvaged.
            let is_whole = match mend(&path, &to, &Hints::default()) {
                Ok(report) => report.is_whole(),
                refused => {
                    assert_says(refused, "--newest");
                    let report = mend(&path, &to, &newest());
                    report.expect("it can be salvaged").is_whole()
                }
            };
            assert!(!is_whole || contents(&to) == pages, "{protocol} {number}");
        }
    }
}

fn newest() -> Hints {
    Hints {
        newest: true,
        ..Hints::default()
    }
}

#[test]
fn the_newest_versions_are_there_where_no_recovery_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, to) = (folder.path().join("a.flag"), folder.path().join("b.flag"));
    let options = options().with_protocol(flagstone::commit::Kind::SealR);
    let mut store = PageStore::open(&path, &options).expect("a store");
    let mut pages = Contents::new();
    for number in 0..500_u32 {
        let data = vec![number as u8; 1 + number as usize * 7];
        store.put(number * 7 % 60, &data);
        pages.insert(number * 7 % 60, data);
    }
    store.close().expect("it closes");
    let whole = fs::read(&path).expect("it can be read");
    let mut refused = 0;
    for number in 0..blocks_of(&path) * PAGES {
        fs::write(&path, &whole).expect("room");
        flip(&path, page_offset(number / PAGES, number % PAGES) + 9);
        let opened = PageStore::open(&path, &OpenOptions::existing().reading());
        if !matches!(opened, Err(StoreError::Damaged(_))) {
            continue;
        }
        match mend(&path, &to, &Hints::default()) {
            // The damage does not concern what the recovery needs.
            Ok(report) => assert!(!report.is_whole(), "{report:?}"),
            refusal => {
                refused += 1;
                assert_says(refusal, "--newest");
            }
        }
        let report = mend(&path, &to, &newest()).expect("versions");
        assert!(contents(&to) == pages && !report.is_whole(), "{report:?}");
    }
    assert!(refused > 0);
}

/// Fails if a block whose last mark was lost gives back the pages that it had before its erase, or
/// none. A cut may take the first mark of a block: an opening tells the generation by the pages.
#[test]
fn the_newest_versions_are_there_without_the_mark_of_their_block() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, to) = (folder.path().join("a.flag"), folder.path().join("b.flag"));
    for protocol in [Kind::Seal, Kind::SealR] {
        let _ = fs::remove_file(&path);
        let options = options().with_protocol(protocol);
        let mut store = PageStore::open(&path, &options).expect("a store");
        let (mut pages, mut early) = (Contents::new(), Vec::new());
        for number in 0..600_u32 {
            let data = vec![number as u8; 1 + number as usize];
            store.put(number * 7 % 60, &data);
            pages.insert(number * 7 % 60, data);
            if number == 300 {
                early = fs::read(&path).expect("it can be read");
            }
        }
        let whole = fs::read(&path).expect("it can be read");
        drop(store);
        let mut marks = 0;
        for block in 0..(whole.len() / MEDIUM_PAGE_BYTES / 17) as u32 {
            let place = mark_page(PAGES, block) as usize * MEDIUM_PAGE_BYTES;
            let place = place..place + MEDIUM_PAGE_BYTES;
            let zeros = &[0; MEDIUM_PAGE_BYTES][..];
            for mark in [early.get(place.clone()).unwrap_or(zeros), zeros] {
                let mut bytes = whole.clone();
                bytes[place.clone()].copy_from_slice(mark);
                marks += u32::from(bytes != whole);
                fs::write(&path, &bytes).expect("room");
                mend(&path, &to, &newest()).expect("versions");
                assert!(contents(&to) == pages, "{protocol}, block {block}");
            }
        }
        assert!(marks > 20, "{protocol}: {marks}");
    }
}
