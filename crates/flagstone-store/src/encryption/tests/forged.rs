//! Superblocks changed by an attacker without the key, with corrected checksums.

use super::*;
use crate::encryption::key::{LOCK_AT, LOCK_BYTES, dress};
use crate::pages::tests::assert_says;

/// Offsets of the two superblocks, newest first.
fn heads(medium: &Recorded) -> [u64; 2] {
    let sequence = |at: u64| get(&read(medium, at), superblock::SEQUENCE);
    if sequence(0) > sequence(4096) {
        [0, 4096]
    } else {
        [4096, 0]
    }
}

/// Changes a superblock and corrects both of its checksums.
fn forge(medium: &Recorded, at: u64, change: impl Fn(&mut [u8])) -> Recorded {
    let mut page = read(medium, at);
    change(&mut page);
    let sum = crate::sum::crc32c(&page[..superblock::CRC.start]);
    put(&mut page, superblock::CRC, sum.into());
    let sum = crate::sum::crc32c(&page[..LOCK_AT + LOCK_BYTES]);
    put(&mut page[LOCK_AT..], lock::CRC, sum.into());
    with(medium, at, &page)
}

fn wrong_pages(pages: u64) -> impl Fn(&mut [u8]) {
    move |page| put(page, superblock::PAGES, pages)
}

/// A closed store of 200 pages.
fn closed_store() -> Recorded {
    let medium = Recorded::default();
    let mut store = open(&medium, raw(1)).expect("it is made");
    for at in 0..200 {
        store.put(at, &[at as u8 + 1; 4000]);
    }
    store.close().expect("a close");
    medium
}

fn has_all_pages(store: &mut PageStore) -> bool {
    (0..200).all(|at| store.page(at) == Some(vec![at as u8 + 1; 4000]))
}

/// Gives the store another key.
fn rekey(medium: &Recorded) -> Result<(), StoreError> {
    let (one, two) = (Key::raw([1; 32]), Key::raw([2; 32]));
    rekey_on(Box::new(medium.clone()), &one, &two)
}

/// Such a store was once opened as an empty one, whose first writes overwrote its blocks.
#[test]
fn the_shape_of_a_store_is_that_of_a_superblock_that_is_proven() {
    let medium = closed_store();
    let [newest, older] = heads(&medium);
    for pages in [17, 15, 32, 64, 128, 65535, 0] {
        let forged = forge(&medium, newest, wrong_pages(pages));
        let mut store = open(&forged, raw(1)).expect("by the other superblock");
        assert!(has_all_pages(&mut store), "{pages} pages a block");
        let report = store.check().expect("it reads");
        assert!(
            report.wrong[0].contains("superblock is damaged"),
            "{report:?}"
        );
        for at in 0..200 {
            store.put(at, &[at as u8 + 1; 4000]);
        }
        store.close().expect("a close");
        let mut store = open(&forged, raw(1)).expect("it opens");
        assert!(has_all_pages(&mut store), "{pages} pages a block");
        // Neither superblock is trusted.
        let forged = forge(
            &forge(&medium, newest, wrong_pages(pages)),
            older,
            wrong_pages(pages),
        );
        let before = forged.to_vec();
        let opened = open(&forged, raw(1));
        assert!(matches!(opened, Err(StoreError::Damaged(_))));
        assert_says(
            opened,
            "both superblocks are damaged, although the key is right",
        );
        // Control: a wrong key is still reported as wrong.
        assert!(refusal(open(&forged, raw(2))).contains("not the key of the store"));
        let changed = rekey(&forged);
        assert!(
            matches!(changed, Err(StoreError::Damaged(_))),
            "{changed:?}"
        );
        assert!(forged.to_vec() == before, "nothing was changed");
    }
}

