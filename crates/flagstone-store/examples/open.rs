//! Measures the time and memory to open a store, by its contents.
//!
//! `cargo run --release -p flagstone-store --example open -- FILE MEBIBYTES` creates a store of
//! this size in a child process, which ends in a transaction like a crash. Then other processes
//! open the store, one after the other, and print the time and the growth of their memory. Then one
//! process overwrites every eighth page, closes the store and prints its memory; others open it
//! again. Then one process overwrites pages all over the store, in transactions of one to eight
//! pages, and ends like a crash. This leaves as many old versions as the bound of the store allows.
//! `-- FILE tables RECORDS` does the same for a store of tables, whose records are inserted in
//! random order by small transactions, and prints when the first record was read. `FILE` alone
//! opens the store in that file a hundred times for reading, for profiling.

use flagstone::units::Lpn;
use flagstone_store::{OpenOptions, PageStore, Store};
use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Number of openings of each kind.
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

/// Runs a part in a child process.
fn child(path: &Path, args: &[&str], ends_well: bool) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    let status = command.arg(path).args(args).status()?;
    if status.success() == ends_well {
        Ok(())
    } else {
        Err(format!("{args:?}: {status}").into())
    }
}

/// Fills a store, and ends as if killed.
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
    // A transaction that a crash interrupts.
    let tx = store.begin()?;
    for at in 0..400 {
        store.write(tx, Lpn(at), &page)?;
    }
    std::process::exit(3);
}

/// Inserts records into a table in random order, and ends as if killed.
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

/// Opens a store of tables, and prints time and memory.
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

/// Writes every eighth page, so that the close leaves tables. Prints the memory before the close
/// and after it.
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

/// Overwrites pages all over a store in small transactions, and ends as if killed.
fn work(path: &Path, mebibytes: u32) -> Result<(), Box<dyn Error>> {
    let pages = mebibytes * 256;
    let mut store = PageStore::open(path, &OpenOptions::existing())?;
    let page = vec![9; PageStore::PAGE_BYTES];
    // Neighbours in this order are far apart on the medium.
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

/// Opens the store, and prints time and memory.
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
        if info.resumed {
            "by the tables of the close"
        } else {
            "by its blocks"
        },
        took.as_secs_f64() * 1e3,
        peak as f64 / pages,
        stays as f64 / pages,
        info.memory as f64 / pages,
    );
    Ok(())
}

/// The current or the peak memory of this process in bytes (Linux).
fn memory(what: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(what));
    let mut words = line.ok_or("this system does not tell")?.split_whitespace();
    Ok(words.nth(1).ok_or("no number")?.parse::<u64>()? << 10)
}
