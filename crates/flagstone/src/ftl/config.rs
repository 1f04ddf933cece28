//! Settings of an FTL: those of the user, and those of the owner of the pages.

use super::checksum::sums;
use super::closing::VERDICT_BYTES;
use super::horizon::statement;
use super::horizon::word::WORD_BYTES;
use super::pairs::{PairedPages, Pairs};
use super::spare::{Header, TAIL_BYTES_MAX, header};
use super::victims::VictimPolicy;
use crate::mistakes::Mistaken;
use crate::nand::{Geometry, Pairing};
use crate::units::Nanos;
use std::fmt;

/// Settings chosen by a user.
///
/// ```
/// use flagstone::ftl::VictimPolicy;
/// use flagstone::prelude::*;
///
/// let mut config = Config::default();
/// config.over_provision = 0.25;
/// config.victims = VictimPolicy::Greedy;
/// let (chip, options) = (Box::new(Chip::default()), Options::default());
/// let device = Device::open(chip, Kind::Cfc, config, &options, Nanos::ZERO)?;
/// assert_eq!(device.pages(), device.geometry().pages() / 4 * 3);
/// # Ok::<(), DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// Share of the raw pages that the host cannot address.
    pub over_provision: f64,
    /// The number of logical pages. It overrides `over_provision`.
    pub logical_pages: Option<u32>,
    /// Collection starts when fewer than this share of the blocks are free.
    pub gc_threshold: f64,
    /// How victims are chosen.
    pub victims: VictimPolicy,
    /// Static wear levelling moves a block that is this many erases behind the mean.
    pub static_wear_gap: Option<u32>,
    /// Whether the collector copies a page within its plane while that plane has room. Always so on
    /// a device with copy-back.
    pub copies_stay: bool,
    /// Whether the last page of each block repeats the spare areas of the others, so that a restart
    /// reads one page a block.
    pub summary_pages: bool,
    /// Whether each page has a checksum of its data, spare record and place, so that an error that
    /// the ECC does not notice makes the page uncorrectable. Takes
    /// [`sums::SIZE`](super::sums::SIZE) bytes of each spare area. Fixed at the first write of the
    /// device.
    pub checksums: bool,
    /// How to handle pages that share cells, if the geometry says which do. Fixed at the first
    /// write of the device.
    pub paired_pages: PairedPages,
    /// Whether more logical pages are offered than there is room for (thin provisioning). The
    /// device is full when the written pages fill it; [`Ftl::grow`](super::Ftl::grow) may add room.
    pub thin: bool,
    /// Whether the collector works ahead in steps, a few pages for each page that the host writes,
    /// if the protocol allows that. Then no request waits for a whole collection.
    pub works_ahead: bool,
    /// Scrubbing, for a device whose bit errors grow ([`Aging`](crate::nand::Aging)).
    pub scrub: Option<Scrub>,
    /// A rule left out on purpose, in builds with mistakes ([`mod@crate::mistakes`]).
    pub mistake: Mistaken<Mistake>,
}

/// Rules that a campaign leaves out on purpose, to prove that it finds the violation.
///
/// Example: [`Mistaken`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Mistake {
    /// The device grows before a root names the blocks for its larger mapping table.
    GrowthUnnamed,
    /// A restart takes damaged durable pages for pages torn by the cut.
    HorizonIgnored,
    /// The last page of a transaction has a word of its owner instead of a statement, although no
    /// other page of the transaction states as much.
    WordUnstated,
    /// A store grows only when its pages fill their share of all blocks, including those that the
    /// collector keeps free. In a small store nearly every page of a victim is live then.
    VictimsCrowded,
    /// A device that shrinks keeps old versions of logical pages that no longer exist.
    BeyondKept,
}

/// When to rewrite a block, before its bit errors exceed the ECC.
///
/// ```
/// use flagstone::ftl::Scrub;
/// use flagstone::nand::YEAR;
/// use flagstone::prelude::*;
///
/// let mut config = Config::default();
/// config.scrub = Some(Scrub { bits: 40, patrol: YEAR });
/// let (chip, options) = (Box::new(Chip::default()), Options::default());
/// let mut device = Device::open(chip, Kind::Cfc, config, &options, Nanos::ZERO)?;
/// let tx = device.begin(Nanos::ZERO)?;
/// device.write(Nanos::ZERO, tx, Lpn(0), b"data")?;
/// let now = device.commit(Nanos::ZERO, tx)?.expect("CFC answers a commit at once");
///
/// // After a year the patrol has read the page.
/// device.tend(now + YEAR)?;
/// device.tend(now + YEAR)?;
/// assert!(device.stats().patrolled > 0);
/// # Ok::<(), DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scrub {
    /// A block is refreshed after a read of one of its pages in which the ECC corrected at least
    /// this many bits.
    pub bits: u16,
    /// The patrol reads every used page once in this time, since errors also grow in pages that
    /// nobody reads. Zero: no patrol.
    pub patrol: Nanos,
}

