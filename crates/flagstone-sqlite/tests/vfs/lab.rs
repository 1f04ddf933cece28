//! Databases that tests keep themselves, on media that can be cut, fail, and be full, by way of a
//! VFS of their own: `flagstone-lab`.

mod hooked;

pub(crate) use hooked::{Early, Hooks, full};

use flagstone::commit::Kind;
use flagstone_sqlite::{Backing, Bytes, How, StoreFile, Trouble, TroubleKind, View};
use flagstone_store::medium::{Medium, Recorded, Tight};
use flagstone_store::{OpenOptions, PageStore};
use rusqlite::Connection;
use std::collections::HashMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// What a database is kept in.
#[derive(Clone)]
pub(crate) enum Place {
    Store(Recorded, Kind),
    /// A plain file, for the control.
    Plain(Recorded),
    /// A store that makes a mistake, for a control.
    Early(Recorded, Early),
    /// A store that asks a test first.
    Hooked(Recorded, Hooks),
    /// A store whose medium may have no room for what it has promised.
    Tight(Tight),
}

/// Places by name: the backing of a VFS of its own.
#[derive(Clone, Default)]
struct Lab(Arc<Mutex<HashMap<PathBuf, Place>>>);

impl Lab {
    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Place>> {
        self.0.lock().expect("one at a time")
    }
}

impl Backing for Lab {
    fn open(&self, path: &Path, how: &How) -> Result<Box<dyn Bytes>, Trouble> {
        let place = self.lock().get(path).cloned();
        let mut options = OpenOptions::default();
        options.pages_per_block = 16;
        let (medium, kind): (Box<dyn Medium>, Kind) = match place.expect("it was put there") {
            Place::Store(medium, kind) => (Box::new(medium), kind),
            Place::Early(medium, mistake) => {
                let store = PageStore::on(Box::new(medium), &options)?;
                return Ok(Box::new(mistake.of(StoreFile::new(store)?)));
            }
            Place::Hooked(medium, hooks) => {
                hooks.open()?;
                let store = PageStore::on(Box::new(medium), &options)?;
                return Ok(Box::new(hooks.over(StoreFile::new(store)?)));
            }
            Place::Tight(medium) => {
                options.create = how.create;
                options.read_only = how.read_only;
                (Box::new(medium), Kind::Seal)
            }
            Place::Plain(medium) => return Ok(Box::new(Plain::new(medium))),
        };
        options.protocol = kind;
        Ok(Box::new(StoreFile::new(PageStore::on(medium, &options)?)?))
    }
}

/// A plain file on the same medium: writes go there at once, a commit is a sync, and nothing is
/// rolled back by anybody but SQLite. Its size is in the first sector.
struct Plain {
    medium: Recorded,
    size: u64,
}

const HEAD: u64 = 512;

impl Plain {
    fn new(medium: Recorded) -> Plain {
        let mut head = [0; 8];
        medium.read_at(0, &mut head).expect("memory");
        Plain {
            medium,
            size: u64::from_le_bytes(head),
        }
    }

    fn resize(&mut self, size: u64) {
        if size != self.size {
            let mut head = [0; HEAD as usize];
            head[..8].copy_from_slice(&size.to_le_bytes());
            self.medium.write_at(0, &head).expect("memory");
            self.size = size;
        }
    }
}

impl Bytes for Plain {
    fn size(&self, _: View) -> u64 {
        self.size
    }

    fn read(&mut self, _: View, at: u64, into: &mut [u8]) -> Result<usize, Trouble> {
        let has = self.size.saturating_sub(at).min(into.len() as u64) as usize;
        self.medium
            .read_at(HEAD + at, &mut into[..has])
            .expect("memory");
        into[has..].fill(0);
        Ok(has)
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Trouble> {
        let written = self.medium.write_at(HEAD + at, data);
        written.map_err(|error| Trouble::new(TroubleKind::Io, error.to_string()))?;
        self.resize(self.size.max(at + data.len() as u64));
        Ok(())
    }

    fn truncate(&mut self, size: u64) -> Result<(), Trouble> {
        self.resize(size);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Trouble> {
        let synced = self.medium.sync();
        synced.map_err(|error| Trouble::new(TroubleKind::Io, error.to_string()))
    }

    fn abort(&mut self) {}
}

fn lab() -> &'static Lab {
    static LAB: OnceLock<Lab> = OnceLock::new();
    LAB.get_or_init(|| {
        let lab = Lab::default();
        for name in ["flagstone-lab", "flagstone-lab-elsewhere"] {
            crate::support::register_lab(name, Box::new(lab.clone()));
        }
        lab
    })
}

/// A database of the lab, by a name that no other test has. The lab forgets it with this value.
pub(crate) struct Put(PathBuf);

pub(crate) fn put(place: Place) -> Put {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // No file; but SQLite puts super-journals beside it.
    let name = format!("flagstone-lab-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    lab().lock().insert(path.clone(), place);
    Put(path)
}

/// A database in a store on a medium.
pub(crate) fn put_store(medium: Recorded) -> Put {
    put(Place::Store(medium, Kind::Seal))
}

impl Deref for Put {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Put {
    fn drop(&mut self) {
        lab().lock().remove(&self.0);
    }
}

/// The URI of a database of the lab.
pub(crate) fn uri(path: &Path) -> String {
    format!("file:{}?vfs=flagstone-lab", path.display())
}

pub(crate) fn open(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open(uri(path))
}

/// Opens a database as another process would: by a VFS that shares no connection with the first.
pub(crate) fn open_elsewhere(path: &Path) -> rusqlite::Result<Connection> {
    let uri = format!("file:{}?vfs=flagstone-lab-elsewhere", path.display());
    Connection::open(uri)
}

/// Super-journals on disk of a main database.
pub(crate) fn super_journals(main: &Path) -> usize {
    let start = format!("{}-mj", main.file_name().expect("a name").display());
    let entries = std::fs::read_dir(main.parent().expect("a folder")).expect("it can be read");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&start)).count()
}
