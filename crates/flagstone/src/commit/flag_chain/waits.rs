//! What the collector has to wait for: commits whose acknowledgement lies ahead, and erases.

use crate::units::{Nanos, Pbn, TxId};
use rustc_hash::FxHashMap;

/// Instants that later steps must not come before.
#[derive(Debug, Default)]
pub(in crate::commit) struct Waits {
    /// Transactions that are committed in memory and will be on flash at that instant.
    acks: FxHashMap<TxId, Nanos>,
    /// Blocks with pages that these commits made obsolete, and the last such instant of each.
    obsolete: FxHashMap<Pbn, Nanos>,
    /// Erases in flight: when each is done, and whose pages were in the block.
    erases: Vec<(Nanos, Vec<TxId>)>,
}

impl Waits {
    /// At `now` a commit was begun that will be durable at `ack` and made pages of these blocks
    /// obsolete.
    pub(in crate::commit) fn commit(
        &mut self,
        tx: TxId,
        now: Nanos,
        ack: Nanos,
        blocks: impl Iterator<Item = Pbn>,
    ) {
        self.acks.retain(|_, ends| *ends > now);
        self.acks.insert(tx, ack);
        self.obsolete.retain(|_, ends| *ends > now);
        self.erases.retain(|(ends, _)| *ends > now);
        for block in blocks {
            let ends = self.obsolete.entry(block).or_default();
            *ends = ack.max(*ends);
        }
    }

    /// When the commit of a transaction is durable. Its pages are not copied as committed before.
    pub(in crate::commit) fn ack_of(&self, tx: TxId) -> Nanos {
        self.acks.get(&tx).copied().unwrap_or_default()
    }

    /// The erase of a block was issued that held pages of these transactions; it will be done at
    /// `done`.
    pub(in crate::commit) fn erase(&mut self, done: Nanos, xids: Vec<TxId>) {
        self.erases.push((done, xids));
    }

    /// What the erase of a block waits for: the commits that made pages in it obsolete, and the
    /// erases in flight of other pages of the same transactions. A page whose erase did not land
    /// must find the chain above it unbroken.
    pub(in crate::commit) fn before_erase(&self, victim: Pbn, xids: &[TxId]) -> Nanos {
        let together = |erase: &&(Nanos, Vec<TxId>)| xids.iter().any(|xid| erase.1.contains(xid));
        let erases = self.erases.iter().filter(together).map(|erase| erase.0);
        let commits = self.obsolete.get(&victim).copied();
        erases.chain(commits).max().unwrap_or_default()
    }
}
