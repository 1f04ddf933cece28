//! Notes about an import besides its trace: the command, skipped records, and anomalies.

use super::{block, waldump};

/// Notes on an import of pg_waldump's output, one per line.
pub fn of_waldump(report: &waldump::WalReport) -> Vec<String> {
    let skipped = report.skipped();
    let mut notes: Vec<String> = skipped
        .iter()
        .map(|(what, count)| format!("skipped: {count} × {what}"))
        .collect();
    if report.unfinished_kept && report.unfinished_transactions > 0 {
        let count = report.unfinished_transactions;
        notes.push(format!(
            "kept as aborted: {count} × transactions that never end"
        ));
    } else if report.unfinished_transactions > 0 {
        notes.push("to keep transactions that never end, as aborted: --keep-unfinished".into());
    }
    for (manager, count) in &report.unknown_managers {
        notes.push(format!(
            "unknown resource manager {manager}: {count} records"
        ));
    }
    if report.times_backwards > 0 {
        notes.push(format!(
            "{} times ran backwards, by at most {} us: taken as the latest before them",
            report.times_backwards, report.times_backwards_max_us
        ));
    }
    if report.messages > 0 {
        notes.push(format!("pg_waldump said: {}", report.last_message));
    }
    notes
}

/// Notes on an import of a block trace, one per line.
pub fn of_block(report: &block::BlockReport) -> Vec<String> {
    let mut notes = Vec::new();
    let seconds = report.duration_ns as f64 / 1e9;
    match report.requests_per_s {
        Some(rate) => notes.push(format!("{seconds:.3} s, {rate:.1} requests/s")),
        // All requests between two waits have one time if the log's only times are its waits, so a
        // number of requests per second would mean nothing.
        None if report.times > 1 => notes.push(format!(
            "{seconds:.3} s, {} requests at {} times: the log has waits, and no rate of requests",
            report.requests, report.times
        )),
        None => notes.push("all requests at one time: for a closed loop".to_string()),
    }
    for (what, count) in &report.skipped {
        notes.push(format!("skipped: {count} × {what}"));
    }
    if let Some(line) = report.cut_line {
        notes.push(format!(
            "skipped: line {line}, the last, which was cut short"
        ));
    }
    // A replay of such a write reads the rest of its pages first, except with --whole-pages.
    if report.in_part > 0 {
        let count = report.in_part;
        notes.push(format!(
            "{count} writes of a part of a page: the rest is read first, but with --whole-pages"
        ));
    }
    if report.out_of_order > 0 {
        let count = report.out_of_order;
        notes.push(format!(
            "{count} requests were out of order: sorted by time"
        ));
    }
    notes
}

/// The command of this process in a form that can be typed again.
pub fn command_line(program: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    let mut words = std::env::args();
    words.next();
    words.fold(program.to_string(), |line, word| {
        if !word.is_empty() && word.chars().all(plain) {
            format!("{line} {word}")
        } else {
            format!("{line} '{}'", word.replace('\'', r"'\''"))
        }
    })
}
