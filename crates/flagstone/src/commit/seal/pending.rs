//! Versions that recovery of SEAL found and that something elsewhere has to say about.
//!
//! After a bulk load they may be half of all pages, so that they are kept small: the pages of a
//! transaction lie side by side, and its name is kept once for each run of them.

use super::Mistake;
use super::recovery::Version;
use crate::ftl::Slot;
use crate::mistakes::Mistaken;
use crate::units::{Lpn, TxId};
use rustc_hash::FxHashMap;

/// Versions in the order of a scan, in runs of one transaction.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The transaction of each run, and where the run begins.
    begins: Vec<(TxId, usize)>,
    versions: Vec<Kept>,
}

/// A version, less the transaction that its run has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub(super) seq: u64,
    /// Pages of the transaction, if this is the last one.
    count: u32,
    pub(super) lpn: Lpn,
    /// A [`Slot`] as a word, which is half as large.
    slot: u32,
}

impl Kept {
    pub(super) fn slot(&self) -> Slot {
        Slot::decode(self.slot)
    }
}

impl Pending {
    pub(super) fn push(&mut self, version: &Version) {
        if self.begins.last().is_none_or(|&(tx, _)| tx != version.tx) {
            self.begins.push((version.tx, self.versions.len()));
        }
        self.versions.push(Kept {
            seq: version.seq,
            count: version.count,
            lpn: version.lpn,
            slot: version.slot.encode(),
        });
    }

    /// The transactions and their versions, a run at a time.
    pub(super) fn runs(&self) -> impl Iterator<Item = (TxId, &[Kept])> {
        let ends = self.begins.iter().skip(1).map(|&(_, begin)| begin);
        let ends = ends.chain([self.versions.len()]);
        let runs = self.begins.iter().zip(ends);
        runs.map(|(&(tx, begin), end)| (tx, &self.versions[begin..end]))
    }

    /// The places of those transactions for which `is_open` and all of whose pages are there.
    pub(super) fn whole(
        &self,
        is_open: impl Fn(TxId) -> bool,
        mistake: Mistaken<Mistake>,
    ) -> FxHashMap<TxId, u64> {
        let mut open: Vec<(TxId, &[Kept])> = self.runs().filter(|&(tx, _)| is_open(tx)).collect();
        open.sort_by_key(|&(tx, _)| tx);
        let mut whole = FxHashMap::default();
        let mut pages: Vec<(u64, u32)> = Vec::new();
        for runs in open.chunk_by(|a, b| a.0 == b.0) {
            pages.clear();
            let kept = runs.iter().flat_map(|&(_, run)| run);
            pages.extend(kept.map(|kept| (kept.seq, kept.count)));
            pages.sort_unstable();
            whole.extend(end_of(&pages, mistake).map(|cv| (runs[0].0, cv)));
        }
        whole
    }
}

/// The place of a transaction all of whose pages are there, by their write sequences and by what
/// they say of the number of its pages, in the order of the sequences. Copies have one sequence.
fn end_of(pages: &[(u64, u32)], mistake: Mistaken<Mistake>) -> Option<u64> {
    let last = pages.iter().find(|(_, count)| *count > 0);
    if mistake.is(Mistake::NotCounted) {
        return Some(last.unwrap_or(&pages[0]).0);
    }
    let &(seq, count) = last?;
    let different = match mistake.is(Mistake::CopiesCounted) {
        true => pages.len(),
        false => pages.chunk_by(|a, b| a.0 == b.0).count(),
    };
    let is_whole = different == count as usize;
    (is_whole || mistake.is(Mistake::LastPageCommits)).then_some(seq)
}
