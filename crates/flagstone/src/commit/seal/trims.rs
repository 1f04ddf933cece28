//! The trims of a live transaction, listed many to a page.
//!
//! A list counts as one page of the transaction. It is programmed when it is full, or as the last
//! page. A version that the transaction had written before it trimmed the page is not replaced by a
//! version of that page: it stays and is counted until the transaction ends.

use super::Seal;
use super::own::{Last, program_list};
use crate::commit::{Taken, table_bytes};
use crate::ftl::{Ftl, FtlError, trim_list, trim_width, trims_page};
use crate::units::{Lpn, Nanos, Ppn, TxId};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// A list on flash.
#[derive(Debug, Clone)]
pub(super) struct List {
    pub(super) at: Ppn,
    pub(super) seq: u64,
    named: Vec<Lpn>,
}

/// The trims of a live transaction.
#[derive(Debug, Clone, Default)]
pub(super) struct Trims {
    /// Trimmed pages that are not listed yet.
    waiting: BTreeSet<Lpn>,
    /// Their size in a list in bytes.
    bytes: usize,
    /// Listed pages that were not written since, with the index of their list.
    listed: FxHashMap<Lpn, u32>,
    pub(super) lists: Vec<List>,
}

impl Trims {
    /// Trims a page.
    pub(super) fn add(&mut self, at: Lpn) {
        self.listed.remove(&at);
        if !self.waiting.contains(&at) {
            let (with, without) = self.widths(at);
            self.bytes += with - without;
            self.waiting.insert(at);
        }
    }

    /// Removes the trim of a page that is written.
    #[inline]
    pub(super) fn forget(&mut self, at: Lpn) {
        if self.waiting.remove(&at) {
            let (with, without) = self.widths(at);
            self.bytes -= with - without;
        }
        if !self.listed.is_empty() {
            self.listed.remove(&at);
        }
    }

    /// The number of bytes of the next number in a list, with this number before it, and without.
    fn widths(&self, at: Lpn) -> (usize, usize) {
        let before = self.waiting.range(..at).next_back().copied();
        let behind = Lpn(at.0.saturating_add(1));
        let next = self.waiting.range(behind..).next().copied();
        let with = next.map_or(0, |next| trim_width(Some(at), next));
        let without = next.map_or(0, |next| trim_width(before, next));
        (trim_width(before, at) + with, without)
    }

    /// Whether a page is trimmed.
    #[inline]
    pub(super) fn has(&self, at: Lpn) -> bool {
        let is_in = |all: usize, is: &dyn Fn() -> bool| all > 0 && is();
        is_in(self.waiting.len(), &|| self.waiting.contains(&at))
            || is_in(self.listed.len(), &|| self.listed.contains_key(&at))
    }

    /// Number of unlisted trims.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a list must be programmed before this page can be added.
    pub(super) fn is_full(&self, most: usize, bytes: usize, at: Lpn) -> bool {
        let grows = || {
            let (with, without) = self.widths(at);
            self.waiting.len() >= most || self.bytes + with - without > bytes
        };
        !self.waiting.contains(&at) && grows()
    }

    /// The unlisted trims, in ascending order.
    pub(super) fn next(&self) -> Vec<Lpn> {
        self.waiting.iter().copied().collect()
    }

    /// Takes the only unlisted trim, which gets its own page.
    pub(super) fn take_only(&mut self) -> Option<Lpn> {
        let only = self.waiting.first().copied();
        only.filter(|_| self.waiting.len() == 1)
            .inspect(|&at| self.forget(at))
    }

    /// Records a programmed list. Its trims remain unlisted for now.
    pub(super) fn is_on_flash(&mut self, at: Ppn, seq: u64, named: Vec<Lpn>) {
        self.lists.push(List { at, seq, named });
    }

    /// Marks all trims as listed: the last programmed list has the rest.
    pub(super) fn are_listed(&mut self) {
        let list = self.lists.len() as u32 - 1;
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        self.listed.extend(waiting.map(|at| (at, list)));
        self.bytes = 0;
    }

    /// Updates a list that the collector has moved. Returns `false` if the transaction does not
    /// have it.
    pub(super) fn follow(&mut self, from: Ppn, to: Ppn) -> bool {
        let list = self.lists.iter_mut().find(|list| list.at == from);
        list.map(|list| list.at = to).is_some()
    }

    /// Maps the trimmed pages to the lists. Kills lists that name nothing any more.
    pub(super) fn publish(&self, ftl: &mut Ftl) {
        for (index, list) in (0..).zip(&self.lists) {
            let named = list.named.iter().copied();
            let says = |at: &Lpn| self.listed.get(at) == Some(&index);
            ftl.map_trims(list.at, named.filter(says));
        }
    }

    /// For a control: kills the lists although they hide older versions.
    pub(super) fn drop_at_once(&self, ftl: &mut Ftl) {
        self.listed.keys().for_each(|&at| ftl.forget_trimmed(at));
    }

    /// Kills the lists.
    pub(super) fn discard(&self, ftl: &mut Ftl) {
        self.lists.iter().for_each(|list| ftl.kill(list.at));
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.bytes = 0;
        self.listed.clear();
        self.lists.clear();
    }

    /// Checks that every list is live on flash, and that `bytes` is the size of the unlisted trims.
    pub(super) fn check(&self, ftl: &Ftl, tx: TxId) -> Result<(), String> {
        let lost = self.lists.iter().find(|list| !ftl.blocks.is_live(list.at));
        if let Some(list) = lost {
            return Err(format!("list {} of {tx} is not live", list.at));
        }
        let bytes = trims_page(&self.next()).len() - trim_list::SIZE;
        if bytes == self.bytes {
            Ok(())
        } else {
            Err(format!(
                "trims of {tx} take {bytes} bytes, not {}",
                self.bytes
            ))
        }
    }

    /// Memory in bytes.
    pub(super) fn memory(&self) -> u64 {
        let named: usize = self.lists.iter().map(|list| list.named.len()).sum();
        table_bytes::<Lpn, ()>(self.waiting.len())
            + table_bytes::<Lpn, u32>(self.listed.len())
            + (named * size_of::<Lpn>() + self.lists.len() * size_of::<List>()) as u64
    }
}

impl Seal {
    /// Trims a page. Programs the waiting list if it is full.
    pub(super) fn trim(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        at: Lpn,
    ) -> Result<Taken, FtlError> {
        let mut taken = Taken::at(now);
        let active = self.live.open(tx);
        let is_full = active.trims.is_full(self.trims, ftl.trim_bytes(), at);
        if is_full {
            taken.done = program_list(ftl, now, tx, active, Last::NOT, &mut self.waiting)?.done;
            active.trims.are_listed();
        } else {
            // A trim that waits for its list uses no page of a block.
            self.requests = self.requests.saturating_sub(1);
        }
        // The held-back version of the page was never programmed.
        active.held.clear_if(at);
        active.trims.add(at);
        if is_full {
            self.seal_due(ftl, now)?;
        }
        Ok(taken)
    }
}
