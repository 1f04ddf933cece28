//! The evidence that a transaction has committed, kept while one of its pages needs it.
//!
//! A page with a verdict in the summary of its block needs nothing else. A page in an *undecided*
//! block, without a verdict, counts by other evidence: all counted pages of the transaction are in
//! undecided blocks, or the summary of another block (the *witness*) has a verdict, or a root lists
//! the transaction.
//!
//! Rule E: before a block is erased, a root must list each transaction that has pages in other
//! undecided blocks and loses its evidence with the block: its witness, or a counted page.

use super::listed;
use crate::commit::table_bytes;
use crate::ftl::{BlockState, Ftl};
use crate::layout::put;
use crate::units::{Nanos, Pbn, TxId};
use rustc_hash::FxHashMap;

/// The evidence that a transaction has committed, other than the count of its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Witness {
    /// None: its pages are counted.
    None,
    /// The summary of this block.
    Block(Pbn),
    /// The root.
    Root,
}

/// A committed transaction with pages in undecided blocks.
#[derive(Debug, Clone)]
pub(super) struct Undecided {
    /// The transaction's place in the commit order.
    pub(super) cv: u64,
    /// When its pages are durable.
    pub(super) durable: Nanos,
    pub(super) blocks: Vec<Pbn>,
    pub(super) witness: Witness,
}

/// The committed transactions that need evidence.
#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    open: FxHashMap<TxId, Undecided>,
    /// By block: the transactions for which it is undecided or the witness.
    by_block: FxHashMap<Pbn, Vec<TxId>>,
    /// When all transactions that stopped needing evidence are durable.
    decided_at: Nanos,
}

impl Evidence {
    /// The table rebuilt by recovery.
    pub(super) fn found(open: impl Iterator<Item = (TxId, Undecided)>) -> Evidence {
        let mut evidence = Evidence::default();
        for (tx, found) in open {
            for &block in &found.blocks {
                evidence.note(block, tx);
            }
            if let Witness::Block(block) = found.witness
                && !found.blocks.contains(&block)
            {
                evidence.note(block, tx);
            }
            evidence.open.insert(tx, found);
        }
        evidence
    }

    /// Records the commit of a transaction of several pages. No block has a verdict for it yet.
    pub(super) fn committed(&mut self, tx: TxId, committed: Undecided) {
        for &block in &committed.blocks {
            self.note(block, tx);
        }
        self.open.insert(tx, committed);
    }

    /// The transactions that need evidence, by identifier.
    pub(super) fn all(&self) -> Vec<(TxId, &Undecided)> {
        let mut all: Vec<_> = self.open.iter().map(|(&tx, open)| (tx, open)).collect();
        all.sort_unstable_by_key(|&(tx, _)| tx);
        all
    }

    fn note(&mut self, block: Pbn, tx: TxId) {
        self.by_block.entry(block).or_default().push(tx);
    }

    fn forget(&mut self, block: Pbn, tx: TxId) {
        if let Some(all) = self.by_block.get_mut(&block) {
            all.retain(|&other| other != tx);
            if all.is_empty() {
                self.by_block.remove(&block);
            }
        }
    }

    /// The place of a transaction that needs evidence, if its pages are durable at `now`.
    #[inline]
    pub(super) fn place(&self, tx: TxId, now: Nanos) -> Option<u64> {
        let open = self.open.get(&tx)?;
        (open.durable <= now).then_some(open.cv)
    }

    /// Whether a transaction is published but not durable at `now`.
    #[inline]
    pub(super) fn is_awaited(&self, tx: TxId, now: Nanos) -> bool {
        self.open.get(&tx).is_some_and(|open| open.durable > now)
    }

    /// Whether a transaction needs evidence for its pages in a block.
    pub(super) fn is_undecided(&self, tx: TxId, block: Pbn) -> bool {
        self.open
            .get(&tx)
            .is_some_and(|open| open.blocks.contains(&block))
    }

    /// Whether the count of its pages is the only evidence for a transaction.
    pub(super) fn is_counted(&self, tx: TxId) -> bool {
        self.open
            .get(&tx)
            .is_some_and(|open| open.witness == Witness::None)
    }

