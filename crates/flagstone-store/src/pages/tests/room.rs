//! Bytes written by commits and size of stores, from a few blocks to many.

use super::{Dice, OpenOptions, PageStore};
use crate::error::StoreError;
use crate::medium::{Medium, Memory, Recorded};
use crate::superblock::MEDIUM_PAGE_BYTES;
use flagstone::commit::Kind;
use flagstone::ftl::Mistake;
use flagstone::mistakes::Mistaken;
use flagstone::units::Lpn;

/// Maximum bytes written to the medium per byte of data: 1.1 times a log that is checkpointed,
/// which writes each page twice.
const BOUND: f64 = 2.2;

/// Overwrites one random page of `pages` in each commit. Returns bytes written per byte of data
/// once the collector works, and the size of the store relative to its data.
fn overwritten(pages: u32, mistake: Option<Mistake>) -> (f64, f64) {
    let options = OpenOptions {
        identity: Some(1),
        mistake: Mistaken::from(mistake),
        ..OpenOptions::default().with_protocol(Kind::Seal)
    };
    let mut store = PageStore::on(Box::new(Memory::default()), &options).expect("a store");
    let page = [7; PageStore::PAGE_BYTES];
    for first in (0..pages).step_by(500) {
        store.put_all(first..pages.min(first + 500), &page);
    }
    let mut dice = Dice(pages.into());
    let mut overwrite = |store: &mut PageStore, count: u32| {
        for _ in 0..count {
            store.put(dice.below(pages.into()) as u32, &page);
        }
    };
    // Until each block was collected once.
    overwrite(&mut store, 4 * pages + 4_000);
    let before = store.medium_stats();
    let counted = 2 * pages + 2_000;
    overwrite(&mut store, counted);
    let written = store.medium_stats().bytes - before.bytes;
    let given = f64::from(counted) * PageStore::PAGE_BYTES as f64;
    let holds = f64::from(pages) * MEDIUM_PAGE_BYTES as f64;
    (written as f64 / given, store.info().bytes as f64 / holds)
}

#[test]
fn a_commit_writes_at_most_twice_its_bytes_at_every_size() {
    // From 256 KiB to 32 MiB, and between two growths.
    for pages in [64, 256, 512, 720, 1_024, 1_600, 2_048, 2_816, 4_096, 8_192] {
        let (written, size) = overwritten(pages, None);
        assert!(written < BOUND, "{pages} pages: {written:.2}");
        // The collector's blocks, root blocks, two open blocks, and one growth.
        let fixed = 17.0 * 129.0 / f64::from(pages);
        assert!(size < 1.75 + fixed, "{pages} pages: {size:.2}");
    }
}

/// Control: the rule under which stores of 8 to 12 MiB wrote a hundred pages for one.
#[test]
fn a_store_that_counts_blocks_which_are_never_victims_writes_more() {
    let most = [640, 720, 800, 960, 1_200].map(|pages| {
        let (written, _) = overwritten(pages, Some(Mistake::VictimsCrowded));
        written
    });
    assert!(most.iter().any(|&written| written > 10.0), "{most:?}");
}

/// Fails if a number of pages that no medium has overflows.
#[test]
fn more_pages_than_can_be_numbered_find_no_room() {
    let medium = Recorded::default();
    medium.give_at_most(Some(16 << 20));
    let mut store = PageStore::on(Box::new(medium), &OpenOptions::default()).expect("a store");
    for (new, again) in [(u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX)] {
        let found = store.find_room(new, again, Lpn(0));
        assert!(matches!(found, Err(StoreError::Full(_))), "{found:?}");
    }
    let reserved = store.reserve(u64::MAX);
    assert!(matches!(reserved, Err(StoreError::Full(_))), "{reserved:?}");
}

/// A store on a medium of 64 MiB, with a few pages. Its last one is page `highest`.
fn bounded(kind: Kind, highest: u32) -> (Recorded, PageStore) {
    let medium = Recorded::default();
    medium.give_at_most(Some(64 << 20));
    let options = OpenOptions {
        pages_per_block: 16,
        ..OpenOptions::default().with_protocol(kind)
    };
    let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
    for at in [1, highest] {
        store.put(at, b"held");
    }
    (medium, store)
}

/// Fails if the store grows to the end of the medium before it refuses.
#[test]
fn a_request_that_finds_no_room_takes_none() {
    let suits = |kind: &&Kind| kind.info().atomic && !kind.info().reprograms;
    for &kind in Kind::ALL.iter().filter(suits) {
        // With the second, a store under `seal` has blocks without room.
        for highest in [3, 4_000] {
            let (medium, mut store) = bounded(kind, highest);
            let before = (medium.bytes().ok(), store.in_service);
            for refused in [
                store.find_room(16_000, 0, Lpn(16_000)),
                store.find_room(0, 16_000, Lpn(3)),
                store.find_room(1, 1, Lpn(u32::MAX)),
                store.reserve(16_000),
                store.reserve(1 << 33),
            ] {
                let what = format!("{kind}, {highest}: {refused:?}");
                assert!(matches!(refused, Err(StoreError::Full(_))), "{what}");
            }
            let after = (medium.bytes().ok(), store.in_service);
            assert_eq!(after, before, "{kind}, {highest}");
            store.find_room(6_000, 0, Lpn(6_000)).expect("room");
            store.put_all(4_001..10_000, b"held");
            store.reserve(10_100).expect("room");
            assert!(store.check().expect("it can be read").is_well());
        }
    }
}
