//! CFC, recovery ([FlagCommit] §3.1.3): the flags of the heads say which transactions are
//! committed.

use super::{Cfc, FALSE, Mixed, State, TxRow, collect::Collector, is_true};
use crate::commit::active::Spare;
use crate::commit::flag_chain::{self, Shadow, Tables, Units, is_before};
use crate::commit::show::Rulings;
use crate::commit::{Options, Recovered};
use crate::ftl::{Ftl, FtlError, Mounted};
use crate::units::{Ppn, TxId};
use rustc_hash::{FxHashMap, FxHashSet};

/// The flags of a transaction's heads.
#[derive(Default)]
struct Verdict {
    /// For each TRUE head, a page with that flag.
    trues: Vec<Ppn>,
    /// A page of a FALSE head.
    not: Option<Ppn>,
}

impl Verdict {
    /// Whether the transaction is committed: @A and @C have a FALSE head.
    fn is_committed(&self) -> bool {
        self.not.is_none()
    }

    fn row(&self) -> &'static str {
        match (self.trues.is_empty(), self.is_committed()) {
            (_, true) => "@B",
            (true, false) => "@A",
            (false, false) => "@C",
        }
    }
}

/// Recovers CFC: reads the flags of all heads, maps the newest version of each page that committed
/// heads lead to, and makes a table of the other transactions (D2, D3).
pub(in crate::commit) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    let tables = Tables::new(ftl, options)?;
    let mut found = flag_chain::scan(ftl, mounted.done, options.as_published)?; // D1
    let units = found.units(ftl, tables.block_flags, |_| false);
    let mut verdicts: FxHashMap<TxId, Verdict> = FxHashMap::default();
    let mut flagged: Vec<(u32, TxId)> = Vec::new();
    for head in units.heads() {
        let (page, raised) = flag_of(ftl, &mut found, &units, head)?;
        let shadow = found.pages[page];
        let verdict = verdicts.entry(shadow.tail.xid).or_default();
        if raised {
            verdict.trues.push(shadow.at);
            flagged.push((head, shadow.tail.xid));
        } else {
            verdict.not = Some(shadow.at);
        }
    }
    let mut rulings = Rulings::new(options.tells);
    if rulings.listens() {
        for (&xid, verdict) in &verdicts {
            let pages = found.pages.iter().filter(|page| page.tail.xid == xid);
            let pages = pages.map(|page| page.at).collect();
            let (trues, not) = (verdict.trues.len(), verdict.not.map(|at| format!("p{at}")));
            let not = not.unwrap_or_else(|| "none".into());
            let because = format!("heads that are TRUE: {trues}; one that is FALSE: {not}");
            rulings.say(
                verdict.row(),
                Some(xid),
                pages,
                verdict.is_committed(),
                because,
            );
        }
    }
    flagged.retain(|(_, xid)| verdicts[xid].is_committed());
    let committed = units.reach(flagged.into_iter().map(|(head, _)| head).collect());
    let counts = |page: usize| committed[units.of_page[page] as usize];
    found.map_newest(ftl, counts)?;

    let mut table: FxHashMap<TxId, TxRow> = FxHashMap::default();
    if !options.as_published {
        // D2
        for (index, page) in found.pages.iter().enumerate() {
            if !counts(index) {
                let state = State::Aborted(None);
                table
                    .entry(page.tail.xid)
                    .or_insert(TxRow { pages: 0, state })
                    .pages += 1;
            }
        }
        // D3
        for (xid, row) in &mut table {
            let verdict = verdicts.remove(xid).unwrap_or_default();
            if let Some(keeper) = verdict.not.filter(|_| !verdict.trues.is_empty()) {
                ftl.revive(keeper);
                let trues = verdict.trues;
                row.state = State::Aborted(Some(Box::new(Mixed { keeper, trues })));
            }
        }
    }
    let mut covered = FxHashSet::default();
    if !options.as_published {
        covered = links_that_others_have(ftl, &found, &units, counts);
        let mut linked = vec![false; units.len()];
        for &(_, to) in units.edges() {
            linked[to as usize] = true;
        }
        // No flag must move when these pages go: those of transactions that were never flagged, and
        // committed ones without a link to follow, in units to which no link leads.
        let is_rubbish = |index: usize| {
            let page = &found.pages[index];
            if !counts(index) {
                return matches!(table[&page.tail.xid].state, State::Aborted(None));
            }
            let quiet = covered.contains(&page.at) || found.target(index).is_none();
            quiet && !linked[units.of_page[index] as usize]
        };
        let released = found.release_rubbish(ftl, is_rubbish);
        for index in released {
            let Shadow { at, tail, .. } = found.pages[index];
            let xid = tail.xid;
            covered.remove(&at);
            if let Some(row) = table.get_mut(&xid) {
                row.pages -= 1;
                if row.pages == 0 {
                    table.remove(&xid);
                }
            }
        }
    }
    ftl.finish_mount();
    let protocol = Cfc {
        table,
        tables,
        emptied: Spare::default(),
        covered,
        collector: Collector::default(),
    };
    Ok(Recovered {
        protocol: Box::new(protocol),
        last_tx: found.last_tx,
        done: found.done,
        rulings: rulings.into_list(),
    })
}

/// Committed pages with the same link as another page, which is kept: an interrupted collection
/// leaves originals and copies. Reclaiming these pages requires no flag.
fn links_that_others_have(
    ftl: &Ftl,
    found: &flag_chain::Scanned,
    units: &Units,
    counts: impl Fn(usize) -> bool,
) -> FxHashSet<Ppn> {
    // By linked unit, the page that links to it: live pages first, then the oldest.
    let mut linking: FxHashMap<u32, usize> = FxHashMap::default();
    let mut covered = FxHashSet::default();
    for index in (0..found.pages.len()).filter(|&index| counts(index)) {
        let Some(to) = found.target(index).map(|target| units.of_page[target]) else {
            continue;
        };
        if to == units.of_page[index] {
            continue;
        }
        let better = |a: usize, b: usize| {
            let (a, b) = (&found.pages[a], &found.pages[b]);
            match (ftl.blocks.is_live(a.at), ftl.blocks.is_live(b.at)) {
                (true, false) => true,
                (false, true) => false,
                _ => is_before(a.seq, b.seq),
            }
        };
        match linking.get_mut(&to) {
            None => {
                linking.insert(to, index);
            }
            Some(other) if better(index, *other) => {
                covered.insert(found.pages[*other].at);
                *other = index;
            }
            Some(_) => {
                covered.insert(found.pages[index].at);
            }
        }
    }
    covered
}

/// Whether a unit is TRUE, and the page with that flag; the first page if there is none.
fn flag_of(
    ftl: &mut Ftl,
    found: &mut flag_chain::Scanned,
    units: &Units,
    unit: u32,
) -> Result<(usize, bool), FtlError> {
    let pages_per_block = ftl.geometry().pages_per_block;
    // D9: a page that was programmed TRUE says so in the summary, and its flag is not read.
    let born_true = |&page: &usize| is_true(found.pages[page].tail.born);
    if let Some(page) = units.pages(unit, pages_per_block).find(born_true) {
        return Ok((page, true));
    }
    for page in units.pages(unit, pages_per_block) {
        if is_true(found.flag(ftl, page, FALSE)?) {
            return Ok((page, true));
        }
    }
    Ok((units.first_page(unit), false))
}
