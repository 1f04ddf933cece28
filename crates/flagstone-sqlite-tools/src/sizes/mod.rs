//! `flagstone-sqlite sizes`: measures how much a commit writes for small and large databases, and
//! how large the file is, compared with SQLite's write-ahead log.
//!
//! A store may hold a megabyte used by one connection, or a hundred megabytes used by several. At
//! any size it may write at most [`BOUND`] times as much as a log that is checkpointed: for rows
//! SQLite's own, which is measured here; for pages, where no log exists, two bytes for each byte.
//!
//! The bytes are those that the kernel counts for this process, so that other processes do not
//! matter. [`kept`] has the ways to keep rows and pages.

mod kept;

use flagstone_terminal::{Failure, plain_table, progress_bar, say};
use kept::{Kept, Way};
pub(crate) use kept::{ROW_BYTES, value};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// A commit may write at most this many times what a log writes.
const BOUND: f64 = 1.1;

/// Bytes that a checkpointed log writes for each byte that it is given.
const LOG: f64 = 2.0;

/// Measure the bytes that a commit writes at several sizes, compared with SQLite's log; exit code 1
/// if the bound is exceeded.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// A folder on the file system to measure.
    folder: PathBuf,
    /// Sizes of the data in megabytes, separated by commas.
    #[arg(long, default_value = "1,2,4,8,16,64", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    sizes: Vec<u64>,
    /// Connections that commit at the same time, separated by commas.
    #[arg(long, default_value = "1,4", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=64))]
    connections: Vec<u32>,
    /// Commits to count, each of one row or page. Before them, all pages are written twice.
    #[arg(long, default_value_t = 8_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    commits: u64,
    /// Seed that selects the rows and pages to change.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure pages only, without the rule that bounds the written bytes: a control, which must
    /// exceed the bound.
    #[arg(long)]
    control: bool,
    /// Print one JSON object per row, one per line.
    #[arg(long)]
    json: bool,
}

/// The result of a measurement.
struct Row {
    megabytes: u64,
    way: Way,
    connections: u32,
    /// Bytes written per commit.
    written: f64,
    /// Bytes per commit that a log writes: measured, or derived from [`LOG`].
    log: f64,
    /// Bytes of the file, and of the data in it.
    file: u64,
    live: u64,
}

impl Row {
    fn ratio(&self) -> f64 {
        self.written / self.log
    }

    fn is_above(&self) -> bool {
        self.way != Way::Wal && self.ratio() > BOUND
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "megabytes": self.megabytes,
            "kept_by": self.way.name(),
            "connections": self.connections,
            "bytes_a_commit": self.written,
            "log_bytes_a_commit": self.log,
            "of_log": self.ratio(),
            "is_above": self.is_above(),
            "file_bytes": self.file,
            "live_bytes": self.live,
        })
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.megabytes.to_string(),
            self.way.name().to_string(),
            self.connections.to_string(),
            format!("{:.1}", self.written / 1024.0),
            format!("{:.1}", self.log / 1024.0),
            format!("{:.2}", self.ratio()),
            format!("{:.1}", self.file as f64 / 1e6),
            format!("{:.1}", self.file as f64 / self.live as f64),
        ]
    }
}

/// Measures each way for each size and number of connections, and prints a row for each. Fails with
/// code 1 if a row is above the bound. The first way is the log with which others are compared.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let folder = tempfile::tempdir_in(&args.folder)?;
    let ways: &[Way] = if args.control {
        &[Way::Crowded]
    } else {
        &[Way::Wal, Way::Sqlite, Way::Table, Way::Disk, Way::Pages]
    };
    let all = args.sizes.len() * args.connections.len() * ways.len();
    let bar = progress_bar(all as u64, "counting");
    let mut rows: Vec<Row> = Vec::new();
    for &megabytes in &args.sizes {
        for &connections in &args.connections {
            // Bytes that SQLite's log writes for each commit.
            let mut log = None;
            for &way in ways {
                bar.inc(1);
                if connections > 1 && !way.is_shared() {
                    continue;
                }
                let kept = Kept {
                    way,
                    megabytes,
                    connections,
                    commits: args.commits,
                    seed: args.seed,
                };
                let counted = kept.count(folder.path())?;
                let written = counted.written as f64 / args.commits as f64;
                if way == Way::Wal {
                    log = Some(written);
                }
                let given = counted.given as f64 / args.commits as f64;
                rows.push(Row {
                    megabytes,
                    way,
                    connections,
                    written,
                    log: log.filter(|_| way.has_rows()).unwrap_or(LOG * given),
                    file: counted.file,
                    live: counted.live,
                });
            }
        }
    }
    bar.finish_and_clear();
    print(&rows, args.json);
    let above = rows.iter().filter(|row| row.is_above()).count();
    if above > 0 {
        eprintln!(
            "{above} of {} rows are above {BOUND} of the log",
            rows.len()
        );
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}

fn print(rows: &[Row], as_json: bool) {
    if as_json {
        rows.iter().for_each(|row| say(&row.json().to_string()));
        return;
    }
    let mut table = plain_table();
    table.set_header([
        "MB",
        "kept by",
        "clients",
        "KiB",
        "log KiB",
        "of log",
        "file MB",
        "file/live",
    ]);
    for row in rows {
        table.add_row(row.cells());
    }
    say(&table.trim_fmt());
    say(&format!(
        "\nKiB: written by a commit of one row of 100 bytes, or of one page, after all pages were \
         written twice; log KiB: for rows, the writes of SQLite's WAL with synchronous=FULL and \
         its checkpoints; for a disk and for pages, {LOG} bytes for each byte of the changed \
         pages; the bound is {BOUND} of log KiB"
    ));
}
