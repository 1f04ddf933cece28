//! `flagstone-versus ycsb`: the YCSB workloads, with durable commits and several threads, in
//! Flagstone's tables and in widely used stores.
//!
//! This process only starts children ([`phases`]) and prints their measurements. Each store is
//! first checked: it must return what was written, and wait for the medium at each commit. Then it
//! is loaded in one process, and each cell of the grid is measured in another. At the end a
//! committing process is killed, and another one opens the store.

mod phases;
mod stores;
mod table;
mod work;

use crate::limit;
use anyhow::{Context, Result, bail};
use clap::builder::PossibleValuesParser;
use phases::Phase;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use stores::{NEVER_SYNCS, STORES};
use work::WORKLOADS;

pub(crate) use work::value;

/// Number of committing threads in a process that is killed, besides the one whose commits are
/// counted.
const KILLED_THREADS: usize = 4;

/// Compare Flagstone's tables with other stores under the YCSB workloads.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Ycsb {
    /// Stores, separated by commas.
    #[arg(long, value_delimiter = ',', default_values = names(), value_parser = known_names())]
    stores: Vec<String>,
    /// Workloads: YCSB's letters a to f, u (updates of uniformly drawn records) and p (reads of
    /// uniformly drawn records).
    #[arg(long, default_value = "abcdefup", value_parser = workloads)]
    workloads: String,
    /// Numbers of threads, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8], value_parser = count(1, 256))]
    threads: Vec<u64>,
    /// Writes per durable commit, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1], value_parser = count(1, 1 << 20))]
    batches: Vec<u64>,
    /// Number of records, with keys of 8 bytes.
    #[arg(long, default_value_t = 1_000_000, value_parser = count(1_000, 1 << 32))]
    records: u64,
    /// Bytes per value.
    #[arg(long, default_value_t = 100, value_parser = count(8, 1 << 20))]
    value: u64,
    /// Load the records in key order. Otherwise each commit of the load changes pages all over the
    /// store, which is slow for millions of records.
    #[arg(long)]
    ordered: bool,
    /// Seconds to measure each cell, after a warm-up half as long.
    #[arg(long, default_value_t = 4.0, value_parser = seconds)]
    seconds: f64,
    /// Bytes of memory for caches and the system's page cache [default: 10 % of the data].
    #[arg(long)]
    memory: Option<u64>,
    /// Bytes of memory beyond --memory: stacks, buffers, a library's initial allocations.
    #[arg(long, default_value_t = 24 << 20)]
    slack: u64,
    /// Folder for the files.
    #[arg(long)]
    dir: PathBuf,
    /// Keep the loaded stores afterwards, and reuse existing ones.
    #[arg(long)]
    keep: bool,
    /// Only check that the stores return what was written, and that commits are durable.
    #[arg(long)]
    check: bool,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object per cell, one per line.
    #[arg(long)]
    json: bool,
    /// Run one phase, as a child process.
    #[arg(long, hide = true)]
    phase: Option<Phase>,
    /// The number of the first record that may be inserted.
    #[arg(long, hide = true, default_value_t = 0)]
    first_new: u64,
    /// Number of acknowledged records from `--first-new` on that must be found.
    #[arg(long, hide = true, default_value_t = 0)]
    acknowledged: u64,
}

/// The measurements of a cell; fields that do not apply are absent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Cell {
    store: String,
    workload: String,
    records: u64,
    value: u64,
    threads: u64,
    batch: u64,
    /// The memory limit, and whether it could be set.
    memory: u64,
    limited: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<YcsbRun>,
    #[serde(skip_serializing_if = "Option::is_none")]
    opened: Option<Opened>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checked: Option<Checked>,
    file_bytes: u64,
}

/// Measurements of the operations.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct YcsbRun {
    per_s: f64,
    p50_us: f64,
    p999_us: f64,
    /// Bytes written to the device per operation, by any process, since the kernel does not
    /// attribute a file system's own writes to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<f64>,
    /// Bytes fetched from the device for the process, per operation.
    read: f64,
}

/// The first opening and read of a store whose process was killed.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Opened {
    open_ms: f64,
    /// Acknowledged commits that were looked for and found after the kill.
    found: u64,
}

/// Median times of a commit of one record, and of a 4 KiB write with a sync.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Checked {
    commit_us: f64,
    sync_us: f64,
}

impl Checked {
    /// Whether commits wait for the medium. A commit that takes less than half as long as a synced
    /// write cannot be durable.
    fn waits(&self) -> bool {
        self.commit_us * 2.0 >= self.sync_us
    }
}

