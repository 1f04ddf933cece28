//! Writing: chooses the block for the next page, and closes blocks that are full or fail.
//!
//! A stream has an open block on every plane and uses the planes in turn (multi-head allocation):
//! one plane of each channel before the next plane of any. So successive writes share neither a
//! plane nor a channel. A caller may choose the plane instead.

use super::closing::Closing;
use super::horizon::Programmed;
use super::pairs::Dones;
use super::{
    BlockState, Cause, Ftl, FtlError, Header, Operation, PageKind, PairedPages, TAIL_BYTES_MAX,
    header,
};
use crate::nand::{FlashError, Geometry};
use crate::units::{Lpn, Nanos, Pbn, Ppn};
use std::collections::VecDeque;

/// A set of open blocks. Host writes and copies of the collector are kept apart.
///
/// Example: [`Ftl::mount`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Pages that the host writes.
    Host = 0,
    /// Pages that the collector copies.
    Gc = 1,
}

/// The result of a program.
///
/// Example: [`Ftl::mount`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The programmed page.
    pub at: Ppn,
    /// Its write sequence.
    pub seq: u64,
    /// When its program is done. It is durable once a sync has waited for that.
    pub done: Nanos,
}

/// Where and how a version is programmed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) stream: Stream,
    /// The plane; `None`: the one in turn.
    pub(super) plane: Option<u32>,
    /// Whether the version is a copy from this plane and stays off the channel, if it gets there.
    pub(super) inside: bool,
    /// The owner's word, which the page has if its tail says so.
    pub(super) word: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) struct Open {
    pub(super) block: Pbn,
    pub(super) next: u32,
    /// When its last page is done.
    pub(super) done: Nanos,
    /// Spare records of its pages, for the summary page.
    pub(super) records: Vec<u8>,
    /// The number of its last page, see [`super::horizon`].
    pub(super) number: u64,
    /// When each of its pages is done, with closed pairs.
    pub(super) dones: Dones,
}

/// The open blocks of one stream.
#[derive(Debug, Clone)]
struct Head {
    /// By plane.
    open: Vec<Option<Open>>,
    /// The plane in turn.
    turn: u32,
}

/// The blocks that are being written, and the full ones that wait for their summaries.
///
/// Example: [`Ftl::mount`].
#[derive(Debug, Clone)]
pub struct Writer {
    heads: [Head; 2],
    planes_per_channel: u32,
    pub(super) closing: VecDeque<Closing>,
}

impl Writer {
    pub(super) fn new(geometry: &Geometry) -> Writer {
        let head = Head {
            open: vec![None; geometry.planes() as usize],
            turn: 0,
        };
        Writer {
            heads: [head.clone(), head],
            planes_per_channel: geometry.planes() / geometry.channels,
            closing: VecDeque::new(),
        }
    }

    /// The open block of a stream on a plane, if any.
    pub fn open_on(&self, stream: Stream, plane: u32) -> Option<Pbn> {
        let open = self.heads[stream as usize].open[plane as usize].as_ref();
        open.map(|open| open.block)
    }

    /// The plane in turn for the next page of a stream.
    pub fn plane_in_turn(&self, stream: Stream) -> u32 {
        self.heads[stream as usize].turn
    }

    /// Full blocks that wait for their summary, longest wait first, each with the time at which its
    /// last page is done.
    pub fn closing(&self) -> impl ExactSizeIterator<Item = (Pbn, Nanos)> + '_ {
        let closing = self.closing.iter();
        closing.map(|closing| (closing.block, closing.done))
    }

    /// The open blocks of both streams, by plane.
    pub(super) fn open(&self) -> [&[Option<Open>]; 2] {
        [&self.heads[0].open, &self.heads[1].open]
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Option<Open>> {
        self.heads.iter_mut().flat_map(|head| &mut head.open)
    }

    #[inline]
    pub(super) fn at(&mut self, stream: Stream, plane: u32) -> &mut Option<Open> {
        &mut self.heads[stream as usize].open[plane as usize]
    }

    /// Advances to the next plane in turn: on the next channel; after the last channel, the next
    /// plane of the first.
    #[inline]
    fn next_plane(&mut self, stream: Stream) -> u32 {
        let per_channel = self.planes_per_channel;
        let Head { open, turn } = &mut self.heads[stream as usize];
        let (plane, planes) = (*turn, open.len() as u32);
        *turn += per_channel;
        if *turn >= planes {
            *turn = *turn + 1 - planes;
            if *turn == per_channel {
                *turn = 0;
            }
        }
        plane
    }
}

