//! Snapshots: readers that keep seeing an earlier state of the mapping table.
//!
//! A snapshot copies nothing. When a logical page gets a new version, the newest open snapshot
//! records the old one, which is *retained*: it stays live, and its block is not collected, until
//! no open snapshot needs it. An older snapshot looks up what it has not recorded in younger
//! snapshots, and then in the mapping table.
//!
//! Snapshots are not stored on flash and do not survive a restart. If no block is left to collect,
//! the oldest ones are ended.

use super::{BlockState, Ftl, Slot, steps};
use crate::units::{Lpn, Ppn, SnapshotId};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

/// The open snapshots.
///
/// ```
/// use flagstone::prelude::*;
///
/// let mut device = Device::with_defaults(Chip::default(), Kind::Seal)?;
/// let id = device.snapshot()?;
/// let snapshots = device.ftl().snapshots();
/// assert!(snapshots.is_current(id));
/// assert_eq!(snapshots.counts(), (1, 0));
/// # Ok::<(), DeviceError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Snapshots {
    open: BTreeMap<SnapshotId, Noted>,
    last: SnapshotId,
    /// Retained pages that the mapping table no longer refers to, and whether they would be dead
    /// without the snapshots.
    retained: FxHashMap<Ppn, bool>,
}

/// The old versions that a snapshot has recorded.
#[derive(Debug, Clone, Default)]
struct Noted {
    readers: u32,
    slots: FxHashMap<Lpn, Slot>,
}

impl Noted {
    fn new() -> Noted {
        Noted {
            readers: 1,
            slots: FxHashMap::default(),
        }
    }
}

impl Snapshots {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes a snapshot of the mapping table.
    pub(crate) fn take(&mut self) -> SnapshotId {
        if let Some(mut newest) = self.open.last_entry()
            && newest.get().slots.is_empty()
        {
            newest.get_mut().readers += 1;
            return *newest.key();
        }
        self.last = SnapshotId(self.last.0 + 1);
        self.open.insert(self.last, Noted::new());
        self.last
    }

    /// Continues the snapshot numbers of `before`, so that none is used twice.
    pub(crate) fn number_after(&mut self, before: &Snapshots) {
        self.last = self.last.max(before.last);
    }

    /// Takes a snapshot of the mapping table with an earlier number. Returns `false`, and does
    /// nothing, if other snapshots are open.
    pub(crate) fn reopen(&mut self, id: SnapshotId) -> bool {
        let can_reopen = self.open.is_empty() && id <= self.last;
        if can_reopen {
            self.open.insert(id, Noted::new());
        }
        can_reopen
    }

    /// Whether the mapping table has not changed since an open snapshot was taken.
    pub fn is_current(&self, id: SnapshotId) -> bool {
        let mut since = self.open.range(id..);
        self.open.contains_key(&id) && since.all(|(_, noted)| noted.slots.is_empty())
    }

    /// Number of distinct open snapshots, and number of pages retained for them.
    pub fn counts(&self) -> (usize, usize) {
        (self.open.len(), self.retained.len())
    }

    /// Records that a page was killed. Returns whether it is retained.
    #[inline]
    pub(super) fn retains(&mut self, at: Ppn) -> bool {
        let retained = self.retained.get_mut(&at);
        retained.map(|killed| *killed = true).is_some()
    }

    /// Records that a logical page gets a new version that replaces `old`. Returns the page that is
    /// retained from now on, if any.
    fn note(&mut self, at: Lpn, old: Slot) -> Option<Ppn> {
        let mut newest = self.open.last_entry()?;
        let Entry::Vacant(place) = newest.get_mut().slots.entry(at) else {
            return None;
        };
        // An empty entry refers to no page.
        let old = match old {
            Slot::Trimmed(_) => Slot::Empty,
            other => other,
        };
        place.insert(old);
        let page = old.ppn()?;
        self.retained.insert(page, false);
        Some(page)
    }

    /// Removes a snapshot. Returns the pages that are no longer retained, and whether each of them
    /// is dead.
    fn remove(&mut self, id: SnapshotId) -> Vec<(Ppn, bool)> {
        let Some(ended) = self.open.remove(&id) else {
            return Vec::new();
        };
        let mut released = Vec::new();
        match self.open.range_mut(..id).next_back() {
            // The older snapshot may need what this one has recorded.
            Some((_, older)) => {
                for (at, slot) in ended.slots {
                    match older.slots.entry(at) {
                        Entry::Occupied(_) => released.push(slot),
                        Entry::Vacant(place) => {
                            place.insert(slot);
                        }
                    }
                }
            }
            None => released.extend(ended.slots.into_values()),
        }
        // In page order, which determines the order of the victim lists.
        let mut pages: Vec<Ppn> = released.into_iter().filter_map(Slot::ppn).collect();
        pages.sort_unstable();
        let mut is_dead = |at| self.retained.remove(&at) == Some(true);
        pages.into_iter().map(|at| (at, is_dead(at))).collect()
    }
}

impl Ftl {
    /// The place of a logical page in a snapshot; `None` if the snapshot has ended.
    pub fn snapshot_slot(&self, id: SnapshotId, at: Lpn) -> Option<Slot> {
        let open = &self.snapshots.open;
        open.get(&id)?;
        let noted = open.range(id..).find_map(|(_, noted)| noted.slots.get(&at));
        Some(noted.copied().unwrap_or_else(|| self.slot(at)))
    }

    /// Takes one use of a snapshot back. The last one ends it. No effect if it has ended.
    pub fn end_snapshot(&mut self, id: SnapshotId) {
        let Some(noted) = self.snapshots.open.get_mut(&id) else {
            return;
        };
        noted.readers -= 1;
        if noted.readers == 0 {
            self.forget_snapshot(id);
        }
    }

    /// Ends the oldest snapshot, even if it is in use. Returns whether there was one.
    pub(super) fn end_oldest_snapshot(&mut self) -> bool {
        let oldest = self.snapshots.open.keys().next().copied();
        oldest.map(|id| self.forget_snapshot(id)).is_some()
    }

    fn forget_snapshot(&mut self, id: SnapshotId) {
        for (at, is_dead) in self.snapshots.remove(id) {
            if is_dead {
                self.kill(at);
            }
            self.blocks.unpin(self.geometry.block_of(at));
        }
    }

    /// Keeps the version `old` of a logical page, which a new version replaces, for the snapshots
    /// that need it.
    #[cold]
    pub(super) fn retain_for_snapshots(&mut self, at: Lpn, old: Slot) {
        let Some(page) = self.snapshots.note(at, old) else {
            return;
        };
        let block = self.geometry.block_of(page);
        if self.blocks.state(block) == BlockState::Victim {
            steps::give_up(self, block);
        }
        self.blocks.pin(block);
    }
}
