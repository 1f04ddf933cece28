//! Restart ([FlagCommit] Algorithm 3). Log and flags tell which transactions have committed. The
//! device sets missing flags. Changes that are not on flash are redone.
//!
//! Redo proceeds page by page, not along the log: a page is complete before it can be written out,
//! so its LSN holds for all its records even if the power fails again.

use super::super::config::Mistake;
use super::super::log::{LogRecord, Lsn, Tape};
use super::super::manager::{Memory, Redo};
use super::super::wal::redo;
use super::{FlagEx, HostError};
use flagstone::page::{PageError, SlotNo};
use flagstone::units::Lpn;
use std::collections::BTreeMap;

/// Changes of committed transactions in the log, which may be missing in pages.
pub(super) fn changes(tape: &Tape) -> Vec<Redo<'_>> {
    let committed = tape.committed();
    let mut pages: BTreeMap<Lpn, Vec<(Lsn, LogRecord<'_>)>> = BTreeMap::new();
    for (lsn, entry) in tape.entries(0) {
        if entry.what.is_change() && committed.contains(&entry.tx) {
            pages.entry(entry.page).or_default().push((lsn, entry));
        }
    }
    pages.into_iter().collect()
}

/// A limit that exceeds the size of any page's records during redo.
const LARGER: usize = 1 << 24;

impl FlagEx {
    /// Redoes the changes that a newly read page lacks.
    pub(super) fn redo_page(
        &mut self,
        memory: &mut Memory,
        (at, changes): Redo<'_>,
    ) -> Result<(), HostError> {
        let older: BTreeMap<SlotNo, Lsn> = self.restored.iter().copied().collect();
        let frame = memory.frame(at);
        let newest = frame.page.lsn();
        for (lsn, entry) in changes {
            let copy = older.get(&entry.slot).copied().unwrap_or(newest);
            // R5: a newer copy on flash wins.
            if lsn > copy || self.mistake.is(Mistake::RedoAll) {
                // Slots may have different ages here, so the page may temporarily be larger than it
                // ever was.
                redo(&mut frame.page, &entry, lsn, LARGER, &mut self.bytes)?;
                frame.touch(lsn);
            }
        }
        let (needed, page_bytes) = (frame.page.image_bytes(), self.page_bytes);
        if needed > page_bytes {
            let why = PageError::Full { needed, page_bytes };
            return Err(HostError::PageDamaged(at, why));
        }
        let last = frame.page.lsn().max(newest);
        frame.page.set_lsn(last);
        Ok(())
    }
}
