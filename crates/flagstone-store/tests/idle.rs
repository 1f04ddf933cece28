//! What a store does while nobody asks for anything: it collects ahead, and gives room back.

use flagstone::units::Lpn;
use flagstone_store::medium::{Landing, Memory, Recorded};
use flagstone_store::{OpenOptions, PageStore, Store};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGES: u32 = 4_000;

/// Overwrites a page, and returns how many pages of the medium that wrote.
fn commit(store: &mut PageStore, number: u32) -> u64 {
    let before = store.medium_stats().bytes;
    let tx = store.begin().expect("it begins");
    let at = Lpn(number.wrapping_mul(2_654_435_761) % PAGES);
    store.write(tx, at, &number.to_le_bytes()).expect("a write");
    store.commit(tx).expect("it commits");
    (store.medium_stats().bytes - before) / 4096
}

/// Overwrites pages, a hundred a transaction.
fn overwrite(store: &mut PageStore, first: u32, pages: u32) {
    for number in (first..first + pages).step_by(100) {
        let tx = store.begin().expect("it begins");
        for number in number..number + 100 {
            let at = Lpn(number.wrapping_mul(2_654_435_761) % PAGES);
            store.write(tx, at, &number.to_le_bytes()).expect("a write");
        }
        store.commit(tx).expect("it commits");
    }
}

#[test]
fn commits_after_idle_time_move_nothing() {
    let mut store = PageStore::on(Box::new(Memory::default()), &OpenOptions::default()).unwrap();
    for number in 0..4 * PAGES {
        commit(&mut store, number);
    }
    let busy: u64 = (0..300).map(|number| commit(&mut store, number)).sum();
    assert!(busy > 350, "{busy}");
    let mut moved = 0;
    loop {
        match store.idle(50).expect("it may write") {
            0 => break,
            pages => moved += pages,
        }
    }
    assert!(moved > 100, "{moved}");
    let rested: u64 = (0..300).map(|number| commit(&mut store, number)).sum();
    // A page each, and the marks and summaries of a few blocks.
    assert!(rested < 310, "{rested} pages, and {busy} before");
    assert!(store.check().unwrap().is_well());
}

/// Fails if calls that allow too few pages for a compaction keep a later one from it.
#[test]
fn a_store_that_a_few_pages_do_not_compact_is_compacted_by_many() {
    let mut store = PageStore::on(Box::new(Memory::default()), &OpenOptions::default()).unwrap();
    overwrite(&mut store, 0, PAGES);
    let tx = store.begin().expect("it begins");
    for at in (1_000..PAGES).map(Lpn) {
        store.trim(tx, at).expect("a trim");
    }
    store.commit(tx).expect("it commits");
    while store.idle(8).expect("it may write") > 0 {}
    let before = store.info().blocks;
    while store.idle(256).expect("it may write") > 0 {}
    let after = store.info().blocks;
    assert!(after < before * 2 / 3, "{after} of {before} blocks");
}

#[test]
fn one_that_is_read_only_or_has_nothing_to_do_moves_nothing() {
    let medium = Recorded::default();
    let options = OpenOptions::default();
    let mut store = PageStore::on(Box::new(medium.clone()), &options).unwrap();
    commit(&mut store, 1);
    assert_eq!(store.idle(u32::MAX).unwrap(), 0);
    drop(store);
    let mut store = PageStore::on(Box::new(medium), &options.reading()).unwrap();
    assert!(store.idle(1).is_err());
}

