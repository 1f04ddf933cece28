//! A page in the pool, with marks for its records that are uncommitted or not on flash.

use super::log::Lsn;
use flagstone::page::{Page, SlotNo};
use flagstone::units::{Nanos, TxId};
use std::collections::BTreeMap;

/// A page in the pool.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) page: Page,
    /// When the read from the device completes.
    pub(super) ready: Nanos,
    /// LSN of the first change since the page was last written out; 0 if unchanged.
    pub(super) changed: Lsn,
    /// The transaction that last changed the page.
    pub(super) owner: Option<TxId>,
    /// Records that are uncommitted or not on flash, if transactions share pages.
    pub(super) marks: Marks,
}

impl Frame {
    /// Marks the page as changed since the LSN `since`, unless it has an earlier mark.
    pub(super) fn touch(&mut self, since: Lsn) {
        if self.changed == 0 || since < self.changed {
            self.changed = since;
        }
    }
}

/// The records of a page in the pool that differ from those on flash.
#[derive(Debug, Default)]
pub(super) struct Marks {
    pub(super) pending: Vec<Mark>,
    /// Fresh records, and the LSN of the oldest change that makes them differ from flash.
    pub(super) fresh: BTreeMap<SlotNo, Lsn>,
}

/// A pending record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) slot: SlotNo,
    pub(super) tx: TxId,
    /// LSN of the first change that is not on flash; 0 if all changes are.
    pub(super) since: Lsn,
    /// Whether any of its changes is on flash.
    pub(super) flushed: bool,
}
