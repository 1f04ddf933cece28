//! `flagstone-versus`: the same records in Flagstone's indexes and in widely used stores, on a real
//! file system, under the same memory limit.
//!
//! Each store is loaded in one process and measured in another. The latter limits its memory once
//! the store is open, by a control group, which also counts the system's page cache. The limit is
//! the requested memory, plus 4 MiB that a library needs to start. Bytes read are those that the
//! system fetched from the device for the process, whichever part of the process caused the reads.

mod limit;
mod lives;
mod peers;
mod ycsb;

use anyhow::{Context, bail};
use clap::Parser;
use peers::{NAMES, Peer};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Compare point lookups and updates with LMDB, RocksDB, redb and SQLite.
#[derive(Debug, Clone, Parser)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Args {
    #[command(subcommand)]
    mode: Option<Mode>,
    /// Stores, separated by commas.
    #[arg(long, value_delimiter = ',', default_values = NAMES)]
    stores: Vec<String>,
    /// Number of records of 16 bytes.
    #[arg(long, default_value_t = 10_000_000)]
    records: u64,
    /// Bytes of memory for caches and indexes [default: 1 % of the data].
    #[arg(long)]
    memory: Option<u64>,
    /// Number of lookups, and of updates, to measure.
    #[arg(long, default_value_t = 100_000)]
    operations: u64,
    /// Updates per durable commit.
    #[arg(long, default_value_t = 1_000)]
    batch: u64,
    /// Folder for the files, which are removed afterwards.
    #[arg(long, required = true)]
    dir: Option<PathBuf>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object per store, one per line.
    #[arg(long)]
    json: bool,
    /// Run one phase, as a child process.
    #[arg(long, hide = true)]
    phase: Option<String>,
}

