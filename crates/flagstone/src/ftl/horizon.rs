//! The horizon: what was durable is never lost in silence.
//!
//! After a power cut, a page that cannot be read may have been torn by the cut, or damaged since.
//! Only the first is no loss. So each page says what was durable when it was programmed. A restart
//! takes the newest of these statements that it finds: below it every page must be there. Where the
//! flash can keep it, an erase says the same.
//!
//! ```text
//!   spare      | header | tail | checksums | statement 13 |
//!
//!   programs   1 2 3 4 5 6 7 8 9      each program has a number; the statement of 9 says:
//!              --------- ^            all up to 6 were durable (the horizon), where the open blocks
//!               durable  in flight    of its plane ended then, which full blocks had their
//!                                     summaries, and which root was the newest
//! ```
//!
//! | a block without a summary, at a restart | damaged if |
//! |---|---|
//! | a page with a number up to the horizon | a page before it is not there |
//! | a statement says that it was open, and where it ended | a page before that end is not there |
//! | its last page has a number up to which all full blocks had summaries | always: its own is gone |
//! | it was full, since no statement says that it was open, on a flash that never fails | a page is not there |
//!
//! and the newest root that was found must not be older than the one that a statement names. In a
//! block that has its summary, the summary says which pages there are, and whoever reads one finds
//! out. A device that was closed has a summary in every block: then a block without one is damaged.
//!
//! Blocks that a cut left without a summary have gaps that are no damage. So nothing is stated
//! after a restart until its owner has given each of them a summary or has collected it
//! ([`Ftl::unsealed`]); then [`Ftl::begin_statements`].
//!
//! What a statement covers was durable when the page was programmed: what the last commit wrote is
//! covered by what is programmed after it. Until then its damage cannot be told from a cut.

use super::write::Open;
use super::{BlockState, Cause, Ftl, FtlError, Mistake, PairedPages, Stream, header};
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Lpn, Nanos, Pbn, Ppn};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

layout! {
    /// What a page says of what was durable when it was programmed, behind the checksums of its
    /// spare area.
    pub statement: 13 => {
        LAG:    2, "programs back from its write sequence to the last one up to which all were durable; 0xffff if nothing is said, 0xfffe if nothing is said and it is a copy with the write sequence of another page";
        SEALED: 1, "and from that one to the last one up to which all full blocks had a durable summary, in eights, rounded up; 255 if there is none";
        HOST:   4, "the page behind the last durable one in the block for the host's pages that was open on its plane; ones if there was none";
        COPIES: 4, "the same of the block for the collector's copies";
        ROOT:   1, "the newest durable root, its last byte";
        ERASE:  1, "the last erase that was issued, its last byte, where the flash counts them; else 0";
    }
}

/// Nothing is said; and of a copy, nothing is said and its number is not known.
const SAYS_NOTHING: u64 = 0xffff;
const IS_COPY: u64 = 0xfffe;

/// What [`statement::SEALED`] counts in.
const SEALED_UNIT: u64 = 8;
const NONE_SEALED: u64 = 255;

/// No page, or nothing that can be said.
const NONE: u32 = u32::MAX;

/// What was programmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Programmed {
    /// A version of a logical page, by this stream.
    Page(Stream),
    /// The summary of a block.
    Summary,
    /// The last part of a root, with its generation.
    Root(u64),
    /// Nothing: the block was erased, or is out of service.
    Nothing,
    /// Anything else.
    Other,
}

/// A program that no wait has covered, as far as is known.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    number: u64,
    done: Nanos,
    /// When the first wait for it ends.
    safe_from: Option<Nanos>,
    block: Pbn,
    plane: u32,
    /// The page behind it, unless it is the last one of its block.
    next: u32,
    what: Programmed,
}

