//! Restart ([FlagCommit] Algorithm 3). Log and flags tell which transactions have committed. The
//! device sets missing flags. Changes that are not on flash are redone.
//!
//! Redo proceeds page by page, not along the log: a page is complete before it can be written out,
//! so its LSN holds for all its records even if the power fails again.

use super::super::config::Mistake;
use super::super::log::{LogRecord, Lsn, Tape};
use super::super::tools::Tools;
use super::checkpoint::kept;
use super::{FlagEx, HostError, LARGER};
use flagstone::page::{PageError, SlotNo};
use flagstone::units::{Lpn, Nanos};
use std::collections::BTreeMap;

/// Changes of a page, in order.
type Changes<'t> = Vec<(Lsn, LogRecord<'t>)>;

/// Changes of committed transactions in the log, which may be missing in pages.
pub(super) fn changes(tape: &Tape) -> BTreeMap<Lpn, Changes<'_>> {
    let committed = tape.committed();
    let mut pages: BTreeMap<Lpn, Changes<'_>> = BTreeMap::new();
    for (lsn, entry) in tape.entries(0) {
        if entry.what.is_change() && committed.contains(&entry.tx) {
            pages.entry(entry.page).or_default().push((lsn, entry));
        }
    }
    pages
}

impl FlagEx {
    /// Recovers from flags and log. Returns when the database is ready.
    pub(super) fn restart(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
        tape: &Tape,
    ) -> Result<Nanos, HostError> {
        let mut done = self.device.resolve(now, &tape.committed())?;
        done = self.log.begin_epoch(&mut *self.device, done, tape)?;
        for (at, changes) in changes(tape) {
            let fetched = tools.fetch(self, done, at, true)?;
            done = fetched.expect("every page can be written out");
            self.redo(tools, at, &changes)?;
            tools.mark(at);
        }
        // D2: redone pages are on flash before anything else is logged.
        let frames: Vec<Lpn> = tools.pool.iter().map(|(at, _)| at).collect();
        for at in frames {
            done = done.max(tools.clean(self, done, at)?);
        }
        if !tools.has(Mistake::NoGap) {
            // With a larger buffer than before the log may have less room than that (D2).
            let room = self.log.room().saturating_sub(kept(0, self.log.payload()));
            self.log.skip(self.ahead.min(room));
        }
        self.checkpoint(tools, done, Lsn::MAX)
    }

    /// Redoes those of `changes` that page `at` lacks. The page must be the one that was read last.
    pub(super) fn redo(
        &mut self,
        tools: &mut Tools,
        at: Lpn,
        changes: &Changes<'_>,
    ) -> Result<(), HostError> {
        let (page_bytes, redo_all) = (tools.page_bytes, tools.has(Mistake::RedoAll));
        // Slots whose newest committed copy is older than the page, with the LSN of that copy.
        let older: BTreeMap<SlotNo, Lsn> = self.read.restored.iter().copied().collect();
        let frame = tools.frame_mut(at);
        let newest = frame.page.lsn();
        for (lsn, entry) in changes {
            let copy = older.get(&entry.slot).copied().unwrap_or(newest);
            // R5: a newer copy on flash wins.
            if *lsn > copy || redo_all {
                // Slots may have different ages here, so the page may temporarily be larger than it
                // ever was.
                entry.redo(&mut frame.page, *lsn, LARGER)?;
                frame.touch(*lsn);
            }
        }
        let needed = frame.page.image_bytes();
        if needed > page_bytes {
            let why = PageError::Full { needed, page_bytes };
            return Err(HostError::PageDamaged(at, why));
        }
        let last = frame.page.lsn().max(newest);
        frame.page.set_lsn(last);
        Ok(())
    }
}
