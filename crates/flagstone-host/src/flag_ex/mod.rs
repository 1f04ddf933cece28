//! CFC_ex and AFC_ex: no force, a redo log, and pages that several transactions have changed.
//!
//! Paper       [FlagCommit] §4: On, Xu, Choi, Hu, He. IEEE TKDE 24(9), 2012.
//! Idea        The device keeps records of several transactions in a page apart
//!             (`commit::records`). So an evicted page needs no undo, and no log before it. A
//!             commit logs only what is still in the buffer; what is on flash it commits by flags.
//! Cost        A commit: the log pages that are not full or not yet written, if it left something
//!             in the buffer; a flag for each chain that it left on flash. An abort: nothing. A
//!             checkpoint: two records and the master.
//! Records     log/entry.rs: changes without what they replace, commits, checkpoints
//!
//! Words       A record is *pending* while its transaction is live, and *fresh* if it is committed
//!             and no copy on flash is, as far as it goes: then it is in the log.
//!
//! Invariants  1. A page goes out with the records listed that are pending, and at an instant at
//!                which the commits of all others are durable.
//!             2. The log of a commit is durable before its first flag (R3), and all pages with
//!                records of its transaction are before its log is.
//!             3. What a pending record was before is kept in memory until its transaction ends;
//!                if that was fresh, its log records are kept as well (R4).
//!             4. The log is kept from the oldest record that a fresh record needs. A checkpoint is
//!                taken once the flags of all commits before it are durable (R2).
//!             5. LSNs of pages are at most a buffer ahead of the durable log; a restart begins
//!                behind that (D2).
//!
//! Recovery    facts                                                      verdict
//!   @A        a commit record, or flags on flash                         committed; flags are set
//!   @B        neither                                                    aborted
//!   @C        a change by @A, later than the newest committed copy       redone
//!   @D        any other change                                           not redone (R5, R10)
//!
//! Cases       in which a careless form goes wrong:
//!             R2. The log is cut short before the flags of a commit in it are durable: a restart
//!                 finds neither, and the commit is lost.
//!             R3. A flag is set before the log of its commit is durable: a restart finds half of
//!                 the transaction.
//!             R4. A transaction changes a record whose committed value is only in the buffer and
//!                 the log, the page goes out, and the transaction aborts: the value on flash is
//!                 an older one.
//!             R5. An old log record is redone over a newer committed copy on flash.
//!             R10. A commit forces log records of transactions that are still live: a restart
//!                 must not redo them.
//!             R11. A page has no room for what live transactions may put back in an abort.
//!             R13. More transactions have pending records in a page than a version can list.
//!
//! Departures  D1. Records are not taken out of the log buffer when their page is evicted: commits
//!                 of others force it all the time, and LSNs are places in the log.
//!             D2. Pages go out before their log records, so LSNs that a cut takes back can be on
//!                 flash. A restart leaves a gap in the log that is wider than that.
//!             D3. A commit that is in the log is acknowledged when that is durable; its flags are
//!                 set then, without a wait.
//!             D4. What a record was before is kept in memory and put back by an abort. The paper
//!                 reads it from flash, where a commit that is only in the log is missing.
//!             D5. Pages whose first change is older than the checkpoint before the last are
//!                 written out by a checkpoint, which is what the paper waits for.

mod checkpoint;
mod open;
mod restart;
#[cfg(test)]
mod tests;

pub(super) use open::{AFC_EX, CFC_EX, log_pages_min, open, record_options};

use super::below::As;
use super::config::Mistake;
use super::frame::{Frame, Mark};
use super::locks::{Mode, Resource};
use super::log::{Log, LogRecord, Lsn, Tape, What};
use super::manager::{
    Admission, Commit, CommitSteps, Manager, Memory, Redo, RollBack, Room, WriteBack,
};
use super::wal::{common, room_of};
use super::{HostError, Rid, wait_for};
use flagstone::commit::{MergedPage, Pending, room_beside};
use flagstone::mistakes::Mistaken;
use flagstone::page::{Page, SlotNo};
use flagstone::units::{Lpn, Nanos, TxId};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a log record without a body.
const BARE: u64 = LogRecord::bytes(0) as u64;

/// The old state of a record that a live transaction has changed; or the restored state after an
/// abort.
#[derive(Debug, Clone, Default)]
struct Before {
    value: Option<Box<[u8]>>,
    /// The oldest log record that a fresh record needs, see `Marks::fresh`; `None` if the old state
    /// is not fresh.
    fresh: Option<Lsn>,
}

/// A live transaction that has changed a record.
#[derive(Debug, Default)]
struct Tx {
    before: BTreeMap<Rid, Before>,
    pages: BTreeSet<Lpn>,
    /// Whether the transaction has begun on the device.
    entered: bool,
    /// When the pages with records of the transaction are durable.
    flushed: Nanos,
}

