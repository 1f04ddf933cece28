//! What a mount reads of the journal: the newest root, the translation pages that it refers to, and
//! the later log pages.

use super::image::RootImage;
use super::{MetaState, NONE};
use crate::ftl::checksum::WHOLE_BYTES_MAX;
use crate::ftl::doubt::refuse_size;
use crate::ftl::{
    BlockState, Cause, Ftl, FtlError, Header, LogPage, Mounted, PageKind, SLOT_BYTES, doubt_number,
    header,
};
use crate::nand::{Flash, FlashError, Geometry};
use crate::units::{Lpn, Nanos, Pbn, Ppn};
use std::collections::BTreeMap;

/// The good blocks that hold roots, mapping pages and logs: the first of each plane in turn, one on
/// each channel before the next on any, so that a restart reads them concurrently.
pub(in crate::ftl) fn meta_blocks(geometry: &Geometry, flash: &dyn Flash, count: u32) -> Vec<Pbn> {
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
    /// Reads the newest root all of whose parts exist, the translation pages that it refers to, and
    /// the log pages that are newer.
    pub(in crate::ftl) fn read_meta(&mut self, now: Nanos) -> Result<Mounted, FtlError> {
        let mut done = now;
        let mut data = vec![0; self.geometry.page_bytes as usize];
        let mut spare = [0xff; WHOLE_BYTES_MAX];
        let used = self.bytes_read(header::SIZE);
        // The parts of roots that were found, by generation.
        let mut roots: BTreeMap<u64, RootParts> = BTreeMap::new();
        for anchor in 0..self.journal.anchors.len() {
            let block = self.journal.anchors[anchor].block;
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
                        self.journal.generation = self.journal.generation.max(generation);
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
            self.journal.anchors[anchor].state = MetaState::Full;
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
                self.journal.root_in = anchors;
                let bytes = parts.concat();
                let mut image = RootImage::parse(&bytes)
                    .ok_or_else(|| FtlError::Foreign("a root that ends early".into()))?;
                if let Some(pool) = &image.pool {
                    self.take_pool(pool)?;
                }
                self.journal.doubt_root(&self.geometry, &image)?;
                image.directory.resize(self.journal.directory.len(), NONE);
                Some(image)
            }
            None => None,
        };
        let has_root = image.is_some();
        if let Some(image) = image {
            self.journal.directory = image.directory;
            self.journal.log_from = image.log_from;
            self.journal.blob = image.blob;
            for &block in &image.bad {
                self.blocks.set_state(block, BlockState::Bad);
            }
            let anchors = self.journal.anchors.iter_mut();
            for anchor in anchors.filter(|anchor| image.bad.contains(&anchor.block)) {
                anchor.state = MetaState::Bad;
            }
            self.journal.bad = image.bad;
        }
        let now = done;
        done = done.max(self.read_directory(now, &mut data)?);
        let (logs, read) = self.read_pool(now, &mut data)?;
        done = done.max(read);
        Ok(Mounted {
            has_root,
            blob: self.journal.blob.clone(),
            logs,
            done,
            rest: None,
        })
    }

    /// Reads the translation pages that the root refers to.
    fn read_directory(&mut self, now: Nanos, data: &mut [u8]) -> Result<Nanos, FtlError> {
        // Without a directory the table is one at rest, which is validated when it is taken over.
        if self.journal.directory.is_empty() {
            return Ok(now);
        }
        let mut done = now;
        let mut spare = [0xff; header::SIZE];
        for page in 0..self.journal.directory.len() {
            let at = self.journal.directory[page];
            if at == NONE {
                continue;
            }
            let read = self.read(now, Ppn(at), data, &mut spare, Cause::Recovery)?;
            done = done.max(read.done);
            // A root refers to durable pages only. One that is blank, or another one, was lost.
            let is_it = |head: Header| head.kind == PageKind::Map && head.lpn.index() == page;
            if !Header::parse_any(&spare)?.is_some_and(is_it) {
                return Err(FtlError::Unreadable { at: Ppn(at) });
            }
            let slots = self.map.bytes_from(page as u32);
            let len = read.data_bytes.min(slots.len());
            slots[..len].copy_from_slice(&data[..len]);
            let mut beyond = data[len..read.data_bytes].iter();
            let written = beyond.position(|&byte| byte != 0xff);
            if let Some(byte) = written.filter(|_| !self.flash.never_fails()) {
                let (pages, entry) = (self.map.pages(), byte / SLOT_BYTES);
                return refuse_size(Lpn(pages + entry as u32), pages);
            }
            let place = self.journal.place(self.geometry.block_of(Ppn(at)));
            self.journal.pool[place.expect("the root was doubted")].live += 1;
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
        for index in 0..self.journal.pool.len() {
            let block = self.journal.pool[index].block;
            if self.blocks.state(block) == BlockState::Bad {
                self.journal.pool[index].state = MetaState::Bad;
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
                        if seq < self.journal.log_from {
                            // Everything in this block was written before the checkpoint.
                            break;
                        }
                        let number = lpn.index();
                        if number >= self.journal.open_log.len() {
                            return Err(FtlError::Foreign(format!(
                                "it has log {number}, and its settings leave {} logs: open it with \
                                 as many as when it was written",
                                self.journal.open_log.len()
                            )));
                        }
                        self.journal.pool[index].is_log = true;
                        self.journal.pool[index].live += 1;
                        let data = data[..read.data_bytes].to_vec();
                        logs.push(LogPage {
                            log: number as u8,
                            at,
                            seq,
                            data,
                        });
                    }
                    // A block of translation pages: the directory says which of them are valid.
                    Some(Header { seq, .. }) => {
                        self.seq = self.seq.max(seq);
                        break;
                    }
                    // Blank: nothing after it was ever waited for.
                    None if self.pairs.blank_ends(page) => break,
                    None => {}
                }
            }
            let entry = &mut self.journal.pool[index];
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
}

