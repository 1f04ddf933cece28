//! The result of a closed-loop run: one record, one JSON object.

use super::Closed;
use crate::driver::{Counted, Load};
use crate::occupied::Occupied;
use crate::replay::{Causes, Erases, Latency, flash_by_cause, given};
use flagstone::ftl::{Cause, Operation};
use flagstone_host::{Host, HostStats, Why};
use serde::Serialize;
use std::collections::BTreeMap;

/// The result of a run. All fields except the last few are about the measured window.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClosedRecord {
    /// The stack, as commands name it.
    pub stack: String,
    /// The protocol as published instead of the repaired variant.
    pub as_published: bool,
    /// The device.
    pub device: String,
    /// The source of the transactions.
    pub workload: String,
    /// The unit of locking.
    pub granularity: String,
    /// Eviction policy and frames of the buffer pool.
    pub policy: String,
    /// See `policy`.
    pub frames: usize,
    /// Explicit settings of the recovery manager, of the protocol below it and of the policy.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Clients of a closed loop; `None` in an open loop.
    pub clients: Option<u32>,
    /// Acceleration of an open loop.
    pub speedup: Option<f64>,
    /// Fraction of transactions that roll back instead of committing.
    pub abort_ratio: f64,
    /// Mean back-off of a victim.
    pub back_off_ns: u64,
    /// Fraction of the device's logical pages in use before the run.
    pub fill: f64,
    /// The seed.
    pub seed: u64,
    /// Transactions committed.
    pub committed: u64,
    /// Transactions rolled back as requested.
    pub rolled_back: u64,
    /// Attempts that were aborted and restarted, by cause.
    pub restarts: BTreeMap<&'static str, u64>,
    /// Restarts per committed transaction.
    pub restart_ratio: f64,
    /// Requests that had to wait for a lock or a device slot.
    pub waits: u64,
    /// The window, in virtual time.
    pub virtual_ns: u64,
    /// Committed transactions per second of virtual time.
    pub throughput_tps: f64,
    /// Response time of committed transactions: from the begin of the first attempt, or the
    /// arrival, to the end.
    pub response_ns: Latency,
    /// Part of the response time: waits for locks and device slots, in all attempts.
    pub isolation_wait_ns: Latency,
    /// Part of the response time: the attempt that committed.
    pub attempt_ns: Latency,
    /// Part of the response time: from the commit request to the end, without waits for a device
    /// slot.
    pub commit_ns: Latency,
    /// Open loop: arrivals per second of virtual time.
    pub arrivals_tps: Option<f64>,
    /// Open loop: mean number of transactions that have arrived and not ended, as seen by the
    /// arrivals of the window's second quarter.
    pub backlog_before: Option<f64>,
    /// Like `backlog_before`, for the last quarter.
    pub backlog_after: Option<f64>,
    /// Open loop: whether arrivals exceed completions ([`Load`]).
    pub saturated: Option<bool>,
    /// Accesses served, including those of aborted attempts.
    pub accesses: u64,
    /// Fraction of buffer pool accesses that were hits.
    pub pool_hit_ratio: f64,
    /// Pages evicted clean and dirty.
    pub evicted_clean: u64,
    /// See `evicted_clean`.
    pub evicted_dirty: u64,
    /// Data pages that the host read and wrote.
    pub pages_read: u64,
    /// See `pages_read`.
    pub pages_written: u64,
    /// Pages written that belonged to live transactions.
    pub pages_stolen: u64,
    /// Log pages that the host wrote, and records.
    pub log_pages: u64,
    /// Log pages that the host would have written if records left the log's buffer with their page
    /// (Flag Commit, §4.1).
    pub log_pages_if_removed: u64,
    /// See `log_pages`.
    pub log_records: u64,
    /// Log forces that wrote something.
    pub log_forces: u64,
    /// Flash operations by kind, then by cause.
    pub flash: BTreeMap<&'static str, Causes>,
    /// Pages programmed per page that the host wrote, including the log.
    pub write_amplification: f64,
    /// Sum of the times from the choice of each victim to the end of its erase.
    pub gc_ns: u64,
    /// Blocks collected.
    pub collections: u64,
    /// Total time of the collector's flash operations, counting overlaps multiply.
    pub gc_busy_ns: u64,
    /// Fraction of the time of all flash operations that the collector's operations take.
    pub gc_share: f64,
    /// How long planes and channels were occupied, by cause.
    pub occupied: Occupied,
    /// Block erases.
    pub erases: Erases,
    /// Maximum size of each structure in memory, except the pool.
    pub memory_bytes: BTreeMap<&'static str, u64>,
    /// Duration of a restart after the run.
    pub recovery_ns: u64,
    /// Flash pages read by that restart.
    pub recovery_pages_read: u64,
    /// Number of records compared with the committed data after the restart; `None` if the run kept
    /// no oracle.
    pub records_checked: Option<u64>,
    /// Transactions of the whole run, including warm-up and completion. All of them have ended.
    pub issued: u64,
    /// Version of the program.
    pub version: &'static str,
    /// Machine-dependent measurements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timing: Option<ClosedTiming>,
}

