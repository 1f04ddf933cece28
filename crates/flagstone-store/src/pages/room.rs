//! Room of a store: it grows while its bound allows, and a store that cannot grow any more keeps
//! its last blocks from new pages.

use super::{FIRST_BLOCKS, PageStore};
use crate::error::StoreError;
use crate::flash::{mark_page, medium_bytes, thin};
use crate::superblock::MEDIUM_PAGE_BYTES;
use flagstone::commit::{Device, DeviceError, Kind};
use flagstone::ftl::{BlockState, FtlError, Mistake, Slot};
use flagstone::units::{Lpn, Nanos, Pbn};

/// Bytes of a page of the medium.
pub(super) const PAGE: u64 = MEDIUM_PAGE_BYTES as u64;

/// Minimum share of dead pages in the collector's blocks, relative to the dead share that the
/// store's bound gives. Holds however few these blocks are. With the default bound a quarter of
/// their pages is dead, so an overwritten page costs at most one move of another page.
const DEAD_SHARE: f64 = 0.75;

/// Open blocks: one of the host and one of the collector. Their pages are not collected.
pub(super) const OPEN_BLOCKS: u32 = 2;

/// Blocks that a store which cannot grow keeps from new pages, beyond those that the collector
/// keeps free. Two of the latter may be open, and each collection must gain a page: without this
/// slack a full store could not even overwrite a page.
const SLACK_BLOCKS: u32 = 1;

/// Maximum share of a store for these blocks: that of a small store with the default bound.
const SLACK_SHARE: f64 = 1.0 / 3.0;

/// The part of these blocks that overwriting transactions must leave free. The collector continues
/// with it, so that a transaction always finds room for its commit.
const COLLECTOR_SHARE: f64 = 2.0 / 3.0;

/// Minimum number of pages, on a medium that cannot grow, for each page that may hold data. With
/// fewer, each overwritten page costs many moves.
const LEAST_SPACE: f64 = 1.1;

/// With open snapshots a store may take this many times its bound, and at least the following
/// number of pages: blocks with pages of snapshots are not collected. Beyond that the oldest
/// snapshots end.
const SNAPSHOT_ROOM: f64 = 2.0;
const SNAPSHOT_PAGES: f64 = 8192.0;

/// Minimum share of its room that a store fills with pages of live transactions. After their commit
/// the replaced versions are collected, and the share falls.
const FILL_UNCOMMITTED: f64 = 0.8;

/// A store in which live transactions hold more than this share of the room grows in small steps.
const LARGE_SHARE: f64 = 1.0 / 16.0;

/// Number of blocks by which a store of `blocks` blocks grows: an eighth, and at least a mebibyte
/// and eight blocks.
pub(super) fn next_blocks(pages_per_block: u32, blocks: u32) -> u32 {
    (blocks / 8).max((256 / pages_per_block).clamp(2, 8))
}

impl PageStore {
    /// Grows the store if needed to write page `at`: it may lie beyond the store, or, with
    /// `is_new`, take room that it did not have.
    pub(super) fn make_room_at(&mut self, at: Lpn, is_new: bool) -> Result<(), StoreError> {
        self.reach(at)?;
        if is_new {
            self.make_room_for_more()?;
        }
        self.make_room()
    }

    /// Grows the store until it contains page `at`. A sparse store takes no room for that: its new
    /// blocks are not allocated until it grows into them ([`PageStore::grow_by`]). Any other store
    /// grows at once, or not at all if the room is insufficient.
    fn reach(&mut self, at: Lpn) -> Result<(), StoreError> {
        while at.0 >= self.device.pages() {
            let least = self.blocks_up_to(at);
            let more = least.max(self.next_blocks());
            if self.lengthen_by(more)? == 0 && (more == least || self.lengthen_by(least)? == 0) {
                return Err(self.beyond(at));
            }
        }
        Ok(())
    }

    /// Minimum number of blocks that the store lacks to contain page `at`; 0 if it contains it.
    fn blocks_up_to(&self, at: Lpn) -> u32 {
        if at.0 < self.device.pages() {
            return 0;
        }
        let geometry = self.device.geometry();
        let wanted = at.0 / geometry.pages_per_block + 1;
        wanted.saturating_sub(geometry.blocks()).max(1)
    }

