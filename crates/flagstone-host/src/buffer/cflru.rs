//! CFLRU: clean pages go first, as long as they are among the least recently used.
//!
//! Paper       [CFLRU]: a page that is evicted clean costs no program.
//! Idea        One list in the order of the last access. Its least recently used end is the window,
//!             a fixed share of the frames (the paper's *clean-first region*). The victim is the
//!             least recently used clean page in the window, or else of the list.
//! Cost        constant an access outside the window, logarithmic in it; constant a choice. As
//!             published the window is searched; here its clean pages are in a sorted set.
//!
//! Departures  D1. The paper adapts the window to measured costs or fixes it; here it is fixed, at
//!                 10 % as in public code.

use super::FrameId;
use super::Policy;
use super::PolicyInfo;
use super::list::Links;
use super::list::List;
use flagstone::settings::{BadSetting, Settings, settings};
use flagstone::units::Lpn;
use std::collections::BTreeSet;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "cflru",
    idea: "the least recently used clean page of a window, else the least recently used page",
    paper: "CFLRU",
    settings: settings! {
        window: "10", "size of the window, in percent of the frames";
    },
};

struct Cflru {
    links: Links,
    list: List,
    pages: Vec<Page>,
    window_max: usize,
    window_len: usize,
    /// The most recently used frame of the window.
    edge: Option<FrameId>,
    /// Clean frames of the window, by last access.
    clean: BTreeSet<(u64, FrameId)>,
    accesses: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Page {
    accessed: u64,
    dirty: bool,
    in_window: bool,
}

pub(super) fn start(frames: usize, settings: &Settings) -> Result<Box<dyn Policy>, BadSetting> {
    let window = settings.number(&INFO, "window", 0, 100)?;
    Ok(Box::new(Cflru {
        links: Links::new(frames),
        list: List::EMPTY,
        pages: vec![Page::default(); frames],
        window_max: frames * window / 100,
        window_len: 0,
        edge: None,
        clean: BTreeSet::new(),
        accesses: 0,
    }))
}

impl Cflru {
    /// Makes a frame the most recently used.
    fn append(&mut self, frame: FrameId, dirty: bool) {
        self.accesses += 1;
        self.pages[frame.index()] = Page {
            accessed: self.accesses,
            dirty,
            in_window: false,
        };
        self.links.push_back(&mut self.list, frame);
        self.fill_window();
    }

    /// Extends the window by adjacent frames while it has room.
    fn fill_window(&mut self) {
        while self.window_len < self.window_max {
            let next = match self.edge {
                Some(edge) => self.links.behind(edge),
                None => self.list.front(),
            };
            let Some(frame) = next else { return };
            let page = &mut self.pages[frame.index()];
            page.in_window = true;
            if !page.dirty {
                self.clean.insert((page.accessed, frame));
            }
            self.edge = Some(frame);
            self.window_len += 1;
        }
    }

    fn unlink(&mut self, frame: FrameId) {
        let page = self.pages[frame.index()];
        if page.in_window {
            if self.edge == Some(frame) {
                self.edge = self.links.before(frame);
            }
            self.clean.remove(&(page.accessed, frame));
            self.window_len -= 1;
        }
        self.links.remove(&mut self.list, frame);
    }
}

impl Policy for Cflru {
    fn inserted(&mut self, frame: FrameId, _: Lpn, write: bool) {
        self.append(frame, write);
    }

    fn touched(&mut self, frame: FrameId, write: bool) {
        let dirty = self.pages[frame.index()].dirty || write;
        self.unlink(frame);
        self.append(frame, dirty);
    }

    fn marked(&mut self, frame: FrameId, dirty: bool) {
        let page = &mut self.pages[frame.index()];
        page.dirty = dirty;
        if page.in_window && dirty {
            self.clean.remove(&(page.accessed, frame));
        } else if page.in_window {
            self.clean.insert((page.accessed, frame));
        }
    }

    fn removed(&mut self, frame: FrameId) {
        self.unlink(frame);
        self.fill_window();
    }

