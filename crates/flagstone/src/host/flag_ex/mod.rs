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
//! Departures  D1. Records are not taken out of the log buffer when their page is evicted: commits
//!                 of others force it all the time, and LSNs are places in the log.
//!             D2. Pages go out before their log records, so LSNs that a cut takes back can be on
//!                 flash. A restart leaves a gap in the log that is wider than that.
//!             D3. A commit that is in the log is acknowledged when that is durable; its flags are
//!                 set then, and nobody waits for them.
//!             D4. What a record was before is kept in memory and put back by an abort. The paper
//!                 reads it from flash, where a commit that is only in the log is missing.
//!             D5. Pages whose first change is older than the checkpoint before the last are
//!                 written out by a checkpoint, which is what the paper waits for.

mod checkpoint;
mod open;
mod restart;
#[cfg(test)]
mod tests;

pub(super) use checkpoint::log_pages_min;
pub(super) use open::open;

use super::config::Sabotage;
use super::engine::{Engine, Manager};
use super::frame::{Frame, Mark, Marks};
use super::locks::{LockTable, Mode, Resource};
use super::log::{Entry, Log, Lsn, Tape, What};
use super::wal::{common, room_of};
use super::{HostError, LogStats, Rid, Step, wait_for};
use crate::commit::{MergedPage, Pending, RecordDevice};
use crate::ftl::Ftl;
use crate::nand::Flash;
use crate::page::{Page, SlotNo};
use crate::units::{Lpn, Nanos, TxId};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a log record without a body.
const BARE: u64 = Entry::bytes(0) as u64;

/// What a record was before a live transaction changed it, or is again since one was aborted.
#[derive(Debug, Clone, Default)]
struct Before {
    value: Option<Box<[u8]>>,
    /// If it is fresh: see `Marks::fresh`.
    fresh: Option<Lsn>,
}

/// A live transaction that has changed something.
#[derive(Debug, Default)]
struct Tx {
    before: BTreeMap<Rid, Before>,
    pages: BTreeSet<Lpn>,
    /// Whether the device knows it.
    entered: bool,
    /// When pages with its records are durable.
    flushed: Nanos,
}

/// A log page that is to be written.
type Held = Option<(Lpn, Vec<u8>)>;

struct FlagEx {
    device: RecordDevice,
    log: Log,
    /// What the restart found, until it is over, and the master that is to be written then.
    tape: Option<(Tape, Held)>,
    txs: BTreeMap<TxId, Tx>,
    /// Fresh records that an abort has put back, of pages that are not in the pool.
    orphans: BTreeMap<Rid, Before>,
    /// When what is committed in a page is durable, if that may still lie ahead.
    not_before: FxHashMap<Lpn, Nanos>,
    /// When all pages written so far are durable, and all flags set.
    written: Nanos,
    flagged: Nanos,
    /// So far the LSN of a page may be ahead of the durable log.
    ahead: u64,
    max_c: u8,
    sabotage: Option<Sabotage>,
    image: Vec<u8>,
    merged: MergedPage,
    bytes: Vec<u8>,
}

/// Puts a record into a page, or takes it out.
fn set(
    page: &mut Page,
    rid: Rid,
    value: Option<&[u8]>,
    page_bytes: usize,
) -> Result<(), HostError> {
    match value {
        Some(value) => page
            .put(rid.slot, value, page_bytes)
            .map_err(|error| HostError::no_room(rid.page, error)),
        None => {
            page.remove(rid.slot);
            Ok(())
        }
    }
}

/// Notes that a page has changed since `since`.
fn touch(engine: &mut Engine, at: Lpn, since: Lsn) {
    let frame = engine.pool.peek_mut(at).expect("it is in the pool");
    if frame.changed == 0 || since < frame.changed {
        frame.changed = since;
    }
    engine.pool.set_dirty(at, true);
}

impl FlagEx {
    /// Whether a page would hold a record of so many bytes in place of the one that is there, with
    /// all that live transactions may put back and the list of what is pending (R11).
    fn fits(
        &self,
        frame: &Frame,
        tx: TxId,
        rid: Rid,
        len: Option<usize>,
        page_bytes: usize,
    ) -> Result<(), HostError> {
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
        let list = page_bytes - self.device.room(txs.len(), slots);
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
        let page_bytes = self.device.ftl().geometry().page_bytes as usize;
        page_bytes - self.device.room(1, 1)
    }

