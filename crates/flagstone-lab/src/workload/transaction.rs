//! What clients do: transactions and their accesses.

use flagstone_host::Rid;

/// The kind of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Reads an inner page of an index; the slot is meaningless.
    Touch,
    /// Reads a record.
    Read,
    /// Writes a new version of a record to its place.
    Update,
    /// Writes a record to a place where there was none.
    Insert,
    /// Marks a record as dead: it stays in its page, as PostgreSQL's do until a vacuum.
    Expire,
    /// Deletes a record.
    Delete,
}

/// One access of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access {
    /// The kind of access.
    pub verb: Verb,
    /// The record or page.
    pub at: Rid,
}

impl Access {
    /// Whether the page changes.
    pub fn writes(&self) -> bool {
        !matches!(self.verb, Verb::Touch | Verb::Read)
    }
}

/// A transaction with all its accesses in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// The transaction's number, from 0 in the order of generation, including transactions that
    /// are left out.
    pub number: u64,
    /// Whether the transaction commits; otherwise it is rolled back.
    pub commits: bool,
    /// The accesses, in order.
    pub accesses: Vec<Access>,
}

impl Default for Transaction {
    fn default() -> Self {
        Transaction {
            number: 0,
            commits: true,
            accesses: Vec::new(),
        }
    }
}

/// Length of [`Transaction::payload`].
pub const PAYLOAD_BYTES: usize = 8;

impl Transaction {
    /// The bytes that access number `access` writes, unique within a run.
    pub fn payload(&self, access: usize) -> [u8; PAYLOAD_BYTES] {
        (self.number << 16 | access as u64).to_le_bytes()
    }

    /// Collects the distinct pages of the accesses that satisfy `wanted` in `pages`, ascending.
    pub fn distinct_pages(&self, wanted: impl Fn(&Access) -> bool, pages: &mut Vec<u32>) {
        pages.clear();
        let wanted = self.accesses.iter().filter(|access| wanted(access));
        pages.extend(wanted.map(|access| access.at.page.0));
        pages.sort_unstable();
        pages.dedup();
    }
}
