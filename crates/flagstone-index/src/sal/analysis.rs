//! The formulas of the paper as functions: those that the index uses for decisions, and those of
//! figures that are not measured. \[SAL] §3.3 to §3.5, equations (3) to (9), Fig. 2, 3, 15.
//!
//! The form of (3) is corrected: the distribution sums to 1 only if the −1 is taken from the power.
//!
//! ```
//! use flagstone_index::sal::analysis::{lookups_threshold, merge_distribution, stable};
//!
//! let sum: f64 = merge_distribution(30).iter().sum();
//! assert!((sum - 1.0).abs() < 1e-9);
//! let lookups = lookups_threshold(30, 0.5);
//! assert!(stable(30, lookups) < 0.5 && stable(30, lookups - 1) >= 0.5);
//! ```

/// (3) for all days `1..=p`: the probability that the log region is merged at lookup i.
pub fn merge_distribution(p: u32) -> Vec<f64> {
    let ratio = f64::from(p + 1) / f64::from(p);
    let whole = f64::from(p) * (ratio.powi(p as i32) - 1.0);
    (0..p as i32).map(|i| ratio.powi(i) / whole).collect()
}

/// The probability of a merge at lookup i (from 1) of a region that is not merged yet. With it, (3)
/// is the distribution of the day of the merge. 1 from the p-th lookup on.
pub fn merge_hazard(p: u32, i: u32) -> f64 {
    if i >= p {
        return 1.0;
    }
    let ratio = f64::from(p + 1) / f64::from(p);
    1.0 / (f64::from(p) * (ratio.powi((p - i + 1) as i32) - 1.0))
}

/// (9): the probability that a log region survives i lookups.
pub fn stable(p: u32, i: u32) -> f64 {
    if i >= p {
        return 0.0;
    }
    let ratio = f64::from(p + 1) / f64::from(p);
    let whole = ratio.powi(p as i32);
    (whole - ratio.powi(i as i32)) / (whole - 1.0)
}

/// The number of lookups from which a log region survives with a probability below `threshold`.
pub fn lookups_threshold(p: u32, threshold: f64) -> u32 {
    let i = (1..p).find(|&i| stable(p, i) < threshold);
    i.unwrap_or(p).max(1)
}

/// (4), Fig. 2: the overflow probability of a bucket with room for `capacity` records and an
/// expected number of `mean`.
pub fn overflow(mean: f64, capacity: u32) -> f64 {
    if mean <= 0.0 {
        return 0.0;
    }
    // Summed from the mean outwards, in logarithms: otherwise the terms of large pages underflow.
    let mut log_factorial = 0.0;
    let mut fits = 0.0;
    for i in 0..=capacity {
        if i > 1 {
            log_factorial += f64::from(i).ln();
        }
        fits += (f64::from(i) * mean.ln() - mean - log_factorial).exp();
    }
    (1.0 - fits).clamp(0.0, 1.0)
}

/// Fig. 2: the overflow probability of a bucket that is not split yet, in a cycle of which the
/// proportion `split` is done.
pub fn unsplit_overflow(split: f64, load: f64, capacity: u32) -> f64 {
    overflow((1.0 + split) * load * f64::from(capacity), capacity)
}

/// Fig. 3: the probability that a record is in a bucket with overflow pages.
pub fn record_overflow(split: f64, load: f64, capacity: u32) -> f64 {
    unsplit_overflow(split, load, capacity) * (1.0 - split)
}

/// p_u of (7): overflow pages per bucket, at the worst moment of a cycle.
pub fn overflow_bound(load: f64, capacity: u32) -> f64 {
    (0..=100)
        .map(|i| {
            let split = f64::from(i) / 100.0;
            (1.0 - split) / (1.0 + split) * unsplit_overflow(split, load, capacity)
        })
        .fold(0.0, f64::max)
}

/// (5): index entries of a shared memory page of `page_bytes` with `2^k` sub-clusters, for
/// `segments` segments of 1024 buckets to split per cycle and `cluster` segments per cluster.
pub fn shared_page_entries(k: u32, page_bytes: u32, segments: u32, cluster: u32) -> f64 {
    let head = 2.0 * f64::from(segments).log2() + f64::from(1u32 << k) * 10.0;
    let entry = (1024.0 * f64::from(cluster)).log2() + 32.0 - f64::from(k);
    (f64::from(page_bytes) * 8.0 - head) / entry
}

