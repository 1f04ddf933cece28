//! The host's log: a stream of records in a ring of logical pages after the host's data pages.
//!
//! ```text
//!  page first       | master: epoch, last xid, checkpoint, oldest |
//!  page first+1+n%r | head: epochs, number n, used | bytes n*p .. n*p+used of the stream |
//! ```
//!
//! A record's LSN is its position in the stream, so no index is needed. Records may cross page
//! boundaries. A partly filled page is rewritten with later records. The device replaces a page
//! atomically: the old contents stay until the new ones are complete.
//!
//! After a restart the stream ends at the first page that does not continue it: its number is not
//! the next (it is of an earlier lap, or was never written), it is partly filled, or it was not
//! written after the present contents of the previous page. To detect the last case, each restart
//! takes a new epoch. It makes the epoch durable in the master before it writes a log page, and a
//! page names the epoch of the previous page. So a page that landed at a cut, while the previous
//! page did not, never counts as a continuation: neither of the older contents there nor of
//! contents written later.
//!
//! Invariants  1. A force returns an instant not before that of any earlier force: what is durable
//!                of the stream is a prefix of it.
//!             2. After a checkpoint nothing is forced before the master that points to it is
//!                durable: neither is a page written over that a restart may need, nor does the log
//!                grow beyond what a restart can roll back.

mod change;
mod entry;
mod removed;
mod room;
mod settings;
#[cfg(test)]
mod tests;

pub(crate) use entry::is_log;
pub(super) use entry::{LogRecord, Lsn, What};
pub(super) use settings::{BUFFER_BYTES, CHECKPOINT_EVERY, LOG_PADDED, LogPlace, LogSettings};

use super::HostError;
use flagstone::commit::DeviceError;
use flagstone::ftl::{doubt_number, spare_number};
use flagstone::layout;
use flagstone::layout::{Layout, get, put};
use flagstone::units::{Lpn, Nanos, TxId};
use removed::Removed;
use std::collections::{BTreeSet, VecDeque};

layout! {
    /// The master record of the host's log: where a restart begins.
    pub log_master: 22 => {
        EPOCH:      4, "restarts since the log was made";
        LAST_TX:    6, "no transaction up to it begins again";
        CHECKPOINT: 6, "LSN at which the last complete checkpoint begins";
        OLDEST:     6, "LSN of the oldest record that a restart needs";
    }
}

layout! {
    /// The head of a page of the host's log.
    pub log_page_head: 16 => {
        EPOCH:  4, "in which it was written";
        BEFORE: 4, "in which the page before it was written";
        NUMBER: 6, "its place in the stream, in pages";
        USED:   2, "bytes of the stream that follow";
    }
}

pub(super) const LAYOUTS: &[Layout] = &[
    log_master::RECORD,
    log_page_head::RECORD,
    entry::entry_head::RECORD,
];

/// Stream bytes in a log page of `page_bytes` bytes: at most as many as its head can say.
pub(super) fn payload_of(page_bytes: usize) -> u64 {
    (page_bytes - log_page_head::SIZE).min(u16::MAX.into()) as u64
}

/// Minimum number of log pages: the master and a ring.
pub(super) const PAGES_MIN: u32 = 5;

/// Number of recent forces whose instants are kept individually.
const RECENT: usize = 256;

/// Requests of the log to the device.
pub(super) trait LogPages {
    /// Reads a page; leaves `into` empty if it was never written.
    fn get(&mut self, now: Nanos, at: Lpn, into: &mut Vec<u8>) -> Result<Nanos, HostError>;
    /// Writes a page. Returns when it is durable.
    fn put(&mut self, now: Nanos, at: Lpn, bytes: &[u8]) -> Result<Nanos, HostError>;
}

