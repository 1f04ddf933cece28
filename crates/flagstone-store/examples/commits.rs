//! Commits of random pages on a file, beside the floor: a contiguous write and a sync.
//!
//! Run it with a folder on the file system to measure, and the pages of a commit:
//! `cargo run --release -p flagstone-store --example commits -- FOLDER 2`.

use flagstone::units::Lpn;
use flagstone_store::{OpenOptions, Store};
use std::error::Error;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const COMMITS: u32 = 4_000;
const PAGES: u32 = 5_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("name a folder")?;
    let pages: u32 = args.next().unwrap_or("2".into()).parse()?;
    let folder = tempfile::tempdir_in(folder)?;

    let mut store = Store::open(&folder.path().join("store.flag"), &OpenOptions::default())?;
    let mut page = vec![7; Store::PAGE_BYTES];
    for first in (0..PAGES).step_by(100) {
        let tx = store.begin()?;
        for at in first..first + 100 {
            store.write(tx, Lpn(at), &page)?;
        }
        store.commit(tx)?;
    }
    let before = store.medium_stats();
    let mut dice = 1u64;
    let mut times = Vec::new();
    for round in 0..COMMITS {
        page[..4].copy_from_slice(&round.to_le_bytes());
        let start = Instant::now();
        let tx = store.begin()?;
        for _ in 0..pages {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            store.write(tx, Lpn((dice >> 33) as u32 % PAGES), &page)?;
        }
        store.commit(tx)?;
        times.push(start.elapsed());
    }
    let after = store.medium_stats();
    let per = |count: u64| count as f64 / f64::from(COMMITS);
    println!("store: {}", summary(times));
    println!(
        "       {:.1} KiB, {:.2} writes and {:.2} syncs a commit; {:?}",
        per(after.bytes - before.bytes) / 1024.0,
        per(after.writes - before.writes),
        per(after.syncs - before.syncs),
        store.info(),
    );

    let floor = std::fs::File::create(folder.path().join("floor"))?;
    let bytes = vec![7; pages as usize * 4096];
    let area = 20 << 20;
    floor.write_all_at(&vec![0; area], 0)?;
    floor.sync_all()?;
    let mut times = Vec::new();
    for round in 0..COMMITS as usize {
        let start = Instant::now();
        let at = round * bytes.len() % (area - bytes.len());
        floor.write_all_at(&bytes, at as u64 / 4096 * 4096)?;
        floor.sync_data()?;
        times.push(start.elapsed());
    }
    println!("floor: {}", summary(times));
    Ok(())
}

/// Commits a second, and percentiles of their time.
fn summary(mut times: Vec<Duration>) -> String {
    let total: Duration = times.iter().sum();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_micros();
    format!(
        "{:.0} commits a second, p50 {} us, p99 {} us, p99.9 {} us, max {} us",
        times.len() as f64 / total.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    )
}
