//! The file interface of the VFS: bytes with one transaction at a time.
//!
//! [`crate::StoreFile`] implements it on a store; tests have other implementations.

use flagstone::commit::DeviceError;
use flagstone_store::{Asked, Looked, PageStore, StoreError};
use std::fmt;
use std::io::ErrorKind;

/// Selects the state to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// The live transaction's state; the committed state if there is none.
    Own,
    /// The state committed in the store.
    Committed,
    /// The newest committed state, in the store or in memory only ([`Bytes::join`]).
    Newest,
    /// The state that was committed when this snapshot was taken.
    Snapshot(u64),
}

/// A file whose changes are one transaction until they are committed or rolled back.
pub trait Bytes: Send {
    /// Size of the file in bytes.
    fn size(&self, view: View) -> u64;

    /// Reads bytes; those beyond the end of the file are zeros. Returns the number of bytes before
    /// the end.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn read(&mut self, view: View, at: u64, into: &mut [u8]) -> Result<usize, Trouble>;

    /// Looks up the location of a page that can be read while other connections use the file.
    /// Returns `None` if it must be read by [`Bytes::read`]. Bytes that the location does not cover
    /// are zeros.
    ///
    /// # Errors
    /// As [`Bytes::read`].
    fn look(&self, view: View, at: u64, bytes: usize) -> Result<Option<Looked>, Trouble> {
        let _ = (view, at, bytes);
        Ok(None)
    }

    /// Writes in the live transaction, which begins if there is none. An error rolls it back.
    ///
    /// # Errors
    /// There is no room, or the medium fails.
    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Trouble>;

    /// Changes the size in the live transaction, like [`Bytes::write`].
    ///
    /// # Errors
    /// As [`Bytes::write`].
    fn truncate(&mut self, size: u64) -> Result<(), Trouble>;

    /// Whether there may be changes to commit.
    fn has_changes(&self) -> bool {
        true
    }

    /// Commits the live transaction, if any: it is durable on return. An error rolls it back.
    ///
    /// # Errors
    /// There is no room, or the medium fails.
    fn commit(&mut self) -> Result<(), Trouble>;

    /// Commits like [`Bytes::commit`], but may return before the medium's writes and syncs, which
    /// the caller then carries out. The transaction is durable once these steps are done and
    /// [`Bytes::outcome`] reports no failure.
    ///
    /// # Errors
    /// As [`Bytes::commit`].
    fn commit_apart(&mut self) -> Result<Option<Asked>, Trouble> {
        self.commit().map(|()| None)
    }

    /// The result of steps that the caller has carried out.
    ///
    /// # Errors
    /// The medium has failed.
    fn outcome(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    /// Whether group commit is supported ([`Bytes::join`]).
    fn can_join(&self) -> bool {
        false
    }

    /// Sets whether further writes of the live transaction stay in memory.
    fn keep(&mut self, keeps: bool) {
        let _ = keeps;
    }

    /// Whether the live transaction can join a group: it is small, and all of it is in memory.
    fn may_join(&self) -> bool {
        false
    }

    /// Whether there is room for the live transaction together with those that have joined.
    fn has_room_to_join(&mut self) -> bool {
        true
    }

    /// Commits the live transaction in memory only, in addition to those that joined earlier. Later
    /// transactions see its changes.
    fn join(&mut self) {}

    /// Whether joined transactions are not yet in the store.
    fn has_joined(&self) -> bool {
        false
    }

    /// Commits the joined transactions in the store as one; leaves the medium's work to the caller,
    /// like [`Bytes::commit_apart`]. Does not affect a live transaction that may join.
    ///
    /// # Errors
    /// There is no room, or the medium fails: the joined transactions are lost.
    fn commit_joined(&mut self) -> Result<Asked, Trouble> {
        Err(Trouble::new(
            TroubleKind::Io,
            "transactions do not join here",
        ))
    }

    /// Discards the joined transactions.
    fn drop_joined(&mut self) {}

    /// Rolls back the live transaction, if any.
    fn abort(&mut self);

    /// Takes a snapshot of the committed state, for a reader concurrent with a writer. Returns
    /// `None` if snapshots are not supported: then no transaction commits while a connection reads.
    ///
    /// # Errors
    /// The medium fails.
    fn snapshot(&mut self) -> Result<Option<u64>, Trouble> {
        Ok(None)
    }

    /// Adds a reader to an existing snapshot.
    fn share_snapshot(&mut self, snapshot: u64) {
        let _ = snapshot;
    }

    /// Whether nothing was committed since a snapshot was taken.
    fn is_current(&self, snapshot: u64) -> bool {
        let _ = snapshot;
        true
    }

    /// Whether all calls fail because the file system lacked promised space. The committed state
    /// can be read after reopening.
    fn has_lost_room(&self) -> bool {
        false
    }

    /// The store below, if there is one.
    fn store(&mut self) -> Option<&mut PageStore> {
        None
    }

    /// Announces that the live transaction rewrites the whole file.
    fn overwrites_all(&mut self) {}

    /// Releases free space to the file system if transactions have truncated much of the file,
    /// rewritten it, or found no room after the store grew for them. There must be no live and no
    /// joined transaction. The next call reports a failure.
    fn give_room_back(&mut self) {}

    /// Removes a reader of a snapshot.
    fn end_snapshot(&mut self, snapshot: u64) {
        let _ = snapshot;
    }
}

/// The kind of a failure. Each has a result code of SQLite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TroubleKind {
    /// Another process has the store open. A retry may succeed.
    Busy,
    /// The file cannot be opened as requested.
    CannotOpen,
    /// The operating system permits only reading.
    Denied,
    /// The file is not a store, or the key is wrong.
    NotAStore,
    /// The store is damaged.
    Damaged,
    /// There is no room.
    Full,
    /// The store was opened for reading only.
    ReadOnly,
    /// The medium fails.
    Io,
}

/// A failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The kind, for SQLite.
    pub kind: TroubleKind,
    /// The description, for people.
    pub why: String,
}

impl Trouble {
    /// Creates a failure.
    pub fn new(kind: TroubleKind, why: impl Into<String>) -> Trouble {
        Trouble {
            kind,
            why: why.into(),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Trouble {}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Trouble {
        let kind = match &error {
            StoreError::InUse { .. } | StoreError::SnapshotEnded => TroubleKind::Busy,
            StoreError::Full(_) => TroubleKind::Full,
            StoreError::ReadOnly => TroubleKind::ReadOnly,
            // To SQLite a store without its key is not a database.
            StoreError::NotAStore(_) | StoreError::Key(_) => TroubleKind::NotAStore,
            StoreError::Damaged(_) | StoreError::Device(DeviceError::Unreadable(_)) => {
                TroubleKind::Damaged
            }
            StoreError::Options(_) => TroubleKind::CannotOpen,
            out if out.is_out_of_descriptors() => TroubleKind::CannotOpen,
            StoreError::Io { error, .. } => match error.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => TroubleKind::Denied,
                ErrorKind::NotFound => TroubleKind::CannotOpen,
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => TroubleKind::Full,
                _ => TroubleKind::Io,
            },
            _ => TroubleKind::Io,
        };
        Trouble::new(kind, error.to_string())
    }
}