    /// Fails if the protocol does not allow a store that contains page `at`.
    fn must_be_reachable(&self, at: Lpn) -> Result<(), StoreError> {
        let least = self.blocks_up_to(at);
        if least > 0 && self.device.ftl().why_not_grow(least).is_some() {
            return Err(self.beyond(at));
        }
        Ok(())
    }

    fn beyond(&self, at: Lpn) -> StoreError {
        let why = self.why_no_more();
        StoreError::Full(format!("page {at} lies beyond it, and {why}"))
    }

    /// Adds blocks that are not allocated yet, if the store can be sparse. Returns their number.
    fn lengthen_by(&mut self, more: u32) -> Result<u32, StoreError> {
        if !self.is_sparse() {
            return self.lengthen(more);
        }
        let given_out = self.device.ftl().blocks().with_room();
        self.places.grow_sparse(true);
        let grown = self.lengthen(more);
        self.places.grow_sparse(false);
        self.device.give_out(given_out);
        self.in_service = self.in_service();
        grown
    }

    /// Whether new blocks may lack room. In an encrypted store their signed marks would take room.
    fn is_sparse(&self) -> bool {
        self.may_be_sparse() && !self.keyed.has_key()
    }

    /// Whether blocks may lack room. Not under protocols whose roots name blocks for the mapping
    /// table.
    fn may_be_sparse(&self) -> bool {
        self.opened.superblock.protocol == Kind::Seal
    }

    /// Reserves room on the medium for the next `blocks` blocks of a sparse store, and lets the
    /// device use them. Returns their number: all or none.
    fn give_out_more(&mut self, blocks: u32) -> u32 {
        let geometry = *self.device.geometry();
        // The first block without room.
        let first = self.device.ftl().blocks().with_room();
        let offset = mark_page(geometry.pages_per_block, first) * PAGE;
        let bytes = u64::from(blocks) * u64::from(geometry.pages_per_block + 1) * PAGE;
        let medium = self.places.medium();
        if let Err(error) = medium.take(offset, bytes) {
            // Discard the part that was reserved before the medium ran out, but no signed marks. A
            // failure is harmless.
            if !self.keyed.has_key() {
                let _ = medium.discard(offset, bytes);
            }
            *self.notes.refused() = Some(error.to_string());
            return 0;
        }
        self.device.give_out(first + blocks);
        self.in_service = self.in_service();
        blocks
    }

    /// Takes back what [`PageStore::give_out_more`] gave out: blocks from `first` on, of which none
    /// was written since.
    fn hold_back_from(&mut self, first: u32) {
        let geometry = *self.device.geometry();
        let mark = |block| mark_page(geometry.pages_per_block, block);
        let end = self.device.ftl().blocks().with_room();
        let (offset, bytes) = (mark(first) * PAGE, (mark(end) - mark(first)) * PAGE);
        // Signed marks stay, and with them the room.
        if !self.keyed.has_key() && self.places.medium().discard(offset, bytes).is_ok() {
            self.device.give_out(first);
            self.in_service = self.in_service();
        }
    }

    /// Withholds the last, never-written blocks of a sparse store from allocation: the medium may
    /// have no room for them.
    pub(super) fn find_blocks_without_room(&mut self) {
        if !self.read_only && self.may_be_sparse() && self.places.medium().is_thin() {
            self.device.give_out(self.end_of_written());
        }
    }

    /// Discards the never-written blocks at the end, if the store can be sparse, except those that
    /// the collector keeps free. Returns the number of bytes.
    pub(super) fn give_unwritten_back(&mut self) -> u64 {
        let (ftl, unwritten) = (self.device.ftl(), self.end_of_written());
        let end = ftl.blocks().with_room();
        // Free blocks before the never-written ones. The collector takes what they lack of these.
        let free = ftl
            .blocks()
            .free_blocks()
            .saturating_sub(end.saturating_sub(unwritten));
        let first = unwritten + (ftl.collects_below() + 1).saturating_sub(free);
        if !self.may_be_sparse() || self.keyed.has_key() || first >= end {
            return 0;
        }
        let mark = |block| mark_page(self.device.geometry().pages_per_block, block);
        let (offset, bytes) = (mark(first) * PAGE, (mark(end) - mark(first)) * PAGE);
        // A failure is harmless: the store keeps the space.
        if !self.places.medium().discard(offset, bytes).unwrap_or(false) {
            return 0;
        }
        self.device.give_out(first);
        self.in_service = self.in_service();
        bytes
    }

