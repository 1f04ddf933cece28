//! Terminal interface of Flagstone's programs: progress ([`progress()`]), results ([`say`]), the
//! width of the terminal ([`width`]), and errors ([`Failure`]) with their exit codes. A command
//! [`inside`] another program passes all output to that program.
#![forbid(unsafe_code)]

mod arguments;
mod failure;
mod inside;
mod progress;

pub use arguments::{arguments, arguments_with, parsed};
pub use failure::{Failure, NOT_DONE, excerpt, note, say, unless_closed};
pub use inside::{Inside, Progress, inside};
pub use progress::{progress, progress_bar, share_bar};

/// Columns of the terminal on standard output; `None` for a file or pipe.
pub fn width() -> Option<u16> {
    let (_, columns) = console::Term::stdout().size_checked()?;
    Some(columns)
}
