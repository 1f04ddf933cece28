//! Counts the cost of a store's space bound, and the benefit of collecting in steps. Nothing is
//! timed: a store in memory is filled, then its pages are overwritten at random. Equal tasks give
//! equal counts.

use flagstone::units::Lpn;
use flagstone_store::medium::Memory;
use flagstone_store::{MEDIUM_PAGE_BYTES, OpenOptions, PageStore, StoreError};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The task of a count.
#[derive(Debug, Clone)]
pub struct Count {
    /// Options of the store; `space` is the bound.
    pub options: OpenOptions,
    /// Number of pages in the store.
    pub pages: u32,
    /// Pages per commit.
    pub pages_a_commit: u32,
    /// How many times all pages are overwritten as warm-up, and then again while counting.
    pub rounds: u32,
    /// After each such number of written pages, calls `idle` until nothing is left to do. Pages
    /// moved then count as written, but are not attributed to a commit.
    pub idle_after: Option<u32>,
    /// Seed for choosing pages.
    pub seed: u64,
}

/// The counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// Final size of the store per byte of its pages.
    pub size: f64,
    /// Pages written to the medium, including marks, per page written by the client.
    pub written: f64,
    /// Blocks collected.
    pub collections: u64,
    /// Syncs per commit.
    pub syncs: f64,
    /// Pages written to the medium by each commit and the writes before it, ascending.
    by_commit: Vec<u32>,
}

impl Counted {
    /// The number of pages at quantile `share`.
    pub fn at(&self, share: f64) -> u32 {
        let last = self.by_commit.len().saturating_sub(1);
        let at = (last as f64 * share) as usize;
        self.by_commit.get(at).copied().unwrap_or_default()
    }
}

impl Count {
    /// Runs the count. `progress` receives the number of commits made.
    ///
    /// # Errors
    /// The options are invalid.
    pub fn run(&self, progress: &mut dyn FnMut(u64)) -> Result<Counted, StoreError> {
        let mut store = PageStore::on(Box::new(Memory::default()), &self.options)?;
        super::bench::fill(&mut store, self.pages)?;
        let mut dice = Pcg64Mcg::seed_from_u64(self.seed);
        for number in 0..self.commits() {
            self.commit(&mut store, &mut dice)?;
            self.rest(&mut store, number)?;
            progress(1);
        }
        let (before, collected) = (store.medium_stats(), store.device().stats().collections);
        let mut by_commit = Vec::new();
        let mut written = before.bytes;
        for number in 0..self.commits() {
            self.commit(&mut store, &mut dice)?;
            let now = store.medium_stats().bytes;
            by_commit.push(((now - written) / MEDIUM_PAGE_BYTES as u64) as u32);
            self.rest(&mut store, number)?;
            written = store.medium_stats().bytes;
            progress(1);
        }
        by_commit.sort_unstable();
        let after = store.medium_stats();
        let commits = self.commits() as f64;
        let held = f64::from(self.pages) * MEDIUM_PAGE_BYTES as f64;
        let pages = (after.bytes - before.bytes) as f64 / MEDIUM_PAGE_BYTES as f64;
        Ok(Counted {
            size: store.info().bytes as f64 / held,
            written: pages / commits / f64::from(self.pages_a_commit),
            collections: store.device().stats().collections - collected,
            syncs: (after.syncs - before.syncs) as f64 / commits,
            by_commit,
        })
    }

    /// Calls `idle` after commit `number`, if it is due.
    fn rest(&self, store: &mut PageStore, number: u64) -> Result<(), StoreError> {
        let pages = (number + 1) * u64::from(self.pages_a_commit);
        let is_time = |after: u32| pages % u64::from(after) < u64::from(self.pages_a_commit);
        while self.idle_after.is_some_and(is_time) && store.idle(u32::MAX)? > 0 {}
        Ok(())
    }

    /// Number of commits in each half.
    pub fn commits(&self) -> u64 {
        u64::from(self.pages) * u64::from(self.rounds) / u64::from(self.pages_a_commit)
    }

    fn commit(&self, store: &mut PageStore, dice: &mut Pcg64Mcg) -> Result<(), StoreError> {
        let page = [7; PageStore::PAGE_BYTES];
        let tx = store.begin()?;
        for _ in 0..self.pages_a_commit {
            store.write(tx, Lpn(dice.random_range(0..self.pages)), &page)?;
        }
        store.commit(tx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(space: f64) -> Count {
        let mut options = OpenOptions::default();
        options.space = space;
        Count {
            options,
            pages: 4_096,
            pages_a_commit: 1,
            rounds: 3,
            idle_after: None,
            seed: 1,
        }
    }

    fn count(space: f64, whole: bool) -> Counted {
        let mut count = task(space);
        count.options.whole_collections = whole;
        count.run(&mut |_| ()).expect("a store in memory")
    }

    #[test]
    fn more_room_means_fewer_copies_and_steps_spread_them() {
        let counts: Vec<Counted> = [1.2, 2.0, 3.0].map(|space| count(space, false)).to_vec();
        for pair in counts.windows(2) {
            assert!(pair[0].written > pair[1].written, "{pair:?}");
            assert!(pair[0].size < pair[1].size, "{pair:?}");
        }
        assert!(counts[2].written > 1.0 && counts[0].collections > 0);
        let (steps, whole) = (count(1.5, false), count(1.5, true));
        assert_eq!(steps, count(1.5, false));
        // A whole collection copies the live pages of a block in one commit.
        assert!(
            whole.at(1.0) > 2 * steps.at(0.999),
            "{}, {}",
            whole.at(1.0),
            steps.at(0.999)
        );
    }

    #[test]
    fn commits_after_idle_time_move_nothing() {
        let [steps, idle] = [None, Some(1_000)].map(|idle_after| {
            let mut count = task(1.5);
            (count.pages, count.rounds, count.idle_after) = (16_384, 2, idle_after);
            count.run(&mut |_| ()).expect("a store in memory")
        });
        assert_eq!((steps.at(0.5), idle.at(0.5)), (2, 1));
        // One page, and occasionally the summary of a block or the mark of the next one.
        assert_eq!(idle.at(0.98), 1);
        assert!(idle.written > steps.written && idle.written < 1.2 * steps.written);
    }
}
