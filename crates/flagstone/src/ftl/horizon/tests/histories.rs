//! All short histories of a tiny flash, cut with every landing of what is in flight, and then with
//! every page damaged in turn. The statements are those that the code makes, and the verdicts those
//! of its table; what a verdict should be is known from the history itself.
//!
//! The flash has one plane and blocks of three pages and a summary. It never fails, and it counts
//! its erases, as a store does. A history may have two lives with a cut between them: the second
//! one begins with blocks that lack a summary.

use super::super::judge::{Known, Seen, Stated};
use super::super::{Horizon, SEALED_UNIT};
use super::super::{IS_COPY, InFlight, NONE, Programmed, SAYS_NOTHING, Statement, statement};
use crate::ftl::Stream;
use crate::layout::{get, put};
use crate::units::{Nanos, Pbn, Ppn};
use std::collections::BTreeSet;

const BLOCKS: usize = 4;
const PAGES: u32 = 3;
const STRIDE: u32 = PAGES + 1;

/// What a rule that is left out makes of a statement, or of the flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// Statements do not say where open blocks ended.
    Heads,
    /// They do not say which full blocks had summaries.
    Sealed,
    /// Blocks that a restart finds without a summary are left as they are.
    Settling,
    /// Copies say nothing, and their sequence counts as their number.
    CopiesApart,
    /// Copies with the sequence of another page do not say their numbers.
    NumbersOfCopies,
    /// Nothing is waited for before it is called durable.
    Waiting,
}

/// What is done to the flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Host,
    Copy,
    /// A copy with the write sequence of another page.
    RawCopy,
    Wait,
    /// The block that is full for longest gets its summary.
    Seal,
    /// The first block that has its summary is erased.
    Erase,
    /// Blocks that a restart has found are settled, and statements begin.
    Begin,
}

const STEPS: [Step; 7] = [
    Step::Host,
    Step::Copy,
    Step::RawCopy,
    Step::Wait,
    Step::Seal,
    Step::Erase,
    Step::Begin,
];

/// A place of the medium: the mark of a block, or one of its pages, the summary last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Mark(usize),
    Page(usize, u32),
}

/// What was written to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Content {
    /// The generation of its block: the opening, and the number of the erase.
    generation: (u8, u8),
    seq: u64,
    says: [u8; statement::SIZE],
    /// The write, for what the history knows of it.
    write: usize,
}

impl Content {
    /// The number of its program.
    fn number(&self) -> u64 {
        Statement::parse(Ppn(0), self.seq, &self.says).0
    }
}

/// What a place reads as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Read {
    Nothing,
    Torn,
    Whole(Content),
}

/// The medium, by block: mark, pages, summary.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Image {
    marks: [Option<Content>; BLOCKS],
    pages: [[Read; STRIDE as usize]; BLOCKS],
}

impl Image {
    const BLANK: Image = Image {
        marks: [None; BLOCKS],
        pages: [[Read::Nothing; STRIDE as usize]; BLOCKS],
    };

    /// The generation of a block: that of its mark, or of a page that is newer.
    fn generation(&self, block: usize) -> (u8, u8) {
        let whole = |read: &Read| match read {
            Read::Whole(content) => Some(content.generation),
            Read::Nothing | Read::Torn => None,
        };
        let pages = self.pages[block].iter().filter_map(whole);
        let mark = self.marks[block].map(|mark| mark.generation);
        pages.chain(mark).max().unwrap_or((0, 0))
    }

    /// What a page is found to be.
    fn read(&self, block: usize, page: u32) -> Read {
        match self.pages[block][page as usize] {
            Read::Whole(it) if it.generation != self.generation(block) => Read::Nothing,
            read => read,
        }
    }

    fn has_summary(&self, block: usize) -> bool {
        matches!(self.read(block, PAGES), Read::Whole(_))
    }
}

/// A write, and what was known when it was issued.
#[derive(Debug, Clone)]
struct Write {
    place: Place,
    content: Content,
    /// Writes that were durable then.
    durable: u64,
    /// Whether statements were made, so that it says what was durable.
    says: bool,
    /// The last number that any block with all its pages, and without a durable summary, ended
    /// with; 0 if one has no number.
    unsealed: Option<u64>,
}

