//! Additional draws of runs with `wide` in their ids, with random numbers of their own: unusual
//! settings of a store, many clients, transactions that exceed the buffer for the medium, frequent
//! closes and idle work, and a medium that fails at some operation. Separate from other draws, so
//! that runs without `wide` stay the same.

use super::pages::Pages;
use flagstone_store::OpenOptions;
use flagstone_store::medium::Recorded;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Seed modifier of wide runs.
const DICE: u64 = 0x31de << 40;

/// Error text of a medium that was ordered to fail.
const TOLD: &str = "as it was told to";

/// Counts of wide draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WideTally {
    /// Number of runs.
    pub runs: u64,
    /// Runs whose store has blocks of more than 32 pages.
    pub large_blocks: u64,
    /// Runs with more than three clients.
    pub many_clients: u64,
    /// Runs whose store begins with more space than it needs.
    pub roomy: u64,
    /// Runs whose store collects whole blocks.
    pub whole: u64,
    /// Runs on a sparse medium.
    pub sparse: u64,
    /// Transactions with more pages than are buffered for the medium.
    pub large: u64,
    /// Closes during all runs.
    pub closes: u64,
    /// Compactions of tables.
    pub compactions: u64,
    /// Media that failed.
    pub failures: u64,
    /// Copies of whole stores that were compared with the model.
    pub copies: u64,
    /// Maximum number of commits in flight together.
    pub group: u64,
}

impl WideTally {
    pub(super) fn add(&mut self, other: &WideTally) {
        self.runs += other.runs;
        self.large_blocks += other.large_blocks;
        self.many_clients += other.many_clients;
        self.roomy += other.roomy;
        self.whole += other.whole;
        self.sparse += other.sparse;
        self.large += other.large;
        self.closes += other.closes;
        self.compactions += other.compactions;
        self.failures += other.failures;
        self.copies += other.copies;
        self.group = self.group.max(other.group);
    }
}

/// The draws of a wide run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wide {
    pub(super) bytes: u64,
    pub(super) whole_collections: bool,
    pub(super) uncached: bool,
    /// Pages per large transaction; `None` in most runs, which would be slow otherwise.
    pub(super) large: Option<u32>,
    /// One in this many steps closes the store.
    pub(super) closes: u32,
    /// Operations of the medium after each opening until it fails.
    pub(super) fails_after: Option<u64>,
    /// After one in this many cuts, copies of the whole store are made.
    copies: Option<u64>,
}

/// In a fourth of the runs, whole stores are copied after one in this many cuts.
pub(super) fn draw_copies(dice: &mut Pcg64Mcg) -> Option<u64> {
    (dice.random_range(0..4) == 0).then(|| dice.random_range(20..80))
}

impl Wide {
    /// Draws the settings of a wide run and changes the run's stores accordingly. Returns the
    /// factor by which fewer operations are examined.
    pub(super) fn draw(seed: u64, pages: &mut Pages) -> u32 {
        let mut dice = Pcg64Mcg::seed_from_u64(seed ^ DICE);
        pages.pages_per_block = [17, 48, 64, 64, 100, 128, 128, 128][dice.random_range(0..8)];
        pages.space = [1.1, 1.2, 1.5, 2.0, 6.0][dice.random_range(0..5)];
        pages.clients = dice.random_range(1..=24);
        let mut wide = Wide {
            bytes: [0, 0, 1 << 20, 3 << 20][dice.random_range(0..4)],
            whole_collections: dice.random_range(0..3) == 0,
            uncached: dice.random_range(0..4) == 0,
            large: None,
            closes: [8, 16, 64][dice.random_range(0..3)],
            fails_after: None,
            copies: None,
        };
        if dice.random_range(0..3) == 0 {
            wide.fails_after = Some(dice.random_range(2..50));
        }
        // Heavy-tailed: few runs have such transactions, and few of these are very large.
        if dice.random_range(0..12) == 0 {
            let most = [400, 400, 400, 1_200, 3_000][dice.random_range(0..5)];
            wide.large = Some(dice.random_range(270..=most));
            pages.pages.count = most;
            wide.fails_after = wide.fails_after.map(|after| after * 8);
        }
        wide.copies = draw_copies(&mut dice);
        pages.wide = Some(wide);
        match wide.large {
            Some(large) => large / 8,
            None => 1,
        }
    }

    /// Whether copies are made after cut number `cut`.
    pub(super) fn copies_after(&self, cut: u64) -> bool {
        self.copies.is_some_and(|every| cut % every == 1)
    }

    pub(super) fn set(&self, options: &mut OpenOptions) {
        options.bytes = self.bytes;
        options.whole_collections = self.whole_collections;
        options.uncached = self.uncached;
    }

    pub(super) fn count(&self, pages: &Pages, tally: &mut WideTally) {
        tally.runs += 1;
        tally.large_blocks += u64::from(pages.pages_per_block > 32);
        tally.many_clients += u64::from(pages.clients > 3);
        tally.roomy += u64::from(self.bytes > 0);
        tally.whole += u64::from(self.whole_collections);
    }
}

/// Whether an error comes from a medium that was ordered to fail.
pub(super) fn was_told(what: &str) -> bool {
    what.contains(TOLD)
}

/// When dropped, ends the ordered failure of a medium. A store dropped after this must not continue
/// as if nothing had happened.
pub(super) struct Heals(pub(super) Recorded);

impl Drop for Heals {
    fn drop(&mut self) {
        self.0.fail_at(None);
    }
}
