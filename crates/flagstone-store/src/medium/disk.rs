//! A file or block device as a medium, locked against other processes.
//!
//! A block device is written with direct I/O, so that a write error is reported by that write, and
//! a sync has little to do. It is read through the page cache, from which such writes remove stale
//! pages.
//!
//! A file opened for writing is read page by page, with the system's read-ahead switched off.
//! Callers request read-ahead explicitly ([`Medium::expecting`]).
//!
//! A store in a file has one descriptor, and a second one while it writes with direct I/O.
//!
//! The page cache keeps a file in folios as large as the writes that created them, and counts a
//! whole folio as written when one page of it is. So a file is written in small pieces
//! ([`PIECE_BYTES`]), zeros are written with direct I/O, and a block is dropped from the cache
//! before it is rewritten.

use super::forks::LetGo;
use super::{Expecting, Medium};
use crate::aligned::{ALIGNMENT, Aligned};
use crate::error::StoreError;
use rustix::fs::{Advice, FallocateFlags, FlockOperation, OFlags, fadvise};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// A file or block device.
///
/// ```
/// use flagstone_store::StoreError;
/// use flagstone_store::medium::{Disk, Expecting, Medium};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("bytes");
/// let disk = Disk::open(&path, true, false)?;
/// disk.write_at(4096, b"data")?;
/// disk.sync()?;
///
/// // The file is locked while it is open for writing.
/// assert!(matches!(Disk::open(&path, false, true), Err(StoreError::InUse { .. })));
///
/// // Announce a read, if the medium reads ahead.
/// let expecting: Option<Expecting> = disk.expecting();
/// if let Some(expect) = expecting {
///     expect(4096, 4);
/// }
/// let mut bytes = [0; 4];
/// disk.read_at(4096, &mut bytes)?;
/// assert_eq!(&bytes, b"data");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Disk {
    /// Dropped first: its thread must end before the file is unlocked.
    ahead: Mutex<Ahead>,
    file: Arc<Opened>,
    /// A second descriptor of a block device, for direct I/O. `None` if that is not possible.
    direct: Option<Opened>,
    is_device: bool,
    read_only: bool,
    /// The process that has locked the file, if this handle is to unlock it.
    locked_by: Option<u32>,
    /// For a block device: a buffer aligned for direct I/O.
    aligned: Mutex<Aligned>,
}

/// Maximum size of a buffered write to a file. Pieces begin at multiples of it.
const PIECE_BYTES: u64 = 16 << 10;

/// An open file, whose descriptor forked processes give up if so requested.
#[derive(Debug)]
struct Opened {
    /// Dropped before the file is closed.
    _let_go: Option<LetGo>,
    file: File,
}

impl Opened {
    fn new(file: File) -> Opened {
        Opened {
            _let_go: Some(LetGo::new(&file)),
            file,
        }
    }
}

/// Fills ranges with zeros ahead of their use. A thread does this with direct I/O, since a sync of
/// the file would also wait for cached zeros.
#[derive(Debug, Default)]
struct Ahead {
    filling: Option<Filling>,
}

/// A range that is being filled with zeros.
#[derive(Debug)]
struct Filling {
    offset: u64,
    thread: JoinHandle<io::Result<()>>,
    /// The process that runs the thread. A forked child does not have the thread.
    process: u32,
}

