//! How much room a store takes: it grows while its bound allows that, and the last blocks of one
//! that cannot grow any more are not for new pages.

use super::PageStore;
use crate::error::StoreError;
use flagstone::commit::{Device, DeviceError};
use flagstone::ftl::{BlockState, FtlError, Slot};
use flagstone::units::{Lpn, Nanos, Pbn};

/// Blocks that a store has beside what it holds, however narrow its bound is: without them the
/// collector has nowhere to move pages to.
const COLLECTOR_BLOCKS: f64 = 3.0;

/// Blocks that a store which cannot grow keeps from new pages, beside those that its collector
/// keeps free anyway. Of the latter two may be being written, and one has to gain a page whenever a
/// block is collected: without them a full store could not even overwrite a page.
const SLACK_BLOCKS: u32 = 1;

/// The share of a store that these blocks are at most: that of a small one with the default bound.
const SLACK_SHARE: f64 = 1.0 / 3.0;

/// How many times its bound a store may take while snapshots are open, and pages that it may take
/// anyway: blocks with pages of theirs are not collected. Beyond that the oldest snapshots end.
const SNAPSHOT_ROOM: f64 = 2.0;
const SNAPSHOT_PAGES: f64 = 8192.0;

impl PageStore {
    /// Sees to it that a page can be written: one beyond the store, or one that was never written,
    /// may need a larger one.
    pub(super) fn make_room_at(&mut self, at: Lpn) -> Result<(), StoreError> {
        while at.0 >= self.device.pages() {
            if self.grow()? == 0 {
                let why = self.why_no_more();
                return Err(StoreError::Full(format!(
                    "page {at} lies beyond it, and {why}"
                )));
            }
        }
        if self.device.ftl().slot(at) == Slot::Empty {
            self.make_room_for_more()?;
        }
        self.make_room()
    }

    /// Asks the device for something that takes room, in a store that grows where that is wanting:
    /// versions of a live transaction cannot be collected, and nobody knew how many it would have.
    pub(super) fn with_room<T>(
        &mut self,
        mut ask: impl FnMut(&mut Device, Nanos) -> Result<T, DeviceError>,
    ) -> Result<T, StoreError> {
        loop {
            let answer = ask(&mut self.device, self.now);
            let is_full = matches!(answer, Err(DeviceError::Ftl(FtlError::Full { .. })));
            if !is_full || self.grow_as_far_as_it_goes()? == 0 {
                return self.translate(answer);
            }
        }
    }

    /// Grows the store if little is left and what it holds is not to be crowded any more.
    pub(super) fn make_room(&mut self) -> Result<(), StoreError> {
        let ftl = self.device.ftl();
        if ftl.free_blocks() <= ftl.collects_below() {
            let (open, retained) = ftl.snapshots();
            let live = ftl.live_pages() as f64;
            // What snapshots keep from being collected is no reason to grow as long as other blocks
            // are worth it.
            let is_held_up = open > 0
                && ftl.fewest_live().is_none_or(|pages| {
                    f64::from(pages) > self.fill * f64::from(ftl.data_pages_per_block())
                });
            let live = live - retained as f64;
            let bound = match is_held_up {
                false => live,
                true => (live * SNAPSHOT_ROOM).max(SNAPSHOT_PAGES * self.fill),
            };
            let room = self.in_service as f64;
            let reserve = COLLECTOR_BLOCKS * f64::from(ftl.data_pages_per_block());
            if bound > (room * self.fill).min(room - reserve) {
                self.grow()?;
            }
        }
        Ok(())
    }

    /// Sees to it that a page can be written that was never written before: pages that are
    /// overwritten leave an old version to collect, and such a page leaves none. So the last blocks
    /// are not for them.
    fn make_room_for_more(&mut self) -> Result<(), StoreError> {
        while !self.has_room_for_more() {
            if self.grow_as_far_as_it_goes()? == 0 {
                let (live, why) = (self.device.ftl().live_pages(), self.why_no_more());
                return Err(StoreError::Full(format!(
                    "{live} of {} pages are in use, the others are kept for pages that are \
                     overwritten, and {why}",
                    self.in_service
                )));
            }
        }
        Ok(())
    }

    /// What snapshots keep is no reason to refuse or to grow: before anything is refused they end.
    fn has_room_for_more(&self) -> bool {
        let ftl = self.device.ftl();
        let short = ftl.free_blocks() <= ftl.collects_below();
        let (_, retained) = ftl.snapshots();
        let kept = ftl.collects_below() + SLACK_BLOCKS;
        let kept = u64::from(kept) * u64::from(ftl.data_pages_per_block());
        let kept = kept.min((self.in_service as f64 * SLACK_SHARE) as u64);
        !short || ftl.live_pages() - retained as u64 + kept < self.in_service
    }

    /// Pages that may hold something.
    pub(super) fn in_service(&self) -> u64 {
        let ftl = self.device.ftl();
        let out = |block| matches!(ftl.block_state(block), BlockState::Bad | BlockState::Meta);
        let blocks = (0..ftl.geometry().blocks()).filter(|&block| !out(Pbn(block)));
        blocks.count() as u64 * u64::from(ftl.data_pages_per_block())
    }

    /// Blocks that the store grows by at a time: an eighth.
    fn next_blocks(&self) -> u32 {
        (self.device.geometry().blocks() / 8).max(8)
    }

    /// Grows the store. Returns how many blocks were added: none if there is no room.
    fn grow(&mut self) -> Result<u32, StoreError> {
        self.grow_by(self.next_blocks())
    }

    /// As [`PageStore::grow`], by fewer blocks where there is no room for all of them.
    fn grow_as_far_as_it_goes(&mut self) -> Result<u32, StoreError> {
        let mut more = self.next_blocks();
        while more > 0 {
            match self.grow_by(more)? {
                0 => more /= 2,
                grown => return Ok(grown),
            }
        }
        Ok(0)
    }

    fn grow_by(&mut self, more: u32) -> Result<u32, StoreError> {
        if self.device.ftl().why_not_grow(more).is_some() {
            return Ok(0);
        }
        let grown = self.device.grow(self.now, more);
        let grown = self.translate(grown)?;
        self.in_service = self.in_service();
        Ok(grown)
    }

    /// Why the store does not grow.
    pub(super) fn why_no_more(&self) -> String {
        let ftl = self.device.ftl();
        match (ftl.why_not_grow(self.next_blocks()), &*self.notes.refused()) {
            (Some(why), _) => format!(
                "with {} and blocks of {} pages it cannot grow any more: {why}",
                self.device.info().name,
                ftl.geometry().pages_per_block
            ),
            (None, Some(error)) => format!("the medium gives no more room: {error}"),
            (None, None) => "the medium has no room for more".into(),
        }
    }
}
