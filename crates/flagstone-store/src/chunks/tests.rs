//! The places of chunks, and pages that are looked for without being read.

use super::*;
use crate::medium::Recorded;
use crate::pages::{OpenOptions, PageStore};

#[test]
fn places_are_of_one_chunk_each_and_found_again() {
    for (page_bytes, first) in [(4032, 0), (4032, 1), (4096, 1), (2048, 0), (1000, 7)] {
        let cut = Cut::new(page_bytes, first);
        assert!(cut.chunk().is_multiple_of(512) && cut.chunk() >= page_bytes);
        let mut used: HashMap<Lpn, u64> = HashMap::new();
        for chunk in 0..500 {
            let page = cut.main_page(chunk).expect("it lies in front");
            assert_eq!(cut.chunk_of(page), Some(chunk), "{page_bytes} {first}");
            assert_eq!(used.insert(page, chunk), None, "{page_bytes}: two chunks");
            if cut.chunk() > page_bytes {
                let tails = cut.tails_page(chunk / cut.sharing());
                assert_eq!(cut.chunk_of(tails), None, "{page_bytes}: tails");
                assert!(cut.tail_place(chunk).end <= page_bytes);
            }
        }
        // Nothing is left over but the pages of tails, one for each group.
        let highest = used.keys().max().expect("some").0 + 1 - first;
        let groups = if cut.chunk() > page_bytes {
            499 / cut.sharing() + 1
        } else {
            0
        };
        assert_eq!(u64::from(highest), 500 + groups);
        assert_eq!(cut.main_page(1 << 40), None);
    }
    assert_eq!(Cut::new(4032, 0).main_page(63), Some(Lpn(65)));
}

#[test]
fn ranges_are_cut_at_chunks() {
    let parts: Vec<_> = Cut::new(4032, 0).chunks(4000, 4300).collect();
    assert_eq!(parts, [(0, 4000, 96), (1, 0, 4096), (2, 0, 108)]);
    assert_eq!(Cut::new(4032, 0).chunks(10, 0).count(), 0);
}

/// A chunk that was removed and written again in the same transaction has its new bytes, whether or
/// not it was there before, and what a roll-back leaves is what was committed.
#[test]
fn a_transaction_knows_what_it_removed() {
    for protocol in [flagstone::commit::Kind::Seal, flagstone::commit::Kind::Scc] {
        let mut options = OpenOptions::default().with_protocol(protocol);
        options.pages_per_block = 16;
        let store = PageStore::on(Box::new(Recorded::default()), &options).expect("a store");
        let mut chunks = Chunks::new(store, Cut::new(PageStore::PAGE_BYTES, 0));
        let read = |chunks: &mut Chunks<PageStore>| {
            let (version, mut bytes) = (Version::Of(chunks.tx()), vec![9; 4096]);
            chunks.read(version, 3, 0, &mut bytes).expect("it reads");
            bytes
        };
        chunks.write(3, &[1; 4096], true).expect("room");
        assert!(chunks.may_hold(3) && !chunks.may_hold(4));
        chunks.commit().expect("room");
        chunks.remove(3).expect("room");
        assert!(!chunks.may_hold(3));
        assert_eq!(read(&mut chunks), [0; 4096]);
        chunks.waiting_chunk(3).expect("room")[4090] = 5;
        let mut bytes = vec![0; 4096];
        bytes[4090] = 5;
        assert_eq!(read(&mut chunks), bytes);
        if protocol == flagstone::commit::Kind::Seal {
            // Removed, as the device has it, and then written, all in one transaction.
            chunks.commit().expect("room");
            assert_eq!(read(&mut chunks), bytes);
        }
        chunks.abort();
        chunks.remove(3).expect("room");
        chunks.abort();
        let expected = if protocol == flagstone::commit::Kind::Seal {
            bytes
        } else {
            vec![1; 4096]
        };
        assert_eq!(read(&mut chunks), expected, "{protocol:?}");
    }
}
