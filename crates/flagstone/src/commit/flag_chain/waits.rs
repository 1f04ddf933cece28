//! What the collector has to wait for: commits whose acknowledgement lies ahead, and erases.

use crate::units::{Nanos, TxId};
use rustc_hash::FxHashMap;

/// Instants that later steps must not come before.
#[derive(Debug, Default)]
pub(in crate::commit) struct Waits {
    /// Transactions that are committed in memory and will be on flash at that instant.
    acks: FxHashMap<TxId, Nanos>,
    acked: Nanos,
    erased: Nanos,
}

impl Waits {
    /// At `now` a commit was begun that will be durable at `ack`.
    pub(in crate::commit) fn commit(&mut self, tx: TxId, now: Nanos, ack: Nanos) {
        self.acks.retain(|_, ends| *ends > now);
        self.acks.insert(tx, ack);
        self.acked = self.acked.max(ack);
    }

    /// When the commit of a transaction is durable. Its pages are not copied as committed before.
    pub(in crate::commit) fn ack_of(&self, tx: TxId) -> Nanos {
        self.acks.get(&tx).copied().unwrap_or_default()
    }

    /// An erase was issued that will be done at `done`.
    pub(in crate::commit) fn erase(&mut self, done: Nanos) {
        self.erased = self.erased.max(done);
    }

    /// What the next erase waits for: the commits that made pages of the victim obsolete, and the
    /// erases before it. A page whose erase did not land must find the chain above it unbroken.
    pub(in crate::commit) fn before_erase(&self) -> Nanos {
        self.acked.max(self.erased)
    }
}
