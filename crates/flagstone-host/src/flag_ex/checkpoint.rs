//! Fuzzy checkpoints ([FlagCommit] §4.3), which shorten the log.
//!
//! A restart needs the log from the first change of a page that is not written out, or of a fresh
//! record that was overwritten in the buffer. Redo finds missing changes by LSNs, so a checkpoint
//! needs no tables: it is two records, and the master points to it.

use super::super::HostError;
use super::super::config::Mistake;
use super::super::log::{LogRecord, Lsn, PAGES_MIN, What, payload_of};
use super::super::tools::Tools;
use super::{BARE, FlagEx};
use flagstone::units::{Lpn, Nanos, TxId};

/// Number of log bytes to keep free: the gap that a restart leaves, and its checkpoint.
pub(super) fn kept(ahead: u64, payload: u64) -> u64 {
    ahead + 3 * payload + 2 * BARE
}

/// Minimum number of log pages for a buffer of `buffer` bytes.
pub(super) fn pages_min(buffer: u64, page_bytes: usize) -> u32 {
    let payload = payload_of(page_bytes);
    ((2 * kept(buffer + payload, payload)).div_ceil(payload) as u32 + 2).max(PAGES_MIN)
}

impl FlagEx {
    /// Makes room in the log for `bytes` more, the ends of all live transactions, and a restart.
    /// The page `at` stays in the pool. Returns the transaction to abort first, if it needs too
    /// much of the log.
    pub(super) fn make_room(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
        at: Lpn,
        bytes: u64,
    ) -> Result<Option<TxId>, HostError> {
        let live = tools.txs.len() as u64;
        let needed = bytes + BARE * (live + 4) + kept(self.ahead, self.log.payload());
        self.log.keep(needed);
        if self.log.room() >= needed {
            return Ok(None);
        }
        // A checkpoint writes changed pages out, but records that live transactions need stay in
        // the log, and its own records take room that a restart needs. So it is taken only if it
        // frees room, and not at every request.
        let kept_by = self.oldest_before();
        let oldest = kept_by.map_or(self.log.end(), |(since, _)| since);
        if self.log.room_from(oldest) >= needed + 2 * BARE {
            tools.pool.pin(at);
            let taken = self.checkpoint(tools, now, Lsn::MAX);
            tools.pool.unpin(at);
            return taken.map(|_| None);
        }
        let pages = tools.config.log_pages;
        let (_, victim) = kept_by.ok_or(HostError::LogFull { pages })?;
        Ok(Some(victim))
    }

    /// Takes a checkpoint if the log has grown enough since the last one, or is nearly full.
    pub(super) fn checkpoint_if_due(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
    ) -> Result<(), HostError> {
        let [last, before] = self.log.checkpoints();
        let grown = self.log.end() - last;
        let room = kept(self.ahead, self.log.payload());
        // A restart needs what is left.
        if self.log.room() < room {
            return Ok(());
        }
        if self.log.room() < 2 * room && grown >= self.log.payload() {
            self.checkpoint(tools, now, Lsn::MAX)?;
        } else if self.log.is_due() {
            self.checkpoint(tools, now, before)?;
        }
        Ok(())
    }

    /// Takes a checkpoint, after writing out the changes that are older than `older_than`. Returns
    /// when the checkpoint is valid. No transaction waits for it.
    pub(super) fn checkpoint(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
        older_than: Lsn,
    ) -> Result<Nanos, HostError> {
        let mut ready = now;
        for at in self.absent(older_than) {
            if let Some(there) = tools.fetch(self, now, at, true)? {
                ready = ready.max(there);
            }
        }
        ready = ready.max(tools.clean_before(self, now, older_than)?);
        // Changes that the log from `oldest` on does not have must be durable.
        let early = tools.has(Mistake::EarlyCheckpoint);
        let start = if early { now } else { ready.max(self.safe_at) };
        self.not_before.retain(|_, when| *when > tools.clock);
        let mark = |what| LogRecord::mark(what, TxId(0), 0, &[]);
        let begin = self.log.append(&mark(What::CheckpointBegin))?;
        self.log.append(&mark(What::CheckpointEnd))?;
        let oldest = self.oldest(tools).min(begin);
        let (log, device) = (&mut self.log, &mut *self.device);
        let durable = log.force(device, start, log.end())?;
        let done = log.point_to(device, durable, begin, oldest, tools.last_tx)?;
        tools.stats.checkpoints += 1;
        Ok(done)
    }

    /// Pages outside the pool with a fresh record that needs the log before `older_than`.
    fn absent(&self, older_than: Lsn) -> Vec<Lpn> {
        let is_old = |since: Option<Lsn>| since.is_some_and(|since| since < older_than);
        let orphans = self.orphans.iter();
        let old = orphans.filter(|(_, before)| is_old(before.fresh));
        let mut pages: Vec<Lpn> = old.map(|(rid, _)| rid.page).collect();
        pages.dedup();
        pages
    }

    /// The oldest log record that a restart needs.
    fn oldest(&self, tools: &Tools) -> Lsn {
        let changed = tools.changed().map(|(_, since)| since);
        let before = self.oldest_before().map(|(since, _)| since);
        let orphans = self.orphans.values().filter_map(|before| before.fresh);
        let all = changed.chain(before).chain(orphans);
        all.min().unwrap_or(Lsn::MAX)
    }

    /// The oldest log record that a live transaction needs, and that transaction.
    fn oldest_before(&self) -> Option<(Lsn, TxId)> {
        let all = self.txs.iter().flat_map(|(&tx, known)| {
            let fresh = known.before.values().filter_map(|before| before.fresh);
            fresh.map(move |since| (since, tx))
        });
        all.min()
    }
}
