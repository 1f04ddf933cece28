//! What a comparison of protocols prints: its columns, and what a row costs in words.

use super::standing::{Measured, Row, Standing, measured};
use super::table::{Cell, Column, hundredths, millis, tenths, whole};
use flagstone::ftl::{Cause, Operation};
use flagstone_lab::replay::{Latency, ReplayRecord, by_cause};

measured!(ReplayRecord, protocol, transactions_committed, "plain");

pub(super) const COLUMNS: &[Column<ReplayRecord>] = &[
    Column {
        heading: "protocol",
        says: "the commit protocol",
        rank: 0,
        cell: Cell::Word(|r| r.protocol.into()),
    },
    Column {
        heading: "isolation",
        says: "how far transactions overlap: strict, no-page-conflict or serializable",
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
        says: "pages programmed for the host, a transaction",
        rank: 12,
        cell: Cell::Committed(|r| r.programs_per_transaction(Cause::Host), tenths),
    },
    Column {
        heading: "commit",
        says: "pages programmed and reprogrammed to commit, a transaction",
        rank: 11,
        cell: Cell::Committed(commit_programs, tenths),
    },
    Column {
        heading: "gc",
        says: "pages that the collector copies, a transaction",
        rank: 8,
        cell: Cell::Committed(|r| r.programs_per_transaction(Cause::Gc), tenths),
    },
    Column {
        heading: "map+log",
        says: "pages programmed for mapping and log, a transaction",
        rank: 10,
        cell: Cell::Committed(upkeep, tenths),
    },
    Column {
        heading: "wa",
        says: "write amplification, pages programmed for each page that the host wrote",
        rank: 7,
        cell: Cell::Number(|r| r.write_amplification, hundredths),
    },
    Column {
        heading: "busy %",
        says: "of the time, for which planes were occupied",
        rank: 7,
        cell: Cell::Number(|r| 100.0 * r.planes_busy, whole),
    },
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

/// Pages programmed or reprogrammed to commit, for each committed transaction.
fn commit_programs(record: &ReplayRecord) -> f64 {
    let reprograms = by_cause(record, Operation::Reprogram, Cause::Commit) as f64;
    record.programs_per_transaction(Cause::Commit)
        + reprograms / record.transactions_committed.max(1) as f64
}

fn upkeep(record: &ReplayRecord) -> f64 {
    record.programs_per_transaction(Cause::Mapping) + record.programs_per_transaction(Cause::Log)
}

/// What a transaction costs under the first two protocols, in words, and what separates the first
/// from the last.
pub(super) fn reasons(standing: &Standing<'_, ReplayRecord>) -> Vec<String> {
    let mut lines: Vec<String> = standing.contenders().take(2).map(reason).collect();
    let (first, last) = (standing.first(), standing.contenders().last());
    if let (Some(first), Some(last)) = (first, last)
        && standing.near().len() < standing.contenders().count()
    {
        lines.push(separation(first, last));
    }
    lines
}

/// How much more a transaction takes under one protocol than under another, of what that consists,
/// and with what it would change.
fn separation(first: &Row<ReplayRecord>, last: &Row<ReplayRecord>) -> String {
    let more = |of: fn(&ReplayRecord) -> f64| last.mean(of) - first.mean(of);
    let response = more(|record| record.response_ns.mean);
    let wait = more(|record| record.isolation_wait_ns.mean);
    let commit = more(|record| record.commit_ns.mean);
    let between = response - wait - commit;
    let copies = more(|record| record.programs_per_transaction(Cause::Gc));
    let (to_commit, upkeep) = (more(commit_programs), more(upkeep));
    // The largest first, with its sign; what rounds to nothing is left out.
    let parts = |all: &mut [(f64, &str)], least: f64, text: fn(f64) -> String| {
        all.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
        let told = all.iter().filter(|part| part.0.abs() >= least);
        let each = told.map(|&(amount, what)| {
            let sign = if amount < 0.0 { '-' } else { '+' };
            format!("{sign}{} {what}", text(amount.abs()))
        });
        match each.collect::<Vec<_>>() {
            none if none.is_empty() => "nothing".to_string(),
            each => each.join(", "),
        }
    };
    let ms = |ns: f64| format!("{} ms", millis(ns));
    let waits = parts(
        &mut [
            (wait, "waiting for isolation"),
            (commit, "in the commit"),
            (between, "in reads and writes before it"),
        ],
        1e4,
        ms,
    );
    let programs = parts(
        &mut [
            (to_commit, "to commit"),
            (upkeep, "for mapping and log"),
            (copies, "copied by the collector"),
        ],
        0.05,
        tenths,
    );
    let (cause, change) = if wait > response / 2.0 {
        (
            "how far transactions may overlap",
            "one level for all (--isolation strict), or fewer clients (--over clients=1..16)",
        )
    } else if copies > to_commit + upkeep {
        ("the collector", "a lower fill (--over fill=0.3..0.9)")
    } else if to_commit + upkeep > 0.1 {
        (
            "what is programmed besides the pages",
            "longer transactions, over which it is spread",
        )
    } else {
        (
            "when pages are programmed and waited for",
            "more or fewer clients (--over clients=1..16)",
        )
    };
    format!(
        "{} takes {} longer a transaction than {}: {waits}. Pages programmed more a transaction: \
         {programs}. What separates them most is {cause}; it would be otherwise with {change}.",
        last.name(),
        ms(response),
        first.name(),
    )
}

fn reason(row: &Row<ReplayRecord>) -> String {
    let besides = match (row.mean(commit_programs), row.mean(upkeep)) {
        (c, u) if c + u < 0.05 => "nothing is programmed besides the pages themselves".to_string(),
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
