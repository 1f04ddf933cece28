//! A hash table of places in an array: it has one and a half cells of four bytes for each.
//!
//! Open addressing with linear probing. A cell has a place in its low bits, and bits of the hash
//! above those, so that hardly any other key is looked at. The keys are in the array.

/// A cell without a place.
const EMPTY: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(super) struct Table {
    cells: Vec<u32>,
    len: usize,
    /// The bits of a place. No place has all of them, so that no cell is like an empty one.
    mask: u32,
}

/// The hash of a key or page: both halves of its product with an odd number.
#[inline]
pub(super) fn hash(key: u64) -> u64 {
    let product = u128::from(key) * 0x9E37_79B9_7F4A_7C15;
    (product >> 64) as u64 ^ product as u64
}

impl Table {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the cells.
    pub(super) fn memory(&self) -> usize {
        self.cells.capacity() * size_of::<u32>()
    }

    /// The most that [`Table::memory`] is for so many places.
    pub(super) fn most(len: usize) -> usize {
        (len + len / 2 + 8) * size_of::<u32>()
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.cells.len() as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, cell: usize) -> usize {
        if cell + 1 < self.cells.len() {
            cell + 1
        } else {
            0
        }
    }

    /// The cell of a place, by its hash and a test.
    #[inline]
    fn cell(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        let mut at = self.home(hash);
        loop {
            let cell = *self.cells.get(at)?;
            if cell == EMPTY {
                return None;
            }
            if (cell ^ hash as u32) & !self.mask == 0 && is_it(cell & self.mask) {
                return Some(at);
            }
            at = self.after(at);
        }
    }

    /// The place with this hash that satisfies a test.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let cell = self.cell(hash, is_it)?;
        Some(self.cells[cell] & self.mask)
    }

    /// Adds a place in an array of `places`. `hash_of` gives the hash of what is there, if any.
    pub(super) fn insert(&mut self, place: u32, places: u32, hash_of: impl Fn(u32) -> Option<u64>) {
        self.len += 1;
        if self.len * 4 > self.cells.len() * 3 || places > self.mask {
            self.rebuild(places, hash_of);
        } else if let Some(hash) = hash_of(place) {
            self.put(hash, place);
        }
    }

    fn put(&mut self, hash: u64, place: u32) {
        let mut at = self.home(hash);
        while self.cells[at] != EMPTY {
            at = self.after(at);
        }
        self.cells[at] = hash as u32 & !self.mask | place;
    }

    /// Lays out all places in as many cells as they should have.
    fn rebuild(&mut self, places: u32, hash_of: impl Fn(u32) -> Option<u64>) {
        let cells = self.len + self.len * 3 / 7 + 3;
        self.cells.clear();
        self.cells.shrink_to(cells);
        self.cells.reserve_exact(cells);
        self.cells.resize(cells, EMPTY);
        self.mask = (places + 1).next_power_of_two() - 1;
        for place in 0..places {
            if let Some(hash) = hash_of(place) {
                self.put(hash, place);
            }
        }
    }

    /// Removes a place. Moves later cells of the same run into the hole, so that a search never
    /// meets an empty cell before the one that it looks for.
    pub(super) fn remove(&mut self, place: u32, hash_of: impl Fn(u32) -> Option<u64>) {
        let cell = |hash| self.cell(hash, |other| other == place);
        let Some(mut hole) = hash_of(place).and_then(cell) else {
            return;
        };
        self.len -= 1;
        let cells = self.cells.len();
        let from_to = |from: usize, to: usize| to + if from > to { cells } else { 0 } - from;
        let mut at = hole;
        loop {
            at = self.after(at);
            let cell = self.cells[at];
            if cell == EMPTY {
                break;
            }
            // A cell fills the hole unless its home lies behind the hole.
            let home = hash_of(cell & self.mask).map(|hash| self.home(hash));
            if home.is_some_and(|home| from_to(home, at) >= from_to(hole, at)) {
                self.cells[hole] = cell;
                hole = at;
            }
        }
        self.cells[hole] = EMPTY;
    }

    /// Changes a place into another.
    pub(super) fn relocate(&mut self, hash: u64, from: u32, to: u32) {
        if let Some(cell) = self.cell(hash, |place| place == from) {
            self.cells[cell] = hash as u32 & !self.mask | to;
        }
    }

    /// Releases memory after removals.
    pub(super) fn settle(&mut self, places: u32, hash_of: impl Fn(u32) -> Option<u64>) {
        if self.memory() > Table::most(self.len) {
            self.rebuild(places, hash_of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone::dice::Dice;

    /// The places of a set of keys are found through growth and removals, in little memory.
    #[test]
    fn agrees_with_an_array_that_is_searched() {
        // Keys alike in their low bits, or in their high ones.
        for shift in [0, 40] {
            let (mut table, mut keys) = (Table::default(), Vec::<u64>::new());
            let mut dice = Dice(3);
            let hash_of = |keys: &[u64], place: u32| keys.get(place as usize).map(|&key| hash(key));
            for step in 0..6000 {
                let key = dice.below(800) << shift;
                let at = keys.iter().position(|&other| other == key);
                let found = table.find(hash(key), |place| keys[place as usize] == key);
                assert_eq!(found, at.map(|at| at as u32));
                // The keys become many, then few.
                let grows = dice.below(10) < if step < 3000 { 9 } else { 1 };
                if let Some(at) = at.filter(|_| !grows) {
                    table.remove(at as u32, |place| hash_of(&keys, place));
                    let last = keys.len() - 1;
                    table.relocate(hash(keys[last]), last as u32, at as u32);
                    keys.swap_remove(at);
                    table.settle(keys.len() as u32, |place| hash_of(&keys, place));
                } else if at.is_none() && grows {
                    keys.push(key);
                    let places = keys.len() as u32;
                    table.insert(places - 1, places, |place| hash_of(&keys, place));
                }
                assert_eq!(table.len(), keys.len());
                assert!(table.memory() <= Table::most(keys.len()));
            }
        }
    }
}
