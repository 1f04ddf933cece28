//! The native part of the Python package `flagstone`: commands of the program, run inside Python,
//! and the entry points by which SQLite loads the VFS from this same file.
//!
//! The public API is in `python/flagstone`, with types and examples; `_native.pyi` declares this
//! module.

mod blocks;
mod bytes;
mod command;
mod errors;
mod owned;
mod store;
mod sweeps;

// Exports `sqlite3_extension_init`, by which SQLite loads the VFS from this library.
use flagstone_sqlite as _;
use pyo3::prelude::*;

/// The native part of flagstone.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::blocks::Block;
    #[pymodule_export]
    use super::command::command;
    #[pymodule_export]
    use super::store::{PyPairs, PyReadTx, PySavepoint, PyStore, PyWriteTx, rekey};
    #[pymodule_export]
    use super::sweeps::{read_result, run_task};

    /// The version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
