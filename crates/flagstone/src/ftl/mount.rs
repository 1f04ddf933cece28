//! Starting: the state of an FTL is read from the flash alone.
//!
//! There is no separate format: a blank device mounts as an empty one. [`Ftl::mount`] reads the
//! roots, the mapping table of the newest one, and the logs that came after it. The owner then
//! scans blocks as its recovery needs, says which pages live, and calls [`Ftl::finish_mount`].

use super::config::Sizes;
use super::meta::{MetaArea, MetaBlock, MetaState, NONE};
use super::pool::{Pool, Zone};
use super::root::RootImage;
use super::write::Head;
use super::{
    Block, BlockState, Cause, Config, ConfigError, EMPTY, Format, Ftl, FtlError, Header, Kind,
    Scrubber, Slot, Stats, TAIL_BYTES_MAX, VERDICT_BYTES, Victims, doubt_number, header, moves,
};
use crate::nand::{Addresses, Flash, FlashError, Geometry};
use crate::units::{Lpn, Nanos, Pbn, Ppn};
use std::collections::{BTreeMap, VecDeque};

/// A log page that was written after the last checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogPage {
    /// Which log.
    pub log: u8,
    /// Where the page is.
    pub at: Ppn,
    /// Its write sequence: pages of all logs in the order in which they were written.
    pub seq: u64,
    /// Its contents.
    pub data: Vec<u8>,
}

/// What a mount has read from flash, apart from data pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Mounted {
    /// Whether there was a root.
    pub has_root: bool,
    /// The bytes that the owner gave to the last checkpoint.
    pub blob: Vec<u8>,
    /// Pages of the logs since then, by sequence.
    pub logs: Vec<LogPage>,
    /// When all of it had been read.
    pub done: Nanos,
    /// Instead of a scan: the tables of a device at rest, see [`Ftl::resume`].
    pub rest: Option<Vec<u8>>,
}

