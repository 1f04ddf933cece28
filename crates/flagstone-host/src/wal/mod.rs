//! WAL: write-ahead logging as ARIES does it, on a device without transactions.
//!
//! Paper       [FlagCommit] §5.3 compares with it; the rest follows ARIES as textbooks have it.
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
//! Departures  D1. A compensation record has no `prev` besides the next to undo: no code reads it.
//!             D2. Pages whose first change is older than the checkpoint before the last are
//!                 written out by a checkpoint. Without it a page that is always in use keeps the
//!                 log from being shortened.
//!             D3. A full log: a checkpoint that writes all pages out; if that does not suffice the
//!                 transaction with the oldest record is aborted.
//!             D4. Commits may wait for each other (setting `group_wait_us`); wal/group.rs

mod checkpoint;
mod group;
mod restart;
#[cfg(test)]
mod tests;

pub(super) use checkpoint::log_pages_min;

use super::below::{As, Below};
use super::config::{HostConfig, ManagerInfo, Mistake};
use super::frame::Frame;
use super::log::{BUFFER_BYTES, CHECKPOINT_EVERY, LOG_PADDED, LogSettings};
use super::log::{Log, LogPlace, LogRecord, Lsn, Tape, What};
use super::manager::{Commit, Manager, Memory, Opened, Redo, RollBack, Room, WriteBack};
use super::{HostError, Rid};
use flagstone::commit::{Device, Kind, Options};
use flagstone::ftl::Config;
use flagstone::layout::Layout;
use flagstone::mistakes::Mistaken;
use flagstone::nand::Flash;
use flagstone::page::{Page, record_head};
use flagstone::settings::{BadSetting, Setting, Settings};
use flagstone::units::{Lpn, Nanos, TxId};
use group::Group;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

pub(super) const LAYOUTS: &[Layout] = checkpoint::LAYOUTS;

pub(super) const INFO: ManagerInfo = ManagerInfo {
    name: "wal",
    settings: &[
        BUFFER_BYTES,
        CHECKPOINT_EVERY,
        GROUP_WAIT,
        LOG_PADDED,
        LOG_PAGE_EACH,
    ],
    check: |settings| Chosen::of(settings).map(|_| ()),
};

const GROUP_WAIT: Setting = Setting {
    name: "group_wait_us",
    default: "0",
    what: "maximum microseconds that a commit waits for others, up to 1000000, so that the log is \
           forced once for several commits; a commit waits only if another transaction runs and no \
           log page is full",
};

const LOG_PAGE_EACH: Setting = Setting {
    name: "log_page_each",
    default: "false",
    what: "whether each changed page takes a whole log page, as if its first change were logged \
           with the page",
};

/// The parsed settings.
struct Chosen {
    log: LogSettings,
    group_wait: Nanos,
    log_page_each: bool,
}

impl Chosen {
    fn of(settings: &Settings) -> Result<Chosen, BadSetting> {
        let group_wait = settings.number(&INFO, GROUP_WAIT.name, 0, 1_000_000)?;
        Ok(Chosen {
            log: LogSettings::of(&INFO, settings)?,
            group_wait: Nanos::from_micros(group_wait),
            log_page_each: settings.flag(&INFO, LOG_PAGE_EACH.name)?,
        })
    }
}

/// Bytes of a record without a body.
const BARE: u64 = LogRecord::bytes(0) as u64;

/// A transaction that has logged a change and has not ended.
#[derive(Debug, Clone, Default)]
struct Tx {
    first: Lsn,
    last: Lsn,
    /// Bytes of the transaction's log records.
    logged: u64,
    /// Log bytes reserved for the transaction's commit or roll-back.
    reserved: u64,
    /// Bytes that the transaction's changes have freed in pages, and that a roll-back may need.
    freed: Vec<(Lpn, u32)>,
    /// With `log_page_each`: pages whose log page was written.
    pages: Vec<Lpn>,
}

struct Wal {
    log: Log,
    txs: BTreeMap<TxId, Tx>,
    /// Bytes of pages that are kept free for rolling back live transactions.
    reserved: FxHashMap<Lpn, u32>,
    /// Log bytes kept free for the ends of transactions.
    reserved_log: u64,
    group: Group,
    log_page_each: bool,
    frames: usize,
    mistake: Mistaken<Mistake>,
    /// Buffer for the new bytes of a record.
    bytes: Vec<u8>,
}

