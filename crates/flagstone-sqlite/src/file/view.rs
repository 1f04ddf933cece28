//! The views of a database file for its readers and its writer.
//!
//! A reader beside a committing writer keeps seeing its snapshot: the size of the file and its
//! first chunk, which are stored separately, and the pages of the store.

use super::{CHUNK, CUT_OFF_PART, Chunk, Seen, StoreFile};
use crate::bytes::{Bytes, Trouble, View};
use flagstone::commit::DeviceError;
use flagstone::units::SnapshotId;
use flagstone_store::{Asked, Looked, PageStore, StoreError};

impl Bytes for StoreFile {
    fn size(&self, view: View) -> u64 {
        match view {
            View::Snapshot(id) => self.snapshots.get(&id).map_or(0, |seen| seen.size),
            View::Own if self.has_tx() => self.own_size,
            View::Own | View::Newest => self.newest_size(),
            View::Committed => self.size,
        }
    }

    fn read(&mut self, view: View, at: u64, into: &mut [u8]) -> Result<usize, Trouble> {
        if !matches!(view, View::Snapshot(_)) {
            // Data in memory may be missing on a medium that has failed.
            self.outcome()?;
        }
        let size = self.size(view);
        let has = size.saturating_sub(at).min(into.len() as u64) as usize;
        into[has..].fill(0);
        let version = self.version(view);
        let mut rest = &mut into[..has];
        for (chunk, offset, bytes) in self.chunks.cut().chunks(at, has) {
            let (now, later) = rest.split_at_mut(bytes);
            rest = later;
            let is_waiting = view == View::Own && self.chunks.waits(chunk);
            if chunk == 0
                && !is_waiting
                && let Some(first) = self.first_of(view)?
            {
                now.copy_from_slice(&first[offset..offset + bytes]);
                continue;
            }
            match view {
                View::Newest => self.chunks.read_joined(chunk, offset, now)?,
                View::Own if !self.has_tx() => self.chunks.read_joined(chunk, offset, now)?,
                _ => self.chunks.read(version, chunk, offset, now)?,
            }
        }
        Ok(has)
    }

