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
//!                 of others force it all the time, and LSNs are places in the log. What the
//!                 log would be without them is counted (`LogStats::pages_if_removed`).
//!             D2. Pages go out before their log records, so LSNs that a cut takes back can be on
//!                 flash. A restart leaves a gap in the log that is wider than that. If the log
//!                 buffer was larger before, a page may be ahead of the gap: it is written with a
//!                 lower LSN before its next change.
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

use super::config::Mistake;
use super::frame::{Frame, Mark, room_of};
use super::locks::{Mode, Resource};
use super::log::{Log, LogRecord, Lsn, What};
use super::tools::{Tools, Verbs, told_of};
use super::{HostError, Rid, Step, Why, wait_for};
use flagstone::commit::{MergedPage, Pending, RecordDevice, room_beside};
use flagstone::page::SlotNo;
use flagstone::units::{Lpn, Nanos, TxId};
use rustc_hash::FxHashMap;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a log record without a body.
const BARE: u64 = LogRecord::bytes(0) as u64;

/// A limit that exceeds the size of any page, also where its slots have different ages.
const LARGER: usize = 1 << 24;

/// The old state of a record that a live transaction has changed; or the restored state after an
/// abort.
#[derive(Debug, Clone, Default)]
struct Before {
    value: Option<Box<[u8]>>,
    /// The oldest log record that a fresh record needs, see `Frame::fresh`; `None` if the old state
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
    /// Its commit record, if that is logged.
    logged: Option<Lsn>,
}

pub(super) struct FlagEx {
    pub(super) device: Box<RecordDevice>,
    pub(super) log: Log,
    txs: BTreeMap<TxId, Tx>,
    /// Fresh records that an abort has restored and whose pages are not in the pool.
    orphans: BTreeMap<Rid, Before>,
    /// For each page, the instant at which all commits in it are durable, if that may be in the
    /// future.
    not_before: FxHashMap<Lpn, Nanos>,
    /// When all pages written so far are durable and all flags are set.
    safe_at: Nanos,
    /// Maximum distance in bytes of a page's LSN ahead of the durable log.
    ahead: u64,
    /// The last read page.
    read: MergedPage,
}

impl FlagEx {
    fn new(device: RecordDevice, log: Log, buffer: usize) -> FlagEx {
        FlagEx {
            device: Box::new(device),
            ahead: buffer as u64 + log.payload(),
            log,
            txs: BTreeMap::new(),
            orphans: BTreeMap::new(),
            not_before: FxHashMap::default(),
            safe_at: Nanos::ZERO,
            read: MergedPage::default(),
        }
    }

