//! What makes a trace whole: the rules that a reader of it may rely on, checked event by event.

use thiserror::Error;

use super::{Op, Trace};

/// The most pages, and the most transactions, that a trace may have: its files keep both in signed
/// columns of 32 bits, so that nothing that reads them has to know about unsigned ones.
pub const MAX_COUNT: u32 = i32::MAX as u32;

/// The first rule that a trace breaks. Rows are events, counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Flaw {
    /// A number of the trace as a whole is out of bounds.
    #[error("{0}")]
    Head(String),
    /// Time runs backwards.
    #[error("row {row}: time {time_ns} ns is before the {previous_ns} ns of the row before it")]
    Backwards {
        /// The event.
        row: usize,
        /// Its time.
        time_ns: u64,
        /// The time of the event before it.
        previous_ns: u64,
    },
    /// A page that the trace does not have.
    #[error("row {row}: page {page} is beyond the {pages} pages of the trace")]
    Page {
        /// The event.
        row: usize,
        /// Its page.
        page: u32,
        /// The number of pages.
        pages: u32,
    },
    /// A transaction that the trace does not have.
    #[error("row {row}: transaction {transaction} is beyond the {transactions} of the trace")]
    Transaction {
        /// The event.
        row: usize,
        /// Its transaction.
        transaction: u32,
        /// The number of transactions.
        transactions: u32,
    },
    /// Transactions are not numbered in the order in which they first appear.
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
    /// A transaction goes on after its end.
    #[error("row {row}: transaction {transaction} goes on after its commit or abort in row {end}")]
    Ended {
        /// The event.
        row: usize,
        /// Its transaction.
        transaction: u32,
        /// The event that ended it.
        end: usize,
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

impl Trace {
    /// Checks that times never fall, pages and transactions are within bounds, transactions are
    /// numbered in order, and each ends exactly once with its last event.
    ///
    /// # Errors
    /// The first [`Flaw`] found.
    pub fn validate(&self) -> Result<(), Flaw> {
        self.validate_head()?;
        // Where each transaction began; where it ended, once it has.
        let mut began: Vec<usize> = Vec::new();
        let mut ended: Vec<Option<usize>> = Vec::new();
        let mut previous_ns = 0;
        for (row, event) in self.events.iter().enumerate() {
            let (time_ns, transaction, page) = (event.time_ns, event.transaction, event.page);
            if time_ns < previous_ns {
                return Err(Flaw::Backwards {
                    row,
                    time_ns,
                    previous_ns,
                });
            }
            previous_ns = time_ns;
            if matches!(event.op, Op::Read | Op::Write | Op::Trim) && page >= self.pages {
                return Err(Flaw::Page {
                    row,
                    page,
                    pages: self.pages,
                });
            }
            if transaction >= self.transactions {
                let transactions = self.transactions;
                return Err(Flaw::Transaction {
                    row,
                    transaction,
                    transactions,
                });
            }
            let expected = began.len() as u32;
            if transaction > expected {
                return Err(Flaw::Order {
                    row,
                    transaction,
                    expected,
                });
            }
            if transaction == expected {
                began.push(row);
                ended.push(None);
            }
            if let Some(end) = ended[transaction as usize] {
                return Err(Flaw::Ended {
                    row,
                    transaction,
                    end,
                });
            }
            if event.op.ends() {
                ended[transaction as usize] = Some(row);
            }
        }
        if previous_ns > i64::MAX as u64 {
            return Err(Flaw::Head(format!(
                "the last time, {previous_ns} ns, needs 64 bits"
            )));
        }
        if let Some(open) = ended.iter().position(Option::is_none) {
            return Err(Flaw::Unfinished {
                row: began[open],
                transaction: open as u32,
            });
        }
        if began.len() != self.transactions as usize {
            return Err(Flaw::Head(format!(
                "{} transactions are declared and {} occur",
                self.transactions,
                began.len()
            )));
        }
        Ok(())
    }

    fn validate_head(&self) -> Result<(), Flaw> {
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
    use crate::trace::{Event, Relation};

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
        assert!(flaw(&[end, end, other]).contains("goes on after its commit or abort in row 0"));
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
