//! Recovery ([FlagCommit] §4.3): which transactions are committed by flags, and the live versions
//! of each page. Reads a summary page per block, and the pages with entries.

use super::book::Owned;
use super::collect::Records;
use super::format::{List, Tail, read_version};
use super::versions::{Held, Version, Versions};
use super::{Live, Member, RecordKind, Rules, afc_ex::AfcEx, cfc_ex::CfcEx};
use crate::commit::Ruling;
use crate::commit::show::Rulings;
use crate::ftl::{Cause, Ftl, FtlError, Mounted, Slot};
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// A version on flash.
struct Page {
    at: Ppn,
    lpn: Lpn,
    seq: u64,
    version: u64,
    /// Index in the lists, if it has entries.
    list: Option<u32>,
}

/// Flags that cuts have torn (D8).
#[derive(Debug, Clone, Default)]
pub(super) struct Torn {
    /// Pages with a torn flag.
    pub(super) pages: Vec<Ppn>,
    /// Blocks with entries of the transactions with torn flags.
    pub(super) blocks: BTreeSet<Pbn>,
}

/// The result of recovery.
pub(super) struct Recovered {
    pub(super) records: Records,
    pub(super) torn: Torn,
    pub(super) last_tx: TxId,
    pub(super) done: Nanos,
    /// Transactions without a deciding flag are reported as aborted until the host's log is known.
    pub(super) rulings: Vec<Ruling>,
}

/// Reads a mounted device: all summaries, and the pages with entries. Transactions whose flags do
/// not say committed are in doubt until the host resolves them.
pub(super) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    kind: RecordKind,
    rules: Rules,
    tells: bool,
) -> Result<Recovered, FtlError> {
    let mut rulings = Rulings::new(tells);
    let mut pages: Vec<Page> = Vec::new();
    let mut with_entries = Vec::new();
    let mut too_many = None;
    let blocks = ftl.blocks.for_data();
    let scanned = ftl.scan(mounted.done, &blocks, |at, head, tail| {
        too_many = too_many.max(Tail::too_many(tail));
        let tail = Tail::parse(tail);
        if tail.entries > 0 {
            with_entries.push(pages.len());
        }
        pages.push(Page {
            at,
            lpn: head.lpn,
            seq: head.seq,
            version: tail.version,
            list: None,
        });
    })?;
    if let Some(entries) = too_many {
        return Err(FtlError::Foreign(format!(
            "a page has records of {entries} pending transactions, more than `max_c`: open it with \
             `max_c` as it was when the device was written"
        )));
    }
    let mut done = scanned;
    let mut lists: Vec<(List, Tail)> = Vec::new();
    for index in with_entries {
        let page = &mut pages[index];
        let (version, read) = read_version(ftl, scanned, page.at, Cause::Recovery)?;
        done = done.max(read);
        // An unreadable version stays mapped, so that the loss shows.
        if let Some(version) = version {
            page.list = Some(lists.len() as u32);
            lists.push((version.list, version.tail));
        }
    }

    let found = transactions(&pages, &lists);
    let last_tx = found.last_key_value().map_or(TxId(0), |(&tx, _)| tx);
    let mut records = Records {
        live: BTreeMap::new(),
        versions: Versions::default(),
        verdicts: match kind {
            RecordKind::CfcEx => Box::new(CfcEx::new(ftl, rules)),
            RecordKind::AfcEx => Box::new(AfcEx::new(ftl, rules)),
        },
        left: Nanos::ZERO,
        merged: 0,
    };
    records.versions.rules = rules;
    let mut torn = Torn::default();
    for (tx, members) in found {
        let flags: Vec<u8> = members.iter().map(|owned| owned.flag).collect();
        let is_torn = |owned: &&Owned| records.verdicts.is_torn(owned.flag);
        let pages = members.iter().filter(is_torn).map(|owned| owned.member.at);
        let before = torn.pages.len();
        torn.pages.extend(pages);
        if torn.pages.len() > before {
            let blocks = members.iter().map(|owned| owned.member.at);
            let block_of = |at| ftl.geometry().block_of(at);
            torn.blocks.extend(blocks.map(block_of));
        }
        records.verdicts.found(tx, &members);
        let counts = records.verdicts.is_committed(&flags);
        if rulings.listens() {
            let pages = members.iter().map(|owned| owned.member.at).collect();
            let flags: Vec<String> = flags
                .iter()
                .map(|&flag| (kind.info().flag)(flag).into())
                .collect();
            let because = format!("flags that are there: {}", flags.join(", "));
            rulings.say(
                if counts { "@A" } else { "@C" },
                Some(tx),
                pages,
                counts,
                because,
            );
        }
        if !counts {
            let in_doubt = Live {
                lpns: Vec::new(),
                in_doubt: true,
            };
            records.live.insert(tx, in_doubt);
        }
    }
    restore_versions(ftl, &mut records, &pages, &lists)?;
    ftl.finish_mount();
    Ok(Recovered {
        records,
        torn,
        last_tx,
        done,
        rulings: rulings.into_list(),
    })
}

