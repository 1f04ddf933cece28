//! Media with a fixed end that is near: a store on one is full now and then. Half of them are
//! sparse. In a third of the wide runs, and of the runs with rot, with dice of their own.

use super::StoreRunId;
use flagstone_store::MEDIUM_PAGE_BYTES;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A mark that makes these dice others than those of the run.
const DICE: u64 = 0x7197 << 40;

/// Blocks of a new store.
const FIRST_BLOCKS: u64 = 16;

/// What is drawn for a run on a medium with a near end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tight {
    pub(super) pages_per_block: u32,
    /// Blocks of a store, at most: those of a new one and a few.
    blocks: u64,
    pub(super) is_sparse: bool,
    /// Pages that clients write to: about as many as there is room for.
    pub(super) count: u32,
}

impl Tight {
    pub(super) fn draw(seed: u64) -> Option<Tight> {
        let mut dice = Pcg64Mcg::seed_from_u64(seed ^ DICE);
        let is_one = dice.random_range(0..3) == 0;
        let tight = Tight {
            pages_per_block: [16, 16, 20, 24][dice.random_range(0..4)],
            blocks: FIRST_BLOCKS + dice.random_range(0..4),
            is_sparse: dice.random_range(0..2) == 0,
            count: dice.random_range(100..500),
        };
        is_one.then_some(tight)
    }

    /// As [`Tight::draw`], for a run in which it is drawn.
    pub(super) fn of(id: &StoreRunId) -> Option<Tight> {
        Tight::draw(id.seed).filter(|_| id.wide)
    }

    /// Bytes where the medium ends, of a store with blocks of so many pages.
    pub(super) fn end(&self, pages_per_block: u32) -> u64 {
        let pages = 2 + self.blocks * (u64::from(pages_per_block) + 1);
        pages * MEDIUM_PAGE_BYTES as u64
    }
}
