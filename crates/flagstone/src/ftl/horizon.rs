//! The horizon: detects the loss of durable pages.
//!
//! After a power cut, a page that cannot be read may have been torn by the cut, which loses
//! nothing, or damaged later. So each page states what was durable when it was programmed. A
//! restart takes the newest statement that it finds: every page below its horizon must exist. If
//! the flash supports it, an erase carries a statement as well.
//!
//! ```text
//!   spare      | header | tail | checksums | statement 13 |
//!
//!   programs   1 2 3 4 5 6 7 8 9      each program has a number; the statement of 9 says:
//!              --------- ^            all up to 6 were durable (the horizon), where the open
//!               durable  in flight    blocks of its plane ended then, which full blocks had
//!                                     their summaries, and which root was the newest
//! ```
//!
//! | a block without a summary, at a restart | damaged if |
//! |---|---|
//! | a page with a number up to the horizon | a page before it is not there |
//! | a statement says that it was open, and where it ended | a page before that end is not there |
//! | its last page has a number up to which all full blocks had summaries | always: its own is gone |
//! | it was full, since no statement says that it was open, on a flash that never fails | a page is not there |
//! | its summary cannot be read, on a flash that never fails | no page is there: it was programmed when they were durable |
//!
//! The newest root found must not be older than the one that a statement names. In a block with a
//! summary, the summary lists the pages, and reads detect missing ones. A device that was closed
//! has a summary in every block: a block without one is damaged then.
//!
//! Blocks that a cut left without a summary have harmless gaps. So nothing is stated after a
//! restart until its owner has given each of them a summary, or has collected it
//! ([`Ftl::unsealed`]); then [`Ftl::begin_statements`].
//!
//! A statement covers what was durable when its page was programmed: the writes of the last commit
//! are covered only by later programs. Until then damage to them looks like a cut.

mod judge;
mod settling;
pub(super) mod word;

pub use judge::{Damage, Scanned};
pub(super) use judge::{Found, Seen};

use super::write::Open;
use super::{BlockState, Cause, Ftl, FtlError, Header, PageKind, Stream, header};
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Nanos, Pbn, Ppn};
use std::collections::VecDeque;
use std::ops::Range;

layout! {
    /// What a page says of what was durable when it was programmed, behind the checksums of its
    /// spare area.
    pub statement: 13 => {
        LAG:    2, "programs back from its write sequence to the last one up to which all were durable; 0xffff if nothing is said; 0xfffe in a copy with the write sequence of another page, which says nothing but its number";
        SEALED: 1, "and from that one to the last one up to which all full blocks had a durable summary, behind 128 in sixteens, rounded up; 255 if there is none";
        HOST:   4, "the page behind the last durable one in the block for the host's pages that was open on its plane; ones if there was none; in such a copy the number, its lower bytes";
        COPIES: 4, "the same of the block for the collector's copies; in such a copy the number, its upper bytes; where the tail says so, HOST and COPIES are a word of the owner, and the page says nothing but its number: in such a copy, SEALED, ROOT and ERASE are how far it is above the write sequence, ones if that is too far";
        ROOT:   1, "the newest durable root, its last byte";
        ERASE:  1, "the last erase that was issued, its last byte, where the flash counts them; else 0";
    }
}

/// States nothing; in a copy that keeps a write sequence, nothing but its number.
const SAYS_NOTHING: u64 = 0xffff;
const IS_COPY: u64 = 0xfffe;

/// Up to this value [`statement::SEALED`] is exact, then in units of [`SEALED_UNIT`].
const SEALED_EXACT: u64 = 128;
const SEALED_UNIT: u64 = 16;
const NONE_SEALED: u64 = 255;

/// A statement without any contents.
const UNSAID: [u8; statement::SIZE] = [0xff; statement::SIZE];

/// No page, or an unknown one.
const NONE: u32 = u32::MAX;

