//! Recording: runs TPC-C on a PostgreSQL server and makes a trace of the page accesses.
//!
//! ```text
//! settings ─ population ─ CHECKPOINT, start ─ clients ─ end ─ pg_waldump start..end ─ trace
//!                                                                    └ conditions checked
//! with reads:               connect, probes ─ clients ─ end ─ what bpftrace saw ────── trace
//! ```
//!
//! Of the whole project, only this part reads the clock: TPC-C stores dates in rows, and a run may
//! be limited by time.

mod clients;
mod provenance;
mod source;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use ::postgres::Config;
use ::postgres::config::Host;

use crate::postgres::{Isolation, PostgresSession};
use crate::probes::ProbeError;
use crate::server::{self, Lsn, Server};
use crate::wal::WalError;
use flagstone_lab::tpcc::Scale;
use flagstone_lab::tpcc::consistency::{self, Condition, When};
use flagstone_lab::tpcc::load::{self, Population};
use flagstone_lab::tpcc::mix::{Counts, TransactionKind};
use flagstone_lab::tpcc::random::Constants;
use flagstone_lab::tpcc::session::Error;
use provenance::Facts;
use source::Source;

use flagstone_lab::trace::input::ImportError;
use flagstone_lab::trace::{Op, Trace, bpftrace, waldump};

/// The condition on which clients stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// After this time. Transactions in progress are finished.
    Time(Duration),
    /// After this many transactions of all kinds, including those rolled back.
    Transactions(u64),
}

/// The options of a recording.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The server and database: `postgres://user@host/database`, or `host=… user=… dbname=…`.
    pub url: String,
    /// Populate the database first with this many warehouses. Its tables must not exist yet.
    pub load: Option<i64>,
    /// The number of clients. Each has a connection of its own.
    pub clients: u32,
    /// The condition on which clients stop.
    pub limit: Limit,
    /// The seed of the population and of the clients' requests.
    pub seed: u64,
    /// The isolation level of the transactions.
    pub isolation: Isolation,
    /// Record reads as well, with bpftrace instead of the log.
    pub reads: bool,
    /// The path of `pg_waldump`, if it is not in one of the usual places.
    pub waldump: Option<PathBuf>,
    /// The path of the data directory, if the server does not report it.
    pub pgdata: Option<PathBuf>,
}

/// Receives the progress of a recording.
pub(crate) trait Observer: Sync {
    /// `loaded` of about `expected` rows have been inserted; `table` is filled next.
    fn loading(&self, table: &str, loaded: u64, expected: u64);
    /// The clients have run this many transactions.
    fn running(&self, transactions: u64, elapsed: Duration);
    /// The next step begins; `what` names it.
    fn step(&self, what: &str);
    /// A setting of the server makes the recording less complete than it could be.
    fn advice(&self, text: &str);
}

/// Why a recording failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// The connection string is invalid.
    #[error(
        "invalid connection string: {0}; write postgres://user@host:port/database or \
         `host=/run/postgresql user=… dbname=…`"
    )]
    Url(String),
    /// The server does not answer, or refuses the connection.
    #[error("cannot connect to {server} as {user}: {message}")]
    Connect {
        /// Host and port of the server.
        server: String,
        /// The name of the user.
        user: String,
        /// The message of the server or of the connection.
        message: String,
    },
    /// The database has no TPC-C population.
    #[error("the database has no TPC-C tables of this program ({0}); add --load to create them")]
    NotPopulated(Error),
    /// The tables exist already.
    #[error(
        "cannot create the tables: {0}; leave out --load to use the existing tables, or give an \
         empty database"
    )]
    Load(Error),
    /// A transaction failed for a reason other than a conflict.
    #[error("client {client}: {error}{hint}", hint = hint(.error))]
    Client {
        /// The number of the client.
        client: u32,
        /// The error of the transaction.
        error: Error,
    },
    /// A statement outside the transactions failed.
    #[error("{0}{hint}", hint = hint(.0))]
    Session(Error),
    /// The write-ahead log cannot be read.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The server cannot be traced.
    #[error(transparent)]
    Probes(#[from] ProbeError),
    /// The output of a program cannot be imported.
    #[error("{program}'s output: {error}")]
    Import {
        /// The program that printed the output.
        program: &'static str,
        /// The error in the output.
        error: ImportError,
    },
    /// The database violates consistency conditions after the run.
    #[error("after the run the database violates {0}: the trace is not of a correct TPC-C run")]
    Inconsistent(String),
    /// The log is empty between the start and the end of the run.
    #[error(
        "the log has no transaction between {0} and {1}: check that --pgdata is the data \
             directory of this server"
    )]
    Empty(Lsn, Lsn),
}

// Not derived, because derived code would give the cause as a source and print it twice.
impl From<Error> for RecordError {
    fn from(error: Error) -> Self {
        RecordError::Session(error)
    }
}

/// Advice about a statement that the server refused, or an empty string.
fn hint(error: &Error) -> &'static str {
    let Error::Database { statement, message } = error else {
        return "";
    };
    match statement.as_str() {
        "connect" if message.contains("53300") => {
            "; raise the server's max_connections, or use fewer --clients"
        }
        "CHECKPOINT" if message.contains("42501") => {
            "; connect as a superuser, or (from PostgreSQL 15) GRANT pg_checkpoint TO the user"
        }
        _ => "",
    }
}

