//! The interface to SQLite. Contains all unsafe code.
//!
//! There is no logic here. Structures, constants and table indices are those of SQLite's headers
//! (`sqlite3.h`, `sqlite3ext.h`), whose order and layout SQLite keeps stable. A test compares the
//! indices with a linked SQLite. Panics do not unwind into SQLite.

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

/// Calls `act`. Returns `otherwise` if it panics.
fn rim<T>(otherwise: T, act: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(otherwise)
}
