//! Recovery of SEAL: decides which versions count, and which transactions still need evidence.

use super::bounds::Bounds;
use super::columns::{Columns, There};
use super::evidence::{Evidence, Undecided, Witness};
use super::newest::Newest;
use super::own::count_of;
use super::{Mistake, listed, tail};
use crate::commit::show::Rulings;
use crate::commit::{Options, Ruling};
use crate::ftl::{Ftl, FtlError, Mounted, PageKind, Scanned, Slot, verdict};
use crate::layout::get;
use crate::mistakes::Mistaken;
use crate::nand::Geometry;
use crate::units::{Lpn, Nanos, Pbn, TxId};
use rustc_hash::FxHashMap;

/// A version of a page on flash.
#[derive(Debug, Clone, Copy)]
pub(super) struct Version {
    pub(super) tx: TxId,
    pub(super) seq: u64,
    /// Number of pages of the transaction, if this is its last page; 1 if it counts by itself.
    pub(super) count: u32,
    /// The sum of the write sequences of the other pages, if this is the last page of a transaction
    /// with overwrites; 0 if only the summary of its block was read.
    pub(super) sum: Option<u64>,
    /// The version's verdict in the summary of its block.
    pub(super) verdict: u32,
    /// The logical page; for a list of trims, the highest one.
    pub(super) lpn: Lpn,
    pub(super) slot: Slot,
    pub(super) is_list: bool,
}

impl Version {
    /// Whether it counts by itself.
    pub(super) fn is_alone(&self) -> bool {
        self.tx == TxId(0) || self.count == 1
    }

    /// The row of the recovery table by which it counts because of itself or the summary of its
    /// block, and its place. `None` if other evidence must decide.
    pub(super) fn decided(&self) -> Option<(&'static str, u64)> {
        if self.is_alone() {
            return Some(("@B", self.seq));
        }
        let ahead = self.verdict.checked_sub(1)?;
        Some(("@A", self.seq + u64::from(ahead)))
    }
}

/// The results of a recovery.
pub(super) struct Recovery {
    pub(super) evidence: Evidence,
    pub(super) bounds: Option<Bounds>,
    /// Blocks without a summary that contain a page with a sum.
    pub(super) with_sums: Vec<Pbn>,
    /// The transactions listed by the root, as encoded there.
    pub(super) listing: Vec<u8>,
    pub(super) last_tx: TxId,
    pub(super) done: Nanos,
    pub(super) rulings: Vec<Ruling>,
}