impl Ahead {
    /// Waits for the current work, if any. Returns whether it was for the range at `offset`, and
    /// succeeded.
    fn join(&mut self, offset: u64) -> bool {
        match self.filling.take() {
            Some(filling) if filling.process == std::process::id() => {
                matches!(filling.thread.join(), Ok(Ok(()))) && filling.offset == offset
            }
            Some(foreign) => {
                std::mem::forget(foreign.thread);
                false
            }
            None => false,
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.join(0);
    }
}

impl Drop for Disk {
    /// Unlocks the file. Closing it does not suffice: a forked process may have it open as well.
    fn drop(&mut self) {
        if self.locked_by == Some(std::process::id()) {
            self.ahead().join(0);
            let _ = rustix::fs::flock(&self.file.file, FlockOperation::Unlock);
        }
    }
}

impl Disk {
    /// Opens a file or block device. A handle that may write excludes all others until it is
    /// dropped. Read-only handles share the medium.
    ///
    /// # Errors
    /// The file is missing and `create` is unset, it is neither a file nor a block device, another
    /// handle has locked it, or a system call fails.
    pub fn open(path: &Path, create: bool, read_only: bool) -> Result<Disk, StoreError> {
        let failed = |error| StoreError::io(format!("opening {}", path.display()), error);
        // Checked before opening: opening a pipe blocks, and opening some devices has side effects.
        let kind = std::fs::metadata(path).ok().map(|meta| meta.file_type());
        let is_device = kind.is_some_and(|kind| kind.is_block_device());
        if kind.is_some_and(|kind| !kind.is_file() && !is_device) {
            return Err(StoreError::NotAStore(format!(
                "{} is neither a file nor a block device",
                path.display()
            )));
        }
        let mut flags = OFlags::empty();
        // `O_EXCL` fails on a block device that is mounted, or has a mounted partition.
        flags.set(OFlags::EXCL, is_device && !read_only);
        let opened = OpenOptions::new()
            .read(true)
            .write(!read_only)
            .create(create && !read_only && !is_device)
            .truncate(false)
            .custom_flags(flags.bits().cast_signed())
            .open(path);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                return Err(StoreError::in_use(path));
            }
            other => other.map_err(failed)?,
        };
        // Before locking: a process that is forked in between would keep the lock.
        let opened = Opened::new(file);
        let how = if read_only {
            FlockOperation::NonBlockingLockShared
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        match rustix::fs::flock(&opened.file, how) {
            // Another file may have got this name meanwhile, for example by a compaction.
            Ok(()) if !is_named(&opened.file, path).map_err(failed)? => {
                Disk::open(path, create, read_only)
            }
            Ok(()) => {
                let mut disk = Disk::of(opened, is_device, read_only);
                disk.locked_by = Some(std::process::id());
                Ok(disk)
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::in_use(path)),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Opens a second handle of a file that this process has locked. The lock belongs to `locked`,
    /// which must outlive this handle.
    ///
    /// # Errors
    /// `path` now leads to another file, or a system call fails.
    pub(crate) fn beside(locked: &File, path: &Path, read_only: bool) -> io::Result<Disk> {
        let file = OpenOptions::new().read(true).write(!read_only).open(path)?;
        let (one, other) = (file.metadata()?, locked.metadata()?);
        if (one.dev(), one.ino()) == (other.dev(), other.ino()) {
            let _let_go = None;
            Ok(Disk::of(Opened { _let_go, file }, false, read_only))
        } else {
            Err(io::Error::other("another file has taken its name"))
        }
    }

    /// A medium from an open file or block device that this or another handle has locked.
    fn of(opened: Opened, is_device: bool, read_only: bool) -> Disk {
        if !read_only {
            // Recent writes are in the page cache. The system would take them for sequential access
            // and read ahead.
            let _ = fadvise(&opened.file, 0, None, Advice::Random);
        }
        let mut disk = Disk {
            direct: None,
            file: Arc::new(opened),
            is_device,
            read_only,
            locked_by: None,
            aligned: Mutex::default(),
            ahead: Mutex::default(),
        };
        disk.direct = disk.is_device.then(|| disk.open_direct()).flatten();
        disk
    }
}

impl Disk {
    fn file(&self) -> &File {
        &self.file.file
    }

    /// Allocates or discards a range of the file. A signal does not interrupt it.
    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> rustix::io::Result<()> {
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(self.file(), how, offset, bytes))
    }

    /// Whether the file system certainly lacks room for a range of `bytes` bytes, of which a part
    /// may be allocated. An allocation without room takes what there is on ext4, and keeps it.
    fn lacks_room_for(&self, bytes: u64) -> bool {
        self.left().is_some_and(|left| {
            // The range has at most what the file has. This also queries the times, see `identity`.
            let has = || {
                self.file()
                    .metadata()
                    .map_or(u64::MAX, |it| it.blocks() * 512)
            };
            left < bytes && left < bytes.saturating_sub(has())
        })
    }

    /// Opens a second descriptor of the medium for direct I/O. `None` if that is not possible, for
    /// example at the limit of open files.
    fn open_direct(&self) -> Option<Opened> {
        if self.read_only {
            return None;
        }
        // Opens the same file even if it was renamed.
        let same = format!("/proc/self/fd/{}", self.file().as_raw_fd());
        let mut options = OpenOptions::new();
        options.write(true);
        options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        options.open(same).ok().map(Opened::new)
    }

    /// The descriptor for a direct write to a block device. `None` for files and unaligned writes.
    fn past_the_cache(&self, offset: u64, bytes: usize) -> Option<&File> {
        let is_aligned = offset.is_multiple_of(ALIGNMENT as u64) && bytes.is_multiple_of(ALIGNMENT);
        let direct = self.direct.as_ref().filter(|_| is_aligned)?;
        Some(&direct.file)
    }

    /// Writes the consecutive parts of a piece from `offset` on, if possible by one system call.
    fn write_piece(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let mut written = match rustix::io::pwritev(self.file(), parts, offset) {
            Ok(written) => written,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        // Writes what remains after a short write.
        let mut at = offset;
        for part in parts {
            let done = written.min(part.len());
            if done < part.len() {
                self.file().write_all_at(&part[done..], at + done as u64)?;
            }
            (written, at) = (written - done, at + part.len() as u64);
        }
        Ok(())
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().expect("no thread panics here")
    }
}

/// Whether `path` still leads to the open file.
///
/// # Errors
/// `fstat` of the open file fails.
pub fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    Ok(identity(path) == Some((open.dev(), open.ino())))
}

/// Identifies the file that a path leads to, by device and inode number.
///
/// Does not ask for the file's times. After a process has queried them, Linux changes the times at
/// the next write, and ext4 then writes the inode at each sync: half as many bytes again for a
/// commit of one page.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::INO).ok()?;
        Some((
            makedev(found.stx_dev_major, found.stx_dev_minor),
            found.stx_ino,
        ))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let found = std::fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    }
}

