//! Records the transactions of databases in stores, with a VFS that wraps that of ordinary stores.

use super::{Role, Trace};
use crate::engine::escaped;
use flagstone_sqlite::{Backing, Bytes, How, StoreFile, Trouble, TroubleKind, View};
use flagstone_store::{Cut, OpenOptions, PageStore};
use flagstone_terminal::Failure;
use rusqlite::{Connection, OpenFlags};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

const NAME: &str = "flagstone-recorded";
/// Bytes of a chunk of a database file. A page of a store holds one chunk.
const CHUNK: u64 = 4096;

static TRACES: Mutex<Option<HashMap<PathBuf, Trace>>> = Mutex::new(None);

fn traces() -> MutexGuard<'static, Option<HashMap<PathBuf, Trace>>> {
    TRACES.lock().unwrap_or_else(|held| held.into_inner())
}

/// A database in a store, and the writes of its live transaction.
struct Recorded {
    path: PathBuf,
    file: StoreFile,
    cut: Cut,
    chunks: Vec<u64>,
    /// Pages that had been written to the device before this transaction.
    before: u64,
}

impl Recorded {
    fn given(&self) -> u64 {
        self.file.store().device().request_stats().pages_written
    }

    /// The pages of the transaction that has just committed. Their number comes from the device: a
    /// first chunk that differs only in its change counters is not written.
    fn pages(&mut self) -> Result<Vec<super::Page>, Trouble> {
        let now = self.given();
        let given = now - std::mem::replace(&mut self.before, now);
        let mut chunks = std::mem::take(&mut self.chunks);
        let others = chunks.iter().filter(|&&chunk| chunk != 0).count() as u64;
        if given == others {
            chunks.retain(|&chunk| chunk != 0);
        }
        if given != chunks.len() as u64 {
            return Err(Trouble::new(
                TroubleKind::Io,
                format!(
                    "the store was given {given} pages, but {} were recorded: only a database with \
                     its page ends in the page can be recorded",
                    chunks.len()
                ),
            ));
        }
        let page = |chunk| self.cut.main_page(chunk).map(|at| (Role::Database, at.0));
        Ok(chunks.into_iter().filter_map(page).collect())
    }
}

impl Bytes for Recorded {
    fn size(&self, view: View) -> u64 {
        self.file.size(view)
    }

    fn read(&mut self, view: View, at: u64, into: &mut [u8]) -> Result<usize, Trouble> {
        self.file.read(view, at, into)
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Trouble> {
        self.file.write(at, data)?;
        let chunk = at / CHUNK;
        // The first chunk is written only at commit, so it is counted once.
        if chunk != 0 || !self.chunks.contains(&0) {
            self.chunks.push(chunk);
        }
        Ok(())
    }

    fn truncate(&mut self, size: u64) -> Result<(), Trouble> {
        self.file.truncate(size)
    }

    fn commit(&mut self) -> Result<(), Trouble> {
        self.file.commit()?;
        let pages = self.pages()?;
        if !pages.is_empty()
            && let Some(trace) = traces().get_or_insert_default().get_mut(&self.path)
        {
            trace.syncs.push(pages);
        }
        Ok(())
    }

    fn abort(&mut self) {
        self.file.abort();
        self.chunks.clear();
        self.before = self.given();
    }

    fn snapshot(&mut self) -> Result<Option<u64>, Trouble> {
        self.file.snapshot()
    }

    fn is_current(&self, snapshot: u64) -> bool {
        self.file.is_current(snapshot)
    }

    fn end_snapshot(&mut self, snapshot: u64) {
        self.file.end_snapshot(snapshot);
    }
}

/// Opens stores in files and records their writes.
struct Recording;

impl Backing for Recording {
    fn open(&self, path: &Path, _: &How) -> Result<Box<dyn Bytes>, Trouble> {
        let store = PageStore::open(path, &OpenOptions::default())?;
        let file = StoreFile::new(store)?;
        traces()
            .get_or_insert_default()
            .entry(path.to_path_buf())
            .or_default();
        let mut recorded = Recorded {
            path: path.to_path_buf(),
            file,
            cut: Cut::new(PageStore::PAGE_BYTES, 0),
            chunks: Vec::new(),
            before: 0,
        };
        recorded.before = recorded.given();
        Ok(Box::new(recorded))
    }
}

/// Opens a database whose transactions are recorded.
pub(super) fn open(path: &Path) -> Result<Connection, Failure> {
    let functions = flagstone_sqlite::functions!(rusqlite::ffi);
    let backing = Box::new(Recording);
    #[allow(unsafe_code, reason = "SQLite's functions come by their addresses")]
    // SAFETY: the functions are those of the SQLite that is linked, and it is initialised.
    unsafe {
        flagstone_sqlite::register_as(&functions, NAME, backing, false)?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI;
    let uri = format!("file:{}?vfs={NAME}", escaped(path)?);
    Ok(Connection::open_with_flags(uri, flags)?)
}

/// Takes the recording since the last call.
pub(super) fn take(path: &Path) -> Result<Trace, Failure> {
    let path = path.canonicalize()?;
    let mut traces = traces();
    let trace = traces.get_or_insert_default().entry(path).or_default();
    let begins_with = trace.pages_of(Role::Database);
    let next = Trace {
        syncs: Vec::new(),
        begins_with,
    };
    Ok(std::mem::replace(trace, next))
}