/// Reads a mounted device, decides which versions count, maps the newest of each page, and ends the
/// mount. With `bounds` it reads only the blocks that the root announces.
pub(super) fn read(
    ftl: &mut Ftl,
    mounted: &Mounted,
    bounds: Option<Bounds>,
    options: &Options,
) -> Result<Recovery, FtlError> {
    let (mistake, tells) = (options.mistake, options.tells);
    let lists = bounds.as_ref().map_or(0, Bounds::bytes);
    let lists = mounted.blob.get(lists..).unwrap_or_default();
    let mut roster: FxHashMap<TxId, u64> = FxHashMap::default();
    for entry in lists.chunks_exact(listed::SIZE) {
        roster.insert(TxId(get(entry, listed::XID)), get(entry, listed::CV));
    }
    if !lists.len().is_multiple_of(listed::SIZE) {
        return Err(FtlError::Foreign(
            "its root lists half a transaction".into(),
        ));
    }
    let (geometry, logical_pages) = (*ftl.geometry(), ftl.logical_pages());
    let (blocks, looked) = match &bounds {
        Some(bounds) => bounds.written(ftl, mounted.done)?,
        None => (ftl.blocks.for_data(), mounted.done),
    };
    let unto = if mistake.is(Mistake::TableIgnored) {
        0
    } else {
        bounds.as_ref().map_or(0, Bounds::unto)
    };
    let mut last_tx = if mistake.is(Mistake::XidNotInTable) {
        TxId(0)
    } else {
        bounds.as_ref().map_or(TxId(0), Bounds::last_tx)
    };
    // A ruling also states the entries of the mapping table on flash.
    let table: Vec<Slot> = if tells {
        (0..logical_pages).map(|lpn| ftl.slot(Lpn(lpn))).collect()
    } else {
        Vec::new()
    };
    let mut found = Versions::new(&geometry, tells);
    let mut newest = Newest::new(logical_pages, unto, mistake);
    let mut done = mounted.done;
    // When lists of trims are read, and whether the restart continues if one is unreadable.
    let (start, salvages) = (mounted.done, options.salvages);
    let mut beyond: Option<Lpn> = None;
    let mut versions = Vec::with_capacity(geometry.pages_per_block as usize);
    for block in blocks {
        versions.clear();
        let read = ftl.scan(mounted.done, &[block], |at, head, bytes| {
            let (record, behind) = bytes.split_at(tail::SIZE);
            let (verdict, sum) = behind.split_at(verdict::SIZE);
            let (count, has_sum) = count_of(record);
            let tx = TxId(get(record, tail::XID));
            if !mistake.is(Mistake::XidReused) && !mistake.is(Mistake::XidFromCommits) {
                last_tx = last_tx.max(tx);
            }
            if head.lpn.0 >= logical_pages {
                beyond = beyond.max(Some(head.lpn));
            } else {
                let version = Version {
                    tx,
                    seq: head.seq,
                    count,
                    sum: has_sum.then(|| get(sum, 0..sum.len())),
                    verdict: get(verdict, verdict::VERDICT) as u32,
                    lpn: head.lpn,
                    slot: Slot::of(head.kind, at),
                    is_list: head.kind == PageKind::Trims,
                };
                versions.push((geometry.page_in_block(at), version));
            }
        })?;
        done = done.max(read);
        found.see(block, &versions);
        for (_, version) in &versions {
            let decided = match version.decided() {
                None if version.is_list && mistake.is(Mistake::TornTrims) => {
                    Some(("", version.seq))
                }
                decided => decided,
            };
            if let Some((_, place)) = decided {
                let rank = (place, version.seq);
                let (lpn, slot, is_list) = (version.lpn, version.slot, version.is_list);
                let read = newest.offer(ftl, lpn, slot, is_list, rank, start, salvages, |at| {
                    found.columns.rank(at, |_| None)
                })?;
                done = done.max(read);
            }
        }
    }
    let reads = |block| bounds.as_ref().is_none_or(|bounds| bounds.reads(block));
    ftl.doubt_horizon(&Scanned {
        ended: options.ended,
        unto,
        reads: &reads,
        beyond,
        salvages: options.salvages,
    })?;
    if !FORGETS_XIDS.iter().any(|&forgets| mistake.is(forgets)) {
        last_tx = roster.keys().copied().fold(last_tx, TxId::max);
    }
    if mistake.is(Mistake::ListIgnored) {
        roster.clear();
    }
    let places = found.places(roster, unto, mistake);
    let columns = &found.columns;
    if mistake.is(Mistake::XidFromCommits) {
        last_tx = last_tx.max(found.last_counted);
        let txs = columns.undecided().map(|run| run.tx);
        let counts = txs.filter(|&tx| places.of_tx(tx).is_some());
        last_tx = counts.fold(last_tx, TxId::max);
    }
    let mut rulings = Rulings::new(tells);
    if rulings.listens() {
        let table_has = |version: &Version| {
            if version.is_list {
                table.contains(&version.slot)
            } else {
                table[version.lpn.index()] == version.slot
            }
        };
        places.tell(&mut rulings, table_has, &found.all);
    }
    for run in columns.undecided() {
        if let Some(place) = places.of_tx(run.tx) {
            for version in columns.of_run(&run) {
                let rank = (place, version.seq);
                let (lpn, slot, is_list) = (version.lpn, version.slot, version.is_list);
                let read = newest.offer(ftl, lpn, slot, is_list, rank, start, salvages, |at| {
                    columns.rank(at, |tx| places.of_tx(tx))
                })?;
                done = done.max(read);
            }
        }
    }
    ftl.revive_mapped()?;
    ftl.finish_mount();
    let evidence = if mistake.is(Mistake::TableForgotten) {
        Evidence::default()
    } else {
        places.needed(ftl, columns)
    };
    Ok(Recovery {
        evidence,
        bounds,
        with_sums: columns.with_sums(),
        listing: lists.to_vec(),
        last_tx,
        done: done.max(looked),
        rulings: rulings.into_list(),
    })
}

const FORGETS_XIDS: [Mistake; 3] = [
    Mistake::XidReused,
    Mistake::XidFromCommits,
    Mistake::XidFromPages,
];

/// Collects the versions of a scan.
struct Versions {
    columns: Columns,
    /// The highest transaction with a version that counts by itself or by its block's summary.
    last_counted: TxId,
    /// All versions, if rulings are requested.
    all: Vec<Version>,
    tells: bool,
}

impl Versions {
    fn new(geometry: &Geometry, tells: bool) -> Versions {
        Versions {
            columns: Columns::new(geometry),
            last_counted: TxId(0),
            all: Vec::new(),
            tells,
        }
    }

    /// Adds the versions of a block: page in the block and version, in ascending order.
    fn see(&mut self, block: Pbn, versions: &[(u32, Version)]) {
        self.columns.push(block, versions);
        if self.tells {
            self.all.extend(versions.iter().map(|(_, version)| version));
        }
        let counted = versions.iter().map(|(_, version)| version);
        let counted = counted.filter(|version| version.decided().is_some());
        let highest = counted.map(|version| version.tx).max();
        self.last_counted = self.last_counted.max(highest.unwrap_or(TxId(0)));
    }

    /// The places of transactions with undecided versions.
    fn places(
        &self,
        roster: FxHashMap<TxId, u64>,
        unto: u64,
        mistake: Mistaken<Mistake>,
    ) -> Places {
        let mut wanted: Vec<TxId> = self.columns.undecided().map(|run| run.tx).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let stated = self.columns.stated(&wanted);
        let stated: FxHashMap<_, _> = stated.map(|(tx, cv, block)| (tx, (cv, block))).collect();
        let is_open = |tx| !stated.contains_key(&tx);
        let counted = self.columns.whole(is_open, mistake);
        Places {
            roster,
            stated,
            counted,
            unto,
            mistake,
        }
    }
}