    fn victim(&mut self, may: &mut dyn FnMut(FrameId) -> bool) -> Option<FrameId> {
        let mut clean = self.clean.iter().map(|&(_, frame)| frame);
        clean.find(|&frame| may(frame)).or_else(|| {
            // All but the clean pages of the window, which `may` has refused.
            let is_left = |frame: &FrameId| {
                let page = self.pages[frame.index()];
                page.dirty || !page.in_window
            };
            let mut rest = self.links.iter(&self.list).filter(is_left);
            rest.find(|&frame| may(frame))
        })
    }

    /// Checks that the window is the least recently used end of the list, and the set of its clean
    /// pages.
    fn check(&self) -> Result<(), String> {
        let window: Vec<FrameId> = self.links.iter(&self.list).take(self.window_max).collect();
        let inside = |frame: &FrameId| self.pages[frame.index()].in_window;
        if window.len() != self.window_len
            || window.last() != self.edge.as_ref()
            || !window.iter().all(inside)
            || self.links.iter(&self.list).filter(inside).count() != self.window_len
        {
            return Err("the window is not the least recently used end of the list".into());
        }
        let clean = window
            .iter()
            .filter(|frame| !self.pages[frame.index()].dirty);
        if !clean.eq(self.clean.iter().map(|(_, frame)| frame)) {
            return Err("the clean pages of the window are not those of the list".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::history;
    use super::*;

    /// Frames with their dirty bits, least recently used first.
    struct Naive {
        pages: Vec<(FrameId, bool)>,
        window: usize,
    }

    impl Policy for Naive {
        fn inserted(&mut self, frame: FrameId, _: Lpn, write: bool) {
            self.pages.push((frame, write));
        }
        fn touched(&mut self, frame: FrameId, write: bool) {
            let place = self.pages.iter().position(|page| page.0 == frame);
            let (_, dirty) = self.pages.remove(place.expect("it is there"));
            self.pages.push((frame, dirty || write));
        }
        fn marked(&mut self, frame: FrameId, dirty: bool) {
            let page = self.pages.iter_mut().find(|page| page.0 == frame);
            page.expect("it is there").1 = dirty;
        }
        fn removed(&mut self, frame: FrameId) {
            self.pages.retain(|page| page.0 != frame);
        }
        fn victim(&mut self, may: &mut dyn FnMut(FrameId) -> bool) -> Option<FrameId> {
            let window = self.pages.iter().take(self.window);
            let clean = window.filter(|(_, dirty)| !dirty);
            let mut order = clean.chain(&self.pages).map(|&(frame, _)| frame);
            order.find(|&frame| may(frame))
        }
    }

    fn pair(frames: usize, percent: u32, naive_percent: usize) -> [Box<dyn Policy>; 2] {
        let settings = Settings::new().with("window", percent);
        let naive = Naive {
            pages: Vec::new(),
            window: frames * naive_percent / 100,
        };
        [start(frames, &settings).expect("a share"), Box::new(naive)]
    }

    #[test]
    fn d1_it_chooses_as_a_list_that_is_searched_in_a_window_of_any_fixed_size() {
        for percent in [0, 10, 50, 100] {
            history::assert_same(&|frames| pair(frames, percent, percent as usize));
        }
        history::assert_different(&|frames| pair(frames, 10, 50));
        history::assert_different(&|frames| pair(frames, 50, 0));
    }

    #[test]
    fn a_clean_page_goes_before_older_dirty_ones_if_it_is_in_the_window() {
        let settings = Settings::new().with("window", 30);
        let mut cflru = start(10, &settings).expect("a share");
        for frame in 0..10 {
            cflru.inserted(FrameId(frame), Lpn(frame), frame < 2);
        }
        assert_eq!(cflru.victim(&mut |_| true), Some(FrameId(2)));
        cflru.marked(FrameId(2), true);
        assert_eq!(cflru.victim(&mut |_| true), Some(FrameId(0)));
        cflru.marked(FrameId(1), false);
        assert_eq!(cflru.victim(&mut |_| true), Some(FrameId(1)));
        assert_eq!(cflru.victim(&mut |frame| frame.0 > 4), Some(FrameId(5)));
    }
}
