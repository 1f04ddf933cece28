//! A medium that has no room for a write, though it had promised it (btrfs, a thin volume), is a
//! full disk: the commit fails with [`StoreError::Full`], reads go on, and later commits work once
//! there is room. Nobody has to open anything again.

mod dice;

use dice::Dice;
use flagstone::commit::Kind;
use flagstone::units::Lpn;
use flagstone_store::medium::{Landing, Recorded, Tight};
use flagstone_store::{OpenOptions, PageStore, ReadTx, Store, StoreError, Volume};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn small() -> OpenOptions {
    let mut options = OpenOptions::default();
    options.pages_per_block = 16;
    options
}

/// Makes the medium full soon, or gives it room. Returns whether it may be full.
fn turn(medium: &Tight, dice: &mut Dice) -> bool {
    let is_full = dice.below(3) == 0;
    let writes = is_full.then(|| dice.below(6));
    medium.give(writes, [0, 1, 8, 9, 1 << 20][dice.below(5) as usize]);
    is_full
}

/// What a power cut leaves: of what was not synced all, nothing, or some sectors.
fn cuts(medium: &Tight, seed: u64) -> [Recorded; 3] {
    [
        Landing::Everything,
        Landing::Nothing,
        Landing::Sectors(seed),
    ]
    .map(|it| medium.below().cut(it))
}

type Pages = BTreeMap<u32, Vec<u8>>;

fn pages_of(store: &mut PageStore, most: u32) -> Pages {
    let mut page = vec![0; PageStore::PAGE_BYTES];
    let mut all = Pages::new();
    for at in 0..most {
        let bytes = store
            .read(None, Lpn(at), &mut page)
            .expect("it can be read");
        all.extend(bytes.map(|bytes| (at, page[..bytes].to_vec())));
    }
    all
}

const PAGES: u32 = 60;

/// Changes some pages in a transaction, which is committed until that succeeds, or rolled back.
/// Returns how many calls found no room.
fn one_transaction(
    store: &mut PageStore,
    medium: &Tight,
    held: &mut Pages,
    dice: &mut Dice,
) -> u32 {
    let mut full = 0;
    let mut fails = |error: StoreError| {
        assert!(matches!(error, StoreError::Full(_)), "{error}");
        full += 1;
        if full % 3 == 2 {
            medium.give(None, 0);
        }
    };
    let tx = loop {
        match store.begin() {
            Ok(tx) => break tx,
            Err(error) => fails(error),
        }
    };
    let mut own = held.clone();
    let most = [12, 12, 12, 12, 12, 400][dice.below(6) as usize];
    for _ in 0..dice.below(most) {
        let at = dice.below(PAGES.into()) as u32;
        let data = vec![dice.below(256) as u8; dice.below(PageStore::PAGE_BYTES as u64) as usize];
        let trims = dice.below(6) == 0;
        loop {
            let done = if trims {
                store.trim(tx, Lpn(at))
            } else {
                store.write(tx, Lpn(at), &data)
            };
            match done {
                Ok(()) => break,
                Err(error) => fails(error),
            }
            assert_eq!(pages_of(store, PAGES), *held, "what is committed");
        }
        if trims {
            _ = own.remove(&at)
        } else {
            _ = own.insert(at, data)
        }
        let mut page = vec![0; PageStore::PAGE_BYTES];
        let at = dice.below(PAGES.into()) as u32;
        let bytes = store.read(Some(tx), Lpn(at), &mut page).expect("a page");
        assert_eq!(
            bytes.map(|bytes| &page[..bytes]),
            own.get(&at).map(|it| &it[..])
        );
    }
    if dice.below(5) == 0 {
        store.abort(tx).unwrap_or_else(fails);
        return full;
    }
    loop {
        match store.commit(tx) {
            Ok(()) => break,
            Err(error) => fails(error),
        }
        assert_eq!(pages_of(store, PAGES), *held, "what is committed");
        for left in cuts(medium, medium.refused()) {
            let mut left = PageStore::on(Box::new(left), &small()).expect("a store");
            assert_eq!(pages_of(&mut left, PAGES), *held, "after a cut");
        }
    }
    *held = own;
    full
}

#[test]
fn pages_go_on_and_a_transaction_is_committed_once_there_is_room() {
    let mut full = 0;
    for seed in 0..30 {
        let medium = Tight::default();
        let protocol = if seed % 3 == 2 {
            Kind::SealR
        } else {
            Kind::Seal
        };
        let options = small().with_protocol(protocol);
        let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
        let (mut held, mut dice) = (Pages::new(), Dice(seed));
        for step in 0..40 {
            turn(&medium, &mut dice);
            full += one_transaction(&mut store, &medium, &mut held, &mut dice);
            assert_eq!(pages_of(&mut store, PAGES), held);
            for left in cuts(&medium, step) {
                let mut left = PageStore::on(Box::new(left), &small()).expect("a store");
                assert_eq!(pages_of(&mut left, PAGES), held, "after a cut");
            }
        }
        medium.give(None, 0);
        assert!(store.check().expect("it can be read").is_well());
        store.close().expect("room");
        let mut store = PageStore::on(Box::new(medium), &small()).expect("a store");
        assert_eq!(pages_of(&mut store, PAGES), held);
        assert!(store.check().expect("it can be read").is_well());
    }
    assert!(full > 300, "{full}");
}

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

