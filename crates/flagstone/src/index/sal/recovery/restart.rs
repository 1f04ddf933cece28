//! Restarts of SAL-hashing's transactions: pages of closed flushes, analysis, redo, undo.
//! [SAL] §3.6.

use super::log::{LocatedRecords, Logged, Lsn, SalRecord};
use super::{Mistake, SalTx, Transactions, raise};
use crate::index::bucket::hash;
use crate::index::{BackingStore, Index, Result};
use crate::mistakes::Mistaken;
use crate::units::{Lpn, Nanos};
use std::collections::BTreeMap;

impl Transactions {
    /// Analysis, redo and undo of a restart, whose pages are redone already.
    pub(super) fn recover(&mut self, found: LocatedRecords, mut now: Nanos) -> Result<Nanos> {
        self.analyse(&found);
        self.redoing = true;
        let mut kept = self.ring.end();
        // Redo: what was done after the last flush that has it, in order.
        for (lsn, record) in &found {
            self.next = self.next.max(record.tx + 1);
            if let (&Logged::Carried(at, update), true) =
                (&record.entry, self.live.contains_key(&record.tx))
            {
                let (tx, prev, entry) = (record.tx, record.prev, Logged::Update(update));
                self.undo.insert(at, SalRecord { tx, prev, entry });
                self.locks.insert(update.key, tx);
            }
            let (Logged::Update(update)
            | Logged::RollLogBuffer(update)
            | Logged::RollFlushedSet(update)) = record.entry
            else {
                continue;
            };
            // By the set that it was logged with: repeating may have split that meanwhile.
            if self
                .dirty
                .get(&update.set)
                .is_some_and(|first| lsn >= first)
            {
                let known = update.old.is_some();
                now = self.index.grow(now)?;
                now = self.bracket(now, lsn - 1)?;
                let set = self.index.set_of(hash(update.key));
                now = self.put(now, *lsn, update.key, update.new, known, set)?;
            }
            if let (Logged::Update(_), Some(_)) = (&record.entry, self.live.get(&record.tx)) {
                self.undo.insert(*lsn, record.clone());
                self.locks.insert(update.key, record.tx);
            }
            if self.ring.has_grown_since(kept) && !self.mistake.is(Mistake::NotCarried) {
                now = self.keep_what_is_redone(now, *lsn)?;
                kept = self.ring.end();
            }
        }
        // What was repeated may be in other sets than the log says, where repeating split some:
        // nothing of it stays in the buffer, and the flush is of the sets of both.
        self.redoing = false;
        let covers = self.ring.end() - 1;
        if !self.mistake.is(Mistake::UndoneFirst) {
            now = self.index.flush(now)?;
            self.index.drained.extend(self.dirty.keys());
            now = self.bracket(now, covers)?;
            if !self.mistake.is(Mistake::NotCarried) {
                let behind = self.ring.end();
                now = self.carry(now, behind)?;
            }
        }
        if self.mistake.is(Mistake::NoUndo) {
            self.live.clear();
        }
        let losers: Vec<u64> = self.live.keys().copied().collect();
        for tx in losers {
            now = self.do_abort(now, SalTx(tx))?;
        }
        self.force(now)
    }

    /// Makes the next restart begin at `lsn`, up to which history was repeated. Restarts that
    /// are cut would fill the log otherwise.
    fn keep_what_is_redone(&mut self, now: Nanos, lsn: Lsn) -> Result<Nanos> {
        let now = self.index.flush(now)?;
        let repeated = self.dirty.iter().filter(|(_, first)| **first <= lsn);
        self.index.drained.extend(repeated.map(|(set, _)| *set));
        let now = self.bracket(now, lsn)?;
        // The log is read from a record on: `lsn + 1` is in the middle of one.
        self.carry(now, lsn)
    }

    /// The tables as they were when the power went, from the last checkpoint on.
    fn analyse(&mut self, found: &LocatedRecords) {
        for (lsn, record) in found {
            let (lsn, tx) = (*lsn, record.tx);
            if lsn < self.ring.checkpoint {
                continue;
            }
            match &record.entry {
                Logged::Checkpoint(live, dirty) if lsn == self.ring.checkpoint => {
                    self.flushes = tx;
                    self.live = live
                        .iter()
                        .map(|&(tx, first, last)| (tx, (first, last)))
                        .collect();
                    self.dirty = dirty.iter().copied().collect();
                }
                Logged::Update(update)
                | Logged::RollLogBuffer(update)
                | Logged::RollFlushedSet(update) => {
                    let live = self.live.entry(tx).or_insert((lsn, lsn));
                    // An undo that was logged names the next update to undo.
                    let last = match record.entry {
                        Logged::Update(_) => lsn,
                        _ => record.prev,
                    };
                    *live = (live.0.min(lsn), last);
                    self.dirty.entry(update.set).or_insert(lsn);
                }
                Logged::Commit | Logged::Ended => {
                    self.live.remove(&tx);
                }
                Logged::BeginFlush(sets, covers) => {
                    self.flushes = tx;
                    if is_closed(found, lsn) || self.mistake.is(Mistake::EndIgnored) {
                        for &set in sets {
                            raise(&mut self.dirty, set, covers.saturating_add(1));
                        }
                    }
                }
                Logged::Checkpoint(..)
                | Logged::Page(..)
                | Logged::EndFlush
                | Logged::Carried(..) => {}
            }
        }
    }
}

/// Whether the flush that begins at a place was closed.
fn is_closed(found: &LocatedRecords, begin: Lsn) -> bool {
    let from = found.partition_point(|(lsn, _)| *lsn <= begin);
    let rest = found[from..].iter().map(|(_, record)| &record.entry);
    let mut rest = rest.skip_while(|entry| matches!(entry, Logged::Page(..)));
    matches!(rest.next(), Some(Logged::EndFlush))
}

/// Writes the pages of closed flushes again, each as the last one left it.
pub(super) fn redo_pages(
    store: &mut dyn BackingStore,
    skip: u32,
    found: &LocatedRecords,
    mistake: Mistaken<Mistake>,
    now: Nanos,
) -> Result<Nanos> {
    let mut pages: BTreeMap<Lpn, &[u8]> = BTreeMap::new();
    let mut closed = false;
    for (lsn, record) in found {
        match &record.entry {
            Logged::BeginFlush(..) => {
                closed = is_closed(found, *lsn) || mistake.is(Mistake::EndIgnored);
            }
            Logged::Page(at, page) if closed => {
                pages.insert(Lpn(at.0 + skip), page);
            }
            _ => {}
        }
    }
    if pages.is_empty() {
        return Ok(now);
    }
    let pages: Vec<(Lpn, &[u8])> = pages.into_iter().collect();
    Ok(store.write(now, &pages)?)
}
