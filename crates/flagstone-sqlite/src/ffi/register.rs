//! The VFS itself: opens stores and journals, and delegates everything else to the previous default
//! VFS.
//!
//! | file | where it is |
//! |---|---|
//! | main database | a store |
//! | rollback journal | memory: see [`crate::journal`] |
//! | write-ahead log | refused |
//! | temporary databases and journals, sorters | the other VFS |
//! | super-journal, of transactions over several databases | the other VFS |
//!
//! A plain attached database needs the super-journal after a power cut: without it, SQLite would
//! take the database's journal for that of a committed transaction. Before SQLite removes a
//! super-journal after a rollback, it asks the VFS of one database about the journals of all, and
//! this VFS does not know the journals of others. So an in-memory journal names no super-journal,
//! and SQLite does not ask.

use super::functions::Functions;
use super::types::*;
use super::{io, rim};
use crate::bytes::{Trouble, TroubleKind};
use crate::errors::{Errors, Failed};
use crate::journal::LiveSuperJournals;
use crate::stores::{Backing, Files, How, Stores, turns};
use flagstone_store::KeySource;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// State of a registered VFS, which lives as long as the process.
pub(super) struct Registered {
    pub(super) functions: Functions,
    pub(super) name: CString,
    /// The VFS to which other files are delegated.
    below: *mut Vfs,
    pub(super) stores: Arc<Stores>,
    pub(super) errors: Errors,
    super_journals: Mutex<LiveSuperJournals>,
}

impl Registered {
    /// Records an error of a file for `PRAGMA flagstone_error`, and writes it to SQLite's log.
    /// Returns the code.
    pub(super) fn report(&self, code: c_int, path: &Path, trouble: &Trouble) -> c_int {
        self.note(code, path, trouble, Failed::Using)
    }

    /// Like [`Self::report`], if the store could not be opened for a transaction.
    pub(super) fn report_opening(&self, code: c_int, path: &Path, trouble: &Trouble) -> c_int {
        self.note(code, path, trouble, Failed::Opening)
    }

    /// Like [`Self::report`], if no connection results.
    fn refuse(&self, code: c_int, path: &Path, trouble: &Trouble) -> c_int {
        self.note(code, path, trouble, Failed::Connecting)
    }

    fn super_journals(&self) -> MutexGuard<'_, LiveSuperJournals> {
        let live = self.super_journals.lock();
        live.unwrap_or_else(|held| held.into_inner())
    }

    fn note(&self, code: c_int, path: &Path, trouble: &Trouble, failed: Failed) -> c_int {
        let (text, is_new) = self.errors.note(path, trouble, failed);
        let message = CString::new(format!("flagstone: {text}")).ok();
        // A waiting connection retries repeatedly: log the error once.
        if let Some(message) = message.filter(|_| code != BUSY || is_new) {
            // SAFETY: the format takes one string, and one is passed.
            unsafe { (self.functions.log)(code, c"%s".as_ptr(), message.as_ptr()) };
        }
        code
    }
}

/// Registers the VFS `flagstone`. If it is registered already, changes only the default.
///
/// # Errors
/// SQLite has no VFS to delegate to, or refuses.
///
/// # Safety
/// The functions are those of one SQLite that is initialised, and stays loaded as long as the
/// process lives.
pub unsafe fn register(functions: &Functions, is_default: bool) -> Result<(), Trouble> {
    // SAFETY: as for this function.
    unsafe { register_as(functions, crate::VFS_NAME, Box::new(Files), is_default) }
}

/// Like [`register`], with another name and another implementation of databases.
///
/// # Errors
/// As [`register`].
///
/// # Safety
/// As [`register`].
pub unsafe fn register_as(
    functions: &Functions,
    name: &str,
    backing: Box<dyn Backing>,
    is_default: bool,
) -> Result<(), Trouble> {
    /// Serialises registration: two VFS objects with the same name would have separate stores, and
    /// find each other's stores locked.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|held| held.into_inner());
    let trouble = |why: &str| Trouble::new(TroubleKind::CannotOpen, why);
    let name = CString::new(name).map_err(|_| trouble("a name has no zeros"))?;
    // SAFETY: SQLite returns a VFS that it knows, or null; what it knows stays where it is.
    let vfs = unsafe {
        let known = (functions.vfs_find)(name.as_ptr());
        if known.is_null() {
            let below = (functions.vfs_find)(std::ptr::null());
            if below.is_null() {
                return Err(trouble("SQLite has no VFS for temporary files"));
            }
            create(functions, name, below, backing)
        } else {
            known
        }
    };
    // SAFETY: `vfs` is a VFS, of this module or known to SQLite, that is never freed.
    match unsafe { (functions.vfs_register)(vfs, c_int::from(is_default)) } {
        OK => Ok(()),
        code => Err(trouble(&format!("SQLite refused the VFS: code {code}"))),
    }
}

