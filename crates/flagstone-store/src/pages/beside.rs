//! What threads beside the holder of a store need of it: where pages are, and errors to hand on.

use super::PageStore;
use crate::error::StoreError;
use crate::flash::mark_page;
use crate::flash::places::{Place, Places};
use crate::superblock::MEDIUM_PAGE_BYTES;
use flagstone::commit::DeviceError;
use flagstone::ftl::{FtlError, Slot};
use flagstone::units::{Lpn, SnapshotId, TxId};
use std::sync::Arc;

/// Where a page was when it was looked up. Any thread may read it there, while others use the
/// store.
pub struct Looked {
    places: Arc<Places>,
    place: Place,
}

impl Looked {
    /// Reads the page. Returns how many bytes of `into` it fills, the others are left over; nothing
    /// if it is not there any more, is damaged, or the medium fails: a read of the store says
    /// which.
    pub fn read(&self, into: &mut [u8; MEDIUM_PAGE_BYTES]) -> Option<usize> {
        // What failed is noted, and the store says so from then on.
        self.places.read_into(&self.place, into).ok().flatten()
    }
}

/// What a commit has asked of the medium, and what is still to be done.
#[derive(Clone)]
#[must_use = "the commit is durable when this was carried out"]
pub struct Asked {
    places: Arc<Places>,
    epoch: u64,
}

impl Asked {
    /// Does it, and returns when all of it is durable, or the medium fails:
    /// [`PageStore::outcome`] says which.
    pub fn carry_out(self) {
        // What failed is noted.
        let _ = self.places.carry_out_of(self.epoch);
    }
}

impl PageStore {
    /// What threads beside the holder share with this store. From now on what a call asks of the
    /// medium is done by [`Places::carry_out`].
    pub(crate) fn work_apart(&self) -> Arc<Places> {
        self.places.work_apart(true);
        Arc::clone(&self.places)
    }

    /// Looks up where a page is, the last committed version or that of a snapshot; nothing if it
    /// holds nothing, or if the protocol has no snapshots.
    ///
    /// # Errors
    /// The snapshot has ended, or the store failed before.
    pub fn look(&self, of: Option<SnapshotId>, at: Lpn) -> Result<Option<Looked>, StoreError> {
        if !self.device.allows_snapshots() {
            return Ok(None);
        }
        let place = self.place(of, at)?;
        Ok(place.map(|place| Looked {
            places: Arc::clone(&self.places),
            place,
        }))
    }

    /// Sets whether calls from now on leave their work on the medium to the caller, who carries out
    /// what [`PageStore::asked`] gives. Nothing is durable before that.
    pub fn leave_work(&mut self, leaves: bool) {
        self.places.work_apart(leaves);
    }

    /// What was asked of the medium and not done yet.
    pub fn asked(&self) -> Asked {
        Asked {
            places: Arc::clone(&self.places),
            epoch: self.places.epoch(),
        }
    }

    /// What became of what others have carried out.
    ///
    /// # Errors
    /// The medium has failed: whether the last transaction has committed is open until the store is
    /// opened again.
    pub fn outcome(&mut self) -> Result<(), StoreError> {
        match self.notes.trouble.is_noted() {
            true => Err(self.failed()),
            false => Ok(()),
        }
    }

    /// Has the store be let go of as by a process that dies: it is not closed. That is for a store
    /// that a call has left half changed because it panicked. What was committed is there when it
    /// is opened again.
    pub fn abandon(&mut self) {
        self.notes.abandon();
    }

    /// Whether a page holds nothing, in what was committed last or in a snapshot.
    ///
    /// # Errors
    /// The snapshot has ended.
    pub(crate) fn is_empty(&self, of: Option<SnapshotId>, at: Lpn) -> Result<bool, StoreError> {
        Ok(!matches!(self.slot(of, at)?, Some(Slot::Page(_))))
    }

    /// What the mapping table says of a page, now or for a snapshot; nothing of one beyond the
    /// device.
    fn slot(&self, of: Option<SnapshotId>, at: Lpn) -> Result<Option<Slot>, StoreError> {
        if at.0 >= self.device.pages() {
            return Ok(None);
        }
        let ftl = self.device.ftl();
        let slot = match of {
            Some(id) => ftl.snapshot_slot(id, at),
            None => Some(ftl.slot(at)),
        };
        slot.map(Some).ok_or(StoreError::SnapshotEnded)
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
        let Some(Slot::Page(at)) = self.slot(of, at)? else {
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

    /// Opens a snapshot under its number in a store that was opened again since it was taken, and
    /// that holds what it showed. Returns `false` if others are open.
    pub(crate) fn reopen_snapshot(&mut self, id: SnapshotId) -> bool {
        self.device.reopen_snapshot(id)
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
