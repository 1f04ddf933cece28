//! A store on a medium that gives no more room, as a block device never does: it refuses new pages,
//! and goes on with those that it holds. On one that gives more it grows for what needs more.

use flagstone::commit::Kind;
use flagstone::units::Lpn;
use flagstone_store::medium::{Landing, Medium, Recorded};
use flagstone_store::{OpenOptions, PageStore, StoreError};

/// A medium of so many bytes, as `left` is or blank.
fn bounded(left: Option<&Recorded>, bytes: u64) -> Recorded {
    let medium = left.map_or_else(Recorded::default, |left| left.cut(Landing::Nothing));
    medium.give_at_most(Some(bytes));
    medium
}

fn open(medium: &Recorded, kind: Kind, pages_per_block: u32, space: f64) -> PageStore {
    let mut options = OpenOptions::default().with_protocol(kind);
    options.pages_per_block = pages_per_block;
    options.space = space;
    PageStore::on(Box::new(medium.clone()), &options).expect("it opens")
}

fn bytes_of(tag: u32) -> Vec<u8> {
    let mut bytes = vec![(tag % 251) as u8; PageStore::PAGE_BYTES];
    bytes[..4].copy_from_slice(&tag.to_le_bytes());
    bytes
}

/// Writes pages in a transaction, which is rolled back if that fails.
fn commit(store: &mut PageStore, pages: &[u32], tag: u32) -> Result<(), StoreError> {
    let tx = store.begin()?;
    let mut written = Ok(());
    for &at in pages {
        written = written.and_then(|()| store.write(tx, Lpn(at), &bytes_of(tag)));
    }
    let committed = written.and_then(|()| store.commit(tx));
    if committed.is_err() {
        store.abort(tx).expect("it can be rolled back");
    }
    committed
}

/// Fills a store with transactions of so many pages, and returns what its pages hold.
fn fill(store: &mut PageStore, pages: u32) -> Vec<u32> {
    let mut held = Vec::new();
    loop {
        let first = held.len() as u32;
        let new: Vec<u32> = (first..first + pages).collect();
        match commit(store, &new, first) {
            Ok(()) => held.extend(new.iter().map(|_| first)),
            Err(StoreError::Full(_)) => return held,
            Err(error) => panic!("{error}"),
        }
    }
}

fn must_hold(store: &mut PageStore, held: &[u32]) {
    assert!(store.check().expect("it can be read").is_well());
    let mut page = vec![0; PageStore::PAGE_BYTES];
    for (at, &tag) in held.iter().enumerate() {
        let bytes = store.read(None, Lpn(at as u32), &mut page).expect("a page");
        assert_eq!(bytes, Some(PageStore::PAGE_BYTES));
        assert_eq!(page, bytes_of(tag), "page {at}");
    }
}

/// Overwrites pages all over a full store, as many as it holds.
fn overwrite(store: &mut PageStore, held: &mut [u32], most: u32) {
    let mut tag = 1 << 20;
    let mut written = 0;
    while written < held.len() {
        tag += 1;
        let pages: Vec<u32> = (0..1 + tag % most)
            .map(|n| tag.wrapping_mul(2_654_435_761).wrapping_add(n * 7919) % held.len() as u32)
            .collect();
        let mut distinct = pages.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let done = commit(store, &distinct, tag);
        done.unwrap_or_else(|error| panic!("after {written} of {}: {error}", held.len()));
        for &at in &distinct {
            held[at as usize] = tag;
        }
        written += distinct.len();
    }
}

/// One that overwrites too much at a time is refused and rolled back, and costs nothing for good.
fn ask_too_much(store: &mut PageStore, held: &[u32]) {
    let all: Vec<u32> = (0..held.len() as u32).collect();
    let refused = commit(store, &all, 7);
    // Where a transaction waits in memory it is not asked for.
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
}

