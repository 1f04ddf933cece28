//! SEAL.
//!
//! Paper       none; see docs/seal.md.
//! Idea        As in LightTx, the last page of a transaction counts its pages. The summary page
//!             that ends each block anyway is programmed a little later: when the transactions with
//!             pages in the block have ended. So it can also say which of its pages are committed,
//!             and at which place in the order of commits.
//! Commit      As MHL-D.
//! Cost        k programs for k pages; nothing is written to commit. At times a root that lists
//!             transactions. Recovery reads a summary page a block; blocks without it, each page.
//!
//!   spare     | header: kind lpn seq | xid 6 | count 4 | ... sum 8            see super::tail
//!   summary   | record of each page | verdict 4 of each page |                see ftl::closing
//!   root      | xid 6, cv 6 | ... |                                           see super::listed
//!   list      many trims are one page: the logical pages that hold nothing    see ftl::trims
//!   cv        the place of a commit: the write sequence of the last page of its transaction
//!   verdict   cv - seq + 1 of the page, or 0 while nothing is known
//!
//! States      Live ──commit──> published ──durable──> committed ──all blocks say so──> forgotten
//!               └──abort, cut: nothing is kept of it
//!             block: Open ──full──> Closing ──sealed──> Full
//!                     └──failed, cut: Full, without a summary
//!
//! Invariants  1. Whatever says that a transaction has committed was issued when all of its pages
//!                were durable. The last page is issued at the commit only.
//!             2. At every instant, whatever becomes of the operations in flight, each page that
//!                counts has a row of @A to @E. Only an erase or a root takes evidence away:
//!                `evidence` says what has to be listed before (rule E), and everything that the
//!                tables rely on is durable before (rule T).
//!             3. What does not count never will: no page of a transaction is programmed after its
//!                end but copies, which share the write sequence of what they copy.
//!             4. An xid is not given out again while a page, a verdict or a root names it.
//!             5. Places order as commits do. A copy of a page whose transaction needs no more
//!                evidence belongs to none; it is a version of its own, at a place of its own.
//!             6. The last page of a transaction that has overwritten pages of its own says the sum
//!                of their write sequences. An older version can only stand in for a newer one with
//!                a smaller sequence, so number and sum are right if and only if the newest version
//!                of each page is there. Older versions may be collected at any time.
//!             7. A list of trims is one page of its transaction. It is kept as long as a logical
//!                page is mapped to it. A copy that is a version of its own names these alone.
//!
//! Recovery    facts about a page                                                 verdict   place
//!   @A        the summary of its block has a verdict for it                      counts    its cv
//!   @B        it belongs to no transaction, or is alone in its own               counts    seq
//!   @C        the newest root lists its transaction                              counts    its cv
//!   @D        the summary of another block has a verdict for its transaction     counts    its cv
//!   @E        as many pages of its transaction are there as the last one says,
//!             and where it says a sum, the newest versions of them have it       counts    its cv
//!   @F        none of these, and the mapping table on flash, which seal-r has,
//!             names it: what said that it counts may be gone                     counts    there
//!   @G        otherwise                                                          does not count
//!             Of the versions of a page that count, the one with the highest (place, seq) is
//!             current. Recovery only reads.
//!
//! Departures  none: there is no paper.

pub(super) mod bounds;
mod check;
mod columns;
mod evidence;
mod mistake;
mod newest;
mod own;
mod recovery;
pub(super) mod rest;
pub(super) mod seal_r;
mod seals;
mod settle;
mod settings;
mod show;
mod trims;

pub use mistake::Mistake;
pub use own::seal_count;

use super::active::TxTable;
use super::roots::records;
use super::{
    Content, Found, Info, Isolation, Mode, Options, Protocol, Recovered, Table, Taken, Way, Write,
    table_bytes,
};
use crate::ftl::{
    BlockState, Format, Ftl, FtlError, Mounted, Moving, Owner, PageKind, Relocation, Slot, Victim,
    Written,
};
use crate::layout;
use crate::layout::{get, put};
use crate::mistakes::Mistaken;
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use bounds::Bounds;
use evidence::{Evidence, Undecided, Witness};
use own::{Active, Last, Said, count_of, program, program_last, waits_for};
use rustc_hash::FxHashMap;
use seals::Waiting;
use settings::{LINGER, TRIMS, UNDECIDED};

layout! {
    /// What a spare area says behind its header.
    pub tail: 10 => {
        XID:   6, "the transaction; 0 for a copy, which belongs to none";
        COUNT: 4, "pages of the transaction, in its last page; 1 in a copy; 0 in the others; the highest bit says that `statement` has the sum of the write sequences of all but the last one";
    }
}

