//! Prints the measurements of a benchmark as a table or as JSON.

use super::Args;
use super::lane::Lane;
use crate::engine::Engine;
use crate::nand::Played;
use flagstone_terminal::{Failure, say};
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
    played: Option<Played>,
}

impl Row {
    pub(super) fn of(
        lane: &mut Lane,
        workload: &'static str,
        threads: u32,
        played: Option<Played>,
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
            played,
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
        let mut row = json!({
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
        });
        if let Some(played) = &self.played {
            row["nand"] = json!({
                "programs_per_transaction": played.programs(),
                "erases_per_1000_transactions": played.erases(),
                "write_amplification": played.amplification(),
                "lifetime_transactions": played.lasts(),
                "transactions_per_s": played.rate(),
            });
        }
        row
    }
}

/// Formats a number, or a dash for `None`.
fn or_dash(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.digits$}"))
}

/// Prints the results of the workloads on simulated NAND.
fn print_played(rows: &[Row], args: &Args) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header([
        "workload",
        "kept by",
        "programs",
        "erases/1000",
        "wa",
        "lifetime, M tx",
        "tx/s",
    ]);
    for row in rows {
        let Some(played) = &row.played else { continue };
        table.add_row([
            row.workload.to_string(),
            row.engine.name().to_string(),
            format!("{:.2}", played.programs()),
            format!("{:.2}", played.erases()),
            or_dash(played.amplification(), 2),
            or_dash(played.lasts().map(|lasts| lasts / 1e6), 1),
            or_dash(played.rate(), 0),
        ]);
    }
    say(&format!(
        "\nThe same workloads by one client in virtual time, on chips of `{}` that are {} % full:",
        args.nand,
        args.nand_fill * 100.0
    ));
    say(&table.trim_fmt());
    say(
        "\nprograms: page programs of the device per transaction; wa: programs per page written by \
         the host; lifetime: millions of transactions until all blocks reach their rated erases. \
         The store uses the protocol seal; the others run on a page-mapping FTL, without the file \
         system's own writes",
    );
}

/// Prints the rows of all workloads.
pub(super) fn print(rows: &[Row], args: &Args) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
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
    if rows.iter().any(|row| row.played.is_some()) {
        print_played(rows, args);
    }
}
