//! The keys of a device file, and the JSON schema that editors use.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A device for `flagstone --device FILE`. Missing keys are taken from the preset, if one is named.
/// Without a preset, all of `geometry` and all latencies except `reprogram_us` are required.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DeviceFile {
    /// Name of the device in results [default: the file's name].
    pub name: Option<String>,
    /// Description of the device, in one line.
    pub about: Option<String>,
    /// The preset from which missing keys are taken.
    pub preset: Option<String>,
    /// Raw capacity such as `"2 GiB"` (KiB, MiB, GiB or TiB); sets `blocks_per_plane`.
    pub capacity: Option<String>,
    /// Geometry of the device.
    #[serde(default)]
    pub geometry: GeometryTable,
    /// Latencies.
    #[serde(default)]
    pub timing: TimingTable,
    /// Settings of the flash translation layer.
    #[serde(default)]
    pub ftl: FtlTable,
    /// Error correction, endurance and bad blocks.
    #[serde(default)]
    pub reliability: ReliabilityTable,
    /// Growth of bit errors, for `flagstone device age`.
    pub aging: Option<AgingTable>,
}

/// Geometry of a device.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GeometryTable {
    /// Number of channels, each with its own bus.
    pub channels: Option<u32>,
    /// Packages per channel.
    pub packages_per_channel: Option<u32>,
    /// Planes per package. A plane executes one operation at a time.
    pub planes_per_package: Option<u32>,
    /// Erase blocks per plane.
    pub blocks_per_plane: Option<u32>,
    /// Pages per block.
    pub pages_per_block: Option<u32>,
    /// Data bytes per page.
    pub page_bytes: Option<u32>,
    /// Spare (out-of-band) bytes per page.
    pub spare_bytes: Option<u32>,
    /// Bits per cell: `slc` for one, `mlc` for more.
    pub cell: Option<CellName>,
    /// Number of programs of an SLC page between two erases, including the first one [default: 2].
    pub partial_programs: Option<u8>,
    /// Whether the pages of a block must be programmed in ascending order.
    pub strict_order: Option<bool>,
    /// Which pages of a block share cells. If the power fails while one of them is programmed, the
    /// other one can be destroyed. Values: `none`; for mlc `distance-3` (0 with 2, 1 with 4, 3 with
    /// 6) or `distance-6` (0 with 4, 2 with 8); `tlc` for three pages each.
    pub pairing: Option<String>,
}

/// Kinds of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename_all = "lowercase"))]
pub enum CellName {
    /// One bit per cell. A page may be programmed again to clear more bits.
    Slc,
    /// Several bits per cell. A page is programmed once.
    Mlc,
}

impl<'de> Deserialize<'de> for CellName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<CellName, D::Error> {
        let name = String::deserialize(from)?;
        match name.as_str() {
            "slc" => Ok(CellName::Slc),
            "mlc" => Ok(CellName::Mlc),
            "tlc" | "qlc" => Err(D::Error::custom(format!(
                "`{name}`: cells of several bits are \"mlc\" here; three pages that share cells are \
                 pairing = \"tlc\""
            ))),
            _ => Err(D::Error::custom(format!(
                "`{name}` is not a cell type: use slc or mlc"
            ))),
        }
    }
}

/// Latencies, in microseconds unless the key has another unit.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TimingTable {
    /// Page read, cells to register.
    pub read_us: Option<f64>,
    /// Page program, register to cells.
    pub program_us: Option<f64>,
    /// Partial program of a spare area [default: as a page program].
    pub reprogram_us: Option<f64>,
    /// Block erase.
    pub erase_us: Option<f64>,
    /// Bus time per byte, in nanoseconds; 0 to ignore transfers.
    pub transfer_ns_per_byte: Option<f64>,
    /// Whether garbage collection copies pages within their plane, without using the channel.
    pub copy_back: Option<bool>,
}

