//! A store that gives back the room which it does not need, in place.

use super::room::OPEN_BLOCKS;
use super::{FIRST_BLOCKS, PageStore};
use crate::error::StoreError;
use crate::flash::mark_page;
use crate::tools::has_pages;
use flagstone::commit::Aim;
use flagstone::ftl::BlockState;
use flagstone::nand::FlashError;
use flagstone::units::Pbn;
use std::sync::Arc;

/// Of a block, the part that is live at least once the store was compacted: where it is less, the
/// live pages move.
const DENSE_SHARE: f64 = 0.75;

impl PageStore {
    /// Moves what the store holds to the front, so that it has no more blocks than it needs, and
    /// cuts its file. Returns how many bytes of the file are gone. Pages keep their numbers: a
    /// store has room for its highest one, so that it stays as large as that one needs.
    ///
    /// Nothing happens while a transaction lives, while a snapshot shows what has been overwritten
    /// since, and on a block device, which keeps its size. Stores with another protocol than `seal`
    /// stay as they are. A power cut at any time leaves all that was committed.
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
        self.may_write()?;
        let before = self.info().bytes;
        let blocks = self.least_blocks().min(self.device.geometry().blocks());
        self.shrink_to(blocks)?;
        Ok(before - self.info().bytes)
    }

    /// Compacts the device to so many blocks. Returns whether it was possible.
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

    /// The fewest blocks that hold what the store holds, and leave its collector what it needs.
    fn least_blocks(&self) -> u32 {
        let (ftl, geometry) = (self.device.ftl(), self.device.geometry());
        let is_other = |&block: &u32| {
            let state = ftl.block_state(Pbn(block));
            matches!(state, BlockState::Meta | BlockState::Bad)
        };
        let others = (0..geometry.blocks()).filter(is_other).count() as u64;
        let holds = self.held().count() as u64 + self.promised;
        let full = holds.div_ceil(ftl.data_pages_per_block().into());
        // One more: the last of the full ones may not be.
        let kept = u64::from(ftl.collects_below() + OPEN_BLOCKS + 1);
        let least = (others + full + kept).max(FIRST_BLOCKS.into());
        let (mut low, mut high) = (least as u32, geometry.blocks().max(least as u32));
        let top = self.highest().map_or(0, |at| at.0 + 1);
        let protocol = self.opened.superblock.protocol;
        let reaches = |blocks| has_pages(protocol, geometry.pages_per_block, blocks, top);
        while low < high {
            let middle = low + (high - low) / 2;
            match reaches(middle) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        low
    }
}