    fn space(&self) -> (u32, TxId) {
        let (tape, _) = self.tape.as_ref().expect("before the restart");
        let ids = tape.entries(0).map(|(_, entry)| entry.tx);
        let last = ids.max().unwrap_or_default();
        (
            self.log.first().0,
            last.max(tape.last_tx).max(self.device.last_tx()),
        )
    }

    fn restart(&mut self, engine: &mut Engine, now: Nanos) -> Result<Nanos, HostError> {
        restart::run(self, engine, now)
    }

    fn load(&mut self, now: Nanos, at: Lpn, frame: &mut Frame) -> Result<Nanos, HostError> {
        let done = self.device.read(now, at, &mut self.merged)?;
        frame.page =
            Page::parse(&self.merged.image).map_err(|error| HostError::PageDamaged(at, error))?;
        frame.marks = Marks::default();
        for Pending { tx, slots } in &self.merged.pending {
            let marks = slots.iter().map(|&slot| Mark {
                slot,
                tx: *tx,
                since: 0,
                flushed: true,
            });
            frame.marks.pending.extend(marks);
        }
        let page = Rid { page: at, slot: 0 }..=Rid {
            page: at,
            slot: SlotNo::MAX,
        };
        let back: Vec<Rid> = self.orphans.range(page).map(|(&rid, _)| rid).collect();
        let page_bytes = self.device.geometry().page_bytes as usize;
        for rid in back {
            let orphan = self.orphans.remove(&rid).expect("it was found");
            set(&mut frame.page, rid, orphan.value.as_deref(), page_bytes)?;
            let since = orphan.fresh.expect("only fresh records are orphans");
            frame.marks.fresh.insert(rid.slot, since);
            if frame.changed == 0 || since < frame.changed {
                frame.changed = since;
            }
        }
        Ok(done)
    }

    fn may_write_back(&self, _: &LockTable, _: Lpn, _: &Frame) -> bool {
        true
    }

    fn write_back(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        at: Lpn,
        frame: &mut Frame,
    ) -> Result<Nanos, HostError> {
        let mut issue = now;
        if let Some(&ready) = self.not_before.get(&at) {
            issue = issue.max(ready);
        }
        // D2
        let lsn = frame.page.lsn();
        if lsn > self.log.durable_at(issue) + self.ahead {
            issue = self.log.force(&mut self.device, issue, lsn + 1)?;
        }
        let mut pending: Vec<Pending> = Vec::new();
        for mark in &mut frame.marks.pending {
            (mark.since, mark.flushed) = (0, true);
            match pending.iter_mut().find(|other| other.tx == mark.tx) {
                Some(other) => other.slots.push(mark.slot),
                None => pending.push(Pending {
                    tx: mark.tx,
                    slots: vec![mark.slot],
                }),
            }
        }
        for Pending { tx, .. } in &pending {
            let known = self.txs.get_mut(tx).expect("what is pending is live");
            if !known.entered {
                known.entered = true;
                self.device.enter(*tx)?;
            }
        }
        frame
            .page
            .emit(engine.page_bytes, &mut self.image)
            .map_err(|error| HostError::PageDamaged(at, error))?;
        let done = self.device.write(issue, at, &self.image, &pending)?;
        for Pending { tx, .. } in &pending {
            let known = self.txs.get_mut(tx).expect("looked up above");
            known.flushed = known.flushed.max(done);
        }
        frame.owner = pending.first().map(|first| first.tx);
        frame.marks.fresh.clear();
        self.written = self.written.max(done);
        engine.stats.pages_written += 1;
        Ok(issue)
    }

    fn admit(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        tx: TxId,
        rid: Rid,
    ) -> Result<Step<()>, HostError> {
        // R13
        let (what, mode) = (Resource::Updaters(rid.page), Mode::Counted(self.max_c));
        let waits = wait_for(engine.locks.acquire(tx, what, mode));
        Ok(waits.unwrap_or(Step::Done((), now)))
    }

