//! What commands share that make the runs of experiments: their files, threads and progress.

use super::{Failure, excerpt};
use flagstone_lab::inputs;
use flagstone_lab::reproduce::engine::Run;
use flagstone_lab::reproduce::execute::Step;
use flagstone_lab::reproduce::figures::ParseError;
use indicatif::ProgressBar;
use std::path::Path;

/// Reads a TOML file that a user wrote; an error shows the place.
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

/// As many threads as were asked for, or one a core.
pub(crate) fn threads(asked: Option<u16>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    asked.map_or_else(cores, usize::from)
}

/// Shows on a bar which run is made, and how many are.
pub(crate) fn shown_on(bar: &ProgressBar) -> impl Fn(&Run, Step) + Sync {
    |run, step| match step {
        Step::Started => bar.set_message(run.name()),
        // What was there already says nothing of the time that the others take.
        Step::Found => {
            bar.set_length(bar.length().unwrap_or(1).saturating_sub(1));
            bar.reset_eta();
        }
        Step::Done => bar.inc(1),
    }
}
