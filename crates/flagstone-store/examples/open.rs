//! How long a store takes to open, and how much memory, by what it holds.
//!
//! `cargo run --release -p flagstone-store --example open -- FILE MEBIBYTES` has a process make a
//! store that holds so much and end in a transaction, as a crash ends it. Then processes of their
//! own open the store, one after the other, and tell how long that took and by how much their
//! memory grew. Then one overwrites a page in eight, closes, and tells how much memory that took;
//! others open it again. Then one overwrites pages all over it in transactions of one to eight
//! pages, which leaves as many old versions as the bound of the store allows, and ends as a crash
//! ends it. `-- FILE tables RECORDS` does the same for a store of tables, whose records are
//! inserted in no order by transactions of a few, and tells when the first of them is read. `FILE`
//! alone opens the store that is in the file a hundred times, for reading: something to profile.

use flagstone::units::Lpn;
use flagstone_store::{OpenOptions, PageStore, Store};
use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Openings of each kind.
const TIMES: u32 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let path = Path::new(args.first().ok_or("name a file")?);
    match args.get(1).map(String::as_str) {
        None => {
            for _ in 0..100 {
                PageStore::open(path, &OpenOptions::existing().reading())?;
            }
            Ok(())
        }
        Some("fill") => fill(path, args[2].parse()?),
        Some("write") => write(path, args[2].parse()?),
        Some("work") => work(path, args[2].parse()?),
        Some("open") => open(path),
        Some("fill-tables") => fill_tables(path, args[2].parse()?),
        Some("open-tables") => open_tables(path),
        Some("tables") => {
            child(path, &["fill-tables", &args[2]], false)?;
            (0..TIMES).try_for_each(|_| child(path, &["open-tables"], true))
        }
        Some(mebibytes) => {
            println!("a store that holds {mebibytes} MiB, after a crash:");
            child(path, &["fill", mebibytes], false)?;
            for _ in 0..TIMES {
                child(path, &["open"], true)?;
            }
            println!("after a close:");
            child(path, &["write", mebibytes], true)?;
            for _ in 0..TIMES {
                child(path, &["open"], true)?;
            }
            println!("after work in small transactions, and a crash:");
            child(path, &["work", mebibytes], false)?;
            for _ in 0..TIMES {
                child(path, &["open"], true)?;
            }
            Ok(())
        }
    }
}

/// Carries a part out in a process of its own.
fn child(path: &Path, args: &[&str], ends_well: bool) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    let status = command.arg(path).args(args).status()?;
    match status.success() == ends_well {
        true => Ok(()),
        false => Err(format!("{args:?}: {status}").into()),
    }
}

/// Fills a store, and ends as if it was killed.
fn fill(path: &Path, mebibytes: u32) -> Result<(), Box<dyn Error>> {
    let pages = mebibytes * 256;
    let mut store = PageStore::open(path, &OpenOptions::default())?;
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
    for at in 0..400 {
        store.write(tx, Lpn(at), &page)?;
    }
    std::process::exit(3);
}

/// Inserts records into a table, in no order, and ends as if it was killed.
fn fill_tables(path: &Path, records: u64) -> Result<(), Box<dyn Error>> {
    let store = Store::open(path)?;
    for first in (0..records).step_by(20) {
        let mut tx = store.write()?;
        let mut table = tx.table("records")?;
        for number in first..records.min(first + 20) {
            let key = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
            table.insert(&key, &[number as u8; 100])?;
        }
        let commit = tx.commit_later()?;
        if first % 200 == 0 {
            commit.wait()?;
        }
    }
    std::process::exit(3);
}

/// Opens a store of tables, and tells what that took.
fn open_tables(path: &Path) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let store = Store::open(path)?;
    let opened = start.elapsed();
    let found = store.read()?.table("records")?.get(&0_u64.to_be_bytes())?;
    assert!(found.is_some(), "the first record");
    println!(
        "  {} MiB of tables: opened in {:.1} ms, and read in {:.1} ms",
        std::fs::metadata(path)?.len() >> 20,
        opened.as_secs_f64() * 1e3,
        start.elapsed().as_secs_f64() * 1e3,
    );
    Ok(())
}

/// Writes a page in eight, so that the close that follows leaves tables, and tells how much memory
/// it took until then, and with the close.
fn write(path: &Path, mebibytes: u32) -> Result<(), Box<dyn Error>> {
    let before = memory("VmRSS:")?;
    let mut store = PageStore::open(path, &OpenOptions::existing())?;
    let page = vec![8; PageStore::PAGE_BYTES];
    let all: Vec<u32> = (0..mebibytes * 256).step_by(8).collect();
    for some in all.chunks(250) {
        let tx = store.begin()?;
        for &at in some {
            store.write(tx, Lpn(at), &page)?;
        }
        store.commit(tx)?;
    }
    let info = store.info();
    let pages = f64::from(info.blocks) * f64::from(info.pages_per_block);
    let (has, written) = (memory("VmRSS:")?, memory("VmHWM:")?);
    store.close()?;
    let closed = memory("VmHWM:")?;
    println!(
        "  bytes of memory for each page of the store: {:.1} when it is closed, {:.1} at most until \
         then, {:.1} with the close",
        has.saturating_sub(before) as f64 / pages,
        (written - before) as f64 / pages,
        (closed - before) as f64 / pages,
    );
    Ok(())
}

/// Overwrites pages all over a store in small transactions, and ends as if it was killed.
fn work(path: &Path, mebibytes: u32) -> Result<(), Box<dyn Error>> {
    let pages = mebibytes * 256;
    let mut store = PageStore::open(path, &OpenOptions::existing())?;
    let page = vec![9; PageStore::PAGE_BYTES];
    // Neighbours in this order lie far from each other.
    let mut all = (0..pages).map(|i| Lpn((u64::from(i) * 2_654_435_761 % u64::from(pages)) as u32));
    for size in (1..=8).cycle() {
        let tx = store.begin()?;
        let mut written = 0;
        for at in all.by_ref().take(size) {
            store.write(tx, at, &page)?;
            written += 1;
        }
        if written == 0 {
            break;
        }
        store.commit(tx)?;
    }
    std::process::exit(3);
}

/// Opens the store, and tells what that took.
fn open(path: &Path) -> Result<(), Box<dyn Error>> {
    let before = memory("VmRSS:")?;
    let start = Instant::now();
    let store = PageStore::open(path, &OpenOptions::existing())?;
    let took = start.elapsed();
    let peak = memory("VmHWM:")? - before;
    let stays = memory("VmRSS:")?.saturating_sub(before);
    let info = store.info();
    let pages = f64::from(info.blocks) * f64::from(info.pages_per_block);
    println!(
        "  {} MiB, {}: opened in {:.1} ms; bytes of memory for each page of the store: {:.1} at \
         most, {:.1} afterwards, and {:.2} by the store's own count",
        info.bytes >> 20,
        match info.resumed {
            true => "by the tables of the close",
            false => "by its blocks",
        },
        took.as_secs_f64() * 1e3,
        peak as f64 / pages,
        stays as f64 / pages,
        info.memory as f64 / pages,
    );
    Ok(())
}

/// The memory that this process has, or the most that it has had so far, in bytes (Linux).
fn memory(what: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(what));
    let mut words = line.ok_or("this system does not tell")?.split_whitespace();
    Ok(words.nth(1).ok_or("no number")?.parse::<u64>()? << 10)
}
