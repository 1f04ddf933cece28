//! The methods of open files: databases and journals.

use super::hooks;
use super::register::Registered;
use super::rim;
use super::types::*;
use crate::bytes::{Trouble, TroubleKind};
use crate::file::begins_as_database;
use crate::journal::Journal;
use crate::locks::Level;
use crate::pragma::{self, Answer};
use crate::stores::{Handle, JournalOf};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

/// Reported sector size: that of a store's page.
const SECTOR_BYTES: c_int = 4096;

/// POWERSAFE_OVERWRITE: a write is whole or absent, and does not harm its neighbours. The other
/// flags save SQLite work on the in-memory journal. Not claimed: UNDELETABLE_WHEN_OPEN, since
/// SQLite would keep a journal open without a lock and play it back over later commits of others;
/// and BATCH_ATOMIC, since SQLite would overwrite the database without a synced journal if a batch
/// failed.
const CHARACTERISTICS: c_int = IOCAP_POWERSAFE_OVERWRITE | IOCAP_SAFE_APPEND | IOCAP_SEQUENTIAL;

/// State of an open database file.
pub(super) struct Database {
    pub(super) registered: &'static Registered,
    pub(super) handle: Handle,
    users: Arc<Users>,
    /// Whether the database gets reserved bytes if it is empty, or rewritten by `VACUUM`
    /// ([`hooks::reserve`]).
    pub(super) gets_reserved_bytes: bool,
    /// Whether `journal_mode=WAL` is an error (`wal=refuse`).
    refuses_wal: bool,
    /// Whether the live transaction was checked for a journal ([`hooks::look_at_journal`]).
    is_journal_checked: bool,
    /// Whether SQLite's cached header differs from the file's, so that SQLite must drop its cache.
    is_cached_header_stale: bool,
}

/// The bytes of a database header that indicate WAL mode.
const VERSIONS: std::ops::Range<usize> = 18..20;
/// The header bytes by which SQLite checks whether its cache is valid: change counter, number of
/// pages, first free page and number of free pages.
const CHANGES: std::ops::Range<i64> = 24..40;
/// A value of these bytes that occurs in no database, and that SQLite never has in its cache.
const OTHER_CHANGES: [u8; 16] = [
    0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
];

/// An open journal: its database connection, and its contents.
struct OpenJournal {
    journal: Journal,
    _of: Option<JournalOf>,
}

static DATABASE: IoMethods = IoMethods {
    version: 1,
    close,
    read,
    write,
    truncate,
    sync,
    file_size,
    lock,
    unlock,
    check_reserved,
    file_control,
    sector_size,
    characteristics,
};

static JOURNAL: IoMethods = IoMethods {
    version: 1,
    close: journal_close,
    read: journal_read,
    write: journal_write,
    truncate: journal_truncate,
    sync: journal_sync,
    file_size: journal_size,
    lock: journal_lock,
    unlock: journal_lock,
    check_reserved: journal_reserved,
    file_control: journal_control,
    sector_size,
    characteristics,
};

/// Initialises a SQLite file object as a database.
///
/// # Safety
/// `file` has room for a [`File`].
pub(super) unsafe fn put_database(
    file: *mut File,
    registered: &'static Registered,
    handle: Handle,
    refuses_wal: bool,
) {
    let gets_reserved_bytes = !handle.is_read_only();
    let users = Arc::new(Users::default());
    // SAFETY: as for this function. The pointer is valid as long as `database` has the `Arc`: until
    // `close`, after which SQLite does not use the file.
    unsafe { (*file).users = Arc::as_ptr(&users) };
    let database = Box::new(Database {
        registered,
        handle,
        users,
        gets_reserved_bytes,
        refuses_wal,
        is_journal_checked: false,
        is_cached_header_stale: false,
    });
    // SAFETY: as for this function.
    unsafe {
        (*file).object = Box::into_raw(database).cast();
        (*file).methods = &raw const DATABASE;
    }
}

/// Initialises a SQLite file object as a journal.
///
/// # Safety
/// `file` has room for a [`File`].
pub(super) unsafe fn put_journal(file: *mut File, of: Option<JournalOf>) {
    let journal = Box::new(OpenJournal {
        journal: Journal::default(),
        _of: of,
    });
    // SAFETY: as for this function.
    unsafe {
        (*file).object = Box::into_raw(journal).cast();
        (*file).methods = &raw const JOURNAL;
    }
}

