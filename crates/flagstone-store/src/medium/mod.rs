//! What a store lies on: bytes that are read, written, and made durable.
//!
//! Two things are asked of a medium. A sector of 512 bytes is written whole or not at all. Bytes
//! that were written before [`Medium::sync`] began are durable when it has ended. Writes that were
//! not synced may land in any order, in part, or not at all.
//!
//! A cut under a store in memory:
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

pub(crate) use disk::read_at;
pub use disk::{Disk, identity, is_named};
pub use failing::{Call, Failing, Fault};
pub use memory::Memory;
pub use recorded::{Landing, Recorded};
pub use tight::Tight;

use std::io;

/// Bytes of a sector: what a medium writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// The pieces of so many bytes that a range touches: number, offset within it, bytes of the range.
pub fn pieces(size: usize, at: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let (piece, offset) = ((at + done) / size as u64, (at + done) % size as u64);
        let bytes = (size as u64 - offset).min(len - done);
        done += bytes;
        (bytes > 0).then_some((piece, offset as usize, bytes as usize))
    })
}

/// A function that is told which ranges will be read soon: an offset, and bytes.
pub type Expecting = Box<dyn Fn(u64, usize) + Send + Sync>;

/// Bytes that outlive the process, or pretend to. Threads share them: one reads or writes while
/// another one waits for a sync.
pub trait Medium: Send + Sync {
    /// Reads bytes. What lies behind the end reads as zeros.
    ///
    /// # Errors
    /// The system refuses.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes bytes. They are durable once a [`Medium::sync`] has followed.
    ///
    /// # Errors
    /// The system refuses. Some of the bytes may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// The system refuses. Nothing is known then of what was written since the last success.
    fn sync(&self) -> io::Result<()>;

    /// Reads bytes as one [`Medium::read_at`], the first ones into `first` and the others, which
    /// follow them, into `second`.
    ///
    /// # Errors
    /// As there.
    fn read_split(&self, offset: u64, first: &mut [u8], second: &mut [u8]) -> io::Result<()> {
        let mut both = vec![0; first.len() + second.len()];
        self.read_at(offset, &mut both)?;
        let (one, other) = both.split_at(first.len());
        first.copy_from_slice(one);
        second.copy_from_slice(other);
        Ok(())
    }

    /// Writes parts one behind the other, as one [`Medium::write_at`].
    ///
    /// # Errors
    /// As there.
    fn write_joined(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        self.write_at(offset, &parts.concat())
    }

    /// Bytes there are.
    ///
    /// # Errors
    /// The system refuses.
    fn bytes(&self) -> io::Result<u64>;

    /// Bytes that it can ever have, where that is known: it is of a device, and not of a file.
    fn most(&self) -> Option<u64> {
        None
    }

    /// Makes it so many bytes long, if it is shorter, so that writing there finds room.
    ///
    /// # Errors
    /// There is no room, or the system refuses. The medium is as it was.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Makes it so many bytes long, if it is shorter, and takes room only where it is written to,
    /// on a medium that can. Others do as [`Medium::reserve`] does.
    ///
    /// # Errors
    /// As there.
    fn lengthen(&self, bytes: u64) -> io::Result<()> {
        self.reserve(bytes)
    }

    /// Whether [`Medium::shorten`] is of use: a file can become shorter, a device cannot.
    fn can_shorten(&self) -> bool {
        false
    }

    /// Makes it so many bytes long, if it is longer. What lay behind them reads as zeros from then
    /// on, whatever its length becomes later. It is durable once a [`Medium::sync`] has followed.
    ///
    /// # Errors
    /// The system refuses, or it cannot be done at all. The medium is as it was.
    fn shorten(&self, bytes: u64) -> io::Result<()> {
        let _ = bytes;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether parts of it may have taken no room yet.
    fn is_thin(&self) -> bool {
        false
    }

    /// Takes room for a range. What it holds stays.
    ///
    /// # Errors
    /// There is no room, or the system refuses.
    fn take(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }

    /// Bytes of room that may still be taken, where that is known.
    fn left(&self) -> Option<u64> {
        None
    }

    /// Says that a range to which nothing was written that counts will be written piece by piece.
    /// Whatever is found there until then is zeros or what was there. Returns how many bytes that
    /// wrote.
    ///
    /// # Errors
    /// The system refuses.
    fn prepare(&self, offset: u64, bytes: usize) -> io::Result<u64> {
        let _ = (offset, bytes);
        Ok(0)
    }

    /// Says that what a range holds is not needed any more: it reads as zeros from then on, or as
    /// it did before, and its room may be used for other things. Returns whether anything was done.
    ///
    /// # Errors
    /// The system refuses. The range is as it was, or zeros, page by page.
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        let _ = (offset, bytes);
        Ok(false)
    }

    /// A function that is told which ranges will be read soon, so that reads of several ranges
    /// overlap. It may be called from another thread. None where that is of no use.
    fn expecting(&self) -> Option<Expecting> {
        None
    }

    /// Makes what is read from now on durable, or what is durable that which is read. A cache may
    /// show for a while what a sync that failed did not make durable.
    ///
    /// # Errors
    /// The system refuses.
    fn refresh(&self) -> io::Result<()> {
        self.sync()
    }

    /// Says that [`Medium::prepare`] will be asked for a range, before which nothing is written to
    /// it: a medium may do the work meanwhile.
    fn prepare_ahead(&self, offset: u64, bytes: usize) {
        let _ = (offset, bytes);
    }

    /// Waits until the work that was begun for this range, if any was, has ended: it is going to be
    /// written without [`Medium::prepare`]. What it holds until then will not be read any more, so
    /// that a cache may drop it.
    fn end_preparing(&self, offset: u64, bytes: usize) {
        let _ = (offset, bytes);
    }
}

/// Hands methods of [`Medium`] on to a field, for media of tests and campaigns that change a few of
/// them: `forward_medium!(below: read_at write_at sync)`.
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
