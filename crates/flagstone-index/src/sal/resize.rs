//! Selects the set to flush when the log buffer is full, and sizes the log buffer. [SAL] §3.5.

use super::analysis::{UpdateCost, lookups_threshold, overflow_bound};
use super::logs::ENTRY_BYTES;
use super::{INFO, Options, Sal};
use crate::{Result, Settings};
use flagstone::units::Nanos;

/// Division of the memory between log buffer and page frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    memory: usize,
    page_bytes: usize,
    /// Log buffer in pages (the paper's m): current, wanted, initial and maximum.
    pages: usize,
    wanted: usize,
    first: usize,
    most: usize,
    resizes: bool,
    /// U_t: maximum page writes per change, and the share of it that flushes may cost.
    ut: f64,
    alpha: f64,
    /// p_t: minimum probability that the log region of a flushed set outlives the set's lookups.
    pt: f64,
    /// p_u: maximum overflow pages per bucket.
    pub(super) overflow_bound: f64,
    /// Flushes and merges per period, and those in the current one.
    period: u64,
    events: u64,
    /// Whether both bounds held during the period, and the largest number of logs of a merge.
    calm: bool,
    most_logs: usize,
    /// Position of the clock hand that selects victims.
    hand: u32,
}

impl Budget {
    /// The budget that the settings give. `capacity`: records per page of a bucket.
    pub(super) fn new(
        settings: &Settings,
        page_bytes: usize,
        capacity: usize,
        options: Options,
    ) -> Result<Budget> {
        let memory = INFO.memory(settings)? as usize;
        let share = |name: &str| -> Result<usize> {
            let share: f64 = settings.number(&INFO, name, 0.0, 0.9)?;
            Ok(((memory as f64 * share) as usize / page_bytes).max(1))
        };
        let first = share("log_buffer")?;
        Ok(Budget {
            memory,
            page_bytes,
            pages: first,
            wanted: first,
            first,
            most: share("log_buffer_max")?.max(first),
            resizes: settings.flag(&INFO, "resize")?,
            ut: settings.number(&INFO, "ut", 0.001, 1000.0)?,
            alpha: settings.number(&INFO, "alpha", 0.001, 1.0)?,
            pt: settings.number(&INFO, "pt", 0.0, 1.0)?,
            overflow_bound: overflow_bound(options.load_factor, capacity as u32),
            period: settings.number(&INFO, "period", 1, u64::MAX)?,
            events: 0,
            calm: true,
            most_logs: 0,
            hand: 0,
        })
    }

    /// Number of page frames if other structures use `others` bytes.
    pub(super) fn frames(&self, others: u64) -> usize {
        let logs = self.pages * self.page_bytes + others as usize;
        self.memory.saturating_sub(logs) / self.page_bytes
    }

    /// Capacity of the log buffer in logs; two bytes per group are deducted.
    pub(super) fn logs(&self, groups: u32) -> usize {
        let bytes = self.pages * self.page_bytes;
        bytes.saturating_sub(2 * groups as usize) / ENTRY_BYTES
    }

    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    /// Grows half of the way to `target`, within the memory limit.
    fn grow_towards(&mut self, target: f64) {
        let target = (target.ceil() as usize).min(self.most);
        self.wanted = self
            .wanted
            .max(self.pages + target.saturating_sub(self.pages).div_ceil(2));
    }
}

impl Sal {
    /// The inputs of the paper's update costs (6) to (8), at present.
    fn update_cost(&self) -> UpdateCost {
        let places = self.shape.capacity() as f64 * self.options.load_factor;
        let group = f64::from(self.group());
        UpdateCost {
            page_bytes: self.cache.page_bytes() as f64,
            log_bytes: ENTRY_BYTES as f64,
            groups: (self.records().max(1) as f64 / (places * group)).max(1.0),
            group,
            speedup: self.costs.speedup(),
            overflow: self.budget.overflow_bound,
        }
    }

    /// Flushes a set.
    pub(super) fn make_room(&mut self, now: Nanos) -> Result<Nanos> {
        let set = self.victim();
        self.flush_set(now, set)
    }