/// Where the durable part of an open block ends.
#[derive(Debug, Clone, Copy)]
struct OpenEnd {
    /// The page behind it; [`NONE`] if no block is open, or all of it is durable.
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

/// A block that takes no more pages and whose summary is not durable.
#[derive(Debug, Clone, Copy)]
struct Unsealed {
    block: Pbn,
    /// The number of its last page that says it; 0 if none does.
    last: u64,
    /// The number of the program that it ended with.
    order: u64,
}

/// What a page of a block without a summary is found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    Blank,
    Unreadable,
    /// With the number of its program; 0 if it does not say.
    Whole(u64),
}

impl Seen {
    /// The number of its program, if it says.
    pub(super) fn number(&self) -> Option<u64> {
        match *self {
            Seen::Whole(number) => Some(number).filter(|&number| number > 0),
            Seen::Blank | Seen::Unreadable => None,
        }
    }
}

/// A block without a summary, as a restart finds it.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) block: Pbn,
    /// Its pages in order, as far as they were read.
    pub(super) pages: Vec<Seen>,
    /// Whether its summary can be programmed: nothing is in its place.
    pub(super) may_be_sealed: bool,
}

/// What a page says, or an erase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Statement {
    number: u64,
    horizon: u64,
    sealed: u64,
    heads: [u32; 2],
    root: u8,
    erase: u8,
    /// The page; the first one of the block that was erased.
    at: Ppn,
}

impl Statement {
    /// The number of a program, 0 if it is not known, and what it says of others. `seq` is the
    /// write sequence in its header.
    fn parse(at: Ppn, seq: u64, bytes: &[u8]) -> (u64, Option<Statement>) {
        let lag = get(bytes, statement::LAG);
        if lag == IS_COPY {
            return (0, None);
        }
        if lag == SAYS_NOTHING {
            return (seq, None);
        }
        let horizon = seq.saturating_sub(lag);
        let sealed = match get(bytes, statement::SEALED) {
            NONE_SEALED => 0,
            units => horizon.saturating_sub(units * SEALED_UNIT),
        };
        let statement = Statement {
            number: seq,
            horizon,
            sealed,
            heads: [statement::HOST, statement::COPIES].map(|field| get(bytes, field) as u32),
            root: get(bytes, statement::ROOT) as u8,
            erase: get(bytes, statement::ERASE) as u8,
            at,
        };
        (seq, Some(statement))
    }
}

/// What was durable and is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The block; nothing if it is the newest root.
    pub block: Option<Pbn>,
    /// Its page, counted from 0; nothing if it is its summary or all of it.
    pub page: Option<u32>,
    /// What is wrong.
    pub why: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.block, self.page) {
            (Some(block), Some(page)) => write!(f, "page {page} of block {block} {}", self.why),
            (Some(block), None) => write!(f, "block {block} {}", self.why),
            (None, _) => f.write_str(self.why),
        }
    }
}

const GONE: &str = "was durable and cannot be read";
const UNSEALED: &str = "had a summary, which cannot be read";
const BLANK: &str = "had pages that were durable, and is blank";
const OLDER_ROOT: &str = "the newest root cannot be read";

/// What is known of what is durable, and what a restart has found.
#[derive(Debug, Clone, Default)]
pub(super) struct Horizon {
    /// Whether statements are made.
    is_on: bool,
    /// Before statements begin: when the programs are done, and the erases of blocks that lacked a
    /// summary.
    begins_from: Nanos,
    /// All programs up to this one are durable, for whoever programs from `known_from` on.
    safe: u64,
    known_from: Nanos,
    /// The programs after that, in order.
    in_flight: VecDeque<InFlight>,
    /// By stream and plane: where the open block ends, as far as it is durable.
    heads: [Vec<OpenEnd>; 2],
    /// The newest root: that is durable, or that a restart has found.
    pub(super) root: u64,
    unsealed: Vec<Unsealed>,
    /// By plane: the newest statement that a restart has found.
    newest: Vec<Option<Statement>>,
    /// Blocks without a summary that a restart has found.
    pub(super) found: Vec<Found>,
    damage: Vec<Damage>,
}