impl Default for Config {
    fn default() -> Self {
        Config::DEFAULT
    }
}

impl Config {
    const DEFAULT: Config = Config {
        over_provision: 0.10,
        logical_pages: None,
        gc_threshold: 0.05,
        victims: VictimPolicy::WEAR_AWARE,
        static_wear_gap: Some(64),
        copies_stay: false,
        summary_pages: true,
        checksums: false,
        paired_pages: PairedPages::Ignored,
        thin: false,
        works_ahead: false,
        scrub: None,
        mistake: Mistaken::NONE,
    };

    /// Settings of a small device without spare room and refinements.
    pub const fn small(logical_pages: u32, static_wear_gap: Option<u32>) -> Config {
        Config {
            over_provision: 0.0,
            logical_pages: Some(logical_pages),
            gc_threshold: 0.0,
            victims: VictimPolicy::Greedy,
            static_wear_gap,
            ..Config::DEFAULT
        }
    }
}

/// Settings that the owner of the pages requires.
///
/// ```
/// use flagstone::ftl::{Config, Format, header};
///
/// let mut format = Format::NONE;
/// format.tail_bytes = 8;
/// let mut config = Config::default();
/// assert_eq!(format.spare_bytes(&config), header::SIZE + 8);
/// config.checksums = true;
/// assert!(format.spare_bytes(&config) > header::SIZE + 8);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Format {
    /// Bytes of the tail: the part of a spare area after the header.
    pub tail_bytes: usize,
    /// Bytes at the end of the tail that are reprogrammed in place, and not in summary pages.
    pub flag_bytes: usize,
    /// Whether the mapping table is kept on flash.
    pub persist_map: bool,
    /// Number of logs, which are appended to concurrently.
    pub logs: u8,
    /// Whether only blocks reserved by the owner are written.
    pub zoned: bool,
    /// Whether a full block waits until the owner programs its summary page with
    /// [`super::Ftl::summarise`]. Such a summary has a verdict of [`super::VERDICT_BYTES`] for each
    /// page.
    pub late_summaries: bool,
    /// Whether the owner saves the tables of a device at rest ([`super::Ftl::rest`]).
    pub rests: bool,
    /// Whether each page states what was durable when it was programmed ([`super::statement`]).
    pub horizons: bool,
    /// The byte of the tail whose highest bit marks a page with a word of its owner, which replaces
    /// the statement about open blocks ([`super::Ftl::append_word`]).
    pub word_flag: Option<usize>,
    /// Whether a block may be collected in steps, between which the host writes, commits and rolls
    /// back. [`super::Owner::prepare`] is then called before each step.
    pub in_steps: bool,
}

impl Format {
    /// No fields beyond the header of each page.
    pub const NONE: Format = Format {
        tail_bytes: 0,
        flag_bytes: 0,
        persist_map: false,
        logs: 0,
        zoned: false,
        late_summaries: false,
        rests: false,
        horizons: false,
        word_flag: None,
        in_steps: false,
    };

    /// Used bytes of a spare area: those that a simulated chip has to keep.
    pub fn spare_bytes(&self, config: &Config) -> usize {
        let sums = if config.checksums { sums::SIZE } else { 0 };
        let statement = if self.horizons { statement::SIZE } else { 0 };
        header::SIZE + self.tail_bytes + sums + statement
    }

    /// Bytes of a page's record in a summary page.
    pub(super) fn summary_record_bytes(&self) -> usize {
        header::SIZE + self.tail_bytes - self.flag_bytes + self.verdict_bytes()
    }

    /// Whether a page has a word of its owner, given its spare record.
    pub(super) fn has_word(&self, record: &[u8]) -> bool {
        let Some(flag) = self.word_flag else {
            return false;
        };
        let is_set = record
            .get(header::SIZE + flag)
            .is_some_and(|at| at >> 7 == 1);
        is_set && Header::parse(record).is_some_and(|head| head.is_version())
    }

    /// Bytes that a scan returns for each page after its record and verdict.
    pub(super) fn word_bytes(&self) -> usize {
        match self.word_flag {
            Some(_) => WORD_BYTES,
            None => 0,
        }
    }

    /// Bytes in a summary for each page beyond its record.
    pub(super) fn verdict_bytes(&self) -> usize {
        if self.late_summaries {
            VERDICT_BYTES
        } else {
            0
        }
    }
}

