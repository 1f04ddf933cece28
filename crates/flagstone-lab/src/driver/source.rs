//! The source of a driver's transactions.

use crate::workload::Transaction;
use thiserror::Error;

/// Why a source supplies no transaction, in words.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SourceError(pub String);

/// Supplies transactions to clients.
pub trait Source {
    /// Writes the next transaction for a client to `into`. Returns `false` if there is none. If
    /// `roll_back` is set, the transaction must end with a rollback.
    ///
    /// # Errors
    /// The database cannot grow.
    fn deal(
        &mut self,
        client: u32,
        roll_back: bool,
        into: &mut Transaction,
    ) -> Result<bool, SourceError>;

    /// Open loop: arrival time of the transaction after the next `after` transactions, in
    /// nanoseconds of the recording; `None` if there is none.
    fn arrival(&self, after: usize) -> Option<u64> {
        let _ = after;
        None
    }

    /// Whether the reads of a transaction are parallel, like those of one disk request.
    fn reads_together(&self) -> bool {
        false
    }

    /// Number of database pages needed, if known.
    fn pages(&self) -> u32 {
        0
    }
}

impl<S: Source> Source for &mut S {
    fn deal(
        &mut self,
        client: u32,
        roll_back: bool,
        into: &mut Transaction,
    ) -> Result<bool, SourceError> {
        (**self).deal(client, roll_back, into)
    }

    fn arrival(&self, after: usize) -> Option<u64> {
        (**self).arrival(after)
    }

    fn reads_together(&self) -> bool {
        (**self).reads_together()
    }

    fn pages(&self) -> u32 {
        (**self).pages()
    }
}
