//! Compacts a device, and shrinks it if its medium can, as a file can.
//!
//! A device shrinks by removing its last blocks, and with them the highest logical pages, which
//! hold nothing. No versions of these pages may remain: if the device grew again, a restart would
//! take an old version for the newest one. A trim hides such versions, and can be dropped when they
//! are gone. So these steps follow one another, each durable before the next:
//!
//! ```text
//!   1. each block is collected that has an old version of a page which was trimmed, or which lies
//!      beyond the new end
//!   2. trims are forgotten, and the blocks collected that have some
//!   3. live pages move out of the last blocks, which are erased
//!   4. a block is erased that stays: its erase says all that those of the last blocks said last
//!   5. the medium keeps the first blocks
//! ```
//!
//! The owner sees ordinary collections. A cut before the last step leaves the old size.

use super::collector::collect;
use super::config::{Mistake, Sizes};
use super::{BlockState, Cause, Ftl, FtlError, Header, Owner, PageKind, Slot, steps};
use crate::nand::Geometry;
use crate::units::{Lpn, Nanos, Pbn};

impl Ftl {
    /// Whether the device can shrink to `blocks` blocks, or be compacted at its present size, as
    /// far as is known before anything moves.
    pub(crate) fn can_compact(&self, blocks: u32) -> bool {
        self.smaller(blocks).is_some_and(|(_, sizes)| {
            let mut beyond = (sizes.logical_pages..self.map.pages()).map(Lpn);
            !beyond.any(|lpn| matches!(self.slot(lpn), Slot::Page(_)))
        })
    }

    /// Geometry and area sizes with only `blocks` blocks.
    fn smaller(&self, blocks: u32) -> Option<(Geometry, Sizes)> {
        let is_plain = self.geometry.planes() == 1
            && self.flash.can_shrink()
            && !self.format.persist_map
            && self.blocks.zone.is_none()
            && self.config.logical_pages.is_none()
            && self.config.scrub.is_none();
        let settled = self.collector.retire.is_empty() && self.collector.owed.is_empty();
        if !is_plain || !settled || blocks > self.geometry.blocks() {
            return None;
        }
        let geometry = Geometry {
            blocks_per_plane: blocks,
            ..self.geometry
        };
        geometry.validate().ok()?;
        let sizes = Sizes::new(&geometry, &self.config, &self.format, blocks).ok()?;
        (sizes.anchors as usize == self.journal.anchors()).then_some((geometry, sizes))
    }

    /// Number of logical pages of a device with `blocks` blocks.
    fn pages_with(&self, blocks: u32) -> Option<u32> {
        self.smaller(blocks).map(|(_, sizes)| sizes.logical_pages)
    }

    /// Full blocks with versions that `is_meant` selects.
    fn with_versions(
        &mut self,
        now: Nanos,
        is_meant: impl Fn(&Ftl, &Header) -> bool,
    ) -> Result<Vec<Pbn>, FtlError> {
        let (mut found, mut heads) = (Vec::new(), Vec::new());
        for block in (0..self.geometry.blocks()).map(Pbn) {
            if self.blocks.state(block) != BlockState::Full {
                continue;
            }
            heads.clear();
            let read = self.block_records(now, block, Cause::Mapping, |_, head, _| {
                heads.push(head);
            })?;
            let is_one = heads.iter().any(|head| is_meant(self, head));
            found.extend((is_one || read.torn).then_some(block));
        }
        Ok(found)
    }

    /// Removes the last blocks, which have been emptied, from the medium and from the tables: steps
    /// 4 and 5. Needs a free block that stays and that `was_written`, to erase it. Returns whether
    /// the device has shrunk.
    pub(crate) fn shrink(
        &mut self,
        now: Nanos,
        was_written: &mut dyn FnMut(Pbn) -> bool,
    ) -> Result<bool, FtlError> {
        let Some(end) = self.blocks.end else {
            return Ok(false);
        };
        let Some((geometry, sizes)) = self.smaller(end.0) else {
            return Ok(false);
        };
        let mut kept = (0..end.0).map(Pbn);
        let is_free = |block: &Pbn| self.blocks.state(*block) == BlockState::Free;
        let Some(erased) = kept.find(|block| is_free(block) && was_written(*block)) else {
            return Ok(false);
        };
        let done = self.erase(now, erased, Cause::Gc)?;
        self.sync(now, done.unwrap_or(now))?;
        self.flash.shrink(end.0)?;
        debug_assert_eq!(self.flash.geometry().blocks(), end.0);
        self.blocks.end = None;
        self.geometry = geometry;
        self.map.resize(&sizes);
        self.blocks.resize(&geometry);
        self.horizon.shrink(end);
        self.collector.wear_cursor = 0;
        Ok(true)
    }
}

