//! The rules for valid traces, checked event by event.

use rustc_hash::FxHashMap as HashMap;
use thiserror::Error;

use super::{Event, Trace};

/// Maximum number of pages and of transactions in a trace: its files store both in signed 32-bit
/// columns, so that readers need no unsigned types.
pub const MAX_COUNT: u32 = i32::MAX as u32;

/// The first rule that a trace violates. Rows are events, counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Flaw {
    /// A property of the whole trace is out of bounds.
    #[error("{0}")]
    Head(String),
    /// A time is earlier than the previous one.
    #[error("row {row}: time {time_ns} ns is before the {previous_ns} ns of the row before it")]
    Backwards {
        /// The event.
        row: usize,
        /// Its time.
        time_ns: u64,
        /// The time of the event before it.
        previous_ns: u64,
    },
    /// A page number is too large.
    #[error("row {row}: page {page} is beyond the {pages} pages of the trace")]
    Page {
        /// The event.
        row: usize,
        /// Its page.
        page: u32,
        /// The number of pages.
        pages: u32,
    },
    /// A transaction number is too large.
    #[error("row {row}: transaction {transaction} is beyond the {transactions} of the trace")]
    Transaction {
        /// The event.
        row: usize,
        /// Its transaction.
        transaction: u32,
        /// The number of transactions.
        transactions: u32,
    },
    /// Transactions are not numbered in order of first appearance.
    #[error(
        "row {row}: transaction {transaction} appears before {expected}: transactions are numbered \
         from 0 in the order of their first event"
    )]
    Order {
        /// The event.
        row: usize,
        /// Its transaction.
        transaction: u32,
        /// The number that the next new transaction should have.
        expected: u32,
    },
    /// A transaction has events after its end.
    #[error("row {row}: transaction {transaction} goes on after its commit or abort")]
    Ended {
        /// The event.
        row: usize,
        /// Its transaction.
        transaction: u32,
    },
    /// A transaction never ends.
    #[error(
        "transaction {transaction}, which begins in row {row}, never ends: give it a commit or an \
         abort, or leave it out"
    )]
    Unfinished {
        /// The first event of the transaction.
        row: usize,
        /// The transaction.
        transaction: u32,
    },
}

/// Checks events one by one, as they are read or written. Memory grows with the number of open
/// transactions, not with the number of events.
#[derive(Debug, Default)]
pub struct Checker {
    row: usize,
    previous_ns: u64,
    /// The first row of each open transaction.
    open: HashMap<u32, usize>,
    transactions: u32,
    /// The largest page, and its first row.
    largest: Option<(u32, usize)>,
}

impl Checker {
    /// Checks the next event.
    ///
    /// # Errors
    /// The [`Flaw`] of the event.
    pub fn see(&mut self, event: &Event) -> Result<(), Flaw> {
        let row = self.row;
        let (time_ns, transaction) = (event.time_ns, event.transaction);
        if time_ns < self.previous_ns {
            return Err(Flaw::Backwards {
                row,
                time_ns,
                previous_ns: self.previous_ns,
            });
        }
        self.row += 1;
        self.previous_ns = time_ns;
        if !event.op.ends() && self.largest.is_none_or(|(page, _)| page < event.page) {
            self.largest = Some((event.page, row));
        }
        let expected = self.transactions;
        if transaction > expected {
            return Err(Flaw::Order {
                row,
                transaction,
                expected,
            });
        }
        match (transaction == expected, event.op.ends()) {
            (true, true) => self.transactions += 1,
            (true, false) => {
                self.transactions += 1;
                self.open.insert(transaction, row);
            }
            (false, true) if self.open.remove(&transaction).is_some() => {}
            (false, false) if self.open.contains_key(&transaction) => {}
            _ => return Err(Flaw::Ended { row, transaction }),
        }
        Ok(())
    }

    /// Number of events checked.
    pub fn events(&self) -> usize {
        self.row
    }

    /// Number of transactions begun.
    pub fn transactions(&self) -> u32 {
        self.transactions
    }

    /// Number of pages, up to the largest one that occurs.
    pub fn pages(&self) -> u32 {
        self.largest.map_or(0, |(page, _)| page + 1)
    }