/// Trims all pages one by one, and fills the store again. Protocols that keep a mapping table on
/// the medium have less room for pages than when the store was new.
fn trim_and_fill(store: &mut PageStore, held: &mut Vec<u32>) {
    for at in 0..held.len() as u32 {
        let tx = store.begin().expect("it begins");
        let trimmed = store.trim(tx, Lpn(at)).and_then(|()| store.commit(tx));
        trimmed.unwrap_or_else(|error| panic!("trim of {at} of {}: {error}", held.len()));
    }
    assert_eq!(store.info().pages, 0);
    let before = held.len();
    *held = fill(store, 1);
    assert!(held.len() > before * 19 / 20, "{} of {before}", held.len());
}

/// Fills a store and uses it, opens it again, and once more as a cut leaves it.
fn live(kind: Kind, (bytes, pages_per_block): (u64, u32), space: f64, pages: u32) {
    let what = format!("{kind}, {bytes} bytes, blocks of {pages_per_block}, {space}, {pages}");
    println!("{what}");
    let medium = bounded(None, bytes);
    let open = |medium: &Recorded| open(medium, kind, pages_per_block, space);
    let mut store = open(&medium);
    let mut held = fill(&mut store, pages);
    println!("{} pages of {}", held.len(), bytes / 4096);
    overwrite(&mut store, &mut held, pages);
    must_hold(&mut store, &held);
    if matches!(kind, Kind::Seal | Kind::SealR) {
        ask_too_much(&mut store, &held);
        must_hold(&mut store, &held);
    }
    trim_and_fill(&mut store, &mut held);
    drop(store);
    let mut store = open(&medium);
    overwrite(&mut store, &mut held, 1);
    must_hold(&mut store, &held);
    let left = bounded(Some(&medium), bytes);
    let mut store = open(&left);
    overwrite(&mut store, &mut held, pages);
    must_hold(&mut store, &held);
}

/// Whether a store can have the protocol.
fn suits(kind: &&Kind) -> bool {
    kind.info().atomic && !kind.info().reprograms
}

#[test]
fn a_full_store_goes_on_with_the_pages_that_it_holds() {
    for &kind in Kind::ALL.iter().filter(suits) {
        live(kind, (4 << 20, 16), 1.5, 1);
    }
    for (size, space, pages) in [
        ((4 << 20, 16), 1.1, 7),
        ((4 << 20, 16), 3.0, 30),
        ((16 << 20, 128), 1.1, 1),
        ((17 << 20, 128), 1.5, 60),
        ((20 << 20, 128), 1.5, 1),
    ] {
        live(Kind::Seal, size, space, pages);
        // It begins with more blocks, for its roots.
        live(Kind::SealR, (2 * size.0, size.1), space, pages);
    }
}

/// A transaction that writes its pages again and again, as one does that spills: under some
/// protocols none of the versions can be collected before it has committed.
fn spill(store: &mut PageStore, pages: u32, times: u32, tag: u32) -> Result<(), StoreError> {
    let tx = store.begin()?;
    for time in 0..times {
        for at in 0..pages {
            store.write(tx, Lpn(at), &bytes_of(tag + time))?;
        }
    }
    store.commit(tx)
}

#[test]
fn a_store_grows_for_a_transaction_that_needs_room() {
    const PAGES: u32 = 300;
    for &kind in Kind::ALL.iter().filter(suits) {
        let medium = Recorded::default();
        let mut store = open(&medium, kind, 16, 1.1);
        let mut page = vec![0; PageStore::PAGE_BYTES];
        for round in 0..5 {
            let done = spill(&mut store, PAGES, 6, 100 * round);
            done.unwrap_or_else(|error| panic!("{kind}, round {round}: {error}"));
            for at in 0..PAGES {
                store.read(None, Lpn(at), &mut page).expect("a page");
                let tag = u32::from_le_bytes(page[..4].try_into().expect("it has four"));
                assert!(
                    (100 * round..100 * round + 6).contains(&tag),
                    "{kind}: {tag}"
                );
                assert_eq!(page, bytes_of(tag));
            }
            assert!(store.check().expect("it can be read").is_well());
        }
        drop(store);
        let left = medium.cut(Landing::Nothing);
        let mut store = open(&left, kind, 16, 1.1);
        store.read(None, Lpn(7), &mut page).expect("a page");
        assert!(page[0] >= 144, "{kind}: {}", page[0]);
    }
}

