//! What a restart judges: which pages were durable, by what is said of them, and are not there.
//!
//! The table is in [`super`]; tests hold [`Known::judges`] against it, for every block of three
//! pages and everything that can be known of it.

use super::{Horizon, NONE, Statement};
use crate::ftl::{BlockState, Ftl, FtlError, Mistake, PairedPages};
use crate::nand::SaidAtErase;
use crate::units::{Lpn, Pbn, Ppn};
use std::fmt;
use std::ops::Range;

/// What a page of a block without a summary is found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ftl) enum Seen {
    Blank,
    Unreadable,
    /// With the number of its program; 0 if it does not say.
    Whole(u64),
}

impl Seen {
    /// The number of its program, if it says.
    pub(in crate::ftl) fn number(&self) -> Option<u64> {
        match *self {
            Seen::Whole(number) => Some(number).filter(|&number| number > 0),
            Seen::Blank | Seen::Unreadable => None,
        }
    }

    /// The highest number of these pages.
    pub(in crate::ftl) fn last(pages: &[Seen]) -> Option<u64> {
        pages.iter().filter_map(Seen::number).max()
    }
}

/// A block without a summary, as a restart finds it.
#[derive(Debug, Clone)]
pub(in crate::ftl) struct Found {
    pub(in crate::ftl) block: Pbn,
    /// Its pages in order, as far as they were read.
    pub(in crate::ftl) pages: Vec<Seen>,
    /// Whether the page for its summary was programmed and cannot be read.
    pub(in crate::ftl) has_torn_summary: bool,
}

/// What a restart has read, and what it knows of that.
pub struct Scanned<'a> {
    /// The device was closed: all programs up to this number were durable, and all their blocks had
    /// summaries. It may have been written to since.
    pub ended: Option<u64>,
    /// Blocks are passed over that have no page with a number above this one: the mapping table on
    /// flash has them.
    pub unto: u64,
    /// Whether a block was read, if it is not blank.
    pub reads: &'a dyn Fn(Pbn) -> bool,
    /// The highest logical page beyond the size of the device of which there is a version.
    pub beyond: Option<Lpn>,
    /// Whether the restart goes on where something is damaged.
    pub salvages: bool,
}

/// What was durable and is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The block; nothing if it is the newest root, or not known which.
    pub block: Option<Pbn>,
    /// Its page, counted from 0; nothing if it is its summary or all of it.
    pub page: Option<u32>,
    /// What is wrong.
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

/// What a restart knows of a block without a summary, beside its pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// The device was closed: then it had its summary, and was durable.
    pub(super) is_closed: bool,
    /// The mapping table on flash has all pages with numbers up to this one.
    pub(super) unto: u64,
    /// All programs up to this one were durable, as the newest statement of any plane says.
    pub(super) highest: u64,
    /// What the newest statement of its plane says.
    pub(super) stated: Option<Stated>,
    /// All full blocks with a last number up to this one had a durable summary, and this block was
    /// not open, as a statement of its plane says.
    pub(super) sealed: u64,
    /// Whether no program and no erase of the flash fails by itself.
    pub(super) never_fails: bool,
    /// Whether pages may be left out, where pages share cells.
    pub(super) leaves_out: bool,
    /// Whether the page for its summary was programmed and cannot be read.
    pub(super) has_torn_summary: bool,
    /// Data pages of a block.
    pub(super) data_pages: u32,
}

/// What a statement says of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stated {
    pub(super) horizon: u64,
    /// The page behind the last durable one of the block, counted from 0, if it was open.
    pub(super) end: Option<u32>,
    /// Whether the block may have been erased since. Only asked for if it was open.
    pub(super) is_erased: bool,
}

impl Known {
    /// The pages of a block without a summary that were durable and are not there, and whether it
    /// had a summary.
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
        // A summary is programmed when the pages of its block are durable, and one that has none
        // gets none.
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
    /// What statements of a plane say of a block with these data pages, and the number up to which
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
    /// What the restart has found damaged that was durable, where it was told to go on.
    pub fn damage(&self) -> &[Damage] {
        &self.horizon.damage
    }

