//! The shape of a device and what its cells allow.

use super::Pairing;
use crate::units::{Pbn, Ppn};
use std::fmt;

/// What kind of cells a device has: how often a page can be programmed between two erases.
///
/// ```
/// use flagstone::nand::{Cell, Geometry};
///
/// let mut geometry = Geometry::default();
/// assert!(geometry.can_reprogram());
/// geometry.cell = Cell::Mlc;
/// assert_eq!(geometry.cell.programs_per_page(), 1);
/// assert!(!geometry.can_reprogram());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// One bit a cell. A page can be programmed `partial_programs` times in all (the partial
    /// program level of \[FlagCommit] Table 2, 2 by default).
    Slc {
        /// Programs of one page between erases, the first included.
        partial_programs: u8,
    },
    /// Several bits a cell: one program a page.
    Mlc,
}

impl Cell {
    /// Programs of one page between two erases.
    pub const fn programs_per_page(self) -> u8 {
        match self {
            Cell::Slc { partial_programs } => partial_programs,
            Cell::Mlc => 1,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cell::Slc { .. } => "slc",
            Cell::Mlc => "mlc",
        })
    }
}

/// The shape of a device.
///
/// ```
/// use flagstone::nand::Geometry;
/// use flagstone::units::{Pbn, Ppn};
///
/// let geometry = Geometry {
///     channels: 4,
///     blocks_per_plane: 1024,
///     ..Geometry::default()
/// };
/// geometry.validate()?;
/// assert_eq!((geometry.planes(), geometry.blocks()), (8, 8192));
/// assert_eq!(geometry.bytes(), 2 << 30);
/// let at = geometry.page(Pbn(1024), 3);
/// assert_eq!((geometry.block_of(at), geometry.page_in_block(at)), (Pbn(1024), 3));
/// assert_eq!(geometry.plane_of(Pbn(1024)), 1);
/// # Ok::<(), flagstone::nand::GeometryError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Channels, each with a bus of its own.
    pub channels: u32,
    /// Packages on one channel.
    pub packages_per_channel: u32,
    /// Planes in one package; a plane does one operation at a time.
    pub planes_per_package: u32,
    /// Erase blocks in one plane.
    pub blocks_per_plane: u32,
    /// Pages in one block.
    pub pages_per_block: u32,
    /// Data bytes of one page.
    pub page_bytes: u32,
    /// Spare (out-of-band) bytes of one page.
    pub spare_bytes: u32,
    /// What the cells allow.
    pub cell: Cell,
    /// Whether the pages of a block must be programmed in ascending order, in which case no older
    /// page can be reprogrammed either (\[FlagCommit] §2.1, Appendix C).
    pub strict_order: bool,
    /// Which pages of a block share cells, so that a cut program of one can destroy another.
    pub pairing: Pairing,
}

impl Default for Geometry {
    /// A small device of 512 MiB that every protocol can work on: two channels with two planes
    /// each, blocks of 64 pages of 4 KiB, single-level cells whose pages take four programs.
    fn default() -> Self {
        Geometry {
            channels: 2,
            packages_per_channel: 1,
            planes_per_package: 2,
            blocks_per_plane: 512,
            pages_per_block: 64,
            page_bytes: 4096,
            spare_bytes: 128,
            cell: Cell::Slc {
                partial_programs: 4,
            },
            strict_order: false,
            pairing: Pairing::None,
        }
    }
}

/// A geometry that no device can have.
///
/// ```
/// use flagstone::nand::Geometry;
///
/// let geometry = Geometry {
///     pages_per_block: 2,
///     ..Geometry::default()
/// };
/// let error = geometry.validate().unwrap_err();
/// assert_eq!(error.to_string(), "pages_per_block is 2, it must be from 4 to 4096");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeometryError(pub String);

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for GeometryError {}

impl Geometry {
    /// Checks that every count is within its limits and that all pages can be addressed.
    ///
    /// # Errors
    /// Names the count that is wrong and what it may be.
    pub fn validate(&self) -> Result<(), GeometryError> {
        let counts = [
            ("channels", self.channels, 1, 1 << 10),
            (
                "packages_per_channel",
                self.packages_per_channel,
                1,
                1 << 10,
            ),
            ("planes_per_package", self.planes_per_package, 1, 1 << 10),
            ("blocks_per_plane", self.blocks_per_plane, 4, 1 << 24),
            ("pages_per_block", self.pages_per_block, 4, 4096),
            ("page_bytes", self.page_bytes, 64, 1 << 20),
            ("spare_bytes", self.spare_bytes, 16, 4096),
        ];
        for (name, value, low, high) in counts {
            if !(low..=high).contains(&value) {
                return Err(GeometryError(format!(
                    "{name} is {value}, it must be from {low} to {high}"
                )));
            }
        }
        if self.cell.programs_per_page() == 0 {
            return Err(GeometryError(
                "partial_programs is 0, it must be at least 1".into(),
            ));
        }
        let multiple = self.pairing.pages_multiple();
        if !self.pages_per_block.is_multiple_of(multiple) {
            return Err(GeometryError(format!(
                "pages_per_block is {}, with the pairing {} it must be a multiple of {multiple}",
                self.pages_per_block, self.pairing
            )));
        }
        if self.pairing != Pairing::None && self.cell != Cell::Mlc {
            return Err(GeometryError(format!(
                "pairing is {}, which {} cells do not have: they hold one bit",
                self.pairing, self.cell
            )));
        }
        // The product of the largest counts exceeds 64 bits.
        let pages = u128::from(self.channels)
            * u128::from(self.packages_per_channel)
            * u128::from(self.planes_per_package)
            * u128::from(self.blocks_per_plane)
            * u128::from(self.pages_per_block);
        if pages >= 1 << 31 {
            return Err(GeometryError(format!(
                "the device has {pages} pages, at most {} can be addressed",
                (1u64 << 31) - 1
            )));
        }
        Ok(())
    }

