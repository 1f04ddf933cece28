//! WAL: write-ahead logging as ARIES does it, on a device without transactions.
//!
//! Paper       [FlagCommit] §5.3 compares with it; what it is follows ARIES as textbooks have it.
//! Idea        Every change is logged before it can reach the device. A commit forces the log and
//!             no page (no-force); a page may go out whenever its frame is wanted (steal).
//! Cost        A commit: the log pages that are not full or not yet written, mostly one program. A
//!             roll-back: reads of pages and log records that are gone from memory, and a
//!             compensation record for each change. A checkpoint: its records and the master.
//! Records     log/entry.rs; a page says which was the last to change it
//!
//! Invariants  1. A page goes out at an instant at which the log is durable up to its LSN.
//!             2. A commit is acknowledged when the log is durable up to its record.
//!             3. What a page lost to a change of a live transaction stays reserved in it, so that
//!                every change can be taken back.
//!             4. The log always has room to roll back all live transactions and to take a
//!                checkpoint: a change that would take it away is refused.
//!             5. A restart finds, from the master on, all that it needs to redo and to undo: the
//!                log is kept from the lowest of the last complete checkpoint, the first record of
//!                each live transaction, and the first change of each page that was not written.
//!
//! Recovery    analysis from the last complete checkpoint, redo of all history from the first
//!             change that may be missing, undo of what had not committed; wal/restart.rs
//!
//! Departures  D1. A compensation record has no `prev` besides the next to undo: nobody reads it.
//!             D2. Pages whose first change is older than the checkpoint before the last are
//!                 written out by a checkpoint. Without it a page that is always in use keeps the
//!                 log from being shortened.
//!             D3. A full log: a checkpoint that writes all pages out; if that does not suffice the
//!                 transaction with the oldest record is aborted.
//!             D4. Commits may wait for each other ([`HostConfig::group_wait`]); wal/group.rs

mod checkpoint;
mod group;
mod restart;
#[cfg(test)]
mod tests;

pub(super) use checkpoint::log_pages_min;

use super::config::{HostConfig, Sabotage};
use super::engine::{Engine, Manager};
use super::frame::Frame;
use super::locks::LockTable;
use super::log::{Entry, Log, Lsn, Place, Store, Tape, What};
use super::{HostError, LogStats, Rid, Step, Why};
use crate::commit::{Device, Kind, Options};
use crate::ftl::{Cause, Config, Ftl};
use crate::layout::Record;
use crate::nand::Flash;
use crate::page::{Page, record_head};
use crate::units::{Lpn, Nanos, TxId};
use group::Group;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

pub(super) const LAYOUTS: &[Record] = checkpoint::LAYOUTS;

/// Bytes of a record without a body.
const BARE: u64 = Entry::bytes(0) as u64;

/// A transaction that has logged something and has not ended.
#[derive(Debug, Clone, Default)]
struct Tx {
    first: Lsn,
    last: Lsn,
    /// Bytes of its records.
    logged: u64,
    /// Log bytes that are kept free for its end, one way or the other.
    reserved: u64,
    /// Bytes that its changes have freed in pages, and which it may take back.
    freed: Vec<(Lpn, u32)>,
}

struct Wal {
    device: Device,
    /// The transaction on the device that data pages are written in; what it is good for is to wait
    /// for them.
    pages_tx: TxId,
    log: Log,
    /// What the restart found, until it is over.
    tape: Option<Tape>,
    txs: BTreeMap<TxId, Tx>,
    /// Bytes of pages that are kept free for what live transactions may take back.
    reserved: FxHashMap<Lpn, u32>,
    /// Log bytes that are kept free for the ends of transactions.
    reserved_log: u64,
    group: Group,
    sabotage: Option<Sabotage>,
    image: Vec<u8>,
    /// A record that is taken back.
    record: Vec<u8>,
    /// The bytes of a record as they will be.
    bytes: Vec<u8>,
}

impl Store for Device {
    fn get(&mut self, now: Nanos, at: Lpn, into: &mut Vec<u8>) -> Result<Nanos, HostError> {
        into.clear();
        let (done, bytes) = self.read_as(Cause::Log, now, None, at)?;
        into.extend_from_slice(bytes.unwrap_or_default());
        Ok(done)
    }

    fn put(&mut self, now: Nanos, at: Lpn, bytes: &[u8]) -> Result<Nanos, HostError> {
        let tx = self.begin(now)?;
        let taken = self.write_as(Cause::Log, now, tx, at, bytes)?;
        Ok(self
            .commit(taken.next, tx)?
            .expect("plain waits for no group"))
    }
}

