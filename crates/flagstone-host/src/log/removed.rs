//! The log as it would be if records left its buffer, for comparison.
//!
//! [FlagCommit] §4.1 removes the log records of a page when the page is written out, and those of a
//! transaction when it aborts. Here they stay (D1 in `flag_ex`), since an LSN is a place in the
//! log. This counts the pages that the same forces would write without these records. It knows
//! nothing of the time that such a log would save, nor that its buffer would fill later.

use super::{LogRecord, What};
use flagstone::units::{Lpn, TxId};

/// What is not forced yet, without the records that have left.
#[derive(Debug, Default)]
pub(super) struct Removed {
    /// Bytes of the last page that were forced.
    offset: u64,
    /// Changes of records: transaction, page, and length.
    changes: Vec<(TxId, Lpn, u64)>,
    /// Bytes of all else, which never leaves.
    others: u64,
}

impl Removed {
    /// A log whose forced part ends `offset` bytes into a page.
    pub(super) fn at(offset: u64) -> Removed {
        Removed {
            offset,
            ..Removed::default()
        }
    }

    /// A record was appended to the log.
    pub(super) fn append(&mut self, entry: &LogRecord<'_>, bytes: u64) {
        if entry.what.is_change() {
            self.changes.push((entry.tx, entry.page, bytes));
        } else if entry.what != What::Filling {
            self.others += bytes;
        }
    }

    /// Pads the last page of `payload` bytes. The padding is a record, which takes the next page as
    /// well if it is too long.
    pub(super) fn fill(&mut self, payload: u64) {
        let rest = (payload - self.end() % payload) % payload;
        self.others += rest;
        if rest != 0 && rest < LogRecord::bytes(0) as u64 {
            self.others += payload;
        }
    }

    /// The records that `leaves` selects leave the buffer.
    pub(super) fn leave(&mut self, leaves: impl Fn(TxId, Lpn) -> bool) {
        self.changes.retain(|&(tx, page, _)| !leaves(tx, page));
    }

    /// The log was forced. Returns the number of pages that this would have written.
    pub(super) fn force(&mut self, payload: u64) -> u64 {
        let end = self.end();
        let pages = end.div_ceil(payload);
        let wrote = end > self.offset;
        *self = Removed::at(end % payload);
        if wrote { pages } else { 0 }
    }

    fn end(&self) -> u64 {
        let changes: u64 = self.changes.iter().map(|&(_, _, bytes)| bytes).sum();
        self.offset + self.others + changes
    }
}
