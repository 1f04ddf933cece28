//! Table transactions of a process that is repeatedly killed, and their verification.
//!
//! Several threads commit, and their commits share flushes. Each transaction takes the next number
//! from a counter in its own table. The number determines what the transaction does.

use super::kill::Mistakes;
use flagstone_store::tables::{Store, TableKind, TableMut, WriteTx};
use flagstone_store::{OpenOptions, StoreError};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

/// Number of threads in a worker.
const THREADS: usize = 3;
const KEYS: u32 = 1_500;
const TABLES: [(&str, TableKind); 3] = [
    ("first", TableKind::Ordered),
    ("second", TableKind::Ordered),
    ("third", TableKind::Hashed),
];
/// The table and key that hold the number of the last transaction.
const COUNTER: (&str, &[u8]) = ("counter", b"last");

/// A change of a row: index in [`TABLES`], key, and value; `None` for a removal.
type Change = (usize, Vec<u8>, Option<Vec<u8>>);

/// The changes of transaction `number`.
fn changes(number: u64) -> Vec<Change> {
    let mut dice = Pcg64Mcg::seed_from_u64(number);
    let count = [1, 2, 3, 8, 60][dice.random_range(0..5)];
    let change = |_| {
        let table = dice.random_range(0..TABLES.len());
        let key = format!("row {:06}", dice.random_range(0..KEYS)).into_bytes();
        let most = match dice.random_range(0..60) {
            0 => 30_000,
            1..8 => 2_000,
            _ => 200,
        };
        let bytes = dice.random_range(8..most);
        let value = (dice.random_range(0..5) > 0).then(|| number.to_le_bytes().repeat(bytes / 8));
        (table, key, value)
    };
    (0..count).map(change).collect()
}

/// Makes the changes of transaction `number`.
fn apply(tx: &mut WriteTx, number: u64) -> Result<(), StoreError> {
    for (table, key, value) in changes(number) {
        let (name, kind) = TABLES[table];
        let mut table: TableMut<'_> = tx.open_table(name, kind)?;
        match value {
            Some(value) => table.insert(&key, &value)?,
            None => table.remove(&key)?,
        };
    }
    Ok(())
}

/// Commits transactions in several threads until it is killed, or until its output is closed.
///
/// # Errors
/// The store fails.
pub(super) fn work(path: &Path, mistakes: Mistakes) -> Result<(), StoreError> {
    let store = Store::with(path, &OpenOptions::default())?;
    let say = |number: u64| {
        let mut out = io::stdout().lock();
        let said = out.write_all(&number.to_le_bytes());
        said.and_then(|()| out.flush()).is_ok()
    };
    commit(&store, THREADS, mistakes, &say)
}

/// Commits transactions in `threads` threads until `say` returns `false`. `say` receives the number
/// of each acknowledged transaction.
///
/// # Errors
/// The store fails.
pub(super) fn commit(
    store: &Store,
    threads: usize,
    mistakes: Mistakes,
    say: &(dyn Fn(u64) -> bool + Sync),
) -> Result<(), StoreError> {
    let Mistakes { early, leaks } = mistakes;
    let commit_on = |store: Store| {
        let (mut kept, mut number) = (Vec::new(), 0);
        loop {
            // Prefetch what may be this thread's next transaction, in parallel to other threads.
            for (table, key, _) in changes(number + threads as u64) {
                let _ = store.prefetch(TABLES[table].0, &[key]);
            }
            let mut tx = store.write()?;
            number = tx.table(COUNTER.0)?.add(COUNTER.1, 1)? as u64;
            if leaks {
                kept.push(vec![number as u8; 1 << 18]);
            }
            apply(&mut tx, number)?;
            if early && !say(number + 1) {
                return Ok(());
            }
            tx.commit()?;
            if !early && !say(number) {
                return Ok(());
            }
        }
    };
    std::thread::scope(|scope| {
        let clients = (0..threads).map(|_| scope.spawn(|| commit_on(store.clone())));
        let clients: Vec<_> = clients.collect();
        let mut ended = clients.into_iter().map(|thread| thread.join());
        ended.try_for_each(|ended| ended.expect("no thread panics here"))
    })
}

/// The tables after all transactions so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Rows(BTreeMap<(usize, Vec<u8>), Vec<u8>>);

impl Rows {
    /// Opens the store and compares it with all transactions up to the last one found, which must
    /// be at least `least`. `last` is the last one that these rows contain already. Returns the
    /// number of the one found.
    pub(super) fn verify(
        &mut self,
        path: &Path,
        last: u64,
        least: u64,
    ) -> Result<Result<u64, String>, StoreError> {
        let store = Store::with(path, &OpenOptions::default())?;
        self.verify_in(&store, last, least)
    }

    /// Applies the changes of transaction `number`.
    pub(super) fn follow(&mut self, number: u64) {
        for (table, key, value) in changes(number) {
            match value {
                Some(value) => _ = self.0.insert((table, key), value),
                None => _ = self.0.remove(&(table, key)),
            }
        }
    }

    /// Like [`Rows::verify`], for an open store.
    pub(super) fn verify_in(
        &mut self,
        store: &Store,
        last: u64,
        least: u64,
    ) -> Result<Result<u64, String>, StoreError> {
        let read = store.read()?;
        let there = read.tables()?;
        let has = |name: &str| there.iter().any(|(other, _)| other == name);
        let counted = if has(COUNTER.0) {
            read.table(COUNTER.0)?.get(COUNTER.1)?
        } else {
            None
        };
        let word = counted.and_then(|bytes| bytes.first_chunk().copied());
        let found = word.map_or(0, u64::from_le_bytes);
        if found < least {
            return Ok(Err(format!(
                "the last transaction there is {found}, and {least} was acknowledged"
            )));
        }
        (last + 1..=found).for_each(|number| self.follow(number));
        for (at, (name, _)) in TABLES
            .into_iter()
            .enumerate()
            .filter(|(_, (name, _))| has(name))
        {
            let table = read.table(name)?;
            let wanted = self.0.range((at, Vec::new())..(at + 1, Vec::new()));
            let mut rows = 0;
            for ((_, key), value) in wanted {
                rows += 1;
                if table.get(key)?.as_deref() != Some(value) {
                    let key = key.escape_ascii();
                    return Ok(Err(format!(
                        "after transaction {found} table `{name}`, key `{key}` has another value"
                    )));
                }
            }
            let keys = table.len()?;
            if keys != rows {
                return Ok(Err(format!("table `{name}` has {keys} keys, not {rows}")));
            }
        }
        drop(read);
        Ok(store.check().map(|()| found))
    }
}