/// What was programmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Programmed {
    /// A version of a logical page.
    Page {
        stream: Stream,
        /// The owner's word, which the page has if its tail says so.
        word: Option<u64>,
        /// Whether the version is a copy from the same plane, off the channel.
        inside: bool,
    },
    /// The summary of a block.
    Summary,
    /// The last part of a root, with its generation.
    Root(u64),
    /// Nothing: the block was erased, or is out of service.
    Nothing,
    /// Any other page.
    Other,
}

/// A program that no wait is known to cover.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    number: u64,
    done: Nanos,
    /// When the first wait for it ends.
    safe_from: Option<Nanos>,
    block: Pbn,
    plane: u32,
    /// The page after the stated one, unless that is the last one of its block.
    next: u32,
    what: Programmed,
}

/// The end of the durable part of an open block.
#[derive(Debug, Clone, Copy)]
struct OpenEnd {
    /// The page after the durable part. [`NONE`] if no block is open, or all of it is durable.
    next: u32,
    block: Pbn,
    /// The number of its last program.
    number: u64,
}

impl OpenEnd {
    const NONE: OpenEnd = OpenEnd {
        next: NONE,
        block: Pbn(0),
        number: 0,
    };
}

/// A block that takes no more pages, without a durable summary.
#[derive(Debug, Clone, Copy)]
struct Unsealed {
    block: Pbn,
    /// The highest number that one of its pages states; 0 if none does.
    last: u64,
    /// The number of the program with which it ended.
    order: u64,
}

/// The statement of a page or an erase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Statement {
    number: u64,
    horizon: u64,
    sealed: u64,
    heads: [u32; 2],
    root: u8,
    erase: u8,
    /// The page; for an erase, the first page of the erased block.
    at: Ppn,
}

impl Statement {
    /// Parses a statement: the number of the program (0 if unknown), and the statement about
    /// others. `seq` is the write sequence in the page's header.
    fn parse(at: Ppn, seq: u64, bytes: &[u8]) -> (u64, Option<Statement>) {
        let lag = get(bytes, statement::LAG);
        if lag == IS_COPY {
            let half = |field| get(bytes, field);
            return (half(statement::COPIES) << 32 | half(statement::HOST), None);
        }
        if lag == SAYS_NOTHING {
            return (seq, None);
        }
        let horizon = seq.saturating_sub(lag);
        let sealed = match get(bytes, statement::SEALED) {
            NONE_SEALED => 0,
            says => {
                let units = says.saturating_sub(SEALED_EXACT);
                horizon.saturating_sub(says - units + units * SEALED_UNIT)
            }
        };
        let statement = Statement {
            number: seq,
            horizon,
            sealed,
            // No head is at the first page of the device: the next page follows another.
            heads: [statement::HOST, statement::COPIES].map(|field| match get(bytes, field) {
                0 => NONE,
                next => next as u32,
            }),
            root: get(bytes, statement::ROOT) as u8,
            erase: get(bytes, statement::ERASE) as u8,
            at,
        };
        (seq, Some(statement))
    }

    /// Encodes the statement. Says nothing if its horizon is too far back.
    fn emit(&self) -> [u8; statement::SIZE] {
        let lag = self.number - self.horizon;
        if lag >= IS_COPY {
            return UNSAID;
        }
        let mut words = UNSAID;
        let back = self.horizon - self.sealed;
        let units = back.saturating_sub(SEALED_EXACT).div_ceil(SEALED_UNIT);
        put(&mut words, statement::LAG, lag);
        let sealed = back.min(SEALED_EXACT) + units;
        put(&mut words, statement::SEALED, sealed.min(NONE_SEALED));
        for (place, head) in [statement::HOST, statement::COPIES]
            .into_iter()
            .zip(self.heads)
        {
            put(&mut words, place, head.into());
        }
        put(&mut words, statement::ROOT, self.root.into());
        put(&mut words, statement::ERASE, self.erase.into());
        words
    }
}

