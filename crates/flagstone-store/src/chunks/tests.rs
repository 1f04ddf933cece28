//! The places of chunks, and lookups of pages without a read.

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
        // Every page is used, apart from one tails page per group.
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

/// Fails if a transaction of the pages stays live when one that has changed nothing joins others.
#[test]
fn what_joins_without_a_change_leaves_no_transaction_behind() {
    let medium = Box::new(Recorded::default());
    let store = PageStore::on(medium, &OpenOptions::default()).expect("a store");
    let mut chunks = Chunks::new(store, Cut::new(PageStore::PAGE_BYTES, 0));
    chunks.write(3, &[1; 4096], false).expect("memory");
    chunks.join();
    chunks.join();
    chunks.commit_joined(1 << 20).expect("room");
    assert_eq!(chunks.pages().device().live().count(), 0);
}

/// A chunk that was removed and rewritten in one transaction has its new bytes, whether or not it
/// existed before; a rollback restores the committed bytes.
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
        // Removed and then written in one transaction.
        chunks.commit().expect("room");
        assert_eq!(read(&mut chunks), bytes);
        chunks.remove(3).expect("room");
        chunks.abort();
        assert_eq!(read(&mut chunks), bytes, "{protocol:?}");
    }
}

/// Pages that refuse one change for lack of room, after a number of others.
pub(crate) struct Refusing {
    pub(crate) pages: PageStore,
    pub(crate) after: Option<u32>,
}

impl Refusing {
    fn may_change(&mut self) -> Result<(), StoreError> {
        match self.after {
            Some(0) => {
                self.after = None;
                Err(StoreError::Full("this once".into()))
            }
            after => {
                self.after = after.map(|others| others - 1);
                Ok(())
            }
        }
    }
}

impl Pages for Refusing {
    fn page_bytes(&self) -> usize {
        self.pages.page_bytes()
    }

    fn pages_max(&self) -> Option<u64> {
        self.pages.pages_max()
    }

    fn protocol(&self) -> &'static flagstone::commit::Info {
        self.pages.protocol()
    }

    fn highest(&self) -> Option<Lpn> {
        self.pages.highest()
    }

    fn holds(&self, at: Lpn) -> bool {
        self.pages.holds(at)
    }

    fn begin(&mut self) -> Result<TxId, StoreError> {
        self.pages.begin()
    }

    fn read(
        &mut self,
        version: Version,
        at: Lpn,
        into: &mut [u8],
    ) -> Result<Option<usize>, StoreError> {
        Pages::read(&mut self.pages, version, at, into)
    }

    fn write(&mut self, tx: TxId, at: Lpn, data: &[u8]) -> Result<(), StoreError> {
        self.may_change()?;
        self.pages.write(tx, at, data)
    }

    fn trim(&mut self, tx: TxId, at: Lpn) -> Result<(), StoreError> {
        self.may_change()?;
        self.pages.trim(tx, at)
    }

    fn commit(&mut self, tx: TxId) -> Result<(), StoreError> {
        self.pages.commit(tx)
    }

    fn abort(&mut self, tx: TxId) -> Result<(), StoreError> {
        self.pages.abort(tx)
    }

    fn close(self) -> Result<(), StoreError> {
        self.pages.close()
    }
}

/// Chunks over pages that hold one whole chunk, number 3, and refuse nothing yet.
fn refusing() -> Chunks<Refusing> {
    let options = OpenOptions {
        pages_per_block: 16,
        ..OpenOptions::default()
    };
    let pages = PageStore::on(Box::new(Recorded::default()), &options).expect("a store");
    let pages = Refusing { pages, after: None };
    let mut chunks = Chunks::new(pages, Cut::new(PageStore::PAGE_BYTES, 0));
    chunks.write(3, &[1; 4096], true).expect("room");
    chunks.commit().expect("room");
    chunks
}

fn read_committed(chunks: Chunks<Refusing>, chunk: u64) -> Vec<u8> {
    let mut bytes = vec![9; 4096];
    let mut chunks = Chunks::new(chunks.into_pages(), Cut::new(PageStore::PAGE_BYTES, 0));
    let read = chunks.read(Version::Of(None), chunk, 0, &mut bytes);
    read.map(|()| bytes).expect("it reads")
}

/// A partial write of a chunk was accepted and waits; a write of the whole chunk is refused. The
/// partial write was once lost, and the commit did not report that.
#[test]
fn what_waits_outlives_a_write_of_its_chunk_that_fails() {
    for removes in [false, true] {
        let mut chunks = refusing();
        chunks.waiting_chunk(3).expect("room")[100] = 5;
        chunks.pages_mut().after = Some(0);
        let refused = if removes {
            chunks.remove(3)
        } else {
            chunks.write(3, &[7; 4096], true)
        };
        assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
        chunks.commit().expect("room");
        let mut expected = vec![1; 4096];
        expected[100] = 5;
        assert!(read_committed(chunks, 3) == expected, "{removes}");
    }
}

/// The tails of a group become zeros, and the trim of their page fails once. It was once not
/// repeated, and the old bytes reappeared when the tails were read from the page.
#[test]
fn tails_that_could_not_be_trimmed_are_trimmed_by_the_next_flush() {
    let mut chunks = refusing();
    chunks.remove(3).expect("room");
    chunks.pages_mut().after = Some(0);
    let refused = chunks.commit();
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    chunks.commit().expect("room");
    assert!(read_committed(chunks, 3) == [0; 4096]);
}
