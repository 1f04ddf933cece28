//! The cells of runs with the fault `aging`: growth of bit errors, and passage of time.
//!
//! Over days of virtual time unrefreshed data decays. Time passes in jumps: sometimes a client
//! returns after days, and between two phases the device is powered off for days. A device that
//! scrubs reads all its pages within [`PATROL`], and refreshes pages with a quarter of the errors
//! that the ECC corrects. Otherwise a page is lost after about two months.

use super::BaseId;
use flagstone::ftl::Scrub;
use flagstone::nand::{Ages, Geometry, Growth, PowerLaw, YEAR};
use flagstone::units::Nanos;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// A day of virtual time.
const DAY: Nanos = Nanos(24 * 3_600 * 1_000_000_000);

/// Bit errors per page that the ECC corrects, and the threshold for refreshing a block.
const ECC_BITS: u16 = 64;
const SCRUB_BITS: u16 = 16;

/// The period in which the patrol reads every page.
const PATROL: Nanos = Nanos(4 * DAY.0);

/// Bit errors per page and day, and per thousand reads of its block, for a block at its rated
/// number of erases; that number; and the erases of each block before the run.
const ERRORS_A_DAY: f64 = 1.5;
const ERRORS_A_THOUSAND_READS: f64 = 10.0;
const ENDURANCE: u32 = 200;
const WORN_ERASES: u32 = 120;

/// The longest jumps, with power on and with power off.
const AWAY_DAYS: u64 = 3;
const OFF_DAYS: u64 = 5;

/// One in this many client steps comes after days.
const STEPS: u32 = 8;

/// Maximum lifetime of a transaction. `afc` does not move pages of blocks with pages of live
/// transactions (its departure D3), so it cannot refresh them: a transaction that lives for two
/// months would lose pages, including those of other clients.
pub(super) const LONGEST_OPEN: Nanos = Nanos(14 * DAY.0);

/// Scrub settings of the device.
pub(super) const SCRUB: Scrub = Scrub {
    bits: SCRUB_BITS,
    patrol: PATROL,
};

/// The cells of a new device.
pub(super) fn cells(id: &BaseId, geometry: &Geometry) -> Ages {
    if !id.faults.aging {
        return Ages::still();
    }
    let bits = f64::from(8 * (geometry.page_bytes + geometry.spare_bytes));
    let law = |rate| PowerLaw {
        rate,
        wear_exponent: 1.0,
        exponent: 1.0,
    };
    let days = YEAR.0 as f64 / DAY.0 as f64;
    let growth = Growth {
        fresh_rate: 0.0,
        wear_rate: 2.0 / bits,
        wear_exponent: 2.0,
        retention: law(ERRORS_A_DAY * days / bits),
        disturb: law(ERRORS_A_THOUSAND_READS * 100.0 / bits),
        endurance: ENDURANCE,
        worn_erases: WORN_ERASES,
        ecc_bits: ECC_BITS,
        batch: 0..0,
        batch_factor: 1.0,
    };
    Ages::new(
        geometry,
        growth,
        u64::from(id.shape) << 32 | u64::from(id.age),
    )
}

/// How long the next client has been away, if it has.
pub(super) fn away(dice: &mut Pcg64Mcg) -> Option<Nanos> {
    let comes_back = dice.random_range(0..STEPS) == 0;
    comes_back.then(|| Nanos(dice.random_range(0..AWAY_DAYS * DAY.0)))
}

/// How long the device is powered off.
pub(super) fn off(dice: &mut Pcg64Mcg) -> Nanos {
    Nanos(dice.random_range(0..OFF_DAYS * DAY.0))
}
