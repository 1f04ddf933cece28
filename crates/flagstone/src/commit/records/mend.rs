//! After a restart of a record-level device: flags that a cut has torn disappear.

use super::recover::Torn;
use super::{Mistake, RecordDevice};
use crate::commit::DeviceError;
use crate::ftl::{BlockState, collect, make_room, move_page};
use crate::units::{Nanos, Pbn};
use std::collections::BTreeSet;

impl RecordDevice {
    /// Makes torn flags disappear (D8): live pages with one are copied, and the copies have the
    /// flags that their transactions should have; then the blocks with such pages are erased. Until
    /// that is over, the collector keeps off all blocks with entries of these transactions. Returns
    /// when it is durable.
    pub(super) fn mend(&mut self, now: Nanos, torn: Torn) -> Result<Nanos, DeviceError> {
        let Torn { pages, blocks } = torn;
        if self.rules.broken_by(Mistake::TornFlagStays) {
            return Ok(now);
        }
        let (ftl, records) = (&mut self.ftl, &mut self.records);
        for &block in &blocks {
            ftl.pin(block);
        }
        let mut copied = now;
        for &page in &pages {
            if ftl.is_live(page) {
                make_room(ftl, records, now)?;
            }
            // What was collected to make room may have merged it away.
            if ftl.is_live(page) {
                // A page that cannot be read stays as it is, and so does its block.
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
            ftl.unpin(block);
            if ftl.block_state(block) == BlockState::Full {
                erased = erased.max(collect(ftl, records, now, block)?);
            }
        }
        for &block in blocks.difference(&flags) {
            ftl.unpin(block);
        }
        Ok(ftl.sync(now, erased)?)
    }
}
