//! AFC, recovery ([FlagCommit] §3.2): every flag is read, and a FALSE one anywhere in a part says
//! that the part is not committed.

use super::{Afc, Chain, FALSE_AT_FIRST, TxRow, Unit, collect::Collector, is_true, parts_of};
use crate::commit::flag_chain::{self, NO_UNIT, Scanned, Tables, Units};
use crate::commit::show::Rulings;
use crate::commit::{Options, Recovered};
use crate::ftl::{Ftl, FtlError, Mounted};
use crate::units::{Ppn, TxId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Recovers AFC: reads all flags, judges the parts of each transaction, maps the newest version of
/// each page in parts that count, and makes a table of the other transactions (D2).
pub(in crate::commit) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    let mut tables = Tables::new(ftl, options)?;
    let mut found = flag_chain::scan(ftl, mounted.done, options.as_published)?; // D1
    let mut is_false = Vec::with_capacity(found.pages.len());
    for page in 0..found.pages.len() {
        is_false.push(!is_true(found.flag(ftl, page, FALSE_AT_FIRST)?));
    }
    // D8: pages that carry the flag of the page that they link to.
    let replaces: Vec<Option<usize>> = (0..found.pages.len())
        .map(|page| {
            let version = found.pages[page].tail.version;
            let same = |&target: &usize| found.pages[target].tail.version == version;
            found.target(page).filter(same)
        })
        .collect();
    let units = found.units(ftl, tables.block_flags, |page| replaces[page].is_some());
    let mut parts = Parts::new(&units);
    let kept = parts.judge(&found, &units, &mut is_false, &replaces);
    let mut rulings = Rulings::new(options.tells);
    if rulings.listens() {
        parts.tell(&mut rulings, &found, &units, &is_false);
    }
    let counts = |page: usize| parts.counts(&units, replaces[page].unwrap_or(page));
    found.map_newest(ftl, counts)?;

    for page in kept {
        let target = replaces[page].expect("only these are kept");
        let (at, target) = (found.pages[page].at, found.pages[target].at);
        let current = ftl.blocks.is_live(at);
        if !current {
            ftl.revive(at);
        }
        tables.carriers.insert(ftl, target, at, current);
    }
    // Only the collector erases a page of a part that does not count, or whose flag is carried: it
    // sets the flags that this requires.
    let is_rubbish = |page: usize| {
        let carries = replaces[page].is_some();
        (carries || counts(page)) && !tables.carriers.has(found.pages[page].at)
    };
    if !options.as_published {
        found.release_rubbish(ftl, is_rubbish);
    }
    ftl.finish_mount();
    let mut protocol = Afc {
        table: FxHashMap::default(),
        tables,
        collector: Collector::default(),
    };
    if !options.as_published {
        protocol.table = parts.table(&found, &units, &is_false, protocol.places()); // D2
    }
    Ok(Recovered {
        protocol: Box::new(protocol),
        last_tx: found.last_tx,
        done: found.done,
        rulings: rulings.into_list(),
    })
}

/// The parts of all chains.
struct Parts {
    /// By unit: the smallest unit of its part.
    of_unit: Vec<u32>,
    /// By the smallest unit of a part: whether the part has a FALSE page.
    is_false: Vec<bool>,
}

impl Parts {
    fn new(units: &Units) -> Parts {
        Parts {
            of_unit: parts_of(units.len(), units.edges().iter().copied()),
            is_false: vec![false; units.len()],
        }
    }

