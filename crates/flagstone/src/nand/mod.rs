//! NAND flash: geometry, cell rules, timing, faults and power cuts.
//!
//! This layer does not know that logical pages exist. [`Chip`] is the perfect device: it keeps
//! bytes, time and wear, and it panics when a rule of NAND is broken, because that is a bug of the
//! layer above. Power cuts, failing blocks and bit errors come from middleware that implements
//! [`Flash`] around another device: [`PowerCut`], [`Faulty`], and [`Aging`] for errors that grow.
//! [`Tracer`] records the operations.
//!
//! Fault budget. Every layer above must survive these faults: silent errors only with checksums,
//! and cut programs of upper pages only if pairs are closed or only lower pages are used.
//!
//! | fault | what it leaves behind |
//! |---|---|
//! | power cut | any subset of the operations not yet waited for has landed; order holds per block around erases |
//! | torn program | the page reads as uncorrectable, or as blank although it cannot be programmed reliably |
//! | cut program of an upper page | where pages share cells: the pages below it read as uncorrectable, safe or not |
//! | torn reprogram | any subset of the bits that were to be cleared is cleared |
//! | torn erase | every page of the block reads as uncorrectable or as unreliable blank, none as before |
//! | program failure | the page reads as uncorrectable; the block should be retired |
//! | erase failure | the block keeps its contents or reads as uncorrectable; it must not be used again |
//! | bit errors, correctable | nothing: the controller's ECC returns the right bytes, and may say how many it corrected |
//! | bit errors, beyond ECC | the page reads as uncorrectable, until its block is erased |
//! | silent errors | the page reads as other bytes, without an error, until its block is erased |
//!
//! A page is programmed once and erased with its whole block:
//!
//! ```
//! use flagstone::nand::{Chip, Flash, FlashError};
//! use flagstone::units::{Nanos, Ppn};
//!
//! let mut chip = Chip::default();
//! let done = chip.program(Nanos::ZERO, Ppn(0), b"data", b"spare")?;
//! let durable = chip.sync(done, done)?;
//!
//! let (mut data, mut spare) = (vec![0; chip.geometry().page_bytes as usize], [0; 5]);
//! let read = chip.read(durable, Ppn(0), &mut data, &mut spare)?;
//! assert_eq!((&data[..read.data_bytes], &spare), (&b"data"[..], b"spare"));
//!
//! let done = chip.erase(read.done, chip.geometry().block_of(Ppn(0)))?;
//! let read = chip.read(done, Ppn(0), &mut data, &mut spare)?;
//! assert_eq!((read.data_bytes, spare), (0, [0xff; 5]));
//! # Ok::<(), FlashError>(())
//! ```

mod geometry;
mod pairing;
mod chip;
mod contents;
mod timing;
mod timeline;
mod power_cut;
mod faulty;
mod aging;
mod tracer;
mod shared;
pub mod small;

pub use aging::{Ages, Aging, Growth, PowerLaw, YEAR};
pub use chip::{Chip, Damage};
pub use contents::Contents;
pub use faulty::{Fault, FaultPlan, Faulty};
pub(crate) use geometry::Addresses;
pub use geometry::{Cell, Geometry, GeometryError};
pub(crate) use pairing::Cells;
pub use pairing::Pairing;
pub use power_cut::{Aim, Change, Cut, Fate, Landings, Left, Moment, PowerCut};
pub use shared::Shared;
pub use timing::{Busy, Timing};
pub use tracer::{OpKind, Traced, Tracer};

use crate::units::{Nanos, Pbn, Ppn};
use std::fmt;

/// What a flash that never fails stores with an erase.
///
/// ```
/// use flagstone::nand::{Chip, Flash};
///
/// // The simulated chip can fail, so it stores nothing with an erase.
/// assert_eq!(Chip::default().said_at_erase(), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaidAtErase {
    /// The erased block.
    pub block: Pbn,
    /// The number given to [`Flash::erase_saying`].
    pub number: u64,
    /// The bytes given to [`Flash::erase_saying`].
    pub says: Vec<u8>,
    /// Whether no later erase is known.
    pub is_last: bool,
}

/// The result of a page read.
///
/// ```
/// use flagstone::nand::{Chip, Flash, FlashError, Read};
/// use flagstone::units::{Nanos, Ppn};
///
/// let mut chip = Chip::default();
/// let now = chip.program(Nanos::ZERO, Ppn(0), b"data", &[])?;
/// let mut page = vec![0; 4096];
/// let read = chip.read(now, Ppn(0), &mut page, &mut [])?;
/// let done = now + chip.timing().read;
/// assert_eq!(read, Read { done, data_bytes: 4, corrected: 0 });
/// # Ok::<(), FlashError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// When the data is available.
    pub done: Nanos,
    /// How many bytes of the data buffer were filled; the page holds nothing beyond them.
    pub data_bytes: usize,
    /// Number of bit errors that the ECC corrected; 0 if the device does not report it.
    pub corrected: u16,
}

