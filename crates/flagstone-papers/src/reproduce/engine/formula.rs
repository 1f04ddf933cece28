//! The engine without measurements: formulas of [SAL] and [FlagCommit], for curves drawn next to
//! measured ones.

use super::{Outcome, RunError};
use flagstone_index::sal::analysis::{
    UpdateCost, memory_bound, overflow, overflow_bound, record_overflow, unsplit_overflow,
};
use serde::{Deserialize, Serialize};
use toml::Table;

/// Parameters of the formulas: the keys of the table `formula` in an experiment file. Defaults are
/// from \[SAL] §4.1, and 0 for those of \[FlagCommit] §3.3.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FormulaRun {
    /// sf: proportion of the buckets that were split in this cycle.
    split: f64,
    /// l.
    load: f64,
    /// z.
    page_bytes: f64,
    /// r.
    record_bytes: f64,
    /// g.
    group: f64,
    /// k_n.
    records: f64,
    /// Bytes of the log buffer.
    log_buffer: f64,
    /// n.
    speedup: f64,
    /// c_l: number of logs of a region when it is merged.
    logs: f64,
    /// α U_t, in page writes.
    bound: f64,
    /// sc: number of buckets to split in a cycle.
    cycle: f64,
    /// δ. The figure's `abort_ratio`, if there is one.
    abort_ratio: f64,
    /// α: pages read by a transaction.
    reads: f64,
    /// β: pages written by a transaction.
    writes: f64,
    /// γ: blocks reclaimed for each page that is allocated.
    reclaimed: f64,
    /// k: nonempty pages of a block.
    block_pages: f64,
    /// C_r in ms.
    read_ms: f64,
    /// C_w in ms.
    write_ms: f64,
    /// C_bit in ms.
    flag_ms: f64,
    /// C_e in ms: what reclaiming a block costs besides flags.
    reclaim_ms: f64,
}

impl Default for FormulaRun {
    fn default() -> Self {
        FormulaRun {
            split: 0.4,
            load: 0.75,
            page_bytes: 4096.0,
            record_bytes: 16.0,
            group: 16.0,
            records: 80e6,
            log_buffer: 4.0 * 1024.0 * 1024.0,
            speedup: 4.0,
            // Sixteen log pages of 204 logs each.
            logs: 3264.0,
            bound: 0.25,
            cycle: 262_144.0,
            abort_ratio: 0.0,
            reads: 0.0,
            writes: 0.0,
            reclaimed: 0.0,
            block_pages: 0.0,
            read_ms: 0.0,
            write_ms: 0.0,
            flag_ms: 0.0,
            reclaim_ms: 0.0,
        }
    }
}

impl FormulaRun {
    pub(super) fn parse(table: Table) -> Result<FormulaRun, RunError> {
        let parsed = table.try_into::<FormulaRun>();
        parsed.map_err(|error| RunError::parsing(error.message()))
    }

    pub(super) fn name(&self) -> String {
        if self.writes > 0.0 {
            return format!("formulas, {} % aborts", self.abort_ratio * 100.0);
        }
        format!(
            "formulas, split factor {}, groups of {}",
            self.split, self.group
        )
    }

    /// C and C' of \[FlagCommit] §3.3: flash time of a transaction under CFC and AFC in ms.
    fn flag_commit_ms(&self) -> [f64; 2] {
        let flagged = [1.0 - self.abort_ratio, self.abort_ratio];
        flagged.map(|flagged| {
            let flags = self.block_pages * flagged * self.flag_ms;
            self.reads * self.read_ms
                + self.writes * self.write_ms
                + (1.0 - self.abort_ratio) * self.flag_ms
                + self.reclaimed * self.writes * (flags + self.reclaim_ms)
        })
    }

    /// The values of all formulas.
    pub(super) fn outcome(&self) -> Outcome {
        let [cfc_ms, afc_ms] = self.flag_commit_ms();
        let capacity = (self.page_bytes / self.record_bytes) as u32;
        let cost = UpdateCost {
            page_bytes: self.page_bytes,
            log_bytes: self.record_bytes + 4.0,
            groups: self.records / (f64::from(capacity) * self.load * self.group),
            group: self.group,
            speedup: self.speedup,
            overflow: overflow_bound(self.load, capacity),
        };
        let unsplit = unsplit_overflow(self.split, self.load, capacity);
        let halved = (1.0 + self.split) * self.load * f64::from(capacity) / 2.0;
        let metrics = [
            ("cfc_ms_per_tx", cfc_ms),
            ("afc_ms_per_tx", afc_ms),
            ("unsplit_overflow", unsplit),
            ("split_overflow", overflow(halved, capacity)),
            (
                "record_overflow",
                record_overflow(self.split, self.load, capacity),
            ),
            // Four bytes for each bucket that overflows and is not yet split.
            (
                "overflow_index_kb",
                self.cycle * (1.0 - self.split) * unsplit * 4.0 / 1024.0,
            ),
            (
                "update_cost",
                cost.update(self.log_buffer / self.page_bytes, self.logs),
            ),
            (
                "memory_bound",
                memory_bound(self.page_bytes, self.record_bytes, self.group, self.bound),
            ),
        ];
        Outcome::Done {
            metrics: metrics
                .map(|(name, value)| (name.to_string(), value))
                .into(),
            seconds: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn at(change: impl Fn(&mut FormulaRun)) -> BTreeMap<String, f64> {
        let mut run = FormulaRun::default();
        change(&mut run);
        match run.outcome() {
            Outcome::Done { metrics, .. } => metrics,
            Outcome::Refused(why) => panic!("{why}"),
        }
    }

    /// \[FlagCommit] §3.3: AFC costs less below an abort ratio of a half, CFC above.
    #[test]
    fn the_costs_of_cfc_and_afc_cross_at_a_half() {
        let difference = |abort_ratio: f64| {
            let costs = at(|run| {
                (run.abort_ratio, run.writes) = (abort_ratio, 13.5);
                (run.reclaimed, run.block_pages, run.flag_ms) = (0.02, 64.0, 0.2);
            });
            costs["cfc_ms_per_tx"] - costs["afc_ms_per_tx"]
        };
        assert!(difference(0.49) > 0.01 && difference(0.51) < -0.01);
        assert!(difference(0.5).abs() < 1e-9);
    }

    #[test]
    fn the_papers_figures_come_out() {
        let worst = (0..=20).map(|i| at(|run| run.split = f64::from(i) / 20.0)["record_overflow"]);
        let worst = worst.fold(0.0, f64::max);
        assert!((0.45..0.5).contains(&worst), "nearly 50 percent: {worst}");
        assert!((at(|_| {})["memory_bound"] - 0.00247).abs() < 0.0001);
        // The cost falls up to about 128 buckets per group, then rises.
        let cost = |group: f64| at(|run| run.group = group)["update_cost"];
        assert!(cost(4.0) > 3.0 * cost(32.0) && cost(32.0) > cost(128.0));
        assert!(cost(512.0) > cost(128.0));
    }
}
