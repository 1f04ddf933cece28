//! Compressed storage for what recovery of SEAL has read about each page, until all pages were
//! read.
//!
//! The numbers in a block are close together: write sequences and transactions ascend, and a commit
//! follows its pages soon. So a block stores the minimum of each kind of number, and for each page
//! the distance from it, in as many bits as the largest distance requires. Databases call this a
//! frame of reference.

use super::Mistake;
use super::recovery::Version;
use crate::ftl::Slot;
use crate::mistakes::Mistaken;
use crate::nand::{Addresses, Geometry};
use crate::units::{Lpn, Pbn, Ppn, TxId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// The write sequence, plus an offset that makes it equal for consecutively written pages.
const SEQ: usize = 0;
/// The distance from the write sequence to the place of the commit; none for undecided versions.
const AHEAD: usize = 1;
/// The transaction, unless the page counts by itself.
const TX: usize = 2;
/// The logical page and whether it is trimmed, for undecided versions.
const LPN: usize = 3;
/// The number of pages of the transaction, in undecided versions that are its last page.
const COUNT: usize = 4;
const KINDS: usize = 5;

/// The versions found by a scan, in its order.
#[derive(Debug)]
pub(super) struct Columns {
    geometry: Geometry,
    addresses: Addresses,
    blocks: Vec<Block>,
    /// The index in `blocks` of each block.
    index: Vec<u32>,
    /// The columns of all blocks, and [`WORD`] more bytes, so that a whole word can be read
    /// anywhere.
    bytes: Vec<u8>,
    /// The sums in last pages.
    sums: FxHashMap<Ppn, u64>,
    /// The lists of trims among undecided versions.
    lists: FxHashSet<Ppn>,
    /// By kind: the numbers of the current block; [`NONE`] if missing.
    numbers: [Vec<u64>; KINDS],
}

/// The columns of a block, consecutive and of equal length.
#[derive(Debug)]
struct Block {
    id: Pbn,
    /// Number of pages up to the last one with a version.
    pages: u16,
    /// Bits per number, by kind.
    widths: [u8; KINDS],
    /// Bit set of the kinds for which every page has a number. For other kinds 0 means none.
    full: u8,
    /// Offset of its bytes.
    start: u64,
    least: [u64; KINDS],
}

/// No number.
const NONE: u64 = u64::MAX;
/// A block that was not scanned.
const UNSCANNED: u32 = u32::MAX;
const WORD: usize = size_of::<u64>();
/// Maximum width of a number that fits into a word at any bit offset.
const WIDEST: u32 = u64::BITS - 7;

/// The numbers of one kind in a block.
#[derive(Debug, Clone, Copy)]
struct Column<'a> {
    /// The bytes of the block, and the bit offset of the column.
    bytes: &'a [u8],
    begin: usize,
    pages: u32,
    width: usize,
    mask: u64,
    least: u64,
    /// The code of the minimum: 0 if every page has a number, 1 if 0 means none.
    first: u64,
}

impl Column<'_> {
    #[inline]
    fn get(&self, page: u32) -> Option<u64> {
        if page >= self.pages {
            return None;
        }
        let bit = self.begin + self.width * page as usize;
        let word = *self.bytes[bit / 8..]
            .first_chunk()
            .expect("a word is behind");
        let code = u64::from_le_bytes(word) >> (bit % 8) & self.mask;
        code.checked_sub(self.first).map(|above| self.least + above)
    }
}

/// Bits of an incomplete word. Each word is written once: modifying a word that was just written
/// would stall on that write.
#[derive(Debug, Default)]
struct Bits {
    word: u128,
    filled: u32,
}

impl Bits {
    #[inline]
    fn push(&mut self, code: u64, width: u32, into: &mut Vec<u8>) {
        self.word |= u128::from(code) << self.filled;
        self.filled += width;
        if self.filled >= u64::BITS {
            into.extend((self.word as u64).to_le_bytes());
            self.word >>= u64::BITS;
            self.filled -= u64::BITS;
        }
    }

    fn end(self, into: &mut Vec<u8>) {
        let bytes = self.filled.div_ceil(8) as usize;
        into.extend(&self.word.to_le_bytes()[..bytes]);
    }
}