/// Starts the device and reads the log.
pub(super) fn open(
    flash: Box<dyn Flash>,
    device: Config,
    options: &Options,
    config: &HostConfig,
    now: Nanos,
) -> Result<Opened, HostError> {
    let page_bytes = flash.geometry().page_bytes as usize;
    let device = Device::open(flash, Kind::Plain, device, options, now)?;
    let opened = device.recovered_at();
    let needed = checkpoint::log_pages_min(config, page_bytes);
    let what = format!("for {} frames", config.frames);
    let chosen = Chosen::of(&config.settings)?;
    let log = (config.log_pages, chosen.log);
    let place = LogPlace::of(log, device.pages(), page_bytes, (needed, what))?;
    let mut device = Below::pages(device);
    let (mut log, tape) = Log::open(&mut device, opened, place)?;
    // A restart must roll back first.
    log.keep(u64::MAX);
    device.begin_apart(tape.done)?;
    let wal = Wal {
        log,
        txs: BTreeMap::new(),
        reserved: FxHashMap::default(),
        reserved_log: 0,
        group: Group::new(chosen.group_wait),
        log_page_each: chosen.log_page_each,
        frames: config.frames,
        mistake: config.mistake,
        bytes: Vec::new(),
    };
    Ok(Opened {
        device,
        manager: Box::new(wal),
        pages: place.first.0,
        last_tx: tape.highest_tx(),
        done: tape.done,
        tape: Some(tape),
    })
}

/// Bytes that a record of this length takes in a page.
pub(super) fn room_of(record: Option<usize>) -> usize {
    record.map_or(0, |len| len + record_head::SIZE)
}

/// Length of the common prefix, and of the common suffix after it.
pub(super) fn common(old: &[u8], new: &[u8]) -> (usize, usize) {
    let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[start..], &new[start..]);
    let ends = old.iter().rev().zip(new.iter().rev());
    (start, ends.take_while(|(a, b)| a == b).count())
}

impl Wal {
    /// Releases the space that was reserved for an ended transaction.
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

    /// Whether a record of another length fits into the page, together with everything that live
    /// transactions may restore there.
    fn fits(
        &self,
        frame: &Frame,
        tx: TxId,
        at: Lpn,
        (before, after): (usize, usize),
        page_bytes: usize,
    ) -> Result<(), HostError> {
        if after <= before {
            return Ok(());
        }
        let own = self.txs.get(&tx).map_or(0, |known| {
            let here = known.freed.iter().filter(|(page, _)| *page == at);
            here.map(|(_, bytes)| *bytes).sum()
        });
        let kept = self.reserved.get(&at).copied().unwrap_or(0) - own;
        let needed = frame.page.image_bytes() - before + after + kept as usize;
        if needed > page_bytes {
            return Err(HostError::PageFull {
                page: at,
                needed,
                page_bytes,
            });
        }
        Ok(())
    }

    /// Whether the log has room for `bytes` more, beyond what is reserved.
    fn log_room(&self, tx: TxId, bytes: u64, log_pages: u32) -> Result<Room, HostError> {
        let checkpoint = checkpoint::bytes(self.frames, self.txs.len() + 1);
        let needed = bytes + self.reserved_log + checkpoint;
        if self.log.room() >= needed {
            return Ok(Room::Enough);
        }
        if self.group.waits() {
            // A committing transaction keeps no log, and is not a victim.
            return Ok(Room::AfterGroup);
        }
        let first = self.txs.values().map(|known| known.first).min();
        let oldest = first.unwrap_or(self.log.end());
        if self.log.room_from(oldest) >= needed + checkpoint {
            return Ok(Room::AfterCheckpoint);
        }
        // A change must fit alone in an empty log; otherwise restarting the transaction would not
        // help.
        let own = self.txs.get(&tx);
        let own = bytes + own.map_or(0, |known| known.logged + known.reserved);
        let oldest = self.txs.iter().min_by_key(|(_, known)| known.first);
        match oldest {
            Some((&victim, _)) if own + 2 * checkpoint <= self.log.capacity() => {
                Ok(Room::AfterAbort(victim))
            }
            _ => Err(HostError::LogFull { pages: log_pages }),
        }
    }
}