impl Ftl {
    /// Programs a version of a logical page, which is live from then on. `fill` writes the tail
    /// once the place is known; it is called again if that program fails and another page is used.
    /// `seq` is set for copies that keep the sequence of their original.
    #[inline(always)]
    pub fn append_with(
        &mut self,
        now: Nanos,
        to: (Stream, Option<u32>),
        page: (PageKind, Lpn, Option<u64>),
        data: &[u8],
        cause: Cause,
        fill: impl FnMut(Ppn, &mut [u8]),
    ) -> Result<Written, FtlError> {
        let (stream, plane) = to;
        let to = Target {
            stream,
            plane,
            inside: false,
            word: None,
        };
        self.append_to(now, to, page, data, cause, fill)
    }

    /// [`Ftl::append_with`], for copies and pages with a word as well.
    // Always inlined: otherwise the next step waits for a result that passes through memory.
    #[inline(always)]
    pub(super) fn append_to(
        &mut self,
        now: Nanos,
        to: Target,
        (kind, lpn, seq): (PageKind, Lpn, Option<u64>),
        data: &[u8],
        cause: Cause,
        mut fill: impl FnMut(Ppn, &mut [u8]),
    ) -> Result<Written, FtlError> {
        debug_assert!(Header { kind, lpn, seq: 0 }.is_version());
        // With horizons, each program draws a sequence for its number, see [`super::horizon`].
        let drawn = if seq.is_none() || self.format.horizons {
            self.next_seq()
        } else {
            self.seq
        };
        let seq = seq.unwrap_or(drawn);
        let record = self.record_bytes();
        let mut now = now;
        let mut retry = false;
        loop {
            let (plane, erased) = self.open_block(now, to.stream, to.plane, retry)?;
            now = erased;
            let open = self.writer.at(to.stream, plane).as_ref();
            let open = open.expect("open_block leaves a block open");
            let (block, page) = (open.block, open.next);
            let at = self.geometry.page(block, page);
            let mut spare = [0xff; header::SIZE + TAIL_BYTES_MAX];
            Header { kind, lpn, seq }.emit(&mut spare);
            fill(at, &mut spare[header::SIZE..record]);
            self.stats.add(Operation::Program, cause);
            let inside = to.inside && to.plane == Some(plane);
            let what = Programmed::Page {
                stream: to.stream,
                word: to.word,
                inside,
            };
            match self.program_checked(now, at, data, &spare[..record], what) {
                Ok(done) => {
                    self.stats.inside += u64::from(inside);
                    self.blocks.programmed(at, block);
                    self.advance(done, to.stream, plane, &spare[..record])?;
                    return Ok(Written { at, seq, done });
                }
                Err(FlashError::ProgramFailed { done, .. }) => {
                    (now, retry) = (done, true);
                    let open = self.writer.at(to.stream, plane).take();
                    let last = open.as_ref().map_or(0, |open| open.number);
                    self.lacks_summary(block, last);
                    if self.config.paired_pages == PairedPages::Closed
                        && let Some(open) = open
                    {
                        self.pairs.programmed(page, done, &open.dones);
                    }
                    self.close(block, true);
                }
                Err(other) => return Err(other.into()),
            }
        }
    }

    /// [`Ftl::append_with`] for a tail that does not depend on the place.
    #[inline(always)]
    pub fn append(
        &mut self,
        now: Nanos,
        to: (Stream, Option<u32>),
        page: (PageKind, Lpn, Option<u64>),
        tail: &[u8],
        data: &[u8],
        cause: Cause,
    ) -> Result<Written, FtlError> {
        self.append_with(now, to, page, data, cause, |_, bytes| {
            bytes.copy_from_slice(tail)
        })
    }

    /// Whether the next page of a stream can go to this plane.
    pub(super) fn may_open(&self, stream: Stream, plane: u32) -> bool {
        self.writer.open_on(stream, plane).is_some() || self.blocks.has_writable(plane)
    }

    /// Takes the next write sequence.
    pub(super) fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// Ensures that `plane`, or else the next plane in turn, has an open block; without a free
    /// block there, another plane. `retry`: a program of this page has failed.
    #[inline]
    fn open_block(
        &mut self,
        now: Nanos,
        stream: Stream,
        plane: Option<u32>,
        retry: bool,
    ) -> Result<(u32, Nanos), FtlError> {
        let first = match plane {
            Some(plane) => plane,
            None => self.writer.next_plane(stream),
        };
        if self.is_open(now, stream, first)? {
            return Ok((first, now));
        }
        self.open_new_block(now, stream, first, retry)
    }

    /// Whether a plane has an open block that takes another page.
    #[inline]
    fn is_open(&mut self, now: Nanos, stream: Stream, plane: u32) -> Result<bool, FtlError> {
        if self.config.paired_pages == PairedPages::Closed {
            self.pass_over(now, stream, plane)?;
        }
        Ok(self.writer.at(stream, plane).is_some())
    }