/// Machine-dependent measurements of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ClosedTiming {
    /// Wall-clock time of the whole run.
    pub wall_s: f64,
    /// Wall-clock time of warm-up and window.
    pub simulated_wall_s: f64,
    /// Transactions that ended in them, per minute of wall-clock time.
    pub transactions_per_wall_minute: f64,
}

impl ClosedRecord {
    /// Memory structures that only stacks have, in addition to
    /// [`ReplayRecord::STRUCTURES`](crate::replay::ReplayRecord::STRUCTURES).
    pub const STRUCTURES: &[&str] = &[
        "entries_on_flash",
        "flags_in_flight",
        "host_tx_table",
        "live_transactions",
        "live_versions",
        "lock_table",
        "log_buffer",
    ];

    /// The record of a span. What is only known after a restart, and the wall-clock time, follow
    /// later.
    pub(super) fn new(
        setup: &Closed,
        host: &Host,
        stats: &HostStats,
        counted: &Counted,
        load: Option<Load>,
        erases: Erases,
    ) -> ClosedRecord {
        let flash = host.ftl().stats();
        let virtual_ns = counted.to.since(counted.from).0;
        let count = |why: &Why| counted.restarts.get(why).copied().unwrap_or(0);
        let restarts: BTreeMap<&str, u64> = Why::ALL
            .iter()
            .map(|why| (why.name(), count(why)))
            .collect();
        let restarted: u64 = restarts.values().sum();
        let evicted = stats.pool.evicted();
        let hits = stats.pool.hits() as f64 / stats.pool.accesses().max(1) as f64;
        let written = stats.pages_written + stats.log.pages_written;
        ClosedRecord {
            stack: setup.stack.to_string(),
            as_published: setup.options.as_published,
            device: setup.device.name.clone(),
            workload: setup.workload.clone(),
            granularity: format!("{:?}", setup.granularity()).to_lowercase(),
            policy: setup.terms.policy.to_string(),
            frames: setup.terms.frames as usize,
            settings: given([
                &setup.settings,
                &setup.options.settings,
                &setup.policy_settings,
            ]),
            clients: setup.terms.speedup.is_none().then_some(setup.terms.clients),
            speedup: setup.terms.speedup,
            abort_ratio: setup.terms.abort_ratio,
            back_off_ns: setup.terms.plan().back_off.0,
            fill: setup.terms.fill,
            seed: setup.terms.seed,
            committed: counted.committed,
            rolled_back: counted.rolled_back,
            restarts,
            restart_ratio: restarted as f64 / counted.committed.max(1) as f64,
            waits: counted.waits,
            virtual_ns,
            throughput_tps: counted.committed as f64 / (virtual_ns.max(1) as f64 / 1e9),
            response_ns: Latency::of(&counted.response_ns),
            isolation_wait_ns: Latency::of(&counted.isolation_wait_ns),
            attempt_ns: Latency::of(&counted.attempt_ns),
            commit_ns: Latency::of(&counted.commit_ns),
            arrivals_tps: load.and_then(|load| load.arrivals_tps),
            backlog_before: load.map(|load| load.backlog_before),
            backlog_after: load.map(|load| load.backlog_after),
            saturated: load.map(|load| load.saturated),
            accesses: counted.accesses,
            pool_hit_ratio: hits,
            evicted_clean: evicted.clean,
            evicted_dirty: evicted.dirty,
            pages_read: stats.pages_read,
            pages_written: stats.pages_written,
            pages_stolen: stats.pages_stolen,
            log_pages: stats.log.pages_written,
            log_pages_if_removed: stats.log.pages_if_removed,
            log_records: stats.log.records,
            log_forces: stats.log.forces,
            flash: flash_by_cause(flash, setup.device.config.scrub.is_some()),
            write_amplification: flash.total(Operation::Program) as f64 / written.max(1) as f64,
            gc_ns: flash.gc_ns.0,
            collections: flash.collections,
            gc_busy_ns: flash
                .gc_busy(&setup.device.timing, &setup.device.geometry)
                .0,
            gc_share: flash.gc_share(&setup.device.timing, &setup.device.geometry),
            occupied: Occupied::default(),
            erases,
            memory_bytes: counted.memory.iter().copied().collect(),
            recovery_ns: 0,
            recovery_pages_read: 0,
            records_checked: None,
            issued: 0,
            version: env!("CARGO_PKG_VERSION"),
            timing: None,
        }
    }

    /// The record without machine-dependent fields: equal for equal configurations.
    #[must_use]
    pub fn without_wall_clock(mut self) -> ClosedRecord {
        self.timing = None;
        self
    }

    /// Number of flash operations of one kind and cause.
    pub fn flash_operations(&self, operation: Operation, cause: Cause) -> u64 {
        let causes = self.flash.get(operation.name());
        causes
            .and_then(|causes| causes.get(cause.name()))
            .copied()
            .unwrap_or(0)
    }
}