    /// Changes a record of a fetched page. Nothing was changed unless the answer is `Done`.
    fn change(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError> {
        let page_bytes = tools.page_bytes;
        let len = bytes.map(<[u8]>::len);
        if tools.frame(rid.page).page.get(rid.slot).is_none() && len.is_none() {
            return Ok(Step::Done((), now));
        }
        self.fits(tools, tx, rid, len)?;
        let logged = BARE + len.unwrap_or(0) as u64;
        if let Some(victim) = self.make_room(tools, now, rid.page, logged)? {
            let why = Why::LogFull;
            return Ok(Step::Abort { victim, why });
        }
        let (mut now, end, ahead) = (now, self.log.end(), tools.frame(rid.page).page.lsn());
        if ahead >= end && !tools.has(Mistake::NoGap) {
            // D2: the log buffer was larger when the page was written. Changes wait until the page
            // is durable.
            tools.frame_mut(rid.page).page.set_lsn(end - 1);
            self.write_back(tools, now, rid.page)
                .inspect_err(|_| tools.frame_mut(rid.page).page.set_lsn(ahead))?;
            now = now.max(self.safe_at);
            tools.frame_mut(rid.page).ready = now;
        }
        let forget = tools.has(Mistake::NoBeforeImage);
        let frame = tools.frame_mut(rid.page);
        let old = frame.page.get(rid.slot);
        // The old value is never restored from the log, so it is left out: the log record has the
        // form of one that compensates.
        let mut entry = LogRecord::change(tx, 0, rid, old, bytes);
        (entry.compensates, entry.old) = (true, &[]);
        if entry.what == What::Delete {
            entry.replaced = 0;
        }
        let lsn = self.log.append(&entry)?;
        let known = self.txs.entry(tx).or_default();
        known.pages.insert(rid.page);
        let fresh = frame.fresh.remove(&rid.slot);
        if let Entry::Vacant(place) = known.before.entry(rid) {
            place.insert(Before {
                value: old.map(Box::from),
                fresh: fresh.filter(|_| !forget),
            });
        }
        match frame.pending.iter_mut().find(|mark| mark.slot == rid.slot) {
            Some(mark) if mark.since == 0 => mark.since = lsn,
            Some(_) => {}
            None => frame.pending.push(Mark {
                slot: rid.slot,
                tx,
                since: lsn,
                flushed: false,
            }),
        }
        frame.set(rid, bytes, page_bytes)?;
        frame.page.set_lsn(lsn);
        frame.touch(lsn);
        self.log.spill(&mut *self.device, now)?;
        Ok(Step::Done((), now))
    }

    /// Fails if the page has no room for a record of `len` bytes instead of the present one, plus
    /// all records that live transactions may restore and the list of pending records (R11).
    fn fits(&self, tools: &Tools, tx: TxId, rid: Rid, len: Option<usize>) -> Result<(), HostError> {
        let (frame, page_bytes) = (tools.frame(rid.page), tools.page_bytes);
        // What the page version will list: transactions, and slots with pending records.
        let mut txs: Vec<TxId> = vec![tx];
        let mut slots = 1;
        let room_at = |slot| room_of(frame.page.get(slot).map(<[u8]>::len));
        // An abort may bring the present record back.
        let most = room_at(rid.slot).max(room_of(len));
        let mut needed = frame.page.image_bytes() - room_at(rid.slot) + most;
        for mark in &frame.pending {
            let slot = mark.slot;
            let known = self.txs.get(&mark.tx);
            let before = known.and_then(|known| known.before.get(&Rid { slot, ..rid }));
            let before = before.and_then(|before| before.value.as_deref());
            let before = room_of(before.map(<[u8]>::len));
            if slot == rid.slot {
                needed += before.saturating_sub(most);
                continue;
            }
            needed += before.saturating_sub(room_at(slot));
            slots += 1;
            if !txs.contains(&mark.tx) {
                txs.push(mark.tx);
            }
        }
        needed += page_bytes - room_beside(page_bytes, txs.len(), slots);
        if needed > page_bytes {
            return Err(HostError::PageFull {
                page: rid.page,
                needed,
                page_bytes,
            });
        }
        Ok(())
    }

    /// Ends a transaction whose commit is durable at `done`: its records on flash are committed,
    /// the others are fresh.
    fn committed(&mut self, tools: &mut Tools, tx: TxId, done: Nanos) {
        let known = self.txs.remove(&tx).unwrap_or_default();
        let only_newest = tools.has(Mistake::NewestCommit);
        for page in known.pages {
            // An earlier commit in this page may be durable later: flags and logs differ in order.
            let ready = self.not_before.entry(page).or_default();
            *ready = if only_newest { done } else { done.max(*ready) };
            let Some(frame) = tools.pool.peek_mut(page) else {
                continue;
            };
            let own = frame.pending.extract_if(.., |mark| mark.tx == tx);
            for mark in own.filter(|mark| mark.since != 0) {
                let slot = mark.slot;
                // If no change of it is on flash, and neither was its value before, the log is
                // needed from that value's first change on.
                let before = known.before.get(&Rid { page, slot });
                let before = before.and_then(|before| before.fresh);
                let since = before.filter(|_| !mark.flushed).unwrap_or(mark.since);
                frame.fresh.insert(slot, since);
            }
        }
    }

    /// When the commits of all records of a page that are not pending are durable, at `now` at the
    /// earliest.
    fn committed_at(&self, now: Nanos, at: Lpn) -> Nanos {
        let ready = self.not_before.get(&at);
        ready.map_or(now, |&ready| now.max(ready))
    }
}

impl Verbs for FlagEx {
    /// Reads a page with marks of its pending records. Puts back fresh records that aborts have
    /// restored while the page was not in the pool.
    fn read_page(&mut self, now: Nanos, at: Lpn) -> Result<Frame, HostError> {
        let ready = self.device.read(now, at, &mut self.read)?;
        let mut frame = Frame::parse(at, &self.read.image, ready)?;
        for Pending { tx, slots } in &self.read.pending {
            frame.pending.extend(slots.iter().map(|&slot| Mark {
                slot,
                tx: *tx,
                since: 0,
                flushed: true,
            }));
        }
        // Puts back what aborts restored while the page was not in the pool.
        let first = Rid { page: at, slot: 0 };
        let page = first..=Rid {
            slot: SlotNo::MAX,
            ..first
        };
        let back: Vec<Rid> = self.orphans.range(page).map(|(&rid, _)| rid).collect();
        for rid in back {
            let orphan = self.orphans.remove(&rid).expect("it was found");
            // Until all are back, the page may be larger than it ever was.
            frame.set(rid, orphan.value.as_deref(), LARGER)?;
            let since = orphan.fresh.expect("only fresh records are orphans");
            frame.fresh.insert(rid.slot, since);
            frame.touch(since);
        }
        Ok(frame)
    }