    /// The block after the last one that may have been written, and at least the block count of a
    /// new store.
    fn end_of_written(&self) -> u32 {
        let geometry = *self.device.geometry();
        let mark = |block: u32| mark_page(geometry.pages_per_block, block);
        let was_written = |&block: &u32| self.places.may_be_written(Pbn(block), mark(block));
        let last = (FIRST_BLOCKS..geometry.blocks()).rev().find(was_written);
        last.map_or(FIRST_BLOCKS.min(geometry.blocks()), |last| last + 1)
    }

    /// Runs a device request that takes room, and grows the store if room is lacking: versions of a
    /// live transaction cannot be collected, and their number was not known in advance.
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

    /// Grows the store if little room is left and its bound allows it.
    pub(super) fn make_room(&mut self) -> Result<(), StoreError> {
        if (self.is_thin || self.has_holes) && thin::is_short(self.places.medium()) {
            return Err(StoreError::Full(
                "the file system has less than a megabyte left, and some blocks of the store have \
                 no space allocated yet"
                    .into(),
            ));
        }
        let ftl = self.device.ftl();
        if ftl.blocks().free_blocks() <= ftl.collects_below() {
            let (open, retained) = ftl.snapshots().counts();
            let live = ftl.blocks().live_pages() as f64;
            // Pages retained by snapshots do not justify growth as long as other blocks are worth
            // collecting.
            let is_held_up = open > 0
                && ftl.blocks().fewest_live().is_none_or(|pages| {
                    f64::from(pages) > self.fill * f64::from(ftl.data_pages_per_block())
                });
            // Live transactions get a smaller share of the room for dead pages.
            let uncommitted = self.device.uncommitted() as f64;
            let spared = uncommitted * (1.0 - self.fill / self.fill.max(FILL_UNCOMMITTED));
            let live = live - retained as f64 - spared;
            let bound = if is_held_up {
                (live * SNAPSHOT_ROOM).max(SNAPSHOT_PAGES * self.fill)
            } else {
                live
            };
            let room = self.in_service as f64;
            let share = room * self.fill;
            let most = if ftl.config().mistake.is(Mistake::VictimsCrowded) {
                share
            } else {
                share.min(self.collected_pages() * self.most_live())
            };
            if bound > most {
                let blocks = self.next_blocks();
                self.grow_by(if uncommitted > room * LARGE_SHARE {
                    (blocks / 8).max(1)
                } else {
                    blocks
                })?;
            }
        }
        Ok(())
    }

    /// The share of [`PageStore::collected_pages`] that may be live.
    fn most_live(&self) -> f64 {
        1.0 - (1.0 - self.fill) * DEAD_SHARE
    }

    /// Number of pages among which the collector selects: all blocks except those that it keeps
    /// free and open ones.
    ///
    /// The live share of these pages determines the cost of a victim. In a large store nearly all
    /// blocks are among them. In a store of 16 blocks most are not: if live pages filled two thirds
    /// of all blocks, each victim would be nearly all live, and each commit would move a whole
    /// block or two.
    fn collected_pages(&self) -> f64 {
        let ftl = self.device.ftl();
        let others = u64::from(ftl.collects_below() + OPEN_BLOCKS);
        let others = others * u64::from(ftl.data_pages_per_block());
        self.in_service.saturating_sub(others) as f64
    }

    /// Finds room for a page that was never written. An overwritten page leaves an old version to
    /// collect, but a new page leaves none, so the last blocks are not for new pages.
    fn make_room_for_more(&mut self) -> Result<(), StoreError> {
        // Room was found for promised pages before.
        if self.promised > 0 {
            self.promised -= 1;
            return Ok(());
        }
        while !self.has_room_for_more() {
            if self.grow_as_far_as_it_goes()? == 0 {
                let (live, why) = (self.device.ftl().blocks().live_pages(), self.why_no_more());
                return Err(StoreError::Full(format!(
                    "{live} of {} pages are in use, the others are kept for pages that are \
                     overwritten, and {why}",
                    self.in_service
                )));
            }
        }
        Ok(())
    }

