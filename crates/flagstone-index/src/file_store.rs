//! Storage of index pages in a file or on a block device.
//!
//! Reads and writes bypass the system's page cache (direct I/O) unless `direct` is unset. Pages
//! with consecutive numbers form one request; the requests of one call run concurrently. A file has
//! no transactions: once [`BackingStore::commit`] has returned, all earlier writes are durable. The
//! order in which they became durable is unspecified.
//!
//! The time of completion is the time of the request plus the elapsed wall-clock time.

mod aligned;
mod workers;

use super::store::{BackingError, BackingStore};
use aligned::{ALIGNMENT, Aligned};
use flagstone::units::{Lpn, Nanos};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use thiserror::Error;
use workers::{Job, Workers, carry_out};

/// Maximum bytes of one request.
const REQUEST_BYTES: usize = 1 << 18;

/// How a file is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileOptions {
    /// Bytes of a page: a multiple of 512 and of the device's sector size.
    pub page_bytes: usize,
    /// Maximum number of pages. `None`: the size of the block device, or 2^31 for a file.
    pub pages: Option<u32>,
    /// Whether to bypass the system's page cache.
    pub direct: bool,
    /// Maximum number of requests in flight.
    pub in_flight: usize,
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions {
            page_bytes: 4096,
            pages: None,
            direct: true,
            in_flight: 8,
        }
    }
}

/// Why a file was not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A system call failed.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file system does not support direct I/O, or pages are no whole sectors.
    #[error(
        "{path}: the file system does not support direct I/O of such pages: put the file \
         elsewhere, use pages of whole sectors, or disable direct I/O (--buffered)"
    )]
    NotDirect {
        /// The file.
        path: PathBuf,
    },
    /// Another process has the file open, or the device is mounted.
    #[error("{path} is in use: unmount it, or stop the process that has it open")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Invalid options.
    #[error("{0}")]
    Options(String),
}

/// A file or block device as the store of an index.
///
/// ```
/// use flagstone::units::Nanos;
/// use flagstone_index::{FileOptions, FileStore, IndexKind, Settings};
///
/// let folder = tempfile::tempdir()?;
/// let mut options = FileOptions::default();
/// options.direct = false; // some file systems refuse direct I/O
/// let store = Box::new(FileStore::open(&folder.path().join("tree"), &options)?);
/// let (mut tree, now) = IndexKind::BPlusTree.open(store, &Settings::new(), Nanos::ZERO)?;
/// let now = tree.insert(now, 7, 70)?;
/// assert_eq!(tree.get(now, 7)?.0, Some(70));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FileStore {
    file: Arc<File>,
    path: PathBuf,
    page_bytes: usize,
    pages: u32,
    workers: Workers,
    in_flight: usize,
    /// Request buffers, for reuse.
    spare: Vec<Aligned>,
    changed: bool,
}

/// Makes a file name durable.
fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.canonicalize()?.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

