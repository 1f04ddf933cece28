//! The keys of a device file for growing bit errors and for scrubbing.

use super::DeviceSpec;
use super::file::{Wrong, wrong};
use super::tables::DeviceFile;
use flagstone::ftl::Scrub;
use flagstone::nand::{Geometry, Growth, PowerLaw};
use flagstone::units::Nanos;

/// A day in nanoseconds.
pub(super) const DAY: f64 = 24.0 * 3_600.0 * 1e9;

/// Values without keys: no errors of this kind, and an exponent of 1.
const NONE: PowerLaw = PowerLaw {
    rate: 0.0,
    wear_exponent: 1.0,
    exponent: 1.0,
};

impl DeviceFile {
    /// The scrub settings, if there are any.
    pub(super) fn scrub(
        &self,
        inherited: Option<Scrub>,
        ecc_bits: u32,
    ) -> Result<Option<Scrub>, Wrong> {
        let (bits, days) = (self.ftl.scrub_bits, self.ftl.patrol_days);
        let bits = bits.or(inherited.map(|scrub| scrub.bits)).unwrap_or(0);
        if bits == 0 {
            return match days {
                Some(_) => wrong("patrol_days", "patrol_days needs scrub_bits".into()),
                None => Ok(None),
            };
        }
        if u32::from(bits) >= ecc_bits {
            let why = format!("scrub_bits is {bits}, it must be below ecc_bits, {ecc_bits}");
            return wrong("scrub_bits", why);
        }
        let patrol = match days {
            Some(days) if (0.0..=36_500.0).contains(&days) => Nanos((days * DAY).round() as u64),
            Some(days) => {
                let why = format!("patrol_days is {days}, it must be from 0 to 36500");
                return wrong("patrol_days", why);
            }
            None => inherited.map_or(Nanos::ZERO, |scrub| scrub.patrol),
        };
        Ok(Some(Scrub { bits, patrol }))
    }

    /// The growth of bit errors, if there is any.
    pub(super) fn growth(
        &self,
        base: Option<&DeviceSpec>,
        geometry: &Geometry,
        ecc_bits: u32,
        endurance: u32,
    ) -> Result<Option<Growth>, Wrong> {
        let inherited = base.and_then(|spec| spec.growth.clone());
        let growth = match (&self.aging, inherited) {
            (None, inherited) => inherited,
            (Some(table), inherited) => {
                let base = inherited.unwrap_or(Growth {
                    fresh_rate: 0.0,
                    wear_rate: 0.0,
                    wear_exponent: 1.0,
                    retention: NONE,
                    disturb: NONE,
                    endurance,
                    worn_erases: 0,
                    ecc_bits: 0,
                    batch: 0..0,
                    batch_factor: 1.0,
                });
                let rate = |key, given, of| number(key, given, of, 1.0);
                let exponent = |key, given, of| number(key, given, of, 10.0);
                let (retention, disturb) = (base.retention, base.disturb);
                let first = table.batch_first.unwrap_or(base.batch.start);
                let blocks = table.batch_blocks.unwrap_or(base.batch.len() as u32);
                let end = first.saturating_add(blocks);
                if end > geometry.blocks() {
                    let why = format!("the batch ends before block {end}, beyond the device");
                    return wrong("batch_blocks", why);
                }
                Some(Growth {
                    fresh_rate: rate("fresh_rate", table.fresh_rate, base.fresh_rate)?,
                    wear_rate: rate("wear_rate", table.wear_rate, base.wear_rate)?,
                    wear_exponent: exponent(
                        "wear_exponent",
                        table.wear_exponent,
                        base.wear_exponent,
                    )?,
                    retention: PowerLaw {
                        rate: rate("retention_rate", table.retention_rate, retention.rate)?,
                        wear_exponent: exponent(
                            "retention_wear_exponent",
                            table.retention_wear_exponent,
                            retention.wear_exponent,
                        )?,
                        exponent: exponent(
                            "retention_exponent",
                            table.retention_exponent,
                            retention.exponent,
                        )?,
                    },
                    disturb: PowerLaw {
                        rate: rate("disturb_rate", table.disturb_rate, disturb.rate)?,
                        wear_exponent: exponent(
                            "disturb_wear_exponent",
                            table.disturb_wear_exponent,
                            disturb.wear_exponent,
                        )?,
                        exponent: exponent(
                            "disturb_exponent",
                            table.disturb_exponent,
                            disturb.exponent,
                        )?,
                    },
                    endurance,
                    worn_erases: table.worn_erases.unwrap_or(base.worn_erases),
                    ecc_bits: 0,
                    batch: first..end,
                    batch_factor: number(
                        "batch_factor",
                        table.batch_factor,
                        base.batch_factor,
                        1e6,
                    )?,
                })
            }
        };
        let Some(growth) = growth else {
            return Ok(None);
        };
        match u16::try_from(ecc_bits) {
            Ok(ecc_bits) if ecc_bits < u16::MAX => Ok(Some(Growth {
                ecc_bits,
                endurance,
                ..growth
            })),
            _ => wrong("ecc_bits", format!("ecc_bits is {ecc_bits}, beyond 65534")),
        }
    }
}

/// A number of a table, or the inherited value.
fn number(key: &'static str, given: Option<f64>, inherited: f64, most: f64) -> Result<f64, Wrong> {
    match given.unwrap_or(inherited) {
        number if (0.0..=most).contains(&number) => Ok(number),
        number => wrong(
            key,
            format!("{key} is {number}, it must be from 0 to {most}"),
        ),
    }
}

/// The keys and values that describe the growth of bit errors.
pub(super) fn growth_keys(growth: &Growth) -> [(&'static str, String); 13] {
    let (retention, disturb) = (&growth.retention, &growth.disturb);
    let text = |number: f64| format!("{number:?}");
    [
        ("fresh_rate", text(growth.fresh_rate)),
        ("wear_rate", text(growth.wear_rate)),
        ("wear_exponent", text(growth.wear_exponent)),
        ("retention_rate", text(retention.rate)),
        ("retention_wear_exponent", text(retention.wear_exponent)),
        ("retention_exponent", text(retention.exponent)),
        ("disturb_rate", text(disturb.rate)),
        ("disturb_wear_exponent", text(disturb.wear_exponent)),
        ("disturb_exponent", text(disturb.exponent)),
        ("worn_erases", growth.worn_erases.to_string()),
        ("batch_first", growth.batch.start.to_string()),
        ("batch_blocks", growth.batch.len().to_string()),
        ("batch_factor", text(growth.batch_factor)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let text = format!("preset = \"small\"\n{text}");
        DeviceSpec::parse(&text, "test").unwrap_err()
    }

    #[test]
    fn what_is_wrong_with_aging_or_scrubbing_is_said_with_its_line() {
        let rate = error("[aging]\nwear_rate = -1\n");
        assert!(rate.starts_with("line 3: wear_rate is -1"), "{rate}");
        let beyond = error("[aging]\nbatch_first = 4000\nbatch_blocks = 97\n");
        assert!(beyond.contains("before block 4097"), "{beyond}");
        let late = error("[ftl]\nscrub_bits = 8\n");
        assert!(late.contains("below ecc_bits, 8"), "{late}");
        let alone = error("[ftl]\npatrol_days = 8\n");
        assert!(alone.contains("needs scrub_bits"), "{alone}");
    }
}