/// The counters of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LogStats {
    /// Records appended.
    pub records: u64,
    /// Bytes of these records.
    pub bytes: u64,
    /// Forces of the log that wrote a page.
    pub forces: u64,
    /// Log pages written, masters included.
    pub pages_written: u64,
    /// Log pages that these forces would have written if records left the buffer with their page
    /// and with an aborted transaction (Flag Commit, §4.1), masters included.
    pub pages_if_removed: u64,
    /// Log pages read.
    pub pages_read: u64,
}

/// The log as found by a restart: the stream from the oldest record that the restart needs.
pub(super) struct Tape {
    start: Lsn,
    bytes: Vec<u8>,
    /// The first record.
    oldest: Lsn,
    /// Start of the last complete checkpoint.
    pub(super) checkpoint: Lsn,
    pub(super) last_tx: TxId,
    /// When the log was read.
    pub(super) done: Nanos,
}

impl Tape {
    /// For tests: a tape with these records. Its checkpoint begins with the first one.
    #[cfg(test)]
    pub(super) fn of(entries: &[LogRecord<'_>]) -> Tape {
        let mut bytes = Vec::new();
        for entry in entries {
            entry.emit(&mut bytes);
        }
        Tape {
            start: 0,
            bytes,
            oldest: 0,
            checkpoint: 0,
            last_tx: TxId(0),
            done: Nanos::ZERO,
        }
    }

    /// The records from `from` on: an LSN of a record, or lower than all.
    pub(super) fn entries(&self, from: Lsn) -> impl Iterator<Item = (Lsn, LogRecord<'_>)> {
        let mut at = from.max(self.oldest);
        std::iter::from_fn(move || {
            let lsn = at;
            let (entry, len) = LogRecord::parse(&self.bytes[(at - self.start) as usize..])?;
            at += len as u64;
            Some((lsn, entry))
        })
    }

    /// The highest transaction identifier in the log.
    pub(super) fn highest_tx(&self) -> TxId {
        let ids = self.entries(0).map(|(_, entry)| entry.tx);
        ids.fold(self.last_tx, TxId::max)
    }

    /// Transactions with a commit record.
    pub(super) fn committed(&self) -> BTreeSet<TxId> {
        let commits = self
            .entries(0)
            .filter(|(_, entry)| entry.what == What::Commit);
        commits.map(|(_, entry)| entry.tx).collect()
    }

    /// The record at an LSN, if one is there.
    pub(super) fn entry(&self, lsn: Lsn) -> Option<LogRecord<'_>> {
        let at = lsn.checked_sub(self.start)? as usize;
        Some(LogRecord::parse(self.bytes.get(at..)?)?.0)
    }
}

/// The database was made with another number of log pages, as page `at` tells.
fn no_log(at: Lpn) -> HostError {
    HostError::Config(format!(
        "page {at} is not of this log: open the database with log_pages as it was made"
    ))
}

/// Fails if a page of a log without a master was written: a log has its master before all other
/// pages, so the page is of a log that began elsewhere. Pages that were never written are not read
/// from flash.
fn refuse_other_log(
    store: &mut dyn LogPages,
    now: Nanos,
    place: LogPlace,
) -> Result<(), HostError> {
    let mut page = Vec::new();
    for at in place.first.0 + 1..place.first.0 + place.pages {
        store.get(now, Lpn(at), &mut page)?;
        if !page.is_empty() {
            return Err(no_log(Lpn(at)));
        }
    }
    Ok(())
}