/// Why a flash operation failed. All failures but [`FlashError::PowerLost`] took time: `done` is
/// when the attempt ended.
///
/// Examples: [`Faulty`], [`PowerCut`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlashError {
    /// The page has more bit errors than its ECC corrects, or was torn.
    Uncorrectable {
        /// The page.
        at: Ppn,
        /// When the attempt ended.
        done: Nanos,
    },
    /// The chip reports that the program failed; the page is unreadable.
    ProgramFailed {
        /// The page.
        at: Ppn,
        /// When the attempt ended.
        done: Nanos,
    },
    /// The chip reports that the erase failed; the block must be retired.
    EraseFailed {
        /// The block.
        block: Pbn,
        /// When the attempt ended.
        done: Nanos,
    },
    /// The power is gone; nothing succeeds until the device is started again.
    PowerLost,
}

impl fmt::Display for FlashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlashError::Uncorrectable { at, .. } => write!(f, "page {at} cannot be read"),
            FlashError::ProgramFailed { at, .. } => write!(f, "page {at} could not be programmed"),
            FlashError::EraseFailed { block, .. } => {
                write!(f, "block {block} could not be erased")
            }
            FlashError::PowerLost => write!(f, "the power is gone"),
        }
    }
}

impl std::error::Error for FlashError {}

/// A NAND device. `now` is when an operation is issued; the result says when it is done.
///
/// An operation is durable once [`Flash::sync`] has waited for it; until then a power cut may undo
/// it. Rules (program only blank pages, reprogram only clears bits and only as often as the cells
/// allow, erase whole blocks) are the caller's duty: breaking one panics.
///
/// ```
/// use flagstone::nand::{Chip, Flash, FlashError};
/// use flagstone::units::{Nanos, Ppn};
///
/// /// Programs pages of one plane, and waits for all of them.
/// fn fill(flash: &mut impl Flash, pages: u32) -> Result<Nanos, FlashError> {
///     let mut last = Nanos::ZERO;
///     for page in 0..pages {
///         last = flash.program(Nanos::ZERO, Ppn(page), b"data", &[])?;
///     }
///     flash.sync(Nanos::ZERO, last)
/// }
///
/// let mut chip = Chip::default();
/// let program = chip.timing().program;
/// // A plane does one operation at a time.
/// assert_eq!(fill(&mut chip, 3)?, Nanos(3 * program.0));
/// # Ok::<(), FlashError>(())
/// ```
pub trait Flash: Send {
    /// The shape and the rules of the device.
    fn geometry(&self) -> &Geometry;

    /// Reads a page into `data` and the first bytes of its spare area into `spare`. A blank page
    /// has a spare area of `0xff` and no data.
    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError>;

    /// Programs a blank page. `data` may be shorter than the page. It may be empty if the data will
    /// never be read.
    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError>;

