//! Dense numbers for the pages that requests touch, by volume and address.
//!
//! The memory grows with the space that is touched and not with the number of requests: a bit a
//! page, in chunks of [`CHUNK`] pages. A terabyte in pages of 4 KiB takes about 100 MB.

use rustc_hash::FxHashMap as HashMap;

use crate::trace::check::MAX_COUNT;

/// Pages of a chunk.
const CHUNK: u64 = 512;

/// A number for each chunk that has pages.
type Chunks = HashMap<(u32, u64), Chunk>;

#[derive(Debug, Default)]
struct Chunk {
    /// A bit for each page.
    bits: [u64; 8],
    /// The number of its first page.
    base: u32,
    /// Pages before each word.
    before: [u16; 8],
}

impl Chunk {
    /// Numbers its pages from `base`; returns how many they are.
    fn number_from(&mut self, base: u32) -> u32 {
        self.base = base;
        let mut pages = 0;
        for (before, word) in self.before.iter_mut().zip(self.bits) {
            *before = pages;
            pages += word.count_ones() as u16;
        }
        pages.into()
    }

    /// The number of the first numbered page of the chunk at or after its page `at`.
    fn number(&self, at: u64) -> u32 {
        let word = (at / 64) as usize;
        let within = self.bits[word] & !(u64::MAX << (at % 64));
        self.base + u32::from(self.before[word]) + within.count_ones()
    }
}

/// The pages that reads and writes touch.
#[derive(Debug, Default)]
pub(super) struct Touched {
    chunks: Chunks,
    pages: u64,
}

impl Touched {
    /// Adds pages `first..end` of a volume. Returns `false` once there are more than a trace has.
    pub(super) fn add(&mut self, volume: u32, first: u64, end: u64) -> bool {
        let mut at = first;
        while at < end && self.pages <= u64::from(MAX_COUNT) {
            let chunk = at / CHUNK;
            let stop = end.min((chunk + 1) * CHUNK);
            let chunk = self.chunks.entry((volume, chunk)).or_default();
            while at < stop {
                let word = &mut chunk.bits[(at % CHUNK / 64) as usize];
                let count = (64 - at % 64).min(stop - at);
                let mask = (u64::MAX >> (64 - count)) << (at % 64);
                self.pages += u64::from((mask & !*word).count_ones());
                *word |= mask;
                at += count;
            }
        }
        self.pages <= u64::from(MAX_COUNT)
    }

    /// Numbers all pages; `rank` is the place of each volume in their order.
    pub(super) fn number(mut self, rank: &[u32]) -> Numbers {
        let mut order: Vec<(u32, u64)> = self.chunks.keys().copied().collect();
        order.sort_unstable_by_key(|&(volume, chunk)| (rank[volume as usize], chunk));
        let mut of_volume = vec![0; rank.len()];
        let mut pages = 0;
        for &(volume, chunk) in &order {
            let found = self.chunks.get_mut(&(volume, chunk)).expect("one of them");
            let count = found.number_from(pages);
            of_volume[volume as usize] += count;
            pages += count;
        }
        Numbers {
            chunks: self.chunks,
            order,
            rank: rank.to_vec(),
            of_volume,
            pages,
        }
    }
}

/// The numbers of pages, by volume (in the order of the names) and address.
#[derive(Debug)]
pub(super) struct Numbers {
    chunks: Chunks,
    /// The chunks, in the order of their numbers.
    order: Vec<(u32, u64)>,
    rank: Vec<u32>,
    /// Pages of each volume.
    pub(super) of_volume: Vec<u32>,
    /// Pages of all volumes.
    pub(super) pages: u32,
}

impl Numbers {
    /// The numbers of `first..end`, all of which were touched.
    pub(super) fn touched(&self, volume: u32, first: u64, end: u64) -> std::ops::Range<u32> {
        let number = self.chunks[&(volume, first / CHUNK)].number(first % CHUNK);
        number..number + (end - first) as u32
    }

    /// The numbers of those pages of `first..end` that were touched: numbers follow addresses, so
    /// that they are one range.
    pub(super) fn within(&self, volume: u32, first: u64, end: u64) -> std::ops::Range<u32> {
        self.at(volume, first)..self.at(volume, end)
    }

    /// The number of the first touched page at or after page `at` of a volume.
    fn at(&self, volume: u32, at: u64) -> u32 {
        let rank = |volume: u32| self.rank[volume as usize];
        let key = (rank(volume), at / CHUNK);
        let place = self
            .order
            .partition_point(|&(volume, chunk)| (rank(volume), chunk) < key);
        match self.order.get(place) {
            Some(found) if *found == (volume, key.1) => self.chunks[found].number(at % CHUNK),
            Some(found) => self.chunks[found].base,
            None => self.pages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn pages_are_numbered_like_a_sorted_set_of_them() {
        let ranges = [
            (0, 5, 9),
            (1, 0, 1),
            (0, 500, 1100),
            (0, 63, 65),
            (1, 7 << 40, (7 << 40) + 3),
            (0, 511, 513),
        ];
        let (mut touched, mut set) = (Touched::default(), BTreeSet::new());
        for (volume, first, end) in ranges {
            assert!(touched.add(volume, first, end));
            // Volume 1 comes first in the order of the names.
            set.extend((first..end).map(|page| (1 - volume, page)));
        }
        let numbers = touched.number(&[1, 0]);
        assert_eq!(numbers.pages as usize, set.len());
        let before = |volume, page| set.range(..(1 - volume, page)).count() as u32;
        for (volume, first, end) in ranges {
            let found = numbers.touched(volume, first, end);
            assert_eq!(found, before(volume, first)..before(volume, end));
        }
        for (volume, first, end) in [(0, 0, 1 << 50), (1, 6, 600), (1, 9, 63), (1, 1100, 1 << 40)] {
            let found = numbers.within(volume, first, end);
            assert_eq!(found, before(volume, first)..before(volume, end));
        }
    }

    #[test]
    fn more_pages_than_a_trace_has_end_the_search_for_room() {
        assert!(!Touched::default().add(0, 0, 1 << 50));
    }
}