impl FileStore {
    /// Opens a file, which is created if missing, or a block device. No other process can open it
    /// through this type until the store is dropped.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path, options: &FileOptions) -> Result<FileStore, OpenError> {
        let was_there = path.exists();
        let opened = FileStore::open_or(path, options);
        if matches!(opened, Err(OpenError::NotDirect { .. })) && !was_there {
            // This attempt has created the file, and it is empty.
            let _ = std::fs::remove_file(path);
        }
        if opened.is_ok() && !was_there {
            sync_folder_of(path).map_err(|error| why_not(path, false, error))?;
        }
        opened
    }

    /// Opens the file, and reads a page to find out whether direct I/O works. May leave an empty
    /// file behind when it fails.
    fn open_or(path: &Path, options: &FileOptions) -> Result<FileStore, OpenError> {
        let FileOptions {
            page_bytes,
            in_flight,
            direct,
            ..
        } = *options;
        if page_bytes == 0 || !page_bytes.is_multiple_of(512) || page_bytes > REQUEST_BYTES {
            return Err(OpenError::Options(format!(
                "pages of {page_bytes} bytes: use a multiple of 512, up to {REQUEST_BYTES}"
            )));
        }
        if in_flight == 0 || in_flight > 256 {
            return Err(OpenError::Options(format!(
                "{in_flight} requests in flight: use 1 to 256"
            )));
        }
        let path = path.to_path_buf();
        // Checked before opening: opening a pipe blocks, and opening some devices has side effects.
        let kind = std::fs::metadata(&path).ok().map(|meta| meta.file_type());
        let is_device = kind.is_some_and(|kind| kind.is_block_device());
        if kind.is_some_and(|kind| !kind.is_file() && !is_device) {
            return Err(OpenError::Options(format!(
                "{} is neither a file nor a block device",
                path.display()
            )));
        }
        let mut flags = OFlags::empty();
        flags.set(OFlags::DIRECT, direct);
        // `O_EXCL` fails on a block device that is mounted, or has a mounted partition.
        flags.set(OFlags::EXCL, is_device);
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(!is_device)
            .truncate(false)
            .custom_flags(flags.bits().cast_signed())
            .open(&path);
        let mut file = match opened {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                return Err(OpenError::InUse { path });
            }
            other => other.map_err(|error| why_not(&path, direct, error))?,
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(OpenError::InUse { path }),
            other => other.map_err(|error| why_not(&path, false, error.into()))?,
        }
        let end = file.seek(SeekFrom::End(0));
        let end = end.map_err(|error| why_not(&path, false, error))?;
        let most = pages_in(is_device.then_some(end), page_bytes);
        let pages = options.pages.map_or(most, |wanted| wanted.min(most));
        if pages == 0 || options.pages.is_some_and(|wanted| wanted > pages) {
            return Err(OpenError::Options(format!(
                "{} has {pages} pages of {page_bytes} bytes, fewer than are needed",
                path.display()
            )));
        }
        let file = Arc::new(file);
        let mut store = FileStore {
            workers: Workers::start(&file, in_flight),
            in_flight,
            file,
            path,
            page_bytes,
            pages,
            spare: Vec::new(),
            changed: false,
        };
        // Some file systems accept the flag and fail the first request.
        let probe = store.job(Lpn(0), 1, 0, false);
        match store.carry_out(vec![probe], |_| {}) {
            Err(error) => Err(why_not(&store.path, direct, error)),
            Ok(()) => Ok(store),
        }
    }

    fn check(&self, at: Lpn) -> Result<(), BackingError> {
        if at.0 >= self.pages {
            let pages = self.pages;
            return Err(BackingError::OutOfRange { at, pages });
        }
        Ok(())
    }

    fn failed(&self, what: &str, error: &io::Error) -> BackingError {
        BackingError::Io(format!("{}: {what}: {error}", self.path.display()))
    }

    /// A request for `pages` pages from `first` on. `index` is the place of the first one among the
    /// pages of the call.
    fn job(&mut self, first: Lpn, pages: usize, index: usize, write: bool) -> Job {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(pages * self.page_bytes);
        Job {
            offset: first.index() as u64 * self.page_bytes as u64,
            buffer,
            write,
            index,
        }
    }

    /// Splits pages into runs of consecutive numbers, none longer than a request: first page and
    /// length.
    fn runs(&self, pages: impl Iterator<Item = Lpn>) -> Vec<(Lpn, usize)> {
        let most = (REQUEST_BYTES / self.page_bytes).max(1);
        let mut runs: Vec<(Lpn, usize)> = Vec::new();
        for at in pages {
            match runs.last_mut() {
                Some((first, len)) if first.index() + *len == at.index() && *len < most => {
                    *len += 1;
                }
                _ => runs.push((at, 1)),
            }
        }
        runs
    }

    /// Carries requests out: a single one on this thread, several on the worker threads. Passes all
    /// to `each` at the end, and returns the first error.
    fn carry_out(&mut self, jobs: Vec<Job>, mut each: impl FnMut(&Job)) -> io::Result<()> {
        let mut back = Vec::with_capacity(jobs.len());
        let outcome = if jobs.len() == 1 {
            let mut outcome = Ok(());
            for mut job in jobs {
                outcome = carry_out(&self.file, &mut job);
                back.push(job);
            }
            outcome
        } else {
            self.workers.carry_out(jobs, |job| back.push(job))
        };
        for job in back {
            each(&job);
            self.spare.push(job.buffer);
        }
        outcome
    }
}

/// Why a file cannot be opened, or its first page not be read, by the system's error. Direct I/O
/// that the file system or the sector size does not allow is an invalid argument.
fn why_not(path: &Path, direct: bool, error: io::Error) -> OpenError {
    let path = path.to_path_buf();
    match error.kind() {
        io::ErrorKind::InvalidInput if direct => OpenError::NotDirect { path },
        _ => OpenError::Io { path, error },
    }
}

