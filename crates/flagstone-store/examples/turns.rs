//! What it is worth to read pages before the turn to write, by the number of threads.
//!
//! `cargo run --release -p flagstone-store --example turns -- FILE RECORDS` makes a store with a
//! table of so many records of 100 bytes in the file. Then threads update records drawn evenly, one
//! a commit, for a second each: by a transaction that reads its page in its turn, by one for which
//! the page was prefetched, and by `Store::insert`. Before each of these the system forgets what it
//! has in its cache of the file.

use flagstone_store::{OpenOptions, Store, StoreError};
use rustix::fs::{Advice, fadvise};
use std::error::Error;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const TABLE: &str = "records";
/// Bytes of the store's own cache.
const CACHE: u64 = 5 << 20;
const SECONDS: f64 = 1.0;
const ROUNDS: u64 = 3;

type Update = fn(&Store, &[u8], &[u8]) -> Result<(), StoreError>;

const WAYS: [(&str, Update); 3] = [
    ("read in the turn", |store, key, value| {
        let mut tx = store.write()?;
        tx.table(TABLE)?.insert(key, value)?;
        tx.commit()
    }),
    ("prefetched", |store, key, value| {
        store.prefetch(TABLE, &[key])?;
        let mut tx = store.write()?;
        tx.table(TABLE)?.insert(key, value)?;
        tx.commit()
    }),
    ("Store::insert", |store, key, value| {
        store.insert(TABLE, key, value).map(|_| ())
    }),
];

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path: PathBuf = args.next().ok_or("name a file")?.into();
    let records: u64 = args.next().ok_or("say how many records")?.parse()?;
    let mut options = OpenOptions::default();
    options.cache = CACHE;
    let store = Store::with(&path, &options)?;
    let numbers: Vec<u64> = (0..records).collect();
    for some in numbers.chunks(50_000) {
        let pairs: Vec<_> = some.iter().map(|&n| (key(n), [n as u8; 100])).collect();
        store.insert_all(TABLE, &pairs)?;
    }
    for round in 0..ROUNDS {
        for threads in [1, 8] {
            for (name, update) in WAYS {
                let file = File::open(&path)?;
                file.sync_all()?;
                fadvise(&file, 0, None, Advice::DontNeed)?;
                let until = Instant::now() + Duration::from_secs_f64(SECONDS);
                let run = |thread: u64| -> Result<u64, StoreError> {
                    let (first, mut done) = (round << 40 | thread << 32, 0);
                    while Instant::now() < until {
                        let drawn = u64::from_le_bytes(key(first + done)) % records;
                        update(&store, &key(drawn), &[done as u8; 100])?;
                        done += 1;
                    }
                    Ok(done)
                };
                let done = std::thread::scope(|scope| {
                    let run = &run;
                    let all: Vec<_> = (0..threads).map(|n| scope.spawn(move || run(n))).collect();
                    let all = all.into_iter();
                    all.map(|one| one.join().expect("it does not panic"))
                        .sum::<Result<u64, StoreError>>()
                })?;
                let per_s = done as f64 / SECONDS;
                println!("{threads} threads, {name}: {per_s:.0} commits a second");
            }
        }
    }
    Ok(store.close()?)
}
