//! The input of a replay: transactions with the logical pages that they read and write, from a
//! trace or from a generator.

use crate::trace::{Op, Trace};
use rustc_hash::{FxHashMap, FxHashSet};
use thiserror::Error;

/// One transaction: ranges into the pages of its [`Script`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transaction {
    /// When it began, in nanoseconds of the recording.
    pub start_ns: u64,
    /// Whether it was rolled back.
    pub aborted: bool,
    first: u32,
    reads: u32,
    trims: u32,
    writes: u32,
}

/// Transactions in the order in which they began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    transactions: Vec<Transaction>,
    pages: Vec<u32>,
    /// Upper limit of the logical pages used.
    pub logical_pages: u32,
    /// Whether the reads of a transaction are parallel, like those of one request, not sequential.
    pub reads_together: bool,
}

/// A trace that a device cannot play.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ScriptError {
    /// Neither page size of trace and device divides the other.
    #[error(
        "the trace has pages of {trace} bytes, and the device of {device}: one must be a multiple \
         of the other"
    )]
    PageSizes {
        /// Page size of the trace.
        trace: u32,
        /// Page size of the device.
        device: u32,
    },
    /// A page of the trace has no number among pages of the device's size.
    #[error(
        "event {event} of the trace is on page {page} of {trace} bytes, and pages of {device} bytes \
         have no such numbers: use a device with larger pages (--device), or a trace with fewer \
         pages"
    )]
    NoNumber {
        /// The event, counted from 1.
        event: usize,
        /// Its page.
        page: u32,
        /// Page size of the trace.
        trace: u32,
        /// Page size of the device.
        device: u32,
    },
    /// The trace uses more pages than the device has.
    #[error(
        "the trace uses {needed} logical pages of {page_bytes} bytes, but the device has \
         {available}: use a larger device (--device) or a shorter trace"
    )]
    TooLarge {
        /// Number of logical pages that the trace uses.
        needed: u64,
        /// The page size.
        page_bytes: u32,
        /// Number of logical pages of the device.
        available: u32,
    },
}

impl Script {
    /// The transactions of a trace, for a device of this page size. A trace page maps to as many
    /// device pages as it needs; smaller trace pages share one. If a transaction changes a page
    /// several times, only the last change (write or trim) is made, at commit.
    ///
    /// # Errors
    /// Neither page size divides the other, or a page of the trace is beyond all page numbers.
    pub fn from_trace(trace: &Trace, page_bytes: u32) -> Result<Script, ScriptError> {
        let (per_page, shared_by) = page_ratio(trace, page_bytes)?;
        let mut script = Script {
            reads_together: trace.reads_together(),
            ..Script::default()
        };
        let mut events: Vec<Vec<usize>> = vec![Vec::new(); trace.transactions as usize];
        for (at, event) in trace.events.iter().enumerate() {
            events[event.transaction as usize].push(at);
        }
        for own in events.iter().filter(|own| !own.is_empty()) {
            let aborted = own.iter().any(|&at| trace.events[at].op == Op::Abort);
            let pages = |op: Op| {
                // Page numbers may be far apart: a table of all of them could be gigabytes.
                let mut seen = FxHashSet::default();
                own.iter()
                    .map(|&at| &trace.events[at])
                    .filter(|event| event.op == op)
                    .flat_map(|event| {
                        let first = event.page / shared_by * per_page;
                        first..first + per_page
                    })
                    .filter(|page| seen.insert(*page))
                    .collect::<Vec<u32>>()
            };
            let (mut writes, mut trims) = (pages(Op::Write), pages(Op::Trim));
            if !trims.is_empty() {
                let mut last = FxHashMap::default();
                for event in own.iter().map(|&at| &trace.events[at]) {
                    if matches!(event.op, Op::Write | Op::Trim) {
                        let first = event.page / shared_by * per_page;
                        last.extend((first..first + per_page).map(|page| (page, event.op)));
                    }
                }
                writes.retain(|page| last[page] == Op::Write);
                trims.retain(|page| last[page] == Op::Trim);
            }
            script.push(
                trace.events[own[0]].time_ns,
                aborted,
                &pages(Op::Read),
                &trims,
                &writes,
            );
        }
        Ok(script)
    }

    /// Adds a transaction. No page may occur twice in its writes and trims.
    pub fn push(
        &mut self,
        start_ns: u64,
        aborted: bool,
        reads: &[u32],
        trims: &[u32],
        writes: &[u32],
    ) {
        let first = self.pages.len() as u32;
        for part in [reads, trims, writes] {
            self.pages.extend_from_slice(part);
            let most = part.iter().max().map_or(0, |page| page + 1);
            self.logical_pages = self.logical_pages.max(most);
        }
        self.transactions.push(Transaction {
            start_ns,
            aborted,
            first,
            reads: reads.len() as u32,
            trims: trims.len() as u32,
            writes: writes.len() as u32,
        });
    }

