//! The records of a comparison as a table: for people, for Markdown, for spreadsheets.

use flagstone::ftl::{Cause, Operation};
use flagstone_lab::device::DeviceSpec;
use flagstone_lab::replay::{Record, Source, by_cause};
use serde::Serialize;

/// A column: its heading, and what a record has in it beside the best of all records.
type Column = (&'static str, fn(&Record, &Record) -> String);

const COLUMNS: [Column; 14] = [
    ("protocol", |r, _| r.protocol.into()),
    ("isolation", |r, _| r.isolation.into()),
    ("tx/s", |r, _| format!("{:.0}", r.throughput_tps)),
    ("relative", |r, best| {
        format!("{:.2}", r.throughput_tps / best.throughput_tps)
    }),
    ("tx ms", |r, _| millis(r.response_ns.mean)),
    ("p99", |r, _| millis(r.response_ns.p99 as f64)),
    ("commit ms", |r, _| millis(r.commit_ns.mean)),
    ("host", |r, _| {
        format!("{:.1}", r.programs_per_transaction(Cause::Host))
    }),
    ("commit", |r, _| format!("{:.1}", commit_programs(r))),
    ("gc", |r, _| {
        format!("{:.1}", r.programs_per_transaction(Cause::Gc))
    }),
    ("map+log", |r, _| format!("{:.1}", upkeep(r))),
    ("wa", |r, _| format!("{:.2}", r.write_amplification)),
    ("RAM KiB", |r, _| {
        format!("{}", r.protocol_memory_bytes().div_ceil(1024))
    }),
    ("restart ms", |r, _| millis(r.recovery_ns as f64)),
];

const HEADINGS: [&str; COLUMNS.len()] = {
    let mut headings = [""; COLUMNS.len()];
    let mut at = 0;
    while at < COLUMNS.len() {
        headings[at] = COLUMNS[at].0;
        at += 1;
    }
    headings
};

/// Nanoseconds as milliseconds.
pub fn millis(ns: f64) -> String {
    let ms = ns / 1e6;
    if ms < 10.0 {
        format!("{ms:.2}")
    } else {
        format!("{ms:.1}")
    }
}

/// Pages programmed or reprogrammed to commit, for each committed transaction.
fn commit_programs(record: &Record) -> f64 {
    let reprograms = by_cause(record, Operation::Reprogram, Cause::Commit) as f64;
    record.programs_per_transaction(Cause::Commit)
        + reprograms / record.transactions_committed.max(1) as f64
}

fn upkeep(record: &Record) -> f64 {
    record.programs_per_transaction(Cause::Mapping) + record.programs_per_transaction(Cause::Log)
}

/// The records by throughput, the best atomic one first, and that one.
fn ranked<'a>(records: &[&'a Record]) -> Option<(Vec<&'a Record>, &'a Record)> {
    let mut order = records.to_vec();
    order.sort_by(|a, b| b.throughput_tps.total_cmp(&a.throughput_tps));
    let best = *order
        .iter()
        .find(|r| r.protocol != "plain")
        .or(order.first())?;
    Some((order, best))
}

fn rows(records: &[&Record]) -> Vec<Vec<String>> {
    let Some((order, best)) = ranked(records) else {
        return Vec::new();
    };
    order
        .iter()
        .map(|r| COLUMNS.iter().map(|(_, cell)| cell(r, best)).collect())
        .collect()
}

/// For people: the table, what its columns say, and why the two best are the best.
pub fn text(device: &DeviceSpec, source: &Source, records: &[&Record]) -> Vec<String> {
    let Some((order, best)) = ranked(records) else {
        return Vec::new();
    };
    let mut lines = vec![
        format!(
            "{}: {} committed and {} rolled back transactions, {} page writes",
            source.name,
            best.transactions_committed,
            best.transactions_aborted,
            best.host_pages_written
        ),
        format!("{}\n", about(device, best.fill)),
    ];
    lines.extend(plain(&HEADINGS, 2, rows(records)));
    lines.push(String::new());
    lines.push(
        "host, commit, gc, map+log: pages programmed (commit: and reprogrammed) for each committed \
         transaction"
            .into(),
    );
    lines.push(
        "wa: pages programmed for each page that the host wrote; RAM: what this protocol needs \
         besides the mapping"
            .into(),
    );
    lines.push("times and rates are virtual, and exact for this seed".into());
    lines.push(String::new());
    let atomic: Vec<&&Record> = order.iter().filter(|r| r.protocol != "plain").collect();
    if let [first, second, ..] = atomic[..] {
        lines.push(format!("best:   {}", reasons(first)));
        lines.push(format!(
            "second: {}, {:.1} % behind",
            reasons(second),
            (1.0 - second.throughput_tps / first.throughput_tps) * 100.0
        ));
    }
    lines
}

