//! The output of a comparison of protocols: its columns, and sentences that explain costs.

use super::table::{Cell, Column, hundredths, tenths, whole};
use flagstone::ftl::{Cause, Operation};
use flagstone_lab::ranking::separation::{self, Advice};
use flagstone_lab::ranking::{Row, Standing, millis};
use flagstone_lab::replay::{ReplayRecord, by_cause};

pub(super) const COLUMNS: &[Column<ReplayRecord>] = &[
    Column {
        heading: "protocol",
        says: "the commit protocol",
        rank: 0,
        cell: Cell::Word(|r| r.protocol.into()),
    },
    Column {
        heading: "isolation",
        says: "isolation level of transactions: strict, no-page-conflict or serializable",
        rank: 6,
        cell: Cell::Word(|r| r.isolation.into()),
    },
    Column::RATE,
    Column::RATE_RANGE,
    Column::KEEPS_UP,
    Column::RELATIVE,
    Column {
        heading: "tx ms",
        says: "mean response time of committed transactions, all waits included",
        rank: 3,
        cell: Cell::Committed(|r| r.response_ns.mean, millis),
    },
    Column::MEDIAN,
    Column::TAIL,
    Column::TAIL_RANGE,
    Column::FAR_TAIL,
    Column {
        heading: "reads ms",
        says: "mean response time of committed transactions that only read",
        rank: 17,
        cell: Cell::Committed(|r| r.reads_response_ns.mean, millis),
    },
    Column {
        heading: "reads p99",
        says: "99th percentile of these",
        rank: 17,
        cell: Cell::Committed(|r| r.reads_response_ns.p99 as f64, millis),
    },
    Column {
        heading: "writes ms",
        says: "mean response time of committed transactions that change something",
        rank: 17,
        cell: Cell::Committed(|r| r.writes_response_ns.mean, millis),
    },
    Column {
        heading: "writes p99",
        says: "99th percentile of these",
        rank: 17,
        cell: Cell::Committed(|r| r.writes_response_ns.p99 as f64, millis),
    },
    Column {
        heading: "wait ms",
        says: "of tx ms, until isolation lets a transaction begin",
        rank: 4,
        cell: Cell::Committed(|r| r.isolation_wait_ns.mean, millis),
    },
    Column {
        heading: "commit ms",
        says: "of tx ms, from the request to commit on",
        rank: 5,
        cell: Cell::Committed(|r| r.commit_ns.mean, millis),
    },
    Column {
        heading: "host",
        says: "pages programmed for the host, per transaction",
        rank: 12,
        cell: Cell::Committed(|r| r.programs_per_transaction(Cause::Host), tenths),
    },
    Column {
        heading: "commit",
        says: "pages programmed and reprogrammed to commit, per transaction",
        rank: 11,
        cell: Cell::Committed(commit_programs, tenths),
    },
    Column {
        heading: "gc",
        says: "pages copied by garbage collection, per transaction",
        rank: 8,
        cell: Cell::Committed(|r| r.programs_per_transaction(Cause::Gc), tenths),
    },
    Column {
        heading: "map+log",
        says: "pages programmed for mapping and log, per transaction",
        rank: 10,
        cell: Cell::Committed(upkeep, tenths),
    },
    Column {
        heading: "wa",
        says: "write amplification, pages programmed for each page that the host wrote",
        rank: 7,
        cell: Cell::Number(|r| r.write_amplification, hundredths),
    },
    Column::PLANES,
    Column::CHANNELS,
    Column::FOR_HOST,
    Column::FOR_COLLECTION,
    Column::FOR_PROTOCOL,
    Column {
        heading: "RAM KiB",
        says: "memory that the protocol needs besides the mapping",
        rank: 11,
        cell: Cell::Number(|r| r.protocol_memory_bytes() as f64, kib),
    },
    Column {
        heading: "restart ms",
        says: "a restart after the run",
        rank: 9,
        cell: Cell::Number(|r| r.recovery_ns as f64, millis),
    },
];

fn kib(bytes: f64) -> String {
    whole((bytes / 1024.0).ceil())
}

/// Pages programmed or reprogrammed in commits, for each committed transaction.
fn commit_programs(record: &ReplayRecord) -> f64 {
    let reprograms = by_cause(record, Operation::Reprogram, Cause::Commit) as f64;
    record.programs_per_transaction(Cause::Commit)
        + reprograms / record.transactions_committed.max(1) as f64
}

fn upkeep(record: &ReplayRecord) -> f64 {
    record.programs_per_transaction(Cause::Mapping) + record.programs_per_transaction(Cause::Log)
}

/// Describes the cost of a transaction under the first two protocols, and the cause of the
/// difference between the first and the last.
pub(super) fn reasons(standing: &Standing<'_, ReplayRecord>, advice: Advice) -> Vec<String> {
    let lines = few_collections(standing).into_iter();
    let lines = lines.chain(standing.contenders().take(2).map(reason));
    lines.chain(separation::lines(standing, advice)).collect()
}

/// Below this number of collected blocks, a run says little about garbage collection.
const FEW: f64 = 100.0;

/// Warns if few blocks were collected, since protocols may rank otherwise in a longer run.
fn few_collections(standing: &Standing<'_, ReplayRecord>) -> Option<String> {
    let collected = |row: &&Row<ReplayRecord>| row.mean(|run| run.collections as f64);
    let of = |row: &Row<ReplayRecord>| format!("{} {}", row.name(), whole(collected(&row)));
    let few = standing
        .rows
        .iter()
        .copied()
        .filter(|row| collected(row) < FEW);
    let few: Vec<String> = few.map(of).collect();
    (!few.is_empty()).then(|| {
        format!(
            "Few blocks were collected in the run ({}), so a longer run may give another order: \
             use --repeat 10, or --requests.",
            few.join(", ")
        )
    })
}

fn reason(row: &Row<ReplayRecord>) -> String {
    let besides = match (row.mean(commit_programs), row.mean(upkeep)) {
        (c, u) if c + u < 0.05 => "no programs besides the data pages".to_string(),
        (c, u) => format!("{c:.1} programs to commit and {u:.1} for mapping and log"),
    };
    format!(
        "{} ({} isolation): for each transaction {besides}, {:.1} copied by the collector; the \
         commit itself takes {} ms",
        row.name(),
        row.runs[0].isolation,
        row.mean(|record| record.programs_per_transaction(Cause::Gc)),
        millis(row.mean(|record| record.commit_ns.mean))
    )
}
