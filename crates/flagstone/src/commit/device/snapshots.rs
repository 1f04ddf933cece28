//! Snapshots of a device: a reader sees the state that was committed when it began.

use super::{Device, DeviceError, in_range, read_found};
use crate::ftl::Cause;
use crate::units::{Lpn, Nanos, SnapshotId};

impl Device {
    /// Whether snapshots are supported: the mapping table refers to the committed version of each
    /// page and to nothing else.
    pub fn allows_snapshots(&self) -> bool {
        self.protocol.allows_snapshots()
    }

    /// Takes a snapshot of the committed state. Copies nothing. Pages that are replaced or trimmed
    /// while it is open stay until [`Device::end_snapshot`], and their blocks are not collected. If
    /// the device would be full otherwise, the oldest snapshots are ended. Snapshots do not survive
    /// a restart.
    ///
    /// # Errors
    /// The protocol does not support snapshots.
    pub fn snapshot(&mut self) -> Result<SnapshotId, DeviceError> {
        if self.protocol.allows_snapshots() {
            Ok(self.ftl.snapshots.take())
        } else {
            Err(DeviceError::NoSnapshots {
                protocol: self.info.name,
            })
        }
    }

    /// Ends a snapshot. It may have been ended already.
    pub fn end_snapshot(&mut self, id: SnapshotId) {
        self.ftl.end_snapshot(id);
    }

    /// Reopens a snapshot of another device over the same flash, with the same number and one
    /// reader. The committed state must equal that of the snapshot. Returns `false`, and does
    /// nothing, if other snapshots are open.
    pub fn reopen_snapshot(&mut self, id: SnapshotId) -> bool {
        self.protocol.allows_snapshots() && self.ftl.snapshots.reopen(id)
    }

    /// Reads a page of a snapshot into `into`, which is at least one page long. Returns when it was
    /// read, and its length, or `None` if the page was never written or was trimmed.
    ///
    /// # Errors
    /// The snapshot has ended, the page is beyond the device or lost to bit errors, or the power
    /// failed.
    pub fn read_snapshot(
        &mut self,
        now: Nanos,
        id: SnapshotId,
        at: Lpn,
        into: &mut [u8],
    ) -> Result<(Nanos, Option<usize>), DeviceError> {
        in_range(&self.ftl, at)?;
        let slot = self.ftl.snapshot_slot(id, at);
        let found = slot.ok_or(DeviceError::SnapshotEnded)?.into();
        let read = read_found(&mut self.ftl, now, Cause::Host, found, at, into)?;
        self.host.pages_read += 1;
        Ok(read)
    }
}
