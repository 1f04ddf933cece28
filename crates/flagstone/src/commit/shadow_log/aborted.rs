//! The transactions that did not commit although their pages are still on flash, and the bytes that
//! record this once their log records are gone.

use crate::commit::Field;
use crate::commit::roots::list;
use crate::commit::show::fields_of;
use crate::ftl::FtlError;
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Pbn, TxId};
use rustc_hash::FxHashMap;

layout! {
    /// The head of what a compaction leaves of the log. Gaps between the listed XIDs follow, in
    /// ascending order, seven bits a byte, the low ones first, the top bit set in all but the last.
    pub compacted: 10 => {
        WATERMARK: 6, "XIDs up to this one have committed, unless listed; later ones need a record";
        COUNT:     4, "XIDs listed: live or aborted, with pages on flash";
    }
}

/// Aborted transactions with pages on flash: number of pages, and their blocks.
#[derive(Debug, Clone, Default)]
pub(super) struct Aborted {
    pages: FxHashMap<TxId, u32>,
    in_block: FxHashMap<Pbn, Vec<TxId>>,
    entries: usize,
}

impl Aborted {
    /// Records a page of an aborted transaction in a block.
    pub(super) fn add(&mut self, tx: TxId, block: Pbn) {
        *self.pages.entry(tx).or_default() += 1;
        self.in_block.entry(block).or_default().push(tx);
        self.entries += 1;
    }

    /// Records the erase of a block. Transactions without pages are dropped.
    pub(super) fn erased(&mut self, block: Pbn) {
        for tx in self.in_block.remove(&block).unwrap_or_default() {
            self.entries -= 1;
            let left = self
                .pages
                .get_mut(&tx)
                .expect("each entry of a block counts");
            *left -= 1;
            if *left == 0 {
                self.pages.remove(&tx);
            }
        }
    }

    pub(super) fn contains(&self, tx: TxId) -> bool {
        self.pages.contains_key(&tx)
    }

    /// All of them, in unspecified order.
    pub(super) fn ids(&self) -> impl Iterator<Item = TxId> + '_ {
        self.pages.keys().copied()
    }

    /// Blocks with pages of aborted transactions, those with the most first.
    pub(super) fn blocks(&self) -> Vec<Pbn> {
        let mut blocks: Vec<(usize, Pbn)> = self
            .in_block
            .iter()
            .map(|(&block, pages)| (pages.len(), block))
            .collect();
        blocks.sort_by_key(|&(pages, block)| (std::cmp::Reverse(pages), block));
        blocks.into_iter().map(|(_, block)| block).collect()
    }

    pub(super) fn memory(&self) -> u64 {
        super::super::table_bytes::<TxId, u32>(self.pages.capacity())
            + super::super::table_bytes::<Pbn, Vec<TxId>>(self.in_block.capacity())
            + (self.entries * size_of::<TxId>()) as u64
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let mut counted: FxHashMap<TxId, u32> = FxHashMap::default();
        for &tx in self.in_block.values().flatten() {
            *counted.entry(tx).or_default() += 1;
        }
        if counted == self.pages {
            Ok(())
        } else {
            Err("aborted pages by block and by transaction do not agree".into())
        }
    }
}

/// What a compaction keeps of the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Watermark {
    /// Transactions up to this one have committed, unless they are listed.
    pub(super) last: u64,
    /// The listed transactions, which are live or aborted, ascending.
    pub(super) losers: Vec<u64>,
}

impl Watermark {
    /// Whether a transaction had committed by then.
    pub(super) fn counts(&self, tx: TxId) -> bool {
        tx.0 <= self.last && self.losers.binary_search(&tx.0).is_err()
    }

    /// Encodes the watermark: the head, then the gaps between the listed transactions.
    pub(super) fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; compacted::SIZE];
        put(&mut bytes, compacted::WATERMARK, self.last);
        put(&mut bytes, compacted::COUNT, self.losers.len() as u64);
        let mut previous = 0;
        for &tx in &self.losers {
            let mut gap = tx - previous;
            previous = tx;
            while gap >= 0x80 {
                bytes.push(gap as u8 | 0x80);
                gap >>= 7;
            }
            bytes.push(gap as u8);
        }
        bytes
    }

    /// Decodes a watermark. Empty bytes: the log was never compacted.
    pub(super) fn parse(bytes: &[u8]) -> Result<Watermark, FtlError> {
        if bytes.is_empty() {
            return Ok(Watermark::default());
        }
        let foreign = || FtlError::Foreign("a compacted log that ends early".into());
        let (head, mut rest) = bytes
            .split_at_checked(compacted::SIZE)
            .ok_or_else(foreign)?;
        let (mut losers, mut tx) = (Vec::new(), 0u64);
        for _ in 0..get(head, compacted::COUNT) {
            let mut shift = 0;
            loop {
                let (&byte, after) = rest.split_first().ok_or_else(foreign)?;
                rest = after;
                // Identifiers have 48 bits: a gap has at most seven bytes.
                if shift > 42 {
                    return Err(foreign());
                }
                let gap = u64::from(byte & 0x7f) << shift;
                tx = tx.checked_add(gap).ok_or_else(foreign)?;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            losers.push(tx);
        }
        let last = get(head, compacted::WATERMARK);
        Ok(Watermark { last, losers })
    }
}

/// The contents of a compaction, in fields.
pub(super) fn fields(blob: &[u8]) -> Vec<Vec<Field>> {
    let losers = Watermark::parse(blob).unwrap_or_default().losers;
    let meaning = "a transaction that does not count, with pages on flash";
    vec![
        fields_of(&[compacted::RECORD], blob),
        list("XID", meaning, 6, losers.into_iter()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compacted_log_has_these_bytes() {
        let mark = Watermark {
            last: 0x0201,
            losers: vec![3, 4, 0x104],
        };
        let bytes = mark.emit();
        assert_eq!(bytes, [1, 2, 0, 0, 0, 0, 3, 0, 0, 0, 3, 1, 0x80, 2]);
        assert_eq!(Watermark::parse(&bytes), Ok(mark.clone()));
        assert!(mark.counts(TxId(5)) && mark.counts(TxId(0x201)));
        assert!(!mark.counts(TxId(4)) && !mark.counts(TxId(0x202)));
        assert_eq!(Watermark::parse(&[]), Ok(Watermark::default()));
        assert!(Watermark::parse(&bytes[..13]).is_err());
        assert!(Watermark::parse(&bytes[..4]).is_err());
    }

    #[test]
    fn an_aborted_transaction_is_forgotten_with_its_last_page() {
        let mut aborted = Aborted::default();
        for (tx, block) in [(7, 1), (7, 1), (7, 2), (9, 2), (9, 2), (9, 2)] {
            aborted.add(TxId(tx), Pbn(block));
        }
        assert_eq!(aborted.blocks(), [Pbn(2), Pbn(1)]);
        aborted.erased(Pbn(2));
        assert!(aborted.contains(TxId(7)) && !aborted.contains(TxId(9)));
        aborted.check().unwrap();
        aborted.erased(Pbn(1));
        assert_eq!(aborted.ids().count(), 0);
    }
}
