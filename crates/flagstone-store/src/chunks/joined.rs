//! Group commit: transactions are committed in memory first, and written to the pages together.
//!
//! ```text
//!   live ──join──> joined ──commit_joined, one transaction of the pages──> committed
//! ```
//!
//! Transactions that join one after the other see each other's chunks. A chunk that several of them
//! have changed is written once, as the last one left it. Nothing of them is durable before
//! [`Chunks::commit_joined`].

use super::{Chunks, Pages, Version, Waiting};
use crate::error::StoreError;
use std::collections::BTreeMap;

impl<P: Pages> Chunks<P> {
    /// Commits the live transaction in memory. All its changes must be in memory: whole chunks
    /// written with `may_go` unset, or parts of at most [`Chunks::JOINED_MAX`] chunks, and no
    /// removals.
    ///
    /// # Panics
    /// The transaction has written to the pages.
    pub fn join(&mut self) {
        assert!(self.own.is_empty(), "what joins is in memory");
        for (chunk, waiting) in std::mem::take(&mut self.waiting) {
            match waiting {
                Waiting::Bytes(bytes) => self.joined.insert(chunk, bytes),
                Waiting::Gone => panic!("what joins has removed nothing"),
            };
        }
        // An earlier one stays spare if this one has not begun.
        self.spare = self.tx.take().or_else(|| self.spare.take());
    }

    /// Maximum number of partly written chunks in memory.
    pub const JOINED_MAX: usize = super::WAITING_MAX;

    /// Whether the live transaction has written to the pages, and not only to waiting chunks.
    pub fn has_written(&self) -> bool {
        !self.own.is_empty() || self.dirty_tails > 0
    }

    /// Whether joined transactions are not yet written to the pages.
    pub fn has_joined(&self) -> bool {
        !self.joined.is_empty()
    }

    /// A chunk as the joined transactions left it, if one of them changed it.
    pub fn joined(&self, chunk: u64) -> Option<&[u8]> {
        self.joined.get(&chunk).map(|bytes| &bytes[..])
    }

    /// The bytes of a chunk that the live transaction changed, if they are still in memory.
    pub fn waiting(&self, chunk: u64) -> Option<&[u8]> {
        match self.waiting.get(&chunk)? {
            Waiting::Bytes(bytes) => Some(bytes),
            Waiting::Gone => None,
        }
    }

    /// Removes a chunk from the joined changes. The caller must write it or give it back.
    pub fn take_joined(&mut self, chunk: u64) -> Option<Box<[u8]>> {
        self.joined.remove(&chunk)
    }

    /// Puts back bytes that [`Chunks::take_joined`] removed.
    pub fn give_joined(&mut self, chunk: u64, bytes: Box<[u8]>) {
        self.joined.insert(chunk, bytes);
    }

    /// Discards the joined transactions.
    pub fn drop_joined(&mut self) {
        self.joined.clear();
    }

    /// Reads a part of a chunk as the joined transactions left it.
    ///
    /// # Errors
    /// As [`Chunks::read`].
    pub fn read_joined(
        &mut self,
        chunk: u64,
        offset: usize,
        into: &mut [u8],
    ) -> Result<(), StoreError> {
        match self.joined.get(&chunk) {
            Some(bytes) => into.copy_from_slice(&bytes[offset..offset + into.len()]),
            None => self.read(Version::Of(None), chunk, offset, into)?,
        }
        Ok(())
    }

    /// Commits the joined transactions as one. Bytes beyond `size` are not stored. A live
    /// transaction that has written nothing to the pages is not affected.
    ///
    /// # Errors
    /// There is no room, or the pages fail: the joined transactions are lost.
    pub fn commit_joined(&mut self, size: u64) -> Result<(), StoreError> {
        let joined = std::mem::take(&mut self.joined);
        assert!(!self.has_written(), "a live transaction is in memory");
        let (live, live_size) = (self.tx.take(), std::mem::replace(&mut self.size, size));
        let done = self.commit_all(joined);
        if done.is_err() {
            self.abort_written();
        }
        (self.tx, self.size) = (live, live_size);
        done
    }

    fn commit_all(&mut self, joined: BTreeMap<u64, Box<[u8]>>) -> Result<(), StoreError> {
        for (chunk, bytes) in joined {
            self.store_chunk(chunk, &bytes)?;
        }
        self.commit_written()
    }
}
