//! Rows that are inserted together and deleted at random, so that a table becomes sparse; then a
//! compaction, or idle work that may merge its leaves. In a fourth of the runs, and on all tight
//! media, with random numbers of their own.

use super::states::{Rows, State, bytes_of, len_of};
use super::{Life, StoreRun, Tables, Waiting, failed};
use crate::stores::StoreRunId;
use crate::stores::harness::Done;
use crate::stores::tight::Tight;
use flagstone_store::StoreError;
use flagstone_store::tables::{Store, TableKind, WriteTx};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Seed modifier of scattered rows.
const DICE: u64 = 0x5ca7 << 40;

/// Maximum size of a row's value.
const SHORT: usize = 200;

/// When rows are scattered, and which ones stay.
#[derive(Debug, Clone)]
pub(super) struct Scatter {
    dice: Pcg64Mcg,
    /// One in this many steps scatters rows.
    every: u32,
}

impl Scatter {
    pub(super) fn draw(id: &StoreRunId) -> Option<Scatter> {
        let mut dice = Pcg64Mcg::seed_from_u64(id.seed ^ DICE);
        let is_one = dice.random_range(0..4) == 0 || Tight::of(id).is_some();
        let every = [4, 8, 16][dice.random_range(0..3)];
        is_one.then_some(Scatter { dice, every })
    }
}

/// A key: short, with a common prefix, or so long that an inner node has few.
fn key(shape: u32, number: u32) -> Vec<u8> {
    let number = format!("{number:05}");
    match shape {
        0 => format!("scattered/{number}").into_bytes(),
        1 => [&[b's'; 200][..], number.as_bytes()].concat(),
        _ => [number.as_bytes(), &[b's'; 300], number.as_bytes()].concat(),
    }
}

impl StoreRun<Tables> {
    /// Called at each step of a run: scatters rows in one of `every` steps.
    pub(super) fn scatter_now_and_then(
        &mut self,
        store: &Store,
        waiting: &mut Waiting,
        life: &mut Life<State>,
    ) -> Done<()> {
        let Some(Scatter { mut dice, every }) = self.world.scatter.clone() else {
            return Ok(());
        };
        if dice.random_range(0..every) == 0 {
            self.scatter(store, waiting, life, &mut dice)?;
        }
        self.world.scatter = Some(Scatter { dice, every });
        Ok(())
    }

    /// Inserts some hundred rows in one transaction, deletes most of them in another, and lets the
    /// store compact or do idle work on the sparse table.
    fn scatter(
        &mut self,
        store: &Store,
        waiting: &mut Waiting,
        life: &mut Life<State>,
        dice: &mut Pcg64Mcg,
    ) -> Done<()> {
        let (name, kind) = [
            ("brooks", TableKind::Ordered),
            ("brooks", TableKind::Ordered),
            ("cities", TableKind::Hashed),
        ][dice.random_range(0..3)];
        let (rows, shape) = (dice.random_range(100..500), dice.random_range(0..3));
        // One in this many rows stays.
        let stays = dice.random_range(10..100);
        self.commit_alone(store, waiting, life, &mut |run, tx, state| {
            let mut table = tx.open_table(name, kind).map_err(failed("a table"))?;
            let all = state.entry(name).or_default();
            for number in 0..rows {
                let is_short = |tag: &u64| len_of(*tag) <= SHORT;
                run.tag = (run.tag + 1..).find(is_short).expect("most are short");
                let (key, value) = (key(shape, number), bytes_of(run.tag));
                table.insert(&key, &value).map_err(failed("an insertion"))?;
                all.insert(key, run.tag);
            }
            Ok(())
        })?;
        self.commit_alone(store, waiting, life, &mut |_, tx, state| {
            let mut table = tx.open_table(name, kind).map_err(failed("a table"))?;
            let all = state.entry(name).or_default();
            for number in (0..rows).filter(|_| dice.random_range(0..stays) > 0) {
                let key = key(shape, number);
                let was = table.remove(&key).map_err(failed("a removal"))?;
                if was != all.remove(&key).is_some() {
                    return Err(format!("row {number} of `{name}`: was it there: {was}"));
                }
            }
            Ok(())
        })?;
        if dice.random_range(0..4) == 0 {
            let moved = store.idle(u32::MAX).map_err(failed("while it is idle"))?;
            self.tally.moved += u64::from(moved);
        } else {
            store.compact().map_err(failed("while it is compacted"))?;
            self.tally.wide.compactions += 1;
        }
        Ok(())
    }

    /// Called when space was lacking: clears the tables and inserts a row again. Both must find
    /// space.
    pub(super) fn relieve(&mut self, store: &Store, life: &mut Life<State>) -> Done<()> {
        for name in life.newest().keys().copied() {
            let mut after = (*life.newest()).clone();
            let mut tx = store.write().map_err(failed("begin"))?;
            let mut table = tx.table(name).map_err(failed("a table"))?;
            table.clear().map_err(failed("clearing"))?;
            after.insert(name, Rows::new());
            let counts = after != *life.newest();
            let number = life.ask(after);
            tx.commit()
                .map_err(failed("clearing a table of a full store"))?;
            life.acknowledge(number, counts);
        }
        let mut after = (*life.newest()).clone();
        let mut tx = store.write().map_err(failed("begin"))?;
        let mut table = tx.table("apples").map_err(failed("a table"))?;
        self.tag += 1;
        let (key, value) = (b"relieved".to_vec(), bytes_of(self.tag << 40));
        table.insert(&key, &value).map_err(failed("an insertion"))?;
        after
            .entry("apples")
            .or_default()
            .insert(key, self.tag << 40);
        let number = life.ask(after);
        tx.commit()
            .map_err(failed("an insertion after tables were cleared"))?;
        life.acknowledge(number, true);
        Ok(())
    }

    /// Commits a transaction with no other in flight. A commit without space changes nothing.
    fn commit_alone(
        &mut self,
        store: &Store,
        waiting: &mut Waiting,
        life: &mut Life<State>,
        change: &mut dyn FnMut(&mut Self, &mut WriteTx, &mut State) -> Done<()>,
    ) -> Done<()> {
        self.wait(waiting, life)?;
        let mut tx = store.write().map_err(failed("begin"))?;
        let before = life.newest();
        let mut after = (*before).clone();
        change(self, &mut tx, &mut after)?;
        let counts = after != *before;
        let number = life.ask(after);
        match tx.commit_later() {
            Err(StoreError::Full(_)) if self.world.may_be_full() => {
                life.lose(number)?;
                self.tally.refused += 1;
            }
            commit => {
                self.tally.committed += 1;
                waiting.push((number, counts, commit.map_err(failed("commit"))?));
            }
        }
        self.wait(waiting, life)?;
        Ok(())
    }
}
