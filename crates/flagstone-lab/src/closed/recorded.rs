//! A recorded trace as transactions on a database: its accesses in their recorded order.
//!
//! ```text
//! read     a look at the page, without a lock: a server with versions of rows reads so
//! write    an update of a record in it, under a lock
//! trim     the record's deletion
//! ```
//!
//! A trace does not say which row of a page was changed. Transactions that were concurrent in the
//! recording did not wait for each other's rows. So each changes a record of its own there, by its
//! number. On a stack that locks pages they nevertheless wait for each other. A trace page maps to
//! as many database pages as it needs; smaller trace pages share one.

use crate::driver::Source;
use crate::driver::SourceError;
use crate::replay::{ScriptError, page_ratio};
use crate::trace::{Op, Trace};
use crate::workload::{Access, Transaction, Verb};
use flagstone::units::Lpn;
use flagstone_host::Rid;

/// Number of records per page that transactions use in turn.
const RECORDS: u32 = 8;

/// The accesses of a trace by transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    transactions: Vec<Part>,
    accesses: Vec<(Verb, u32)>,
    pages: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    start_ns: u64,
    aborted: bool,
    first: usize,
    count: u32,
}

impl Recording {
    /// The transactions of a trace, for a database with this page size.
    ///
    /// # Errors
    /// Neither page size divides the other, or a page of the trace is beyond all page numbers.
    pub fn from_trace(trace: &Trace, page_bytes: u32) -> Result<Recording, ScriptError> {
        let (per_page, shared_by) = page_ratio(trace, page_bytes)?;
        let mut events: Vec<Vec<usize>> = vec![Vec::new(); trace.transactions as usize];
        for (at, event) in trace.events.iter().enumerate() {
            events[event.transaction as usize].push(at);
        }
        let (mut transactions, mut accesses, mut pages) = (Vec::new(), Vec::new(), 0);
        for own in events.iter().filter(|own| !own.is_empty()) {
            let first = accesses.len();
            let mut aborted = false;
            // One page of the trace may be several of the database, or share one.
            for event in own.iter().map(|&at| &trace.events[at]) {
                let verb = match event.op {
                    Op::Read => Verb::Touch,
                    Op::Write => Verb::Update,
                    Op::Trim => Verb::Delete,
                    Op::Commit | Op::Abort => {
                        aborted = event.op == Op::Abort;
                        continue;
                    }
                };
                let page = event.page / shared_by * per_page;
                accesses.extend((page..page + per_page).map(|page| (verb, page)));
                pages = pages.max(page + per_page);
            }
            transactions.push(Part {
                start_ns: trace.events[own[0]].time_ns,
                aborted,
                first,
                count: (accesses.len() - first) as u32,
            });
        }
        Ok(Recording {
            transactions,
            accesses,
            pages,
        })
    }

    /// Number of database pages needed.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Number of transactions.
    pub fn transactions(&self) -> u64 {
        self.transactions.len() as u64
    }

    /// A source of the recording's transactions, beginning with the first.
    pub fn source(&self) -> Recorded<'_> {
        Recorded {
            recording: self,
            next: 0,
        }
    }
}

/// Supplies the transactions of a [`Recording`] in the order in which they began.
#[derive(Debug, Clone)]
pub struct Recorded<'a> {
    recording: &'a Recording,
    next: usize,
}

impl Source for Recorded<'_> {
    fn deal(
        &mut self,
        _: u32,
        roll_back: bool,
        into: &mut Transaction,
    ) -> Result<bool, SourceError> {
        let Some(part) = self.recording.transactions.get(self.next) else {
            return Ok(false);
        };
        into.number = self.next as u64;
        into.commits = !part.aborted && !roll_back;
        into.accesses.clear();
        let slot = (self.next as u32 % RECORDS) as u16;
        let accesses = &self.recording.accesses[part.first..part.first + part.count as usize];
        into.accesses
            .extend(accesses.iter().map(|&(verb, page)| Access {
                verb,
                at: Rid {
                    page: Lpn(page),
                    slot,
                },
            }));
        self.next += 1;
        Ok(true)
    }

    fn arrival(&self, after: usize) -> Option<u64> {
        let arrives = self.recording.transactions.get(self.next + after);
        arrives.map(|part| part.start_ns)
    }

    fn pages(&self) -> u32 {
        self.recording.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Event;

    fn trace(page_bytes: u32) -> Trace {
        let events = [
            (0, 0, Op::Read, 3),
            (7, 1, Op::Write, 0),
            (8, 0, Op::Write, 3),
            (9, 0, Op::Read, 1),
            (9, 0, Op::Commit, 0),
            (9, 1, Op::Trim, 1),
            (9, 1, Op::Abort, 0),
        ];
        Trace {
            page_bytes,
            pages: 4,
            transactions: 2,
            events: events.map(Event::of).to_vec(),
            ..Trace::default()
        }
    }

    fn dealt(source: &mut Recorded<'_>) -> Vec<(Verb, u32, u16)> {
        let mut into = Transaction::default();
        assert!(source.deal(0, false, &mut into).unwrap());
        let accesses = into.accesses.iter();
        accesses.map(|a| (a.verb, a.at.page.0, a.at.slot)).collect()
    }

    #[test]
    fn accesses_keep_their_order_and_transactions_their_records() {
        let recording = Recording::from_trace(&trace(4096), 4096).unwrap();
        assert_eq!((recording.pages(), recording.transactions()), (4, 2));
        let mut source = recording.source();
        assert_eq!(source.arrival(0), Some(0));
        let first = [
            (Verb::Touch, 3, 0),
            (Verb::Update, 3, 0),
            (Verb::Touch, 1, 0),
        ];
        assert_eq!(dealt(&mut source), first);
        assert_eq!(source.arrival(0), Some(7));
        let mut into = Transaction::default();
        assert!(source.clone().deal(0, false, &mut into).unwrap() && !into.commits);
        assert_eq!(
            dealt(&mut source),
            [(Verb::Update, 0, 1), (Verb::Delete, 1, 1)]
        );
        assert_eq!(source.arrival(0), None);
        assert!(!source.deal(0, false, &mut into).unwrap());
    }

    #[test]
    fn a_larger_page_is_several_and_smaller_ones_share_one() {
        let several = Recording::from_trace(&trace(8192), 4096).unwrap();
        assert_eq!(several.pages(), 8);
        let pages: Vec<u32> = dealt(&mut several.source()).iter().map(|a| a.1).collect();
        assert_eq!(pages, [6, 7, 6, 7, 2, 3]);
        let shared = Recording::from_trace(&trace(2048), 4096).unwrap();
        assert_eq!(shared.pages(), 2);
        assert!(Recording::from_trace(&trace(3000), 4096).is_err());
        let mut beyond = trace(8192);
        beyond.events[0].page = u32::MAX / 2;
        let why = Recording::from_trace(&beyond, 4096).expect_err("it has no number");
        assert!(why.to_string().contains("event 1"), "{why}");
    }
}
