//! The flash translation layer: mapping, allocation, garbage collection, wear, checkpoints.
//!
//! This layer knows no transactions. It stores pages for an [`Owner`]. The owner defines the fields
//! of a spare area beyond the [`header`], decides which pages are *live*, and what must be done
//! before the erase of a block. The FTL chooses where a page goes and which block is collected
//! next, handles worn and bad blocks, and keeps the mapping table and a few bytes for the owner on
//! flash.
//!
//! Invariants of the whole layer:
//!
//! 1. A block that was not written full before a restart is never written again before its erase,
//!    and a block that looks free after a restart is erased before its first use: both may hold
//!    cells that only look blank.
//! 2. Live pages of a victim are durable elsewhere before its erase is issued.
//! 3. Nothing that a root refers to is erased before a newer root is durable.
//!
//! A user meets this layer in two places: the settings of a device ([`Config`]), and the counters
//! of its operations ([`Stats`]). Errors name the setting that would help.
//!
//! ```
//! use flagstone::ftl::{Config, Format, Ftl};
//! use flagstone::nand::Geometry;
//!
//! let geometry = Geometry::default();
//! let mut config = Config::default();
//! config.over_provision = 0.25;
//! let pages = Ftl::capacity(&geometry, &config, &Format::NONE);
//! assert_eq!(pages, Ok(geometry.pages() / 4 * 3));
//!
//! config.over_provision = 0.01;
//! let error = Ftl::capacity(&geometry, &config, &Format::NONE).unwrap_err();
//! assert!(error.to_string().contains("raise the over-provisioning to"));
//! ```

mod spare;
mod checksum;
mod slot;
mod map_cache;
mod trims;
mod stats;
mod victims;
mod pool;
mod blocks;
mod pairs;
mod config;
mod write;
mod closing;
mod horizon;
mod owner;
mod moves;
mod steps;
mod collector;
mod snapshots;
mod health;
mod scan;
mod journal;
mod mount;
mod doubt;
pub(crate) mod rest;
mod grow;
mod shrink;
#[cfg(test)]
mod border_tests;

pub use blocks::{BlockState, Blocks};
pub use checksum::sums;
pub use closing::{VERDICT_BYTES, verdict};
pub use config::{Config, ConfigError, Format, Mistake, Scrub};
pub use doubt::{doubt_number, spare_number};
pub use health::{EndOfLife, Wear};
pub use horizon::{Damage, Scanned, statement};
pub use mount::{LogPage, Mounted};
pub use owner::{Moving, Owner, Relocation, Victim};
pub use pairs::PairedPages;
pub use rest::Resting;
pub use slot::Slot;
pub use snapshots::Snapshots;
pub use spare::{FORMAT_VERSION, Header, PageKind, TAIL_BYTES_MAX, header};
pub use stats::{Cause, Operation, Stats};
pub use trims::{trim_list, trim_width, trims_in, trims_page};
pub use victims::VictimPolicy;
pub use write::{Stream, Writer, Written};

use crate::layout::Layout;
use crate::nand::{Flash, FlashError, Geometry, Read};
use crate::settings::BadSetting;
use crate::units::{Nanos, Ppn};
use collector::Collector;
pub(crate) use collector::{collect, collect_chosen, make_room};
use health::Scrubber;
pub(crate) use health::{tend, tend_before_read};
use horizon::Horizon;
use journal::Journal;
pub(crate) use journal::{RootImage, is_root, root_contents, root_part};
use map_cache::MapCache;
pub(crate) use moves::move_page;
use pairs::Pairs;
pub(crate) use shrink::{empty_end, forget_old, forget_trims};
use slot::{Map, SLOT_BYTES};
use trims::TrimLists;

use std::fmt;
pub use steps::Leisure;
pub(crate) use steps::{collect_ahead, finish_steps, step};

/// Records that the FTL keeps on flash.
pub const LAYOUTS: &[Layout] = &[
    header::RECORD,
    sums::RECORD,
    verdict::RECORD,
    statement::RECORD,
    journal::root_part::RECORD,
    journal::root_contents::RECORD,
    rest::rest::RECORD,
    trim_list::RECORD,
];

