//! Parses a device from a TOML file: inherited and required keys, and errors.

use super::DeviceSpec;
use super::presets::preset;
use super::tables::{CellName, DeviceFile};
use flagstone::ftl::{Config, Format, Ftl, PairedPages, VictimPolicy};
use flagstone::nand::{Cell, Geometry, Pairing, Timing};
use flagstone::units::{Nanos, Pbn};

/// All keys of a file that hold a number or a choice.
pub(super) const KEYS: [&str; 38] = [
    "channels",
    "packages_per_channel",
    "planes_per_package",
    "blocks_per_plane",
    "pages_per_block",
    "page_bytes",
    "spare_bytes",
    "cell",
    "partial_programs",
    "strict_order",
    "read_us",
    "program_us",
    "reprogram_us",
    "erase_us",
    "transfer_ns_per_byte",
    "over_provision",
    "gc_threshold",
    "victims",
    "static_wear_gap",
    "summary_pages",
    "ecc_bits",
    "endurance",
    "factory_bad",
    "scrub_bits",
    "patrol_days",
    "fresh_rate",
    "wear_rate",
    "wear_exponent",
    "retention_rate",
    "retention_wear_exponent",
    "retention_exponent",
    "disturb_rate",
    "disturb_wear_exponent",
    "disturb_exponent",
    "worn_erases",
    "batch_first",
    "batch_blocks",
    "batch_factor",
];

/// An invalid value: its key, and the reason.
pub(super) struct Wrong {
    pub(super) key: &'static str,
    pub(super) why: String,
}

pub(super) fn wrong<T>(key: &'static str, why: String) -> Result<T, Wrong> {
    Err(Wrong { key, why })
}

impl DeviceSpec {
    /// Parses a device file; `name` is used if the file has no name.
    ///
    /// # Errors
    /// Line and reason.
    pub fn parse(text: &str, name: &str) -> Result<DeviceSpec, String> {
        // The parser's message includes line, column and the text of the line.
        let file: DeviceFile = toml::from_str(text).map_err(|error| error.to_string())?;
        let given: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let sized = file.capacity.is_some();
        let gives = |key: &str| {
            let mut tables = given.values().filter_map(toml::Value::as_table);
            tables.any(|table| table.contains_key(key)) || (key == "blocks_per_plane" && sized)
        };
        let resolved = file.resolve(name, gives);
        let mut spec = resolved.map_err(|Wrong { key, why }| match line_of(text, key) {
            Some((number, _)) => format!("line {number}: {why}"),
            None => why,
        })?;
        for key in KEYS {
            // Values of keys that can have a source contain no `#`.
            if let Some((_, line)) = line_of(text, key)
                && let Some((_, source)) = line.split_once('#')
            {
                spec.sources.insert(key, source.trim().into());
            }
        }
        Ok(spec)
    }
}

/// The line in which a key gets its value, with its number from 1.
fn line_of<'a>(text: &'a str, key: &str) -> Option<(usize, &'a str)> {
    let gives = |line: &str| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    (1..).zip(text.lines()).find(|(_, line)| gives(line))
}

impl DeviceFile {
    /// The device of a file. Keys that the file lacks are those of its preset, if it names one.
    /// `gives` says whether the file itself has a key: other keys keep the source of the preset.
    fn resolve(self, name: &str, gives: impl Fn(&str) -> bool) -> Result<DeviceSpec, Wrong> {
        let base = match &self.preset {
            None => None,
            Some(name) => match preset(name) {
                Some(spec) => Some(spec),
                None => {
                    let error = super::DeviceSpecError::unknown(name);
                    return wrong("preset", error.to_string());
                }
            },
        };
        let geometry = self.geometry(base)?;
        let timing = self.timing(base)?;
        let inherited = base.is_some_and(|spec| spec.copy_back);
        let copy_back = self.timing.copy_back.unwrap_or(inherited);
        let table = &self.reliability;
        let inherited = base.map(|spec| (spec.ecc_bits, spec.endurance));
        let (ecc_bits, endurance) = inherited.unwrap_or((8, 100_000));
        let ecc_bits = table.ecc_bits.unwrap_or(ecc_bits);
        let endurance = table.endurance.unwrap_or(endurance);
        let config = self.config(base, ecc_bits)?;
        if let Err(error) = Ftl::capacity(&geometry, &config, &Format::default()) {
            let is_of_pairs = error.0.starts_with("paired_pages");
            let key = if is_of_pairs {
                "paired_pages"
            } else {
                "over_provision"
            };
            return wrong(key, error.to_string());
        }
        let growth = self.growth(base, &geometry, ecc_bits, endurance)?;
        let bad = table.factory_bad.clone().unwrap_or_default();
        if let Some(&block) = bad.iter().find(|&&block| block >= geometry.blocks()) {
            let blocks = geometry.blocks();
            let why = format!(
                "factory_bad has block {block}, but the device has only {blocks} \
                               blocks"
            );
            return wrong("factory_bad", why);
        }
        let mut factory_bad: Vec<Pbn> = bad.into_iter().map(Pbn).collect();
        factory_bad.sort_unstable();
        factory_bad.dedup();
        let mut sources = base.map(|spec| spec.sources.clone()).unwrap_or_default();
        sources.retain(|key, _| !gives(key));
        Ok(DeviceSpec {
            name: self.name.unwrap_or_else(|| name.into()),
            about: self.about.unwrap_or_else(|| {
                let variant = |spec: &DeviceSpec| format!("a variant of {}", spec.name);
                base.map_or_else(String::new, variant)
            }),
            geometry,
            timing,
            copy_back,
            config,
            ecc_bits,
            endurance,
            factory_bad,
            growth,
            sources,
        })
    }