/// A device that does not suit an FTL, or its settings.
///
/// ```
/// use flagstone::ftl::{Config, Format, Ftl};
/// use flagstone::nand::Geometry;
///
/// let mut config = Config::default();
/// config.gc_threshold = 1.5;
/// let error = Ftl::capacity(&Geometry::default(), &config, &Format::NONE).unwrap_err();
/// assert_eq!(error.to_string(), "the gc threshold is 1.5, it must be from 0 to below 1");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(pub String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// Number of blocks for roots beyond those for the current root and the next one.
const SPARE_ANCHORS: u32 = 3;

/// Maximum number of blocks that may fail between two collections, while one page is written.
const FAILURES_AT_ONCE: u32 = 2;

/// The minimum collection threshold, whatever share of the blocks was configured: the blocks that
/// the collector's copies may need, those that may fail during a collection, and one for the host.
pub(super) fn least_threshold(gc_reserve_blocks: u32) -> u32 {
    gc_reserve_blocks + 1 + FAILURES_AT_ONCE
}

/// Rounds a share up to four digits.
fn up(share: f64) -> f64 {
    (share * 1e4).ceil() / 1e4
}

/// Rounds a share down to four digits.
fn down(share: f64) -> f64 {
    (share * 1e4).floor() / 1e4
}