    /// Checks what is only known at the end, and the numbers of pages and transactions.
    ///
    /// # Errors
    /// The first [`Flaw`] found.
    pub fn finish(&self, pages: u32, transactions: u32) -> Result<(), Flaw> {
        if let Some((page, row)) = self.largest.filter(|(page, _)| *page >= pages) {
            return Err(Flaw::Page { row, page, pages });
        }
        if self.previous_ns > i64::MAX as u64 {
            return Err(Flaw::Head(format!(
                "the last time, {} ns, needs 64 bits",
                self.previous_ns
            )));
        }
        if let Some((&transaction, &row)) = self.open.iter().min() {
            return Err(Flaw::Unfinished { row, transaction });
        }
        if self.transactions != transactions {
            return Err(Flaw::Head(format!(
                "{transactions} transactions are declared and {} occur",
                self.transactions
            )));
        }
        Ok(())
    }
}

impl Trace {
    /// Checks that times never decrease, pages and transactions are within bounds, transactions are
    /// numbered in order, and each ends exactly once, with its last event.
    ///
    /// # Errors
    /// The first [`Flaw`] found.
    pub fn validate(&self) -> Result<(), Flaw> {
        self.validate_head()?;
        let mut checker = Checker::default();
        for (row, event) in self.events.iter().enumerate() {
            let (transaction, transactions) = (event.transaction, self.transactions);
            if transaction >= transactions {
                return Err(Flaw::Transaction {
                    row,
                    transaction,
                    transactions,
                });
            }
            checker.see(event)?;
        }
        checker.finish(self.pages, self.transactions)
    }

    /// Checks everything outside of the events.
    pub(super) fn validate_head(&self) -> Result<(), Flaw> {
        let head = |problem: String| Err(Flaw::Head(problem));
        if self.page_bytes == 0 {
            return head("the page size is 0".to_string());
        }
        for (what, count) in [("pages", self.pages), ("transactions", self.transactions)] {
            if count > MAX_COUNT {
                return head(format!(
                    "{count} {what} are more than the {MAX_COUNT} that fit"
                ));
            }
        }
        let in_relations: u64 = self.relations.iter().map(|r| u64::from(r.pages)).sum();
        if in_relations > u64::from(self.pages) {
            return head(format!(
                "the relations have {in_relations} pages, the trace has {}",
                self.pages
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Op, Relation};

    fn trace(events: &[(u64, u32, Op, u32)]) -> Trace {
        let events = events.iter().copied().map(Event::of);
        Trace {
            page_bytes: 4096,
            pages: 3,
            transactions: 2,
            events: events.collect(),
            ..Trace::default()
        }
    }

    fn flaw(events: &[(u64, u32, Op, u32)]) -> String {
        trace(events).validate().unwrap_err().to_string()
    }

    #[test]
    fn a_whole_trace_passes() {
        let whole = [
            (0, 0, Op::Write, 2),
            (0, 1, Op::Read, 0),
            (5, 0, Op::Commit, 0),
            (5, 1, Op::Trim, 1),
            (6, 1, Op::Abort, 0),
        ];
        assert_eq!(trace(&whole).validate(), Ok(()));
    }

    #[test]
    fn each_rule_names_the_row_that_breaks_it() {
        let end = (9, 0, Op::Commit, 0);
        let other = (9, 1, Op::Abort, 0);
        assert!(
            flaw(&[(2, 0, Op::Write, 0), (1, 0, Op::Write, 0)]).starts_with("row 1: time 1 ns")
        );
        assert!(flaw(&[(2, 0, Op::Trim, 3)]).starts_with("row 0: page 3 is beyond the 3 pages"));
        assert!(flaw(&[(2, 2, Op::Write, 0)]).starts_with("row 0: transaction 2 is beyond"));
        assert!(flaw(&[other, end]).starts_with("row 0: transaction 1 appears before 0"));
        assert!(flaw(&[end, end, other]).contains("goes on after its commit or abort"));
        assert!(
            flaw(&[end, (9, 1, Op::Write, 1)]).starts_with("transaction 1, which begins in row 1")
        );
        assert!(flaw(&[(1 << 63, 0, Op::Commit, 0)]).contains("needs 64 bits"));
        assert_eq!(flaw(&[end]), "2 transactions are declared and 1 occur");
    }

    #[test]
    fn heads_out_of_bounds_are_refused() {
        let mut bad = trace(&[]);
        bad.page_bytes = 0;
        assert!(
            bad.validate()
                .unwrap_err()
                .to_string()
                .contains("page size")
        );
        let mut bad = trace(&[]);
        bad.pages = MAX_COUNT + 1;
        assert!(
            bad.validate()
                .unwrap_err()
                .to_string()
                .contains("more than the 2147483647")
        );
        let mut bad = trace(&[]);
        bad.relations = vec![Relation {
            name: "a".into(),
            pages: 4,
        }];
        assert!(
            bad.validate()
                .unwrap_err()
                .to_string()
                .contains("relations have 4 pages")
        );
    }
}