/// The good blocks that roots, mapping pages and logs use: the first of each plane in turn, one of
/// each channel before the next of any, so that a restart reads them side by side.
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
    /// How many logical pages a device offers under a configuration.
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

    /// Starts on a device, blank or not.
    ///
    /// # Errors
    /// The device is too small or of another shape, or the power fails meanwhile.
    pub fn mount(
        flash: Box<dyn Flash>,
        config: Config,
        format: Format,
        now: Nanos,
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
        let (pages, blocks) = (geometry.pages() as usize, geometry.blocks());
        let mut ftl = Ftl {
            map: vec![EMPTY.to_le_bytes(); sizes.logical_pages as usize],
            dirty_map_pages: vec![0; (sizes.map_pages as usize).div_ceil(64)],
            live: vec![0; pages.div_ceil(64)],
            live_pages: 0,
            blocks: vec![
                Block {
                    state: BlockState::Free,
                    stale: true,
                    failing: false,
                    live: 0,
                    pins: 0
                };
                blocks as usize
            ],
            erases: vec![0; blocks as usize],
            erases_total: 0,
            free: Pool::new(geometry.planes()),
            zone: format.zoned.then(|| Zone::new(geometry.planes())),
            victims: Victims::new(blocks, geometry.pages_per_block),
            heads: [Head::new(&geometry), Head::new(&geometry)],
            closing: VecDeque::new(),
            retire: Vec::new(),
            inside: None,
            meta: MetaArea {
                entries_per_page: sizes.entries_per_page,
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
            },
            seq: 0,
            wear_cursor: 0,
            scrub: Scrubber::new(&geometry, config.scrub),
            snapshots: Default::default(),
            stats: Stats::default(),
            page_buffer: vec![0; geometry.page_bytes as usize],
            logical_pages: sizes.logical_pages,
            data_pages: sizes.data_pages,
            dense_pages: sizes.dense_pages,
            pairs: sizes.pairs,
            gc_threshold_blocks: sizes.gc_threshold_blocks,
            gc_reserve_blocks: sizes.gc_reserve_blocks,
            reserve_is_lent: false,
            flash,
            addresses: Addresses::new(&geometry),
            geometry,
            marks: super::spare::Marks::of(&config),
            config,
            format,
        };
        for block in 0..blocks {
            if ftl.flash.is_factory_bad(Pbn(block)) {
                ftl.blocks[block as usize].state = BlockState::Bad;
            }
        }
        for block in meta {
            ftl.blocks[block.index()].state = BlockState::Meta;
        }
        ftl.read_meta(now).map(|mounted| (ftl, mounted))
    }

    fn read_meta(&mut self, now: Nanos) -> Result<Mounted, FtlError> {
        let mut done = now;
        let mut data = vec![0; self.geometry.page_bytes as usize];
        let mut spare = [0xff; header::SIZE];
        // Roots: the parts found, by generation.
        let mut roots: BTreeMap<u64, RootParts> = BTreeMap::new();
        for anchor in 0..self.meta.anchors.len() {
            let block = self.meta.anchors[anchor].block;
            for page in 0..self.geometry.pages_per_block {
                let at = self.geometry.page(block, page);
                match self.read(now, at, &mut data, &mut spare, Cause::Recovery) {
                    Ok(read) => {
                        done = done.max(read.done);
                        let Some(head) = Header::parse_any(&spare)? else {
                            continue;
                        };
                        self.seq = self.seq.max(head.seq);
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
            .into_values()
            .rev()
            .find(|root| root.found.len() == root.parts);
        let image = match newest {
            Some(root) => {
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
                self.blocks[block.index()].state = BlockState::Bad;
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
        let mut done = now;
        let mut spare = [0xff; header::SIZE];
        for page in 0..self.meta.directory.len() {
            let at = self.meta.directory[page];
            if at == NONE {
                continue;
            }
            let read = self.read(now, Ppn(at), data, &mut spare, Cause::Recovery)?;
            done = done.max(read.done);
            let is_it = |head: Header| head.kind == Kind::Map && head.lpn.index() == page;
            if self.config.checksums && !Header::parse_any(&spare)?.is_some_and(is_it) {
                return Err(FtlError::Unreadable { at: Ppn(at) });
            }
            let start = page * self.meta.entries_per_page as usize;
            let slots = self.map[start..].as_flattened_mut();
            let len = read.data_bytes.min(slots.len());
            slots[..len].copy_from_slice(&data[..len]);
            let place = self.meta.place(self.geometry.block_of(Ppn(at)));
            self.meta.pool[place.expect("the root was doubted")].live += 1;
        }
        self.doubt_map()?;
        Ok(done)
    }

    /// Finds out what each block of the pool holds, and reads the logs that count.
    fn read_pool(
        &mut self,
        now: Nanos,
        data: &mut [u8],
    ) -> Result<(Vec<LogPage>, Nanos), FtlError> {
        let (mut logs, mut done) = (Vec::new(), now);
        let mut spare = [0xff; header::SIZE];
        for index in 0..self.meta.pool.len() {
            let block = self.meta.pool[index].block;
            if self.blocks[block.index()].state == BlockState::Bad {
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
                        kind: Kind::Log,
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
                    // Blank: nothing more that was ever waited for.
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
        // A page that was refreshed may be there twice.
        logs.dedup_by_key(|page| page.seq);
        Ok((logs, done))
    }

    /// Data blocks that are in service.
    pub fn data_blocks(&self) -> Vec<Pbn> {
        (0..self.geometry.blocks())
            .map(Pbn)
            .filter(|b| !matches!(self.block_state(*b), BlockState::Bad | BlockState::Meta))
            .collect()
    }

    /// Hands the spare record of every version in `blocks` to `see`. A full block is read by its
    /// summary page, others page by page. Returns when the last page was read.
    pub fn scan(
        &mut self,
        now: Nanos,
        blocks: &[Pbn],
        mut see: impl FnMut(Ppn, Header, &[u8]),
    ) -> Result<Nanos, FtlError> {
        let mut done = now;
        for &block in blocks {
            let mut present = false;
            let read = self.block_records(now, block, Cause::Recovery, |at, head, tail| {
                present = true;
                see(at, head, tail);
            })?;
            done = done.max(read.done);
            self.seq = self.seq.max(read.seq);
            if present || read.torn {
                self.blocks[block.index()].state = BlockState::Full;
                self.victims
                    .insert(block, self.blocks[block.index()].live.into());
            }
            if let Some(wear) = read.wear {
                self.erases[block.index()] = doubt_number("erase count", wear.into(), 32)? as u32;
            }
        }
        Ok(done)
    }

    /// Reads the spare records of a block's versions, in page order. A summary has no flag bytes:
    /// those of its pages are `0xff` here. Where summaries are late, the verdict of a page follows
    /// its tail: zeros if the block has no summary. A blank page is the end of such a block:
    /// nothing behind it was ever waited for.
    pub fn block_records(
        &mut self,
        now: Nanos,
        block: Pbn,
        cause: Cause,
        mut see: impl FnMut(Ppn, Header, &[u8]),
    ) -> Result<BlockRead, FtlError> {
        let record = self.record_bytes();
        let stride = self.summary_stride();
        let (verdict, pages) = (self.format.verdict_bytes(), self.data_pages as usize);
        let seen = record + verdict;
        let mut spare = [0xff; header::SIZE + TAIL_BYTES_MAX + VERDICT_BYTES];
        let mut outcome = BlockRead {
            done: now,
            seq: 0,
            wear: None,
            torn: false,
        };
        if self.config.summary_pages {
            let last = self.geometry.page(block, self.data_pages);
            let mut data = std::mem::take(&mut self.page_buffer);
            self.stats.add_read(cause, false);
            let read = self.read_page(now, last, &mut data, &mut spare[..header::SIZE]);
            let summary = match read {
                Ok(read) => {
                    outcome.done = read.done;
                    Header::parse_any(&spare).map(|head| {
                        let head = head.filter(|head| head.kind == Kind::Summary);
                        head.filter(|_| read.data_bytes == (stride + verdict) * pages)
                    })
                }
                Err(FlashError::Uncorrectable { done, .. }) => {
                    (outcome.done, outcome.torn) = (done, true);
                    Ok(None)
                }
                Err(other) => Err(other.into()),
            };
            let summary = match summary {
                Ok(summary) => summary,
                Err(error) => {
                    self.page_buffer = data;
                    return Err(error);
                }
            };
            if let Some(head) = summary {
                outcome.seq = head.seq;
                outcome.wear = Some(head.lpn.0);
                spare.fill(0xff);
                for page in 0..self.data_pages {
                    let start = page as usize * stride;
                    spare[..stride].copy_from_slice(&data[start..start + stride]);
                    let start = stride * pages + page as usize * verdict;
                    spare[record..seen].copy_from_slice(&data[start..start + verdict]);
                    let head = match Header::parse_any(&spare) {
                        Ok(head) => head.filter(Header::is_version),
                        Err(error) => {
                            self.page_buffer = data;
                            return Err(error);
                        }
                    };
                    if let Some(head) = head {
                        outcome.seq = outcome.seq.max(head.seq);
                        let at = self.geometry.page(block, page);
                        see(at, head, &spare[header::SIZE..seen]);
                    }
                }
                self.page_buffer = data;
                return Ok(outcome);
            }
            self.page_buffer = data;
        }
        spare[record..seen].fill(0);
        for page in 0..self.data_pages {
            let at = self.geometry.page(block, page);
            self.stats.add_read(cause, true);
            match self.read_page(now, at, &mut [], &mut spare[..record]) {
                Ok(read) => {
                    outcome.done = outcome.done.max(read.done);
                    let head = Header::parse_any(&spare)?.filter(Header::is_version);
                    match head {
                        Some(head) => {
                            outcome.seq = outcome.seq.max(head.seq);
                            see(at, head, &spare[header::SIZE..seen]);
                            moves::expect_behind(self, at, page);
                        }
                        // A block whose first page is blank was not written since its erase, or not
                        // so that anything in it was ever waited for.
                        None if page == 0 || (verdict > 0 && self.pairs.blank_ends(page)) => break,
                        None => {}
                    }
                }
                Err(FlashError::Uncorrectable { done, .. }) => {
                    outcome.done = outcome.done.max(done);
                    outcome.torn = true;
                }
                Err(other) => return Err(other.into()),
            }
        }
        Ok(outcome)
    }

    /// Reads, while mounting, a page whose program may have landed. If the page is not blank, its
    /// block does not become free. Returns when it was read.
    pub fn look_for(&mut self, now: Nanos, at: Ppn) -> Result<(Nanos, Option<Header>), FtlError> {
        let (done, found) = self.look_at(now, at)?;
        let block = self.geometry.block_of(at);
        let entry = &mut self.blocks[block.index()];
        if found.is_some() && entry.state == BlockState::Free {
            entry.state = BlockState::Full;
            self.victims.insert(block, entry.live.into());
        }
        Ok((done, found.flatten().filter(Header::is_version)))
    }

    /// Reads, while mounting, the first page of a block: is it blank? Returns when it was read, and
    /// whether the block has been written since its erase.
    pub fn look_into(&mut self, now: Nanos, block: Pbn) -> Result<(Nanos, bool), FtlError> {
        let (done, found) = self.look_at(now, self.geometry.page(block, 0))?;
        Ok((done, found.is_some()))
    }

    /// The header of a page, if it has one that can be read; nothing at all for a blank page.
    fn look_at(
        &mut self,
        now: Nanos,
        at: Ppn,
    ) -> Result<(Nanos, Option<Option<Header>>), FtlError> {
        let mut spare = [0xff; header::SIZE];
        self.stats.add_read(Cause::Recovery, true);
        match self.read_page(now, at, &mut [], &mut spare) {
            Ok(read) => Ok((read.done, Header::parse_any(&spare)?.map(Some))),
            Err(FlashError::Uncorrectable { done, .. }) => Ok((done, Some(None))),
            Err(other) => Err(other.into()),
        }
    }

    /// Forgets trimmed pages whose absence the mapping table on flash records by itself.
    pub fn forget_trimmed(&mut self, at: Lpn) {
        if let Slot::Trimmed(page) = self.slot(at) {
            self.set_slot(at, Slot::Empty);
            self.kill(page);
        }
    }

    /// Says, while mounting, that nothing in a scanned block is needed any more. The block is free,
    /// and is erased before it is written.
    pub fn release(&mut self, id: Pbn) {
        let block = &mut self.blocks[id.index()];
        assert!(block.live == 0, "block {id} is released with live pages");
        if block.state == BlockState::Full {
            self.victims.remove(id, 0);
            block.state = BlockState::Free;
        }
    }

    /// Ends the mount. Blocks with live pages and scanned blocks that are not blank are candidates
    /// for collection. All others are free, and are erased before they are written.
    pub fn finish_mount(&mut self) {
        let known: Vec<u32> = self.erases.iter().copied().filter(|&e| e > 0).collect();
        let mean = known.iter().map(|&e| u64::from(e)).sum::<u64>() / known.len().max(1) as u64;
        for index in 0..self.blocks.len() {
            let id = Pbn(index as u32);
            if self.erases[index] == 0 {
                self.erases[index] = mean as u32;
            }
            if self.blocks[index].state == BlockState::Free {
                if self.blocks[index].live > 0 {
                    self.blocks[index].state = BlockState::Full;
                    self.victims.insert(id, self.blocks[index].live.into());
                } else {
                    self.free_block(id);
                }
            }
        }
        self.erases_total = self.erases.iter().map(|&e| u64::from(e)).sum();
    }
}

/// The parts of one root that were found, each with the anchor that it lies in.
struct RootParts {
    parts: usize,
    found: BTreeMap<usize, (usize, Vec<u8>)>,
}

/// The result of reading the spare records of a block, besides these records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockRead {
    /// When the last page was read.
    pub done: Nanos,
    /// The highest write sequence found.
    pub seq: u64,
    /// How often the block had been erased, if its summary says so.
    pub wear: Option<u32>,
    /// Whether a page could not be read.
    pub torn: bool,
}
