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

/// The open snapshots.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshots {
    open: BTreeMap<SnapshotId, Noted>,
    last: SnapshotId,
    /// Retained pages that the mapping table no longer refers to, and whether they would be dead
    /// without the snapshots.
    retained: FxHashMap<Ppn, bool>,
    /// The collector is moving a page, which creates no new version.
    pub(super) is_moving: bool,
}

/// The old versions that a snapshot has recorded.
#[derive(Debug, Clone, Default)]
struct Noted {
    readers: u32,
    slots: FxHashMap<Lpn, Slot>,
}

impl Snapshots {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Records that a page was killed. Returns whether it is retained.
    #[inline]
    pub(super) fn retains(&mut self, at: Ppn) -> bool {
        let retained = self.retained.get_mut(&at);
        retained.map(|killed| *killed = true).is_some()
    }
}

impl Ftl {
    /// Takes a snapshot of the mapping table.
    pub fn take_snapshot(&mut self) -> SnapshotId {
        let snapshots = &mut self.snapshots;
        let newest = snapshots.open.last_entry();
        if let Some(mut newest) = newest
            && newest.get().slots.is_empty()
        {
            newest.get_mut().readers += 1;
            return *newest.key();
        }
        snapshots.last = SnapshotId(snapshots.last.0 + 1);
        let noted = Noted {
            readers: 1,
            slots: FxHashMap::default(),
        };
        snapshots.open.insert(snapshots.last, noted);
        snapshots.last
    }

    /// Continues the snapshot numbers of `before`, so that none is used twice.
    pub(crate) fn number_snapshots_after(&mut self, before: &Ftl) {
        self.snapshots.last = self.snapshots.last.max(before.snapshots.last);
    }

    /// Takes a snapshot of the mapping table with an earlier number. Returns `false`, and does
    /// nothing, if other snapshots are open.
    pub(crate) fn reopen_snapshot(&mut self, id: SnapshotId) -> bool {
        let snapshots = &mut self.snapshots;
        if !snapshots.open.is_empty() || id > snapshots.last {
            return false;
        }
        let noted = Noted {
            readers: 1,
            slots: FxHashMap::default(),
        };
        snapshots.open.insert(id, noted);
        true
    }

    /// The place of a logical page in a snapshot; `None` if the snapshot has ended.
    pub fn snapshot_slot(&self, id: SnapshotId, at: Lpn) -> Option<Slot> {
        if !self.snapshots.open.contains_key(&id) {
            return None;
        }
        let mut since = self.snapshots.open.range(id..);
        let noted = since.find_map(|(_, noted)| noted.slots.get(&at).copied());
        Some(noted.unwrap_or_else(|| self.slot(at)))
    }

    /// Whether the mapping table has not changed since an open snapshot was taken.
    pub fn is_current(&self, id: SnapshotId) -> bool {
        let mut since = self.snapshots.open.range(id..);
        self.snapshots.open.contains_key(&id) && since.all(|(_, noted)| noted.slots.is_empty())
    }

    /// Reverts one [`Ftl::take_snapshot`]. No effect if the snapshot has ended.
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

    /// Number of distinct open snapshots, and number of pages retained for them.
    pub fn snapshots(&self) -> (usize, usize) {
        (self.snapshots.open.len(), self.snapshots.retained.len())
    }

    fn forget_snapshot(&mut self, id: SnapshotId) {
        let Some(ended) = self.snapshots.open.remove(&id) else {
            return;
        };
        let mut released = Vec::new();
        let older = self.snapshots.open.range_mut(..id).next_back();
        match older {
            // The older snapshot may need what this one has recorded.
            Some((_, older)) => {
                for (at, slot) in ended.slots {
                    match older.slots.entry(at) {
                        std::collections::hash_map::Entry::Occupied(_) => released.push(slot),
                        std::collections::hash_map::Entry::Vacant(place) => {
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
        for at in pages {
            let killed = self.snapshots.retained.remove(&at) == Some(true);
            if killed {
                self.kill(at);
            }
            self.unpin(self.geometry.block_of(at));
        }
    }

    /// Records that a logical page gets a new version that replaces `old`.
    #[cold]
    pub(super) fn note_for_snapshots(&mut self, at: Lpn, old: Slot) {
        let Some(mut newest) = self.snapshots.open.last_entry() else {
            return;
        };
        if self.snapshots.is_moving || newest.get().slots.contains_key(&at) {
            return;
        }
        // An empty entry refers to no page.
        let old = match old {
            Slot::Trimmed(_) => Slot::Empty,
            other => other,
        };
        newest.get_mut().slots.insert(at, old);
        if let Some(page) = old.ppn() {
            self.snapshots.retained.insert(page, false);
            let block = self.geometry.block_of(page);
            if self.block_state(block) == BlockState::Victim {
                steps::give_up(self, block);
            }
            self.pin(block);
        }
    }
}
