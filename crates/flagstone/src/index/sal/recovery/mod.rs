//! Transactions and restarts over a store that has none: a page is written whole or not at all,
//! and in an order only where one waits for it. [SAL] §3.6.
//!
//! What a transaction does to a key is logged with the key's set, and each set in the log buffer
//! has a place in a table, as a dirty page has in ARIES. A flush of sets, with the merges, splits
//! and metadata that come of it, is bracketed by records; its pages reach their places after the
//! closing one is durable. A restart repeats history: pages of closed flushes, then the updates
//! that no flush covers. Then it undoes the updates of transactions that did not commit: in the
//! buffer, where the update is still there, else by an opposite change.
//!
//! Departures  R1. Pages of a flush wait in memory for the closing record, so they are logged as
//!                 they become, not as they were: an unfinished flush has nothing to undo.
//!             R2. A flush says up to which update it has those of its sets, because one that falls
//!                 into a restart has only those repeated so far.
//!             R3. What an update replaced in the buffer is put back there: removing alone would
//!                 lose an older change that waits too.
//!             R4. A restart flushes what it has repeated before it undoes, so that each key's
//!                 records have the set that it is in.
//!             R5. Where a third of the log is in use, what may have to be undone is carried on
//!                 behind it. Transactions that live may fill a quarter of the log. One that stays
//!                 long would keep the log from its end, and a restart from undoing it.

mod below;
mod mistake;
mod log;
mod restart;
#[cfg(test)]
mod tests;

use super::logs::{Change, Log};
use super::{Sal, start};
use crate::index::bucket::hash;
use crate::index::{BackingError, BackingStore, Index, IndexError, Key, Result, Settings};
use crate::index::{Value, damaged};
use crate::layout;
use crate::mistakes::Mistaken;
use crate::units::{Lpn, Nanos};
use below::{Behind, Below};
use log::{Logged, Lsn, Ring, SalRecord, Update};
pub use mistake::Mistake;
use restart::redo_pages;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Records that this module keeps.
pub(super) const LAYOUTS: &[layout::Layout] = &[
    log::sal_master::RECORD,
    log::sal_log_page::RECORD,
    log::sal_log_record::RECORD,
    log::sal_log_update::RECORD,
];

/// A transaction of [`Transactions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SalTx(u64);

/// A set has all updates before `first`. It may have had more: history that is repeated merges sets
/// that a later flush has covered already, and an insertion must not come twice.
fn raise(dirty: &mut BTreeMap<u32, Lsn>, set: u32, first: Lsn) {
    if let Some(known) = dirty.get_mut(&set) {
        *known = first.max(*known);
    }
}

/// SAL-hashing with transactions.
///
/// ```
/// use flagstone::index::sal::Transactions;
/// use flagstone::index::{IndexError, MemStore, Settings};
/// use flagstone::units::Nanos;
///
/// let (store, settings) = (Box::new(MemStore::new(4096, 2000)), Settings::new());
/// let (mut index, now) = Transactions::open(store, &settings, 64, 4, Nanos::ZERO)?;
/// let tx = index.begin();
/// let now = index.change(now, tx, 7, Some(70))?;
/// let now = index.commit(now, tx)?;
/// let tx = index.begin();
/// let now = index.change(now, tx, 7, None)?;
/// let now = index.abort(now, tx)?;
/// assert_eq!(index.get(now, None, 7)?.0, Some(70));
/// # Ok::<(), IndexError>(())
/// ```
pub struct Transactions {
    index: Sal,
    below: Rc<RefCell<Below>>,
    ring: Ring,
    /// First records of transactions, and the updates that are to be undone first.
    live: BTreeMap<u64, (Lsn, Lsn)>,
    /// The first update of a set that no flush has: the dirty set table.
    dirty: BTreeMap<u32, Lsn>,
    /// The place of each update of a live transaction in the log, or of its undoing.
    undo: BTreeMap<Lsn, SalRecord>,
    locks: BTreeMap<Key, u64>,
    next: u64,
    flushes: u64,
    /// Full log regions merged before the last flush.
    merged: u64,
    /// Flushes after which a checkpoint is taken.
    checkpoint_every: u64,
    rolled: (u64, u64),
    /// Whether a restart is repeating history.
    redoing: bool,
    mistake: Mistaken<Mistake>,
    /// The error after which all requests are refused.
    failed: Option<IndexError>,
}

