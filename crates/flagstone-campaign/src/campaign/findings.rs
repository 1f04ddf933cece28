//! The findings of a campaign, and the main loop of all campaigns, including those on stores: draws
//! runs in batches, executes them on all cores, and sums up results in the order of drawing.

use super::{RunId, Work};
use flagstone_lab::stop::Stop;
use rayon::prelude::*;
use std::ops::AddAssign;

/// Maximum number of violations kept.
const KEPT: usize = 16;

/// The findings of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings<I = RunId, W = Work> {
    /// Runs executed.
    pub runs: u64,
    /// The work of all runs.
    pub work: W,
    /// The first few runs that ended in a violation, in the order of drawing.
    pub violations: Vec<(I, String)>,
    /// Total number of violations.
    pub violations_total: u64,
    /// Number of kept violations that also occur without the deliberate mistake. They do not prove
    /// that the campaign detects the mistake: they are findings of their own.
    pub without_mistake: u64,
}

impl<I: Sync + Send, W: AddAssign + Default + Send> Findings<I, W> {
    /// Executes runs until `is_enough`, or none are left. `batch_size` determines the next batch
    /// from the findings so far. A run may report a violation of another run.
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

/// Executes runs on all cores. Results are in the order of `ids`.
pub(super) fn over_cores<I: Sync, T: Send>(ids: &[I], one: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let stop = Stop::current();
    let part = |id| stop.within(|| one(id));
    ids.par_iter().map(part).collect()
}
