//! How Flagstone's programs speak on a terminal, and where there is none: [`progress()`], results
//! ([`say`]), how wide they may be ([`width`]), and errors ([`Failure`]) with their exit codes.
//! A command [`inside`] another program says all of it to that program.
#![forbid(unsafe_code)]

mod arguments;
mod failure;
mod inside;
mod progress;

pub use arguments::{arguments, arguments_with, parsed};
pub use failure::{Failure, NOT_DONE, excerpt, note, say, unless_closed};
pub use inside::{Inside, Progress, inside};
pub use progress::{progress, progress_bar, share_bar};

/// Columns of the terminal that standard output is; none if it is a file or a pipe.
pub fn width() -> Option<u16> {
    let (_, columns) = console::Term::stdout().size_checked()?;
    Some(columns)
}