    /// Clears bits of the spare area of a programmed page (partial page programming). These bytes
    /// lie outside the page's ECC.
    fn reprogram(
        &mut self,
        now: Nanos,
        at: Ppn,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Nanos, FlashError>;

    /// Erases a block.
    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError>;

    /// Erases a block. A flash that never fails stores `number` and `says` with the erase until the
    /// next erase of the block ([`Flash::said_at_erase`]). Other devices ignore them.
    ///
    /// # Errors
    /// As [`Flash::erase`].
    fn erase_saying(
        &mut self,
        now: Nanos,
        block: Pbn,
        number: u64,
        says: &[u8],
    ) -> Result<Nanos, FlashError> {
        let _ = (number, says);
        self.erase(now, block)
    }

    /// The number and bytes stored with the last known erase. `None` if nothing was stored.
    fn said_at_erase(&self) -> Option<SaidAtErase> {
        None
    }

    /// Waits at `now` for all operations that are done at `until` or before, and makes them
    /// durable. Returns the later of the two instants.
    fn sync(&mut self, now: Nanos, until: Nanos) -> Result<Nanos, FlashError>;

    /// Whether the manufacturer marked the block as bad.
    fn is_factory_bad(&self, block: Pbn) -> bool;

    /// Whether single programs and erases never fail, and reads are cheap: a write error breaks the
    /// whole device. A block then takes pages until it is full.
    fn never_fails(&self) -> bool {
        false
    }

    /// The last byte of the number of the last issued erase, on a flash that never fails. Erases
    /// are numbered within one start of the device.
    fn last_erase(&self) -> u8 {
        0
    }

    /// The last byte of the number of the last erase in the start in which `block` was erased, as
    /// far as known.
    fn last_erase_before(&self, block: Pbn) -> u8 {
        let _ = block;
        0
    }

    /// Whether `block` may have been erased after a page of block `other` was programmed, when
    /// [`Flash::last_erase`] was `erase`. A flash that does not number its erases returns `true`.
    fn was_erased_after(&self, block: Pbn, other: Pbn, erase: u8) -> bool {
        let _ = (block, other, erase);
        true
    }

    /// Adds up to `blocks` blank blocks behind the last one of the only plane, on a medium that can
    /// grow. The geometry then has the new number.
    ///
    /// # Errors
    /// The power fails.
    fn grow(&mut self, blocks: u32) -> Result<(), FlashError> {
        let _ = blocks;
        Ok(())
    }

    /// Whether [`Flash::shrink`] has an effect.
    fn can_shrink(&self) -> bool {
        false
    }

    /// Keeps only the first `blocks` blocks of the only plane, on a medium that can shrink. The
    /// others hold no valid data. On return this is durable, and the geometry has the new number.
    ///
    /// # Errors
    /// The power fails.
    fn shrink(&mut self, blocks: u32) -> Result<(), FlashError> {
        let _ = blocks;
        Ok(())
    }

    /// Announces that no operation will be called with an earlier `now`. A simulated device then
    /// drops the reservations before that instant. Results must not depend on it.
    fn reached(&mut self, now: Nanos) {
        let _ = now;
    }

    /// Announces that the bytes of a page will not be read again unless the power fails. A
    /// simulated device may drop them, unless it simulates power cuts.
    fn forget(&mut self, at: Ppn) {
        let _ = at;
    }

    /// Whether the device copies pages within a plane: [`Flash::read_inside`] and
    /// [`Flash::program_inside`] then do not use the channel.
    fn copies_inside(&self) -> bool {
        false
    }

    /// [`Flash::read`] of a page that is copied within its plane.
    fn read_inside(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        self.read(now, at, data, spare)
    }

    /// [`Flash::program`] of a copy from the same plane.
    fn program_inside(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.program(now, at, data, spare)
    }

    /// The spare area of a page without a simulated read. A hint which tables the caller will need
    /// soon. Results must not depend on it.
    fn hint(&self, at: Ppn) -> Option<&[u8]> {
        let _ = at;
        None
    }

    /// Announces reads of `pages` pages from `first` on: a device may read them concurrently.
    /// Results must not depend on it.
    fn expect(&self, first: Ppn, pages: u32) {
        let _ = (first, pages);
    }

    /// Reads a page without a simulated read, for checks of tables in memory. Returns the number of
    /// data bytes, or `None` if the page is unreadable or the device cannot be read so.
    fn peek(&self, at: Ppn, data: &mut [u8], spare: &mut [u8]) -> Option<usize> {
        let _ = (at, data, spare);
        None
    }

    /// The simulated chip, if this device is one. Experiments inspect its wear, copy it, and switch
    /// it off and on. Middleware around a chip returns `None`: its maker has a handle ([`Shared`]).
    fn model(&self) -> Option<&Chip> {
        None
    }

    /// As [`Flash::model`], by value.
    fn into_model(self: Box<Self>) -> Option<Chip> {
        None
    }
}

/// Forwards the methods of [`Flash`] in middleware to the device in a field or returned by a call.
/// The methods after `but` are left out: the middleware writes them itself or has the default.
///
/// Some methods are left out with another one: `erase_saying` and `said_at_erase` with `erase`,
/// `shrink` with `grow`, the numbers of erases with `never_fails`. Methods that only a bare
/// simulated chip has are never forwarded: copies inside a plane, `forget`, `hint` and `model`.
///
/// ```
/// use flagstone::forward_flash;
/// use flagstone::nand::{Flash, FlashError};
/// use flagstone::units::{Nanos, Pbn};
///
/// /// Counts the erases of a device.
/// struct Counting<F> {
///     inner: F,
///     erases: u64,
/// }
///
/// impl<F: Flash> Flash for Counting<F> {
///     forward_flash!([inner] but erase);
///
///     fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
///         self.erases += 1;
///         self.inner.erase(now, block)
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_flash {
    ($below:tt $(but $($own:ident)+)?) => {
        $crate::forward_flash! { @each $below [$($($own)+)?]
            geometry: fn geometry(&self) -> &$crate::nand::Geometry;
            read: fn read(
                &mut self,
                now: $crate::units::Nanos,
                at: $crate::units::Ppn,
                data: &mut [u8],
                spare: &mut [u8]
            ) -> Result<$crate::nand::Read, $crate::nand::FlashError>;
            program: fn program(
                &mut self,
                now: $crate::units::Nanos,
                at: $crate::units::Ppn,
                data: &[u8],
                spare: &[u8]
            ) -> Result<$crate::units::Nanos, $crate::nand::FlashError>;
            reprogram: fn reprogram(
                &mut self,
                now: $crate::units::Nanos,
                at: $crate::units::Ppn,
                offset: usize,
                bytes: &[u8]
            ) -> Result<$crate::units::Nanos, $crate::nand::FlashError>;
            erase: fn erase(
                &mut self,
                now: $crate::units::Nanos,
                block: $crate::units::Pbn
            ) -> Result<$crate::units::Nanos, $crate::nand::FlashError>;
            erase: fn erase_saying(
                &mut self,
                now: $crate::units::Nanos,
                block: $crate::units::Pbn,
                number: u64,
                says: &[u8]
            ) -> Result<$crate::units::Nanos, $crate::nand::FlashError>;
            erase: fn said_at_erase(&self) -> Option<$crate::nand::SaidAtErase>;
            sync: fn sync(
                &mut self,
                now: $crate::units::Nanos,
                until: $crate::units::Nanos
            ) -> Result<$crate::units::Nanos, $crate::nand::FlashError>;
            is_factory_bad: fn is_factory_bad(&self, block: $crate::units::Pbn) -> bool;
            never_fails: fn never_fails(&self) -> bool;
            never_fails: fn last_erase(&self) -> u8;
            never_fails: fn last_erase_before(&self, block: $crate::units::Pbn) -> u8;
            never_fails: fn was_erased_after(
                &self,
                block: $crate::units::Pbn,
                other: $crate::units::Pbn,
                erase: u8
            ) -> bool;
            grow: fn grow(&mut self, blocks: u32) -> Result<(), $crate::nand::FlashError>;
            grow: fn can_shrink(&self) -> bool;
            grow: fn shrink(&mut self, blocks: u32) -> Result<(), $crate::nand::FlashError>;
            reached: fn reached(&mut self, now: $crate::units::Nanos) -> ();
            expect: fn expect(&self, first: $crate::units::Ppn, pages: u32) -> ();
            peek: fn peek(
                &self,
                at: $crate::units::Ppn,
                data: &mut [u8],
                spare: &mut [u8]
            ) -> Option<usize>;
        }
    };
    (@each $below:tt $own:tt $($group:ident: fn $name:ident $args:tt -> $out:ty;)+) => {
        $($crate::forward_flash!(@unless $own $group: $below fn $name $args -> $out);)+
    };
    // A method whose group is in the list is left out.
    (@unless [geometry $($own:ident)*] geometry: $($method:tt)+) => {};
    (@unless [read $($own:ident)*] read: $($method:tt)+) => {};
    (@unless [program $($own:ident)*] program: $($method:tt)+) => {};
    (@unless [reprogram $($own:ident)*] reprogram: $($method:tt)+) => {};
    (@unless [erase $($own:ident)*] erase: $($method:tt)+) => {};
    (@unless [sync $($own:ident)*] sync: $($method:tt)+) => {};
    (@unless [is_factory_bad $($own:ident)*] is_factory_bad: $($method:tt)+) => {};
    (@unless [never_fails $($own:ident)*] never_fails: $($method:tt)+) => {};
    (@unless [grow $($own:ident)*] grow: $($method:tt)+) => {};
    (@unless [reached $($own:ident)*] reached: $($method:tt)+) => {};
    (@unless [expect $($own:ident)*] expect: $($method:tt)+) => {};
    (@unless [peek $($own:ident)*] peek: $($method:tt)+) => {};
    (@unless [$other:ident $($own:ident)*] $group:ident: $($method:tt)+) => {
        $crate::forward_flash!(@unless [$($own)*] $group: $($method)+);
    };
    (@unless [] $group:ident: [$($below:tt)+]
        fn $name:ident(&mut $this:ident $(, $arg:ident: $type:ty)*) -> $out:ty) => {
        fn $name(&mut $this $(, $arg: $type)*) -> $out {
            $this.$($below)+.$name($($arg),*)
        }
    };
    (@unless [] $group:ident: [$($below:tt)+]
        fn $name:ident(&$this:ident $(, $arg:ident: $type:ty)*) -> $out:ty) => {
        fn $name(&$this $(, $arg: $type)*) -> $out {
            $this.$($below)+.$name($($arg),*)
        }
    };
}
