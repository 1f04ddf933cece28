//! Importers for block traces: what a disk was asked for, without a word about transactions.
//!
//! ```text
//! format   line                                                        time            address
//! table    any columns, as a description or a preset says              stated          any
//! blkparse MAJ,MIN CPU SEQ TIME PID ACTION RWBS SECTOR + SECTORS …     s               512 bytes
//! fio v2   FILE ACTION OFFSET BYTES; `wait` moves the clock            stated by user  bytes
//! fio v3   TIME FILE ACTION OFFSET BYTES                               us              bytes
//! ```
//!
//! Each request becomes a transaction of its own: an event for each page that it touches, all at
//! the request's time, and a commit. Where a format has flushes and [`CommitAt::Flush`] is asked
//! for, the writes and trims of a volume between two flushes are one transaction instead, which the
//! flush commits. Reads stay transactions of their own. Requests are put in the order of their
//! times (how many were not is reported), in constant memory. Pages are numbered densely by volume
//! and address: only pages that a read or a write touches get a number, so that a trace of a large
//! disk fits a small simulated device. A trim counts for pages that are wholly inside it and that
//! have a number; others it could not change. Of a page that is written in part, the rest is read
//! first.

pub mod blkparse;
mod collect;
pub mod columns;
pub mod fio;
mod join;
mod numbers;
mod sorter;
pub mod table;
pub mod time;

pub use collect::Requests;
use std::collections::BTreeMap;
use std::path::PathBuf;

use super::input::ImportError;

/// What a transaction is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CommitAt {
    /// Each request is one.
    #[default]
    Request,
    /// The writes and trims of a volume between two flushes are one. A write that is flushed with
    /// its own data (FUA) ends one as well. What follows the last flush is left out: no request
    /// waited until it was durable.
    Flush,
}

impl CommitAt {
    /// Each with its name on the command line.
    pub const ALL: [(CommitAt, &'static str); 2] =
        [(CommitAt::Request, "request"), (CommitAt::Flush, "flush")];
}

/// What all block importers need to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockOptions {
    /// Bytes of a page; requests are cut at its multiples. A power of two from 512 to 1 MiB.
    pub page_bytes: u32,
    /// The longest read or write, in bytes: a longer one is taken for a misread line.
    pub max_request_bytes: u64,
    /// Take any rate of requests. Otherwise one that no device serves, or that leaves it idle for
    /// more than a quarter of an hour between requests, is taken for a wrong time unit.
    pub any_rate: bool,
    /// What a transaction is made of: formats without flushes have requests only.
    pub commit_at: CommitAt,
    /// Take a write of a part of a page as one of the page. Otherwise what is left of the page is
    /// read first, as a host does whose pages are larger than the request.
    pub whole_pages: bool,
    /// The folder of the temporary file that a large input is sorted in; the system's without one.
    pub folder: Option<PathBuf>,
}

impl BlockOptions {
    /// Options for pages of `page_bytes`, requests of at most 64 MiB, plausible rates.
    pub fn new(page_bytes: u32) -> BlockOptions {
        BlockOptions {
            page_bytes,
            max_request_bytes: 64 << 20,
            any_rate: false,
            commit_at: CommitAt::Request,
            whole_pages: false,
            folder: None,
        }
    }

    /// Checks the page size.
    ///
    /// # Errors
    /// [`ImportError::Whole`] if it is not one that is allowed.
    pub fn check(&self) -> Result<(), ImportError> {
        if !self.page_bytes.is_power_of_two() || !(512..=1 << 20).contains(&self.page_bytes) {
            return Err(ImportError::Whole(format!(
                "pages of {} bytes: a page is a power of two from 512 bytes to 1 MiB",
                self.page_bytes
            )));
        }
        Ok(())
    }
}

/// What an import saw, and what it left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BlockReport {
    /// Requests that became transactions, or parts of them.
    pub requests: u64,
    /// Flushes that ended transactions.
    pub flushes: u64,
    /// Requests and lines that did not, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Writes of which a page is written in part.
    pub in_part: u64,
    /// Requests that came before one of an earlier time.
    pub out_of_order: u64,
    /// The number of the last line if it was cut short, and skipped.
    pub cut_line: Option<u64>,
    /// From the first request to the last, in nanoseconds.
    pub duration_ns: u64,
    /// Times that differ.
    pub times: u64,
    /// Requests a second over the duration, if that is not 0 and each request has its own time.
    pub requests_per_s: Option<f64>,
}

impl BlockReport {
    fn skip(&mut self, reason: &'static str) {
        *self.skipped.entry(reason).or_default() += 1;
    }

    fn provenance(
        &self,
        importer: &str,
        times: &str,
        whole_pages: bool,
    ) -> BTreeMap<String, String> {
        let mut entries = BTreeMap::from([
            ("importer".to_string(), importer.to_string()),
            ("times".to_string(), times.to_string()),
            ("requests".to_string(), self.requests.to_string()),
            (
                "transactions".to_string(),
                match self.flushes {
                    0 => "each request is one".to_string(),
                    flushes => format!("what lies between two of {flushes} flushes, and each read"),
                },
            ),
            (
                "pages".to_string(),
                "numbered densely by volume and address; only those read or written".to_string(),
            ),
        ]);
        let (key, value) = super::READS;
        entries.insert(key.to_string(), value.to_string());
        for (what, count) in &self.skipped {
            entries.insert(format!("skipped: {what}"), count.to_string());
        }
        if self.cut_line.is_some() {
            entries.insert("skipped: last line, cut short".to_string(), "1".to_string());
        }
        if self.in_part > 0 {
            let way = if whole_pages {
                "taken as whole"
            } else {
                "read first"
            };
            let entry = format!("{}, whose pages are {way}", self.in_part);
            entries.insert("writes of parts of pages".to_string(), entry);
        }
        if self.out_of_order > 0 {
            entries.insert(
                "requests out of order".to_string(),
                self.out_of_order.to_string(),
            );
        }
        entries
    }
}

#[cfg(test)]
mod tests;
