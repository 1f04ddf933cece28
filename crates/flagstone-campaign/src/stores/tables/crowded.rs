//! Crowded runs, those with `filled`. Their store collects blocks, its catalog has several levels,
//! and its medium may lack space. Transactions are live while others fail. Stores are opened
//! read-only, cut during openings, and left by processes that end with unsynced writes. Crowded
//! runs have their own random numbers, so that other runs stay the same.

use super::Tables;
use super::states::{Rows, State, Tag, bytes_of, len_of};
use crate::stores::harness::{StoreRun, failed};
use crate::stores::lie::Lying;
use flagstone_store::medium::{Medium, Recorded};
use flagstone_store::tables::{Store, TableKind, WriteTx};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// Seed modifier of crowded runs.
const DICE: u64 = 0xc20d << 40;

/// Maximum number of transactions to fill a store, and rows per transaction.
const FILL_MAX: u32 = 400;
const FILL_ROWS: u64 = 24;

/// Minimum size of a large value.
const LARGE: usize = 100_000;

/// Tables whose names need several leaves of the catalog.
static MANY: LazyLock<Vec<(&'static str, TableKind)>> = LazyLock::new(|| {
    let table = |n: usize| {
        let name: &'static str = format!("{n:03}/{}", "of many ".repeat(28)).leak();
        let kind = [TableKind::Ordered, TableKind::Hashed][usize::from(n.is_multiple_of(5))];
        (name, kind)
    };
    (0..36).map(table).collect()
});

/// Events that clients do not cause.
#[derive(Debug, Clone)]
pub(super) struct Crowd {
    dice: Pcg64Mcg,
    /// Size limit of the medium in bytes, which changes during the run.
    bound: Arc<AtomicU64>,
    /// Space bound of the store, see [`OpenOptions::space`](flagstone_store::OpenOptions::space).
    space: f64,
}

impl Crowd {
    pub(super) fn new(seed: u64) -> Crowd {
        let mut dice = Pcg64Mcg::seed_from_u64(seed ^ DICE);
        Crowd {
            space: [1.1, 1.5][dice.random_range(0..2)],
            dice,
            bound: Arc::new(AtomicU64::new(u64::MAX)),
        }
    }

    pub(super) fn space(&self) -> f64 {
        self.space
    }

    /// One of the many tables; `None` if the client should use one of the others.
    pub(super) fn table(&mut self) -> Option<(&'static str, TableKind)> {
        let is_one = self.dice.random_range(0..3) == 0;
        is_one.then(|| MANY[self.dice.random_range(0..MANY.len())])
    }

    /// Returns `true` once in `times` calls on average.
    pub(super) fn once_in(&mut self, times: u32) -> bool {
        self.dice.random_range(0..times) == 0
    }

    /// Sometimes stops the medium from providing more space, or lets it provide some again.
    pub(super) fn bound_room(&mut self, medium: &Recorded) {
        let bounds = match self.dice.random_range(0..10) {
            0..3 => medium.bytes().unwrap_or(u64::MAX),
            3 => u64::MAX,
            _ => return,
        };
        self.bound.store(bounds, Ordering::Relaxed);
    }

    /// The number of a write, at least `from`. Sometimes selects a large value, if there is little
    /// space.
    pub(super) fn tag(&mut self, from: Tag) -> Tag {
        let is_large = self.bound.load(Ordering::Relaxed) < u64::MAX && self.once_in(12);
        if is_large {
            (from..).find(|&tag| len_of(tag) > LARGE).unwrap_or(from)
        } else {
            from
        }
    }

    /// Drops or creates most of the many tables, so that the catalog has fewer or more levels.
    pub(super) fn change_many(
        &mut self,
        tx: &mut WriteTx,
        state: &mut State,
    ) -> Result<(), String> {
        let drops = self.once_in(2);
        for &(name, kind) in MANY.iter() {
            if self.once_in(16) || state.contains_key(name) != drops {
                continue;
            }
            if drops {
                tx.drop_table(name).map_err(failed("dropping"))?;
                state.remove(name);
            } else {
                tx.open_table(name, kind).map_err(failed("a table"))?;
                state.insert(name, Rows::new());
            }
        }
        Ok(())
    }

    /// Removes the limit.
    pub(super) fn give_room(&self) {
        self.bound.store(u64::MAX, Ordering::Relaxed);
    }

    pub(super) fn bound(&self, below: Lying) -> Bounded {
        Bounded {
            below,
            bound: Arc::clone(&self.bound),
        }
    }
}

/// A medium with a size limit.
pub(super) struct Bounded {
    below: Lying,
    bound: Arc<AtomicU64>,
}

impl Medium for Bounded {
    flagstone_store::forward_medium!(below: read_at write_at sync bytes shorten);

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        if bytes > self.bound.load(Ordering::Relaxed) {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            self.below.reserve(bytes)
        }
    }

    fn lengthen(&self, bytes: u64) -> io::Result<()> {
        if self.is_thin() {
            self.below.lengthen(bytes)
        } else {
            self.reserve(bytes)
        }
    }

    fn is_thin(&self) -> bool {
        self.below.is_thin()
    }

    fn take(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if offset + bytes > self.bound.load(Ordering::Relaxed) {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            self.below.take(offset, bytes)
        }
    }

    fn refresh(&self) -> io::Result<()> {
        self.below.refresh()
    }
}

impl StoreRun<Tables> {
    /// Creates many tables and writes to some of them until blocks are collected.
    pub(super) fn fill(&mut self, medium: &Recorded) -> Result<State, String> {
        let mut dice = Pcg64Mcg::seed_from_u64(self.id.seed ^ DICE ^ 1);
        let mut state = State::new();
        let failed = |error| failed("while it is filled")(error);
        let mut store: Store = self.open(medium).map_err(failed)?;
        for round in 0..FILL_MAX {
            let mut tx = store.write().map_err(failed)?;
            if round == 0 {
                for &(name, kind) in MANY.iter() {
                    tx.open_table(name, kind).map_err(failed)?;
                    state.insert(name, Rows::new());
                }
            }
            for _ in 0..FILL_ROWS {
                let (name, kind) = MANY[dice.random_range(0..MANY.len() / 2)];
                let key = format!("filled {:02}", dice.random_range(0..12)).into_bytes();
                self.tag += 1;
                // Short values: long ones would make the store grow.
                let tag = self.tag << 40;
                let mut table = tx.open_table(name, kind).map_err(failed)?;
                table.insert(&key, &bytes_of(tag)).map_err(failed)?;
                state.entry(name).or_default().insert(key, tag);
            }
            tx.commit().map_err(failed)?;
            if round % 20 == 19 {
                store.close().map_err(failed)?;
                if self.info(medium)?.life.erases > 0 {
                    return Ok(state);
                }
                store = self.open(medium).map_err(failed)?;
            }
        }
        store.close().map_err(failed)?;
        Ok(state)
    }
}