    /// Notes a list of trims that a restart which salvages cannot read.
    pub fn note_lost_trims(&mut self, at: Ppn) {
        let damage = self.damage_of_trims(at);
        self.horizon.damage.push(damage);
    }

    /// The error of a list of trims that a restart cannot read.
    pub fn lost_trims(&self, at: Ppn) -> FtlError {
        match self.flash.never_fails() {
            true => FtlError::Damaged(self.damage_of_trims(at).to_string()),
            false => FtlError::Unreadable { at },
        }
    }

    fn damage_of_trims(&self, at: Ppn) -> Damage {
        let (block, page) = self.addresses.split(at);
        Damage {
            block: Some(block),
            page: Some(page),
            why: TRIMS_GONE,
        }
    }

    /// Doubts a device that holds a version of a logical page beyond its size: it was larger. Only
    /// where it says itself how large it is, as a device does whose flash never fails.
    ///
    /// # Errors
    /// [`FtlError::Damaged`], unless damage is kept.
    pub fn doubt_size(&mut self, beyond: Option<Lpn>, goes_on: bool) -> Result<(), FtlError> {
        let Some(beyond) = beyond.filter(|_| self.flash.never_fails() && !goes_on) else {
            return Ok(());
        };
        Err(FtlError::Damaged(format!(
            "it holds logical page {beyond}, and knows {} pages: what said that it had become \
             larger is lost",
            self.logical_pages
        )))
    }

    /// Looks, once a restart has read the blocks, for what was durable and is damaged. Where it
    /// salvages, damage is kept for [`Ftl::damage`], and is no error.
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
            // The pages with the last numbers before it may be gone, which must not come again.
            self.seq = self.seq.max(number);
            // Of a block that was not read the erases are not known either.
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
        // Only a device that says itself how large it is may have lost that.
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

    /// Whether an erase was durable that came after the last one that the flash knows, which is of
    /// a block and was issued behind the program with a number: a page says so that was programmed
    /// after that, and was durable itself.
    fn lacks_an_erase(&self, said: &[(u64, u8, Ppn)], block: Pbn, number: u64) -> bool {
        let highest = self.horizon.highest();
        let later = said
            .iter()
            .filter(|(of, ..)| (number + 1..=highest).contains(of));
        let newest = later.max_by_key(|(of, ..)| of);
        newest.is_some_and(|&(_, erase, at)| {
            let other = self.addresses.block_of(at);
            // Erases of another start have other numbers.
            let is_of_start = !self.flash.was_erased_after(block, other, erase);
            is_of_start && erase != self.flash.last_erase_before(block)
        })
    }

    fn find_damage(&self, scanned: &Scanned<'_>) -> Vec<Damage> {
        let horizon = &self.horizon;
        let highest = horizon.highest();
        let newest = horizon.newest.iter().flatten().max_by_key(|it| it.number);
        let mut damage = Vec::new();
        // By how much the root that was found is older than the one that is stated.
        let behind = newest.map_or(0, |it| it.root.wrapping_sub(horizon.root as u8));
        if (1..128).contains(&behind) {
            damage.push(Damage {
                block: None,
                page: None,
                why: OLDER_ROOT,
            });
        }
        // All numbers that were found are lower than the last one before the close: no block is
        // left of which that is, and it was not erased, or its erase would say so.
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
        // A block that was open and looks blank. One that is not read has the state of those that
        // were never written.
        for statement in horizon
            .newest
            .iter()
            .flatten()
            .filter(|_| self.flash.never_fails())
        {
            for head in statement.heads.into_iter().filter(|&head| head != NONE) {
                let block = self.addresses.block_of(Ppn(head - 1));
                let is_beyond = head > self.geometry.pages();
                if is_beyond
                    || self.block_state(block) == BlockState::Free
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

    /// What is known of a block, beside its pages.
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

    /// Whether a block that was open at a statement may have been erased since. Where the flash
    /// does not count erases, it may.
    fn was_erased_after(&self, block: Pbn, statement: &Statement) -> bool {
        let of_statement = self.addresses.block_of(statement.at);
        self.flash
            .was_erased_after(block, of_statement, statement.erase)
    }
}
