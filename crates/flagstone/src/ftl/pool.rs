//! Blocks that can be written: a heap a plane, the least worn block first (dynamic wear levelling).

use crate::units::Pbn;
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

    pub(super) fn put(&mut self, plane: u32, block: Pbn, erases: u32) {
        self.planes[plane as usize].push(Reverse((erases, block.0)));
        self.len += 1;
    }

    pub(super) fn take(&mut self, plane: u32) -> Option<Pbn> {
        let Reverse((_, block)) = self.planes[plane as usize].pop()?;
        self.len -= 1;
        Some(Pbn(block))
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = Pbn> + '_ {
        self.planes
            .iter()
            .flatten()
            .map(|Reverse((_, block))| Pbn(*block))
    }
}