    /// Selects the set whose logs are flushed. If a set with a log region has at least the average
    /// number of logs, the one of these with the most; otherwise, by a clock, one of at least
    /// average size that is large or rarely searched.
    pub(super) fn victim(&mut self) -> u32 {
        // The largest set has at least as many, so that the clock finds one.
        let average = self.logs.len().div_ceil(self.logs.sets().max(1)).max(1) as u32;
        let largest = self
            .logs
            .largest(average, &|set| self.groups.has_region(set));
        if let Some(set) = largest {
            return set;
        }
        let cost = self.update_cost();
        let enough = cost.logs_of_a_set(cost.pages_for_worst(self.budget.ut));
        loop {
            let set = self.budget.hand;
            let sets = self.logs.counts().len() as u32;
            self.budget.hand = if set + 1 < sets { set + 1 } else { 0 };
            let logs = self.logs.count(set);
            if logs == 0 {
                continue;
            }
            let lookups = self.groups.lookups(set);
            if logs >= average {
                // Merged at once, it would cost at most U_t; or an early merge is unlikely.
                let likely = || lookups_threshold(self.rental(set, 1), self.budget.pt);
                if f64::from(logs) > enough || lookups < likely() {
                    return set;
                }
            }
            self.groups.set_lookups(set, lookups / 2);
        }
    }

    /// Called after a flush: if it was too expensive, the log buffer is too small.
    pub(super) fn flushed(&mut self) {
        if self.budget.resizes {
            let (cost, bound) = (self.update_cost(), self.budget.alpha * self.budget.ut);
            if cost.flush(self.budget.pages as f64) > bound {
                self.budget.calm = false;
                self.budget.grow_towards(cost.pages_for_flush(bound));
            }
            self.event(&cost);
        }
    }

    /// Called after a region with `logs` logs was merged.
    pub(super) fn merged(&mut self, logs: usize) {
        if self.budget.resizes {
            let cost = self.update_cost();
            let ut = self.budget.ut;
            self.budget.most_logs = self.budget.most_logs.max(logs);
            if logs > 0 && cost.update(self.budget.pages as f64, logs as f64) > ut {
                self.budget.calm = false;
                self.budget.grow_towards(cost.pages_for_worst(ut));
            }
            self.event(&cost);
        }
    }

    /// Counts a flush or a merge. At the end of a period in which both bounds held, makes half of
    /// the memory that the log buffer does not need the page frames' again.
    fn event(&mut self, cost: &UpdateCost) {
        let budget = &mut self.budget;
        budget.events += 1;
        if budget.events < budget.period {
            return;
        }
        if budget.calm && budget.pages > budget.first {
            let flush = cost.pages_for_flush(budget.alpha * budget.ut);
            let update = match budget.most_logs {
                0 => 0.0,
                logs => cost
                    .pages_for_update(budget.ut, logs as f64)
                    .unwrap_or(f64::MAX),
            };
            let least = flush.max(update).ceil().min(budget.pages as f64) as usize;
            let least = least.max(budget.first);
            budget.wanted = budget.pages - (budget.pages - least).div_ceil(2);
        }
        (budget.events, budget.calm, budget.most_logs) = (0, true, 0);
    }

    /// Resizes the log buffer to its wanted size. Flushes what no longer fits.
    pub(super) fn resize(&mut self, mut now: Nanos) -> Result<Nanos> {
        let (pages, wanted) = (self.budget.pages, self.budget.wanted);
        // One page among hundreds is not worth the work.
        if wanted.abs_diff(pages) <= pages / 32 {
            return Ok(now);
        }
        self.budget.pages = wanted;
        if wanted > pages {
            self.counts.log_buffer_grown += 1;
        } else {
            self.counts.log_buffer_shrunk += 1;
        }
        let capacity = self.budget.logs(self.groups.len()).max(4);
        while self.logs.len() >= capacity {
            now = self.make_room(now)?;
        }
        self.rebuild_logs(capacity);
        let others = self.groups.memory() + self.overflows.memory();
        Ok(self.cache.resize(now, self.budget.frames(others))?)
    }
}
