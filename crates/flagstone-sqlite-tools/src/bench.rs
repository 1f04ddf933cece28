//! `flagstone-sqlite bench`: the same statements on each way of keeping a database, in turn, on one
//! file system.
//!
//! The ways take turns in short rounds, so that whatever else the machine does meets all of them.
//! Times are those of this machine and this run: what carries over are their ratios.

use crate::disk::Counters;
use crate::engine::Engine;
use flagstone_terminal::{Failure, progress_bar, say};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rusqlite::Connection;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Time SQLite on a store beside its own journal modes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A folder on the file system to measure.
    folder: PathBuf,
    /// Size of each database, in megabytes.
    #[arg(long, default_value_t = 100)]
    megabytes: u64,
    /// Transactions of each workload.
    #[arg(long, default_value_t = 2_000)]
    transactions: u64,
    /// Workloads, separated by commas: update-1, update-10, mixed, read, load.
    #[arg(long, default_value = "update-1,update-10,mixed,read,load")]
    workloads: String,
    /// Seed of all choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object a row, one a line.
    #[arg(long)]
    json: bool,
}

/// Transactions of one way before it is the turn of the next.
const ROUND: u64 = 100;
const VALUE_BYTES: usize = 100;
/// Bytes of a row in a database, with what surrounds it.
const ROW_BYTES: u64 = 118;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Workload {
    /// So many random rows are updated in each transaction.
    Update(u64),
    /// Nine of ten transactions read ten rows, one updates one.
    Mixed,
    /// Ten random rows are read.
    Read,
    /// A hundred rows are appended.
    Load,
}

