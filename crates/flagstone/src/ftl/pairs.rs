//! Paired pages: how the FTL keeps a cut program from destroying durable pages ([`Pairing`]).
//!
//! A pair is *open* while its lower page is programmed and its upper page is not. If the lower page
//! is acknowledged, an open pair is a risk: the program of the upper page may be cut. Three modes
//! ([`PairedPages`]):
//!
//! ```text
//!   ignored   every page is programmed: a cut can destroy acknowledged pages
//!   closed    | l0 | l1 | u0 | l2 |  wait  | -- | l3 | -- | l4 | u3 |   u1, u2 stay blank
//!   slc       | l0 | l1 | -- | l2 |  wait  | -- | l3 | -- | l4 | -- |   all u stay blank
//! ```
//!
//! With `closed`, each wait ([`Ftl::sync`]) closes the pairs of the pages that it covers. If the
//! upper page was programmed already, the wait covers that program as well. Otherwise the upper
//! page is left blank for good, and the block continues with the next page. Hence:
//!
//! 1. A page that a wait has covered never shares cells with a later program in flight.
//! 2. The partner of the summary page is left blank, since the summary is programmed after a wait
//!    for all pages of its block.
//! 3. No open block is continued after a restart, so the state that a recovery finds does not
//!    change.
//!
//! Blocks for roots, translation pages and logs use lower pages only, since most of their pages are
//! waited for one by one. Linux calls this SLC emulation. A dummy program would close a pair as
//! well as a blank page does, but takes time, and must program the lower pages in between.
//!
//! The cost is room. A wait leaves as many pages of a block blank as it has open pairs. So the
//! collector copies a victim into one plane, and skips victims whose erase might not gain a page.

use super::write::Stream;
use super::{Config, Ftl, FtlError};
use crate::nand::{Cells, Geometry};
use crate::settings::named;
use crate::units::Nanos;
use std::collections::BTreeSet;

#[cfg(doc)]
use crate::nand::Pairing;

/// How an FTL handles pages that share cells ([`Pairing`]).
///
/// ```
/// use flagstone::ftl::{Config, Format, Ftl, PairedPages};
/// use flagstone::nand::{Cell, Geometry, Pairing};
///
/// let geometry = Geometry {
///     cell: Cell::Mlc,
///     pairing: Pairing::Distance3,
///     ..Geometry::default()
/// };
/// let mut config = Config::default();
/// config.over_provision = 0.6;
/// config.paired_pages = PairedPages::Slc;
/// assert!(Ftl::capacity(&geometry, &config, &Format::NONE).is_ok());
///
/// // With lower pages only, half of the pages are not used.
/// config.over_provision = 0.4;
/// assert!(Ftl::capacity(&geometry, &config, &Format::NONE).is_err());
/// config.paired_pages = PairedPages::Closed;
/// assert!(Ftl::capacity(&geometry, &config, &Format::NONE).is_ok());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum PairedPages {
    /// Ignores them: a cut can destroy acknowledged pages.
    #[default]
    Ignored,
    /// Each wait closes the pairs of the pages that it covers. Roots, translation pages and logs
    /// use lower pages only.
    Closed,
    /// All blocks use lower pages only, as if the cells held one bit.
    Slc,
}

