//! Index operations a second of one core: each index over plain memory and over the simulated
//! device.
//!
//! ```text
//!   cargo bench -p flagstone-papers --bench indexes -- [--indexes a,b] [--keys N] [--memory BYTES]
//!                                                   [--set name=value]... [--json]
//! ```
//!
//! The index is filled in random order; that counts by halves, as insertions should cost no more
//! in a large index than in a small one but for what does not fit into memory. Then each operation
//! takes a uniformly random key: half look it up, half give it another value; and once more with
//! lookups alone. The device is `lazybtree` with pages of 2 KB under the protocol `plain`. Rates
//! of these are those of the best of several slices, by the thread's time on its processor where
//! the system tells it, so that a busy machine counts less. The hit ratio is that of accesses to
//! pages; `--memory` sets it.

use flagstone::commit::{Device, Kind, Options};
use flagstone::units::Nanos;
use flagstone_index::{
    BackingStore, DeviceStore, Index, IndexError, IndexKind, MemStore, Settings,
};
use flagstone_lab::device::DeviceSpec;
use flagstone_lab::stopwatch::Stopwatch;
use serde::Serialize;
use std::process::ExitCode;

const SLICES: u32 = 9;
const OPERATIONS: u32 = 200_000;

#[derive(Debug, Serialize)]
struct Row {
    index: String,
    store: &'static str,
    workload: &'static str,
    operations_per_s: f64,
    hit_ratio: f64,
    reads_per_operation: f64,
    writes_per_operation: f64,
    comparisons_per_operation: f64,
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(n)) >> 64) as u64
    }
}

/// Spreads the keys over all numbers.
fn key(i: u64) -> u64 {
    (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn store(on_device: bool, keys: u64) -> Box<dyn BackingStore> {
    if !on_device {
        return Box::new(MemStore::new(2048, (keys / 20) as u32 + 1000));
    }
    let spec = DeviceSpec::load("lazybtree").expect("a preset");
    let options = Options::default();
    let chip = Box::new(spec.chip(spec.geometry.spare_bytes as usize));
    let device = Device::open(chip, Kind::Plain, spec.config, &options, Nanos::ZERO);
    Box::new(DeviceStore::new(device.expect("a blank device")))
}

fn slice(
    index: &mut dyn Index,
    dice: &mut Dice,
    keys: u64,
    updates: bool,
) -> Result<f64, IndexError> {
    let mut now = Nanos::ZERO;
    let clock = Stopwatch::start();
    for i in 0..OPERATIONS {
        let key = key(dice.below(keys));
        if updates && i % 2 == 0 {
            now = index.update(now, key, u64::from(i))?;
        } else {
            now = index.get(now, key)?.1;
        }
    }
    Ok(f64::from(OPERATIONS) / clock.seconds())
}

fn run(
    kind: IndexKind,
    settings: &Settings,
    on_device: bool,
    keys: u64,
) -> Result<Vec<Row>, IndexError> {
    let (mut index, mut now) = kind.open(store(on_device, keys), settings, Nanos::ZERO)?;
    let row = |index: &dyn Index, workload, operations: u64, operations_per_s| {
        let (stats, operations) = (index.stats(), operations as f64);
        Row {
            index: kind.to_string(),
            store: if on_device { "device" } else { "memory" },
            workload,
            operations_per_s,
            hit_ratio: stats.pool.hits() as f64 / (stats.pool.accesses().max(1)) as f64,
            reads_per_operation: stats.reads as f64 / operations,
            writes_per_operation: stats.writes as f64 / operations,
            comparisons_per_operation: stats.comparisons as f64 / operations,
        }
    };
    let mut rows = Vec::new();
    let half = keys / 2;
    for (workload, part) in [("first half", 0..half), ("second half", half..keys)] {
        index.reset_stats();
        let (clock, inserted) = (Stopwatch::start(), part.end - part.start);
        for i in part {
            now = index.insert(now, key(i), i & 0xffff)?;
        }
        let rate = inserted as f64 / clock.seconds();
        rows.push(row(index.as_ref(), workload, inserted, rate));
    }
    index.flush(now)?;
    let mut dice = Dice(0x1234_5678_9ABC_DEF1);
    for (workload, updates) in [("lookups", false), ("half updates", true)] {
        slice(index.as_mut(), &mut dice, keys, updates)?;
        index.reset_stats();
        let mut best: f64 = 0.0;
        for _ in 0..SLICES {
            best = best.max(slice(index.as_mut(), &mut dice, keys, updates)?);
        }
        let operations = u64::from(SLICES) * u64::from(OPERATIONS);
        rows.push(row(index.as_ref(), workload, operations, best));
    }
    Ok(rows)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name: &str, default: u64| {
        value(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let keys = number("--keys", 500_000);
    let mut settings = Settings::new()
        .with("value_bytes", 4)
        .with("memory", number("--memory", 6 << 20));
    for (name, set) in arguments.iter().zip(arguments.iter().skip(1)) {
        if let Some((setting, value)) = set.split_once('=').filter(|_| name == "--set") {
            settings.set(setting, value);
        }
    }
    for name in value("--indexes")
        .unwrap_or("bptree,lazy-bptree,sal".into())
        .split(',')
    {
        let Some(kind) = IndexKind::by_name(name) else {
            eprintln!("--indexes: there is no index {name}");
            return ExitCode::FAILURE;
        };
        for on_device in [false, true] {
            match run(kind, &settings, on_device, keys) {
                Ok(rows) => rows.iter().for_each(|row| show(row, &arguments)),
                Err(error) => {
                    eprintln!("{name}: {error}");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    ExitCode::SUCCESS
}

fn show(row: &Row, arguments: &[String]) {
    if arguments.iter().any(|argument| argument == "--json") {
        println!("{}", serde_json::to_string(row).expect("a row"));
    } else {
        println!(
            "{:12} {:6} {:12} {:>9.0} operations/s, hits {:.3}, {:.3} reads, {:.3} writes and \
             {:.1} comparisons each",
            row.index,
            row.store,
            row.workload,
            row.operations_per_s,
            row.hit_ratio,
            row.reads_per_operation,
            row.writes_per_operation,
            row.comparisons_per_operation
        );
    }
}