/// What an import read, and what it skipped.
#[derive(Debug, Clone)]
pub(crate) enum Import {
    /// The report on an import of the log.
    Log(waldump::WalReport),
    /// The report on an import of bpftrace's output.
    Probes(bpftrace::ProbeReport),
}

/// A finished recording.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    /// The trace, with its provenance.
    pub trace: Trace,
    /// What the import read and skipped.
    pub import: Import,
    /// The number of transactions by kind.
    pub counts: Counts,
    /// The scale of the database.
    pub scale: Scale,
    /// How long the clients ran.
    pub elapsed: Duration,
}

/// Makes a recording. `command` is the command line, which the provenance contains.
pub(crate) fn record(
    options: &Options,
    command: &str,
    observer: &dyn Observer,
) -> Result<Recording, RecordError> {
    let config = config(&options.url)?;
    let mut session = PostgresSession::connect(&config, options.isolation)
        .map_err(|error| no_connection(&config, &error))?;
    let server = Server::ask(session.client())?;
    if !options.reads {
        let advice = server.advice();
        advice.iter().for_each(|text| observer.advice(text));
    }
    let source = Source::find(&server, options)?;
    let (scale, constants) = population(&mut session, options, observer)?;
    let start = || source.start(&mut session, observer);
    let (run, watch) = clients::run(&config, options, scale, constants, observer, start)?;
    let watched = watch.read(&mut session, &server, observer)?;
    let mut trace = watched.trace;
    warn_of_strangers(&trace, &run.counts, options.reads, observer);

    observer.step("checking the consistency conditions");
    check(&mut session, When::Used)?;
    let date = server::date(session.client())?;
    let facts = Facts {
        config: &config,
        server: &server,
        scale,
        notes: watched.notes,
        elapsed: run.elapsed,
        date,
    };
    trace
        .provenance
        .extend(facts.provenance(options, command, &run.counts));
    Ok(Recording {
        trace,
        import: watched.import,
        counts: run.counts,
        scale,
        elapsed: run.elapsed,
    })
}

fn config(url: &str) -> Result<Config, RecordError> {
    let mut config = Config::from_str(url).map_err(|error| {
        let reason = std::error::Error::source(&error).map(|e| format!(": {e}"));
        RecordError::Url(format!("{error}{}", reason.unwrap_or_default()))
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        config.host("localhost");
    }
    config.application_name("flagstone");
    Ok(config)
}

fn no_connection(config: &Config, error: &Error) -> RecordError {
    let host = |host: &Host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(directory) => format!("the socket in {}", directory.display()),
    };
    let hosts: Vec<String> = config.get_hosts().iter().map(host).collect();
    let port = config.get_ports().first().copied().unwrap_or(5_432);
    let server = format!("{} (port {port})", hosts.join(" or "));
    let user = config.get_user().unwrap_or("this user").to_owned();
    let mut message = match error {
        Error::Database { message, .. } => message.clone(),
        other => other.to_string(),
    };
    if !message.contains("SQLSTATE") {
        message.push_str("; is the server running, and is this where it listens?");
    }
    RecordError::Connect {
        server,
        user,
        message,
    }
}

/// Creates or finds the population. Returns its scale, and the constants for a run on it.
fn population(
    session: &mut PostgresSession,
    options: &Options,
    observer: &dyn Observer,
) -> Result<(Scale, Constants), RecordError> {
    if let Some(warehouses) = options.load {
        let scale = Scale::standard(warehouses);
        let population = Population {
            scale,
            seed: options.seed,
            now: now(),
        };
        let mut progress = |table: &str, loaded| observer.loading(table, loaded, scale.rows());
        load::load(session, &population, &mut progress).map_err(|error| match error {
            Error::Scale(_) => RecordError::Session(error),
            error => RecordError::Load(error),
        })?;
        observer.step("checking the consistency conditions of the population");
        check(session, When::Populated)?;
    }
    let (scale, last_name) = load::population_of(session).map_err(RecordError::NotPopulated)?;
    Ok((scale, Constants::run(options.seed, last_name)))
}

fn check(session: &mut PostgresSession, when: When) -> Result<(), RecordError> {
    let findings = consistency::check(session, when)?;
    let violated: Vec<String> = findings
        .iter()
        .filter(|finding| finding.violations > 0)
        .map(|finding| {
            let condition = finding.condition;
            let Condition { number, title, .. } = condition;
            format!(
                "condition 3.3.2.{number} ({title}): {} violations",
                finding.violations
            )
        })
        .collect();
    if violated.is_empty() {
        return Ok(());
    }
    Err(RecordError::Inconsistent(violated.join(", ")))
}

/// The time in microseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    since.as_micros() as i64
}

/// Warns if the trace has more commits than the clients made: then other clients used the server.
fn warn_of_strangers(trace: &Trace, counts: &Counts, reads: bool, observer: &dyn Observer) {
    let commits = trace
        .events
        .iter()
        .filter(|event| event.op == Op::Commit)
        .count() as u64;
    let writers = [
        TransactionKind::NewOrder,
        TransactionKind::Payment,
        TransactionKind::Delivery,
    ];
    let (ours, which) = if reads {
        (counts.total().committed, "")
    } else {
        (
            writers.iter().map(|kind| counts.of(*kind).committed).sum(),
            " that write",
        )
    };
    if commits > ours {
        observer.advice(&format!(
            "the trace has {commits} commits, but the clients made {ours}{which}: something else \
             used the server meanwhile, perhaps autovacuum"
        ));
    }
}

#[cfg(test)]
mod tests;