/// A layer above that uses too much of a spare area gets an error, and nothing is written.
#[test]
fn a_spare_area_without_room_is_an_error_of_the_medium() {
    let medium = closed_store();
    let dressed = dress(Box::new(medium.clone()), &options(raw(1))).expect("its key");
    let mut page = vec![0xff; MEDIUM_PAGE_BYTES];
    let place = (mark_page(PAGES_PER_BLOCK, 0) + 1) * 4096;
    let before = medium.to_vec();
    let generation = PageStore::PAGE_BYTES + trailer::GENERATION.start;
    page[generation..generation + 8].copy_from_slice(&7_u64.to_le_bytes());
    page[PageStore::PAGE_BYTES + trailer::SPARE.end - 1] = 1;
    let error = dressed.write_at(place, &page).expect_err("no room");
    assert!(
        error.to_string().contains("more than there is room for"),
        "{error}"
    );
    assert!(medium.to_vec() == before);
    // Control: with enough room it is written.
    page[PageStore::PAGE_BYTES + trailer::SPARE.end - 1] = 0xff;
    dressed.write_at(place, &page).expect("room");
    assert!(medium.to_vec() != before);
}

/// Both were once written from the older superblock, which did not count all blocks.
#[test]
fn another_key_is_refused_where_the_newest_superblock_is_lost() {
    let medium = Recorded::default();
    let mut store = open(&medium, raw(1)).expect("it is made");
    let blocks = store.info().blocks;
    // Until a page lies behind the end that the older superblock knows.
    let mut at = 0;
    loop {
        store.put(at, &[7; 4000]);
        if store.facts(Lpn(at)).expect("it is there").block >= blocks {
            break;
        }
        at += 1;
    }
    // As a killed process leaves it.
    let killed = Recorded::with(&medium.to_vec());
    let [newest, _] = heads(&killed);
    let forged = forge(&killed, newest, wrong_pages(17));
    let before = forged.to_vec();
    assert_says(open(&forged, raw(1)), "newest superblock is damaged");
    assert_says(rekey(&forged), "newest superblock is damaged");
    assert!(forged.to_vec() == before, "nothing was changed");
    // The damaged one may have been the older: it is unknown whether the store was closed.
    let medium = closed_store();
    let forged = forge(&medium, heads(&medium)[1], wrong_pages(17));
    rekey(&forged).expect("the newest is whole");
    let mut store = open(&forged, raw(2)).expect("it opens");
    assert!(has_all_pages(&mut store));
    assert_eq!(store.info().closed, Some(false));
    // Control.
    rekey(&killed).expect("it is whole");
    let mut store = open(&killed, raw(2)).expect("it opens");
    assert_eq!(store.page(at), Some(vec![7; 4000]));
}

/// The cost of a passphrase is paid before anything is verified, so it is bounded.
#[test]
fn a_lock_that_asks_for_too_much_work_is_refused() {
    let key = || Some(Key::passphrase("one".into()));
    let medium = Recorded::default();
    let mut store = open(&medium, key()).expect("it is made");
    store.put(1, b"one");
    store.close().expect("a close");
    let asking = |memory: u64, passes: u64| {
        let asks = move |page: &mut [u8]| {
            put(&mut page[LOCK_AT..], lock::MEMORY, memory);
            put(&mut page[LOCK_AT..], lock::PASSES, passes);
        };
        let [newest, older] = heads(&medium);
        let one = forge(&medium, newest, asks);
        let both = forge(&one, older, asks);
        (one, both)
    };
    for (memory, passes) in [(64, 17), ((1 << 20) + 1, 1), (u64::from(u32::MAX), 65535)] {
        let (one, both) = asking(memory, passes);
        let refused = open(&both, key()).err().expect("it is refused");
        assert!(matches!(refused, StoreError::Damaged(_)), "{refused}");
        let asked = format!("{memory} KiB and {passes} passes");
        assert!(refused.to_string().contains(&asked), "{refused}");
        let mut store = open(&one, key()).expect("by the other lock");
        assert_eq!(store.page(1), Some(b"one".to_vec()));
    }
    // Control: a cost within the bound is accepted; the key is wrong.
    let (_, both) = asking(64, 16);
    assert!(refusal(open(&both, key())).contains("not the key of the store"));
}
