//! Restart: analysis, redo and undo, from the device alone.
//!
//!   facts about a transaction in the log                        verdict
//!   @A    a commit record, and no end record                     it counts, acknowledged or not
//!   @B    an end record                                          over, one way or the other
//!   @C    neither                                                undone, youngest change first
//!
//!   facts about a change                                        verdict
//!   @D    its page was not dirty at the checkpoint nor after,    on flash
//!         or became so after it
//!   @E    its page's LSN is not below it                         on flash
//!   @F    neither                                                redone, of any transaction
//!
//! Undo writes compensation records, which later restarts redo. Each names the next change to undo,
//! so nothing is undone twice, however often the power fails.

use super::super::config::Mistake;
use super::super::log::{LogRecord, Lsn, Tape, What};
use super::super::tools::Tools;
use super::checkpoint;
use super::checkpoint::{dirty_page, live_tx};
use super::{HostError, Tx, Wal};
use flagstone::layout::get;
use flagstone::units::{Lpn, Nanos, TxId};
use std::collections::BTreeMap;

#[cfg(test)]
mod table;

/// The result of the analysis.
#[derive(Default)]
struct Analysis {
    /// Transactions without an end record: first and last LSN, and whether committed.
    txs: BTreeMap<TxId, (Lsn, Lsn, bool)>,
    /// Pages that may lack changes, with the first such LSN.
    pages: BTreeMap<Lpn, Lsn>,
}

impl Analysis {
    /// Whether a page may lack a change, before the page is read: all but @D.
    fn may_lack(&self, page: Lpn, change: Lsn) -> bool {
        self.pages.get(&page).is_some_and(|&since| since <= change)
    }
}

/// Whether a page with this LSN lacks a change: @F, and not @E.
pub(super) fn lacks(page: Lsn, change: Lsn) -> bool {
    page < change
}

impl Wal {
    /// Recovers from the log. Returns when the database is ready.
    pub(super) fn restart(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
        tape: &Tape,
    ) -> Result<Nanos, HostError> {
        let found = analyse(tape);
        self.end_winners(&found)?;
        let mut done = self.repeat_history(tools, now, tape, &found)?;
        while let Some(entry) = self.next_undo(tools, tape)? {
            done = self.undo(tools, done, &entry)?;
        }
        self.log.keep(0);
        let losers: Vec<TxId> = self.txs.keys().copied().collect();
        for tx in losers {
            self.end(tx, 0)?;
        }
        // The next restart takes log space as well. If little is left, write pages out, so that
        // only the log from here on is needed.
        let is_tight = self.log.room() < 4 * checkpoint::bytes(tools.config.frames, 1);
        self.checkpoint(tools, done, if is_tight { Lsn::MAX } else { 0 })
    }

    /// Logs the ends of committed transactions. The others remain in `txs`.
    fn end_winners(&mut self, found: &Analysis) -> Result<(), HostError> {
        for (&tx, &(first, last, committed)) in &found.txs {
            let known = Tx {
                first,
                last,
                ..Tx::default()
            };
            self.txs.insert(tx, known);
            if committed {
                self.end(tx, last)?;
            }
        }
        Ok(())
    }

    /// Redoes all changes that pages lack, of winners and losers alike, in log order.
    fn repeat_history(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
        tape: &Tape,
        found: &Analysis,
    ) -> Result<Nanos, HostError> {
        let mut done = now;
        let Some(&from) = found.pages.values().min() else {
            return Ok(done);
        };
        for (lsn, entry) in tape.entries(from) {
            if !entry.what.is_change() || !found.may_lack(entry.page, lsn) {
                continue;
            }
            let fetched = tools.fetch(self, done, entry.page, true)?;
            done = fetched.expect("every page can be written out");
            let page_bytes = tools.page_bytes;
            let frame = tools.frame_mut(entry.page);
            if lacks(frame.page.lsn(), lsn) {
                entry.redo(&mut frame.page, lsn, page_bytes)?;
                frame.touch(lsn);
            }
            tools.mark(entry.page);
        }
        Ok(done)
    }

    /// The youngest change of the losers that is not yet undone. Moves the loser's `last` to the
    /// change before it.
    fn next_undo<'t>(
        &mut self,
        tools: &Tools,
        tape: &'t Tape,
    ) -> Result<Option<LogRecord<'t>>, HostError> {
        if tools.has(Mistake::NoUndo) {
            return Ok(None);
        }
        loop {
            let youngest = self.txs.values_mut().max_by_key(|known| known.last);
            let Some(known) = youngest.filter(|known| known.last != 0) else {
                return Ok(None);
            };
            let damaged = HostError::LogDamaged(self.log.page_of_lsn(known.last));
            let entry = tape.entry(known.last).ok_or(damaged)?;
            known.last = entry.prev;
            let again = tools.has(Mistake::UndoCompensation);
            if entry.what.is_change() && (!entry.compensates || again) {
                return Ok(Some(entry));
            }
        }
    }
}

/// Reads the log from the last complete checkpoint on: which transactions have not ended, and which
/// pages may lack changes.
fn analyse(tape: &Tape) -> Analysis {
    let mut found = Analysis::default();
    for (lsn, entry) in tape.entries(tape.checkpoint) {
        match entry.what {
            What::CheckpointTxs => {
                for item in entry.new.chunks_exact(live_tx::SIZE) {
                    let lsns = (get(item, live_tx::FIRST), get(item, live_tx::LAST), false);
                    // Records since the start of the checkpoint are newer.
                    let tx = TxId(get(item, live_tx::XID));
                    found.txs.entry(tx).or_insert(lsns);
                }
            }
            What::CheckpointPages => {
                for item in entry.new.chunks_exact(dirty_page::SIZE) {
                    let since = get(item, dirty_page::CHANGED);
                    let page = found.pages.entry(Lpn(get(item, dirty_page::PAGE) as u32));
                    let known = page.or_insert(since);
                    *known = since.min(*known);
                }
            }
            What::CheckpointBegin | What::CheckpointEnd | What::Filling => {}
            What::End => {
                found.txs.remove(&entry.tx);
            }
            What::Begin | What::Commit | What::Abort => {
                let known = found.txs.entry(entry.tx).or_insert((lsn, lsn, false));
                known.2 |= entry.what == What::Commit;
            }
            What::Insert | What::Update | What::Delete => {
                let known = found.txs.entry(entry.tx).or_insert((lsn, lsn, false));
                known.1 = lsn;
                found.pages.entry(entry.page).or_insert(lsn);
            }
        }
    }
    found
}
