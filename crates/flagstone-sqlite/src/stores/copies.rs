//! Backups and checks of a database while others write to it.

use super::Handle;
use crate::bytes::{Trouble, TroubleKind};
use flagstone::units::SnapshotId;
use flagstone_store::tools::{Act, backup_of, check_of};
use flagstone_store::{CheckReport, StoreError};
use std::path::Path;
use std::sync::atomic::Ordering;

/// Registers an additional reader for a connection, for a backup or check.
pub(super) struct Copying<'a> {
    handle: &'a Handle,
    who: u64,
    snapshot: SnapshotId,
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        if let Ok(mut inner) = self.handle.shared.lock() {
            inner.end_copy(self.who);
        }
    }
}

impl Copying<'_> {
    /// Calls a function with the store.
    fn with_store(&self, act: Act<'_>) -> Result<(), StoreError> {
        let broken = |trouble: Trouble| StoreError::Broken(trouble.why);
        let mut inner = self.handle.shared.lock().map_err(broken)?;
        match inner.bytes.as_mut().and_then(|bytes| bytes.store()) {
            Some(store) => act(store),
            None => Err(StoreError::Options(
                "the database is not in a Flagstone store".into(),
            )),
        }
    }
}

impl Handle {
    /// Begins to read the state that others see at this moment: everything committed, except for a
    /// commit in progress.
    pub(super) fn begin_copy(&mut self) -> Result<Copying<'_>, Trouble> {
        self.open()?;
        let who = self.stores.next.fetch_add(1, Ordering::Relaxed);
        match self.shared.lock()?.begin_copy(who)? {
            Some(snapshot) => Ok(Copying {
                handle: self,
                who,
                snapshot: SnapshotId(snapshot),
            }),
            None => Err(Trouble::new(
                TroubleKind::CannotOpen,
                "the protocol of the store has no snapshots (`seal` has): close the database, and \
                 use `flagstone store backup` or `check`",
            )),
        }
    }

    /// Backs up the committed state into a new file, while others write. Returns the number of
    /// pages.
    pub(crate) fn backup(&mut self, to: &Path) -> Result<u64, Trouble> {
        let copying = self.begin_copy()?;
        let access = |act: Act<'_>| copying.with_store(act);
        let copied = backup_of(&access, copying.snapshot, to, false, &mut |_, _| ())?;
        Ok(copied.pages)
    }

    /// Reads all committed data, while others write.
    pub(crate) fn check(&mut self) -> Result<CheckReport, Trouble> {
        let copying = self.begin_copy()?;
        let access = |act: Act<'_>| copying.with_store(act);
        Ok(check_of(&access, copying.snapshot, &mut |_| ())?)
    }
}
