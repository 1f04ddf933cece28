//! What a user chooses about an FTL, and what its owner needs from it.

use super::spare::{TAIL_BYTES_MAX, header};
use super::victims::VictimPolicy;
use crate::nand::Geometry;
use std::fmt;

/// What a user chooses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Share of the raw pages that the host cannot address.
    pub over_provision: f64,
    /// Logical pages, where a share is too coarse; overrides `over_provision`.
    pub logical_pages: Option<u32>,
    /// Collection starts when fewer than this share of the blocks are free.
    pub gc_threshold: f64,
    /// How victims are chosen.
    pub victims: VictimPolicy,
    /// Static wear levelling moves a block that is this many erases behind the mean.
    pub static_wear_gap: Option<u32>,
    /// Whether the collector's copies stay in the plane of their victim while it has room for them,
    /// also on a device whose planes cannot copy by themselves.
    pub copies_stay: bool,
    /// Whether the last page of each block repeats the spare areas of the others, so that a restart
    /// reads one page a block.
    pub summary_pages: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            over_provision: 0.10,
            logical_pages: None,
            gc_threshold: 0.05,
            victims: VictimPolicy::WearAware { margin: 16 },
            static_wear_gap: Some(64),
            copies_stay: false,
            summary_pages: true,
        }
    }
}

/// What the owner of the pages needs from the FTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Format {
    /// Bytes of a spare area behind the header.
    pub tail_bytes: usize,
    /// How many of them, at the end, are reprogrammed in place. They are not in summary pages.
    pub flag_bytes: usize,
    /// Whether the mapping table is kept on flash.
    pub persist_map: bool,
    /// Logs that are appended side by side.
    pub logs: u8,
    /// Whether blocks are written only after [`super::Ftl::zone_add`] has set them aside.
    pub zoned: bool,
}

/// A device that does not suit an FTL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(pub String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// Blocks for roots beyond those that hold the current root and the next one.
const SPARE_ANCHORS: u32 = 3;

/// Blocks that may fail between two collections, while one page is written.
const FAILURES_AT_ONCE: u32 = 2;

/// How many pages and blocks go where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) logical_pages: u32,
    pub(super) data_pages: u32,
    pub(super) gc_threshold_blocks: u32,
    pub(super) gc_reserve_blocks: u32,
    pub(super) entries_per_page: u32,
    pub(super) map_pages: u32,
    pub(super) anchors: u32,
    pub(super) map_blocks: u32,
    pub(super) map_lanes: u32,
    pub(super) log_blocks: u32,
}

impl Sizes {
    pub(super) fn new(
        geometry: &Geometry,
        config: &Config,
        format: &Format,
        good_blocks: u32,
    ) -> Result<Sizes, ConfigError> {
        let fail = |what: String| Err(ConfigError(what));
        assert!(format.tail_bytes <= TAIL_BYTES_MAX && format.flag_bytes <= format.tail_bytes);
        let record = header::SIZE + format.tail_bytes;
        if record > geometry.spare_bytes as usize {
            return fail(format!(
                "spare_bytes is {}, this protocol needs {record}",
                geometry.spare_bytes
            ));
        }
        for (name, share) in [
            ("over-provisioning", config.over_provision),
            ("gc threshold", config.gc_threshold),
        ] {
            if !(0.0..1.0).contains(&share) {
                return fail(format!(
                    "the {name} is {share}, it must be from 0 to below 1"
                ));
            }
        }
        let pages = geometry.pages_per_block;
        let summary = (record - format.flag_bytes) * (pages as usize - 1);
        if config.summary_pages && summary > geometry.page_bytes as usize {
            return fail(format!(
                "a summary page needs {summary} bytes, a page has {}: use fewer pages a block or \
                 larger pages, or switch summary pages off",
                geometry.page_bytes
            ));
        }
        let data_pages = pages - u32::from(config.summary_pages);
        let logical_pages = config.logical_pages.unwrap_or(
            (f64::from(geometry.pages()) * (1.0 - config.over_provision)).floor() as u32,
        );
        let entries_per_page = geometry.page_bytes / 4;
        let map_pages = if format.persist_map {
            logical_pages.div_ceil(entries_per_page)
        } else {
            0
        };
        // A root names every translation page and, on a zoned device, the blocks of two zones.
        let zone_bytes = if format.zoned {
            geometry.blocks() / 8
        } else {
            0
        };
        let root_bytes = u64::from(map_pages) * 4 + u64::from(zone_bytes) + 1024;
        let root_room = u64::from(pages) * u64::from(geometry.page_bytes.saturating_sub(32));
        let root_blocks = if map_pages > pages {
            root_bytes.div_ceil(root_room) as u32
        } else {
            1
        };
        let full = map_pages.div_ceil(pages);
        let map_lanes = (full / 2).clamp(1, geometry.planes().min(8));
        // The table, room for all of it once more, and a part of it that is out of date.
        let map_blocks = if map_pages > 0 {
            2 * full + full.div_ceil(4) + 2 * map_lanes + 3
        } else {
            0
        };
        let logs = u32::from(format.logs);
        let spares = if logs > 0 { 2 } else { 0 };
        // One that is written and one for when it is full; a single log is to be longer than that.
        let least = if logs > 1 { 2 } else { 3 };
        let log_blocks = logs * least.max(map_pages.div_ceil(pages * logs.max(1)) + 1) + spares;
        let anchors = 2 * root_blocks + SPARE_ANCHORS;
        let meta = anchors + map_blocks + log_blocks;
        let planes = geometry.planes();
        let gc_reserve_blocks = planes.min(data_pages) + 1;
        let gc_threshold_blocks = ((f64::from(geometry.blocks()) * config.gc_threshold).ceil()
            as u32)
            .max(gc_reserve_blocks + 1 + FAILURES_AT_ONCE);
        // Open blocks of both streams, the threshold, and one block to gain.
        let slack = gc_threshold_blocks + 2 * planes + 1;
        let room = u64::from(good_blocks.saturating_sub(meta + slack)) * u64::from(data_pages);
        if logical_pages == 0 || u64::from(logical_pages) > room {
            return fail(format!(
                "{logical_pages} logical pages do not fit: of {good_blocks} good blocks {meta} hold \
                 roots, mapping and logs and {slack} must stay free, which leaves {room} pages; \
                 raise the over-provisioning or lower the gc threshold"
            ));
        }
        Ok(Sizes {
            logical_pages,
            data_pages,
            gc_threshold_blocks,
            gc_reserve_blocks,
            entries_per_page,
            map_pages,
            anchors,
            map_blocks,
            map_lanes,
            log_blocks,
        })
    }
}
