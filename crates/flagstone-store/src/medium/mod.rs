//! Media: what a store reads, writes and syncs.
//!
//! A medium must guarantee two things. A sector of 512 bytes is written whole or not at all. Bytes
//! written before [`Medium::sync`] began are durable when it has returned. Writes that were not
//! synced may land in any order, in part, or not at all.
//!
//! A power cut under a store in memory:
//!
//! ```
//! use flagstone::units::Lpn;
//! use flagstone_store::medium::{Landing, Recorded};
//! use flagstone_store::{OpenOptions, PageStore};
//!
//! let medium = Recorded::default();
//! let mut store = PageStore::on(Box::new(medium.clone()), &OpenOptions::default())?;
//! let tx = store.begin()?;
//! store.write(tx, Lpn(1), b"committed")?;
//! store.commit(tx)?;
//! let tx = store.begin()?;
//! store.write(tx, Lpn(1), b"not committed")?;
//!
//! // Each sector that was written and not synced has landed or not, by the number 42.
//! let left = medium.cut(Landing::Sectors(42));
//! let mut store = PageStore::on(Box::new(left), &OpenOptions::existing())?;
//! let mut page = vec![0; PageStore::PAGE_BYTES];
//! assert_eq!(store.read(None, Lpn(1), &mut page)?, Some(9));
//! # Ok::<(), flagstone_store::StoreError>(())
//! ```

mod disk;
mod failing;
pub(crate) mod forks;
pub(crate) mod gaps;
mod image;
mod memory;
mod recorded;
mod tight;

pub use disk::{Disk, identity, is_named};
pub use failing::{Call, Failing, Fault};
pub use memory::Memory;
pub use recorded::{Landing, Recorded};
pub use tight::Tight;

use std::io;

/// Bytes of a sector: the unit of atomic writes.
pub const SECTOR_BYTES: usize = 512;

/// Splits a range into pieces of `size` bytes: number, offset within the piece, bytes.
pub fn pieces(size: usize, at: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let (piece, offset) = ((at + done) / size as u64, (at + done) % size as u64);
        let bytes = (size as u64 - offset).min(len - done);
        done += bytes;
        (bytes > 0).then_some((piece, offset as usize, bytes as usize))
    })
}

/// A function that announces a range that will be read soon: offset and length.
///
/// Example: [`Disk`].
pub type Expecting = Box<dyn Fn(u64, usize) + Send + Sync>;

/// Bytes that outlive the process, or simulate it. Threads share them: some read or write while
/// another waits for a sync.
///
/// ```
/// use flagstone_store::medium::{Medium, Memory};
/// use std::io;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// /// Counts the syncs of a medium.
/// #[derive(Default)]
/// struct Counting {
///     below: Memory,
///     syncs: AtomicU64,
/// }
///
/// impl Medium for Counting {
///     fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
///         self.below.read_at(offset, into)
///     }
///
///     fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
///         self.below.write_at(offset, bytes)
///     }
///
///     fn sync(&self) -> io::Result<()> {
///         self.syncs.fetch_add(1, Ordering::SeqCst);
///         self.below.sync()
///     }
///
///     fn bytes(&self) -> io::Result<u64> {
///         self.below.bytes()
///     }
///
///     fn reserve(&self, bytes: u64) -> io::Result<()> {
///         self.below.reserve(bytes)
///     }
/// }
///
/// let medium = Counting::default();
/// medium.write_at(0, b"data")?;
/// medium.sync()?;
/// assert_eq!((medium.bytes()?, medium.syncs.into_inner()), (4, 1));
/// # Ok::<(), io::Error>(())
/// ```
pub trait Medium: Send + Sync {
    /// Reads bytes. Bytes behind the end read as zeros.
    ///
    /// # Errors
    /// A system call fails.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes bytes. They are durable once a [`Medium::sync`] has followed.
    ///
    /// # Errors
    /// A system call fails. Some of the bytes may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// A system call fails. Writes since the last successful sync may or may not be durable.
    fn sync(&self) -> io::Result<()>;

    /// Reads bytes as one [`Medium::read_at`]: first into `first`, then into `second`.
    ///
    /// # Errors
    /// As [`Medium::read_at`].
    fn read_split(&self, offset: u64, first: &mut [u8], second: &mut [u8]) -> io::Result<()> {
        let mut both = vec![0; first.len() + second.len()];
        self.read_at(offset, &mut both)?;
        let (one, other) = both.split_at(first.len());
        first.copy_from_slice(one);
        second.copy_from_slice(other);
        Ok(())
    }

