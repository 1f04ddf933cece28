//! Structures and constants of SQLite's C interface, as in `sqlite3.h`.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

pub(super) const OK: c_int = 0;
pub(super) const ERROR: c_int = 1;
pub(super) const INTERNAL: c_int = 2;
pub(super) const BUSY: c_int = 5;
pub(super) const READONLY: c_int = 8;
pub(super) const IOERR: c_int = 10;
pub(super) const NOTFOUND: c_int = 12;
pub(super) const FULL: c_int = 13;
pub(super) const CANTOPEN: c_int = 14;
pub(super) const NOTADB: c_int = 26;
pub(super) const OK_LOAD_PERMANENTLY: c_int = 256;

pub(super) const IOERR_READ: c_int = IOERR | 1 << 8;
pub(super) const IOERR_SHORT_READ: c_int = IOERR | 2 << 8;
pub(super) const IOERR_WRITE: c_int = IOERR | 3 << 8;
pub(super) const IOERR_FSYNC: c_int = IOERR | 4 << 8;
pub(super) const IOERR_TRUNCATE: c_int = IOERR | 6 << 8;
pub(super) const IOERR_FSTAT: c_int = IOERR | 7 << 8;
pub(super) const IOERR_UNLOCK: c_int = IOERR | 8 << 8;
pub(super) const IOERR_LOCK: c_int = IOERR | 15 << 8;
pub(super) const IOERR_CLOSE: c_int = IOERR | 16 << 8;
pub(super) const IOERR_DATA: c_int = IOERR | 32 << 8;

pub(super) const UTF8: c_int = 1;

pub(super) const OPEN_READONLY: c_int = 0x1;
pub(super) const OPEN_READWRITE: c_int = 0x2;
pub(super) const OPEN_CREATE: c_int = 0x4;
pub(super) const OPEN_EXCLUSIVE: c_int = 0x10;
pub(super) const OPEN_MAIN_DB: c_int = 0x100;
pub(super) const OPEN_MAIN_JOURNAL: c_int = 0x800;
pub(super) const OPEN_SUPER_JOURNAL: c_int = 0x4000;
pub(super) const OPEN_WAL: c_int = 0x8_0000;

pub(super) const FCNTL_LOCKSTATE: c_int = 1;
pub(super) const FCNTL_LAST_ERRNO: c_int = 4;
pub(super) const FCNTL_SIZE_HINT: c_int = 5;
pub(super) const FCNTL_CHUNK_SIZE: c_int = 6;
pub(super) const FCNTL_FILE_POINTER: c_int = 7;
pub(super) const FCNTL_OVERWRITE: c_int = 11;
pub(super) const FCNTL_VFSNAME: c_int = 12;
pub(super) const FCNTL_POWERSAFE_OVERWRITE: c_int = 13;
pub(super) const FCNTL_PRAGMA: c_int = 14;
pub(super) const FCNTL_HAS_MOVED: c_int = 20;
pub(super) const FCNTL_SYNC: c_int = 21;
pub(super) const FCNTL_COMMIT_PHASETWO: c_int = 22;
pub(super) const FCNTL_JOURNAL_POINTER: c_int = 28;
pub(super) const FCNTL_PDB: c_int = 30;
pub(super) const FCNTL_RESERVE_BYTES: c_int = 38;

pub(super) const IOCAP_SAFE_APPEND: c_int = 0x200;
pub(super) const IOCAP_SEQUENTIAL: c_int = 0x400;
pub(super) const IOCAP_POWERSAFE_OVERWRITE: c_int = 0x1000;

/// Result of `sqlite3_txn_state` for a database that is being written.
pub(super) const TXN_WRITE: c_int = 2;

/// A connection of SQLite. Opaque.
#[repr(C)]
#[derive(Debug)]
pub struct Sqlite3 {
    _opaque: [u8; 0],
}

/// The context of a SQL function call. Opaque.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Context {
    _opaque: [u8; 0],
}

