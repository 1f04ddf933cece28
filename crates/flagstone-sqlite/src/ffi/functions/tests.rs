//! Compares the indices of functions with those of a linked SQLite.

use super::*;
use rusqlite::ffi;
use std::sync::Mutex;

static TABLE: Mutex<usize> = Mutex::new(0);

unsafe extern "C" fn look(
    _: *mut ffi::sqlite3,
    _: *mut *mut c_char,
    table: *const ffi::sqlite3_api_routines,
) -> c_int {
    *TABLE.lock().expect("one thread") = table as usize;
    0
}

/// Each index in SQLite's extension table must hold the function that is linked by name.
#[test]
fn the_places_are_those_of_a_real_table() {
    let table = {
        // SAFETY: `look` has the form of an extension.
        unsafe {
            ffi::sqlite3_auto_extension(Some(look));
        }
        drop(rusqlite::Connection::open_in_memory().expect("memory"));
        let table = *TABLE.lock().expect("one thread");
        assert_ne!(table, 0, "the extension was called");
        table as *const c_void
    };
    // SAFETY: it is SQLite's table.
    let found = unsafe { Functions::from_table(table) }.expect("it is new enough");
    let linked = crate::functions!(rusqlite::ffi);
    let places = |functions: &Functions| {
        [
            functions.vfs_find as usize,
            functions.vfs_register as usize,
            functions.malloc as usize,
            functions.file_control as usize,
            functions.uri_parameter as usize,
            functions.log as usize,
            functions.db_name.expect("it is new enough") as usize,
            functions.txn_state.expect("it is new enough") as usize,
            functions.next_stmt as usize,
            functions.stmt_busy as usize,
            functions.stmt_readonly as usize,
        ]
    };
    assert_eq!(places(&found), places(&linked));
    // SAFETY: it is SQLite's table.
    let found = unsafe { ForSql::from_table(table) };
    assert_eq!(
        [found.create_function as usize, found.result_text as usize],
        [
            ffi::sqlite3_create_function_v2 as *const () as usize,
            ffi::sqlite3_result_text as *const () as usize
        ]
    );
}