/// The log.
pub(super) struct Log {
    place: LogPlace,
    epoch: u64,
    /// Epoch of the page before the partly filled one.
    before: u64,
    /// Stream bytes per page, and pages in the ring.
    payload: u64,
    ring: u64,
    /// The stream from `start` on, as far as it is in memory.
    start: Lsn,
    buffer: Vec<u8>,
    /// End of the part that was passed to the device.
    forced: Lsn,
    /// End of the durable part when the log was opened.
    opened: Lsn,
    /// End of the last complete record found when the log was opened. An invalid checkpoint may
    /// follow, up to `opened`.
    found: Lsn,
    /// Ends of recent forces, and when each was durable, in ascending order.
    recent: VecDeque<(Lsn, Nanos)>,
    /// When the stream before the first entry of `recent` was durable.
    safe_before: Nanos,
    /// The oldest record that a restart may need.
    oldest: Lsn,
    /// Starts of the last two checkpoints.
    checkpoints: [Lsn; 2],
    /// When the last master is durable. Nothing is forced before that.
    master_safe_at: Nanos,
    /// Bytes to keep free for the ends of transactions and for a restart.
    kept: u64,
    /// Why a log page could not be written. Its contents are then unknown, so nothing is written
    /// after it.
    failed: Option<HostError>,
    image: Vec<u8>,
    removed: Removed,
    stats: LogStats,
}

impl Log {
    /// Reads the log of a device, blank or not. Call [`Log::begin_epoch`] before the first force.
    pub(super) fn open(
        store: &mut dyn LogPages,
        now: Nanos,
        place: LogPlace,
    ) -> Result<(Log, Tape), HostError> {
        let payload = payload_of(place.page_bytes);
        let mut log = Log {
            place,
            epoch: 0,
            before: 0,
            payload,
            ring: u64::from(place.pages) - 1,
            start: payload,
            buffer: Vec::new(),
            forced: payload,
            opened: payload,
            found: payload,
            recent: VecDeque::new(),
            safe_before: Nanos::ZERO,
            oldest: payload,
            checkpoints: [payload; 2],
            master_safe_at: Nanos::ZERO,
            kept: 0,
            failed: None,
            image: Vec::new(),
            removed: Removed::default(),
            stats: LogStats::default(),
        };
        let mut page = Vec::new();
        let mut done = store.get(now, place.first, &mut page)?;
        log.stats.pages_read += 1;
        let (mut checkpoint, mut last_tx) = (payload, TxId(0));
        if page.is_empty() {
            refuse_other_log(store, now, place)?;
        } else {
            let (master, behind) = page
                .split_at_checked(log_master::SIZE)
                .ok_or(HostError::LogDamaged(place.first))?;
            if behind.iter().any(|&byte| byte != 0) {
                return Err(no_log(place.first));
            }
            let number = |what, field, bits| {
                doubt_number(what, get(master, field), bits).map_err(DeviceError::from)
            };
            log.epoch = number("log epoch", log_master::EPOCH, 32)?;
            last_tx = TxId(get(master, log_master::LAST_TX));
            checkpoint = number("log position", log_master::CHECKPOINT, 48)?;
            log.oldest = number("log position", log_master::OLDEST, 48)?;
            log.checkpoints = [log.oldest; 2];
        }
        let (start, bytes, epochs, read) = log.scan(store, done)?;
        done = done.max(read);
        // Drop an incomplete record, and a checkpoint that a restart wrote at the end without a
        // master pointing to it. They are overwritten, so that restarts interrupted by power cuts
        // do not fill the log.
        let mut at = (log.oldest - start) as usize;
        let (mut kept, mut pointed) = (at, checkpoint > payload);
        while let Some((entry, len)) = LogRecord::parse(&bytes[at..]) {
            let lsn = start + at as u64;
            at += len;
            if !entry.what.is_bookkeeping() || pointed {
                kept = at;
            }
            pointed &= lsn < checkpoint || entry.what != What::CheckpointEnd;
        }
        if pointed {
            return Err(HostError::LogDamaged(log.page_of(checkpoint / payload)));
        }
        let end = start + kept as u64;
        let tail = end / payload * payload;
        log.start = tail;
        log.before = epochs[((tail - start) / payload) as usize];
        log.buffer
            .extend_from_slice(&bytes[(tail - start) as usize..(end - start) as usize]);
        log.forced = end;
        log.removed = Removed::at(end % payload);
        log.opened = end;
        log.found = start + at as u64;
        let tape = Tape {
            start,
            oldest: log.oldest,
            bytes: bytes[..(end - start) as usize].to_vec(),
            checkpoint,
            last_tx,
            done,
        };
        Ok((log, tape))
    }