/// How many pages and blocks each area gets.
#[derive(Debug, Clone)]
pub(super) struct Sizes {
    pub(super) logical_pages: u32,
    pub(super) data_pages: u32,
    pub(super) dense_pages: u32,
    pub(super) pairs: Pairs,
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
    /// Divides a device with `good_blocks` usable blocks into the areas that the settings require.
    /// If they do not fit, the error says which setting to change.
    pub(super) fn new(
        geometry: &Geometry,
        config: &Config,
        format: &Format,
        good_blocks: u32,
    ) -> Result<Sizes, ConfigError> {
        let fail = |what: String| Err(ConfigError(what));
        assert!(format.tail_bytes <= TAIL_BYTES_MAX && format.flag_bytes <= format.tail_bytes);
        let needed = format.spare_bytes(config);
        if needed > geometry.spare_bytes as usize {
            let with = if config.checksums {
                " with checksums"
            } else {
                ""
            };
            return fail(format!(
                "spare_bytes is {}, this protocol needs {needed}{with}",
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
        if config.paired_pages != PairedPages::Ignored && geometry.pairing == Pairing::None {
            return fail(format!(
                "paired_pages is {}, but no pages of the device share cells: set its pairing",
                config.paired_pages
            ));
        }
        let pages = geometry.pages_per_block;
        let pairs = Pairs::new(geometry, config);
        let summary = format.summary_record_bytes() * (pages as usize - 1);
        if config.summary_pages && summary > geometry.page_bytes as usize {
            return fail(format!(
                "a summary page needs {summary} bytes, a page has {}: use fewer pages a block or \
                 larger pages, or switch summary pages off",
                geometry.page_bytes
            ));
        }
        let data_pages = pages - u32::from(config.summary_pages);
        let dense_pages = pairs.dense_pages();
        // From here on: pages of a block for roots, mapping and logs.
        let pages = pairs.meta_pages.len() as u32;
        let logical_pages = config.logical_pages.unwrap_or(
            (f64::from(geometry.pages()) * (1.0 - config.over_provision)).floor() as u32,
        );
        if config.logical_pages == Some(0) {
            return fail("the number of logical pages is 0: set at least 1".into());
        }
        if logical_pages == 0 {
            return fail(format!(
                "an over-provisioning of {} leaves none of {} pages to address: lower it",
                config.over_provision,
                geometry.pages()
            ));
        }
        let entries_per_page = geometry.page_bytes / 4;
        let map_pages = if format.persist_map {
            logical_pages.div_ceil(entries_per_page)
        } else {
            0
        };
        // A root lists every translation page and, on a zoned device, the blocks of two zones.
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
        // Space for the table, for a full copy of it, and for some outdated pages.
        let map_blocks = if map_pages > 0 {
            2 * full + full.div_ceil(4) + 2 * map_lanes + 3
        } else {
            0
        };
        let logs = u32::from(format.logs);
        let spares = if logs > 0 { 2 } else { 0 };
        // One log block to write to, and one for when it is full. A single log needs one more.
        let least = if logs > 1 { 2 } else { 3 };
        let log_blocks = logs * least.max(map_pages.div_ceil(pages * logs.max(1)) + 1) + spares;
        let anchors = 2 * root_blocks + SPARE_ANCHORS;
        let meta = anchors + map_blocks + log_blocks;
        let planes = geometry.planes();
        // With closed pairs, a wait may end a block early.
        let ends = u32::from(config.paired_pages == PairedPages::Closed);
        let gc_reserve_blocks = planes.min(data_pages) + 1 + ends;
        let gc_threshold_blocks = ((f64::from(geometry.blocks()) * config.gc_threshold).ceil()
            as u32)
            .max(least_threshold(gc_reserve_blocks));
        // The open blocks of both streams, the threshold, and one block to gain.
        let slack = gc_threshold_blocks + 2 * planes + 1;
        let room = u64::from(good_blocks.saturating_sub(meta + slack)) * u64::from(dense_pages);
        let wanted = if config.thin {
            u64::from(dense_pages)
        } else {
            u64::from(logical_pages)
        };
        if wanted > room {
            // Advice: a lower threshold, or fewer logical pages.
            let blocks = f64::from(geometry.blocks());
            let needed = meta + logical_pages.div_ceil(dense_pages.max(1)) + 2 * planes + 1;
            let threshold = good_blocks.saturating_sub(needed);
            // Slightly less: a share times the number of blocks is rounded up.
            let mut advice = Vec::new();
            if room > 0 && config.logical_pages.is_some() {
                advice.push(format!("use at most {room} logical pages"));
            } else if room > 0 {
                let spare = 1.0 - room as f64 / geometry.pages() as f64;
                advice.push(format!(
                    "raise the over-provisioning to {} or more",
                    up(spare)
                ));
            }
            if threshold >= least_threshold(gc_reserve_blocks) {
                let share = down((f64::from(threshold) - 0.01) / blocks);
                advice.push(format!("lower the gc threshold to {share} or less"));
            }
            let advice = if advice.is_empty() {
                "use a larger device, or lower the gc threshold".into()
            } else {
                advice.join(", or ")
            };
            return fail(format!(
                "{logical_pages} logical pages do not fit: of {good_blocks} good blocks {meta} hold \
                 roots, mapping and logs and {slack} must stay free, which leaves {room} pages; \
                 {advice}"
            ));
        }
        Ok(Sizes {
            logical_pages,
            data_pages,
            dense_pages,
            pairs,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nand::Cell;

    /// Parses the numbers that follow `words` in an error.
    fn advised(error: &str, words: &str) -> Option<f64> {
        let (_, rest) = error.split_once(words)?;
        rest.split_whitespace().next()?.parse().ok()
    }

    #[test]
    fn what_an_error_advises_works_and_a_little_less_does_not() {
        let persisted = Format {
            persist_map: true,
            logs: 1,
            ..Format::default()
        };
        let geometry = Geometry {
            blocks_per_plane: 100,
            pages_per_block: 32,
            cell: Cell::Mlc,
            ..Geometry::default()
        };
        let mut seen = 0;
        for format in [Format::default(), persisted] {
            for over_provision in [0.0, 0.05, 0.1, 0.3] {
                for gc_threshold in [0.0, 0.05, 0.2, 0.6, 0.99] {
                    let config = Config {
                        over_provision,
                        gc_threshold,
                        ..Config::default()
                    };
                    let fits = |config: &Config| {
                        let sizes = Sizes::new(&geometry, config, &format, geometry.blocks());
                        sizes.map(|_| ()).map_err(|error| error.0)
                    };
                    let Err(error) = fits(&config) else {
                        continue;
                    };
                    if let Some(more) = advised(&error, "over-provisioning to ") {
                        seen += 1;
                        let with = |over_provision| Config {
                            over_provision,
                            ..config
                        };
                        assert_eq!(fits(&with(more)), Ok(()), "{error}");
                        // Fewer pages have a smaller table, hence the margin.
                        assert!(fits(&with(more - 0.02)).is_err(), "{error}");
                    }
                    if let Some(less) = advised(&error, "gc threshold to ") {
                        seen += 1;
                        let with = |gc_threshold| Config {
                            gc_threshold,
                            ..config
                        };
                        assert_eq!(fits(&with(less)), Ok(()), "{error}");
                        assert!(fits(&with(less + 0.01)).is_err(), "{error}");
                    }
                }
            }
        }
        assert!(seen > 10, "{seen}");
    }

    /// A number of logical pages overrides the over-provisioning, which would not help.
    #[test]
    fn an_error_about_a_number_of_logical_pages_advises_another_one() {
        let fits = |pages| {
            let config = Config::small(pages, None);
            let geometry = Geometry::default();
            let sizes = Sizes::new(&geometry, &config, &Format::default(), geometry.blocks());
            sizes.map(|_| ()).map_err(|error| error.0)
        };
        let error = fits(Geometry::default().pages()).expect_err("none is spare");
        assert!(!error.contains("over-provisioning"), "{error}");
        let most = advised(&error, "use at most ").expect("a number") as u32;
        assert_eq!(fits(most), Ok(()));
        assert!(fits(most + 1).is_err());
        assert!(fits(0).expect_err("there is none").contains("at least 1"));
    }
}
