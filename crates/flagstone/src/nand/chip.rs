//! The perfect device: bytes, rules, time and wear, all in flat arrays.
//!
//! Data bytes are kept only for pages that were programmed with data. So a trace over a large
//! device costs a spare record and a counter per page. A block's summary page repeats the spare
//! areas of the block: the chip detects this, compares byte by byte, and keeps a flag instead of a
//! second copy. A summary may have one more word per page; these words are copied.

mod pages;
#[cfg(test)]
mod tests;

use super::timing::Timelines;
use super::{Addresses, Busy, Contents, Flash, FlashError, Geometry, Read, Timing};
use crate::units::{Nanos, Pbn, Ppn};
use pages::{BlockData, Pages};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes per page that a summary may have beyond the spare area.
const SUMMARY_WORD: usize = 4;

/// Damage of a page, stored beside its bytes.
///
/// Example: [`Change`](super::Change).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// More bit errors than the ECC corrects: it cannot be read.
    Unreadable,
    /// The page looks blank, but a program of it cannot be read back.
    Weak,
}

/// A simulated NAND device without faults. Example: [`nand`](crate::nand).
#[derive(Debug, Clone)]
pub struct Chip {
    geometry: Geometry,
    addresses: Addresses,
    time: Timelines,
    copies: bool,
    /// Bytes of each spare area that are kept.
    spare_kept: usize,
    /// Programs since the last erase, a page each.
    programs: Vec<u8>,
    /// Spare areas, `spare_kept` bytes a page.
    spare: Vec<u8>,
    data: Pages,
    /// Whether [`Flash::forget`] drops the bytes of a page at once.
    forgets: bool,
    /// For a block whose last page is a summary: bytes of each spare area that the summary repeats.
    /// 0 for other blocks.
    summary: Vec<u16>,
    erases: Vec<u32>,
    /// By block: the next page that strict program order allows.
    next_page: Vec<u16>,
    factory_bad: Vec<Pbn>,
    /// Blocks that no longer erase.
    worn_out: BTreeSet<Pbn>,
    damage: BTreeMap<Ppn, Damage>,
}

impl Default for Chip {
    /// A blank device of [`Geometry::default`] and [`Timing::default`] that keeps the first 64
    /// bytes of each spare area, which is enough for every protocol.
    fn default() -> Self {
        Chip::new(Geometry::default(), Timing::default(), 64)
    }
}

impl Chip {
    /// A blank device that keeps `spare_kept` bytes of each spare area.
    ///
    /// # Panics
    /// When the geometry is not valid or keeps more spare bytes than it has.
    pub fn new(geometry: Geometry, timing: Timing, spare_kept: usize) -> Self {
        geometry
            .validate()
            .expect("the geometry was checked where it was read");
        assert!(
            spare_kept <= geometry.spare_bytes as usize,
            "{spare_kept} bytes do not fit a spare area of {}",
            geometry.spare_bytes
        );
        let (pages, blocks) = (geometry.pages() as usize, geometry.blocks() as usize);
        Chip {
            time: Timelines::new(&geometry, timing),
            copies: false,
            spare_kept,
            programs: vec![0; pages],
            spare: vec![0xff; pages * spare_kept],
            data: Pages::new(&geometry),
            forgets: false,
            summary: vec![0; blocks],
            erases: vec![0; blocks],
            next_page: vec![0; blocks],
            factory_bad: Vec::new(),
            worn_out: BTreeSet::new(),
            damage: BTreeMap::new(),
            addresses: Addresses::new(&geometry),
            geometry,
        }
    }

    /// Marks blocks as bad from the factory.
    #[must_use]
    pub fn with_factory_bad(mut self, mut blocks: Vec<Pbn>) -> Self {
        blocks.sort();
        blocks.dedup();
        assert!(blocks.iter().all(|b| b.0 < self.geometry.blocks()));
        self.factory_bad = blocks;
        self
    }

    /// Enables copies within a plane, which bypass the channel.
    #[must_use]
    pub fn with_copy_back(mut self) -> Self {
        self.copies = true;
        self
    }

