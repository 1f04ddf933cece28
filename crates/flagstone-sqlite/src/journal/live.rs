//! Super-journals of transactions that are being committed, and those that killed processes left.
//!
//! A process that is killed while it commits in several stores leaves the super-journal: no journal
//! on disk names it, so nobody would find it when it plays one back. The next process that makes
//! one of the same name, but for its number, removes it. One that a living process still needs is
//! locked.

use super::super_journal::remove_unnamed;
use flagstone_store::medium::is_named;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Hexadecimal digits that SQLite puts behind the name of a database and `-mj`.
const DIGITS: usize = 9;

/// The super-journals that this process has, and the databases whose old ones it has removed.
#[derive(Debug, Default)]
pub(crate) struct LiveSuperJournals {
    /// Locked as long as they are open here.
    files: Vec<(PathBuf, File)>,
    cleared: Vec<Vec<u8>>,
}

impl LiveSuperJournals {
    /// Locks a super-journal that was just made. Returns whether it is still there: another process
    /// may have taken it for one that was left.
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

    /// A super-journal is not needed any more.
    pub(crate) fn end(&mut self, path: &Path) {
        self.files.retain(|(live, _)| live != path);
    }
}

/// Opens and locks a file, if nobody has it locked and it keeps its name.
fn lock(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    file.try_lock().ok()?;
    is_named(&file, path).ok()?.then_some(file)
}

/// Removes super-journals whose names begin with `stem`, that no process has and no journal names.
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
