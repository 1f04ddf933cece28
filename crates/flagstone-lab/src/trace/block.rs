//! Importers for block traces, which list requests to a disk without any transactions.
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
//! the request's time, and a commit. With [`CommitAt::Flush`], and a format that has flushes, the
//! writes and trims of a volume between two flushes form one transaction instead, committed by the
//! flush. Reads stay transactions of their own. Requests are sorted by time in constant memory (the
//! number out of order is reported). Pages are numbered densely by volume and address: only pages
//! touched by a read or write get a number, so a trace of a large disk fits a small simulated
//! device. A trim covers pages that are entirely inside it and have a number. Before a page is
//! written in part, it is read.

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

/// How requests form transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CommitAt {
    /// Each request is a transaction.
    #[default]
    Request,
    /// The writes and trims of a volume between two flushes. A write flushed with its own data
    /// (FUA) ends a transaction as well. Requests after the last flush are left out: no later
    /// request made them durable.
    Flush,
}

impl CommitAt {
    /// All values, with their command-line names.
    pub const ALL: [(CommitAt, &'static str); 2] =
        [(CommitAt::Request, "request"), (CommitAt::Flush, "flush")];
}

/// Options of all block importers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockOptions {
    /// Page size in bytes; requests are split at page boundaries. A power of two from 512 to 1 MiB.
    pub page_bytes: u32,
    /// Maximum length of a read or write, in bytes: a longer one is treated as a misread line.
    pub max_request_bytes: u64,
    /// Accept any request rate. Otherwise a rate that no device can serve, or of less than one
    /// request per quarter of an hour, is treated as a wrong time unit.
    pub any_rate: bool,
    /// How requests form transactions. Formats without flushes support requests only.
    pub commit_at: CommitAt,
    /// Treat a partial page write as a write of the whole page. Otherwise the page is read first,
    /// as by a host with larger pages than the request.
    pub whole_pages: bool,
    /// Folder of the temporary file for sorting large inputs; the system's folder if `None`.
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
    /// [`ImportError::Whole`] if it is not allowed.
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

/// Counts of an import, including what was left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BlockReport {
    /// Requests that became transactions, or parts of them.
    pub requests: u64,
    /// Flushes that ended transactions.
    pub flushes: u64,
    /// Skipped requests and lines, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Writes with a partially written page.
    pub in_part: u64,
    /// Requests that precede one with an earlier time.
    pub out_of_order: u64,
    /// The number of the last line if it was truncated and therefore skipped.
    pub cut_line: Option<u64>,
    /// Nanoseconds from the first request to the last.
    pub duration_ns: u64,
    /// Number of distinct times.
    pub times: u64,
    /// Requests per second, if the duration is not 0 and each request has its own time.
    pub requests_per_s: Option<f64>,
}

impl BlockReport {
    fn skip(&mut self, reason: &'static str) {
        *self.skipped.entry(reason).or_default() += 1;
    }

    /// The entries of a trace's provenance: how it was made, and what was left out.
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