impl Transactions {
    /// Opens the index that is in a store, which need not have transactions, or makes one in a
    /// blank store. Its log takes `log_pages` pages; a checkpoint comes after so many flushes.
    ///
    /// # Errors
    /// Settings that make no sense, another log in the store, or a store that cannot go on.
    pub fn open(
        store: Box<dyn BackingStore>,
        settings: &Settings,
        log_pages: u32,
        checkpoint_every: u64,
        now: Nanos,
    ) -> Result<(Transactions, Nanos)> {
        let mistake = Mistaken::default();
        Transactions::with(store, settings, log_pages, checkpoint_every, now, mistake)
    }

    /// As [`Transactions::open`], with a mistake made on purpose.
    ///
    /// # Errors
    /// As there.
    pub fn with(
        mut store: Box<dyn BackingStore>,
        settings: &Settings,
        log_pages: u32,
        checkpoint_every: u64,
        now: Nanos,
        mistake: Mistaken<Mistake>,
    ) -> Result<(Transactions, Nanos)> {
        let (ring, found, mut now) = Ring::open(store.as_mut(), u64::from(log_pages), now)?;
        let skip = 1 + log_pages;
        if let Some(found) = &found {
            now = redo_pages(store.as_mut(), skip, found, mistake, now)?;
        }
        let waiting = BTreeMap::new();
        let below = Rc::new(RefCell::new(Below {
            store,
            skip,
            waiting,
        }));
        let (mut index, now) = start(Box::new(Behind(Rc::clone(&below))), settings, now)?;
        index.tells = true;
        let mut all = Transactions {
            index,
            below,
            ring,
            live: BTreeMap::new(),
            dirty: BTreeMap::new(),
            undo: BTreeMap::new(),
            locks: BTreeMap::new(),
            next: 1,
            flushes: 0,
            merged: 0,
            checkpoint_every,
            rolled: (0, 0),
            redoing: false,
            mistake,
            failed: None,
        };
        let now = match found {
            Some(found) => all.recover(found, now)?,
            None => {
                // Blank: the index's first pages, then the master, which says that there is a log.
                let now = all.index.settle(now)?;
                all.carry_out(now)?
            }
        };
        let now = all.checkpoint(now)?;
        Ok((all, now))
    }

    fn force(&mut self, now: Nanos) -> Result<Nanos> {
        self.ring.force(self.below.borrow_mut().store.as_mut(), now)
    }

    /// Writes the pages that wait to their places.
    fn carry_out(&mut self, now: Nanos) -> Result<Nanos> {
        let below = &mut *self.below.borrow_mut();
        let pages: Vec<(Lpn, &[u8])> = below
            .waiting
            .iter()
            .map(|(at, page)| (Lpn(at.0 + below.skip), &page[..]))
            .collect();
        let done = below.store.write(now, &pages)?;
        below.waiting.clear();
        Ok(done)
    }

    /// If sets were flushed, logs the beginning and the end of the flush. `covers` is the last
    /// update that the sets have.
    fn bracket(&mut self, mut now: Nanos, covers: Lsn) -> Result<Nanos> {
        let mut sets = std::mem::take(&mut self.index.drained);
        if sets.is_empty() {
            return Ok(now);
        }
        sets.sort_unstable();
        sets.dedup();
        now = self.index.settle(now)?;
        let covers = match self.mistake.is(Mistake::CoversAll) {
            true => self.ring.end() - 1,
            false => covers,
        };
        self.flushes += 1;
        let tx = self.flushes;
        let record = |entry| SalRecord { tx, prev: 0, entry };
        for &set in &sets {
            // Updates behind it come only where history is repeated.
            match self.redoing {
                true => raise(&mut self.dirty, set, covers + 1),
                false => _ = self.dirty.remove(&set),
            }
        }
        let merged = std::mem::replace(&mut self.merged, self.index.counts.merges_full);
        let unlogged = self.mistake.is(Mistake::FlushNotLogged)
            || self.mistake.is(Mistake::MergeNotLogged) && merged != self.merged;
        if !unlogged {
            self.ring.append(&record(Logged::BeginFlush(sets, covers)));
            for (&at, page) in &self.below.borrow().waiting {
                self.ring.append(&record(Logged::Page(at, page.clone())));
            }
            self.ring.append(&record(Logged::EndFlush));
        }
        if self.mistake.is(Mistake::PagesFirst) {
            now = self.carry_out(now)?;
            return self.force(now);
        }
        now = self.force(now)?;
        self.carry_out(now)
    }

