//! How large a store becomes if one transaction overwrites its own pages many times.

use super::*;
use crate::superblock::MEDIUM_PAGE_BYTES;

/// Number of pages in the store beforehand.
const HELD: u32 = 2_000;
/// Writes of the transaction per page that it changes.
const WRITES: u64 = 12;

/// Runs a transaction of `WRITES * changes` writes on a store that holds [`HELD`] pages; `among`
/// draws each page. Returns the maximum size of the store relative to the bytes of its pages.
fn grows_to(changes: u64, among: impl Fn(&mut Dice, u64) -> u64) -> f64 {
    let options = small(Kind::Seal);
    let mut store = PageStore::on(Box::new(Memory::default()), &options).expect("a store");
    store.put_all(0..HELD, b"before");
    let tx = store.begin().expect("it begins");
    let mut dice = Dice(changes);
    let (mut most, mut newest) = (0, BTreeMap::new());
    for n in 0..changes * WRITES {
        let at = among(&mut dice, n) as u32;
        let data = format!("write {n}");
        store.write(tx, Lpn(at), data.as_bytes()).expect("room");
        newest.insert(at, data);
        if n % 64 == 0 {
            most = most.max(store.info().bytes);
        }
    }
    store.commit(tx).expect("it commits");
    for at in 0..HELD {
        let wanted = newest.get(&at).map_or("before", String::as_str);
        assert_eq!(
            store.page(at).as_deref(),
            Some(wanted.as_bytes()),
            "page {at}"
        );
    }
    let report = store.check().expect("it reads");
    assert_eq!(report.wrong, Vec::<String>::new());
    most as f64 / (u64::from(HELD) * MEDIUM_PAGE_BYTES as u64) as f64
}

/// Twice the pages of the store plus the pages that the transaction changes. Each block has one
/// page more for its summary and one for its mark.
fn bound(changes: u64) -> f64 {
    const BLOCK: f64 = 17.0 / 15.0;
    (2.0 + changes as f64 / f64::from(HELD)) * BLOCK
}

#[test]
fn a_transaction_that_overwrites_its_own_pages_takes_room_for_one_version_of_each() {
    for each in [1, 4] {
        let changes = u64::from(HELD) / each;
        let size = grows_to(changes, |dice, _| dice.below(changes) * each);
        let most = bound(changes);
        assert!(size <= most, "{size}, and the bound is {most}");
    }
}

/// Control: a transaction with as many writes, each to another page.
#[test]
fn a_transaction_that_writes_as_many_pages_takes_room_for_all() {
    let changes = u64::from(HELD);
    let size = grows_to(changes, |_, n| n);
    assert!(size > 2.0 * bound(changes), "{size}");
}
