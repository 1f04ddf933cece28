//! Read-ahead for readers that access pages in their order on the medium.
//!
//! The kernel's read-ahead considers a read sequential if the preceding pages are in the page
//! cache, and recently written pages of a store always are. A program that mixed random reads with
//! writes read up to ten times as much as it asked for. So kernel read-ahead is switched off for
//! files open for writing, and this module replaces it. It counts actual reads, not cached pages.

use std::sync::atomic::{AtomicU64, Ordering};

/// Sequential reads before read-ahead begins.
const SURE: u64 = 3;

/// Maximum number of pages read ahead: 256 KiB.
const MOST: u64 = 64;

/// Maximum gap within a sequence, in pages: the mark between two blocks and the summary before it.
const SKIPPED: u64 = 3;

/// State of sequence detection. Threads that read different sequences disturb each other; then
/// nothing is read ahead.
#[derive(Default)]
pub(super) struct Ahead {
    /// The page after the last one that was read.
    next: AtomicU64,
    /// Number of reads in the sequence.
    run: AtomicU64,
    /// The first page that was not requested yet.
    asked: AtomicU64,
}

impl Ahead {
    /// Records a read of `page`. Returns the pages to read ahead, if any: the first one and their
    /// number.
    pub(super) fn after(&self, page: u64) -> Option<(u64, u32)> {
        let next = self.next.swap(page + 1, Ordering::Relaxed);
        if !(next..next + SKIPPED).contains(&page) {
            self.run.store(0, Ordering::Relaxed);
            self.asked.store(0, Ordering::Relaxed);
            return None;
        }
        let run = self.run.fetch_add(1, Ordering::Relaxed) + 1;
        // Up to twice as many pages are requested ahead as were read in the sequence, and more once
        // at most half of these are left.
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
        // Two adjacent reads do not form a sequence yet.
        assert_eq!((ahead.after(9000), ahead.after(9001)), (None, None));
    }
}
