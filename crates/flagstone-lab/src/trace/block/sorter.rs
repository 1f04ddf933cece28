//! Sorts requests by time, in constant memory.
//!
//! Requests are collected in runs of [`RUN`]. A full run is sorted and written to an unnamed file;
//! runs are merged when read back. Requests with equal times keep their input order. An input of
//! less than one run uses no file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::trace::Op;

/// Requests per run: 16 MiB.
const RUN: usize = 1 << 19;

/// Requests that a merge reads at once from each run: 16 KiB.
const BATCH: usize = 512;

/// Size of a request in the file.
const RECORD: usize = 32;

/// A request in pages of its volume, `first..end`; a flush has none, and commit as its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pages {
    pub(super) time_ns: u64,
    pub(super) volume: u32,
    pub(super) op: Op,
    pub(super) first: u64,
    pub(super) end: u64,
    /// Whether the first and the last page are partially written.
    pub(super) in_part: [bool; 2],
}

impl Pages {
    /// The request as a record of the temporary file.
    fn emit(&self) -> [u8; RECORD] {
        let words = [
            self.time_ns,
            self.first,
            self.end,
            u64::from(self.volume) << 8
                | u64::from(self.in_part[1]) << 5
                | u64::from(self.in_part[0]) << 4
                | self.op as u64,
        ];
        let mut bytes = [0; RECORD];
        for (into, word) in bytes.chunks_exact_mut(8).zip(words) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Pages {
        let word = |at: usize| {
            let bytes = bytes[8 * at..8 * at + 8].try_into();
            u64::from_le_bytes(bytes.expect("eight bytes"))
        };
        Pages {
            time_ns: word(0),
            volume: (word(3) >> 8) as u32,
            op: Op::ALL[(word(3) & 0xf) as usize],
            first: word(1),
            end: word(2),
            in_part: [4, 5].map(|bit| word(3) >> bit & 1 == 1),
        }
    }
}

/// Accepts requests in any order.
#[derive(Debug, Default)]
pub(super) struct Sorter {
    run: Vec<Pages>,
    /// Whether the run is sorted so far.
    ordered: bool,
    file: Option<File>,
    /// Number of requests in each run of the file.
    runs: Vec<usize>,
}

impl Sorter {
    /// Adds a request; writes a full run to a file in `folder`.
    pub(super) fn push(&mut self, pages: Pages, folder: &Path) -> io::Result<()> {
        self.ordered = match self.run.last() {
            Some(last) => self.ordered && last.time_ns <= pages.time_ns,
            None => true,
        };
        self.run.push(pages);
        if self.run.len() == RUN {
            self.spill(folder)?;
        }
        Ok(())
    }

    /// Sorts the requests in memory and appends them to the temporary file, as another run to
    /// merge.
    fn spill(&mut self, folder: &Path) -> io::Result<()> {
        self.sort();
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile_in(folder)?),
        };
        let mut bytes = Vec::with_capacity(BATCH * RECORD);
        for batch in self.run.chunks(BATCH) {
            bytes.clear();
            batch.iter().for_each(|pages| bytes.extend(pages.emit()));
            file.write_all(&bytes)?;
        }
        self.runs.push(self.run.len());
        self.run.clear();
        Ok(())
    }

    fn sort(&mut self) {
        if !self.ordered {
            self.run.sort_by_key(|pages| pages.time_ns);
        }
    }

    /// All requests, sorted by time.
    pub(super) fn finish(mut self, folder: &Path) -> io::Result<Sorted> {
        let Some(_) = self.file else {
            self.sort();
            return Ok(Sorted::Memory(self.run.into_iter()));
        };
        if !self.run.is_empty() {
            self.spill(folder)?;
        }
        let mut merge = Merge {
            file: self.file.expect("a run was written"),
            runs: Vec::new(),
            next: BinaryHeap::new(),
        };
        let mut at = 0;
        for length in self.runs {
            merge.runs.push(Run {
                at,
                left: length,
                batch: Vec::new().into_iter(),
            });
            at += (length * RECORD) as u64;
        }
        for run in 0..merge.runs.len() {
            if let Some(pages) = merge.runs[run].next(&merge.file)? {
                merge.next.push(Reverse((pages.time_ns, run, Head(pages))));
            }
        }
        Ok(Sorted::Merge(Box::new(merge)))
    }
}

/// Requests sorted by time.
#[derive(Debug)]
pub(super) enum Sorted {
    Memory(std::vec::IntoIter<Pages>),
    Merge(Box<Merge>),
}

impl Sorted {
    /// The next request.
    pub(super) fn next(&mut self) -> io::Result<Option<Pages>> {
        match self {
            Sorted::Memory(run) => Ok(run.next()),
            Sorted::Merge(merge) => merge.next(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Merge {
    file: File,
    runs: Vec<Run>,
    /// The next request of each run that is not exhausted.
    next: BinaryHeap<Reverse<(u64, usize, Head)>>,
}

impl Merge {
    fn next(&mut self) -> io::Result<Option<Pages>> {
        let Some(mut top) = self.next.peek_mut() else {
            return Ok(None);
        };
        let Reverse((time_ns, run, Head(pages))) = &mut *top;
        let found = *pages;
        match self.runs[*run].next(&self.file)? {
            Some(next) => (*time_ns, *pages) = (next.time_ns, next),
            None => drop(std::collections::binary_heap::PeekMut::pop(top)),
        }
        Ok(Some(found))
    }
}

/// The first request of a run. Not used for ordering: runs are ordered by number.
#[derive(Debug)]
struct Head(Pages);

impl PartialEq for Head {
    fn eq(&self, _: &Head) -> bool {
        true
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, _: &Head) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

#[derive(Debug)]
struct Run {
    /// Offset of the remaining requests in the file.
    at: u64,
    /// Number of remaining requests.
    left: usize,
    batch: std::vec::IntoIter<Pages>,
}

impl Run {
    fn next(&mut self, file: &File) -> io::Result<Option<Pages>> {
        if self.batch.len() == 0 {
            let mut bytes = vec![0; self.left.min(BATCH) * RECORD];
            file.read_exact_at(&mut bytes, self.at)?;
            self.at += bytes.len() as u64;
            self.left -= bytes.len() / RECORD;
            let batch = bytes.chunks_exact(RECORD).map(Pages::parse);
            self.batch = batch.collect::<Vec<_>>().into_iter();
        }
        Ok(self.batch.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(time_ns: u64, first: u64) -> Pages {
        Pages {
            time_ns,
            volume: (first % 3) as u32,
            op: Op::ALL[(first % 4) as usize],
            first,
            end: first + 1,
            in_part: [first.is_multiple_of(2), first.is_multiple_of(5)],
        }
    }

    fn sorted(requests: &[Pages]) -> Vec<Pages> {
        let folder = std::env::temp_dir();
        let mut sorter = Sorter::default();
        for pages in requests {
            sorter.push(*pages, &folder).unwrap();
        }
        let mut sorted = sorter.finish(&folder).unwrap();
        std::iter::from_fn(|| sorted.next().unwrap()).collect()
    }

    #[test]
    fn runs_are_merged_as_one_stable_sort_would_order_them() {
        for length in [0, 5, RUN - 1, RUN, 2 * RUN + 700] {
            let times = (0..length as u64).map(|n| n.wrapping_mul(0x9e37_79b9) % 1000);
            let mut requests: Vec<_> = times.zip(0..).map(|(t, n)| request(t, n)).collect();
            let found = sorted(&requests);
            requests.sort_by_key(|pages| pages.time_ns);
            assert!(found == requests, "{length}");
        }
    }
}
