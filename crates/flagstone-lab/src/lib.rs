//! Experiments on the library: device files, traces, workloads, and replay in virtual time.
//!
//! Everything runs on a [`device`]. In the order of data flow: a [`trace`] is recorded or imported,
//! [`tpcc`] creates transactions for recording, and a [`workload`] is drawn from a seed. [`steady`]
//! brings a device into its steady state for measuring, and [`image`] saves that state in a file.
//! [`replay`] plays transactions and counts their cost. [`closed`] runs clients over a complete
//! database. [`ranking`] compares the results of runs. A [`life`] simulates a year on aging cells.
//! An [`output`] is a result file, written atomically. A [`stopwatch`] measures our own code. Long
//! work can be asked to [`stop`], and reports its progress by its [`effort`].
//!
//! Power cuts are in `flagstone-campaign`, the papers' claims in `flagstone-papers`.
#![forbid(unsafe_code)]

pub mod names;
pub mod quiet;
pub mod inputs;
pub mod occupied;
pub mod output;
pub mod stop;
pub mod effort;
pub mod stopwatch;
pub mod device;
pub mod trace;
pub mod tpcc;
pub mod workload;
pub mod steady;
pub mod image;
pub mod driver;
pub mod replay;
pub mod chart;
pub mod closed;
pub mod ranking;
pub mod life;
#[doc(hidden)]
pub mod fuzzing;

pub use flagstone_names::{nearest, no_such};
