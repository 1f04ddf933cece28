//! What the collector has to wait for: commits whose acknowledgement lies ahead, and erases.

use crate::units::{Nanos, Pbn, TxId};
use rustc_hash::FxHashMap;

/// Commits, and erases, that are remembered one by one.
const COMMITS: usize = 4096;
const ERASES: usize = 64;

/// Instants that later steps must not come before. Steps are not in the order of their instants, so
/// nothing is forgotten because an instant has passed: there is a floor below which all is one.
#[derive(Debug, Default)]
pub(in crate::commit) struct Waits {
    /// What ends up to here is not remembered, and waited for by all.
    floor: Nanos,
    /// Transactions that are committed in memory and will be on flash at that instant.
    acks: FxHashMap<TxId, Nanos>,
    /// Blocks with pages that these commits made obsolete, and the last such instant of each.
    obsolete: FxHashMap<Pbn, Nanos>,
    /// When each erase in flight is done.
    erases: Vec<Nanos>,
    /// Transactions that had pages in these blocks, and when the last such erase is done.
    erased: FxHashMap<TxId, Nanos>,
}

impl Waits {
    /// A commit was begun that will be durable at `ack` and made pages of these blocks obsolete.
    pub(in crate::commit) fn commit(
        &mut self,
        tx: TxId,
        ack: Nanos,
        blocks: impl Iterator<Item = Pbn>,
    ) {
        self.acks.insert(tx, ack);
        for block in blocks {
            let ends = self.obsolete.entry(block).or_default();
            *ends = ack.max(*ends);
        }
        if self.acks.len() > COMMITS {
            let mut ends: Vec<Nanos> = self.acks.values().copied().collect();
            self.raise(*ends.select_nth_unstable(COMMITS / 2).1);
        }
    }

    fn raise(&mut self, floor: Nanos) {
        self.floor = floor.max(self.floor);
        self.acks.retain(|_, ends| *ends > floor);
        self.obsolete.retain(|_, ends| *ends > floor);
        self.erases.retain(|ends| *ends > floor);
        self.erased.retain(|_, ends| *ends > floor);
    }

    /// When the commit of a transaction is durable. Its pages are not copied as committed before.
    pub(in crate::commit) fn ack_of(&self, tx: TxId) -> Nanos {
        self.acks.get(&tx).copied().unwrap_or(self.floor)
    }

    /// The erase of a block was issued that held pages of these transactions; it will be done at
    /// `done`.
    pub(in crate::commit) fn erase(&mut self, done: Nanos, xids: Vec<TxId>) {
        self.erases.push(done);
        for xid in xids {
            let ends = self.erased.entry(xid).or_default();
            *ends = done.max(*ends);
        }
        if self.erases.len() > ERASES {
            let mut ends = self.erases.clone();
            self.raise(*ends.select_nth_unstable(ERASES / 2).1);
        }
    }

    /// What the erase of a block waits for: the commits that made pages in it obsolete, and the
    /// erases in flight of other pages of the same transactions. A page whose erase did not land
    /// must find the chain above it unbroken.
    pub(in crate::commit) fn before_erase(&self, victim: Pbn, xids: &[TxId]) -> Nanos {
        let erases = xids.iter().filter_map(|xid| self.erased.get(xid)).copied();
        let commits = self.obsolete.get(&victim).copied();
        erases
            .chain(commits)
            .max()
            .unwrap_or_default()
            .max(self.floor)
    }
}
