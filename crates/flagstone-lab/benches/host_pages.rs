//! Host pages a second: every protocol against the bare page-mapping loop, in the same run.
//!
//! ```text
//!   cargo bench -p flagstone-lab --bench host_pages -- [--quick] [--json] [--protocols a,b]
//!                                                       [--sizes 2,8,32]
//! ```
//!
//! The device has 8 GiB in 8 channels of 2 planes, 4 KB pages, 64 pages a block, 25/200/1500 us for
//! read, program and erase, and 12.5 % of it cannot be addressed. It is filled, then overwritten
//! twice at random, then single-page transactions write uniformly random pages, with timing and
//! garbage collection on. Loop and device take turns in short slices on one thread, so that both
//! see the same machine; rates are over all slices. Times are those of the thread on its processor
//! where the system tells them, so that a busy machine does not count (what others do to its caches
//! still does); `wall_s` stands beside. Each row runs in a process of its own, so that its memory
//! can be told.
//!
//! `bytes/page` is what the structures hold for each page of the flash, and in brackets what the
//! process grew by. The last table has the same workload on devices of several sizes.

#[path = "../tests/suite/bare.rs"]
mod bare;

use bare::{Bare, BareLimits};
use flagstone::commit::{Device, Kind, Options};
use flagstone::ftl::{Cause, Config, Operation, VictimPolicy};
use flagstone::nand::{Cell, Chip, Geometry, Pairing, Timing};
use flagstone::units::Nanos;
use flagstone_lab::steady;
use flagstone_lab::stopwatch::thread_ns;
use flagstone_lab::workload::Workload;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Slices in which loop and device take turns.
const SLICES: u64 = 9;
/// Random overwrites of every page before anything is measured.
const OVERWRITES: f64 = 2.0;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Row {
    protocol: String,
    mebibytes: u32,
    summary_pages: bool,
    host_pages: u64,
    host_pages_per_s: f64,
    bare_pages_per_s: f64,
    ratio: f64,
    write_amplification: f64,
    /// Programs for each page that the host wrote, by cause.
    programs: BTreeMap<String, f64>,
    bare_write_amplification: f64,
    bytes_per_page: f64,
    resident_bytes_per_page: Option<f64>,
    ageing_s: f64,
    wall_s: f64,
    /// `thread` or `wall`: which clock the rates are by.
    clock: String,
}

fn geometry(mebibytes: u32) -> Geometry {
    Geometry {
        channels: 8,
        packages_per_channel: 1,
        planes_per_package: 2,
        blocks_per_plane: mebibytes / 4,
        pages_per_block: 64,
        page_bytes: 4096,
        spare_bytes: 128,
        cell: Cell::Slc {
            partial_programs: 2,
        },
        strict_order: false,
        pairing: Pairing::None,
    }
}

/// Zones are set aside from the free blocks: so many of these must there be when one is used up.
fn config(kind: Kind, summary_pages: bool) -> Config {
    let zoned = kind.info().format.zoned;
    let mut config = Config::default();
    config.over_provision = 0.125;
    config.logical_pages = None;
    config.gc_threshold = if zoned { 0.017 } else { 0.001 };
    config.victims = VictimPolicy::Greedy;
    config.static_wear_gap = None;
    config.copies_stay = false;
    config.summary_pages = summary_pages;
    config
}

fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Time spent so far on something that is done in slices.
#[derive(Debug, Default)]
struct Spent {
    wall_s: f64,
    thread_s: Option<f64>,
}

impl Spent {
    fn add<T>(&mut self, what: impl FnOnce() -> T) -> T {
        let (wall, thread) = (Instant::now(), thread_ns());
        let result = what();
        self.wall_s += wall.elapsed().as_secs_f64();
        if let (Some(start), Some(end)) = (thread, thread_ns()) {
            *self.thread_s.get_or_insert(0.0) += (end - start) as f64 / 1e9;
        }
        result
    }

    /// Systems may count the thread's time in ticks of some milliseconds: short spans by the wall.
    fn seconds(&self) -> f64 {
        self.thread_s.filter(|&s| s > 0.05).unwrap_or(self.wall_s)
    }
}

fn measure(kind: Kind, mebibytes: u32, summary_pages: bool, slice: u64) -> Result<Row, String> {
    let (geometry, config) = (geometry(mebibytes), config(kind, summary_pages));
    let started = Instant::now();
    let resident = resident_bytes();
    let spare_kept = kind.info().format.spare_bytes(&config);
    let chip = Chip::new(geometry, Timing::default(), spare_kept);
    let options = Options::default();
    let mut device = Device::open(Box::new(chip), kind, config, &options, Nanos::ZERO)
        .map_err(|error| error.to_string())?;
    let limits = BareLimits::of(device.ftl());
    let pages = device.pages();
    let mut ageing = Spent::default();
    let mut now = ageing
        .add(|| steady::age(&mut device, pages, OVERWRITES, 1, Nanos::ZERO))
        .map_err(|error| error.to_string())?;
    let grown = resident_bytes().zip(resident);
    let mut bare = Bare::new(&geometry, &limits);
    bare.age(pages, OVERWRITES, 1);
    bare.reset_stats();
    device.reset_stats();
    let (mut spent, mut bare_spent) = (Spent::default(), Spent::default());
    for seed in 0..SLICES {
        let workload = Workload::uniform_writes(pages, slice, 100 + seed);
        bare_spent.add(|| bare.play(&workload));
        let done = spent.add(|| steady::run(&mut device, &workload, now));
        now = done.map_err(|error| error.to_string())?.now;
    }
    let host_pages = device.request_stats().pages_written;
    let chip = device.ftl().flash().model().expect("a chip was put in");
    let held = chip.memory_bytes() + device.memory().iter().map(|(_, bytes)| bytes).sum::<u64>();
    let flash_pages = f64::from(geometry.pages());
    let programs = Cause::ALL.map(|cause| {
        let count = device.stats().count(Operation::Program, cause);
        (cause.name().to_string(), count as f64 / host_pages as f64)
    });
    Ok(Row {
        programs: programs.into(),
        protocol: kind.info().name.into(),
        mebibytes,
        summary_pages,
        host_pages,
        host_pages_per_s: host_pages as f64 / spent.seconds(),
        bare_pages_per_s: host_pages as f64 / bare_spent.seconds(),
        ratio: bare_spent.seconds() / spent.seconds(),
        write_amplification: device.stats().total(Operation::Program) as f64 / host_pages as f64,
        bare_write_amplification: bare.stats().write_amplification(),
        bytes_per_page: held as f64 / flash_pages,
        resident_bytes_per_page: grown
            .map(|(end, start)| end.saturating_sub(start) as f64 / flash_pages),
        ageing_s: ageing.seconds(),
        wall_s: started.elapsed().as_secs_f64(),
        clock: if thread_ns().is_some() {
            "thread"
        } else {
            "wall"
        }
        .into(),
    })
}

