//! Work that a store does in idle time, when its program calls for it.

use super::PageStore;
use crate::error::StoreError;
use crate::flash::mark_page;
use crate::superblock::MEDIUM_PAGE_BYTES;
use flagstone::commit::DeviceError;
use flagstone::ftl::{BlockState, Leisure};
use flagstone::nand::FlashError;
use flagstone::units::Pbn;
use std::sync::Arc;

/// Idle work frees one block in this many, beyond those that the collector keeps free anyway.
const FREE_SHARE: u32 = 16;

/// Minimum number of these free blocks.
const FREE_LEAST: u32 = 4;

/// Share of the pages of a block that may be live for idle collection, relative to the store's live
/// share at its bound. Leaves the store able to grow to its bound.
const LIVE_SHARE: f64 = 0.75;

impl PageStore {
    /// Collects old versions ahead of need, moving at most `pages` pages. Returns the number of
    /// pages moved; 0 means that nothing is left to do. Later commits move no pages until a
    /// sixteenth of the store has been written. Pages moved early may be overwritten soon, so the
    /// total bytes written increase (docs/store.md has both figures). Does nothing under protocols
    /// other than `seal` and `seal-r`.
    ///
    /// When there is nothing to collect, a store that compaction would shrink is compacted
    /// ([`PageStore::compact`]), if it holds at most 64 pages for each of `pages`.
    ///
    /// Call it from time to time, with a few hundred pages, when the program is idle; or from
    /// another thread that shares the store.
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
    ///     // Check for other work here.
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

    /// Erases blocks without live data and gives their room back to the medium, with that of
    /// never-written blocks at the end: a hole in a file, a discard on a block device. The store
    /// keeps its size, and no data moves. Returns the number of bytes given back; 0 if the medium
    /// cannot discard. Later writes to a file must find that room again.
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
            let is_free = self.device.ftl().blocks().state(block) == BlockState::Free;
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
