//! Deltas of leaves that are not in memory, in packed cells with a list per leaf. They wait until
//! the leaf is read, or until too many wait; then those of the leaves with the most are written.

use super::super::{Key, Value};
use super::NONE;
use super::node::Delta;

/// A delta and a link to the previous one, without padding.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(4))]
struct Cell {
    key: Key,
    value: Value,
    /// Index of the older cell, or [`END`]; and whether this delta is a deletion.
    next: u32,
}

const END: u32 = u32::MAX >> 1;
const DELETES: u32 = 1 << 31;

/// Size of a delta.
pub(super) const CELL: usize = size_of::<Cell>();
const _: () = assert!(CELL == 20);

#[derive(Debug)]
pub(super) struct Waiting {
    cells: Vec<Cell>,
    /// The first free cell.
    free: u32,
    /// Number of used cells.
    pub(super) used: usize,
    /// Number of leaves by number of waiting deltas.
    leaves: Vec<u32>,
}

impl Waiting {
    pub(super) fn new(chain_max: u16) -> Waiting {
        Waiting {
            cells: Vec::new(),
            free: END,
            used: 0,
            leaves: vec![0; usize::from(chain_max) + 1],
        }
    }

    /// Bytes in memory, including free cells.
    pub(super) fn bytes(&self) -> usize {
        self.cells.capacity() * CELL + self.leaves.capacity() * 4
    }

    /// Adds a delta to a leaf that has `count`, the newest at `first`. Returns the new one's cell.
    #[inline]
    pub(super) fn push(&mut self, first: u32, count: u8, delta: Delta) -> u32 {
        let older = if count == 0 { END } else { first };
        let cell = Cell {
            key: delta.key,
            value: delta.value.unwrap_or(0),
            next: older | if delta.value.is_none() { DELETES } else { 0 },
        };
        self.used += 1;
        if count > 0 {
            self.leaves[usize::from(count)] -= 1;
        }
        self.leaves[usize::from(count) + 1] += 1;
        if self.free == END {
            if self.cells.len() == self.cells.capacity() {
                self.cells.reserve_exact((self.cells.len() / 16).max(8));
            }
            self.cells.push(cell);
            return self.cells.len() as u32 - 1;
        }
        let at = self.free;
        self.free = self.cells[at as usize].next;
        self.cells[at as usize] = cell;
        at
    }

    /// A leaf's `count` deltas, newest first. `first` is the cell of the newest.
    pub(super) fn list(&self, first: u32, count: u8) -> impl Iterator<Item = Delta> + '_ {
        let mut at = first;
        (0..count).map(move |_| {
            let cell = self.cells[at as usize];
            at = cell.next & !DELETES;
            Delta {
                key: cell.key,
                value: (cell.next & DELETES == 0).then_some(cell.value),
            }
        })
    }

    /// Removes a leaf's `count` deltas, the newest at `first`, and appends them to `into`, oldest
    /// first.
    pub(super) fn take(&mut self, first: u32, count: u8, into: &mut Vec<Delta>) {
        let begin = into.len();
        into.extend(self.list(first, count));
        into[begin..].reverse();
        let mut at = first;
        for _ in 0..count {
            let next = self.cells[at as usize].next & !DELETES;
            self.cells[at as usize].next = self.free;
            self.free = at;
            at = next;
        }
        self.used -= usize::from(count);
        if count > 0 {
            self.leaves[usize::from(count)] -= 1;
        }
    }

    /// The highest threshold for which leaves with at least as many deltas have `deltas` deltas in
    /// total.
    pub(super) fn threshold(&self, deltas: usize) -> u8 {
        let mut sum = 0;
        for count in (1..self.leaves.len()).rev() {
            sum += count * self.leaves[count] as usize;
            if sum >= deltas {
                return count as u8;
            }
        }
        1
    }

    /// Compacts the deltas and reserves exactly `room` cells. `lists` has the newest cell and the
    /// count of each leaf, and is updated to the new places.
    pub(super) fn compact<'a>(
        &mut self,
        room: usize,
        lists: impl Iterator<Item = (&'a mut u32, u8)>,
    ) {
        let mut cells = Vec::with_capacity(room.max(self.used));
        for (first, count) in lists {
            let mut at = *first;
            *first = cells.len() as u32;
            for older in (0..count).rev() {
                let mut cell = self.cells[at as usize];
                at = cell.next & !DELETES;
                let next = if older == 0 {
                    END
                } else {
                    cells.len() as u32 + 1
                };
                cell.next = next | cell.next & DELETES;
                cells.push(cell);
            }
        }
        (self.cells, self.free) = (cells, END);
    }

    /// Checks the lists against `lists`: newest cell and count of each leaf that has one.
    pub(super) fn check(&self, lists: impl Iterator<Item = (u32, u8)>) -> Result<(), String> {
        let mut leaves = vec![0; self.leaves.len()];
        let mut used = 0;
        for (first, count) in lists {
            if first == NONE || usize::from(count) >= leaves.len() {
                return Err(format!("{count} deltas wait at {first}"));
            }
            leaves[usize::from(count)] += 1;
            used += usize::from(count);
        }
        if leaves != self.leaves || used != self.used {
            return Err("deltas that wait are not counted rightly".to_string());
        }
        let (mut at, mut free) = (self.free, 0);
        while at != END && free <= self.cells.len() {
            at = self.cells[at as usize].next;
            free += 1;
        }
        if used + free != self.cells.len() {
            return Err(format!(
                "{used} deltas wait and {free} cells are free of {}",
                self.cells.len()
            ));
        }
        Ok(())
    }
}