    /// Records that a page of a transaction was copied unchanged into a block. Returns when the
    /// transaction is durable, if it needs evidence.
    pub(super) fn copied(&mut self, tx: TxId, block: Pbn) -> Option<Nanos> {
        let open = self.open.get_mut(&tx)?;
        let durable = open.durable;
        if !open.blocks.contains(&block) {
            open.blocks.push(block);
            if open.witness != Witness::Block(block) {
                self.note(block, tx);
            }
        }
        Some(durable)
    }

    /// Records that the summary of a block has a verdict for a transaction.
    pub(super) fn said(&mut self, tx: TxId, block: Pbn) {
        let Some(open) = self.open.get_mut(&tx) else {
            return;
        };
        let was_undecided = open.blocks.contains(&block);
        open.blocks.retain(|&other| other != block);
        let was = open.witness;
        if open.blocks.is_empty() {
            self.close(tx);
            self.forget(block, tx);
        } else if was == Witness::Root {
            // The summary would suffice as well, since it is durable before the next root is
            // issued. But a listed transaction requires no other root when this block is erased.
            self.forget(block, tx);
            return;
        } else {
            open.witness = Witness::Block(block);
            // The block may hold only versions that the transaction has overwritten itself.
            if !was_undecided {
                self.note(block, tx);
            }
        }
        if let Witness::Block(old) = was {
            self.forget_witness(tx, old);
        }
    }

    /// Removes a transaction that needs no evidence any more.
    fn close(&mut self, tx: TxId) -> Undecided {
        let gone = self.open.remove(&tx).expect("it is there");
        self.decided_at = self.decided_at.max(gone.durable);
        gone
    }

    /// The earliest instant at which a page may be copied as one that counts by itself. The summary
    /// or erase that decided its transaction may have a later time than the copy, and the
    /// transaction is no longer recorded here.
    pub(super) fn copies_from(&self, now: Nanos) -> Nanos {
        now.max(self.decided_at)
    }

    /// Removes a block as the witness of a transaction.
    fn forget_witness(&mut self, tx: TxId, block: Pbn) {
        let is_undecided = |open: &Undecided| open.blocks.contains(&block);
        if !self.open.get(&tx).is_some_and(is_undecided) {
            self.forget(block, tx);
        }
    }

    /// The amount of undecided state: the number of blocks that need evidence from elsewhere or are
    /// such evidence, but at most the number of transactions. A transaction that fills many blocks
    /// takes only one entry of a root.
    #[inline]
    pub(super) fn piled_up(&self) -> usize {
        self.by_block.len().min(self.open.len())
    }

    /// An undecided block to collect: one without live pages whose erase requires no root;
    /// otherwise one of the transaction that committed first.
    pub(super) fn oldest(&self, ftl: &Ftl) -> Option<Pbn> {
        let blocks = self.by_block.keys().copied();
        let is_empty =
            |&block: &Pbn| ftl.blocks.is_candidate(block) && ftl.blocks.live_in(block) == 0;
        let mut empty: Vec<Pbn> = blocks.filter(is_empty).collect();
        empty.sort_unstable();
        let costs_nothing = |&block: &Pbn| self.lost_with(ftl, block).0.is_empty();
        if let Some(block) = empty.into_iter().find(costs_nothing) {
            return Some(block);
        }
        let collectable = |open: &Undecided| {
            let blocks = open.blocks.iter().copied();
            blocks.filter(|&block| ftl.blocks.is_candidate(block)).min()
        };
        let each = self.open.values();
        let oldest = each.filter_map(|open| Some((open.cv, collectable(open)?)));
        oldest.min().map(|(_, block)| block)
    }

    /// The transactions that must be listed before a block is erased, and those that a root lists
    /// already and that still need it, each by identifier.
    pub(super) fn lost_with(&self, ftl: &Ftl, victim: Pbn) -> (Vec<TxId>, Vec<TxId>) {
        let Some(concerned) = self.by_block.get(&victim) else {
            return (Vec::new(), Vec::new());
        };
        let mut lists: Vec<TxId> = concerned
            .iter()
            .copied()
            .filter(|tx| {
                let open = &self.open[tx];
                let is_lost = match open.witness {
                    Witness::None => true,
                    Witness::Block(witness) => witness == victim,
                    Witness::Root => false,
                };
                is_lost && has_live_pages(ftl, open, victim)
            })
            .collect();
        if lists.is_empty() {
            return (lists, Vec::new());
        }
        lists.sort_unstable();
        let listed = self
            .open
            .iter()
            .filter(|(_, open)| open.witness == Witness::Root);
        (lists, listed.map(|(&tx, _)| tx).collect())
    }

