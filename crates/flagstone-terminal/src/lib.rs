//! Terminal interface of Flagstone's programs: progress ([`progress()`]), results ([`say`],
//! [`plain_table`]), the width of the terminal ([`width`]), [`Examples`] in the help, and errors
//! ([`Failure`]) with their exit codes. A command [`inside`] another program passes all output to
//! that program.
#![forbid(unsafe_code)]

mod arguments;
mod examples;
mod failure;
mod inside;
mod progress;
mod values;

pub use arguments::{arguments, arguments_with, parsed};
pub use examples::Examples;
pub use failure::{Failure, NOT_DONE, excerpt, note, say, unless_closed};
pub use inside::{Inside, Progress, inside};
pub use progress::{progress, progress_bar, share_bar};
pub use values::{mebibytes, plain_table, unknown, with_unit};

/// Columns of the terminal on standard output; `None` for a file or pipe.
pub fn width() -> Option<u16> {
    let (_, columns) = console::Term::stdout().size_checked()?;
    Some(columns)
}
