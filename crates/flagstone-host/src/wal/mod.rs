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
mod pages;
mod restart;
#[cfg(test)]
mod tests;

pub(super) use checkpoint::log_pages_min;
pub(super) use pages::Pages;

use super::config::{HostConfig, ManagerInfo, Mistake};
use super::frame::{Frame, room_of};
use super::log::{BUFFER_BYTES, CHECKPOINT_EVERY, LOG_PADDED, LogSettings};
use super::log::{Log, LogPlace, LogRecord, Lsn, What};
use super::machine::{Machine, Opened};
use super::tools::{Phase, Tools, Verbs, told_of};
use super::{HostError, Rid, Step, Why};
use flagstone::commit::Options;
use flagstone::ftl::Config;
use flagstone::layout::Layout;
use flagstone::nand::Flash;
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
    /// Its first log record.
    first: Lsn,
    /// The last one that is not undone; 0 if all are.
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

pub(super) struct Wal {
    pub(super) pages: Pages,
    pub(super) log: Log,
    txs: BTreeMap<TxId, Tx>,
    /// Bytes of pages that are kept free for rolling back live transactions.
    reserved: FxHashMap<Lpn, u32>,
    /// Log bytes kept free for the ends of transactions.
    reserved_log: u64,
    group: Group,
    log_page_each: bool,
}

/// Starts the device, reads the log and recovers.
pub(super) fn open(
    flash: Box<dyn Flash>,
    device: Config,
    options: &Options,
    config: &HostConfig,
    now: Nanos,
) -> Result<Opened, HostError> {
    let page_bytes = flash.geometry().page_bytes as usize;
    let mut pages = Pages::open(flash, device, options, now)?;
    let opened = pages.device.recovered_at();
    let chosen = Chosen::of(&config.settings)?;
    let place = LogPlace::of(
        config.log_pages,
        chosen.log,
        pages.device.pages(),
        page_bytes,
        checkpoint::log_pages_min(config, page_bytes),
        &format!("for {} frames", config.frames),
    )?;
    let (mut log, tape) = Log::open(&mut pages, opened, place)?;
    // A restart must roll back first.
    log.keep(u64::MAX);
    let begun = log.begin_epoch(&mut pages, tape.done, &tape)?;
    let mut tools = Tools::new(config, page_bytes, tape.highest_tx())?;
    let mut wal = Wal {
        pages,
        log,
        txs: BTreeMap::new(),
        reserved: FxHashMap::default(),
        reserved_log: 0,
        group: Group::new(chosen.group_wait),
        log_page_each: chosen.log_page_each,
    };
    wal.pages.device.lend_reserve(true);
    let recovered_at = wal.restart(&mut tools, begun, &tape)?;
    wal.pages.device.lend_reserve(false);
    Ok(Opened {
        machine: Machine::Wal(wal),
        tools,
        pages: place.first.0,
        recovered_at,
    })
}

