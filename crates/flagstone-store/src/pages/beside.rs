//! What other threads need from a store: page addresses, and a way to report errors.

use super::PageStore;
use crate::error::StoreError;
use crate::flash::mark_page;
use crate::flash::places::{Place, Places};
use crate::superblock::MEDIUM_PAGE_BYTES;
use flagstone::commit::DeviceError;
use flagstone::ftl::{FtlError, Slot};
use flagstone::units::{Lpn, SnapshotId};
use std::sync::Arc;

/// Address of a page at the time of its lookup. Any thread may read the page there while others use
/// the store.
///
/// ```
/// use flagstone::units::Lpn;
/// use flagstone_store::medium::Memory;
/// use flagstone_store::{MEDIUM_PAGE_BYTES, OpenOptions, PageStore, StoreError};
///
/// let mut store = PageStore::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// let tx = store.begin()?;
/// store.write(tx, Lpn(1), b"one")?;
/// store.commit(tx)?;
///
/// let looked = store.look(None, Lpn(1))?.expect("the page holds data");
/// let mut page = [0; MEDIUM_PAGE_BYTES];
/// let bytes = std::thread::spawn(move || looked.read(&mut page).map(|len| page[..len].to_vec()));
/// assert_eq!(bytes.join().expect("no panic").as_deref(), Some(&b"one"[..]));
/// assert!(store.look(None, Lpn(2))?.is_none());
/// # Ok::<(), StoreError>(())
/// ```
pub struct Looked {
    places: Arc<Places>,
    place: Place,
}

impl Looked {
    /// Reads the page. Returns how many bytes of `into` were filled. Returns `None` if the page has
    /// moved, is damaged, or the medium fails; a read through the store tells which.
    pub fn read(&self, into: &mut [u8; MEDIUM_PAGE_BYTES]) -> Option<usize> {
        // Failures are recorded, and the store reports them from then on.
        self.places.read_into(&self.place, into).ok().flatten()
    }
}

/// Medium operations that a commit requested and that are not carried out yet.
///
/// ```
/// use flagstone::units::Lpn;
/// use flagstone_store::medium::Recorded;
/// use flagstone_store::{OpenOptions, PageStore, StoreError};
///
/// let medium = Recorded::default();
/// let mut store = PageStore::on(Box::new(medium.clone()), &OpenOptions::default())?;
/// store.leave_work(true);
/// let tx = store.begin()?;
/// store.write(tx, Lpn(1), b"one")?;
/// store.commit(tx)?;
///
/// // Nothing is durable yet. Any thread may do the work.
/// let (asked, syncs) = (store.asked(), medium.syncs());
/// asked.carry_out();
/// store.outcome()?;
/// assert!(medium.syncs() > syncs);
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Clone)]
#[must_use = "the commit is durable when this was carried out"]
pub struct Asked {
    places: Arc<Places>,
    epoch: u64,
}

impl Asked {
    /// Carries out the operations. Returns when all are durable or the medium has failed;
    /// [`PageStore::outcome`] tells which.
    pub fn carry_out(self) {
        // Failures are recorded.
        let _ = self.places.carry_out_of(self.epoch);
    }
}

impl PageStore {
    /// The state that other threads share with this store. From now on [`Places::carry_out`]
    /// performs the medium operations that calls request.
    pub(crate) fn work_apart(&self) -> Arc<Places> {
        self.places.work_apart(true);
        Arc::clone(&self.places)
    }

    /// Looks up a page in the last committed state, or in the snapshot `of`. Returns `None` if the
    /// page is empty or the protocol has no snapshots.
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

    /// If `leaves` is set, calls from now on leave their medium operations to the caller, who must
    /// carry out what [`PageStore::asked`] returns. Nothing is durable before that.
    pub fn leave_work(&mut self, leaves: bool) {
        self.places.work_apart(leaves);
    }

    /// The medium operations that were requested and not carried out yet.
    pub fn asked(&self) -> Asked {
        Asked {
            places: Arc::clone(&self.places),
            epoch: self.places.epoch(),
        }
    }

    /// The result of operations that other threads carried out, since the last call.
    ///
    /// # Errors
    /// The medium has failed. Whether the last transaction committed is unknown until the store is
    /// reopened. Or there was no room, and the store has reopened itself, in this call or before:
    /// it then holds all of a commit or nothing of it.
    pub fn outcome(&mut self) -> Result<(), StoreError> {
        let left_in = self.left_in.take();
        let was_reopened = left_in.is_some_and(|epoch| epoch != self.places.epoch());
        if was_reopened || self.notes.trouble.is_noted() {
            Err(self.failed())
        } else {
            Ok(())
        }
    }

    /// Records a commit whose medium operations may be left to the caller.
    pub(super) fn note_commit(&mut self) {
        if self.places.is_apart() {
            self.left_in.get_or_insert(self.places.epoch());
        }
    }

    /// Releases the store without closing it, as if the process had died. Used when a call panicked
    /// half-way. Committed data is there when the store is opened again.
    pub fn abandon(&mut self) {
        self.notes.abandon();
    }

    /// Whether a page is empty in the last committed state, or in the snapshot `of`.
    ///
    /// # Errors
    /// The snapshot has ended.
    pub(crate) fn is_empty(&self, of: Option<SnapshotId>, at: Lpn) -> Result<bool, StoreError> {
        Ok(!matches!(self.slot(of, at)?, Some(Slot::Page(_))))
    }

    /// The mapping table's entry for a page, now or in a snapshot. `None` beyond the device.
    fn slot(&self, of: Option<SnapshotId>, at: Lpn) -> Result<Option<Slot>, StoreError> {
        if let Some(id) = of {
            self.must_be_open(id)?;
        }
        if at.0 >= self.device.pages() {
            return Ok(None);
        }
        let ftl = self.device.ftl();
        let slot = match of {
            Some(id) => ftl.snapshot_slot(id, at),
            None => Some(ftl.slot(at)),
        };
        Ok(slot)
    }

    /// The address of a page in the last committed state, or in the snapshot `of`. `None` if the
    /// page is empty.
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

    /// Whether a page of a snapshot is still the last committed version.
    pub(crate) fn is_newest(&self, id: SnapshotId, at: Lpn) -> bool {
        let ftl = self.device.ftl();
        at.0 < self.device.pages() && ftl.snapshot_slot(id, at) == Some(ftl.slot(at))
    }

    /// Whether a snapshot is still open.
    pub(crate) fn is_open(&self, id: SnapshotId) -> bool {
        self.device.ftl().snapshot_slot(id, Lpn(0)).is_some()
    }

    /// Checks that a snapshot is still open.
    pub(super) fn must_be_open(&self, id: SnapshotId) -> Result<(), StoreError> {
        if self.is_open(id) {
            Ok(())
        } else {
            Err(StoreError::SnapshotEnded)
        }
    }

    /// Opens snapshot `id` again after the store was reopened; the store must still hold its state.
    /// Returns `false` if other snapshots are open.
    pub(crate) fn reopen_snapshot(&mut self, id: SnapshotId) -> bool {
        self.device.reopen_snapshot(id)
    }

    /// Reports that the medium refused an operation of another thread. The store is broken.
    pub(crate) fn failed(&mut self) -> StoreError {
        let gone = Err::<(), _>(DeviceError::Ftl(FtlError::PowerLost));
        self.translate(gone).expect_err("it is an error")
    }
}