/// The places of committed transactions in the commit order, by the kind of evidence.
struct Places {
    roster: FxHashMap<TxId, u64>,
    stated: FxHashMap<TxId, (u64, Pbn)>,
    counted: FxHashMap<TxId, u64>,
    /// The mapping table on flash has all commits up to this place.
    unto: u64,
    mistake: Mistaken<Mistake>,
}

impl Places {
    /// The row of the recovery table for a version, and its place unless the mapping table alone
    /// decides that it counts.
    fn ruled(
        &self,
        version: &Version,
        table_has: impl Fn(&Version) -> bool,
    ) -> (&'static str, Option<u64>) {
        match version.decided().or_else(|| self.said_of(version.tx)) {
            Some((row, place)) => (row, Some(place)),
            None if table_has(version) => ("@F", None),
            None => ("@G", None),
        }
    }

    /// The row by which a transaction's undecided versions count, and their place.
    fn said_of(&self, tx: TxId) -> Option<(&'static str, u64)> {
        if let Some(&cv) = self.roster.get(&tx) {
            return Some(("@C", cv));
        }
        let stated = self.stated.get(&tx).map(|&(cv, _)| cv);
        if let Some(cv) = stated.filter(|_| !self.mistake.is(Mistake::WitnessIgnored)) {
            return Some(("@D", cv));
        }
        self.counted.get(&tx).map(|&cv| ("@E", cv))
    }

    /// The place of the undecided versions of a transaction.
    fn of_tx(&self, tx: TxId) -> Option<u64> {
        self.said_of(tx).map(|(_, place)| place)
    }

    /// Records the decision about each version.
    fn tell(
        &self,
        rulings: &mut Rulings,
        table_has: impl Fn(&Version) -> bool,
        versions: &[Version],
    ) {
        for version in versions {
            let (row, place) = self.ruled(version, &table_has);
            let counts = row == "@F" || place.is_some();
            let tx = (version.tx != TxId(0)).then_some(version.tx);
            let place = match place {
                Some(place) if place <= self.unto => {
                    format!("place {place}, which the mapping table on flash has")
                }
                Some(place) => format!("place {place}"),
                None => {
                    let of_tx = versions.iter().filter(|other| other.tx == version.tx);
                    let mut there = There::default();
                    there.count(of_tx.map(|of| (of.is_list, of.lpn, of.seq, of.count, of.sum)));
                    let says = match there.last.map(|last| (last.count, last.sum)) {
                        None => "the last one is not".to_string(),
                        Some((count, None)) => format!("the last one says {count}"),
                        Some((count, Some(sum))) => format!(
                            "the newest versions of the others have the sum {}; the last one says \
                             {count} and {sum}",
                            there.sum
                        ),
                    };
                    format!("pages of it that are there: {}; {says}", there.pages)
                }
            };
            let what = if version.is_list {
                format!("trims up to logical page {}", version.lpn)
            } else {
                format!("logical page {}", version.lpn)
            };
            let because = format!("{what}, {place}");
            let at = version.slot.ppn().into_iter().collect();
            rulings.say(row, tx, at, counts, because);
        }
    }

    /// The committed transactions with a current page in a block without a verdict for it.
    fn needed(&self, ftl: &Ftl, columns: &Columns) -> Evidence {
        let mut open: FxHashMap<TxId, Undecided> = FxHashMap::default();
        for run in columns.undecided() {
            let place = self.of_tx(run.tx).filter(|&place| place > self.unto);
            let mut versions = columns.of_run(&run);
            if let Some(cv) = place
                && versions
                    .any(|version| version.slot.ppn().is_some_and(|at| ftl.blocks.is_live(at)))
            {
                let found = || Undecided {
                    cv,
                    durable: Nanos::ZERO,
                    blocks: Vec::new(),
                    witness: self.witness(run.tx),
                };
                open.entry(run.tx).or_insert_with(found);
            }
        }
        for run in columns.undecided() {
            let Some(undecided) = open.get_mut(&run.tx) else {
                continue;
            };
            let is_last = undecided.blocks.last() == Some(&run.block);
            if !is_last && !undecided.blocks.contains(&run.block) {
                undecided.blocks.push(run.block);
            }
        }
        let mut open: Vec<(TxId, Undecided)> = open.into_iter().collect();
        open.sort_unstable_by_key(|&(tx, _)| tx);
        Evidence::found(open.into_iter())
    }

    fn witness(&self, tx: TxId) -> Witness {
        match self.stated.get(&tx) {
            _ if self.roster.contains_key(&tx) => Witness::Root,
            Some(&(_, block)) => Witness::Block(block),
            None => Witness::None,
        }
    }
}

#[cfg(test)]
mod tests;