/// Overwrites pages and adds one now and then, with a snapshot for each few commits that nobody
/// gives back. Returns how many pages there are, and the bytes of the medium.
fn add_beside_snapshots(bytes: u64) -> (u32, u64) {
    const FIRST: u32 = 4_000;
    let medium = bounded(None, bytes);
    let mut store = open(&medium, Kind::Seal, 128, 1.5);
    let mut held = FIRST;
    for first in (0..FIRST).step_by(100) {
        let new: Vec<u32> = (first..first + 100).collect();
        commit(&mut store, &new, 1).expect("there is room");
    }
    for number in 0..20_000_u32 {
        if number % 20 == 0 {
            store.snapshot().expect("seal has them");
        }
        let at = match number % 10 {
            0 => held,
            _ => number.wrapping_mul(2_654_435_761) % held,
        };
        held = held.max(at + 1);
        let done = commit(&mut store, &[at], number);
        done.unwrap_or_else(|error| panic!("commit {number}: {error}"));
    }
    assert!(store.check().expect("it can be read").is_well());
    (held, medium.bytes().expect("it has some"))
}

/// What snapshots kept was taken for pages in use: the store refused new pages where old snapshots
/// have to end, or grew as if there was no bound.
#[test]
fn new_pages_take_the_room_of_old_snapshots() {
    let (held, _) = add_beside_snapshots(40 << 20);
    assert_eq!(held, 6_000);
    // Twice the bound, and an eighth and some blocks by which it grows at a time.
    let (held, bytes) = add_beside_snapshots(1 << 30);
    let bound = f64::from(held) * 4096.0 * 1.5 * 2.0;
    assert!((bytes as f64) < bound * 1.3, "{bytes} bytes of {bound}");
}

/// A store with so many pages, on a medium that gives so many bytes more at a time from now on.
fn on_stingy(kind: Kind, pages: u32, bytes: u64) -> (Recorded, PageStore) {
    let medium = Recorded::default();
    let mut store = open(&medium, kind, 16, 1.1);
    for first in (0..pages).step_by(20) {
        let new: Vec<u32> = (first..first + 20).collect();
        commit(&mut store, &new, 1).expect("there is room");
    }
    medium.give_at_a_time(Some(bytes));
    (medium, store)
}

/// The store that a cut leaves.
fn cut(medium: &Recorded, kind: Kind) -> PageStore {
    open(&medium.cut(Landing::Nothing), kind, 16, 1.1)
}

/// A write that found no room is made again once the store has grown. Some protocols had noted the
/// page as one that is written, or had let go of the one before.
#[test]
fn a_store_that_grows_block_by_block_forgets_no_page() {
    const BLOCK: u64 = 17 * 4096;
    for &kind in Kind::ALL.iter().filter(suits) {
        for pages in [300, 400] {
            let (medium, mut store) = on_stingy(kind, pages, BLOCK);
            let all: Vec<u32> = (0..pages).collect();
            for tag in 2..5 {
                let done = commit(&mut store, &all, tag);
                done.unwrap_or_else(|error| panic!("{kind}, {pages}: {error}"));
                must_hold(&mut store, &vec![tag; pages as usize]);
            }
            must_hold(&mut cut(&medium, kind), &vec![4; pages as usize]);
        }
    }
}

/// Fails if a commit that found no room lets go of a page, and one that is made again says nothing.
#[test]
fn a_commit_that_found_no_room_can_be_made_again() {
    let mut refused = 0;
    for kind in [Kind::Scc, Kind::Bpcc, Kind::Seal] {
        for pages in 20..200 {
            let (medium, mut store) = on_stingy(kind, 200, 0);
            let tx = store.begin().expect("it begins");
            let write = |at| store.write(tx, Lpn(at), &bytes_of(2));
            if (0..pages).try_for_each(write).is_err() || store.commit(tx).is_ok() {
                continue;
            }
            refused += 1;
            medium.give_at_a_time(None);
            store.commit(tx).expect("there is room");
            must_hold(&mut store, &vec![2; pages as usize]);
            must_hold(&mut cut(&medium, kind), &vec![2; pages as usize]);
        }
    }
    assert!(refused >= 3, "{refused}");
}
