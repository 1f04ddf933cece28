//! Dense numbers of touched pages, by volume and address.
//!
//! Memory grows with the touched address space, not with the number of requests: 64 bytes for
//! [`LINE`] pages, in chunks of [`CHUNK`] pages. A terabyte in pages of 4 KiB takes about 40 MB. A
//! lookup accesses the small index and one cache line.

use rustc_hash::FxHashMap as HashMap;

use crate::trace::check::MAX_COUNT;

/// Pages per word.
const WORD: u64 = 64;

/// Words per line.
const WORDS: usize = 7;

/// Pages per line.
const LINE: u64 = WORD * WORDS as u64;

/// Lines per chunk.
const LINES: usize = 8;

/// Pages per chunk.
const CHUNK: u64 = LINE * LINES as u64;

/// Which of [`LINE`] pages are touched, and the number of the first one.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Line {
    touched: [u64; WORDS],
    number: u32,
}

/// The lines of a chunk.
type Chunk = [Line; LINES];

/// The pages touched by reads and writes.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// The index of a chunk, by volume and address.
    index: HashMap<(u32, u64), u32>,
    chunks: Vec<Chunk>,
    pages: u64,
}

/// Splits the place of a page in its chunk into line, word and bit.
fn place_in_chunk(at: u64) -> (usize, usize, u64) {
    let (line, at) = (at / LINE, at % LINE);
    (line as usize, (at / WORD) as usize, at % WORD)
}

impl Touched {
    /// Adds pages `first..end` of a volume. Returns `false` if a trace cannot have that many pages.
    pub(super) fn add(&mut self, volume: u32, first: u64, end: u64) -> bool {
        let mut at = first;
        while at < end && self.pages <= u64::from(MAX_COUNT) {
            let stop = end.min((at / CHUNK + 1) * CHUNK);
            let place = self.index.entry((volume, at / CHUNK)).or_insert_with(|| {
                self.chunks.push(Chunk::default());
                self.chunks.len() as u32 - 1
            });
            let chunk = &mut self.chunks[*place as usize];
            while at < stop {
                let (line, word, bit) = place_in_chunk(at % CHUNK);
                let touched = &mut chunk[line].touched[word];
                let count = (WORD - bit).min(stop - at);
                let mask = (u64::MAX >> (WORD - count)) << bit;
                self.pages += u64::from((mask & !*touched).count_ones());
                *touched |= mask;
                at += count;
            }
        }
        self.pages <= u64::from(MAX_COUNT)
    }

    /// Numbers all pages that were touched; `rank` is each volume's position in the order of names.
    pub(super) fn number(mut self, rank: &[u32]) -> Numbers {
        let mut order: Vec<(u32, u64)> = self.index.keys().copied().collect();
        order.sort_unstable_by_key(|&(volume, chunk)| (rank[volume as usize], chunk));
        let mut of_volume = vec![0; rank.len()];
        let mut pages = 0;
        for &(volume, chunk) in &order {
            let before = pages;
            for line in &mut self.chunks[self.index[&(volume, chunk)] as usize] {
                line.number = pages;
                pages += line
                    .touched
                    .iter()
                    .map(|word| word.count_ones())
                    .sum::<u32>();
            }
            of_volume[volume as usize] += pages - before;
        }
        Numbers {
            index: self.index,
            chunks: self.chunks,
            order,
            rank: rank.to_vec(),
            of_volume,
            pages,
        }
    }
}

/// The numbers of pages, by volume (in the order of names) and address.
#[derive(Debug)]
pub(super) struct Numbers {
    index: HashMap<(u32, u64), u32>,
    chunks: Vec<Chunk>,
    /// The chunks, in number order.
    order: Vec<(u32, u64)>,
    rank: Vec<u32>,
    /// Number of pages of each volume.
    pub(super) of_volume: Vec<u32>,
    /// Number of pages of all volumes.
    pub(super) pages: u32,
}

impl Numbers {
    /// The numbers of `first..end`, all of which were touched.
    pub(super) fn touched(&self, volume: u32, first: u64, end: u64) -> std::ops::Range<u32> {
        let number = self.number((volume, first / CHUNK), first % CHUNK);
        number..number + (end - first) as u32
    }

    /// The number of the first touched page at or after page `at` of a chunk.
    fn number(&self, chunk: (u32, u64), at: u64) -> u32 {
        let (line, word, bit) = place_in_chunk(at);
        let line = &self.chunks[self.index[&chunk] as usize][line];
        let words = line.touched[..word].iter().map(|word| word.count_ones());
        let before = line.touched[word] & !(u64::MAX << bit);
        line.number + words.sum::<u32>() + before.count_ones()
    }

    /// The numbers of the touched pages in `first..end`. They form one range, as numbers follow
    /// addresses.
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
            Some(found) if *found == (volume, key.1) => self.number(*found, at % CHUNK),
            Some(found) => self.number(*found, 0),
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
            (0, 3_500, 3_700),
        ];
        let (mut touched, mut set) = (Touched::default(), BTreeSet::new());
        for (volume, first, end) in ranges {
            assert!(touched.add(volume, first, end));
            // Volume 1 is first in the order of names.
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
