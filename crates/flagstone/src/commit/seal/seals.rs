//! When full blocks are sealed, and the contents of their summaries.
//!
//! A block is sealed when all transactions with pages in it have ended and are durable. If more
//! blocks wait for live transactions than the setting `linger` allows, the longest waiting ones are
//! sealed early: their summaries leave unknown outcomes open. Blocks with undecided pages are
//! collected if there are too many, of too many transactions.
//!
//! A block whose transactions have all ended but are not durable yet is not counted as waiting: it
//! can be sealed as soon as the operations in flight are done.

use super::{Mistake, Seal, tail};
use crate::ftl::{Ftl, FtlError};
use crate::layout::get;
use crate::units::{Nanos, Pbn, TxId};

/// What a block without a summary waits for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Waiting {
    /// Number of live transactions with pages in it.
    pub(super) live: u32,
    /// When the ended transactions with pages in it are durable.
    pub(super) ready_at: Nanos,
    /// Whether a page in it has a sum.
    pub(super) has_sum: bool,
}

impl Waiting {
    /// For a block in which a restart has found a page with a sum.
    pub(super) fn for_sum(&block: &Pbn) -> (Pbn, Waiting) {
        let waiting = Waiting {
            has_sum: true,
            ..Waiting::default()
        };
        (block, waiting)
    }
}

impl Seal {
    /// Seals the blocks that need not wait any more, and the oldest ones if too many wait.
    #[inline]
    pub(super) fn seal_due(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<(), FtlError> {
        let closing = ftl.writer.closing().len();
        if closing > 0 && (now >= self.look_at || closing != self.looked_at) {
            self.seal_ready(ftl, now)?;
            self.seal_early(ftl, now)?;
            self.looked_at = ftl.writer.closing().len();
        }
        Ok(())
    }

    /// Seals the blocks whose transactions have all ended and are durable. Sets `look_at` to the
    /// time at which another block can be ready without the end of a transaction.
    #[cold]
    fn seal_ready(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<(), FtlError> {
        let mut ready = Vec::new();
        self.look_at = Nanos(u64::MAX);
        let in_order = ftl.flash().never_fails();
        for (block, done) in ftl.writer.closing() {
            let waiting = self.waiting.get(&block).copied().unwrap_or_default();
            // The plane is busy until `done`, so what is durable by then delays nothing.
            match waiting.live {
                0 if waiting.ready_at <= now.max(done) => {
                    ready.push((block, done));
                    continue;
                }
                0 => self.look_at = self.look_at.min(waiting.ready_at),
                // The end of its last transaction resets `look_at`.
                _ => {}
            }
            // On a flash that never fails summaries keep the order in which blocks were filled: a
            // statement that all up to a number are durable covers each one for which evidence was
            // dropped.
            if in_order {
                break;
            }
        }
        ready
            .into_iter()
            .try_for_each(|(block, done)| self.seal(ftl, now, block, done))
    }

    /// Seals the blocks that have waited longest for live transactions, if too many wait.
    fn seal_early(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<(), FtlError> {
        // On a flash that never fails blocks wait in order, and are durable after a wait.
        if ftl.flash().never_fails() {
            return self.seal_down_to(ftl, now, self.linger);
        }
        if ftl.writer.closing().len() <= self.linger {
            return Ok(());
        }
        let is_live = |block: &Pbn| self.waiting.get(block).is_some_and(|it| it.live > 0);
        let mut live: Vec<_> = ftl
            .writer
            .closing()
            .filter(|(block, _)| is_live(block))
            .collect();
        live.truncate(live.len().saturating_sub(self.linger));
        live.into_iter()
            .try_for_each(|(block, done)| self.seal(ftl, now, block, done))
    }

    /// Seals the longest waiting blocks until at most `count` wait.
    pub(super) fn seal_down_to(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        count: usize,
    ) -> Result<(), FtlError> {
        let too_many = ftl.writer.closing().len().saturating_sub(count);
        let oldest: Vec<_> = ftl.writer.closing().take(too_many).collect();
        oldest
            .into_iter()
            .try_for_each(|(block, done)| self.seal(ftl, now, block, done))
    }

    /// When the summary of a block may replace its pages, with regard to sums. A restart that finds
    /// the summary reads no sums in these pages. So the summary ends evidence like an erase, and
    /// waits like one (rule T). The transactions with a sum are durable then: either the summary
    /// has a verdict for them, or they are not needed any more.
    #[inline]
    fn sums_until(&self, block: Pbn) -> Nanos {
        let waiting = self.waiting.get(&block);
        let has_sum = waiting.is_some_and(|waiting| waiting.has_sum);
        if has_sum && !self.mistake.is(Mistake::SumNotAwaited) {
            self.relied_until
        } else {
            Nanos::ZERO
        }
    }

    /// Programs the summary of a block whose pages are done at `done`, with verdicts for the pages
    /// of committed transactions.
    pub(super) fn seal(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        block: Pbn,
        done: Nanos,
    ) -> Result<(), FtlError> {
        let now = if self.mistake.is(Mistake::SummaryFirst) {
            now
        } else {
            ftl.sync(now, done.max(self.sums_until(block)))?
        };
        let (evidence, live, mistake) = (&self.evidence, &self.live, self.mistake);
        let mut said = Vec::new();
        let sealed = ftl.summarise(now, block, |head, tail| {
            let tx = TxId(get(tail, tail::XID));
            let is_sealed = mistake.is(Mistake::LiveSealed) && live.get(tx).is_some();
            let durable_at = if mistake.is(Mistake::VerdictEarly) {
                Nanos(u64::MAX)
            } else {
                now
            };
            let cv = if is_sealed {
                Some(head.seq)
            } else {
                evidence.place(tx, durable_at)
            };
            // A transaction so long that the difference does not fit stays undecided.
            let ahead = cv.and_then(|cv| cv.checked_sub(head.seq));
            let says = ahead.and_then(|ahead| u32::try_from(ahead + 1).ok());
            let is_new = |said: &Vec<TxId>| !said.contains(&tx);
            if (says.is_some() || mistake.is(Mistake::EarlyIsFinal)) && is_new(&said) {
                said.push(tx);
            }
            says.unwrap_or(0)
        })?;
        self.waiting.remove(&block);
        if let Some(done) = sealed {
            self.rely_on(Mistake::SummariesNotWaited, done);
            for tx in said {
                self.evidence.said(tx, block);
            }
        }
        Ok(())
    }

    /// The undecided block to collect next. The host fills a block with as many requests as it has
    /// pages, and half as many pass between two such collections. So undecided blocks decrease, and
    /// a host that waits for one collection does not wait for the next at once.
    #[cold]
    pub(super) fn oldest_undecided(&mut self, ftl: &Ftl) -> Option<Pbn> {
        if self.requests <= ftl.geometry().pages_per_block / 2 {
            return None;
        }
        let oldest = self.evidence.oldest(ftl)?;
        self.requests = 0;
        Some(oldest)
    }
}
