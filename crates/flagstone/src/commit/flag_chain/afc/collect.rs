//! AFC, garbage collection ([FlagCommit] §3.2): what becomes of the parts of aborted transactions.
//!
//! ```text
//! page of the victim          what happens to it    what happens outside of the victim
//! live, committed             copied, flag TRUE     -
//! dead, committed             reclaimed             -
//! of an aborted transaction   reclaimed             each part that is left has a FALSE page first
//! of one in progress          its block is pinned: no victim
//! ```

use super::{Afc, TRUE, TxRow, Unit};
use crate::commit::flag_chain::{Link, Shadow, Tail};
use crate::ftl::{Ftl, FtlError, Moving, Owner, Relocation, Victim, Written};
use crate::units::{Nanos, Pbn, Ppn, TxId};

/// State of the collector about its victim.
#[derive(Clone, Default)]
pub(super) struct Collector {
    pages: Vec<Shadow>,
    /// When the flags that were set are done, and the pages of their transactions.
    flagged: Nanos,
}

impl Owner for Afc {
    fn prepare(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        let (pages, now) = self.tables.of_victim(ftl, now, victim)?;
        // Flags of a collection that found no room may still be in flight, and count.
        let flagged = now.max(self.collector.flagged);
        self.collector = Collector { pages, flagged };
        for xid in self.aborted_here() {
            if let Some(TxRow::Aborted(chain)) = self.table.get(&xid)
                && !self.tables.as_published
            {
                self.collector.flagged = self.collector.flagged.max(chain.written); // D5
            }
            for unit in self.without_flag(xid, victim) {
                let done = self.flag_part(ftl, now, unit.at)?;
                self.collector.flagged = self.collector.flagged.max(done);
                self.note_false(xid, unit);
            }
        }
        Ok(now)
    }

    /// The flags that were set stay noted ([`Afc::note_false`]).
    fn lets_wait(&self) -> bool {
        true
    }

    /// If each flag needs a carrier page, an erase that splits a chain into many parts can cost
    /// more pages than it frees. It becomes cheaper once the blocks with the ends of the chain are
    /// collected.
    fn is_worth(&self, ftl: &Ftl, victim: Pbn) -> bool {
        if self.tables.geometry.can_reprogram() {
            return true;
        }
        let flags: usize = self
            .aborted_in(victim)
            .map(|xid| self.without_flag(xid, victim).len())
            .sum();
        let written = ftl.blocks.live_in(victim) as usize + flags;
        flags == 0 || written < ftl.data_pages_per_block() as usize
    }

    fn relocate(&mut self, _: &Ftl, _: &Moving<'_>, tail: &mut [u8]) -> Relocation {
        let mut says = Tail::parse(tail);
        if !self.table.contains_key(&says.xid) {
            says.flag = TRUE;
        }
        says.emit(tail);
        Relocation::Renew
    }

    fn relocated(&mut self, ftl: &mut Ftl, page: &Moving<'_>, to: Written) {
        self.tables.relocated(ftl, page, to.at);
        if self.tables.as_published {
            self.moved_in_progress(page.from, to.into()); // D3
        }
    }

    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, of: Victim) -> Result<Nanos, FtlError> {
        let Collector { pages, flagged } = &self.collector;
        self.tables
            .before_erase(ftl, now, *flagged, of.block, pages) // D5
    }

    fn erased(&mut self, ftl: &mut Ftl, victim: Pbn, done: Nanos) {
        self.tables
            .waits
            .erase(done, Shadow::xids(&self.collector.pages));
        for xid in self.aborted_here() {
            let Some(TxRow::Aborted(chain)) = self.table.get_mut(&xid) else {
                unreachable!("an aborted transaction has such a row");
            };
            let geometry = self.tables.geometry;
            chain.forget(|at| geometry.block_of(at) == victim);
            if chain.units.is_empty() {
                self.table.remove(&xid);
            }
        }
        for page in std::mem::take(&mut self.collector).pages {
            self.tables.carriers.leave(ftl, page.at);
        }
    }
}

impl Afc {
    /// Aborted transactions with pages in the victim, without duplicates.
    fn aborted_here(&self) -> Vec<TxId> {
        let mut xids: Vec<TxId> = Vec::new();
        for page in &self.collector.pages {
            let xid = page.tail.xid;
            if !xids.contains(&xid) && matches!(self.table.get(&xid), Some(TxRow::Aborted(_))) {
                xids.push(xid);
            }
        }
        xids
    }

    /// Aborted transactions with units in a block, according to the table.
    fn aborted_in(&self, block: Pbn) -> impl Iterator<Item = TxId> + '_ {
        let here = move |unit: &Unit| self.tables.geometry.block_of(unit.page.at) == block;
        let aborted = self.table.iter().filter_map(|(&xid, row)| match row {
            TxRow::Aborted(chain) => Some((xid, chain)),
            TxRow::InProgress(_) => None,
        });
        aborted
            .filter(move |(_, chain)| chain.units.iter().any(here))
            .map(|(xid, _)| xid)
    }

    /// The pages of an aborted transaction that must be flagged FALSE: the newest page of each part
    /// that the erase of the victim leaves without a FALSE page.
    fn without_flag(&self, xid: TxId, victim: Pbn) -> Vec<Link> {
        let geometry = self.tables.geometry;
        let Some(TxRow::Aborted(chain)) = self.table.get(&xid) else {
            return Vec::new();
        };
        let last = chain.units.len() - 1;
        let parts = chain.parts(|at| geometry.block_of(at) == victim, self.places());
        let mut flags = Vec::new();
        for part in parts {
            let newest = *part.last().expect("a part has units");
            // D5
            let wanted = !self.tables.as_published || newest == last;
            if wanted && !part.iter().any(|&unit| chain.units[unit].is_false) {
                flags.push(chain.units[newest].page);
            }
        }
        flags
    }

    /// Records that a page of an aborted transaction has become FALSE.
    fn note_false(&mut self, xid: TxId, page: Link) {
        if let Some(TxRow::Aborted(chain)) = self.table.get_mut(&xid)
            && let Some(unit) = chain.units.iter_mut().find(|unit| unit.page == page)
        {
            unit.is_false = true;
        }
    }

    /// As published: pages in progress are moved, and the transaction continues with the copy.
    fn moved_in_progress(&mut self, from: Ppn, to: Link) {
        let page = self.collector.pages.iter().find(|page| page.at == from);
        let Some(TxRow::InProgress(open)) =
            page.and_then(|page| self.table.get_mut(&page.tail.xid))
        else {
            return;
        };
        for unit in &mut open.chain.units {
            if unit.page.at == from {
                unit.page = to;
            }
        }
    }
}
