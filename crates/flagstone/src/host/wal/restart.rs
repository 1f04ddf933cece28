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
//!   @F    neither                                                redone, whoever made it
//!
//! Undo writes compensation records, which later restarts redo. One names the next change to undo,
//! so that nothing is undone twice however often the power fails.

use super::super::config::Sabotage;
use super::super::engine::Engine;
use super::super::log::{Entry, Lsn, Tape, What};
use super::checkpoint::{self, dirty_page, live_tx};
use super::{HostError, Tx, Wal, redo};
use crate::layout::get;
use crate::units::{Lpn, Nanos, TxId};
use std::collections::BTreeMap;

#[cfg(test)]
mod table;

/// What the analysis finds.
#[derive(Default)]
struct Found {
    /// Transactions without an end record: first and last record, and whether it committed.
    txs: BTreeMap<TxId, (Lsn, Lsn, bool)>,
    /// Pages that may lack changes, and the first of these.
    pages: BTreeMap<Lpn, Lsn>,
}

impl Found {
    /// Whether a page may lack a change, before it is read: all but @D.
    fn may_lack(&self, page: Lpn, change: Lsn) -> bool {
        self.pages.get(&page).is_some_and(|&since| since <= change)
    }
}

/// Whether a page with such an LSN lacks a change: @F, and not @E.
fn lacks(page: Lsn, change: Lsn) -> bool {
    page < change
}

pub(super) fn run(
    wal: &mut Wal,
    engine: &mut Engine,
    now: Nanos,
    tape: &Tape,
) -> Result<Nanos, HostError> {
    let found = analyse(tape);
    let mut done = repeat_history(wal, engine, now, tape, &found)?;
    for (&tx, &(first, last, committed)) in &found.txs {
        let known = Tx {
            first,
            last,
            ..Tx::default()
        };
        wal.txs.insert(tx, known);
        if committed {
            wal.log.append(&Entry::mark(What::End, tx, last, &[]))?;
            wal.forget(tx);
        }
    }
    if wal.sabotage != Some(Sabotage::NoUndo) {
        done = undo(wal, engine, done, tape)?;
    }
    let losers: Vec<TxId> = wal.txs.keys().copied().collect();
    for tx in losers {
        wal.log.append(&Entry::mark(What::End, tx, 0, &[]))?;
        wal.forget(tx);
    }
    // The next restart takes room of the log as well: where little is left, pages are written out,
    // so that the log is kept from here on.
    let checkpoint = checkpoint::bytes(engine.config.frames, 1);
    let older_than = match wal.log.room() < 4 * checkpoint {
        true => Lsn::MAX,
        false => 0,
    };
    wal.checkpoint(engine, done, older_than)
}

fn analyse(tape: &Tape) -> Found {
    let mut found = Found::default();
    for (lsn, entry) in tape.entries(tape.checkpoint) {
        match entry.what {
            What::CheckpointTxs => {
                for item in entry.new.chunks_exact(live_tx::SIZE) {
                    let lsns = (get(item, live_tx::FIRST), get(item, live_tx::LAST), false);
                    // What was logged since the checkpoint began is newer.
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
            What::CheckpointBegin | What::CheckpointEnd => {}
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

/// Redoes what is missing on the pages, of winners and losers alike.
fn repeat_history(
    wal: &mut Wal,
    engine: &mut Engine,
    now: Nanos,
    tape: &Tape,
    found: &Found,
) -> Result<Nanos, HostError> {
    let Some(&from) = found.pages.values().min() else {
        return Ok(now);
    };
    let mut now = now;
    for (lsn, entry) in tape.entries(from) {
        let changes = matches!(entry.what, What::Insert | What::Update | What::Delete);
        if !changes || !found.may_lack(entry.page, lsn) {
            continue;
        }
        let fetched = engine.fetch(wal, now, entry.page, true)?;
        now = fetched.expect("every page can be written out");
        let frame = engine.pool.peek_mut(entry.page).expect("it was fetched");
        if lacks(frame.page.lsn(), lsn) {
            redo(
                &mut frame.page,
                &entry,
                lsn,
                engine.page_bytes,
                &mut wal.bytes,
            )?;
            if frame.changed == 0 {
                frame.changed = lsn;
            }
        } else if frame.changed == 0 {
            engine.pool.set_dirty(entry.page, false);
        }
    }
    Ok(now)
}

/// Takes back what the losers did, the youngest change of all first.
fn undo(wal: &mut Wal, engine: &mut Engine, now: Nanos, tape: &Tape) -> Result<Nanos, HostError> {
    let mut now = now;
    loop {
        let youngest = wal.txs.iter().max_by_key(|(_, known)| known.last);
        let Some((&tx, known)) = youngest.filter(|(_, known)| known.last != 0) else {
            return Ok(now);
        };
        let damaged = HostError::LogDamaged(wal.log.page_of_lsn(known.last));
        let entry = tape.entry(known.last).ok_or(damaged)?;
        let changes = matches!(entry.what, What::Insert | What::Update | What::Delete);
        let again = wal.sabotage == Some(Sabotage::UndoCompensation);
        if changes && (!entry.compensates || again) {
            now = wal.undo(engine, now, &entry)?;
        }
        wal.txs.get_mut(&tx).expect("it was found").last = entry.prev;
    }
}
