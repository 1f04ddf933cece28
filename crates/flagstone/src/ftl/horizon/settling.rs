//! Statements in summaries that are programmed after a restart, before statements begin, on a flash
//! that never fails.
//!
//! Nothing new can be stated before each block has its summary. But a summary has verdicts: it may
//! commit a transaction with pages in a block that still waits for its own summary. Those pages
//! existed when the restart began. So the summary repeats the newest statement that was found, and
//! states the end of two other blocks without a summary: preferably of those that were open in that
//! statement, otherwise of those with the newest pages. A block whose summary was just programmed
//! still counts as one without, since that summary may not land. All others have theirs: the
//! summary states so up to the horizon of the statement, or up to the first block that it does not
//! name.

use super::{Found, NONE, Seen, Statement, statement};
use crate::ftl::Ftl;
use crate::units::{Pbn, Ppn};
use std::cmp::Reverse;

impl Found {
    /// The page after the leading pages that exist, if any.
    fn end(&self, first: Ppn) -> Option<u32> {
        let is_there = |page: &&Seen| matches!(page, Seen::Whole(_));
        let there = self.pages.iter().take_while(is_there).count() as u32;
        (there > 0).then(|| first.0 + there)
    }
}

impl Ftl {
    /// The statement of the summary programmed at a page, with the next number.
    pub(super) fn says_while_settling(&self, at: Ppn) -> [u8; statement::SIZE] {
        let block = self.blocks.addresses.block_of(at);
        let horizon = &self.horizon;
        let newest = horizon.newest[self.geometry.plane_of(block) as usize];
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
        let is_in = |head: u32, block: Pbn| {
            head != NONE && self.blocks.addresses.block_of(Ppn(head - 1)) == block
        };
        // If this summary lands, its own block has one. Earlier ones may not land.
        let settled = horizon.settled.iter();
        let waiting = horizon.found.iter().map(|found| (false, found));
        let others: Vec<(bool, &Found)> = waiting
            .chain(settled.map(|found| (true, found)))
            .filter(|(_, found)| found.block != block)
            .collect();
        let is_named = |found: &Found| newest.heads.iter().any(|&head| is_in(head, found.block));
        // First those that were provably not erased since, and about which the horizon says least.
        let erase = self.flash.last_erase_before(block);
        let mut further = others.clone();
        further.retain(|(_, found)| !is_named(found));
        further.sort_by_cached_key(|(is_settled, found)| {
            let is_unknown = self.flash.was_erased_after(found.block, block, erase);
            (is_unknown, *is_settled, Reverse(Seen::last(&found.pages)))
        });
        let mut further = further.into_iter().filter_map(|(_, found)| ends(found));
        let heads = newest.heads.map(|head| {
            let found = others.iter().find(|(_, found)| is_in(head, found.block));
            match found.and_then(|(_, found)| ends(found)) {
                Some(end) => end.max(head),
                None => further.next().unwrap_or(head),
            }
        });
        let is_named = |found: &Found| heads.iter().any(|&head| is_in(head, found.block));
        let unsealed = others.iter().filter(|(_, found)| !is_named(found));
        let unsealed = unsealed.map(|(_, found)| Seen::last(&found.pages));
        let below = unsealed.map(|last| last.unwrap_or(0).saturating_sub(1));
        let sealed = below.fold(newest.horizon, u64::min);
        let said = Statement {
            number: self.seq,
            sealed: sealed.max(newest.sealed),
            heads,
            root: horizon.root as u8,
            erase,
            ..newest
        };
        said.emit()
    }
}