/// Reads bytes of a file. Bytes behind its end read as zeros.
fn read_at(file: &File, offset: u64, into: &mut [u8]) -> io::Result<()> {
    let mut read = 0;
    while read < into.len() {
        match file.read_at(&mut into[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    into[read..].fill(0);
    Ok(())
}

impl Medium for Disk {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        read_at(self.file(), offset, into)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_joined(offset, &[bytes])
    }

    fn read_split(&self, offset: u64, first: &mut [u8], second: &mut [u8]) -> io::Result<()> {
        let wanted = first.len() + second.len();
        let mut parts = [IoSliceMut::new(first), IoSliceMut::new(second)];
        if let Ok(read) = rustix::io::preadv(self.file(), &mut parts, offset)
            && read == wanted
        {
            return Ok(());
        }
        // End of file, an interruption, or an error that the next read reports.
        let behind = offset + first.len() as u64;
        read_at(self.file(), offset, first)?;
        read_at(self.file(), behind, second)
    }

    /// Writes the parts one after the other: at once past the cache of a block device, or through
    /// the cache in pieces (`PIECE_BYTES`).
    fn write_joined(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if let Some(direct) = self.past_the_cache(offset, bytes) {
            let mut aligned = self.aligned.lock().expect("no thread panics here");
            aligned.resize(bytes);
            let mut rest = aligned.as_mut();
            for part in parts {
                let (into, behind) = rest.split_at_mut(part.len());
                into.copy_from_slice(part);
                rest = behind;
            }
            return direct.write_all_at(aligned.as_slice(), offset);
        }
        let (mut piece, mut first, mut at) = (Vec::new(), offset, offset);
        for part in parts {
            let mut left = *part;
            while !left.is_empty() {
                let end = (at / PIECE_BYTES + 1) * PIECE_BYTES;
                let (now, later) = left.split_at(left.len().min((end - at) as usize));
                piece.push(IoSlice::new(now));
                (left, at) = (later, at + now.len() as u64);
                if at == end {
                    self.write_piece(first, &piece)?;
                    piece.clear();
                    first = at;
                }
            }
        }
        if piece.is_empty() {
            Ok(())
        } else {
            self.write_piece(first, &piece)
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file().sync_data()
    }

    fn bytes(&self) -> io::Result<u64> {
        self.file().seek(SeekFrom::End(0))
    }

    fn most(&self) -> Option<u64> {
        self.is_device.then(|| self.bytes().ok()).flatten()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let has = self.bytes()?;
        if bytes <= has {
            return Ok(());
        }
        if self.is_device {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match self.allocate(FallocateFlags::empty(), has, bytes - has) {
            // Unsupported by the file system: the file gets longer, and writes may lack space.
            Err(rustix::io::Errno::OPNOTSUPP) => self.file().set_len(bytes),
            // ext4 has lengthened the file by the free space that it found.
            Err(error) => {
                let _ = self.file().set_len(has);
                Err(error.into())
            }
            Ok(()) => Ok(()),
        }
    }

    fn lengthen(&self, bytes: u64) -> io::Result<()> {
        if self.is_device || bytes <= self.bytes()? {
            self.reserve(bytes)
        } else {
            self.file().set_len(bytes)
        }
    }

    fn can_shorten(&self) -> bool {
        !self.is_device
    }

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        if self.is_device {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // A fill in progress may be beyond the new end, and would lengthen the file again.
        self.ahead().join(0);
        if self.bytes()? > bytes {
            self.file().set_len(bytes)
        } else {
            Ok(())
        }
    }

    fn is_thin(&self) -> bool {
        // This also queries the times, but only once per opening: see `identity`.
        let meta = self.file().metadata();
        !self.is_device && meta.is_ok_and(|meta| meta.blocks() * 512 < meta.len())
    }

    fn take(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if self.is_device {
            return Ok(());
        }
        if self.lacks_room_for(bytes) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match self.allocate(FallocateFlags::KEEP_SIZE, offset, bytes) {
            // Without support, space is allocated by the writes.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn left(&self) -> Option<u64> {
        let room = rustix::fs::fstatvfs(self.file()).ok()?;
        Some(room.f_bavail.saturating_mul(room.f_frsize))
    }

    /// The first write to preallocated room costs ext4 a journal write and a flush at the next
    /// sync. Filling the range with zeros at once pays that cost once.
    fn prepare(&self, offset: u64, bytes: usize) -> io::Result<u64> {
        if self.is_device {
            return Ok(0);
        }
        if self.ahead().join(offset) {
            return Ok(bytes as u64);
        }
        match self.open_direct() {
            Some(direct) if fill(&direct.file, offset, bytes).is_ok() => {}
            _ => self.write_joined(offset, &[&vec![0; bytes]])?,
        }
        Ok(bytes as u64)
    }

    /// Punches a hole in a file; discards a range of a block device.
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match self.allocate(how, offset, bytes) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn expecting(&self) -> Option<Expecting> {
        let opened = Arc::clone(&self.file);
        Some(Box::new(move |offset, bytes| {
            let bytes = std::num::NonZeroU64::new(bytes as u64);
            // Advisory: without it the reads take longer.
            let _ = fadvise(&opened.file, offset, bytes, Advice::WillNeed);
        }))
    }

    /// After a failed sync the system keeps the pages in its cache as if they had been written.
    /// They must be dropped, or reads would return data that is lost later.
    fn refresh(&self) -> io::Result<()> {
        match self.file().sync_data() {
            // File systems that are never written, such as a CD's, do not support syncs.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            synced => synced?,
        }
        let all = fadvise(self.file(), 0, None, Advice::DontNeed);
        all.map_err(io::Error::from)
    }

    fn end_preparing(&self, offset: u64, bytes: usize) {
        let mut ahead = self.ahead();
        let is_it = |filling: &Filling| filling.offset == offset;
        if ahead.filling.as_ref().is_some_and(is_it) {
            // The thread must not put zeros over what will be written. Whether it succeeds does not
            // matter.
            ahead.join(offset);
        }
        drop(ahead);
        if !self.is_device {
            // Advisory: pages that stay in the cache only make the count of written bytes too high.
            let bytes = std::num::NonZeroU64::new(bytes as u64);
            let _ = fadvise(self.file(), offset, bytes, Advice::DontNeed);
        }
    }

    fn prepare_ahead(&self, offset: u64, bytes: usize) {
        if self.is_device {
            return;
        }
        let mut ahead = self.ahead();
        if ahead.filling.is_some() {
            return;
        }
        let Some(direct) = self.open_direct() else {
            return;
        };
        let thread = std::thread::Builder::new();
        let thread = thread.spawn(move || fill(&direct.file, offset, bytes));
        ahead.filling = thread.ok().map(|thread| Filling {
            offset,
            thread,
            process: std::process::id(),
        });
    }
}

/// Fills a range with zeros by direct I/O.
fn fill(direct: &File, offset: u64, bytes: usize) -> io::Result<()> {
    let mut zeros = Aligned::default();
    zeros.resize(bytes);
    direct.write_all_at(zeros.as_slice(), offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that was not closed must be readable on such a file system.
    #[test]
    #[cfg(target_os = "linux")]
    fn what_has_no_syncs_has_nothing_to_be_made_durable() {
        let disk = Disk::open(Path::new("/proc/version"), false, true).expect("it opens");
        let refused = disk.sync().expect_err("no such file can be synced");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        disk.refresh().expect("nothing is to be synced");
    }

    /// A process forked meanwhile shares the open file, as `handle` does here.
    #[test]
    fn what_is_closed_is_unlocked_whoever_has_the_file_open() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store.flag");
        let disk = Disk::open(&path, true, false).expect("it opens");
        let handle = disk.file().try_clone().expect("a second handle");
        let others = Disk::open(&path, false, false);
        assert!(matches!(others, Err(StoreError::InUse { .. })));
        drop(disk);
        Disk::open(&path, false, false).expect("it is unlocked");
        drop(handle);
    }
}
