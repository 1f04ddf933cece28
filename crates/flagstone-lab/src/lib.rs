//! Experiments on the library: traces, workloads, replay in virtual time, power-cut campaigns.
//!
//! A [`device`] is what all of it runs on. In the order of the data's flow: a [`trace`] is recorded
//! or imported, [`tpcc`] makes the transactions that are recorded, a [`workload`] is drawn from a
//! seed instead. [`steady`] brings a device into the state in which it is measured and [`image`]
//! keeps that state in a file. [`replay`] plays transactions and counts what they cost. [`closed`]
//! drives clients over a whole database. A [`life`] takes a year on cells that age. A [`campaign`]
//! cuts the power under protocols, databases and indexes, and [`stores`] cuts it under stores on a
//! medium. A [`witness`] tells what a machine that lost its power had committed. [`indexing`] runs
//! indexes under workloads of keys. [`reproduce`] holds what the papers publish against runs of the
//! same experiments, and a [`sweep`] varies the settings of one over a grid or a sample. An
//! [`output`] is a file that a result goes to, whole or not at all. A [`stopwatch`] tells what our
//! own code takes. What takes long can be asked to [`stop`], and says by its [`effort`] how far it
//! is.
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