    /// The geometry: keys that the file lacks are those of `base`, its preset.
    fn geometry(&self, base: Option<&DeviceSpec>) -> Result<Geometry, Wrong> {
        let table = &self.geometry;
        let base = base.map(|spec| &spec.geometry);
        // The table's value for a key, or the inherited one.
        macro_rules! count {
            ($key:ident) => {
                match table.$key.or(base.map(|geometry| geometry.$key)) {
                    Some(value) => value,
                    None => return missing("geometry", stringify!($key)),
                }
            };
        }
        let mut geometry = Geometry {
            channels: count!(channels),
            packages_per_channel: count!(packages_per_channel),
            planes_per_package: count!(planes_per_package),
            blocks_per_plane: 4,
            pages_per_block: count!(pages_per_block),
            page_bytes: count!(page_bytes),
            spare_bytes: count!(spare_bytes),
            cell: self.cell(base)?,
            strict_order: table
                .strict_order
                .or(base.map(|g| g.strict_order))
                .unwrap_or(false),
            pairing: match table.pairing.as_deref().map(str::parse::<Pairing>) {
                None => base.map(|g| g.pairing).unwrap_or_default(),
                Some(Ok(pairing)) => pairing,
                Some(Err(error)) => return wrong("pairing", error),
            },
        };
        // A capacity is divided by the size of a block, which must be valid.
        check(&geometry)?;
        geometry.blocks_per_plane = match &self.capacity {
            Some(_) if table.blocks_per_plane.is_some() => {
                let why = "capacity and blocks_per_plane both set the size of the device: give one \
                           of them";
                return wrong("capacity", why.into());
            }
            Some(capacity) => blocks_for(capacity, &geometry)?,
            None => count!(blocks_per_plane),
        };
        check(&geometry)?;
        Ok(geometry)
    }

    /// The cell type. `partial_programs` is inherited only by SLC from SLC, and is 2 otherwise.
    fn cell(&self, base: Option<&Geometry>) -> Result<Cell, Wrong> {
        let base = base.map(|geometry| geometry.cell);
        let name = match (self.geometry.cell, base) {
            (Some(name), _) => name,
            (None, Some(Cell::Slc { .. })) => CellName::Slc,
            (None, Some(Cell::Mlc)) => CellName::Mlc,
            (None, None) => return missing("geometry", "cell"),
        };
        let given = self.geometry.partial_programs;
        match (name, base) {
            (CellName::Mlc, _) if given.is_some_and(|programs| programs != 1) => {
                let why = "partial_programs works only with slc: an mlc page is programmed once";
                wrong("partial_programs", why.into())
            }
            (CellName::Mlc, _) => Ok(Cell::Mlc),
            (CellName::Slc, Some(Cell::Slc { partial_programs })) => Ok(Cell::Slc {
                partial_programs: given.unwrap_or(partial_programs),
            }),
            (CellName::Slc, _) => Ok(Cell::Slc {
                partial_programs: given.unwrap_or(2),
            }),
        }
    }