    /// Finds the parts with a FALSE page, including carried flags. Returns the carrier pages that
    /// are needed; the others are ignored.
    fn judge(
        &mut self,
        found: &Scanned,
        units: &Units,
        is_false: &mut [bool],
        replaces: &[Option<usize>],
    ) -> Vec<usize> {
        let mut kept: Vec<usize> = Vec::new();
        let mut carried: FxHashSet<usize> = FxHashSet::default();
        let mut carriers: Vec<usize> = (0..replaces.len())
            .filter(|&page| replaces[page].is_some())
            .collect();
        carriers.sort_by_key(|&page| found.pages[page].tail.version);
        // TRUE replaces FALSE: one carrier is always needed.
        for &page in &carriers {
            let target = replaces[page].expect("filtered");
            if !is_false[page] && carried.insert(target) {
                is_false[target] = false;
                kept.push(page);
            }
        }
        for (page, &unit) in units.of_page.iter().enumerate() {
            if unit != NO_UNIT && is_false[page] {
                self.is_false[self.of_unit[unit as usize] as usize] = true;
            }
        }
        // FALSE replaces TRUE: needed if the part has no other FALSE page.
        for &page in &carriers {
            let target = replaces[page].expect("filtered");
            let unit = units.of_page[target];
            if is_false[page] && unit != NO_UNIT {
                let part = &mut self.is_false[self.of_unit[unit as usize] as usize];
                if !std::mem::replace(part, true) {
                    is_false[target] = true;
                    kept.push(page);
                }
            }
        }
        kept
    }

    /// Whether a page belongs to a part without a FALSE page.
    fn counts(&self, units: &Units, page: usize) -> bool {
        let unit = units.of_page[page];
        unit == NO_UNIT || !self.is_false[self.of_unit[unit as usize] as usize]
    }

    /// Records the decision about each part.
    fn tell(&self, rulings: &mut Rulings, found: &Scanned, units: &Units, is_false: &[bool]) {
        let mut pages: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (page, &unit) in units.of_page.iter().enumerate() {
            if unit != NO_UNIT {
                let part = self.of_unit[unit as usize];
                pages.entry(part).or_default().push(page);
            }
        }
        for pages in pages.values() {
            let counts = self.counts(units, pages[0]);
            let no = pages.iter().filter(|&&page| is_false[page]).count();
            let because = format!("FALSE pages: {no} of {}", pages.len());
            let row = if counts { "@A" } else { "@B" };
            let xid = found.pages[pages[0]].tail.xid;
            let at = pages.iter().map(|&page| found.pages[page].at).collect();
            rulings.say(row, Some(xid), at, counts, because);
        }
    }

    /// The transactions that do not count. Their pages were never moved, so versions order units as
    /// they were written.
    fn table(
        &self,
        found: &Scanned,
        units: &Units,
        is_false: &[bool],
        place: impl Fn(Ppn) -> Ppn,
    ) -> FxHashMap<TxId, TxRow> {
        // By unit: the lowest and the highest version in it, and the unit with its newest page.
        let mut left: BTreeMap<u32, (u64, u64, Unit)> = BTreeMap::new();
        for (index, page) in found.pages.iter().enumerate() {
            if self.counts(units, index) {
                continue;
            }
            let version = page.tail.version;
            let new = Unit {
                page: page.link_to_it(),
                is_false: false,
            };
            let unit = units.of_page[index];
            let (oldest, newest, of) = left.entry(unit).or_insert((version, version, new));
            *oldest = version.min(*oldest);
            if version > *newest {
                (*newest, of.page) = (version, new.page);
            }
            of.is_false |= is_false[index];
        }
        let xid = |unit: u32| found.pages[units.first_page(unit)].tail.xid;
        let mut ordered: Vec<(u64, TxId, Unit)> = left
            .iter()
            .map(|(&unit, &(oldest, _, of))| (oldest, xid(unit), of))
            .collect();
        ordered.sort_by_key(|&(oldest, ..)| oldest);
        let mut chains: FxHashMap<TxId, Chain> = FxHashMap::default();
        for (_, xid, unit) in ordered {
            chains.entry(xid).or_default().units.push(unit);
        }
        for &(from, to) in units.edges() {
            if let (Some((.., a)), Some((.., b))) = (left.get(&from), left.get(&to)) {
                let chain = chains.get_mut(&xid(from)).expect("it has units");
                chain.links.push((place(a.page.at), place(b.page.at)));
            }
        }
        let aborted = |(xid, chain)| (xid, TxRow::Aborted(chain));
        chains.into_iter().map(aborted).collect()
    }
}
