//! Index operations a second of wall clock, over pages in memory: what the code of an index costs
//! when nothing below it takes time.
//!
//! ```text
//!   cargo bench -p flagstone --bench index_ops -- [--indexes a,b] [--records N] [--operations N]
//!                                                 [--memory SHARE] [--set name=value]…
//! ```
//!
//! Random keys fill the index; then half of the operations search for one of them and half give
//! one a new value, uniformly. The memory is a share of the pages that the records need at a load
//! of 0.75, so that about this share of the accesses is hit. One thread; the fill is shown apart.
//! Reads, writes and comparisons are those of one operation.

use flagstone::index::{IndexKind, MemStore, Settings};
use flagstone::units::Nanos;
use std::process::ExitCode;
use std::time::Instant;

const PAGE_BYTES: usize = 4096;

/// Random numbers from a seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }
}

fn run(kind: IndexKind, settings: &Settings, records: u64, operations: u64) -> Result<(), String> {
    let say = |error: flagstone::index::IndexError| error.to_string();
    let store = Box::new(MemStore::new(PAGE_BYTES, 1 << 22));
    let (mut index, mut now) = kind.open(store, settings, Nanos::ZERO).map_err(say)?;
    let key = |n: u64| Dice(n).next();
    let start = Instant::now();
    for n in 0..records {
        now = index.insert(now, key(n), n).map_err(say)?;
    }
    let fill = records as f64 / start.elapsed().as_secs_f64();
    let filled = index.stats();
    let share = |part: u64| part as f64 / records as f64;
    print!(
        "{:12} {fill:>10.0} {:>9.4} {:>9.4}",
        kind.info().name,
        share(filled.reads),
        share(filled.writes)
    );
    index.reset_stats();
    let mut dice = Dice(1);
    let start = Instant::now();
    for i in 0..operations {
        let n = dice.next() % records;
        if i.is_multiple_of(2) {
            let (found, done) = index.get(now, key(n)).map_err(say)?;
            now = done;
            if found.is_none() {
                return Err(format!("{kind} lost key {}", key(n)));
            }
        } else {
            now = index.update(now, key(n), i).map_err(say)?;
        }
    }
    let rate = operations as f64 / start.elapsed().as_secs_f64();
    let stats = index.stats();
    let share = |part: u64| part as f64 / operations as f64;
    println!(
        " {rate:>10.0} {:>9.4} {:>9.4} {:>9.1}",
        share(stats.reads),
        share(stats.writes),
        share(stats.comparisons),
    );
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).map(String::as_str)
    };
    let number = |name, default: f64| value(name).map_or(Ok(default), str::parse);
    let (Ok(records), Ok(operations), Ok(memory)) = (
        number("--records", 1e6),
        number("--operations", 3e6),
        number("--memory", 0.9),
    ) else {
        eprintln!("--records, --operations and --memory are numbers");
        return ExitCode::FAILURE;
    };
    let bytes = records * 16.0 / 0.75 * memory;
    let mut settings = Settings::new().with("memory", bytes as u64);
    for (name, given) in arguments.iter().zip(arguments.iter().skip(1)) {
        if let ("--set", Some((setting, value))) = (name.as_str(), given.split_once('=')) {
            settings.set(setting, value);
        }
    }
    println!(
        "{:12} {:>10} {:>9} {:>9} {:>10} {:>9} {:>9} {:>9}",
        "index", "inserts/s", "reads", "writes", "ops/s", "reads", "writes", "compared"
    );
    let names = IndexKind::ALL.iter().map(|kind| kind.info().name);
    let all: Vec<&str> = names.collect();
    let chosen = value("--indexes").map_or(all, |names| names.split(',').collect());
    for name in chosen {
        let Some(kind) = IndexKind::by_name(name) else {
            eprintln!("there is no index `{name}`");
            return ExitCode::FAILURE;
        };
        if let Err(error) = run(kind, &settings, records as u64, operations as u64) {
            eprintln!("{name}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