/// Creates a VFS object that is never freed. It passes on to `below` what concerns no database,
/// such as temporary files, random numbers and the time.
///
/// # Safety
/// `below` is a VFS that SQLite knows.
unsafe fn create(
    functions: &Functions,
    name: CString,
    below: *mut Vfs,
    backing: Box<dyn Backing>,
) -> *mut Vfs {
    let registered: &'static Registered = Box::leak(Box::new(Registered {
        functions: *functions,
        name,
        below,
        stores: Arc::new(Stores::new(backing)),
        errors: Errors::default(),
        super_journals: Mutex::default(),
    }));
    // SAFETY: `below` is a VFS.
    let other = unsafe { &*below };
    Box::leak(Box::new(Vfs {
        version: 2,
        // A file of the other VFS uses the same memory.
        file_bytes: other.file_bytes.max(size_of::<File>() as c_int),
        max_pathname: other.max_pathname,
        next: std::ptr::null_mut(),
        name: registered.name.as_ptr(),
        app_data: std::ptr::from_ref(registered).cast_mut().cast(),
        open,
        delete,
        access,
        full_pathname,
        dl_open: other.dl_open.map(|_| dl_open as _),
        dl_error: other.dl_error.map(|_| dl_error as _),
        dl_sym: other.dl_sym.map(|_| dl_sym as _),
        dl_close: other.dl_close.map(|_| dl_close as _),
        randomness,
        sleep,
        current_time,
        last_error,
        current_time_64: current_time_64_of(other),
    }))
}

type Time64 = unsafe extern "C" fn(*mut Vfs, *mut i64) -> c_int;

fn current_time_64_of(other: &Vfs) -> Option<Time64> {
    if other.version >= 2 && other.current_time_64.is_some() {
        Some(current_time_64)
    } else {
        None
    }
}

/// The state of a VFS of this module.
///
/// # Safety
/// [`create`] made `vfs`.
unsafe fn registered(vfs: *mut Vfs) -> &'static Registered {
    // SAFETY: `create` put it there, and it is never freed.
    unsafe { &*(*vfs).app_data.cast::<Registered>() }
}

/// The state of this module's VFS in a SQLite, if it is registered there.
///
/// # Safety
/// The functions are those of one SQLite that is initialised.
pub(super) unsafe fn registered_at(functions: &Functions) -> Option<&'static Registered> {
    let name = CString::new(crate::VFS_NAME).ok()?;
    // SAFETY: SQLite returns a VFS that it knows, or null. With this function to open files it is
    // one of this module.
    unsafe {
        let vfs = (functions.vfs_find)(name.as_ptr());
        let is_ours = !vfs.is_null() && (*vfs).open as usize == open as *const () as usize;
        is_ours.then(|| registered(vfs))
    }
}

/// Converts a C string to a path.
///
/// # Safety
/// `name` is a string that ends with a zero and lives while the path is used.
unsafe fn path<'a>(name: *const c_char) -> &'a Path {
    // SAFETY: as for this function.
    Path::new(OsStr::from_bytes(
        unsafe { CStr::from_ptr(name) }.to_bytes(),
    ))
}

/// The database whose journal would have this name.
fn database_of(name: &Path) -> Option<&Path> {
    let name = name.as_os_str().as_bytes();
    let stem = name
        .strip_suffix(b"-journal")
        .or(name.strip_suffix(b"-wal"))?;
    Some(Path::new(OsStr::from_bytes(stem)))
}

