//! The command `flagstone-record`: runs TPC-C on the user's database server and writes a trace of
//! the page accesses. `flagstone trace record` runs this program.
//!
//! It is a program of its own because its PostgreSQL client takes longer to build than all other
//! dependencies. In reading order: [`record`] describes a recording; [`server`] queries the server
//! and gives it commands; [`mod@postgres`] runs the transactions; [`wal`] and [`probes`] observe
//! the accesses to pages.
#![forbid(unsafe_code)]

mod postgres;
mod probes;
mod record;
mod server;
mod wal;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand, ValueEnum};
use flagstone_lab::output::Output;
use flagstone_lab::tpcc::mix::{Count, TransactionKind};
use flagstone_lab::trace::{file, notes};
use flagstone_terminal::{Failure, arguments, note, progress, say};
use indicatif::ProgressBar;

use self::postgres::Isolation;
use record::{Import, Limit, Observer, Options, Recording};

/// Run transactions on a database server and record its page accesses as a trace.
#[derive(Parser)]
#[command(name = "flagstone-record", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    source: Source,
}

/// The database server to record.
#[derive(Debug, Subcommand)]
enum Source {
    /// Run TPC-C on PostgreSQL and import a trace from its write-ahead log.
    ///
    /// Needs a server on this machine whose data directory this user may read, the right to
    /// CHECKPOINT, and pg_waldump of the same version. scripts/record-postgres.sh creates a
    /// temporary server that meets these requirements.
    ///
    /// With --reads the trace comes from bpftrace instead of the log, and needs root.
    Postgres(Postgres),
}

#[derive(Debug, Args)]
struct Postgres {
    /// The server and database: postgres://user@host/database, or "host=/run/postgresql user=…
    /// dbname=…". No TLS.
    #[arg(long)]
    url: String,

    /// Create and populate the tables first. They must not exist yet.
    #[arg(long)]
    load: bool,

