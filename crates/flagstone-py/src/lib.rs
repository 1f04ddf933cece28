//! The native part of the Python package `flagstone`: commands of the program, run inside Python,
//! and the entry points by which SQLite loads the VFS from this same file.
//!
//! What users call is in `python/flagstone`, with its types and examples; `_native.pyi` says what
//! is here.

mod blocks;
mod bytes;
mod command;
mod errors;
mod owned;
mod store;
mod sweeps;

// Its entry points are exported from this library: SQLite finds `sqlite3_extension_init` here.
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
    use super::store::{PyReadTx, PySavepoint, PyStore, PyWriteTx, rekey};
    #[pymodule_export]
    use super::sweeps::{read_result, run_task};

    /// The version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
