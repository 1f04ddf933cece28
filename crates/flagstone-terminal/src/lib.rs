//! How Flagstone's programs speak on a terminal, and where there is none: [`progress()`], results
//! ([`say`]), and errors ([`Failure`]) with their exit codes.
#![forbid(unsafe_code)]

mod failure;
mod progress;

pub use failure::{Failure, NOT_DONE, excerpt, note, say, unless_closed};
pub use progress::{progress, progress_bar};
