//! Reads blocks while mounting: finds the versions in each, from its summary or page by page.

use super::checksum::WHOLE_BYTES_MAX;
use super::doubt::{refuse_size, refuse_summaries};
use super::horizon::word::WORD_BYTES;
use super::horizon::{Found, Seen};
use super::{
    BlockState, Cause, Ftl, FtlError, Header, PageKind, TAIL_BYTES_MAX, VERDICT_BYTES,
    doubt_number, header, moves,
};
use crate::layout::put;
use crate::nand::FlashError;
use crate::units::{Nanos, Pbn, Ppn};

impl Ftl {
    /// Passes the spare record of every version in `blocks` to `see`. A full block is read from its
    /// summary page, others page by page. Returns when the last page was read. A version of a
    /// logical page that the device does not have is an error. On a flash that never fails it is
    /// left out, since what said that the device was larger may be lost; or left to an owner that
    /// judges it ([`Ftl::doubt_horizon`]).
    pub fn scan(
        &mut self,
        now: Nanos,
        blocks: &[Pbn],
        mut see: impl FnMut(Ppn, Header, &[u8]),
    ) -> Result<Nanos, FtlError> {
        let mut done = now;
        let pages = self.logical_pages();
        let may_lose_size = self.flash.never_fails();
        let judges_size = may_lose_size && self.format.horizons;
        let mut beyond: Option<Header> = None;
        for &block in blocks {
            let mut present = false;
            let read = self.block_records(now, block, Cause::Recovery, |at, head, tail| {
                present = true;
                if head.lpn.0 < pages || judges_size {
                    see(at, head, tail);
                } else if !may_lose_size {
                    beyond = Some(head);
                }
            })?;
            if let Some(Header { lpn, .. }) = beyond {
                return refuse_size(lpn, pages);
            }
            done = done.max(read.done);
            self.seq = self.seq.max(read.seq);
            // On a flash that never fails, a block without valid pages is erased before statements
            // begin, and so has no summary: see `horizon`.
            let is_erased = self.format.horizons && self.flash.never_fails();
            if present || (read.torn && !is_erased) {
                self.blocks.fill(block);
            }
            if let Some(wear) = read.wear {
                self.blocks.erases[block.index()] =
                    doubt_number("erase count", wear.into(), 32)? as u32;
            }
        }
        Ok(done)
    }

    /// Reads the spare records of a block's versions, in page order. A summary has no flag bytes:
    /// they are `0xff` here. With late summaries, the verdict of a page follows its tail: zeros if
    /// the block has no summary. If pages can have a word of their owner, it follows: zeros if the
    /// page has none, or if the block has a summary. In a block without a summary, no versions are
    /// read after a blank page behind which nothing was waited for: its first page, and with late
    /// summaries others as well.
    pub fn block_records(
        &mut self,
        now: Nanos,
        block: Pbn,
        cause: Cause,
        mut see: impl FnMut(Ppn, Header, &[u8]),
    ) -> Result<BlockRead, FtlError> {
        let mut outcome = BlockRead {
            done: now,
            seq: 0,
            wear: None,
            torn: false,
        };
        if self.config.summary_pages {
            let mut data = std::mem::take(&mut self.page_buffer);
            let read = self.summary_of(now, block, cause, &mut data, &mut outcome);
            let listed = match read {
                Ok(true) => self
                    .listed_in(block, &data, &mut outcome, &mut see)
                    .map(Some),
                other => other.map(|_| None),
            };
            self.page_buffer = data;
            if listed?.is_some() {
                return Ok(outcome);
            }
        }
        self.page_by_page(now, block, cause, &mut outcome, &mut see)?;
        Ok(outcome)
    }

