//! `flagstone-sqlite bench`: runs the same statements with each engine (a store, or a journal mode
//! of SQLite), in turn, on one file system.
//!
//! Engines take turns in short rounds, so that other load on the machine affects all of them alike.
//! Absolute times are valid for this machine and run only; ratios are more general.
//!
//! [`rows`] and [`tpcc`] are the clients, [`lane`] runs and measures them, [`report`] prints the
//! results.

mod lane;
mod report;
mod rows;
mod tpcc;

use crate::engine::Engine;
use flagstone_terminal::{Failure, progress_bar, say};
use lane::Lane;
use report::Row;
use rows::Mix;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compare the speed of SQLite on a store with SQLite's own journal modes.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// A folder on the file system to measure.
    folder: PathBuf,
    /// Size of each database of rows, in megabytes.
    #[arg(long, default_value_t = 100)]
    megabytes: u64,
    /// Transactions per workload, over all clients.
    #[arg(long, default_value_t = 2_000)]
    transactions: u64,
    /// Clients, each with a thread and a connection.
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Workloads, separated by commas: update-1, update-10, mixed, read, load, tpcc.
    #[arg(long, default_value = "update-1,update-10,mixed,read,load,tpcc")]
    workloads: String,
    /// Engines, separated by commas: flagstone (a store), or SQLite's journal modes wal-full,
    /// wal-normal, delete, truncate.
    #[arg(long, default_value = "flagstone,wal-full,wal-normal,delete,truncate")]
    engines: String,
    /// First update each database of rows, untimed, until twice its pages have been written. Stores
    /// then collect garbage steadily, and logs have been checkpointed many times.
    #[arg(long)]
    aged: bool,
    /// TPC-C warehouses, about 90 megabytes each.
    #[arg(long, default_value_t = 1)]
    warehouses: u32,
    /// Seed of all choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object per row, one per line.
    #[arg(long)]
    json: bool,
}

/// The workload of a benchmark's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Workload {
    /// Reads and updates of one table of rows.
    Rows(Mix),
    /// The transactions of TPC-C, in a database of its own.
    Tpcc,
}

impl Workload {
    const ALL: [(Workload, &'static str); 6] = [
        (Workload::Rows(Mix::Update(1)), "update-1"),
        (Workload::Rows(Mix::Update(10)), "update-10"),
        (Workload::Rows(Mix::Mixed), "mixed"),
        (Workload::Rows(Mix::Read), "read"),
        (Workload::Rows(Mix::Load), "load"),
        (Workload::Tpcc, "tpcc"),
    ];
}

/// Parses a comma-separated list into the values it names, in the order of the list.
fn named<T: Copy>(
    what: &str,
    known: &[(T, &'static str)],
    list: &str,
) -> Result<Vec<(T, &'static str)>, Failure> {
    let one = |name: &str| {
        let found = known.iter().find(|(_, known)| *known == name.trim());
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|(_, name)| *name).collect();
            let names = names.join(", ");
            Failure::Usage(format!("there is no {what} `{name}`: there are {names}"))
        })
    };
    list.split(',').map(one).collect()
}

/// Runs each workload on all engines in turn, and prints a row for each. Databases of rows are
/// filled once and serve all mixes; those of TPC-C are checked and removed.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let workloads = named("workload", &Workload::ALL, &args.workloads)?;
    let engines = named("way of keeping a database", &Engine::ALL, &args.engines)?;
    if args.transactions == 0 || args.megabytes == 0 || args.threads == 0 || args.warehouses == 0 {
        return Err(Failure::Usage(
            "--transactions, --megabytes, --threads and --warehouses must be at least 1".into(),
        ));
    }
    let folder = tempfile::tempdir_in(&args.folder)?;
    let mut databases = Databases::new(&engines, folder.path());
    let mut report = Vec::new();
    for (workload, name) in workloads {
        let lanes = databases.lanes(workload, args)?;
        lane::measure(lanes, name, args.transactions, folder.path())?;
        for lane in lanes {
            let row = Row::of(lane, name, args.threads)?;
            if args.json {
                say(&row.json().to_string())
            } else {
                report.push(row)
            }
        }
        for lane in databases.of_tpcc.drain(..) {
            tpcc::check(&lane)?;
            lane.remove()?;
        }
    }
    if !args.json {
        report::print(&report);
    }
    Ok(ExitCode::SUCCESS)
}

/// The databases of all engines, each created when a workload first needs it.
struct Databases<'a> {
    engines: &'a [(Engine, &'static str)],
    folder: &'a Path,
    of_rows: Vec<Lane>,
    /// Databases for TPC-C. The workload that uses them removes them.
    of_tpcc: Vec<Lane>,
}

impl<'a> Databases<'a> {
    fn new(engines: &'a [(Engine, &'static str)], folder: &'a Path) -> Databases<'a> {
        Databases {
            engines,
            folder,
            of_rows: Vec::new(),
            of_tpcc: Vec::new(),
        }
    }

    /// The databases for a workload, filled and with its clients.
    fn lanes(&mut self, workload: Workload, args: &Args) -> Result<&mut [Lane], Failure> {
        let lanes = match workload {
            Workload::Rows(mix) => {
                if self.of_rows.is_empty() {
                    self.of_rows = self.fill("rows", |lane| rows::fill(lane, args))?;
                }
                for lane in &mut self.of_rows {
                    lane.clients = rows::clients(lane, mix, args)?;
                }
                &mut self.of_rows
            }
            Workload::Tpcc => {
                self.of_tpcc = self.fill("tpcc", |lane| tpcc::fill(lane, args))?;
                for lane in &mut self.of_tpcc {
                    lane.clients = tpcc::clients(lane, args)?;
                }
                &mut self.of_tpcc
            }
        };
        Ok(lanes)
    }

    /// Creates and fills a database for each engine. `what` begins the file names.
    fn fill(
        &self,
        what: &str,
        fill: impl Fn(&mut Lane) -> Result<(), Failure>,
    ) -> Result<Vec<Lane>, Failure> {
        let bar = progress_bar(self.engines.len() as u64, "filling");
        let mut lanes = Vec::new();
        for &(engine, name) in self.engines {
            let path = self.folder.join(format!("{what}-{name}"));
            let mut lane = Lane::open(engine, path)?;
            fill(&mut lane)?;
            lanes.push(lane);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(lanes)
    }
}