impl Wal {
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
        let old = tools.frame(rid.page).page.get(rid.slot).map(<[u8]>::len);
        let new = bytes.map(<[u8]>::len);
        if old.is_none() && new.is_none() {
            return Ok(Step::Done((), now));
        }
        let (before, after) = (room_of(old), room_of(new));
        if after > before {
            self.fits(tools, tx, rid.page, after - before)?;
        }
        // The record, its compensation, and the end of the transaction.
        let most = 6 * BARE + 2 * (old.unwrap_or(0) + new.unwrap_or(0)) as u64;
        if let Some(victim) = self.make_room(tools, now, tx, most)? {
            let why = Why::LogFull;
            return Ok(Step::Abort { victim, why });
        }
        if !self.txs.contains_key(&tx) {
            self.begin(tx)?;
            self.log.spill(&mut self.pages, now)?;
        }
        let frame = tools.frame_mut(rid.page);
        let known = self.txs.get_mut(&tx).expect("it has begun");
        let entry = LogRecord::change(tx, known.last, rid, frame.page.get(rid.slot), bytes);
        let undo = BARE + entry.old.len() as u64;
        let logged = undo + entry.new.len() as u64;
        let lsn = self.log.append(&entry)?;
        if self.log_page_each && !known.pages.contains(&rid.page) {
            known.pages.push(rid.page);
            self.log.fill()?;
        }
        frame.set(rid, bytes, page_bytes)?;
        frame.page.set_lsn(lsn);
        frame.touch(lsn);
        frame.owner = Some(tx);
        known.last = lsn;
        known.logged += logged;
        known.reserved += undo;
        self.reserved_log += undo;
        if before > after {
            let freed = (before - after) as u32;
            known.freed.push((rid.page, freed));
            *self.reserved.entry(rid.page).or_default() += freed;
        }
        self.log.spill(&mut self.pages, now)?;
        Ok(Step::Done((), now))
    }

    /// Fails if the page has no room for `more` bytes and everything that live transactions may
    /// restore there.
    fn fits(&self, tools: &Tools, tx: TxId, at: Lpn, more: usize) -> Result<(), HostError> {
        // What its own changes have freed, `tx` may use: a roll-back undoes later changes first.
        let own = self.txs.get(&tx).map_or(0, |known| {
            let here = known.freed.iter().filter(|(page, _)| *page == at);
            here.map(|(_, bytes)| *bytes).sum()
        });
        let kept = self.reserved.get(&at).copied().unwrap_or(0) - own;
        let needed = tools.frame(at).page.image_bytes() + more + kept as usize;
        let page_bytes = tools.page_bytes;
        if needed > page_bytes {
            return Err(HostError::PageFull {
                page: at,
                needed,
                page_bytes,
            });
        }
        Ok(())
    }

    /// Makes room for `bytes` more of `tx` in the log, beyond what is reserved. Returns the
    /// transaction to abort first: the one with the oldest record, if that keeps the log full (D3).
    fn make_room(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
        tx: TxId,
        bytes: u64,
    ) -> Result<Option<TxId>, HostError> {
        let checkpoint = checkpoint::bytes(tools.config.frames, self.txs.len() + 1);
        let needed = bytes + self.reserved_log + checkpoint;
        self.log.keep(needed);
        if self.log.room() >= needed {
            return Ok(None);
        }
        if self.group.waits() {
            // A committing transaction keeps no log, and is not a victim.
            self.write_group(tools, now)?;
            return self.make_room(tools, now, tx, bytes);
        }
        let oldest = self.txs.iter().min_by_key(|(_, known)| known.first);
        let (victim, first) = match oldest {
            Some((&victim, known)) => (Some(victim), known.first),
            None => (None, self.log.end()),
        };
        if self.log.room_from(first) >= needed + checkpoint {
            self.checkpoint(tools, now, Lsn::MAX)?;
            return Ok(None);
        }
        // A change must fit alone in an empty log; otherwise restarting the transaction would not
        // help.
        let own = self.txs.get(&tx);
        let own = bytes + own.map_or(0, |known| known.logged + known.reserved);
        if victim.is_none() || own + 2 * checkpoint > self.log.capacity() {
            let pages = tools.config.log_pages;
            return Err(HostError::LogFull { pages });
        }
        Ok(victim)
    }

    /// Logs the beginning of a transaction.
    fn begin(&mut self, tx: TxId) -> Result<(), HostError> {
        let first = self.log.append(&LogRecord::mark(What::Begin, tx, 0, &[]))?;
        let begun = Tx {
            first,
            last: first,
            logged: BARE,
            reserved: 3 * BARE,
            ..Tx::default()
        };
        self.reserved_log += begun.reserved;
        self.txs.insert(tx, begun);
        Ok(())
    }

    /// Logs the end of a transaction whose last record is `prev`, 0 if it was rolled back, and
    /// releases the space that was reserved for it.
    fn end(&mut self, tx: TxId, prev: Lsn) -> Result<(), HostError> {
        self.log
            .append(&LogRecord::mark(What::End, tx, prev, &[]))?;
        let ended = self.txs.remove(&tx).unwrap_or_default();
        self.reserved_log -= ended.reserved;
        for (page, bytes) in ended.freed {
            let kept = self.reserved.get_mut(&page).expect("it was kept");
            *kept -= bytes;
            if *kept == 0 {
                self.reserved.remove(&page);
            }
        }
        Ok(())
    }

    /// Undoes the changes of a transaction along its chain of log records, from `last` on.
    fn roll_back(&mut self, tools: &mut Tools, now: Nanos, last: Lsn) -> Result<Nanos, HostError> {
        let (mut now, mut next, mut record) = (now, last, Vec::new());
        while next != 0 {
            now = self.log.read(&mut self.pages, now, next, &mut record)?;
            let damaged = HostError::LogDamaged(self.log.page_of_lsn(next));
            let (entry, _) = LogRecord::parse(&record).ok_or(damaged)?;
            if entry.what.is_change() {
                now = self.undo(tools, now, &entry)?;
            }
            next = entry.prev;
        }
        Ok(now)
    }

    /// Undoes a logged change: logs a compensation record, and applies it to the page. Returns when
    /// the page is there.
    fn undo(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
        entry: &LogRecord<'_>,
    ) -> Result<Nanos, HostError> {
        let here = tools.pool.contains(entry.page);
        let fetched = tools.fetch(self, now, entry.page, true)?;
        let ready = fetched.ok_or_else(|| tools.pool_full())?;
        tools.stats.pages_read_back += u64::from(!here);
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
        let page_bytes = tools.page_bytes;
        let frame = tools.frame_mut(entry.page);
        back.redo(&mut frame.page, lsn, page_bytes)?;
        frame.touch(lsn);
        self.log.spill(&mut self.pages, ready)?;
        Ok(ready)
    }
}

