//! Tables of a device at rest, as bytes, so that the next start need not rebuild them.
//!
//! The owner of a device saves them when it closes the device, and returns them when it opens it
//! again. They describe a flash that was not written since. They are optional: without them a start
//! reads the blocks.
//!
//! ```text
//!   tables    | rest | entry 4 of each logical page | block 4 of each block | of the protocol |
//!   block     erases, and in the highest bit whether it was written since
//! ```

use super::{BlockState, Ftl, FtlError, Header, Mounted, SLOT_BYTES, Slot, TAIL_BYTES_MAX, header};
use crate::layout;
use crate::layout::{get, put};
use crate::units::Lpn;
use std::ops::Range;

layout! {
    /// The head of the tables of a device at rest.
    pub rest: 24 => {
        PAGES:      4, "logical pages";
        BLOCKS:     4, "blocks";
        SEQ:        8, "the last write sequence";
        GENERATION: 8, "the newest root";
    }
}

const WRITTEN: u32 = 1 << 31;

fn foreign<T>(what: &str) -> Result<T, FtlError> {
    Err(FtlError::Foreign(format!(
        "its tables at rest are wrong: {what}"
    )))
}

/// The tables of a device at rest, without the mapping table, which the mount has taken.
///
/// ```
/// use flagstone::ftl::{Cause, Config, Format, Ftl, FtlError, PageKind, Slot, Stream};
/// use flagstone::nand::Chip;
/// use flagstone::units::{Lpn, Nanos};
///
/// let (flash, config, mut format) = (Box::new(Chip::default()), Config::default(), Format::NONE);
/// format.rests = true;
/// let (mut ftl, mounted) = Ftl::mount(flash, config, format, Nanos::ZERO)?;
/// ftl.finish_mount();
/// let (to, page) = ((Stream::Host, None), (PageKind::Data, Lpn(7), None));
/// let written = ftl.append(mounted.done, to, page, &[], b"seven", Cause::Host)?;
/// ftl.set_slot(Lpn(7), Slot::Page(written.at));
/// ftl.sync(mounted.done, written.done)?;
///
/// // The next mount takes the tables and scans no block.
/// let tables = ftl.rest();
/// let flash = ftl.into_flash();
/// let (mut ftl, mounted) = Ftl::mount_at_rest(flash, config, format, Nanos::ZERO, tables)?;
/// let resting = mounted.rest.as_ref().expect("the tables fit");
/// ftl.resume(&mounted, resting)?;
/// assert_eq!(ftl.slot(Lpn(7)), Slot::Page(written.at));
/// # Ok::<(), FtlError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resting {
    head: [u8; rest::SIZE],
    /// The words of the blocks, and the owner's tables.
    others: Vec<u8>,
}

impl Resting {
    /// Splits tables into the mapping table and all others. `None` if they do not fit the size of
    /// the device.
    pub(super) fn split(
        mut tables: Vec<u8>,
        pages: u32,
        blocks: u32,
    ) -> Option<(Vec<u8>, Resting)> {
        let map = mapping_table_in(&tables, pages as usize, blocks as usize)?;
        let others = tables.split_off(map.end);
        let mut head = [0; rest::SIZE];
        head.copy_from_slice(&tables[..rest::SIZE]);
        // Keeps the mapping table in place: it is the largest part.
        tables.drain(..map.start);
        Some((tables, Resting { head, others }))
    }
}

/// The range of the mapping table, if the tables fit the size of the device.
fn mapping_table_in(tables: &[u8], pages: usize, blocks: usize) -> Option<Range<usize>> {
    let is_of = |field, count: usize| get(tables, field) == count as u64;
    let end = rest::SIZE + pages * SLOT_BYTES;
    let is_whole = tables.len() >= end + blocks * SLOT_BYTES;
    let is_its = is_whole && is_of(rest::PAGES, pages) && is_of(rest::BLOCKS, blocks);
    is_its.then_some(rest::SIZE..end)
}

impl Ftl {
    /// The tables, valid once everything in them is durable. The owner appends its own.
    pub fn rest(&self) -> Vec<u8> {
        self.rest_with(self.map.bytes().to_vec())
    }

    /// Like [`Ftl::rest`], but moves the mapping table instead of copying it, to save memory.
    /// Afterwards the layer may only be dropped or return its flash.
    pub fn rest_for_good(&mut self) -> Vec<u8> {
        let map = self.map.take_bytes();
        self.rest_with(map)
    }

    /// The tables of a device at rest, around the bytes of its mapping table.
    fn rest_with(&self, map: Vec<u8>) -> Vec<u8> {
        let mut head = [0; rest::SIZE];
        put(&mut head, rest::PAGES, (map.len() / SLOT_BYTES) as u64);
        put(&mut head, rest::BLOCKS, self.blocks.len().into());
        put(&mut head, rest::SEQ, self.seq);
        put(&mut head, rest::GENERATION, self.journal.generation());
        let mut bytes = map;
        bytes.reserve_exact(rest::SIZE + self.blocks.len() as usize * SLOT_BYTES);
        bytes.splice(0..0, head);
        for id in self.blocks.ids() {
            let erases = self.blocks.erases_of(id);
            let written = match self.blocks.state(id) {
                BlockState::Free | BlockState::Zone | BlockState::Bad | BlockState::Meta => 0,
                _ => WRITTEN,
            };
            bytes.extend((erases & !WRITTEN | written).to_le_bytes());
        }
        bytes
    }