    /// A script of `transactions` transactions: the first ones, or all of them repeatedly; each
    /// pass continues the times of the previous one, up to the last time of all.
    #[must_use]
    pub fn with_length(&self, transactions: usize) -> Script {
        let mut script = Script {
            reads_together: self.reads_together,
            ..Script::default()
        };
        let pass_ns = self.transactions.last().map_or(0, |last| last.start_ns + 1);
        let passes =
            (0_u64..).flat_map(|pass| self.transactions.iter().map(move |part| (pass, part)));
        let wanted = if self.transactions.is_empty() {
            0
        } else {
            transactions
        };
        for (pass, part) in passes.take(wanted) {
            script.push(
                pass.saturating_mul(pass_ns).saturating_add(part.start_ns),
                part.aborted,
                self.reads(part),
                self.trims(part),
                self.writes(part),
            );
        }
        script
    }

    /// The pages that are read before they are written or trimmed, in order, each once.
    pub fn read_first(&self) -> Vec<u32> {
        let (mut seen, mut first) = (vec![false; self.logical_pages as usize], Vec::new());
        for part in &self.transactions {
            for &page in self.reads(part) {
                if !std::mem::replace(&mut seen[page as usize], true) {
                    first.push(page);
                }
            }
            for &page in self.changes(part) {
                seen[page as usize] = true;
            }
        }
        first.sort_unstable();
        first
    }

    /// Checks that a device with `available` logical pages can play the script.
    ///
    /// # Errors
    /// Names the required number of pages.
    pub fn fits(&self, page_bytes: u32, available: u32) -> Result<(), ScriptError> {
        if self.logical_pages <= available {
            return Ok(());
        }
        Err(ScriptError::TooLarge {
            needed: self.logical_pages.into(),
            page_bytes,
            available,
        })
    }

    /// The transactions.
    pub fn transactions(&self) -> &[Transaction] {
        &self.transactions
    }

    /// Approximate cost of playing the script, in the unit of [`effort`](crate::effort).
    pub fn effort(&self) -> u64 {
        self.pages.len() as u64 * crate::effort::REPLAYED
    }

    /// Pages that a transaction reads.
    pub fn reads(&self, transaction: &Transaction) -> &[u32] {
        self.part(transaction.first, transaction.reads)
    }

    /// Pages that a transaction trims.
    pub fn trims(&self, transaction: &Transaction) -> &[u32] {
        self.part(transaction.first + transaction.reads, transaction.trims)
    }

    /// Pages that a transaction writes.
    pub fn writes(&self, transaction: &Transaction) -> &[u32] {
        let first = transaction.first + transaction.reads + transaction.trims;
        self.part(first, transaction.writes)
    }

    /// Pages that a transaction changes, by trims or writes.
    pub fn changes(&self, transaction: &Transaction) -> &[u32] {
        let first = transaction.first + transaction.reads;
        self.part(first, transaction.trims + transaction.writes)
    }

    fn part(&self, first: u32, len: u32) -> &[u32] {
        &self.pages[first as usize..(first + len) as usize]
    }
}