/// Starts the device and looks at the log.
pub(super) fn open(
    flash: Box<dyn Flash>,
    device: Config,
    options: &Options,
    config: &HostConfig,
    now: Nanos,
) -> Result<(Box<dyn Manager>, Nanos), HostError> {
    let page_bytes = flash.geometry().page_bytes as usize;
    let mut device = Device::open(flash, Kind::Plain, device, options, now)?;
    let needed = checkpoint::log_pages_min(config, page_bytes);
    if config.log_pages < needed || config.log_pages >= device.pages() {
        return Err(HostError::Config(format!(
            "log_pages is {}: a log for {} frames needs at least {needed}, and the device has {} \
             pages in all",
            config.log_pages,
            config.frames,
            device.pages()
        )));
    }
    let place = Place {
        first: Lpn(device.pages() - config.log_pages),
        pages: config.log_pages,
        page_bytes,
        buffer_bytes: config.log_buffer_bytes,
    };
    let opened = device.recovered_at();
    let (log, tape) = Log::open(&mut device, opened, place)?;
    let done = tape.done;
    let wal = Wal {
        pages_tx: device.begin(done)?,
        device,
        log,
        tape: Some(tape),
        txs: BTreeMap::new(),
        reserved: FxHashMap::default(),
        reserved_log: 0,
        group: Group::new(config.group_wait),
        sabotage: config.sabotage,
        image: Vec::new(),
        record: Vec::new(),
        bytes: Vec::new(),
    };
    Ok((Box::new(wal), done))
}

/// Bytes that a record takes in a page.
pub(super) fn room_of(record: Option<usize>) -> usize {
    record.map_or(0, |len| len + record_head::SIZE)
}

/// The bytes at the start of both, and those at the end of both behind them.
pub(super) fn common(old: &[u8], new: &[u8]) -> (usize, usize) {
    let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[start..], &new[start..]);
    let ends = old.iter().rev().zip(new.iter().rev());
    (start, ends.take_while(|(a, b)| a == b).count())
}

impl Wal {
    /// Appends a record; one that is forced if the buffer is full.
    fn append(&mut self, now: Nanos, entry: &Entry<'_>, buffer: u64) -> Result<Lsn, HostError> {
        let lsn = self.log.append(entry)?;
        if self.log.unforced() >= buffer {
            let end = self.log.end();
            self.log.force(&mut self.device, now, end)?;
        }
        Ok(lsn)
    }

    /// Frees what was kept for a transaction that has ended.
    fn forget(&mut self, tx: TxId) {
        let Some(ended) = self.txs.remove(&tx) else {
            return;
        };
        self.reserved_log -= ended.reserved;
        for (page, bytes) in ended.freed {
            let kept = self.reserved.get_mut(&page).expect("it was kept");
            *kept -= bytes;
            if *kept == 0 {
                self.reserved.remove(&page);
            }
        }
    }

    /// Makes sure that the log takes so many bytes more and still has room for what is reserved.
    fn make_room(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        tx: TxId,
        bytes: u64,
    ) -> Result<Option<Step<()>>, HostError> {
        let checkpoint = checkpoint::bytes(engine.config.frames, self.txs.len() + 1);
        if self.log.room() >= bytes + self.reserved_log + checkpoint {
            return Ok(None);
        }
        // Who has asked to commit keeps nothing, and is no victim.
        self.write_group(now)?;
        let needed = bytes + self.reserved_log + checkpoint;
        let first = self.txs.values().map(|known| known.first).min();
        let oldest = first.unwrap_or(self.log.end());
        if self.log.room_from(oldest) >= needed + checkpoint {
            self.checkpoint(engine, now, Lsn::MAX)?;
            return Ok(None);
        }
        // Alone in an empty log it has to fit; if it does not, to start it again would not help.
        let own = self.txs.get(&tx);
        let own = bytes + own.map_or(0, |known| known.logged + known.reserved);
        let oldest = self.txs.iter().min_by_key(|(_, known)| known.first);
        match oldest {
            Some((&victim, _)) if own + 2 * checkpoint <= self.log.capacity() => {
                Ok(Some(Step::Abort {
                    victim,
                    why: Why::LogFull,
                }))
            }
            _ => Err(HostError::LogFull {
                pages: engine.config.log_pages,
            }),
        }
    }

