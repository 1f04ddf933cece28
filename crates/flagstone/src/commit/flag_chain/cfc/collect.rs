//! CFC, garbage collection ([FlagCommit] §3.1.2, §3.4): what becomes of the links and flags of a
//! victim's pages.
//!
//! ```text
//! page of the victim                  what happens to it      its link to a unit outside
//! live, committed                     copied, flag TRUE       goes with a copy
//! live, in progress                   copied, flag FALSE      goes with a copy
//! dead, committed                     reclaimed (cases 1, 2)  the unit is flagged TRUE
//! dead, in progress (written again)   reclaimed               the unit becomes a head
//! aborted                             reclaimed               -
//! ```
//!
//! With block flags the links of a transaction's pages in the victim are its cluster's, and the
//! first copy that starts a cluster elsewhere takes one. A copy that joins a cluster takes none:
//! links would close a ring.

use super::{Cfc, FALSE, State, TRUE};
use crate::commit::flag_chain::{Link, Shadow, Tail, follow};
use crate::ftl::{
    BlockState, Cause, Ftl, FtlError, Moving, Owner, Relocation, Stream, Victim, Written,
};
use crate::units::{Nanos, Pbn, Ppn, TxId};
use rustc_hash::FxHashMap;

/// State of the collector between its steps.
#[derive(Clone, Default)]
pub(super) struct Collector {
    victim: Option<Work>,
    /// With block flags: the transactions with copies in each block that receives copies.
    copies: FxHashMap<Pbn, Vec<TxId>>,
    /// When the flags of collections that found no room are done.
    flagged: Nanos,
}

/// The block that is being collected.
#[derive(Clone)]
struct Work {
    block: Pbn,
    pages: Vec<Shadow>,
    links: Vec<Outward>,
    /// Units of transactions in progress that become heads when the victim is erased.
    exposed: Vec<(TxId, Link)>,
    /// When the flags that were set are done.
    flagged: Nanos,
}

/// A link from the victim to another block.
#[derive(Clone)]
struct Outward {
    xid: TxId,
    /// Where the link starts: a page, or all pages of the transaction in this block.
    from: Option<Ppn>,
    link: Link,
    ended: bool,
}

/// The place of a copy in the chain of its transaction.
struct InChain {
    /// The link out of the victim that the copy takes.
    takes: Option<usize>,
    /// Whether the copy joins a cluster, if that matters.
    joins: bool,
}

impl Owner for Cfc {
    fn prepare(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        let (pages, now) = self.tables.of_victim(ftl, now, victim)?;
        let copies = &mut self.collector.copies;
        copies.retain(|&block, _| ftl.blocks.state(block) == BlockState::Open);
        let mut work = Work {
            block: victim,
            links: self.outward(&pages, victim),
            pages,
            exposed: Vec::new(),
            flagged: now.max(self.collector.flagged),
        };
        if work.links.is_empty() {
            self.collector.victim = Some(work);
            return Ok(now);
        }
        // No copy will take over the links of units without a live page.
        let kept: Vec<(TxId, Ppn)> = work
            .pages
            .iter()
            .filter(|page| ftl.blocks.is_live(page.at))
            .map(|page| (page.tail.xid, page.at))
            .collect();
        let hopeless = |out: &Outward| {
            !kept
                .iter()
                .any(|&(xid, at)| xid == out.xid && out.from.is_none_or(|from| from == at))
        };
        self.end_links(ftl, now, &mut work, hopeless)?;
        self.collector.victim = Some(work);
        Ok(now)
    }

    /// The flags that were set stay. A carrier is written again, and then replaces the first.
    fn lets_wait(&self) -> bool {
        true
    }

    fn relocate(&mut self, _: &Ftl, _: &Moving<'_>, _: &mut [u8]) -> Relocation {
        Relocation::Renew
    }

    fn place(&self, page: &Moving<'_>, to: Ppn, tail: &mut [u8]) {
        let mut says = Tail::parse(tail);
        let committed = !self.table.contains_key(&says.xid);
        says.flag = if committed { TRUE } else { FALSE };
        let takes = self.place_in_chain(page, to).takes;
        says.link = takes.map(|index| self.work().links[index].link);
        says.emit(tail);
    }

    fn relocated(&mut self, ftl: &mut Ftl, page: &Moving<'_>, to: Written) {
        let InChain { takes, joins } = self.place_in_chain(page, to.at);
        self.tables.relocated(ftl, page, to.at);
        let block = self.tables.geometry.block_of(to.at);
        let block_flags = self.tables.block_flags;
        if let Some(index) = takes {
            let work = self.collector.victim.as_mut().expect("prepared");
            work.links[index].ended = true;
        }
        let (from, xid) = (page.from, Tail::parse(page.tail).xid);
        self.note_copy(block, xid);
        let Some(row) = self.table.get_mut(&xid) else {
            return;
        };
        row.pages += 1;
        match &mut row.state {
            State::InProgress(open) => {
                open.safe_at = open.safe_at.max(to.done);
                if let Some(half) = &mut open.half {
                    half.mixed.moved(from, to.at);
                }
                if !joins {
                    open.heads.push(to.into());
                }
                if block_flags {
                    open.note_cluster(block, to.into());
                }
            }
            State::Aborted(Some(mixed)) => mixed.moved(from, to.at),
            State::Aborted(None) => {}
        }
    }

    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, of: Victim) -> Result<Nanos, FtlError> {
        let mut work = self.collector.victim.take().expect("prepared");
        debug_assert_eq!(work.block, of.block);
        self.end_links(ftl, now, &mut work, |_| true)?;
        let until = self
            .tables
            .before_erase(ftl, now, work.flagged, of.block, &work.pages); // D4
        self.collector.victim = Some(work);
        until
    }

    fn erased(&mut self, ftl: &mut Ftl, victim: Pbn, done: Nanos) {
        let work = self.collector.victim.take().expect("prepared");
        debug_assert_eq!(work.block, victim);
        self.tables.waits.erase(done, Shadow::xids(&work.pages));
        for (xid, head) in work.exposed {
            if let Some(State::InProgress(open)) = self.table.get_mut(&xid).map(|e| &mut e.state) {
                open.heads.insert(0, head);
            }
        }
        let mut xids: Vec<TxId> = Vec::new();
        let covers = !self.covered.is_empty();
        for page in &work.pages {
            self.tables.carriers.leave(ftl, page.at);
            if covers {
                self.covered.remove(&page.at);
            }
            if let Some(row) = self.table.get_mut(&page.tail.xid) {
                row.pages = row.pages.saturating_sub(1);
                if !xids.contains(&page.tail.xid) {
                    xids.push(page.tail.xid);
                }
            }
        }
        for xid in xids {
            self.leave(ftl, xid, victim, done);
        }
    }
}