/// Applies the change of a log record to a page.
pub(super) fn redo(
    page: &mut Page,
    entry: &LogRecord<'_>,
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
    fn log(&self) -> Option<&Log> {
        Some(&self.log)
    }

    fn log_mut(&mut self) -> Option<&mut Log> {
        Some(&mut self.log)
    }

    fn write_back(&mut self, _: Nanos, _: Lpn, frame: &Frame) -> WriteBack {
        let unlogged = self.mistake.is(Mistake::PageBeforeLog);
        WriteBack {
            not_before: Nanos::ZERO,
            log_to: (!unlogged).then(|| frame.page.lsn() + 1),
            how: As::Apart,
        }
    }

    fn room(
        &mut self,
        memory: &Memory,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Room, HostError> {
        let frame = memory.pool.peek(rid.page).expect("it was fetched");
        let (old, new) = (
            frame.page.get(rid.slot).map(<[u8]>::len),
            bytes.map(<[u8]>::len),
        );
        if old.is_none() && new.is_none() {
            return Ok(Room::Unneeded);
        }
        let lengths = (room_of(old), room_of(new));
        self.fits(frame, tx, rid.page, lengths, memory.page_bytes)?;
        // The record, its compensation, and the end of the transaction.
        let body = old.unwrap_or(0) + new.unwrap_or(0);
        let most = 6 * BARE + 2 * body as u64;
        let checkpoint = checkpoint::bytes(self.frames, self.txs.len() + 1);
        self.log.keep(most + self.reserved_log + checkpoint);
        self.log_room(tx, most, memory.config.log_pages)
    }

    fn log_begin(&mut self, tx: TxId) -> Result<bool, HostError> {
        if self.txs.contains_key(&tx) {
            return Ok(false);
        }
        let first = self.log.append(&LogRecord::mark(What::Begin, tx, 0, &[]))?;
        let begun = Tx {
            first,
            last: first,
            logged: BARE,
            reserved: 3 * BARE,
            freed: Vec::new(),
            pages: Vec::new(),
        };
        self.reserved_log += begun.reserved;
        self.txs.insert(tx, begun);
        Ok(true)
    }

    fn update(
        &mut self,
        memory: &mut Memory,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<(), HostError> {
        let Rid { page: at, slot } = rid;
        let page_bytes = memory.page_bytes;
        let frame = memory.frame(at);
        let old = frame.page.get(slot);
        let (before, after) = (
            room_of(old.map(<[u8]>::len)),
            room_of(bytes.map(<[u8]>::len)),
        );
        let known = self.txs.get_mut(&tx).expect("it has begun");
        let mut entry = LogRecord {
            page: at,
            slot,
            ..LogRecord::mark(What::Update, tx, known.last, &[])
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
        if self.log_page_each && !known.pages.contains(&at) {
            known.pages.push(at);
            self.log.fill()?;
        }
        frame
            .page
            .set(slot, bytes, page_bytes)
            .map_err(|error| HostError::no_room(at, error))?;
        frame.page.set_lsn(lsn);
        frame.touch(lsn);
        frame.owner = Some(tx);
        known.last = lsn;
        known.logged += logged;
        known.reserved += undo;
        self.reserved_log += undo;
        if before > after {
            let freed = (before - after) as u32;
            known.freed.push((at, freed));
            *self.reserved.entry(at).or_default() += freed;
        }
        Ok(())
    }

    fn commit(&mut self, memory: &mut Memory, now: Nanos, tx: TxId) -> Result<Commit, HostError> {
        let Some(known) = self.txs.get(&tx) else {
            return Ok(Commit::Nothing);
        };
        let commit = LogRecord::mark(What::Commit, tx, known.last, &[]);
        let lsn = self.log.append(&commit)?;
        Ok(self.join_group(memory, now, tx, lsn))
    }

    fn group(&mut self) -> Option<Lsn> {
        self.group.close()
    }

    fn group_written(&mut self, done: Nanos) -> Result<(), HostError> {
        for (tx, lsn) in self.group.tell(done) {
            self.log.append(&LogRecord::mark(What::End, tx, lsn, &[]))?;
            self.forget(tx);
        }
        Ok(())
    }

    fn told_last(&mut self) -> Nanos {
        self.group.told_last()
    }

    fn told(&mut self) -> Vec<(TxId, Nanos)> {
        self.group.told()
    }

    fn deadline(&self) -> Option<Nanos> {
        self.group.deadline(&self.log)
    }

    fn abort(&mut self, _: &mut Memory, tx: TxId) -> Result<RollBack, HostError> {
        let Some(known) = self.txs.get(&tx) else {
            return Ok(RollBack::Nothing);
        };
        let abort = LogRecord::mark(What::Abort, tx, known.last, &[]);
        self.log.append(&abort)?;
        Ok(RollBack::From(known.last))
    }

    fn undo(&mut self, memory: &mut Memory, entry: &LogRecord<'_>) -> Result<(), HostError> {
        let back = LogRecord {
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
        let lsn = self.log.append(&back)?;
        if let Some(known) = self.txs.get_mut(&entry.tx) {
            known.last = entry.prev;
        }
        let page_bytes = memory.page_bytes;
        let frame = memory.frame(entry.page);
        redo(&mut frame.page, &back, lsn, page_bytes, &mut self.bytes)?;
        frame.touch(lsn);
        Ok(())
    }

    fn undone(&mut self, tx: TxId) -> Result<(), HostError> {
        self.log.append(&LogRecord::mark(What::End, tx, 0, &[]))?;
        self.forget(tx);
        Ok(())
    }

    fn checkpoint_due(&self) -> Option<Lsn> {
        let [_, before] = self.log.checkpoints();
        let bytes = checkpoint::bytes(self.frames, self.txs.len() + 1);
        let has_room = self.log.room() >= self.reserved_log + 2 * bytes;
        (self.log.is_due() && has_room).then_some(before)
    }

    fn checkpoint(&mut self, memory: &Memory) -> Result<(Lsn, Lsn), HostError> {
        self.log_checkpoint(memory)
    }

    fn analyse<'t>(&mut self, tape: &'t Tape) -> Result<Vec<Redo<'t>>, HostError> {
        self.repeat_history(tape)
    }

    fn redo(&mut self, memory: &mut Memory, (at, changes): Redo<'_>) -> Result<(), HostError> {
        let page_bytes = memory.page_bytes;
        let frame = memory.frame(at);
        for (lsn, entry) in changes {
            if restart::lacks(frame.page.lsn(), lsn) {
                redo(&mut frame.page, &entry, lsn, page_bytes, &mut self.bytes)?;
                frame.touch(lsn);
            }
        }
        Ok(())
    }

    fn next_undo<'t>(&mut self, tape: &'t Tape) -> Result<Option<LogRecord<'t>>, HostError> {
        self.next_loser(tape)
    }

    fn restarted(&mut self, _: &Memory) -> Result<Lsn, HostError> {
        self.log.keep(0);
        let losers: Vec<TxId> = self.txs.keys().copied().collect();
        for tx in losers {
            self.undone(tx)?;
        }
        // The next restart takes log space as well. If little is left, write pages out, so that
        // only the log from here on is needed.
        let is_tight = self.log.room() < 4 * checkpoint::bytes(self.frames, 1);
        Ok(if is_tight { Lsn::MAX } else { 0 })
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let freed: usize = self.txs.values().map(|tx| tx.freed.capacity()).sum();
        let txs = self.txs.len() * size_of::<(TxId, Tx)>() + freed * size_of::<(Lpn, u32)>();
        let reserved = self.reserved.capacity() * size_of::<(Lpn, u32)>();
        let tables = (txs + reserved) as u64 + self.group.memory();
        vec![("log_buffer", self.log.memory()), ("host_tx_table", tables)]
    }

    fn check(&self) -> Result<(), String> {
        let reserved: u64 = self.txs.values().map(|tx| tx.reserved).sum();
        if reserved != self.reserved_log {
            let kept = self.reserved_log;
            return Err(format!("the log keeps {kept} bytes, {reserved} are needed"));
        }
        Ok(())
    }
}
