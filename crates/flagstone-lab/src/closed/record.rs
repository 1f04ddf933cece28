//! The result of a closed-loop run: one record, one JSON object.

use super::Closed;
use crate::driver::{Counted, Load};
use crate::occupied::Occupied;
use crate::replay::{Causes, Erases, Latency, flash_by_cause, given};
use flagstone::ftl::{Cause, Operation};
use flagstone::host::{Host, HostStats, Why};
use serde::Serialize;
use std::collections::BTreeMap;

/// The result of a run. All but the last lines is of the measured window.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClosedRecord {
    /// The stack, as commands name it.
    pub stack: String,
    /// The form as printed instead of the repaired one.
    pub as_published: bool,
    /// The device.
    pub device: String,
    /// Where the transactions come from.
    pub workload: String,
    /// What is locked.
    pub granularity: String,
    /// Eviction policy and frames of the buffer pool.
    pub policy: String,
    /// See `policy`.
    pub frames: usize,
    /// Settings of the recovery manager, of the protocol below it and of the policy, as far as they
    /// were given.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Clients of a closed loop; none in an open one.
    pub clients: Option<u32>,
    /// Acceleration of an open loop.
    pub speedup: Option<f64>,
    /// Share of transactions that roll back where they would commit.
    pub abort_ratio: f64,
    /// Mean back-off of a victim.
    pub back_off_ns: u64,
    /// Share of the device's logical pages that held something before.
    pub fill: f64,
    /// The seed.
    pub seed: u64,
    /// Transactions committed.
    pub committed: u64,
    /// Transactions that rolled back because they wanted to.
    pub rolled_back: u64,
    /// Attempts that were aborted and started again, by each cause that there is.
    pub restarts: BTreeMap<&'static str, u64>,
    /// Restarts for each committed transaction.
    pub restart_ratio: f64,
    /// Requests that had to wait for a lock or a place.
    pub waits: u64,
    /// The window, in virtual time.
    pub virtual_ns: u64,
    /// Committed transactions a second of virtual time.
    pub throughput_tps: f64,
    /// Response time: what a client waits for a transaction that commits, from the begin of its
    /// first attempt, or the arrival, to the end.
    pub response_ns: Latency,
    /// Of the response time, waits for locks and for a place among the transactions of the device,
    /// in all attempts.
    pub isolation_wait_ns: Latency,
    /// Of the response time, the attempt that committed.
    pub attempt_ns: Latency,
    /// Of the response time, what passes from the request to commit to the end, a wait for a place
    /// left out.
    pub commit_ns: Latency,
    /// Open loop: transactions that arrive in a second of virtual time.
    pub arrivals_tps: Option<f64>,
    /// Open loop: transactions that have arrived and not ended, as the arrivals of the window's
    /// second quarter find them, the mean.
    pub backlog_before: Option<f64>,
    /// The same of the last quarter.
    pub backlog_after: Option<f64>,
    /// Open loop: whether more arrives than ends ([`Load`]).
    pub saturated: Option<bool>,
    /// Accesses served, those of aborted attempts included.
    pub accesses: u64,
    /// Share of the accesses to the buffer pool that found their page.
    pub pool_hit_ratio: f64,
    /// Pages evicted clean and dirty.
    pub evicted_clean: u64,
    /// See `evicted_clean`.
    pub evicted_dirty: u64,
    /// Data pages that the host read and wrote.
    pub pages_read: u64,
    /// See `pages_read`.
    pub pages_written: u64,
    /// Of these, pages of live transactions.
    pub pages_stolen: u64,
    /// Log pages that the host wrote, and records.
    pub log_pages: u64,
    /// See `log_pages`.
    pub log_records: u64,
    /// Waits for the log that wrote something.
    pub log_forces: u64,
    /// Flash operations: kind, then cause.
    pub flash: BTreeMap<&'static str, Causes>,
    /// Pages programmed for each page that the host wrote, log included.
    pub write_amplification: f64,
    /// From the choice of each victim to the end of its erase, summed.
    pub gc_ns: u64,
    /// Blocks collected.
    pub collections: u64,
    /// Time of the collector's flash operations, added up whether or not they overlapped.
    pub gc_busy_ns: u64,
    /// Its share in the time of all flash operations.
    pub gc_share: f64,
    /// For how long planes and channels were occupied, and by what.
    pub occupied: Occupied,
    /// Erases.
    pub erases: Erases,
    /// The most that each structure in memory took, the pool not counted.
    pub memory_bytes: BTreeMap<&'static str, u64>,
    /// A restart after the run.
    pub recovery_ns: u64,
    /// Flash pages that it reads.
    pub recovery_pages_read: u64,
    /// Records that were held against what had been committed, after the restart; none if the run
    /// kept no oracle.
    pub records_checked: Option<u64>,
    /// Transactions of the whole run, warm-up and the end included, each of which has ended.
    pub issued: u64,
    /// Version of the program.
    pub version: &'static str,
    /// What depends on the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timing: Option<ClosedTiming>,
}

/// What a run took of the machine that it ran on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ClosedTiming {
    /// Wall-clock time of the whole run.
    pub wall_s: f64,
    /// Wall-clock time of warm-up and window.
    pub simulated_wall_s: f64,
    /// Transactions that ended in them, a minute of wall clock.
    pub transactions_per_wall_minute: f64,
}

impl ClosedRecord {
    /// Structures in memory that only stacks have, besides
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
            log_records: stats.log.records,
            log_forces: stats.log.forces,
            flash: flash_by_cause(flash),
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

    /// The record without what depends on the machine: equal for equal configurations.
    #[must_use]
    pub fn without_wall_clock(mut self) -> ClosedRecord {
        self.timing = None;
        self
    }

    /// Flash operations of a kind for a cause.
    pub fn flash_operations(&self, operation: Operation, cause: Cause) -> u64 {
        let causes = self.flash.get(operation.name());
        causes
            .and_then(|causes| causes.get(cause.name()))
            .copied()
            .unwrap_or(0)
    }
}