impl Workload {
    const ALL: [(Workload, &'static str); 5] = [
        (Workload::Update(1), "update-1"),
        (Workload::Update(10), "update-10"),
        (Workload::Mixed, "mixed"),
        (Workload::Read, "read"),
        (Workload::Load, "load"),
    ];

    fn of(list: &str) -> Result<Vec<(Workload, &'static str)>, Failure> {
        let one = |name: &str| {
            let mut all = Workload::ALL.into_iter();
            all.find(|(_, known)| *known == name.trim()).ok_or_else(|| {
                let known = Workload::ALL.map(|(_, known)| known).join(", ");
                Failure::Usage(format!("there is no workload `{name}`: there are {known}"))
            })
        };
        list.split(',').map(one).collect()
    }
}

/// One database, and what was measured on it.
struct Lane {
    engine: Engine,
    db: Connection,
    dice: Pcg64Mcg,
    rows: u64,
    times: Vec<Duration>,
    disk: Counters,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let workloads = Workload::of(&args.workloads)?;
    if args.transactions == 0 || args.megabytes == 0 {
        return Err(Failure::Usage(
            "--transactions and --megabytes must be at least 1".into(),
        ));
    }
    let folder = tempfile::tempdir_in(&args.folder)?;
    let rows = args.megabytes * 1_000_000 / ROW_BYTES;
    let bar = progress_bar(Engine::ALL.len() as u64, "filling");
    let mut lanes = Vec::new();
    for (engine, name) in Engine::ALL {
        lanes.push(fill(engine, &folder.path().join(name), rows, args.seed)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header([
        "workload", "kept by", "tx/s", "p50 us", "p99 us", "p99.9 us", "max us", "KiB", "flushes",
        "file MB",
    ]);
    for (workload, name) in workloads {
        measure(&mut lanes, workload, name, args.transactions, folder.path())?;
        for lane in &mut lanes {
            let row = Row::of(lane, args.transactions, folder.path())?;
            if args.json {
                say(&row.json(name).to_string());
            } else {
                table.add_row(row.cells(name));
            }
        }
    }
    if !args.json {
        say(&table.trim_fmt());
        say(&format!(
            "\nKiB and flushes: what {} was given, a transaction, by everything on it meanwhile; \
             wal-normal does not wait for its commits to be durable\nThe first row of each \
             workload is the one to compare with; times are of this machine and this run",
            "the disk"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn fill(engine: Engine, path: &Path, rows: u64, seed: u64) -> Result<Lane, Failure> {
    let db = engine.open(path)?;
    db.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB NOT NULL); BEGIN")?;
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    {
        let mut insert = db.prepare("INSERT INTO t (id, v) VALUES (?1, ?2)")?;
        for id in 0..rows {
            insert.execute((id, value(&mut dice).as_slice()))?;
        }
    }
    db.execute_batch("COMMIT")?;
    Ok(Lane {
        engine,
        db,
        dice: Pcg64Mcg::seed_from_u64(seed),
        rows,
        times: Vec::new(),
        disk: Counters::default(),
    })
}

fn value(dice: &mut Pcg64Mcg) -> [u8; VALUE_BYTES] {
    let mut bytes = [0; VALUE_BYTES];
    dice.fill(&mut bytes[..]);
    bytes
}

/// All ways in turn, some transactions each, until each has had its number.
fn measure(
    lanes: &mut [Lane],
    workload: Workload,
    name: &str,
    transactions: u64,
    folder: &Path,
) -> Result<(), Failure> {
    let bar = progress_bar(transactions * lanes.len() as u64, name);
    for lane in &mut *lanes {
        (lane.times, lane.disk) = (Vec::new(), Counters::default());
    }
    let mut done = 0;
    while done < transactions {
        let round = ROUND.min(transactions - done);
        for lane in &mut *lanes {
            let before = Counters::of(folder).unwrap_or_default();
            for _ in 0..round {
                let start = Instant::now();
                transaction(lane, workload)?;
                lane.times.push(start.elapsed());
            }
            let after = Counters::of(folder).unwrap_or_default();
            let used = after.since(before);
            lane.disk.bytes += used.bytes;
            lane.disk.flushes += used.flushes;
            bar.inc(round);
        }
        done += round;
    }
    bar.finish_and_clear();
    Ok(())
}

fn transaction(lane: &mut Lane, workload: Workload) -> Result<(), Failure> {
    let Lane { db, dice, rows, .. } = lane;
    let workload = match workload {
        Workload::Mixed if dice.random_range(0..10) == 0 => Workload::Update(1),
        Workload::Mixed => Workload::Read,
        other => other,
    };
    match workload {
        Workload::Update(count) => {
            let mut update = db.prepare_cached("UPDATE t SET v = ?2 WHERE id = ?1")?;
            let mut update = |dice: &mut Pcg64Mcg| {
                let id = dice.random_range(0..*rows);
                update.execute((id, value(dice).as_slice()))
            };
            if count == 1 {
                update(dice)?;
            } else {
                db.execute_batch("BEGIN")?;
                for _ in 0..count {
                    update(dice)?;
                }
                db.execute_batch("COMMIT")?;
            }
        }
        Workload::Read | Workload::Mixed => {
            let mut get = db.prepare_cached("SELECT v FROM t WHERE id = ?1")?;
            db.execute_batch("BEGIN")?;
            for _ in 0..10 {
                let id = dice.random_range(0..*rows);
                let found = get.query_row([id], |row| Ok(row.get_ref(0)?.as_blob()?.len()))?;
                assert_eq!(found, VALUE_BYTES);
            }
            db.execute_batch("COMMIT")?;
        }
        Workload::Load => {
            db.execute_batch("BEGIN")?;
            let mut insert = db.prepare_cached("INSERT INTO t (id, v) VALUES (?1, ?2)")?;
            for _ in 0..100 {
                insert.execute((*rows, value(dice).as_slice()))?;
                *rows += 1;
            }
            db.execute_batch("COMMIT")?;
        }
    }
    Ok(())
}

/// What was measured on one database under one workload.
struct Row {
    engine: Engine,
    rate: f64,
    micros: [u128; 4],
    kib: f64,
    flushes: f64,
    megabytes: f64,
}

impl Row {
    fn of(lane: &mut Lane, transactions: u64, folder: &Path) -> Result<Row, Failure> {
        let total: Duration = lane.times.iter().sum();
        lane.times.sort_unstable();
        let times = &lane.times;
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_micros();
        let name = lane.engine.name();
        let mut bytes = 0;
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(name) {
                bytes += entry.metadata()?.len();
            }
        }
        let count = transactions as f64;
        Ok(Row {
            engine: lane.engine,
            rate: count / total.as_secs_f64(),
            micros: [at(0.5), at(0.99), at(0.999), at(1.0)],
            kib: lane.disk.bytes as f64 / 1024.0 / count,
            flushes: lane.disk.flushes as f64 / count,
            megabytes: bytes as f64 / 1e6,
        })
    }

    fn cells(&self, workload: &str) -> Vec<String> {
        let mut cells = vec![workload.to_string(), self.engine.name().to_string()];
        cells.push(format!("{:.0}", self.rate));
        cells.extend(self.micros.iter().map(u128::to_string));
        cells.extend([self.kib, self.flushes, self.megabytes].map(|value| format!("{value:.1}")));
        cells
    }

    fn json(&self, workload: &str) -> serde_json::Value {
        let [p50, p99, p999, max] = self.micros.map(|micros| micros as u64);
        json!({
            "workload": workload,
            "engine": self.engine.name(),
            "transactions_per_s": self.rate,
            "p50_us": p50,
            "p99_us": p99,
            "p999_us": p999,
            "max_us": max,
            "disk_kib_per_transaction": self.kib,
            "disk_flushes_per_transaction": self.flushes,
            "file_mb": self.megabytes,
        })
    }
}
