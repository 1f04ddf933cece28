//! Sectors that a medium refuses to read (EIO) cost the pages that lie there, and no others.

use flagstone::commit::DeviceError;
use flagstone::units::Lpn;
use flagstone_store::medium::{Landing, Recorded};
use flagstone_store::{OpenOptions, PageStore, StoreError};

const PAGES: u32 = 2_000;
/// The page that the tests damage, in a block that is full.
const AT: Lpn = Lpn(77);

/// Pages of the medium around the one that the tests damage.
struct Places {
    page: u64,
    summary: u64,
    mark: u64,
    block: u32,
}

/// A store that holds pages, closed or as a crash leaves it.
fn filled(closed: bool) -> (Recorded, Places) {
    let medium = Recorded::default();
    let mut store = open(&medium, &OpenOptions::default()).expect("a new store");
    for at in 0..PAGES {
        commit(&mut store, at, at);
    }
    let facts = store.facts(AT).expect("it is there");
    let mark = 2 + u64::from(facts.block) * 129;
    let places = Places {
        page: mark + 1 + u64::from(facts.page_in_block),
        summary: mark + 128,
        mark,
        block: facts.block,
    };
    if closed {
        store.close().expect("it closes");
        return (medium, places);
    }
    (medium.cut(Landing::Nothing), places)
}

fn open(medium: &Recorded, options: &OpenOptions) -> Result<PageStore, StoreError> {
    PageStore::on(Box::new(medium.clone()), options)
}

fn commit(store: &mut PageStore, at: u32, tag: u32) {
    let tx = store.begin().expect("it begins");
    store
        .write(tx, Lpn(at), &tag.to_le_bytes())
        .expect("a write");
    store.commit(tx).expect("it commits");
}

/// The pages that cannot be read. All others must hold what was committed.
fn unread(store: &mut PageStore) -> Vec<Lpn> {
    let mut page = vec![0; PageStore::PAGE_BYTES];
    let mut unread = Vec::new();
    for at in (0..PAGES).map(Lpn) {
        match store.read(None, at, &mut page) {
            Ok(bytes) => assert_eq!((bytes, &page[..4]), (Some(4), &at.0.to_le_bytes()[..])),
            Err(StoreError::Device(DeviceError::Unreadable(_))) => unread.push(at),
            Err(error) => panic!("page {at}: {error}"),
        }
    }
    unread
}

fn say_refused(store: &mut PageStore) -> bool {
    let report = store.check().expect("a check goes on");
    report.wrong.iter().any(|wrong| wrong.contains("refused"))
}

#[test]
fn a_store_in_use_loses_the_page_that_is_there() {
    let (medium, places) = filled(true);
    medium.refuse(&[places.page]);
    let mut store = open(&medium, &OpenOptions::existing()).expect("it opens");
    assert_eq!(unread(&mut store), [AT]);
    assert!(say_refused(&mut store));
    // It is overwritten, and collected around: all is well then.
    for round in 0..6 {
        for at in 0..PAGES {
            commit(&mut store, at, at);
        }
        assert_eq!(unread(&mut store), [], "round {round}");
    }
    assert!(store.device().stats().collections > 0);
    drop(store);
    let mut store = open(&medium, &OpenOptions::existing()).expect("it opens");
    assert_eq!(unread(&mut store), []);
}

/// The mark of a block that was never used is looked at before that block is filled with zeros.
#[test]
fn a_mark_that_nobody_has_written_costs_nothing() {
    let medium = Recorded::default();
    let mut store = open(&medium, &OpenOptions::default()).expect("a new store");
    commit(&mut store, 0, 0);
    let block = store.facts(Lpn(0)).expect("it is there").block;
    let mark = 2 + u64::from(block + 2) * 129;
    medium.refuse(&[mark]);
    for at in 0..PAGES {
        commit(&mut store, at, at);
    }
    assert_eq!(unread(&mut store), []);
    assert_eq!(medium.refused(), [], "the block is used");
    drop(store);
    let mut store = open(&medium, &OpenOptions::existing()).expect("it opens");
    assert_eq!(unread(&mut store), []);
    assert!(store.check().expect("it can be read").is_well());
}

#[test]
fn a_recovery_that_cannot_read_a_page_rolls_nothing_back() {
    let (medium, places) = filled(false);
    medium.refuse(&[places.page]);
    // By its summary the page is known, whatever can be read of it.
    let mut store = open(&medium, &OpenOptions::existing()).expect("it opens");
    assert_eq!(unread(&mut store), [AT]);
    drop(store);
    let (medium, places) = filled(false);
    medium.refuse(&[places.summary]);
    for options in [OpenOptions::existing(), OpenOptions::existing().reading()] {
        let opened = open(&medium, &options);
        assert!(matches!(opened, Err(StoreError::Io { .. })));
    }
}

/// Also if only the field says so.
#[test]
fn a_store_that_is_salvaged_is_only_read() {
    let (medium, _) = filled(true);
    let mut options = OpenOptions::existing();
    options.salvage = true;
    let mut store = open(&medium, &options).expect("it opens");
    let refused = store.begin().map(drop);
    assert!(matches!(refused, Err(StoreError::ReadOnly)), "{refused:?}");
}

#[test]
fn what_is_left_can_be_salvaged() {
    let salvaging = OpenOptions::existing().salvaging();
    for closed in [false, true] {
        let (medium, places) = filled(closed);
        let damage = |place: u64| medium.refuse(&[place]);
        for options in [salvaging.clone(), salvaging.clone().uncached()] {
            damage(places.page);
            let mut store = open(&medium, &options).expect("it opens");
            assert_eq!(unread(&mut store), [AT]);
            assert!(say_refused(&mut store));
            damage(places.summary);
            let mut store = open(&medium, &options).expect("it opens");
            assert_eq!(
                unread(&mut store),
                [],
                "its pages say as much as their summary"
            );
            damage(places.mark);
            let mut store = open(&medium, &options).expect("it opens");
            let lost = unread_in(&mut store);
            assert!(lost <= 127, "{lost} of block {}", places.block);
            assert!(say_refused(&mut store) || lost == 0);
        }
        for copy in [0, 1] {
            damage(copy);
            for options in [salvaging.clone(), OpenOptions::existing().reading()] {
                match open(&medium, &options) {
                    Ok(mut store) => assert_eq!(unread(&mut store), []),
                    // The newer one is needed.
                    Err(error) => assert!(error.to_string().contains("repair"), "{error}"),
                }
            }
        }
    }
}

/// How many pages are gone, whether that is said or not.
fn unread_in(store: &mut PageStore) -> usize {
    let mut page = vec![0; PageStore::PAGE_BYTES];
    let is_right = |at: u32, found: Result<Option<usize>, StoreError>, page: &[u8]| {
        matches!(found, Ok(Some(4))) && page[..4] == at.to_le_bytes()
    };
    let mut gone = 0;
    for at in 0..PAGES {
        let found = store.read(None, Lpn(at), &mut page);
        gone += usize::from(!is_right(at, found, &page));
    }
    gone
}
