//! Shared code of commands that run experiments: input files, threads and progress.

use super::{Failure, excerpt, share_bar};
use flagstone_lab::effort::Effort;
use flagstone_lab::inputs;
use flagstone_papers::reproduce::engine::AnyRun;
use flagstone_papers::reproduce::execute::RunEvent;
use flagstone_papers::reproduce::figures::ParseError;
use std::path::Path;

/// Reads and parses a user's TOML file. An error quotes the line.
pub(crate) fn read<T>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, ParseError>,
) -> Result<T, Failure> {
    let text = inputs::text(path)
        .map_err(|error| Failure::Usage(format!("{} cannot be read: {error}", path.display())))?;
    parse(&text).map_err(|error| {
        let Some(at) = error.at.clone() else {
            return Failure::Usage(format!("{}: {error}", path.display()));
        };
        let (place, shown) = (path.display(), excerpt(&text, at));
        let failure = Failure::Usage(format!("{place}: {}\n{shown}", error.without_help()));
        match error.help {
            Some(help) => failure.tip(help),
            None => failure,
        }
    })
}

/// The number of threads: `asked`, or one for each core.
pub(crate) fn threads(asked: Option<u16>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    asked.map_or_else(cores, usize::from)
}

/// Runs `work` and shows a progress bar with the parts in progress.
pub(crate) fn watched<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let bar = share_bar(what);
    let (shown, what) = (bar.clone(), what.to_string());
    let effort = Effort::new(move |effort| {
        shown.set_length(effort.planned());
        shown.set_position(effort.done());
        shown.set_message(match effort.running() {
            running if running.is_empty() => what.clone(),
            running => format!("{what} ({running})"),
        });
    });
    let done = effort.watch(work);
    bar.finish_and_clear();
    done
}

/// An observer that ignores all events, for runs of which only the [`Effort`] is shown.
pub(crate) fn unheard(_: &AnyRun, _: RunEvent) {}
