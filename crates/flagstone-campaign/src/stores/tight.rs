//! Media with a small size limit, on which a store is sometimes full. Half of them are sparse. In a
//! third of the wide runs and of the runs with rot, with random numbers of their own.

use super::StoreRunId;
use flagstone_store::MEDIUM_PAGE_BYTES;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Seed modifier of tight media.
const DICE: u64 = 0x7197 << 40;

/// Number of blocks of a new store.
const FIRST_BLOCKS: u64 = 16;

/// The draws for a run on a tight medium.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tight {
    pub(super) pages_per_block: u32,
    /// Maximum number of blocks of a store: those of a new one and a few more.
    blocks: u64,
    pub(super) is_sparse: bool,
    /// Number of pages that clients write to: about as many as fit.
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

    /// The tight medium of a run; `None` if the run does not have one.
    pub(super) fn of(id: &StoreRunId) -> Option<Tight> {
        Tight::draw(id.seed).filter(|_| id.wide)
    }

    /// Size limit of the medium in bytes.
    pub(super) fn end(&self, pages_per_block: u32) -> u64 {
        let pages = 2 + self.blocks * (u64::from(pages_per_block) + 1);
        pages * MEDIUM_PAGE_BYTES as u64
    }
}
