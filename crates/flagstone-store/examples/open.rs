//! How long a store takes to open, and how much memory, by what it holds.
//!
//! `cargo run --release -p flagstone-store --example open -- FILE MEBIBYTES` makes a store that
//! holds so much, leaves a transaction open, and opens the store again a few times, after a close
//! and as a crash leaves it. Without a number it opens the store that is in the file a hundred
//! times, for reading: something to profile.

use flagstone::units::Lpn;
use flagstone_store::{OpenOptions, PageStore};
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path: PathBuf = args.next().ok_or("name a file")?.into();
    let Some(mebibytes) = args.next() else {
        for _ in 0..100 {
            PageStore::open(&path, &OpenOptions::existing().reading())?;
        }
        return Ok(());
    };
    let mebibytes: u32 = mebibytes.parse()?;
    let pages = mebibytes * 256;
    let mut store = PageStore::open(&path, &OpenOptions::default())?;
    let page = vec![7; PageStore::PAGE_BYTES];
    for first in (0..pages).step_by(2_000) {
        let tx = store.begin()?;
        for at in first..pages.min(first + 2_000) {
            store.write(tx, Lpn(at), &page)?;
        }
        store.commit(tx)?;
    }
    // One that a crash leaves behind.
    let tx = store.begin()?;
    for at in 0..100 {
        store.write(tx, Lpn(at), &page)?;
    }
    // A copy of a store that is in use is like one after a crash.
    let crashed = path.with_extension("crashed");
    std::fs::copy(&path, &crashed)?;
    store.close()?;
    for path in [&path, &crashed] {
        for _ in 0..5 {
            let start = Instant::now();
            let store = PageStore::open(path, &OpenOptions::existing())?;
            let took = start.elapsed();
            let info = store.info();
            println!(
                "{} MiB in {} MiB, {}: opened in {:.1} ms, {:.2} bytes of memory for each page of \
                 the store",
                mebibytes,
                info.bytes >> 20,
                if info.closed == Some(true) {
                    "closed"
                } else {
                    "after a crash"
                },
                took.as_secs_f64() * 1e3,
                info.memory as f64 / f64::from(info.blocks * info.pages_per_block)
            );
        }
    }
    println!("{} is as a crash leaves a store", crashed.display());
    Ok(())
}
