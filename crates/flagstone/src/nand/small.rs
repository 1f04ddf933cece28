//! Small chips for tests, and a chip whose programs a test observes.

use super::{Cell, Chip, Cut, Flash, FlashError, Geometry, Pairing, PowerCut, Shared, Timing};
use crate::forward_flash;
use crate::units::{Nanos, Ppn};

/// The geometry that tests derive theirs from.
pub const GEOMETRY: Geometry = Geometry {
    channels: 2,
    packages_per_channel: 1,
    planes_per_package: 1,
    blocks_per_plane: 64,
    pages_per_block: 8,
    page_bytes: 256,
    spare_bytes: 64,
    cell: Cell::Slc {
        partial_programs: 2,
    },
    strict_order: true,
    pairing: Pairing::None,
};

/// A few pages on two planes, with any program order.
pub const TINY: Geometry = Geometry {
    channels: 1,
    planes_per_package: 2,
    blocks_per_plane: 4,
    pages_per_block: 4,
    page_bytes: 64,
    spare_bytes: 16,
    strict_order: false,
    ..GEOMETRY
};

/// Dice of a cut after which nothing in flight has landed.
pub const NOTHING: u64 = 6;
/// Dice of a cut after which everything in flight has landed.
pub const EVERYTHING: u64 = 1;

/// A blank chip that keeps all spare bytes.
pub fn chip(geometry: Geometry) -> Chip {
    Chip::new(geometry, Timing::default(), geometry.spare_bytes as usize)
}

/// A blank test chip whose power can fail.
pub fn flash() -> Shared<PowerCut> {
    Shared::new(PowerCut::new(chip(GEOMETRY)))
}

/// A program as seen by [`Watched`]: when and where, the bytes, and when it will be done.
///
/// Example: [`Watched`].
#[derive(Debug)]
pub struct Programmed<'a> {
    /// The instant of the call.
    pub now: Nanos,
    /// The page.
    pub at: Ppn,
    /// Bytes of the page.
    pub data: &'a [u8],
    /// Bytes of the spare area.
    pub spare: &'a [u8],
    /// The instant at which the program ends.
    pub done: Nanos,
}

/// A chip whose programs a test observes. The test decides which of them fail.
///
/// ```
/// use flagstone::nand::small::{GEOMETRY, Programmed, Watched, chip};
/// use flagstone::nand::{Flash, FlashError};
/// use flagstone::units::{Nanos, Ppn};
///
/// let fails = |program: &Programmed<'_>| program.data == b"bad";
/// let mut flash = Watched { chip: chip(GEOMETRY), fails };
/// let now = flash.program(Nanos::ZERO, Ppn(0), b"good", &[])?;
/// let failed = flash.program(now, Ppn(1), b"bad", &[]);
/// assert!(matches!(failed, Err(FlashError::ProgramFailed { at: Ppn(1), .. })));
/// # Ok::<(), FlashError>(())
/// ```
#[derive(Debug)]
pub struct Watched<C, F> {
    /// The chip.
    pub chip: C,
    /// Observes a program. Returns whether it fails.
    pub fails: F,
}

impl<C: Flash, F: FnMut(&Programmed<'_>) -> bool + Send> Flash for Watched<C, F> {
    forward_flash!([chip] but program);

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        let done = self.chip.program(now, at, data, spare)?;
        let programmed = Programmed {
            now,
            at,
            data,
            spare,
            done,
        };
        if (self.fails)(&programmed) {
            Err(FlashError::ProgramFailed { at, done })
        } else {
            Ok(done)
        }
    }
}

/// Cuts the power now, unless it has failed already, and starts the device again. With `cut` it
/// will fail once more. All state of the device in memory is lost.
pub fn restart(flash: &mut Shared<PowerCut>, dice: u64, torn: bool, cut: Option<Cut>) {
    let chip = std::mem::replace(flash, self::flash())
        .take()
        .pull(dice, torn);
    let power = PowerCut::new(chip);
    *flash = Shared::new(match cut {
        Some(cut) => power.arm(cut),
        None => power,
    });
}