fn names() -> Vec<&'static str> {
    STORES.iter().map(|store| store.0).collect()
}

fn known_names() -> PossibleValuesParser {
    // The control is hidden in the help, but its child processes are started by this name.
    let control = clap::builder::PossibleValue::new(NEVER_SYNCS).hide(true);
    let known = names().into_iter().map(clap::builder::PossibleValue::new);
    PossibleValuesParser::new(known.chain([control]))
}

fn count(least: u64, most: u64) -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(least..=most)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _ => Err("must be a number above 0 and at most 3600".into()),
    }
}

fn workloads(text: &str) -> Result<String, String> {
    let known = |letter| WORKLOADS.iter().any(|workload| workload.letter == letter);
    let all: String = WORKLOADS.iter().map(|workload| workload.letter).collect();
    match text.chars().find(|&letter| !known(letter)) {
        Some(other) => Err(format!(
            "there is no workload `{other}`: use letters of {all}"
        )),
        None if text.is_empty() => Err(format!("name at least one of {all}")),
        None => Ok(text.into()),
    }
}

pub(crate) fn main(args: &Ycsb) -> Result<()> {
    match args.phase {
        Some(phase) => {
            let cell = args.do_phase(phase)?;
            println!("{}", serde_json::to_string(&cell)?);
            Ok(())
        }
        None => args.parent(),
    }
}

/// One cell of the grid.
#[derive(Debug, Clone, Copy)]
struct At<'a> {
    store: &'a str,
    workload: char,
    threads: u64,
    batch: u64,
}

impl<'a> At<'a> {
    /// A cell for phases in which the workload does not matter.
    fn any(store: &'a str) -> At<'a> {
        At {
            store,
            workload: 'u',
            threads: 1,
            batch: 1,
        }
    }
}

impl Ycsb {
    fn data_bytes(&self) -> u64 {
        self.records * (8 + self.value)
    }

    fn memory(&self) -> u64 {
        self.memory.unwrap_or(self.data_bytes() / 10)
    }

    fn path(&self, store: &str) -> PathBuf {
        self.dir
            .join(format!("{store}-{}-{}", self.records, self.value))
    }

    fn parent(&self) -> Result<()> {
        std::fs::create_dir_all(&self.dir)
            .with_context(|| format!("making the folder {}", self.dir.display()))?;
        self.check()?;
        if self.check {
            return Ok(());
        }
        let (mut cells, mut lost) = (Vec::new(), Vec::new());
        for store in &self.stores {
            let path = self.path(store);
            // This file counts the processes that may have inserted records, so that the next one
            // uses other record numbers.
            let loaded = path.with_extension("loaded");
            let mut rounds = std::fs::read_to_string(&loaded)
                .ok()
                .and_then(|it| it.parse().ok());
            if !self.keep || rounds.is_none() {
                remove(&path);
                eprintln!("{store}: loading {} records", self.records);
                if let Err(error) = self.phase(At::any(store), Phase::Load, 0, 0) {
                    lose(&mut lost, &error);
                    remove(&path);
                    continue;
                }
                rounds = Some(0);
            }
            let mut rounds = rounds.unwrap_or(0);
            let mut next = || {
                rounds += 1;
                std::fs::write(&loaded, rounds.to_string())?;
                anyhow::Ok(rounds << 40)
            };
            self.measure(store, &mut next, &mut cells, &mut lost)?;
            if !self.keep {
                remove(&path);
                remove(&loaded);
            }
        }
        if !self.json {
            println!("{}", table::shown(self, &cells, &lost));
        }
        Ok(())
    }

    /// Checks the stores, and a control that never syncs, which must be detected.
    fn check(&self) -> Result<()> {
        for store in self.stores.iter().map(String::as_str).chain([NEVER_SYNCS]) {
            let path = phases::check_path(&self.dir, store);
            remove(&path);
            let cell = self.phase(At::any(store), Phase::Check, 0, 0);
            remove(&path);
            let checked = cell?.checked.context("the figures of the check")?;
            eprintln!(
                "{store}: values are correct; a commit takes {:.0} us, a write and a sync {:.0} us",
                checked.commit_us, checked.sync_us
            );
            match checked.waits() {
                false if store != NEVER_SYNCS => bail!("{store} does not wait for its commits to \
                                                        be durable"),
                true if store == NEVER_SYNCS => bail!(
                    "cannot detect a store that never syncs: syncs cost nothing on the medium of \
                     {}; set --dir to a folder on a disk",
                    self.dir.display()
                ),
                _ => {}
            }
        }
        Ok(())
    }

