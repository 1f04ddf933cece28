//! Work that a store does while it is idle, when the program that holds it calls for that.

use super::PageStore;
use crate::error::StoreError;
use crate::flash::mark_page;
use crate::superblock::MEDIUM_PAGE_BYTES;
use flagstone::commit::DeviceError;
use flagstone::ftl::{BlockState, Leisure};
use flagstone::nand::FlashError;
use flagstone::units::Pbn;
use std::sync::Arc;

/// The share of its blocks that a store has free once there is nothing left to do, beyond those
/// that its collector keeps free anyway.
const FREE_SHARE: u32 = 16;

/// So many at least.
const FREE_LEAST: u32 = 4;

/// Of the share of a store that its bound lets be live, the part that a block may have live to be
/// collected then. So the store still grows to its bound.
const LIVE_SHARE: f64 = 0.75;

impl PageStore {
    /// Collects old versions ahead of need, and moves at most so many pages for that. Returns how
    /// many it has moved: none if there is nothing left to do. Commits that follow move no pages
    /// until a sixteenth of the store has been written. What is moved early may be overwritten
    /// soon, so that more is written in all (docs/store.md has both figures). Stores with another
    /// protocol than `seal` or `seal-r` do nothing.
    ///
    /// Once there is nothing to collect, a store that is larger than it would become by what it
    /// holds is compacted ([`PageStore::compact`]), if it holds at most 64 pages for each that may
    /// be moved.
    ///
    /// A program calls it from time to time, with a few hundred pages, when it has nothing else to
    /// do; a thread that shares the store may do so as well.
    ///
    /// ```
    /// # use flagstone::units::Lpn;
    /// # use flagstone_store::{OpenOptions, PageStore, medium::Memory};
    /// # let mut store = PageStore::on(Box::new(Memory::default()), &OpenOptions::default())?;
    /// # for at in (0..6000).map(|at| Lpn(at * 7919 % 1000)) {
    /// #     let tx = store.begin()?;
    /// #     store.write(tx, at, b"some bytes")?;
    /// #     store.commit(tx)?;
    /// # }
    /// while store.idle(256)? > 0 {
    ///     // There may be something else to do by now.
    /// }
    /// # Ok::<(), flagstone_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// The store was opened for reading, or the medium fails.
    pub fn idle(&mut self, pages: u32) -> Result<u32, StoreError> {
        self.may_write_now()?;
        let blocks = (self.device.geometry().blocks() / FREE_SHARE).max(FREE_LEAST);
        let pages_of_block = f64::from(self.device.ftl().data_pages_per_block());
        let live = (self.fill * LIVE_SHARE * pages_of_block) as u32;
        let leisure = Leisure::new(blocks, live, pages);
        let moved = self.with_room(|device, now| device.collect_ahead(now, leisure))?;
        if moved == 0 {
            self.compact_at_leisure(pages)?;
        }
        Ok(moved)
    }

    /// Erases the blocks that hold nothing that counts, and gives the medium their room back, and
    /// that of the last blocks to which nothing was ever written: a hole in a file, a discard of a
    /// block device. The store stays as large as it is, and no data
    /// is moved. Returns how many bytes were given back: none where the medium cannot. A file that
    /// writes to that room later has to find it again.
    ///
    /// # Errors
    /// The store was opened for reading, or the medium fails.
    pub fn discard(&mut self) -> Result<u64, StoreError> {
        self.may_write_now()?;
        let (places, geometry) = (Arc::clone(&self.places), *self.device.geometry());
        let erased = self
            .device
            .erase_some(self.now, &mut |block| places.was_erased(block));
        self.now = self.translate(erased)?.max(self.now);
        let failed = |error: FlashError| DeviceError::Ftl(error.into());
        self.translate(places.carry_out().map_err(failed))?;
        let mut given = 0;
        for block in (0..geometry.blocks()).map(Pbn) {
            let is_free = self.device.ftl().block_state(block) == BlockState::Free;
            if !is_free || !places.was_erased(block) {
                continue;
            }
            let first = mark_page(geometry.pages_per_block, block.0) + 1;
            let pages = geometry.pages_per_block;
            let discarded = places.discard(block, first, pages).map_err(failed);
            if self.translate(discarded)? {
                given += u64::from(pages) * MEDIUM_PAGE_BYTES as u64;
                self.has_holes = true;
            }
        }
        Ok(given + self.give_unwritten_back())
    }
}
