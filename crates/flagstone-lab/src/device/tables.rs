//! What a device file may say, and the schema that tells editors so.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A device for `flagstone --device FILE`. Keys that are left out come from the preset, if one is
/// named; without a preset all of `geometry`, and all latencies but `reprogram_us`, must be there.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DeviceFile {
    /// The name in results; the file's name if left out.
    pub name: Option<String>,
    /// What it is, in one line.
    pub about: Option<String>,
    /// The preset that this device is a variant of.
    pub preset: Option<String>,
    /// Raw capacity such as `"2 GiB"` (KiB, MiB, GiB or TiB); sets `blocks_per_plane`.
    pub capacity: Option<String>,
    /// The shape.
    #[serde(default)]
    pub geometry: GeometryTable,
    /// Latencies.
    #[serde(default)]
    pub timing: TimingTable,
    /// How the FTL is set up.
    #[serde(default)]
    pub ftl: FtlTable,
    /// What fails and when.
    #[serde(default)]
    pub reliability: ReliabilityTable,
    /// How bit errors grow, for `flagstone device age`.
    pub aging: Option<AgingTable>,
}

/// The shape of a device.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GeometryTable {
    /// Channels, each with a bus of its own.
    pub channels: Option<u32>,
    /// Packages on one channel.
    pub packages_per_channel: Option<u32>,
    /// Planes in one package; a plane does one operation at a time.
    pub planes_per_package: Option<u32>,
    /// Erase blocks in one plane.
    pub blocks_per_plane: Option<u32>,
    /// Pages in one block.
    pub pages_per_block: Option<u32>,
    /// Data bytes of one page.
    pub page_bytes: Option<u32>,
    /// Spare (out-of-band) bytes of one page.
    pub spare_bytes: Option<u32>,
    /// Bits a cell: `slc` for one, `mlc` for more.
    pub cell: Option<CellName>,
    /// Programs of one SLC page between two erases, the first included; 2 if left out.
    pub partial_programs: Option<u8>,
    /// Whether the pages of a block must be programmed in ascending order.
    pub strict_order: Option<bool>,
    /// Which pages of a block share cells, so that a program of one that the power cuts can destroy
    /// another: `none`; for mlc `distance-3` (0 with 2, 1 with 4, 3 with 6) or `distance-6` (0 with
    /// 4, 2 with 8); `tlc` for three pages each.
    pub pairing: Option<String>,
}

/// Kinds of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename_all = "lowercase"))]
pub enum CellName {
    /// One bit a cell; a page may be programmed again to clear more bits.
    Slc,
    /// Several bits a cell; a page is programmed once.
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
                "`{name}` is no kind of cells: slc or mlc"
            ))),
        }
    }
}

/// Latencies, in microseconds where not said otherwise.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TimingTable {
    /// Page read, cells to register.
    pub read_us: Option<f64>,
    /// Page program, register to cells.
    pub program_us: Option<f64>,
    /// Partial program of a spare area; as a program if left out.
    pub reprogram_us: Option<f64>,
    /// Block erase.
    pub erase_us: Option<f64>,
    /// Bus time of one byte, in nanoseconds; 0 leaves transfers out.
    pub transfer_ns_per_byte: Option<f64>,
    /// Whether the collector's copies stay in their plane and do not cross the channel.
    pub copy_back: Option<bool>,
}

/// How the FTL is set up.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FtlTable {
    /// Share of the raw pages that the host cannot address.
    pub over_provision: Option<f64>,
    /// Garbage collection starts when fewer than this share of the blocks are free.
    pub gc_threshold: Option<f64>,
    /// How garbage collection chooses its victim: `greedy`, the block with the fewest live pages;
    /// `wear-aware:MARGIN`, greedy, but blocks with so many erases above the mean are passed over.
    pub victims: Option<String>,
    /// Static wear levelling moves a block that is this many erases behind the mean; 0 never does.
    pub static_wear_gap: Option<u32>,
    /// Whether the collector's copies stay in the plane of their victim; they do with `copy_back`.
    pub copies_stay: Option<bool>,
    /// Whether the last page of each block repeats the spare areas of the others.
    pub summary_pages: Option<bool>,
    /// Whether each page has a checksum, of eight bytes in its spare area, so that an error which
    /// the ECC does not notice makes the page unreadable instead of wrong.
    pub checksums: Option<bool>,
    /// Whether the collector works ahead in steps, a few pages for each that the host writes, with
    /// protocols that allow it (`seal`, `seal-r`).
    pub works_ahead: Option<bool>,
    /// What is done about pages that share cells: nothing (`ignored`), each wait closes the pairs
    /// that it covers (`closed`), or all blocks take lower pages only (`slc`).
    pub paired_pages: Option<String>,
    /// A block is refreshed after a read in which the ECC corrected so many bits; 0 never does.
    pub scrub_bits: Option<u16>,
    /// Days in which the patrol reads every page once; 0 for no patrol.
    pub patrol_days: Option<f64>,
}

/// What fails and when.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReliabilityTable {
    /// Bit errors that the ECC corrects in a page.
    pub ecc_bits: Option<u32>,
    /// Erases that the maker promises for a block.
    pub endurance: Option<u32>,
    /// Blocks that the maker marked as bad, by number: plane by plane.
    pub factory_bad: Option<Vec<u32>>,
}

/// How bit errors grow. Rates are errors a bit, on a block that is worn as far as its maker
/// promises, after a year for retention and after 100,000 reads of the block for read disturb.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AgingTable {
    /// The rate of a page that was just programmed into a block without wear.
    pub fresh_rate: Option<f64>,
    /// What wear adds.
    pub wear_rate: Option<f64>,
    /// Exponent of the wear for that.
    pub wear_exponent: Option<f64>,
    /// What the time since the program adds.
    pub retention_rate: Option<f64>,
    /// Exponent of the wear for that.
    pub retention_wear_exponent: Option<f64>,
    /// Exponent of the time.
    pub retention_exponent: Option<f64>,
    /// What reads of the block add.
    pub disturb_rate: Option<f64>,
    /// Exponent of the wear for that.
    pub disturb_wear_exponent: Option<f64>,
    /// Exponent of the reads.
    pub disturb_exponent: Option<f64>,
    /// Erases that each block had before.
    pub worn_erases: Option<u32>,
    /// The first block of a bad batch.
    pub batch_first: Option<u32>,
    /// How many blocks are in it.
    pub batch_blocks: Option<u32>,
    /// How many times the rates of the others these have.
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