    fn update(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError> {
        let page_bytes = engine.page_bytes;
        let frame = engine.pool.peek(rid.page).expect("it was fetched");
        let old = frame.page.get(rid.slot);
        if old.is_none() && bytes.is_none() {
            return Ok(Step::Done((), now));
        }
        self.fits(frame, tx, rid, bytes.map(<[u8]>::len), page_bytes)?;
        let body = bytes.map_or(0, <[u8]>::len) as u64;
        if let Some(step) = self.make_room(engine, now, rid.page, BARE + body)? {
            return Ok(step);
        }
        let frame = engine.pool.peek_mut(rid.page).expect("it was fetched");
        let old = frame.page.get(rid.slot);
        let mut entry = Entry {
            // What is replaced is never put back from the log, so it is left out.
            compensates: true,
            page: rid.page,
            slot: rid.slot,
            ..Entry::mark(What::Update, tx, 0, &[])
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
            let forget = self.sabotage == Some(Sabotage::NoBeforeImage);
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
        set(&mut frame.page, rid, bytes, page_bytes)?;
        frame.page.set_lsn(lsn);
        touch(engine, rid.page, lsn);
        if self.log.unforced() >= engine.config.log_buffer_bytes as u64 {
            let end = self.log.end();
            self.log.force(&mut self.device, now, end)?;
        }
        Ok(Step::Done((), now))
    }

    fn commit(&mut self, engine: &mut Engine, now: Nanos, tx: TxId) -> Result<Step<()>, HostError> {
        let Some(known) = self.txs.remove(&tx) else {
            return Ok(Step::Done((), now));
        };
        let start = now.max(known.flushed);
        let in_buffer = known.pages.iter().any(|&page| {
            let frame = engine.pool.peek(page);
            let mut marks = frame.into_iter().flat_map(|frame| &frame.marks.pending);
            marks.any(|mark| mark.tx == tx && mark.since != 0)
        });
        let mut done = start;
        if in_buffer {
            let lsn = self.log.append(&Entry::mark(What::Commit, tx, 0, &[]))?;
            done = self.log.force(&mut self.device, start, lsn + 1)?;
        }
        if known.entered {
            let from = match self.sabotage {
                Some(Sabotage::FlagsBeforeLog) => start,
                _ => done,
            };
            let flags = self.device.commit(from, tx)?;
            self.flagged = self.flagged.max(flags);
            if !in_buffer {
                done = flags; // R15
            }
        }
        if self.sabotage == Some(Sabotage::EarlyAcknowledgement) {
            done = now;
        }
        for page in known.pages {
            // What an earlier commit has in it may take longer: flags are not in the order of logs.
            let ready = self.not_before.entry(page).or_default();
            *ready = done.max(*ready);
            let Some(frame) = engine.pool.peek_mut(page) else {
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
        self.checkpoint_if_due(engine, now)?;
        Ok(Step::Done((), done))
    }

    fn abort(&mut self, engine: &mut Engine, now: Nanos, tx: TxId) -> Result<Nanos, HostError> {
        let Some(known) = self.txs.remove(&tx) else {
            return Ok(now);
        };
        for (rid, before) in known.before {
            let Some(frame) = engine.pool.peek_mut(rid.page) else {
                if before.fresh.is_some() {
                    self.orphans.insert(rid, before);
                }
                continue;
            };
            let page_bytes = engine.page_bytes;
            set(&mut frame.page, rid, before.value.as_deref(), page_bytes)?;
            frame.marks.pending.retain(|mark| mark.slot != rid.slot);
            if let Some(since) = before.fresh {
                frame.marks.fresh.insert(rid.slot, since);
                touch(engine, rid.page, since);
            }
        }
        for at in known.pages {
            let Some(frame) = engine.pool.peek_mut(at) else {
                continue;
            };
            let marks = &frame.marks;
            let in_buffer = marks.pending.iter().any(|mark| mark.since != 0);
            if !in_buffer && marks.fresh.is_empty() {
                frame.changed = 0;
                engine.pool.set_dirty(at, false);
            }
        }
        if known.entered {
            self.device.abort(now, tx)?;
        }
        self.checkpoint_if_due(engine, now)?;
        Ok(now)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.device.memory();
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
        all.push(("log_buffer", self.log.memory()));
        all.push(("host_tx_table", (before + not_before) as u64));
        all
    }

    fn log_stats(&self) -> LogStats {
        self.log.stats()
    }

    fn reset_stats(&mut self) {
        self.device.reset_stats();
        self.log.reset_stats();
    }

    fn erase_ahead(&mut self, now: Nanos) -> Result<Nanos, HostError> {
        Ok(self.device.erase_ahead(now)?)
    }

    fn ftl(&self) -> &Ftl {
        self.device.ftl()
    }

    fn check(&self) -> Result<(), String> {
        self.device.check()
    }

    fn into_flash(self: Box<Self>) -> Box<dyn Flash> {
        self.device.into_flash()
    }
}
