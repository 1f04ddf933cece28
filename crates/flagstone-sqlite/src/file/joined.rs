//! Transactions of a database file that are committed in memory, and written to the store together.

use super::{CHUNK, StoreFile, differ_in_counters_only, has_plain_header};
use crate::bytes::Trouble;
use flagstone_store::{Chunks, PageStore};

/// The schema cookie in the first page of a database.
const SCHEMA: std::ops::Range<usize> = 40..44;

impl StoreFile {
    /// Maximum number of waiting chunks of a transaction that can join others.
    const KEPT_MAX: usize = Chunks::<PageStore>::JOINED_MAX / 2;

    /// Whether the live transaction is small, entirely in memory, and does not change the schema.
    /// Connections recognise a schema by its cookie. So none may have read a schema that is then
    /// lost, since another schema would get the same cookie.
    pub(super) fn is_one_that_joins(&self) -> bool {
        let is_small = self.chunks.changed() <= StoreFile::KEPT_MAX;
        let is_kept = self.keeps && !self.is_first_gone && !self.chunks.has_written();
        is_small && is_kept && !self.may_change_schema()
    }

    /// Whether the live transaction may change the schema cookie. Unknown for ciphertext, whose
    /// transactions never join.
    fn may_change_schema(&self) -> bool {
        let Some(own) = self.chunks.waiting(0) else {
            return false;
        };
        let newest = self.chunks.joined(0).or(self.first.as_deref());
        let is_plain = has_plain_header(own);
        !is_plain || newest.is_none_or(|newest| newest[SCHEMA] != own[SCHEMA])
    }

    /// Writes the joined transactions as one, which leave a file of `size` bytes. A first chunk
    /// that differs only in its counters is not written, as in a commit by itself.
    pub(super) fn commit_all_joined(&mut self, size: u64) -> Result<(), Trouble> {
        self.know_first()?;
        let first = self.chunks.take_joined(0);
        if let Some(joined) = &first {
            // See the module documentation of `file`.
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
