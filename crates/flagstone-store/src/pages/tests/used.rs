//! New stores on media with old contents: an older store, remains of one, or noise. No old data may
//! reappear, whatever the new store does and however it ends.

use super::*;
use crate::flash::{mark_page, medium_bytes};
use crate::medium::Medium;
use crate::tools;

/// Pages per block.
const PAGES: u32 = 16;
/// Bytes at the start of a medium that a user zeroes before creating a new store.
const ZEROED: usize = 10 << 20;
/// Size of a medium in bytes. The older store takes two thirds of it.
const MEDIUM: u64 = 48 << 20;
/// Number of pages in the older store, and in the new one.
const OLD: u32 = 5_000;
const NEW: u32 = 3_200;

fn options(identity: u64) -> OpenOptions {
    OpenOptions {
        identity: Some(identity),
        ..small(Kind::Seal)
    }
}

fn open(medium: &Recorded, options: &OpenOptions) -> PageStore {
    // Force, as the medium holds an older store or noise.
    let options = options.clone().forced();
    PageStore::on(Box::new(medium.clone()), &options).expect("a store")
}

/// Commits pages one by one, in ascending or descending order.
fn fill(store: &mut PageStore, pages: u32, what: &str, downwards: bool) {
    for at in 0..pages {
        let at = if downwards { pages - 1 - at } else { at };
        store.put(at, format!("{what} {at}").as_bytes());
    }
}

/// Deviations of a store's contents from what `fill` wrote.
fn wrong(store: &mut PageStore, pages: u32, what: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for at in 0..OLD.max(pages) {
        let wanted = (at < pages).then(|| format!("{what} {at}"));
        let found = store.page(at);
        if found.as_deref() != Some(wanted.as_deref().unwrap_or("").as_bytes()) {
            let found = found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            wrong.push(format!("page {at}: {found:?}"));
        }
    }
    let report = store.check().expect("it reads");
    wrong.extend(report.wrong);
    wrong
}

/// Zeroes the start of a medium. With `marks` it also clears the marks after that, as a store does
/// that was created there and cut while it grew.
fn zero(medium: &Recorded, marks: bool) {
    medium.write_at(0, &vec![0; ZEROED]).expect("memory");
    let blocks = 0..(MEDIUM / medium_bytes(PAGES, 1)) as u32 * 2;
    let places = blocks.map(|block| mark_page(PAGES, block) * 4096);
    for place in places.filter(|&place| marks && place + 4096 <= MEDIUM) {
        medium.write_at(place, &[0; 4096]).expect("memory");
    }
    medium.sync().expect("memory");
}

fn after_older(identity: u64, marks: bool) -> Recorded {
    after_older_of(&options(identity), marks)
}

/// A medium that held an older store.
fn after_older_of(options: &OpenOptions, marks: bool) -> Recorded {
    let medium = Recorded::default();
    medium.reserve(MEDIUM).expect("memory");
    medium.end_at(MEDIUM);
    let mut old = open(&medium, options);
    fill(&mut old, OLD, "OLD", false);
    old.close().expect("a close");
    zero(&medium, marks);
    medium
}

/// Deviations in a new store after its process is killed.
fn wrong_after_kill(medium: &Recorded, options: &OpenOptions, downwards: bool) -> Vec<String> {
    let mut new = open(medium, options);
    fill(&mut new, NEW, "new", downwards);
    assert_eq!(wrong(&mut new, NEW, "new"), Vec::<String>::new());
    let left = medium.cut(Landing::Everything);
    left.end_at(MEDIUM);
    drop(new);
    wrong(&mut open(&left, options), NEW, "new")
}

/// Regression: acknowledged pages were lost, pages of the older store came back, and a check found
/// nothing. Both stores count erases from one, so their generations are equal.
#[test]
fn an_older_store_does_not_come_back_in_a_new_one() {
    for marks in [false, true] {
        let medium = after_older(1, marks);
        for downwards in [false, true] {
            let found = wrong_after_kill(&medium.snapshot(), &options(2), downwards);
            assert_eq!(found, Vec::<String>::new(), "{marks} {downwards}");
        }
    }
    // Control: stores without an identity.
    let medium = after_older(0, true);
    for downwards in [false, true] {
        let found = wrong_after_kill(&medium.snapshot(), &options(0), downwards);
        assert!(!found.is_empty(), "{downwards}");
    }
}

