//! Compacts a store in place, so that it gives back room that it does not need.

use super::room::{OPEN_BLOCKS, PAGE};
use super::{FIRST_BLOCKS, PageStore};
use crate::error::StoreError;
use crate::flash::{mark_page, thin};
use crate::tools::{first, has_pages};
use flagstone::commit::Aim;
use flagstone::ftl::BlockState;
use flagstone::nand::FlashError;
use flagstone::units::Pbn;
use std::sync::Arc;

/// Minimum share of live pages in a block of a compacted store. Live pages of sparser blocks move.
const DENSE_SHARE: f64 = 0.75;

/// Allowed bytes of a compacted store beyond twice its contents. A larger store gives back the room
/// of its free pages.
const ROOM_BESIDE: u64 = 1 << 20;

/// Idle work compacts a store that holds at most this many pages for each page it may move. Larger
/// stores wait until their call allows more.
pub(crate) const LEISURE: u64 = 64;

impl PageStore {
    /// Moves live data to the front and truncates the file to the blocks that the store needs.
    /// Returns the number of bytes removed. Page numbers do not change, and the store keeps room
    /// for its highest page number.
    ///
    /// Does nothing while a transaction is live, while a snapshot shows overwritten pages, and on a
    /// block device, whose size is fixed. Supported by protocol `seal` only. A power cut at any
    /// time leaves all committed data.
    ///
    /// ```
    /// # use flagstone::units::Lpn;
    /// # use flagstone_store::{OpenOptions, PageStore, medium::Memory};
    /// # let mut store = PageStore::on(Box::new(Memory::default()), &OpenOptions::default())?;
    /// for first in (0..20_000).step_by(100) {
    ///     let tx = store.begin()?;
    ///     for at in first..first + 100 {
    ///         store.write(tx, Lpn(at), b"some bytes")?;
    ///     }
    ///     store.commit(tx)?;
    /// }
    /// let tx = store.begin()?;
    /// for at in 100..20_000 {
    ///     store.trim(tx, Lpn(at))?;
    /// }
    /// store.commit(tx)?;
    /// let bytes = store.info().bytes;
    /// assert_eq!(store.compact()?, bytes - store.info().bytes);
    /// assert!(store.info().bytes < bytes / 8);
    /// # Ok::<(), flagstone_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// The store was opened for reading, or the medium fails.
    pub fn compact(&mut self) -> Result<u64, StoreError> {
        self.may_write_now()?;
        if !self.can_compact() {
            return Ok(0);
        }
        self.promised = 0;
        self.compact_now()
    }

    fn compact_now(&mut self) -> Result<u64, StoreError> {
        let before = self.info().bytes;
        let blocks = self.least_blocks().min(self.device.geometry().blocks());
        let is_done = self.shrink_to(blocks)?;
        let (info, holds) = (self.info(), self.held().count() as u64 * PAGE);
        if is_done && info.bytes > 2 * holds + ROOM_BESIDE {
            self.give_room_back()?;
            self.is_thin = thin::is_thin(self.places.medium(), info.blocks);
        }
        Ok(before - info.bytes)
    }

    /// Compacts the store in idle time, if compaction would shrink it and it holds at most
    /// [`LEISURE`] pages for each of the `pages` that may move. Decides once for each state: not
    /// again until something was written.
    pub(super) fn compact_at_leisure(&mut self, pages: u32) -> Result<(), StoreError> {
        let newest = self.device.ftl().last_seq();
        if self.left_alone_at == newest || !self.can_compact() {
            return Ok(());
        }
        let holds = self.held().count() as u64;
        if holds > u64::from(pages) * LEISURE {
            return Ok(());
        }
        self.left_alone_at = newest;
        let (blocks, of_block) = (
            self.device.geometry().blocks(),
            f64::from(self.device.ftl().data_pages_per_block()),
        );
        // Blocks for the dead pages that the bound allows: the store would soon grow by them again.
        let spared = (holds as f64 / of_block * (1.0 / self.fill - 1.0)) as u32;
        let large = self.least_blocks() + spared + self.next_blocks();
        if blocks > large {
            self.compact_now()?;
            self.left_alone_at = self.device.ftl().last_seq();
        }
        Ok(())
    }

