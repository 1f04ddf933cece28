//! Backups and checks of a store while threads write to it.

use super::*;
use crate::medium::Tight;
use crate::pages::OpenOptions;
use crate::pages::tests::assert_says;
use flagstone::commit::Kind;
use std::sync::atomic::{AtomicBool, Ordering};

fn quiet() -> impl FnMut(u64, u64) {
    |_, _| ()
}

/// Keys of a table. Each transaction sets all of them to one value.
const KEYS: u32 = 600;

fn give_all(store: &Store, value: u64) {
    let mut tx = store.write().expect("a turn");
    let mut table = tx.table("t").expect("a table");
    for key in 0..KEYS {
        let bytes = [value.to_le_bytes(); 20].concat();
        table.insert(&key.to_be_bytes(), &bytes).expect("room");
    }
    tx.commit().expect("room");
}

/// The distinct values of all keys.
fn values(path: &Path) -> Vec<u64> {
    let store = Store::with(path, &OpenOptions::existing().reading()).expect("a store");
    store.check().expect("whole tables");
    let table = store.read().expect("it opens").table("t").expect("a table");
    let value = |key: u32| {
        let found = table.get(&key.to_be_bytes()).expect("it can be read");
        let bytes = found.expect("it is there");
        u64::from_le_bytes(*bytes.first_chunk().expect("a number"))
    };
    let mut values: Vec<u64> = (0..KEYS).map(value).collect();
    values.dedup();
    values
}

#[test]
fn a_backup_beside_a_writer_is_of_one_moment() {
    let folder = tempfile::tempdir().expect("a place");
    let store = Store::open(folder.path().join("store.flag")).expect("a store");
    give_all(&store, 0);
    let (ends, mut during) = (AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut value = 0;
            while !ends.load(Ordering::Relaxed) {
                value += 1;
                give_all(&store, value);
            }
            value
        });
        let count = || {
            store
                .read()
                .and_then(|read| read.table("t")?.get(&0u32.to_be_bytes()))
        };
        for round in 0..4 {
            let to = folder.path().join(format!("copy-{round}.flag"));
            let before = count().expect("it can be read").map(|bytes| bytes.to_vec());
            let copied = store.backup(&to, false, &mut quiet()).expect("a copy");
            assert!(copied.pages > 20, "{copied:?}");
            let after = count().expect("it can be read").map(|bytes| bytes.to_vec());
            during += u64::from(before != after);
            assert_eq!(values(&to).len(), 1, "of one transaction");
            assert!(store.check_pages().expect("it can be read").is_well());
        }
        ends.store(true, Ordering::Relaxed);
        assert!(writer.join().expect("it does not panic") > 4);
    });
    // The writer has made progress meanwhile.
    assert!(during > 0);
    // Control: a mixture of pages of two states must be detected.
    let mixed = folder.path().join("mixed.flag");
    let mut done = false;
    let halfway = &mut |at: u64, _: u64| {
        if at > 0 && !std::mem::replace(&mut done, true) {
            give_all(&store, 1 << 40);
        }
    };
    let read = |at: Lpn, page: &mut [u8]| store.pages().with(|it| it.read(None, at, page));
    let source = store.pages().with(|it| Source {
        held: it.held().collect(),
        info: it.info(),
        takes: bytes_of_copy(it),
        read: Box::new(read),
    });
    let draft = Draft::new(&mixed, None, false, &OpenOptions::default()).expect("a draft");
    let copied = copy(source, draft, None, None, halfway);
    assert!(copied.is_err() || values(&mixed).len() > 1, "{copied:?}");
}

#[test]
fn an_open_store_of_pages_is_copied_without_what_is_not_committed() {
    let kinds = Kind::ALL.iter();
    for &kind in kinds.filter(|kind| kind.info().atomic && !kind.info().reprograms) {
        let folder = tempfile::tempdir().expect("a place");
        let path = folder.path().join("store.flag");
        let options = OpenOptions::default().with_protocol(kind);
        let mut store = PageStore::open(&path, &options).expect("a store");
        store.put(3, b"committed");
        let tx = store.begin().expect("a transaction");
        store.write(tx, Lpn(4), b"not yet").expect("room");
        let own = store.backup(&path, true, &mut quiet());
        assert_says(own, "the input store itself");
        let to = folder.path().join("copy.flag");
        store.backup(&to, false, &mut quiet()).expect("a copy");
        store.commit(tx).expect("room");
        let copy = PageStore::open(&to, &OpenOptions::existing()).expect("a store");
        assert_eq!(copy.held().collect::<Vec<_>>(), [Lpn(3)], "{kind}");
    }
}

/// Fails if a check ends the snapshot of the readers after the store was reopened for lack of room:
/// the next reader would then wait for a commit.
#[test]
fn a_check_leaves_the_snapshot_of_the_readers_to_them() {
    let medium = Tight::default();
    let options = OpenOptions {
        cache: 0,
        ..OpenOptions::default()
    };
    let pages = SharedPages::on(Box::new(medium.clone()), &options).expect("a store");
    let commit = |at: u32| {
        let changes = [(Lpn(at), Some([7; 100][..].into()))].into();
        pages.turn().and_then(|turn| turn.commit(changes))?.wait()
    };
    (0..3).for_each(|at| commit(at).expect("room"));
    let mut full = None;
    let report = pages.check_with(&mut |_| {
        medium.give(Some(0), 0);
        full.get_or_insert_with(|| commit(9));
        medium.give(None, 0);
    });
    assert!(matches!(full, Some(Err(StoreError::Full(_)))), "{full:?}");
    let report = report.expect("it can be read");
    assert_eq!((report.pages, report.is_well()), (3, true));
    let reader = pages.snapshot().expect("it is open");
    assert_eq!(
        reader.read(Lpn(1)).expect("it is there").as_deref(),
        Some(&[7; 100][..])
    );
}

#[test]
fn damage_is_found_in_a_store_that_is_open() {
    let folder = tempfile::tempdir().expect("a place");
    let path = folder.path().join("store.flag");
    let store = Store::open(&path).expect("a store");
    give_all(&store, 7);
    store.close().expect("room");
    let mut options = OpenOptions::existing();
    options.cache = 0;
    let store = Store::with(&path, &options).expect("a store");
    assert!(store.check_pages().expect("it can be read").is_well());
    // A page in the middle of the table.
    let place = store.pages().with(|it| it.facts(Lpn(20))).expect("a page");
    let at = 2 + u64::from(place.block) * 129 + 1 + u64::from(place.page_in_block);
    let file = std::fs::OpenOptions::new().write(true).open(&path);
    let file = file.expect("the file");
    std::os::unix::fs::FileExt::write_all_at(&file, &[1; 64], at * 4096 + 100).expect("room");
    let report = store.check_pages().expect("it can be read");
    assert_eq!(report.unreadable, [Lpn(20)], "{report:?}");
    let to = folder.path().join("copy.flag");
    let copied = store.backup(&to, false, &mut quiet());
    assert_says(copied, "page 20 cannot be read");
    assert!(!to.exists());
}
