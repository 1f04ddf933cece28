//! Discards blocks right after a collection, while the transaction that caused it is live. A block
//! may be discarded only when its erase is durable: until then a cut may leave its old pages, and
//! some protocols erase blocks long before they wait for that.

use super::pair::Pair;
use flagstone_store::StoreError;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cell::Cell;

/// Seed modifier for discards.
const DISCARDING: u64 = 0xd15c << 40;

/// An operation during which a medium may lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Discard,
    Compaction,
}

thread_local! {
    /// The current operation of this thread.
    static UNDER_WAY: Cell<Option<Work>> = const { Cell::new(None) };
}

/// Whether this thread executes `work`. Each run has one thread.
pub(super) fn is_under_way(work: Work) -> bool {
    UNDER_WAY.get() == Some(work)
}

/// Runs `carry_out` and marks the thread as doing `work` meanwhile.
pub(super) fn under_way<T>(work: Work, carry_out: impl FnOnce() -> T) -> T {
    UNDER_WAY.set(Some(work));
    let done = carry_out();
    UNDER_WAY.set(None);
    done
}

/// In a third of the runs, discards after every other write that collects. Uses random numbers of
/// its own, so that clients behave the same with and without it.
pub(super) struct Discarder {
    dice: Option<Pcg64Mcg>,
    /// Number of collections seen.
    collections: u64,
}

impl Discarder {
    /// The discarder of a life that begins with write number `tag`.
    pub(super) fn of(seed: u64, tag: u64) -> Discarder {
        let mut dice = Pcg64Mcg::seed_from_u64(seed ^ DISCARDING);
        let is_one = dice.random_range(0..3) == 0;
        Discarder {
            dice: is_one.then(|| Pcg64Mcg::seed_from_u64(seed ^ DISCARDING ^ tag << 32)),
            collections: 0,
        }
    }

    /// Called after a write. Returns the number of discards made.
    pub(super) fn step(&mut self, pair: &mut Pair) -> Result<u64, StoreError> {
        let collections = pair.store().device().stats().collections;
        let has_collected = std::mem::replace(&mut self.collections, collections) != collections;
        let Some(dice) = self.dice.as_mut().filter(|_| has_collected) else {
            return Ok(0);
        };
        match dice.random_range(0..2) {
            0 => Ok(u64::from(pair.discard()? > 0)),
            _ => Ok(0),
        }
    }
}