impl PairedPages {
    /// All variants, with the names used in device files.
    pub const NAMES: [(&'static str, PairedPages); 3] = [
        ("ignored", PairedPages::Ignored),
        ("closed", PairedPages::Closed),
        ("slc", PairedPages::Slc),
    ];
}

named!(PairedPages, |name, names| format!(
    "paired_pages is `{name}`; it can be {names}"
));

/// The pages of a block that are programmed.
#[derive(Debug, Clone)]
pub(super) struct Pairs {
    way: PairedPages,
    cells: Option<Cells>,
    /// The data pages of a block that are never programmed.
    never: Vec<bool>,
    /// Whether a page shares cells with the summary page.
    beside_summary: Vec<bool>,
    /// Pages of a block for roots, translation pages and logs that are programmed.
    pub(super) meta_pages: Vec<u32>,
    /// Programs of upper pages: when each is done, and when the first page below it is. An entry
    /// stays after a client has waited for it: another client may wait until an earlier instant, at
    /// which one of the two is done and the other is not.
    both: BTreeSet<(Nanos, Nanos)>,
}

/// Maximum number of these entries. Beyond it the earlier half is dropped.
const KEPT_MAX: usize = 1 << 16;

/// When the pages of an open block are done. Empty unless pairs are closed.
#[derive(Debug, Clone, Default)]
pub(super) struct Dones {
    /// By page. A page that was left blank has the value of the previous page.
    pages: Vec<Nanos>,
    /// Number of first pages that were waited for.
    safe: usize,
}

impl Pairs {
    /// Decides which pages of a block are programmed: with `slc`, in each group of shared cells
    /// only the lowest; with `closed` or `slc`, none that shares cells with the summary page.
    pub(super) fn new(geometry: &Geometry, config: &Config) -> Pairs {
        let (way, cells) = (config.paired_pages, Cells::new(geometry));
        let pages = geometry.pages_per_block;
        let is_lowest = |page: u32| cells.as_ref().is_none_or(|cells| cells.is_lowest(page));
        let mut beside_summary = vec![false; pages as usize];
        if let Some(cells) = cells.as_ref().filter(|_| config.summary_pages) {
            for &page in cells.below(pages - 1) {
                beside_summary[page as usize] = true;
            }
        }
        let never = |page: u32| match way {
            PairedPages::Ignored => false,
            PairedPages::Closed => beside_summary[page as usize],
            PairedPages::Slc => beside_summary[page as usize] || !is_lowest(page),
        };
        let data_pages = pages - u32::from(config.summary_pages);
        Pairs {
            way,
            never: (0..data_pages).map(never).collect(),
            meta_pages: match way {
                PairedPages::Ignored => (0..pages).collect(),
                _ => (0..pages).filter(|&page| is_lowest(page)).collect(),
            },
            beside_summary,
            cells,
            both: BTreeSet::new(),
        }
    }

    /// The number of data pages that a block holds at least, however often clients wait and leave
    /// pages blank. A block with fewer live pages is worth collecting.
    pub(super) fn dense_pages(&self) -> u32 {
        let used = (0..).zip(&self.never).filter(|(_, never)| !**never);
        let used: Vec<u32> = used.map(|(page, _)| page).collect();
        let all = used.len() as u32;
        let Some(cells) = self.to_close() else {
            return all;
        };
        // If each page is waited for by itself, only the lowest pages are used.
        let lowest = used.iter().filter(|&&page| cells.is_lowest(page)).count() as u32;
        let is_open = |&&upper: &&u32, next: u32| {
            let below = cells.below(upper);
            upper >= next && below.iter().any(|&page| page < next)
        };
        let lost = |next| used.iter().filter(|upper| is_open(upper, next)).count() as u32;
        let lost = (0..self.never.len() as u32).map(lost).max().unwrap_or(0);
        // A collection waits once, and so does one for wear that may follow.
        lowest.max(all.saturating_sub(2 * lost))
    }

    /// The groups of shared cells, if waits close pairs.
    fn to_close(&self) -> Option<&Cells> {
        let closes = self.way == PairedPages::Closed;
        self.cells.as_ref().filter(|_| closes)
    }

    /// Whether a blank page implies that nothing after it in the block was waited for.
    pub(super) fn blank_ends(&self, page: u32) -> bool {
        let is_lowest =
            |cells: &Cells| cells.is_lowest(page) && !self.beside_summary[page as usize];
        self.cells.as_ref().is_none_or(is_lowest)
    }

    /// Whether a page stays blank if the first `safe` pages of its block were waited for.
    fn leaves_out(&self, page: usize, safe: usize) -> bool {
        let endangers = |cells: &Cells| {
            let mut below = cells.below(page as u32).iter();
            below.any(|&lower| (lower as usize) < safe)
        };
        self.never[page] || self.to_close().is_some_and(endangers)
    }

