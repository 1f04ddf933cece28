//! Addresses, identifiers and times. Each is its own type, so that they cannot be confused.
//!
//! ```
//! use flagstone::units::{Lpn, Nanos};
//!
//! let began = Nanos(1_000);
//! let done = began + Nanos(250);
//! assert_eq!(done - began, Nanos(250));
//! assert_eq!(Lpn(7).index(), 7);
//! ```

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u32);

        impl $name {
            /// The number as an index into an array.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

address! {
    /// Logical page number: what the host addresses.
    ///
    /// ```
    /// use flagstone::units::Lpn;
    ///
    /// assert_eq!((Lpn(7).index(), Lpn(7).to_string()), (7, "7".into()));
    /// ```
    Lpn
}
address! {
    /// Physical page number: a NAND page, `block * pages_per_block + page`.
    ///
    /// ```
    /// use flagstone::nand::Geometry;
    /// use flagstone::units::{Pbn, Ppn};
    ///
    /// let geometry = Geometry::default();
    /// assert_eq!(geometry.page(Pbn(2), 5), Ppn(2 * geometry.pages_per_block + 5));
    /// assert_eq!(geometry.block_of(Ppn(130)), Pbn(2));
    /// ```
    Ppn
}
address! {
    /// Physical block number: an erase block, plane by plane.
    ///
    /// Example: [`Ppn`].
    Pbn
}

impl Ppn {
    /// No page: the null link in the papers.
    pub const NONE: Ppn = Ppn(u32::MAX);
}

/// The number of a snapshot of a device.
///
/// ```
/// use flagstone::prelude::*;
///
/// let mut device = Device::with_defaults(Chip::default(), Kind::Seal)?;
/// let now = device.recovered_at();
/// let snapshot = device.snapshot()?;
/// let tx = device.begin(now)?;
/// device.write(now, tx, Lpn(0), b"new")?;
/// let now = device.commit(now, tx)?.expect("it is alone");
///
/// // The snapshot has the state before the commit.
/// let mut page = vec![0; device.geometry().page_bytes as usize];
/// assert_eq!(device.read_snapshot(now, snapshot, Lpn(0), &mut page)?.1, None);
/// device.end_snapshot(snapshot);
/// # Ok::<(), DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SnapshotId(pub u64);

/// A transaction's identifier. It is never reused, not even after a restart.
///
/// ```
/// use flagstone::prelude::*;
///
/// let mut device = Device::with_defaults(Chip::default(), Kind::Cfc)?;
/// let now = device.recovered_at();
/// let (one, two) = (device.begin(now)?, device.begin(now)?);
/// assert!(one < two);
/// assert_eq!(TxId(3).to_string(), "T3");
/// # Ok::<(), DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TxId(pub u64);

impl fmt::Display for TxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}", self.0)
    }
}

/// An instant or a span of virtual time, in nanoseconds.
///
/// ```
/// use flagstone::units::Nanos;
///
/// let (issued, done) = (Nanos(500), Nanos(500) + Nanos::from_micros(25));
/// assert_eq!(done.since(issued), Nanos(25_000));
/// assert_eq!(issued.since(done), Nanos::ZERO);
/// assert_eq!(done.to_string(), "25.500 us");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The beginning of virtual time, or no time at all.
    pub const ZERO: Nanos = Nanos(0);

    /// A span of microseconds.
    pub const fn from_micros(micros: u64) -> Nanos {
        Nanos(micros * 1_000)
    }

    /// The span from `earlier` to `self`, zero if there is none.
    #[inline]
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    #[inline]
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0 + other.0)
    }
}

impl AddAssign for Nanos {
    #[inline]
    fn add_assign(&mut self, other: Nanos) {
        self.0 += other.0;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    #[inline]
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0 - other.0)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} us", self.0 / 1_000, self.0 % 1_000)
    }
}