    /// Whether a new page leaves what is kept from new pages. Retained versions are no reason to
    /// refuse or to grow: snapshots end before anything is refused.
    fn has_room_for_more(&self) -> bool {
        let ftl = self.device.ftl();
        let short = ftl.blocks().free_blocks() <= ftl.collects_below();
        !short || self.live_but_old() + self.kept_of(self.in_service) < self.in_service
    }

    /// Number of live pages, without old versions that snapshots hold.
    fn live_but_old(&self) -> u64 {
        let ftl = self.device.ftl();
        let (_, retained) = ftl.snapshots().counts();
        ftl.blocks().live_pages() - retained as u64
    }

    /// Number of pages, out of `in_service`, that are kept from new pages when the store cannot
    /// grow.
    fn kept_of(&self, in_service: u64) -> u64 {
        let ftl = self.device.ftl();
        let kept = ftl.collects_below() + SLACK_BLOCKS;
        let kept = u64::from(kept) * u64::from(ftl.data_pages_per_block());
        kept.min((in_service as f64 * SLACK_SHARE) as u64)
    }

    /// Whether a write of this page takes additional room: it was never written, or it was trimmed
    /// with others.
    pub(crate) fn is_new(&self, at: Lpn) -> bool {
        self.is_blank(at) || self.device.ftl().shares_list(at)
    }

    /// Whether a page was never written.
    pub(super) fn is_blank(&self, at: Lpn) -> bool {
        at.0 >= self.device.pages() || self.device.ftl().slot(at) == Slot::Empty
    }

    /// Ensures room for the live transactions beyond what they have written: `new` pages that hold
    /// nothing yet, and `again` pages to overwrite or trim, none above `highest`. Holds until
    /// something else is written or requested. A store that has no such room does not grow.
    ///
    /// # Errors
    /// [`StoreError::Full`] if there is no such room, and as [`PageStore::write`].
    pub fn find_room(&mut self, new: u64, again: u64, highest: Lpn) -> Result<(), StoreError> {
        self.may_write_now()?;
        let is_sparse = self.is_sparse();
        if is_sparse {
            self.must_be_reachable(highest)?;
        }
        while !self.has_pages_for(new, again) {
            let least = if is_sparse {
                1
            } else {
                self.blocks_up_to(highest).max(1)
            };
            let lacks = |store: &PageStore, room| store.lacking_for(new, again, room);
            if let Some(why) = self.grow_at_once(least, lacks)? {
                return Err(StoreError::Full(format!(
                    "there is no room for {new} pages more and {again} that are overwritten: {} of \
                     {} pages are in use, and {why}",
                    self.device.ftl().blocks().live_pages(),
                    self.in_service,
                )));
            }
        }
        self.reach(highest)?;
        // Protocols forget trimmed pages, so a trimmed page counts as new.
        self.promised = new + again;
        Ok(())
    }

    /// Whether such room exists already.
    pub(crate) fn has_room_for(&mut self, pages: u64, highest: Lpn) -> bool {
        let has = self.would_find_room(pages, 0, highest);
        if has {
            self.promised = pages;
        }
        has
    }

    /// Maximum number of pages that `trims` trims of one transaction take.
    pub(crate) fn pages_of_trims(&self, trims: usize) -> u64 {
        self.device.pages_of_trims(trims as u64)
    }

    /// Number of pages that a transaction may overwrite or trim without more room, if no other is
    /// live.
    pub(crate) fn room_for_again(&self) -> u64 {
        let kept = (self.kept_of(self.in_service) as f64 * COLLECTOR_SHARE) as u64;
        self.in_service.saturating_sub(self.live_but_old() + kept)
    }

    /// Whether [`PageStore::find_room`] succeeds without growth.
    fn would_find_room(&self, new: u64, again: u64, highest: Lpn) -> bool {
        highest.0 < self.device.pages() && self.has_pages_for(new, again)
    }

    fn has_pages_for(&self, new: u64, again: u64) -> bool {
        self.lacking_for(new, again, self.in_service) == 0
    }