/// Device pages per trace page, and trace pages per device page.
///
/// # Errors
/// Neither page size divides the other, or the pages of the device that belong to an event's page
/// have no numbers.
pub(crate) fn page_ratio(trace: &Trace, device: u32) -> Result<(u32, u32), ScriptError> {
    let (per_page, shared_by) = match (trace.page_bytes, device) {
        (trace, device) if trace >= device && trace % device == 0 => (trace / device, 1),
        (trace, device) if trace > 0 && device % trace == 0 => (1, device / trace),
        (trace, device) => return Err(ScriptError::PageSizes { trace, device }),
    };
    let pages = trace.events.iter().map(|event| event.page).enumerate();
    if let Some((at, page)) = pages.max_by_key(|&(_, page)| page) {
        let end = (u64::from(page / shared_by) + 1) * u64::from(per_page);
        if end > u64::from(u32::MAX) {
            return Err(ScriptError::NoNumber {
                event: at + 1,
                page,
                trace: trace.page_bytes,
                device,
            });
        }
    }
    Ok((per_page, shared_by))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Event;

    fn trace(page_bytes: u32) -> Trace {
        let event = |transaction, op, page| Event::of((5, transaction, op, page));
        Trace {
            page_bytes,
            pages: 3,
            transactions: 2,
            events: vec![
                event(0, Op::Write, 1),
                event(1, Op::Write, 2),
                event(0, Op::Write, 1),
                event(0, Op::Commit, 0),
                event(1, Op::Abort, 0),
            ],
            ..Trace::default()
        }
    }

    #[test]
    fn a_large_page_becomes_several_and_each_is_written_once() {
        let script = Script::from_trace(&trace(8192), 4096).unwrap();
        let [first, second] = script.transactions() else {
            panic!("two transactions")
        };
        assert_eq!(script.writes(first), [2, 3]);
        assert_eq!(script.writes(second), [4, 5]);
        assert_eq!((first.aborted, second.aborted), (false, true));
        assert_eq!(script.logical_pages, 6);
        assert!(script.fits(4096, 6).is_ok());
        assert!(script.fits(4096, 5).is_err());
        let part = script.with_length(1);
        assert_eq!(part.writes(&part.transactions()[0]), [2, 3]);
        assert_eq!((part.transactions().len(), part.logical_pages), (1, 4));
        assert_eq!(script.with_length(2), script);
        let twice = script.with_length(3);
        assert_eq!(twice.writes(&twice.transactions()[2]), [2, 3]);
        assert_eq!(twice.transactions()[2].start_ns, 5 + 6);
        assert_eq!(Script::default().with_length(3), Script::default());
    }

    #[test]
    fn the_last_change_of_a_page_counts_and_what_is_read_first_is_known() {
        let event = |transaction, op, page| Event::of((5, transaction, op, page));
        let trace = Trace {
            page_bytes: 4096,
            pages: 9,
            transactions: 2,
            events: vec![
                event(0, Op::Write, 1),
                event(0, Op::Trim, 1),
                event(0, Op::Trim, 2),
                event(0, Op::Write, 2),
                event(0, Op::Read, 7),
                event(0, Op::Commit, 0),
                event(1, Op::Read, 1),
                event(1, Op::Read, 2),
                event(1, Op::Read, 5),
                event(1, Op::Read, 7),
                event(1, Op::Commit, 0),
            ],
            ..Trace::default()
        };
        let script = Script::from_trace(&trace, 4096).unwrap();
        let first = &script.transactions()[0];
        assert_eq!(
            (script.writes(first), script.trims(first)),
            (&[2][..], &[1][..])
        );
        assert_eq!(script.read_first(), [5, 7]);
    }

    #[test]
    fn the_reads_of_a_request_are_made_together() {
        use crate::device::presets;
        use crate::replay::{InputName, Setup, Terms};
        use flagstone::commit::{Kind, Options};

        let small = presets().iter().find(|device| device.name == "small");
        let device = small.expect("a preset");
        // 64 KiB, with each page on another plane.
        let pages: Vec<u32> = (0..16).collect();
        let response = |reads_together| {
            let mut script = Script {
                reads_together,
                ..Script::default()
            };
            script.push(0, false, &pages, &[], &[]);
            let setup = Setup {
                kind: Kind::Plain,
                options: Options::default(),
                device: device.clone(),
                isolation: None,
                terms: Terms::default(),
            };
            let source = InputName {
                name: "one request".into(),
                sha256: None,
            };
            setup.run(&script, &source).unwrap().response_ns.p50
        };
        let read = device.timing.read.0;
        assert_eq!(response(false), 16 * read);
        assert!(response(true) < 3 * read, "{}", response(true));
    }

    /// Fails if the number of a page wraps around, or if the last page that there can be is
    /// refused.
    #[test]
    fn a_page_beyond_all_numbers_is_an_error_that_says_where_it_is() {
        let with_page = |page| {
            let mut trace = trace(16 << 10);
            trace.events[1].page = page;
            trace
        };
        let end = 1 << 30;
        let said = |page, page_bytes| Script::from_trace(&with_page(page), page_bytes);
        let why = said(end, 4096).expect_err("it is beyond").to_string();
        assert!(
            why.contains("event 2") && why.contains("1073741824"),
            "{why}"
        );
        assert!(why.contains("larger pages"), "{why}");
        assert!(
            said(end - 1, 4096).is_err(),
            "the end of its pages has no number"
        );
        let script = said(end - 2, 4096).expect("it has a number");
        assert_eq!(script.logical_pages, u32::MAX - 3);
        assert!(said(end, 16 << 10).is_ok());
        assert!(said(u32::MAX, 16 << 10).is_err());
    }

    #[test]
    fn small_pages_share_one() {
        let script = Script::from_trace(&trace(512), 1024).unwrap();
        assert_eq!(script.writes(&script.transactions()[0]), [0]);
        assert_eq!(script.writes(&script.transactions()[1]), [1]);
        assert!(Script::from_trace(&trace(768), 1024).is_err());
    }
}