layout! {
    /// A transaction that has committed and whose other evidence is gone, in a root.
    pub listed: 12 => {
        XID: 6, "the transaction";
        CV:  6, "its place: the write sequence of its last page";
    }
}

pub(super) const INFO: Info = Info {
    section: "docs/seal.md",
    isolation: Isolation::Serializable,
    modes: &[
        Mode::new("late", &[]),
        Mode::new("early", &[("linger", "0")]),
    ],
    settings: &[LINGER, UNDECIDED, TRIMS],
    tail: &[tail::RECORD],
    root: Some(|blob| records(listed::RECORD, blob)),
    recovery: show::RECOVERY,
    format: Format {
        tail_bytes: tail::SIZE,
        late_summaries: true,
        rests: true,
        horizons: true,
        word_flag: Some(tail::COUNT.end - 1),
        // A copy counts, or is evidence, in addition to its original: the erase may come later.
        in_steps: true,
        ..Format::NONE
    },
    ..Info::new(
        "seal",
        "the last page counts the pages; the summary of a block says which of them are committed",
    )
};

#[derive(Clone)]
struct Seal {
    live: TxTable<Active>,
    evidence: Evidence,
    /// Blocks with pages of transactions that have no summary.
    waiting: FxHashMap<Pbn, Waiting>,
    /// The blocks that a restart would read, if restarts are bounded.
    bounds: Option<Bounds>,
    /// The transactions listed by the newest root, as encoded there.
    listing: Vec<u8>,
    last_tx: TxId,
    linger: usize,
    /// Maximum number of undecided blocks, beyond which the oldest is collected; and number of
    /// requests since the last such collection, without trims that wait for their list.
    undecided: usize,
    requests: u32,
    /// Maximum number of logical pages in a list of trims.
    trims: usize,
    /// When the next block may become ready to be sealed; zero if unknown.
    look_at: Nanos,
    /// Number of waiting blocks when that was determined.
    looked_at: usize,
    /// When everything that the tables rely on is done: commits, copies, summaries, roots.
    relied_until: Nanos,
    /// Whether the blocks without a summary are known after a restart.
    knows_blocks: bool,
    mistake: Mistaken<Mistake>,
}

pub(super) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    start(ftl, &mounted, &INFO, options, None)
}

/// Recovers SEAL, or SEAL-R if `bounds` are given: from the tables of a device at rest, or else by
/// reading the blocks.
fn start(
    ftl: &mut Ftl,
    mounted: &Mounted,
    info: &Info,
    options: &Options,
    bounds: Option<Bounds>,
) -> Result<Recovered, FtlError> {
    let linger = settings::linger(info, ftl.geometry(), options)?;
    let undecided = settings::undecided(info, ftl.geometry(), options)?;
    let trims = settings::trims(info, options)?;
    let found = match &mounted.rest {
        Some(tables) => rest::resume(ftl, mounted, tables)?,
        None => recovery::read(ftl, mounted, bounds, options)?,
    };
    let protocol = Box::new(Seal {
        live: TxTable::new(),
        evidence: found.evidence,
        waiting: found.with_sums.iter().map(Waiting::for_sum).collect(),
        bounds: found.bounds,
        listing: found.listing,
        last_tx: found.last_tx,
        linger,
        undecided,
        requests: 0,
        trims,
        look_at: Nanos::ZERO,
        looked_at: 0,
        relied_until: Nanos::ZERO,
        knows_blocks: mounted.rest.is_none() || options.ended.is_some(),
        mistake: options.mistake,
    });
    Ok(Recovered {
        protocol,
        last_tx: found.last_tx,
        done: found.done,
        rulings: found.rulings,
    })
}

impl Protocol for Seal {
    fn grown(&mut self, ftl: &Ftl) {
        if let Some(bounds) = &mut self.bounds {
            bounds.grown(ftl);
        }
    }

    fn begin(&mut self, _: &mut Ftl, _: Nanos, tx: TxId) -> Result<(), FtlError> {
        self.last_tx = tx;
        Ok(())
    }

