//! Transactions of a database file that are committed in memory, and reach the store together.

use super::{CHUNK, StoreFile, differ_in_counters_only};
use crate::bytes::Trouble;
use flagstone_store::{Asked, Chunks, PageStore};

/// Where the first page of a database has the number of its schema.
const SCHEMA: std::ops::Range<usize> = 40..44;

impl StoreFile {
    /// Chunks that may wait for the commit of a transaction that is to join others.
    const KEPT_MAX: usize = Chunks::<PageStore>::JOINED_MAX / 2;

    /// Whether the live transaction is small, in memory alone, and leaves the schema as it is. A
    /// connection that has read a schema knows it again by its number. So none may have read a
    /// schema that is gone, since another one gets its number.
    pub(super) fn may_join(&self) -> bool {
        let is_small = self.chunks.changed() <= StoreFile::KEPT_MAX;
        let is_kept = self.keeps && !self.is_first_gone && !self.chunks.has_written();
        is_small && is_kept && !self.may_change_schema()
    }

    /// Whether the number of the schema is another one in the live transaction, as far as is known.
    fn may_change_schema(&self) -> bool {
        let Some(own) = self.chunks.waiting(0) else {
            return false;
        };
        let newest = self.chunks.joined(0).or(self.first.as_deref());
        newest.is_none_or(|newest| newest[SCHEMA] != own[SCHEMA])
    }

    /// Commits the live transaction in memory.
    pub(super) fn join_live(&mut self) {
        self.chunks.join();
        self.joined_size = Some(self.own_size);
        self.keeps = false;
    }

    /// Writes those that have joined as one transaction, and leaves what the medium has to do.
    pub(super) fn try_commit_joined(&mut self) -> Result<Asked, Trouble> {
        let Some(size) = self.joined_size.take() else {
            return Ok(self.chunks.pages().asked());
        };
        self.chunks.pages_mut().leave_work(true);
        let committed = self.commit_all_joined(size);
        self.chunks.pages_mut().leave_work(false);
        if committed.is_err() {
            self.drop_all_joined();
        }
        committed?;
        Ok(self.chunks.pages().asked())
    }

    /// Has those that have joined not happened.
    pub(super) fn drop_all_joined(&mut self) {
        self.chunks.drop_joined();
        self.joined_size = None;
        if !self.has_tx() {
            self.set_own_size(self.size);
        }
    }

    fn commit_all_joined(&mut self, size: u64) -> Result<(), Trouble> {
        self.know_first()?;
        let first = self.chunks.take_joined(0);
        if let Some(joined) = &first {
            // See the head of `file`.
            match &self.first {
                Some(was) if differ_in_counters_only(was, joined) => {}
                _ => self.chunks.give_joined(0, joined.clone()),
            }
        }
        self.chunks.commit_joined(size)?;
        if first.is_some() && size >= CHUNK as u64 {
            self.first = first;
        }
        self.size = size;
        Ok(())
    }
}
