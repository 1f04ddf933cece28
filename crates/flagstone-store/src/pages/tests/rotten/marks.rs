//! Lost, outdated or damaged marks. A cut may legally lose the first mark of a block, but no other.

use super::*;

#[test]
fn a_mark_that_is_lost_or_older_is_never_silent() {
    for &encrypted in KINDS {
        let options = options(encrypted);
        let early = left(&options, 1, 0, false).bytes;
        // Enough commits for blocks to be reused.
        let left = left(&options, 12, 400, false);
        let blocks = left.bytes.len() / MEDIUM_PAGE_BYTES / 17;
        for block in 0..blocks as u32 {
            let place = mark_page(16, block) as usize * MEDIUM_PAGE_BYTES;
            let page = place..place + MEDIUM_PAGE_BYTES;
            let older = early.get(page.clone()).unwrap_or(&[0; MEDIUM_PAGE_BYTES]);
            for harm in [
                &[0; MEDIUM_PAGE_BYTES][..],
                &[0x55; MEDIUM_PAGE_BYTES],
                older,
            ] {
                let mut bytes = left.bytes.clone();
                bytes[page.clone()].copy_from_slice(harm);
                let comes = comes(&left, &bytes, &options);
                let is_said = matches!(comes, Comes::Right | Comes::Refused(_));
                assert!(
                    is_said,
                    "{encrypted}, block {block}, {}: {comes:?}",
                    harm[0]
                );
            }
        }
    }
}

/// A store with one page, its medium, and a write that restores the mark from before the block's
/// first use, which is signed in an encrypted store.
fn with_its_first_mark(options: &OpenOptions) -> (PageStore, Recorded, impl Fn(&mut Vec<u8>)) {
    let medium = Recorded::default();
    let mut store = PageStore::on(Box::new(medium.clone()), options).expect("a store");
    let new = medium.to_vec();
    store.put(0, b"old");
    let written = differing(&new, &medium.to_vec());
    let mark = (written[0] - 2) / 17 * 17 + 2;
    let page = mark * MEDIUM_PAGE_BYTES..(mark + 1) * MEDIUM_PAGE_BYTES;
    let takes_back =
        move |bytes: &mut Vec<u8>| bytes[page.clone()].copy_from_slice(&new[page.clone()]);
    (store, medium, takes_back)
}

/// A block has pages of an earlier opening, and its mark is lost. Whether it was erased since is
/// unknown.
#[test]
fn a_lost_mark_of_an_earlier_opening_is_an_error() {
    for &encrypted in KINDS {
        let options = options(encrypted);
        let (store, medium, take_back) = with_its_first_mark(&options);
        store.close().expect("no fault");
        let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
        store.put(300, b"later");
        let pages = contents(&mut store);
        std::mem::forget(store);
        let left = Left {
            bytes: medium.to_vec(),
            before: Pages::new(),
            pages,
            written: Vec::new(),
        };
        let mut bytes = left.bytes.clone();
        take_back(&mut bytes);
        let comes = comes(&left, &bytes, &options);
        assert!(matches!(comes, Comes::Refused(_)), "{encrypted}: {comes:?}");
    }
}

/// A cut loses the first mark of a block but not its pages. The next writing opening rewrites the
/// mark, so that later openings do not report it as lost.
#[test]
fn a_first_mark_that_a_cut_has_taken_is_written_again() {
    for &encrypted in KINDS {
        let options = options(encrypted);
        let (store, medium, take_back) = with_its_first_mark(&options);
        std::mem::forget(store);
        let mut bytes = medium.to_vec();
        take_back(&mut bytes);
        assert_ne!(bytes, medium.to_vec());
        let medium = Recorded::with(&bytes);
        for _ in 0..3 {
            let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
            assert_eq!(contents(&mut store)[&0].as_deref(), Some(&b"old"[..]));
            store.put(1, b"new");
            std::mem::forget(store);
            let (now, mut without) = (medium.to_vec(), medium.to_vec());
            take_back(&mut without);
            assert_ne!(now, without);
        }
    }
}