/// The database in a file object. SQLite calls the methods of a file on one thread at a time, but
/// for `FCNTL_PDB`, which concerns its [`Users`] only.
///
/// # Safety
/// [`put_database`] made it, and it is open.
unsafe fn database<'a>(file: *mut File) -> &'a mut Database {
    // SAFETY: as for this function.
    let database = unsafe { &mut *(*file).object.cast::<Database>() };
    if database.users.are_several() {
        database.handle.share_cache();
    }
    database
}

/// The journal in a file object.
///
/// # Safety
/// [`put_journal`] made it, and it is open.
unsafe fn journal<'a>(file: *mut File) -> &'a mut Journal {
    // SAFETY: as for this function.
    unsafe { &mut (*(*file).object.cast::<OpenJournal>()).journal }
}

/// The result code for a failure; `otherwise` if no better one exists.
fn code_of(trouble: &Trouble, otherwise: c_int) -> c_int {
    match trouble.kind {
        TroubleKind::Busy => BUSY,
        TroubleKind::Full => FULL,
        TroubleKind::ReadOnly => READONLY,
        TroubleKind::Damaged => IOERR_DATA,
        TroubleKind::NotAStore => NOTADB,
        TroubleKind::CannotOpen | TroubleKind::Denied => CANTOPEN,
        TroubleKind::Io => otherwise,
    }
}

impl Database {
    /// Where SQLite keeps the connection that currently uses this file; null if unknown.
    pub(super) fn connection(&self) -> *const *mut Sqlite3 {
        self.users.connection()
    }

    /// Reports a failure. Returns its result code; `otherwise` if no better one exists.
    fn failed(&self, trouble: &Trouble, otherwise: c_int) -> c_int {
        let code = code_of(trouble, otherwise);
        self.registered.report(code, self.handle.path(), trouble)
    }

    /// Like [`Self::failed`], for the first lock of a transaction, which opens the store.
    fn failed_to_open(&self, trouble: &Trouble) -> c_int {
        let code = code_of(trouble, IOERR_LOCK);
        let path = self.handle.path();
        self.registered.report_opening(code, path, trouble)
    }

    /// The result code for a failed change: only these make SQLite give up the transaction.
    fn change_failed(&self, trouble: &Trouble, otherwise: c_int) -> c_int {
        match self.failed(trouble, otherwise) {
            FULL => FULL,
            code if code & 0xff == IOERR => code,
            _ => otherwise,
        }
    }

    /// The result code of an operation.
    fn done(&self, done: Result<(), Trouble>, otherwise: c_int) -> c_int {
        done.map_or_else(|trouble| self.failed(&trouble, otherwise), |()| OK)
    }

    /// The result code of a change.
    fn changed(&self, done: Result<(), Trouble>, otherwise: c_int) -> c_int {
        done.map_or_else(|trouble| self.change_failed(&trouble, otherwise), |()| OK)
    }

    /// Called when SQLite is about to commit. A transaction that may join a group is committed
    /// later, when SQLite has finished its commit.
    ///
    /// # Safety
    /// This is in a call of SQLite on the connection of this file.
    unsafe fn begin_commit(&mut self, file: *mut File, has_super_journal: bool) -> c_int {
        // SAFETY: as for this function.
        let is_of_several = has_super_journal || unsafe { hooks::writes_to_several(self) };
        // SAFETY: as for this function.
        if !is_of_several && self.handle.may_join() && unsafe { hooks::lets_go(file, self) } {
            self.handle.join_later();
        }
        self.commit(is_of_several)
    }

    fn commit(&mut self, is_of_several: bool) -> c_int {
        if self.handle.joins() {
            return OK;
        }
        let committed = self.handle.commit(is_of_several);
        self.committed(committed)
    }

    fn end_commit(&mut self) -> c_int {
        let committed = self.handle.end_commit();
        self.committed(committed)
    }

    fn committed(&self, committed: Result<(), Trouble>) -> c_int {
        if committed.is_ok() {
            self.registered.errors.committed(self.handle.path());
        }
        self.changed(committed, IOERR_FSYNC)
    }
}

/// The bytes that SQLite passes.
///
/// # Safety
/// `from` points to `bytes` readable bytes.
unsafe fn given<'a>(from: *const c_void, bytes: c_int) -> &'a [u8] {
    // SAFETY: as for this function.
    unsafe { std::slice::from_raw_parts(from.cast(), usize::try_from(bytes).unwrap_or(0)) }
}

/// The buffer that SQLite passes.
///
/// # Safety
/// `into` points to `bytes` writable bytes.
unsafe fn room<'a>(into: *mut c_void, bytes: c_int) -> &'a mut [u8] {
    // SAFETY: as for this function.
    unsafe { std::slice::from_raw_parts_mut(into.cast(), usize::try_from(bytes).unwrap_or(0)) }
}

