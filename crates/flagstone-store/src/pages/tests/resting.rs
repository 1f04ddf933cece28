//! Stores that open from the tables of their last close, and stores that must not.

use super::*;
use crate::superblock::superblock;
use flagstone::layout::get;

/// A store with a history, and the contents of its pages.
struct History {
    medium: Recorded,
    pages: Pages,
    dice: Dice,
}

impl History {
    fn new(seed: u64) -> History {
        History {
            medium: Recorded::default(),
            pages: Pages::new(),
            dice: Dice(seed),
        }
    }

    fn open(&self) -> PageStore {
        PageStore::on(Box::new(self.medium.clone()), &small(Kind::Seal)).expect("a store")
    }

    /// A store of many pages.
    fn large(&mut self) -> PageStore {
        let mut store = self.open();
        store.put_all(200..1_800, b"filler");
        let filled = (200..1_800).map(|at| (at, Some(b"filler".to_vec())));
        self.pages.extend(filled);
        store
    }

    /// Runs transactions, some of which roll back; one stays live.
    fn go_on(&mut self, store: &mut PageStore, transactions: u32) {
        let live = store.begin().expect("it begins");
        store.write(live, Lpn(130), b"never").expect("room");
        for _ in 0..transactions {
            let (tx, after) = transaction(store, &mut self.dice, &self.pages);
            if self.dice.below(6) == 0 {
                store.abort(tx).expect("it rolls back");
            } else {
                store.commit(tx).expect("it commits");
                self.pages = after;
            }
        }
    }

    /// Opens a copy read-only. Returns whether the tables were used, and whether contents match.
    fn look(&self, landing: Landing, options: &OpenOptions) -> (bool, bool) {
        let medium = Box::new(self.medium.cut(landing));
        let mut store = PageStore::on(medium, options).expect("a store");
        let is_right = contents(&mut store) == self.pages;
        let report = store.check().expect("no fault");
        (store.info().resumed, is_right && report.is_well())
    }
}

fn reading() -> OpenOptions {
    OpenOptions::existing().reading()
}

#[test]
fn a_store_that_was_closed_opens_without_reading_its_blocks() {
    let mut resumed = 0;
    for seed in 1..12 {
        let mut history = History::new(seed);
        for round in 0..5 {
            let mut store = history.open();
            resumed += u32::from(store.info().resumed);
            assert!(store.info().resumed || round == 0 || seed % 2 == 0);
            assert!(contents(&mut store) == history.pages);
            history.go_on(&mut store, 40);
            if seed % 2 == 0 && round % 2 == 0 {
                // After a cut the earlier tables must not be used.
                std::mem::forget(store);
                history.medium = history.medium.cut(Landing::Sectors(seed));
                assert_eq!(history.look(Landing::Nothing, &reading()), (false, true));
                continue;
            }
            store.close().expect("no fault");
            assert_eq!(history.look(Landing::Nothing, &reading()), (true, true));
            let uncached = reading().uncached();
            assert_eq!(history.look(Landing::Nothing, &uncached), (false, true));
        }
    }
    assert!(resumed > 20, "{resumed}");
}

/// Regression: tables that a superblock had revoked were used again when that superblock was
/// damaged or zeroed. Later commits were missing.
#[test]
fn tables_that_were_taken_back_are_not_believed_beside_a_lost_superblock() {
    for lost in [0, 0x55] {
        let mut history = History::new(3);
        let mut store = history.open();
        history.go_on(&mut store, 60);
        store.close().expect("no fault");
        assert_eq!(history.look(Landing::Nothing, &reading()), (true, true));
        let mut store = history.open();
        store.put(7, b"since");
        history.pages.insert(7, Some(b"since".to_vec()));
        std::mem::forget(store);
        let mut bytes = history.medium.to_vec();
        let sequence = |at: usize| get(&bytes[at..], superblock::SEQUENCE);
        let newest = if sequence(0) > sequence(4096) {
            0
        } else {
            4096
        };
        bytes[newest..newest + 4096].fill(lost);
        history.medium = Recorded::with(&bytes);
        // Refused if a block shows a later opening, correct otherwise.
        match PageStore::on(Box::new(history.medium), &reading()) {
            Err(StoreError::Damaged(why)) => assert!(why.contains("newest superblock"), "{why}"),
            Err(other) => panic!("{other}"),
            Ok(mut store) => {
                assert!(!store.info().resumed && contents(&mut store) == history.pages);
            }
        }
    }
}