/// Measures in a process of its own.
fn in_child(kind: Kind, mebibytes: u32, summary_pages: bool, slice: u64) -> Result<Row, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let job = format!("{}:{mebibytes}:{summary_pages}:{slice}", kind.info().name);
    let output = Command::new(program)
        .args(["--measure", &job])
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().into());
    }
    serde_json::from_str(&text).map_err(|error| format!("{error} in {text:?}"))
}

fn child(job: &str) -> Result<Row, String> {
    let parts: Vec<&str> = job.split(':').collect();
    let [name, mebibytes, summary_pages, slice] = parts[..] else {
        return Err(format!("no job: {job}"));
    };
    let bad = || format!("no job: {job}");
    measure(
        Kind::by_name(name).ok_or_else(bad)?,
        mebibytes.parse().map_err(|_| bad())?,
        summary_pages.parse().map_err(|_| bad())?,
        slice.parse().map_err(|_| bad())?,
    )
}

const HEAD: &str = "protocol        size  summaries   host pages/s    bare loop/s    ratio  \
                    write amplification  bytes/page";

fn line(row: &Row) -> String {
    format!(
        "{:<10} {:>5} MiB  {:<9} {:>14.0} {:>14.0} {:>8.3} {:>10.3} ({:>6.3}) {:>8.1} ({})",
        row.protocol,
        row.mebibytes,
        if row.summary_pages { "yes" } else { "no" },
        row.host_pages_per_s,
        row.bare_pages_per_s,
        row.ratio,
        row.write_amplification,
        row.bare_write_amplification,
        row.bytes_per_page,
        row.resident_bytes_per_page
            .map_or("unknown".into(), |bytes| format!("{bytes:.1}")),
    )
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).cloned()
    };
    let is_set = |name: &str| args.iter().any(|arg| arg == name);
    if let Some(job) = value("--measure") {
        return match child(&job) {
            Ok(row) => {
                println!("{}", serde_json::to_string(&row).expect("a row is JSON"));
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    // Cargo says --bench when it runs benchmarks, and not when it only tests that they work.
    let (quick, json) = (is_set("--quick") || !is_set("--bench"), is_set("--json"));
    let kinds: Vec<Kind> = match value("--protocols") {
        None => Kind::ALL.to_vec(),
        Some(names) => {
            let found: Option<Vec<Kind>> = names.split(',').map(Kind::by_name).collect();
            let Some(kinds) = found else {
                eprintln!("no such protocol in {names:?}; `flagstone protocols` lists them");
                return ExitCode::from(2);
            };
            kinds
        }
    };
    let mebibytes: u32 = if quick { 256 } else { 8192 };
    let slice = if quick { 50_000 } else { 250_000 };
    let sizes: Vec<u32> = match value("--sizes") {
        None if quick => vec![256, 512, 1024],
        None => vec![2048, 8192, 32768],
        Some(list) => {
            let gibibytes: Result<Vec<u32>, _> = list.split(',').map(str::parse).collect();
            let Ok(gibibytes) = gibibytes else {
                eprintln!("--sizes {list}: give whole numbers of GiB, as in 2,8,32");
                return ExitCode::from(2);
            };
            gibibytes.iter().map(|gib| gib * 1024).collect()
        }
    };
    let mut jobs: Vec<(Kind, u32, bool)> = Vec::new();
    for &kind in &kinds {
        jobs.extend([(kind, mebibytes, false), (kind, mebibytes, true)]);
    }
    let first_of_sizes = jobs.len();
    jobs.extend(sizes.iter().map(|&size| (kinds[0], size, false)));
    let mut failed = false;
    if !json {
        println!("{HEAD}");
    }
    for (i, &(kind, mebibytes, summary_pages)) in jobs.iter().enumerate() {
        if i == first_of_sizes && !json {
            println!("\nthe same workload on devices of several sizes\n{HEAD}");
        }
        match in_child(kind, mebibytes, summary_pages, slice) {
            Ok(row) if json => println!("{}", serde_json::to_string(&row).expect("JSON")),
            Ok(row) => println!("{}", line(&row)),
            Err(error) => {
                eprintln!("{kind}, {mebibytes} MiB: {error}");
                failed = true;
            }
        }
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