    /// Finds or opens a block on plane `first`, or on the first plane after it where that is
    /// possible. Returns the plane, and when the block may be written.
    #[cold]
    fn open_new_block(
        &mut self,
        now: Nanos,
        stream: Stream,
        first: u32,
        retry: bool,
    ) -> Result<(u32, Nanos), FtlError> {
        // A page whose program, or the erase of whose block, has failed may use the reserve: a
        // block was promised for it.
        let kept = stream == Stream::Host && !retry && self.has_only_reserve();
        let planes = self.geometry.planes();
        for step in 0..planes {
            let plane = (first + step) % planes;
            if self.is_open(now, stream, plane)? {
                return Ok((plane, now));
            }
            if kept {
                continue;
            }
            if let Some((block, now)) = self.take_block(now, plane)? {
                let records = self.data_pages as usize * self.summary_stride();
                self.blocks.set_state(block, BlockState::Open);
                *self.writer.at(stream, plane) = Some(Open {
                    block,
                    next: 0,
                    done: now,
                    number: 0,
                    records: Vec::with_capacity(records),
                    dones: Dones::default(),
                });
                return Ok((plane, now));
            }
        }
        Err(self.full())
    }

    /// The error of a full device.
    pub(crate) fn full(&self) -> FtlError {
        FtlError::Full {
            live: self.blocks.live_pages(),
            pages: self.blocks.for_data().len() as u64 * u64::from(self.data_pages),
            out_of_service: self.blocks.out_of_service(),
        }
    }

    /// Takes a free block of a plane, and erases it if necessary.
    fn take_block(&mut self, now: Nanos, plane: u32) -> Result<Option<(Pbn, Nanos)>, FtlError> {
        let mut now = now;
        loop {
            let Some((block, from)) = self.blocks.take(plane, now) else {
                return Ok(None);
            };
            now = from;
            if !self.blocks.is_stale(block) {
                return Ok(Some((block, now)));
            }
            match self.erase(now, block, Cause::Gc)? {
                Some(done) => return Ok(Some((block, done))),
                None => now = self.retire_now(now, block)?,
            }
        }
    }

    /// Erases free blocks that would otherwise be erased at their first use, as an idle device
    /// does. Returns when the last erase is done.
    ///
    /// # Errors
    /// The power fails. A block whose erase fails is handled at its first use.
    pub fn erase_ahead(&mut self, now: Nanos) -> Result<Nanos, FtlError> {
        let done = self.erase_free(now, &mut |_| true)?;
        self.sync(now, done)
    }

    /// Like [`Ftl::erase_ahead`], for the blocks that the caller selects. On return these erases
    /// and all earlier ones are durable.
    ///
    /// # Errors
    /// As [`Ftl::erase_ahead`].
    pub fn erase_some(
        &mut self,
        now: Nanos,
        means: &mut dyn FnMut(Pbn) -> bool,
    ) -> Result<Nanos, FtlError> {
        self.erase_free(now, means)?;
        // Some protocols erase a block during its collection: that erase may not be durable yet.
        self.sync(now, self.blocks.erased_until.max(now))
    }

    /// Erases the free blocks that the caller selects. Returns when the last erase is done.
    fn erase_free(
        &mut self,
        now: Nanos,
        means: &mut dyn FnMut(Pbn) -> bool,
    ) -> Result<Nanos, FtlError> {
        let mut end = now;
        for id in (0..self.geometry.blocks()).map(Pbn) {
            if matches!(self.blocks.state(id), BlockState::Free | BlockState::Zone)
                && self.blocks.is_stale(id)
                && means(id)
                && let Some(done) = self.erase(now, id, Cause::Gc)?
            {
                end = end.max(done);
            }
        }
        Ok(end)
    }