    /// The contents of a root that lists these transactions.
    pub(super) fn listing(&self, mut all: Vec<TxId>) -> Vec<u8> {
        all.sort_unstable();
        let mut blob = vec![0; all.len() * listed::SIZE];
        for (tx, entry) in all.into_iter().zip(blob.chunks_exact_mut(listed::SIZE)) {
            put(entry, listed::XID, tx.0);
            put(entry, listed::CV, self.open[&tx].cv);
        }
        blob
    }

    /// Records that a root lists these transactions.
    pub(super) fn list(&mut self, all: &[TxId]) {
        for &tx in all {
            let open = self
                .open
                .get_mut(&tx)
                .expect("it was listed because it needs that");
            if let Witness::Block(old) = std::mem::replace(&mut open.witness, Witness::Root) {
                self.forget_witness(tx, old);
            }
        }
    }

    /// Records that a block was erased, or is no longer read.
    pub(super) fn erased(&mut self, ftl: &Ftl, victim: Pbn) {
        for tx in self.by_block.remove(&victim).unwrap_or_default() {
            let open = self
                .open
                .get_mut(&tx)
                .expect("the tables mirror each other");
            open.blocks.retain(|&block| block != victim);
            // By rule E no page needs this witness any more, and the transaction is dropped here.
            // Exceptions: controls that leave the rule out, and worn-out blocks that were erased
            // long before this call.
            if open.witness == Witness::Block(victim) {
                open.witness = Witness::None;
            }
            if !has_live_pages(ftl, open, victim) {
                let gone = self.close(tx);
                gone.blocks.iter().for_each(|&block| self.forget(block, tx));
                if let Witness::Block(block) = gone.witness {
                    self.forget(block, tx);
                }
            }
        }
    }

    /// Memory in bytes.
    pub(super) fn memory(&self) -> u64 {
        let blocks = self.open.values().map(|open| open.blocks.len());
        let blocks = blocks.sum::<usize>() * size_of::<Pbn>();
        let lists = self.by_block.values().map(Vec::len);
        let lists = lists.sum::<usize>() * size_of::<TxId>();
        table_bytes::<TxId, Undecided>(self.open.len())
            + table_bytes::<Pbn, Vec<TxId>>(self.by_block.len())
            + (blocks + lists) as u64
    }

    /// Checks that both tables agree, and that undecided blocks are not empty.
    pub(super) fn check(&self, ftl: &Ftl) -> Result<(), String> {
        let mut noted: usize = self.by_block.values().map(Vec::len).sum();
        for (tx, open) in &self.open {
            let witness = match open.witness {
                Witness::Block(block) if !open.blocks.contains(&block) => Some(block),
                _ => None,
            };
            for block in open.blocks.iter().copied().chain(witness) {
                let there = self
                    .by_block
                    .get(&block)
                    .map_or(0, |all| all.iter().filter(|&other| other == tx).count());
                if there != 1 {
                    return Err(format!("block {block} notes {tx} {there} times"));
                }
                let state = ftl.blocks.state(block);
                // A restart reads a block out of service until a root leaves it out.
                let is_gone = state == BlockState::Bad && !ftl.owes_a_collection();
                if is_gone || matches!(state, BlockState::Free | BlockState::Meta) {
                    return Err(format!("{tx} has evidence in block {block}, {state:?}"));
                }
                noted -= 1;
            }
            if open.blocks.is_empty() {
                return Err(format!("{tx} needs no evidence and is not forgotten"));
            }
        }
        match noted {
            0 => Ok(()),
            _ => Err(format!(
                "blocks note {noted} transactions that do not need them"
            )),
        }
    }
}

/// Whether a transaction has pages that may be read in undecided blocks other than `victim`.
fn has_live_pages(ftl: &Ftl, open: &Undecided, victim: Pbn) -> bool {
    let mut others = open.blocks.iter().filter(|&&block| block != victim);
    others.any(|&block| ftl.blocks.live_in(block) > 0)
}
