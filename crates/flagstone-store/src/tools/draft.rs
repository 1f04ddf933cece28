//! A new store under a hidden name, which it exchanges for its own when it is whole.

use crate::error::StoreError;
use crate::medium::Disk;
use crate::pages::OpenOptions;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that is to be a store. Dropped before its end, it is gone; a process that is killed
/// leaves it, and the next draft of the same store removes it.
#[derive(Debug)]
pub(super) struct Draft {
    path: PathBuf,
    target: PathBuf,
    /// The store that is copied, and what is at the target may be replaced.
    input: Option<PathBuf>,
    replaces: bool,
    is_finished: bool,
    /// It has the key of the new store.
    opening: OpenOptions,
}

fn io_error(what: &str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let what = format!("{what} {}", path.display());
    move |error| StoreError::io(what, error)
}

impl Draft {
    /// A draft for `target`, which must not be there unless it may be replaced, and never is
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
                    "this symbolic link leads nowhere; name a file".into(),
                ));
            }
            Err(_) => target.to_path_buf(),
        };
        let name = resolved.file_name();
        let name = name.ok_or_else(|| refuse("this is no name of a file".into()))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(".draft");
        let mut draft = Draft {
            path: resolved.with_file_name(hidden),
            target: resolved,
            input: input.map(Path::to_path_buf),
            replaces,
            is_finished: true,
            opening: opening.clone(),
        };
        draft.may_replace()?;
        if !draft.folder().is_dir() {
            let folder = draft.folder().display();
            return Err(refuse(format!("there is no folder {folder}")));
        }
        if draft.path.exists() {
            // Of a process that was killed, unless that one lives.
            drop(Disk::open(&draft.path, false, false)?);
            let removed = std::fs::remove_file(&draft.path);
            removed.map_err(io_error("removing the unfinished", &draft.path))?;
        }
        draft.is_finished = false;
        Ok(draft)
    }

    /// Whether what is at the target now, if anything, can be replaced.
    fn may_replace(&self) -> Result<(), StoreError> {
        let refuse = |why: &str| {
            Err(StoreError::Options(format!(
                "{}: {why}",
                self.target.display()
            )))
        };
        let Ok(there) = std::fs::metadata(&self.target) else {
            return Ok(());
        };
        if let Some(input) = &self.input {
            let input = std::fs::metadata(input).map_err(io_error("looking at", input))?;
            if (input.dev(), input.ino()) == (there.dev(), there.ino()) {
                return refuse("this is the store that is read; name another file");
            }
        }
        match (there.is_file(), self.replaces) {
            (false, _) => refuse("there is something that is no regular file; name another"),
            (true, false) => refuse("there is a file already; `--force` replaces it"),
            (true, true) if self.input.is_some() => {
                // A store that somebody has open is not to be replaced under him.
                drop(Disk::open(&self.target, false, true)?);
                Ok(())
            }
            (true, true) => Ok(()),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Options for the new store, with its key.
    pub(super) fn keyed(&self, options: OpenOptions) -> OpenOptions {
        options.with_key_of(&self.opening)
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// Whether the file system has so many bytes left.
    ///
    /// # Errors
    /// It has not.
    pub(super) fn has_room(&self, bytes: u64) -> Result<(), StoreError> {
        let Ok(system) = rustix::fs::statvfs(self.folder()) else {
            return Ok(());
        };
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        match free < bytes {
            true => Err(StoreError::Full(format!(
                "the new file takes {bytes} bytes in {}, and {free} are free there; nothing was \
                 changed",
                self.folder().display()
            ))),
            false => Ok(()),
        }
    }

    /// Gives the store its name, with the rights of another file if there is one. It is durable
    /// before, and its name is afterwards.
    pub(super) fn finish(mut self, like: Option<&Metadata>) -> Result<(), StoreError> {
        let failed = |error| io_error("finishing", &self.target)(error);
        let file = File::open(&self.path).map_err(failed)?;
        let now = file.metadata().map_err(failed)?;
        if let Some(like) = like {
            file.set_permissions(like.permissions()).map_err(failed)?;
            if (now.uid(), now.gid()) != (like.uid(), like.gid()) {
                let chowned = std::os::unix::fs::fchown(&file, Some(like.uid()), Some(like.gid()));
                // Only root can give a file away. A backup belongs to whoever makes it.
                if self.input.is_none() {
                    chowned.map_err(io_error("keeping the owner of", &self.target))?;
                }
            }
        }
        file.sync_all().map_err(failed)?;
        self.may_replace()?;
        let renamed = match self.replaces {
            true => std::fs::rename(&self.path, &self.target),
            // Somebody else may have made a file there meanwhile.
            false => rename_to_new(&self.path, &self.target),
        };
        renamed.map_err(failed)?;
        self.is_finished = true;
        let folder = File::open(self.folder());
        let synced = folder.and_then(|folder| folder.sync_all());
        synced.map_err(io_error("making durable the name of", &self.target))
    }
}

/// Renames a file unless there is one of that name.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    let flags = rustix::fs::RenameFlags::NOREPLACE;
    match rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags) {
        // A file system that cannot: it was not there a moment ago.
        Err(rustix::io::Errno::INVAL) => std::fs::rename(from, to),
        other => other.map_err(io::Error::from),
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