    /// Warehouses to create (about 100 MB each) [default: 5]. Without --load, the transactions use
    /// all existing warehouses.
    #[arg(long, value_name = "W", requires = "load",
          value_parser = clap::value_parser!(i64).range(1..=32_767))]
    warehouses: Option<i64>,

    /// Number of clients. Each has its own connection.
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,

    /// Run the clients for this many seconds [default: 60, unless --transactions is given].
    #[arg(long, value_name = "S", conflicts_with = "transactions",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seconds: Option<u64>,

    /// Run this many transactions, counting all kinds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    transactions: Option<u64>,

    /// Isolation level of transactions that write.
    #[arg(long, value_enum, default_value = "read-committed")]
    isolation: IsolationArg,

    /// Seed of the population and of the clients' requests. It does not fix the order in which the
    /// server executes them, so no two recordings are equal.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Also record page reads, by tracing the server with bpftrace. Needs root, bpftrace, and a
    /// server built with --enable-dtrace, as Debian's and PostgreSQL's own packages are. Keeps
    /// about 50 bytes per access in TMPDIR until the end.
    #[arg(long, conflicts_with = "waldump")]
    reads: bool,

    /// Path of pg_waldump [default: searched for].
    #[arg(long, value_name = "PATH")]
    waldump: Option<PathBuf>,

    /// The server's data directory [default: as the server reports it].
    #[arg(long, value_name = "PATH")]
    pgdata: Option<PathBuf>,

    /// The trace file to write.
    #[arg(short, long, value_name = "OUT.parquet")]
    output: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum IsolationArg {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl From<IsolationArg> for Isolation {
    fn from(arg: IsolationArg) -> Self {
        match arg {
            IsolationArg::ReadCommitted => Isolation::ReadCommitted,
            IsolationArg::RepeatableRead => Isolation::RepeatableRead,
            IsolationArg::Serializable => Isolation::Serializable,
        }
    }
}

fn main() -> ExitCode {
    let Source::Postgres(args) = arguments::<Cli>().source;
    match postgres(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn postgres(args: Postgres) -> Result<(), Failure> {
    // Check before the run that the output can be written.
    let output = Output::new(&args.output, &[])?;
    let options = Options {
        url: args.url,
        load: args.load.then(|| args.warehouses.unwrap_or(5)),
        clients: args.clients,
        limit: match (args.transactions, args.seconds) {
            (Some(count), _) => Limit::Transactions(count),
            (None, seconds) => Limit::Time(Duration::from_secs(seconds.unwrap_or(60))),
        },
        seed: args.seed,
        isolation: args.isolation.into(),
        reads: args.reads,
        waldump: args.waldump,
        pgdata: args.pgdata,
    };
    let terminal = Terminal::new(options.limit);
    let recording = record::record(
        &options,
        &notes::command_line("flagstone-record"),
        &terminal,
    );
    terminal.bar.finish_and_clear();
    let recording = recording?;
    file::write(&recording.trace, &output)?;
    print(&recording);
    say(&format!("written to {}", args.output.display()));
    Ok(())
}

fn print(recording: &Recording) {
    let seconds = recording.elapsed.as_secs_f64();
    let line = |name: &str, count: &Count| {
        say(&format!(
            "{name:<13}{:>10}{:>13}{:>13}",
            count.committed, count.rolled_back, count.conflicts
        ));
    };
    say(&format!(
        "{:<13}{:>10}{:>13}{:>13}",
        "", "committed", "rolled back", "tried again"
    ));
    for (kind, _) in TransactionKind::DECK {
        line(kind.name(), recording.counts.of(kind));
    }
    let total = recording.counts.total();
    line("all", &total);
    say(&format!(
        "{:.1} s, warehouses: {}, {:.0} transactions a second; all consistency conditions hold",
        seconds,
        recording.scale.warehouses,
        (total.committed + total.rolled_back) as f64 / seconds,
    ));
    let which = match recording.import {
        Import::Log(_) => "that write",
        Import::Probes(_) => "that read or write",
    };
    say(&format!(
        "trace: {} transactions {which}, {} pages, {} events",
        recording.trace.transactions,
        recording.trace.pages,
        recording.trace.events.len(),
    ));
    let notes = match &recording.import {
        Import::Log(report) => notes::of_waldump(report),
        Import::Probes(report) => report
            .skipped()
            .map(|(what, count)| format!("skipped: {count} × {what}"))
            .collect(),
    };
    for note in notes {
        say(&note);
    }
    if total.passed_over > 0 {
        say(&format!(
            "deliveries skipped {} districts without an order",
            total.passed_over
        ));
    }
}

/// Shows progress and advice on standard error.
struct Terminal {
    bar: ProgressBar,
    limit: Limit,
    begun: Instant,
}

impl Terminal {
    fn new(limit: Limit) -> Self {
        Terminal {
            bar: progress("{msg:40} {wide_bar} {percent:>3} %"),
            limit,
            begun: Instant::now(),
        }
    }

    fn show(&self, at: u64, of: u64, message: String) {
        self.bar.set_length(of);
        self.bar.set_position(at.min(of));
        self.bar.set_message(message);
    }

    /// Prints a permanent line, even if no progress bar is drawn.
    fn line(&self, text: &str) {
        self.bar.suspend(|| note(text));
    }
}

impl Observer for Terminal {
    fn loading(&self, table: &str, loaded: u64, expected: u64) {
        self.show(loaded, expected, format!("loading {table}"));
    }

    fn running(&self, transactions: u64, elapsed: Duration) {
        let message = format!("{transactions} transactions");
        match self.limit {
            Limit::Transactions(count) => self.show(transactions, count, message),
            Limit::Time(time) => {
                self.show(elapsed.as_millis() as u64, time.as_millis() as u64, message);
            }
        }
    }

    fn step(&self, what: &str) {
        self.line(&format!(
            "{:>6.1} s  {what}",
            self.begun.elapsed().as_secs_f64()
        ));
    }

    fn advice(&self, text: &str) {
        self.line(&format!("warning: {text}"));
    }
}