fn whole_or_short(has: usize, room: usize) -> c_int {
    if has == room { OK } else { IOERR_SHORT_READ }
}

unsafe extern "C" fn close(file: *mut File) -> c_int {
    // SAFETY: SQLite closes a file once, and does not use it afterwards.
    let database = unsafe { Box::from_raw((*file).object.cast::<Database>()) };
    rim(IOERR_CLOSE, || {
        database.registered.errors.closed(database.handle.path());
        database.handle.close();
        OK
    })
}

/// `xRead`. Answers SQLite's read of the header's counters with a value that no database has if the
/// state is another one than SQLite has in its cache: SQLite then drops the cache.
unsafe extern "C" fn read(file: *mut File, into: *mut c_void, bytes: c_int, at: i64) -> c_int {
    // SAFETY: SQLite calls with an open database and a buffer of `bytes` bytes.
    let (database, into) = unsafe { (database(file), room(into, bytes)) };
    rim(IOERR_READ, || {
        if at == 0 && database.handle.level() == Level::None && !database.handle.is_open() {
            // A read of the header before the first lock: SQLite reads it again under the lock.
            into.fill(0);
            return IOERR_SHORT_READ;
        }
        match database.handle.read(at as u64, into) {
            Ok(has) => {
                let end = at + into.len() as i64;
                if (at..end) == CHANGES {
                    let is_stale = std::mem::take(&mut database.is_cached_header_stale);
                    if database.handle.is_other() || is_stale {
                        // Makes SQLite clear its cache.
                        into.copy_from_slice(&OTHER_CHANGES);
                    }
                }
                whole_or_short(has, into.len())
            }
            Err(trouble) => database.failed(&trouble, IOERR_READ),
        }
    })
}

/// `xWrite`. Refuses the first write of a transaction that has no journal, and keeps the WAL flag
/// out of the header.
unsafe extern "C" fn write(file: *mut File, from: *const c_void, bytes: c_int, at: i64) -> c_int {
    // SAFETY: SQLite calls with an open database and `bytes` bytes of data.
    let (database, data) = unsafe { (database(file), given(from, bytes)) };
    rim(IOERR_WRITE, || {
        if !database.is_journal_checked {
            // SAFETY: SQLite writes in a transaction of the connection that it has named.
            if let Err(trouble) = unsafe { hooks::look_at_journal(file, database) } {
                return database.change_failed(&trouble, IOERR_WRITE);
            }
            database.is_journal_checked = true;
        }
        // Clear the WAL flag in a page-by-page copy of a database in WAL mode; otherwise the copy
        // could not be opened. A first page without SQLite's header is ciphertext (SQLCipher), and
        // is not changed.
        let mut copy = Vec::new();
        let data = if at == 0
            && begins_as_database(data)
            && data
                .get(VERSIONS)
                .is_some_and(|versions| versions != [1, 1])
        {
            copy.extend_from_slice(data);
            copy[VERSIONS].fill(1);
            database.is_cached_header_stale = true;
            &copy[..]
        } else {
            data
        };
        let written = database.handle.write(at as u64, data);
        database.changed(written, IOERR_WRITE)
    })
}

unsafe extern "C" fn truncate(file: *mut File, size: i64) -> c_int {
    // SAFETY: SQLite calls with an open database.
    let database = unsafe { database(file) };
    rim(IOERR_TRUNCATE, || {
        let cut = database.handle.truncate(size as u64);
        database.changed(cut, IOERR_TRUNCATE)
    })
}

unsafe extern "C" fn sync(file: *mut File, _: c_int) -> c_int {
    // SAFETY: SQLite calls with an open database.
    let database = unsafe { database(file) };
    rim(IOERR_FSYNC, || database.commit(false))
}

unsafe extern "C" fn file_size(file: *mut File, out: *mut i64) -> c_int {
    // SAFETY: SQLite calls with an open database and a place for the answer.
    let (database, out) = unsafe { (database(file), &mut *out) };
    rim(IOERR_FSTAT, || {
        let size = database.handle.size().map(|size| *out = size as i64);
        if size.is_ok() && database.handle.level() == Level::None {
            database.registered.errors.opened(database.handle.path());
        }
        database.done(size, IOERR_FSTAT)
    })
}

