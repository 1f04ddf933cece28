//! Tests of buckets, and of all hash indexes on pages that are not buckets.

use super::*;
use crate::bucket::address;
use crate::model::{Asking, Call};
use crate::{BackingError, IndexKind, MemStore};

#[test]
fn runs_follow_each_other_without_gaps() {
    let mut expected = (0, 0);
    for bucket in 0..5000 {
        let (run, offset, pages) = run_of(bucket);
        assert_eq!((run, offset), expected, "bucket {bucket}");
        assert_eq!(first_of(run) + offset, bucket);
        let waiting = pages - offset - 1;
        assert!(pages.is_power_of_two() && (bucket < 8 || waiting * 5 <= bucket + waiting));
        expected = if offset + 1 == pages {
            (run + 1, 0)
        } else {
            (run, offset + 1)
        };
    }
}

#[test]
fn a_hash_has_an_address_among_any_number_of_buckets() {
    // Six buckets: three bits, except for those that would be 6 and 7.
    let addresses: Vec<u32> = (0..16).map(|hash| address(hash, 6)).collect();
    assert_eq!(addresses, [0, 1, 2, 3, 4, 5, 2, 3, 0, 1, 2, 3, 4, 5, 2, 3]);
    assert_eq!(address(u64::MAX, 1), 0);
    assert_eq!(address(u64::MAX, u32::MAX), u32::MAX >> 1);
    for (hash, buckets) in (0..4000u64).zip(1..) {
        let bits = u32::BITS - (buckets - 1u32).leading_zeros();
        let mut wanted = hash % (1 << bits);
        if wanted >= u64::from(buckets) {
            wanted -= 1 << (bits - 1);
        }
        assert_eq!(u64::from(address(hash, buckets)), wanted);
    }
}

/// Every bucket page names another one as next, the last one the first: a cycle.
#[test]
fn a_list_without_an_end_is_an_error_for_every_hash_index() {
    const PAGES: u32 = 4096;
    const KEYS: u64 = 1500;
    let shape = Shape::new(256, 8);
    for kind in [
        IndexKind::Linear,
        IndexKind::Extendible,
        IndexKind::LazySplit,
        IndexKind::Sal,
    ] {
        let settings = kind.info().tiny().with("memory", 4096);
        let blank: Box<dyn BackingStore> = Box::new(MemStore::new(256, PAGES));
        let mut index = kind.open(blank, &settings, Nanos::ZERO).expect("blank").0;
        let mut now = Nanos::ZERO;
        for key in 0..KEYS {
            now = index.insert(now, key, !key).expect("there is room");
        }
        now = index.flush(now).expect("there is room");
        let mut whole = index.into_store();
        let mut pages = vec![vec![0; 256]; PAGES as usize];
        for (at, page) in (0..).map(Lpn).zip(&mut pages) {
            whole.read(now, at, page).expect("it is there");
        }
        let is_bucket = |page: &[u8]| {
            let ours = |(key, value): (Key, Value)| key < KEYS && value == !key;
            shape.check(page).is_ok() && shape.len(page) > 3 && shape.records(page).all(ours)
        };
        let (all, mut ring) = (0..PAGES, Vec::new());
        ring.extend(all.filter(|&at| is_bucket(&pages[at as usize])).map(Lpn));
        assert!(ring.len() > 32, "{kind:?}: {ring:?}");
        for (i, at) in ring.iter().enumerate() {
            let next = ring[(i + 1) % ring.len()];
            shape.set_next(&mut pages[at.index()], Some(next));
        }
        let open = || {
            let mut store = MemStore::new(256, PAGES);
            for (at, page) in (0..).map(Lpn).zip(&pages) {
                store.write(now, &[(at, page)]).expect("there is room");
            }
            // Fails where an index would read forever.
            let mut reads = 0;
            let ask = move |_: &mut MemStore, _, call| {
                reads += u32::from(call == Call::Read);
                if reads > 2_000_000 {
                    Err(BackingError::Io("too many reads".into()))
                } else {
                    Ok(())
                }
            };
            let store = Box::new(Asking { store, ask });
            kind.open(store, &settings, Nanos::ZERO).expect("whole").0
        };
        let damaged = |result: Result<Nanos>| match result {
            Ok(_) => false,
            Err(IndexError::Damaged { .. }) => true,
            Err(error) => panic!("{kind:?}: {error}"),
        };
        let mut index = open();
        let searched = (0..2 * KEYS).filter(|&key| damaged(index.get(now, key).map(|got| got.1)));
        assert!(searched.count() > 100, "{kind:?}");
        let mut index = open();
        let changed = (0..KEYS).filter(|&key| damaged(index.insert(now, key + KEYS, key)));
        assert!(changed.count() > 0, "{kind:?}");
        let said = open().check().expect_err("the lists have no end");
        assert!(!said.contains("too many reads"), "{kind:?}: {said}");
    }
}
