//! The claims of five papers, held against runs of the same experiments.
//!
//! [`indexing`] runs indexes under key workloads. [`reproduce`] compares the papers' claims with
//! runs of the same experiments, and a [`sweep`] varies the settings of one over a grid or a
//! sample.
#![forbid(unsafe_code)]

pub mod indexing;
pub mod reproduce;
pub mod sweep;
#[doc(hidden)]
pub mod fuzzing;