    /// Takes a checkpoint: the tables of transactions and dirty sets.
    fn checkpoint(&mut self, now: Nanos) -> Result<Nanos> {
        let end = self.ring.end();
        self.checkpoint_from(end, now)
    }

    /// Takes a checkpoint. A restart then needs no record before `from`, except those that the
    /// tables name.
    fn checkpoint_from(&mut self, from: Lsn, now: Nanos) -> Result<Nanos> {
        if !self.redoing {
            self.dirty.retain(|&set, _| self.index.logs.count(set) > 0);
        }
        let live = self
            .live
            .iter()
            .map(|(&tx, &(first, last))| (tx, first, last));
        let dirty = self.dirty.iter().map(|(&set, &first)| (set, first));
        let entry = Logged::Checkpoint(live.collect(), dirty.collect());
        let (tx, prev) = (self.flushes, 0);
        self.ring.checkpoint = self.ring.append(&SalRecord { tx, prev, entry });
        let needed = self.live.values().map(|&(first, _)| first);
        let needed = needed.chain(self.dirty.values().copied()).min();
        let now = self.force(now)?;
        self.ring.start = needed.map_or(from, |needed| needed.min(from));
        self.ring.save(self.below.borrow_mut().store.as_mut(), now)
    }

    fn flush_all(&mut self, now: Nanos) -> Result<Nanos> {
        let covers = self.ring.end() - 1;
        let now = self.index.flush(now)?;
        self.bracket(now, covers)
    }

    /// If a third of the log is in use, flushes all sets and logs again the updates that may have
    /// to be undone. Then no older record is needed.
    fn make_room(&mut self, mut now: Nanos) -> Result<Nanos> {
        if !self.ring.is_third_full() {
            return Ok(now);
        }
        now = self.flush_all(now)?;
        if self.mistake.is(Mistake::NotCarried) {
            return self.checkpoint(now);
        }
        let behind = self.ring.end();
        self.carry(now, behind)
    }

    /// Logs again the known updates that may have to be undone, and takes a checkpoint that needs
    /// the log only from `behind` on.
    fn carry(&mut self, now: Nanos, behind: Lsn) -> Result<Nanos> {
        for (
            &at,
            &SalRecord {
                tx,
                prev,
                ref entry,
            },
        ) in &self.undo
        {
            if let (Logged::Update(update), true) = (entry, self.live.contains_key(&tx)) {
                let entry = Logged::Carried(at, *update);
                self.ring.append(&SalRecord { tx, prev, entry });
            }
        }
        for live in self.live.values_mut() {
            live.0 = behind;
        }
        self.checkpoint_from(behind, now)
    }

    /// Takes a checkpoint when it is time.
    fn care(&mut self, now: Nanos) -> Result<Nanos> {
        if self.ring.is_third_full() {
            self.make_room(now)
        } else if self.flushes.is_multiple_of(self.checkpoint_every) {
            self.checkpoint(now)
        } else {
            Ok(now)
        }
    }

