//! What recovery of SEAL has read of each page, kept in a few bytes until all pages have been read.
//!
//! The numbers of one block lie close together: write sequences count up, transactions follow each
//! other, a commit comes soon after its pages. So a block keeps the least of each kind of number,
//! and of each page how far above it is, in as many bytes as the largest distance of the block
//! takes. Databases call that a frame of reference.

use super::Mistake;
use super::recovery::Version;
use crate::ftl::Slot;
use crate::layout::get;
use crate::mistakes::Mistaken;
use crate::units::{Lpn, Pbn, Ppn, TxId};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// The write sequence, plus what makes it equal for pages that were written in a row.
const SEQ: usize = 0;
/// How far the place of a commit is behind the write sequence; nothing for undecided versions.
const AHEAD: usize = 1;
/// The transaction, unless the page counts by itself.
const TX: usize = 2;
/// The logical page and whether it is trimmed, of undecided versions.
const LPN: usize = 3;
/// Pages of the transaction, of undecided versions that are the last of theirs.
const COUNT: usize = 4;
const KINDS: usize = 5;

/// The versions of a scan, in its order.
#[derive(Debug)]
pub(super) struct Columns {
    pages_per_block: u32,
    blocks: Vec<Block>,
    /// Where each block is among `blocks`.
    index: Vec<u32>,
    /// The columns of all blocks.
    bytes: Vec<u8>,
}

/// The columns of a block. Those of a kind are as long as those of another, one behind the other.
#[derive(Debug)]
struct Block {
    id: Pbn,
    /// Pages up to the last one with a version.
    pages: u16,
    /// Bytes of each number.
    widths: [u8; KINDS],
    /// Kinds of which each page has a number, as bits. Of others, 0 stands for none.
    full: u8,
    /// Where its bytes begin.
    start: u64,
    least: [u64; KINDS],
}

/// No block: one that was not scanned.
const NONE: u32 = u32::MAX;

/// An undecided version.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub(super) seq: u64,
    /// Pages of the transaction, if this is the last one.
    count: u32,
    pub(super) lpn: Lpn,
    pub(super) slot: Slot,
}

/// Undecided versions of one transaction that lie side by side in a block.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) tx: TxId,
    pub(super) block: Pbn,
    index: usize,
    pages: Range<u32>,
}

impl Columns {
    pub(super) fn new(blocks: u32, pages_per_block: u32) -> Columns {
        Columns {
            pages_per_block,
            blocks: Vec::new(),
            index: vec![NONE; blocks as usize],
            bytes: Vec::new(),
        }
    }

    /// Takes the versions of a block: a page of the block and its version, in ascending order.
    pub(super) fn push(&mut self, id: Pbn, versions: &[(u32, Version)]) {
        let Some(&(last, _)) = versions.last() else {
            return;
        };
        self.index[id.index()] = self.blocks.len() as u32;
        let pages = last + 1;
        let mut block = Block {
            id,
            pages: pages as u16,
            widths: [0; KINDS],
            full: 0,
            start: self.bytes.len() as u64,
            least: [0; KINDS],
        };
        for kind in 0..KINDS {
            let number = |(page, version): &(u32, Version)| {
                let number = match kind {
                    SEQ => Some(version.seq + u64::from(pages - page)),
                    AHEAD => version.decided().map(|(_, place)| place - version.seq),
                    TX => (!version.is_alone()).then_some(version.tx.0),
                    _ if version.decided().is_some() => None,
                    LPN => {
                        Some(u64::from(version.lpn.0) << 1 | u64::from(is_trimmed(version.slot)))
                    }
                    _ => (version.count > 0).then_some(version.count.into()),
                };
                (*page, number)
            };
            self.pack(&mut block, kind, versions.iter().map(number));
        }
        self.blocks.push(block);
    }

    /// Appends a column.
    fn pack(
        &mut self,
        block: &mut Block,
        kind: usize,
        numbers: impl Iterator<Item = (u32, Option<u64>)> + Clone,
    ) {
        let there = numbers.filter_map(|(page, number)| number.map(|number| (page, number)));
        let (mut count, mut least, mut most) = (0, u64::MAX, 0);
        for (_, number) in there.clone() {
            (count, least, most) = (count + 1, number.min(least), number.max(most));
        }
        if count == 0 {
            return;
        }
        let is_full = count == block.pages;
        let above = u64::from(!is_full);
        let bits = u64::BITS - (most - least + above).leading_zeros();
        let width = bits.div_ceil(8) as usize;
        block.full |= u8::from(is_full) << kind;
        block.widths[kind] = width as u8;
        block.least[kind] = least;
        let start = self.bytes.len();
        self.bytes.resize(start + width * block.pages as usize, 0);
        for (page, number) in there {
            let code = number - least + above;
            let at = start + width * page as usize;
            self.bytes[at..at + width].copy_from_slice(&code.to_le_bytes()[..width]);
        }
    }

