//! Writing: chooses the block for the next page, and closes blocks that are full or fail.
//!
//! A stream has an open block on every plane and uses the planes in turn (multi-head allocation):
//! one plane of each channel before the next plane of any. So successive writes share neither a
//! plane nor a channel. A caller may choose the plane instead.

use super::horizon::Programmed;
use super::pairs::Dones;
use super::pool::Zone;
use super::{
    Block, BlockState, Cause, Ftl, FtlError, Header, Operation, PageKind, PairedPages,
    TAIL_BYTES_MAX, header,
};
use crate::nand::{FlashError, Geometry};
use crate::units::{Lpn, Nanos, Pbn, Ppn};

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

/// Where a version is programmed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) stream: Stream,
    /// The plane; `None`: the one in turn.
    pub(super) plane: Option<u32>,
    /// Whether the version is a copy from the same plane that stays off the channel, if it gets to
    /// that plane.
    pub(super) inside: bool,
}

impl Place {
    pub(super) fn of((stream, plane): (Stream, Option<u32>)) -> Place {
        Place {
            stream,
            plane,
            inside: false,
        }
    }
}

/// A version of a logical page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Version {
    pub(super) kind: PageKind,
    pub(super) lpn: Lpn,
    /// The write sequence of the original, for a copy that keeps it.
    pub(super) seq: Option<u64>,
    /// The owner's word, which the page has if its tail says so.
    pub(super) word: Option<u64>,
}

impl Version {
    pub(super) fn of((kind, lpn, seq): (PageKind, Lpn, Option<u64>)) -> Version {
        Version {
            kind,
            lpn,
            seq,
            word: None,
        }
    }
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
pub(super) struct Head {
    pub(super) open: Vec<Option<Open>>,
    turn: u32,
    planes_per_channel: u32,
}

impl Head {
    pub(super) fn new(geometry: &Geometry) -> Self {
        Head {
            open: vec![None; geometry.planes() as usize],
            turn: 0,
            planes_per_channel: geometry.planes() / geometry.channels,
        }
    }

    /// Advances to the next plane in turn: on the next channel; after the last channel, the next
    /// plane of the first.
    #[inline]
    fn next_plane(&mut self) -> u32 {
        let (turn, planes) = (self.turn, self.open.len() as u32);
        self.turn += self.planes_per_channel;
        if self.turn >= planes {
            self.turn = self.turn + 1 - planes;
            if self.turn == self.planes_per_channel {
                self.turn = 0;
            }
        }
        turn
    }

    pub(super) fn open_blocks(&self) -> impl Iterator<Item = Pbn> + '_ {
        self.open.iter().flatten().map(|open| open.block)
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
        self.program_version(now, Place::of(to), Version::of(page), data, cause, fill)
    }