fn try_pairs(read: &ReadTx) -> Result<Pairs, StoreError> {
    if read.tables()?.is_empty() {
        return Ok(Pairs::new());
    }
    let table = read.table("t")?;
    let all = table.iter().map(|pair| {
        let (key, value) = pair?;
        Ok((key.to_vec(), value.to_vec()))
    });
    all.collect()
}

fn pairs(read: &ReadTx) -> Pairs {
    try_pairs(read).expect("it can be read")
}

/// What has failed, whichever table and key it came up at.
fn cause(error: &StoreError) -> &StoreError {
    match error {
        StoreError::Table { error, .. } => cause(error),
        error => error,
    }
}

fn has_ended(error: &StoreError) -> bool {
    matches!(cause(error), StoreError::SnapshotEnded)
}

fn is_full(error: &StoreError) -> bool {
    matches!(cause(error), StoreError::Full(_))
}

#[test]
fn tables_go_on_and_what_found_no_room_is_not_there() {
    let (mut full, mut ended) = (0, 0);
    for seed in 0..30 {
        let medium = Tight::default();
        let store = Store::on(Box::new(medium.clone()), &small()).expect("a store");
        let (mut held, mut dice) = (Pairs::new(), Dice(seed));
        for step in 0..60 {
            turn(&medium, &mut dice);
            let (before, refused) = (store.read().expect("a snapshot"), medium.refused());
            let mut tx = store.write().expect("a turn");
            let mut own = held.clone();
            let mut table = tx.table("t").expect("a table");
            for _ in 0..=dice.below(20) {
                let key = dice.below(200).to_be_bytes().to_vec();
                let value = vec![dice.below(256) as u8; dice.below(9000) as usize];
                match dice.below(4) {
                    0 => _ = table.remove(&key).expect("memory"),
                    _ => _ = table.insert(&key, &value).expect("memory"),
                }
                match table.get(&key).expect("memory") {
                    Some(value) => own.insert(key, value.to_vec()),
                    None => own.remove(&key),
                };
            }
            drop(table);
            match tx.commit() {
                Ok(()) => {
                    match try_pairs(&before) {
                        Ok(seen) => assert_eq!(seen, held, "a reader of before"),
                        // The commit has landed whole, and its medium said that it was full.
                        Err(error) => {
                            assert!(has_ended(&error) && medium.refused() > refused, "{error}");
                            ended += 1;
                        }
                    }
                    held = own;
                }
                Err(error) => {
                    assert!(matches!(error, StoreError::Full(_)), "{error}");
                    full += 1;
                    assert_eq!(pairs(&before), held, "a reader of before");
                }
            }
            assert_eq!(pairs(&store.read().expect("a snapshot")), held);
            for left in cuts(&medium, step) {
                let left = Store::on(Box::new(left), &small()).expect("a store");
                assert_eq!(
                    pairs(&left.read().expect("a snapshot")),
                    held,
                    "after a cut"
                );
            }
            if step % 16 == 0 {
                store.check().expect("each page is used once or free");
            }
        }
        medium.give(None, 0);
        store.insert("t", b"last", b"1").expect("there is room");
        held.insert(b"last".to_vec(), b"1".to_vec());
        store.check().expect("each page is used once or free");
        store.close().expect("room");
        let store = Store::on(Box::new(medium), &small()).expect("a store");
        assert_eq!(pairs(&store.read().expect("a snapshot")), held);
        store.check().expect("each page is used once or free");
    }
    assert!(full > 200 && ended < 60, "{full}, {ended}");
}

