//! Recovery's view of the flash: all shadow pages, the links among them that hold, and the units
//! that flags stand for: single pages, or all pages of a transaction in a block.

use super::{Shadow, read_shadow};
use crate::ftl::{Cause, Ftl, FtlError, Slot};
use crate::units::{Nanos, TxId};
use rustc_hash::FxHashMap;

/// All shadow pages of a device, by place (S in the paper).
pub(super) struct Scanned {
    pub(super) pages: Vec<Shadow>,
    /// When the last read was done.
    pub(super) done: Nanos,
    /// When the scan was done. From then on flags can be read concurrently.
    scanned: Nanos,
    /// The highest transaction identifier.
    pub(super) last_tx: TxId,
    /// Whether links are followed without a check, as printed.
    trusted: bool,
}

/// Reads the spare areas of all data blocks.
pub(super) fn scan(ftl: &mut Ftl, now: Nanos, trusted: bool) -> Result<Scanned, FtlError> {
    let mut pages = Vec::new();
    let mut last_tx = TxId(0);
    let blocks = ftl.blocks.for_data();
    let done = ftl.scan(now, &blocks, |at, head, tail| {
        let page = Shadow::parse(at, &head, tail);
        last_tx = last_tx.max(page.tail.xid);
        pages.push(page);
    })?;
    debug_assert!(pages.is_sorted_by_key(|page| page.at));
    Ok(Scanned {
        pages,
        done,
        scanned: done,
        last_tx,
        trusted,
    })
}

impl Scanned {
    /// The target of a page's link, if the link is valid.
    pub(super) fn target(&self, page: usize) -> Option<usize> {
        let from = &self.pages[page];
        let link = from.tail.link?;
        let target = self
            .pages
            .binary_search_by_key(&link.at, |page| page.at)
            .ok()?;
        let to = &self.pages[target];
        let holds = self.trusted || (to.tail.xid == from.tail.xid && to.seq == link.seq);
        (holds && target != page).then_some(target)
    }

    /// The flag of a page, read from the page itself unless the scan has already seen that it was
    /// changed. Summary pages do not contain flags.
    pub(super) fn flag(&mut self, ftl: &mut Ftl, page: usize, unset: u8) -> Result<u8, FtlError> {
        let page = &mut self.pages[page];
        if page.tail.flag == unset {
            let (read, done) = read_shadow(ftl, self.scanned, page.at, Cause::Recovery)?;
            self.done = self.done.max(done);
            page.tail.flag = read.map_or(unset, |read| read.tail.flag);
        }
        Ok(page.tail.flag)
    }

    /// Maps the newest version of each logical page among those that count. Among copies it chooses
    /// the oldest, so that an interrupted collection leaves only garbage.
    pub(super) fn map_newest(
        &self,
        ftl: &mut Ftl,
        counts: impl Fn(usize) -> bool,
    ) -> Result<(), FtlError> {
        let mut newest: Vec<(u64, u32)> = vec![(0, 0); ftl.logical_pages() as usize];
        for (index, page) in self.pages.iter().enumerate() {
            let (version, seq) = &mut newest[page.lpn.index()];
            let older_copy = page.tail.version == *version && is_before(page.seq, *seq);
            if counts(index) && (page.tail.version > *version || older_copy) {
                (*version, *seq) = (page.tail.version, page.seq);
                ftl.set_slot(page.lpn, Slot::of(page.kind, page.at));
            }
        }
        ftl.revive_mapped()
    }

    /// Releases blocks without a needed page. Returns their pages.
    pub(super) fn release_rubbish(
        &self,
        ftl: &mut Ftl,
        is_rubbish: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let geometry = *ftl.geometry();
        let mut released = Vec::new();
        let mut start = 0;
        for block in ftl.blocks.for_data() {
            let here = |page: &Shadow| geometry.block_of(page.at) == block;
            let end = start + self.pages[start..].partition_point(here);
            if ftl.blocks.live_in(block) == 0 && (start..end).all(&is_rubbish) {
                ftl.release(block);
                released.extend(start..end);
            }
            start = end;
        }
        released
    }

