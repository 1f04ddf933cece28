//! Reads of looked-up pages, at any time after the lookup.

use super::{Dice, small};
use crate::error::StoreError;
use crate::medium::{Memory, Tight};
use crate::pages::PageStore;
use crate::superblock::MEDIUM_PAGE_BYTES;
use flagstone::commit::Kind;
use flagstone::units::{Lpn, SnapshotId};

const PAGES: u32 = 200;

/// Fills a page so that its bytes say which version of which page they are.
fn fill(at: u32, version: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&at.to_le_bytes());
    bytes[4..].copy_from_slice(&version.to_le_bytes());
    bytes
}

fn commit(store: &mut PageStore, pages: impl Iterator<Item = u32>, version: u32) {
    let tx = store.begin().expect("it begins");
    for at in pages {
        store.write(tx, Lpn(at), &fill(at, version)).expect("room");
    }
    store.commit(tx).expect("durable");
}

#[test]
fn a_page_is_read_where_it_was_looked_up_as_it_was_or_not_at_all() {
    let medium = Box::new(Memory::default());
    let mut store = PageStore::on(medium, &small(Kind::Seal)).expect("a store");
    let (mut dice, mut into) = (Dice(3), [0; MEDIUM_PAGE_BYTES]);
    commit(&mut store, 0..PAGES, 0);
    let (mut versions, mut found, mut gone) = (vec![0; PAGES as usize], 0, 0);
    for round in 0..400 {
        let looked: Vec<_> = (0..20)
            .map(|_| {
                let at = dice.below(PAGES.into()) as u32;
                let looked = store.look(None, Lpn(at)).expect("it is well");
                (looked.expect("it was written"), at, versions[at as usize])
            })
            .collect();
        // Some pages are replaced, some moved, and some blocks are rewritten.
        for more in 0..round % 150 {
            let at = dice.below(PAGES.into()) as u32;
            versions[at as usize] = round * 1000 + more + 1;
            commit(&mut store, std::iter::once(at), round * 1000 + more + 1);
        }
        for (looked, at, version) in looked {
            match looked.read(&mut into) {
                Some(bytes) => {
                    assert_eq!(into[..bytes], fill(at, version), "page {at}");
                    found += 1;
                }
                None => gone += 1,
            }
        }
    }
    assert!(found > 1000 && gone > 100, "{found} found, {gone} gone");
}

#[test]
fn a_protocol_without_snapshots_has_nothing_looked_up() {
    let medium = Box::new(Memory::default());
    let mut store = PageStore::on(medium, &small(Kind::LightTx)).expect("a store");
    commit(&mut store, 0..1, 1);
    assert!(store.look(None, Lpn(0)).expect("it is well").is_none());
}

#[test]
fn what_is_left_of_a_commit_is_durable_once_it_was_carried_out() {
    use crate::medium::{Landing, Recorded};
    let medium = Recorded::default();
    let mut store = PageStore::on(Box::new(medium.clone()), &small(Kind::Seal)).expect("a store");
    commit(&mut store, 0..1, 1);
    let durable = |medium: &Recorded| {
        let left = Box::new(medium.cut(Landing::Nothing));
        let mut store = PageStore::on(left, &small(Kind::Seal)).expect("it opens");
        store.page(0).expect("it is there")
    };
    store.leave_work(true);
    commit(&mut store, 0..1, 2);
    store.leave_work(false);
    assert_eq!(durable(&medium), fill(0, 1));
    store.asked().carry_out();
    store.outcome().expect("the medium works");
    assert_eq!(durable(&medium), fill(0, 2));
    store.leave_work(true);
    commit(&mut store, 0..1, 3);
    store.leave_work(false);
    medium.fail_at(Some(0));
    store.asked().carry_out();
    assert!(store.outcome().is_err(), "the medium has failed");
    assert!(store.begin().is_err(), "nothing succeeds from here on");
}

/// A store over a medium that finds no room when a commit that was left to others is carried out,
/// and a snapshot that was taken before.
fn refused() -> (Tight, PageStore, SnapshotId) {
    let medium = Tight::default();
    let mut store = PageStore::on(Box::new(medium.clone()), &small(Kind::Seal)).expect("a store");
    commit(&mut store, 0..1, 1);
    store.leave_work(true);
    commit(&mut store, 0..1, 2);
    let id = store.snapshot().expect("seal has them");
    medium.give(Some(0), 0);
    store.asked().carry_out();
    (medium, store, id)
}

/// Fails if a read that opens the store again hides that a commit is lost.
#[test]
fn a_commit_that_found_no_room_is_told_whichever_call_finds_that_out() {
    for reads_first in [false, true] {
        let (medium, mut store, _) = refused();
        if reads_first {
            assert_eq!(store.page(0).expect("it is there"), fill(0, 1));
        }
        let said = store.outcome();
        assert!(matches!(said, Err(StoreError::Full(_))), "{said:?}");
        assert_eq!(store.page(0).expect("it is there"), fill(0, 1));
        medium.give(None, 0);
        // The next commit has a result of its own.
        commit(&mut store, 0..1, 3);
        store.asked().carry_out();
        store.outcome().expect("there is room");
        assert_eq!(store.page(0).expect("it is there"), fill(0, 3));
    }
}

/// Fails if a snapshot that has ended says of a page beyond the device that it holds nothing.
#[test]
fn a_snapshot_that_lack_of_room_has_ended_says_so_of_every_page() {
    let (_, mut store, id) = refused();
    // The store is opened again, and has no snapshots then.
    assert!(store.outcome().is_err());
    let mut page = vec![0; PageStore::PAGE_BYTES];
    for at in [Lpn(0), Lpn(store.device().pages())] {
        let read = store.read_snapshot(id, at, &mut page);
        assert!(matches!(read, Err(StoreError::SnapshotEnded)), "{read:?}");
        let looked = store.look(Some(id), at).map(|looked| looked.is_some());
        assert!(
            matches!(looked, Err(StoreError::SnapshotEnded)),
            "{looked:?}"
        );
    }
}
