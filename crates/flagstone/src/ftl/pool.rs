//! Blocks that can be written: a heap for each plane, least worn first (dynamic wear levelling).

use crate::units::{Nanos, Pbn};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Free blocks by plane.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    planes: Vec<BinaryHeap<Reverse<(u32, u32)>>>,
    len: u32,
}

impl Pool {
    pub(super) fn new(planes: u32) -> Self {
        Pool {
            planes: vec![BinaryHeap::new(); planes as usize],
            len: 0,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn planes(&self) -> u32 {
        self.planes.len() as u32
    }

    pub(super) fn put(&mut self, plane: u32, block: Pbn, erases: u32) {
        self.planes[plane as usize].push(Reverse((erases, block.0)));
        self.len += 1;
    }

    pub(super) fn take(&mut self, plane: u32) -> Option<Pbn> {
        let Reverse((_, block)) = self.planes[plane as usize].pop()?;
        self.len -= 1;
        Some(Pbn(block))
    }

    /// Removes all blocks from `end` on.
    pub(super) fn take_from(&mut self, end: Pbn) {
        for plane in &mut self.planes {
            plane.retain(|Reverse((_, block))| *block < end.0);
        }
        self.len = self.planes.iter().map(|plane| plane.len() as u32).sum();
    }

    pub(super) fn has(&self, plane: u32) -> bool {
        !self.planes[plane as usize].is_empty()
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = Pbn> + '_ {
        self.planes
            .iter()
            .flatten()
            .map(|Reverse((_, block))| Pbn(*block))
    }
}

/// Reserved blocks. Some may be written while the checkpoint that reserves the others is in
/// progress.
#[derive(Debug, Clone)]
pub(super) struct Zone {
    older: Pool,
    older_from: Nanos,
    newer: Pool,
    newer_from: Nanos,
}

impl Zone {
    pub(super) fn new(planes: u32) -> Self {
        Zone {
            older: Pool::new(planes),
            older_from: Nanos::ZERO,
            newer: Pool::new(planes),
            newer_from: Nanos::ZERO,
        }
    }

    /// Begins a new group: blocks added from here on are newer than all others.
    pub(super) fn begin(&mut self) {
        for (older, newer) in self.older.planes.iter_mut().zip(&mut self.newer.planes) {
            older.append(newer);
        }
        self.older.len += std::mem::take(&mut self.newer.len);
        self.older_from = self.newer_from;
    }

    /// Removes the newer blocks.
    pub(super) fn take_newer(&mut self) -> Vec<Pbn> {
        let newer = self.newer.blocks().collect();
        self.newer = Pool::new(self.newer.planes.len() as u32);
        self.newer_from = self.older_from;
        newer
    }

    /// Sets when the newer blocks may be written.
    pub(super) fn may_be_written(&mut self, from: Nanos) {
        self.newer_from = from;
    }

    pub(super) fn put(&mut self, plane: u32, block: Pbn, erases: u32) {
        self.newer.put(plane, block, erases);
    }

    /// Takes a block. Returns it with the time from which it may be written.
    pub(super) fn take(&mut self, plane: u32, now: Nanos) -> Option<(Pbn, Nanos)> {
        let older = self.older.take(plane).map(|b| (b, self.older_from));
        let block = older.or_else(|| self.newer.take(plane).map(|b| (b, self.newer_from)));
        block.map(|(block, from)| (block, now.max(from)))
    }

    pub(super) fn has(&self, plane: u32) -> bool {
        self.older.has(plane) || self.newer.has(plane)
    }

    pub(super) fn len(&self) -> u32 {
        self.older.len() + self.newer.len()
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = Pbn> + '_ {
        self.older.blocks().chain(self.newer.blocks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_gives_what_was_set_aside_first_and_the_rest_from_its_instant_on() {
        let mut zone = Zone::new(2);
        for (block, erases) in [(0, 0), (1, 5)] {
            zone.put(0, Pbn(block), erases);
        }
        zone.may_be_written(Nanos(100));
        zone.begin();
        zone.put(0, Pbn(2), 0);
        zone.may_be_written(Nanos(200));
        assert_eq!((zone.len(), zone.blocks().count()), (3, 3));
        assert!(zone.has(0) && !zone.has(1));
        assert_eq!(zone.take(0, Nanos(50)), Some((Pbn(0), Nanos(100))));
        assert_eq!(zone.take(0, Nanos(150)), Some((Pbn(1), Nanos(150))));
        assert_eq!(zone.take(0, Nanos(150)), Some((Pbn(2), Nanos(200))));
        assert_eq!(zone.take(0, Nanos(300)), None);
    }
}