/// A device in a line.
pub fn about(device: &DeviceSpec, fill: f64) -> String {
    let g = &device.geometry;
    format!(
        "device {}: {} MiB, pages of {} bytes, {} planes, {} cells, {:.0} % full before it starts",
        device.name,
        g.bytes() >> 20,
        g.page_bytes,
        g.planes(),
        g.cell,
        fill * 100.0
    )
}

/// A table for people, of which the first columns are words.
pub fn plain(headings: &[&str], words: usize, rows: Vec<Vec<String>>) -> Vec<String> {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(headings);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    }
    let text = table.to_string();
    text.lines().map(|line| line.trim_end().into()).collect()
}

/// What a transaction costs under a protocol, in words.
fn reasons(record: &Record) -> String {
    let commit = match (commit_programs(record), upkeep(record)) {
        (c, u) if c + u < 0.05 => "nothing is programmed besides the pages themselves".to_string(),
        (c, u) => format!("{c:.1} programs to commit and {u:.1} for mapping and log"),
    };
    format!(
        "{} ({} isolation): for each transaction {commit}, {:.1} copied by the collector; the \
         commit itself waits {} ms",
        record.protocol,
        record.isolation,
        record.programs_per_transaction(Cause::Gc),
        millis(record.commit_ns.mean)
    )
}

/// A Markdown table of the records.
pub fn markdown(records: &[&Record]) -> Vec<String> {
    markdown_of(&HEADINGS, 2, &rows(records))
}

/// A Markdown table, of which the first columns are words.
pub fn markdown_of(headings: &[&str], words: usize, rows: &[Vec<String>]) -> Vec<String> {
    let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
    let heads: Vec<String> = headings.iter().map(ToString::to_string).collect();
    let rule = (0..heads.len()).map(|i| if i < words { "---" } else { "---:" });
    let rule: Vec<String> = rule.map(String::from).collect();
    let mut lines = vec![line(&heads), line(&rule)];
    lines.extend(rows.iter().map(|row| line(row)));
    lines
}

/// Comma-separated values with full precision: the fields of the records, nested ones joined.
pub fn csv<R: Serialize>(records: &[R]) -> Vec<String> {
    let flat: Vec<Vec<(String, String)>> = records
        .iter()
        .map(|record| {
            let mut fields = Vec::new();
            let value = serde_json::to_value(record).expect("records have plain fields");
            flatten("", &value, &mut fields);
            fields
        })
        .collect();
    let mut heads: Vec<&String> = Vec::new();
    for (name, _) in flat.iter().flatten() {
        if !heads.contains(&name) {
            heads.push(name);
        }
    }
    let find = |fields: &[(String, String)], head: &String| {
        fields
            .iter()
            .find(|(name, _)| name == head)
            .map_or(String::new(), |(_, v)| v.clone())
    };
    let mut lines = vec![
        heads
            .iter()
            .map(|h| h.as_str())
            .collect::<Vec<_>>()
            .join(","),
    ];
    for fields in &flat {
        lines.push(
            heads
                .iter()
                .map(|head| find(fields, head))
                .collect::<Vec<_>>()
                .join(","),
        );
    }
    lines
}

fn flatten(prefix: &str, value: &serde_json::Value, fields: &mut Vec<(String, String)>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                let name = if prefix.is_empty() {
                    key.clone()
                } else {
                    format!("{prefix}.{key}")
                };
                flatten(&name, value, fields);
            }
        }
        serde_json::Value::Null => fields.push((prefix.into(), String::new())),
        serde_json::Value::String(text) if text.contains([',', '"', '\n']) => {
            fields.push((prefix.into(), format!("\"{}\"", text.replace('"', "\"\""))));
        }
        serde_json::Value::String(text) => fields.push((prefix.into(), text.clone())),
        other => fields.push((prefix.into(), other.to_string())),
    }
}
