//! Stack distances (Mattson): how many other pages were used since the last use of a page.
//!
//! A page hit at distance d would have been a hit in an LRU list of d or more frames, and a miss in
//! a shorter one. Pages stay in the stack after leaving the pool, so distances beyond the pool's
//! size are known too: these are the *ghosts*. A distance is the difference of two sums in a tree
//! that counts pages by time of last use.

use flagstone::units::Lpn;
use rustc_hash::FxHashMap;

const NONE: u32 = u32::MAX;

/// The most recently used pages, up to a limit.
pub(super) struct Stack {
    depth: usize,
    /// The page used at each instant, if that was its last use.
    used: Vec<u32>,
    /// Sums over `used`: a Fenwick tree.
    counts: Vec<u32>,
    instants: FxHashMap<Lpn, u32>,
    /// Instants below this one hold no page.
    oldest: usize,
    /// The next instant.
    next: usize,
}

impl Stack {
    pub(super) fn new(depth: usize) -> Stack {
        let instants = depth * 2 + 2;
        Stack {
            depth,
            used: vec![NONE; instants],
            counts: vec![0; instants + 1],
            instants: FxHashMap::default(),
            oldest: 0,
            next: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.instants.len()
    }

    /// Puts a used page on top of the stack. Drops the last page if the stack exceeds its limit.
    pub(super) fn push(&mut self, page: Lpn) {
        self.take(page);
        if self.next == self.used.len() {
            self.renumber();
        }
        self.set(self.next, page);
        self.next += 1;
        if self.len() > self.depth {
            while self.used[self.oldest] == NONE {
                self.oldest += 1;
            }
            self.take(Lpn(self.used[self.oldest]));
        }
    }

    /// Removes a page. Returns its distance, from 1, if the page was in the stack.
    pub(super) fn take(&mut self, page: Lpn) -> Option<usize> {
        let instant = self.instants.remove(&page)? as usize;
        let (total, before) = (self.len() + 1, self.sum(instant));
        self.used[instant] = NONE;
        self.add(instant, u32::MAX);
        Some(total - before)
    }

    /// Number of pages last used before an instant.
    fn sum(&self, instant: usize) -> usize {
        let (mut at, mut sum) = (instant, 0);
        while at > 0 {
            sum += self.counts[at] as usize;
            at &= at - 1;
        }
        sum
    }

    fn set(&mut self, instant: usize, page: Lpn) {
        self.used[instant] = page.0;
        self.instants.insert(page, instant as u32);
        self.add(instant, 1);
    }

    /// Adds `count` to an instant; `u32::MAX` subtracts 1.
    fn add(&mut self, instant: usize, count: u32) {
        let mut at = instant + 1;
        while at < self.counts.len() {
            self.counts[at] = self.counts[at].wrapping_add(count);
            at += at & at.wrapping_neg();
        }
    }

    /// Renumbers instants without gaps. At least half of them are gaps.
    fn renumber(&mut self) {
        let pages: Vec<u32> = self.used.drain(..).filter(|&page| page != NONE).collect();
        self.used.resize(self.counts.len() - 1, NONE);
        self.counts.fill(0);
        (self.oldest, self.next) = (0, pages.len());
        for (instant, page) in pages.into_iter().enumerate() {
            self.set(instant, Lpn(page));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone::dice::Dice;

    #[test]
    fn distances_are_those_of_a_list_that_is_searched() {
        for (seed, depth) in [(1, 1), (2, 7), (3, 64)] {
            let (mut dice, mut stack) = (Dice(seed), Stack::new(depth));
            let mut list: Vec<Lpn> = Vec::new();
            for _ in 0..5_000 {
                let page = Lpn(dice.skewed(depth as u32 * 3));
                let place = list.iter().position(|&other| other == page);
                assert_eq!(
                    stack.take(page),
                    place.map(|place| place + 1),
                    "seed {seed}"
                );
                list.retain(|&other| other != page);
                if dice.one_in(8) {
                    continue;
                }
                stack.push(page);
                list.insert(0, page);
                list.truncate(depth);
                assert_eq!(stack.len(), list.len());
            }
        }
    }
}