    /// The latencies: keys that the file lacks are those of `base`, its preset.
    fn timing(&self, base: Option<&DeviceSpec>) -> Result<Timing, Wrong> {
        let table = &self.timing;
        let base = base.map(|spec| &spec.timing);
        let latency = |key: &'static str, given: Option<f64>, of: Option<Nanos>| match (given, of) {
            (Some(micros), _) => thousandths(key, micros, 1e7).map(Nanos),
            (None, Some(inherited)) => Ok(inherited),
            (None, None) => missing("timing", key),
        };
        let program = latency("program_us", table.program_us, base.map(|t| t.program))?;
        // If a file only changes the program latency, partial programs take the same time.
        let reprogram = match table.program_us {
            Some(_) => Some(program),
            None => base.map(|t| t.reprogram),
        };
        Ok(Timing {
            read: latency("read_us", table.read_us, base.map(|t| t.read))?,
            program,
            reprogram: latency("reprogram_us", table.reprogram_us, reprogram)?,
            erase: latency("erase_us", table.erase_us, base.map(|t| t.erase))?,
            transfer_ps_per_byte: match table.transfer_ns_per_byte {
                Some(nanoseconds) => thousandths("transfer_ns_per_byte", nanoseconds, 1e4)?,
                None => base.map_or(0, |t| t.transfer_ps_per_byte),
            },
        })
    }

    /// The configuration of the translation layer: keys that the file lacks are those of `base`,
    /// its preset, or the default ones.
    fn config(&self, base: Option<&DeviceSpec>, ecc_bits: u32) -> Result<Config, Wrong> {
        let table = &self.ftl;
        let base = base.map_or_else(Config::default, |spec| spec.config);
        let share = |key: &'static str, given: Option<f64>, inherited: f64| match given {
            Some(share) if !(0.0..1.0).contains(&share) => wrong(
                key,
                format!("{key} is {share}, it must be from 0 to below 1"),
            ),
            given => Ok(given.unwrap_or(inherited)),
        };
        let victims = match table.victims.as_deref().map(str::parse::<VictimPolicy>) {
            None => base.victims,
            Some(Ok(policy)) => policy,
            Some(Err(error)) => return wrong("victims", error.0),
        };
        let mut config = base;
        config.over_provision = share("over_provision", table.over_provision, base.over_provision)?;
        config.gc_threshold = share("gc_threshold", table.gc_threshold, base.gc_threshold)?;
        config.victims = victims;
        config.static_wear_gap = match table.static_wear_gap {
            Some(0) => None,
            Some(gap) => Some(gap),
            None => base.static_wear_gap,
        };
        config.copies_stay = table.copies_stay.unwrap_or(base.copies_stay);
        config.summary_pages = table.summary_pages.unwrap_or(base.summary_pages);
        config.checksums = table.checksums.unwrap_or(base.checksums);
        config.works_ahead = table.works_ahead.unwrap_or(base.works_ahead);
        config.paired_pages = match table.paired_pages.as_deref().map(str::parse::<PairedPages>) {
            None => base.paired_pages,
            Some(Ok(way)) => way,
            Some(Err(error)) => return wrong("paired_pages", error),
        };
        config.scrub = self.scrub(base.scrub, ecc_bits)?;
        Ok(config)
    }
}

fn missing<T>(table: &str, key: &'static str) -> Result<T, Wrong> {
    let why = format!(
        "{table}.{key} is missing: without `preset` it must be given; `flagstone device show small` \
         prints a whole file"
    );
    wrong(key, why)
}

fn check(geometry: &Geometry) -> Result<(), Wrong> {
    geometry.validate().map_err(|error| {
        // The message begins with the name of the wrong key.
        let mut keys = KEYS.into_iter().chain(["pairing"]);
        let named = keys.find(|key| error.0.starts_with(key));
        Wrong {
            key: named.unwrap_or("blocks_per_plane"),
            why: error.0,
        }
    })
}

/// Converts microseconds to nanoseconds, or nanoseconds to picoseconds. Values above `most` are
/// refused: virtual time could overflow in a long run.
fn thousandths(key: &'static str, value: f64, most: f64) -> Result<u64, Wrong> {
    if (0.0..=most).contains(&value) {
        Ok((value * 1000.0).round() as u64)
    } else {
        wrong(
            key,
            format!("{key} is {value}, it must be from 0 to {most}"),
        )
    }
}