/// Threads count in tables of their own while the medium is full now and then. Each counter is what
/// its thread was told of, or one more if it has found no room since.
#[test]
fn threads_go_on_beside_readers() {
    const THREADS: usize = 4;
    let medium = Tight::default();
    let store = Store::on(Box::new(medium.clone()), &small()).expect("a store");
    let told: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
    let (is_over, full) = (AtomicBool::new(false), AtomicU64::new(0));
    let wrong = Mutex::new(Vec::new());
    let count = |read: &ReadTx, thread: usize| {
        let table = match read.table(&thread.to_string()) {
            // Before the thread's first commit.
            Err(error) if matches!(cause(&error), StoreError::NoTable(_)) => return Ok(0),
            table => table?,
        };
        let found = table.get(b"count")?;
        Ok::<u64, StoreError>(found.map_or(0, |it| {
            u64::from_be_bytes(it[..8].try_into().expect("eight bytes"))
        }))
    };
    std::thread::scope(|scope| {
        for (thread, told) in told.iter().enumerate() {
            let (store, full, wrong) = (&store, &full, &wrong);
            scope.spawn(move || {
                for _ in 0..300 {
                    let next = told.load(Ordering::SeqCst) + 1;
                    let mut value = vec![0; 3000];
                    value[..8].copy_from_slice(&next.to_be_bytes());
                    match store.insert(&thread.to_string(), b"count", &value) {
                        Ok(_) => told.store(next, Ordering::SeqCst),
                        // One that has read what a refused group wrote hears so at its table.
                        Err(error) if is_full(&error) => {
                            full.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(error) => wrong.lock().expect("a list").push(error.to_string()),
                    }
                    let read = match store.read() {
                        Ok(read) => read,
                        Err(error) => {
                            wrong
                                .lock()
                                .expect("a list")
                                .push(format!("begin: {error}"));
                            continue;
                        }
                    };
                    match count(&read, thread) {
                        Ok(count) if count == told.load(Ordering::SeqCst) => {}
                        Err(error) if has_ended(&error) => {}
                        other => wrong
                            .lock()
                            .expect("a list")
                            .push(format!("{other:?}, {next}")),
                    }
                }
            });
        }
        let turns = scope.spawn(|| {
            let mut dice = Dice(9);
            while !is_over.load(Ordering::SeqCst) {
                turn(&medium, &mut dice);
                std::thread::sleep(std::time::Duration::from_micros(dice.below(900)));
            }
            medium.give(None, 0);
        });
        scope.spawn(|| {
            let is_done = || {
                let told: u64 = told.iter().map(|it| it.load(Ordering::SeqCst)).sum();
                let wrong = wrong.lock().expect("a list").len();
                wrong > 0 || told + full.load(Ordering::SeqCst) >= 1200
            };
            while !is_done() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            is_over.store(true, Ordering::SeqCst);
        });
        turns.join().expect("it ends");
    });
    assert_eq!(wrong.into_inner().expect("a list"), Vec::<String>::new());
    assert!(
        full.load(Ordering::SeqCst) > 10 && medium.refused() > 10,
        "{full:?}"
    );
    for seed in 0..3 {
        let left = medium.below().cut(Landing::Sectors(seed));
        let left = Store::on(Box::new(left), &small()).expect("a store");
        let read = left.read().expect("a snapshot");
        for (thread, told) in told.iter().enumerate() {
            let found = count(&read, thread).expect("a table");
            assert_eq!(found, told.load(Ordering::SeqCst));
        }
        left.check().expect("each page is used once or free");
    }
}

const DISK: u64 = 300 * 4096;

fn image(disk: &mut Volume<PageStore>) -> Vec<u8> {
    let mut bytes = vec![7; DISK as usize];
    disk.read(0, &mut bytes).expect("it can be read");
    bytes
}

#[test]
fn a_disk_goes_on_and_a_flush_keeps_all_that_was_accepted() {
    let mut full = 0;
    for seed in 0..20 {
        let medium = Tight::default();
        let store = PageStore::on(Box::new(medium.clone()), &small()).expect("a store");
        let mut disk = Volume::create(store, DISK).expect("a disk");
        disk.set_transaction_bytes(400 * 4096);
        let mut dice = Dice(seed);
        let mut model = vec![0; DISK as usize];
        let (mut flushed, mut early) = (model.clone(), 0);
        for step in 0..80 {
            turn(&medium, &mut dice);
            let at = dice.below(DISK);
            let most = [600, 9000, 300_000][dice.below(3) as usize];
            let len = dice.below(most).min(DISK - at);
            let part = at as usize..(at + len) as usize;
            let data = match dice.below(4) {
                0 => vec![0; len as usize],
                _ => vec![dice.below(255) as u8 + 1; len as usize],
            };
            let done = match data.first() {
                Some(0) => disk.trim(at, len),
                _ => disk.write(at, &data),
            };
            match done {
                Ok(()) => model[part].copy_from_slice(&data),
                Err(error) => {
                    assert!(matches!(error, StoreError::Full(_)), "{error}");
                    full += 1;
                    // Some of the bytes may have been written.
                    let now = image(&mut disk);
                    for (at, byte) in part.zip(data) {
                        if now[at] == byte {
                            model[at] = byte;
                        }
                    }
                }
            }
            assert!(image(&mut disk) == model, "seed {seed}, step {step}");
            if dice.below(3) > 0 {
                continue;
            }
            match disk.flush() {
                Ok(()) => (flushed, early) = (model.clone(), disk.early_commits()),
                Err(error) => {
                    assert!(matches!(error, StoreError::Full(_)), "{error}");
                    full += 1;
                }
            }
            assert!(image(&mut disk) == model, "seed {seed}, step {step}");
            if disk.early_commits() > early {
                continue;
            }
            for left in cuts(&medium, step) {
                let left = PageStore::on(Box::new(left), &small()).expect("a store");
                let mut left = Volume::open(left).expect("a disk");
                assert!(
                    image(&mut left) == flushed,
                    "seed {seed}, step {step}, a cut"
                );
            }
        }
        medium.give(None, 0);
        disk.flush().expect("there is room");
        assert!(image(&mut disk) == model);
        disk.close().expect("there is room");
        let store = PageStore::on(Box::new(medium), &small()).expect("a store");
        let mut disk = Volume::open(store).expect("a disk");
        assert!(image(&mut disk) == model);
    }
    assert!(full > 100, "{full}");
}
