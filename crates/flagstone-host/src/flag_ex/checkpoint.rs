//! Fuzzy checkpoints ([FlagCommit] §4.3), which shorten the log.
//!
//! A restart needs the log from the first change of a page that is not written out, or of a fresh
//! record that was overwritten in the buffer. Redo finds missing changes by LSNs, so a checkpoint
//! needs no tables: it is two records, and the master points to it.

use super::super::HostError;
use super::super::log::{LogRecord, Lsn, PAGE_HEAD_BYTES, PAGES_MIN, What};
use super::super::manager::{Memory, Room};
use super::{BARE, FlagEx};
use flagstone::units::TxId;

/// Number of log bytes to keep free: the gap that a restart leaves, and its checkpoint.
fn kept(ahead: u64, payload: u64) -> u64 {
    ahead + 3 * payload + 2 * BARE
}

/// Minimum number of log pages for a buffer of `buffer` bytes.
pub(super) fn pages_min(buffer: u64, page_bytes: usize) -> u32 {
    let payload = (page_bytes - PAGE_HEAD_BYTES) as u64;
    ((2 * kept(buffer + payload, payload)).div_ceil(payload) as u32 + 2).max(PAGES_MIN)
}

impl FlagEx {
    /// The oldest log record that a restart needs.
    fn oldest(&self, memory: &Memory) -> Lsn {
        let changed = memory.changed().map(|(_, since)| since).min();
        [
            changed,
            self.oldest_before().map(|(since, _)| since),
            self.oldest_orphan(),
        ]
        .into_iter()
        .flatten()
        .fold(Lsn::MAX, Lsn::min)
    }

    /// The oldest log record that a live transaction needs, and that transaction.
    fn oldest_before(&self) -> Option<(Lsn, TxId)> {
        let all = self.txs.iter().flat_map(|(&tx, known)| {
            let fresh = known.before.values().filter_map(|before| before.fresh);
            fresh.map(move |since| (since, tx))
        });
        all.min()
    }

    fn oldest_orphan(&self) -> Option<Lsn> {
        self.orphans
            .values()
            .filter_map(|before| before.fresh)
            .min()
    }

    /// Whether the log has room for `bytes` more, the ends of all live transactions, and a restart.
    pub(super) fn log_room(&mut self, memory: &Memory, bytes: u64) -> Result<Room, HostError> {
        let live = memory.txs.len() as u64;
        let needed = bytes + BARE * (live + 4) + kept(self.ahead, self.log.payload());
        self.log.keep(needed);
        if self.log.room() >= needed {
            return Ok(Room::Enough);
        }
        // A checkpoint writes changed pages out, but records that live transactions need stay in
        // the log, and its own records take room that a restart needs. So it is taken only if it
        // frees room, and not at every request.
        let kept_by = self.oldest_before();
        let oldest = kept_by.map_or(self.log.end(), |(since, _)| since);
        if self.log.room_from(oldest) >= needed + 2 * BARE {
            return Ok(Room::AfterCheckpoint);
        }
        let pages = memory.config.log_pages;
        let victim = kept_by.map(|(_, victim)| Room::AfterAbort(victim));
        victim.ok_or(HostError::LogFull { pages })
    }

    /// Whether the log has grown enough since the last checkpoint, or is nearly full.
    pub(super) fn is_checkpoint_due(&self) -> Option<Lsn> {
        let [last, before] = self.log.checkpoints();
        let grown = self.log.end() - last;
        let room = kept(self.ahead, self.log.payload());
        let (has_room, is_tight) = (self.log.room() >= room, self.log.room() < 2 * room);
        if has_room && is_tight && grown >= self.log.payload() {
            Some(Lsn::MAX)
        } else {
            (has_room && self.log.is_due()).then_some(before)
        }
    }

    /// Logs a checkpoint. Returns its start, and the oldest record that a restart needs.
    pub(super) fn log_checkpoint(&mut self, memory: &Memory) -> Result<(Lsn, Lsn), HostError> {
        self.not_before.retain(|_, when| *when > memory.clock);
        let begin = self
            .log
            .append(&LogRecord::mark(What::CheckpointBegin, TxId(0), 0, &[]))?;
        self.log
            .append(&LogRecord::mark(What::CheckpointEnd, TxId(0), 0, &[]))?;
        Ok((begin, self.oldest(memory).min(begin)))
    }
}
