//! The result of a run: one record, one JSON object.

use super::{InputName, Setup};
use crate::driver::{Counted, Load};
use crate::occupied::Occupied;
use flagstone::commit::{Device, Isolation};
use flagstone::ftl::{Cause, Operation, PairedPages, Stats};
use flagstone::settings::Settings;
use serde::Serialize;
use std::collections::BTreeMap;

/// Mean and percentiles of a latency, in nanoseconds of virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
pub struct Latency {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
}

impl Latency {
    /// Computes the latency from samples; all zero if there are none.
    pub fn of(samples: &[u64]) -> Latency {
        if samples.is_empty() {
            return Latency::default();
        }
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        // The smallest sample with the given fraction of samples not above it (nearest rank).
        let rank = |per_mille: usize| sorted[(sorted.len() * per_mille).div_ceil(1000).max(1) - 1];
        let sum: u128 = sorted.iter().map(|&ns| u128::from(ns)).sum();
        Latency {
            mean: sum as f64 / sorted.len() as f64,
            p50: rank(500),
            p99: rank(990),
            p999: rank(999),
        }
    }
}

/// Block erases in the measured window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub struct Erases {
    /// Total.
    pub total: u64,
    /// Of the block with the fewest.
    pub min: u32,
    /// Of the block with the most.
    pub max: u32,
}

impl Erases {
    /// Computes the erases from the counts of each block before and after the window.
    pub fn between(before: &[u32], after: &[u32]) -> Erases {
        let each = || before.iter().zip(after).map(|(b, a)| a - b);
        Erases {
            total: each().map(u64::from).sum(),
            min: each().min().unwrap_or(0),
            max: each().max().unwrap_or(0),
        }
    }
}

/// Operations of one kind, by cause.
pub type Causes = BTreeMap<&'static str, u64>;

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplayRecord {
    /// The protocol.
    pub protocol: &'static str,
    /// The protocol as published instead of the repaired variant.
    pub as_published: bool,
    /// Explicit settings of the protocol.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The device.
    pub device: String,
    /// The trace or workload.
    pub trace: String,
    /// Checksum of the trace file.
    pub trace_sha256: Option<String>,
    /// How far transactions overlapped.
    pub isolation: &'static str,
    /// Fraction of additional aborts.
    pub abort_ratio: f64,
    /// Fraction of the device that was filled.
    pub fill: f64,
    /// Fraction of free blocks below which the collector starts.
    pub gc_threshold: f64,
    /// Clients of a closed loop; `None` in an open loop.
    pub clients: Option<u32>,
    /// Acceleration of an open loop.
    pub speedup: Option<f64>,
    /// The seed.
    pub seed: u64,
    /// Transactions acknowledged.
    pub transactions_committed: u64,
    /// Transactions rolled back.
    pub transactions_aborted: u64,
    /// The measured window, in virtual time.
    pub virtual_ns: u64,
    /// Committed transactions per second of virtual time.
    pub throughput_tps: f64,
    /// Response time of committed transactions: from the end of the client's previous one (closed
    /// loop) or the arrival (open loop) to the acknowledgement.
    pub response_ns: Latency,
    /// Response time of transactions that only read; all zero if there are none.
    pub reads_response_ns: Latency,
    /// Response time of transactions that change something.
    pub writes_response_ns: Latency,
    /// Commits in each twentieth of the window; they decrease when collection sets in.
    pub committed_over_time: Vec<u64>,
    /// Part of the response time: until isolation and the protocol let the transaction begin.
    pub isolation_wait_ns: Latency,
    /// Part of the response time: from the commit request to the acknowledgement.
    pub commit_ns: Latency,
    /// Open loop: arrivals per second of virtual time.
    pub arrivals_tps: Option<f64>,
    /// Open loop: mean number of transactions that have arrived and not ended, as seen by the
    /// arrivals of the second quarter.
    pub backlog_before: Option<f64>,
    /// Like `backlog_before`, for the last quarter.
    pub backlog_after: Option<f64>,
    /// Open loop: whether arrivals exceed completions ([`Load`]).
    pub saturated: Option<bool>,
    /// Open loop: the most bytes in pages of transactions that were under way at one instant: all
    /// pages that each writes, until its commit is durable or it is rolled back.
    pub bytes_under_way: Option<u64>,
    /// Flash operations by kind, then by cause.
    pub flash: BTreeMap<&'static str, Causes>,
    /// Pages written by the host, including trims.
    pub host_pages_written: u64,
    /// Pages that the host read.
    pub host_pages_read: u64,
    /// Pages additionally filled before the run, because they are read before they are written.
    pub pages_filled_for_reads: u64,
    /// Pages programmed per page that the host wrote.
    pub write_amplification: f64,
    /// Sum of the times from the choice of each victim to the end of its erase.
    pub gc_ns: u64,
    /// Victims collected. The number of erases is higher if blocks are used that were not erased
    /// since the device started.
    pub collections: u64,
    /// Summary pages programmed. The figures for mapping include them.
    pub summary_pages: u64,
    /// Pages of data blocks left blank because of shared cells, if `paired_pages` leaves any out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages_left_out: Option<u64>,
    /// Uses of mapping entries, if the setting `map_cache` keeps only some of them in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map_lookups: Option<u64>,
    /// Those of `map_lookups` that read a translation page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map_misses: Option<u64>,
    /// Total time of the collector's flash operations, counting overlaps multiply.
    pub gc_busy_ns: u64,
    /// Fraction of the time of all flash operations that the collector's operations take.
    pub gc_share: f64,
    /// How long planes and channels were occupied, by cause.
    pub occupied: Occupied,
    /// Fraction of all programs that were for mapping or log.
    pub mapping_write_ratio: f64,
    /// Maximum size of each structure in memory.
    pub memory_bytes: BTreeMap<&'static str, u64>,
    /// Duration of a restart after the run, until every committed page can be read.
    pub recovery_ns: u64,
    /// Flash pages read by that restart.
    pub recovery_pages_read: u64,
    /// Erases.
    pub erases: Erases,
    /// Version of the program.
    pub version: &'static str,
    /// Machine-dependent measurements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
}

