//! What a campaign found, and the loop of all campaigns, those of stores as well: runs are drawn in
//! batches, carried out over the cores, and summed up in the order of their drawing.

use super::{RunId, Work};
use crate::stop::Stop;
use rayon::prelude::*;
use std::ops::AddAssign;

/// Violations that a campaign keeps.
const KEPT: usize = 16;

/// What a campaign found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings<I = RunId, W = Work> {
    /// Runs carried out.
    pub runs: u64,
    /// The work of all runs.
    pub work: W,
    /// Runs that ended in a violation, by the order of their drawing; the first few.
    pub violations: Vec<(I, String)>,
    /// How many there were.
    pub violations_total: u64,
    /// Of those that are kept, how many fail without the mistake made on purpose as well. They do
    /// not show that a campaign finds the mistake: they are findings of their own.
    pub without_mistake: u64,
}

impl<I: Sync + Send, W: AddAssign + Default + Send> Findings<I, W> {
    /// Carries runs out until there `is_enough`, or no more of them. `batch_size` says how many are
    /// next, by what was found before. A run may find that another one is violated.
    pub(crate) fn of(
        mut ids: impl Iterator<Item = I>,
        batch_size: impl Fn(&Self) -> usize,
        carry_out: impl Fn(&I) -> (W, Option<(I, String)>) + Sync,
        fails_without_mistake: impl Fn(&I) -> bool,
        is_enough: impl Fn(&Self) -> bool,
    ) -> Self {
        let mut all = Findings {
            runs: 0,
            work: W::default(),
            violations: Vec::new(),
            violations_total: 0,
            without_mistake: 0,
        };
        while !is_enough(&all) {
            let batch: Vec<I> = ids.by_ref().take(batch_size(&all)).collect();
            if batch.is_empty() {
                break;
            }
            for (work, found) in over_cores(&batch, &carry_out) {
                all.runs += 1;
                all.work += work;
                if let Some((id, what)) = found {
                    all.violations_total += 1;
                    if all.violations.len() < KEPT {
                        all.without_mistake += u64::from(fails_without_mistake(&id));
                        all.violations.push((id, what));
                    }
                }
                if is_enough(&all) {
                    break;
                }
            }
        }
        all
    }
}

/// Carries runs out over the cores. What they did is in the order of the ids.
pub(super) fn over_cores<I: Sync, T: Send>(ids: &[I], one: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let stop = Stop::current();
    let part = |id| stop.within(|| one(id));
    ids.par_iter().map(part).collect()
}
