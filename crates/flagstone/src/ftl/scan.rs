//! Reading blocks while a device starts: the versions that each holds, by its summary or page by
//! page.

use super::{
    BlockState, Cause, Ftl, FtlError, Header, PageKind, TAIL_BYTES_MAX, VERDICT_BYTES,
    doubt_number, header, moves,
};
use crate::nand::FlashError;
use crate::units::{Nanos, Pbn, Ppn};

impl Ftl {
    /// Data blocks that are in service.
    pub fn data_blocks(&self) -> Vec<Pbn> {
        (0..self.geometry.blocks())
            .map(Pbn)
            .filter(|b| !matches!(self.block_state(*b), BlockState::Bad | BlockState::Meta))
            .collect()
    }

    /// Hands the spare record of every version in `blocks` to `see`. A full block is read by its
    /// summary page, others page by page. Returns when the last page was read.
    pub fn scan(
        &mut self,
        now: Nanos,
        blocks: &[Pbn],
        mut see: impl FnMut(Ppn, Header, &[u8]),
    ) -> Result<Nanos, FtlError> {
        let mut done = now;
        for &block in blocks {
            let mut present = false;
            let read = self.block_records(now, block, Cause::Recovery, |at, head, tail| {
                present = true;
                see(at, head, tail);
            })?;
            done = done.max(read.done);
            self.seq = self.seq.max(read.seq);
            if present || read.torn {
                self.blocks[block.index()].state = BlockState::Full;
                self.victims
                    .insert(block, self.blocks[block.index()].live.into());
            }
            if let Some(wear) = read.wear {
                self.erases[block.index()] = doubt_number("erase count", wear.into(), 32)? as u32;
            }
        }
        Ok(done)
    }

    /// Reads the spare records of a block's versions, in page order. A summary has no flag bytes:
    /// those of its pages are `0xff` here. Where summaries are late, the verdict of a page follows
    /// its tail: zeros if the block has no summary. A blank page is the end of such a block:
    /// nothing behind it was ever waited for.
    pub fn block_records(
        &mut self,
        now: Nanos,
        block: Pbn,
        cause: Cause,
        mut see: impl FnMut(Ppn, Header, &[u8]),
    ) -> Result<BlockRead, FtlError> {
        let record = self.record_bytes();
        let stride = self.summary_stride();
        let (verdict, pages) = (self.format.verdict_bytes(), self.data_pages as usize);
        let seen = record + verdict;
        let mut spare = [0xff; header::SIZE + TAIL_BYTES_MAX + VERDICT_BYTES];
        let mut outcome = BlockRead {
            done: now,
            seq: 0,
            wear: None,
            torn: false,
        };
        if self.config.summary_pages {
            let last = self.geometry.page(block, self.data_pages);
            let mut data = std::mem::take(&mut self.page_buffer);
            self.stats.add_read(cause, false);
            let read = self.read_page(now, last, &mut data, &mut spare[..header::SIZE]);
            let summary = match read {
                Ok(read) => {
                    outcome.done = read.done;
                    Header::parse_any(&spare).map(|head| {
                        let head = head.filter(|head| head.kind == PageKind::Summary);
                        head.filter(|_| read.data_bytes == (stride + verdict) * pages)
                    })
                }
                Err(FlashError::Uncorrectable { done, .. }) => {
                    (outcome.done, outcome.torn) = (done, true);
                    Ok(None)
                }
                Err(other) => Err(other.into()),
            };
            let summary = match summary {
                Ok(summary) => summary,
                Err(error) => {
                    self.page_buffer = data;
                    return Err(error);
                }
            };
            if let Some(head) = summary {
                outcome.seq = head.seq;
                outcome.wear = Some(head.lpn.0);
                spare.fill(0xff);
                for page in 0..self.data_pages {
                    let start = page as usize * stride;
                    spare[..stride].copy_from_slice(&data[start..start + stride]);
                    let start = stride * pages + page as usize * verdict;
                    spare[record..seen].copy_from_slice(&data[start..start + verdict]);
                    let head = match Header::parse_any(&spare) {
                        Ok(head) => head.filter(Header::is_version),
                        Err(error) => {
                            self.page_buffer = data;
                            return Err(error);
                        }
                    };
                    if let Some(head) = head {
                        outcome.seq = outcome.seq.max(head.seq);
                        let at = self.geometry.page(block, page);
                        see(at, head, &spare[header::SIZE..seen]);
                    }
                }
                self.page_buffer = data;
                return Ok(outcome);
            }
            self.page_buffer = data;
        }
        spare[record..seen].fill(0);
        for page in 0..self.data_pages {
            let at = self.geometry.page(block, page);
            self.stats.add_read(cause, true);
            match self.read_page(now, at, &mut [], &mut spare[..record]) {
                Ok(read) => {
                    outcome.done = outcome.done.max(read.done);
                    let head = Header::parse_any(&spare)?.filter(Header::is_version);
                    match head {
                        Some(head) => {
                            outcome.seq = outcome.seq.max(head.seq);
                            see(at, head, &spare[header::SIZE..seen]);
                            moves::expect_behind(self, at, page);
                        }
                        // A block whose first page is blank was not written since its erase, or not
                        // so that anything in it was ever waited for.
                        None if page == 0 || (verdict > 0 && self.pairs.blank_ends(page)) => break,
                        None => {}
                    }
                }
                Err(FlashError::Uncorrectable { done, .. }) => {
                    outcome.done = outcome.done.max(done);
                    outcome.torn = true;
                }
                Err(other) => return Err(other.into()),
            }
        }
        Ok(outcome)
    }

    /// Reads, while mounting, a page whose program may have landed. If the page is not blank, its
    /// block does not become free. Returns when it was read.
    pub fn look_for(&mut self, now: Nanos, at: Ppn) -> Result<(Nanos, Option<Header>), FtlError> {
        let (done, found) = self.look_at(now, at)?;
        let block = self.geometry.block_of(at);
        let entry = &mut self.blocks[block.index()];
        if found.is_some() && entry.state == BlockState::Free {
            entry.state = BlockState::Full;
            self.victims.insert(block, entry.live.into());
        }
        Ok((done, found.flatten().filter(Header::is_version)))
    }

    /// Reads, while mounting, the first page of a block: is it blank? Returns when it was read, and
    /// whether the block has been written since its erase.
    pub fn look_into(&mut self, now: Nanos, block: Pbn) -> Result<(Nanos, bool), FtlError> {
        let (done, found) = self.look_at(now, self.geometry.page(block, 0))?;
        Ok((done, found.is_some()))
    }

    /// The header of a page, if it has one that can be read; nothing at all for a blank page.
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

/// The result of reading the spare records of a block, besides these records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockRead {
    /// When the last page was read.
    pub done: Nanos,
    /// The highest write sequence found.
    pub seq: u64,
    /// How often the block had been erased, if its summary says so.
    pub wear: Option<u32>,
    /// Whether a page could not be read.
    pub torn: bool,
}