    /// Number of pages that a store with `in_service` pages lacks for `new` pages more and `again`
    /// to overwrite. Pages that are only overwritten may use a part of what is kept from new pages.
    fn lacking_for(&self, new: u64, again: u64, in_service: u64) -> u64 {
        let live = self.live_but_old().saturating_add(new);
        let live = live.saturating_add(again);
        let kept = self.kept_of(in_service);
        let kept = match new {
            0 => (kept as f64 * COLLECTOR_SHARE) as u64,
            _ => kept,
        };
        let least = live.saturating_add(kept).saturating_add(1);
        least.saturating_sub(in_service)
    }

    /// Maximum number of pages that can permanently hold data, if the medium has a known end: its
    /// pages minus those that transactions and the collector need.
    pub fn most_pages(&self) -> Option<u64> {
        let blocks = self.most_blocks?;
        let ftl = self.device.ftl();
        let (has, of_block) = (ftl.geometry().blocks(), ftl.data_pages_per_block());
        // The largest growth that the protocol allows, by bisection.
        let (mut fits, mut exceeds) = (0, blocks.saturating_sub(has) + 1);
        while exceeds - fits > 1 {
            let more = fits + (exceeds - fits) / 2;
            match ftl.why_not_grow(more) {
                None => fits = more,
                Some(_) => exceeds = more,
            }
        }
        let data = ftl.data_blocks_with(fits).unwrap_or(has);
        let room = u64::from(data) * u64::from(of_block);
        let left = (room as f64 / LEAST_SPACE) as u64;
        // One of these pages, and one other that it changes, must fit as a transaction.
        Some(left.min(room.saturating_sub(self.kept_of(room) + 3)))
    }

    /// Reserves room for `pages` pages that hold data permanently, by growing at once, and for all
    /// blocks that the store has already.
    ///
    /// # Errors
    /// [`StoreError::Full`] if the medium has no such room, and as [`PageStore::write`].
    pub fn reserve(&mut self, pages: u64) -> Result<(), StoreError> {
        self.may_write_now()?;
        let wanted_of = |store: &PageStore, room: u64| {
            ((pages as f64 * LEAST_SPACE) as u64).max(pages.saturating_add(store.kept_of(room) + 3))
        };
        let lacks = |store: &PageStore, room| wanted_of(store, room).saturating_sub(room);
        while lacks(self, self.in_service) > 0 {
            if let Some(why) = self.grow_at_once(1, lacks)? {
                let room = self.in_service;
                return Err(StoreError::Full(format!(
                    "{pages} pages need {} of the medium, there are {room}, and {why}",
                    wanted_of(self, room)
                )));
            }
        }
        self.fill_holes()
    }

    /// Allocates the room that blocks in service lack: the first blocks of a thin store, and blocks
    /// whose room was discarded.
    ///
    /// # Errors
    /// [`StoreError::Full`] if the medium has no such room.
    fn fill_holes(&mut self) -> Result<(), StoreError> {
        let ftl = self.device.ftl();
        let bytes = medium_bytes(ftl.geometry().pages_per_block, ftl.blocks().with_room());
        let medium = self.places.medium();
        if medium.is_thin()
            && let Err(error) = medium.take(0, bytes)
        {
            *self.notes.refused() = Some(error.to_string());
            let why = self.why_no_more();
            return Err(StoreError::Full(format!(
                "its blocks need {bytes} bytes, of which some are not allocated yet, and {why}"
            )));
        }
        (self.is_thin, self.has_holes) = (false, false);
        Ok(())
    }

    /// Number of pages that may hold data.
    pub(super) fn in_service(&self) -> u64 {
        let ftl = self.device.ftl();
        let out = |block| {
            matches!(
                ftl.blocks().state(block),
                BlockState::Bad | BlockState::Meta
            )
        };
        let blocks = (0..ftl.blocks().with_room()).filter(|&block| !out(Pbn(block)));
        blocks.count() as u64 * u64::from(ftl.data_pages_per_block())
    }

    /// Number of blocks by which the store grows next.
    pub(super) fn next_blocks(&self) -> u32 {
        let (ftl, geometry) = (self.device.ftl(), self.device.geometry());
        next_blocks(geometry.pages_per_block, ftl.blocks().with_room())
    }

