//! A VFS on top of SQLite's `unix` VFS. It records which pages of a database, of its journal and of
//! its log are written, and when they are synced. It skips the syncs themselves, since the files
//! are discarded afterwards.
#![allow(unsafe_code, reason = "SQLite calls, and is called, through C")]

use super::{Role, Trace};
use flagstone_terminal::Failure;
use rusqlite::ffi::{
    SQLITE_IOERR, SQLITE_OK, SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_MAIN_JOURNAL, SQLITE_OPEN_WAL,
    sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs, sqlite3_vfs_find,
    sqlite3_vfs_register,
};
use rusqlite::{Connection, OpenFlags};
use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock};

const NAME: &CStr = c"recorded";
/// Bytes of a page of the simulated disk.
const PAGE: u64 = 4096;

/// The recording of one database.
#[derive(Default)]
struct Written {
    /// Pages that have been written since the last sync, by file.
    dirty: BTreeSet<super::Page>,
    trace: Trace,
}

static ALL: Mutex<Option<HashMap<PathBuf, Written>>> = Mutex::new(None);

fn all() -> MutexGuard<'static, Option<HashMap<PathBuf, Written>>> {
    ALL.lock().unwrap_or_else(|held| held.into_inner())
}

/// Calls `act` with the recording of a database.
fn with<T>(database: &Path, act: impl FnOnce(&mut Written) -> T) -> T {
    let mut all = all();
    let known = all.get_or_insert_default();
    if !known.contains_key(database) {
        known.insert(database.to_path_buf(), Written::default());
    }
    act(known.get_mut(database).expect("it was put there"))
}

impl Written {
    fn wrote(&mut self, role: Role, at: u64, bytes: u64) {
        let pages = at / PAGE..(at + bytes).div_ceil(PAGE);
        self.dirty.extend(pages.map(|page| (role, page as u32)));
    }

    fn synced(&mut self, role: Role) {
        let all = std::mem::take(&mut self.dirty).into_iter();
        let (synced, others): (BTreeSet<_>, _) = all.partition(|page| page.0 == role);
        self.dirty = others;
        if !synced.is_empty() {
            self.trace.syncs.push(synced.into_iter().collect());
        }
    }

    /// Records that a file was truncated to `bytes` bytes.
    fn cut(&mut self, role: Role, bytes: u64) {
        self.dirty
            .retain(|page| page.0 != role || u64::from(page.1) * PAGE < bytes);
    }
}

/// A file of this VFS. The file object of the VFS below follows it in memory, at [`BELOW`].
#[repr(C)]
struct File {
    base: sqlite3_file,
    role: Role,
    database: *const PathBuf,
}

const BELOW: usize = size_of::<File>().next_multiple_of(16);

/// The file object of the VFS below.
///
/// # Safety
/// `file` is one that [`open`] made.
unsafe fn below(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: this VFS asks for room for both.
    unsafe { file.cast::<u8>().add(BELOW).cast() }
}

/// The role of a file, and the path of its database.
///
/// # Safety
/// As [`below`].
unsafe fn of<'a>(file: *mut sqlite3_file) -> (Role, &'a Path) {
    // SAFETY: `open` has set both, and never frees the path.
    unsafe {
        let file = &*file.cast::<File>();
        (file.role, &*file.database)
    }
}

/// Methods that only call the VFS below.
macro_rules! hand_on {
    ($($name:ident: $method:ident($($arg:ident: $type:ty),*);)*) => {
        $(unsafe extern "C" fn $name(file: *mut sqlite3_file, $($arg: $type),*) -> c_int {
            // SAFETY: SQLite calls with a file of this VFS; the arguments are handed on.
            unsafe {
                let below = below(file);
                match (*(*below).pMethods).$method {
                    Some(call) => call(below, $($arg),*),
                    None => SQLITE_IOERR,
                }
            }
        })*
    };
}