/// The known durable state, and the results of a restart.
#[derive(Debug, Clone, Default)]
pub(super) struct Horizon {
    /// Whether pages get statements.
    is_on: bool,
    /// Before statements begin: when all programs are done, and the erases of blocks without a
    /// summary.
    begins_from: Nanos,
    /// All programs up to this one are durable, for programs issued at `known_from` or later.
    safe: u64,
    known_from: Nanos,
    /// Later programs, in order.
    in_flight: VecDeque<InFlight>,
    /// By stream and plane: the end of the durable part of the open block.
    heads: [Vec<OpenEnd>; 2],
    /// The newest root: durable, or found by a restart.
    pub(super) root: u64,
    unsealed: Vec<Unsealed>,
    /// By plane: the newest statement that a restart has found.
    newest: Vec<Option<Statement>>,
    /// By plane: the statement with the most summaries. The newest one may state fewer.
    most_sealed: Vec<Option<Statement>>,
    /// Until statements begin, from everything found: number of the program, last erase, and page.
    erases_said: Vec<(u64, u8, Ppn)>,
    /// Blocks without a summary that a restart has found.
    pub(super) found: Vec<Found>,
    /// Those of them that have got a summary, or wait for it, until statements begin.
    settled: Vec<Found>,
    damage: Vec<Damage>,
    /// Number of changes in what can be stated, and that number at the newest statement: 0 if
    /// nothing could be stated then.
    changes: u64,
    said: u64,
}

impl Horizon {
    pub(super) fn new(planes: u32) -> Horizon {
        let heads = || vec![OpenEnd::NONE; planes as usize];
        Horizon {
            heads: [heads(), heads()],
            newest: vec![None; planes as usize],
            most_sealed: vec![None; planes as usize],
            ..Horizon::default()
        }
    }

    /// Records a wait that ends at `ends` and covers everything programmed so far that is done at
    /// `until` or before.
    #[inline]
    pub(super) fn waited(&mut self, ends: Nanos, until: Nanos) {
        for program in self.in_flight.iter_mut().filter(|it| it.done <= until) {
            let before = program.safe_from.unwrap_or(ends);
            program.safe_from = Some(before.min(ends));
        }
    }

    /// Records that a block takes no more pages and has no summary yet. `last` is the number of its
    /// last page.
    fn ends(&mut self, block: Pbn, last: u64, order: u64) {
        self.unsealed.push(Unsealed { block, last, order });
    }

    /// Records that a block needs no summary any more: its summary is durable (`number` is its
    /// program), or its erase or the root that retires it, issued after program `number`. The block
    /// may have been closed before it was full, and may be in use again.
    fn needs_no_summary(&mut self, block: Pbn, number: u64) {
        self.unsealed
            .retain(|other| other.block != block || other.order > number);
        for head in self.heads.iter_mut().flatten() {
            if head.block == block && head.number <= number {
                head.next = NONE;
            }
        }
    }

    /// Records that a block needs no summary once its erase, or a root that retires it, is durable,
    /// at `done`. `number` is the last program issued before. Statements do not begin earlier; once
    /// they have begun, the block is listed until a wait covers `done`.
    pub(super) fn forgets(&mut self, block: Pbn, plane: u32, number: u64, done: Nanos) {
        let before = self.found.len();
        self.found.retain(|found| found.block != block);
        self.settled.retain(|found| found.block != block);
        if before > self.found.len() {
            self.begins_from = self.begins_from.max(done);
        }
        if !self.unsealed.iter().any(|other| other.block == block) {
            return;
        }
        if !self.is_on {
            self.begins_from = self.begins_from.max(done);
            return self.needs_no_summary(block, u64::MAX);
        }
        self.in_flight.push_back(InFlight {
            number,
            done,
            safe_from: None,
            block,
            plane,
            next: NONE,
            what: Programmed::Nothing,
        });
    }

