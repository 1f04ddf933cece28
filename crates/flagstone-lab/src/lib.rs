//! Experiments on the library: traces, workloads, replay in virtual time, power-cut campaigns.
//!
//! Everything runs on a [`device`]. In the order of data flow: a [`trace`] is recorded or imported,
//! [`tpcc`] creates transactions for recording, and a [`workload`] is drawn from a seed. [`steady`]
//! brings a device into its steady state for measuring, and [`image`] saves that state in a file.
//! [`replay`] plays transactions and counts their cost. [`closed`] runs clients over a complete
//! database. A [`life`] simulates a year on aging cells. A [`campaign`] cuts the power under
//! protocols, databases and indexes; [`stores`] does so for stores on a medium. A [`witness`] tells
//! what a machine had committed before it lost its power. [`indexing`] runs indexes under key
//! workloads. [`reproduce`] compares the papers' claims with runs of the same experiments, and a
//! [`sweep`] varies the settings of one over a grid or a sample. An [`output`] is a result file,
//! written atomically. A [`stopwatch`] measures our own code. Long work can be asked to [`stop`],
//! and reports its progress by its [`effort`].
#![forbid(unsafe_code)]

mod names;
mod nearest;
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
pub mod life;
pub mod explain;
pub mod campaign;
pub mod stores;
pub mod witness;
pub mod indexing;
pub mod reproduce;
pub mod sweep;
#[doc(hidden)]
pub mod fuzzing;

pub use nearest::{nearest, no_such};
