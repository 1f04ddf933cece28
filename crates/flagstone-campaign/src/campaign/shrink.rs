//! Searches for a smaller failing run, to shorten its report.

use super::Work;
use super::bases::Bases;
use super::run::execute;
use super::run_id::{CLIENTS, PAGES, RunId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Maximum number of candidates tried.
const TRIES: u64 = 6_000;

/// The smallest failing run that a random search finds. It tries a blank device, the plain shape,
/// fewer clients and pages, fewer and earlier cuts, other outcomes and other seeds.
pub(super) fn shrink(id: &RunId) -> RunId {
    let bases = Bases::default();
    let mut best = (size(id, &bases).unwrap_or(u64::MAX), id.clone());
    let mut dice = Pcg64Mcg::seed_from_u64(id.seed);
    for attempt in 0..TRIES {
        let mut next = best.1.clone();
        match attempt % 4 {
            0 => next.base.age = 0,
            1 => {
                let drop = dice.random_range(0..next.cuts.len());
                if next.cuts.len() > 1 {
                    next.cuts.remove(drop);
                }
            }
            2 => next.base.shape = 0,
            _ => {}
        }
        if attempt > 200 {
            next.base.age = 0;
        }
        if dice.random_bool(0.5) {
            next.base.clients = dice.random_range(*CLIENTS.start()..=next.base.clients);
        }
        if dice.random_bool(0.5) {
            next.base.pages = dice.random_range(*PAGES.start()..=next.base.pages);
        }
        for fall in &mut next.cuts {
            let cut = &mut fall.cut;
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
        if let Some(size) = size(&next, &bases)
            && size < best.0
        {
            best = (size, next);
        }
    }
    best.1
}

/// Size of a failing run: mostly its flash operations, also its client steps and whether its device
/// is aged, since a report describes all of these. `None` if the run does not fail.
fn size(id: &RunId, bases: &Bases) -> Option<u64> {
    let (work, result) = execute(id, &bases.get(&id.base), &None);
    let Work {
        operations, steps, ..
    } = work;
    let aged = if id.base.age == 0 { 0 } else { 1_000 };
    result.is_err().then_some(operations * 4 + steps + aged)
}
