//! Backups and checks of an open store, concurrent with its writers. They read a snapshot page by
//! page, so a writer waits at most for one page read.

use super::draft::Draft;
use super::{Copied, Progress, Source, bytes_of_copy, copy, metadata};
use crate::error::StoreError;
use crate::pages::{CheckReport, PageStore};
use crate::shared::SharedPages;
use crate::tables::Store;
use flagstone::commit::DeviceError;
use flagstone::units::{Lpn, SnapshotId};
use std::path::Path;

/// A function that uses a store while its other users wait.
///
/// Example: [`Access`].
pub type Act<'a> = &'a mut dyn FnMut(&mut PageStore) -> Result<(), StoreError>;

/// Calls a function with exclusive access to a shared store.
///
/// ```
/// use flagstone::units::Lpn;
/// use flagstone_store::medium::Memory;
/// use flagstone_store::tools::{Act, check_live};
/// use flagstone_store::{OpenOptions, PageStore, StoreError};
/// use std::sync::Mutex;
///
/// let mut store = PageStore::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// let tx = store.begin()?;
/// store.write(tx, Lpn(0), b"a page")?;
/// store.commit(tx)?;
///
/// // Others use the store between two calls of `access`.
/// let shared = Mutex::new(store);
/// let access = |act: Act<'_>| act(&mut shared.lock().expect("no panic"));
/// let report = check_live(&access, &mut |_| ())?;
/// assert_eq!((report.pages, report.is_well()), (1, true));
/// # Ok::<(), StoreError>(())
/// ```
pub type Access<'a> = &'a dyn Fn(Act<'_>) -> Result<(), StoreError>;

/// Calls a function with exclusive access, and returns its result.
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

/// A snapshot that is released on drop.
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

/// Backs up an open store: the state that is committed when the backup begins. Unlike
/// [`backup`](super::backup), others can commit meanwhile. The copy has the key of the store.
///
/// # Errors
/// The protocol does not support snapshots, writers need the snapshot's room, or as
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

/// Backs up a snapshot, like [`backup_live`]. The caller takes and releases the snapshot.
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

/// Checks an open store: its tables in memory, and that every page committed when the check begins
/// is readable. Others can commit meanwhile. Unlike [`PageStore::check`], skips pages that nothing
/// refers to.
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

/// Checks the tables of a store and the pages of a snapshot, like [`check_live`]. The caller takes
/// and releases the snapshot.
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
    /// Backs up the committed state of this open store into a new file. With `replaces` the copy
    /// may replace an existing file.
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
    /// Backs up the durable state into a new file, concurrent with readers and writers.
    ///
    /// # Errors
    /// As [`backup_live`].
    pub fn backup(
        &self,
        to: &Path,
        replaces: bool,
        progress: Progress<'_>,
    ) -> Result<Copied, StoreError> {
        // The snapshot lacks commits that are not durable yet.
        let moment = self.snapshot()?;
        backup_of(&|act| self.with(act), moment.id(), to, replaces, progress)
    }

    /// Checks the pages of the store, concurrent with readers and writers: see [`check_live`].
    ///
    /// # Errors
    /// As [`check_live`].
    pub fn check(&self) -> Result<CheckReport, StoreError> {
        self.check_with(&mut |_| ())
    }

    /// Like [`SharedPages::check`]. `progress` receives the number of pages read since its last
    /// call.
    fn check_with(&self, progress: &mut dyn FnMut(u64)) -> Result<CheckReport, StoreError> {
        // Readers may share it: if the store is reopened meanwhile, only its last handle ends it.
        let moment = self.snapshot()?;
        check_of(&|act| self.with(act), moment.id(), progress)
    }
}

impl Store {
    /// Backs up the store into a new file, as it is when the backup begins, concurrent with readers
    /// and writers.
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

    /// Checks the pages that hold the tables, concurrent with readers and writers: see
    /// [`check_live`]. [`Store::check`] checks the tables themselves, in a writer's turn.
    ///
    /// # Errors
    /// As [`check_live`].
    pub fn check_pages(&self) -> Result<CheckReport, StoreError> {
        self.pages().check()
    }
}

#[cfg(test)]
mod tests;
