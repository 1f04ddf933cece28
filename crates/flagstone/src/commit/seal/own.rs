//! The pages of a live transaction on flash, and the contents of its last page.
//!
//! When a transaction overwrites its own page, the older version is garbage at once. Its last page
//! then states the number of pages and the sum of the write sequences of their newest versions. A
//! restart takes the newest version of each page that it finds. If the newest is missing, an older
//! one has a smaller sequence, and the sum is too small.
//!
//! The sum replaces the page's statement about what was durable. If no other page of the
//! transaction states as much, the last page is programmed twice, the first time with a statement.

use super::seals::Waiting;
use super::trims::Trims;
use super::{Mistake, tail};
use crate::commit::active::{HeldBack, Writes};
use crate::commit::{Content, Write};
use crate::ftl::{self, Cause, Ftl, FtlError, PageKind, Slot, Stream, Written, trims_page};
use crate::layout::{get, put};
use crate::mistakes::Mistaken;
use crate::units::{Lpn, Nanos, Pbn, TxId};
use rustc_hash::FxHashMap;

/// This bit in [`tail::COUNT`] marks a last page with a sum.
const HAS_SUM: u32 = 1 << 31;

/// Decodes `COUNT` in the tail of a page: the number of pages, and whether the page has a sum.
pub fn seal_count(word: u64) -> (u32, bool) {
    let word = word as u32;
    (word & !HAS_SUM, word & HAS_SUM != 0)
}

/// [`seal_count`] of a tail.
pub(super) fn count_of(tail: &[u8]) -> (u32, bool) {
    seal_count(get(tail, tail::COUNT))
}

/// The state of a live transaction: its pages on flash, and the held-back page.
#[derive(Debug, Clone, Default)]
pub(super) struct Active {
    pub(super) writes: Writes,
    /// Number of versions that it has overwritten itself.
    pub(super) overwritten: u64,
    /// Blocks that wait for its end, including sealed ones.
    pub(super) blocks: Vec<Pbn>,
    pub(super) held: HeldBack,
    pub(super) trims: Trims,
    pub(super) said: Said,
}

/// The statements in a live transaction's pages.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Said {
    /// The maximum that one of them states, see [`Ftl::said`].
    most: u64,
    /// Number of pages that state this maximum.
    pages: u32,
}

impl Said {
    /// Required number of pages with the statement, so that it survives the loss of one of them.
    const PAGES: u32 = 2;

    /// Records a programmed page with this statement.
    fn add(&mut self, said: u64) {
        if said > self.most {
            *self = Said {
                most: said,
                pages: 0,
            };
        }
        self.pages += u32::from(said == self.most);
    }

    /// How many more pages are required that state as much as a page programmed at `now` would.
    fn missing(&self, ftl: &mut Ftl, now: Nanos) -> u32 {
        if ftl.says_more(now, self.most) {
            return Self::PAGES;
        }
        // If nothing is stated, nothing needs to be repeated.
        Self::PAGES.saturating_sub(self.pages) * u32::from(self.most > 0)
    }
}

impl Active {
    /// The contents of the held-back page, or of the list of trims, as the last page.
    pub(super) fn last(&self, mistake: Mistaken<Mistake>) -> Last {
        let held = self.held.lpn();
        let overwrites = held.is_some_and(|at| self.writes.get(at).is_some());
        let overwritten = self.overwritten + u64::from(overwrites);
        let lists = if mistake.is(Mistake::TrimsNotCounted) {
            &[]
        } else {
            &self.trims.lists[..]
        };
        let count = self.writes.entries().len() + lists.len() + usize::from(!overwrites);
        let count = count as u32;
        if mistake.is(Mistake::NumberOfPrograms) {
            return Last {
                count: count + overwritten as u32,
                sum: None,
            };
        }
        let has_sum = count > 1 && overwritten > 0;
        let sum = || {
            let entries = self.writes.entries().iter();
            let others = entries.filter(|entry| Some(entry.lpn) != held);
            let others = others.map(|entry| entry.seq);
            let all = others.chain(lists.iter().map(|list| list.seq));
            all.fold(0u64, u64::wrapping_add)
        };
        Last {
            count,
            sum: has_sum.then(sum),
        }
    }

    /// The blocks of the pages on flash, without duplicates.
    pub(super) fn places(&self, ftl: &Ftl) -> Vec<Pbn> {
        let entries = self.writes.entries().iter();
        let written = entries.filter_map(|entry| entry.slot.ppn());
        let written = written.chain(self.trims.lists.iter().map(|list| list.at));
        let mut blocks: Vec<Pbn> = written.map(|at| ftl.geometry().block_of(at)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }
}

/// The contents of a transaction's last page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Last {
    /// Number of pages of the transaction, including this one.
    pub(super) count: u32,
    /// The sum of the write sequences of the others, modulo 2^64, if the transaction has
    /// overwritten its own pages. Otherwise each page has one version, and the number suffices.
    pub(super) sum: Option<u64>,
}

impl Last {
    /// The value for a page that is not the last one.
    pub(super) const NOT: Last = Last {
        count: 0,
        sum: None,
    };
}