/// Why the FTL cannot go on. Example: [`Ftl::mount`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FtlError {
    /// The power is gone.
    PowerLost,
    /// No block is left to write to, and collecting would not gain one.
    Full {
        /// Live pages.
        live: u64,
        /// Pages that can hold data.
        pages: u64,
        /// Blocks out of service. `pages` excludes their pages.
        out_of_service: u32,
    },
    /// A live page cannot be read: more bit errors than the ECC corrects.
    Unreadable {
        /// The page.
        at: Ppn,
    },
    /// The area for mapping pages, roots and logs has no usable block left.
    MetaFull,
    /// The flash holds data that this FTL did not write.
    Foreign(String),
    /// The owner does not support a setting.
    Setting(String),
    /// A counter of the device is used up.
    Spent(String),
    /// Durable data is damaged, and it is unknown which versions of pages are lost.
    Damaged(String),
}

impl fmt::Display for FtlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FtlError::PowerLost => f.write_str("the power is gone"),
            FtlError::Full {
                live,
                pages,
                out_of_service: 0,
            } => write!(
                f,
                "the device is full: {live} of {pages} pages are live and no block can be \
                 reclaimed; lower the fill or raise the over-provisioning"
            ),
            FtlError::Full {
                live,
                pages,
                out_of_service,
            } => write!(
                f,
                "the device is full: {out_of_service} blocks are out of service, {live} of the \
                 other {pages} pages are live, and no block can be reclaimed; it can still be read"
            ),
            FtlError::Unreadable { at } => write!(f, "page {at} cannot be read"),
            FtlError::MetaFull => f.write_str("no block is left for mapping pages and logs"),
            FtlError::Foreign(what) => write!(f, "not a device of this format: {what}"),
            FtlError::Setting(why) | FtlError::Spent(why) | FtlError::Damaged(why) => {
                f.write_str(why)
            }
        }
    }
}

impl std::error::Error for FtlError {}

impl From<BadSetting> for FtlError {
    fn from(error: BadSetting) -> Self {
        FtlError::Setting(error.0)
    }
}

impl From<FlashError> for FtlError {
    fn from(error: FlashError) -> Self {
        match error {
            FlashError::Uncorrectable { at, .. } => FtlError::Unreadable { at },
            FlashError::PowerLost => FtlError::PowerLost,
            FlashError::ProgramFailed { .. } | FlashError::EraseFailed { .. } => {
                unreachable!("program and erase failures are handled where they occur")
            }
        }
    }
}

/// The translation layer over one flash device. Example: [`Ftl::mount`].
pub struct Ftl {
    flash: Box<dyn Flash>,
    geometry: Geometry,
    config: Config,
    /// The marks in each page that reflect the configuration.
    marks: spare::Marks,
    format: Format,
    /// Data pages of a block: all, or all but the summary page.
    data_pages: u32,
    pairs: Pairs,
    collector: Collector,
    map: Map,
    pub(crate) blocks: Blocks,
    pub(crate) writer: Writer,
    journal: Journal,
    seq: u64,
    scrub: Scrubber,
    pub(crate) snapshots: Snapshots,
    trims: TrimLists,
    horizon: Horizon,
    stats: Stats,
    page_buffer: Vec<u8>,
}

impl Ftl {
    /// The geometry of the device.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Number of logical pages.
    pub fn logical_pages(&self) -> u32 {
        self.map.pages()
    }

    /// Data pages of a block: all, or all but the summary page.
    pub fn data_pages_per_block(&self) -> u32 {
        self.data_pages
    }

    /// Collection starts when fewer blocks than this are free.
    pub fn gc_threshold_blocks(&self) -> u32 {
        self.collector.threshold_blocks
    }

    /// The smallest possible [`Ftl::gc_threshold_blocks`] of this device.
    pub fn gc_least_blocks(&self) -> u32 {
        config::least_threshold(self.collector.reserve_blocks)
    }

    /// Number of free blocks reserved for the collector's copies.
    pub fn gc_reserve_blocks(&self) -> u32 {
        self.collector.reserve_blocks
    }

    /// Counters since the start.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Sets the counters to zero.
    pub fn reset_stats(&mut self) {
        self.stats = Stats::default();
    }

    /// The blocks.
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The blocks that are being written.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// The open snapshots.
    pub fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// See [`Flash::reached`].
    pub(crate) fn reached(&mut self, now: Nanos) {
        self.flash.reached(now);
    }