    /// Reads the summary page of a block into `data`. Returns whether it is a valid summary.
    fn summary_of(
        &mut self,
        now: Nanos,
        block: Pbn,
        cause: Cause,
        data: &mut [u8],
        outcome: &mut BlockRead,
    ) -> Result<bool, FtlError> {
        let last = self.geometry.page(block, self.data_pages);
        let mut spare = [0xff; WHOLE_BYTES_MAX];
        let used = self.bytes_read(header::SIZE);
        self.stats.add_read(cause, false);
        let read = match self.read_page(now, last, data, &mut spare[..used]) {
            Err(FlashError::Uncorrectable { done, .. }) => {
                (outcome.done, outcome.torn) = (done, true);
                return Ok(false);
            }
            read => read?,
        };
        outcome.done = read.done;
        let head = Header::parse_any(&spare)?;
        if head.is_some_and(|head| head.is_version()) {
            return refuse_summaries(last);
        }
        let head = head.filter(|head| head.kind == PageKind::Summary);
        let bytes =
            (self.summary_stride() + self.format.verdict_bytes()) * self.data_pages as usize;
        let Some(head) = head.filter(|_| read.data_bytes == bytes) else {
            return Ok(false);
        };
        self.hear(last, &spare);
        outcome.seq = head.seq;
        outcome.wear = Some(head.lpn.0);
        Ok(true)
    }

    /// Passes the entries of a summary to `see`.
    fn listed_in(
        &self,
        block: Pbn,
        data: &[u8],
        outcome: &mut BlockRead,
        see: &mut impl FnMut(Ppn, Header, &[u8]),
    ) -> Result<(), FtlError> {
        let (record, stride) = (self.record_bytes(), self.summary_stride());
        let (verdict, pages) = (self.format.verdict_bytes(), self.data_pages as usize);
        let (seen, word) = (record + verdict, self.format.word_bytes());
        let mut spare = [0xff; header::SIZE + TAIL_BYTES_MAX + VERDICT_BYTES + WORD_BYTES];
        spare[seen..seen + word].fill(0);
        for page in 0..self.data_pages {
            let start = page as usize * stride;
            spare[..stride].copy_from_slice(&data[start..start + stride]);
            let start = stride * pages + page as usize * verdict;
            spare[record..seen].copy_from_slice(&data[start..start + verdict]);
            if let Some(head) = Header::parse_any(&spare)?.filter(Header::is_version) {
                outcome.seq = outcome.seq.max(head.seq);
                let at = self.geometry.page(block, page);
                see(at, head, &spare[header::SIZE..seen + word]);
            }
        }
        Ok(())
    }

    /// Reads the pages of a block without a summary. With late summaries nothing valid follows a
    /// blank page. But a durable page may be blank because of damage, and then later pages state
    /// that.
    fn page_by_page(
        &mut self,
        now: Nanos,
        block: Pbn,
        cause: Cause,
        outcome: &mut BlockRead,
        see: &mut impl FnMut(Ppn, Header, &[u8]),
    ) -> Result<(), FtlError> {
        let (record, verdict) = (self.record_bytes(), self.format.verdict_bytes());
        let word = record + verdict..record + verdict + self.format.word_bytes();
        let place = self.horizon_in_spare().filter(|_| cause == Cause::Recovery);
        let used = self.bytes_read(record);
        let mut spare = [0xff; WHOLE_BYTES_MAX];
        let mut seen = [0; header::SIZE + TAIL_BYTES_MAX + VERDICT_BYTES + WORD_BYTES];
        let mut pages = Vec::new();
        let has_torn_summary = outcome.torn;
        let mut has_ended = false;
        let mut page = 0;
        while page < self.data_pages {
            let at = self.geometry.page(block, page);
            self.stats.add_read(cause, true);
            let found = match self.read_page(now, at, &mut [], &mut spare[..used]) {
                Ok(read) => {
                    outcome.done = outcome.done.max(read.done);
                    let head = Header::parse_any(&spare)?;
                    if head.is_some_and(|head| head.kind == PageKind::Summary) {
                        return refuse_summaries(at);
                    }
                    match head.filter(Header::is_version) {
                        Some(head) => {
                            outcome.seq = outcome.seq.max(head.seq);
                            if !has_ended {
                                seen[..record].copy_from_slice(&spare[..record]);
                                if !word.is_empty() {
                                    let says = self.word_of(&spare).unwrap_or(0);
                                    put(&mut seen, word.clone(), says);
                                }
                                see(at, head, &seen[header::SIZE..word.end]);
                            }
                            moves::expect_behind(self, at, page);
                            let number = self.hear(at, &spare);
                            outcome.seq = outcome.seq.max(number);
                            Seen::Whole(number)
                        }
                        None => Seen::Blank,
                    }
                }
                Err(FlashError::Uncorrectable { done, .. }) => {
                    outcome.done = outcome.done.max(done);
                    outcome.torn = true;
                    Seen::Unreadable
                }
                Err(other) => return Err(other.into()),
            };
            pages.resize(page as usize, Seen::Blank);
            pages.push(found);
            let is_blank = pages.iter().all(|page| *page == Seen::Blank);
            // If the first page of a block is blank, the block was not written since its erase, or
            // nothing in it was waited for.
            let ends = page == 0 || (verdict > 0 && self.pairs.blank_ends(page));
            has_ended |= found == Seen::Blank && ends;
            if has_ended && place.is_none() {
                break;
            }
            page = if has_ended && is_blank {
                match next_probe(page, self.flash.never_fails()) {
                    Some(next) => next,
                    None => break,
                }
            } else {
                page + 1
            };
        }
        let holds_any = outcome.torn || pages.iter().any(|page| *page != Seen::Blank);
        if place.is_some() && holds_any {
            self.horizon.found.push(Found {
                block,
                pages,
                has_torn_summary,
            });
        }
        Ok(())
    }