/// The entries of each transaction, oldest version first.
fn transactions(pages: &[Page], lists: &[(List, Tail)]) -> BTreeMap<TxId, Vec<Owned>> {
    let mut all: BTreeMap<TxId, Vec<(u64, Owned)>> = BTreeMap::new();
    for page in pages {
        let Some((list, tail)) = page.list.map(|list| &lists[list as usize]) else {
            continue;
        };
        for (index, entry) in list.entries.iter().enumerate() {
            let member = Member {
                at: page.at,
                seq: page.seq as u32,
                index: index as u8,
            };
            let (tx, flag) = (entry.tx, tail.flags[index]);
            let owned = Owned { tx, member, flag };
            all.entry(tx).or_default().push((page.version, owned));
        }
    }
    let oldest_first = |mut members: Vec<(u64, Owned)>| {
        members.sort_by_key(|&(version, owned)| (version, owned.member.seq));
        members.into_iter().map(|(_, owned)| owned).collect()
    };
    let each = all.into_iter();
    each.map(|(tx, members)| (tx, oldest_first(members)))
        .collect()
}

/// Maps the newest version of each page, and lists older ones if records are not committed. Among
/// copies it chooses the oldest.
fn restore_versions(
    ftl: &mut Ftl,
    records: &mut Records,
    pages: &[Page],
    lists: &[(List, Tail)],
) -> Result<(), FtlError> {
    // By page with pending records: its versions, as indices of `pages`. Other pages need no list.
    let mut special: FxHashMap<Lpn, Vec<usize>> = FxHashMap::default();
    // By list: its entries of transactions that are not committed.
    let mut held: Vec<Vec<Held>> = Vec::with_capacity(lists.len());
    for (list, _) in lists {
        let entries = list.entries.iter().enumerate();
        let open = entries.filter(|(_, entry)| records.live.contains_key(&entry.tx));
        let open = open.map(|(index, entry)| Held {
            tx: entry.tx,
            index: index as u8,
            slots: entry.slots.clone(),
        });
        held.push(open.collect());
    }
    for page in pages {
        if let Some(list) = page.list.filter(|&list| !held[list as usize].is_empty()) {
            special.entry(page.lpn).or_default();
            for held in &held[list as usize] {
                let live = records.live.get_mut(&held.tx).expect("filtered");
                live.note(page.lpn);
            }
        }
    }
    let mut newest: Vec<(u64, u64)> = vec![(0, 0); ftl.logical_pages() as usize];
    for (index, page) in pages.iter().enumerate() {
        if let Some(all) = special.get_mut(&page.lpn) {
            all.push(index);
            continue;
        }
        let (version, seq) = &mut newest[page.lpn.index()];
        let older_copy = page.version == *version && page.seq < *seq;
        if page.version > *version || older_copy {
            (*version, *seq) = (page.version, page.seq);
            ftl.set_slot(page.lpn, Slot::Page(page.at));
        }
    }
    ftl.revive_mapped()?;
    let mut special: Vec<(Lpn, Vec<usize>)> = special.into_iter().collect();
    special.sort_unstable();
    let live = &records.live;
    for (lpn, mut all) in special {
        all.sort_by_key(|&page| (std::cmp::Reverse(pages[page].version), pages[page].seq));
        all.dedup_by_key(|&mut page| pages[page].version);
        let version = |page: usize| {
            let list = pages[page].list.map(|list| held[list as usize].clone());
            Version {
                at: pages[page].at,
                held: list.unwrap_or_default(),
            }
        };
        let list = all.into_iter().map(version).collect();
        let undecided = |tx| live.contains_key(&tx);
        records.versions.restore(ftl, lpn, list, undecided);
    }
    Ok(())
}
