//! A page in the pool, with marks for its records that are uncommitted or not on flash.

use super::log::Lsn;
use super::{HostError, Rid};
use flagstone::page::{Page, SlotNo, record_head};
use flagstone::units::{Lpn, Nanos, TxId};
use std::collections::BTreeMap;

/// A page in the pool.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) page: Page,
    /// When the read from the device completes.
    pub(super) ready: Nanos,
    /// LSN of the first change since the page was last written out; 0 if unchanged.
    pub(super) changed: Lsn,
    /// The transaction that last changed the page; `force` clears it at a commit. In `flag_ex`: one
    /// that had a record pending when the page was last written out.
    pub(super) owner: Option<TxId>,
    /// Records of live transactions, if transactions share pages.
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

impl Frame {
    /// The frame of page `at` with the contents `image`, whose read completes at `ready`.
    pub(super) fn parse(at: Lpn, image: &[u8], ready: Nanos) -> Result<Frame, HostError> {
        let page = Page::parse(image).map_err(|error| HostError::PageDamaged(at, error))?;
        Ok(Frame {
            page,
            ready,
            ..Frame::default()
        })
    }

    /// Sets or removes a record.
    pub(super) fn set(
        &mut self,
        rid: Rid,
        value: Option<&[u8]>,
        page_bytes: usize,
    ) -> Result<(), HostError> {
        let set = self.page.set(rid.slot, value, page_bytes);
        set.map_err(|error| HostError::no_room(rid.page, error))
    }

    /// Marks the page as changed since the LSN `since`, unless it has an earlier mark.
    pub(super) fn touch(&mut self, since: Lsn) {
        if self.changed == 0 || since < self.changed {
            self.changed = since;
        }
    }
}

/// Bytes that a record of this length takes in a page.
pub(super) fn room_of(record: Option<usize>) -> usize {
    record.map_or(0, |len| len + record_head::SIZE)
}
