//! How SQLite finds the VFS: entry points of an extension that is loaded, and functions for C.

use super::functions::Functions;
use super::register::register;
use super::rim;
use super::types::{ERROR, OK, OK_LOAD_PERMANENTLY, Sqlite3};
use std::ffi::{c_char, c_int, c_void};

/// Registers with the functions of SQLite's table.
///
/// # Safety
/// `table` is SQLite's, or null.
unsafe fn from_table(table: *const c_void, is_default: bool) -> c_int {
    rim(ERROR, || {
        if table.is_null() {
            return ERROR;
        }
        // SAFETY: as for this function.
        let functions = unsafe { Functions::from_table(table) };
        // SAFETY: SQLite has called an extension, so it is initialised; the extension stays loaded.
        match functions.map(|functions| unsafe { register(&functions, is_default) }) {
            Some(Ok(())) => OK,
            _ => ERROR,
        }
    })
}

/// What SQLite calls when the library is loaded. It stays loaded when the connection is closed.
#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_extension_init(
    _: *mut Sqlite3,
    _: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    // SAFETY: SQLite calls with its table.
    match unsafe { from_table(table, false) } {
        OK => OK_LOAD_PERMANENTLY,
        code => code,
    }
}

/// The same by the name that SQLite makes of the name of the file.
#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_flagstonesqlite_init(
    db: *mut Sqlite3,
    message: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    // SAFETY: SQLite calls with its table.
    unsafe { sqlite3_extension_init(db, message, table) }
}

/// The same, and makes the VFS the default: for programs whose connections do not name one.
#[unsafe(no_mangle)]
unsafe extern "C" fn flagstone_sqlite_default_init(
    _: *mut Sqlite3,
    _: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    // SAFETY: SQLite calls with its table.
    match unsafe { from_table(table, true) } {
        OK => OK_LOAD_PERMANENTLY,
        code => code,
    }
}

/// For `sqlite3_auto_extension` of a SQLite that is linked: the first connection registers the VFS.
///
/// # Safety
/// SQLite calls it, with its table of functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flagstone_sqlite_auto_extension(
    _: *mut Sqlite3,
    _: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    // SAFETY: SQLite calls with its table.
    unsafe { from_table(table, false) }
}

/// Registers with functions that C has filled in: see `include/flagstone_sqlite.h`. Returns 0, or 1
/// if SQLite refuses.
#[unsafe(no_mangle)]
unsafe extern "C" fn flagstone_sqlite_register_functions(
    functions: *const Functions,
    is_default: c_int,
) -> c_int {
    rim(ERROR, || {
        // SAFETY: the header fills in all functions of one SQLite, which is linked.
        match unsafe { register(&*functions, is_default != 0) } {
            Ok(()) => OK,
            Err(_) => ERROR,
        }
    })
}
