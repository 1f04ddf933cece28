//! Decides at a restart which durable pages are missing, according to the statements found.
//!
//! The table is in [`super`]. Tests compare [`Known::judges`] with it for every block of three
//! pages and every possible knowledge about it.

use super::{Horizon, NONE, Statement};
use crate::ftl::{BlockState, Ftl, FtlError, Mistake, PairedPages};
use crate::nand::SaidAtErase;
use crate::units::{Lpn, Pbn, Ppn};
use std::fmt;
use std::ops::Range;

/// The state of a page in a block without a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ftl) enum Seen {
    Blank,
    Unreadable,
    /// Valid, with the number of its program; 0 if unknown.
    Whole(u64),
}

impl Seen {
    /// The number of the program, if known.
    pub(in crate::ftl) fn number(&self) -> Option<u64> {
        match *self {
            Seen::Whole(number) => Some(number).filter(|&number| number > 0),
            Seen::Blank | Seen::Unreadable => None,
        }
    }

    /// The highest number among the pages.
    pub(in crate::ftl) fn last(pages: &[Seen]) -> Option<u64> {
        pages.iter().filter_map(Seen::number).max()
    }
}

/// A block without a summary, found by a restart.
#[derive(Debug, Clone)]
pub(in crate::ftl) struct Found {
    pub(in crate::ftl) block: Pbn,
    /// The block's pages in order, as far as they were read.
    pub(in crate::ftl) pages: Vec<Seen>,
    /// Whether its summary page was programmed and is unreadable.
    pub(in crate::ftl) has_torn_summary: bool,
}

/// The extent of a restart's scan, and what is known from the last close and the mapping table.
///
/// ```
/// use flagstone::ftl::{Config, Format, Ftl, FtlError, Scanned};
/// use flagstone::nand::Chip;
/// use flagstone::units::Nanos;
///
/// let mut format = Format::NONE;
/// format.horizons = true;
/// let flash = Box::new(Chip::default());
/// let (mut ftl, mounted) = Ftl::mount(flash, Config::default(), format, Nanos::ZERO)?;
/// let blocks = ftl.blocks().for_data();
/// ftl.scan(mounted.done, &blocks, |_, _, _| {})?;
/// ftl.doubt_horizon(&Scanned {
///     ended: None,
///     unto: 0,
///     reads: &|_| true,
///     beyond: None,
///     salvages: true,
/// })?;
/// // Nothing is damaged on a blank device.
/// assert_eq!(ftl.damage(), []);
/// # Ok::<(), FtlError>(())
/// ```
pub struct Scanned<'a> {
    /// The device was closed: all programs up to this number were durable, and all their blocks had
    /// summaries. It may have been written to since.
    pub ended: Option<u64>,
    /// Blocks without a page number above this are skipped: the mapping table on flash has their
    /// pages.
    pub unto: u64,
    /// Whether a block was read, if it is not blank.
    pub reads: &'a dyn Fn(Pbn) -> bool,
    /// The highest logical page beyond the size of the device of which a version exists.
    pub beyond: Option<Lpn>,
    /// Whether the restart continues despite damage.
    pub salvages: bool,
}

/// Durable data that is damaged.
///
/// Example: [`Scanned`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The block. `None` for the newest root, or if unknown.
    pub block: Option<Pbn>,
    /// The page in the block. `None` for its summary or the whole block.
    pub page: Option<u32>,
    /// Description of the damage.
    pub why: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.block, self.page) {
            (Some(block), Some(page)) => write!(f, "page {page} of block {block} {}", self.why),
            (Some(block), None) => write!(f, "block {block} {}", self.why),
            (None, _) => f.write_str(self.why),
        }
    }
}

const GONE: &str = "was durable and cannot be read";
const UNSEALED: &str = "had a summary, which cannot be read";
const BLANK: &str = "had pages that were durable, and is blank";
const SMALLER: &str =
    "it holds logical pages beyond its size: what said that it had become larger is lost";
const LAST_GONE: &str = "what was programmed last before the device was closed cannot be read";
const TRIMS_GONE: &str =
    "has a list of trimmed pages, and cannot be read: they may hold again what they held before";
const ERASE_GONE: &str =
    "a block was erased, and what said so is lost: it may hold again what it held before";
const OLDER_ROOT: &str = "the newest root cannot be read";

/// The known facts about a block without a summary, besides its pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// The device was closed after this block was written: it had a durable summary.
    pub(super) is_closed: bool,
    /// The mapping table on flash has all pages with numbers up to this one.
    pub(super) unto: u64,
    /// The highest horizon in the newest statements of all planes.
    pub(super) highest: u64,
    /// The newest statement of its plane about the block.
    pub(super) stated: Option<Stated>,
    /// According to a statement of its plane, all full blocks with a last number up to this one had
    /// durable summaries, and this block was not open.
    pub(super) sealed: u64,
    /// Whether programs and erases of the flash never fail.
    pub(super) never_fails: bool,
    /// Whether pages may be left blank because of shared cells.
    pub(super) leaves_out: bool,
    /// Whether its summary page was programmed and is unreadable.
    pub(super) has_torn_summary: bool,
    /// Number of data pages of a block.
    pub(super) data_pages: u32,
}