/// A flash that is written.
#[derive(Debug, Clone)]
struct Flash {
    without: Without,
    horizon: Horizon,
    seq: u64,
    opening: u8,
    erases: u8,
    began: bool,
    /// All writes of all lives; those before `durable` are, as far as they have landed.
    writes: Vec<Write>,
    durable: usize,
    image: Image,
    /// By stream: the block, the next page, the last number.
    open: [Option<(usize, u32, u64)>; 2],
    /// Full blocks without a summary, and the last number of each.
    closing: Vec<(usize, u64)>,
    sealed: Vec<usize>,
    /// Blocks that may be used, and whether they have to be erased first.
    free: Vec<(usize, bool)>,
    /// Blocks that the restart has found without a summary.
    found: Vec<usize>,
}

impl Flash {
    fn new(without: Without) -> Flash {
        Flash {
            without,
            horizon: Horizon::new(1),
            seq: 0,
            opening: 1,
            erases: 0,
            began: false,
            writes: Vec::new(),
            durable: 0,
            image: Image::BLANK,
            open: [None; 2],
            closing: Vec::new(),
            sealed: Vec::new(),
            free: (0..BLOCKS).map(|block| (block, true)).collect(),
            found: Vec::new(),
        }
    }

    fn wait(&mut self) {
        self.horizon.waited(Nanos::ZERO, Nanos(u64::MAX));
        self.image = self.landed(&mut |_| Landing::All);
        self.durable = self.writes.len();
    }

    /// The medium, if so much of each write in flight has landed.
    fn landed(&self, how: &mut impl FnMut(&Write) -> Landing) -> Image {
        let mut image = self.image.clone();
        for write in &self.writes[self.durable..] {
            match (how(write), write.place) {
                (Landing::None, _) => {}
                (_, Place::Mark(block)) => image.marks[block] = Some(write.content),
                (Landing::All, Place::Page(block, page)) => {
                    image.pages[block][page as usize] = Read::Whole(write.content);
                }
                (Landing::Torn, Place::Page(block, page)) => {
                    image.pages[block][page as usize] = Read::Torn;
                }
            }
        }
        image
    }

    fn words(&mut self) -> [u8; statement::SIZE] {
        if self.without == Without::Waiting {
            self.horizon.waited(Nanos::ZERO, Nanos(u64::MAX));
        }
        let mut words = self.horizon.say(Nanos(u64::MAX), self.seq, 0);
        words[statement::ERASE.start] = self.erases;
        if self.without == Without::Heads {
            put(&mut words, statement::HOST, NONE.into());
            put(&mut words, statement::COPIES, NONE.into());
        }
        if self.without == Without::Sealed {
            put(&mut words, statement::SEALED, super::super::NONE_SEALED);
        }
        words
    }

    fn write(&mut self, place: Place, generation: (u8, u8), seq: u64, says: [u8; statement::SIZE]) {
        let write = self.writes.len();
        let content = Content {
            generation,
            seq,
            says,
            write,
        };
        let durable = (0..self.durable).fold(0, |all, write| all | 1 << write);
        let is_durable = |block: usize| {
            let summary = |write: &Write| write.place == Place::Page(block, PAGES);
            let of_now = |write: &Write| write.content.generation == self.generation_of(block);
            self.writes[..self.durable]
                .iter()
                .any(|it| summary(it) && of_now(it))
        };
        let waiting = self.closing.iter().map(|&(_, last)| last);
        let programmed = self.sealed.iter().filter(|&&block| !is_durable(block));
        let programmed = programmed.map(|&block| self.last_of(block));
        self.writes.push(Write {
            place,
            content,
            durable,
            says: self.began && get(&says, statement::LAG) < IS_COPY,
            unsealed: waiting.chain(programmed).min(),
        });
    }

    /// The generation of a block, once all has landed.
    fn generation_of(&self, block: usize) -> (u8, u8) {
        let of_block = |write: &&Write| match write.place {
            Place::Mark(other) | Place::Page(other, _) => other == block,
        };
        let writes = self.writes.iter().filter(of_block);
        let newest = writes.map(|write| write.content.generation).max();
        newest.unwrap_or((0, 0))
    }