/// Maximum number of pages in a block device of this many bytes, or in a file.
fn pages_in(device: Option<u64>, page_bytes: usize) -> u32 {
    device.map_or(1 << 31, |bytes| {
        u32::try_from(bytes / page_bytes as u64).unwrap_or(u32::MAX)
    })
}

fn since(now: Nanos, start: Instant) -> Nanos {
    now + Nanos(start.elapsed().as_nanos() as u64)
}

impl BackingStore for FileStore {
    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn pages(&self) -> u32 {
        self.pages
    }

    fn read(&mut self, now: Nanos, at: Lpn, into: &mut [u8]) -> Result<Nanos, BackingError> {
        self.read_many(now, &[at], into)
    }

    /// Reads each run of pages by one request, at most `in_flight` of them at once.
    fn read_many(
        &mut self,
        now: Nanos,
        pages: &[Lpn],
        into: &mut [u8],
    ) -> Result<Nanos, BackingError> {
        let start = Instant::now();
        for &at in pages {
            self.check(at)?;
        }
        let mut index = 0;
        let size = self.page_bytes;
        // Limits the number of buffers to the number of requests in flight.
        for runs in self.runs(pages.iter().copied()).chunks(self.in_flight) {
            let mut jobs = Vec::new();
            for &(first, len) in runs {
                jobs.push(self.job(first, len, index, false));
                index += len;
            }
            let outcome = self.carry_out(jobs, |job| {
                let bytes = job.buffer.as_slice();
                into[job.index * size..][..bytes.len()].copy_from_slice(bytes);
            });
            outcome.map_err(|error| self.failed("reading", &error))?;
        }
        Ok(since(now, start))
    }

    /// Writes each run of pages by one request, at most `in_flight` of them at once.
    fn write(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, BackingError> {
        let start = Instant::now();
        for &(at, _) in pages {
            self.check(at)?;
        }
        self.changed = true;
        let mut index = 0;
        for runs in self
            .runs(pages.iter().map(|&(at, _)| at))
            .chunks(self.in_flight)
        {
            let mut jobs = Vec::new();
            for &(first, len) in runs {
                let mut job = self.job(first, len, index, true);
                let chunks = job.buffer.as_mut().chunks_mut(self.page_bytes);
                for (page, (_, data)) in chunks.zip(&pages[index..]) {
                    page[..data.len()].copy_from_slice(data);
                    page[data.len()..].fill(0);
                }
                jobs.push(job);
                index += len;
            }
            let outcome = self.carry_out(jobs, |_| {});
            outcome.map_err(|error| self.failed("writing", &error))?;
        }
        Ok(since(now, start))
    }

    fn trim(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, BackingError> {
        self.check(at)?;
        Ok(now)
    }

    fn commit(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        let start = Instant::now();
        if self.changed {
            let synced = self.file.sync_data();
            synced.map_err(|error| self.failed("waiting until it is durable", &error))?;
            self.changed = false;
        }
        Ok(since(now, start))
    }
}

const _: () = assert!(REQUEST_BYTES.is_multiple_of(ALIGNMENT));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Index, IndexKind, Settings};

    fn options(direct: bool) -> FileOptions {
        FileOptions {
            direct,
            in_flight: 3,
            ..FileOptions::default()
        }
    }

