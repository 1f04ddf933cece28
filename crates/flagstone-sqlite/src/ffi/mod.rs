//! SQLite's side: everything that is unsafe.
//!
//! Nothing here decides. Structures, constants and the places of functions in SQLite's table are
//! those of its headers (`sqlite3.h`, `sqlite3ext.h`). SQLite keeps their order and layout. A test
//! compares the places with a SQLite that is linked. No panic crosses into SQLite.

mod extension;
mod functions;
mod hooks;
mod io;
mod register;
mod threads;
mod types;

pub use extension::flagstone_sqlite_auto_extension;
pub use functions::Functions;
pub use register::{register, register_as};
pub(crate) use threads::Movable;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls a function, and answers `otherwise` if it panics.
fn rim<T>(otherwise: T, act: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(otherwise)
}