    /// The last number of the pages of a block.
    fn last_of(&self, block: usize) -> u64 {
        let generation = self.generation_of(block);
        let of_block = |write: &&Write| {
            let is_page =
                matches!(write.place, Place::Page(at, page) if at == block && page < PAGES);
            is_page && write.content.generation == generation
        };
        let pages = self.writes.iter().filter(of_block);
        pages.map(|write| write.content.number()).max().unwrap_or(0)
    }

    fn note(&mut self, block: usize, next: u32, what: Programmed) {
        if !self.began {
            if what == Programmed::Summary {
                self.horizon.needs_no_summary(Pbn(block as u32), self.seq);
            }
            return;
        }
        self.horizon.in_flight.push_back(InFlight {
            number: self.seq,
            done: Nanos::ZERO,
            safe_from: None,
            block: Pbn(block as u32),
            plane: 0,
            next,
            what,
        });
    }

    fn erase(&mut self, block: usize) {
        let says = match self.began {
            true => self.words(),
            false => [0xff; statement::SIZE],
        };
        self.erases += 1;
        let generation = (self.opening, self.erases);
        self.write(Place::Mark(block), generation, self.seq, says);
        let at = (Pbn(block as u32), 0);
        self.horizon.forgets(at, self.seq, Nanos::ZERO);
    }

    fn program(&mut self, stream: Stream, is_raw: bool) -> bool {
        let head = stream as usize;
        if self.open[head].is_none() {
            let Some((block, is_stale)) = self.free.first().copied() else {
                return false;
            };
            self.free.remove(0);
            if is_stale {
                self.erase(block);
            }
            // A mark is durable before a page of its block is written, but the first time.
            let was_used = self.image.pages[block] != [Read::Nothing; STRIDE as usize];
            if was_used && self.durable < self.writes.len() {
                self.wait();
            }
            self.open[head] = Some((block, 0, 0));
        }
        let (block, page, last) = self.open[head].expect("it was opened");
        let own = !is_raw || self.without != Without::CopiesApart;
        self.seq += u64::from(own);
        let (seq, says) = match (is_raw, self.without) {
            (false, _) => (self.seq, self.words()),
            (true, Without::CopiesApart) => (1, [0xff; statement::SIZE]),
            (true, Without::NumbersOfCopies) => (1, Horizon::of_copy(0)),
            (true, _) => (1, Horizon::of_copy(self.seq)),
        };
        let last = match (is_raw, self.without) {
            (true, Without::NumbersOfCopies) => last,
            _ => self.seq,
        };
        let generation = self.generation_of(block);
        self.write(Place::Page(block, page), generation, seq, says);
        let is_full = page + 1 == PAGES;
        let next = match is_full {
            true => NONE,
            false => block as u32 * STRIDE + page + 1,
        };
        self.note(block, next, Programmed::Page(stream));
        self.open[head] = Some((block, page + 1, last)).filter(|_| !is_full);
        if is_full {
            self.horizon.ends(Pbn(block as u32), last, self.seq);
            self.closing.push((block, last));
        }
        true
    }

    fn seal(&mut self, block: usize) {
        let of_block = |write: &Write| matches!(write.place, Place::Page(at, _) if at == block);
        if self.writes[self.durable..].iter().any(of_block) {
            self.wait();
        }
        self.seq += 1;
        let says = self.words();
        let generation = match self.generation_of(block) {
            (0, 0) => self.image.generation(block),
            generation => generation,
        };
        self.write(Place::Page(block, PAGES), generation, self.seq, says);
        self.note(block, NONE, Programmed::Summary);
        self.sealed.push(block);
    }

    /// Does a step; nothing if it cannot be done.
    fn does(&mut self, step: Step) -> bool {
        match step {
            Step::Host => self.program(Stream::Host, false),
            Step::Copy => self.program(Stream::Gc, false),
            Step::RawCopy => self.seq > 0 && self.program(Stream::Gc, true),
            Step::Wait => {
                let waits = self.durable < self.writes.len();
                self.wait();
                waits
            }
            Step::Seal => {
                let Some(&(block, _)) = self.closing.first() else {
                    return false;
                };
                self.seal(block);
                self.closing.remove(0);
                true
            }
            Step::Erase => {
                if self.sealed.is_empty() {
                    return false;
                }
                let block = self.sealed.remove(0);
                self.wait();
                self.erase(block);
                self.free.push((block, false));
                true
            }
            Step::Begin => !self.began && self.begin(),
        }
    }