    /// Uses direct I/O if the build's file system supports it; otherwise the test reports it.
    fn each(test: impl Fn(&Path, &FileOptions)) {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        let path = folder.path().join("pages");
        test(&path, &options(false));
        match FileStore::open(&folder.path().join("probe"), &options(true)) {
            Ok(_) => test(&folder.path().join("direct"), &options(true)),
            Err(OpenError::NotDirect { .. }) => eprintln!("no direct I/O here"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn what_was_written_comes_back_also_after_it_is_opened_again() {
        each(|path, options| {
            let mut store = FileStore::open(path, options).expect("a file");
            let page = |fill: u8| vec![fill; options.page_bytes];
            let (one, two, three) = (page(1), page(2), page(3));
            // Two runs and a single page, out of order; a short page is padded with zeros.
            let pages: [(Lpn, &[u8]); 4] = [
                (Lpn(9), &one),
                (Lpn(10), &two),
                (Lpn(3), &three),
                (Lpn(700), &[7, 7]),
            ];
            store.write(Nanos::ZERO, &pages).expect("a write");
            store.commit(Nanos::ZERO).expect("a sync");
            drop(store);
            let mut store = FileStore::open(path, options).expect("the file again");
            let wanted = [Lpn(3), Lpn(9), Lpn(10), Lpn(11), Lpn(700), Lpn(5000)];
            let mut found = vec![9; wanted.len() * options.page_bytes];
            store
                .read_many(Nanos::ZERO, &wanted, &mut found)
                .expect("a read");
            let mut short = page(0);
            short[..2].fill(7);
            let right = [three, one, two, page(0), short, page(0)].concat();
            assert!(found == right);
        });
    }

    #[test]
    fn a_file_in_use_a_wrong_page_and_a_page_beyond_are_refused() {
        each(|path, options| {
            let mut store = FileStore::open(path, options).expect("a file");
            let again = FileStore::open(path, options);
            assert!(matches!(again, Err(OpenError::InUse { .. })));
            let odd = FileOptions {
                page_bytes: 1000,
                ..*options
            };
            assert!(matches!(
                FileStore::open(path, &odd),
                Err(OpenError::Options(_))
            ));
            let folder = path.parent().expect("it is in one");
            for other in [folder, Path::new("/dev/null")] {
                let refused = FileStore::open(other, options);
                assert!(matches!(refused, Err(OpenError::Options(_))), "{other:?}");
            }
            let mut page = vec![0; options.page_bytes];
            let beyond = store.read(Nanos::ZERO, Lpn(u32::MAX), &mut page);
            assert!(matches!(beyond, Err(BackingError::OutOfRange { .. })));
        });
    }

    /// Fails if a large device wraps around to a small one.
    #[test]
    fn a_device_has_no_more_pages_than_there_are_numbers() {
        assert_eq!(pages_in(Some(4 << 40), 512), u32::MAX);
        assert_eq!(pages_in(Some(4 << 40), 4096), 1 << 30);
        assert_eq!(pages_in(Some(4095), 4096), 0);
        assert_eq!(pages_in(None, 4096), 1 << 31);
    }

    /// Fails if another failure than that of direct I/O is said to be one.
    #[test]
    fn only_what_direct_io_does_not_allow_is_said_to_be_that() {
        let said = |direct, kind: io::ErrorKind| why_not(Path::new("f"), direct, kind.into());
        let invalid = io::ErrorKind::InvalidInput;
        assert!(matches!(said(true, invalid), OpenError::NotDirect { .. }));
        assert!(matches!(said(false, invalid), OpenError::Io { .. }));
        let denied = said(true, io::ErrorKind::PermissionDenied);
        assert!(matches!(denied, OpenError::Io { .. }), "{denied}");
        each(|path, options| {
            let none = FileOptions {
                pages: Some(0),
                ..*options
            };
            let why = FileStore::open(path, &none).err().expect("no pages");
            assert!(why.to_string().contains("has 0 pages"), "{why}");
        });
    }

    #[test]
    fn every_index_works_in_a_file_and_is_there_when_it_is_opened_again() {
        each(|path, options| {
            for &kind in IndexKind::ALL {
                let path = path.with_extension(kind.info().name);
                let settings = Settings::new().with("memory", 64 << 10);
                let open = |path: &Path| -> Box<dyn Index> {
                    let store = FileStore::open(path, options).expect("a file");
                    let opened = kind.open(Box::new(store), &settings, Nanos::ZERO);
                    opened.expect("an index").0
                };
                let mut index = open(&path);
                for key in 0..3_000 {
                    index.insert(Nanos::ZERO, key * 7, key).expect("room");
                }
                let flushed = index.flush(Nanos::ZERO).expect("a flush");
                index.store().commit(flushed).expect("a sync");
                drop(index);
                let mut index = open(&path);
                assert_eq!(index.check(), Ok(()), "{kind}");
                for key in 0..3_000 {
                    let (found, _) = index.get(Nanos::ZERO, key * 7).expect("a read");
                    assert_eq!(found, Some(key), "{kind}");
                    let (found, _) = index.get(Nanos::ZERO, key * 7 + 1).expect("a read");
                    assert_eq!(found, None, "{kind}");
                }
            }
        });
    }
}
