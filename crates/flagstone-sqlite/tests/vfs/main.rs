//! SQLite on stores. One program, so that SQLite is linked once.

mod connections;
mod lab;
mod power;
mod sql;
mod support;
