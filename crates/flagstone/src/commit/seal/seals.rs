//! When full blocks are sealed, and what their summaries say.
//!
//! A block is sealed when the transactions with pages in it have ended and are durable. If more
//! blocks wait for live transactions than the setting `linger` allows, those that have waited
//! longest are sealed early: their summaries leave open what is not known yet. Blocks with pages
//! that are left open are collected if there are too many, of too many transactions.
//!
//! A block of which all transactions have ended, and are not durable yet, waits on no account: it
//! can be sealed within the time that the planes need for what is in flight.

use super::{Mistake, Seal, tail};
use crate::ftl::{Ftl, FtlError};
use crate::layout::get;
use crate::units::{Nanos, Pbn, TxId};

/// What a block without a summary waits for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Waiting {
    /// Live transactions with pages in it.
    pub(super) live: u32,
    /// When those that ended with pages in it are durable.
    pub(super) ready_at: Nanos,
    /// Whether a page in it says a sum.
    pub(super) has_sum: bool,
}

impl Waiting {
    /// A block in which a restart has found a page that says a sum.
    pub(super) fn for_sum(&block: &Pbn) -> (Pbn, Waiting) {
        let waiting = Waiting {
            has_sum: true,
            ..Waiting::default()
        };
        (block, waiting)
    }
}

impl Seal {
    /// Seals the blocks that have nothing to wait for any more, and the oldest ones if too many
    /// wait.
    #[inline]
    pub(super) fn seal_due(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<(), FtlError> {
        let closing = ftl.closing().len();
        if closing > 0 && (now >= self.look_at || closing != self.looked_at) {
            self.seal_ready(ftl, now)?;
            self.seal_early(ftl, now)?;
            self.looked_at = ftl.closing().len();
        }
        Ok(())
    }

    #[cold]
    fn seal_ready(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<(), FtlError> {
        let mut ready = Vec::new();
        self.look_at = Nanos(u64::MAX);
        let in_order = ftl.flash().never_fails();
        for (block, done) in ftl.closing() {
            let waiting = self.waiting.get(&block).copied().unwrap_or_default();
            // Until its last page is done the plane has no time for the summary anyway.
            match waiting.live {
                0 if waiting.ready_at <= now.max(done) => {
                    ready.push((block, done));
                    continue;
                }
                0 => self.look_at = self.look_at.min(waiting.ready_at),
                _ => {}
            }
            // Where nothing fails, a block that was filled later gets its summary later: so what is
            // said of all summaries up to a number holds for each that evidence was given up for.
            if in_order {
                break;
            }
        }
        ready
            .into_iter()
            .try_for_each(|closing| self.seal(ftl, now, closing))
    }

    /// Seals the blocks that have waited longest for live transactions, if too many do.
    fn seal_early(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<(), FtlError> {
        // Where nothing fails all wait in their order, and are durable when a wait has ended.
        if ftl.flash().never_fails() {
            return self.seal_down_to(ftl, now, self.linger);
        }
        if ftl.closing().len() <= self.linger {
            return Ok(());
        }
        let is_live = |block: &Pbn| self.waiting.get(block).is_some_and(|it| it.live > 0);
        let mut live: Vec<_> = ftl.closing().filter(|(block, _)| is_live(block)).collect();
        live.truncate(live.len().saturating_sub(self.linger));
        live.into_iter()
            .try_for_each(|closing| self.seal(ftl, now, closing))
    }

    /// Seals the blocks that have waited longest until no more than so many wait.
    pub(super) fn seal_down_to(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        count: usize,
    ) -> Result<(), FtlError> {
        let too_many = ftl.closing().len().saturating_sub(count);
        let oldest: Vec<_> = ftl.closing().take(too_many).collect();
        oldest
            .into_iter()
            .try_for_each(|closing| self.seal(ftl, now, closing))
    }

    /// When a summary may take the place of the pages of a block, as far as that hangs on sums. A
    /// restart that finds it reads no sum in these pages: it is an end of evidence like an erase,
    /// and waits as one does (rule T). The transactions with a sum are durable then, so that the
    /// summary says that they have committed, or nothing needs them any more.
    #[inline]
    fn sums_until(&self, block: Pbn) -> Nanos {
        let waiting = self.waiting.get(&block);
        let has_sum = waiting.is_some_and(|waiting| waiting.has_sum);
        match has_sum && !self.mistake.is(Mistake::SumNotAwaited) {
            true => self.relied_until,
            false => Nanos::ZERO,
        }
    }

    /// Programs the summary of a block whose pages are done at `done`. It says of the pages of
    /// committed transactions that they are, and nothing of the others.
    pub(super) fn seal(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        (block, done): (Pbn, Nanos),
    ) -> Result<(), FtlError> {
        let now = match self.mistake.is(Mistake::SummaryFirst) {
            true => now,
            false => ftl.sync(now, done.max(self.sums_until(block)))?,
        };
        let (evidence, live, mistake) = (&self.evidence, &self.live, self.mistake);
        let mut said = Vec::new();
        let sealed = ftl.summarise(now, block, |head, tail| {
            let tx = TxId(get(tail, tail::XID));
            let is_sealed = mistake.is(Mistake::LiveSealed) && live.get(tx).is_some();
            let durable_at = match mistake.is(Mistake::VerdictEarly) {
                true => Nanos(u64::MAX),
                false => now,
            };
            let cv = match is_sealed {
                true => Some(head.seq),
                false => evidence.place(tx, durable_at),
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

    /// The undecided block to collect next. Hosts fill a block with as many requests as it has
    /// pages, and half as many are let pass between two such collections. So undecided blocks go
    /// faster than they can come, and a host that waits for one does not wait for the next at once.
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