    /// Grows the store as far as there is room. Returns the number of added blocks.
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

    /// Allocates up to `more` existing blocks, or grows by `more`. Returns the number of blocks.
    fn grow_by(&mut self, more: u32) -> Result<u32, StoreError> {
        let ftl = self.device.ftl();
        match ftl.geometry().blocks() - ftl.blocks().with_room() {
            0 => self.lengthen(more),
            kept => Ok(self.give_out_more(more.min(kept))),
        }
    }

    /// Grows the store by at least `least` blocks, until it lacks no pages: `lacks` receives a
    /// number of pages in service and returns how many are missing. A store that would still lack
    /// some does not grow. Returns why it did not, or `None` if it did.
    fn grow_at_once(
        &mut self,
        least: u32,
        lacks: impl Fn(&PageStore, u64) -> u64,
    ) -> Result<Option<String>, StoreError> {
        let least = match self.blocks_for(least, lacks) {
            Ok(least) => least,
            Err(why) => return Ok(Some(self.cannot_grow("that far", &why))),
        };
        let mut more = least.max(self.next_blocks());
        while !self.grow_by_all(more)? {
            if more == least {
                return Ok(Some(self.why_no_more()));
            }
            more = least.max(more / 2);
        }
        Ok(None)
    }

    /// Minimum number of blocks, from `least` on, after whose addition the store lacks no pages.
    ///
    /// # Errors
    /// Says why the protocol does not allow so many.
    fn blocks_for(
        &self,
        least: u32,
        lacks: impl Fn(&PageStore, u64) -> u64,
    ) -> Result<u32, String> {
        let too_many = || "blocks have numbers of 32 bits".to_string();
        let ftl = self.device.ftl();
        let of_block = u64::from(ftl.data_pages_per_block());
        // Blocks that exist already, but have no room.
        let kept = ftl.geometry().blocks() - ftl.blocks().with_room();
        let has = ftl.data_blocks_with(0)?;
        let mut more = least;
        loop {
            let new = more.saturating_sub(kept);
            let data = ftl.data_blocks_with(new)?.saturating_sub(has);
            let added = u64::from(more.min(kept)) + u64::from(data);
            let lacking = lacks(self, self.in_service + added * of_block);
            if lacking == 0 {
                return Ok(more);
            }
            let lacking = u32::try_from(lacking.div_ceil(of_block)).map_err(|_| too_many())?;
            more = more.checked_add(lacking).ok_or_else(too_many)?;
        }
    }

    /// Allocates existing blocks and grows, by `more` blocks together. Returns whether there was
    /// room for all of them; otherwise the store has the room that it had before.
    fn grow_by_all(&mut self, more: u32) -> Result<bool, StoreError> {
        let ftl = self.device.ftl();
        let first = ftl.blocks().with_room();
        let kept = ftl.geometry().blocks() - first;
        let new = more.saturating_sub(kept);
        if kept > 0 && self.give_out_more(more.min(kept)) == 0 {
            return Ok(false);
        }
        if new == 0 || self.lengthen(new)? > 0 {
            return Ok(true);
        }
        if kept > 0 {
            self.hold_back_from(first);
        }
        Ok(false)
    }

    fn lengthen(&mut self, more: u32) -> Result<u32, StoreError> {
        if self.device.ftl().why_not_grow(more).is_some() {
            return Ok(0);
        }
        let grown = self.device.grow(self.now, more);
        let grown = self.translate(grown)?;
        self.in_service = self.in_service();
        self.is_thin &= grown == 0;
        Ok(grown)
    }

    /// Why the store does not grow.
    pub(super) fn why_no_more(&self) -> String {
        let ftl = self.device.ftl();
        match (ftl.why_not_grow(self.next_blocks()), &*self.notes.refused()) {
            (Some(why), _) => self.cannot_grow("any more", &why),
            (None, Some(error)) => format!("the medium gives no more room: {error}"),
            (None, None) => "the medium has no room for more".into(),
        }
    }

    /// Why the protocol does not let the store grow.
    fn cannot_grow(&self, how_far: &str, why: &str) -> String {
        format!(
            "with {} and blocks of {} pages it cannot grow {how_far}: {why}",
            self.device.info().name,
            self.device.geometry().pages_per_block
        )
    }
}