    /// Runs a request, unless an earlier one failed: a flush or a merge that stopped midway leaves
    /// records in memory that are on no page.
    fn sound<T>(&mut self, what: impl FnOnce(&mut Transactions) -> Result<T>) -> Result<T> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let outcome = what(self);
        match &outcome {
            Err(IndexError::Store(error)) if error.is_restart() => {}
            Err(error) => self.failed = Some(error.clone()),
            Ok(_) => {}
        }
        outcome
    }

    /// Begins a transaction. Several may live.
    pub fn begin(&mut self) -> SalTx {
        let tx = self.next;
        self.next += 1;
        self.live.insert(tx, (Lsn::MAX, 0));
        SalTx(tx)
    }

    fn lock(&mut self, tx: SalTx, key: Key) -> Result<()> {
        assert!(self.live.contains_key(&tx.0), "the transaction has ended");
        let owner = *self.locks.entry(key).or_insert(tx.0);
        if owner == tx.0 {
            return Ok(());
        }
        let why = format!("another transaction has changed key {key}");
        Err(BackingError::Restart(why).into())
    }

    /// Gives a key a value, or deletes it with none.
    ///
    /// # Errors
    /// Another transaction has changed the key, or the rest of the log is kept for undoing live
    /// transactions: roll back. There is no room for another record: roll back, or delete some. Or
    /// the store cannot go on: then all further requests are refused, and the index has to be
    /// opened anew.
    pub fn change(&mut self, now: Nanos, tx: SalTx, key: Key, new: Option<Value>) -> Result<Nanos> {
        let mut now = now;
        if self.lacks_room() {
            // Then no change waits.
            now = self.sound(|all| match all.index.logs.len() {
                0 => Ok(now),
                _ => all.flush_all(now),
            })?;
            if new.is_some() && self.lacks_room() {
                return Err(self.index.space.full());
            }
        }
        self.sound(|all| all.do_change(now, tx, key, new))
    }

    /// Whether there may be too few pages for the changes that wait, for undoing what lives, and
    /// for one change more. A restart repeats and undoes no more than these.
    fn lacks_room(&self) -> bool {
        let changes = self.index.logs.len() + self.undo.len() + 1;
        self.index.may_lack_room(changes as u32) && !self.mistake.is(Mistake::RoomNotKept)
    }

    fn do_change(&mut self, now: Nanos, tx: SalTx, key: Key, new: Option<Value>) -> Result<Nanos> {
        let is_filled = self.ring.is_filled_by(self.undo.len() + 1);
        if is_filled && !self.mistake.is(Mistake::NotCarried) {
            let why = "transactions in progress take a quarter of the log";
            return Err(BackingError::Restart(why.into()).into());
        }
        self.lock(tx, key)?;
        let hash = hash(key);
        let waits = self.index.logs.find(self.index.set_of(hash), key, hash).0;
        let (old, mut now) = match waits {
            Some(log) => (log.found(), now),
            None => self.read(now, key)?,
        };
        let covers = self.ring.end() - 1;
        now = self.index.grow(now)?;
        now = self.bracket(now, covers)?;
        let set = self.index.set_of(hash);
        // A merge may have taken the old value out of the buffer.
        let buffered = self.index.logs.find(set, key, hash).0.is_some();
        let update = Update {
            set,
            key,
            new,
            old,
            buffered,
        };
        let (first, prev) = self.live[&tx.0];
        let entry = Logged::Update(update);
        let record = SalRecord {
            tx: tx.0,
            prev,
            entry,
        };
        let lsn = self.ring.append(&record);
        self.undo.insert(lsn, record);
        self.live.insert(tx.0, (first.min(lsn), lsn));
        now = self.put(now, lsn, update.key, new, old.is_some(), set)?;
        self.care(now)
    }

    /// Puts a change into the log buffer.
    fn put(
        &mut self,
        now: Nanos,
        lsn: Lsn,
        key: Key,
        value: Option<Value>,
        known: bool,
        set: u32,
    ) -> Result<Nanos> {
        let change = match (value, known) {
            (Some(_), true) => Change::Update,
            (Some(_), false) => Change::Insert,
            (None, true) => Change::Delete,
            (None, false) => Change::Cancel,
        };
        let value = value.unwrap_or(0);
        self.dirty.entry(set).or_insert(lsn);
        let now = self.index.log(now, Log { key, value, change })?;
        self.bracket(now, lsn)
    }

    fn read(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos)> {
        let (value, now) = self.index.get(now, key)?;
        let covers = self.ring.end() - 1;
        Ok((value, self.bracket(now, covers)?))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As [`Transactions::change`].
    pub fn get(
        &mut self,
        now: Nanos,
        tx: Option<SalTx>,
        key: Key,
    ) -> Result<(Option<Value>, Nanos)> {
        match self.locks.get(&key) {
            Some(&owner) if tx != Some(SalTx(owner)) => {
                let why = format!("another transaction has changed key {key}");
                Err(BackingError::Restart(why).into())
            }
            _ => self.sound(|all| all.read(now, key)),
        }
    }

    fn forget(&mut self, tx: u64) {
        self.live.remove(&tx);
        self.locks.retain(|_, owner| *owner != tx);
        self.undo.retain(|_, record| record.tx != tx);
    }

    /// Commits. Durable at the instant of the answer.
    ///
    /// # Errors
    /// As [`Transactions::change`].
    pub fn commit(&mut self, now: Nanos, tx: SalTx) -> Result<Nanos> {
        self.sound(|all| all.do_commit(now, tx))
    }

    fn do_commit(&mut self, now: Nanos, tx: SalTx) -> Result<Nanos> {
        let (_, prev) = self.live[&tx.0];
        let (tx, entry) = (tx.0, Logged::Commit);
        self.ring.append(&SalRecord { tx, prev, entry });
        let now = match self.mistake.is(Mistake::CommitNotForced) {
            true => now,
            false => self.force(now)?,
        };
        self.forget(tx);
        Ok(now)
    }

    /// Rolls back.
    ///
    /// # Errors
    /// As [`Transactions::change`].
    pub fn abort(&mut self, now: Nanos, tx: SalTx) -> Result<Nanos> {
        self.sound(|all| all.do_abort(now, tx))
    }

    fn do_abort(&mut self, mut now: Nanos, tx: SalTx) -> Result<Nanos> {
        let (_, mut at) = self.live[&tx.0];
        while let Some(record) = self.undo.get(&at).cloned() {
            if record.prev >= at {
                return damaged(Lpn(0), "its log has an update that came before itself");
            }
            if let Logged::Update(update) = record.entry {
                now = self.roll_back(now, tx.0, at, record.prev, update)?;
                now = self.make_room(now)?;
            }
            at = record.prev;
        }
        let (tx, prev, entry) = (tx.0, 0, Logged::Ended);
        self.ring.append(&SalRecord { tx, prev, entry });
        self.forget(tx);
        Ok(now)
    }

    /// Undoes an update.
    fn roll_back(
        &mut self,
        now: Nanos,
        tx: u64,
        at: Lsn,
        prev: Lsn,
        update: Update,
    ) -> Result<Nanos> {
        let hash = hash(update.key);
        let set = self.index.set_of(hash);
        let in_buffer = self.index.logs.find(set, update.key, hash).0.is_some()
            && self
                .dirty
                .get(&update.set)
                .is_some_and(|&first| at >= first);
        let undone = Update {
            set,
            new: update.old,
            old: update.new,
            ..update
        };
        let entry = match in_buffer {
            true => Logged::RollLogBuffer(undone),
            false => Logged::RollFlushedSet(undone),
        };
        let lsn = match self.mistake.is(Mistake::UndoNotLogged) {
            true => self.ring.end() - 1,
            false => self.ring.append(&SalRecord { tx, prev, entry }),
        };
        if let Some(live) = self.live.get_mut(&tx) {
            live.1 = prev;
        }
        if in_buffer && (!update.buffered || self.mistake.is(Mistake::RemovedAlone)) {
            self.rolled.0 += 1;
            let (groups, logs) = (&self.index.groups, &mut self.index.logs);
            logs.remove(set, &|set| groups.has_region(set), update.key);
            return Ok(now);
        }
        self.rolled.1 += u64::from(!in_buffer);
        self.put(now, lsn, update.key, update.old, update.new.is_some(), set)
    }

    /// Updates that were rolled back in the log buffer, and by an opposite change.
    pub fn rolled_back(&self) -> (u64, u64) {
        self.rolled
    }

    /// The index, to look at.
    pub fn index(&mut self) -> &mut dyn Index {
        &mut self.index
    }

    /// Looks at the store, or uses it past the index.
    pub fn with_store<T>(&mut self, look: impl FnOnce(&mut dyn BackingStore) -> T) -> T {
        look(self.below.borrow_mut().store.as_mut())
    }

    /// Gives the store back as it is.
    ///
    /// # Panics
    /// Never: the index goes first.
    pub fn into_store(self) -> Box<dyn BackingStore> {
        drop(self.index);
        let below = Rc::try_unwrap(self.below).ok().expect("nobody else");
        below.into_inner().store
    }
}
