//! All short histories of a tiny flash, cut with every landing of what is in flight, and then with
//! every page damaged in turn. The statements are those that the code makes, and the verdicts those
//! of its table; what a verdict should be is known from the history itself.
//!
//! The flash has one plane and blocks of three pages and a summary. It never fails, and it counts
//! its erases, as a store does. A history may have two lives with a cut between them: the second
//! one begins with blocks that lack a summary.

mod judged;

use super::super::{Horizon, IS_COPY, InFlight, NONE, Programmed, Statement, statement};
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
    /// Statements do not say which full blocks had summaries.
    Sealed,
    /// Blocks that a restart finds without a summary are left as they are.
    Settling,
    /// Full blocks without a summary get one even if none of their pages counts.
    ErasesOfEmpty,
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
    Summary,
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
    Step::Summary,
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
    /// With the generation of its block.
    Torn((u8, u8)),
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
            Read::Nothing | Read::Torn(_) => None,
        };
        let pages = self.pages[block].iter().filter_map(whole);
        let mark = self.marks[block].map(|mark| mark.generation);
        pages.chain(mark).max().unwrap_or((0, 0))
    }

    /// What a page is found to be.
    fn read(&self, block: usize, page: u32) -> Read {
        match self.pages[block][page as usize] {
            Read::Whole(Content { generation, .. }) | Read::Torn(generation)
                if generation != self.generation(block) =>
            {
                Read::Nothing
            }
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
                    image.pages[block][page as usize] = Read::Torn(write.content.generation);
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
        let says = if self.began {
            self.words()
        } else {
            [0xff; statement::SIZE]
        };
        self.erases += 1;
        let generation = (self.opening, self.erases);
        self.write(Place::Mark(block), generation, self.seq, says);
        let block = Pbn(block as u32);
        self.horizon.forgets(block, 0, self.seq, Nanos::ZERO);
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
        let next = if is_full {
            NONE
        } else {
            block as u32 * STRIDE + page + 1
        };
        self.note(
            block,
            next,
            Programmed::Page {
                stream,
                word: None,
                inside: false,
            },
        );
        self.open[head] = Some((block, page + 1, last)).filter(|_| !is_full);
        if is_full {
            self.horizon.ends(Pbn(block as u32), last, self.seq);
            self.closing.push((block, last));
        }
        true
    }

    fn summarise(&mut self, block: usize) {
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
            Step::Summary => {
                let Some(&(block, _)) = self.closing.first() else {
                    return false;
                };
                self.summarise(block);
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

    /// Gives the blocks that the restart has found their summaries, or erases them.
    fn settle(&mut self) {
        let found = match self.without {
            Without::Settling => Vec::new(),
            _ => std::mem::take(&mut self.found),
        };
        self.found.clear();
        for block in found {
            let places = (0..PAGES).map(|page| self.image.read(block, page));
            let mut before_blank = places.take_while(|read| *read != Read::Nothing);
            let is_empty = !before_blank.any(|read| matches!(read, Read::Whole(_)));
            let is_blank = self.image.read(block, 0) == Read::Nothing;
            if is_blank || (is_empty && self.without != Without::ErasesOfEmpty) {
                self.wait();
                self.erase(block);
                self.free.push((block, false));
            } else {
                self.horizon.ends(Pbn(block as u32), 0, self.seq);
                self.summarise(block);
            }
        }
    }

    fn begin(&mut self) -> bool {
        self.settle();
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