    fn begin(&mut self) -> bool {
        let found = match self.without {
            Without::Settling => Vec::new(),
            _ => std::mem::take(&mut self.found),
        };
        self.found.clear();
        for block in found {
            let place = |page: u32| self.image.read(block, page);
            if place(0) == Read::Nothing || place(PAGES) == Read::Torn {
                self.wait();
                self.erase(block);
                self.free.push((block, false));
            } else {
                self.horizon.ends(Pbn(block as u32), 0, self.seq);
                self.seal(block);
            }
        }
        self.wait();
        let horizon = &mut self.horizon;
        horizon.in_flight.clear();
        (horizon.is_on, horizon.safe) = (true, self.seq);
        for (stream, open) in self.open.iter().enumerate() {
            let end = open.filter(|&(_, next, _)| next > 0);
            horizon.heads[stream][0] = match end {
                Some((block, next, _)) => super::super::OpenEnd {
                    next: block as u32 * STRIDE + next,
                    block: Pbn(block as u32),
                    number: self.seq,
                },
                None => super::super::OpenEnd::NONE,
            };
        }
        self.began = true;
        true
    }

    /// The flash after a cut and a restart.
    fn restarted(&self, image: Image) -> Flash {
        let mut next = Flash::new(self.without);
        next.opening = self.opening + 1;
        next.writes.clone_from(&self.writes);
        next.durable = next.writes.len();
        next.free.clear();
        for block in 0..BLOCKS {
            let reads: Vec<Read> = (0..STRIDE).map(|page| image.read(block, page)).collect();
            for read in &reads {
                if let Read::Whole(content) = read {
                    next.seq = next.seq.max(content.seq).max(content.number());
                }
            }
            if image.has_summary(block) {
                next.sealed.push(block);
            } else if reads.iter().all(|read| *read == Read::Nothing) {
                next.free.push((block, true));
            } else {
                next.found.push(block);
            }
        }
        next.image = image;
        next
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Landing {
    None,
    Torn,
    All,
}

/// Calls for every landing of what is in flight.
fn for_landings(flash: &Flash, mut then: impl FnMut(Image)) {
    let writes = &flash.writes[flash.durable..];
    let ways = |write: &Write| match write.place {
        Place::Mark(_) => 2,
        Place::Page(..) => 3,
    };
    let all: usize = writes.iter().map(ways).product();
    for mut way in 0..all {
        then(flash.landed(&mut |write| {
            let drawn = way % ways(write);
            way /= ways(write);
            [Landing::None, Landing::All, Landing::Torn][drawn]
        }));
    }
}

/// The places that a restart calls damaged; the summary is the last page of a block, and a block
/// that looks blank is all its pages.
fn judged(image: &Image) -> BTreeSet<(usize, u32)> {
    let mut horizon = Horizon::new(1);
    let mut found = Vec::new();
    for block in 0..BLOCKS {
        let mut pages = Vec::new();
        let last = match image.has_summary(block) {
            true => PAGES..STRIDE,
            false => 0..PAGES,
        };
        for page in last {
            let at = Ppn(block as u32 * STRIDE + page);
            pages.push(match image.read(block, page) {
                Read::Nothing => Seen::Blank,
                Read::Torn => Seen::Unreadable,
                Read::Whole(it) => Seen::Whole(horizon.hears(0, at, it.seq, &it.says)),
            });
        }
        let is_torn = image.read(block, PAGES) == Read::Torn;
        let holds = pages.iter().any(|page| *page != Seen::Blank);
        if !image.has_summary(block) && (is_torn || holds) {
            found.push((block, pages));
        }
    }
    // What the newest mark says.
    let marks = (0..BLOCKS).filter_map(|block| Some((image.marks[block]?, block)));
    let newest = marks.max_by_key(|(mark, _)| mark.generation);
    if let Some((mark, block)) = newest
        && get(&mark.says, statement::LAG) < SAYS_NOTHING
    {
        horizon.hears(0, Ppn(block as u32 * STRIDE), mark.seq, &mark.says);
    }
    let newest = horizon.newest[0];
    let was_erased = |block: usize, statement: &Statement| {
        let other = image.generation(statement.at.0 as usize / STRIDE as usize);
        let own = image.generation(block);
        own.0 != other.0 || own.1 > statement.erase
    };
    let mut damage = BTreeSet::new();
    for (block, pages) in &found {
        let first = *block as u32 * STRIDE;
        let says = |statement: &Statement| {
            let heads = statement.heads.iter().filter(|&&head| head != NONE);
            let mut ends = heads.filter(|&&head| head > first && head <= first + PAGES);
            Stated {
                horizon: statement.horizon,
                sealed: statement.sealed,
                end: ends.next().map(|head| head - first),
                is_erased: was_erased(*block, statement),
            }
        };
        let known = Known {
            is_closed: false,
            unto: 0,
            highest: newest.map_or(0, |it| it.horizon),
            stated: newest.as_ref().map(says),
            never_fails: true,
            leaves_out: false,
            data_pages: PAGES,
        };
        let (gone, summary) = known.judges(pages);
        damage.extend(gone.into_iter().map(|page| (*block, page)));
        damage.extend(summary.then_some((*block, PAGES)));
    }
    for statement in newest.iter() {
        for head in statement.heads.iter().filter(|&&head| head != NONE) {
            let block = (*head as usize - 1) / STRIDE as usize;
            let is_blank = (0..STRIDE).all(|page| image.read(block, page) == Read::Nothing);
            if is_blank && !was_erased(block, statement) {
                damage.extend((0..STRIDE).map(|page| (block, page)));
            }
        }
    }
    damage
}

/// Whether something that a restart still reads says of a page that it was durable. It does not
/// read the pages of a block with a summary: a block that a restart gives its summary before
/// statements begin takes what its pages say along. Of a summary only what is said last does, and
/// coarsely: blocks of which the last page was programmed shortly before that of the oldest full
/// block without a summary are left out.
fn is_covered(flash: &Flash, image: &Image, (block, page): (usize, u32), write: usize) -> bool {
    let newest_mark = image
        .marks
        .iter()
        .flatten()
        .map(|mark| mark.generation)
        .max();
    let is_there = |other: &&Write| match other.place {
        Place::Mark(of) => {
            image.marks[of] == Some(other.content) && Some(other.content.generation) == newest_mark
        }
        Place::Page(of, at) => {
            let is_read = at == PAGES || !image.has_summary(of);
            is_read && image.read(of, at) == Read::Whole(other.content)
        }
    };
    let mut says = flash
        .writes
        .iter()
        .filter(|other| other.says)
        .filter(is_there);
    let knows = |other: &Write| other.durable >> write & 1 == 1;
    if page < PAGES {
        return says.any(knows);
    }
    let last = flash.last_in(image, block);
    says.next_back().is_some_and(|newest| {
        let least = newest.unsealed.unwrap_or(u64::MAX);
        knows(newest) && last > 0 && last + SEALED_UNIT <= least
    })
}

impl Flash {
    /// The last number of the pages of a block that are there.
    fn last_in(&self, image: &Image, block: usize) -> u64 {
        let pages = (0..PAGES).map(|page| image.read(block, page));
        let number = |read: Read| match read {
            Read::Whole(it) => Some(it.number()),
            Read::Nothing | Read::Torn => None,
        };
        pages.filter_map(number).max().unwrap_or(0)
    }
}

/// What was found in all histories of a kind.
#[derive(Debug, Default)]
struct Tally {
    landings: u64,
    damaged: u64,
    covered: u64,
    noticed: u64,
    /// Landings that are called damage.
    false_alarms: u64,
    /// Damage that is covered and not called so.
    silent: u64,
    /// The first of either.
    first: Option<String>,
}

impl Tally {
    fn look(&mut self, flash: &Flash, image: &Image, steps: &[Step]) {
        self.landings += 1;
        let alarm = judged(image);
        if !alarm.is_empty() {
            self.false_alarms += 1;
            let what = || format!("{steps:?}: {alarm:?} of {image:?}");
            self.first.get_or_insert_with(what);
            return;
        }
        for block in 0..BLOCKS {
            for page in 0..STRIDE {
                let Read::Whole(content) = image.read(block, page) else {
                    continue;
                };
                // A block with its summary says what it holds.
                if page < PAGES && image.has_summary(block) {
                    continue;
                }
                for harm in [Read::Torn, Read::Nothing] {
                    let mut damaged = image.clone();
                    damaged.pages[block][page as usize] = harm;
                    // Its generation is known by its mark, unless that has not landed.
                    let is_marked = damaged.generation(block) == content.generation;
                    self.damaged += 1;
                    let noticed = judged(&damaged).iter().any(|&(at, _)| at == block);
                    self.noticed += u64::from(noticed);
                    if !is_marked || !is_covered(flash, &damaged, (block, page), content.write) {
                        continue;
                    }
                    self.covered += 1;
                    if !noticed {
                        self.silent += 1;
                        let what = || format!("{steps:?}: {harm:?} at {block}.{page} of {image:?}");
                        self.first.get_or_insert_with(what);
                    }
                }
            }
        }
    }

    /// All histories of at most so many steps more.
    fn explore(&mut self, flash: &Flash, steps: &mut Vec<Step>, depth: usize) {
        for_landings(flash, |image| self.look(flash, &image, steps));
        if depth == 0 {
            return;
        }
        for step in STEPS {
            let mut next = flash.clone();
            if next.does(step) {
                steps.push(step);
                self.explore(&next, steps, depth - 1);
                steps.pop();
            }
        }
    }
}

/// The flash after some steps.
fn after(without: Without, steps: &[Step]) -> Flash {
    let mut flash = Flash::new(without);
    for &step in steps {
        assert!(flash.does(step), "{step:?} of {steps:?}");
    }
    flash
}

/// Histories that others go on from.
fn beginnings() -> Vec<Vec<Step>> {
    use Step::{Begin, Copy, Erase, Host, RawCopy, Seal, Wait};
    vec![
        vec![Begin],
        vec![Begin, Host, Host, Copy, Wait],
        vec![Begin, Host, Host, Host, Wait, Copy],
        vec![Begin, Host, Host, Host, Seal, Wait, Host],
        vec![Begin, Host, Host, Host, Seal, Host, Copy, Erase],
        vec![Begin, Host, RawCopy, RawCopy, Wait, Host],
    ]
}

fn one_life(without: Without, depth: usize) -> Tally {
    let mut tally = Tally::default();
    for mut steps in beginnings() {
        let flash = after(without, &steps);
        tally.explore(&flash, &mut steps, depth);
    }
    tally
}

/// A life, a cut with every landing, and another life.
fn two_lives(without: Without, first: usize, second: usize) -> Tally {
    let mut tally = Tally::default();
    let mut met = BTreeSet::new();
    for steps in beginnings() {
        let mut all = vec![(after(without, &steps), steps)];
        for _ in 0..first {
            let mut longer = Vec::new();
            for (flash, steps) in &all {
                for step in STEPS {
                    let mut next = flash.clone();
                    if next.does(step) {
                        longer.push((next, [&steps[..], &[step]].concat()));
                    }
                }
            }
            all.extend(longer);
        }
        for (flash, steps) in &all {
            for_landings(flash, |image| {
                if met.insert(image.clone()) {
                    let next = flash.restarted(image);
                    tally.explore(&next, &mut steps.clone(), second);
                }
            });
        }
    }
    tally
}

#[test]
fn no_landing_is_damage_and_no_covered_damage_is_silent() {
    for tally in [
        one_life(Without::Nothing, 4),
        two_lives(Without::Nothing, 1, 3),
    ] {
        assert_eq!(
            (tally.false_alarms, tally.silent),
            (0, 0),
            "{:?}",
            tally.first
        );
        let all = (tally.landings, tally.covered);
        assert!(all.0 > 400_000 && all.1 > 900_000, "{all:?}");
    }
}

#[test]
fn what_is_left_out_is_found() {
    for without in [Without::Heads, Without::Sealed, Without::NumbersOfCopies] {
        let tally = one_life(without, 3);
        assert!(tally.silent > 0, "{without:?}");
    }
    for without in [Without::CopiesApart, Without::Waiting] {
        let tally = one_life(without, 3);
        assert!(tally.false_alarms > 0, "{without:?}");
    }
    let tally = two_lives(Without::Settling, 1, 3);
    assert!(tally.false_alarms > 0, "{:?}", Without::Settling);
}