/// Regression: a page of another store counted as a torn page of this store. In a store that was
/// always closed that would be damage.
#[test]
fn pages_of_an_older_store_are_blank_and_not_damaged() {
    let medium = after_older(1, true);
    let mut new = open(&medium, &options(2));
    fill(&mut new, NEW, "new", false);
    new.close().expect("a close");
    let mut again = open(&medium, &options(2));
    let report = again.check().expect("it reads");
    assert!(report.is_well() && report.torn == 0, "{report:?}");
}

/// A medium with noise after its first two pages.
fn noisy(bytes: u64) -> Recorded {
    let mut dice = Dice(7);
    let mut noise: Vec<u8> = (0..bytes).map(|_| dice.below(256) as u8).collect();
    noise[..2 * 4096].fill(0);
    let medium = Recorded::with(&noise);
    medium.end_at(bytes);
    medium
}

/// Regression: noise in place of marks was reported as damage unless the new store cleared it.
#[test]
fn noise_on_a_medium_is_neither_damage_nor_a_store() {
    let medium = noisy(MEDIUM);
    let mut new = open(&medium, &options(2));
    let made = new.info().blocks;
    assert_eq!(wrong(&mut new, 0, ""), Vec::<String>::new(), "just made");
    fill(&mut new, NEW, "new", false);
    assert!(new.info().blocks > 2 * made, "it grows");
    assert_eq!(wrong(&mut new, NEW, "new"), Vec::<String>::new());
    let left = medium.cut(Landing::Everything);
    assert_eq!(
        wrong(&mut open(&left, &options(2)), NEW, "new"),
        Vec::<String>::new()
    );
    new.close().expect("a close");
    let mut again = open(&medium, &options(2));
    assert_eq!(wrong(&mut again, NEW, "new"), Vec::<String>::new());
}

/// A superblock may count blocks only after old data in place of their marks is cleared.
#[test]
fn marks_are_cleared_durably_before_a_superblock_counts_their_blocks() {
    let medium = noisy(24 << 20);
    let blocks = |medium: &Recorded| {
        let head = Superblock::read(medium).expect("it is no other store");
        head.map_or(0, |head| head.superblock.blocks)
    };
    // Moments at which a superblock with more blocks is written but not durable.
    let moments: Arc<Mutex<Vec<Recorded>>> = Arc::default();
    let keeps = Arc::clone(&moments);
    medium.watch(Some(Box::new(move |medium| {
        if blocks(&medium.cut(Landing::Everything)) > blocks(&medium.cut(Landing::Nothing)) {
            keeps.lock().expect("one thread").push(medium.snapshot());
        }
    })));
    let mut new = open(&medium, &options(2));
    fill(&mut new, 1_600, "new", false);
    medium.watch(None);
    let moments = moments.lock().expect("one thread");
    assert!(moments.len() > 3, "it was made, and has grown");
    for (number, moment) in moments.iter().enumerate() {
        // The last eight pending sectors are those of the superblock.
        let alone = Landing::Last(moment.pending() - 8);
        for landing in (0..16)
            .map(Landing::Sectors)
            .chain([alone, Landing::Everything])
        {
            let left = moment.cut(landing);
            if blocks(&left) == 0 {
                continue;
            }
            let report = open(&left, &options(2)).check().expect("it reads");
            assert!(report.is_well(), "{number}, {landing:?}: {report:?}");
        }
    }
}

/// A store grows over blocks from a later time of its own life, after a shorter, older copy of it
/// was put back.
#[test]
fn the_later_life_of_a_store_does_not_come_back_in_an_older_copy_of_it() {
    let medium = Recorded::default();
    medium.reserve(MEDIUM).expect("memory");
    medium.end_at(MEDIUM);
    let options = options(2);
    let mut store = open(&medium, &options);
    fill(&mut store, 400, "new", false);
    store.close().expect("a close");
    let store = open(&medium, &options);
    let end = medium_bytes(PAGES, store.info().blocks) as usize;
    drop(store);
    let copy = medium.to_vec()[..end].to_vec();
    let mut store = open(&medium, &options);
    fill(&mut store, OLD, "OLD", false);
    store.close().expect("a close");
    medium.write_at(0, &copy).expect("memory");
    medium.sync().expect("memory");
    for downwards in [false, true] {
        let found = wrong_after_kill(&medium.snapshot(), &options, downwards);
        assert_eq!(found, Vec::<String>::new(), "{downwards}");
    }
}

