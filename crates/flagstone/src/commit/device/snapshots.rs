//! Snapshots of a device: a reader sees what was committed when it began, whatever is committed
//! since.

use super::{Device, DeviceError, read_found};
use crate::ftl::Cause;
use crate::units::{Lpn, Nanos, SnapshotId};

impl Device {
    /// Whether the mapping table names the committed version of each page and nothing else, so that
    /// there can be snapshots.
    pub fn allows_snapshots(&self) -> bool {
        self.protocol.allows_snapshots()
    }

    /// Takes a snapshot of what is committed. It copies nothing. Pages that are replaced or trimmed
    /// while it is open stay until [`Device::end_snapshot`], and their blocks are not collected.
    /// Where the device would be full otherwise, the oldest snapshots end by themselves. After a
    /// restart there are none.
    ///
    /// # Errors
    /// The protocol cannot give snapshots.
    pub fn snapshot(&mut self) -> Result<SnapshotId, DeviceError> {
        match self.protocol.allows_snapshots() {
            true => Ok(self.ftl.take_snapshot()),
            false => Err(DeviceError::NoSnapshots {
                protocol: self.info.name,
            }),
        }
    }

    /// Gives a snapshot back. It may have ended.
    pub fn end_snapshot(&mut self, id: SnapshotId) {
        self.ftl.end_snapshot(id);
    }

    /// Opens a snapshot again that another device over the same flash had open, under the same
    /// number, with one reader. What is committed must be what it showed. Returns `false`, and does
    /// nothing, if other snapshots are open.
    pub fn reopen_snapshot(&mut self, id: SnapshotId) -> bool {
        self.protocol.allows_snapshots() && self.ftl.reopen_snapshot(id)
    }

    /// Reads a page of a snapshot into `into`, which has room for one. Returns when it was read,
    /// and how many bytes it has, or nothing for a page that was never written, or was trimmed.
    ///
    /// # Errors
    /// The snapshot has ended, the page is beyond the device or lost to bit errors, or the power is
    /// gone.
    pub fn read_snapshot(
        &mut self,
        now: Nanos,
        id: SnapshotId,
        at: Lpn,
        into: &mut [u8],
    ) -> Result<(Nanos, Option<usize>), DeviceError> {
        let pages = self.ftl.logical_pages();
        if at.0 >= pages {
            return Err(DeviceError::OutOfRange { at, pages });
        }
        let slot = self.ftl.snapshot_slot(id, at);
        self.host.pages_read += 1;
        let found = slot.ok_or(DeviceError::SnapshotEnded)?.into();
        read_found(&mut self.ftl, (now, Cause::Host), found, at, into)
    }
}

#[cfg(test)]
mod tests;
