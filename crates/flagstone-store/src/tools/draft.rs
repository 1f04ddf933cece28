//! Drafts: a new store is written under a hidden name, and renamed once it is complete.
//!
//! The file is locked until it has its final name. Until then only its owner can read it: the
//! permissions of the original store are applied last.

use crate::error::StoreError;
use crate::medium::{Disk, Medium, is_named};
use crate::pages::{OpenOptions, PageStore};
use rustix::fs::FlockOperation;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file that will become a store. Dropping an unfinished draft removes the file. A killed process
/// leaves it, and the next draft of the same store removes it.
#[derive(Debug)]
pub(super) struct Draft {
    path: PathBuf,
    /// The locked file at `path`. `None` before it is created, and after the rename.
    file: Option<File>,
    target: PathBuf,
    /// The store that is copied; set if the target may be replaced.
    input: Option<PathBuf>,
    replaces: bool,
    /// Options with the key of the new store.
    opening: OpenOptions,
}

fn io_error(what: &str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let what = format!("{what} {}", path.display());
    move |error| StoreError::io(what, error)
}

impl Draft {
    /// A draft for `target`. The target must not exist unless it may be replaced, and must not be
    /// `input`.
    pub(super) fn new(
        target: &Path,
        input: Option<&Path>,
        replaces: bool,
        opening: &OpenOptions,
    ) -> Result<Draft, StoreError> {
        let refuse = |why: String| StoreError::Options(format!("{}: {why}", target.display()));
        let link = std::fs::symlink_metadata(target).ok();
        let resolved = match std::fs::metadata(target) {
            Ok(_) => target.canonicalize().map_err(io_error("opening", target))?,
            Err(_) if link.is_some_and(|link| link.is_symlink()) => {
                return Err(refuse(
                    "this symbolic link is broken: give another path".into(),
                ));
            }
            Err(_) => target.to_path_buf(),
        };
        let name = resolved.file_name();
        let name = name.ok_or_else(|| refuse("this is not a valid file name".into()))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(".draft");
        let mut draft = Draft {
            path: resolved.with_file_name(hidden),
            file: None,
            target: resolved,
            input: input.map(Path::to_path_buf),
            replaces,
            opening: opening.clone(),
        };
        draft.may_replace()?;
        if !draft.folder().is_dir() {
            let folder = draft.folder().display();
            return Err(refuse(format!("there is no folder {folder}")));
        }
        draft.file = Some(make(&draft.path)?);
        Ok(draft)
    }

    /// Checks that the present target may be replaced; `None` if there is no target. No other
    /// process can open it for writing while the returned handle exists.
    fn may_replace(&self) -> Result<Option<Present>, StoreError> {
        let refuse = |why: &str| {
            Err(StoreError::Options(format!(
                "{}: {why}",
                self.target.display()
            )))
        };
        let Ok(there) = std::fs::metadata(&self.target) else {
            return Ok(None);
        };
        if let Some(input) = &self.input {
            let input = std::fs::metadata(input).map_err(io_error("looking at", input))?;
            if (input.dev(), input.ino()) == (there.dev(), there.ino()) {
                return refuse("this is the input store itself: give another path");
            }
        }
        match (there.is_file(), self.replaces) {
            (false, _) => refuse("this is not a regular file: give another path"),
            (true, false) => refuse("the file exists already: use `--force` to replace it"),
            (true, true) if self.input.is_some() => {
                // A store that a process has open must not be replaced.
                let _locked = Some(Disk::open(&self.target, false, true)?);
                Ok(Some(Present { _locked }))
            }
            (true, true) => Ok(Some(Present { _locked: None })),
        }
    }

    /// The file, which exists as long as the draft is unfinished.
    fn file(&self) -> &File {
        self.file.as_ref().expect("it has no name yet")
    }

    /// Opens the new store.
    ///
    /// # Errors
    /// As [`PageStore::open`].
    pub(super) fn open(&self, options: &OpenOptions) -> Result<PageStore, StoreError> {
        let disk = self.disk(options.read_only)?;
        PageStore::on(disk, options).map_err(|error| error.at(&self.path))
    }