hand_on! {
    close: xClose();
    read: xRead(into: *mut c_void, bytes: c_int, at: sqlite3_int64);
    write_on: xWrite(from: *const c_void, bytes: c_int, at: sqlite3_int64);
    truncate_on: xTruncate(bytes: sqlite3_int64);
    file_size: xFileSize(bytes: *mut sqlite3_int64);
    lock: xLock(level: c_int);
    unlock: xUnlock(level: c_int);
    check_reserved: xCheckReservedLock(out: *mut c_int);
    control: xFileControl(op: c_int, arg: *mut c_void);
    sector_size: xSectorSize();
    characteristics: xDeviceCharacteristics();
    shm_map: xShmMap(page: c_int, bytes: c_int, extend: c_int, out: *mut *mut c_void);
    shm_lock: xShmLock(offset: c_int, count: c_int, flags: c_int);
    shm_unmap: xShmUnmap(delete: c_int);
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    // SAFETY: SQLite calls with a file of this VFS.
    unsafe {
        let below = below(file);
        if let Some(call) = (*(*below).pMethods).xShmBarrier {
            call(below);
        }
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    bytes: c_int,
    at: sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite calls with a file of this VFS; the arguments are handed on.
    unsafe {
        let (role, database) = of(file);
        with(database, |it| it.wrote(role, at as u64, bytes as u64));
        write_on(file, from, bytes, at)
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, bytes: sqlite3_int64) -> c_int {
    // SAFETY: SQLite calls with a file of this VFS; the argument is handed on.
    unsafe {
        let (role, database) = of(file);
        with(database, |it| it.cut(role, bytes as u64));
        truncate_on(file, bytes)
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, _: c_int) -> c_int {
    // SAFETY: SQLite calls with a file of this VFS.
    let (role, database) = unsafe { of(file) };
    with(database, |it| it.synced(role));
    SQLITE_OK
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// The path of the database to which a file belongs, derived from the file's name.
///
/// # Safety
/// `name` is a string that ends with a zero.
unsafe fn database_of(name: *const c_char) -> PathBuf {
    // SAFETY: as for this function.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let suffixes = [&b"-journal"[..], b"-wal"];
    let stem = suffixes
        .iter()
        .find_map(|suffix| name.strip_suffix(*suffix));
    PathBuf::from(OsStr::from_bytes(stem.unwrap_or(name)))
}

/// The VFS below this one.
fn other() -> *mut sqlite3_vfs {
    // SAFETY: SQLite returns a VFS that it knows, or null.
    unsafe { sqlite3_vfs_find(c"unix".as_ptr()) }
}

unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls with a name that is null or a string, and room for a file.
    unsafe {
        let other = other();
        let Some(open) = (*other).xOpen else {
            return SQLITE_IOERR;
        };
        let role = match flags {
            _ if flags & SQLITE_OPEN_MAIN_DB != 0 => Role::Database,
            _ if flags & (SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL) != 0 => Role::Journal,
            _ => return open(other, name, file, flags, out),
        };
        let below = below(file);
        (*below).pMethods = std::ptr::null();
        let code = open(other, name, below, flags, out);
        let database = Box::leak(Box::new(database_of(name)));
        file.cast::<File>().write(File {
            base: sqlite3_file {
                pMethods: if (*below).pMethods.is_null() {
                    std::ptr::null()
                } else {
                    &METHODS
                },
            },
            role,
            database,
        });
        code
    }
}

unsafe extern "C" fn delete(_: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: SQLite calls with a string.
    unsafe {
        with(&database_of(name), |it| it.cut(Role::Journal, 0));
        let other = other();
        (*other)
            .xDelete
            .map_or(SQLITE_IOERR, |delete| delete(other, name, sync))
    }
}

/// Registers this VFS with SQLite, once.
fn register() -> Result<(), Failure> {
    static DONE: OnceLock<c_int> = OnceLock::new();
    let code = *DONE.get_or_init(|| {
        let other = other();
        if other.is_null() {
            return SQLITE_IOERR;
        }
        // SAFETY: a VFS that SQLite knows stays in place, and the copy is never freed. Its
        // functions copied from the other VFS ignore the VFS that they are called with.
        unsafe {
            let mut vfs = *other;
            vfs.szOsFile += BELOW as c_int;
            vfs.pNext = std::ptr::null_mut();
            vfs.zName = NAME.as_ptr();
            vfs.xOpen = Some(open);
            vfs.xDelete = Some(delete);
            sqlite3_vfs_register(Box::leak(Box::new(vfs)), 0)
        }
    });
    match code {
        SQLITE_OK => Ok(()),
        code => Err(Failure::Failed(format!(
            "SQLite refused the recording VFS (code {code}): use --nand none"
        ))),
    }
}

/// Opens a database whose writes and syncs are recorded.
pub(super) fn open_recorded(path: &Path) -> Result<Connection, Failure> {
    register()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    Ok(Connection::open_with_flags_and_vfs(path, flags, NAME)?)
}

/// Takes the recording since the last call. Pages that were never synced come last.
pub(super) fn take(path: &Path) -> Trace {
    let bytes = std::fs::metadata(path).map_or(0, |meta| meta.len());
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    with(&path, |it| {
        it.synced(Role::Journal);
        it.synced(Role::Database);
        let next = Trace {
            syncs: Vec::new(),
            begins_with: bytes.div_ceil(PAGE) as u32,
        };
        std::mem::replace(&mut it.trace, next)
    })
}
