//! What threads beside the holder of a store need of it: where pages are, and errors to hand on.

use super::PageStore;
use crate::error::StoreError;
use crate::flash::mark_page;
use crate::flash::places::{Place, Places};
use flagstone::commit::DeviceError;
use flagstone::ftl::{FtlError, Slot};
use flagstone::units::{Lpn, SnapshotId, TxId};
use std::sync::Arc;

impl PageStore {
    /// What threads beside the holder share with this store. From now on what a call asks of the
    /// medium is done by [`Places::carry_out`].
    pub(crate) fn work_apart(&self) -> Arc<Places> {
        self.places.work_apart();
        Arc::clone(&self.places)
    }

    /// Where the bytes of a page are, the last committed ones or those of a snapshot; nothing if it
    /// holds none.
    ///
    /// # Errors
    /// The snapshot has ended, or the store failed before.
    pub(crate) fn place(
        &self,
        of: Option<SnapshotId>,
        at: Lpn,
    ) -> Result<Option<Place>, StoreError> {
        self.is_well()?;
        if at.0 >= self.device.pages() {
            return Ok(None);
        }
        let ftl = self.device.ftl();
        let slot = match of {
            Some(id) => ftl.snapshot_slot(id, at),
            None => Some(ftl.slot(at)),
        };
        let slot = slot.ok_or(StoreError::Device(DeviceError::SnapshotEnded))?;
        let Slot::Page(at) = slot else {
            return Ok(None);
        };
        let geometry = self.device.geometry();
        let block = geometry.block_of(at);
        let first = mark_page(geometry.pages_per_block, block.0) + 1;
        let number = first + u64::from(geometry.page_in_block(at));
        Ok(Some(self.places.place(at, block, number)))
    }

    /// Whether a page of a snapshot is what was committed last.
    pub(crate) fn is_newest(&self, id: SnapshotId, at: Lpn) -> bool {
        let ftl = self.device.ftl();
        at.0 < self.device.pages() && ftl.snapshot_slot(id, at) == Some(ftl.slot(at))
    }

    /// Whether a snapshot is still open.
    pub(crate) fn is_open(&self, id: SnapshotId) -> bool {
        self.device.ftl().snapshot_slot(id, Lpn(0)).is_some()
    }

    /// Commits a transaction that stands for so many of others.
    ///
    /// # Errors
    /// As [`PageStore::commit`].
    pub(crate) fn commit_for(&mut self, tx: TxId, count: u64) -> Result<(), StoreError> {
        self.commit(tx)?;
        self.notes.stats().commits += count.saturating_sub(1);
        Ok(())
    }

    /// Says what the medium refused to a thread beside the holder: the store is broken.
    pub(crate) fn failed(&mut self) -> StoreError {
        let gone = Err::<(), _>(DeviceError::Ftl(FtlError::PowerLost));
        self.translate(gone).expect_err("it is an error")
    }
}
