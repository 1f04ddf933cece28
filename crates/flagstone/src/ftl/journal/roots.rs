//! Writes of roots to the anchors, in turn.

use super::image::RootImage;
use super::{MAGIC, MetaState, root_part};
use crate::ftl::horizon::Programmed;
use crate::ftl::{BlockState, Cause, Ftl, FtlError, Header, Operation, PageKind, header};
use crate::layout::{get, put};
use crate::nand::FlashError;
use crate::units::{Lpn, Nanos};

impl Ftl {
    /// Writes a root of the present state. Returns when it is durable.
    pub(in crate::ftl) fn write_root(&mut self, now: Nanos) -> Result<Nanos, FtlError> {
        let in_pool = self.journal.pool.iter().map(|block| block.block);
        let in_pool = in_pool.chain(self.journal.promised.iter().copied());
        let image = RootImage {
            log_from: self.journal.log_from,
            bad: self.journal.bad.clone(),
            directory: self.journal.directory.clone(),
            blob: self.journal.blob.clone(),
            pool: self.journal.is_named.then(|| in_pool.collect()),
        };
        let bytes = image.emit();
        // The length of a part has two bytes.
        let room = (self.geometry.page_bytes as usize - root_part::SIZE).min(u16::MAX.into());
        let mut now = now.max(self.journal.durable);
        // Each failed attempt uses up an anchor, or some of its pages.
        for _ in 0..4 {
            self.journal.generation += 1;
            let mut anchors = Vec::new();
            match self.write_parts(now, &mut anchors, &bytes, room)? {
                Ok(done) => {
                    self.journal.root_in = anchors;
                    self.journal.durable = self.sync(now, done)?;
                    return Ok(self.journal.durable);
                }
                Err(failed) => now = failed,
            }
        }
        Err(FtlError::MetaFull)
    }

    /// Writes all parts of a root. Returns the anchors that hold them; the inner error is the time
    /// at which a part failed.
    fn write_parts(
        &mut self,
        now: Nanos,
        anchors: &mut Vec<usize>,
        bytes: &[u8],
        room: usize,
    ) -> Result<Result<Nanos, Nanos>, FtlError> {
        let parts = bytes.len().div_ceil(room);
        let (mut now, mut durable) = (now, now);
        for (part, contents) in bytes.chunks(room).enumerate() {
            // A root that fits into a block stays in one.
            let wanted = match part {
                0 => (parts as u32).min(self.pairs.meta_pages.len() as u32),
                _ => 1,
            };
            let (anchor, erased) = self.anchor_with_room(now, wanted, anchors)?;
            if anchors.last() != Some(&anchor) {
                anchors.push(anchor);
            }
            (now, durable) = (erased, durable.max(erased));
            let mut data = vec![0; root_part::SIZE];
            put(&mut data, root_part::MAGIC, MAGIC);
            put(&mut data, root_part::GENERATION, self.journal.generation);
            put(&mut data, root_part::PART, part as u64);
            put(&mut data, root_part::PARTS, parts as u64);
            put(&mut data, root_part::BYTES, contents.len() as u64);
            data.extend_from_slice(contents);
            let seq = self.next_seq();
            let mut spare = [0xff; header::SIZE];
            Header {
                kind: PageKind::Root,
                lpn: Lpn(part as u32),
                seq,
            }
            .emit(&mut spare);
            let entry = &mut self.journal.anchors[anchor];
            let page = self.pairs.meta_pages[entry.next as usize];
            let at = self.geometry.page(entry.block, page);
            entry.next += 1;
            self.stats.add(Operation::Program, Cause::Mapping);
            let what = if part + 1 == parts {
                Programmed::Root(self.journal.generation)
            } else {
                Programmed::Other
            };
            match self.program_checked(now, at, &data, &spare, what) {
                Ok(done) => durable = durable.max(done),
                Err(FlashError::ProgramFailed { done, .. }) => {
                    self.journal.anchors[anchor].state = MetaState::Full;
                    self.journal.anchor_open = None;
                    return Ok(Err(done));
                }
                Err(other) => return Err(other.into()),
            }
        }
        Ok(Ok(durable))
    }

    /// An anchor with room for `pages` pages: the open one, or the next one, erased, that holds
    /// neither the current root nor the one being written.
    fn anchor_with_room(
        &mut self,
        now: Nanos,
        pages: u32,
        taken: &[usize],
    ) -> Result<(usize, Nanos), FtlError> {
        if let Some(open) = self.journal.anchor_open {
            if self.journal.anchors[open].next + pages <= self.pairs.meta_pages.len() as u32 {
                return Ok((open, now));
            }
            self.journal.anchors[open].state = MetaState::Full;
            self.journal.anchor_open = None;
        }
        let count = self.journal.anchors.len();
        let first = taken
            .last()
            .or(self.journal.root_in.last())
            .map_or(0, |i| i + 1);
        for step in 0..count {
            let index = (first + step) % count;
            if self.journal.root_in.contains(&index)
                || taken.contains(&index)
                || self.journal.anchors[index].state == MetaState::Bad
            {
                continue;
            }
            let block = self.journal.anchors[index].block;
            if let Some(done) = self.erase(now, block, Cause::Mapping)? {
                self.journal.anchors[index].state = MetaState::Open;
                self.journal.anchors[index].next = 0;
                self.journal.anchor_open = Some(index);
                // Later programs exist only if the erase has landed. A root must not be older than
                // the one it replaces.
                return Ok((index, self.sync(now, done)?));
            }
            self.journal.anchors[index].state = MetaState::Bad;
            self.journal.bad.push(block);
            self.blocks.set_state(block, BlockState::Bad);
            self.stats.retired += 1;
        }
        Err(FtlError::MetaFull)
    }

    /// Parses the part of a root: generation, index, number of parts, contents.
    pub(in crate::ftl) fn parse_root_part(data: &[u8]) -> Option<(u64, usize, usize, &[u8])> {
        if data.len() < root_part::SIZE || get(data, root_part::MAGIC) != MAGIC {
            return None;
        }
        let bytes = get(data, root_part::BYTES) as usize;
        let contents = data.get(root_part::SIZE..root_part::SIZE + bytes)?;
        Some((
            get(data, root_part::GENERATION),
            get(data, root_part::PART) as usize,
            get(data, root_part::PARTS) as usize,
            contents,
        ))
    }
}