/// Inputs of the update costs (6) to (8). Costs are in page writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateCost {
    /// z: bytes per page.
    pub page_bytes: f64,
    /// r + 4: bytes of a log in memory.
    pub log_bytes: f64,
    /// g_n: number of groups.
    pub groups: f64,
    /// g: buckets per group.
    pub group: f64,
    /// n: pages written by a coarse write in the time of a single write.
    pub speedup: f64,
    /// Overflow pages per bucket: p_u of the paper, or another estimate.
    pub overflow: f64,
}

impl UpdateCost {
    /// Logs per set in a log buffer of `pages` pages, if all sets are equal.
    pub fn logs_of_a_set(&self, pages: f64) -> f64 {
        (pages * self.page_bytes - 2.0 * self.groups).max(0.0) / (self.log_bytes * self.groups)
    }

    /// The first term of (6) and (7), U_f: a log page and a head per flush of a set.
    pub fn flush(&self, pages: f64) -> f64 {
        2.0 / self.logs_of_a_set(pages)
    }

    /// (7), U_e; (6) with another `overflow`: a flush, and a merge of a region with `logs` logs.
    pub fn update(&self, pages: f64, logs: f64) -> f64 {
        self.flush(pages) + self.merge() / logs
    }

    fn merge(&self) -> f64 {
        self.group / self.speedup + self.overflow * self.group
    }

    /// m_t: pages of a log buffer for which (8), U_worst, is `bound`: (7) if each merged region was
    /// flushed once.
    pub fn pages_for_worst(&self, bound: f64) -> f64 {
        self.pages_for(2.0 + self.merge(), bound)
    }

    /// Pages of a log buffer for which U_f is `bound`.
    pub fn pages_for_flush(&self, bound: f64) -> f64 {
        self.pages_for(2.0, bound)
    }

    fn pages_for(&self, writes: f64, bound: f64) -> f64 {
        let logs = self.log_bytes * self.groups * writes / bound;
        (logs + 2.0 * self.groups) / self.page_bytes
    }

    /// Pages of a log buffer for which (7) is `bound`, with `logs` logs in a merged region; `None`
    /// if merging alone costs as much.
    pub fn pages_for_update(&self, bound: f64, logs: f64) -> Option<f64> {
        let left = bound - self.merge() / logs;
        (left > 0.0).then(|| self.pages_for(2.0, left))
    }
}