    /// Discards the room of blocks that are erased or were never written, and of pages that are
    /// blank in others. A compacted store may still have many such blocks: as many as its highest
    /// page number and the collector need.
    fn give_room_back(&mut self) -> Result<(), StoreError> {
        self.discard()?;
        let geometry = *self.device.geometry();
        let places = Arc::clone(&self.places);
        // An encrypted store signs the marks of blocks that were never written.
        let keeps_marks = self.keyed.has_key();
        for block in (0..geometry.blocks()).map(Pbn) {
            let mark = mark_page(geometry.pages_per_block, block.0);
            let is_free = self.device.ftl().blocks().state(block) == BlockState::Free;
            let (first, pages) = match (places.may_be_written(block, mark), is_free) {
                // An erased block: `discard` has given back what it could.
                (true, true) => continue,
                // A block in use: only its blank pages.
                (true, false) => self.blank_in(block),
                // A block that was never written.
                (false, _) if keeps_marks => (mark + 1, geometry.pages_per_block),
                (false, _) => (mark, geometry.pages_per_block + 1),
            };
            if pages > 0 {
                // A failure is harmless: the store keeps the space.
                let offset = first * PAGE;
                let given = places.medium().discard(offset, u64::from(pages) * PAGE);
                self.has_holes |= given.unwrap_or(false);
            }
        }
        Ok(())
    }

    /// The pages of an open or early-ended block that were not written since its erase: the first
    /// one's place on the medium, and their number.
    fn blank_in(&self, block: Pbn) -> (u64, u32) {
        let (ftl, geometry) = (self.device.ftl(), self.device.geometry());
        let is_blank = |page: u32| {
            let mut spare = [0; 1];
            let found = ftl.peek(geometry.page(block, page), &mut [], &mut spare);
            found.is_some() && spare == [0xff]
        };
        let last = geometry.pages_per_block - 1;
        let end = if is_blank(last) { last + 1 } else { last };
        let begin = (0..end).rev().find(|&page| !is_blank(page));
        let begin = begin.map_or(0, |page| page + 1);
        let mark = mark_page(geometry.pages_per_block, block.0);
        (mark + 1 + u64::from(begin), end - begin)
    }

    /// Whether [`PageStore::compact`] can work now: no transaction is live, and no snapshot shows
    /// replaced pages.
    pub fn can_compact(&self) -> bool {
        let (_, retained) = self.device.ftl().snapshots().counts();
        self.may_write().is_ok() && self.device.live().next().is_none() && retained == 0
    }

    /// Moves data out of the blocks from number `blocks` on, and removes these. Blocks that stay
    /// are collected until they are dense. Returns whether the device has shrunk.
    fn shrink_to(&mut self, blocks: u32) -> Result<bool, StoreError> {
        let dense = f64::from(self.device.ftl().data_pages_per_block()) * DENSE_SHARE;
        let aim = Aim::new(blocks, dense as u32);
        let places = Arc::clone(&self.places);
        let of_block = self.device.geometry().pages_per_block;
        let compacted = self.device.compact(self.now, aim, &mut |block| {
            places.may_be_written(block, mark_page(of_block, block.0))
        });
        let is_done = self.translate(compacted)?;
        let carried = places.carry_out();
        self.translate(
            carried.map_err(|error: FlashError| flagstone::commit::DeviceError::Ftl(error.into())),
        )?;
        self.in_service = self.in_service();
        self.highest = self.highest().map_or(0, |at| at.0);
        Ok(is_done)
    }

    /// The minimum number of blocks for the store's contents and its collector.
    fn least_blocks(&self) -> u32 {
        let (ftl, geometry) = (self.device.ftl(), self.device.geometry());
        let is_other = |&block: &u32| {
            let state = ftl.blocks().state(Pbn(block));
            matches!(state, BlockState::Meta | BlockState::Bad)
        };
        let others = (0..geometry.blocks()).filter(is_other).count() as u64;
        let holds = self.held().count() as u64 + self.promised;
        let full = holds.div_ceil(ftl.data_pages_per_block().into());
        // One more, as the last full block may be partly filled.
        let kept = u64::from(ftl.collects_below() + OPEN_BLOCKS + 1);
        let least = (others + full + kept).max(FIRST_BLOCKS.into());
        // The device must also contain the highest page, however few pages there are.
        let top = self.highest().map_or(0, |at| at.0 + 1);
        let protocol = self.opened.superblock.protocol;
        let reaches = |blocks| has_pages(protocol, geometry.pages_per_block, blocks, top);
        first(least as u32..=geometry.blocks(), reaches)
    }
}