    /// A number of a page.
    #[inline]
    fn number(&self, block: &Block, kind: usize, page: u32) -> Option<u64> {
        if page >= block.pages.into() {
            return None;
        }
        let before: usize = block.widths[..kind]
            .iter()
            .map(|&width| width as usize)
            .sum();
        let width = block.widths[kind] as usize;
        let at = block.start as usize + before * block.pages as usize + width * page as usize;
        let code = get(&self.bytes, at..at + width);
        match block.full >> kind & 1 {
            1 => Some(block.least[kind] + code),
            _ => code.checked_sub(1).map(|code| block.least[kind] + code),
        }
    }

    #[inline]
    fn seq(&self, block: &Block, page: u32) -> Option<u64> {
        let seq = self.number(block, SEQ, page)?;
        Some(seq - u64::from(u32::from(block.pages) - page))
    }

    /// Place and write sequence of a version that was pushed. `place_of` says where an undecided
    /// version of a transaction is.
    #[inline]
    pub(super) fn rank(&self, at: Ppn, place_of: impl Fn(TxId) -> Option<u64>) -> (u64, u64) {
        let page = at.0 % self.pages_per_block;
        let block = &self.blocks[self.index[(at.0 / self.pages_per_block) as usize] as usize];
        let seq = self.seq(block, page).expect("a version is there");
        let place = match self.number(block, AHEAD, page) {
            Some(ahead) => Some(seq + ahead),
            None => self
                .number(block, TX, page)
                .and_then(|tx| place_of(TxId(tx))),
        };
        (place.expect("only what counts is held against others"), seq)
    }

    /// The transactions that the summary of a block gives a place, with that place and the block,
    /// in the order of the scan; once at least for each run of pages of one transaction.
    pub(super) fn stated(&self) -> impl Iterator<Item = (TxId, u64, Pbn)> {
        self.blocks.iter().flat_map(move |block| {
            let mut last = None;
            (0..u32::from(block.pages)).filter_map(move |page| {
                let tx = self.number(block, TX, page)?;
                let ahead = self.number(block, AHEAD, page)?;
                let place = self.seq(block, page)? + ahead;
                let said = last.replace((tx, place));
                (said != last).then_some((TxId(tx), place, block.id))
            })
        })
    }

    /// The undecided versions, a run at a time.
    pub(super) fn undecided(&self) -> impl Iterator<Item = Run> {
        let blocks = self.blocks.iter().enumerate();
        let is_open = |block: &Block| block.full >> LPN & 1 == 1 || block.widths[LPN] > 0;
        let open = blocks.filter(move |(_, block)| is_open(block));
        open.flat_map(move |(index, block)| {
            let mut next = 0;
            std::iter::from_fn(move || {
                let tx = |page: u32| {
                    self.number(block, LPN, page)?;
                    self.number(block, TX, page)
                };
                let begin = (next..u32::from(block.pages)).find(|&page| tx(page).is_some())?;
                let run_of = tx(begin)?;
                let others = (begin..u32::from(block.pages)).find(|&page| tx(page) != Some(run_of));
                next = others.unwrap_or(u32::from(block.pages));
                Some(Run {
                    tx: TxId(run_of),
                    block: block.id,
                    index,
                    pages: begin..next,
                })
            })
        })
    }

    /// The versions of a run.
    pub(super) fn of_run(&self, run: &Run) -> impl Iterator<Item = Pending> {
        let block = &self.blocks[run.index];
        run.pages.clone().filter_map(move |page| {
            let lpn = self.number(block, LPN, page)?;
            let at = Ppn(block.id.0 * self.pages_per_block + page);
            Some(Pending {
                seq: self.seq(block, page)?,
                count: self.number(block, COUNT, page).unwrap_or(0) as u32,
                lpn: Lpn((lpn >> 1) as u32),
                slot: match lpn & 1 {
                    1 => Slot::Trimmed(at),
                    _ => Slot::Page(at),
                },
            })
        })
    }

    /// The places of those transactions with undecided versions for which `is_open` and all of whose
    /// pages are there.
    pub(super) fn whole(
        &self,
        is_open: impl Fn(TxId) -> bool,
        mistake: Mistaken<Mistake>,
    ) -> FxHashMap<TxId, u64> {
        let mut open: Vec<Run> = self.undecided().filter(|run| is_open(run.tx)).collect();
        open.sort_by_key(|run| run.tx);
        let mut whole = FxHashMap::default();
        let mut pages: Vec<(u64, u32)> = Vec::new();
        for runs in open.chunk_by(|a, b| a.tx == b.tx) {
            pages.clear();
            let versions = runs.iter().flat_map(|run| self.of_run(run));
            pages.extend(versions.map(|version| (version.seq, version.count)));
            pages.sort_unstable();
            whole.extend(end_of(&pages, mistake).map(|cv| (runs[0].tx, cv)));
        }
        whole
    }
}