    /// Drops all state of blocks from `end` on. They were erased, and that is durable.
    pub(super) fn shrink(&mut self, end: Pbn) {
        self.unsealed.retain(|other| other.block < end);
        for head in self.heads.iter_mut().flatten() {
            if head.block >= end {
                *head = OpenEnd::NONE;
            }
        }
    }

    /// The statement of a copy that keeps the write sequence of its original: its number.
    fn of_copy(number: u64) -> [u8; statement::SIZE] {
        let mut words = UNSAID;
        put(&mut words, statement::LAG, IS_COPY);
        put(&mut words, statement::HOST, number & u64::from(u32::MAX));
        put(&mut words, statement::COPIES, number >> 32);
        words
    }

    /// The statement that program `number` in a plane can make at an instant.
    fn say(&mut self, now: Nanos, number: u64, plane: usize) -> [u8; statement::SIZE] {
        if !self.can_state(now, number) {
            return UNSAID;
        }
        let unsealed = self.unsealed.iter().map(|block| block.last).min();
        let said = Statement {
            number,
            horizon: self.safe,
            sealed: unsealed.map_or(self.safe, |last| self.safe.min(last.saturating_sub(1))),
            heads: [0, 1].map(|stream| self.heads[stream][plane].next),
            root: self.root as u8,
            erase: u8::MAX,
            at: Ppn(NONE),
        };
        self.said = self.changes;
        said.emit()
    }

    /// Whether program `number` can state at `now` what is durable: it is known then, and not too
    /// far back.
    fn can_state(&mut self, now: Nanos, number: u64) -> bool {
        self.learn(now) && number.saturating_sub(self.safe) < IS_COPY
    }

    /// Updates what is durable at `now`. Returns whether it can be stated at that time.
    fn learn(&mut self, now: Nanos) -> bool {
        while let Some(&first) = self.in_flight.front()
            && let Some(from) = first.safe_from.filter(|&from| from <= now)
        {
            self.in_flight.pop_front();
            self.known_from = self.known_from.max(from);
            self.is_durable(first);
        }
        // Concurrent clients ask for instants out of order.
        self.is_on && now >= self.known_from
    }

    /// Records that the oldest program in flight is durable.
    fn is_durable(&mut self, program: InFlight) {
        self.changes += 1;
        let next = self.in_flight.front().map(|next| next.number - 1);
        self.safe = next.map_or(program.number, |next| next.min(program.number));
        match program.what {
            Programmed::Page { stream, .. } => {
                self.heads[stream as usize][program.plane as usize] = OpenEnd {
                    next: program.next,
                    block: program.block,
                    number: program.number,
                };
            }
            Programmed::Summary | Programmed::Nothing => {
                self.needs_no_summary(program.block, program.number);
            }
            Programmed::Root(generation) => self.root = generation,
            Programmed::Other => {}
        }
    }

    /// The highest horizon in the newest statements of all planes.
    fn highest(&self) -> u64 {
        let statements = self.newest.iter().flatten();
        statements.map(|it| it.horizon).max().unwrap_or(0)
    }

    /// Records a statement. Returns the number of the program or erase, 0 if unknown.
    fn hears(&mut self, plane: u32, at: Ppn, seq: u64, bytes: &[u8]) -> u64 {
        let (number, statement) = Statement::parse(at, seq, bytes);
        // A collection reads summaries as well, throughout the life of the device.
        if let Some(new) = statement.as_ref().filter(|_| !self.is_on) {
            self.erases_said.push((new.number, new.erase, at));
        }
        let Some(new) = statement else {
            return number;
        };
        let take_if_above = |taken: &mut Option<Statement>, rank: fn(&Statement) -> (u64, u64)| {
            if taken.as_ref().is_none_or(|old| rank(&new) > rank(old)) {
                *taken = Some(new);
            }
        };
        let plane = plane as usize;
        take_if_above(&mut self.newest[plane], |it| (it.number, it.horizon));
        take_if_above(&mut self.most_sealed[plane], |it| (it.sealed, it.number));
        number
    }
}