    /// Seals all waiting blocks if the collector has no other block to take. Announces blocks if
    /// restarts are bounded and few announced ones are left. Requests the collection of the oldest
    /// undecided block if there are too many blocks of too many transactions.
    #[inline]
    fn in_the_way(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        _: TxId,
        round: u32,
    ) -> Result<Option<Way>, FtlError> {
        self.bounds.as_ref().map_or(Ok(()), Bounds::doubt)?;
        if let Some(way) = self.settle_for(ftl, now, round)? {
            return Ok(Some(way));
        }
        if round == 0 && ftl.is_short() && ftl.writer.closing().len() > 0 {
            self.seal_down_to(ftl, now, 0)?;
            return Ok(Some(Way::Room));
        }
        if let Some(bounds) = &self.bounds
            && bounds.is_short(ftl)
        {
            self.announce(ftl, now)?;
        }
        self.requests = self.requests.saturating_add(u32::from(round == 0));
        if round == 0 && self.evidence.piled_up() > self.undecided {
            Ok(self.oldest_undecided(ftl).map(Way::Collect))
        } else {
            Ok(None)
        }
    }

    /// Programs the held-back page, if any, and holds this one back instead. A trim waits for its
    /// list.
    #[inline]
    fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError> {
        if write.content == Content::Trim && self.trims_a_page(ftl) > 1 {
            return self.trim(ftl, now, tx, write.at);
        }
        let mut taken = Taken::at(now);
        let active = self.live.open(tx);
        if active.held.is_some() {
            taken.done = program(ftl, now, tx, active, Last::NOT, &mut self.waiting)?.done;
            active.held.hold(write);
            active.trims.forget(write.at);
            self.seal_due(ftl, now)?;
        } else {
            active.held.hold(write);
            active.trims.forget(write.at);
        }
        Ok(taken)
    }

    fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_> {
        let active = tx.and_then(|tx| self.live.get(tx));
        let own = active.and_then(|active| {
            if active.trims.has(at) {
                Some(Found::Nothing)
            } else {
                active.held.find(&active.writes, at)
            }
        });
        own.unwrap_or_else(|| ftl.slot(at).into())
    }

    fn allows_snapshots(&self) -> bool {
        true
    }

    fn uncommitted(&self) -> u64 {
        let pages = |active: &Active| active.writes.entries().len() + active.trims.lists.len();
        self.live
            .iter()
            .map(|(_, active)| pages(active) as u64)
            .sum()
    }

    #[inline]
    fn trims_a_page(&self, ftl: &Ftl) -> u64 {
        self.trims.min(ftl.trims_of_list()).max(1) as u64
    }

    /// Not supported with bounded restarts.
    fn rest(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<Option<Vec<u8>>, FtlError> {
        if self.bounds.is_some() {
            return Ok(None);
        }
        self.seal_all(ftl, now)?;
        ftl.sync(now, self.relied_until)?;
        Ok(Some(rest::tables(self.last_tx, &self.evidence)))
    }

    #[inline]
    fn settle(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<(), FtlError> {
        self.settle_at_once(ftl, now)
    }

    fn end_blocks(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<Option<u64>, FtlError> {
        self.seal_all(ftl, now)
    }

    /// Programs the held-back page as the last one, or a list of trims; publishes the versions in
    /// the same step; and waits for all pages.
    #[inline]
    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Option<Nanos>, FtlError> {
        let Some(active) = self.live.get_mut(tx) else {
            return Ok(Some(now));
        };
        let (says, last) = program_last(ftl, now, tx, active, self.mistake, &mut self.waiting)?;
        let active = self.live.take(tx).expect("it has written");
        active.writes.publish(ftl);
        active.trims.publish(ftl);
        if self.mistake.is(Mistake::TrimsDropped) {
            active.trims.drop_at_once(ftl);
        }
        let wait_for = if self.mistake.is(Mistake::LastPageWaited) {
            last.done
        } else {
            active.writes.done
        };
        let durable = ftl.sync(now, wait_for)?;
        self.rely_on(Mistake::CommitsNotWaited, durable);
        if says.count > 1 {
            let committed = Undecided {
                cv: last.seq,
                durable,
                blocks: active.places(ftl),
                witness: Witness::None,
            };
            self.evidence.committed(tx, committed);
        }
        self.end(active, durable);
        self.seal_due(ftl, now)?;
        Ok(Some(durable))
    }

    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        if let Some(mut active) = self.live.take(tx) {
            if self.mistake.is(Mistake::AbortPrograms) {
                program_last(ftl, now, tx, &mut active, self.mistake, &mut self.waiting)?;
            }
            active.writes.discard(ftl);
            active.trims.discard(ftl);
            self.end(active, Nanos::ZERO);
            self.seal_due(ftl, now)?;
        }
        Ok(now)
    }

    fn tables(&self, ftl: &Ftl) -> Vec<Table> {
        show::tables(self, ftl)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let of = |active: &Active| {
            let blocks = active.blocks.len() * size_of::<Pbn>();
            let pages = active.writes.memory() + active.trims.memory();
            pages + blocks as u64 + active.held.memory()
        };
        vec![
            ("active_tx_table", self.live.memory(of)),
            ("evidence", self.evidence.memory()),
            ("bounds", self.bounds.as_ref().map_or(0, Bounds::memory)),
            (
                "waiting_blocks",
                table_bytes::<Pbn, Waiting>(self.waiting.len()),
            ),
        ]
    }

    /// Checks that the pages of live transactions exist, and that every mapped page has evidence.
    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        for (tx, active) in self.live.iter() {
            active.writes.check(ftl, tx)?;
            active.trims.check(ftl, tx)?;
        }
        self.evidence.check(ftl)?;
        for lpn in (0..ftl.logical_pages()).map(Lpn) {
            if let Some(at) = ftl.slot(lpn).ppn() {
                self.check_mapped(ftl, at)?;
            }
        }
        Ok(())
    }
}

impl Seal {
    /// Makes the tables rely on operations that are done at `done`, unless a mistake leaves this
    /// out.
    #[inline]
    fn rely_on(&mut self, unless: Mistake, done: Nanos) {
        if !self.mistake.is(unless) {
            self.relied_until = self.relied_until.max(done);
        }
    }