    fn look(&self, view: View, at: u64, bytes: usize) -> Result<Option<Looked>, Trouble> {
        let of = match view {
            View::Own if self.has_tx() => return Ok(None),
            View::Own | View::Committed | View::Newest => None,
            View::Snapshot(id) => Some(SnapshotId(id)),
        };
        let (chunk, offset) = (at / CHUNK as u64, at % CHUNK as u64);
        let is_whole = offset == 0 && bytes == CHUNK && at + CHUNK as u64 <= self.size(view);
        let has_joined = matches!(view, View::Own | View::Newest) && self.chunks.has_joined();
        if chunk == 0 || !is_whole || has_joined {
            return Ok(None);
        }
        Ok(self.chunks.look(of, chunk)?)
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Trouble> {
        let done = self.try_write(at, data);
        self.or_abort(done)
    }

    fn truncate(&mut self, size: u64) -> Result<(), Trouble> {
        let done = self.try_truncate(size);
        self.or_abort(done)
    }

    fn has_changes(&self) -> bool {
        self.has_tx()
    }

    fn commit(&mut self) -> Result<(), Trouble> {
        if !self.has_tx() {
            return Ok(());
        }
        let done = self.try_commit();
        self.or_abort(done)
    }

    fn commit_apart(&mut self) -> Result<Option<Asked>, Trouble> {
        self.chunks.pages_mut().leave_work(true);
        let committed = self.commit();
        self.chunks.pages_mut().leave_work(false);
        committed?;
        Ok(Some(self.chunks.pages().asked()))
    }

    fn outcome(&mut self) -> Result<(), Trouble> {
        Ok(self.chunks.pages_mut().outcome()?)
    }

    fn abort(&mut self) {
        self.chunks.abort();
        self.is_first_gone = false;
        self.keeps = false;
        self.set_own_size(self.newest_size());
    }

    fn can_join(&self) -> bool {
        self.chunks.pages().device().allows_snapshots()
    }

    fn keep(&mut self, keeps: bool) {
        self.keeps = keeps;
    }

    fn may_join(&self) -> bool {
        self.is_one_that_joins()
    }

    fn has_room_to_join(&mut self) -> bool {
        self.chunks.find_room_to_join().is_ok()
    }

    fn join(&mut self) {
        self.chunks.join();
        self.joined_size = Some(self.own_size);
        self.keeps = false;
    }

    fn has_joined(&self) -> bool {
        self.joined_size.is_some()
    }

    fn commit_joined(&mut self) -> Result<Asked, Trouble> {
        if let Some(size) = self.joined_size.take() {
            self.chunks.pages_mut().leave_work(true);
            let committed = self.commit_all_joined(size);
            self.chunks.pages_mut().leave_work(false);
            committed.inspect_err(|_| self.drop_joined())?;
        }
        Ok(self.chunks.pages().asked())
    }

    fn drop_joined(&mut self) {
        self.chunks.drop_joined();
        self.joined_size = None;
        if !self.has_tx() {
            self.set_own_size(self.size);
        }
    }

    fn snapshot(&mut self) -> Result<Option<u64>, Trouble> {
        // Before the snapshot is taken: after an error it would have no owner.
        self.know_first()?;
        let id = match self.chunks.pages_mut().snapshot() {
            Err(StoreError::Device(DeviceError::NoSnapshots { .. })) => return Ok(None),
            other => other?.0,
        };
        if self.snapshots.contains_key(&id) {
            // The store returned a snapshot that readers have already. It counts them as one.
            self.chunks.pages_mut().end_snapshot(SnapshotId(id));
        }
        let (size, first) = (self.size, &self.first);
        let seen = self.snapshots.entry(id).or_insert_with(|| Seen {
            readers: 0,
            size,
            first: first.clone(),
        });
        seen.readers += 1;
        Ok(Some(id))
    }

    fn share_snapshot(&mut self, snapshot: u64) {
        if let Some(seen) = self.snapshots.get_mut(&snapshot) {
            seen.readers += 1;
        }
    }

    fn is_current(&self, snapshot: u64) -> bool {
        StoreFile::store(self).is_current(SnapshotId(snapshot))
    }

    fn has_lost_room(&self) -> bool {
        self.chunks.pages().has_lost_room()
    }

    fn store(&mut self) -> Option<&mut PageStore> {
        Some(self.chunks.pages_mut())
    }

    fn overwrites_all(&mut self) {
        self.cut_off = u64::MAX;
    }

    fn give_room_back(&mut self) {
        let bytes = self.store_bytes();
        let store = self.chunks.pages_mut();
        if self.cut_off >= bytes / CUT_OFF_PART && store.can_compact() {
            self.cut_off = 0;
            let _ = store.compact();
        }
    }

    fn end_snapshot(&mut self, snapshot: u64) {
        if let Some(seen) = self.snapshots.get_mut(&snapshot) {
            seen.readers -= 1;
            if seen.readers == 0 {
                self.snapshots.remove(&snapshot);
                let store = self.chunks.pages_mut();
                store.end_snapshot(SnapshotId(snapshot));
            }
        }
    }
}

impl StoreFile {
    /// The first chunk in a view, if it is in memory or may be cached.
    fn first_of(&mut self, view: View) -> Result<Option<&Chunk>, Trouble> {
        if let View::Snapshot(id) = view {
            return Ok(self.snapshots.get(&id).and_then(|seen| seen.first.as_ref()));
        }
        self.know_first()?;
        let is_same = match view {
            View::Own => !self.is_first_own() && self.chunks.joined(0).is_none(),
            View::Newest => self.chunks.joined(0).is_none(),
            View::Committed | View::Snapshot(_) => true,
        };
        Ok(self.first.as_ref().filter(|_| is_same))
    }
}
