//! Fuzzy checkpoints ([FlagCommit] §4.3): how the log is shortened.
//!
//! The oldest log record that a restart needs is the first change of a page that was not written,
//! or of a fresh record that was overwritten in the buffer. A redo tells by LSNs what is missing,
//! so a checkpoint holds no tables: it is two records, and the master points to it.

use super::super::config::Sabotage;
use super::super::engine::Engine;
use super::super::log::{Entry, Lsn, PAGE_HEAD_BYTES, PAGES_MIN, What};
use super::super::{HostError, Step, Why};
use super::{BARE, FlagEx};
use crate::units::{Lpn, Nanos, TxId};

/// Log bytes that are kept free: the gap that a restart leaves, and its checkpoint.
fn kept(ahead: u64, payload: u64) -> u64 {
    ahead + 3 * payload + 2 * BARE
}

/// The least pages of a log with a buffer of so many bytes.
pub(in crate::host) fn log_pages_min(buffer: u64, page_bytes: usize) -> u32 {
    let payload = (page_bytes - PAGE_HEAD_BYTES) as u64;
    ((2 * kept(buffer + payload, payload)).div_ceil(payload) as u32 + 2).max(PAGES_MIN)
}

impl FlagEx {
    /// The oldest log record that a restart needs.
    fn oldest(&self, engine: &Engine) -> Lsn {
        let changed = engine.pool.iter().map(|(_, frame)| frame.changed);
        let changed = changed.filter(|&since| since != 0).min();
        [
            changed,
            self.oldest_before().map(|(since, _)| since),
            self.oldest_orphan(),
        ]
        .into_iter()
        .flatten()
        .fold(Lsn::MAX, Lsn::min)
    }

    /// The oldest that a live transaction keeps, and which one it is.
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

    /// Makes sure that the log takes so many bytes more, the ends of all live transactions, and a
    /// restart. `here` stays in the pool.
    pub(super) fn make_room(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        here: Lpn,
        bytes: u64,
    ) -> Result<Option<Step<()>>, HostError> {
        let live = engine.txs.len() as u64;
        let needed = bytes + BARE * (live + 4) + kept(self.ahead, self.log.payload());
        if self.log.room() >= needed {
            return Ok(None);
        }
        // A checkpoint writes out what has changed, and what live transactions keep stays. Its own
        // records come out of what a restart needs, so it is taken where it makes room, and not
        // each time that somebody asks again.
        let kept_by = self.oldest_before();
        let oldest = kept_by.map_or(self.log.end(), |(since, _)| since);
        if self.log.room_from(oldest) >= needed + 2 * BARE {
            engine.pool.pin(here);
            let taken = self.checkpoint(engine, now, Lsn::MAX);
            engine.pool.unpin(here);
            taken?;
            return Ok(None);
        }
        match kept_by {
            Some((_, victim)) => Ok(Some(Step::Abort {
                victim,
                why: Why::LogFull,
            })),
            None => Err(HostError::LogFull {
                pages: engine.config.log_pages,
            }),
        }
    }

    /// Takes a checkpoint if the log has grown enough since the last, or is nearly full.
    pub(super) fn checkpoint_if_due(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
    ) -> Result<(), HostError> {
        let [last, before] = self.log.checkpoints();
        let grown = self.log.end() - last;
        let room = kept(self.ahead, self.log.payload());
        let (has_room, is_tight) = (self.log.room() >= room, self.log.room() < 2 * room);
        if has_room && is_tight && grown >= self.log.payload() {
            self.checkpoint(engine, now, Lsn::MAX)?;
        } else if has_room && grown >= engine.checkpoint_bytes() {
            self.checkpoint(engine, now, before)?;
        }
        Ok(())
    }

    /// Takes a checkpoint, after writing out what changed before `older_than`. Nobody waits for it.
    /// Returns when it counts.
    pub(super) fn checkpoint(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        older_than: Lsn,
    ) -> Result<Nanos, HostError> {
        let mut ready = now;
        let is_old = |since: Option<Lsn>| since.is_some_and(|since| since < older_than);
        let orphans = self
            .orphans
            .iter()
            .filter(|(_, before)| is_old(before.fresh));
        let mut pages: Vec<Lpn> = orphans.map(|(rid, _)| rid.page).collect();
        pages.dedup();
        for at in pages {
            if let Some(there) = engine.fetch(self, now, at, true)? {
                ready = ready.max(there);
            }
        }
        ready = ready.max(engine.clean_older(self, now, older_than)?);
        // R2
        let start = match self.sabotage {
            Some(Sabotage::EarlyCheckpoint) => now,
            _ => ready.max(self.written).max(self.flagged),
        };
        self.not_before.retain(|_, when| *when > engine.clock);
        let begin = self
            .log
            .append(&Entry::mark(What::CheckpointBegin, TxId(0), 0, &[]))?;
        self.log
            .append(&Entry::mark(What::CheckpointEnd, TxId(0), 0, &[]))?;
        let end = self.log.end();
        let durable = self.log.force(&mut self.device, start, end)?;
        let oldest = self.oldest(engine).min(begin);
        let last_tx = engine.last_tx;
        let done = self
            .log
            .point_to(&mut self.device, durable, begin, oldest, last_tx)?;
        engine.stats.checkpoints += 1;
        Ok(done)
    }
}