#[test]
fn a_cut_in_a_close_leaves_all_or_nothing_of_it() {
    let (mut with, mut without) = (0, 0);
    for seed in 1..8 {
        let mut history = History::new(seed);
        let mut store = history.open();
        history.go_on(&mut store, 60);
        // All moments of the close, each with several outcomes of unsynced writes.
        let left: Arc<Mutex<Vec<Recorded>>> = Arc::default();
        let kept = Arc::clone(&left);
        history.medium.watch(Some(Box::new(move |medium| {
            let landings = [
                Landing::Nothing,
                Landing::Everything,
                Landing::Sectors(seed),
                Landing::Sectors(seed + 100),
                Landing::Pages(seed),
                Landing::Last(1),
            ];
            let mut kept = kept.lock().expect("no panic");
            kept.extend(landings.map(|landing| medium.cut(landing)));
        })));
        store.close().expect("no fault");
        history.medium.watch(None);
        for medium in left.lock().expect("no panic").drain(..) {
            history.medium = medium;
            let (resumed, is_right) = history.look(Landing::Everything, &reading());
            assert!(is_right, "seed {seed}");
            let uncached = history.look(Landing::Everything, &reading().uncached());
            assert_eq!(uncached, (false, true), "a cut is no damage");
            if resumed { with += 1 } else { without += 1 }
        }
    }
    assert!(with > 10 && without > 50, "{with} and {without}");
}

#[test]
fn what_was_left_and_is_damaged_is_noticed_and_passed_over() {
    let mut history = History::new(3);
    let mut store = history.large();
    history.go_on(&mut store, 60);
    let behind = store.info().bytes as usize;
    store.close().expect("no fault");
    let whole = history.medium.to_vec();
    assert!(whole.len() > behind);
    let looks = |bytes: Vec<u8>| {
        let damaged = History {
            medium: Recorded::with(&bytes),
            pages: history.pages.clone(),
            dice: Dice(1),
        };
        let normal = damaged.look(Landing::Nothing, &reading());
        let uncached = damaged.look(Landing::Nothing, &reading().uncached());
        (normal, uncached)
    };
    assert_eq!(looks(whole.clone()), ((true, true), (false, true)));
    for at in [behind, behind + 4000, behind + 4096 + 5, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        assert_eq!(looks(bytes), ((false, true), (false, false)), "byte {at}");
    }
    // The tables are missing, as after a truncated copy.
    assert_eq!(
        looks(whole[..behind].to_vec()),
        ((false, true), (false, false))
    );
    // The tables are those of an earlier close.
    let mut store = history.open();
    let mut dice = Dice(9);
    for _ in 0..40 {
        let (tx, after) = transaction(&mut store, &mut dice, &history.pages);
        store.commit(tx).expect("it commits");
        history.pages = after;
    }
    store.close().expect("no fault");
    let mut bytes = history.medium.to_vec();
    assert_eq!(bytes.len(), whole.len(), "it has not grown");
    bytes[behind..].copy_from_slice(&whole[behind..]);
    let medium = Recorded::with(&bytes);
    let old = History {
        medium,
        pages: history.pages.clone(),
        dice,
    };
    assert_eq!(old.look(Landing::Nothing, &reading()), (false, true));
    assert_eq!(
        old.look(Landing::Nothing, &reading().uncached()),
        (false, false)
    );
}