impl Ftl {
    /// The range of the statement in a spare area, if the owner uses horizons.
    pub(super) fn horizon_in_spare(&self) -> Option<Range<usize>> {
        let end = self.format.spare_bytes(&self.config);
        self.format.horizons.then(|| end - statement::SIZE..end)
    }

    /// Records the statement in a spare area that was read. Returns the number of the program, 0 if
    /// unknown.
    pub(super) fn hear(&mut self, at: Ppn, spare: &[u8]) -> u64 {
        let Some(place) = self.horizon_in_spare() else {
            return 0;
        };
        let seq = get(spare, header::SEQ);
        if self.format.has_word(spare) {
            return word::number(seq, &spare[place]);
        }
        let plane = self
            .blocks
            .addresses
            .plane_of(self.blocks.addresses.block_of(at));
        self.horizon.hears(plane, at, seq, &spare[place])
    }

    /// The statement of the page that is programmed next. A copy with the write sequence of its
    /// original states its number: the sequence that was drawn last.
    pub(super) fn state_horizon(
        &mut self,
        now: Nanos,
        at: Ppn,
        spare: &[u8],
        what: Programmed,
    ) -> [u8; statement::SIZE] {
        let seq = get(spare, header::SEQ);
        self.horizon.said = 0;
        // A word takes the place of the statement.
        if let Programmed::Page {
            word: Some(word), ..
        } = what
            && self.format.has_word(spare)
        {
            return word::emit(word, seq, self.seq);
        }
        if seq != self.seq {
            return Horizon::of_copy(self.seq);
        }
        let is_summary = Header::parse(spare).is_some_and(|head| head.kind == PageKind::Summary);
        if is_summary && !self.horizon.is_on && self.flash.never_fails() {
            return self.says_while_settling(at);
        }
        let plane = self
            .blocks
            .addresses
            .plane_of(self.blocks.addresses.block_of(at));
        self.say(now, plane)
    }

    /// The statement of an erase at an instant, on a flash that stores it, and its number: that of
    /// the last program. States the number even if nothing else can be stated: the block may have
    /// held the page with that number.
    pub(super) fn says_at_erase(&mut self, now: Nanos) -> Option<(u64, [u8; statement::SIZE])> {
        let says = self.format.horizons && self.flash.never_fails();
        says.then(|| (self.seq, self.say(now, 0)))
    }

    /// The instant for which to determine what is durable. A flash that never fails executes one
    /// operation after another in the order of the calls: everything that was waited for is over.
    fn knows_at(&self, now: Nanos) -> Nanos {
        if self.flash.never_fails() {
            Nanos(u64::MAX)
        } else {
            now
        }
    }

    /// A measure of what the last programmed page states. It grows with the contents of statements,
    /// and is 0 if the page states nothing.
    pub fn said(&self) -> u64 {
        self.horizon.said
    }

    /// Whether a page programmed at `now` would state more than one for which [`said`](Ftl::said)
    /// returned `said`.
    pub fn says_more(&mut self, now: Nanos, said: u64) -> bool {
        let now = self.knows_at(now);
        self.horizon.can_state(now, self.seq + 1) && self.horizon.changes > said
    }

    fn say(&mut self, now: Nanos, plane: u32) -> [u8; statement::SIZE] {
        let now = self.knows_at(now);
        let mut words = self.horizon.say(now, self.seq, plane as usize);
        words[statement::ERASE.start] = self.flash.last_erase();
        words
    }

