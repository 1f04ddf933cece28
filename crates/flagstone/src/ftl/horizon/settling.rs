//! What a summary says that is programmed while a restart is settled, on a flash that never fails.
//!
//! Nothing new can be stated before each block has its summary. But a summary has verdicts: it says
//! that a transaction counts, which may have pages in a block that waits for its own summary. Those
//! were there when the restart began. So the summary repeats the newest statement that was found,
//! and says of two blocks that still wait up to where their pages were there: of those that were
//! open by that statement, and else of others.

use super::{Found, NONE, Seen, Statement, statement};
use crate::ftl::Ftl;
use crate::units::Ppn;

impl Found {
    /// The page behind the first ones that are there, if any are.
    fn end(&self, first: Ppn) -> Option<u32> {
        let is_there = |page: &&Seen| matches!(page, Seen::Whole(_));
        let there = self.pages.iter().take_while(is_there).count() as u32;
        (there > 0).then(|| first.0 + there)
    }
}

impl Ftl {
    /// What the summary at a page says, with the next number.
    pub(super) fn says_while_settling(&self, at: Ppn) -> [u8; statement::SIZE] {
        let block = self.addresses.block_of(at);
        let newest = self.horizon.newest[self.geometry.plane_of(block) as usize];
        let newest = newest.unwrap_or(Statement {
            number: 0,
            horizon: 0,
            sealed: 0,
            heads: [NONE; 2],
            root: 0,
            erase: 0,
            at,
        });
        let ends = |found: &Found| found.end(self.geometry.page(found.block, 0));
        let is_in = |head: u32, found: &Found| {
            head != NONE && self.addresses.block_of(Ppn(head - 1)) == found.block
        };
        // A block that was open is named again, since its summary may not land.
        let is_named = |found: &&Found| newest.heads.iter().any(|&head| is_in(head, found));
        let found = self.horizon.found.iter();
        let mut others = found.filter(|found| !is_named(found)).filter_map(ends);
        let heads = newest.heads.map(|head| {
            let found = self.horizon.found.iter().find(|found| is_in(head, found));
            match (head, found.and_then(ends)) {
                (NONE, _) => others.next().unwrap_or(NONE),
                (head, end) => end.map_or(head, |end| end.max(head)),
            }
        });
        let said = Statement {
            number: self.seq,
            heads,
            root: self.horizon.root as u8,
            erase: self.flash.last_erase_before(block),
            ..newest
        };
        said.emit()
    }
}