    /// Erases a block. `None` if the erase failed.
    pub(super) fn erase(
        &mut self,
        now: Nanos,
        block: Pbn,
        cause: Cause,
    ) -> Result<Option<Nanos>, FtlError> {
        self.stats.add(Operation::Erase, cause);
        let erased = match self.says_at_erase(now) {
            Some((number, words)) => self.flash.erase_saying(now, block, number, &words),
            None => self.flash.erase(now, block),
        };
        match erased {
            Ok(done) => {
                self.blocks.erased(block, done);
                let plane = self.geometry.plane_of(block);
                self.horizon.forgets(block, plane, self.seq, done);
                Ok(Some(done))
            }
            Err(FlashError::EraseFailed { .. }) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    pub(super) fn summary_stride(&self) -> usize {
        if self.config.summary_pages {
            self.record_bytes() - self.format.flag_bytes
        } else {
            0
        }
    }

    /// Records a page that is programmed at `done`. After the last page of a block, programs the
    /// summary, after a wait for all pages of the block. With late summaries, the owner does that.
    #[inline]
    fn advance(
        &mut self,
        done: Nanos,
        stream: Stream,
        plane: u32,
        spare: &[u8],
    ) -> Result<(), FtlError> {
        let stride = self.summary_stride();
        let slot = self.writer.at(stream, plane);
        let open = slot.as_mut().expect("a page was just programmed into it");
        open.records.extend_from_slice(&spare[..stride]);
        open.next += 1;
        open.done = open.done.max(done);
        open.number = self.seq;
        if self.config.paired_pages != PairedPages::Ignored {
            return self.advance_in_pairs(done, stream, plane);
        }
        if open.next < self.data_pages {
            return Ok(());
        }
        let open = slot.take().expect("checked above");
        self.finish(open.done, open)
    }

    /// Closes a full block, at `now` or once its last page is done.
    pub(super) fn finish(&mut self, now: Nanos, open: Open) -> Result<(), FtlError> {
        if !self.config.summary_pages {
            self.close(open.block, false);
        } else if self.format.late_summaries {
            self.lacks_summary(open.block, open.number);
            self.wait_for_summary(open.block, open.done, open.records);
        } else {
            let now = self.sync(now.max(open.done), open.done)?;
            self.program_summary(now, open.block, &open.records)?;
        }
        Ok(())
    }

    /// Programs the summary of a block whose pages are durable, and closes the block. Returns when
    /// the summary is done, or `None` if its program failed.
    pub(super) fn program_summary(
        &mut self,
        now: Nanos,
        block: Pbn,
        records: &[u8],
    ) -> Result<Option<Nanos>, FtlError> {
        let at = self.geometry.page(block, self.data_pages);
        let mut spare = [0xff; header::SIZE];
        let seq = self.next_seq();
        // A summary's logical page number is the erase count, which thus survives a restart.
        let wear = Lpn(self.blocks.erases[block.index()]);
        Header {
            kind: PageKind::Summary,
            lpn: wear,
            seq,
        }
        .emit(&mut spare);
        self.stats.add(Operation::Program, Cause::Mapping);
        self.stats.summaries += 1;
        let done = match self.program_checked(now, at, records, &spare, Programmed::Summary) {
            Ok(done) => Some(done),
            Err(FlashError::ProgramFailed { .. }) => None,
            Err(other) => return Err(other.into()),
        };
        self.close(block, done.is_none());
        Ok(done)
    }

    /// Marks a block as closed.
    pub(super) fn close(&mut self, id: Pbn, failing: bool) {
        self.blocks.fill(id);
        if failing {
            self.blocks.fail(id);
            self.collector.retire.push(id);
        }
    }

    /// Lets host writes use the collector's blocks, all but one, until it is called with `false`.
    /// Required to restart a full device, which must write before any page becomes obsolete.
    pub fn lend_reserve(&mut self, lent: bool) {
        self.collector.reserve_is_lent = lent;
    }

    /// Whether the blocks left are reserved for the collector: without them nothing could be
    /// reclaimed.
    pub(crate) fn has_only_reserve(&self) -> bool {
        let reserve = if self.collector.reserve_is_lent {
            1
        } else {
            self.collector.reserve_blocks
        };
        self.blocks.writable() <= reserve
    }

    /// Makes the collector keep `blocks` blocks writable, so that they can be reserved together. It
    /// keeps fewer if the device lacks room.
    pub fn keep_writable(&mut self, blocks: u32) {
        let taken =
            self.map.pages().div_ceil(self.collector.dense_pages) + 2 * self.geometry.planes();
        let in_service = self.blocks.for_data().len() as u32;
        // The other blocks must have enough dead pages for collection to be worthwhile.
        let most = in_service.saturating_sub(taken) / 2;
        self.collector.threshold_blocks = self.collector.threshold_blocks.max(blocks.min(most));
    }

    /// Whether the collector has blocks for the copies of a block.
    pub(crate) fn can_copy_block(&self) -> bool {
        self.blocks.writable() > 1
    }

    /// Whether fewer blocks are writable than collection keeps: it has found no victim.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.blocks.writable() < self.collector.threshold_blocks
    }

    /// Reserved blocks that are not yet full: unopened and open ones.
    pub fn zone_blocks(&self) -> Vec<Pbn> {
        let mut blocks: Vec<Pbn> = self
            .blocks
            .zone
            .iter()
            .flat_map(|zone| zone.blocks())
            .collect();
        let open = self.writer.open().into_iter().flatten().flatten();
        blocks.extend(open.map(|open| open.block));
        blocks.sort();
        blocks
    }
}
