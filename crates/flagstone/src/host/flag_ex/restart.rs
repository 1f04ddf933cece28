//! Restart ([FlagCommit] Algorithm 3): the log and the flags say who has committed, the device
//! sets what flags are missing, and what it lacks is redone.
//!
//! Redo goes page by page, not along the log: a page is complete before it can be written out, so
//! that its LSN is true of all its records also where the power fails again.

use super::super::config::Sabotage;
use super::super::engine::Engine;
use super::super::log::{Entry, Lsn, Store, Tape, What};
use super::super::wal::redo;
use super::{FlagEx, HostError, touch};
use crate::page::SlotNo;
use crate::units::{Lpn, Nanos, TxId};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn run(
    manager: &mut FlagEx,
    engine: &mut Engine,
    now: Nanos,
) -> Result<Nanos, HostError> {
    let (tape, master) = manager.tape.take().expect("once");
    let committed: BTreeSet<TxId> = tape
        .entries(0)
        .filter(|(_, entry)| entry.what == What::Commit)
        .map(|(_, entry)| entry.tx)
        .collect();
    let mut done = manager.device.resolve(now, &committed)?;
    if let Some((at, bytes)) = master {
        done = manager.device.put(done, at, &bytes)?;
    }
    done = redo_pages(manager, engine, done, &tape, &committed)?;
    // D2
    let frames: Vec<Lpn> = engine.pool.iter().map(|(at, _)| at).collect();
    for at in frames {
        done = done.max(engine.clean(manager, done, at)?);
    }
    if manager.sabotage != Some(Sabotage::NoGap) {
        manager.log.skip(manager.ahead);
    }
    manager.checkpoint(engine, done, Lsn::MAX)
}

/// Redoes what is missing on the pages, of transactions that have committed.
fn redo_pages(
    manager: &mut FlagEx,
    engine: &mut Engine,
    now: Nanos,
    tape: &Tape,
    committed: &BTreeSet<TxId>,
) -> Result<Nanos, HostError> {
    let mut pages: BTreeMap<Lpn, Vec<(Lsn, Entry<'_>)>> = BTreeMap::new();
    for (lsn, entry) in tape.entries(0) {
        let changes = matches!(entry.what, What::Insert | What::Update | What::Delete);
        if changes && committed.contains(&entry.tx) {
            pages.entry(entry.page).or_default().push((lsn, entry));
        }
    }
    let mut now = now;
    for (at, changes) in pages {
        let fetched = engine.fetch(manager, now, at, true)?;
        now = fetched.expect("every page can be written out");
        let older: BTreeMap<SlotNo, Lsn> = manager.merged.restored.iter().copied().collect();
        let page_bytes = engine.page_bytes;
        let frame = engine.pool.peek_mut(at).expect("it was fetched");
        let newest = frame.page.lsn();
        let mut first = None;
        for (lsn, entry) in changes {
            let copy = older.get(&entry.slot).copied().unwrap_or(newest);
            // R5
            if lsn > copy || manager.sabotage == Some(Sabotage::RedoAll) {
                redo(&mut frame.page, &entry, lsn, page_bytes, &mut manager.bytes)?;
                first = first.or(Some(lsn));
            }
        }
        let last = frame.page.lsn().max(newest);
        frame.page.set_lsn(last);
        match first {
            Some(since) => touch(engine, at, since),
            None => engine.pool.set_dirty(at, false),
        }
    }
    Ok(now)
}
