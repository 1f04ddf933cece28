//! Deltas of leaves that are not in memory: packed cells, a list for each leaf. They wait until a
//! leaf is read, or until so many wait that those go to the log of which a leaf has the most.

use super::super::{Key, Value};
use super::NONE;
use super::node::Delta;

/// A delta, and the one before it, without padding.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(4))]
struct Cell {
    key: Key,
    value: Value,
    /// Where the older one is, or [`END`]; and whether this one deletes.
    next: u32,
}

const END: u32 = u32::MAX >> 1;
const DELETES: u32 = 1 << 31;

/// Bytes that a delta takes.
pub(super) const CELL: usize = size_of::<Cell>();
const _: () = assert!(CELL == 20);

#[derive(Debug)]
pub(super) struct Waiting {
    cells: Vec<Cell>,
    /// The first of the cells that are free.
    free: u32,
    /// Cells that are not.
    pub(super) used: usize,
    /// Leaves that have so many deltas here.
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

    /// Bytes in memory, with cells that are free.
    pub(super) fn bytes(&self) -> usize {
        self.cells.capacity() * CELL + self.leaves.capacity() * 4
    }

    /// Adds a delta to a leaf's, of which there are `count`, the newest at `first`.
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

    /// A leaf's deltas, the newest first.
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

    /// Takes a leaf's deltas away; the oldest first behind `into`.
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

    /// The highest count with so many deltas in leaves that have as many or more.
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

    /// Moves the deltas together, so that there is room for `room` and no more. `lists` are those
    /// of the leaves, the newest and the count, and learn the new places.
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

    /// Whether these are the lists, the newest and the count of each leaf that has one.
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