/// Machine-dependent measurements of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Timing {
    /// Wall-clock time of the run, including fill and restart.
    pub wall_s: f64,
    /// Host pages per second of wall-clock time in the measured window.
    pub host_pages_per_s: f64,
    /// Peak memory of the process; all runs of a process share it.
    pub peak_rss_bytes: Option<u64>,
}

/// Number of operations of one kind and cause, from the names in a record.
pub fn by_cause(record: &ReplayRecord, operation: Operation, cause: Cause) -> u64 {
    record
        .flash
        .get(operation.name())
        .and_then(|c| c.get(cause.name()))
        .copied()
        .unwrap_or(0)
}

/// The explicit settings, by name.
pub fn given<const N: usize>(of: [&Settings; N]) -> BTreeMap<String, String> {
    let given = of.into_iter().flat_map(Settings::given);
    given
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

/// The operations of a run, by kind, then by cause: the same causes for all runs on devices that
/// scrub, or that do not.
pub fn flash_by_cause(stats: &Stats, scrubs: bool) -> BTreeMap<&'static str, Causes> {
    let mut causes = vec![
        Cause::Host,
        Cause::Commit,
        Cause::Gc,
        Cause::Mapping,
        Cause::Log,
    ];
    if scrubs {
        causes.push(Cause::Scrub);
    }
    let of = |op: Operation| causes.iter().map(move |c| (c.name(), stats.count(op, *c)));
    let kinds = Operation::ALL.into_iter();
    kinds.map(|op| (op.name(), of(op).collect())).collect()
}

impl ReplayRecord {
    /// All memory structures that a protocol may have: the names in
    /// [`memory_bytes`](ReplayRecord::memory_bytes).
    pub const STRUCTURES: &[&str] = &[
        "aborted_table",
        "active_tx_table",
        "bitmaps",
        "block_tables",
        "bounds",
        "covered_links",
        "dirty_page_table",
        "evidence",
        "flag_carriers",
        "gates",
        "group",
        "heads",
        "held_pages",
        "live_writes",
        "mapping_log",
        "mapping_table",
        "straddle_responsibility_sets",
        "transaction_table",
        "uncommitted_pages",
        "version_table",
        "waiting_blocks",
        "x_map",
        "zones",
    ];