unsafe extern "C" fn open(
    vfs: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls with a VFS of this module, a name that is null or a string with its URI
    // parameters behind it, room for a file, and a place for flags or null.
    unsafe {
        let registered = registered(vfs);
        (*file).methods = std::ptr::null();
        if name.is_null() || flags & (OPEN_MAIN_DB | OPEN_MAIN_JOURNAL | OPEN_WAL) == 0 {
            let below = registered.below;
            let code = ((*below).open)(below, name, file, flags, out_flags);
            let makes = OPEN_SUPER_JOURNAL | OPEN_EXCLUSIVE;
            if code == OK && !name.is_null() && flags & makes == makes {
                let path = path(name);
                if !rim(true, || registered.super_journals().begin(path)) {
                    let methods = (*file).methods;
                    if !methods.is_null() {
                        ((*methods).close)(file);
                        (*file).methods = std::ptr::null();
                    }
                    let why = "another process has removed it: try again";
                    let trouble = Trouble::new(TroubleKind::CannotOpen, why);
                    return registered.report(CANTOPEN, path, &trouble);
                }
            }
            return code;
        }
        let path = path(name);
        if flags & OPEN_WAL != 0 {
            let why = "a Flagstone store has no write-ahead log";
            return registered.report(CANTOPEN, path, &Trouble::new(TroubleKind::CannotOpen, why));
        }
        if flags & OPEN_MAIN_JOURNAL != 0 {
            return rim(INTERNAL, || {
                let of = database_of(path);
                let of = of.and_then(|database| registered.stores.journal_opened(database));
                io::put_journal(file, of);
                OK
            });
        }
        rim(INTERNAL, || {
            let parameter = |parameter: &CStr| {
                let value = (registered.functions.uri_parameter)(name, parameter.as_ptr());
                (!value.is_null()).then(|| CStr::from_ptr(value))
            };
            let text = |value: &CStr| value.to_string_lossy().into_owned();
            let refuses_wal = match parameter(c"wal").map(CStr::to_bytes) {
                None => false,
                Some(b"refuse") => true,
                Some(_) => {
                    let why = "the parameter `wal` must be `refuse` or left out: a Flagstone store has \
                               no write-ahead log";
                    return registered.refuse(
                        CANTOPEN,
                        path,
                        &Trouble::new(TroubleKind::CannotOpen, why),
                    );
                }
            };
            let key_file = parameter(c"key_file").map(|value| OsStr::from_bytes(value.to_bytes()));
            let key_env = parameter(c"key_env").map(text);
            let key = KeySource::one_of(
                key_file.map(Path::new),
                key_env.as_deref(),
                ["key_file", "key_env"],
            );
            let key = match key {
                Ok(key) => key,
                Err(error) => return registered.refuse(CANTOPEN, path, &error.into()),
            };
            let force = match parameter(c"create") {
                None => false,
                Some(word) if word == c"force" => true,
                Some(word) => {
                    let why = format!("create={}: use force", word.to_string_lossy());
                    let trouble = Trouble::new(TroubleKind::CannotOpen, why);
                    return registered.refuse(CANTOPEN, path, &trouble);
                }
            };
            let how = How {
                create: flags & OPEN_CREATE != 0,
                force,
                read_only: flags & OPEN_READWRITE == 0,
                protocol: parameter(c"protocol").map(text),
                key,
                shares_cache: parameter(c"cache").is_some_and(|cache| cache == c"shared"),
            };
            match registered.stores.connect(path, how) {
                Ok(handle) => {
                    if handle.is_open() {
                        registered.errors.opened(path);
                    }
                    if !out_flags.is_null() {
                        *out_flags = if handle.is_read_only() {
                            flags & !(OPEN_READWRITE | OPEN_CREATE) | OPEN_READONLY
                        } else {
                            flags
                        };
                    }
                    io::put_database(file, registered, handle, refuses_wal);
                    OK
                }
                Err(trouble) => {
                    let code = match trouble.kind {
                        TroubleKind::NotAStore => NOTADB,
                        TroubleKind::Damaged => IOERR_DATA,
                        TroubleKind::Full => FULL,
                        TroubleKind::Io => IOERR,
                        _ => CANTOPEN,
                    };
                    registered.refuse(code, path, &trouble)
                }
            }
        })
    }
}

unsafe extern "C" fn delete(vfs: *mut Vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: SQLite calls with a VFS of this module and a string.
    unsafe {
        if database_of(path(name)).is_some() {
            return OK;
        }
        let registered = registered(vfs);
        let below = registered.below;
        let code = ((*below).delete)(below, name, sync);
        rim((), || registered.super_journals().end(path(name)));
        code
    }
}

/// `xAccess`. Journals and logs of a database in a store never exist as files. Other names are
/// handed on to the other VFS.
unsafe extern "C" fn access(
    vfs: *mut Vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls with a VFS of this module, a string, and a place for the answer.
    unsafe {
        if database_of(path(name)).is_some() {
            *out = 0;
            return OK;
        }
        let below = registered(vfs).below;
        ((*below).access)(below, name, flags, out)
    }
}