    /// Drops the bytes of a page as soon as the layer above says that it will not read them again,
    /// instead of at the erase. Memory then grows with the number of live pages, not with the
    /// device. Only for runs without power cuts.
    #[must_use]
    pub fn with_forgetting(mut self) -> Self {
        self.forgets = true;
        self
    }

    /// Latencies of this device.
    pub fn timing(&self) -> &Timing {
        self.time.timing()
    }

    /// Resets virtual time, with every plane idle, as after a restart.
    pub fn reset_time(&mut self) {
        self.time.reset();
    }

    /// Time for which planes and channels were occupied since virtual time began.
    pub fn busy(&self) -> Busy {
        self.time.busy()
    }

    /// Erases of each block so far.
    pub fn erase_counts(&self) -> &[u32] {
        &self.erases
    }

    /// Memory use of this model in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let blocks = self.geometry.blocks() as u64;
        self.programs.len() as u64 * 9
            + self.spare.len() as u64
            + blocks * (8 + 2 + 4 + 2 + 16)
            + self.data.memory()
    }

    /// A copy of the state of all cells.
    pub fn contents(&self) -> Contents {
        let at = |block: Pbn, page: usize| Ppn(self.geometry.page(block, 0).0 + page as u32);
        let pages = self.data.iter();
        Contents {
            spare_kept: self.spare_kept,
            programs: self.programs.clone(),
            spare: self.spare.clone(),
            data: pages
                .map(|(block, page, data)| (at(block, page), data.into()))
                .collect(),
            summary: self.summary.clone(),
            erases: self.erases.clone(),
            next_page: self.next_page.clone(),
            factory_bad: self.factory_bad.clone(),
            worn_out: self.worn_out.iter().copied().collect(),
            damage: self
                .damage
                .iter()
                .map(|(&at, &damage)| (at, damage))
                .collect(),
        }
    }

    /// Sets the state of all cells. The caller has checked it against the geometry.
    pub(super) fn set_contents(&mut self, contents: Contents) {
        for (at, bytes) in contents.data {
            let (block, page) = self.addresses.split(at);
            self.data.put(block, page, &bytes);
        }
        self.programs = contents.programs;
        self.spare = contents.spare;
        self.summary = contents.summary;
        self.erases = contents.erases;
        self.next_page = contents.next_page;
        self.factory_bad = contents.factory_bad;
        self.worn_out = contents.worn_out.into_iter().collect();
        self.damage = contents.damage.into_iter().collect();
    }

    /// Whether a page has been programmed since its block was erased.
    #[inline]
    pub fn is_programmed(&self, at: Ppn) -> bool {
        self.programs[at.index()] > 0
    }

    /// The spare area as stored, without a simulated read. For checkers and tools, not for the
    /// layers above.
    pub fn peek_spare(&self, at: Ppn) -> &[u8] {
        let start = at.index() * self.spare_kept;
        &self.spare[start..start + self.spare_kept]
    }

    /// The damage of a page, if it has any.
    pub fn damage(&self, at: Ppn) -> Option<Damage> {
        self.damage.get(&at).copied()
    }

    /// From now on, erases of this block fail.
    pub fn wear_out(&mut self, block: Pbn) {
        self.worn_out.insert(block);
    }

    pub(super) fn set_damage(&mut self, at: Ppn, damage: Option<Damage>) {
        match damage {
            Some(damage) => self.damage.insert(at, damage),
            None => self.damage.remove(&at),
        };
    }

    /// Makes a programmed page blank again, as if it had never been programmed.
    pub(super) fn unprogram(&mut self, at: Ppn, was: Option<Damage>) {
        let block = self.geometry.block_of(at);
        let page = self.geometry.page_in_block(at);
        if page + 1 < self.geometry.pages_per_block {
            self.write_summary_out(block);
        }
        self.programs[at.index()] = 0;
        let start = at.index() * self.spare_kept;
        self.spare[start..start + self.spare_kept].fill(0xff);
        self.data.forget(block, page);
        if page + 1 == self.geometry.pages_per_block {
            self.summary[block.index()] = 0;
        }
        self.set_damage(at, was);
    }

    /// Lets a block continue after its last page: the pages behind it were never programmed.
    pub(super) fn go_on_behind_last(&mut self, block: Pbn) {
        let last = (self.programs[self.pages_of(block)].iter()).rposition(|&times| times > 0);
        self.next_page[block.index()] = last.map_or(0, |last| last as u16 + 1);
    }

    /// Restores bytes of a spare area: a reprogram did not happen, or only in part.
    pub(super) fn unreprogram(&mut self, at: Ppn, offset: usize, bytes: &[u8], programs: u8) {
        let start = at.index() * self.spare_kept + offset;
        self.spare[start..start + bytes.len()].copy_from_slice(bytes);
        self.programs[at.index()] = programs;
    }

    pub(super) fn programs_of(&self, at: Ppn) -> u8 {
        self.programs[at.index()]
    }

    /// Copies everything that an erase destroys, so that a power cut can undo the erase.
    pub(super) fn save_block(&self, block: Pbn) -> SavedBlock {
        let pages = self.pages_of(block);
        SavedBlock {
            block,
            programs: self.programs[pages.clone()].to_vec(),
            spare: self.spare[pages.start * self.spare_kept..pages.end * self.spare_kept].to_vec(),
            data: self.data.block(block),
            summary: self.summary[block.index()],
            next_page: self.next_page[block.index()],
            damage: self
                .damage
                .range(self.page_range(block))
                .map(|(&p, &d)| (p, d))
                .collect(),
        }
    }

    pub(super) fn restore_block(&mut self, saved: SavedBlock) {
        let block = saved.block;
        let pages = self.pages_of(block);
        self.programs[pages.clone()].copy_from_slice(&saved.programs);
        self.spare[pages.start * self.spare_kept..pages.end * self.spare_kept]
            .copy_from_slice(&saved.spare);
        self.data.set_block(block, saved.data);
        self.summary[block.index()] = saved.summary;
        self.next_page[block.index()] = saved.next_page;
        self.clear_damage(block);
        self.damage.extend(saved.damage);
    }

    fn pages_of(&self, block: Pbn) -> std::ops::Range<usize> {
        let start = self.geometry.page(block, 0).index();
        start..start + self.geometry.pages_per_block as usize
    }

    fn page_range(&self, block: Pbn) -> std::ops::Range<Ppn> {
        let pages = self.pages_of(block);
        Ppn(pages.start as u32)..Ppn(pages.end as u32)
    }

    fn clear_damage(&mut self, block: Pbn) {
        if !self.damage.is_empty() {
            let range = self.page_range(block);
            self.damage.retain(|at, _| !range.contains(at));
        }
    }

    /// Stores the data of a page: nothing if it is empty, a flag if it repeats the spare areas of
    /// its block, otherwise the bytes.
    fn keep_data(&mut self, at: Ppn, block: Pbn, page: u32, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let others = self.geometry.pages_per_block as usize - 1;
        let each = bytes.len() / others;
        if page as usize == others && bytes.len() == each * others {
            for more in [0, SUMMARY_WORD] {
                let stride = each.saturating_sub(more);
                let (records, words) = bytes.split_at(stride * others);
                if self.repeats_spares(at.index() - others, records, stride) {
                    self.summary[block.index()] = stride as u16;
                    if !words.is_empty() {
                        self.data.put(block, page, words);
                    }
                    return;
                }
            }
        }
        self.data.put(block, page, bytes);
    }

    /// Whether `records` repeat the first `stride` bytes of the spare areas from page `first` on.
    fn repeats_spares(&self, first: usize, records: &[u8], stride: usize) -> bool {
        let spares = self.spare[first * self.spare_kept..].chunks_exact(self.spare_kept);
        (1..=self.spare_kept).contains(&stride)
            && spares
                .map(|spare| &spare[..stride])
                .zip(records.chunks_exact(stride))
                .all(|(spare, record)| spare == record)
    }

    /// Replaces a summary's flag by its bytes, because the spare areas that it repeats will change.
    fn write_summary_out(&mut self, block: Pbn) {
        let stride = self.summary[block.index()] as usize;
        if stride > 0 {
            let last = self.geometry.pages_per_block - 1;
            let words = self.data.get(block, last).map_or(0, <[u8]>::len);
            let mut bytes = vec![0; stride * last as usize + words];
            self.copy_data(self.geometry.page(block, last), block, last, &mut bytes);
            self.summary[block.index()] = 0;
            self.data.put(block, last, &bytes);
        }
    }

    /// Copies the data of a page into `into`, as far as that reaches. Returns the number of bytes.
    fn copy_data(&self, at: Ppn, block: Pbn, page: u32, into: &mut [u8]) -> usize {
        let others = self.geometry.pages_per_block as usize - 1;
        let stride = self.summary[block.index()] as usize;
        if stride > 0 && page as usize == others {
            let first = at.index() - others;
            let len = (stride * others).min(into.len());
            for (i, record) in into[..len].chunks_mut(stride).enumerate() {
                let start = (first + i) * self.spare_kept;
                record.copy_from_slice(&self.spare[start..start + record.len()]);
            }
            return len + self.copy_kept(block, page, &mut into[len..]);
        }
        self.copy_kept(block, page, into)
    }

    /// Copies the stored bytes of a page, truncated to the length of `into`.
    fn copy_kept(&self, block: Pbn, page: u32, into: &mut [u8]) -> usize {
        let bytes = self.data.get(block, page).unwrap_or_default();
        let len = bytes.len().min(into.len());
        into[..len].copy_from_slice(&bytes[..len]);
        len
    }
}