    /// Takes a change back on its page and logs that. Returns when it is done.
    fn undo(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        entry: &Entry<'_>,
    ) -> Result<Nanos, HostError> {
        let here = engine.pool.contains(entry.page);
        let fetched = engine.fetch(self, now, entry.page, true)?;
        let now = fetched.ok_or(HostError::PoolFull {
            frames: engine.config.frames,
        })?;
        engine.stats.pages_read_back += u64::from(!here);
        let back = Entry {
            what: match entry.what {
                What::Insert => What::Delete,
                What::Delete => What::Insert,
                same => same,
            },
            compensates: true,
            replaced: entry.new.len() as u16,
            old: &[],
            new: entry.old,
            ..*entry
        };
        let lsn = self.append(now, &back, engine.config.log_buffer_bytes as u64)?;
        let frame = engine.pool.peek_mut(entry.page).expect("it was fetched");
        redo(
            &mut frame.page,
            &back,
            lsn,
            engine.page_bytes,
            &mut self.bytes,
        )?;
        if frame.changed == 0 {
            frame.changed = lsn;
        }
        Ok(now)
    }
}

/// Makes a change on a page, as its record has it.
pub(super) fn redo(
    page: &mut Page,
    entry: &Entry<'_>,
    lsn: Lsn,
    page_bytes: usize,
    scratch: &mut Vec<u8>,
) -> Result<(), HostError> {
    let wrong = |error| HostError::PageDamaged(entry.page, error);
    match entry.what {
        What::Insert => page.put(entry.slot, entry.new, page_bytes).map_err(wrong)?,
        What::Delete => {
            page.remove(entry.slot);
        }
        What::Update => {
            let record = page.get(entry.slot).unwrap_or_default();
            let (at, replaced) = (usize::from(entry.at), usize::from(entry.replaced));
            scratch.clear();
            scratch.extend_from_slice(record.get(..at).unwrap_or_default());
            scratch.extend_from_slice(entry.new);
            scratch.extend_from_slice(record.get(at + replaced..).unwrap_or_default());
            page.put(entry.slot, scratch, page_bytes).map_err(wrong)?;
        }
        _ => return Ok(()),
    }
    page.set_lsn(lsn);
    Ok(())
}

impl Manager for Wal {
    fn space(&self) -> (u32, TxId) {
        let tape = self.tape.as_ref().expect("before the restart");
        let ids = tape.entries(0).map(|(_, entry)| entry.tx);
        (
            self.log.first().0,
            ids.max().max(Some(tape.last_tx)).expect("at least one"),
        )
    }

    fn restart(&mut self, engine: &mut Engine, now: Nanos) -> Result<Nanos, HostError> {
        let tape = self.tape.take().expect("once");
        restart::run(self, engine, now, &tape)
    }

    fn load(&mut self, now: Nanos, at: Lpn, frame: &mut Frame) -> Result<Nanos, HostError> {
        let (done, bytes) = self.device.read(now, None, at)?;
        frame.page = Page::parse(bytes.unwrap_or_default())
            .map_err(|error| HostError::PageDamaged(at, error))?;
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
        if self.sabotage != Some(Sabotage::PageBeforeLog) {
            issue = self
                .log
                .force(&mut self.device, now, frame.page.lsn() + 1)?;
        }
        frame
            .page
            .emit(engine.page_bytes, &mut self.image)
            .map_err(|error| HostError::PageDamaged(at, error))?;
        engine.stats.pages_written += 1;
        let taken = self.device.write(issue, self.pages_tx, at, &self.image)?;
        Ok(taken.next)
    }