/// The maximum log buffer as a proportion of the index, if U_f is limited by `bound` (α U_t). §3.5.
pub fn memory_bound(page_bytes: f64, record_bytes: f64, group: f64, bound: f64) -> f64 {
    2.0 * (record_bytes + 4.0) / (bound * page_bytes * group) + 2.0 / (page_bytes * group)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: f64 = 0.75;
    /// Records of 16 bytes in a page of 4096.
    const B: u32 = 256;

    #[test]
    fn the_merge_is_certain_and_its_day_is_distributed_as_it_should() {
        for p in 1..=60 {
            let days = merge_distribution(p);
            let sum: f64 = days.iter().sum();
            assert!((sum - 1.0).abs() < 1e-12, "{p}: {sum}");
            // Drawing with these probabilities in turn reproduces the distribution.
            let mut alive = 1.0;
            for (i, day) in (1..).zip(&days) {
                let hazard = merge_hazard(p, i);
                assert!((alive * hazard - day).abs() < 1e-12, "p {p}, day {i}");
                alive -= day;
                assert!((stable(p, i) - alive).abs() < 1e-12, "p {p}, day {i}");
            }
            assert_eq!(merge_hazard(p, p), 1.0);
        }
    }

    /// D1 of SAL-hashing.
    #[test]
    fn the_form_as_printed_sums_to_less_than_one() {
        let printed = |p: f64| {
            let ratio = (p + 1.0) / p;
            let whole = p * (1.0 + 1.0 / p).powf(p - 1.0);
            let days = (0..p as i32).map(|i| ratio.powi(i) / whole);
            days.sum::<f64>()
        };
        assert!((printed(2.0) - 0.83).abs() < 0.005, "{}", printed(2.0));
        assert!((printed(50.0) - 0.64).abs() < 0.005, "{}", printed(50.0));
    }

    #[test]
    fn lemma_1_holds_within_the_days_of_both() {
        for p in 2..60 {
            let (one, next) = (merge_distribution(p), merge_distribution(p + 1));
            assert!(one.iter().zip(&next).all(|(a, b)| a > b), "p {p}");
        }
    }

    #[test]
    fn a_merge_costs_at_most_what_the_ratio_allows() {
        // Buying costs i + p at the i-th lookup; the best in hindsight is min(days, p).
        let p = 10;
        let days = merge_distribution(p);
        for rented in 1..=3 * p {
            let cost: f64 = (1..)
                .zip(&days)
                .map(|(i, day)| day * f64::from(if i <= rented { i + p } else { rented }))
                .sum();
            let ratio = cost / f64::from(rented.min(p));
            assert!(ratio <= 1.6275, "{rented}: {ratio}");
        }
    }

    #[test]
    fn figure_2_rises_to_one_and_figure_3_peaks_at_a_half() {
        assert!(unsplit_overflow(0.0, LOAD, B) < 1e-4);
        assert!(unsplit_overflow(0.5, LOAD, B) > 0.97);
        let worst = (0..=100).map(|i| record_overflow(f64::from(i) / 100.0, LOAD, B));
        let worst = worst.fold(0.0, f64::max);
        assert!((worst - 0.499).abs() < 0.001, "{worst}");
        // Large pages do not underflow.
        assert!((overflow(1024.0, 1023) - 0.5).abs() < 0.02);
    }

    #[test]
    fn the_share_of_overflow_pages_is_bound() {
        let bound = overflow_bound(LOAD, B);
        assert!((bound - 0.345).abs() < 0.001, "{bound}");
    }

    #[test]
    fn lemma_2_holds() {
        for cluster in [2, 8, 64] {
            let entries = |k| shared_page_entries(k, 4096, 128, cluster);
            assert!((1..7).all(|k| entries(k) < entries(k + 1)) || cluster > 8);
            assert!((7..10).all(|k| entries(k) > entries(k + 1)));
        }
    }

    fn figure_15(group: f64, speedup: f64) -> UpdateCost {
        UpdateCost {
            page_bytes: 4096.0,
            log_bytes: 20.0,
            groups: 8e7 / (256.0 * LOAD * group),
            group,
            speedup,
            overflow: 0.35,
        }
    }

    #[test]
    fn the_log_buffer_of_80_million_records_is_as_large_as_recomputed() {
        for (speedup, megabytes) in [(2.0, 15.5), (4.0, 11.5), (8.0, 9.5)] {
            let cost = UpdateCost {
                overflow: 0.345,
                ..figure_15(16.0, speedup)
            };
            assert!((cost.groups - 26_042.0).abs() < 1.0);
            let pages = cost.pages_for_worst(0.5);
            let found = pages * 4096.0 / f64::from(1 << 20);
            assert!((found - megabytes).abs() < 0.1, "n {speedup}: {found} MB");
            let worst = cost.update(pages, cost.logs_of_a_set(pages));
            assert!((worst - 0.5).abs() < 1e-9);
            let flush = cost.pages_for_flush(0.25);
            assert!((cost.flush(flush) - 0.25).abs() < 1e-9);
            let update = cost.pages_for_update(0.5, 200.0).expect("cheaper");
            assert!((cost.update(update, 200.0) - 0.5).abs() < 1e-9);
        }
    }

    #[test]
    fn figure_15_falls_then_rises() {
        let amortised = |group| {
            let cost = figure_15(group, 4.0);
            cost.update(1024.0, 3264.0)
        };
        let curve: Vec<f64> = [4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]
            .map(amortised)
            .to_vec();
        assert!(curve[0] > 2.0 * curve[2], "{curve:?}");
        assert!(
            curve[0] - curve[3] > 5.0 * (curve[3] - curve[5]).abs(),
            "{curve:?}"
        );
        assert!(curve[6] > curve[5] * 0.9, "{curve:?}");
    }

    #[test]
    fn the_log_buffer_is_a_quarter_of_a_percent_of_the_index() {
        let bound = memory_bound(4096.0, 16.0, 16.0, 0.25);
        assert!((bound - 0.00247).abs() < 0.000_01, "{bound}");
    }

    #[test]
    fn lookups_reach_the_threshold() {
        for p in 1..100 {
            let i = lookups_threshold(p, 0.2);
            assert!(i == p || stable(p, i) < 0.2);
            assert!(i == 1 || stable(p, i - 1) >= 0.2);
        }
    }
}
