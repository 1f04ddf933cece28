//! Tests that run the command as users do.

mod bad_files;
mod bad_input;
mod compare;
mod encrypted;
mod explain;
mod over;
mod numbers;
mod outputs;
mod run;
mod settings;
mod store;
mod sweep;
mod trace;
mod useless;
