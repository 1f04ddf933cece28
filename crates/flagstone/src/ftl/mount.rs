//! Mounting: rebuilds the state of an FTL from the flash alone.
//!
//! There is no separate format step: a blank device mounts as an empty one. [`Ftl::mount`] reads
//! the roots, the mapping table of the newest one, and the later logs. The owner then scans blocks
//! as its recovery requires, marks pages as live, and calls [`Ftl::finish_mount`].

use super::collector::Collector;
use super::config::Sizes;
use super::journal::{Journal, meta_blocks};
use super::slot::Map;
use super::write::Writer;
use super::{
    BlockState, Blocks, Config, ConfigError, Format, Ftl, FtlError, Resting, Scrubber, Slot, Stats,
};
use crate::nand::{Flash, Geometry};
use crate::units::{Lpn, Nanos, Pbn, Ppn};

/// A log page that was written after the last checkpoint.
///
/// Example: [`Mounted`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogPage {
    /// The number of the log.
    pub log: u8,
    /// The place of the page.
    pub at: Ppn,
    /// The write sequence, which orders the pages of all logs.
    pub seq: u64,
    /// The contents.
    pub data: Vec<u8>,
}

/// The result of a mount, before the owner scans blocks.
///
/// ```
/// use flagstone::ftl::{Config, Format, Ftl, FtlError};
/// use flagstone::nand::Chip;
/// use flagstone::units::Nanos;
///
/// let (config, mut format) = (Config::default(), Format::NONE);
/// format.logs = 1;
/// let flash = Box::new(Chip::default());
/// let (mut ftl, mounted) = Ftl::mount(flash, config, format, Nanos::ZERO)?;
/// assert!(!mounted.has_root);
/// ftl.finish_mount();
/// let now = ftl.checkpoint(mounted.done, b"of the owner".to_vec())?;
/// let entry = ftl.log(now, 0, b"an entry")?;
/// ftl.sync(now, entry.done)?;
///
/// let (_, mounted) = Ftl::mount(ftl.into_flash(), config, format, Nanos::ZERO)?;
/// assert!(mounted.has_root);
/// assert_eq!(mounted.blob, b"of the owner");
/// assert_eq!((mounted.logs[0].seq, &mounted.logs[0].data[..]), (entry.seq, &b"an entry"[..]));
/// # Ok::<(), FtlError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Mounted {
    /// Whether there was a root.
    pub has_root: bool,
    /// The owner's bytes in the last checkpoint.
    pub blob: Vec<u8>,
    /// Later log pages, by sequence.
    pub logs: Vec<LogPage>,
    /// When everything was read.
    pub done: Nanos,
    /// The tables of a device at rest, which replace a scan, see [`Ftl::resume`].
    pub rest: Option<Resting>,
}

impl Ftl {
    /// Number of logical pages that a device offers with a configuration.
    ///
    /// # Errors
    /// Says what does not fit.
    pub fn capacity(
        geometry: &Geometry,
        config: &Config,
        format: &Format,
    ) -> Result<u32, ConfigError> {
        Ok(Sizes::new(geometry, config, format, geometry.blocks())?.logical_pages)
    }

    /// Mounts a device, blank or not.
    ///
    /// ```
    /// use flagstone::ftl::{BlockState, Cause, Config, Format, Ftl, FtlError};
    /// use flagstone::ftl::{PageKind, Slot, Stream};
    /// use flagstone::nand::Chip;
    /// use flagstone::units::{Lpn, Nanos};
    ///
    /// let (flash, config) = (Box::new(Chip::default()), Config::default());
    /// let (mut ftl, mounted) = Ftl::mount(flash, config, Format::NONE, Nanos::ZERO)?;
    /// ftl.finish_mount();
    ///
    /// // A version of logical page 7. It is durable after the wait.
    /// let (to, page) = ((Stream::Host, None), (PageKind::Data, Lpn(7), None));
    /// let written = ftl.append(mounted.done, to, page, &[], b"seven", Cause::Host)?;
    /// ftl.set_slot(Lpn(7), Slot::Page(written.at));
    /// ftl.sync(mounted.done, written.done)?;
    /// let block = ftl.geometry().block_of(written.at);
    /// assert_eq!((ftl.blocks().state(block), ftl.blocks().live_in(block)), (BlockState::Open, 1));
    ///
    /// // A restart has the flash alone. This format has no mapping table on flash, so the owner
    /// // scans the blocks. The newest version of each page is live.
    /// let flash = ftl.into_flash();
    /// let (mut ftl, mounted) = Ftl::mount(flash, config, Format::NONE, Nanos::ZERO)?;
    /// let (blocks, mut found) = (ftl.blocks().for_data(), Vec::new());
    /// ftl.scan(mounted.done, &blocks, |at, header, _| found.push((at, header)))?;
    /// let [(at, header)] = found[..] else {
    ///     panic!("one version was written");
    /// };
    /// ftl.set_slot(header.lpn, Slot::of(header.kind, at));
    /// ftl.revive(at);
    /// ftl.finish_mount();
    /// assert_eq!((header.lpn, ftl.slot(Lpn(7))), (Lpn(7), Slot::Page(written.at)));
    ///
    /// // A configuration that leaves no room for the collector is refused.
    /// let mut full = config;
    /// full.over_provision = 0.0;
    /// let refused = Ftl::mount(ftl.into_flash(), full, Format::NONE, Nanos::ZERO);
    /// assert!(matches!(refused, Err(FtlError::Foreign(_))));
    /// # Ok::<(), FtlError>(())
    /// ```
    ///
    /// # Errors
    /// The device is too small or was written with another geometry, or the power fails.
    pub fn mount(
        flash: Box<dyn Flash>,
        config: Config,
        format: Format,
        now: Nanos,
    ) -> Result<(Ftl, Mounted), FtlError> {
        Ftl::mount_at_rest(flash, config, format, now, Vec::new())
    }