    /// Ends a transaction whose pages are durable at `durable`.
    #[inline]
    fn end(&mut self, mut active: Box<Active>, durable: Nanos) {
        for block in active.blocks.drain(..) {
            if let Some(waiting) = self.waiting.get_mut(&block) {
                waiting.live -= 1;
                waiting.ready_at = waiting.ready_at.max(durable);
                self.look_at = Nanos::ZERO;
            }
        }
        active.writes.clear();
        active.trims.clear();
        (active.overwritten, active.said) = (0, Said::default());
        active.held.clear();
        self.live.reuse(active);
    }

    /// Whether a page is a list of trims that counts by itself, and to which no mapping table on
    /// flash refers.
    fn is_single_list(&self, page: &Moving<'_>) -> bool {
        let unto = self.bounds.as_ref().map_or(0, Bounds::unto);
        let is_list = page.header.kind == PageKind::Trims && page.header.seq > unto;
        is_list && count_of(page.tail).0 == 1
    }

    /// Whether the transaction of a page waits for its commit to be durable.
    fn is_awaited(&self, page: &Moving<'_>) -> bool {
        let tx = TxId(get(page.tail, tail::XID));
        let is_awaited = self.evidence.is_awaited(tx, page.victim.prepared);
        is_awaited && !self.mistake.is(Mistake::AwaitedResolved)
    }

    /// The transaction that needs a page and its copy as evidence, if any.
    fn still_of(&self, page: &Moving<'_>) -> Option<TxId> {
        let tx = TxId(get(page.tail, tail::XID));
        let is_needed = || self.live.get(tx).is_some() || self.is_awaited(page);
        (!self.is_single_list(page) && is_needed()).then_some(tx)
    }
}

impl Owner for Seal {
    /// Announces blocks if the copies could run out of them. Returns when copies may begin that
    /// count by themselves: the transactions of their originals must be durable.
    fn prepare(&mut self, ftl: &mut Ftl, now: Nanos, _: Pbn) -> Result<Nanos, FtlError> {
        self.bounds.as_ref().map_or(Ok(()), Bounds::doubt)?;
        if let Some(bounds) = &self.bounds
            && bounds.is_empty(ftl)
        {
            self.announce(ftl, now)?;
        }
        let bounds = self.bounds.as_ref();
        let from = bounds.map_or(now, |bounds| bounds.collects_from(now));
        let now = if self.mistake.is(Mistake::DecidedEarly) {
            from
        } else {
            self.evidence.copies_from(from)
        };
        self.seal_due(ftl, now)?;
        Ok(now)
    }

    /// A page that its transaction needs as evidence is copied unchanged. Any other copy belongs to
    /// no transaction, and counts by itself. A list of trims that counts by itself may not be
    /// durable either, and is copied unchanged, since the copy may be all that a cut leaves of it;
    /// unless the mapping table on flash refers to it.
    fn relocate(&mut self, _: &Ftl, page: &Moving<'_>, tail: &mut [u8]) -> Relocation {
        if self.is_single_list(page) {
            return Relocation::Copy;
        }
        let is_resolved = self.mistake.is(Mistake::LiveResolved) && !self.is_awaited(page);
        if self.still_of(page).is_some() && !is_resolved {
            return Relocation::Copy;
        }
        put(tail, tail::XID, 0);
        put(tail, tail::COUNT, 1);
        if self.mistake.is(Mistake::CopyKeepsSeq) {
            Relocation::Copy
        } else {
            Relocation::Renew
        }
    }