#[test]
fn tables_that_are_believed_and_wrong_lose_data() {
    // Control for the tests above: they would notice wrong tables.
    let mut history = History::new(5);
    let mut store = history.open();
    history.go_on(&mut store, 60);
    let now = store.now;
    let tables = store.device.rest(now).expect("no fault").expect("tables");
    let (_, after) = {
        let (tx, after) = transaction(&mut store, &mut Dice(77), &history.pages);
        store.commit(tx).expect("it commits");
        (tx, after)
    };
    history.pages = after;
    // A close that leaves slightly older tables.
    *store.notes.tables() = Some(tables);
    let sealed = store.device.end_blocks(store.now).expect("no fault");
    store.notes.seal_unto(sealed);
    store.read_only = true;
    drop(store);
    let (resumed, is_right) = history.look(Landing::Nothing, &reading());
    assert!(resumed && !is_right);
    let uncached = history.look(Landing::Nothing, &reading().uncached());
    assert_eq!(uncached, (false, false), "a check compares");
}

#[test]
fn tables_that_are_written_in_several_parts_are_read_again() {
    let medium = Recorded::default();
    let open = || PageStore::on(Box::new(medium.clone()), &small(Kind::Seal)).expect("a store");
    let mut store = open();
    for first in (0..4000).step_by(100) {
        let tx = store.begin().expect("it begins");
        for at in first..first + 100 {
            store.write(tx, Lpn(at), &at.to_le_bytes()).expect("room");
        }
        store.commit(tx).expect("durable");
    }
    let before = medium.operations();
    store.close().expect("no fault");
    // At least three parts of two pages, a sync and the superblock.
    assert!(medium.operations() - before >= 5);
    let mut store = open();
    assert!(store.info().resumed);
    for at in 0..4000_u32 {
        assert_eq!(store.page(at), Some(at.to_le_bytes().to_vec()));
    }
    drop(store);
    let checked = PageStore::on(Box::new(medium.clone()), &small(Kind::Seal).uncached());
    let report = checked.expect("it opens").check().expect("no fault");
    assert!(report.is_well(), "{report:?}");
}

#[test]
fn a_store_grows_over_what_was_left() {
    let mut history = History::new(6);
    let mut store = history.open();
    history.go_on(&mut store, 60);
    store.close().expect("no fault");
    let mut store = history.open();
    assert!(store.info().resumed);
    let before = store.info().blocks;
    for first in (200..800).step_by(4) {
        store.put_all(first..first + 4, &[7; 4032]);
        let written = (first..first + 4).map(|at| (at, Some(vec![7; 4032])));
        history.pages.extend(written);
    }
    assert!(store.info().blocks > before);
    assert_eq!(history.look(Landing::Nothing, &reading()), (false, true));
    store.close().expect("no fault");
    assert_eq!(history.look(Landing::Nothing, &reading()), (true, true));
}

/// Regression: an opening first grew the store over the tables of the last close. A cut left them
/// overwritten, with a superblock that still named them, and the check reported damage.
#[test]
fn a_cut_while_a_store_grows_over_what_was_left_is_no_damage() {
    let mut history = History::new(6);
    let mut store = history.open();
    history.go_on(&mut store, 60);
    store.close().expect("no fault");
    let mut store = history.open();
    assert!(store.info().resumed);
    let left: Arc<Mutex<Vec<Recorded>>> = Arc::default();
    let kept = Arc::clone(&left);
    history.medium.watch(Some(Box::new(move |medium| {
        let mut kept = kept.lock().expect("no panic");
        let landings = [Landing::Nothing, Landing::Everything, Landing::Last(1)];
        kept.extend(landings.map(|landing| medium.cut(landing)));
    })));
    store.reserve(2_000).expect("room");
    history.medium.watch(None);
    let left = std::mem::take(&mut *left.lock().expect("no panic"));
    assert!(left.len() >= 12, "{}", left.len());
    for medium in left {
        history.medium = medium;
        for options in [reading(), reading().uncached()] {
            assert!(history.look(Landing::Everything, &options).1);
        }
    }
    history.medium = Recorded::default();
    drop(store);
}

#[test]
fn an_opening_that_writes_little_leaves_nothing() {
    let mut history = History::new(8);
    let mut store = history.large();
    history.go_on(&mut store, 60);
    store.close().expect("no fault");
    assert_eq!(history.look(Landing::Nothing, &reading()), (true, true));
    let mut store = history.open();
    store.put(1, b"one");
    history.pages.insert(1, Some(b"one".to_vec()));
    store.close().expect("no fault");
    assert_eq!(history.look(Landing::Nothing, &reading()), (false, true));
}