    /// Parallel units: planes of the whole device.
    pub const fn planes(&self) -> u32 {
        self.channels * self.packages_per_channel * self.planes_per_package
    }

    /// Packages of the whole device.
    pub const fn packages(&self) -> u32 {
        self.channels * self.packages_per_channel
    }

    /// Blocks of the whole device.
    pub const fn blocks(&self) -> u32 {
        self.planes() * self.blocks_per_plane
    }

    /// Pages of the whole device.
    pub const fn pages(&self) -> u32 {
        self.blocks() * self.pages_per_block
    }

    /// Data bytes of the whole device.
    pub const fn bytes(&self) -> u64 {
        self.pages() as u64 * self.page_bytes as u64
    }

    /// The block that a page lies in.
    #[inline]
    pub const fn block_of(&self, at: Ppn) -> Pbn {
        Pbn(at.0 / self.pages_per_block)
    }

    /// A page's place inside its block, from 0.
    #[inline]
    pub const fn page_in_block(&self, at: Ppn) -> u32 {
        at.0 % self.pages_per_block
    }

    /// The page at a place inside a block.
    #[inline]
    pub const fn page(&self, block: Pbn, page: u32) -> Ppn {
        Ppn(block.0 * self.pages_per_block + page)
    }

    /// The plane that a block lies in.
    #[inline]
    pub const fn plane_of(&self, block: Pbn) -> u32 {
        block.0 / self.blocks_per_plane
    }

    /// The channel of a plane.
    #[inline]
    pub const fn channel_of(&self, plane: u32) -> u32 {
        plane / (self.planes_per_package * self.packages_per_channel)
    }

    /// Whether a programmed page may be programmed again without an erase.
    pub const fn can_reprogram(&self) -> bool {
        self.cell.programs_per_page() > 1 && !self.strict_order
    }
}

/// The address arithmetic of a [`Geometry`] without divisions, for code that runs for every page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    pages_per_block: u32,
    /// 2^64 divided by the pages of a block, and by the blocks of a plane, rounded up.
    per_page: u64,
    per_block: u64,
}

impl Addresses {
    /// The arithmetic of a valid geometry.
    pub(crate) fn new(geometry: &Geometry) -> Self {
        // Exact for every 32-bit dividend, as long as the divisor is at least 2.
        let inverse = |divisor: u32| u64::MAX / u64::from(divisor) + 1;
        Addresses {
            pages_per_block: geometry.pages_per_block,
            per_page: inverse(geometry.pages_per_block),
            per_block: inverse(geometry.blocks_per_plane),
        }
    }

    /// As [`Geometry::block_of`].
    #[inline]
    pub(crate) fn block_of(&self, at: Ppn) -> Pbn {
        Pbn(high(self.per_page, at.0))
    }

    /// As [`Geometry::block_of`] and [`Geometry::page_in_block`].
    #[inline]
    pub(crate) fn split(&self, at: Ppn) -> (Pbn, u32) {
        let block = self.block_of(at);
        (block, at.0 - block.0 * self.pages_per_block)
    }

    /// As [`Geometry::plane_of`].
    #[inline]
    pub(crate) fn plane_of(&self, block: Pbn) -> u32 {
        high(self.per_block, block.0)
    }
}

/// Bits 64 and up of the product.
#[inline]
fn high(inverse: u64, number: u32) -> u32 {
    ((u128::from(inverse) * u128::from(number)) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_pages_than_64_bits_count_are_refused() {
        let largest = Geometry {
            channels: 1 << 10,
            packages_per_channel: 1 << 10,
            planes_per_package: 1 << 10,
            blocks_per_plane: 1 << 24,
            ..Geometry::default()
        };
        for pages_per_block in [1 << 10, 4096] {
            let geometry = Geometry {
                pages_per_block,
                ..largest
            };
            let error = geometry.validate().unwrap_err().0;
            assert!(error.contains("can be addressed"), "{error}");
        }
    }

    #[test]
    fn addresses_are_those_of_the_geometry() {
        for (blocks_per_plane, pages_per_block) in [(4, 4), (7, 64), (1001, 6), (4096, 4095)] {
            let geometry = Geometry {
                channels: 2,
                packages_per_channel: 1,
                planes_per_package: 3,
                blocks_per_plane,
                pages_per_block,
                page_bytes: 64,
                spare_bytes: 16,
                cell: Cell::Mlc,
                strict_order: false,
                pairing: Pairing::None,
            };
            let addresses = Addresses::new(&geometry);
            let last = geometry.pages() - 1;
            let some = (0..last).step_by(1 + last as usize / 5000);
            for at in some.flat_map(|page| [page, page + 1]).map(Ppn) {
                let block = geometry.block_of(at);
                assert_eq!(addresses.split(at), (block, geometry.page_in_block(at)));
                assert_eq!(addresses.plane_of(block), geometry.plane_of(block));
            }
            for number in [u32::MAX, u32::MAX - 1, u32::MAX / 2] {
                assert_eq!(
                    addresses.block_of(Ppn(number)).0,
                    number / pages_per_block,
                    "{number}"
                );
            }
        }
    }
}
