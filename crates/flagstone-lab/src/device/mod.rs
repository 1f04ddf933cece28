//! Devices to run on: the papers' parameter tables as presets, and others from TOML files.
//!
//! The comment beside each number of a preset states its source, or that the paper does not give
//! it. `flagstone device show NAME` prints these comments, also for other device files.

mod presets;
mod tables;
mod file;
mod aging;
mod show;

pub use presets::{DEFAULT, presets};
pub use tables::{
    AgingTable, CellName, DeviceFile, FtlTable, GeometryTable, ReliabilityTable, TimingTable,
    schema,
};

use crate::inputs;
use crate::no_such;
use flagstone::ftl::{Config, Ftl};
use flagstone::nand::{Chip, Flash, Geometry, Growth, Timing};
use flagstone::units::Pbn;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A device: geometry, latencies, and the FTL's configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceSpec {
    /// The name in results.
    pub name: String,
    /// Description in one line.
    pub about: String,
    /// The shape.
    pub geometry: Geometry,
    /// Latencies.
    pub timing: Timing,
    /// Whether the collector copies within a plane, without using the channel.
    pub copy_back: bool,
    /// Configuration of the FTL.
    pub config: Config,
    /// Bit errors per page that the ECC corrects.
    pub ecc_bits: u32,
    /// Rated erases per block.
    pub endurance: u32,
    /// Factory bad blocks.
    pub factory_bad: Vec<Pbn>,
    /// Growth of bit errors, if any: see [`Life`](crate::life::Life).
    pub growth: Option<Growth>,
    /// The source of each number, by its key in a device file: the comment on its line.
    pub sources: BTreeMap<&'static str, String>,
}

impl DeviceSpec {
    /// A preset by name, or a device from a file: any name that ends in `.toml` or contains a path
    /// separator.
    ///
    /// # Errors
    /// No such preset, with similar names; an unreadable file; or an invalid file, with line and
    /// reason.
    pub fn load(name_or_path: &str) -> Result<DeviceSpec, DeviceSpecError> {
        if let Some(preset) = presets::preset(name_or_path) {
            return Ok(preset.clone());
        }
        let is_path = name_or_path.ends_with(".toml") || name_or_path.contains(['/', '\\']);
        if !is_path {
            return Err(DeviceSpecError::unknown(name_or_path));
        }
        let path = PathBuf::from(name_or_path);
        let text = match inputs::text(&path) {
            Ok(text) => text,
            Err(source) => return Err(DeviceSpecError::Read { path, source }),
        };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        DeviceSpec::parse(&text, &stem).map_err(|why| DeviceSpecError::Content { path, why })
    }

    /// A blank chip of this kind that stores `spare_kept` bytes per spare area.
    pub fn chip(&self, spare_kept: usize) -> Chip {
        let chip = Chip::new(self.geometry, self.timing, spare_kept)
            .with_factory_bad(self.factory_bad.clone());
        if self.copy_back {
            chip.with_copy_back()
        } else {
            chip
        }
    }

    /// The raw capacity as text.
    pub fn capacity(&self) -> String {
        let mut size = self.geometry.bytes() as f64;
        for unit in ["B", "KiB", "MiB", "GiB"] {
            if size < 1024.0 {
                return format!("{} {unit}", round(size));
            }
            size /= 1024.0;
        }
        format!("{} TiB", round(size))
    }
}

fn round(size: f64) -> f64 {
    (size * 100.0).round() / 100.0
}

/// Why a device cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum DeviceSpecError {
    /// No preset has this name.
    #[error(
        "{}, and files, by names that end in .toml",
        no_such("device", name, known)
    )]
    Unknown {
        /// The requested name.
        name: String,
        /// All presets.
        known: Vec<String>,
    },
    /// The file cannot be read.
    #[error("the device file {} cannot be read", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not a valid device file.
    #[error("{}: {why}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Line and reason.
        why: String,
    },
}

impl DeviceSpecError {
    fn unknown(name: &str) -> DeviceSpecError {
        let known: Vec<String> = presets().iter().map(|spec| spec.name.clone()).collect();
        DeviceSpecError::Unknown {
            name: name.into(),
            known,
        }
    }
}

/// The chip of a device that runs directly on one.
pub(crate) fn chip_of(ftl: &Ftl) -> &Chip {
    ftl.flash().model().expect("this run was made on a chip")
}

/// The chip, with its clock reset to zero.
pub(crate) fn power_off(flash: Box<dyn Flash>) -> Chip {
    let mut chip = flash.into_model().expect("this run was made on a chip");
    chip.reset_time();
    chip
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone::commit::Kind;
    use flagstone::nand::Cell;

    #[test]
    fn every_preset_is_a_device_that_protocols_run_on() {
        for spec in presets() {
            spec.geometry.validate().unwrap();
            for &kind in Kind::ALL {
                let wants_slc = kind.info().reprograms && spec.geometry.cell == Cell::Mlc;
                let suits = kind.suits(&spec.geometry, &spec.config);
                assert_eq!(suits.is_err(), wants_slc, "{} {kind} {suits:?}", spec.name);
            }
            assert_eq!(DeviceSpec::load(&spec.name).unwrap(), *spec);
        }
    }

    #[test]
    fn the_papers_capacities_come_out() {
        let capacity = |name| DeviceSpec::load(name).unwrap().capacity();
        for name in ["flagcommit-slc", "mixsl-mlc", "lighttx"] {
            assert_eq!(capacity(name), "32 GiB");
        }
        assert_eq!(capacity("lazybtree"), "2 GiB");
        assert_eq!(capacity("small"), "1 GiB");
        assert!(presets().iter().any(|spec| spec.name == DEFAULT));
    }

    #[test]
    fn each_number_of_a_preset_has_a_source() {
        for spec in presets() {
            let text = spec.to_toml();
            let given = |key: &&str| text.contains(&format!("\n{key} = "));
            for key in file::KEYS.into_iter().filter(given) {
                assert!(spec.sources.contains_key(key), "{}: {key}", spec.name);
            }
        }
    }

    #[test]
    fn an_unknown_preset_names_the_nearest() {
        let error = DeviceSpec::load("lightx").unwrap_err().to_string();
        assert!(error.contains("did you mean `lighttx`"), "{error}");
        let error = DeviceSpec::load("floppy").unwrap_err().to_string();
        assert!(!error.contains("did you mean") && error.contains("flagcommit-slc"));
        let error = DeviceSpec::load("no/such.toml").unwrap_err();
        assert!(error.to_string().contains("no/such.toml cannot be read"));
    }
}
