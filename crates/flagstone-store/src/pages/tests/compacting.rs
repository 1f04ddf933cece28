//! Stores that become smaller in place.

use super::super::FIRST_BLOCKS;
use super::{OpenOptions, PageStore, contents};
use crate::medium::{Medium, Recorded};
use flagstone::commit::Kind;
use flagstone::units::Lpn;

fn options(pages_per_block: u32) -> OpenOptions {
    OpenOptions {
        pages_per_block,
        identity: Some(1),
        ..OpenOptions::default().with_protocol(Kind::Seal)
    }
}

/// Fills `pages` pages of a store, then trims all but the first `kept`.
fn emptied(store: &mut PageStore, pages: u32, kept: u32) {
    for first in (0..pages).step_by(250) {
        store.put_all(first..pages.min(first + 250), &[7; 3000]);
    }
    for first in (kept..pages).step_by(250) {
        let tx = store.begin().expect("it begins");
        for at in first..pages.min(first + 250) {
            store.trim(tx, Lpn(at)).expect("it trims");
        }
        store.commit(tx).expect("it commits");
    }
}

#[test]
fn a_store_of_which_most_was_trimmed_becomes_small() {
    for (pages_per_block, pages, kept) in [(16, 6_000, 60), (128, 20_000, 2_000), (128, 9_000, 10)]
    {
        let medium = Recorded::default();
        let options = options(pages_per_block);
        let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
        emptied(&mut store, pages, kept);
        let before = contents(&mut store);
        let gone = store.compact().expect("it is compacted");
        assert!(gone > 0);
        let bytes = medium.bytes().expect("in memory");
        assert_eq!(bytes, store.info().bytes);
        // Fixed overhead: the blocks of a new store, less the few that hold the live pages.
        let fixed = u64::from(FIRST_BLOCKS) * u64::from(pages_per_block + 1) * 4096 + 8192;
        let live = u64::from(kept) * 4096;
        assert!(bytes <= live * 21 / 20 + fixed, "{bytes} bytes for {live}");
        assert_eq!(contents(&mut store), before);
        store.device().check().expect("the books agree");
        store.close().expect("it closes");
        let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("it opens");
        assert_eq!(contents(&mut store), before);
        assert!(store.check().expect("a check").is_well());
        // It grows again, and trimmed pages stay trimmed.
        emptied(&mut store, 2, 2);
        store.put(pages - 1, b"the last one");
        let mut after = before.clone();
        after.extend([0, 1].map(|at| (at, Some(vec![7; 3000]))));
        after.insert(pages - 1, Some(b"the last one".to_vec()));
        assert_eq!(contents(&mut store), after);
        drop(store);
        let mut store = PageStore::on(Box::new(medium), &options).expect("it opens again");
        assert_eq!(contents(&mut store), after);
    }
}
