//! LRU: evicts the least recently used page.
//!
//! Source      older than papers on flash; the pool of [FlagCommit] §5.1 and [MixSL] §5
//! Idea        One list in the order of the last access. Clean or dirty makes no difference.
//! Cost        constant an access, constant a choice

use super::FrameId;
use super::Policy;
use super::PolicyInfo;
use super::list::Links;
use super::list::List;
use flagstone::settings::{BadSetting, Settings};
use flagstone::units::Lpn;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "lru",
    idea: "the least recently used page",
    paper: "-",
    settings: &[],
};

struct Lru {
    links: Links,
    list: List,
}

pub(super) fn start(frames: usize, _: &Settings) -> Result<Box<dyn Policy>, BadSetting> {
    Ok(Box::new(Lru {
        links: Links::new(frames),
        list: List::EMPTY,
    }))
}

impl Policy for Lru {
    fn inserted(&mut self, frame: FrameId, _: Lpn, _: bool) {
        self.links.push_back(&mut self.list, frame);
    }

    fn touched(&mut self, frame: FrameId, _: bool) {
        self.links.remove(&mut self.list, frame);
        self.links.push_back(&mut self.list, frame);
    }

    fn marked(&mut self, _: FrameId, _: bool) {}

    fn removed(&mut self, frame: FrameId) {
        self.links.remove(&mut self.list, frame);
    }

    fn victim(&mut self, may: &mut dyn FnMut(FrameId) -> bool) -> Option<FrameId> {
        self.links.iter(&self.list).find(|&frame| may(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::super::history;
    use super::*;

    /// Frames, the least recently used first.
    #[derive(Default)]
    struct Naive {
        frames: Vec<FrameId>,
        /// A wrong model: read hits do not count.
        is_wrong: bool,
    }

    impl Policy for Naive {
        fn inserted(&mut self, frame: FrameId, _: Lpn, _: bool) {
            self.frames.push(frame);
        }
        fn touched(&mut self, frame: FrameId, write: bool) {
            if write || !self.is_wrong {
                self.removed(frame);
                self.frames.push(frame);
            }
        }
        fn marked(&mut self, _: FrameId, _: bool) {}
        fn removed(&mut self, frame: FrameId) {
            self.frames.retain(|&other| other != frame);
        }
        fn victim(&mut self, may: &mut dyn FnMut(FrameId) -> bool) -> Option<FrameId> {
            self.frames.iter().copied().find(|&frame| may(frame))
        }
    }

    fn pair(frames: usize, is_wrong: bool) -> [Box<dyn Policy>; 2] {
        let naive = Naive {
            is_wrong,
            ..Naive::default()
        };
        [
            start(frames, &Settings::new()).expect("all defaults"),
            Box::new(naive),
        ]
    }

    #[test]
    fn it_chooses_as_a_list_that_is_searched() {
        history::assert_same(&|frames| pair(frames, false));
        history::assert_different(&|frames| pair(frames, true));
    }
}