/// `xLock`. The first lock opens the store ([`Handle::lock`](crate::stores::Handle::lock)).
unsafe extern "C" fn lock(file: *mut File, level: c_int) -> c_int {
    // SAFETY: SQLite calls with an open database.
    let database = unsafe { database(file) };
    rim(IOERR_LOCK, || {
        let Some(level) = Level::of(level) else {
            return IOERR_LOCK;
        };
        let (functions, connection) = (&database.registered.functions, database.connection());
        // SAFETY: SQLite locks in a call on the connection that it has named.
        let aim = || unsafe { hooks::aim(functions, connection) };
        match database.handle.lock(level, aim) {
            Ok(true) => {
                if level == Level::Shared {
                    database.registered.errors.opened(database.handle.path());
                    // SAFETY: SQLite locks in a call on the connection that it has named.
                    unsafe { hooks::reserve(file, database) };
                }
                OK
            }
            Ok(false) => BUSY,
            Err(trouble) if level == Level::Shared => database.failed_to_open(&trouble),
            Err(trouble) => database.failed(&trouble, IOERR_LOCK),
        }
    })
}

unsafe extern "C" fn unlock(file: *mut File, level: c_int) -> c_int {
    // SAFETY: SQLite calls with an open database.
    let database = unsafe { database(file) };
    rim(IOERR_UNLOCK, || {
        let level = Level::of(level).unwrap_or(Level::None);
        if level < Level::Reserved {
            database.is_journal_checked = false;
        }
        let unlocked = database.handle.unlock(level);
        database.done(unlocked, IOERR_UNLOCK)
    })
}

unsafe extern "C" fn check_reserved(file: *mut File, out: *mut c_int) -> c_int {
    // SAFETY: SQLite calls with an open database and a place for the answer.
    let (database, out) = unsafe { (database(file), &mut *out) };
    rim(IOERR_LOCK, || {
        let looked = database.handle.is_reserved();
        let looked = looked.map(|is_reserved| *out = c_int::from(is_reserved));
        database.done(looked, IOERR_LOCK)
    })
}

/// `xFileControl`: SQLite's messages to the VFS. It commits by them: `SYNC` before it gives up the
/// journal, `COMMIT_PHASETWO` after that.
unsafe extern "C" fn file_control(file: *mut File, op: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: SQLite calls with an open database, and with an argument of the type that its header
    // gives for `op`.
    unsafe {
        if op == FCNTL_PDB {
            (*(*file).users).used_by(arg.cast());
            return OK;
        }
        let database = database(file);
        let if_it_panics = match op {
            // Makes SQLite clear its cache.
            FCNTL_SYNC | FCNTL_COMMIT_PHASETWO => IOERR_FSYNC,
            _ => INTERNAL,
        };
        rim(if_it_panics, || match op {
            FCNTL_LOCKSTATE => {
                *arg.cast::<c_int>() = database.handle.level() as c_int;
                OK
            }
            FCNTL_LAST_ERRNO => {
                *arg.cast::<c_int>() = 0;
                OK
            }
            FCNTL_HAS_MOVED => {
                *arg.cast::<c_int>() = c_int::from(database.handle.has_moved());
                OK
            }
            FCNTL_SIZE_HINT | FCNTL_CHUNK_SIZE => OK,
            // Also called with synchronous=OFF, and while all databases of the transaction can
            // still be rolled back: SQLite ignores later failures. The argument is the name of the
            // super-journal, if any.
            FCNTL_SYNC => database.begin_commit(file, !arg.is_null()),
            // VACUUM rewrites all pages.
            FCNTL_OVERWRITE => {
                database.handle.overwrites_all();
                OK
            }
            FCNTL_POWERSAFE_OVERWRITE => {
                *arg.cast::<c_int>() = 1;
                OK
            }
            FCNTL_VFSNAME => {
                let name = database.registered.name.as_bytes();
                *arg.cast::<*mut c_char>() = text(database.registered, name);
                OK
            }
            FCNTL_COMMIT_PHASETWO => database.end_commit(),
            FCNTL_PRAGMA => answer_pragma(file, database, arg.cast()),
            _ => NOTFOUND,
        })
    }
}

