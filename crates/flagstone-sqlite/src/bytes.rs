//! What the VFS needs of a database file: bytes with one transaction at a time.
//!
//! [`crate::StoreFile`] is the one over a store. Tests bring others.

use flagstone::commit::DeviceError;
use flagstone_store::{Asked, Looked, PageStore, StoreError};
use std::fmt;
use std::io::ErrorKind;

/// Whose bytes are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Those of the live transaction, if there is one.
    Own,
    /// Those that are committed in the store.
    Committed,
    /// Those that are committed, in the store or in memory only ([`Bytes::join`]).
    Newest,
    /// Those that were committed when this snapshot was taken.
    Snapshot(u64),
}

/// A file whose changes are one transaction until they are committed or rolled back.
pub trait Bytes: Send {
    /// Bytes that the file has.
    fn size(&self, view: View) -> u64;

    /// Reads, and fills with zeros what lies behind the end. Returns how many bytes lie before it.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn read(&mut self, view: View, at: u64, into: &mut [u8]) -> Result<usize, Trouble>;

    /// Looks up where a page lies that can be read while others use the bytes; nothing if it has to
    /// be read as [`Bytes::read`] does. It holds what is read there, and zeros behind it.
    ///
    /// # Errors
    /// As [`Bytes::read`].
    fn look(&self, view: View, at: u64, bytes: usize) -> Result<Option<Looked>, Trouble> {
        let _ = (view, at, bytes);
        Ok(None)
    }

    /// Writes in the live transaction, which begins if there is none. After an error there is none:
    /// it was rolled back.
    ///
    /// # Errors
    /// There is no room, or the medium fails.
    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Trouble>;

    /// Changes the size in the live transaction, as [`Bytes::write`] does.
    ///
    /// # Errors
    /// As [`Bytes::write`].
    fn truncate(&mut self, size: u64) -> Result<(), Trouble>;

    /// Whether there may be something to commit.
    fn has_changes(&self) -> bool {
        true
    }

    /// Commits the live transaction, if there is one: it is durable when this returns. After an
    /// error there is none.
    ///
    /// # Errors
    /// There is no room, or the medium fails.
    fn commit(&mut self) -> Result<(), Trouble>;

    /// Commits as [`Bytes::commit`] does, but may leave what the medium has to do: then the
    /// transaction is durable when what this returns was carried out, and [`Bytes::outcome`] knows
    /// of no failure.
    ///
    /// # Errors
    /// As [`Bytes::commit`].
    fn commit_apart(&mut self) -> Result<Option<Asked>, Trouble> {
        self.commit().map(|()| None)
    }

    /// What became of what others have carried out.
    ///
    /// # Errors
    /// The medium has failed.
    fn outcome(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    /// Whether transactions can join others ([`Bytes::join`]).
    fn can_join(&self) -> bool {
        false
    }

    /// Has the next writes of the live transaction stay in memory, or not.
    fn keep(&mut self, keeps: bool) {
        let _ = keeps;
    }

    /// Whether the live transaction is one that can join: all of it was kept, and it is small.
    fn may_join(&self) -> bool {
        false
    }

    /// Whether the live transaction, which may join, finds room together with those that have
    /// joined before.
    fn has_room_to_join(&mut self) -> bool {
        true
    }

    /// Commits the live transaction, which may join, in memory, with those that have joined before:
    /// later ones see it.
    fn join(&mut self) {}

    /// Whether transactions have joined that the store does not have.
    fn has_joined(&self) -> bool {
        false
    }

    /// Commits those that have joined in the store, as one transaction, and leaves what the medium
    /// has to do as [`Bytes::commit_apart`] does. A live transaction that may join stays as it is.
    ///
    /// # Errors
    /// There is no room, or the medium fails: those that have joined are gone.
    fn commit_joined(&mut self) -> Result<Asked, Trouble> {
        Err(Trouble::new(
            TroubleKind::Io,
            "transactions do not join here",
        ))
    }

    /// Has those that have joined not happened.
    fn drop_joined(&mut self) {}

    /// Rolls the live transaction back, if there is one.
    fn abort(&mut self);

    /// Takes a snapshot of what is committed, for a reader beside a writer; nothing where there are
    /// none: then no transaction commits while a connection reads.
    ///
    /// # Errors
    /// The medium fails.
    fn snapshot(&mut self) -> Result<Option<u64>, Trouble> {
        Ok(None)
    }

    /// Counts one reader more of a snapshot that has one.
    fn share_snapshot(&mut self, snapshot: u64) {
        let _ = snapshot;
    }

    /// Whether nothing was committed since a snapshot was taken.
    fn is_current(&self, snapshot: u64) -> bool {
        let _ = snapshot;
        true
    }

    /// Whether all calls fail since there was no room where room was promised: opened again, the
    /// bytes are as they were committed.
    fn has_lost_room(&self) -> bool {
        false
    }

    /// The store that the bytes are in, if they are in one.
    fn store(&mut self) -> Option<&mut PageStore> {
        None
    }

    /// The live transaction writes the whole file anew.
    fn overwrites_all(&mut self) {}

    /// Gives back the room that is not needed any more, where transactions have cut much off the
    /// file or written all of it anew. There is no live transaction, and none has joined. What
    /// fails shows at the next call.
    fn give_room_back(&mut self) {}

    /// Gives a snapshot back, for one of its readers.
    fn end_snapshot(&mut self, snapshot: u64) {
        let _ = snapshot;
    }
}

/// What kind of trouble there is: SQLite gets a code for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TroubleKind {
    /// Another process has the store open; it may work later.
    Busy,
    /// It cannot be opened, as it was asked for.
    CannotOpen,
    /// The system allows reading only.
    Denied,
    /// There is something else than a store, or a store that another key opens.
    NotAStore,
    /// It is damaged.
    Damaged,
    /// There is no room.
    Full,
    /// It was opened for reading.
    ReadOnly,
    /// The medium fails.
    Io,
}

/// Why something failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// For SQLite.
    pub kind: TroubleKind,
    /// For people.
    pub why: String,
}

impl Trouble {
    /// Trouble of a kind.
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
            // To SQLite a store whose key is missing is no database, until the key is there.
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