impl Horizon {
    pub(super) fn new(planes: u32) -> Horizon {
        let heads = || vec![OpenEnd::NONE; planes as usize];
        Horizon {
            heads: [heads(), heads()],
            newest: vec![None; planes as usize],
            ..Horizon::default()
        }
    }

    /// A wait ends at an instant, for what has been programmed by now and is done at `until` or
    /// before.
    #[inline]
    pub(super) fn waited(&mut self, ends: Nanos, until: Nanos) {
        for program in self.in_flight.iter_mut().filter(|it| it.done <= until) {
            let before = program.safe_from.unwrap_or(ends);
            program.safe_from = Some(before.min(ends));
        }
    }

    /// A block takes no more pages and has no summary yet; the number of its last page.
    fn ends(&mut self, block: Pbn, last: u64, order: u64) {
        self.unsealed.push(Unsealed { block, last, order });
    }

    /// The summary of a block is durable, by the program with this number, or its erase, which came
    /// after that program. The block may have been ended before it was full, and may be in use
    /// again.
    fn needs_no_summary(&mut self, block: Pbn, number: u64) {
        self.unsealed
            .retain(|other| other.block != block || other.order > number);
        for head in self.heads.iter_mut().flatten() {
            if head.block == block && head.number <= number {
                head.next = NONE;
            }
        }
    }

