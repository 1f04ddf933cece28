//! New stores on media that hold something: an older store, what is left of one, or noise. Nothing
//! of it may come back, whatever the new store does and however it ends.

use super::*;
use crate::flash::{mark_page, medium_bytes};
use crate::medium::Medium;
use crate::tools;

/// Pages of a block.
const PAGES: u32 = 16;
/// Bytes at the begin of a medium that a user zeroes before a new store is made there.
const ZEROED: usize = 10 << 20;
/// Bytes of a medium, the older store of which takes two thirds.
const MEDIUM: u64 = 48 << 20;
/// Pages that the older store has, and the new one.
const OLD: u32 = 5_000;
const NEW: u32 = 3_200;

fn options(identity: u64) -> OpenOptions {
    OpenOptions {
        identity: Some(identity),
        ..small(Kind::Seal)
    }
}

fn open(medium: &Recorded, options: &OpenOptions) -> PageStore {
    // The medium holds an older store or noise.
    let options = options.clone().forced();
    PageStore::on(Box::new(medium.clone()), &options).expect("a store")
}

/// Commits pages one by one, upwards or downwards.
fn fill(store: &mut PageStore, pages: u32, what: &str, downwards: bool) {
    for at in 0..pages {
        let at = if downwards { pages - 1 - at } else { at };
        store.put(at, format!("{what} {at}").as_bytes());
    }
}

/// What a store has that is not as `fill` left it.
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

/// Zeroes the begin of a medium, and the marks that are left behind it if `marks` says so: a store
/// that was made there before, and cut while it grew, has cleared them.
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

/// A medium on which an older store lay.
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

/// What is wrong with a new store whose process is killed.
fn wrong_after_kill(medium: &Recorded, options: &OpenOptions, downwards: bool) -> Vec<String> {
    let mut new = open(medium, options);
    fill(&mut new, NEW, "new", downwards);
    assert_eq!(wrong(&mut new, NEW, "new"), Vec::<String>::new());
    let left = medium.cut(Landing::Everything);
    left.end_at(MEDIUM);
    drop(new);
    wrong(&mut open(&left, options), NEW, "new")
}

/// Acknowledged pages were lost, those of the older store came back, and a check said that all was
/// well: both stores count their erases from one, so their generations are the same.
#[test]
fn an_older_store_does_not_come_back_in_a_new_one() {
    for marks in [false, true] {
        let medium = after_older(1, marks);
        for downwards in [false, true] {
            let found = wrong_after_kill(&medium.snapshot(), &options(2), downwards);
            assert_eq!(found, Vec::<String>::new(), "{marks} {downwards}");
        }
    }
    // The control: stores without an identity.
    let medium = after_older(0, true);
    for downwards in [false, true] {
        let found = wrong_after_kill(&medium.snapshot(), &options(0), downwards);
        assert!(!found.is_empty(), "{downwards}");
    }
}

/// A page of another store was taken for a torn one of this store. In a store that was always
/// closed that is damage.
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

/// A medium that holds noise behind its first two pages.
fn noisy(bytes: u64) -> Recorded {
    let mut dice = Dice(7);
    let mut noise: Vec<u8> = (0..bytes).map(|_| dice.below(256) as u8).collect();
    noise[..2 * 4096].fill(0);
    let medium = Recorded::with(&noise);
    medium.end_at(bytes);
    medium
}

/// Noise where marks are to be was damage, if the new store did not clear it.
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

/// A superblock must not speak of blocks before what was there instead of their marks is gone.
#[test]
fn marks_are_cleared_durably_before_a_superblock_counts_their_blocks() {
    let medium = noisy(24 << 20);
    let blocks = |medium: &Recorded| {
        let head = Superblock::read(medium).expect("it is no other store");
        head.map_or(0, |head| head.superblock.blocks)
    };
    // Moments at which a superblock with more blocks is written, and not durable.
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
        // Of the sectors, those of the superblock are the last eight.
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

/// A store that grows over blocks from a later time of its own life: an older copy of it was put
/// back, which is shorter.
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
    // As one that an older version of the format made.
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

/// Where both superblocks are lost the marks say whose blocks are whose.
#[test]
fn a_store_without_superblocks_is_salvaged_without_the_older_one_behind_it() {
    for [older, newer] in [[1, 2], [0, 2]] {
        let medium = after_older(older, false);
        let mut new = open(&medium, &options(newer));
        fill(&mut new, NEW, "new", false);
        new.close().expect("a close");
        medium.write_at(0, &[0; 2 * 4096]).expect("memory");
        let refused = PageStore::on(Box::new(medium.clone()), &options(3));
        assert_says(refused, "there are blocks of a store behind them");
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

/// An encrypted store has a data key of its own, so that nothing of an older one can come back. By
/// the identity it is no damage either.
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
    // The control.
    assert!(torn([0, 0]) > 0);
    let medium = noisy(MEDIUM);
    let mut new = open(&medium, &locked(2, 2));
    fill(&mut new, NEW, "new", false);
    assert_eq!(wrong(&mut new, NEW, "new"), Vec::<String>::new());
    // Its marks say that they are of a store as well.
    new.close().expect("a close");
    medium.write_at(0, &[0; 2 * 4096]).expect("memory");
    for options in [options(3), locked(3, 2)] {
        let refused = PageStore::on(Box::new(medium.clone()), &options);
        assert_says(refused, "there are blocks of a store behind them");
    }
}