    /// Records the program of a page, done at `done`. It may have failed.
    pub(super) fn programmed(&mut self, page: u32, done: Nanos, open: &Dones) {
        let below = self.cells.as_ref().map(|cells| cells.below(page));
        let lower = below.into_iter().flatten();
        if let Some(first) = lower.map(|&lower| open.pages[lower as usize]).min() {
            self.both.insert((done, first));
        }
        if self.both.len() > KEPT_MAX {
            let middle = self.both.iter().nth(KEPT_MAX / 2).copied();
            self.both = self.both.split_off(&middle.expect("there are more"));
        }
    }

    /// When the pairs of all pages that are done at `until` or before are closed.
    fn close(&self, until: Nanos) -> Nanos {
        let later = self.both.range((until, Nanos(u64::MAX))..);
        let last = later.rev().find(|&&(_, lower)| lower <= until);
        last.map_or(until, |&(upper, _)| upper)
    }
}

impl Ftl {
    /// Closes the pairs of all pages that are done at `until` or before. Returns when they are
    /// closed.
    #[cold]
    pub(super) fn close_pairs(&mut self, until: Nanos) -> Nanos {
        let open = self.writer.all().flatten();
        for Dones { pages, safe } in open.map(|open| &mut open.dones) {
            *safe += pages[*safe..].partition_point(|&done| done <= until);
        }
        self.pairs.close(until)
    }

    /// Records that the last page of an open block shares cells and is programmed at `done`, and
    /// the following pages that are left blank. Closes the block if it is full.
    #[cold]
    pub(super) fn advance_in_pairs(
        &mut self,
        done: Nanos,
        stream: Stream,
        plane: u32,
    ) -> Result<(), FtlError> {
        if self.config.paired_pages == PairedPages::Closed {
            let slot = self.writer.at(stream, plane);
            let open = slot.as_mut().expect("a page was just programmed into it");
            self.pairs.programmed(open.next - 1, done, &open.dones);
            open.dones.pages.push(done);
        }
        self.pass_over(done, stream, plane)
    }

    /// Advances to the next page of an open block that does not endanger a page that was waited
    /// for. Closes the block at `now` if there is none.
    #[cold]
    pub(super) fn pass_over(
        &mut self,
        now: Nanos,
        stream: Stream,
        plane: u32,
    ) -> Result<(), FtlError> {
        let stride = self.summary_stride();
        let slot = self.writer.at(stream, plane);
        let Some(open) = slot.as_mut() else {
            return Ok(());
        };
        let safe = open.dones.safe;
        while open.next < self.data_pages && self.pairs.leaves_out(open.next as usize, safe) {
            open.records.resize(open.records.len() + stride, 0xff);
            open.next += 1;
            if self.config.paired_pages == PairedPages::Closed {
                let before = open.dones.pages.last().copied();
                open.dones.pages.push(before.unwrap_or(Nanos::ZERO));
            }
            self.stats.left_out += 1;
        }
        if open.next < self.data_pages {
            return Ok(());
        }
        let open = slot.take().expect("checked above");
        self.finish(now, open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nand::{Cell, Pairing, small};

    #[test]
    fn what_a_block_holds_whoever_waits_is_what_it_is_worth() {
        let dense = |pairing, pages_per_block, paired_pages| {
            let geometry = Geometry {
                pages_per_block,
                cell: Cell::Mlc,
                pairing,
                ..small::GEOMETRY
            };
            let config = Config {
                paired_pages,
                ..Config::small(30, None)
            };
            Pairs::new(&geometry, &config).dense_pages()
        };
        let (closed, slc) = (PairedPages::Closed, PairedPages::Slc);
        assert_eq!(dense(Pairing::Distance3, 64, PairedPages::Ignored), 63);
        // 62 pages can be used, and two waits leave out two pages each.
        assert_eq!(dense(Pairing::Distance3, 64, closed), 58);
        assert_eq!(dense(Pairing::Distance6, 64, closed), 54);
        assert_eq!(dense(Pairing::Distance3, 64, slc), 31);
        // Of eight pages, four are lower ones, one of which is the partner of the summary.
        assert_eq!(dense(Pairing::Distance3, 8, closed), 3);
        assert_eq!(dense(Pairing::Distance3, 8, slc), 3);
    }
}
