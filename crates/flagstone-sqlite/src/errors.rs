//! The last error of each file, with its text: SQLite itself reports only a code.
//!
//! An error is kept until the failed operation succeeds: opening the store, or a commit in it.

use crate::bytes::{Trouble, TroubleKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Maximum number of files with errors; the oldest are dropped.
const FILES_MAX: usize = 64;

#[derive(Debug)]
struct Noted {
    path: PathBuf,
    text: String,
    /// The error is over when the store is open.
    is_of_opening: bool,
    /// Whether opening failed, so that no connection exists that could ask for the error.
    is_refused: bool,
}

/// The operation that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    /// A connection was refused.
    Connecting,
    /// The first lock of a transaction, which opens the store.
    Opening,
    /// Anything else.
    Using,
}

/// The last error of each file, newest last.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    noted: Mutex<Vec<Noted>>,
    /// Avoids the mutex if there is no error.
    has_any: AtomicBool,
}

impl Errors {
    fn list(&self) -> MutexGuard<'_, Vec<Noted>> {
        self.noted.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Records an error. Returns its text with the file name, and whether it differs from the
    /// file's previous error.
    pub(crate) fn note(&self, path: &Path, trouble: &Trouble, failed: Failed) -> (String, bool) {
        let shown = path.to_string_lossy();
        let text = if trouble.why.contains(&*shown) {
            trouble.why.clone()
        } else {
            format!("{shown}: {}", trouble.why)
        };
        let noted = Noted {
            path: path.to_path_buf(),
            text: text.clone(),
            is_of_opening: failed != Failed::Using
                || matches!(
                    trouble.kind,
                    TroubleKind::Busy
                        | TroubleKind::CannotOpen
                        | TroubleKind::Denied
                        | TroubleKind::NotAStore
                ),
            is_refused: failed == Failed::Connecting,
        };
        let mut list = self.list();
        let before = list.iter().position(|noted| noted.path == path);
        let before = before.map(|at| list.remove(at));
        if list.len() == FILES_MAX {
            list.remove(0);
        }
        list.push(noted);
        self.has_any.store(true, Ordering::Release);
        let is_new = before.is_none_or(|before| before.text != text);
        (text, is_new)
    }

    /// The last error of the file; otherwise the newest error of a file that could not be opened.
    /// Empty if there is none.
    pub(crate) fn of(&self, path: &Path) -> String {
        let list = self.list();
        let own = list.iter().find(|noted| noted.path == path);
        let found = own.or_else(|| list.iter().rev().find(|noted| noted.is_refused));
        found.map_or(String::new(), |noted| noted.text.clone())
    }

    /// The newest error of all files.
    pub(crate) fn newest(&self) -> String {
        let list = self.list();
        list.last()
            .map_or(String::new(), |noted| noted.text.clone())
    }

    /// Records that a connection to a path was closed, for example after a failed `ATTACH`: another
    /// connection may then ask for its error.
    pub(crate) fn closed(&self, path: &Path) {
        if self.has_any.load(Ordering::Acquire) {
            let mut list = self.list();
            let noted = list.iter_mut().find(|noted| noted.path == path);
            if let Some(noted) = noted.filter(|noted| noted.is_of_opening) {
                noted.is_refused = true;
            }
        }
    }

    /// Clears the opening error of a path: its store is open.
    pub(crate) fn opened(&self, path: &Path) {
        self.forget(|noted| noted.path == path && noted.is_of_opening);
    }

    /// Clears the errors of a path: a transaction has committed.
    pub(crate) fn committed(&self, path: &Path) {
        self.forget(|noted| noted.path == path);
    }

    fn forget(&self, is_over: impl Fn(&Noted) -> bool) {
        if self.has_any.load(Ordering::Acquire) {
            let mut list = self.list();
            list.retain(|noted| !is_over(noted));
            self.has_any.store(!list.is_empty(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_file_and_stays_until_what_failed_succeeds() {
        let (errors, a, b) = (Errors::default(), Path::new("/a"), Path::new("/b"));
        let busy = Trouble::new(TroubleKind::Busy, "/a is in use by process 7");
        let full = Trouble::new(TroubleKind::Full, "the store is full");
        let text = "/a is in use by process 7".to_string();
        assert_eq!(errors.note(a, &busy, Failed::Using), (text.clone(), true));
        assert_eq!(errors.note(a, &busy, Failed::Using), (text.clone(), false));
        let of_b = "/b: the store is full".to_string();
        assert_eq!(errors.note(b, &full, Failed::Using), (of_b.clone(), true));
        assert_eq!((errors.of(a), errors.of(b)), (text, of_b.clone()));
        errors.opened(a);
        errors.opened(b);
        assert_eq!((errors.of(a), errors.newest()), (String::new(), of_b));
        errors.committed(b);
        assert_eq!(
            (errors.of(b), errors.newest()),
            <(String, String)>::default()
        );
        // An error without a connection.
        errors.note(b, &busy, Failed::Connecting);
        assert_eq!(errors.of(a), "/b: /a is in use by process 7");
        for number in 0..2 * FILES_MAX {
            errors.note(Path::new(&format!("/{number}")), &full, Failed::Using);
        }
        assert_eq!(errors.list().len(), FILES_MAX);
    }
    /// Fails if an error of an opening stays after the store was opened, or if the opening ends an
    /// error of another operation.
    #[test]
    fn an_error_of_any_kind_is_over_with_what_failed() {
        let (errors, path) = (Errors::default(), Path::new("/a"));
        for kind in [TroubleKind::Damaged, TroubleKind::Full, TroubleKind::Io] {
            let trouble = Trouble::new(kind, "something is wrong");
            for failed in [Failed::Connecting, Failed::Opening, Failed::Using] {
                errors.note(path, &trouble, failed);
                errors.opened(path);
                assert_eq!(errors.of(path).is_empty(), failed != Failed::Using);
                errors.committed(path);
                assert_eq!(errors.of(path), "");
            }
        }
    }
}
