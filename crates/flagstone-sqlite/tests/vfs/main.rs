//! SQLite on stores. One program, so that SQLite is linked once.

mod beside;
mod caches;
mod cipher;
mod connections;
mod errors;
mod forked;
mod golden;
mod groups;
mod held;
mod idle;
mod journals;
mod keys;
mod left;
mod others;
mod lab;
mod panics;
mod power;
mod smaller;
mod sql;
mod support;
mod temporary;
mod thin;
mod together;
mod waiting;