struct FlagEx {
    log: Log,
    txs: BTreeMap<TxId, Tx>,
    /// Fresh records that an abort has restored and whose pages are not in the pool.
    orphans: BTreeMap<Rid, Before>,
    /// For each page, the instant at which all commits in it are durable, if that may be in the
    /// future.
    not_before: FxHashMap<Lpn, Nanos>,
    /// Maximum distance in bytes of a page's LSN ahead of the durable log.
    ahead: u64,
    max_c: u8,
    page_bytes: usize,
    mistake: Mistaken<Mistake>,
    /// Records of the last read page that are older than its image, with their LSNs.
    restored: Vec<(SlotNo, Lsn)>,
    bytes: Vec<u8>,
}

/// Sets or removes a record of a page.
fn set(
    page: &mut Page,
    rid: Rid,
    value: Option<&[u8]>,
    page_bytes: usize,
) -> Result<(), HostError> {
    let set = page.set(rid.slot, value, page_bytes);
    set.map_err(|error| HostError::no_room(rid.page, error))
}

impl FlagEx {
    fn new(
        log: Log,
        (buffer, max_c): (usize, u8),
        mistake: Mistaken<Mistake>,
        page_bytes: usize,
    ) -> FlagEx {
        FlagEx {
            ahead: buffer as u64 + log.payload(),
            log,
            txs: BTreeMap::new(),
            orphans: BTreeMap::new(),
            not_before: FxHashMap::default(),
            max_c,
            page_bytes,
            mistake,
            restored: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Whether a page has space for a record of `len` bytes instead of the present one, plus all
    /// records that live transactions may restore and the list of pending records (R11).
    fn fits(&self, frame: &Frame, tx: TxId, rid: Rid, len: Option<usize>) -> Result<(), HostError> {
        let page_bytes = self.page_bytes;
        let mut txs: Vec<TxId> = vec![tx];
        let mut slots = 1;
        let own = room_of(frame.page.get(rid.slot).map(<[u8]>::len));
        let mut needed = frame.page.image_bytes() - own + own.max(room_of(len));
        for mark in &frame.marks.pending {
            let slot = mark.slot;
            let rid_there = Rid { slot, ..rid };
            let before = self
                .txs
                .get(&mark.tx)
                .and_then(|known| known.before.get(&rid_there));
            let before = before.and_then(|before| before.value.as_deref());
            let before = room_of(before.map(<[u8]>::len));
            if slot == rid.slot {
                let most = own.max(room_of(len));
                needed += before.saturating_sub(most);
                continue;
            }
            needed += before.saturating_sub(room_of(frame.page.get(slot).map(<[u8]>::len)));
            slots += 1;
            if !txs.contains(&mark.tx) {
                txs.push(mark.tx);
            }
        }
        let list = page_bytes - room_beside(page_bytes, txs.len(), slots);
        if needed + list > page_bytes {
            return Err(HostError::PageFull {
                page: rid.page,
                needed: needed + list,
                page_bytes,
            });
        }
        Ok(())
    }
}

impl Manager for FlagEx {
    fn overhead(&self) -> usize {
        self.page_bytes - room_beside(self.page_bytes, 1, 1)
    }

    fn log(&self) -> Option<&Log> {
        Some(&self.log)
    }

    fn log_mut(&mut self) -> Option<&mut Log> {
        Some(&mut self.log)
    }

    fn loaded(
        &mut self,
        at: Lpn,
        frame: &mut Frame,
        read: &mut MergedPage,
    ) -> Result<(), HostError> {
        for Pending { tx, slots } in &read.pending {
            let marks = slots.iter().map(|&slot| Mark {
                slot,
                tx: *tx,
                since: 0,
                flushed: true,
            });
            frame.marks.pending.extend(marks);
        }
        self.restored = std::mem::take(&mut read.restored);
        let page = Rid { page: at, slot: 0 }..=Rid {
            page: at,
            slot: SlotNo::MAX,
        };
        let back: Vec<Rid> = self.orphans.range(page).map(|(&rid, _)| rid).collect();
        for rid in back {
            let orphan = self.orphans.remove(&rid).expect("it was found");
            let value = orphan.value.as_deref();
            set(&mut frame.page, rid, value, self.page_bytes)?;
            let since = orphan.fresh.expect("only fresh records are orphans");
            frame.marks.fresh.insert(rid.slot, since);
            frame.touch(since);
        }
        Ok(())
    }

    fn enters(&self, frame: &Frame) -> Vec<TxId> {
        let pending = frame.marks.pending.iter().map(|mark| mark.tx);
        let mut new: Vec<TxId> = pending.filter(|tx| self.on_device(*tx).is_none()).collect();
        new.sort_unstable();
        new.dedup();
        new
    }

    fn entered(&mut self, tx: TxId, _: TxId) {
        self.txs
            .get_mut(&tx)
            .expect("what is pending is live")
            .entered = true;
    }

    fn on_device(&self, tx: TxId) -> Option<TxId> {
        self.txs.get(&tx)?.entered.then_some(tx)
    }

    fn write_back(&mut self, now: Nanos, at: Lpn, frame: &Frame) -> WriteBack {
        let ready = self.not_before.get(&at);
        let not_before = ready.map_or(now, |&ready| now.max(ready));
        // D2: a page's LSN is at most `ahead` bytes ahead of the durable log.
        let lsn = frame.page.lsn();
        let is_ahead = lsn > self.log.durable_at(not_before) + self.ahead;
        let mut pending: Vec<Pending> = Vec::new();
        for mark in &frame.marks.pending {
            match pending.iter_mut().find(|other| other.tx == mark.tx) {
                Some(other) => other.slots.push(mark.slot),
                None => pending.push(Pending {
                    tx: mark.tx,
                    slots: vec![mark.slot],
                }),
            }
        }
        WriteBack {
            not_before,
            log_to: is_ahead.then_some(lsn + 1),
            how: As::Listing(pending),
        }
    }

    fn written(&mut self, frame: &mut Frame, how: &As, done: Nanos) {
        let As::Listing(pending) = how else {
            unreachable!("pages are written with what is pending in them");
        };
        for Pending { tx, .. } in pending {
            let known = self.txs.get_mut(tx).expect("what is pending is live");
            known.flushed = known.flushed.max(done);
        }
        for mark in &mut frame.marks.pending {
            (mark.since, mark.flushed) = (0, true);
        }
        frame.owner = pending.first().map(|first| first.tx);
        frame.marks.fresh.clear();
    }

    fn admit(&mut self, memory: &mut Memory, tx: TxId, rid: Rid) -> Admission {
        // R13: the transaction waits for one of the others.
        let (what, mode) = (Resource::Updaters(rid.page), Mode::Counted(self.max_c));
        let waits = wait_for(memory.locks.acquire(tx, what, mode));
        waits.map_or(Admission::Granted, Admission::Refused)
    }

    fn room(
        &mut self,
        memory: &Memory,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Room, HostError> {
        let frame = memory.pool.peek(rid.page).expect("it was fetched");
        let len = bytes.map(<[u8]>::len);
        if frame.page.get(rid.slot).is_none() && len.is_none() {
            return Ok(Room::Unneeded);
        }
        self.fits(frame, tx, rid, len)?;
        self.log_room(memory, BARE + len.unwrap_or(0) as u64)
    }

    fn update(
        &mut self,
        memory: &mut Memory,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<(), HostError> {
        let frame = memory.frame(rid.page);
        let old = frame.page.get(rid.slot);
        let mut entry = LogRecord {
            // The old value is never restored from the log, so it is left out.
            compensates: true,
            page: rid.page,
            slot: rid.slot,
            ..LogRecord::mark(What::Update, tx, 0, &[])
        };
        match (old, bytes) {
            (Some(old), Some(new)) => {
                let (start, end) = common(old, new);
                entry.at = start as u16;
                entry.replaced = (old.len() - end - start) as u16;
                entry.new = &new[start..new.len() - end];
            }
            (None, Some(new)) => (entry.what, entry.new) = (What::Insert, new),
            (_, None) => entry.what = What::Delete,
        }
        let lsn = self.log.append(&entry)?;
        let known = self.txs.entry(tx).or_default();
        known.pages.insert(rid.page);
        let fresh = frame.marks.fresh.remove(&rid.slot);
        if let std::collections::btree_map::Entry::Vacant(place) = known.before.entry(rid) {
            let forget = self.mistake.is(Mistake::NoBeforeImage);
            place.insert(Before {
                value: old.map(Box::from),
                fresh: fresh.filter(|_| !forget),
            });
        }
        let pending = &mut frame.marks.pending;
        match pending.iter_mut().find(|mark| mark.slot == rid.slot) {
            Some(mark) if mark.since == 0 => mark.since = lsn,
            Some(_) => {}
            None => pending.push(Mark {
                slot: rid.slot,
                tx,
                since: lsn,
                flushed: false,
            }),
        }
        set(&mut frame.page, rid, bytes, self.page_bytes)?;
        frame.page.set_lsn(lsn);
        frame.touch(lsn);
        Ok(())
    }

    fn commit(&mut self, memory: &mut Memory, _: Nanos, tx: TxId) -> Result<Commit, HostError> {
        let Some(known) = self.txs.get(&tx) else {
            return Ok(Commit::Nothing);
        };
        let in_buffer = known.pages.iter().any(|&page| {
            let frame = memory.pool.peek(page);
            let mut marks = frame.into_iter().flat_map(|frame| &frame.marks.pending);
            marks.any(|mark| mark.tx == tx && mark.since != 0)
        });
        let mut log_to = None;
        if in_buffer {
            let commit = LogRecord::mark(What::Commit, tx, 0, &[]);
            log_to = Some(self.log.append(&commit)? + 1);
        }
        Ok(Commit::Steps(CommitSteps {
            not_before: known.flushed,
            log_to,
            ..CommitSteps::default()
        }))
    }

    fn committed(&mut self, memory: &mut Memory, tx: TxId, done: Nanos) {
        let Some(known) = self.txs.remove(&tx) else {
            return;
        };
        for page in known.pages {
            // An earlier commit in this page may be durable later: flags and logs differ in order.
            let ready = self.not_before.entry(page).or_default();
            *ready = if self.mistake.is(Mistake::NewestCommit) {
                done
            } else {
                done.max(*ready)
            };
            let Some(frame) = memory.pool.peek_mut(page) else {
                continue;
            };
            let own = frame.marks.pending.extract_if(.., |mark| mark.tx == tx);
            for mark in own.filter(|mark| mark.since != 0) {
                let rid = Rid {
                    page,
                    slot: mark.slot,
                };
                let before = known.before.get(&rid).and_then(|before| before.fresh);
                let since = before.filter(|_| !mark.flushed).unwrap_or(mark.since);
                frame.marks.fresh.insert(mark.slot, since);
            }
        }
    }

    fn abort(&mut self, memory: &mut Memory, tx: TxId) -> Result<RollBack, HostError> {
        let Some(known) = self.txs.remove(&tx) else {
            return Ok(RollBack::Nothing);
        };
        for (rid, before) in known.before {
            let Some(frame) = memory.pool.peek_mut(rid.page) else {
                if before.fresh.is_some() {
                    self.orphans.insert(rid, before);
                }
                continue;
            };
            let value = before.value.as_deref();
            set(&mut frame.page, rid, value, self.page_bytes)?;
            frame.marks.pending.retain(|mark| mark.slot != rid.slot);
            if let Some(since) = before.fresh {
                frame.marks.fresh.insert(rid.slot, since);
                frame.touch(since);
                memory.mark(rid.page);
            }
        }
        for at in known.pages {
            let Some(frame) = memory.pool.peek_mut(at) else {
                continue;
            };
            let marks = &frame.marks;
            let in_buffer = marks.pending.iter().any(|mark| mark.since != 0);
            if !in_buffer && marks.fresh.is_empty() {
                frame.changed = 0;
                memory.mark(at);
            }
        }
        Ok(RollBack::Forgotten)
    }

    fn checkpoint_due(&self) -> Option<Lsn> {
        self.is_checkpoint_due()
    }

    fn absent(&self, older_than: Lsn) -> Vec<Lpn> {
        let is_old = |since: Option<Lsn>| since.is_some_and(|since| since < older_than);
        let orphans = self.orphans.iter();
        let old = orphans.filter(|(_, before)| is_old(before.fresh));
        let mut pages: Vec<Lpn> = old.map(|(rid, _)| rid.page).collect();
        pages.dedup();
        pages
    }

    fn checkpoint(&mut self, memory: &Memory) -> Result<(Lsn, Lsn), HostError> {
        self.log_checkpoint(memory)
    }

    fn analyse<'t>(&mut self, tape: &'t Tape) -> Result<Vec<Redo<'t>>, HostError> {
        Ok(restart::changes(tape))
    }

    fn redo(&mut self, memory: &mut Memory, changes: Redo<'_>) -> Result<(), HostError> {
        self.redo_page(memory, changes)
    }

    fn cleans_redone(&self) -> bool {
        true // D2
    }

    fn restarted(&mut self, _: &Memory) -> Result<Lsn, HostError> {
        if !self.mistake.is(Mistake::NoGap) {
            self.log.skip(self.ahead);
        }
        Ok(Lsn::MAX)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let mut before = self.orphans.len() * size_of::<(Rid, Before)>();
        for known in self.txs.values() {
            before += size_of::<(TxId, Tx)>() + known.pages.len() * size_of::<Lpn>();
            before += known.before.len() * size_of::<(Rid, Before)>();
            let values = known
                .before
                .values()
                .filter_map(|before| before.value.as_ref());
            before += values.map(|value| value.len()).sum::<usize>();
        }
        let not_before = self.not_before.capacity() * size_of::<(Lpn, Nanos)>();
        vec![
            ("log_buffer", self.log.memory()),
            ("host_tx_table", (before + not_before) as u64),
        ]
    }
}