    /// [`Ftl::append_with`], for copies and pages with a word as well.
    // Always inlined: otherwise the next step waits for a result that passes through memory.
    #[inline(always)]
    pub(super) fn program_version(
        &mut self,
        now: Nanos,
        place: Place,
        version: Version,
        data: &[u8],
        cause: Cause,
        mut fill: impl FnMut(Ppn, &mut [u8]),
    ) -> Result<Written, FtlError> {
        let Version {
            kind,
            lpn,
            seq,
            word,
        } = version;
        let stream = place.stream;
        let what = Programmed::Page { stream, word };
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
            let (plane, erased) = self.open_block(now, stream, place.plane, retry)?;
            now = erased;
            let open = self.heads[stream as usize].open[plane as usize]
                .as_ref()
                .expect("open_block leaves a block open");
            let (block, page) = (open.block, open.next);
            let at = self.geometry.page(block, page);
            let mut spare = [0xff; header::SIZE + TAIL_BYTES_MAX];
            Header { kind, lpn, seq }.emit(&mut spare);
            fill(at, &mut spare[header::SIZE..record]);
            self.stats.add(Operation::Program, cause);
            let inside = place.inside && place.plane == Some(plane);
            match self.program_page(now, at, data, &spare[..record], what, inside) {
                Ok(done) => {
                    self.live[at.index() / 64] |= 1 << (at.0 % 64);
                    self.live_pages += 1;
                    self.blocks[block.index()].live += 1;
                    self.advance(done, stream, plane, &spare[..record])?;
                    return Ok(Written { at, seq, done });
                }
                Err(FlashError::ProgramFailed { done, .. }) => {
                    (now, retry) = (done, true);
                    let open = self.heads[stream as usize].open[plane as usize].take();
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

    /// Programs a page. A copy `inside` a plane does not use the channel.
    #[inline(always)]
    fn program_page(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
        what: Programmed,
        inside: bool,
    ) -> Result<Nanos, FlashError> {
        if !inside {
            return self.program_checked(now, at, data, spare, what);
        }
        self.flash.copy_back(true);
        let programmed = self.program_checked(now, at, data, spare, what);
        self.flash.copy_back(false);
        self.stats.inside += u64::from(programmed.is_ok());
        programmed
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

    /// The open block of a stream on a plane, if any.
    pub fn open_on(&self, stream: Stream, plane: u32) -> Option<Pbn> {
        self.heads[stream as usize].open[plane as usize]
            .as_ref()
            .map(|open| open.block)
    }

    /// Whether the next page of a stream can go to this plane.
    pub(super) fn may_open(&self, stream: Stream, plane: u32) -> bool {
        let blocks = || match &self.zone {
            Some(zone) => zone.has(plane),
            None => self.free.has(plane),
        };
        self.open_on(stream, plane).is_some() || blocks()
    }

    /// The plane in turn for the next page of a stream.
    pub fn plane_in_turn(&self, stream: Stream) -> u32 {
        self.heads[stream as usize].turn
    }

    /// Takes the next write sequence.
    pub(super) fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// Ensures that `plane`, or else the next plane in turn, has an open block.
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
            None => self.heads[stream as usize].next_plane(),
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
        Ok(self.heads[stream as usize].open[plane as usize].is_some())
    }

    #[cold]
    fn open_new_block(
        &mut self,
        now: Nanos,
        stream: Stream,
        first: u32,
        retry: bool,
    ) -> Result<(u32, Nanos), FtlError> {
        // The last blocks are reserved for the collector: without them nothing could be reclaimed.
        // They may also be used for a page whose program, or the erase of whose block, has failed,
        // because a block was promised for it.
        let reserve = if self.reserve_is_lent {
            1
        } else {
            self.gc_reserve_blocks
        };
        let kept = stream == Stream::Host && !retry && self.writable_blocks() <= reserve;
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
                self.blocks[block.index()].state = BlockState::Open;
                self.heads[stream as usize].open[plane as usize] = Some(Open {
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
        let out_of_service = self.out_of_service();
        let blocks = self.geometry.blocks() - out_of_service;
        FtlError::Full {
            live: self.live_pages,
            pages: u64::from(blocks) * u64::from(self.data_pages),
            out_of_service,
        }
    }

    /// Takes a free block of a plane, and erases it if necessary.
    fn take_block(&mut self, now: Nanos, plane: u32) -> Result<Option<(Pbn, Nanos)>, FtlError> {
        let mut now = now;
        loop {
            let taken = match &mut self.zone {
                Some(zone) => zone.take(plane, now),
                None => self.free.take(plane).map(|block| (block, now)),
            };
            let Some((block, from)) = taken else {
                return Ok(None);
            };
            now = from;
            if !self.blocks[block.index()].stale {
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
        self.sync(now, self.erased_until.max(now))
    }

    /// Erases the free blocks that the caller selects. Returns when the last erase is done.
    fn erase_free(
        &mut self,
        now: Nanos,
        means: &mut dyn FnMut(Pbn) -> bool,
    ) -> Result<Nanos, FtlError> {
        let mut end = now;
        for id in (0..self.geometry.blocks()).map(Pbn) {
            let block = &self.blocks[id.index()];
            if matches!(block.state, BlockState::Free | BlockState::Zone)
                && block.stale
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
                self.erases[block.index()] += 1;
                self.erases_total += 1;
                self.erased_until = self.erased_until.max(done);
                let erased = &mut self.blocks[block.index()];
                (erased.stale, erased.left) = (false, false);
                let plane = self.geometry.plane_of(block);
                self.horizon.forgets((block, plane), self.seq, done);
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
        if self.config.paired_pages != PairedPages::Ignored {
            return self.advance_in_pairs(done, stream, plane, spare);
        }
        let stride = self.summary_stride();
        let slot = &mut self.heads[stream as usize].open[plane as usize];
        let open = slot.as_mut().expect("a page was just programmed into it");
        open.records.extend_from_slice(&spare[..stride]);
        open.next += 1;
        open.done = open.done.max(done);
        open.number = self.seq;
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
        let wear = Lpn(self.erases[block.index()]);
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
        let block = &mut self.blocks[id.index()];
        block.state = BlockState::Full;
        if failing {
            block.failing = true;
            self.retire.push(id);
        }
        if block.pins == 0 {
            self.victims.insert(id, block.live.into());
        }
    }

    /// Lets host writes use the collector's blocks, all but one, until it is called with `false`.
    /// Required to restart a full device, which must write before any page becomes obsolete.
    pub fn lend_reserve(&mut self, lent: bool) {
        self.reserve_is_lent = lent;
    }

    /// Makes the collector keep `blocks` blocks writable, so that they can be reserved together. It
    /// keeps fewer if the device lacks room.
    pub fn keep_writable(&mut self, blocks: u32) {
        let taken = self.logical_pages.div_ceil(self.dense_pages) + 2 * self.geometry.planes();
        let in_service = (0..self.geometry.blocks())
            .filter(|&b| !matches!(self.block_state(Pbn(b)), BlockState::Bad | BlockState::Meta))
            .count() as u32;
        // The other blocks must have enough dead pages for collection to be worthwhile.
        let most = in_service.saturating_sub(taken) / 2;
        self.gc_threshold_blocks = self.gc_threshold_blocks.max(blocks.min(most));
    }

    /// Reserves up to `blocks` free blocks, spread over the planes, and returns them. A zoned
    /// device writes only to reserved blocks. [`Ftl::zone_from`] sets from when on.
    pub fn zone_add(&mut self, blocks: u32) -> Vec<Pbn> {
        let mut added = Vec::new();
        let planes = self.geometry.planes();
        let zone = self
            .zone
            .as_mut()
            .expect("the owner asked for a zoned device");
        zone.begin();
        let mut plane = 0;
        let mut empty = 0;
        while (added.len() as u32) < blocks && empty < planes {
            match self.free.take(plane) {
                Some(block) => {
                    empty = 0;
                    self.blocks[block.index()].state = BlockState::Zone;
                    zone.put(plane, block, self.erases[block.index()]);
                    added.push(block);
                }
                None => empty += 1,
            }
            plane = (plane + 1) % planes;
        }
        added
    }

    /// Returns the blocks that were reserved last to the free ones. Nothing on flash records the
    /// reservation.
    pub fn zone_give_back(&mut self) {
        let added = self.zone.as_mut().map(Zone::take_newer);
        added
            .into_iter()
            .flatten()
            .for_each(|id| self.free_block(id));
    }

    /// Sets when the blocks that were reserved last may be written.
    pub fn zone_from(&mut self, from: Nanos) {
        if let Some(zone) = &mut self.zone {
            zone.may_be_written(from);
        }
    }

    /// Number of writable blocks: free ones, and reserved ones that are not yet open. Victim
    /// starts when they run short.
    #[inline]
    pub(super) fn writable_blocks(&self) -> u32 {
        self.free.len() + self.zone_left()
    }

    /// Whether the collector has blocks for the copies of a block.
    pub(crate) fn can_copy_block(&self) -> bool {
        self.writable_blocks() > 1
    }

    /// Whether fewer blocks are writable than collection keeps: it has found no victim.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.writable_blocks() < self.gc_threshold_blocks
    }

    /// Number of reserved blocks that are not yet open.
    #[inline]
    pub fn zone_left(&self) -> u32 {
        self.zone.as_ref().map_or(0, |zone| zone.len())
    }

    /// Reserved blocks that are not yet full: unopened and open ones.
    pub fn zone_blocks(&self) -> Vec<Pbn> {
        let mut blocks: Vec<Pbn> = self.zone.iter().flat_map(|zone| zone.blocks()).collect();
        blocks.extend(self.heads.iter().flat_map(Head::open_blocks));
        blocks.sort();
        blocks
    }

    pub(super) fn free_block(&mut self, id: Pbn) {
        let plane = self.geometry.plane_of(id);
        let block: &mut Block = &mut self.blocks[id.index()];
        block.state = BlockState::Free;
        if id >= self.end_of_given_out() {
            return;
        }
        self.free.put(plane, id, self.erases[id.index()]);
    }
}
