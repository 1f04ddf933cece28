//! Queries SQLite about the connection that uses a file.
//!
//! SQLite tells each file where it stores that connection (SQLITE_FCNTL_PDB). The functions here
//! run inside SQLite's calls on this connection, under its mutex, which the same thread may lock
//! again.

use super::functions::Functions;
use super::io::Database;
use super::types::*;
use crate::bytes::{Trouble, TroubleKind};
use crate::file::begins_as_database;
use crate::stores::Aim;
use std::ffi::{CStr, c_int, c_void};

/// Bytes that SQLite reserves at the end of each page of a new database, so that one page of the
/// database fits into one page of the store.
const RESERVED_BYTES: c_int = 64;
/// The page size for which reserved bytes have this effect.
const PAGE_BYTES: u16 = 4096;

/// The connection in a place that SQLite named; `None` if SQLite has not named one.
///
/// # Safety
/// The place is one that SQLite named for a file that is open, or null.
unsafe fn connected(place: *const *mut Sqlite3) -> Option<*mut Sqlite3> {
    if place.is_null() {
        return None;
    }
    // SAFETY: as for this function: SQLite keeps the connection there while the file is open.
    let connection = unsafe { *place };
    (!connection.is_null()).then_some(connection)
}

/// The file of a connection's database `name`.
///
/// # Safety
/// This is in a call of SQLite on that connection.
unsafe fn file_of(
    functions: &Functions,
    connection: *mut Sqlite3,
    name: &CStr,
) -> Option<*mut File> {
    let mut found: *mut File = std::ptr::null_mut();
    let at: *mut c_void = (&raw mut found).cast();
    // SAFETY: as for this function; SQLite writes a pointer to a file.
    let code =
        unsafe { (functions.file_control)(connection, name.as_ptr(), FCNTL_FILE_POINTER, at) };
    (code == OK).then_some(found)
}

/// The connection that uses a database, and the database's schema name in it.
///
/// # Safety
/// SQLite has called on `file`, which is open and `database`, in a call on its connection.
unsafe fn schema(file: *mut File, database: &Database) -> Option<(*mut Sqlite3, &'static CStr)> {
    // SAFETY: as for this function. The name is used before SQLite goes on.
    unsafe {
        let functions = &database.registered.functions;
        let connection = connected(database.connection())?;
        let is_it = |name: &CStr| file_of(functions, connection, name) == Some(file);
        let Some(db_name) = functions.db_name else {
            return is_it(c"main").then_some((connection, c"main"));
        };
        for index in 0.. {
            let name = db_name(connection, index);
            if name.is_null() {
                return None;
            }
            let name = CStr::from_ptr(name);
            if is_it(name) {
                return Some((connection, name));
            }
        }
        None
    }
}

/// Whether a connection releases its locks when it commits, and reads nothing more. This holds if
/// only one statement runs and the file is the main database, whose locking mode is always known.
///
/// # Safety
/// As for [`schema`].
pub(super) unsafe fn lets_go(file: *mut File, database: &Database) -> bool {
    let functions = &database.registered.functions;
    // SAFETY: as for this function.
    unsafe {
        connected(database.connection()).is_some_and(|connection| {
            Running::of(functions, connection).statements == 1
                && file_of(functions, connection, c"main") == Some(file)
        })
    }
}

/// Whether the transaction that a connection is about to commit writes to several databases, as far
/// as SQLite reports that.
///
/// # Safety
/// As for [`schema`].
pub(super) unsafe fn writes_to_several(database: &Database) -> bool {
    let functions = &database.registered.functions;
    let (Some(db_name), Some(txn_state)) = (functions.db_name, functions.txn_state) else {
        return false;
    };
    // SAFETY: as for this function; the names are those of databases of the connection.
    unsafe {
        let Some(connection) = connected(database.connection()) else {
            return false;
        };
        let names = (0..).map(|index| db_name(connection, index));
        let names = names.take_while(|name| !name.is_null());
        let written = names.filter(|&name| txn_state(connection, name) == TXN_WRITE);
        written.count() > 1
    }
}