/// Settings of the flash translation layer.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FtlTable {
    /// Over-provisioning: share of the raw pages that the host cannot address.
    pub over_provision: Option<f64>,
    /// Garbage collection starts when fewer than this share of the blocks are free.
    pub gc_threshold: Option<f64>,
    /// Victim selection of garbage collection: `greedy`, the block with the fewest live pages;
    /// `wear-aware:MARGIN`, greedy, but without blocks whose erases exceed the mean by more than
    /// MARGIN.
    pub victims: Option<String>,
    /// Static wear levelling: a block that is this many erases behind the mean is moved; 0 to
    /// disable.
    pub static_wear_gap: Option<u32>,
    /// Whether garbage collection copies pages within the victim's plane; always true with
    /// `copy_back`.
    pub copies_stay: Option<bool>,
    /// Whether the last page of each block repeats the spare areas of the others.
    pub summary_pages: Option<bool>,
    /// Whether each page has a checksum of eight bytes in its spare area, so that an error which
    /// the ECC does not detect makes the page unreadable instead of wrong.
    pub checksums: Option<bool>,
    /// Whether garbage collection works ahead of need, a few pages for each page that the host
    /// writes. Only for protocols that support it (`seal`, `seal-r`).
    pub works_ahead: Option<bool>,
    /// Protection of pages that share cells: none (`ignored`), each sync closes the pairs that it
    /// covers (`closed`), or blocks use lower pages only (`slc`).
    pub paired_pages: Option<String>,
    /// Scrubbing: a block is refreshed after a read in which the ECC corrected at least this many
    /// bits; 0 to disable.
    pub scrub_bits: Option<u16>,
    /// Days in which the patrol reads every page once; 0 to disable.
    pub patrol_days: Option<f64>,
}

/// Error correction, endurance and bad blocks.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReliabilityTable {
    /// Bit errors per page that the ECC corrects.
    pub ecc_bits: Option<u32>,
    /// Rated program/erase cycles per block.
    pub endurance: Option<u32>,
    /// Factory bad blocks, by number: plane by plane.
    pub factory_bad: Option<Vec<u32>>,
}

/// Growth of bit errors. Rates are errors per bit, on a block at its rated number of erases, after
/// one year for retention and after 100,000 reads of the block for read disturb.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AgingTable {
    /// Rate of a newly programmed page in a block without wear.
    pub fresh_rate: Option<f64>,
    /// Additional rate of a block at its rated number of erases.
    pub wear_rate: Option<f64>,
    /// Exponent with which erases raise `wear_rate`.
    pub wear_exponent: Option<f64>,
    /// Additional rate one year after the program (retention).
    pub retention_rate: Option<f64>,
    /// Exponent with which erases raise `retention_rate`.
    pub retention_wear_exponent: Option<f64>,
    /// Exponent with which the time since the program raises `retention_rate`.
    pub retention_exponent: Option<f64>,
    /// Additional rate after 100,000 reads of the block (read disturb).
    pub disturb_rate: Option<f64>,
    /// Exponent with which erases raise `disturb_rate`.
    pub disturb_wear_exponent: Option<f64>,
    /// Exponent with which reads raise `disturb_rate`.
    pub disturb_exponent: Option<f64>,
    /// Number of erases that each block starts with.
    pub worn_erases: Option<u32>,
    /// First block of a bad batch.
    pub batch_first: Option<u32>,
    /// Number of blocks in the bad batch.
    pub batch_blocks: Option<u32>,
    /// Factor of the bad batch's rates, compared with other blocks.
    pub batch_factor: Option<f64>,
}

/// The JSON schema of device files, with a line end. A test derives it from the types here.
pub fn schema() -> &'static str {
    include_str!("../../../../docs/device.schema.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_in_the_documents_is_current() {
        let derived = schemars::schema_for!(DeviceFile);
        let current = serde_json::to_string_pretty(&derived).expect("a schema is JSON") + "\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/device.schema.json");
        if std::env::var_os("FLAGSTONE_BLESS").is_some() {
            std::fs::write(path, current).expect("the documents can be written");
        } else {
            assert!(
                schema() == current,
                "FLAGSTONE_BLESS=1 cargo test -p flagstone-lab --lib device::tables rewrites \
                 docs/device.schema.json"
            );
        }
    }
}