    fn measure(
        &self,
        store: &str,
        next: &mut dyn FnMut() -> Result<u64>,
        cells: &mut Vec<Cell>,
        lost: &mut Vec<String>,
    ) -> Result<()> {
        let mut add = |cell: Cell| {
            if self.json {
                println!("{}", serde_json::to_string(&cell).expect("numbers"));
            }
            cells.push(cell);
        };
        for workload in self.workloads.chars() {
            for &threads in &self.threads {
                for &batch in &self.batches {
                    eprintln!("{store}: {workload}, {threads} threads, commits of {batch}");
                    let at = At {
                        store,
                        workload,
                        threads,
                        batch,
                    };
                    match self.phase(at, Phase::Run, next()?, 0) {
                        Ok(cell) => add(cell),
                        Err(error) => lose(lost, &error),
                    }
                }
            }
        }
        eprintln!("{store}: opening after a kill");
        let first_new = next()?;
        let acknowledged = match self.kill(store, first_new) {
            Ok(acknowledged) => acknowledged,
            Err(error) => {
                lose(lost, &error);
                return Ok(());
            }
        };
        add(self.phase(At::any(store), Phase::Open, first_new, acknowledged)?);
        Ok(())
    }

    fn command(
        &self,
        at: At<'_>,
        phase: Phase,
        first_new: u64,
        acknowledged: u64,
    ) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("ycsb")
            .arg("--dir")
            .arg(&self.dir)
            .stdout(Stdio::piped());
        let mut with = |name: &str, value: &dyn ToString| {
            command.arg(name).arg(value.to_string());
        };
        with("--phase", &phase.name());
        with("--stores", &at.store);
        with("--workloads", &at.workload);
        with("--threads", &at.threads);
        with("--batches", &at.batch);
        with("--records", &self.records);
        with("--value", &self.value);
        with("--seconds", &self.seconds);
        with("--memory", &self.memory());
        with("--slack", &self.slack);
        with("--seed", &self.seed);
        with("--first-new", &first_new);
        with("--acknowledged", &acknowledged);
        if self.ordered {
            command.arg("--ordered");
        }
        Ok(command)
    }

    fn phase(&self, at: At<'_>, phase: Phase, first_new: u64, acknowledged: u64) -> Result<Cell> {
        let child = self.command(at, phase, first_new, acknowledged)?.spawn()?;
        let pid = child.id();
        let output = child.wait_with_output()?;
        let was_killed = limit::gone(pid);
        if !output.status.success() {
            let what = match phase {
                Phase::Run => format!(
                    "{}, {} threads, commits of {}",
                    at.workload, at.threads, at.batch
                ),
                other => other.name().to_string(),
            };
            let why = if was_killed { "the system killed it for exceeding the memory limit".into() } else { output.status.to_string() };
            bail!("{}: {what}: {why}", at.store);
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Kills a committing process. Returns the number of commits that one of its threads
    /// acknowledged.
    fn kill(&self, store: &str, first_new: u64) -> Result<u64> {
        let at = At {
            threads: KILLED_THREADS as u64,
            ..At::any(store)
        };
        let mut child = self.command(at, Phase::Crash, first_new, 0)?.spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        let (mut acknowledged, mut until) = (0, None);
        while until.is_none_or(|until| Instant::now() < until) {
            let Some(line) = lines.next().transpose()? else {
                child.wait()?;
                let why = if limit::gone(child.id()) { ": it exceeded the memory limit" } else { "" };
                bail!("{store}: the process ended before it could be killed{why}");
            };
            let seconds = Duration::from_secs_f64(self.seconds);
            until.get_or_insert_with(|| Instant::now() + seconds);
            acknowledged = line.parse::<u64>()?;
        }
        child.kill()?;
        child.wait()?;
        limit::gone(child.id());
        // The output before the kill. The last line may be truncated.
        for line in lines.map_while(Result::ok) {
            acknowledged = line.parse::<u64>().unwrap_or(0).max(acknowledged);
        }
        Ok(acknowledged)
    }
}

/// The files of a store, including SQLite's side files.
fn files(path: &Path) -> impl Iterator<Item = PathBuf> {
    let beside = |end| {
        let mut other = path.as_os_str().to_owned();
        other.push(end);
        PathBuf::from(other)
    };
    ["", "-wal", "-shm"]
        .map(beside)
        .into_iter()
        .filter(|path| path.exists())
}

/// Reports a cell without a result, at once and again below the table.
fn lose(lost: &mut Vec<String>, error: &anyhow::Error) {
    eprintln!("no row for {error:#}");
    lost.push(format!("{error:#}"));
}

fn remove(path: &Path) {
    for path in files(path) {
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_dir_all(&path);
    }
}
