//! Mounting: rebuilds the state of an FTL from the flash alone.
//!
//! There is no separate format step: a blank device mounts as an empty one. [`Ftl::mount`] reads
//! the roots, the mapping table of the newest one, and the later logs. The owner then scans blocks
//! as its recovery requires, marks pages as live, and calls [`Ftl::finish_mount`].

use super::checksum::WHOLE_BYTES_MAX;
use super::collector::Collector;
use super::config::Sizes;
use super::meta::{MetaArea, MetaBlock, MetaState, NONE};
use super::root::RootImage;
use super::slot::Map;
use super::write::Writer;
use super::{
    BlockState, Blocks, Cause, Config, ConfigError, Format, Ftl, FtlError, Header, PageKind,
    Resting, Scrubber, Slot, Stats, doubt_number, header,
};
use crate::nand::{Flash, FlashError, Geometry};
use crate::units::{Lpn, Nanos, Pbn, Ppn};
use std::collections::BTreeMap;

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

/// The good blocks that hold roots, mapping pages and logs: the first of each plane in turn, one on
/// each channel before the next on any, so that a restart reads them concurrently.
fn meta_blocks(geometry: &Geometry, flash: &dyn Flash, count: u32) -> Vec<Pbn> {
    let on_channel = geometry.planes() / geometry.channels;
    let in_turn = |i: u32| i % geometry.channels * on_channel + i / geometry.channels;
    let per_plane: Vec<Vec<Pbn>> = (0..geometry.planes())
        .map(in_turn)
        .map(|plane| {
            (0..geometry.blocks_per_plane)
                .map(|i| Pbn(plane * geometry.blocks_per_plane + i))
                .filter(|&block| !flash.is_factory_bad(block))
                .take(count as usize)
                .collect()
        })
        .collect();
    let deepest = per_plane.iter().map(Vec::len).max().unwrap_or(0);
    (0..deepest)
        .flat_map(|i| {
            per_plane
                .iter()
                .filter_map(move |plane| plane.get(i).copied())
        })
        .take(count as usize)
        .collect()
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
        let entry = |&block: &Pbn| MetaBlock::blank(block);
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
                in_steps: None,
                wear_cursor: 0,
            },
            meta: MetaArea {
                anchors: anchors.iter().map(entry).collect(),
                root_in: Vec::new(),
                anchor_open: None,
                pool: pool.iter().map(entry).collect(),
                places: pool.iter().enumerate().map(|(i, &b)| (b, i)).collect(),
                is_named: false,
                promised: Vec::new(),
                open_map: vec![None; sizes.map_lanes as usize],
                turn: 0,
                open_log: vec![None; format.logs as usize],
                directory: vec![NONE; sizes.map_pages as usize],
                generation: 0,
                durable: Nanos::ZERO,
                log_from: 0,
                bad: Vec::new(),
                blob: Vec::new(),
                rootless: Vec::new(),
            },
            seq: 0,
            scrub: Scrubber::new(&geometry, config.scrub),
            snapshots: Default::default(),
            lists: Default::default(),
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

    fn read_meta(&mut self, now: Nanos) -> Result<Mounted, FtlError> {
        let mut done = now;
        let mut data = vec![0; self.geometry.page_bytes as usize];
        let mut spare = [0xff; WHOLE_BYTES_MAX];
        let used = self.bytes_read(header::SIZE);
        // The parts of roots that were found, by generation.
        let mut roots: BTreeMap<u64, RootParts> = BTreeMap::new();
        for anchor in 0..self.meta.anchors.len() {
            let block = self.meta.anchors[anchor].block;
            for page in 0..self.geometry.pages_per_block {
                let at = self.geometry.page(block, page);
                let read = self.read(now, at, &mut data, &mut spare[..used], Cause::Recovery);
                if page == 0 {
                    // Announces all reads at once, so that they overlap.
                    let behind = self.geometry.pages_per_block - 1;
                    self.flash.expect(Ppn(at.0 + 1), behind);
                }
                match read {
                    Ok(read) => {
                        done = done.max(read.done);
                        let Some(head) = Header::parse_any(&spare)? else {
                            continue;
                        };
                        self.seq = self.seq.max(head.seq);
                        self.hear(at, &spare);
                        let part = Ftl::parse_root_part(&data[..read.data_bytes]);
                        let Some((generation, part, parts, bytes)) = part else {
                            continue;
                        };
                        doubt_number("root", generation, 64)?;
                        self.meta.generation = self.meta.generation.max(generation);
                        let found = RootParts {
                            parts,
                            found: BTreeMap::new(),
                        };
                        let root = roots.entry(generation).or_insert(found);
                        root.found.insert(part, (anchor, bytes.to_vec()));
                    }
                    Err(FlashError::Uncorrectable { done: failed, .. }) => done = done.max(failed),
                    Err(other) => return Err(other.into()),
                }
            }
            self.meta.anchors[anchor].state = MetaState::Full;
        }
        let newest = roots
            .into_iter()
            .rev()
            .find(|(_, root)| root.found.len() == root.parts);
        let image = match newest {
            Some((generation, root)) => {
                self.horizon.root = generation;
                let (mut anchors, parts): (Vec<_>, Vec<_>) = root.found.into_values().unzip();
                anchors.dedup();
                self.meta.root_in = anchors;
                let bytes = parts.concat();
                let mut image = RootImage::parse(&bytes)
                    .ok_or_else(|| FtlError::Foreign("a root that ends early".into()))?;
                if let Some(pool) = &image.pool {
                    self.take_pool(pool)?;
                }
                self.doubt_root(&image)?;
                image.directory.resize(self.meta.directory.len(), NONE);
                Some(image)
            }
            None => None,
        };
        let has_root = image.is_some();
        if let Some(image) = image {
            self.meta.directory = image.directory;
            self.meta.log_from = image.log_from;
            self.meta.blob = image.blob;
            for &block in &image.bad {
                self.blocks.set_state(block, BlockState::Bad);
            }
            self.meta.bad = image.bad;
        }
        let now = done;
        done = done.max(self.read_directory(now, &mut data)?);
        let (logs, read) = self.read_pool(now, &mut data)?;
        done = done.max(read);
        Ok(Mounted {
            has_root,
            blob: self.meta.blob.clone(),
            logs,
            done,
            rest: None,
        })
    }

    /// Reads the translation pages that the root refers to.
    fn read_directory(&mut self, now: Nanos, data: &mut [u8]) -> Result<Nanos, FtlError> {
        // Without a directory the table is one at rest, which is validated when it is taken over.
        if self.meta.directory.is_empty() {
            return Ok(now);
        }
        let mut done = now;
        let mut spare = [0xff; header::SIZE];
        for page in 0..self.meta.directory.len() {
            let at = self.meta.directory[page];
            if at == NONE {
                continue;
            }
            let read = self.read(now, Ppn(at), data, &mut spare, Cause::Recovery)?;
            done = done.max(read.done);
            let is_it = |head: Header| head.kind == PageKind::Map && head.lpn.index() == page;
            if self.config.checksums && !Header::parse_any(&spare)?.is_some_and(is_it) {
                return Err(FtlError::Unreadable { at: Ppn(at) });
            }
            let slots = self.map.bytes_from(page as u32);
            let len = read.data_bytes.min(slots.len());
            slots[..len].copy_from_slice(&data[..len]);
            let place = self.meta.place(self.geometry.block_of(Ppn(at)));
            self.meta.pool[place.expect("the root was doubted")].live += 1;
        }
        self.doubt_map()?;
        Ok(done)
    }

    /// Determines the contents of each block in the pool, and reads the valid logs.
    fn read_pool(
        &mut self,
        now: Nanos,
        data: &mut [u8],
    ) -> Result<(Vec<LogPage>, Nanos), FtlError> {
        let (mut logs, mut done) = (Vec::new(), now);
        let mut spare = [0xff; header::SIZE];
        for index in 0..self.meta.pool.len() {
            let block = self.meta.pool[index].block;
            if self.blocks.state(block) == BlockState::Bad {
                self.meta.pool[index].state = MetaState::Bad;
                continue;
            }
            let mut issue = now;
            for page in 0..self.geometry.pages_per_block {
                let at = self.geometry.page(block, page);
                let read = match self.read(issue, at, data, &mut spare, Cause::Recovery) {
                    Ok(read) => read,
                    Err(FlashError::Uncorrectable { done: failed, .. }) => {
                        done = done.max(failed);
                        issue = failed;
                        continue;
                    }
                    Err(other) => return Err(other.into()),
                };
                done = done.max(read.done);
                issue = read.done;
                match Header::parse_any(&spare)? {
                    Some(Header {
                        kind: PageKind::Log,
                        lpn,
                        seq,
                    }) => {
                        self.seq = self.seq.max(seq);
                        if seq < self.meta.log_from {
                            // Everything in this block was written before the checkpoint.
                            break;
                        }
                        self.meta.pool[index].is_log = true;
                        self.meta.pool[index].live += 1;
                        let data = data[..read.data_bytes].to_vec();
                        logs.push(LogPage {
                            log: lpn.0 as u8,
                            at,
                            seq,
                            data,
                        });
                    }
                    Some(Header { seq, .. }) => {
                        self.seq = self.seq.max(seq);
                        break;
                    }
                    // Blank: nothing after it was ever waited for.
                    None if self.pairs.blank_ends(page) => break,
                    None => {}
                }
            }
            let entry = &mut self.meta.pool[index];
            entry.state = if entry.live > 0 {
                MetaState::Full
            } else {
                MetaState::Free
            };
        }
        logs.sort_by_key(|page| page.seq);
        // A refreshed page may exist twice.
        logs.dedup_by_key(|page| page.seq);
        Ok((logs, done))
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

/// The parts of a root that were found, and the anchor of each.
struct RootParts {
    parts: usize,
    found: BTreeMap<usize, (usize, Vec<u8>)>,
}