impl Cfc {
    fn work(&self) -> &Work {
        self.collector.victim.as_ref().expect("prepared")
    }

    /// The place of a page's copy at `to` in the chain of its transaction.
    fn place_in_chain(&self, page: &Moving<'_>, to: Ppn) -> InChain {
        let xid = Tail::parse(page.tail).xid;
        let takes = self.work().links.iter().position(|out| {
            out.xid == xid && !out.ended && out.from.is_none_or(|from| from == page.from)
        });
        let matters = takes.is_some() || self.table.contains_key(&xid);
        let block = self.tables.geometry.block_of(to);
        let copies = self.collector.copies.get(&block);
        let joins = matters && copies.is_some_and(|xids| xids.contains(&xid));
        InChain {
            takes: takes.filter(|_| !joins),
            joins,
        }
    }

    /// Records that a copy of a transaction's page went to a block.
    pub(super) fn note_copy(&mut self, block: Pbn, xid: TxId) {
        if self.tables.block_flags {
            self.collector.copies.entry(block).or_default().push(xid);
        }
    }

    /// Closes the blocks that receive copies and contain copies of the transaction.
    pub(super) fn seal_copies_of(&mut self, ftl: &mut Ftl, xid: TxId) {
        for plane in 0..self.tables.geometry.planes() {
            if let Some(block) = ftl.writer.open_on(Stream::Gc, plane)
                && let Some(xids) = self.collector.copies.get(&block)
                && xids.contains(&xid)
            {
                ftl.end_block(block);
            }
        }
    }

    /// Links out of the victim, of transactions that are not aborted.
    fn outward(&self, pages: &[Shadow], victim: Pbn) -> Vec<Outward> {
        let mut links: Vec<Outward> = Vec::new();
        let outside = |link: &Link| self.tables.geometry.block_of(link.at) != victim;
        for page in pages {
            let Some(link) = page.tail.link.filter(outside) else {
                continue;
            };
            let xid = page.tail.xid;
            let aborted = matches!(
                self.table.get(&xid),
                Some(row) if matches!(row.state, State::Aborted(_))
            );
            if aborted || self.covered.contains(&page.at) {
                continue;
            }
            let from = (!self.tables.block_flags).then_some(page.at);
            links.push(Outward {
                xid,
                from,
                link,
                ended: false,
            });
        }
        links
    }

    /// Handles links that no copy takes over: their targets are flagged if the transaction is
    /// committed, and become heads if it is in progress.
    fn end_links(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        work: &mut Work,
        which: impl Fn(&Outward) -> bool,
    ) -> Result<(), FtlError> {
        for index in 0..work.links.len() {
            let out = &mut work.links[index];
            if out.ended || !which(out) {
                continue;
            }
            out.ended = true;
            let (xid, link) = (out.xid, out.link);
            // D1
            let (target, read) = follow(ftl, now, xid, link, self.tables.as_published, Cause::Gc)?;
            work.flagged = work.flagged.max(read);
            let Some(target) = target else { continue };
            if self.in_progress(xid).is_some() {
                work.exposed.push((xid, target.link_to_it()));
            } else {
                let done = self.set_flag(ftl, read, &target);
                let done = done.inspect_err(|_| self.collector.flagged = work.flagged)?;
                work.flagged = work.flagged.max(done);
            }
        }
        Ok(())
    }

    /// Records that the pages of a transaction in the victim are gone.
    fn leave(&mut self, ftl: &mut Ftl, xid: TxId, victim: Pbn, done: Nanos) {
        let geometry = self.tables.geometry;
        let elsewhere = |at: Ppn| geometry.block_of(at) != victim;
        let row = self.table.get_mut(&xid).expect("it has a row");
        match &mut row.state {
            State::InProgress(open) => {
                open.heads.retain(|head| elsewhere(head.at));
                open.clusters.retain(|&(block, _)| block != victim);
                if let Some(half) = &mut open.half {
                    half.mixed.trues.retain(|&at| elsewhere(at));
                    half.carried.retain(|&at| elsewhere(at));
                }
                if !self.tables.as_published {
                    open.safe_at = open.safe_at.max(done); // D4
                }
            }
            State::Aborted(mixed) => {
                if let Some(of) = mixed {
                    of.trues.retain(|&at| elsewhere(at));
                    if of.trues.is_empty() {
                        ftl.kill(of.keeper);
                        *mixed = None;
                    }
                }
                if row.pages == 0 {
                    self.table.remove(&xid);
                }
            }
        }
    }
}
