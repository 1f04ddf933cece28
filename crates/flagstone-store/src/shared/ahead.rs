//! Reading ahead for readers that go through pages in the order in which these lie.
//!
//! The system would do that by itself. But it takes a page for the next one of a sequence if the
//! pages before it are in its cache, and the pages that a store has just written are always there.
//! A program that read here and there and wrote as well had up to ten times as much read as it
//! asked for. So a file that is written to is read without the system's guesses, and this module
//! makes them. It counts pages that were read, and not pages in a cache.

use std::sync::atomic::{AtomicU64, Ordering};

/// Reads in sequence before anything is read ahead.
const SURE: u64 = 3;

/// Pages that are read ahead at most: 256 KiB.
const MOST: u64 = 64;

/// Pages that are skipped in a sequence: the mark between two blocks, and the summary before it.
const SKIPPED: u64 = 3;

/// How far a sequence is. Threads that read different sequences spoil each other's, and then
/// nothing is read ahead.
#[derive(Default)]
pub(super) struct Ahead {
    /// The page behind the last one that was read.
    next: AtomicU64,
    /// Reads of the sequence.
    run: AtomicU64,
    /// The first page that was not asked for.
    asked: AtomicU64,
}

impl Ahead {
    /// A page of the medium is about to be read. Gives the pages to ask for, if any: the first one,
    /// and how many.
    pub(super) fn after(&self, page: u64) -> Option<(u64, u32)> {
        let next = self.next.swap(page + 1, Ordering::Relaxed);
        if !(next..next + SKIPPED).contains(&page) {
            self.run.store(0, Ordering::Relaxed);
            self.asked.store(0, Ordering::Relaxed);
            return None;
        }
        let run = self.run.fetch_add(1, Ordering::Relaxed) + 1;
        let window = (2 * run).min(MOST);
        let first = self.asked.load(Ordering::Relaxed).max(page + 1);
        if run < SURE || first > page + window / 2 {
            return None;
        }
        let end = page + 1 + window;
        self.asked.store(end, Ordering::Relaxed);
        Some((first, (end - first) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_is_asked_for_once_and_well_ahead() {
        let ahead = Ahead::default();
        let (mut asked, mut requests) = (Vec::new(), 0);
        let pages = (1000..1500).filter(|page| !matches!(page % 129, 0 | 128));
        for page in pages {
            if let Some((first, pages)) = ahead.after(page) {
                assert!(first > page);
                asked.extend(first..first + u64::from(pages));
                requests += 1;
            }
        }
        assert!(asked.is_sorted_by(|one, other| one < other), "none twice");
        assert!(asked.first().is_some_and(|&first| first < 1010));
        assert!(asked.last().is_some_and(|&last| last > 1500));
        assert!(requests < 40, "{requests} requests");
    }

    #[test]
    fn pages_here_and_there_are_not_read_ahead() {
        let ahead = Ahead::default();
        for n in 0..1000_u64 {
            assert_eq!(ahead.after(n * 7919 % 4001), None);
        }
        // Two neighbours are no sequence yet.
        assert_eq!((ahead.after(9000), ahead.after(9001)), (None, None));
    }
}
