//! Additional draws of table runs with `wide` in their ids, with random numbers of their own:
//! unusual settings, up to 24 commits that share a flush, transactions of thousands of rows, idle
//! work, frequent closes, a medium that fails at some operation, and copies of whole stores.

use super::Tables;
use super::states::{State, bytes_of, len_of};
use crate::stores::harness::{Done, StoreRun, failed};
use crate::stores::tight::Tight;
use crate::stores::wide::{WideTally, draw_copies};
use flagstone_store::OpenOptions;
use flagstone_store::tables::{Store, TableKind, WriteTx};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Seed modifier of wide runs.
const DICE: u64 = 0x31d3 << 40;

/// Maximum size of a row's value in a large transaction.
const SHORT: usize = 200;

/// The draws of a wide run over tables.
#[derive(Debug, Clone)]
pub(super) struct Wide {
    dice: Pcg64Mcg,
    pub(super) pages_per_block: u32,
    space: f64,
    bytes: u64,
    whole_collections: bool,
    uncached: bool,
    /// Maximum number of commits in flight together.
    group: usize,
    /// Rows per large transaction; `None` in most runs, which would be slow otherwise.
    pub(super) rows: Option<u32>,
    /// One in this many steps closes the store.
    closes: u32,
    is_idle: bool,
    /// One in this many steps compacts the tables.
    compacts: u32,
    /// Operations of the medium after each opening until it fails.
    pub(super) fails_after: Option<u64>,
    copies: Option<u64>,
}

impl Wide {
    /// Draws the settings of a wide run.
    pub(super) fn draw(seed: u64) -> Wide {
        let mut dice = Pcg64Mcg::seed_from_u64(seed ^ DICE);
        let mut wide = Wide {
            pages_per_block: [17, 48, 64, 100, 128, 128][dice.random_range(0..6)],
            space: [1.1, 1.3, 2.0, 6.0][dice.random_range(0..4)],
            bytes: [0, 0, 1 << 20, 4 << 20][dice.random_range(0..4)],
            whole_collections: dice.random_range(0..3) == 0,
            uncached: dice.random_range(0..4) == 0,
            group: dice.random_range(1..=24),
            rows: None,
            closes: [4, 12, 24][dice.random_range(0..3)],
            is_idle: dice.random_range(0..2) == 0,
            // Drawn at the end, so that other draws stay the same.
            compacts: 1,
            fails_after: None,
            copies: draw_copies(&mut dice),
            dice,
        };
        let dice = &mut wide.dice;
        if dice.random_range(0..3) == 0 {
            wide.fails_after = Some(dice.random_range(4..400));
        }
        // A heavy-tailed distribution, as for pages.
        if dice.random_range(0..12) == 0 {
            let most = [2_000, 2_000, 5_000][dice.random_range(0..3)];
            wide.rows = Some(dice.random_range(1_000..=most));
            wide.fails_after = wide.fails_after.map(|after| after * 8);
        }
        wide.compacts = [6, 24, 96][wide.dice.random_range(0..3)];
        wide
    }

    /// Makes a new store fill most of a tight medium.
    pub(super) fn be_tight(&mut self, tight: Tight) {
        self.pages_per_block = tight.pages_per_block;
        self.bytes = 0;
    }

    /// Factor by which fewer operations are examined.
    pub(super) fn rarely(&self) -> u32 {
        self.rows.map_or(1, |rows| rows / 40)
    }

    pub(super) fn set(&self, options: &mut OpenOptions) {
        options.bytes = self.bytes;
        options.space = self.space;
        options.whole_collections = self.whole_collections;
        options.uncached = self.uncached;
    }

    pub(super) fn count(&self, tally: &mut WideTally) {
        tally.runs += 1;
        tally.large_blocks += u64::from(self.pages_per_block > 32);
        tally.roomy += u64::from(self.bytes > 0);
        tally.whole += u64::from(self.whole_collections);
    }

    /// Whether this step closes the store.
    pub(super) fn closes(&mut self) -> bool {
        self.dice.random_range(0..self.closes) == 0
    }

    /// Whether a client now waits for its commit, given the number of commits in flight.
    pub(super) fn waits(&mut self, commits: usize) -> bool {
        commits >= self.group || self.dice.random_range(0..16) == 0
    }

    /// Whether copies are made after cut number `cut`.
    pub(super) fn copies_after(&self, cut: u64) -> bool {
        self.copies.is_some_and(|every| cut % every == 1)
    }

    /// Lets the store do idle work. Returns the number of pages moved.
    pub(super) fn idle(&mut self, store: &Store) -> Done<u64> {
        if !self.is_idle || self.dice.random_range(0..3) > 0 {
            return Ok(0);
        }
        let moved = store.idle(self.dice.random_range(1..40));
        moved.map(u64::from).map_err(failed("while it is idle"))
    }

    /// Whether to actually roll a transaction back. That waits for all commits, so always doing it
    /// would keep groups small.
    pub(super) fn rolls_back(&mut self) -> bool {
        self.dice.random_range(0..=self.group / 4) == 0
    }

    /// Whether this step compacts the tables.
    pub(super) fn compacts(&mut self) -> bool {
        self.dice.random_range(0..self.compacts) == 0
    }
}

impl StoreRun<Tables> {
    /// Sometimes changes thousands of rows of a table: writes all of them, or removes existing
    /// ones.
    pub(super) fn change_rows(&mut self, tx: &mut WriteTx, state: &mut State) -> Done<()> {
        let Some(wide) = &mut self.world.wide else {
            return Ok(());
        };
        let Some(count) = wide.rows.filter(|_| wide.dice.random_range(0..6) == 0) else {
            return Ok(());
        };
        self.tally.wide.large += 1;
        let (name, kind) = [
            ("apples", TableKind::Ordered),
            ("cities", TableKind::Hashed),
        ][wide.dice.random_range(0..2)];
        let mut table = tx.open_table(name, kind).map_err(failed("a table"))?;
        let rows = state.entry(name).or_default();
        let key = |number: u32| format!("row {number:05}").into_bytes();
        if rows.contains_key(&key(0)) && wide.dice.random_range(0..2) == 0 {
            for number in 0..count {
                let was = table.remove(&key(number)).map_err(failed("a removal"))?;
                if was != rows.remove(&key(number)).is_some() {
                    return Err(format!("row {number} of `{name}`: was it there: {was}"));
                }
            }
            return Ok(());
        }
        let mut pairs = Vec::new();
        for number in 0..count {
            let short = |tag: &u64| len_of(*tag) <= SHORT;
            self.tag = (self.tag + 1..).find(short).expect("most are short");
            pairs.push((key(number), bytes_of(self.tag)));
            rows.insert(key(number), self.tag);
        }
        table.insert_all(&pairs).map_err(failed("insertions"))?;
        Ok(())
    }
}