/// A prepared statement of SQLite. Opaque.
#[repr(C)]
#[derive(Debug)]
pub struct Statement {
    _opaque: [u8; 0],
}

/// `sqlite3_file`, followed by the object of this VFS.
#[repr(C)]
#[derive(Debug)]
pub(super) struct File {
    pub(super) methods: *const IoMethods,
    /// The object for `methods`.
    pub(super) object: *mut c_void,
    /// Of a database: who uses it, a part of the object that any thread may look at.
    pub(super) users: *const Users,
}

/// The connections that use a database file: several if they share a cache. Another thread may open
/// one of them while a first one is in a call on the file.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// Where SQLite keeps the connection that currently uses the file; null if unknown.
    connection: AtomicPtr<*mut Sqlite3>,
    /// Whether there were several.
    are_several: AtomicBool,
}

impl Users {
    /// Records where SQLite keeps the connection, which it names once for each that uses the file.
    pub(super) fn used_by(&self, connection: *mut *mut Sqlite3) {
        if !self
            .connection
            .swap(connection, Ordering::Relaxed)
            .is_null()
        {
            self.are_several.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn connection(&self) -> *const *mut Sqlite3 {
        self.connection.load(Ordering::Relaxed)
    }

    pub(super) fn are_several(&self) -> bool {
        self.are_several.load(Ordering::Relaxed)
    }
}

/// `sqlite3_io_methods`, version 1.
#[repr(C)]
#[derive(Debug)]
pub(super) struct IoMethods {
    pub(super) version: c_int,
    pub(super) close: unsafe extern "C" fn(*mut File) -> c_int,
    pub(super) read: unsafe extern "C" fn(*mut File, *mut c_void, c_int, i64) -> c_int,
    pub(super) write: unsafe extern "C" fn(*mut File, *const c_void, c_int, i64) -> c_int,
    pub(super) truncate: unsafe extern "C" fn(*mut File, i64) -> c_int,
    pub(super) sync: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub(super) file_size: unsafe extern "C" fn(*mut File, *mut i64) -> c_int,
    pub(super) lock: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub(super) unlock: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub(super) check_reserved: unsafe extern "C" fn(*mut File, *mut c_int) -> c_int,
    pub(super) file_control: unsafe extern "C" fn(*mut File, c_int, *mut c_void) -> c_int,
    pub(super) sector_size: unsafe extern "C" fn(*mut File) -> c_int,
    pub(super) characteristics: unsafe extern "C" fn(*mut File) -> c_int,
}

/// `sqlite3_vfs`, version 2.
#[repr(C)]
#[derive(Debug)]
pub struct Vfs {
    pub(super) version: c_int,
    pub(super) file_bytes: c_int,
    pub(super) max_pathname: c_int,
    pub(super) next: *mut Vfs,
    pub(super) name: *const c_char,
    pub(super) app_data: *mut c_void,
    pub(super) open:
        unsafe extern "C" fn(*mut Vfs, *const c_char, *mut File, c_int, *mut c_int) -> c_int,
    pub(super) delete: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int) -> c_int,
    pub(super) access: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_int) -> c_int,
    pub(super) full_pathname:
        unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_char) -> c_int,
    pub(super) dl_open: Option<unsafe extern "C" fn(*mut Vfs, *const c_char) -> *mut c_void>,
    pub(super) dl_error: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char)>,
    pub(super) dl_sym: Option<
        unsafe extern "C" fn(
            *mut Vfs,
            *mut c_void,
            *const c_char,
        ) -> Option<unsafe extern "C" fn()>,
    >,
    pub(super) dl_close: Option<unsafe extern "C" fn(*mut Vfs, *mut c_void)>,
    pub(super) randomness: unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int,
    pub(super) sleep: unsafe extern "C" fn(*mut Vfs, c_int) -> c_int,
    pub(super) current_time: unsafe extern "C" fn(*mut Vfs, *mut f64) -> c_int,
    pub(super) last_error: unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int,
    pub(super) current_time_64: Option<unsafe extern "C" fn(*mut Vfs, *mut i64) -> c_int>,
}
