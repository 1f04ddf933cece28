//! Looks for a smaller run that fails, so that its story is short.

use super::Work;
use super::run::{execute, make_base};
use super::run_id::RunId;
use super::sabotage::Sabotage;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Candidates that are tried.
const TRIES: u64 = 6_000;

/// The failing run with the fewest flash operations that a search finds: blank device, fewer
/// clients and pages, fewer and earlier cuts, then by chance.
pub(super) fn shrink(id: &RunId, sabotage: Sabotage) -> RunId {
    let mut best = (size(id, sabotage).unwrap_or(u64::MAX), id.clone());
    let mut dice = Pcg64Mcg::seed_from_u64(id.seed);
    for attempt in 0..TRIES {
        let mut next = best.1.clone();
        match attempt % 4 {
            0 => next.base = 0,
            1 => {
                let keep = dice.random_range(0..next.cuts.len().max(1));
                if next.cuts.len() > 1 {
                    next.cuts.remove(keep);
                }
            }
            _ => {}
        }
        if attempt > 200 {
            next.base = 0;
        }
        if dice.random_bool(0.5) {
            next.clients = dice.random_range(1..=next.clients);
        }
        if dice.random_bool(0.5) {
            next.pages = dice.random_range(2..=next.pages);
        }
        for cut in &mut next.cuts {
            if dice.random_bool(0.7) {
                cut.at = dice.random_range(0..=cut.at);
            }
            if dice.random_bool(0.3) {
                cut.dice = dice.random_range(0..=0xff);
            }
            cut.torn &= dice.random_bool(0.7);
        }
        if dice.random_bool(0.8) {
            next.seed = dice.random_range(0..10_000);
        }
        if let Some(size) = size(&next, sabotage)
            && size < best.0
        {
            best = (size, next);
        }
    }
    best.1
}

/// Operations of a run that fails; nothing if it does not.
fn size(id: &RunId, sabotage: Sabotage) -> Option<u64> {
    let base = make_base(id, sabotage);
    let (work, result) = execute(id, sabotage, &base, &None);
    let Work {
        operations, steps, ..
    } = work;
    let aged = if id.base == 0 { 0 } else { 1_000 };
    result.is_err().then_some(operations * 4 + steps + aged)
}
