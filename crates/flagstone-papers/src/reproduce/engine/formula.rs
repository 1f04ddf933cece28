//! The engine without measurements: [SAL]'s formulas, for curves drawn next to measured ones.

use super::{Outcome, RunError};
use flagstone_index::sal::analysis::{
    UpdateCost, memory_bound, overflow, overflow_bound, record_overflow, unsplit_overflow,
};
use serde::{Deserialize, Serialize};
use toml::Table;

/// Parameters of the formulas: the keys of the table `formula` in an experiment file. Defaults are
/// from \[SAL] §4.1.
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
        }
    }
}

impl FormulaRun {
    pub(super) fn parse(table: Table) -> Result<FormulaRun, RunError> {
        let parsed = table.try_into::<FormulaRun>();
        parsed.map_err(|error| RunError::parsing(error.message()))
    }

    pub(super) fn name(&self) -> String {
        format!(
            "formulas, split factor {}, groups of {}",
            self.split, self.group
        )
    }

    pub(super) fn outcome(&self) -> Outcome {
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
