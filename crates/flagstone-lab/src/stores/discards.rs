//! Room that is given back while a transaction is live that a collection has just made room for. A
//! block may be discarded only once its erase is durable: until then its old pages are what a cut
//! leaves, and some protocols erase blocks long before they wait for that.

use super::pair::Pair;
use flagstone_store::StoreError;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cell::Cell;

/// For the dice by which a store discards.
const DISCARDING: u64 = 0xd15c << 40;

/// What a store may be in the middle of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Discard,
    Compaction,
}

thread_local! {
    /// What this thread is in the middle of.
    static UNDER_WAY: Cell<Option<Work>> = const { Cell::new(None) };
}

/// Whether this thread is in the middle of some work: a run has one thread.
pub(super) fn is_under_way(work: Work) -> bool {
    UNDER_WAY.get() == Some(work)
}

/// Carries some work out.
pub(super) fn under_way<T>(work: Work, carry_out: impl FnOnce() -> T) -> T {
    UNDER_WAY.set(Some(work));
    let done = carry_out();
    UNDER_WAY.set(None);
    done
}

/// In a third of the runs the store discards after writes that collect, one time in two. This has
/// dice of its own, so that the clients do the same with it and without.
pub(super) struct Discarder {
    dice: Option<Pcg64Mcg>,
    /// Collections that it has seen.
    collections: u64,
}

impl Discarder {
    /// For the life of a run that begins with the write of number `tag`.
    pub(super) fn of(seed: u64, tag: u64) -> Discarder {
        let mut dice = Pcg64Mcg::seed_from_u64(seed ^ DISCARDING);
        let is_one = dice.random_range(0..3) == 0;
        Discarder {
            dice: is_one.then(|| Pcg64Mcg::seed_from_u64(seed ^ DISCARDING ^ tag << 32)),
            collections: 0,
        }
    }

    /// Follows a write. Returns how often room was given back.
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