    /// Like [`Ftl::mount`], for a device that was closed with these tables ([`Ftl::rest`]). If the
    /// tables fit, [`Mounted::rest`] has those beyond the mapping table, and the owner takes them
    /// over with [`Ftl::resume`].
    ///
    /// # Errors
    /// As [`Ftl::mount`].
    pub fn mount_at_rest(
        flash: Box<dyn Flash>,
        config: Config,
        format: Format,
        now: Nanos,
        tables: Vec<u8>,
    ) -> Result<(Ftl, Mounted), FtlError> {
        let geometry = *flash.geometry();
        let good = (0..geometry.blocks())
            .filter(|&b| !flash.is_factory_bad(Pbn(b)))
            .count();
        let sizes = Sizes::new(&geometry, &config, &format, good as u32)
            .map_err(|error| FtlError::Foreign(error.0))?;
        let meta_count = sizes.anchors + sizes.map_blocks + sizes.log_blocks;
        let meta = meta_blocks(&geometry, flash.as_ref(), meta_count);
        let (anchors, pool) = meta.split_at(sizes.anchors as usize);
        let blocks = geometry.blocks();
        let logical_pages = sizes.logical_pages;
        let at_rest = format
            .rests
            .then(|| Resting::split(tables, logical_pages, blocks));
        let (map, rest) = at_rest.flatten().unzip();
        let mut ftl = Ftl {
            map: Map::new(map, &sizes),
            blocks: Blocks::new(&geometry, format.zoned),
            writer: Writer::new(&geometry),
            collector: Collector {
                threshold_blocks: sizes.gc_threshold_blocks,
                reserve_blocks: sizes.gc_reserve_blocks,
                reserve_is_lent: false,
                dense_pages: sizes.dense_pages,
                retire: Vec::new(),
                owed: Vec::new(),
                copied: Nanos::ZERO,
                in_steps: None,
                wear_cursor: 0,
            },
            journal: Journal::new(anchors, pool, &sizes, format.logs),
            seq: 0,
            scrub: Scrubber::new(&geometry, config.scrub),
            snapshots: Default::default(),
            trims: Default::default(),
            horizon: super::horizon::Horizon::new(geometry.planes()),
            stats: Stats::default(),
            page_buffer: vec![0; geometry.page_bytes as usize],
            data_pages: sizes.data_pages,
            pairs: sizes.pairs,
            flash,
            geometry,
            marks: super::spare::Marks::of(&config),
            config,
            format,
        };
        for block in (0..blocks).map(Pbn) {
            if ftl.flash.is_factory_bad(block) {
                ftl.blocks.set_state(block, BlockState::Bad);
            }
        }
        for block in meta {
            ftl.blocks.set_state(block, BlockState::Meta);
        }
        let mounted = ftl.read_meta(now)?;
        Ok((ftl, Mounted { rest, ..mounted }))
    }

    /// Marks a page as live: while mounting, or a page that no version needs any more.
    pub fn revive(&mut self, at: Ppn) {
        self.blocks.revive(at);
    }

    /// Drops the trim of a logical page, which then counts as never written. Snapshots do not need
    /// trims.
    pub fn forget_trimmed(&mut self, at: Lpn) {
        if let Slot::Trimmed(page) = self.slot(at) {
            self.move_slot(at, Slot::Empty);
            self.kill(page);
        }
    }

    /// Declares, while mounting, that nothing in a scanned block is needed. The block becomes free,
    /// and is erased before it is written.
    pub fn release(&mut self, id: Pbn) {
        let live = self.blocks.live_in(id);
        assert!(live == 0, "block {id} is released with live pages");
        if self.blocks.state(id) == BlockState::Full {
            self.blocks.leave(id);
        }
    }

    /// Ends the mount. Blocks with live pages, and scanned blocks that are not blank, become
    /// candidates for collection. All others become free, and are erased before they are written.
    pub fn finish_mount(&mut self) {
        let known = self.blocks.erases.iter().copied().filter(|&e| e > 0);
        let known: Vec<u32> = known.collect();
        let mean = known.iter().map(|&e| u64::from(e)).sum::<u64>() / known.len().max(1) as u64;
        for id in self.blocks.ids() {
            let erases = &mut self.blocks.erases[id.index()];
            if *erases == 0 {
                *erases = mean as u32;
            }
            if self.blocks.state(id) != BlockState::Free {
                continue;
            }
            if self.blocks.live_in(id) > 0 {
                self.blocks.fill(id);
            } else {
                self.blocks.set_free(id);
            }
        }
        self.blocks.sum_erases();
    }
}