/// Programs the last page of a transaction: the held-back page, or a list of its trims. Returns the
/// contents of that page.
#[inline]
pub(super) fn program_last(
    ftl: &mut Ftl,
    now: Nanos,
    tx: TxId,
    active: &mut Active,
    mistake: Mistaken<Mistake>,
    waiting: &mut FxHashMap<Pbn, Waiting>,
) -> Result<(Last, Written), FtlError> {
    if active.trims.waiting() > 0 {
        if active.held.is_some() {
            program(ftl, now, tx, active, Last::NOT, waiting)?;
        }
        if let Some(at) = active.trims.take_only() {
            let (content, cause) = (Content::Trim, Cause::Host);
            active.held.hold(Write { at, content, cause });
        }
    }
    let mut says = active.last(mistake);
    if says.sum.is_some() && !ftl.config().mistake.is(ftl::Mistake::WordUnstated) {
        state_before_sum(ftl, now, tx, active, waiting)?;
        // If that has programmed lists of trims, the transaction has more pages.
        says = active.last(mistake);
    }
    let last = program(ftl, now, tx, active, says, waiting)?;
    if active.trims.waiting() > 0 {
        active.trims.are_listed();
    }
    Ok((says, last))
}

/// Called before the last page of a transaction with a sum, which has no room for a statement:
/// ensures that enough other pages have the statement, by programming this page as an ordinary one
/// first if necessary.
fn state_before_sum(
    ftl: &mut Ftl,
    now: Nanos,
    tx: TxId,
    active: &mut Active,
    waiting: &mut FxHashMap<Pbn, Waiting>,
) -> Result<(), FtlError> {
    for _ in 0..active.said.missing(ftl, now) {
        let held = active.held.page();
        program(ftl, now, tx, active, Last::NOT, waiting)?;
        active.held.hold_again(held);
    }
    Ok(())
}

/// Programs the held-back page of a transaction, and kills the version that it replaces. Without a
/// held-back page, programs a list of its trims.
#[inline]
pub(super) fn program(
    ftl: &mut Ftl,
    now: Nanos,
    tx: TxId,
    active: &mut Active,
    says: Last,
    waiting: &mut FxHashMap<Pbn, Waiting>,
) -> Result<Written, FtlError> {
    if !active.held.is_some() {
        return program_list(ftl, now, tx, active, says, waiting);
    }
    let (at, kind, cause, bytes) = active.held.get();
    let to = append(ftl, now, tx, says, kind, at, bytes, cause)?;
    active.held.clear();
    if let Some(old) = active.writes.put_over(at, Slot::of(kind, to.at), to) {
        active.overwritten += 1;
        ftl.kill(old);
    }
    is_programmed(ftl, to, active, says, waiting);
    Ok(to)
}

/// Programs a list of the transaction's trims that are not listed yet.
#[cold]
pub(super) fn program_list(
    ftl: &mut Ftl,
    now: Nanos,
    tx: TxId,
    active: &mut Active,
    says: Last,
    waiting: &mut FxHashMap<Pbn, Waiting>,
) -> Result<Written, FtlError> {
    let named = active.trims.next();
    let highest = *named.last().expect("a transaction has a last page");
    let (kind, bytes) = (PageKind::Trims, trims_page(&named));
    let to = append(ftl, now, tx, says, kind, highest, &bytes, Cause::Host)?;
    active.writes.done = active.writes.done.max(to.done);
    active.trims.is_on_flash(to.at, to.seq, named);
    is_programmed(ftl, to, active, says, waiting);
    Ok(to)
}

/// Programs a page of a transaction. Its tail states the number of pages in `says`; a sum is the
/// word of the page, in place of its statement.
#[inline]
fn append(
    ftl: &mut Ftl,
    now: Nanos,
    tx: TxId,
    says: Last,
    kind: PageKind,
    at: Lpn,
    bytes: &[u8],
    cause: Cause,
) -> Result<Written, FtlError> {
    let mut tail = [0; tail::SIZE];
    put(&mut tail, tail::XID, tx.0);
    put(&mut tail, tail::COUNT, says.count.into());
    let (stream, page) = ((Stream::Host, None), (kind, at, None));
    let Some(sum) = says.sum else {
        return ftl.append(now, stream, page, &tail, bytes, cause);
    };
    put(&mut tail, tail::COUNT, (says.count | HAS_SUM).into());
    ftl.append_word(now, stream, page, &tail, sum, bytes, cause)
}

/// Records the statement of a programmed page of a live transaction, and what its block waits for.
#[inline]
fn is_programmed(
    ftl: &Ftl,
    to: Written,
    active: &mut Active,
    says: Last,
    waiting: &mut FxHashMap<Pbn, Waiting>,
) {
    if says.sum.is_none() {
        active.said.add(ftl.said());
    }
    // A single page counts by itself: no summary has to wait for its transaction.
    if says.count != 1 {
        let block = ftl.geometry().block_of(to.at);
        waits_for(block, active, waiting);
        if says.sum.is_some() {
            waiting.entry(block).or_default().has_sum = true;
        }
    }
}

/// Records that a block has a page of a live transaction.
#[inline]
pub(super) fn waits_for(block: Pbn, active: &mut Active, waiting: &mut FxHashMap<Pbn, Waiting>) {
    if !active.blocks.iter().rev().any(|&known| known == block) {
        active.blocks.push(block);
        waiting.entry(block).or_default().live += 1;
    }
}
