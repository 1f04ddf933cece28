//! Random histories of tables, compared with a map. A failing history is shrunk to a short one.

use super::*;
use crate::error::StoreError;
use crate::medium::{Medium, Recorded};
use crate::pages::OpenOptions;
use flagstone::mistakes::Mistaken;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use std::collections::BTreeMap;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
type State = BTreeMap<u8, Rows>;

#[derive(Debug, Clone)]
enum Step {
    Insert(u8, u16, u16),
    Remove(u8, u16),
    Drop(u8),
    Savepoint,
    RollbackTo(u8),
    Release(u8),
    Commit,
    Rollback,
    Reopen,
    /// After a commit.
    Compact,
    /// A range of a table, forwards or backwards.
    Range(u8, u16, u16, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let table = 0..3u8;
    let key = 0..200u16;
    prop_oneof![
        // Lengths around the sizes at which values leave their leaf.
        20 => (table.clone(), key.clone(), prop_oneof![0..40u16, 900..2100u16, 4000..9000u16])
            .prop_map(|(table, key, len)| Step::Insert(table, key, len)),
        10 => (table.clone(), key.clone()).prop_map(|(table, key)| Step::Remove(table, key)),
        1 => table.clone().prop_map(Step::Drop),
        2 => Just(Step::Savepoint),
        2 => any::<u8>().prop_map(Step::RollbackTo),
        1 => any::<u8>().prop_map(Step::Release),
        3 => Just(Step::Commit),
        2 => Just(Step::Rollback),
        1 => Just(Step::Reopen),
        1 => Just(Step::Compact),
        3 => (table, key.clone(), key, any::<bool>())
            .prop_map(|(table, from, to, back)| Step::Range(table, from, to, back)),
    ]
}

fn name(table: u8) -> (String, TableKind) {
    let kind = [TableKind::Ordered, TableKind::Hashed, TableKind::Ordered][usize::from(table)];
    (format!("table {table}"), kind)
}

fn key(key: u16) -> Vec<u8> {
    match key % 3 {
        // A few keys with equal hashes.
        _ if key < 6 => tests::COLLIDING[usize::from(key / 2)][usize::from(key % 2)].to_vec(),
        0 => key.to_be_bytes().to_vec(),
        1 => format!("a prefix that many share/{key:03}").into_bytes(),
        _ => [&[b'k'; 400][..], &key.to_be_bytes()].concat(),
    }
}

fn play(steps: &[Step], mistaken: Option<Mistake>) -> Result<(), String> {
    let medium = Recorded::default();
    let options = OpenOptions {
        pages_per_block: 16,
        ..OpenOptions::default()
    };
    let open = || {
        let medium: Box<dyn Medium> = Box::new(medium.clone());
        Store::mistaken(medium, &options, Mistaken::from(mistaken))
    };
    let say = |error: StoreError| error.to_string();
    let mut store = open().map_err(say)?;
    let mut committed = State::new();
    let mut tx = Some(store.write().map_err(say)?);
    let mut state = State::new();
    let mut savepoints: Vec<(Savepoint, State)> = Vec::new();
    let snapshot = (store.read().map_err(say)?, committed.clone());
    let mut snapshots = vec![snapshot];
    for step in steps.iter().chain([&Step::Commit]) {
        let live = tx.as_mut().expect("there is one between steps");
        match *step {
            Step::Insert(table, k, len) => {
                let (name, kind) = name(table);
                let value = vec![len as u8; usize::from(len)];
                let mut opened = live.open_table(&name, kind).map_err(say)?;
                let was = opened.insert(&key(k), &value).map_err(say)?;
                let before = state.entry(table).or_default().insert(key(k), value);
                same("an insertion", was, before.is_some())?;
            }
            Step::Remove(table, k) => {
                let (name, kind) = name(table);
                let mut opened = live.open_table(&name, kind).map_err(say)?;
                let was = opened.remove(&key(k)).map_err(say)?;
                let before = state.entry(table).or_default().remove(&key(k));
                same("a removal", was, before.is_some())?;
            }
            Step::Drop(table) => {
                let was = live.drop_table(&name(table).0).is_ok();
                same("a drop", was, state.remove(&table).is_some())?;
            }
            Step::Savepoint => savepoints.push((live.savepoint(), state.clone())),
            Step::RollbackTo(which) if !savepoints.is_empty() => {
                let at = usize::from(which) % savepoints.len();
                savepoints.truncate(at + 1);
                live.rollback_to(savepoints[at].0).map_err(say)?;
                state = savepoints[at].1.clone();
            }
            Step::Release(which) if !savepoints.is_empty() => {
                let at = usize::from(which) % savepoints.len();
                live.release(savepoints[at].0).map_err(say)?;
                savepoints.truncate(at);
            }
            Step::RollbackTo(_) | Step::Release(_) => {}
            Step::Range(table, from, to, back) => {
                let (name, kind) = name(table);
                let rows = state.entry(table).or_default();
                let opened = live.open_table(&name, kind).map_err(say)?;
                if kind == TableKind::Hashed {
                    continue;
                }
                let (from, to) = (key(from), key(to));
                let mut wanted: Vec<&Vec<u8>> = rows
                    .keys()
                    .filter(|key| **key >= from && **key < to)
                    .collect();
                let range = opened.range(&from..&to).map_err(say)?;
                let pairs: Result<Vec<Pair>, StoreError> = if back {
                    range.rev().collect()
                } else {
                    range.collect()
                };
                if back {
                    wanted.reverse();
                }
                let pairs = pairs.map_err(say)?;
                let found: Vec<&Vec<u8>> = pairs.iter().map(|(key, _)| key).collect();
                same("a range", found, wanted)?;
            }
            Step::Commit | Step::Rollback | Step::Reopen | Step::Compact => {
                let live = tx.take().expect("there is one between steps");
                match step {
                    Step::Commit | Step::Compact => {
                        live.commit().map_err(say)?;
                        committed = state;
                    }
                    _ => live.rollback().map_err(say)?,
                }
                state = committed.clone();
                savepoints.clear();
                if matches!(step, Step::Reopen) {
                    snapshots.clear();
                    drop(store);
                    store = open().map_err(say)?;
                }
                if matches!(step, Step::Compact) {
                    let end = store.compact().map_err(say)?;
                    same("the end of a compacted store", end, store.held() as u64)?;
                }
                store.check()?;
                snapshots.push((store.read().map_err(say)?, committed.clone()));
                for (read, then) in &snapshots {
                    holds(read, then)?;
                }
                if snapshots.len() > 3 {
                    snapshots.remove(0);
                }
                tx = Some(store.write().map_err(say)?);
            }
        }
    }
    Ok(())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), String> {
    if found == wanted {
        Ok(())
    } else {
        Err(format!("{what}: {found:?}, not {wanted:?}"))
    }
}

/// Compares a snapshot with the committed state when it was taken.
fn holds(read: &ReadTx, state: &State) -> Result<(), String> {
    let say = |error: StoreError| error.to_string();
    let names: Vec<_> = read.tables().map_err(say)?;
    let wanted: Vec<_> = state.keys().map(|&table| name(table)).collect();
    same("the tables", names, wanted)?;
    for (&table, rows) in state {
        let table = read.table(&name(table).0).map_err(say)?;
        let pairs: Result<Vec<Pair>, StoreError> = table.iter().collect();
        let pairs = pairs.map_err(say)?.into_iter();
        let found: Rows = pairs.map(|(key, value)| (key, value.to_vec())).collect();
        same(
            "the keys of a table",
            table.len().map_err(say)?,
            rows.len() as u64,
        )?;
        if found != *rows {
            return Err(format!("`{}` is another one", table.name()));
        }
    }
    Ok(())
}

/// Plays random histories. Returns the shortest one that fails.
fn shortest_failure(mistaken: Option<Mistake>, cases: u32) -> Option<(Vec<Step>, String)> {
    let config = Config {
        cases,
        max_shrink_iters: 2_000,
        failure_persistence: None,
        ..Config::default()
    };
    let seed = TestRng::from_seed(RngAlgorithm::ChaCha, &[17; 32]);
    let mut runner = TestRunner::new_with_rng(config, seed);
    let steps = prop::collection::vec(step(), 1..120);
    let run = runner.run(&steps, |steps| {
        play(&steps, mistaken).map_err(TestCaseError::fail)
    });
    match run {
        Ok(()) => None,
        Err(TestError::Fail(why, steps)) => Some((steps, why.to_string())),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

#[test]
fn histories_agree_with_maps() {
    if let Some((steps, why)) = shortest_failure(None, 150) {
        panic!("{why}, after {steps:#?}");
    }
}

#[test]
fn a_mistake_is_found_and_shrinks() {
    let mistake = Some(Mistake::FreedStaysFree);
    let (steps, why) = shortest_failure(mistake, 300).expect("it is found");
    assert!(play(&steps, mistake).is_err(), "{why}");
    assert!(steps.len() <= 12, "{why}, after {steps:#?}");
    play(&steps, None).expect("without the mistake all is well");
}