/// The identity of the store in a file.
fn identity(path: &Path) -> u64 {
    let disk = Disk::open(path, false, true).expect("it is there");
    let head = Superblock::read(&disk).expect("it can be read");
    head.expect("a store").superblock.identity.number()
}

#[test]
fn each_store_that_is_made_has_an_identity_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let [old, copy, repaired, other] =
        ["old", "copy", "repaired", "other"].map(|name| folder.path().join(name));
    // Like a store of an older format version.
    let mut store = PageStore::open(&old, &options(0)).expect("a store");
    store.put(1, b"one");
    store.close().expect("a close");
    let reading = OpenOptions::existing();
    tools::backup(&old, &copy, &reading, false, &mut |_, _| ()).expect("a copy");
    let hints = tools::Hints::default();
    tools::repair(&old, &repaired, &reading, &hints, false, &mut |_, _| ()).expect("a copy");
    PageStore::open(&other, &small(Kind::Seal)).expect("a store");
    assert_eq!(identity(&old), 0, "it stays as it was");
    tools::compact(&old, &reading, &mut |_, _| ()).expect("a copy");
    let mut all = [&old, &copy, &repaired, &other].map(|path| identity(path));
    all.sort_unstable();
    assert!(all[0] > 0 && all.windows(2).all(|pair| pair[0] < pair[1]));
}

/// If both superblocks are lost, the marks show which store owns a block.
#[test]
fn a_store_without_superblocks_is_salvaged_without_the_older_one_behind_it() {
    for [older, newer] in [[1, 2], [0, 2]] {
        let medium = after_older(older, false);
        let mut new = open(&medium, &options(newer));
        fill(&mut new, NEW, "new", false);
        new.close().expect("a close");
        medium.write_at(0, &[0; 2 * 4096]).expect("memory");
        let refused = PageStore::on(Box::new(medium.clone()), &options(3));
        assert_says(refused, "but blocks of a store follow");
        let folder = tempfile::tempdir().expect("a folder");
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        std::fs::write(&from, medium.to_vec()).expect("a file");
        let hints = tools::Hints {
            protocol: Some(Kind::Seal),
            ..tools::Hints::default()
        };
        let existing = OpenOptions::existing();
        let made = tools::repair(&from, &to, &existing, &hints, false, &mut |_, _| ());
        assert!(made.expect("a copy").is_whole());
        let mut store = PageStore::open(&to, &existing).expect("a store");
        assert_eq!(wrong(&mut store, NEW, "new"), Vec::<String>::new());
    }
}

/// An encrypted store has its own data key, so no old data can come back. Its identity also keeps
/// old pages from counting as damage.
#[cfg(feature = "encryption")]
#[test]
fn an_older_store_is_no_damage_under_encryption() {
    let locked = |identity, byte| OpenOptions {
        key: Some(crate::Key::raw([byte; 32])),
        ..options(identity)
    };
    let torn = |identity: [u64; 2]| {
        let medium = after_older_of(&locked(identity[0], 1), true);
        let mut new = open(&medium, &locked(identity[1], 2));
        fill(&mut new, NEW, "new", false);
        new.close().expect("a close");
        let mut again = open(&medium, &locked(identity[1], 2));
        assert_eq!(again.held().count(), NEW as usize);
        again.check().expect("it reads").torn
    };
    assert_eq!(torn([1, 2]), 0);
    // Control: equal identities.
    assert!(torn([0, 0]) > 0);
    let medium = noisy(MEDIUM);
    let mut new = open(&medium, &locked(2, 2));
    fill(&mut new, NEW, "new", false);
    assert_eq!(wrong(&mut new, NEW, "new"), Vec::<String>::new());
    // The marks of an encrypted store carry its identity as well.
    new.close().expect("a close");
    medium.write_at(0, &[0; 2 * 4096]).expect("memory");
    for options in [options(3), locked(3, 2)] {
        let refused = PageStore::on(Box::new(medium.clone()), &options);
        assert_says(refused, "but blocks of a store follow");
    }
}
