//! `flagstone-sqlite lives`: measures the cost of ten kinds of use of a database or disk, compares
//! it with SQLite's write-ahead log, and checks the bounds of docs/store.md.
//!
//! ```text
//!   this process ──> one process for each life and way of keeping ──> one line of JSON
//! ```
//!
//! Each life runs in a process of its own, so that the kernel's counts of bytes, memory and
//! descriptors cover that life alone. [`life`] has the lives, [`bounds`] the limits on their cost.
//! Times are given as ratios to those of SQLite's log in the same run.

mod bounds;
mod life;

use bounds::Bound;
use flagstone_terminal::{Failure, plain_table, progress_bar, say};
use life::{Keeping, Life, Task};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Measure the cost of several simulated lives of databases and a disk, compared with SQLite's log;
/// exit code 1 if a bound is exceeded.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// A folder on the file system to measure.
    folder: PathBuf,
    /// Lives, separated by commas [default: all].
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Life>,
    /// Factor by which each life is lengthened.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    times: u64,
    /// Seed of the written data.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use a rollback journal instead of a store: a control, which must exceed the bounds.
    #[arg(long)]
    control: bool,
    /// Count the bytes that reach the device below the folder, including its file system's journal.
    /// No other process may write to that device.
    #[arg(long)]
    of_device: bool,
    /// Print one JSON object per row, one per line.
    #[arg(long)]
    json: bool,
    /// Run one life in this process and print its cost.
    #[arg(long, hide = true, value_enum, requires = "keeping")]
    alone: Option<Life>,
    #[arg(long, hide = true, value_enum)]
    keeping: Option<Keeping>,
}

/// A life and its cost.
struct Row {
    life: Life,
    keeping: Keeping,
    costs: Value,
    /// The cost of the same life with SQLite's log, if measured.
    log: Option<Value>,
}

impl Row {
    fn get(&self, what: &str) -> f64 {
        number(&self.costs, what)
    }

    /// The cost `what` divided by its cost with SQLite's log.
    fn of_log(&self, what: &str) -> Option<f64> {
        let log = self.log.as_ref()?;
        Some(self.get(what) / number(log, what))
    }

    /// The bounds that apply to the life, each with the measured value and the limit.
    fn bounds(&self) -> Vec<(Bound, f64, f64)> {
        Bound::ALL
            .into_iter()
            .filter_map(|bound| {
                let (seen, most) = bound.of(self)?;
                Some((bound, seen, most))
            })
            .collect()
    }

    fn is_above(&self) -> bool {
        self.bounds().iter().any(|(_, seen, most)| seen > most)
    }

    fn json(&self) -> Value {
        let bounds = self.bounds().into_iter().map(|(bound, seen, most)| {
            json!({ "bound": bound.name(), "seen": seen, "most": most, "is_above": seen > most })
        });
        json!({
            "life": self.life.name(),
            "kept_by": self.keeping.name(),
            "costs": self.costs,
            "written_of_log": self.of_log("written"),
            "p999_of_log": self.of_log("p999_ns"),
            "opening_of_log": self.of_log("opening_ns"),
            "bounds": bounds.collect::<Vec<_>>(),
        })
    }

    fn cells(&self) -> Vec<String> {
        let megabytes = |what: &str| format!("{:.1}", self.get(what) / 1e6);
        let ratio = |ratio: Option<f64>| ratio.map_or(String::new(), |it| format!("{it:.2}"));
        let above = self
            .bounds()
            .into_iter()
            .filter(|(_, seen, most)| seen > most);
        let above: Vec<&str> = above.map(|(bound, ..)| bound.name()).collect();
        vec![
            self.life.name().into(),
            self.keeping.name().into(),
            megabytes("given"),
            megabytes("written"),
            ratio(self.of_log("written")),
            megabytes("room_most"),
            megabytes("live_most"),
            megabytes("room"),
            megabytes("live"),
            megabytes("memory"),
            format!("{}", self.get("descriptors")),
            ratio(self.of_log("p999_ns")),
            ratio(self.of_log("opening_ns")),
            above.join(", "),
        ]
    }
}

fn number(costs: &Value, what: &str) -> f64 {
    costs[what].as_f64().unwrap_or(f64::NAN)
}

/// Runs each life with SQLite's log and in a store, each in a process of its own, and prints a row
/// for each. A process that was started for one life (`--alone`) runs it and prints its cost.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let task = |life, keeping| Task {
        life,
        keeping,
        times: args.times,
        seed: args.seed,
        of_device: args.of_device,
    };
    if let (Some(life), Some(keeping)) = (args.alone, args.keeping) {
        say(&task(life, keeping).live(&args.folder)?.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let lives = match args.only.as_slice() {
        [] => Life::ALL.to_vec(),
        only => only.to_vec(),
    };
    let bar = progress_bar(2 * lives.len() as u64, "living");
    let mut rows = Vec::new();
    for life in lives {
        // The cost with SQLite's log, with which the next row is compared.
        let mut log = None;
        let held = if args.control && life.has_log() {
            Keeping::Journal
        } else {
            Keeping::Store
        };
        for keeping in [Keeping::Wal, held] {
            bar.inc(1);
            if keeping == Keeping::Wal && !life.has_log() {
                continue;
            }
            let costs = apart(args, &task(life, keeping))?;
            let row = Row {
                life,
                keeping,
                costs: costs.clone(),
                log: log.clone(),
            };
            log = Some(costs);
            rows.push(row);
        }
    }
    bar.finish_and_clear();
    print(&rows, args.json);
    let is_above = |row: &&Row| row.keeping != Keeping::Wal && row.is_above();
    match rows.iter().filter(is_above).count() {
        0 => Ok(ExitCode::SUCCESS),
        above => {
            eprintln!("{above} of {} rows exceed a bound", rows.len());
            Ok(ExitCode::from(1))
        }
    }
}

/// Runs a life in a child process, so that its peak of memory is its own. Returns its cost.
fn apart(args: &Args, task: &Task) -> Result<Value, Failure> {
    let folder = tempfile::tempdir_in(&args.folder)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("lives").arg(folder.path());
    command.args(["--alone", task.life.name()]);
    command.args(["--keeping", task.keeping.name()]);
    command.args(["--times", &task.times.to_string()]);
    command.args(["--seed", &task.seed.to_string()]);
    if task.of_device {
        command.arg("--of-device");
    }
    let ended = command.stderr(Stdio::inherit()).output()?;
    if !ended.status.success() {
        return Err(Failure::Failed(format!(
            "the process of the life `{}` with {} ended with {}",
            task.life.name(),
            task.keeping.name(),
            ended.status
        )));
    }
    Ok(serde_json::from_slice(&ended.stdout)?)
}

fn print(rows: &[Row], as_json: bool) {
    if as_json {
        rows.iter().for_each(|row| say(&row.json().to_string()));
        return;
    }
    let mut table = plain_table();
    table.set_header([
        "life", "kept by", "given", "written", "of log", "most", "live", "end", "live", "memory",
        "fds", "p99.9", "opening", "above",
    ]);
    for row in rows {
        table.add_row(row.cells());
    }
    say(&table.trim_fmt());
    say(
        "\ngiven, written: MB; most, live: size of the file and of the data in it, in MB, when \
         their ratio was largest; end, live: the same after VACUUM or a compaction; memory: peak \
         of the process, MB; fds: descriptors; of log, p99.9, opening: bytes written, a commit, \
         and an opening with its first query, relative to SQLite's WAL; above: the bounds that are \
         exceeded",
    );
}

/// The path of a life's file in `folder`.
fn file_in(folder: &Path) -> PathBuf {
    folder.join("life.db")
}
