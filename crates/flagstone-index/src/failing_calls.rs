//! Tests recoverable indexes on a store that fails or is full: committed data stays readable, a
//! rollback always works, and deletions free space again.

use super::model::{Call, asking};
use super::store::{BackingError, BackingStore};
use super::{DeviceStore, IndexError, IndexKind, Key, Mistake, Recoverable, Result, Value};
use flagstone::dice::Dice;
use flagstone::units::Nanos;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// Selects the call of the store that fails.
#[derive(Default)]
struct Plan {
    /// Number of calls before the failing one; negative after it has failed.
    left: Cell<i64>,
    /// A failing commit takes effect nevertheless: the mistake that the test must find.
    lies: Cell<bool>,
}

impl Plan {
    /// Counts a call. If its turn has come, it fails and changes nothing.
    fn answer(&self, store: &mut DeviceStore, now: Nanos, call: Call) -> Result<(), BackingError> {
        self.left.set(self.left.get() - 1);
        if self.left.get() != -1 {
            return Ok(());
        }
        if call == Call::Commit && self.lies.get() {
            store.commit(now)?;
        }
        Err(failure())
    }
}

fn failure() -> BackingError {
    BackingError::Io("this call fails".into())
}

/// An index, and its committed contents.
struct History {
    what: String,
    index: Recoverable,
    now: Nanos,
    committed: BTreeMap<Key, Value>,
    dice: Dice,
    /// Upper limit of keys.
    keys: u64,
    plan: Rc<Plan>,
}

impl History {
    /// A new index in `pages` pages.
    fn new(kind: IndexKind, pages: u32, keys: u64, seed: u64) -> History {
        let what = format!("{kind}, {pages} pages, seed {seed}");
        let plan = Rc::new(Plan::default());
        plan.left.set(i64::MAX);
        let asked = Rc::clone(&plan);
        let store = asking(pages, move |store, now, call| {
            asked.answer(store, now, call)
        });
        let opened = Recoverable::open(kind, store, &kind.info().tiny(), Nanos::ZERO);
        let (index, now) = opened.expect("a blank store");
        History {
            what,
            index,
            now,
            committed: BTreeMap::new(),
            dice: Dice(seed),
            keys,
            plan,
        }
    }

    fn get(&mut self, key: Key, of: &BTreeMap<Key, Value>) -> Result<()> {
        let (found, now) = self.index.get(self.now, key)?;
        assert_eq!(found, of.get(&key).copied(), "{}: {key}", self.what);
        self.now = now;
        Ok(())
    }

    /// Searches outside of transactions, then a transaction. An error ends it.
    fn transaction(&mut self) -> Result<()> {
        let mut map = self.committed.clone();
        for _ in 0..self.dice.below(3) {
            let key = self.dice.below(self.keys);
            self.get(key, &map)?;
        }
        self.now = self.index.begin(self.now)?;
        for _ in 0..self.dice.below(25) {
            let (key, value) = (self.dice.below(self.keys), self.dice.below(1000));
            self.now = match self.dice.below(8) {
                0 => {
                    self.get(key, &map)?;
                    self.now
                }
                1 | 2 => {
                    map.remove(&key);
                    self.index.delete(self.now, key)?
                }
                _ if map.insert(key, value).is_some() => self.index.update(self.now, key, value)?,
                _ => self.index.insert(self.now, key, value)?,
            };
        }
        if self.dice.one_in(5) {
            self.now = self.index.abort(self.now)?;
        } else {
            self.now = self.index.commit(self.now)?;
            self.committed = map;
        }
        Ok(())
    }

    /// Runs a transaction that deletes a key, if there is space for it.
    fn delete(&mut self, key: Key) {
        let mut all = || {
            let now = self.index.begin(self.now)?;
            let now = self.index.delete(now, key)?;
            self.index.commit(now)
        };
        match all() {
            Ok(now) => {
                self.now = now;
                self.committed.remove(&key);
            }
            Err(error) => {
                self.assert_full(&error);
                self.roll_back();
            }
        }
    }

    fn assert_full(&self, error: &IndexError) {
        let is_full = matches!(error, IndexError::Full { .. });
        assert!(is_full, "{}: {error}", self.what);
    }

    fn roll_back(&mut self) {
        let aborted = self.index.abort(self.now);
        self.now = aborted.unwrap_or_else(|error| panic!("{}: {error}", self.what));
    }

    /// Checks the index, and compares it with the committed contents.
    fn compare(&mut self) {
        self.index.index().check().expect(&self.what);
        let committed = self.committed.clone();
        for key in 0..self.keys {
            self.get(key, &committed).expect(&self.what);
        }
    }
}

/// Runs a history in which call number `call` fails. Returns whether there was such a call.
fn fails_at(kind: IndexKind, seed: u64, call: i64, lies: bool) -> bool {
    let mut history = History::new(kind, 700, 120, seed);
    history.plan.left.set(call);
    history.plan.lies.set(lies);
    for _ in 0..20 {
        let Err(error) = history.transaction() else {
            continue;
        };
        assert_eq!(error, failure().into(), "{}", history.what);
        if !history.index.is_open() {
            // The failure was in a rollback: only reopening from the store is possible.
            return true;
        }
        history.roll_back();
    }
    let left = history.plan.left.replace(i64::MAX);
    history.compare();
    left < 0
}

#[test]
fn whichever_call_fails_an_index_has_what_is_committed() {
    for &kind in IndexKind::ALL {
        let fail = |&call: &i64| fails_at(kind, 1, call, false);
        let calls = (0..).take_while(fail).count() as i64;
        assert!(calls > 60, "{kind}");
        let is_found = |call| catch_unwind(|| fails_at(kind, 1, call, true)).is_err();
        assert!((0..calls).any(is_found), "{kind}: a lie is not found");
    }
}

/// Fills an index until it refuses changes, and continues for a while.
fn fill(history: &mut History) -> u32 {
    let mut refused = 0;
    for _ in 0..200 {
        if let Err(error) = history.transaction() {
            history.assert_full(&error);
            history.roll_back();
            refused += 1;
        }
    }
    refused
}

#[test]
fn a_full_index_has_what_is_committed_and_can_be_emptied() {
    for &kind in IndexKind::ALL {
        let mut refused = 0;
        for (pages, seed) in [(30, 1), (60, 2), (60, 3), (140, 4)] {
            let mut history = History::new(kind, pages, u64::from(pages) * 30, seed);
            refused += fill(&mut history);
            history.compare();
            let all: Vec<Key> = history.committed.keys().copied().collect();
            for &key in &all {
                history.delete(key);
            }
            history.compare();
            // SAL never frees buckets, and may need overflow pages to rewrite some.
            let left = history.committed.len();
            assert!(
                left == 0 || kind == IndexKind::Sal && left < all.len() / 2,
                "{kind}: {left}"
            );
        }
        assert!(refused > 50, "{kind}: {refused}");
    }
}

#[test]
fn a_full_index_that_keeps_no_room_for_its_journal_is_found_out() {
    for kind in [IndexKind::LazyBPlusTree, IndexKind::Sal, IndexKind::BwDelta] {
        let found = (0..20).any(|seed| {
            let mut history = History::new(kind, 60, 1800, seed);
            history.index.make(Some(Mistake::RoomNotKept).into());
            catch_unwind(AssertUnwindSafe(|| {
                fill(&mut history);
                history.compare();
            }))
            .is_err()
        });
        assert!(found, "{kind}");
    }
}