/// The contents of a block, copied before an erase.
#[derive(Debug, Clone)]
pub(super) struct SavedBlock {
    block: Pbn,
    programs: Vec<u8>,
    spare: Vec<u8>,
    data: Option<BlockData>,
    summary: u16,
    next_page: u16,
    damage: Vec<(Ppn, Damage)>,
}

impl AsMut<Chip> for Chip {
    fn as_mut(&mut self) -> &mut Chip {
        self
    }
}

impl Flash for Chip {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn model(&self) -> Option<&Chip> {
        Some(self)
    }

    fn into_model(self: Box<Self>) -> Option<Chip> {
        Some(*self)
    }

    /// Reads a page. Damage beyond the ECC takes as long to find as a read.
    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        assert!(
            at.0 < self.geometry.pages(),
            "read of page {at}, beyond the device"
        );
        let (block, page) = self.addresses.split(at);
        let plane = self.addresses.plane_of(block);
        let done = (self.time).read(&self.geometry, now, plane, block, at, data.is_empty());
        if !self.damage.is_empty() && self.damage.get(&at) == Some(&Damage::Unreadable) {
            return Err(FlashError::Uncorrectable { at, done });
        }
        let len = spare.len();
        assert!(
            len <= self.spare_kept,
            "read of {len} spare bytes, {} are kept",
            self.spare_kept
        );
        let start = at.index() * self.spare_kept;
        spare.copy_from_slice(&self.spare[start..start + len]);
        let data_bytes = if data.is_empty() {
            0
        } else {
            self.copy_data(at, block, page, data)
        };
        Ok(Read {
            done,
            data_bytes,
            corrected: 0,
        })
    }

    /// Programs a page at once, in bytes, and schedules the operation. Panics if a rule is broken.
    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        assert!(
            at.0 < self.geometry.pages(),
            "program of page {at}, beyond the device"
        );
        let (block, page) = self.addresses.split(at);
        assert!(
            self.programs[at.index()] == 0,
            "program of page {at}, which is not blank"
        );
        assert!(
            data.len() <= self.geometry.page_bytes as usize,
            "program of {} bytes",
            data.len()
        );
        assert!(
            spare.len() <= self.spare_kept,
            "program of {} spare bytes",
            spare.len()
        );
        if self.geometry.strict_order {
            let next = u32::from(self.next_page[block.index()]);
            assert!(
                page >= next,
                "program of page {at} out of order: {page} after {next}"
            );
        }
        self.next_page[block.index()] = page as u16 + 1;
        self.programs[at.index()] = 1;
        let start = at.index() * self.spare_kept;
        self.spare[start..start + spare.len()].copy_from_slice(spare);
        self.keep_data(at, block, page, data);
        // The page was weak: it looked blank, and cannot be read back.
        if !self.damage.is_empty() && self.damage.contains_key(&at) {
            self.damage.insert(at, Damage::Unreadable);
        }
        let plane = self.addresses.plane_of(block);
        Ok(self.time.program(&self.geometry, now, plane, block, at))
    }

    /// Clears bits of a spare area. A summary of the block that repeats them keeps the old bytes.
    fn reprogram(
        &mut self,
        now: Nanos,
        at: Ppn,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Nanos, FlashError> {
        assert!(
            at.0 < self.geometry.pages(),
            "reprogram of page {at}, beyond the device"
        );
        assert!(
            self.geometry.can_reprogram(),
            "reprogram of page {at}: this device cannot"
        );
        let programs = self.programs[at.index()];
        assert!(programs > 0, "reprogram of page {at}, which is blank");
        let level = self.geometry.cell.programs_per_page();
        assert!(
            programs < level,
            "reprogram of page {at}, {programs} times programmed already"
        );
        assert!(
            offset + bytes.len() <= self.spare_kept,
            "reprogram beyond the spare area"
        );
        let block = self.geometry.block_of(at);
        if offset < self.summary[block.index()] as usize {
            self.write_summary_out(block);
        }
        let start = at.index() * self.spare_kept + offset;
        for (old, &new) in self.spare[start..start + bytes.len()].iter_mut().zip(bytes) {
            assert!(
                *old & new == new,
                "reprogram of page {at} would set bits: {old:08b} {new:08b}"
            );
            *old = new;
        }
        self.programs[at.index()] = programs + 1;
        let plane = self.addresses.plane_of(block);
        Ok(self.time.reprogram(now, plane, block, at))
    }

    /// Erases a block, unless it is worn out: then it keeps its contents.
    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        assert!(
            block.0 < self.geometry.blocks(),
            "erase of block {block}, beyond the device"
        );
        assert!(
            !self.is_factory_bad(block),
            "erase of block {block}, bad from the factory"
        );
        let plane = self.addresses.plane_of(block);
        if !self.worn_out.is_empty() && self.worn_out.contains(&block) {
            let done = self.time.erase(now, plane, block);
            return Err(FlashError::EraseFailed { block, done });
        }
        let pages = self.pages_of(block);
        self.programs[pages.clone()].fill(0);
        self.spare[pages.start * self.spare_kept..pages.end * self.spare_kept].fill(0xff);
        self.data.drop_block(block);
        self.summary[block.index()] = 0;
        self.next_page[block.index()] = 0;
        self.erases[block.index()] += 1;
        self.clear_damage(block);
        Ok(self.time.erase(now, plane, block))
    }

    fn sync(&mut self, now: Nanos, until: Nanos) -> Result<Nanos, FlashError> {
        Ok(now.max(until))
    }

    fn is_factory_bad(&self, block: Pbn) -> bool {
        !self.factory_bad.is_empty() && self.factory_bad.binary_search(&block).is_ok()
    }

    fn reached(&mut self, now: Nanos) {
        self.time.reached(now);
    }

    fn forget(&mut self, at: Ppn) {
        if self.forgets {
            let (block, page) = self.addresses.split(at);
            self.data.forget(block, page);
        }
    }

    fn copies_inside(&self) -> bool {
        self.copies
    }

    fn read_inside(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        self.time.inside(true);
        let read = self.read(now, at, data, spare);
        self.time.inside(false);
        read
    }

    fn program_inside(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.time.inside(true);
        let programmed = self.program(now, at, data, spare);
        self.time.inside(false);
        programmed
    }

    #[inline]
    fn hint(&self, at: Ppn) -> Option<&[u8]> {
        Some(self.peek_spare(at))
    }

    fn peek(&self, at: Ppn, data: &mut [u8], spare: &mut [u8]) -> Option<usize> {
        if self.damage.get(&at) == Some(&Damage::Unreadable) {
            return None;
        }
        spare.copy_from_slice(&self.peek_spare(at)[..spare.len()]);
        let (block, page) = self.addresses.split(at);
        Some(self.copy_data(at, block, page, data))
    }
}