/// The contents of a statement about a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stated {
    pub(super) horizon: u64,
    /// The page after the last durable one of the block, if it was open.
    pub(super) end: Option<u32>,
    /// Whether the block may have been erased since. Only computed if it was open.
    pub(super) is_erased: bool,
}

impl Known {
    /// The durable pages that are missing in a block without a summary, and whether it had a
    /// summary.
    pub(super) fn judges(&self, pages: &[Seen]) -> (Vec<u32>, bool) {
        let last = Seen::last(pages);
        if last.is_some_and(|last| last <= self.unto) {
            return (Vec::new(), false);
        }
        if self.is_closed {
            return (Vec::new(), pages.iter().any(|page| *page != Seen::Blank));
        }
        // The pages before this one were durable.
        let below = |horizon: u64| {
            let is_below = |page: &Seen| page.number().is_some_and(|number| number <= horizon);
            pages.iter().rposition(is_below).map(|last| last as u32)
        };
        let mut end = below(self.highest).unwrap_or(0);
        // A summary is programmed when the pages of its block are durable. An empty block gets
        // none.
        let is_empty = !pages.iter().any(|page| matches!(page, Seen::Whole(_)));
        let mut is_unsealed = self.never_fails && self.has_torn_summary && is_empty;
        is_unsealed |= last.is_some_and(|last| last <= self.sealed);
        if let Some(stated) = self.stated {
            let is_older = below(stated.horizon).is_some();
            if let Some(stated_end) = stated.end {
                if is_older || !stated.is_erased {
                    end = end.max(stated_end);
                }
            } else if is_older && self.never_fails {
                // It was not open at the statement, so it was full.
                end = self.data_pages;
            }
        }
        let is_gone = |page: &u32| match pages.get(*page as usize) {
            Some(Seen::Unreadable) => true,
            Some(Seen::Blank) | None => !self.leaves_out,
            Some(Seen::Whole(_)) => false,
        };
        ((0..end).filter(is_gone).collect(), is_unsealed)
    }
}

impl Horizon {
    /// The statements of a plane about a block with these data pages, and the number up to which
    /// such a block had its summary; 0 if it was open.
    pub(super) fn says_of(
        &self,
        plane: usize,
        pages: Range<u32>,
        was_erased_after: impl Fn(&Statement) -> bool,
    ) -> (Option<Stated>, u64) {
        let end = |statement: &Statement| {
            let mut heads = statement.heads.iter().filter(|&&head| head != NONE);
            let head = heads.find(|&&head| pages.contains(&(head - 1)));
            head.map(|head| head - pages.start)
        };
        let stated = self.newest[plane].map(|statement| {
            let end = end(&statement);
            Stated {
                horizon: statement.horizon,
                end,
                is_erased: end.is_some() && was_erased_after(&statement),
            }
        });
        let both = [self.newest[plane], self.most_sealed[plane]];
        let both = both.iter().flatten();
        let was_open = both.clone().any(|it| end(it).is_some());
        let sealed = both.map(|it| it.sealed).max().filter(|_| !was_open);
        (stated, sealed.unwrap_or(0))
    }
}

impl Ftl {
    /// The damaged durable data that a salvaging restart has found.
    pub fn damage(&self) -> &[Damage] {
        &self.horizon.damage
    }

    /// Notes an unreadable list of trims in a salvaging restart.
    pub fn note_lost_trims(&mut self, at: Ppn) {
        let damage = self.damage_of_trims(at);
        self.horizon.damage.push(damage);
    }

    /// The error for an unreadable list of trims.
    pub fn lost_trims(&self, at: Ppn) -> FtlError {
        if self.flash.never_fails() {
            FtlError::Damaged(self.damage_of_trims(at).to_string())
        } else {
            FtlError::Unreadable { at }
        }
    }

    fn damage_of_trims(&self, at: Ppn) -> Damage {
        let (block, page) = self.blocks.addresses.split(at);
        Damage {
            block: Some(block),
            page: Some(page),
            why: TRIMS_GONE,
        }
    }

    /// Checks for damaged durable data, once a restart has read the blocks. A salvaging restart
    /// keeps the damage for [`Ftl::damage`] instead of failing.
    ///
    /// # Errors
    /// [`FtlError::Damaged`].
    pub fn doubt_horizon(&mut self, scanned: &Scanned<'_>) -> Result<(), FtlError> {
        if self.config.mistake.is(Mistake::HorizonIgnored) {
            return Ok(());
        }
        let said = std::mem::take(&mut self.horizon.erases_said);
        let mut damage = std::mem::take(&mut self.horizon.damage);
        if let Some(SaidAtErase {
            block,
            number,
            says,
            is_last,
        }) = self.flash.said_at_erase()
        {
            let at = self.geometry.page(block, 0);
            self.horizon.hears(0, at, number, &says);
            // The pages with the last numbers may be lost. Their numbers must not be used again.
            self.seq = self.seq.max(number);
            // The erases of blocks that were not read are unknown.
            let knows_all = (0..self.geometry.blocks()).all(|block| (scanned.reads)(Pbn(block)));
            if is_last && knows_all && self.lacks_an_erase(&said, block, number) {
                damage.push(Damage {
                    block: None,
                    page: None,
                    why: ERASE_GONE,
                });
            }
        }
        damage.extend(self.find_damage(scanned));
        // Only a device that determines its own size can have lost it.
        if scanned.beyond.is_some() && self.flash.never_fails() {
            damage.push(Damage {
                block: None,
                page: None,
                why: SMALLER,
            });
        }
        self.horizon.damage = damage;
        match self.horizon.damage.first() {
            Some(first) if !scanned.salvages => {
                let others = match self.horizon.damage.len() - 1 {
                    0 => String::new(),
                    others => format!(", and {others} more like it"),
                };
                Err(FtlError::Damaged(format!("{first}{others}")))
            }
            _ => Ok(()),
        }
    }