    /// The medium of the new store.
    pub(super) fn disk(&self, read_only: bool) -> Result<Box<dyn Medium>, StoreError> {
        let disk = Disk::beside(self.file(), &self.path, read_only);
        Ok(Box::new(disk.map_err(io_error("opening", &self.path))?))
    }

    /// Adds the key of the new store to options.
    pub(super) fn keyed(&self, options: OpenOptions) -> OpenOptions {
        options.with_key_of(&self.opening)
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// Checks that the file system has `bytes` bytes free.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn has_room(&self, bytes: u64) -> Result<(), StoreError> {
        let Ok(system) = rustix::fs::statvfs(self.folder()) else {
            return Ok(());
        };
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        if free < bytes {
            Err(StoreError::Full(format!(
                "the new file needs {bytes} bytes in {}, but {free} bytes are free; nothing was \
                 changed",
                self.folder().display()
            )))
        } else {
            Ok(())
        }
    }

    /// Renames the draft to its target, with the permissions of `like` if given. The data is
    /// durable before the rename; the rename is durable on return.
    ///
    /// # Errors
    /// A system call fails, or another file has taken the name of the draft or of the target.
    pub(super) fn finish(mut self, like: Option<&Metadata>) -> Result<(), StoreError> {
        let failed = |error| io_error("finishing", &self.target)(error);
        let file = self.file();
        let now = file.metadata().map_err(failed)?;
        if let Some(like) = like {
            if (now.uid(), now.gid()) != (like.uid(), like.gid()) {
                let chowned = std::os::unix::fs::fchown(file, Some(like.uid()), Some(like.gid()));
                // Only root can change the owner. A backup belongs to the user who makes it.
                if self.input.is_none() {
                    chowned.map_err(io_error("keeping the owner of", &self.target))?;
                }
            }
            file.set_permissions(like.permissions()).map_err(failed)?;
        }
        file.sync_all().map_err(failed)?;
        let _replaced = loop {
            let present = self.may_replace()?;
            if !is_named(file, &self.path).map_err(failed)? {
                let other = "another file has taken the name of its draft";
                return Err(failed(io::Error::other(other)));
            }
            let renamed = if present.is_some() {
                std::fs::rename(&self.path, &self.target)
            } else {
                rename_to_new(&self.path, &self.target)
            };
            match renamed {
                // Another process has created the target meanwhile, and may have it open.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.replaces => {}
                renamed => break renamed.map(|()| present).map_err(failed)?,
            }
        };
        // Locked until the rename is durable: no other process commits to it before.
        let _locked = self.file.take();
        let folder = File::open(self.folder());
        let synced = folder.and_then(|folder| folder.sync_all());
        synced.map_err(io_error("making durable the name of", &self.target))
    }
}

/// A file that a draft replaces, locked if the draft is made from another file.
struct Present {
    _locked: Option<Disk>,
}

/// Creates the locked file of a draft, readable only by its owner. Removes an existing draft if its
/// process was killed.
fn make(path: &Path) -> Result<File, StoreError> {
    let create = || {
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(0o600);
        options.open(path)
    };
    let made = match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // A draft is locked while its process lives, so only an abandoned one is removed.
            let _left = Disk::open(path, false, false)?;
            let removed = std::fs::remove_file(path);
            removed.map_err(io_error("removing the unfinished", path))?;
            create()
        }
        other => other,
    };
    let file = made.map_err(io_error("opening", path))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) if is_named(&file, path).map_err(io_error("opening", path))? => Ok(file),
        // Another process found and opened the file before it was locked.
        Ok(()) | Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::in_use(path)),
        Err(error) => Err(io_error("locking", path)(error.into())),
    }
}

/// Renames a file, unless the new name exists.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    let flags = rustix::fs::RenameFlags::NOREPLACE;
    match rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags) {
        // The file system does not support this. The target did not exist a moment ago.
        Err(rustix::io::Errno::INVAL) => std::fs::rename(from, to),
        other => other.map_err(io::Error::from),
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let file = self.file.as_ref();
        if file.is_some_and(|file| matches!(is_named(file, &self.path), Ok(true))) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
