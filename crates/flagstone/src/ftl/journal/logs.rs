//! Logs: pages that the owner appends, in as many concurrent lanes as it asked for. The next
//! checkpoint makes them obsolete. They lie in the area that [`super`] manages.

use super::MetaState;
use crate::ftl::{Cause, Ftl, FtlError, Header, PageKind, Stream, Written};
use crate::units::{Lpn, Nanos};
use std::ops::Range;

impl Ftl {
    /// Whether the logs have reached their maximum length. The owner must then write a checkpoint
    /// before it appends again, or the next checkpoint might not fit.
    pub fn log_is_full(&self) -> bool {
        let per_block = self.pairs.meta_pages.len() as u32;
        let reserve = self.journal.full_checkpoint_blocks(per_block);
        self.journal.free_blocks() < reserve + self.journal.open_log.len() + 1
    }

    /// The plane on which a lane of the logs begins. Lanes are spread over the channels, and the
    /// lanes of a channel over its planes, starting at a different plane on each channel.
    pub(in crate::ftl) fn log_plane(&self, lane: u32) -> u32 {
        let (planes, lanes) = (self.geometry.planes(), self.journal.open_log.len() as u32);
        let on_channel = planes / self.geometry.channels;
        let first = lane * (planes / lanes).max(1) % planes;
        let channel = first / on_channel;
        channel * on_channel + (first + channel) % on_channel
    }

    /// The lane that can take a page first. `busy` has the time until which each lane is written.
    /// Ties go to the lane on the channel whose turn is next, since the others may have a page more
    /// to transfer; on that channel, to the lane on the plane that a stream wrote to longest ago.
    pub fn log_in_turn(
        &self,
        stream: Stream,
        now: Nanos,
        busy: &[Nanos],
        lanes: Range<usize>,
    ) -> u8 {
        let (planes, channels) = (self.geometry.planes(), self.geometry.channels);
        let on_channel = planes / channels;
        let next = self.writer.plane_in_turn(stream);
        let wait = |&lane: &usize| {
            let open = self.journal.open_log[lane].map(|i| self.journal.pool[i].block);
            let plane = open.map_or(self.log_plane(lane as u32), |b| self.geometry.plane_of(b));
            let channel = (plane / on_channel + channels - next / on_channel) % channels;
            // Channels before the next in turn have had their page of this round.
            let turn = next % on_channel + u32::from(plane / on_channel < next / on_channel);
            let place = (plane + 2 * on_channel - turn) % on_channel;
            (now.max(busy[lane]), channel, place)
        };
        let lane = lanes.min_by_key(wait);
        lane.expect("the owner asked for logs") as u8
    }

    /// Appends a page to a log. Returns where it is and when it is done.
    pub fn log(&mut self, now: Nanos, log: u8, data: &[u8]) -> Result<Written, FtlError> {
        assert!(
            data.len() <= self.geometry.page_bytes as usize,
            "a log page is a page"
        );
        let seq = self.next_seq();
        let header = Header {
            kind: PageKind::Log,
            lpn: Lpn(log.into()),
            seq,
        };
        let (index, at, done) = self.append_to_journal(now, header, data, Cause::Log)?;
        self.journal.pool[index].live += 1;
        Ok(Written { at, seq, done })
    }

    /// Erases the log blocks that the last checkpoint freed, so that no log page has to wait for an
    /// erase. `now` must not be before the checkpoint is durable.
    ///
    /// # Errors
    /// The power fails. A block whose erase fails is handled at its first use.
    pub fn erase_logs_ahead(&mut self, now: Nanos) -> Result<(), FtlError> {
        for index in 0..self.journal.pool.len() {
            let entry = &self.journal.pool[index];
            if entry.state == MetaState::Free && entry.erased.is_none() {
                let block = entry.block;
                self.journal.pool[index].erased = self.erase(now, block, Cause::Mapping)?;
            }
        }
        Ok(())
    }
}