fn is_trimmed(slot: Slot) -> bool {
    matches!(slot, Slot::Trimmed(_))
}

/// The place of a transaction all of whose pages are there, by their write sequences and by what
/// they say of the number of its pages, in the order of the sequences. Copies have one sequence.
fn end_of(pages: &[(u64, u32)], mistake: Mistaken<Mistake>) -> Option<u64> {
    let last = pages.iter().find(|(_, count)| *count > 0);
    if mistake.is(Mistake::NotCounted) {
        return Some(last.unwrap_or(&pages[0]).0);
    }
    let &(seq, count) = last?;
    let different = match mistake.is(Mistake::CopiesCounted) {
        true => pages.len(),
        false => pages.chunk_by(|a, b| a.0 == b.0).count(),
    };
    let is_whole = different == count as usize;
    (is_whole || mistake.is(Mistake::LastPageCommits)).then_some(seq)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    const PAGES: u32 = 16;

    /// A version whose numbers lie in a narrow range or anywhere.
    fn version(dice: &mut Dice, at: Ppn, near: u64) -> Version {
        let is_near = near > 0;
        let mut number = |bits: u32| match is_near {
            true => near + dice.below(5),
            false => dice.below(1 << bits),
        };
        let (seq, tx, lpn) = (number(48), TxId(number(48)), Lpn(number(31) as u32));
        let (count, verdict) = (number(32) as u32, number(32) as u32);
        let slot = match dice.below(4) {
            0 => Slot::Trimmed(at),
            _ => Slot::Page(at),
        };
        Version {
            tx: if dice.below(8) == 0 { TxId(0) } else { tx },
            seq,
            count: if dice.below(2) == 0 { 0 } else { count },
            verdict: if dice.below(2) == 0 { 0 } else { verdict },
            lpn,
            slot,
        }
    }

    /// What the columns have to say of undecided versions: transaction, block, and the version.
    type Said = (TxId, Pbn, u64, u32, Lpn, Slot);

    #[test]
    fn numbers_come_back_as_they_were_whatever_their_range() {
        for seed in 0..500 {
            let mut dice = Dice(seed);
            let mut columns = Columns::new(8, PAGES);
            let (mut all, mut undecided, mut stated) = (Vec::new(), Vec::<Said>::new(), Vec::new());
            for block in [3, 0, 7, 2].map(Pbn) {
                let near = dice.below(2) * (1 + dice.below(1 << 40));
                let mut versions = Vec::new();
                for page in 0..PAGES {
                    let at = Ppn(block.0 * PAGES + page);
                    if dice.below(6) > 0 {
                        versions.push((page, version(&mut dice, at, near)));
                    }
                }
                columns.push(block, &versions);
                for (page, version) in versions {
                    let at = Ppn(block.0 * PAGES + page);
                    let place = version.decided().map(|(_, place)| place);
                    all.push((at, version, place));
                    let Version {
                        tx,
                        seq,
                        count,
                        lpn,
                        slot,
                        ..
                    } = version;
                    match place {
                        None => undecided.push((tx, block, seq, count, lpn, slot)),
                        Some(place) if !version.is_alone() => stated.push((tx, place, block)),
                        Some(_) => {}
                    }
                }
            }
            for (at, version, place) in all {
                let of_tx = |tx: TxId| (tx == version.tx).then_some(7);
                let rank = (place.unwrap_or(7), version.seq);
                assert_eq!(columns.rank(at, of_tx), rank, "seed {seed}, page {at}");
            }
            let mut found = Vec::new();
            for run in columns.undecided() {
                let of_run = columns.of_run(&run);
                found.extend(
                    of_run.map(|of| (run.tx, run.block, of.seq, of.count, of.lpn, of.slot)),
                );
            }
            assert_eq!(found, undecided, "seed {seed}");
            stated.dedup();
            assert_eq!(columns.stated().collect::<Vec<_>>(), stated, "seed {seed}");
        }
    }

    #[test]
    fn pages_of_a_load_take_a_byte_each() {
        let bytes = |count_at: u32, verdict: u32| {
            let mut columns = Columns::new(1, 128);
            let versions = (0..127).map(|page| {
                let version = Version {
                    tx: TxId(9_000),
                    seq: 1_000_000 + u64::from(page),
                    count: if page == count_at { 70_000 } else { 0 },
                    verdict: verdict.saturating_sub(page),
                    lpn: Lpn(50_000 + page),
                    slot: Slot::Page(Ppn(page)),
                };
                (page, version)
            });
            columns.push(Pbn(0), &versions.collect::<Vec<_>>());
            columns.bytes.len()
        };
        assert_eq!(bytes(127, 0), 127, "a distance between logical pages");
        assert_eq!(bytes(127, 9_000), 127, "a distance to the commit");
    }
}