    fn update(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError> {
        let Rid { page: at, slot } = rid;
        let frame = engine.pool.peek(at).expect("it was fetched");
        let old = frame.page.get(slot);
        if old.is_none() && bytes.is_none() {
            return Ok(Step::Done((), now));
        }
        let (before, after) = (
            room_of(old.map(<[u8]>::len)),
            room_of(bytes.map(<[u8]>::len)),
        );
        if after > before {
            let own = self.txs.get(&tx).map_or(0, |known| {
                let here = known.freed.iter().filter(|(page, _)| *page == at);
                here.map(|(_, bytes)| *bytes).sum()
            });
            let kept = self.reserved.get(&at).copied().unwrap_or(0) - own;
            let needed = frame.page.image_bytes() - before + after + kept as usize;
            if needed > engine.page_bytes {
                return Err(HostError::PageFull {
                    page: at,
                    needed,
                    page_bytes: engine.page_bytes,
                });
            }
        }
        // The record, and what may follow: its compensation, and the end of the transaction.
        let body = old.map_or(0, <[u8]>::len) + bytes.map_or(0, <[u8]>::len);
        let most = 6 * BARE + 2 * body as u64;
        if let Some(step) = self.make_room(engine, now, tx, most)? {
            return Ok(step);
        }
        let buffer = engine.config.log_buffer_bytes as u64;
        if !self.txs.contains_key(&tx) {
            let first = self.append(now, &Entry::mark(What::Begin, tx, 0, &[]), buffer)?;
            let begun = Tx {
                first,
                last: first,
                logged: BARE,
                reserved: 3 * BARE,
                freed: Vec::new(),
            };
            self.reserved_log += begun.reserved;
            self.txs.insert(tx, begun);
        }
        let frame = engine.pool.peek_mut(at).expect("it was fetched");
        let old = frame.page.get(slot);
        let prev = self.txs[&tx].last;
        let mut entry = Entry {
            page: at,
            slot,
            ..Entry::mark(What::Update, tx, prev, &[])
        };
        match (old, bytes) {
            (Some(old), Some(new)) => {
                let (start, end) = common(old, new);
                entry.at = start as u16;
                entry.old = &old[start..old.len() - end];
                entry.new = &new[start..new.len() - end];
            }
            (None, Some(new)) => (entry.what, entry.new) = (What::Insert, new),
            (Some(old), None) => (entry.what, entry.old) = (What::Delete, old),
            (None, None) => {}
        }
        entry.replaced = entry.old.len() as u16;
        let undo = BARE + entry.old.len() as u64;
        let logged = undo + entry.new.len() as u64;
        let lsn = self.log.append(&entry)?;
        if frame.changed == 0 {
            frame.changed = lsn;
        }
        match bytes {
            Some(bytes) => frame
                .page
                .put(slot, bytes, engine.page_bytes)
                .map_err(|error| HostError::no_room(at, error))?,
            None => {
                frame.page.remove(slot);
            }
        }
        frame.page.set_lsn(lsn);
        frame.owner = Some(tx);
        let known = self.txs.get_mut(&tx).expect("it has begun");
        known.last = lsn;
        known.logged += logged;
        known.reserved += undo;
        self.reserved_log += undo;
        if before > after {
            let freed = (before - after) as u32;
            known.freed.push((at, freed));
            *self.reserved.entry(at).or_default() += freed;
        }
        if self.log.unforced() >= buffer {
            let end = self.log.end();
            self.log.force(&mut self.device, now, end)?;
        }
        Ok(Step::Done((), now))
    }

    fn commit(&mut self, engine: &mut Engine, now: Nanos, tx: TxId) -> Result<Step<()>, HostError> {
        let Some(known) = self.txs.get(&tx) else {
            return Ok(Step::Done((), now));
        };
        let commit = Entry::mark(What::Commit, tx, known.last, &[]);
        let lsn = self.log.append(&commit)?;
        let step = self.join_group(engine, now, tx, lsn)?;
        self.checkpoint_if_due(engine, now)?;
        Ok(step)
    }

    fn abort(&mut self, engine: &mut Engine, now: Nanos, tx: TxId) -> Result<Nanos, HostError> {
        let Some(known) = self.txs.get(&tx) else {
            return Ok(now);
        };
        let (mut next, mut now) = (known.last, now);
        let buffer = engine.config.log_buffer_bytes as u64;
        self.append(now, &Entry::mark(What::Abort, tx, next, &[]), buffer)?;
        let mut record = std::mem::take(&mut self.record);
        while next != 0 {
            now = self.log.read(&mut self.device, now, next, &mut record)?;
            let at = self.log.page_of_lsn(next);
            let (entry, _) = Entry::parse(&record).ok_or(HostError::LogDamaged(at))?;
            if entry.what != What::Begin {
                now = self.undo(engine, now, &entry)?;
            }
            next = entry.prev;
        }
        self.record = record;
        self.append(now, &Entry::mark(What::End, tx, 0, &[]), buffer)?;
        self.forget(tx);
        self.checkpoint_if_due(engine, now)?;
        Ok(now)
    }

    fn acknowledged(
        &mut self,
        _: &mut Engine,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, HostError> {
        self.settle_group(now, flush)
    }

    fn deadline(&self) -> Option<Nanos> {
        self.group_deadline()
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.device.memory();
        let freed: usize = self.txs.values().map(|tx| tx.freed.capacity()).sum();
        let txs = self.txs.len() * size_of::<(TxId, Tx)>() + freed * size_of::<(Lpn, u32)>();
        let reserved = self.reserved.capacity() * size_of::<(Lpn, u32)>();
        all.push(("log_buffer", self.log.memory()));
        all.push((
            "host_tx_table",
            (txs + reserved) as u64 + self.group.memory(),
        ));
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
        let reserved: u64 = self.txs.values().map(|tx| tx.reserved).sum();
        if reserved != self.reserved_log {
            let kept = self.reserved_log;
            return Err(format!("the log keeps {kept} bytes, {reserved} are needed"));
        }
        self.device.check()
    }

    fn into_flash(self: Box<Self>) -> Box<dyn Flash> {
        self.device.into_flash()
    }
}
