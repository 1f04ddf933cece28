//! A trace: page accesses of transactions, in the order of recording.
//!
//! This module has the types, which are all that replay needs. A trace is imported by [`waldump`],
//! [`bpftrace`] or [`block`] through [`input`], with [`notes`] about the import. It is stored in a
//! [`file`](mod@file), described by [`info`] and exported by [`csv`].

pub mod block;
pub mod bpftrace;
pub mod check;
pub mod csv;
pub mod file;
pub mod info;
pub mod input;
pub mod notes;
pub mod waldump;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The operation of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// A page was read.
    Read,
    /// A page was changed; several changes of one page by one transaction may follow each other.
    Write,
    /// A page was trimmed.
    Trim,
    /// The transaction committed; its last event.
    Commit,
    /// The transaction was rolled back; its last event.
    Abort,
}

impl Op {
    /// All operations, in declaration order.
    pub const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Trim, Op::Commit, Op::Abort];

    /// The operation's name in files: `read`, `write`, `trim`, `commit` or `abort`.
    pub fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Trim => "trim",
            Op::Commit => "commit",
            Op::Abort => "abort",
        }
    }

    /// The operation of that name.
    pub fn from_name(name: &str) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.name() == name)
    }

    /// Whether it is the last event of its transaction.
    pub fn ends(self) -> bool {
        matches!(self, Op::Commit | Op::Abort)
    }
}

/// One event of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the first event.
    pub time_ns: u64,
    /// The transaction, dense from 0 in order of first appearance.
    pub transaction: u32,
    /// The operation.
    pub op: Op,
    /// The logical page, dense from 0 over the whole trace; 0 for commit and abort.
    pub page: u32,
}

#[cfg(test)]
impl Event {
    /// An event from time, transaction, operation and page.
    pub(crate) fn of((time_ns, transaction, op, page): (u64, u32, Op, u32)) -> Event {
        Event {
            time_ns,
            transaction,
            op,
            page,
        }
    }
}

/// A named range of dense pages: a relation of the database, or a volume of a block trace. Stored
/// in trace files in this form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relation {
    /// Its name, for example `1663/5/16396`, or a table's name if known.
    pub name: String,
    /// Number of its pages that occur in the trace.
    pub pages: u32,
}

/// A whole trace in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// Bytes of one page, for example 8192 for PostgreSQL.
    pub page_bytes: u32,
    /// Number of distinct pages: every event's page is below this.
    pub pages: u32,
    /// Number of transactions: every event's transaction is below this.
    pub transactions: u32,
    /// Known relations, in the order in which their pages are numbered.
    pub relations: Vec<Relation>,
    /// The events in recorded order; times never decrease.
    pub events: Vec<Event>,
    /// Origin: command, source, date, skipped records and so on.
    pub provenance: BTreeMap<String, String>,
}

/// Provenance entry of block traces: the reads of a transaction are one request.
pub(crate) const READS: (&str, &str) = ("reads", "those of a request are made together");

impl Trace {
    /// Whether the reads of a transaction are parallel, not sequential.
    pub fn reads_together(&self) -> bool {
        let (key, value) = READS;
        self.provenance.get(key).is_some_and(|says| says == value)
    }
}
