//! Sources of a trace: the server's log, or the events that a tracer reports.

use std::collections::BTreeMap;

use super::{Import, Observer, Options, RecordError};
use crate::postgres::PostgresSession;
use crate::probes::{Probes, Running};
use crate::server::{self, Lsn, Server};
use crate::wal::Wal;
use flagstone_lab::trace::{Trace, bpftrace, waldump};

/// A source whose requirements have been checked.
pub(super) enum Source {
    /// The write-ahead log, which contains only writes.
    Log(Wal),
    /// bpftrace, which reports reads as well.
    Probes(Probes),
}

/// A source while the clients run.
pub(super) enum Watch {
    /// The log, from this position on.
    Log(Wal, Lsn),
    /// A running tracer.
    Probes(Running),
}

/// The result of a recording.
pub(super) struct Watched {
    pub(super) trace: Trace,
    pub(super) import: Import,
    /// Facts for the provenance.
    pub(super) notes: BTreeMap<&'static str, String>,
}

impl Source {
    /// Finds the source and checks its requirements before the run, which may take an hour.
    pub(super) fn find(server: &Server, options: &Options) -> Result<Self, RecordError> {
        let data = options.pgdata.as_deref();
        Ok(if options.reads {
            Source::Probes(Probes::find(server, data)?)
        } else {
            Source::Log(Wal::find(server, options.waldump.as_deref(), data)?)
        })
    }

    /// Begins the recording. It contains all later accesses.
    pub(super) fn start(
        self,
        session: &mut PostgresSession,
        observer: &dyn Observer,
    ) -> Result<Watch, RecordError> {
        match self {
            Source::Log(wal) => {
                if let Err(error) = server::keep_log(session.client()) {
                    observer.advice(&format!(
                        "cannot create a replication slot to keep the server's log ({error}): \
                         wal_keep_size must be large enough for the run"
                    ));
                }
                observer.step("CHECKPOINT");
                let start = server::checkpoint_and_mark(session.client())?;
                Ok(Watch::Log(wal, start))
            }
            Source::Probes(probes) => {
                observer.step("attaching the probes");
                let stir = || server::stir(session.client()).map_err(RecordError::from);
                let running = probes.attach(stir)?;
                Ok(Watch::Probes(running))
            }
        }
    }
}

impl Watch {
    /// Ends the recording and makes a trace of it.
    pub(super) fn read(
        self,
        session: &mut PostgresSession,
        server: &Server,
        observer: &dyn Observer,
    ) -> Result<Watched, RecordError> {
        match self {
            Watch::Log(wal, start) => {
                let end = server::mark(session.client())?;
                server::flush(session.client())?;
                observer.step("reading the log");
                let options = waldump::WalOptions {
                    page_bytes: server.page_bytes,
                    relation_names: server::relation_names(session.client())?,
                    ..waldump::WalOptions::default()
                };
                let imported = wal.read(start, end, |text| waldump::import(text, &options))?;
                let (trace, report) = imported.map_err(|error| RecordError::Import {
                    program: "pg_waldump",
                    error,
                })?;
                if trace.transactions == 0 {
                    return Err(RecordError::Empty(start, end));
                }
                let notes = BTreeMap::from([
                    (
                        "source",
                        "TPC-C on PostgreSQL, from its write-ahead log".to_owned(),
                    ),
                    ("wal.start", start.to_string()),
                    ("wal.end", end.to_string()),
                ]);
                let import = Import::Log(report);
                Ok(Watched {
                    trace,
                    import,
                    notes,
                })
            }
            Watch::Probes(running) => {
                let seen = running.finish()?;
                observer.step("reading what bpftrace saw");
                let options = bpftrace::ReadOptions {
                    page_bytes: server.page_bytes,
                    relation_names: server::relation_names(session.client())?,
                };
                let (trace, report) =
                    bpftrace::import(seen.text()?, &options).map_err(|error| {
                        RecordError::Import {
                            program: "bpftrace",
                            error,
                        }
                    })?;
                if report.lost > 0 {
                    observer.advice(&format!(
                        "bpftrace lost {} of {} events: the trace lacks accesses, and transactions \
                         whose end was lost; use fewer --clients",
                        report.lost,
                        report.lost + report.lines,
                    ));
                }
                let source = "TPC-C on PostgreSQL, its accesses to pages as bpftrace saw them";
                Ok(Watched {
                    trace,
                    import: Import::Probes(report),
                    notes: BTreeMap::from([("source", source.to_owned())]),
                })
            }
        }
    }
}