    /// Nothing is expected of a block once its erase is durable, or a root that calls it bad.
    pub(super) fn forgets(&mut self, (block, plane): (Pbn, u32), number: u64, done: Nanos) {
        let before = self.found.len();
        self.found.retain(|found| found.block != block);
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

    /// What can be said at an instant, by a program with a number, in a plane.
    fn say(&mut self, now: Nanos, number: u64, plane: usize) -> [u8; statement::SIZE] {
        let mut words = [0xff; statement::SIZE];
        if !self.is_on {
            return words;
        }
        while let Some(&first) = self.in_flight.front()
            && let Some(from) = first.safe_from.filter(|&from| from <= now)
        {
            self.in_flight.pop_front();
            self.known_from = self.known_from.max(from);
            self.is_durable(first);
        }
        // Clients that run side by side ask for later and earlier instants in turn.
        if now < self.known_from {
            return words;
        }
        let lag = number - self.safe;
        if lag >= IS_COPY {
            return words;
        }
        let unsealed = self.unsealed.iter().map(|block| block.last).min();
        let sealed = unsealed.map_or(self.safe, |last| self.safe.min(last.saturating_sub(1)));
        let units = (self.safe - sealed).div_ceil(SEALED_UNIT);
        put(&mut words, statement::LAG, lag);
        put(&mut words, statement::SEALED, units.min(NONE_SEALED));
        put(
            &mut words,
            statement::HOST,
            self.heads[0][plane].next.into(),
        );
        put(
            &mut words,
            statement::COPIES,
            self.heads[1][plane].next.into(),
        );
        put(&mut words, statement::ROOT, self.root & 0xff);
        words
    }

    /// The first program in flight is durable.
    fn is_durable(&mut self, program: InFlight) {
        let next = self.in_flight.front().map(|next| next.number - 1);
        self.safe = next.map_or(program.number, |next| next.min(program.number));
        match program.what {
            Programmed::Page(stream) => {
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

    /// Takes what a page of a plane says, or an erase. Returns its number, 0 if that is not known.
    fn hears(&mut self, plane: u32, at: Ppn, seq: u64, bytes: &[u8]) -> u64 {
        let (number, statement) = Statement::parse(at, seq, bytes);
        let newest = &mut self.newest[plane as usize];
        let age = |of: &Statement| (of.number, of.horizon);
        if statement.is_some_and(|new| newest.is_none_or(|old| age(&new) > age(&old))) {
            *newest = statement;
        }
        number
    }
}

impl Ftl {
    /// Where the horizon is in a spare area, if the owner asked for it.
    pub(super) fn horizon_in_spare(&self) -> Option<Range<usize>> {
        let end = self.format.spare_bytes(&self.config);
        self.format.horizons.then(|| end - statement::SIZE..end)
    }

    /// Takes what a page says whose spare area was read. Returns the number of its program, 0 if it
    /// does not say.
    pub(super) fn hear(&mut self, at: Ppn, spare: &[u8]) -> u64 {
        let Some(place) = self.horizon_in_spare() else {
            return 0;
        };
        let plane = self.addresses.plane_of(self.addresses.block_of(at));
        self.horizon
            .hears(plane, at, get(spare, header::SEQ), &spare[place])
    }

    /// What the page that is programmed next says. A copy with the write sequence of another page
    /// has no number of its own.
    pub(super) fn state_horizon(
        &mut self,
        now: Nanos,
        at: Ppn,
        spare: &[u8],
    ) -> [u8; statement::SIZE] {
        if get(spare, header::SEQ) != self.seq {
            let mut words = [0xff; statement::SIZE];
            put(&mut words, statement::LAG, IS_COPY);
            return words;
        }
        let plane = self.addresses.plane_of(self.addresses.block_of(at));
        self.say(now, plane)
    }

    /// What an erase says at an instant, on a flash that keeps it, and its number: that of the last
    /// program.
    pub(super) fn says_at_erase(&mut self, now: Nanos) -> Option<(u64, [u8; statement::SIZE])> {
        let says = self.format.horizons && self.horizon.is_on && self.flash.never_fails();
        says.then(|| (self.seq, self.say(now, 0)))
    }

    fn say(&mut self, now: Nanos, plane: u32) -> [u8; statement::SIZE] {
        // A flash that never fails does one thing after the other, in the order of the calls: what
        // was waited for is over.
        let now = match self.flash.never_fails() {
            true => Nanos(u64::MAX),
            false => now,
        };
        let mut words = self.horizon.say(now, self.seq, plane as usize);
        words[statement::ERASE.start] = self.flash.last_erase();
        words
    }

    /// A page was programmed, or its program has failed.
    pub(super) fn note_program(&mut self, done: Nanos, at: Ppn, what: Programmed) {
        let (block, page) = self.addresses.split(at);
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
            plane: self.addresses.plane_of(block),
            next: match page + 1 == self.data_pages {
                true => NONE,
                false => at.0 + 1,
            },
            what,
        });
    }

    /// A block takes no more pages and has no summary yet; the number of its last page.
    pub(super) fn lacks_summary(&mut self, block: Pbn, last: u64) {
        if self.format.horizons {
            self.horizon.ends(block, last, self.seq);
        }
    }

    /// A block without a summary that the restart has found, and that has neither got one since nor
    /// was collected; and whether its summary can be programmed: those come first for which it can.
    pub fn unsealed(&self) -> Option<(Pbn, bool)> {
        let found = &self.horizon.found;
        let first = found.iter().find(|found| found.may_be_sealed);
        let found = first.or(found.first())?;
        Some((found.block, found.may_be_sealed))
    }

    /// Has a block that a restart has found without a summary wait for it, as one that is full.
    /// Returns when its pages were read.
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
        let last = self.horizon.found.iter().find(|found| found.block == block);
        let last = last.and_then(|found| found.pages.iter().filter_map(Seen::number).max());
        self.lacks_summary(block, last.unwrap_or(0));
        self.horizon.found.retain(|found| found.block != block);
        let live = self.blocks[block.index()].live;
        self.victims.remove(block, live.into());
        self.wait_for_summary(block, read.done, records);
        Ok(read.done)
    }

    /// Whether every block that takes no more pages has its summary, if everything that was
    /// programmed is durable.
    pub fn are_sealed(&self) -> bool {
        let is_summary =
            |program: &InFlight| matches!(program.what, Programmed::Summary | Programmed::Nothing);
        let sealed = self.horizon.in_flight.iter().filter(|&it| is_summary(it));
        let sealed: Vec<Pbn> = sealed.map(|program| program.block).collect();
        let mut unsealed = self.horizon.unsealed.iter();
        self.horizon.found.is_empty() && unsealed.all(|it| sealed.contains(&it.block))
    }

    /// Whether pages say what is durable.
    #[inline]
    pub fn states_horizon(&self) -> bool {
        self.horizon.is_on
    }

    /// From now on pages say what is durable. Everything is that has been programmed, after a wait;
    /// and no block without a summary is left but open ones, and full ones that wait for it.
    ///
    /// # Errors
    /// The power fails.
    pub fn begin_statements(&mut self, now: Nanos) -> Result<(), FtlError> {
        let now = self.sync(now, self.horizon.begins_from)?;
        let horizon = &mut self.horizon;
        (horizon.is_on, horizon.safe, horizon.known_from) = (true, self.seq, now);
        for (heads, head) in horizon.heads.iter_mut().zip(&self.heads) {
            for (place, open) in heads.iter_mut().zip(&head.open) {
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

    /// What the restart has found damaged that was durable, where it was told to go on.
    pub fn damage(&self) -> &[Damage] {
        &self.horizon.damage
    }

    /// Doubts a device that holds a version of a logical page beyond its size: it was larger. Only
    /// where it says itself how large it is, as a device does whose flash never fails.
    ///
    /// # Errors
    /// [`FtlError::Damaged`], unless damage is kept.
    pub fn doubt_size(&mut self, beyond: Option<Lpn>, goes_on: bool) -> Result<(), FtlError> {
        let Some(beyond) = beyond.filter(|_| self.flash.never_fails() && !goes_on) else {
            return Ok(());
        };
        Err(FtlError::Damaged(format!(
            "it holds logical page {beyond}, and knows {} pages: what said that it had become \
             larger is lost",
            self.logical_pages
        )))
    }

    /// Looks, once a restart has read the blocks, for what was durable and is damaged. `is_closed`:
    /// everything was durable, and every block had its summary. Blocks are passed over that have no
    /// page with a number above `unto`, or that the restart does not read by `reads`: the mapping
    /// table on flash has them. `goes_on`: damage is kept for [`Ftl::damage`], and no error.
    ///
    /// # Errors
    /// [`FtlError::Damaged`].
    pub fn doubt_horizon(
        &mut self,
        is_closed: bool,
        unto: u64,
        reads: impl Fn(Pbn) -> bool,
        goes_on: bool,
    ) -> Result<(), FtlError> {
        if self.config.mistake.is(Mistake::HorizonIgnored) {
            return Ok(());
        }
        if let Some((block, number, words)) = self.flash.said_at_erase() {
            let at = self.geometry.page(block, 0);
            self.horizon.hears(0, at, number, &words);
        }
        let damage = self.find_damage(is_closed, unto, reads);
        self.horizon.damage = damage;
        match self.horizon.damage.first() {
            Some(first) if !goes_on => {
                let others = match self.horizon.damage.len() - 1 {
                    0 => String::new(),
                    others => format!(", and {others} more like it"),
                };
                Err(FtlError::Damaged(format!("{first}{others}")))
            }
            _ => Ok(()),
        }
    }

    fn find_damage(&self, is_closed: bool, unto: u64, reads: impl Fn(Pbn) -> bool) -> Vec<Damage> {
        let horizon = &self.horizon;
        let statements = horizon.newest.iter().flatten();
        let highest = statements.clone().map(|it| it.horizon).max().unwrap_or(0);
        let newest = statements.max_by_key(|it| it.number);
        let mut damage = Vec::new();
        // By how much the root that was found is older than the one that is stated.
        let behind = newest.map_or(0, |it| it.root.wrapping_sub(horizon.root as u8));
        if (1..128).contains(&behind) {
            damage.push(Damage {
                block: None,
                page: None,
                why: OLDER_ROOT,
            });
        }
        let is_older = |found: &&Found| {
            let highest = found.pages.iter().filter_map(Seen::number).max();
            highest.is_some_and(|highest| highest <= unto)
        };
        for found in horizon.found.iter().filter(|found| !is_older(found)) {
            let statement = &horizon.newest[self.geometry.plane_of(found.block) as usize];
            let (pages, summary) = self.damage_of(found, statement.as_ref(), highest, is_closed);
            let block = Some(found.block);
            let gone = |page| Damage {
                block,
                page: Some(page),
                why: GONE,
            };
            damage.extend(pages.into_iter().map(gone));
            damage.extend(summary.then_some(Damage {
                block,
                page: None,
                why: UNSEALED,
            }));
        }
        // A block that was open and looks blank. One that is not read has the state of those that
        // were never written.
        for statement in horizon
            .newest
            .iter()
            .flatten()
            .filter(|_| self.flash.never_fails())
        {
            for head in statement.heads.into_iter().filter(|&head| head != NONE) {
                let block = self.addresses.block_of(Ppn(head - 1));
                let is_beyond = head > self.geometry.pages();
                if is_beyond
                    || self.block_state(block) == BlockState::Free
                        && reads(block)
                        && !self.was_erased_after(block, statement)
                {
                    damage.push(Damage {
                        block: Some(block),
                        page: None,
                        why: BLANK,
                    });
                }
            }
        }
        damage
    }

    /// Whether a block that was open at a statement may have been erased since. Where the flash does
    /// not count erases, it may.
    fn was_erased_after(&self, block: Pbn, statement: &Statement) -> bool {
        let of_statement = self.addresses.block_of(statement.at);
        self.flash
            .was_erased_after(block, of_statement, statement.erase)
    }

    /// The pages of a block without a summary that were durable and are not there, and whether it
    /// had a summary.
    fn damage_of(
        &self,
        found: &Found,
        statement: Option<&Statement>,
        highest: u64,
        is_closed: bool,
    ) -> (Vec<u32>, bool) {
        let first = self.geometry.page(found.block, 0).0;
        let holds_any = found.pages.iter().any(|page| *page != Seen::Blank);
        if is_closed {
            return (Vec::new(), holds_any);
        }
        // The pages before this one were durable.
        let below = |horizon: u64| {
            let is_below = |page: &Seen| page.number().is_some_and(|number| number <= horizon);
            found
                .pages
                .iter()
                .rposition(is_below)
                .map(|last| last as u32)
        };
        let mut end = below(highest).unwrap_or(0);
        let mut is_unsealed = false;
        if let Some(statement) = statement {
            let pages = first..first + self.data_pages;
            let mut heads = statement.heads.iter().filter(|&&head| head != NONE);
            let head = heads.find(|&&head| pages.contains(&(head - 1)));
            let is_older = below(statement.horizon).is_some();
            let last = found.pages.iter().filter_map(Seen::number).max();
            if let Some(head) = head {
                if is_older || !self.was_erased_after(found.block, statement) {
                    end = end.max(head - first);
                }
            } else if let Some(last) = last {
                is_unsealed = last <= statement.sealed;
                if is_older && self.flash.never_fails() {
                    end = self.data_pages;
                }
            }
        }
        let is_gone = |page: &u32| match found.pages.get(*page as usize) {
            Some(Seen::Unreadable) => true,
            // Pages may be left out where pages share cells.
            Some(Seen::Blank) | None => self.config.paired_pages == PairedPages::Ignored,
            Some(Seen::Whole(_)) => false,
        };
        ((0..end).filter(is_gone).collect(), is_unsealed)
    }
}
