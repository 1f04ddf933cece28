//! Transactions of a database file that are committed in memory, and reach the store together.

use super::{CHUNK, StoreFile, differ_in_counters_only, has_plain_header};
use crate::bytes::Trouble;
use flagstone_store::{Chunks, PageStore};

/// Where the first page of a database has the number of its schema.
const SCHEMA: std::ops::Range<usize> = 40..44;

impl StoreFile {
    /// Chunks that may wait for the commit of a transaction that is to join others.
    const KEPT_MAX: usize = Chunks::<PageStore>::JOINED_MAX / 2;

    /// Whether the live transaction is small, in memory alone, and leaves the schema as it is. A
    /// connection that has read a schema knows it again by its number. So none may have read a
    /// schema that is gone, since another one gets its number.
    pub(super) fn is_one_that_joins(&self) -> bool {
        let is_small = self.chunks.changed() <= StoreFile::KEPT_MAX;
        let is_kept = self.keeps && !self.is_first_gone && !self.chunks.has_written();
        is_small && is_kept && !self.may_change_schema()
    }

    /// Whether the number of the schema is another one in the live transaction, as far as is known.
    /// It is not known of ciphertext, of which no transaction joins.
    fn may_change_schema(&self) -> bool {
        let Some(own) = self.chunks.waiting(0) else {
            return false;
        };
        let newest = self.chunks.joined(0).or(self.first.as_deref());
        let is_plain = has_plain_header(own);
        !is_plain || newest.is_none_or(|newest| newest[SCHEMA] != own[SCHEMA])
    }

    /// Writes those that have joined, which have left a file of this size, as one transaction.
    pub(super) fn commit_all_joined(&mut self, size: u64) -> Result<(), Trouble> {
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