/// Applies a pragma that concerns the VFS, and answers it. `NOTFOUND` lets SQLite carry it out.
///
/// # Safety
/// SQLite asks for `file`, which is `database`. `words` are those of SQLITE_FCNTL_PRAGMA: room for
/// an answer, the name, and the value or null.
unsafe fn answer_pragma(
    file: *mut File,
    database: &mut Database,
    words: *mut *mut c_char,
) -> c_int {
    // SAFETY: as for this function.
    unsafe {
        let name = CStr::from_ptr(*words.add(1)).to_string_lossy();
        let value = *words.add(2);
        let value = (!value.is_null()).then(|| CStr::from_ptr(value).to_string_lossy());
        if let Some(is_good) = pragma::page_for_reserved_bytes(&name, value.as_deref()) {
            database.gets_reserved_bytes = is_good && !database.handle.is_read_only();
        }
        if let Some(keeps) = pragma::keeps_locks(&name, value.as_deref()) {
            database.handle.keep_locks(keeps);
        }
        let can_look = hooks::can_look_at_journal(file, database);
        let last_error = database.registered.errors.of(database.handle.path());
        let said = |done: Result<String, Trouble>| {
            done.map_or_else(|trouble| Answer::Refuse(trouble.why), Answer::Text)
        };
        let refuses_wal = database.refuses_wal;
        let answer = pragma::answer(&name, value.as_deref(), can_look, refuses_wal, &last_error);
        let answer = match answer {
            Answer::Backup(to) => {
                let pages = database.handle.backup(&to);
                said(pages.map(|pages| format!("{pages} pages")))
            }
            Answer::Check => said(database.handle.check().map(|it| pragma::verdict(&it))),
            Answer::Idle(pages) => said(database.handle.idle(pages).map(|it| it.to_string())),
            other => other,
        };
        match answer {
            Answer::Text(answer) => {
                *words = text(database.registered, answer.as_bytes());
                OK
            }
            Answer::Refuse(why) => {
                *words = text(database.registered, why.as_bytes());
                ERROR
            }
            _ => NOTFOUND,
        }
    }
}

/// Allocates a string that SQLite frees; null if there is no memory.
fn text(registered: &Registered, from: &[u8]) -> *mut c_char {
    // SAFETY: `malloc` returns a buffer of that size, or null.
    unsafe {
        let room = (registered.functions.malloc)(from.len() as c_int + 1).cast::<u8>();
        if !room.is_null() {
            std::ptr::copy_nonoverlapping(from.as_ptr(), room, from.len());
            *room.add(from.len()) = 0;
        }
        room.cast()
    }
}

unsafe extern "C" fn sector_size(_: *mut File) -> c_int {
    SECTOR_BYTES
}

unsafe extern "C" fn characteristics(_: *mut File) -> c_int {
    CHARACTERISTICS
}

unsafe extern "C" fn journal_close(file: *mut File) -> c_int {
    // SAFETY: SQLite closes a file once, and does not use it afterwards.
    let journal = unsafe { Box::from_raw((*file).object.cast::<OpenJournal>()) };
    rim(IOERR_CLOSE, || {
        drop(journal);
        OK
    })
}

unsafe extern "C" fn journal_read(
    file: *mut File,
    into: *mut c_void,
    bytes: c_int,
    at: i64,
) -> c_int {
    // SAFETY: SQLite calls with an open journal and a buffer of `bytes` bytes.
    let (journal, into) = unsafe { (journal(file), room(into, bytes)) };
    rim(IOERR_READ, || {
        whole_or_short(journal.read(at as u64, into), into.len())
    })
}

unsafe extern "C" fn journal_write(
    file: *mut File,
    from: *const c_void,
    bytes: c_int,
    at: i64,
) -> c_int {
    // SAFETY: SQLite calls with an open journal and `bytes` bytes of data.
    let (journal, data) = unsafe { (journal(file), given(from, bytes)) };
    rim(IOERR_WRITE, || {
        journal.write(at as u64, data);
        OK
    })
}

unsafe extern "C" fn journal_truncate(file: *mut File, size: i64) -> c_int {
    // SAFETY: SQLite calls with an open journal.
    let journal = unsafe { journal(file) };
    rim(IOERR_TRUNCATE, || {
        journal.truncate(size as u64);
        OK
    })
}

unsafe extern "C" fn journal_sync(_: *mut File, _: c_int) -> c_int {
    OK
}

unsafe extern "C" fn journal_size(file: *mut File, out: *mut i64) -> c_int {
    // SAFETY: SQLite calls with an open journal and a place for the answer.
    unsafe { *out = journal(file).size() as i64 };
    OK
}

unsafe extern "C" fn journal_lock(_: *mut File, _: c_int) -> c_int {
    OK
}

unsafe extern "C" fn journal_reserved(_: *mut File, out: *mut c_int) -> c_int {
    // SAFETY: SQLite calls with a place for the answer.
    unsafe { *out = 0 };
    OK
}

unsafe extern "C" fn journal_control(_: *mut File, op: c_int, _: *mut c_void) -> c_int {
    match op {
        FCNTL_SIZE_HINT | FCNTL_CHUNK_SIZE => OK,
        _ => NOTFOUND,
    }
}
