//! SQLite on stores. One program, so that SQLite is linked once.

mod connections;
mod power;
mod sql;
mod support;