    /// The underlying flash.
    pub fn flash(&self) -> &dyn Flash {
        self.flash.as_ref()
    }

    /// Returns the flash: all that a power cut leaves.
    pub fn into_flash(self) -> Box<dyn Flash> {
        self.flash
    }

    /// A copy of this layer over a copy of its flash.
    #[must_use]
    pub(crate) fn duplicate(&self, flash: Box<dyn Flash>) -> Ftl {
        Ftl {
            flash,
            geometry: self.geometry,
            config: self.config,
            format: self.format,
            pairs: self.pairs.clone(),
            map: self.map.clone(),
            blocks: self.blocks.clone(),
            writer: self.writer.clone(),
            collector: self.collector.clone(),
            journal: self.journal.clone(),
            scrub: self.scrub.clone(),
            snapshots: self.snapshots.clone(),
            trims: self.trims.clone(),
            horizon: self.horizon.clone(),
            stats: self.stats.clone(),
            page_buffer: self.page_buffer.clone(),
            ..*self
        }
    }

    /// The last used write sequence.
    pub fn last_seq(&self) -> u64 {
        self.seq
    }

    /// Skips `count` write sequences while mounting: programs that were not searched for may have
    /// used them.
    pub fn skip_sequences(&mut self, count: u64) {
        self.seq += count;
    }

    /// Memory of the mapping table and of the block tables in bytes.
    pub fn memory(&self) -> [(&'static str, u64); 2] {
        let dirty = self.map.memory_of_marks();
        [
            ("mapping_table", self.memory_of_map() + self.trims.memory()),
            ("block_tables", self.blocks.memory() + dirty),
        ]
    }

    /// Marks a page as dead. On a list of trims, removes one logical page from it.
    ///
    /// # Panics
    /// The page is not live: two tables disagree.
    #[inline]
    pub fn kill(&mut self, at: Ppn) {
        if !self.snapshots.is_empty() && self.snapshots.retains(at) {
            return;
        }
        if !self.trims.is_empty() && self.trims.remove_one(at) {
            return;
        }
        self.blocks.kill(at);
        self.flash.forget(at);
    }

    /// Reads a page into `data`, which is a page long or empty, and the first bytes of its spare
    /// area into `spare`.
    pub fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
        cause: Cause,
    ) -> Result<Read, FlashError> {
        self.stats.add_read(cause, data.is_empty());
        self.read_page(now, at, data, spare)
    }

    /// Reads a page without a simulated read, for checks ([`Flash::peek`]).
    pub fn peek(&self, at: Ppn, data: &mut [u8], spare: &mut [u8]) -> Option<usize> {
        self.peek_page(at, data, spare)
    }

    /// Clears bits in the tail of a page's spare area, in place.
    pub fn reprogram(
        &mut self,
        now: Nanos,
        at: Ppn,
        tail_offset: usize,
        bytes: &[u8],
        cause: Cause,
    ) -> Result<Nanos, FtlError> {
        self.stats.add(Operation::Reprogram, cause);
        Ok(self
            .flash
            .reprogram(now, at, header::SIZE + tail_offset, bytes)?)
    }

    /// Waits for all operations that are done at `until` or before, and makes them durable. Returns
    /// when they are. With closed pairs ([`PairedPages`]) that may be later than `now` and `until`.
    pub fn sync(&mut self, now: Nanos, until: Nanos) -> Result<Nanos, FtlError> {
        let mut closed = until;
        if self.config.paired_pages == PairedPages::Closed {
            closed = self.close_pairs(until);
        }
        let ends = self.flash.sync(now, closed)?;
        // A page that is done after `until` may share cells with an upper page in flight.
        if self.format.horizons {
            self.horizon.waited(ends, until);
        }
        Ok(ends)
    }

    /// Checks that the tables agree: live pages, counts per block, candidates for collection.
    ///
    /// # Errors
    /// Names two that disagree.
    pub fn check(&self) -> Result<(), String> {
        self.blocks.check(self.geometry.pages_per_block)?;
        self.check_slots()?;
        self.map.cache.as_ref().map_or(Ok(()), MapCache::check)?;
        self.check_lists()
    }

    /// Bytes of a spare record: header and tail.
    #[inline]
    pub fn record_bytes(&self) -> usize {
        header::SIZE + self.format.tail_bytes
    }
}