/// Functions that delegate to the other VFS. If it lacks the function, the value after `or` is
/// returned.
macro_rules! hand_on {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty $(, or $otherwise:expr)?;)*) => {
        $(unsafe extern "C" fn $name(vfs: *mut Vfs, $($arg: $type),*) -> $out {
            // SAFETY: the arguments are those of SQLite, handed on.
            unsafe {
                let below = registered(vfs).below;
                hand_on!(@ (*below).$name, (below, $($arg),*) $(, $otherwise)?)
            }
        })*
    };
    (@ $call:expr, $args:tt) => { $call $args };
    (@ $call:expr, ($($arg:expr),*), $otherwise:expr) => {
        $call.map_or($otherwise, |call| call($($arg),*))
    };
}

hand_on! {
    full_pathname(name: *const c_char, bytes: c_int, out: *mut c_char) -> c_int;
    dl_open(name: *const c_char) -> *mut c_void, or std::ptr::null_mut();
    dl_error(bytes: c_int, out: *mut c_char) -> (), or ();
    dl_sym(library: *mut c_void, symbol: *const c_char) -> Option<unsafe extern "C" fn()>, or None;
    dl_close(library: *mut c_void) -> (), or ();
    randomness(bytes: c_int, out: *mut c_char) -> c_int;
    current_time(out: *mut f64) -> c_int;
    current_time_64(out: *mut i64) -> c_int, or ERROR;
}

unsafe extern "C" fn sleep(vfs: *mut Vfs, microseconds: c_int) -> c_int {
    let most = Duration::from_micros(u64::try_from(microseconds).unwrap_or(0));
    if let Some(slept) = rim(None, || turns::sleep(most)) {
        return c_int::try_from(slept.as_micros()).unwrap_or(microseconds);
    }
    // SAFETY: the arguments are those of SQLite, handed on.
    unsafe {
        let below = registered(vfs).below;
        ((*below).sleep)(below, microseconds)
    }
}

/// `xGetLastError`: copies the text of the newest error, cut off to fit `bytes` bytes.
unsafe extern "C" fn last_error(vfs: *mut Vfs, bytes: c_int, out: *mut c_char) -> c_int {
    // SAFETY: SQLite calls with a VFS of this module. `out` is null, or a buffer of `bytes` bytes.
    unsafe {
        rim(OK, || {
            let room = usize::try_from(bytes).unwrap_or(0);
            if room > 0 && !out.is_null() {
                let text = registered(vfs).errors.newest();
                let text = &text.as_bytes()[..text.len().min(room - 1)];
                std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), text.len());
                *out.add(text.len()) = 0;
            }
            OK
        })
    }
}

/// The functions of a linked SQLite, from a module with bindings such as `rusqlite::ffi` or
/// `libsqlite3_sys`: 3.39 or newer.
#[macro_export]
macro_rules! functions {
    ($ffi:path) => {{
        use $ffi as sqlite;
        #[allow(
            clippy::missing_transmute_annotations,
            reason = "the types are those of the fields, and of the header of SQLite"
        )]
        // SAFETY: these are the functions by these names of one SQLite, with the types that its
        // header gives them.
        let functions = unsafe {
            sqlite::sqlite3_initialize();
            $crate::Functions {
                vfs_find: ::core::mem::transmute(sqlite::sqlite3_vfs_find as *const ()),
                vfs_register: ::core::mem::transmute(sqlite::sqlite3_vfs_register as *const ()),
                malloc: ::core::mem::transmute(sqlite::sqlite3_malloc as *const ()),
                file_control: ::core::mem::transmute(sqlite::sqlite3_file_control as *const ()),
                uri_parameter: ::core::mem::transmute(sqlite::sqlite3_uri_parameter as *const ()),
                log: ::core::mem::transmute(sqlite::sqlite3_log as *const ()),
                db_name: ::core::mem::transmute(sqlite::sqlite3_db_name as *const ()),
                txn_state: ::core::mem::transmute(sqlite::sqlite3_txn_state as *const ()),
                next_stmt: ::core::mem::transmute(sqlite::sqlite3_next_stmt as *const ()),
                stmt_busy: ::core::mem::transmute(sqlite::sqlite3_stmt_busy as *const ()),
                stmt_readonly: ::core::mem::transmute(sqlite::sqlite3_stmt_readonly as *const ()),
            }
        };
        functions
    }};
}

/// Registers the VFS with the linked SQLite: see [`functions`](crate::functions).
#[macro_export]
macro_rules! register {
    ($ffi:path) => {{
        let functions = $crate::functions!($ffi);
        // SAFETY: the functions are those of the SQLite that is linked, and it is initialised.
        unsafe { $crate::register(&functions, false) }
    }};
}
