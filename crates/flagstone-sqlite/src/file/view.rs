//! A database file as its readers and its writer see it.
//!
//! A reader beside a writer that commits goes on seeing its snapshot: the size of the file and its
//! first chunk, which are kept beside it, and the pages of the store.

use super::{Chunk, MAIN, Seen, StoreFile, Waiting, chunks, main_page, read_page};
use crate::bytes::{Bytes, Trouble, View};
use flagstone::commit::DeviceError;
use flagstone::units::SnapshotId;
use flagstone_store::StoreError;

impl Bytes for StoreFile {
    fn size(&self, view: View) -> u64 {
        match (view, self.view_tx(view)) {
            (View::Snapshot(id), _) => self.snapshots.get(&id).map_or(0, |seen| seen.size),
            (_, Some(_)) => self.own_size,
            (_, None) => self.size,
        }
    }

    fn read(&mut self, view: View, at: u64, into: &mut [u8]) -> Result<usize, Trouble> {
        let size = self.size(view);
        let has = size.saturating_sub(at).min(into.len() as u64) as usize;
        into[has..].fill(0);
        let tx = self.view_tx(view);
        let mut rest = &mut into[..has];
        for (chunk, offset, bytes) in chunks(at, has) {
            let (now, later) = rest.split_at_mut(bytes);
            rest = later;
            match self.waiting.get(&chunk).filter(|_| tx.is_some()) {
                Some(Waiting::Bytes(waiting)) => {
                    now.copy_from_slice(&waiting[offset..offset + bytes]);
                    continue;
                }
                Some(Waiting::Gone) => {
                    now.fill(0);
                    continue;
                }
                None => {}
            }
            if chunk == 0
                && let Some(first) = self.first_of(view)?
            {
                now.copy_from_slice(&first[offset..offset + bytes]);
                continue;
            }
            let (page, who) = (main_page(chunk), (view, tx));
            let from_main = MAIN.saturating_sub(offset).min(bytes);
            if offset == 0 && from_main == MAIN {
                let held = read_page(&mut self.store, who, page, &mut now[..MAIN])?;
                now[held.unwrap_or(0)..].fill(0);
            } else {
                let held = read_page(&mut self.store, who, page, &mut self.page[..])?;
                self.page[held.unwrap_or(0)..].fill(0);
                now[..from_main].copy_from_slice(&self.page[offset.min(MAIN)..][..from_main]);
            }
            if from_main < bytes {
                let tail = self.read_tail(view, chunk)?;
                let from = offset.max(MAIN) - MAIN;
                now[from_main..].copy_from_slice(&tail[from..from + bytes - from_main]);
            }
        }
        Ok(has)
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Trouble> {
        let done = self.try_write(at, data);
        self.or_abort(done)
    }

    fn truncate(&mut self, size: u64) -> Result<(), Trouble> {
        let done = self.try_truncate(size);
        self.or_abort(done)
    }

    fn commit(&mut self) -> Result<(), Trouble> {
        if self.tx.is_none() {
            return Ok(());
        }
        let done = self.try_commit();
        self.or_abort(done)
    }

    fn abort(&mut self) {
        self.waiting.clear();
        self.tails.retain(|_, tails| !tails.is_own);
        self.dirty_tails = 0;
        self.is_first_own = false;
        self.own_size = self.size;
        if let Some(tx) = self.tx.take() {
            // A store that cannot even abort is broken, and every later call says so.
            let _ = self.store.abort(tx);
        }
    }

    fn snapshot(&mut self) -> Result<Option<u64>, Trouble> {
        let id = match self.store.snapshot() {
            Err(StoreError::Device(DeviceError::NoSnapshots { .. })) => return Ok(None),
            other => other?.0,
        };
        if !self.is_first_own {
            self.know_first()?;
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

    fn is_current(&self, snapshot: u64) -> bool {
        self.store.is_current(SnapshotId(snapshot))
    }

    fn end_snapshot(&mut self, snapshot: u64) {
        self.store.end_snapshot(SnapshotId(snapshot));
        if let Some(seen) = self.snapshots.get_mut(&snapshot) {
            seen.readers -= 1;
            if seen.readers == 0 {
                self.snapshots.remove(&snapshot);
            }
        }
    }
}

impl StoreFile {
    /// The first chunk of the file as somebody sees it, if it is in memory or may be kept there.
    fn first_of(&mut self, view: View) -> Result<Option<&Chunk>, Trouble> {
        if let View::Snapshot(id) = view {
            return Ok(self.snapshots.get(&id).and_then(|seen| seen.first.as_ref()));
        }
        if !self.is_first_own {
            self.know_first()?;
        }
        let is_same = self.view_tx(view).is_none() || !self.is_first_own;
        Ok(self.first.as_ref().filter(|_| is_same))
    }
}
