//! Flagstone on real media.
//!
//! What the library forbids itself lives here: files, threads, the clock.
#![forbid(unsafe_code)]

mod aligned;
mod file;
mod workers;

pub use file::{FileOptions, FileStore, OpenError};