    /// Takes a new epoch, so that the log can be written again after a restart has read `tape`.
    /// Returns when the epoch is durable.
    pub(super) fn begin_epoch(
        &mut self,
        store: &mut dyn LogPages,
        now: Nanos,
        tape: &Tape,
    ) -> Result<Nanos, HostError> {
        self.epoch += 1;
        self.write_master(store, now, tape.checkpoint, tape.last_tx)
    }

    /// Reads pages from that of the oldest record on, while each continues the previous one.
    /// Returns where they begin, their bytes, and the epochs of the page before them and of each
    /// page.
    fn scan(
        &mut self,
        store: &mut dyn LogPages,
        now: Nanos,
    ) -> Result<(Lsn, Vec<u8>, Vec<u64>, Nanos), HostError> {
        let first = self.oldest / self.payload;
        let (mut bytes, mut page) = (Vec::new(), Vec::new());
        let (mut done, mut epochs) = (now, Vec::new());
        for number in first..first + self.ring {
            done = done.max(store.get(now, self.page_of(number), &mut page)?);
            self.stats.pages_read += 1;
            let Some(head) = page.get(..log_page_head::SIZE) else {
                break;
            };
            let used = get(head, log_page_head::USED) as usize;
            let before = get(head, log_page_head::BEFORE);
            if get(head, log_page_head::NUMBER) != number
                || epochs.last().is_some_and(|&last| last != before)
            {
                break;
            }
            let Some(part) = page.get(log_page_head::SIZE..log_page_head::SIZE + used) else {
                break;
            };
            bytes.extend_from_slice(part);
            if epochs.is_empty() {
                epochs.push(before);
            }
            epochs.push(get(head, log_page_head::EPOCH));
            if (used as u64) < self.payload {
                break;
            }
        }
        if epochs.is_empty() {
            epochs.push(0);
        }
        let start = first * self.payload;
        if start + (bytes.len() as u64) < self.oldest {
            return Err(HostError::LogDamaged(self.page_of(first)));
        }
        Ok((start, bytes, epochs, done))
    }

    fn page_of(&self, number: u64) -> Lpn {
        Lpn(self.place.first.0 + 1 + (number % self.ring) as u32)
    }

    /// The page that contains the start of the record at an LSN.
    pub(super) fn page_of_lsn(&self, lsn: Lsn) -> Lpn {
        self.page_of(lsn / self.payload)
    }

    /// The LSN of the next record.
    pub(super) fn end(&self) -> Lsn {
        self.start + self.buffer.len() as u64
    }

    /// End of the part of the stream that is certainly durable at `now`.
    pub(super) fn durable_at(&self, now: Nanos) -> Lsn {
        let covered = self.recent.iter().rev().find(|&&(_, when)| when <= now);
        match (covered, self.recent.front()) {
            (Some(&(end, _)), _) => end,
            // Nothing was forced since the log was opened.
            (None, None) => self.forced,
            // All recent forces end later; earlier ones may, too.
            (None, Some(_)) => self.opened,
        }
    }

    /// Leaves a gap in the stream, so that the next LSN exceeds that of any earlier record. Records
    /// may have been durable, or up to `ahead` bytes ahead of the durable log. A restart finds the
    /// records after the gap once the master points there.
    pub(super) fn skip(&mut self, ahead: u64) {
        let highest = self.end().max(self.found) + ahead;
        let number = (highest / self.payload + 1).max(self.end() / self.payload + 2);
        self.start = number * self.payload;
        self.buffer.clear();
        self.forced = self.start;
        self.removed = Removed::default();
        self.before = self.epoch;
    }

    /// Stream bytes per page.
    pub(super) fn payload(&self) -> u64 {
        self.payload
    }

    /// Whether the bytes not yet passed to the device fill a page.
    pub(super) fn fills_page(&self) -> bool {
        self.end() / self.payload > self.forced / self.payload
    }

