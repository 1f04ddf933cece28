//! Clock: second chance, as databases do it today.
//!
//! Source      older than papers on flash; with a count a page as in PostgreSQL's buffer manager
//! Idea        A hand goes round the frames. A page has a count, one when it comes in and one more
//!             for each hit, up to a limit (5 in PostgreSQL; with 1 it is plain second chance). The
//!             hand takes one from each page that it passes, and evicts the first that has none.
//!             Clean or dirty makes no difference.
//! Cost        constant an access; a choice is constant amortised, as the hand undoes what accesses
//!             did. Pages that may not go are passed over and keep their count.

use super::FrameId;
use super::Policy;
use super::PolicyInfo;
use flagstone::settings::{BadSetting, Settings, settings};
use flagstone::units::Lpn;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "clock",
    idea: "the next page of the clock that was not hit since the hand last passed",
    paper: "-",
    settings: settings! {
        rounds: "5", "maximum number of rounds that a page earns by hits; 1 is plain second chance";
    },
};

struct Clock {
    /// The count of the page in each frame; `None` for a free frame.
    rounds: Vec<Option<u8>>,
    rounds_max: u8,
    hand: usize,
}

pub(super) fn start(frames: usize, settings: &Settings) -> Result<Box<dyn Policy>, BadSetting> {
    Ok(Box::new(Clock {
        rounds: vec![None; frames],
        rounds_max: settings.number(&INFO, "rounds", 1, u8::MAX)?,
        hand: 0,
    }))
}

impl Policy for Clock {
    fn inserted(&mut self, frame: FrameId, _: Lpn, _: bool) {
        self.rounds[frame.index()] = Some(1);
    }

    fn touched(&mut self, frame: FrameId, _: bool) {
        let rounds = self.rounds[frame.index()].as_mut().expect("a page");
        *rounds = self.rounds_max.min(rounds.saturating_add(1));
    }

    fn marked(&mut self, _: FrameId, _: bool) {}

    fn removed(&mut self, frame: FrameId) {
        self.rounds[frame.index()] = None;
    }

    /// Moves the hand on, and takes a round from each page that it passes, until one has none left.
    fn victim(&mut self, may: &mut dyn FnMut(FrameId) -> bool) -> Option<FrameId> {
        // Number of frames in a row that are free or refused. After a whole round of them there is
        // no victim.
        let mut passed = 0;
        while passed < self.rounds.len() {
            let frame = FrameId(self.hand as u32);
            self.hand = (self.hand + 1) % self.rounds.len();
            passed += 1;
            if self.rounds[frame.index()].is_none() || !may(frame) {
                continue;
            }
            match &mut self.rounds[frame.index()] {
                Some(0) => return Some(frame),
                Some(rounds) => *rounds -= 1,
                None => unreachable!("looked at above"),
            }
            passed = 0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::history;
    use super::*;

    /// Cached pages by frame, with their counts, and a hand that searches for the next one.
    struct Naive {
        pages: Vec<(FrameId, u8)>,
        last: Option<FrameId>,
        frames: u32,
        rounds_max: u8,
    }

    impl Policy for Naive {
        fn inserted(&mut self, frame: FrameId, _: Lpn, _: bool) {
            self.pages.push((frame, 1));
            self.pages.sort();
        }
        fn touched(&mut self, frame: FrameId, _: bool) {
            for page in &mut self.pages {
                if page.0 == frame && page.1 < self.rounds_max {
                    page.1 += 1;
                }
            }
        }
        fn marked(&mut self, _: FrameId, _: bool) {}
        fn removed(&mut self, frame: FrameId) {
            self.pages.retain(|page| page.0 != frame);
        }
        fn victim(&mut self, may: &mut dyn FnMut(FrameId) -> bool) -> Option<FrameId> {
            let any = self.pages.clone().into_iter().any(|(frame, _)| may(frame));
            if !any {
                return None;
            }
            loop {
                let after = self.last.map_or(0, |last| last.0 + 1);
                let next = self.pages.iter().position(|page| page.0.0 >= after);
                let Some(next) = next else {
                    self.last = None;
                    continue;
                };
                let page = &mut self.pages[next];
                self.last = (page.0.0 + 1 < self.frames).then_some(page.0);
                if may(page.0) {
                    if page.1 == 0 {
                        return Some(page.0);
                    }
                    page.1 -= 1;
                }
            }
        }
    }

    fn pair(frames: usize, rounds: u8, naive_rounds: u8) -> [Box<dyn Policy>; 2] {
        let settings = Settings::new().with("rounds", rounds);
        let naive = Naive {
            pages: Vec::new(),
            last: None,
            frames: frames as u32,
            rounds_max: naive_rounds,
        };
        [start(frames, &settings).expect("a number"), Box::new(naive)]
    }

    #[test]
    fn it_chooses_as_a_round_over_the_pages() {
        for rounds in [1, 5] {
            history::assert_same(&|frames| pair(frames, rounds, rounds));
        }
        history::assert_different(&|frames| pair(frames, 5, 1));
    }

    #[test]
    fn a_page_that_is_hit_often_stays_at_the_maximum() {
        let settings = Settings::new().with("rounds", u8::MAX);
        let mut clock = start(2, &settings).expect("a number");
        clock.inserted(FrameId(0), Lpn(0), false);
        clock.inserted(FrameId(1), Lpn(1), false);
        for _ in 0..300 {
            clock.touched(FrameId(0), false);
        }
        assert_eq!(clock.victim(&mut |_| true), Some(FrameId(1)));
    }

    #[test]
    fn a_page_that_was_hit_gets_a_second_chance() {
        let mut clock = start(3, &Settings::new()).expect("all defaults");
        for frame in 0..3 {
            clock.inserted(FrameId(frame), Lpn(frame), false);
        }
        clock.touched(FrameId(0), false);
        assert_eq!(clock.victim(&mut |_| true), Some(FrameId(1)));
        assert_eq!(clock.victim(&mut |frame| frame.0 == 0), Some(FrameId(0)));
        assert_eq!(clock.victim(&mut |_| false), None);
    }
}
