//! Compares the claims of five papers with runs of the same experiments.
//!
//! [`indexing`] runs indexes under key workloads. [`reproduce`] judges the papers' claims, and a
//! [`sweep`] varies the settings of one experiment over a grid or a sample.
#![forbid(unsafe_code)]

pub mod indexing;
pub mod reproduce;
pub mod sweep;
#[doc(hidden)]
pub mod fuzzing;
