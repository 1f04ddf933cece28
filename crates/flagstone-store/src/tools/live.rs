//! Copies and checks of a store that is open, beside its writers. They read a snapshot a page at a
//! time, so that a writer waits no longer than the reading of a page takes.

use super::draft::Draft;
use super::{Copied, Progress, Source, bytes_of_copy, copy, metadata};
use crate::error::StoreError;
use crate::pages::{CheckReport, PageStore};
use crate::shared::SharedPages;
use crate::tables::Store;
use flagstone::commit::DeviceError;
use flagstone::units::{Lpn, SnapshotId};
use std::path::Path;

/// Does something with a store that others use as well, while they do not.
pub type Act<'a> = &'a mut dyn FnMut(&mut PageStore) -> Result<(), StoreError>;

/// Calls a function with a store that others use as well, and that waits meanwhile.
pub type Access<'a> = &'a dyn Fn(Act<'_>) -> Result<(), StoreError>;

/// Asks a store for something.
fn ask<T>(
    access: Access<'_>,
    mut act: impl FnMut(&mut PageStore) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut answer = None;
    access(&mut |store| {
        answer = Some(act(store)?);
        Ok(())
    })?;
    answer.ok_or_else(|| StoreError::Broken("the store was not to be had".into()))
}

/// A snapshot that is given back.
struct Moment<'a> {
    access: Access<'a>,
    id: SnapshotId,
}

impl<'a> Moment<'a> {
    fn take(access: Access<'a>) -> Result<Moment<'a>, StoreError> {
        let id = ask(access, PageStore::snapshot)?;
        Ok(Moment { access, id })
    }
}

impl Drop for Moment<'_> {
    fn drop(&mut self) {
        let _ = (self.access)(&mut |store| {
            store.end_snapshot(self.id);
            Ok(())
        });
    }
}

/// Makes a copy of a store that is open, as [`backup`](super::backup) does of one that is not: what
/// is committed when it begins. Others commit meanwhile. The copy has the key of the store.
///
/// # Errors
/// The protocol gives no snapshots, writers need the room of the snapshot, or as
/// [`backup`](super::backup).
pub fn backup_live(
    access: Access<'_>,
    to: &Path,
    replaces: bool,
    progress: Progress<'_>,
) -> Result<Copied, StoreError> {
    let moment = Moment::take(access)?;
    backup_of(access, moment.id, to, replaces, progress)
}

/// Makes a copy of what a snapshot shows, as [`backup_live`] does of what is committed. The
/// caller took the snapshot, and gives it back.
///
/// # Errors
/// The snapshot has ended, or as [`backup`](super::backup).
pub fn backup_of(
    access: Access<'_>,
    id: SnapshotId,
    to: &Path,
    replaces: bool,
    progress: Progress<'_>,
) -> Result<Copied, StoreError> {
    let read = |at: Lpn, page: &mut [u8]| ask(access, |store| store.read_snapshot(id, at, page));
    let (source, from, keyed) = ask(access, |store| {
        let source = Source {
            held: store.held_in(id)?,
            info: store.info(),
            takes: bytes_of_copy(store),
            read: Box::new(read),
        };
        Ok((source, store.path().map(Path::to_path_buf), store.keyed()))
    })?;
    let draft = Draft::new(to, from.as_deref(), replaces, &keyed)?;
    let like = from.as_deref().map(metadata).transpose()?;
    copy(source, draft, like.as_ref(), None, progress)
}

/// Checks a store that is open: its books, and that every page can be read that is committed when
/// the check begins. Others commit meanwhile. Unlike [`PageStore::check`] it does not look at pages
/// that nothing refers to.
///
/// # Errors
/// As [`backup_live`], or the medium fails.
pub fn check_live(
    access: Access<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<CheckReport, StoreError> {
    let moment = Moment::take(access)?;
    check_of(access, moment.id, progress)
}

/// Checks the books of a store, and the pages that a snapshot shows, as [`check_live`] does those
/// that are committed. The caller took the snapshot, and gives it back.
///
/// # Errors
/// The snapshot has ended, or the medium fails.
pub fn check_of(
    access: Access<'_>,
    id: SnapshotId,
    progress: &mut dyn FnMut(u64),
) -> Result<CheckReport, StoreError> {
    let (mut report, held) = ask(access, |store| {
        Ok((store.check_books()?, store.held_in(id)?))
    })?;
    let mut page = vec![0; PageStore::PAGE_BYTES];
    for at in held {
        report.pages += 1;
        match ask(access, |store| store.read_snapshot(id, at, &mut page)) {
            Err(StoreError::Device(DeviceError::Unreadable(_))) => report.unreadable.push(at),
            other => _ = other?,
        }
        progress(1);
    }
    Ok(report)
}

impl PageStore {
    /// Makes a copy of what is committed in this store, which is open, in a new file. `replaces`
    /// lets the copy take the place of a file that is there.
    ///
    /// # Errors
    /// As [`backup`](super::backup).
    pub fn backup(
        &mut self,
        to: &Path,
        replaces: bool,
        progress: Progress<'_>,
    ) -> Result<Copied, StoreError> {
        let from = self.path().map(Path::to_path_buf);
        let draft = Draft::new(to, from.as_deref(), replaces, &self.keyed())?;
        let like = from.as_deref().map(metadata).transpose()?;
        copy(Source::of(self), draft, like.as_ref(), None, progress)
    }
}

impl SharedPages {
    /// Makes a copy of what is durable when it begins, in a new file, beside writers and readers.
    ///
    /// # Errors
    /// As [`backup_live`].
    pub fn backup(
        &self,
        to: &Path,
        replaces: bool,
        progress: Progress<'_>,
    ) -> Result<Copied, StoreError> {
        // What is committed and not durable yet is in no snapshot of these.
        let moment = self.snapshot()?;
        backup_of(&|act| self.with(act), moment.id(), to, replaces, progress)
    }

    /// Checks the pages of the store, beside writers and readers: see [`check_live`].
    ///
    /// # Errors
    /// As [`check_live`].
    pub fn check(&self) -> Result<CheckReport, StoreError> {
        check_live(&|act| self.with(act), &mut |_| ())
    }
}

impl Store {
    /// Makes a copy of the store in a new file, as it is when the copying begins, beside writers
    /// and readers.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let store = flagstone_store::Store::open(folder.path().join("shop.flag"))?;
    /// store.backup(&folder.path().join("copy.flag"), false, &mut |_, _| ())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`backup_live`].
    pub fn backup(
        &self,
        to: &Path,
        replaces: bool,
        progress: Progress<'_>,
    ) -> Result<Copied, StoreError> {
        self.pages().backup(to, replaces, progress)
    }

    /// Checks the pages that the tables lie in, beside writers and readers: see [`check_live`].
    /// [`Store::check`] checks the tables themselves, at the turn of a writer.
    ///
    /// # Errors
    /// As [`check_live`].
    pub fn check_pages(&self) -> Result<CheckReport, StoreError> {
        self.pages().check()
    }
}

#[cfg(test)]
mod tests;