impl Args {
    fn dir(&self) -> &Path {
        self.dir.as_deref().expect("it is required")
    }
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Mode {
    Ycsb(ycsb::Ycsb),
    Lives(lives::Lives),
}

/// Bytes beyond the requested memory: stacks, buffers, a library's initial allocations.
const SLACK: u64 = 4 << 20;

/// The measurements of one store.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Figures {
    store: String,
    load_s: f64,
    file_bytes: u64,
    /// The memory limit, and whether it could be set.
    memory: u64,
    limited: bool,
    lookup_us: f64,
    pages_read_a_lookup: f64,
    miss_us: f64,
    update_us: f64,
    bytes_written_an_update: f64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match (&args.mode, &args.phase) {
        (Some(Mode::Ycsb(args)), _) => ycsb::main(args),
        (Some(Mode::Lives(args)), _) => lives::main(args),
        (None, Some(phase)) => child(&args, phase),
        (None, None) => parent(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The key of record `n`. A bijection that scatters the numbers over all of u64.
fn key(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn memory_of(args: &Args) -> u64 {
    args.memory.unwrap_or(args.records * 16 / 100)
}

fn child(args: &Args, phase: &str) -> anyhow::Result<()> {
    let name = &args.stores[0];
    let path = args.dir().join(name);
    let mut figures = Figures {
        store: name.clone(),
        ..Figures::default()
    };
    if phase == "load" {
        let start = Instant::now();
        let mut store = peers::open(name, &path, 256 << 20, args.records, true)?;
        let mut batch = Vec::with_capacity(100_000);
        for n in 0..args.records {
            batch.push((key(n), n));
            if batch.len() == batch.capacity() || n + 1 == args.records {
                store.put(&batch)?;
                batch.clear();
            }
        }
        store.close()?;
        figures.load_s = start.elapsed().as_secs_f64();
        figures.file_bytes = size(&path)?;
    } else {
        measure(args, name, &path, &mut figures)?;
    }
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

fn measure(args: &Args, name: &str, path: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    figures.memory = memory_of(args);
    let mut store = peers::open(name, path, figures.memory, args.records, false)?;
    limit::drop_cached(path)?;
    figures.limited = limit::to(figures.memory + SLACK).is_ok();
    let mut dice = Pcg64Mcg::seed_from_u64(args.seed);
    // Warm up: lets the store read its metadata once.
    for _ in 0..args.operations / 10 {
        let n = dice.random_range(0..args.records);
        check(name, &mut *store, n)?;
    }
    let (start, before) = (Instant::now(), limit::io()?);
    for _ in 0..args.operations {
        let n = dice.random_range(0..args.records);
        check(name, &mut *store, n)?;
    }
    let per = |start: Instant| start.elapsed().as_secs_f64() * 1e6 / args.operations as f64;
    figures.lookup_us = per(start);
    let read = limit::io()?.0 - before.0;
    figures.pages_read_a_lookup = read as f64 / 4096.0 / args.operations as f64;
    let start = Instant::now();
    for i in 0..args.operations {
        if store.get(key(args.records + i))?.is_some() {
            bail!("{name} has a key that was never written");
        }
    }
    figures.miss_us = per(start);
    let (start, before) = (Instant::now(), limit::io()?);
    let mut batch = Vec::new();
    for i in 0..args.operations {
        let n = dice.random_range(0..args.records);
        batch.push((key(n), n));
        if batch.len() as u64 == args.batch || i + 1 == args.operations {
            store.put(&batch)?;
            batch.clear();
        }
    }
    figures.update_us = per(start);
    let written = limit::io()?.1 - before.1;
    figures.bytes_written_an_update = written as f64 / args.operations as f64;
    store.close()
}

fn check(name: &str, store: &mut dyn Peer, n: u64) -> anyhow::Result<()> {
    let found = store.get(key(n))?;
    if found != Some(n) {
        bail!("{name} has {found:?} for record {n}");
    }
    Ok(())
}

/// Turns "not found" into `None`: a store may remove its own files during a walk.
pub(crate) fn if_there<T>(found: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

fn size(path: &Path) -> anyhow::Result<u64> {
    let Some(meta) = if_there(std::fs::metadata(path))? else {
        return Ok(0);
    };
    if meta.is_file() {
        return Ok(meta.len());
    }
    let entries = std::fs::read_dir(path)?.map(|entry| size(&entry?.path()));
    entries.sum()
}

fn parent(args: &Args) -> anyhow::Result<()> {
    for name in &args.stores {
        if !NAMES.contains(&name.as_str()) {
            bail!("there is no store `{name}`; there are {}", NAMES.join(", "));
        }
    }
    std::fs::create_dir_all(args.dir())
        .with_context(|| format!("making the folder {}", args.dir().display()))?;
    let mut all = Vec::new();
    for name in &args.stores {
        let path = args.dir().join(name);
        let gone = || {
            let _ = std::fs::remove_file(&path);
            let _ = std::fs::remove_dir_all(&path);
        };
        gone();
        eprintln!("{name}: loading {} records", args.records);
        let loaded = phase(args, name, "load")?;
        eprintln!("{name}: measuring");
        let measured = phase(args, name, "measure");
        gone();
        let Ok(measured) = measured else {
            eprintln!("{name} does not run within the memory limit and has no row");
            continue;
        };
        let figures = Figures {
            load_s: loaded.load_s,
            file_bytes: loaded.file_bytes,
            ..measured
        };
        if args.json {
            println!("{}", serde_json::to_string(&figures)?);
        }
        all.push(figures);
    }
    if !args.json {
        table(args, &all);
    }
    Ok(())
}

fn phase(args: &Args, name: &str, phase: &str) -> anyhow::Result<Figures> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["--phase", phase, "--stores", name])
        .arg("--dir")
        .arg(args.dir())
        .args(["--records", &args.records.to_string()])
        .args(["--operations", &args.operations.to_string()])
        .args(["--batch", &args.batch.to_string()])
        .args(["--memory", &memory_of(args).to_string()])
        .args(["--seed", &args.seed.to_string()]);
    let child = command.stdout(Stdio::piped()).spawn()?;
    let pid = child.id();
    let output = child.wait_with_output()?;
    let was_killed = limit::gone(pid);
    if !output.status.success() {
        let why = if was_killed { ": the system killed it for its memory" } else { "" };
        bail!("{name}: the {phase} phase failed{why}");
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn table(args: &Args, all: &[Figures]) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header([
        "store",
        "file, bytes a record",
        "load, us a record",
        "lookup, us",
        "pages read a lookup",
        "miss, us",
        "update, us",
        "bytes written an update",
    ]);
    for figures in all {
        table.add_row([
            figures.store.clone(),
            format!("{:.1}", figures.file_bytes as f64 / args.records as f64),
            format!("{:.2}", figures.load_s * 1e6 / args.records as f64),
            format!("{:.1}", figures.lookup_us),
            format!("{:.2}", figures.pages_read_a_lookup),
            format!("{:.1}", figures.miss_us),
            format!("{:.1}", figures.update_us),
            format!("{:.0}", figures.bytes_written_an_update),
        ]);
    }
    let limited = all.iter().all(|figures| figures.limited);
    println!("{table}");
    println!(
        "{} records of 16 bytes, {} bytes of memory{}, commits of {} updates",
        args.records,
        memory_of(args),
        if limited {
            ""
        } else {
            " (NOT enforced: no memory control group)"
        },
        args.batch
    );
}
