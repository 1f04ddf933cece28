//! The command as its users run it.

mod bad_input;
mod compare;
mod trace;
