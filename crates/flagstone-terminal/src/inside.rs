//! Runs a command inside another program: its results, notes and progress go to that program, not
//! to a terminal or file.
//!
//! ```
//! use flagstone_terminal::{Inside, inside, note, say};
//!
//! let program = Inside::default();
//! inside(&program, || {
//!     say("a result");
//!     note("a note");
//! });
//! assert_eq!(program.results(), "a result\n");
//! assert_eq!(program.notes(), ["a note"]);
//! ```

use indicatif::ProgressBar;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The output of a command so far. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Inside(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    results: String,
    notes: Vec<String>,
    bar: Option<ProgressBar>,
}

/// The progress of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// What is counted, or done at present.
    pub what: String,
    /// The amount done.
    pub done: u64,
    /// The total amount; `None` if unknown.
    pub all: Option<u64>,
}

thread_local! {
    static INSIDE: RefCell<Option<Inside>> = const { RefCell::new(None) };
}

impl Inside {
    /// The standard output so far.
    pub fn results(&self) -> String {
        std::mem::take(&mut self.said().results)
    }

    /// The lines of standard error.
    pub fn notes(&self) -> Vec<String> {
        std::mem::take(&mut self.said().notes)
    }

    /// The progress of the command; `None` before it reports any.
    pub fn progress(&self) -> Option<Progress> {
        let bar = self.said().bar.clone()?;
        Some(Progress {
            what: bar.message(),
            done: bar.position(),
            all: bar.length().filter(|&all| all > 0),
        })
    }

    /// Adds output.
    pub(crate) fn say(&self, line: &str) {
        let mut said = self.said();
        said.results.push_str(line);
        said.results.push('\n');
    }

    /// Adds a note.
    pub(crate) fn note(&self, line: &str) {
        self.said().notes.push(line.to_string());
    }

    /// A progress bar that is visible only through [`Inside::progress`].
    pub(crate) fn bar(&self) -> ProgressBar {
        let bar = ProgressBar::hidden();
        bar.unset_length();
        self.said().bar = Some(bar.clone());
        bar
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a command on this thread for another program.
pub fn inside<T>(program: &Inside, command: impl FnOnce() -> T) -> T {
    let before = INSIDE.replace(Some(program.clone()));
    let _after = Restore(before);
    command()
}

/// The program for which this thread runs a command.
pub(crate) fn program() -> Option<Inside> {
    INSIDE.with_borrow(Clone::clone)
}

/// Restores the previous program, even if the command unwinds.
struct Restore(Option<Inside>);

impl Drop for Restore {
    fn drop(&mut self) {
        INSIDE.set(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{progress_bar, say};

    #[test]
    fn a_program_sees_how_far_its_command_is() {
        let program = Inside::default();
        assert_eq!(program.progress(), None);
        inside(&program, || {
            let bar = progress_bar(10, "counting");
            bar.inc(3);
            let all = Some(10);
            let what = "counting".to_string();
            let so_far = Progress { what, done: 3, all };
            assert_eq!(program.progress(), Some(so_far));
            bar.set_length(0);
            assert_eq!(program.progress().and_then(|so_far| so_far.all), None);
        });
    }

    #[test]
    fn commands_inside_do_not_mix() {
        let (outer, inner) = (Inside::default(), Inside::default());
        inside(&outer, || {
            inside(&inner, || say("inner"));
            say("outer");
        });
        assert_eq!(&*outer.results(), "outer\n");
        assert_eq!(&*inner.results(), "inner\n");
        assert!(program().is_none());
    }
}