    /// Writes consecutive parts as one [`Medium::write_at`].
    ///
    /// # Errors
    /// As [`Medium::write_at`].
    fn write_joined(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        self.write_at(offset, &parts.concat())
    }

    /// The size in bytes.
    ///
    /// # Errors
    /// A system call fails.
    fn bytes(&self) -> io::Result<u64>;

    /// The maximum size in bytes, if known: a block device has one, a file does not.
    fn most(&self) -> Option<u64> {
        None
    }

    /// Lengthens the medium to `bytes` bytes if it is shorter, and allocates the room.
    ///
    /// # Errors
    /// There is no room, or a system call fails. The medium is unchanged.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Lengthens the medium to `bytes` bytes if it is shorter, without allocating room, if the
    /// medium supports that. Otherwise as [`Medium::reserve`].
    ///
    /// # Errors
    /// As [`Medium::reserve`].
    fn lengthen(&self, bytes: u64) -> io::Result<()> {
        self.reserve(bytes)
    }

    /// Whether [`Medium::shorten`] has an effect: a file can be truncated, a device cannot.
    fn can_shorten(&self) -> bool {
        false
    }

    /// Truncates the medium to `bytes` bytes if it is longer. The bytes behind the end read as
    /// zeros from then on, even if the medium grows again. Durable after the next [`Medium::sync`].
    ///
    /// # Errors
    /// A system call fails, or the medium cannot be truncated. The medium is unchanged.
    fn shorten(&self, bytes: u64) -> io::Result<()> {
        let _ = bytes;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether parts of the medium may have no room allocated yet.
    fn is_thin(&self) -> bool {
        false
    }

    /// Allocates room for a range. Keeps its contents.
    ///
    /// # Errors
    /// There is no room, or a system call fails.
    fn take(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }

    /// Free room in bytes, if known.
    fn left(&self) -> Option<u64> {
        None
    }

    /// Prepares a range without valid data for piecewise writes. Until these, the range holds zeros
    /// or its old contents. Returns the number of bytes that this wrote.
    ///
    /// # Errors
    /// A system call fails.
    fn prepare(&self, offset: u64, bytes: usize) -> io::Result<u64> {
        let _ = (offset, bytes);
        Ok(0)
    }

    /// Discards the contents of a range: it reads as zeros or as before, and its room may be
    /// reused. Returns whether anything was done.
    ///
    /// # Errors
    /// A system call fails. Each page of the range is unchanged or zeros.
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        let _ = (offset, bytes);
        Ok(false)
    }

    /// Returns a function that announces ranges to be read soon, so that their reads overlap. It
    /// may be called from another thread. `None` if read-ahead is of no use.
    fn expecting(&self) -> Option<Expecting> {
        None
    }

    /// Makes reads return durable data, by a sync or by dropping the cache. After a failed sync a
    /// cache may still show data that is not durable.
    ///
    /// # Errors
    /// A system call fails.
    fn refresh(&self) -> io::Result<()> {
        self.sync()
    }

    /// Announces a call of [`Medium::prepare`] for a range, to which nothing is written before. The
    /// medium may do the work in the background.
    fn prepare_ahead(&self, offset: u64, bytes: usize) {
        let _ = (offset, bytes);
    }

    /// Waits for work on this range that [`Medium::prepare_ahead`] has begun: the range will be
    /// written without [`Medium::prepare`]. Its old contents will not be read again, so a cache may
    /// drop them.
    fn end_preparing(&self, offset: u64, bytes: usize) {
        let _ = (offset, bytes);
    }
}

/// Forwards methods of [`Medium`] to a field, for media that override only a few of them:
/// `forward_medium!(below: read_at write_at sync)`.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_medium {
    ($below:ident: $($method:ident)+) => {
        $($crate::forward_medium!(@$method $below);)+
    };
    (@read_at $below:ident) => {
        fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
            self.$below.read_at(offset, into)
        }
    };
    (@write_at $below:ident) => {
        fn write_at(&self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
            self.$below.write_at(offset, bytes)
        }
    };
    (@sync $below:ident) => {
        fn sync(&self) -> std::io::Result<()> {
            self.$below.sync()
        }
    };
    (@bytes $below:ident) => {
        fn bytes(&self) -> std::io::Result<u64> {
            self.$below.bytes()
        }
    };
    (@shorten $below:ident) => {
        fn can_shorten(&self) -> bool {
            self.$below.can_shorten()
        }

        fn shorten(&self, bytes: u64) -> std::io::Result<()> {
            self.$below.shorten(bytes)
        }
    };
    (@reserve $below:ident) => {
        fn reserve(&self, bytes: u64) -> std::io::Result<()> {
            self.$below.reserve(bytes)
        }
    };
}
