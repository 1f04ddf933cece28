//! Changes of records: which bytes are logged, and how a page takes a change from the log.

use super::{HostError, LogRecord, Lsn, What};
use crate::Rid;
use flagstone::page::Page;
use flagstone::units::TxId;

impl<'a> LogRecord<'a> {
    /// The change of a record from `old` to `new`, where `None` is no record. An update leaves out
    /// the bytes that both have at the beginning and at the end.
    pub(crate) fn change(
        tx: TxId,
        prev: Lsn,
        rid: Rid,
        old: Option<&'a [u8]>,
        new: Option<&'a [u8]>,
    ) -> LogRecord<'a> {
        let (what, at, old, new) = match (old, new) {
            (Some(old), Some(new)) => {
                let at = old.iter().zip(new).take_while(|(a, b)| a == b).count();
                let (old, new) = (&old[at..], &new[at..]);
                let ends = old.iter().rev().zip(new.iter().rev());
                let same = ends.take_while(|(a, b)| a == b).count();
                let (old, new) = (&old[..old.len() - same], &new[..new.len() - same]);
                (What::Update, at, old, new)
            }
            (None, Some(new)) => (What::Insert, 0, &[][..], new),
            (old, None) => (What::Delete, 0, old.unwrap_or_default(), &[][..]),
        };
        LogRecord {
            page: rid.page,
            slot: rid.slot,
            at: at as u16,
            replaced: old.len() as u16,
            old,
            ..LogRecord::mark(what, tx, prev, new)
        }
    }

    /// Applies the change to its page, whose LSN becomes `lsn`. Does nothing if the log record is
    /// not a change.
    pub(crate) fn redo(
        &self,
        page: &mut Page,
        lsn: Lsn,
        page_bytes: usize,
    ) -> Result<(), HostError> {
        let wrong = |error| HostError::PageDamaged(self.page, error);
        match self.what {
            What::Insert => page.put(self.slot, self.new, page_bytes).map_err(wrong)?,
            What::Delete => {
                page.remove(self.slot);
            }
            What::Update => {
                let record = page.get(self.slot).unwrap_or_default();
                let (start, end) = (self.at, usize::from(self.at) + usize::from(self.replaced));
                let before = record.get(..start.into()).unwrap_or_default();
                let after = record.get(end..).unwrap_or_default();
                let whole = [before, self.new, after].concat();
                page.put(self.slot, &whole, page_bytes).map_err(wrong)?;
            }
            _ => return Ok(()),
        }
        page.set_lsn(lsn);
        Ok(())
    }
}
