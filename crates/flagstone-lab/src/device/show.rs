//! Writes a device as a device file.

use super::DeviceSpec;
use super::aging::{DAY, growth_keys};
use flagstone::nand::Cell;
use flagstone::units::Nanos;
use std::fmt::Write;

impl DeviceSpec {
    /// The device file, in which each number has its source.
    pub fn to_toml(&self) -> String {
        let (geometry, timing, config) = (&self.geometry, &self.timing, &self.config);
        let text = |text: &str| toml::Value::from(text).to_string();
        let (name, about) = (text(&self.name), text(&self.about));
        let mut out = format!("name = {name}\nabout = {about}\n");
        let mut put = |key: &'static str, value: String| {
            if let Some(table) = table_of(key) {
                let _ = write!(out, "\n[{table}]\n");
            }
            let source = self.sources.get(key).map_or("", |source| source);
            let line = format!("{key} = {value}");
            let _ = match source {
                "" => writeln!(out, "{line}"),
                source => writeln!(out, "{line:<32}# {source}"),
            };
        };
        let micros = |time: Nanos| (time.0 as f64 / 1000.0).to_string();
        for (key, number) in [
            ("channels", geometry.channels),
            ("packages_per_channel", geometry.packages_per_channel),
            ("planes_per_package", geometry.planes_per_package),
            ("blocks_per_plane", geometry.blocks_per_plane),
            ("pages_per_block", geometry.pages_per_block),
            ("page_bytes", geometry.page_bytes),
            ("spare_bytes", geometry.spare_bytes),
        ] {
            put(key, number.to_string());
        }
        put("cell", format!("{:?}", geometry.cell.to_string()));
        if let Cell::Slc { partial_programs } = geometry.cell {
            put("partial_programs", partial_programs.to_string());
        }
        put("strict_order", geometry.strict_order.to_string());
        put("pairing", format!("{:?}", geometry.pairing.to_string()));
        put("read_us", micros(timing.read));
        put("program_us", micros(timing.program));
        put("reprogram_us", micros(timing.reprogram));
        put("erase_us", micros(timing.erase));
        let transfer = timing.transfer_ps_per_byte as f64 / 1000.0;
        put("transfer_ns_per_byte", transfer.to_string());
        put("copy_back", self.copy_back.to_string());
        put("over_provision", config.over_provision.to_string());
        put("gc_threshold", config.gc_threshold.to_string());
        put("victims", format!("{:?}", config.victims.to_string()));
        put(
            "static_wear_gap",
            config.static_wear_gap.unwrap_or(0).to_string(),
        );
        put("copies_stay", config.copies_stay.to_string());
        put("summary_pages", config.summary_pages.to_string());
        put("checksums", config.checksums.to_string());
        put("works_ahead", config.works_ahead.to_string());
        put(
            "paired_pages",
            format!("{:?}", config.paired_pages.to_string()),
        );
        if let Some(scrub) = config.scrub {
            put("scrub_bits", scrub.bits.to_string());
            put("patrol_days", (scrub.patrol.0 as f64 / DAY).to_string());
        }
        put("ecc_bits", self.ecc_bits.to_string());
        put("endurance", self.endurance.to_string());
        let bad: Vec<u32> = self.factory_bad.iter().map(|block| block.0).collect();
        put("factory_bad", format!("{bad:?}"));
        if let Some(growth) = &self.growth {
            growth_keys(growth)
                .into_iter()
                .for_each(|(key, value)| put(key, value));
        }
        out
    }
}

/// The table that begins at a key, in the order in which keys are written.
fn table_of(key: &str) -> Option<&'static str> {
    match key {
        "channels" => Some("geometry"),
        "read_us" => Some("timing"),
        "over_provision" => Some("ftl"),
        "ecc_bits" => Some("reliability"),
        "fresh_rate" => Some("aging"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::presets;
    use super::*;

    #[test]
    fn a_shown_device_reads_back_as_itself() {
        for spec in presets() {
            let back = DeviceSpec::parse(&spec.to_toml(), "test").unwrap();
            assert_eq!(back, *spec);
        }
    }
}