/// A thread that has nothing else to do, beside two that commit. All that was acknowledged is in
/// what a cut leaves.
#[test]
fn a_thread_may_be_idle_beside_others_that_commit() {
    let medium = Recorded::default();
    let mut options = OpenOptions::default();
    options.pages_per_block = 16;
    let store = Store::on(Box::new(medium.clone()), &options).unwrap();
    let (is_over, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers = [0_u32, 1].map(|writer| {
            let store = &store;
            scope.spawn(move || {
                for number in 0..1_500_u32 {
                    let key = (number.wrapping_mul(2_654_435_761) % 200, writer);
                    let key = [key.0.to_be_bytes(), key.1.to_be_bytes()].concat();
                    let value = [number.to_le_bytes(); 300].concat();
                    store.insert("rows", &key, &value).unwrap();
                }
            })
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let pages = store.idle(8).unwrap();
                moved.fetch_add(u64::from(pages), Ordering::Relaxed);
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(moved.load(Ordering::Relaxed) > 0);
    store.check().unwrap();
    let left = Store::on(Box::new(medium.cut(Landing::Nothing)), &options).unwrap();
    left.check().unwrap();
    let table = |store: &Store| store.read().unwrap().table("rows").unwrap();
    let pairs = |store: &Store| {
        let pairs = table(store).iter().map(Result::unwrap);
        let pairs = pairs.map(|(key, value)| (key.to_vec(), value.to_vec()));
        pairs.collect::<Vec<_>>()
    };
    assert!(pairs(&store) == pairs(&left));
}

/// What pages of a store hold, where page `at` was written with the number of the last commit to
/// it.
fn contents(store: &mut PageStore) -> Vec<Option<u32>> {
    let mut page = vec![0; PageStore::PAGE_BYTES];
    let number = |at| {
        let read = store
            .read(None, Lpn(at), &mut page)
            .expect("it can be read");
        read.map(|_| u32::from_le_bytes(page[..4].try_into().expect("it has four")))
    };
    (0..PAGES).map(number).collect()
}

#[test]
fn room_is_given_back_to_the_file_system() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.flag");
    let mut options = OpenOptions::default();
    options.space = 3.0;
    let mut store = PageStore::open(&path, &options).unwrap();
    overwrite(&mut store, 0, 3 * PAGES);
    let before = contents(&mut store);
    // What lies behind is old: a block is collected once all of it is.
    while store.idle(u32::MAX).unwrap() > 0 {}
    let on_disk = || {
        // Some file systems count blocks when they write them.
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        path.metadata().unwrap().blocks() * 512
    };
    let had = on_disk();
    let given = store.discard().unwrap();
    if given == 0 {
        eprintln!("skipped: this file system makes no holes");
        return;
    }
    assert!(given > 1 << 20, "{given} bytes");
    assert!(on_disk() + given / 2 < had, "{} of {had}", on_disk());
    assert_eq!(store.discard().unwrap(), 0, "all was given back");
    assert_eq!(contents(&mut store), before);
    overwrite(&mut store, 0, PAGES);
    let after = contents(&mut store);
    store.close().unwrap();
    let mut store = PageStore::open(&path, &options).unwrap();
    assert_eq!(contents(&mut store), after);
    assert!(store.discard().unwrap() > 0);
    assert!(store.check().unwrap().is_well());
}

#[test]
fn a_cut_in_the_middle_of_a_discard_takes_nothing() {
    let medium = Recorded::default();
    let mut options = OpenOptions::default();
    options.pages_per_block = 16;
    let mut store = PageStore::on(Box::new(medium.clone()), &options).unwrap();
    for number in 0..2 * PAGES {
        commit(&mut store, number);
    }
    let before = contents(&mut store);
    let given = store.discard().unwrap();
    assert!(given > 0 && medium.pending() > 0);
    for seed in 0..8 {
        let left = medium.cut(Landing::Sectors(seed));
        let mut store = PageStore::on(Box::new(left), &options).unwrap();
        assert!(contents(&mut store) == before, "seed {seed}");
    }
}

/// A write far beyond the store took all room that there was, by and by, and was refused then.
#[test]
fn a_refused_write_takes_no_room() {
    use flagstone_store::medium::Medium;
    let medium = Recorded::default();
    let mut store = PageStore::on(Box::new(medium.clone()), &OpenOptions::default()).unwrap();
    commit(&mut store, 1);
    let before = medium.bytes().unwrap();
    medium.give_at_most(Some(300 << 20));
    let far = Lpn(250_000);
    let tx = store.begin().unwrap();
    assert!(store.write(tx, far, b"far").is_err());
    store.abort(tx).unwrap();
    assert!(store.find_room(1, 0, far).is_err());
    assert_eq!(medium.bytes().unwrap(), before);
    medium.give_at_most(Some(1200 << 20));
    let tx = store.begin().unwrap();
    store.write(tx, far, b"far").unwrap();
    store.commit(tx).unwrap();
}
