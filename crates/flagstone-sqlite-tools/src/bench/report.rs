//! Prints the measurements of a benchmark as a table or as JSON.

use super::lane::Lane;
use crate::engine::Engine;
use flagstone_terminal::{Failure, plain_table, say};
use serde_json::json;

/// The measurements of one database under one workload.
pub(super) struct Row {
    workload: &'static str,
    threads: u32,
    engine: Engine,
    rate: f64,
    micros: [u64; 4],
    kib: f64,
    flushes: f64,
    megabytes: f64,
}

impl Row {
    /// The results of a lane: percentiles of its transactions' times, and its disk writes by
    /// transaction.
    pub(super) fn of(
        lane: &mut Lane,
        workload: &'static str,
        threads: u32,
    ) -> Result<Row, Failure> {
        lane.times.sort_unstable();
        let times = &lane.times;
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_micros() as u64;
        let count = times.len() as f64;
        Ok(Row {
            workload,
            threads,
            engine: lane.engine,
            rate: count / lane.wall.as_secs_f64(),
            micros: [at(0.5), at(0.99), at(0.999), at(1.0)],
            kib: lane.disk.bytes as f64 / 1024.0 / count,
            flushes: lane.disk.flushes as f64 / count,
            megabytes: lane.bytes()? as f64 / 1e6,
        })
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.workload.to_string(), self.engine.name().to_string()];
        cells.push(format!("{:.0}", self.rate));
        cells.extend(self.micros.iter().map(u64::to_string));
        cells.extend([self.kib, self.flushes, self.megabytes].map(|value| format!("{value:.1}")));
        cells
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let [p50, p99, p999, max] = self.micros;
        json!({
            "workload": self.workload,
            "threads": self.threads,
            "engine": self.engine.name(),
            "transactions_per_s": self.rate,
            "p50_us": p50,
            "p99_us": p99,
            "p999_us": p999,
            "max_us": max,
            "disk_kib_per_transaction": self.kib,
            "disk_flushes_per_transaction": self.flushes,
            "file_mb": self.megabytes,
        })
    }
}

/// Prints the rows of all workloads.
pub(super) fn print(rows: &[Row]) {
    let mut table = plain_table();
    table.set_header([
        "workload", "kept by", "tx/s", "p50 us", "p99 us", "p99.9 us", "max us", "KiB", "flushes",
        "file MB",
    ]);
    for row in rows {
        table.add_row(row.cells());
    }
    say(&table.trim_fmt());
    say(
        "\nKiB and flushes: written to the disk per transaction, by all processes; wal-normal does \
         not wait for durable commits\nThe ways run alternately: times depend on this machine and \
         this run, so compare only ratios within a workload",
    );
}
