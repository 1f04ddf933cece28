//! Super-journals of commits in progress, and those left by killed processes.
//!
//! A process that is killed while it commits in several stores leaves its super-journal: no journal
//! on disk names it, so SQLite never finds it during recovery. The next process that creates one
//! with the same name, except for the number, removes it. A super-journal that a living process
//! still needs is locked.

use super::super_journal::remove_unnamed;
use flagstone_store::medium::is_named;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Number of hexadecimal digits that SQLite appends to the database name and `-mj`.
const DIGITS: usize = 9;

/// The super-journals of this process, and the databases whose old ones it has removed.
#[derive(Debug, Default)]
pub(crate) struct LiveSuperJournals {
    /// The open files, which keep the locks.
    files: Vec<(PathBuf, File)>,
    cleared: Vec<Vec<u8>>,
}

impl LiveSuperJournals {
    /// Locks a super-journal that was just created. Returns whether it still exists: another
    /// process may have taken it for an abandoned one.
    pub(crate) fn begin(&mut self, path: &Path) -> bool {
        let Some(file) = lock(path) else {
            return false;
        };
        self.files.push((path.to_path_buf(), file));
        let name = path.as_os_str().as_bytes();
        let stem = &name[..name.len().saturating_sub(DIGITS)];
        if stem.ends_with(b"-mj") && !self.cleared.iter().any(|known| known == stem) {
            self.cleared.push(stem.to_vec());
            remove_left(path, stem);
        }
        true
    }

    /// Releases a super-journal that is not needed any more.
    pub(crate) fn end(&mut self, path: &Path) {
        self.files.retain(|(live, _)| live != path);
    }
}

/// Opens and locks a file, unless it is locked elsewhere or was renamed or removed.
fn lock(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    file.try_lock().ok()?;
    is_named(&file, path).ok()?.then_some(file)
}

/// Removes super-journals with the prefix `stem` that no process locks and no journal names.
fn remove_left(own: &Path, stem: &[u8]) {
    let folder = own.parent().unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let digits = path.as_os_str().as_bytes().strip_prefix(stem);
        let is_one = digits.is_some_and(|digits| {
            digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit)
        });
        if is_one && let Some(_locked) = lock(&path) {
            remove_unnamed(&path);
        }
    }
}