    /// Groups pages into units, and finds the links between units. Pages for which `apart` returns
    /// `true` are in no unit.
    pub(super) fn units(
        &self,
        ftl: &Ftl,
        block_flags: bool,
        apart: impl Fn(usize) -> bool,
    ) -> Units {
        let geometry = *ftl.geometry();
        let mut units = Units {
            of_page: Vec::with_capacity(self.pages.len()),
            first: Vec::new(),
            edges: Vec::new(),
        };
        let mut here: FxHashMap<TxId, u32> = FxHashMap::default();
        let mut block = None;
        for (index, page) in self.pages.iter().enumerate() {
            if !block_flags || block != Some(geometry.block_of(page.at)) {
                block = Some(geometry.block_of(page.at));
                here.clear();
            }
            if apart(index) {
                units.of_page.push(NO_UNIT);
                continue;
            }
            let unit = *here.entry(page.tail.xid).or_insert_with(|| {
                units.first.push(index as u32);
                units.first.len() as u32 - 1
            });
            units.of_page.push(unit);
        }
        for page in 0..self.pages.len() {
            let from = units.of_page[page];
            let target = self.target(page).map(|target| units.of_page[target]);
            if let Some(to) = target.filter(|&to| to != from && to != NO_UNIT && from != NO_UNIT) {
                units.edges.push((from, to));
            }
        }
        units.edges.sort_unstable();
        units.edges.dedup();
        units
    }
}

/// Compares two low halves of write sequences, with wrap-around.
pub(super) fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Marks a page that is in no unit.
pub(super) const NO_UNIT: u32 = u32::MAX;

/// Units: pages that share a flag, and the links between units.
pub(super) struct Units {
    /// The unit of each page.
    pub(super) of_page: Vec<u32>,
    /// The first page of each unit.
    first: Vec<u32>,
    /// Links from unit to unit, sorted.
    edges: Vec<(u32, u32)>,
}

impl Units {
    /// Number of units.
    pub(super) fn len(&self) -> usize {
        self.first.len()
    }

    /// Links from unit to unit.
    pub(super) fn edges(&self) -> &[(u32, u32)] {
        &self.edges
    }

    /// The first page of a unit.
    pub(super) fn first_page(&self, unit: u32) -> usize {
        self.first[unit as usize] as usize
    }

    /// The pages of a unit: its pages from the first one to the last one of the block.
    pub(super) fn pages(
        &self,
        unit: u32,
        pages_per_block: u32,
    ) -> impl Iterator<Item = usize> + '_ {
        let first = self.first_page(unit);
        let end = (first + pages_per_block as usize).min(self.of_page.len());
        (first..end).filter(move |&page| self.of_page[page] == unit)
    }

    /// Units without an incoming link (U in the paper).
    pub(super) fn heads(&self) -> Vec<u32> {
        let mut linked = vec![false; self.len()];
        for &(_, to) in &self.edges {
            linked[to as usize] = true;
        }
        (0..self.len() as u32)
            .filter(|&unit| !linked[unit as usize])
            .collect()
    }

    /// Marks the given units, and every unit that is reachable from them by links.
    pub(super) fn reach(&self, mut from: Vec<u32>) -> Vec<bool> {
        let mut reached = vec![false; self.len()];
        for &unit in &from {
            reached[unit as usize] = true;
        }
        while let Some(unit) = from.pop() {
            // The edges are sorted, so those of a unit are adjacent.
            let start = self.edges.partition_point(|&(of, _)| of < unit);
            for &(of, to) in &self.edges[start..] {
                if of != unit {
                    break;
                }
                if !std::mem::replace(&mut reached[to as usize], true) {
                    from.push(to);
                }
            }
        }
        reached
    }
}
