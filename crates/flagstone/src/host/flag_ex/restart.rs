//! Restart ([FlagCommit] Algorithm 3). The log and the flags say which transactions have committed.
//! The device sets the flags that are missing. Changes that are not on flash are redone.
//!
//! Redo goes page by page, not along the log: a page is complete before it can be written out, so
//! that its LSN is true of all its records also where the power fails again.

use super::super::config::Mistake;
use super::super::log::{LogRecord, Lsn, Tape};
use super::super::manager::{Memory, Redo};
use super::super::wal::redo;
use super::{FlagEx, HostError};
use crate::page::{PageError, SlotNo};
use crate::units::Lpn;
use std::collections::BTreeMap;

/// What of the log may be missing on the pages: changes of transactions that have committed.
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

/// More than the records of any page take while they are redone.
const LARGER: usize = 1 << 24;

impl FlagEx {
    /// Redoes the changes that a page lacks which was just read.
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
            // R5: a copy on flash that is newer stays.
            if lsn > copy || self.mistake.is(Mistake::RedoAll) {
                // Slots may be of different ages here, so that the page is larger in between than
                // it ever was.
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
