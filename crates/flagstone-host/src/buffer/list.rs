//! Lists of frames, linked through one flat array. A frame is in one list at a time, so moving it
//! takes constant time.

use super::FrameId;

const NONE: u32 = u32::MAX;

/// The neighbours of each frame in its list.
#[derive(Debug, Clone)]
pub(super) struct Links {
    links: Vec<(u32, u32)>,
}

/// One list. Policies keep the least recently used frame at the front.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    front: u32,
    back: u32,
    len: u32,
}

impl List {
    pub(super) const EMPTY: List = List {
        front: NONE,
        back: NONE,
        len: 0,
    };

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn front(&self) -> Option<FrameId> {
        known(self.front)
    }

    pub(super) fn back(&self) -> Option<FrameId> {
        known(self.back)
    }
}

fn known(frame: u32) -> Option<FrameId> {
    (frame != NONE).then_some(FrameId(frame))
}

impl Links {
    pub(super) fn new(frames: usize) -> Links {
        assert!(frames < NONE as usize, "{frames} frames are too many");
        Links {
            links: vec![(NONE, NONE); frames],
        }
    }

    /// The frame before this one, towards the front.
    pub(super) fn before(&self, frame: FrameId) -> Option<FrameId> {
        known(self.links[frame.index()].0)
    }

    /// The frame after this one, towards the back.
    pub(super) fn behind(&self, frame: FrameId) -> Option<FrameId> {
        known(self.links[frame.index()].1)
    }

    pub(super) fn push_back(&mut self, list: &mut List, frame: FrameId) {
        self.links[frame.index()] = (list.back, NONE);
        match known(list.back) {
            Some(back) => self.links[back.index()].1 = frame.0,
            None => list.front = frame.0,
        }
        list.back = frame.0;
        list.len += 1;
    }

    /// Removes a frame, which must be in this list.
    pub(super) fn remove(&mut self, list: &mut List, frame: FrameId) {
        let (before, behind) = self.links[frame.index()];
        match known(before) {
            Some(before) => self.links[before.index()].1 = behind,
            None => {
                debug_assert_eq!(list.front, frame.0, "the frame is in another list");
                list.front = behind;
            }
        }
        match known(behind) {
            Some(behind) => self.links[behind.index()].0 = before,
            None => {
                debug_assert_eq!(list.back, frame.0, "the frame is in another list");
                list.back = before;
            }
        }
        list.len -= 1;
    }

    /// The frames of a list from its front.
    pub(super) fn iter(&self, list: &List) -> impl Iterator<Item = FrameId> + '_ {
        std::iter::successors(list.front(), |&frame| self.behind(frame))
    }
}