    /// Whether a durable erase is lost that followed the last one known to the flash. That one
    /// erased `block` and was issued after program `number`. A later durable page proves the lost
    /// erase.
    fn lacks_an_erase(&self, said: &[(u64, u8, Ppn)], block: Pbn, number: u64) -> bool {
        let highest = self.horizon.highest();
        let later = said
            .iter()
            .filter(|(of, ..)| (number + 1..=highest).contains(of));
        let newest = later.max_by_key(|(of, ..)| of);
        newest.is_some_and(|&(_, erase, at)| {
            let other = self.blocks.addresses.block_of(at);
            // Erases in another start have other numbers.
            let is_of_start = !self.flash.was_erased_after(block, other, erase);
            is_of_start && erase != self.flash.last_erase_before(block)
        })
    }

    /// The damage that the statements prove: an older root, pages and summaries that were durable
    /// and are missing, the last page before a close, and blank blocks that were open.
    fn find_damage(&self, scanned: &Scanned<'_>) -> Vec<Damage> {
        let horizon = &self.horizon;
        let highest = horizon.highest();
        let newest = horizon.newest.iter().flatten().max_by_key(|it| it.number);
        let mut damage = Vec::new();
        // By how many generations the found root is older than the stated one.
        let behind = newest.map_or(0, |it| it.root.wrapping_sub(horizon.root as u8));
        if (1..128).contains(&behind) {
            damage.push(Damage {
                block: None,
                page: None,
                why: OLDER_ROOT,
            });
        }
        // All numbers found are lower than the last one before the close: the block with that
        // number is lost, and was not erased, since its erase would state the number.
        if scanned.ended.is_some_and(|ended| self.seq < ended) {
            damage.push(Damage {
                block: None,
                page: None,
                why: LAST_GONE,
            });
        }
        for found in &horizon.found {
            let (pages, summary) = self.known_of(found, highest, scanned).judges(&found.pages);
            let block = Some(found.block);
            let gone = |page| Damage {
                block,
                page: Some(page),
                why: GONE,
            };
            damage.extend(pages.into_iter().map(gone));
            damage.extend(summary.then_some(Damage {
                block,
                page: None,
                why: UNSEALED,
            }));
        }
        // An open block that looks blank. A block that was not read looks like one that was never
        // written.
        for statement in horizon
            .newest
            .iter()
            .flatten()
            .filter(|_| self.flash.never_fails())
        {
            for head in statement.heads.into_iter().filter(|&head| head != NONE) {
                let block = self.blocks.addresses.block_of(Ppn(head - 1));
                let is_beyond = head > self.geometry.pages();
                if is_beyond
                    || self.blocks.state(block) == BlockState::Free
                        && (scanned.reads)(block)
                        && !self.was_erased_after(block, statement)
                {
                    damage.push(Damage {
                        block: Some(block),
                        page: None,
                        why: BLANK,
                    });
                }
            }
        }
        damage
    }

    /// Collects what is known about a block, besides its pages.
    fn known_of(&self, found: &Found, highest: u64, scanned: &Scanned<'_>) -> Known {
        let block = found.block;
        let last = Seen::last(&found.pages);
        let first = self.geometry.page(block, 0).0;
        let ends = first..first + self.data_pages;
        let plane = self.geometry.plane_of(block) as usize;
        let was_erased = |statement: &Statement| self.was_erased_after(block, statement);
        let (stated, sealed) = self.horizon.says_of(plane, ends, was_erased);
        Known {
            is_closed: scanned
                .ended
                .is_some_and(|ended| last.is_none_or(|last| last <= ended)),
            unto: scanned.unto,
            highest,
            stated,
            sealed,
            never_fails: self.flash.never_fails(),
            leaves_out: self.config.paired_pages != PairedPages::Ignored,
            has_torn_summary: found.has_torn_summary,
            data_pages: self.data_pages,
        }
    }

    /// Whether a block that was open at a statement may have been erased since. Assumed if the
    /// flash does not number its erases.
    fn was_erased_after(&self, block: Pbn, statement: &Statement) -> bool {
        let of_statement = self.blocks.addresses.block_of(statement.at);
        self.flash
            .was_erased_after(block, of_statement, statement.erase)
    }
}