    /// Writes a page with the list of its pending records, at an instant at which the commits of
    /// its other records are durable (invariant 1).
    fn write_back(&mut self, tools: &mut Tools, now: Nanos, at: Lpn) -> Result<Nanos, HostError> {
        let frame = tools.frame(at);
        let mut pending: Vec<Pending> = Vec::new();
        for Mark { slot, tx, .. } in &frame.pending {
            match pending.iter_mut().find(|listed| listed.tx == *tx) {
                Some(listed) => listed.slots.push(*slot),
                None => pending.push(Pending {
                    tx: *tx,
                    slots: vec![*slot],
                }),
            }
        }
        for Pending { tx, .. } in &pending {
            let known = self.txs.get_mut(tx).expect("what is pending is live");
            if !known.entered {
                self.device.enter(*tx)?;
                known.entered = true;
            }
        }
        let lsn = frame.page.lsn();
        tools.emit(at)?;
        let mut issue = self.committed_at(now, at);
        // D2: a page's LSN is at most `ahead` bytes ahead of the durable log.
        if lsn > self.log.durable_at(issue) + self.ahead {
            issue = self.log.force(&mut *self.device, issue, lsn + 1)?;
        }
        let done = self.device.write(issue, at, &tools.image, &pending)?;
        self.safe_at = self.safe_at.max(done);
        for Pending { tx, .. } in &pending {
            let known = self.txs.get_mut(tx).expect("what is pending is live");
            known.flushed = known.flushed.max(done);
        }
        let frame = tools.frame_mut(at);
        for mark in &mut frame.pending {
            (mark.since, mark.flushed) = (0, true);
        }
        frame.owner = pending.first().map(|first| first.tx);
        frame.fresh.clear();
        tools.written(at);
        self.log.leave(|_, page| page == at);
        Ok(issue)
    }

    /// Changes a record, once the transaction may have pending records in the page (R13).
    fn write(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError> {
        // R13: the transaction waits for one of the others.
        let mode = Mode::Counted(self.device.max_c());
        let granted = tools.locks.acquire(tx, Resource::Updaters(rid.page), mode);
        if let Some(waits) = wait_for(granted) {
            return Ok(waits);
        }
        let Some(ready) = tools.fetch(self, now, rid.page, true)? else {
            return tools.exhausted();
        };
        let changed = self.change(tools, ready, tx, rid, bytes);
        tools.end_write(self, rid.page, changed)
    }

    /// Logs and forces the commit if a change is not on flash. Then sets the flags of pages that
    /// are, if there are any (invariant 2).
    fn commit(&mut self, tools: &mut Tools, now: Nanos, tx: TxId) -> Result<Step<()>, HostError> {
        let Some(known) = self.txs.get_mut(&tx) else {
            return Ok(Step::Done((), now));
        };
        let in_buffer = known.pages.iter().any(|&page| {
            let frame = tools.pool.peek(page);
            let mut marks = frame.into_iter().flat_map(|frame| &frame.pending);
            marks.any(|mark| mark.tx == tx && mark.since != 0)
        });
        let (entered, flushed) = (known.entered, now.max(known.flushed));
        if in_buffer && known.logged.is_none() {
            let commit = LogRecord::mark(What::Commit, tx, 0, &[]);
            known.logged = Some(self.log.append(&commit)?);
        }
        let (mut done, logged) = (flushed, known.logged);
        if let Some(lsn) = logged {
            done = self.log.force(&mut *self.device, flushed, lsn + 1)?;
        }
        if entered {
            let early = tools.has(Mistake::FlagsBeforeLog);
            let set = self.device.commit(if early { flushed } else { done }, tx)?;
            self.safe_at = self.safe_at.max(set);
            // D3: a commit that is in the log does not wait for its flags.
            if logged.is_none() {
                done = set;
            }
        }
        if tools.has(Mistake::EarlyAcknowledgement) {
            done = now;
        }
        self.committed(tools, tx, done);
        told_of(self.checkpoint_if_due(tools, now))?;
        Ok(Step::Done((), done))
    }

    fn may_have_committed(&self, tx: TxId) -> bool {
        let known = self.txs.get(&tx);
        known.is_none_or(|known| known.logged.is_some())
    }

    /// Puts back what the transaction has changed: in the pool, or in `orphans` what flash lacks of
    /// pages that are not there. Logs nothing.
    fn abort(&mut self, tools: &mut Tools, now: Nanos, tx: TxId) -> Result<Nanos, HostError> {
        let Some(known) = self.txs.remove(&tx) else {
            return Ok(now);
        };
        self.log.leave(|of, _| of == tx);
        for (rid, before) in known.before {
            let Some(frame) = tools.pool.peek_mut(rid.page) else {
                if before.fresh.is_some() {
                    self.orphans.insert(rid, before);
                }
                continue;
            };
            frame.set(rid, before.value.as_deref(), tools.page_bytes)?;
            frame.pending.retain(|mark| mark.slot != rid.slot);
            if let Some(since) = before.fresh {
                frame.fresh.insert(rid.slot, since);
                frame.touch(since);
                tools.mark(rid.page);
            }
        }
        for at in known.pages {
            let Some(frame) = tools.pool.peek_mut(at) else {
                continue;
            };
            // Without records that flash lacks, the page need not be written out.
            let in_buffer = frame.pending.iter().any(|mark| mark.since != 0);
            if !in_buffer && frame.fresh.is_empty() {
                frame.changed = 0;
                tools.mark(at);
            }
        }
        let mut done = now;
        if known.entered {
            done = self.device.abort(now, tx)?;
        }
        told_of(self.checkpoint_if_due(tools, done))?;
        Ok(done)
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