    /// Whether the record at an LSN was passed to the device.
    pub(super) fn is_forced(&self, lsn: Lsn) -> bool {
        lsn < self.forced
    }

    /// Starts of the last two checkpoints; initially the oldest record.
    pub(super) fn checkpoints(&self) -> [Lsn; 2] {
        self.checkpoints
    }

    /// Fails when positions in the log are nearly used up.
    pub(super) fn has_positions(&self) -> Result<(), HostError> {
        let spare = spare_number("log position", self.end(), 48);
        Ok(spare.map_err(DeviceError::from)?)
    }

    /// Appends a record, in memory. Returns its LSN. A `Begin` fails when positions in the
    /// log are nearly used up.
    pub(super) fn append(&mut self, entry: &LogRecord<'_>) -> Result<Lsn, HostError> {
        let bytes = LogRecord::bytes(entry.old.len() + entry.new.len()) as u64;
        if entry.what == What::Begin {
            self.has_positions()?;
        }
        if bytes > self.room() {
            return Err(HostError::LogFull {
                pages: self.place.pages,
            });
        }
        let lsn = self.end();
        entry.emit(&mut self.buffer);
        self.removed.append(entry, bytes);
        self.stats.records += 1;
        self.stats.bytes += bytes;
        Ok(lsn)
    }

    /// The records that `leaves` selects by transaction and page would leave the buffer, if they
    /// could: only counted, see [`LogStats::pages_if_removed`].
    pub(super) fn leave(&mut self, leaves: impl Fn(TxId, Lpn) -> bool) {
        self.removed.leave(leaves);
    }

    /// Makes the stream durable up to `to`. If part of that is not written yet, writes the whole
    /// buffer. Returns when the part is durable.
    pub(super) fn force(
        &mut self,
        store: &mut dyn LogPages,
        now: Nanos,
        to: Lsn,
    ) -> Result<Nanos, HostError> {
        if to <= self.forced {
            let covers = self.recent.iter().find(|&&(end, _)| end >= to);
            return Ok(now.max(covers.map_or(self.safe_before, |&(_, when)| when)));
        }
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.place.padded {
            self.fill()?;
        }
        let end = self.end();
        // Invariant 1: this force ends no earlier than the last one.
        let mut done = self
            .recent
            .back()
            .map_or(self.safe_before, |&(_, when)| when);
        let issue = now.max(self.master_safe_at);
        done = done.max(issue);
        for number in self.forced / self.payload..=(end - 1) / self.payload {
            let from = number * self.payload;
            let until = end.min(from + self.payload);
            let mut image = std::mem::take(&mut self.image);
            image.clear();
            image.resize(log_page_head::SIZE, 0);
            put(&mut image, log_page_head::EPOCH, self.epoch);
            put(&mut image, log_page_head::BEFORE, self.before);
            put(&mut image, log_page_head::NUMBER, number);
            put(&mut image, log_page_head::USED, until - from);
            let bytes = (from - self.start) as usize..(until - self.start) as usize;
            image.extend_from_slice(&self.buffer[bytes]);
            let put = store.put(issue, self.page_of(number), &image);
            done = done.max(put.inspect_err(|error| self.failed = Some(error.clone()))?);
            self.stats.pages_written += 1;
            self.image = image;
            if until - from == self.payload {
                self.before = self.epoch;
            }
        }
        self.stats.forces += 1;
        self.stats.pages_if_removed += self.removed.force(self.payload);
        self.forced = end;
        if self.recent.len() == RECENT
            && let Some((_, when)) = self.recent.pop_front()
        {
            self.safe_before = when;
        }
        self.recent.push_back((end, done));
        self.trim();
        Ok(done)
    }

    /// Drops the oldest bytes beyond the buffer's capacity. Keeps the partly filled page.
    fn trim(&mut self) {
        let keep = self.place.buffer_bytes;
        if self.buffer.len() > 2 * keep {
            let tail = (self.forced / self.payload * self.payload - self.start) as usize;
            let drop = tail.min(self.buffer.len() - keep);
            self.buffer.drain(..drop);
            self.start += drop as u64;
        }
    }