    /// Records that a page was programmed, or that its program failed. Before statements begin,
    /// this only moves their earliest begin, and notes summaries.
    pub(super) fn note_program(&mut self, done: Nanos, at: Ppn, what: Programmed) {
        let (block, page) = self.blocks.addresses.split(at);
        let number = self.seq;
        if !self.horizon.is_on {
            self.horizon.begins_from = self.horizon.begins_from.max(done);
            if what == Programmed::Summary {
                self.horizon.needs_no_summary(block, number);
            }
            return;
        }
        self.horizon.in_flight.push_back(InFlight {
            number,
            done,
            safe_from: None,
            block,
            plane: self.blocks.addresses.plane_of(block),
            next: if page + 1 == self.data_pages {
                NONE
            } else {
                at.0 + 1
            },
            what,
        });
    }

    /// Records that a block takes no more pages and has no summary yet. `last` is the number of its
    /// last page.
    pub(super) fn lacks_summary(&mut self, block: Pbn, last: u64) {
        if self.format.horizons {
            self.horizon.ends(block, last, self.seq);
        }
    }

    /// A block that the restart found without a summary, and that has not got one or been collected
    /// since.
    pub fn unsealed(&self) -> Option<Pbn> {
        self.horizon.found.first().map(|found| found.block)
    }

    /// Lets a block that a restart found without a summary wait for it, like a full one. Returns
    /// when its pages were read.
    ///
    /// # Errors
    /// The power fails.
    pub fn wait_for_seal(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FtlError> {
        let stride = self.summary_stride();
        let mut records = vec![0xff; self.data_pages as usize * stride];
        let geometry = self.geometry;
        let read = self.block_records(now, block, Cause::Mapping, |at, head, tail| {
            let start = geometry.page_in_block(at) as usize * stride;
            head.emit(&mut records[start..]);
            let tail = &tail[..stride - header::SIZE];
            records[start + header::SIZE..start + stride].copy_from_slice(tail);
        })?;
        let is_it = |found: &mut Found| found.block == block;
        let found: Vec<Found> = self.horizon.found.extract_if(.., is_it).collect();
        let last = found.iter().find_map(|found| Seen::last(&found.pages));
        self.lacks_summary(block, last.unwrap_or(0));
        self.horizon.settled.extend(found);
        self.blocks.take_candidate(block, BlockState::Closing);
        self.wait_for_summary(block, read.done, records);
        Ok(read.done)
    }

    /// Whether every closed block has its summary, assuming that all programs are durable.
    pub fn are_sealed(&self) -> bool {
        let is_summary =
            |program: &InFlight| matches!(program.what, Programmed::Summary | Programmed::Nothing);
        let sealed = self.horizon.in_flight.iter().filter(|&it| is_summary(it));
        let sealed: Vec<Pbn> = sealed.map(|program| program.block).collect();
        let mut unsealed = self.horizon.unsealed.iter();
        self.horizon.found.is_empty() && unsealed.all(|it| sealed.contains(&it.block))
    }

    /// Whether pages state what is durable.
    #[inline]
    pub fn states_horizon(&self) -> bool {
        self.horizon.is_on
    }

    /// Begins statements. All programs must be durable, and every block must have its summary,
    /// except for open blocks and for full ones that wait for it.
    ///
    /// # Errors
    /// The power fails.
    pub fn begin_statements(&mut self, now: Nanos) -> Result<(), FtlError> {
        let now = self.sync(now, self.horizon.begins_from)?;
        let horizon = &mut self.horizon;
        (horizon.is_on, horizon.safe, horizon.known_from) = (true, self.seq, now);
        horizon.changes += 1;
        horizon.settled = Vec::new();
        horizon.erases_said = Vec::new();
        for (heads, open) in horizon.heads.iter_mut().zip(self.writer.open()) {
            for (place, open) in heads.iter_mut().zip(open) {
                let open = open.as_ref().filter(|open| open.next > 0);
                let end = |open: &Open| OpenEnd {
                    next: self.geometry.page(open.block, open.next).0,
                    block: open.block,
                    number: self.seq,
                };
                *place = open.map_or(OpenEnd::NONE, end);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
