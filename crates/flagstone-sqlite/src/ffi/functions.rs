//! SQLite's functions that the VFS calls.
//!
//! A loaded extension gets them as a table, `sqlite3_api_routines`. Its entries never move, since
//! SQLite only appends. A linked library gets them by name.

use super::types::{Context, Sqlite3, Statement, Vfs};
use std::ffi::{c_char, c_int, c_void};

/// Indices in `sqlite3_api_routines`.
mod place {
    pub(super) const LIBVERSION_NUMBER: usize = 67;
    pub(super) const MALLOC: usize = 68;
    pub(super) const RESULT_TEXT: usize = 85;
    pub(super) const FILE_CONTROL: usize = 127;
    pub(super) const VFS_FIND: usize = 141;
    pub(super) const VFS_REGISTER: usize = 142;
    pub(super) const NEXT_STMT: usize = 152;
    pub(super) const CREATE_FUNCTION_V2: usize = 162;
    pub(super) const LOG: usize = 167;
    pub(super) const STMT_BUSY: usize = 184;
    pub(super) const STMT_READONLY: usize = 185;
    pub(super) const URI_PARAMETER: usize = 189;
    pub(super) const TXN_STATE: usize = 252;
    pub(super) const DB_NAME: usize = 264;
}

/// The first version that has `sqlite3_txn_state`.
const TXN_STATE_SINCE: c_int = 3_034_000;
/// The first version that has `sqlite3_db_name`.
const DB_NAME_SINCE: c_int = 3_039_000;
/// The oldest supported version.
const OLDEST: c_int = 3_020_000;

type VfsFind = unsafe extern "C" fn(*const c_char) -> *mut Vfs;
type VfsRegister = unsafe extern "C" fn(*mut Vfs, c_int) -> c_int;
type Malloc = unsafe extern "C" fn(c_int) -> *mut c_void;
type FileControl = unsafe extern "C" fn(*mut Sqlite3, *const c_char, c_int, *mut c_void) -> c_int;
type UriParameter = unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char;
type Log = unsafe extern "C" fn(c_int, *const c_char, ...);
type DbName = unsafe extern "C" fn(*mut Sqlite3, c_int) -> *const c_char;
type TxnState = unsafe extern "C" fn(*mut Sqlite3, *const c_char) -> c_int;
type NextStmt = unsafe extern "C" fn(*mut Sqlite3, *mut Statement) -> *mut Statement;
type AskStmt = unsafe extern "C" fn(*mut Statement) -> c_int;
type Implementation = unsafe extern "C" fn(*mut Context, c_int, *mut *mut c_void);
type CreateFunction = unsafe extern "C" fn(
    *mut Sqlite3,
    *const c_char,
    c_int,
    c_int,
    *mut c_void,
    Option<Implementation>,
    Option<Implementation>,
    Option<unsafe extern "C" fn(*mut Context)>,
    Option<unsafe extern "C" fn(*mut c_void)>,
) -> c_int;
type ResultText = unsafe extern "C" fn(*mut Context, *const c_char, c_int, *mut c_void);
type LibversionNumber = unsafe extern "C" fn() -> c_int;

/// The functions of one SQLite library. In C: `flagstone_sqlite_functions`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Functions {
    /// `sqlite3_vfs_find`
    pub vfs_find: VfsFind,
    /// `sqlite3_vfs_register`
    pub vfs_register: VfsRegister,
    /// `sqlite3_malloc`
    pub malloc: Malloc,
    /// `sqlite3_file_control`
    pub file_control: FileControl,
    /// `sqlite3_uri_parameter`
    pub uri_parameter: UriParameter,
    /// `sqlite3_log`
    pub log: Log,
    /// `sqlite3_db_name`, since SQLite 3.39. Without it, attached databases get no reserved bytes.
    pub db_name: Option<DbName>,
    /// `sqlite3_txn_state`, since SQLite 3.34. Without it, or without `db_name`, a transaction over
    /// several databases is recognised only by its super-journal.
    pub txn_state: Option<TxnState>,
    /// `sqlite3_next_stmt`
    pub next_stmt: NextStmt,
    /// `sqlite3_stmt_busy`
    pub stmt_busy: AskStmt,
    /// `sqlite3_stmt_readonly`
    pub stmt_readonly: AskStmt,
}

impl Functions {
    /// Reads the functions from SQLite's table. `None` if that SQLite is older than 3.20.
    ///
    /// # Safety
    /// `table` is the `sqlite3_api_routines` that SQLite gives to extensions.
    pub(super) unsafe fn from_table(table: *const c_void) -> Option<Functions> {
        use std::mem::transmute;
        type Entry = *const c_void;
        let table = table.cast::<Entry>();
        // SAFETY: the table has at least the entries of SQLite 3.20, all of them pointers to
        // functions, and those at these places have these types in sqlite3ext.h. An entry of a
        // later version is read if SQLite is that version.
        unsafe {
            let entry = |place: usize| *table.add(place);
            let version = transmute::<Entry, LibversionNumber>(entry(place::LIBVERSION_NUMBER))();
            if version < OLDEST {
                return None;
            }
            let txn_state = (version >= TXN_STATE_SINCE).then(|| entry(place::TXN_STATE));
            let db_name = (version >= DB_NAME_SINCE).then(|| entry(place::DB_NAME));
            Some(Functions {
                vfs_find: transmute::<Entry, VfsFind>(entry(place::VFS_FIND)),
                vfs_register: transmute::<Entry, VfsRegister>(entry(place::VFS_REGISTER)),
                malloc: transmute::<Entry, Malloc>(entry(place::MALLOC)),
                file_control: transmute::<Entry, FileControl>(entry(place::FILE_CONTROL)),
                uri_parameter: transmute::<Entry, UriParameter>(entry(place::URI_PARAMETER)),
                log: transmute::<Entry, Log>(entry(place::LOG)),
                db_name: db_name.map(|entry| transmute::<Entry, DbName>(entry)),
                txn_state: txn_state.map(|entry| transmute::<Entry, TxnState>(entry)),
                next_stmt: transmute::<Entry, NextStmt>(entry(place::NEXT_STMT)),
                stmt_busy: transmute::<Entry, AskStmt>(entry(place::STMT_BUSY)),
                stmt_readonly: transmute::<Entry, AskStmt>(entry(place::STMT_READONLY)),
            })
        }
    }
}

/// Functions for implementing a SQL function, available only to loaded extensions.
#[derive(Clone, Copy)]
pub(super) struct ForSql {
    pub(super) create_function: CreateFunction,
    pub(super) result_text: ResultText,
}

impl ForSql {
    /// Reads the functions from SQLite's table.
    ///
    /// # Safety
    /// As for [`Functions::from_table`], which has found that SQLite to be new enough.
    pub(super) unsafe fn from_table(table: *const c_void) -> ForSql {
        use std::mem::transmute;
        type Entry = *const c_void;
        // SAFETY: the table has these entries, with these types in sqlite3ext.h.
        unsafe {
            let entry = |place: usize| *table.cast::<Entry>().add(place);
            ForSql {
                create_function: transmute::<Entry, CreateFunction>(entry(
                    place::CREATE_FUNCTION_V2,
                )),
                result_text: transmute::<Entry, ResultText>(entry(place::RESULT_TEXT)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
