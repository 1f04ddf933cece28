//! Measurements of an index: one record, one JSON object.

use super::{Bench, WindowSpec};
use flagstone::commit::Options;
use flagstone_index::Index;
use flagstone_lab::replay::given;
use serde::Serialize;
use std::collections::BTreeMap;

/// Measurements of one window.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Window {
    /// Its name.
    pub name: String,
    /// Operations.
    pub operations: u64,
    /// Pages read.
    pub reads: u64,
    /// Pages written, including coarse writes.
    pub writes: u64,
    /// Requests that read several pages in parallel.
    pub coarse_reads: u64,
    /// Requests that wrote several pages in parallel.
    pub coarse_writes: u64,
    /// Pages written by coarse writes.
    pub coarse_pages: u64,
    /// Virtual time.
    pub virtual_ns: u64,
    /// Key comparisons.
    pub comparisons: u64,
    /// Fraction of page accesses that were cache hits.
    pub hit_ratio: f64,
    /// Bytes in memory at the end, by structure.
    pub memory_bytes: BTreeMap<&'static str, u64>,
    /// The index's own counters.
    pub figures: BTreeMap<&'static str, f64>,
    /// Processor time of the window, including the simulated device. Depends on the machine: only
    /// ratios are meaningful. Excludes threads of a file store.
    pub cpu_s: f64,
}

impl Window {
    /// The measurements of a window, from the counters of its index since they were reset.
    pub(super) fn of(spec: &WindowSpec, index: &dyn Index, virtual_ns: u64, cpu_s: f64) -> Window {
        let stats = index.stats();
        let misses = stats.pool.read_misses + stats.pool.write_misses;
        let accesses = (stats.pool.hits() + misses).max(1);
        Window {
            name: spec.name.clone(),
            operations: spec.operations,
            reads: stats.reads,
            writes: stats.writes,
            coarse_reads: stats.coarse_reads,
            coarse_writes: stats.coarse_writes,
            coarse_pages: stats.coarse_pages,
            virtual_ns,
            comparisons: stats.comparisons,
            hit_ratio: stats.pool.hits() as f64 / accesses as f64,
            memory_bytes: index.memory().into_iter().collect(),
            figures: index.figures().into_iter().collect(),
            cpu_s,
        }
    }
}

/// Measurements of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IndexRecord {
    /// The index.
    pub index: &'static str,
    /// Settings other than defaults.
    pub settings: BTreeMap<String, String>,
    /// The workload.
    pub workload: String,
    /// Storage of the index: `sim`, `mem` or `file`.
    pub store: &'static str,
    /// The device, if there is one.
    pub device: Option<String>,
    /// The commit protocol, if there is one.
    pub protocol: Option<&'static str>,
    /// Settings of the protocol.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub protocol_settings: BTreeMap<String, String>,
    /// Seed of keys and operations.
    pub seed: u64,
    /// Number of keys before the first window.
    pub loaded: u64,
    /// Number of keys after the last window.
    pub records: u64,
    /// The windows.
    pub windows: Vec<Window>,
    /// Processor time of loading and warm-up.
    pub load_s: f64,
}

impl IndexRecord {
    /// The record of a run. `records` is the number of keys at its end, `load_s` the time until the
    /// first window.
    pub(super) fn new(bench: &Bench, records: u64, load_s: f64, windows: Vec<Window>) -> Self {
        let (device, protocol, options) = match &bench.place {
            super::Place::Sim {
                device,
                protocol,
                options,
            } => {
                let (device, protocol) = (device.name.clone(), protocol.info().name);
                (Some(device), Some(protocol), options.clone())
            }
            super::Place::Mem { .. } | super::Place::File { .. } => {
                (None, None, Options::default())
            }
        };
        IndexRecord {
            index: bench.index.info().name,
            settings: given([&bench.settings]),
            workload: bench.workload.name.clone(),
            store: bench.place.name(),
            device,
            protocol,
            protocol_settings: given([&options.settings]),
            seed: bench.seed,
            loaded: bench.workload.load,
            records,
            windows,
            load_s,
        }
    }
}