/// Removes from the flash all data versions of pages that were trimmed, or that a device of
/// `blocks` blocks does not have. Free blocks may hold some as well: those that `was_written`
/// selects are erased. All blocks must be full or free. Returns whether it was possible.
pub(crate) fn forget_old(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
    blocks: u32,
    was_written: &mut dyn FnMut(Pbn) -> bool,
) -> Result<bool, FtlError> {
    steps::end(ftl, owner, now)?;
    // A block with a lost page stays as it is, and so do old versions in it.
    let is_stuck = |block: Pbn| ftl.blocks.state(block) == BlockState::Stuck;
    if (0..ftl.geometry.blocks()).map(Pbn).any(is_stuck) {
        return Ok(false);
    }
    ftl.erase_some(now, was_written)?;
    let Some(pages) = ftl.pages_with(blocks) else {
        return Ok(false);
    };
    if ftl.config.mistake.is(Mistake::BeyondKept) {
        return Ok(true);
    }
    let is_old = |ftl: &Ftl, head: &Header| {
        let is_hidden = || matches!(ftl.slot(head.lpn), Slot::Trimmed(_));
        head.kind == PageKind::Data && (head.lpn.0 >= pages || is_hidden())
    };
    collect_those(ftl, owner, now, is_old)
}

/// Drops all trims, once they hide nothing, and removes them from the flash, since a restart would
/// find them again. All blocks must be full or free. Returns whether it was possible.
pub(crate) fn forget_trims(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
) -> Result<bool, FtlError> {
    (ftl.map.lpns()).for_each(|lpn| ftl.forget_trimmed(lpn));
    collect_those(ftl, owner, now, |_, head| head.kind != PageKind::Data)
}

/// Empties the last blocks, which are no longer allocated, and collects other blocks with fewer
/// than `dense` live pages. Returns whether it was possible.
pub(crate) fn empty_end(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
    blocks: u32,
    dense: u32,
) -> Result<bool, FtlError> {
    ftl.blocks.end_at(Some(Pbn(blocks)));
    let last: Vec<Pbn> = (blocks..ftl.geometry.blocks()).map(Pbn).collect();
    if !collect_all(ftl, owner, now, &last)? {
        return Ok(false);
    }
    let sparse = ftl
        .blocks
        .victims
        .iter()
        .take_while(|&(_, live)| live < dense);
    let sparse: Vec<Pbn> = sparse.map(|(block, _)| block).collect();
    collect_all(ftl, owner, now, &sparse)
}

/// Collects the full blocks with selected versions, and waits. Returns whether it was possible.
fn collect_those(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
    is_meant: impl Fn(&Ftl, &Header) -> bool,
) -> Result<bool, FtlError> {
    let blocks = ftl.with_versions(now, is_meant)?;
    let collected = collect_all(ftl, owner, now, &blocks)?;
    // The erases of some collections may not be durable yet.
    ftl.sync(now, ftl.blocks.erased_until.max(now))?;
    Ok(collected)
}

/// Collects blocks that hold data. Returns whether all of them are free.
fn collect_all(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
    blocks: &[Pbn],
) -> Result<bool, FtlError> {
    let erases: Vec<u32> = blocks
        .iter()
        .map(|&block| ftl.blocks.erases_of(block))
        .collect();
    for (&block, erases) in blocks.iter().zip(erases) {
        if ftl.blocks.state(block) == BlockState::Free {
            continue;
        }
        let has_room = gain(ftl, owner, now)?;
        // The block was collected to gain room, and may be in use again.
        if ftl.blocks.erases_of(block) > erases {
            continue;
        }
        if !has_room || !ftl.blocks.is_candidate(block) {
            return Ok(false);
        }
        collect(ftl, owner, now, block)?;
        if ftl.blocks.state(block) == BlockState::Stuck {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Collects other blocks until there is space for the copies of one more block. Returns whether
/// there is.
fn gain(ftl: &mut Ftl, owner: &mut dyn Owner, now: Nanos) -> Result<bool, FtlError> {
    while !ftl.can_copy_block() {
        let end = ftl.blocks.end.unwrap_or(Pbn(u32::MAX));
        let dense = ftl.collector.dense_pages;
        let is_one = |&(block, live): &(Pbn, u32)| block < end && live < dense;
        let Some((victim, _)) = ftl.blocks.victims.iter().find(is_one) else {
            return Ok(false);
        };
        collect(ftl, owner, now, victim)?;
    }
    Ok(true)
}