/// Number of blocks per plane for a capacity, rounded up.
fn blocks_for(capacity: &str, geometry: &Geometry) -> Result<u32, Wrong> {
    let fail = || {
        let why = format!(
            "capacity is {capacity:?}, it must be a number with KiB, MiB, GiB or TiB, such as \"2 \
             GiB\""
        );
        wrong("capacity", why)
    };
    let digits = capacity.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &capacity[digits.len()..] {
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return fail(),
    };
    let Ok(number) = digits.trim().parse::<f64>() else {
        return fail();
    };
    if !number.is_finite() || number <= 0.0 {
        return fail();
    }
    let block = u64::from(geometry.pages_per_block) * u64::from(geometry.page_bytes);
    let stripe = (block * u64::from(geometry.planes())) as f64;
    let blocks = (number * (1u64 << shift) as f64 / stripe).ceil();
    if (4.0..=f64::from(1 << 24)).contains(&blocks) {
        return Ok(blocks as u32);
    }
    let why =
        format!("capacity is {capacity:?}: that is {blocks} blocks per plane; use 4 to 16777216");
    wrong("capacity", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> DeviceSpec {
        DeviceSpec::parse(text, "test").unwrap()
    }

    fn error(text: &str) -> String {
        DeviceSpec::parse(text, "test").unwrap_err()
    }

    #[test]
    fn single_keys_override_a_preset() {
        let spec = parse(
            "preset = \"lighttx\"\ncapacity = \"2 GiB\"\n[timing]\nprogram_us = 300.5\n\
             [ftl]\nvictims = \"greedy\"\nstatic_wear_gap = 0\n[reliability]\nfactory_bad = [9, 3]\n",
        );
        let base = DeviceSpec::load("lighttx").unwrap();
        assert_eq!(spec.name, "test");
        assert_eq!(spec.geometry.blocks_per_plane, 128);
        assert_eq!(spec.geometry.page_bytes, base.geometry.page_bytes);
        assert_eq!(spec.timing.program, Nanos(300_500));
        assert_eq!(spec.timing.reprogram, Nanos(300_500));
        assert_eq!(spec.timing.read, base.timing.read);
        assert_eq!(spec.config.victims, VictimPolicy::Greedy);
        assert_eq!(spec.config.static_wear_gap, None);
        assert_eq!(spec.factory_bad, [Pbn(3), Pbn(9)]);
        assert!(!spec.sources.contains_key("program_us"));
        assert!(!spec.sources.contains_key("blocks_per_plane"));
        assert!(spec.sources.contains_key("read_us"));
        let mlc = parse("preset = \"small\"\n[geometry]\ncell = \"mlc\"\n");
        assert_eq!(mlc.geometry.cell, Cell::Mlc);
        let tlc = "preset = \"small\"\n[geometry]\ncell = \"tlc\"\n";
        let tlc = DeviceSpec::parse(tlc, "mine").unwrap_err().to_string();
        assert!(
            tlc.contains("cells of several bits are \"mlc\" here"),
            "{tlc}"
        );
        assert!(tlc.contains("pairing = \"tlc\""), "{tlc}");
        let paired = parse(
            "preset = \"mixsl-mlc\"\n[geometry]\npairing = \"distance-6\"\n\
             [ftl]\nover_provision = 0.2\npaired_pages = \"closed\"\n",
        );
        assert_eq!(paired.geometry.pairing, Pairing::Distance6);
        assert_eq!(paired.config.paired_pages, PairedPages::Closed);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let bare = error("[timing]\nread_us = 1\n");
        assert!(bare.contains("geometry.channels is missing"), "{bare}");
        let preset = error("preset = \"smal\"\n");
        assert!(
            preset.contains("line 1") && preset.contains("`small`"),
            "{preset}"
        );
        let typed = error("preset = \"small\"\n\n[timing]\nread_us = \"fast\"\n");
        assert!(typed.contains("line 4"), "{typed}");
        let unknown = error("preset = \"small\"\n[geometry]\npage_size = 4096\n");
        assert!(
            unknown.contains("line 3") && unknown.contains("page_size"),
            "{unknown}"
        );
        let both = "capacity = \"2GiB\"\n[geometry]\nblocks_per_plane=9";
        for (rest, line, why) in [
            (
                "[geometry]\n# comment\npage_bytes = 3",
                4,
                "page_bytes is 3, it must be",
            ),
            ("capacity = \"2 GB\"", 2, "capacity is \"2 GB\""),
            ("capacity = \"99999999 TiB\"", 2, "capacity is"),
            (both, 2, "capacity and blocks_per_plane"),
            ("[ftl]\nover_provision = 1.5", 3, "over_provision is 1.5"),
            ("[ftl]\nover_provision = 0.01", 3, "do not fit"),
            (
                "[reliability]\nfactory_bad = [4096]",
                3,
                "factory_bad has block 4096",
            ),
            (
                "[geometry]\npairing = \"tlc\"\npages_per_block = 66",
                3,
                "pairing is tlc",
            ),
            (
                "[ftl]\npaired_pages = \"closed\"",
                3,
                "paired_pages is closed, but",
            ),
            ("[geometry]\nblocks_per_plane = 16777216", 3, "at most"),
            ("[timing]\nerase_us = -1", 3, "erase_us is -1"),
        ] {
            let said = error(&format!("preset = \"small\"\n{rest}\n"));
            assert!(said.starts_with(&format!("line {line}: ")), "{said}");
            assert!(said.contains(why), "{said}");
        }
    }
}
