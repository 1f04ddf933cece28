//! Version numbers of each page's last committed version, for the cyclic protocols, whose links use
//! them.
//!
//! Most pages of a database are written once, so that long ranges of a device have the same number.
//! So the table need not be as large as the mapping table: numbers are stored in chunks of pages,
//! and a chunk whose pages all have the same number stores it once. [FlagCommit] Table 3 lists 0.4
//! MB more for SCC than for protocols without such numbers.

use crate::units::Lpn;

/// Pages per chunk.
const CHUNK: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Chunk {
    Same(u32),
    Each(Box<[u32; CHUNK]>),
}

/// A number for each page, in compressed form.
#[derive(Debug, Clone, Default)]
pub(super) struct Numbers {
    chunks: Vec<Chunk>,
    pages: usize,
}

impl Numbers {
    /// The number of a page; `None` if the page does not exist.
    #[inline]
    pub(super) fn get(&self, at: Lpn) -> Option<u32> {
        let index = at.index();
        (index < self.pages).then(|| match &self.chunks[index / CHUNK] {
            Chunk::Same(number) => *number,
            Chunk::Each(numbers) => numbers[index % CHUNK],
        })
    }

    /// The number of a page.
    ///
    /// # Panics
    /// The page does not exist.
    #[inline]
    pub(super) fn of(&self, at: Lpn) -> u32 {
        self.get(at).expect("a page of the device")
    }

    /// Sets the number of a page.
    ///
    /// # Panics
    /// The page does not exist.
    pub(super) fn set(&mut self, at: Lpn, number: u32) {
        let chunk = &mut self.chunks[at.index() / CHUNK];
        if let Chunk::Same(same) = *chunk {
            if same == number {
                return;
            }
            *chunk = Chunk::Each(Box::new([same; CHUNK]));
        }
        if let Chunk::Each(numbers) = chunk {
            let place = at.index() % CHUNK;
            numbers[place] = number;
            // A sequentially rewritten chunk becomes uniform again.
            if place == CHUNK - 1 && numbers.iter().all(|other| *other == number) {
                *chunk = Chunk::Same(number);
            }
        }
    }

    /// Extends the table to `pages` pages; new ones have the number 0.
    pub(super) fn grow(&mut self, pages: usize) {
        let old = self.pages;
        self.chunks.resize(pages.div_ceil(CHUNK), Chunk::Same(0));
        self.pages = pages;
        let in_last = old..old.next_multiple_of(CHUNK).min(pages);
        in_last.for_each(|at| self.set(Lpn(at as u32), 0));
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let full = self.chunks.iter();
        let full = full.filter(|chunk| matches!(chunk, Chunk::Each(_))).count();
        (self.chunks.capacity() * size_of::<Chunk>() + full * size_of::<[u32; CHUNK]>()) as u64
    }
}

impl FromIterator<u32> for Numbers {
    /// Collects the numbers of pages in order. Uniform chunks are compressed.
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Numbers {
        let mut all = Numbers::default();
        for number in numbers {
            if all.pages % CHUNK == 0 {
                all.chunks.push(Chunk::Same(number));
            }
            all.pages += 1;
            all.set(Lpn(all.pages as u32 - 1), number);
        }
        all.chunks.shrink_to_fit();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_added_have_no_number() {
        let old = CHUNK + 5;
        let mut numbers: Numbers = std::iter::repeat_n(7, old).collect();
        numbers.grow(4 * CHUNK + 1);
        for at in 0..4 * CHUNK + 1 {
            let number = if at < old { 7 } else { 0 };
            assert_eq!(numbers.of(Lpn(at as u32)), number, "page {at}");
        }
    }

    #[test]
    fn a_chunk_takes_room_once_its_pages_differ() {
        let pages = 3 * CHUNK + 5;
        let mut numbers: Numbers = std::iter::repeat_n(1, pages).collect();
        let small = numbers.bytes();
        assert!(small < 128, "{small}");
        numbers.set(Lpn(7), 1);
        assert_eq!(numbers.bytes(), small);
        let last = Lpn(pages as u32 - 1);
        numbers.set(last, 9);
        assert_eq!(numbers.bytes(), small + 4 * CHUNK as u64);
        (0..CHUNK as u32).for_each(|at| numbers.set(Lpn(at), 2));
        assert_eq!(
            numbers.bytes(),
            small + 4 * CHUNK as u64,
            "one chunk differs"
        );
        (0..CHUNK as u32).for_each(|at| numbers.set(Lpn(at), 1));
        let all: Vec<u32> = (0..pages as u32).map(|at| numbers.of(Lpn(at))).collect();
        assert!(all[..pages - 1].iter().all(|number| *number == 1));
        assert_eq!(numbers.of(last), 9);
        assert_eq!(numbers.get(Lpn(pages as u32)), None);
        let again: Numbers = all.into_iter().collect();
        assert_eq!((again.of(last), again.of(Lpn(0))), (9, 1));
        assert_eq!(again.bytes(), numbers.bytes());
    }
}