/// An undecided version.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub(super) seq: u64,
    /// Number of pages of the transaction, if this is its last page.
    count: u32,
    /// The sum in it, if it has one.
    sum: Option<u64>,
    pub(super) lpn: Lpn,
    pub(super) slot: Slot,
    pub(super) is_list: bool,
}

/// Adjacent undecided versions of one transaction in a block.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) tx: TxId,
    pub(super) block: Pbn,
    index: usize,
    pages: Range<u32>,
}

impl Columns {
    pub(super) fn new(geometry: &Geometry) -> Columns {
        let pages = geometry.pages_per_block as usize;
        Columns {
            geometry: *geometry,
            addresses: Addresses::new(geometry),
            blocks: Vec::new(),
            index: vec![UNSCANNED; geometry.blocks() as usize],
            bytes: vec![0; WORD],
            sums: FxHashMap::default(),
            lists: FxHashSet::default(),
            numbers: std::array::from_fn(|_| vec![NONE; pages]),
        }
    }

    /// Adds the versions of a block: page in the block and version, in ascending order.
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
            start: (self.bytes.len() - WORD) as u64,
            least: [0; KINDS],
        };
        self.bytes.truncate(block.start as usize);
        for numbers in &mut self.numbers {
            numbers[..pages as usize].fill(NONE);
        }
        for (page, version) in versions {
            let at = *page as usize;
            self.numbers[SEQ][at] = version.seq + u64::from(pages - page);
            if !version.is_alone() {
                self.numbers[TX][at] = version.tx.0;
            }
            match version.decided() {
                Some((_, place)) => self.numbers[AHEAD][at] = place - version.seq,
                None => {
                    let is_trimmed = matches!(version.slot, Slot::Trimmed(_));
                    let word = u64::from(version.lpn.0) << 1 | u64::from(is_trimmed);
                    self.numbers[LPN][at] = word;
                    if version.count > 0 {
                        self.numbers[COUNT][at] = version.count.into();
                    }
                    if version.is_list {
                        self.lists.insert(self.geometry.page(id, *page));
                    }
                    if let Some(sum) = version.sum.filter(|_| version.count > 0) {
                        self.sums.insert(self.geometry.page(id, *page), sum);
                    }
                }
            }
        }
        let mut bits = Bits::default();
        for kind in 0..KINDS {
            self.pack(&mut block, kind, &mut bits);
        }
        bits.end(&mut self.bytes);
        self.bytes.extend([0; WORD]);
        self.blocks.push(block);
    }

    /// Encodes a column of a block.
    fn pack(&mut self, block: &mut Block, kind: usize, bits: &mut Bits) {
        let numbers = &self.numbers[kind][..block.pages.into()];
        let (mut count, mut least, mut most) = (0, NONE, 0);
        for &number in numbers.iter().filter(|&&number| number != NONE) {
            (count, least, most) = (count + 1, number.min(least), number.max(most));
        }
        if count == 0 {
            return;
        }
        let is_full = count == block.pages;
        let first = u64::from(!is_full);
        let width = u64::BITS - (most - least + first).leading_zeros();
        assert!(width <= WIDEST, "numbers of a spare area have six bytes");
        block.full |= u8::from(is_full) << kind;
        block.widths[kind] = width as u8;
        block.least[kind] = least;
        for &number in numbers {
            let code = match number {
                NONE => 0,
                number => number - least + first,
            };
            bits.push(code, width, &mut self.bytes);
        }
    }

    /// Blocks with a page that has a sum, in ascending order, if more than their summary was read.
    pub(super) fn with_sums(&self) -> Vec<Pbn> {
        let known = self.sums.iter().filter(|&(_, &sum)| sum > 0);
        let mut blocks: Vec<Pbn> = known.map(|(&at, _)| self.geometry.block_of(at)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// The column of a kind in a block. It has no pages if none of them has such a number.
    #[inline]
    fn column(&self, block: &Block, kind: usize) -> Column<'_> {
        let pages = usize::from(block.pages);
        let before: usize = block.widths[..kind]
            .iter()
            .map(|&width| width as usize)
            .sum();
        let width = block.widths[kind] as usize;
        let is_full = block.full >> kind & 1 == 1;
        Column {
            bytes: &self.bytes[block.start as usize..],
            begin: before * pages,
            pages: if is_full || width > 0 {
                block.pages.into()
            } else {
                0
            },
            width,
            mask: (1 << width) - 1,
            least: block.least[kind],
            first: u64::from(!is_full),
        }
    }

    /// Place and write sequence of an added version. `place_of` returns the place of a
    /// transaction's undecided versions.
    #[inline]
    pub(super) fn rank(&self, at: Ppn, place_of: impl Fn(TxId) -> Option<u64>) -> (u64, u64) {
        let (block, page) = self.addresses.split(at);
        let block = &self.blocks[self.index[block.index()] as usize];
        let seq = self.seqs(block)(page).expect("a version is there");
        let place = match self.column(block, AHEAD).get(page) {
            Some(ahead) => Some(seq + ahead),
            None => self
                .column(block, TX)
                .get(page)
                .and_then(|tx| place_of(TxId(tx))),
        };
        (place.expect("only what counts is held against others"), seq)
    }

    /// The write sequence of each page of a block.
    #[inline]
    fn seqs(&self, block: &Block) -> impl Fn(u32) -> Option<u64> {
        let (column, pages) = (self.column(block, SEQ), u32::from(block.pages));
        move |page| column.get(page).map(|seq| seq - u64::from(pages - page))
    }

    /// Transactions in `of`, which ascends, to which the summary of a block gives a place; with
    /// place and block, in the order of the scan, at least once per run of pages.
    pub(super) fn stated(&self, of: &[TxId]) -> impl Iterator<Item = (TxId, u64, Pbn)> {
        // Skips the blocks with no transaction of `of` between their lowest and their highest one.
        let may_have = move |block: &&Block| {
            let least = block.least[TX];
            let most = least + (1 << block.widths[TX]);
            let next = of.partition_point(|tx| tx.0 < least);
            of.get(next).is_some_and(|tx| tx.0 <= most)
        };
        self.blocks.iter().filter(may_have).flat_map(move |block| {
            let (tx_of, ahead_of) = (self.column(block, TX), self.column(block, AHEAD));
            let seq_of = self.seqs(block);
            let mut last = None;
            (0..u32::from(block.pages)).filter_map(move |page| {
                let tx = tx_of.get(page)?;
                let place = ahead_of.get(page)? + seq_of(page)?;
                let said = last.replace((tx, place));
                let is_wanted = said != last && of.binary_search(&TxId(tx)).is_ok();
                is_wanted.then_some((TxId(tx), place, block.id))
            })
        })
    }

    /// The undecided versions, in runs.
    pub(super) fn undecided(&self) -> impl Iterator<Item = Run> {
        let blocks = self.blocks.iter().enumerate();
        blocks.flat_map(move |(index, block)| {
            let (lpn_of, tx_of) = (self.column(block, LPN), self.column(block, TX));
            let tx_at = move |page| lpn_of.get(page).and_then(|_| tx_of.get(page));
            let end = lpn_of.pages;
            let mut next = 0;
            std::iter::from_fn(move || {
                let begin = (next..end).find(|&page| tx_at(page).is_some())?;
                let tx = tx_at(begin)?;
                let others = (begin..end).find(|&page| tx_at(page) != Some(tx));
                next = others.unwrap_or(end);
                Some(Run {
                    tx: TxId(tx),
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
        let (lpn_of, count_of) = (self.column(block, LPN), self.column(block, COUNT));
        let seq_of = self.seqs(block);
        run.pages.clone().filter_map(move |page| {
            let word = lpn_of.get(page)?;
            let at = self.geometry.page(block.id, page);
            Some(Pending {
                seq: seq_of(page)?,
                count: count_of.get(page).unwrap_or(0) as u32,
                sum: self.sums.get(&at).copied(),
                lpn: Lpn((word >> 1) as u32),
                is_list: word & 1 == 1 && self.lists.contains(&at),
                slot: match word & 1 {
                    1 => Slot::Trimmed(at),
                    _ => Slot::Page(at),
                },
            })
        })
    }

    /// The places of transactions with undecided versions that satisfy `is_open` and have all of
    /// their pages.
    pub(super) fn whole(
        &self,
        is_open: impl Fn(TxId) -> bool,
        mistake: Mistaken<Mistake>,
    ) -> FxHashMap<TxId, u64> {
        let mut open: Vec<Run> = self.undecided().filter(|run| is_open(run.tx)).collect();
        open.sort_by_key(|run| run.tx);
        let mut whole = FxHashMap::default();
        let mut there = There::default();
        for runs in open.chunk_by(|a, b| a.tx == b.tx) {
            let versions = runs.iter().flat_map(|run| self.of_run(run));
            let versions = versions
                .filter(|of| !of.is_list || of.count > 0 || !mistake.is(Mistake::TrimsNotCounted));
            let versions = versions.map(|of| (of.is_list, of.lpn, of.seq, of.count, of.sum));
            there.count(versions);
            whole.extend(there.place(mistake).map(|cv| (runs[0].tx, cv)));
        }
        whole
    }
}

/// The contents of a transaction's last page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SaidLast {
    seq: u64,
    /// Number of pages of the transaction.
    pub(super) count: u32,
    /// The sum of the write sequences of the other pages, if present.
    pub(super) sum: Option<u64>,
}

/// What a version is a version of. A list of trims is only a version of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Page(Lpn),
    List(u64),
}

/// The versions of a transaction that were found.
#[derive(Debug, Default)]
pub(super) struct There {
    /// What each is a version of, and its write sequence.
    versions: Vec<(Of, u64)>,
    pub(super) last: Option<SaidLast>,
    /// Number of its pages, if the last one has a sum. Otherwise number of its programs, which
    /// equals that of pages without overwrites. Stores of older versions count programs, and keep
    /// versions that a live transaction overwrites. Copies count once.
    pub(super) pages: usize,
    /// The sum of the write sequences of the newest version of each page except the last page.
    pub(super) sum: u64,
}

impl There {
    /// Adds a version of the transaction: whether it is a list of trims, logical page, write
    /// sequence, number of pages and sum.
    pub(super) fn count(
        &mut self,
        versions: impl Iterator<Item = (bool, Lpn, u64, u32, Option<u64>)>,
    ) {
        self.versions.clear();
        self.last = None;
        for (is_list, lpn, seq, count, sum) in versions {
            let of = if is_list {
                Of::List(seq)
            } else {
                Of::Page(lpn)
            };
            self.versions.push((of, seq));
            if count > 0 && self.last.is_none_or(|last| last.seq >= seq) {
                // A copy of the last page that was read from a summary lacks the sum.
                let known = self.last.and_then(|last| last.sum);
                let sum = sum.map(|sum| if sum == 0 { known.unwrap_or(0) } else { sum });
                self.last = Some(SaidLast { seq, count, sum });
            }
        }
        self.versions.sort_unstable();
        let has_sum = self.last.is_some_and(|last| last.sum.is_some());
        let is_same = |a: &(Of, u64), b: &(Of, u64)| a.0 == b.0 && (has_sum || a.1 == b.1);
        (self.pages, self.sum) = (0, 0);
        let newest = self.versions.chunk_by(is_same).filter_map(<[_]>::last);
        for &(_, seq) in newest {
            self.pages += 1;
            self.sum = self.sum.wrapping_add(seq);
        }
        self.sum = self.sum.wrapping_sub(self.last.map_or(0, |last| last.seq));
    }

    /// The place of the transaction if it is complete.
    fn place(&self, mistake: Mistaken<Mistake>) -> Option<u64> {
        if mistake.is(Mistake::NotCounted) {
            let first = self.versions.iter().map(|&(_, seq)| seq).min();
            return self.last.map(|last| last.seq).or(first);
        }
        let last = self.last?;
        let pages = if mistake.is(Mistake::CopiesCounted) {
            self.versions.len()
        } else {
            self.pages
        };
        let has_sum = last.sum.is_none_or(|sum| sum == self.sum) || mistake.is(Mistake::NoSum);
        let is_whole = pages == last.count as usize && has_sum;
        (is_whole || mistake.is(Mistake::LastPageCommits)).then_some(last.seq)
    }
}

#[cfg(test)]
mod tests;