    /// The record of a span. What is only known after a restart, and the wall-clock time, follow
    /// later.
    pub(super) fn new(
        setup: &Setup,
        isolation: Isolation,
        source: &InputName,
        device: &Device,
        counted: &Counted,
        load: Option<Load>,
        erases: Erases,
    ) -> ReplayRecord {
        let (stats, host) = (device.stats(), device.request_stats());
        let programs = stats.total(Operation::Program);
        let mapping = stats.count(Operation::Program, Cause::Mapping)
            + stats.count(Operation::Program, Cause::Log);
        let virtual_ns = counted.to.since(counted.from).0;
        let leaves_out = setup.device.config.paired_pages != PairedPages::Ignored;
        let caches_map = stats.map_lookups > 0;
        ReplayRecord {
            protocol: setup.kind.info().name,
            as_published: setup.options.as_published,
            settings: given([&setup.options.settings]),
            device: setup.device.name.clone(),
            trace: source.name.clone(),
            trace_sha256: source.sha256.clone(),
            isolation: isolation.name(),
            abort_ratio: setup.terms.abort_ratio,
            fill: setup.terms.fill,
            gc_threshold: setup.device.config.gc_threshold,
            clients: setup.terms.speedup.is_none().then_some(setup.terms.clients),
            speedup: setup.terms.speedup,
            seed: setup.terms.seed,
            transactions_committed: host.committed,
            transactions_aborted: host.aborted,
            virtual_ns,
            throughput_tps: host.committed as f64 / (virtual_ns.max(1) as f64 / 1e9),
            response_ns: Latency::of(&counted.response_ns),
            reads_response_ns: Latency::of(&counted.response_of(true)),
            writes_response_ns: Latency::of(&counted.response_of(false)),
            committed_over_time: counted.committed_in(20),
            isolation_wait_ns: Latency::of(&counted.isolation_wait_ns),
            commit_ns: Latency::of(&counted.commit_ns),
            arrivals_tps: load.and_then(|load| load.arrivals_tps),
            backlog_before: load.map(|load| load.backlog_before),
            backlog_after: load.map(|load| load.backlog_after),
            bytes_under_way: None,
            saturated: load.map(|load| load.saturated),
            flash: flash_by_cause(stats, setup.device.config.scrub.is_some()),
            host_pages_written: host.pages_written,
            host_pages_read: host.pages_read,
            pages_filled_for_reads: 0,
            write_amplification: programs as f64 / host.pages_written.max(1) as f64,
            gc_ns: stats.gc_ns.0,
            collections: stats.collections,
            summary_pages: stats.summaries,
            pages_left_out: leaves_out.then_some(stats.left_out),
            map_lookups: caches_map.then_some(stats.map_lookups),
            map_misses: caches_map.then_some(stats.map_misses),
            gc_busy_ns: stats
                .gc_busy(&setup.device.timing, &setup.device.geometry)
                .0,
            gc_share: stats.gc_share(&setup.device.timing, &setup.device.geometry),
            occupied: Occupied::default(),
            mapping_write_ratio: mapping as f64 / programs.max(1) as f64,
            memory_bytes: counted.memory.iter().copied().collect(),
            recovery_ns: 0,
            recovery_pages_read: 0,
            erases,
            version: env!("CARGO_PKG_VERSION"),
            timing: None,
        }
    }

    /// The record without machine-dependent fields: equal for equal configurations.
    #[must_use]
    pub fn without_wall_clock(mut self) -> ReplayRecord {
        self.timing = None;
        self
    }

    /// Pages programmed for a cause, per committed transaction.
    pub fn programs_per_transaction(&self, cause: Cause) -> f64 {
        by_cause(self, Operation::Program, cause) as f64 / self.transactions_committed.max(1) as f64
    }

    /// Bytes of the structures that only this protocol needs.
    pub fn protocol_memory_bytes(&self) -> u64 {
        let shared = ["mapping_table", "block_tables"];
        self.memory_bytes
            .iter()
            .filter(|(name, _)| !shared.contains(name))
            .map(|(_, b)| b)
            .sum()
    }
}

/// Peak memory of this process, if the system reports it.
pub(super) fn peak_rss_bytes() -> Option<u64> {
    memory_of("self", "VmHWM:")
}

/// A memory figure of a process in bytes, from the status line that begins with `what`.
pub fn memory_of(process: &str, what: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(what))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_and_the_mean_is_exact() {
        let samples: Vec<u64> = (1..=1000).rev().collect();
        let latency = Latency::of(&samples);
        assert_eq!((latency.p50, latency.p99, latency.p999), (500, 990, 999));
        assert!((latency.mean - 500.5).abs() < 1e-9);
        assert_eq!(Latency::of(&[7]).p999, 7);
    }

    #[test]
    fn erases_count_only_the_window() {
        let erases = Erases::between(&[3, 1, 4], &[5, 1, 9]);
        assert_eq!(
            erases,
            Erases {
                total: 7,
                min: 0,
                max: 5
            }
        );
    }
}