impl Verbs for Wal {
    fn read_page(&mut self, now: Nanos, at: Lpn) -> Result<Frame, HostError> {
        let (ready, image) = self.pages.read(now, at)?;
        Frame::parse(at, image, ready)
    }

    /// Writes a page once the log is durable up to its LSN (invariant 1).
    fn write_back(&mut self, tools: &mut Tools, now: Nanos, at: Lpn) -> Result<Nanos, HostError> {
        tools.emit(at)?;
        let mut logged = now;
        if !tools.has(Mistake::PageBeforeLog) {
            let to = tools.frame(at).page.lsn() + 1;
            logged = self.log.force(&mut self.pages, now, to)?;
        }
        let next = self.pages.write(logged, at, &tools.image)?;
        tools.written(at);
        Ok(next)
    }

    fn write(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError> {
        let Some(ready) = tools.fetch(self, now, rid.page, true)? else {
            return tools.exhausted();
        };
        let changed = self.change(tools, ready, tx, rid, bytes);
        tools.end_write(self, rid.page, changed)
    }

    /// Logs the commit. Then forces the log, unless the commit may wait for its group (D4).
    fn commit(&mut self, tools: &mut Tools, now: Nanos, tx: TxId) -> Result<Step<()>, HostError> {
        let Some(known) = self.txs.get(&tx) else {
            return Ok(Step::Done((), now));
        };
        if !self.group.has(tx) {
            let commit = LogRecord::mark(What::Commit, tx, known.last, &[]);
            let lsn = self.log.append(&commit)?;
            self.group.join(tx, lsn);
        }
        if self.may_wait(tools, tx) {
            self.group.wait_from(now);
            tools.txs.insert(tx, Phase::Committing);
            told_of(self.checkpoint_if_due(tools, now))?;
            return Ok(Step::Waits);
        }
        self.write_group(tools, now)?;
        let done = self.group.told_last();
        told_of(self.checkpoint_if_due(tools, now))?;
        Ok(Step::Done((), done))
    }

    fn may_have_committed(&self, tx: TxId) -> bool {
        self.group.has(tx) || !self.txs.contains_key(&tx)
    }

    fn acknowledged(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, HostError> {
        if flush || self.deadline().is_some_and(|due| due <= now) {
            self.write_group(tools, now)?;
        }
        Ok(self.group.told())
    }

    fn deadline(&self) -> Option<Nanos> {
        self.group.deadline(&self.log)
    }

    fn abort(&mut self, tools: &mut Tools, now: Nanos, tx: TxId) -> Result<Nanos, HostError> {
        let Some(known) = self.txs.get(&tx) else {
            return Ok(now);
        };
        let last = known.last;
        self.log
            .append(&LogRecord::mark(What::Abort, tx, last, &[]))?;
        self.log.spill(&mut self.pages, now)?;
        let done = self.roll_back(tools, now, last)?;
        self.end(tx, 0)?;
        self.log.spill(&mut self.pages, done)?;
        told_of(self.checkpoint_if_due(tools, done))?;
        Ok(done)
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
