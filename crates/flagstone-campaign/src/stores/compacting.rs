//! Compaction of page stores, after which they grow again. Before that a client may trim the pages
//! with the highest numbers, so that the store can shrink.

use super::harness::{Done, Life, StoreRun, failed};
use super::model::{Model, Places, Writes, bytes_of};
use super::pages::{LiveTx, Pages};
use super::pair::Pair;
use flagstone::units::Lpn;
use flagstone_store::StoreError;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Seed modifier for compactions.
const COMPACTING: u64 = 0xc03b << 40;

/// In half of the runs, compacts the store from time to time. Uses random numbers of its own.
pub(super) struct Compactor {
    dice: Option<Pcg64Mcg>,
}

impl Compactor {
    /// The compactor of a life that begins with write number `tag`.
    pub(super) fn of(seed: u64, tag: u64) -> Compactor {
        let mut dice = Pcg64Mcg::seed_from_u64(seed ^ COMPACTING);
        let is_one = dice.random_range(0..2) == 0;
        Compactor {
            dice: is_one.then(|| Pcg64Mcg::seed_from_u64(seed ^ COMPACTING ^ tag << 32)),
        }
    }

    /// Whether to compact the store now: the outer `None` if not. The inner option is the page from
    /// which on to trim before.
    pub(super) fn is_due(&mut self, pages: Places) -> Option<Option<u32>> {
        let dice = self.dice.as_mut()?;
        if dice.random_range(0..10) > 0 {
            return None;
        }
        let trims = dice.random_range(0..3) > 0;
        Some(trims.then(|| pages.draw(dice)))
    }
}

impl StoreRun<Pages> {
    /// Rolls back live transactions, trims pages if requested, and compacts the store.
    pub(super) fn compact(
        &mut self,
        store: &mut Pair,
        life: &mut Life<Model>,
        (live, trims): (Vec<LiveTx>, Option<u32>),
        dice: &mut Pcg64Mcg,
    ) -> Done<()> {
        for LiveTx { tx, .. } in live {
            store.abort(tx).map_err(failed("abort"))?;
        }
        if let Some(first) = trims {
            self.trim_from(store, life, first)?;
        }
        let gone = store.compact().map_err(failed("while it is compacted"))?;
        self.tally.shrunk += u64::from(gone > 0);
        self.look(life, dice);
        Ok(())
    }

    /// Commits a transaction that trims all nonempty pages from `first` on, as far as the store has
    /// room.
    fn trim_from(&mut self, store: &mut Pair, life: &mut Life<Model>, first: u32) -> Done<()> {
        let tx = store.begin().map_err(failed("begin"))?;
        let held: Vec<u32> = life.newest().held_from(first).collect();
        let mut writes = Writes::new();
        for at in held {
            match store.trim(tx, Lpn(at)) {
                Ok(()) => _ = writes.insert(at, None),
                Err(StoreError::Full(_)) => break,
                Err(error) => return Err(failed("trim")(error)),
            }
        }
        let number = life.ask(life.newest().with(&writes));
        match store.commit(tx) {
            Ok(()) => {
                self.tally.committed += 1;
                life.acknowledge(number, !writes.is_empty());
            }
            Err(StoreError::Full(_)) => {
                self.tally.refused += 1;
                life.lose(number)?;
                store.abort(tx).map_err(failed("abort"))?;
            }
            Err(error) => return Err(failed("commit")(error)),
        }
        Ok(())
    }

    /// Called when space was lacking: trims half of the pages and rewrites a few of them. Both must
    /// find space.
    pub(super) fn relieve(
        &mut self,
        store: &mut Pair,
        life: &mut Life<Model>,
        live: Vec<LiveTx>,
    ) -> Done<()> {
        for LiveTx { tx, .. } in live {
            store.abort(tx).map_err(failed("abort"))?;
        }
        let held: Vec<u32> = life.newest().held_from(0).step_by(2).collect();
        let mut trims = Writes::new();
        let tx = store.begin().map_err(failed("begin"))?;
        for &at in &held {
            store
                .trim(tx, Lpn(at))
                .map_err(failed("a trim of a full store"))?;
            trims.insert(at, None);
        }
        let number = life.ask(life.newest().with(&trims));
        store.commit(tx).map_err(failed("trims of a full store"))?;
        life.acknowledge(number, !trims.is_empty());
        let tx = store.begin().map_err(failed("begin"))?;
        let mut writes = Writes::new();
        for &at in held.iter().take(held.len() / 4) {
            self.tag += 1;
            let written = store.write(tx, Lpn(at), &bytes_of(self.tag));
            written.map_err(failed("a write after trims"))?;
            writes.insert(at, Some(self.tag));
        }
        let number = life.ask(life.newest().with(&writes));
        store.commit(tx).map_err(failed("a commit after trims"))?;
        life.acknowledge(number, !writes.is_empty());
        self.tally.committed += 2;
        Ok(())
    }
}