    /// Ends the mount with the tables that were given to [`Ftl::mount_at_rest`], instead of a scan.
    /// Returns the owner's tables.
    ///
    /// # Errors
    /// The tables belong to another state of the device.
    pub fn resume<'a>(
        &mut self,
        mounted: &Mounted,
        tables: &'a Resting,
    ) -> Result<&'a [u8], FtlError> {
        let (blocks, owner) = tables.others.split_at(self.blocks.len() as usize * 4);
        let head = &tables.head;
        if get(head, rest::GENERATION) != self.journal.generation() || !mounted.logs.is_empty() {
            return foreign("a root or a log is newer");
        }
        self.seq = self.seq.max(get(head, rest::SEQ));
        self.doubt_map()?;
        for (id, word) in self.blocks.ids().zip(blocks.as_chunks().0) {
            let word = u32::from_le_bytes(*word);
            self.blocks.erases[id.index()] = word & !WRITTEN;
            if word & WRITTEN != 0 {
                if self.blocks.state(id) != BlockState::Free {
                    return foreign("they have data where roots or bad blocks are");
                }
                self.blocks.fill(id);
            }
        }
        self.revive_mapped()?;
        self.finish_mount();
        Ok(owner)
    }

    /// Compares tables of a device at rest with the state that a start has rebuilt without them. If
    /// a page of a live transaction was copied and its block is not erased yet, one may refer to
    /// the page and the other to its copy: both are the same version.
    ///
    /// # Errors
    /// Describes the difference.
    pub fn compare_with_rest(&self, tables: &[u8]) -> Result<(), String> {
        let map = mapping_table_in(tables, self.map.words().len(), self.blocks.len() as usize);
        let Some(map) = map else {
            return Err("the tables at rest are of a device of another size, or end early".into());
        };
        let said = tables[map].as_chunks().0;
        let mut all = said.iter().zip(self.map.words());
        match all.position(|(said, is)| said != is && !self.are_same_version(*said, *is)) {
            Some(at) => Err(format!(
                "the tables at rest have logical page {} elsewhere",
                Lpn(at as u32)
            )),
            None => Ok(()),
        }
    }

    /// Whether two entries of the mapping table refer to copies of one version.
    fn are_same_version(&self, one: [u8; SLOT_BYTES], other: [u8; SLOT_BYTES]) -> bool {
        let record = self.record_bytes();
        let version = |word| {
            let at = Slot::decode(u32::from_le_bytes(word)).ppn();
            let at = at.filter(|at| at.0 < self.geometry.pages())?;
            let mut spare = [0xff; header::SIZE + TAIL_BYTES_MAX];
            self.peek_page(at, &mut [], &mut spare[..record])?;
            Header::parse(&spare).is_some().then_some(spare)
        };
        version(one).is_some_and(|one| Some(one) == version(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(pages: u32, blocks: u32) -> Vec<u8> {
        let mut tables = vec![0; rest::SIZE];
        put(&mut tables, rest::PAGES, pages.into());
        put(&mut tables, rest::BLOCKS, blocks.into());
        put(&mut tables, rest::SEQ, 77);
        tables.extend((0..pages * 4).map(|at| at as u8));
        tables.extend((0..blocks * 4).map(|_| 9));
        tables.extend(b"owner");
        tables
    }

    #[test]
    fn the_mapping_table_stays_in_the_memory_that_it_was_read_into() {
        let all = tables(20, 3);
        let (copy, memory) = (all.clone(), all.as_ptr());
        let (map, others) = Resting::split(all, 20, 3).expect("it is of this size");
        assert_eq!(map.as_ptr(), memory);
        assert_eq!(map, copy[rest::SIZE..rest::SIZE + 80]);
        assert_eq!(get(&others.head, rest::SEQ), 77);
        assert_eq!(others.others, [&[9; 12][..], b"owner"].concat());
    }

    #[test]
    fn tables_of_another_size_are_not_taken() {
        for (pages, blocks) in [(19, 3), (21, 3), (20, 2), (20, 4)] {
            assert_eq!(Resting::split(tables(20, 3), pages, blocks), None);
        }
        let mut short = tables(20, 3);
        short.truncate(rest::SIZE + 92);
        assert!(
            Resting::split(short.clone(), 20, 3).is_some(),
            "the owner adds nothing"
        );
        short.pop();
        assert_eq!(Resting::split(short, 20, 3), None);
        assert_eq!(Resting::split(Vec::new(), 0, 0), None);
    }
}
