//! Entry points of the loadable extension, and functions for C.

use super::functions::{ForSql, Functions};
use super::register::{Registered, register, registered_at};
use super::rim;
use super::types::{Context, ERROR, OK, OK_LOAD_PERMANENTLY, Sqlite3, UTF8};
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// Registers the VFS with functions from SQLite's table, and adds a SQL function to the connection.
///
/// # Safety
/// `table` is SQLite's, or null; `db` is the connection that loads the extension, or null.
unsafe fn from_table(db: *mut Sqlite3, table: *const c_void, is_default: bool) -> c_int {
    rim(ERROR, || {
        if table.is_null() {
            return ERROR;
        }
        // SAFETY: as for this function.
        let Some(functions) = (unsafe { Functions::from_table(table) }) else {
            return ERROR;
        };
        // SAFETY: SQLite has called an extension, so it is initialised; the extension stays loaded.
        match unsafe { register(&functions, is_default) } {
            // SAFETY: as for this function, and SQLite is new enough.
            Ok(()) => unsafe { give_error_function(db, &functions, table) },
            Err(_) => ERROR,
        }
    })
}

/// State of `flagstone_error()`. A SQL function is not told which SQLite library calls it. So if a
/// process has several, only connections of the first one get the function.
struct ErrorFunction {
    /// The address of the [`Registered`], which is never freed.
    registered: usize,
    for_sql: ForSql,
}

static ERROR_FUNCTION: OnceLock<ErrorFunction> = OnceLock::new();

/// Adds `flagstone_error()` to a connection. It returns the newest error of the VFS, since a
/// connection that failed to open cannot be asked.
///
/// # Safety
/// `db` is a connection or null, `table` is SQLite's, and the VFS is registered.
unsafe fn give_error_function(
    db: *mut Sqlite3,
    functions: &Functions,
    table: *const c_void,
) -> c_int {
    // SAFETY: as for this function.
    unsafe {
        let Some(registered) = registered_at(functions).filter(|_| !db.is_null()) else {
            return OK;
        };
        let for_sql = ForSql::from_table(table);
        let registered = std::ptr::from_ref(registered) as usize;
        let known = ERROR_FUNCTION.get_or_init(|| ErrorFunction {
            registered,
            for_sql,
        });
        if known.registered != registered {
            return OK;
        }
        let name = c"flagstone_error".as_ptr();
        let own = std::ptr::null_mut();
        (for_sql.create_function)(db, name, 0, UTF8, own, Some(say_error), None, None, None)
    }
}

unsafe extern "C" fn say_error(context: *mut Context, _: c_int, _: *mut *mut c_void) {
    /// SQLite copies the text.
    const TRANSIENT: *mut c_void = usize::MAX as *mut c_void;
    rim((), || {
        let Some(own) = ERROR_FUNCTION.get() else {
            return;
        };
        // SAFETY: the address is that of what is never freed, and the functions are those of the
        // SQLite that calls: it was given to no other one.
        unsafe {
            let text = (*(own.registered as *const Registered)).errors.newest();
            let bytes = c_int::try_from(text.len()).unwrap_or(0);
            (own.for_sql.result_text)(context, text.as_ptr().cast(), bytes, TRANSIENT);
        }
    });
}

/// The default entry point. The library stays loaded when the connection is closed.
#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_extension_init(
    db: *mut Sqlite3,
    _: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    // SAFETY: SQLite calls with its table.
    match unsafe { from_table(db, table, false) } {
        OK => OK_LOAD_PERMANENTLY,
        code => code,
    }
}

/// The same entry point, under the name that SQLite derives from the file name.
#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_flagstonesqlite_init(
    db: *mut Sqlite3,
    message: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    // SAFETY: SQLite calls with its table.
    unsafe { sqlite3_extension_init(db, message, table) }
}

/// Also makes the VFS the default, for programs whose connections name no VFS.
#[unsafe(no_mangle)]
unsafe extern "C" fn flagstone_sqlite_default_init(
    db: *mut Sqlite3,
    _: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    // SAFETY: SQLite calls with its table.
    match unsafe { from_table(db, table, true) } {
        OK => OK_LOAD_PERMANENTLY,
        code => code,
    }
}

/// For `sqlite3_auto_extension` of a linked SQLite: the first connection registers the VFS.
///
/// # Safety
/// SQLite calls it, with its table of functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flagstone_sqlite_auto_extension(
    db: *mut Sqlite3,
    _: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    // SAFETY: SQLite calls with its table.
    unsafe { from_table(db, table, false) }
}

/// Registers the VFS with functions filled in by C code, see `include/flagstone_sqlite.h`. Returns
/// 0, or 1 if SQLite refuses.
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