/// Makes SQLite reserve bytes at the end of each page, in an empty database and in one that
/// `VACUUM` rewrites.
///
/// # Safety
/// As for [`schema`].
pub(super) unsafe fn reserve(file: *mut File, database: &mut Database) {
    // SAFETY: as for this function; SQLite reads an integer, and writes the one before.
    unsafe {
        if !database.gets_reserved_bytes {
            return;
        }
        let mut header = [0; 24];
        let is_empty = match database.handle.read(0, &mut header) {
            Ok(has) => has == 0,
            Err(_) => return,
        };
        let page = u16::from_be_bytes([header[16], header[17]]);
        // Ciphertext (SQLCipher) does not reveal the number of reserved bytes per page.
        let is_known = begins_as_database(&header) && page == PAGE_BYTES;
        if !is_empty && (!is_known || c_int::from(header[20]) >= RESERVED_BYTES) {
            database.gets_reserved_bytes = false;
            return;
        }
        // Once is enough for an empty database. VACUUM asks for the number each time.
        database.gets_reserved_bytes = !is_empty;
        let file_control = database.registered.functions.file_control;
        if let Some((connection, name)) = schema(file, database) {
            let mut bytes = RESERVED_BYTES;
            let bytes: *mut c_void = (&raw mut bytes).cast();
            file_control(connection, name.as_ptr(), FCNTL_RESERVE_BYTES, bytes);
        }
    }
}

/// The running statements of a connection.
struct Running {
    /// Number of running statements.
    statements: usize,
    /// Whether one of them may write.
    may_write: bool,
}

impl Running {
    /// Inspects the statements of a connection.
    ///
    /// # Safety
    /// This is in a call of SQLite on that connection.
    unsafe fn of(functions: &Functions, connection: *mut Sqlite3) -> Running {
        // SAFETY: as for this function; the statements are those of the connection.
        unsafe {
            let mut running = Running {
                statements: 0,
                may_write: false,
            };
            let next = |after| (functions.next_stmt)(connection, after);
            let mut statement = next(std::ptr::null_mut());
            while !statement.is_null() {
                if (functions.stmt_busy)(statement) != 0 {
                    running.statements += 1;
                    running.may_write |= (functions.stmt_readonly)(statement) == 0;
                }
                statement = next(statement);
            }
            running
        }
    }
}

/// Whether a connection that begins to read intends to write. It does if a running statement may
/// write, and no other database can be the target, as far as SQLite reports that.
///
/// # Safety
/// `place` is one that SQLite named, or null, and this is in a call of SQLite on the connection
/// stored there.
pub(super) unsafe fn aim(functions: &Functions, place: *const *mut Sqlite3) -> Aim {
    // SAFETY: as for this function.
    unsafe {
        let Some(connection) = connected(place) else {
            return Aim::Read;
        };
        if !Running::of(functions, connection).may_write {
            return Aim::Read;
        }
        // Databases 0 and 1 are `main` and `temp`; attached ones follow.
        let has_attached = functions
            .db_name
            .is_none_or(|db_name| !db_name(connection, 2).is_null());
        // The temporary database does not exist before it is needed.
        let has_temporary = file_of(functions, connection, c"temp").is_some();
        if has_attached || has_temporary {
            Aim::WriteSomewhere
        } else {
            Aim::Write
        }
    }
}

/// Whether [`look_at_journal`] can see a journal that SQLite itself keeps in memory.
///
/// # Safety
/// As for [`schema`].
pub(super) unsafe fn can_look_at_journal(file: *mut File, database: &Database) -> bool {
    // SAFETY: as for this function.
    unsafe { schema(file, database) }.is_some()
}

/// Checks that a transaction that begins to write has a journal. Without one, SQLite cannot undo
/// statements. That is possible with journal_mode OFF, which can be set for all databases of a
/// connection through one that is not in a store.
///
/// # Safety
/// As for [`schema`].
pub(super) unsafe fn look_at_journal(file: *mut File, database: &Database) -> Result<(), Trouble> {
    // SAFETY: as for this function; SQLite writes a pointer to a file, which is open if it has
    // methods.
    unsafe {
        if database.handle.has_journal() {
            return Ok(());
        }
        let file_control = database.registered.functions.file_control;
        if let Some((connection, name)) = schema(file, database) {
            let mut journal: *mut File = std::ptr::null_mut();
            let at: *mut c_void = (&raw mut journal).cast();
            let code = file_control(connection, name.as_ptr(), FCNTL_JOURNAL_POINTER, at);
            if code == OK && !journal.is_null() && !(*journal).methods.is_null() {
                return Ok(());
            }
        }
        Err(Trouble::new(
            TroubleKind::Io,
            "cannot write to a store with journal_mode=OFF, because ROLLBACK would be undefined: \
             use PRAGMA SCHEMA.journal_mode=MEMORY, or attach the database again",
        ))
    }
}
