//! Removes torn flags after a restart of a record-level device.

use super::recover::Torn;
use super::{Mistake, RecordDevice};
use crate::commit::DeviceError;
use crate::ftl::{BlockState, collect, make_room, move_page};
use crate::units::{Nanos, Pbn};
use std::collections::BTreeSet;

impl RecordDevice {
    /// Removes torn flags (D8): copies live pages that have one, with the flags that their
    /// transactions should have, and then erases the blocks with such pages. Meanwhile the
    /// collector skips all blocks with entries of these transactions. Returns when that is durable.
    pub(super) fn mend(&mut self, now: Nanos, torn: Torn) -> Result<Nanos, DeviceError> {
        let Torn { pages, blocks } = torn;
        if self.rules.broken_by(Mistake::TornFlagStays) {
            return Ok(now);
        }
        let (ftl, records) = (&mut self.ftl, &mut self.records);
        for &block in &blocks {
            ftl.blocks.pin(block);
        }
        let mut copied = now;
        for &page in &pages {
            if ftl.blocks.is_live(page) {
                make_room(ftl, records, now)?;
            }
            // A collection for free space may have merged it into another version.
            if ftl.blocks.is_live(page) {
                // An unreadable page stays, and so does its block.
                copied = copied.max(move_page(ftl, records, now, page)?.unwrap_or_default());
            }
        }
        let now = ftl.sync(now, copied)?;
        let flags: BTreeSet<Pbn> = pages
            .iter()
            .map(|&page| ftl.geometry().block_of(page))
            .collect();
        let mut erased = now;
        for &block in &flags {
            make_room(ftl, records, now)?;
            ftl.blocks.unpin(block);
            if ftl.blocks.state(block) == BlockState::Full {
                erased = erased.max(collect(ftl, records, now, block)?);
            }
        }
        for &block in blocks.difference(&flags) {
            ftl.blocks.unpin(block);
        }
        Ok(ftl.sync(now, erased)?)
    }
}
