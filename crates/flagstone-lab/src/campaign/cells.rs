//! The cells of runs with `aging` among their faults: how their bit errors grow, and how time
//! passes there.
//!
//! In days of virtual time data fade that are not written anew. Time passes in jumps: now and then
//! a client comes back after days, and between two phases the device is switched off for days. A
//! device that scrubs reads all of its pages within [`PATROL`], and refreshes those with a quarter
//! of the errors that the ECC corrects. Without that a page is lost after some two months.

use super::BaseId;
use flagstone::ftl::Scrub;
use flagstone::nand::{Ages, Geometry, Growth, PowerLaw, YEAR};
use flagstone::units::Nanos;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// A day of virtual time.
const DAY: Nanos = Nanos(24 * 3_600 * 1_000_000_000);

/// Bits that the ECC corrects in a page, and from how many on a block is refreshed.
const ECC_BITS: u16 = 64;
const SCRUB_BITS: u16 = 16;

/// In which time the patrol reads every page.
const PATROL: Nanos = Nanos(4 * DAY.0);

/// Errors that a page gets in a day, and from a thousand reads of its block, if the block has had
/// all the erases that its maker promises; and how many these are.
const ERRORS_A_DAY: f64 = 1.5;
const ERRORS_A_THOUSAND_READS: f64 = 10.0;
const ENDURANCE: u32 = 200;
const WORN_ERASES: u32 = 120;

/// The longest jumps: while the device is on, and while it is off.
const AWAY_DAYS: u64 = 3;
const OFF_DAYS: u64 = 5;

/// Of so many steps of the clients one comes after days.
const STEPS: u32 = 8;

/// The longest that a client keeps a transaction open. `afc` does not move pages of blocks with
/// pages of live transactions (its departure D3), so it cannot refresh them: in a transaction that
/// stays open for two months it loses pages, other clients' as well.
pub(super) const LONGEST_OPEN: Nanos = Nanos(14 * DAY.0);

/// The scrubbing of a device.
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

/// How long a client that comes next has been away, if it has.
pub(super) fn away(dice: &mut Pcg64Mcg) -> Option<Nanos> {
    let comes_back = dice.random_range(0..STEPS) == 0;
    comes_back.then(|| Nanos(dice.random_range(0..AWAY_DAYS * DAY.0)))
}

/// How long the device is switched off.
pub(super) fn off(dice: &mut Pcg64Mcg) -> Nanos {
    Nanos(dice.random_range(0..OFF_DAYS * DAY.0))
}
