//! What a restart judges of an image of the tiny flash, and what it should: for every landing, and
//! for every page damaged in turn.

use super::super::super::judge::{Known, Seen};
use super::super::super::{Horizon, NONE, SAYS_NOTHING, Statement};
use super::*;

/// The places that a restart calls damaged; the summary is the last page of a block, and a block
/// that looks blank is all its pages.
fn judged(image: &Image) -> BTreeSet<(usize, u32)> {
    let mut horizon = Horizon::new(1);
    let mut found = Vec::new();
    for block in 0..BLOCKS {
        let mut pages = Vec::new();
        let last = if image.has_summary(block) {
            PAGES..STRIDE
        } else {
            0..PAGES
        };
        for page in last {
            let at = Ppn(block as u32 * STRIDE + page);
            pages.push(match image.read(block, page) {
                Read::Nothing => Seen::Blank,
                Read::Torn(_) => Seen::Unreadable,
                Read::Whole(it) => Seen::Whole(horizon.hears(0, at, it.seq, &it.says)),
            });
        }
        let is_torn = matches!(image.read(block, PAGES), Read::Torn(_));
        let holds = pages.iter().any(|page| *page != Seen::Blank);
        if !image.has_summary(block) && (is_torn || holds) {
            found.push((block, pages, is_torn));
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
    for (block, pages, has_torn_summary) in &found {
        let first = *block as u32 * STRIDE;
        let (stated, sealed) =
            horizon.says_of(0, first..first + PAGES, |it| was_erased(*block, it));
        let known = Known {
            is_closed: false,
            unto: 0,
            highest: newest.map_or(0, |it| it.horizon),
            stated,
            sealed,
            never_fails: true,
            leaves_out: false,
            has_torn_summary: *has_torn_summary,
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
        knows(newest) && last > 0 && last < least
    })
}

impl Flash {
    /// The last number of the pages of a block that are there.
    fn last_in(&self, image: &Image, block: usize) -> u64 {
        let pages = (0..PAGES).map(|page| image.read(block, page));
        let number = |read: Read| match read {
            Read::Whole(it) => Some(it.number()),
            Read::Nothing | Read::Torn(_) => None,
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
                for harm in [Read::Torn(content.generation), Read::Nothing] {
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
        // The power may also be cut before statements begin.
        if !flash.found.is_empty() {
            let mut settling = flash.clone();
            settling.settle();
            for_landings(&settling, |image| self.look(&settling, &image, steps));
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
    use Step::{Begin, Copy, Erase, Host, RawCopy, Summary, Wait};
    vec![
        vec![Begin],
        vec![Begin, Host, Host, Copy, Wait],
        vec![Begin, Host, Host, Host, Wait, Copy],
        vec![Begin, Host, Host, Host, Summary, Wait, Host],
        vec![Begin, Host, Host, Host, Summary, Host, Copy, Erase],
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
    for without in [Without::Settling, Without::ErasesOfEmpty] {
        let tally = two_lives(without, 1, 3);
        assert!(tally.false_alarms > 0, "{without:?}");
    }
}
