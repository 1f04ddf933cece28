//! A database whose pages are encrypted above the VFS (SQLCipher, SQLite's own extension) has
//! ciphertext as its first page. The VFS keeps that page to the byte. These tests call the VFS as
//! SQLite does, because the SQLite of the tests encrypts nothing.

#![allow(unsafe_code, reason = "the VFS has the interface of SQLite")]

use crate::support::Stores;
use rusqlite::ffi;
use std::ffi::{CString, c_int, c_void};
use std::path::Path;

/// A file of the VFS, which SQLite gives as much room as the VFS asks for.
struct Opened {
    room: Vec<u64>,
    /// The name with its terminator, which SQLite keeps while the file is open.
    name: *const i8,
}

fn vfs() -> *mut ffi::sqlite3_vfs {
    // SAFETY: SQLite is initialised, and the VFS was registered.
    let vfs = unsafe { ffi::sqlite3_vfs_find(c"flagstone".as_ptr()) };
    assert!(!vfs.is_null(), "the VFS is registered");
    vfs
}

impl Opened {
    /// Opens a file of the VFS as SQLite does.
    fn new(path: &Path, suffix: &str, flags: c_int) -> Opened {
        let path = CString::new(format!("{}{suffix}", path.display())).expect("no zeros");
        // SAFETY: the arguments are strings, and no parameters.
        let name = unsafe {
            let none = c"".as_ptr();
            ffi::sqlite3_create_filename(path.as_ptr(), none, none, 0, std::ptr::null_mut())
        };
        // SAFETY: `vfs` is registered.
        let bytes = unsafe { (*vfs()).szOsFile } as usize;
        let mut opened = Opened {
            room: vec![0; bytes.div_ceil(8)],
            name: name.cast(),
        };
        let flags = flags | ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE;
        // SAFETY: there is as much room as the VFS wants, and the name is one of SQLite.
        let code = unsafe {
            let open = (*vfs()).xOpen.expect("a VFS opens");
            open(vfs(), name, opened.file(), flags, std::ptr::null_mut())
        };
        assert_eq!(code, ffi::SQLITE_OK, "{}", path.to_string_lossy());
        opened
    }

    fn file(&mut self) -> *mut ffi::sqlite3_file {
        self.room.as_mut_ptr().cast()
    }

    fn methods(&mut self) -> &ffi::sqlite3_io_methods {
        // SAFETY: the file is open.
        unsafe { &*(*self.file()).pMethods }
    }

    fn lock(&mut self, level: c_int) {
        let lock = self.methods().xLock.expect("it locks");
        // SAFETY: the file is open.
        assert_eq!(unsafe { lock(self.file(), level) }, ffi::SQLITE_OK);
    }

    fn unlock(&mut self) {
        let unlock = self.methods().xUnlock.expect("it unlocks");
        // SAFETY: the file is open.
        assert_eq!(unsafe { unlock(self.file(), 0) }, ffi::SQLITE_OK);
    }

    fn control(&mut self, op: c_int) {
        let control = self.methods().xFileControl.expect("it is controlled");
        // SAFETY: the file is open, and these take no argument.
        let code = unsafe { control(self.file(), op, std::ptr::null_mut()) };
        assert_eq!(code, ffi::SQLITE_OK, "control {op}");
    }

    fn read(&mut self, at: i64, bytes: usize) -> Vec<u8> {
        let mut into = vec![0; bytes];
        let read = self.methods().xRead.expect("it reads");
        let to: *mut c_void = into.as_mut_ptr().cast();
        // SAFETY: the file is open, and there is room for so many bytes.
        let code = unsafe { read(self.file(), to, bytes as c_int, at) };
        assert_eq!(code, ffi::SQLITE_OK, "{bytes} bytes at {at}");
        into
    }

    fn write(&mut self, at: i64, data: &[u8]) {
        let write = self.methods().xWrite.expect("it writes");
        // SAFETY: the file is open, and there are so many bytes.
        let code = unsafe { write(self.file(), data.as_ptr().cast(), data.len() as c_int, at) };
        assert_eq!(code, ffi::SQLITE_OK, "{} bytes at {at}", data.len());
    }

    /// Writes a first page in a transaction, as SQLite does.
    fn commit(path: &Path, first: &[u8]) {
        let mut database = Opened::new(path, "", ffi::SQLITE_OPEN_MAIN_DB);
        database.lock(ffi::SQLITE_LOCK_SHARED);
        database.lock(ffi::SQLITE_LOCK_RESERVED);
        let journal = Opened::new(path, "-journal", ffi::SQLITE_OPEN_MAIN_JOURNAL);
        database.lock(ffi::SQLITE_LOCK_EXCLUSIVE);
        database.write(0, first);
        database.control(ffi::SQLITE_FCNTL_SYNC);
        database.control(ffi::SQLITE_FCNTL_COMMIT_PHASETWO);
        drop(journal);
        database.unlock();
    }

    /// The first page, and the 16 bytes by which SQLite sees that its cache is stale, as a new
    /// connection reads them.
    fn first(path: &Path) -> (Vec<u8>, Vec<u8>) {
        let mut database = Opened::new(path, "", ffi::SQLITE_OPEN_MAIN_DB);
        database.lock(ffi::SQLITE_LOCK_SHARED);
        let found = (database.read(0, 4096), database.read(24, 16));
        database.unlock();
        found
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let close = self.methods().xClose.expect("it closes");
        // SAFETY: the file is open, and not used afterwards; nor is its name.
        unsafe {
            close(self.file());
            ffi::sqlite3_free_filename(self.name.cast());
        }
    }
}

/// A page that looks like noise, another one for each `seed`.
fn ciphertext(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..4096).map(|_| byte()).collect()
}

#[test]
fn a_first_page_of_ciphertext_is_kept_to_the_byte() {
    let stores = Stores::new();
    let path = stores.path("a.flag");
    for seed in 0..20 {
        let page = ciphertext(seed);
        Opened::commit(&path, &page);
        let (first, changes) = Opened::first(&path);
        assert!(first == page, "page {seed} came back changed");
        assert_eq!(changes, page[24..40], "page {seed}");
    }
}

#[test]
fn a_first_page_with_the_header_of_a_database_in_wal_mode_becomes_one_without() {
    // The control of the test above: the VFS does look at what is written there.
    let stores = Stores::new();
    let path = stores.path("a.flag");
    let mut page = ciphertext(1);
    page[..16].copy_from_slice(b"SQLite format 3\0");
    page[18..20].fill(2);
    Opened::commit(&path, &page);
    page[18..20].fill(1);
    assert!(
        Opened::first(&path).0 == page,
        "versions 1 and 1, all else as it was"
    );
}