    /// Reads the record at an LSN into `into`, from the buffer or from the device. Returns when
    /// that is done. If the log is damaged, `into` has no whole record.
    pub(super) fn read(
        &mut self,
        store: &mut dyn LogPages,
        now: Nanos,
        lsn: Lsn,
        into: &mut Vec<u8>,
    ) -> Result<Nanos, HostError> {
        into.clear();
        if let Some(at) = lsn.checked_sub(self.start) {
            let bytes = &self.buffer[at as usize..];
            let len = LogRecord::length(bytes).unwrap_or(0).min(bytes.len());
            into.extend_from_slice(&bytes[..len]);
            return Ok(now);
        }
        let (mut done, mut at) = (now, lsn);
        let mut page = std::mem::take(&mut self.image);
        loop {
            let wanted = LogRecord::length(into).unwrap_or(usize::MAX);
            if into.len() >= wanted {
                into.truncate(wanted);
                break;
            }
            let within = (at % self.payload) as usize;
            done = store.get(done, self.page_of(at / self.payload), &mut page)?;
            self.stats.pages_read += 1;
            let Some(part) = page.get(log_page_head::SIZE + within..) else {
                break;
            };
            if part.is_empty() {
                break;
            }
            into.extend_from_slice(part);
            at += part.len() as u64;
        }
        self.image = page;
        Ok(done)
    }

    /// Makes a checkpoint valid: a restart begins there, and records older than `oldest` may be
    /// overwritten. At `now` the log must be durable up to the end of the checkpoint.
    pub(super) fn point_to(
        &mut self,
        store: &mut dyn LogPages,
        now: Nanos,
        checkpoint: Lsn,
        oldest: Lsn,
        last_tx: TxId,
    ) -> Result<Nanos, HostError> {
        self.oldest = oldest;
        let done = self.write_master(store, now, checkpoint, last_tx)?;
        self.master_safe_at = done;
        self.checkpoints = [checkpoint, self.checkpoints[0]];
        Ok(done)
    }

    /// Writes the master, which points to `checkpoint` and to the oldest record that is needed.
    fn write_master(
        &mut self,
        store: &mut dyn LogPages,
        now: Nanos,
        checkpoint: Lsn,
        last_tx: TxId,
    ) -> Result<Nanos, HostError> {
        let mut master = [0; log_master::SIZE];
        put(&mut master, log_master::EPOCH, self.epoch);
        put(&mut master, log_master::LAST_TX, last_tx.0);
        put(&mut master, log_master::CHECKPOINT, checkpoint);
        put(&mut master, log_master::OLDEST, self.oldest);
        self.stats.pages_written += 1;
        self.stats.pages_if_removed += 1;
        let put = store.put(now, self.place.first, &master);
        put.inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Writes the log if its buffer is full. Callers do not wait for that.
    pub(super) fn spill(&mut self, store: &mut dyn LogPages, now: Nanos) -> Result<(), HostError> {
        if self.end() - self.forced >= self.place.buffer_bytes as u64 {
            self.force(store, now, self.end())?;
        }
        Ok(())
    }

    /// Whether the log has grown enough since the last checkpoint to take another.
    pub(super) fn is_due(&self) -> bool {
        self.end() - self.checkpoints[0] >= self.place.checkpoint_bytes
    }

    /// The counters.
    pub(super) fn stats(&self) -> LogStats {
        self.stats
    }

    pub(super) fn reset_stats(&mut self) {
        self.stats = LogStats::default();
    }

    /// Bytes in memory.
    pub(super) fn memory(&self) -> u64 {
        let recent = self.recent.capacity() * size_of::<(Lsn, Nanos)>();
        (self.buffer.capacity() + self.image.capacity() + recent) as u64
    }
}