    /// Number of spare bytes to read if `wanted` are requested, and the horizon if there is one.
    pub(super) fn bytes_read(&self, wanted: usize) -> usize {
        self.horizon_in_spare().map_or(wanted, |place| place.end)
    }

    /// Reads, while mounting, a page whose program may have landed. If the page is not blank, its
    /// block does not become free. Returns when it was read, and its header.
    pub fn look_for(&mut self, now: Nanos, at: Ppn) -> Result<(Nanos, Option<Header>), FtlError> {
        let (done, found) = self.look_at(now, at)?;
        let block = self.geometry.block_of(at);
        if found.is_some() && self.blocks.state(block) == BlockState::Free {
            self.blocks.fill(block);
        }
        Ok((done, found.flatten().filter(Header::is_version)))
    }

    /// Reads, while mounting, the first page of a block. Returns when it was read, and whether the
    /// block was written since its erase.
    pub fn look_into(&mut self, now: Nanos, block: Pbn) -> Result<(Nanos, bool), FtlError> {
        let (done, found) = self.look_at(now, self.geometry.page(block, 0))?;
        Ok((done, found.is_some()))
    }

    /// The header of a page, if it is readable and has one; the outer `None` means a blank page.
    fn look_at(
        &mut self,
        now: Nanos,
        at: Ppn,
    ) -> Result<(Nanos, Option<Option<Header>>), FtlError> {
        let mut spare = [0xff; header::SIZE];
        self.stats.add_read(Cause::Recovery, true);
        match self.read_page(now, at, &mut [], &mut spare) {
            Ok(read) => Ok((read.done, Header::parse_any(&spare)?.map(Some))),
            Err(FlashError::Uncorrectable { done, .. }) => Ok((done, Some(None))),
            Err(other) => Err(other.into()),
        }
    }
}

/// The next page of a block to probe if the previous ones are blank: the second one, and if reads
/// are cheap the following ones, then pages at doubling distances.
fn next_probe(page: u32, reads_are_cheap: bool) -> Option<u32> {
    match page {
        0 => Some(1),
        1..PROBED if reads_are_cheap => Some(page + 1),
        _ => reads_are_cheap.then_some(2 * page),
    }
}

/// Number of first pages that are probed one by one.
const PROBED: u32 = 16;

/// The result of reading a block's spare records, besides the records.
///
/// ```
/// use flagstone::ftl::{Cause, Config, Format, Ftl, FtlError};
/// use flagstone::nand::Chip;
/// use flagstone::units::Nanos;
///
/// let flash = Box::new(Chip::default());
/// let (mut ftl, mounted) = Ftl::mount(flash, Config::default(), Format::NONE, Nanos::ZERO)?;
/// let block = ftl.blocks().for_data()[0];
/// let read = ftl.block_records(mounted.done, block, Cause::Recovery, |_, _, _| {})?;
/// // A blank block: no version, no summary.
/// assert_eq!((read.seq, read.wear, read.torn), (0, None, false));
/// # Ok::<(), FtlError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockRead {
    /// When the last page was read.
    pub done: Nanos,
    /// The highest write sequence found.
    pub seq: u64,
    /// Number of erases of the block, if its summary has it.
    pub wear: Option<u32>,
    /// Whether a page was unreadable.
    pub torn: bool,
}