    fn keeps_trim(&self, ftl: &Ftl, at: Lpn, list: Ppn) -> bool {
        ftl.slot(at) == Slot::Trimmed(list) || self.mistake.is(Mistake::TrimsAgain)
    }

    /// Updates the mapping table, or the live transaction of the page. If the copy still belongs to
    /// a transaction, its block is undecided for it, and waits for it.
    fn relocated(&mut self, ftl: &mut Ftl, page: &Moving<'_>, to: Written) {
        self.rely_on(Mistake::CopiesNotWaited, to.done);
        let (header, from, tx) = (page.header, page.from, self.still_of(page));
        let (was, is) = (Slot::of(header.kind, from), Slot::of(header.kind, to.at));
        let block = ftl.geometry().block_of(to.at);
        let is_list = header.kind == PageKind::Trims;
        let is_mapped = if is_list {
            tx.is_none_or(|tx| self.live.get(tx).is_none())
        } else {
            ftl.slot(header.lpn) == was
        };
        if is_mapped {
            if !is_list {
                ftl.move_slot(header.lpn, is);
            }
            if let Some(tx) = tx
                && let Some(durable) = self.evidence.copied(tx, block)
            {
                let waiting = self.waiting.entry(block).or_default();
                waiting.ready_at = waiting.ready_at.max(durable);
                waiting.has_sum |= count_of(page.tail).1;
            }
            return;
        }
        let active = tx.and_then(|tx| self.live.get_mut(tx));
        let active = active.expect("a live page is mapped, or that of a live transaction");
        let follows = if is_list {
            active.trims.follow(from, to.at)
        } else {
            active.writes.follow(header.lpn, was, is, Nanos::ZERO)
        };
        assert!(follows, "a live transaction has one live version of a page");
        // The copy does not repeat the statement of the page.
        active.said = Said::default();
        waits_for(block, active, &mut self.waiting);
    }

    /// Rule T: waits until all that the tables rely on is durable. Rule E: then writes a root that
    /// lists the transactions whose other evidence is in the victim, and again those listed before.
    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, of: Victim) -> Result<Nanos, FtlError> {
        let (mut lists, mut kept) = self.evidence.lost_with(ftl, of.block);
        if self.mistake.is(Mistake::EvidenceDropped) {
            lists.clear();
        } else if self.mistake.is(Mistake::WitnessDropped) {
            lists.retain(|&tx| self.evidence.is_counted(tx));
        } else if self.mistake.is(Mistake::CountDropped) {
            lists.retain(|&tx| !self.evidence.is_counted(tx));
        } else if self.mistake.is(Mistake::ListForgets) {
            kept.clear();
        }
        if lists.is_empty() {
            return ftl.sync(now, self.relied_until);
        }
        let durable = if self.mistake.is(Mistake::ListEarly) {
            now
        } else {
            ftl.sync(now, self.relied_until)?
        };
        kept.extend(&lists);
        self.listing = self.evidence.listing(kept);
        let listed = ftl.keep_in_root(durable, self.root())?;
        self.evidence.list(&lists);
        // Another collection at this instant may rely on the list in this root.
        self.rely_on(Mistake::RootNotWaited, listed);
        // The root was issued after everything else was durable, and is waited for.
        let waits = !self.mistake.is(Mistake::RootNotWaited);
        Ok(if waits { listed } else { durable })
    }

    /// Seals the block early, and all blocks that have waited longer.
    fn let_go(&mut self, ftl: &mut Ftl, now: Nanos, _: Pbn) -> Result<(), FtlError> {
        self.seal_down_to(ftl, now, 0)
    }

    /// Drops what the tables know of the block. Its live transactions must repeat their statements.
    fn erased(&mut self, ftl: &mut Ftl, victim: Pbn, _: Nanos) {
        debug_assert!(
            self.mistake != Mistaken::NONE
                || ftl.blocks.state(victim) == BlockState::Bad
                || self.evidence.lost_with(ftl, victim).0.is_empty(),
            "evidence goes with block {victim}, and no root lists it"
        );
        self.evidence.erased(ftl, victim);
        self.waiting.remove(&victim);
        for active in self
            .live
            .iter_mut()
            .filter(|it| it.blocks.contains(&victim))
        {
            active.blocks.retain(|&block| block != victim);
            // The only page with the statement may be gone.
            active.said = Said::default();
        }
    }
}
