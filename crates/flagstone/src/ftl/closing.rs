//! Full blocks that wait for their summary page (late summaries).
//!
//! On most devices the summary of a block is programmed right after its last page. The owner of the
//! pages can ask for *late summaries* ([`Format::late_summaries`](super::Format)). Then the owner
//! programs each summary itself, once the fate of the pages is known, and adds a verdict for each
//! page. A summary costs one program in both cases.
//!
//! ```text
//!   summary   | record of page 0 | record of page 1 | ... | verdict 0 | verdict 1 | ...
//! ```

use super::write::Open;
use super::{BlockState, Ftl, FtlError, Header, PageKind, Stream, header};
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Nanos, Pbn, Ppn};

layout! {
    /// What a late summary says of a page beyond its record.
    pub verdict: 4 => {
        VERDICT: 4, "for the owner of the pages; 0 if nothing was known yet";
    }
}

/// Size of a verdict.
pub const VERDICT_BYTES: usize = verdict::SIZE;

/// A full block without its summary.
#[derive(Debug, Clone)]
pub(super) struct Closing {
    pub(super) block: Pbn,
    /// When the last of its pages is done.
    pub(super) done: Nanos,
    /// Spare records of the block's pages.
    records: Vec<u8>,
}

impl Ftl {
    /// Programs the summary of a waiting block, which then becomes a candidate for collection. The
    /// pages of the block must be durable. `verdict` computes the verdict of a page from its header
    /// and tail. Returns when the summary is done, or `None` if its program failed.
    ///
    /// # Errors
    /// The power fails.
    ///
    /// # Panics
    /// The block does not wait for a summary.
    pub fn summarise(
        &mut self,
        now: Nanos,
        block: Pbn,
        mut verdict: impl FnMut(&Header, &[u8]) -> u32,
    ) -> Result<Option<Nanos>, FtlError> {
        let waiting = &mut self.writer.closing;
        let place = waiting.iter().position(|closing| closing.block == block);
        let closing = place.and_then(|place| waiting.remove(place));
        let mut data = closing.expect("the block waits for its summary").records;
        let stride = self.summary_stride();
        let pages = data.len() / stride;
        data.resize(data.len() + pages * VERDICT_BYTES, 0);
        let (records, verdicts) = data.split_at_mut(pages * stride);
        let verdicts = verdicts.chunks_exact_mut(VERDICT_BYTES);
        for (record, bytes) in records.chunks_exact(stride).zip(verdicts) {
            // Pages that were left out have no record.
            let Some(head) = Header::parse(record) else {
                continue;
            };
            let says = verdict(&head, &record[header::SIZE..]);
            put(bytes, verdict::VERDICT, says.into());
        }
        self.program_summary(now, block, &data)
    }

    /// The verdict of a page, without a simulated read; 0 if the block has no summary, or none with
    /// a verdict for the page.
    pub(crate) fn peek_verdict(&self, at: Ppn) -> u32 {
        let block = self.geometry.block_of(at);
        let mut data = vec![0; self.geometry.page_bytes as usize];
        let mut spare = [0xff; header::SIZE];
        let summary = self.geometry.page(block, self.data_pages);
        let read = self.peek_page(summary, &mut data, &mut spare);
        let is_summary = Header::parse(&spare).is_some_and(|head| head.kind == PageKind::Summary);
        let page = self.geometry.page_in_block(at) as usize;
        let start = self.summary_stride() * self.data_pages as usize + page * VERDICT_BYTES;
        match read {
            Some(_) if is_summary => get(&data[start..], verdict::VERDICT) as u32,
            _ => 0,
        }
    }

    /// Records that a full block waits for its summary.
    pub(super) fn wait_for_summary(&mut self, block: Pbn, done: Nanos, records: Vec<u8>) {
        self.blocks.set_state(block, BlockState::Closing);
        self.writer.closing.push_back(Closing {
            block,
            done,
            records,
        });
    }

    /// Closes an open block before it is full, so that it can be collected.
    pub fn end_block(&mut self, id: Pbn) {
        let take = |open: &mut Option<Open>| open.take_if(|open| open.block == id);
        let open = self.writer.all().find_map(take);
        if let Some(number) = open.map(|open| open.number) {
            self.lacks_summary(id, number);
            self.close(id, false);
        }
    }

    /// Closes all open blocks as if they were full, so that they wait for their late summaries.
    /// Only on a flash that never fails: elsewhere a torn summary could look like one that was
    /// never programmed.
    ///
    /// # Errors
    /// The power fails.
    pub(crate) fn end_blocks(&mut self, now: Nanos) -> Result<(), FtlError> {
        let records = self.data_pages as usize * self.summary_stride();
        for stream in [Stream::Host, Stream::Gc] {
            for plane in 0..self.geometry.planes() {
                let open = self.writer.at(stream, plane);
                if let Some(mut open) = open.take_if(|open| open.next > 0) {
                    open.records.resize(records, 0xff);
                    self.finish(now, open)?;
                }
            }
        }
        Ok(())
    }
}