/// The parts of a root that were found, and the anchor of each.
struct RootParts {
    parts: usize,
    found: BTreeMap<usize, (usize, Vec<u8>)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftl::{Config, Format};
    use crate::nand::small::{GEOMETRY, chip};

    /// Fails if a restart takes an anchor that is out of service for a spare one, or lists it
    /// again.
    #[test]
    fn anchors_that_are_out_of_service_stay_so() {
        let format = Format {
            persist_map: true,
            ..Format::NONE
        };
        let mut worn = chip(GEOMETRY);
        let bad = meta_blocks(&GEOMETRY, &worn, 3)[1..].to_vec();
        bad.iter().for_each(|&block| worn.wear_out(block));
        let mut flash: Box<dyn Flash> = Box::new(worn);
        for restart in 0..4 {
            let config = Config::small(200, None);
            let mounted = Ftl::mount(flash, config, format, Nanos::ZERO);
            let (mut ftl, mounted) = mounted.expect("it starts");
            ftl.finish_mount();
            let spare = |ftl: &Ftl| ftl.journal.spares(GEOMETRY.pages_per_block)[0];
            let listed = [&[], &bad[..]][usize::from(restart > 0)];
            assert_eq!(ftl.journal.bad, listed, "restart {restart}");
            assert_eq!(spare(&ftl).left as usize, 3 - listed.len());
            let mut now = mounted.done;
            for _ in 0..ftl.journal.anchors.len() as u32 * GEOMETRY.pages_per_block {
                now = ftl.write_root(now).expect("three anchors are left");
            }
            assert_eq!(ftl.journal.bad, bad, "restart {restart}");
            assert_eq!(spare(&ftl).left, 1);
            let retired = bad.len() - listed.len();
            assert_eq!(ftl.stats.retired as usize, retired, "restart {restart}");
            flash = ftl.into_flash();
        }
    }

    /// Fails if the length of a root's part wraps around.
    #[test]
    fn a_root_in_large_pages_comes_back() {
        let geometry = Geometry {
            page_bytes: 1 << 17,
            ..GEOMETRY
        };
        let mount = |flash| Ftl::mount(flash, Config::small(200, None), Format::NONE, Nanos::ZERO);
        let (mut ftl, _) = mount(Box::new(chip(geometry))).expect("it is blank");
        ftl.finish_mount();
        let blob: Vec<u8> = (0..200_000).map(|at| at as u8).collect();
        ftl.checkpoint(Nanos::ZERO, blob.clone())
            .expect("there is room");
        let (_, mounted) = mount(ftl.into_flash()).expect("it starts");
        assert!(mounted.blob == blob, "{} bytes", mounted.blob.len());
    }

    /// Fails if a log that the settings lack is read: a refresh of its blocks would find no lane.
    #[test]
    fn a_device_with_more_logs_than_its_settings_is_refused() {
        let mount = |flash, logs| {
            let format = Format {
                persist_map: true,
                logs,
                ..Format::NONE
            };
            Ftl::mount(flash, Config::small(200, None), format, Nanos::ZERO)
        };
        let (mut ftl, _) = mount(Box::new(chip(GEOMETRY)), 2).expect("it is blank");
        ftl.finish_mount();
        ftl.log(Nanos::ZERO, 1, b"entry").expect("there is room");
        let flash = ftl.into_flash();
        let FtlError::Foreign(why) = mount(flash, 1).err().expect("it is refused") else {
            panic!("it is refused for another reason");
        };
        assert!(why.contains("log 1"), "{why}");
    }
}
