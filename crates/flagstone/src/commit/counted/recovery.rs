//! Recovery of LightTx and MHL-D: finds the pages in the zones, and which of them count.

use super::zones::Zones;
use super::{count_record, widen};
use crate::commit::show::Rulings;
use crate::ftl::{Ftl, FtlError, Mounted, Slot};
use crate::layout::get;
use crate::units::{Lpn, Nanos, TxId};

/// A page found in the zones.
#[derive(Debug, Clone, Copy)]
struct Seen {
    tx: u32,
    seq: u64,
    count: u32,
    version: u64,
    lpn: Lpn,
    slot: Slot,
}

/// Updates the mapping table of a mounted device from its zones. Returns the zones, and when that
/// was done.
///
/// `trust_all` and `any_order` are the forms as published: redo commits that the table already
/// contains, and take pages of one transaction in the order in which they are found.
pub(super) fn bring_up_to_date(
    ftl: &mut Ftl,
    mounted: &Mounted,
    zone_blocks: u32,
    trust_all: bool,
    any_order: bool,
    rulings: &mut Rulings,
) -> Result<(Zones, Nanos), FtlError> {
    let (mut zones, last) = Zones::mount(ftl, mounted, zone_blocks)?;
    let mut seen: Vec<Seen> = Vec::new();
    // Most of the Available zone is blank: reading a first page is cheaper than reading a summary.
    let mut blocks = Vec::new();
    let mut looked = mounted.done;
    for &block in &last.available {
        let (read, written) = ftl.look_into(mounted.done, block)?;
        looked = looked.max(read);
        blocks.extend(written.then_some(block));
    }
    blocks.extend(&last.unavailable);
    let done = ftl.scan(mounted.done, &blocks, |at, head, tail| {
        seen.push(Seen {
            tx: get(tail, count_record::TXID) as u32,
            seq: head.seq,
            count: get(tail, count_record::TXCNT) as u32,
            version: widen(get(tail, count_record::TXVER) as u32, last.version),
            lpn: head.lpn,
            slot: Slot::of(head.kind, at),
        });
    })?;
    let done = done.max(looked);
    zones.keep(ftl, blocks.into_iter());
    for page in &seen {
        if page.count > 0 {
            zones.version = zones.version.max(page.version);
        }
        if page.tx > 0 {
            let tx = TxId(widen(page.tx, zones.last_tx.0));
            zones.last_tx = zones.last_tx.max(tx);
        }
    }
    if rulings.listens() {
        let has = |page: &Seen| ftl.slot(page.lpn) == page.slot;
        tell(rulings, has, seen.clone(), last.version);
    }
    let all = redo(seen, last.version, trust_all, any_order);
    for (at, slot) in all.into_iter().flat_map(|one| one.pages) {
        ftl.set_slot(at, slot);
        if matches!(slot, Slot::Trimmed(_)) {
            zones.trimmed(at);
        }
    }
    ftl.revive_mapped()?;
    ftl.finish_mount();
    Ok((zones, done))
}

/// A committed transaction, or a page without a transaction.
struct Redone {
    version: u64,
    pages: Vec<(Lpn, Slot)>,
}

/// The commits that the checkpoint's mapping table lacks, in order.
fn redo(mut seen: Vec<Seen>, checkpoint: u64, trust_all: bool, any_order: bool) -> Vec<Redone> {
    if any_order {
        seen.sort_by_key(|page| page.tx);
    } else {
        seen.sort_by_key(|page| (page.tx, page.seq));
    }
    // Without the mapping table, a transaction that the table has in part looks uncommitted.
    // Neither is redone, so the table is not asked.
    let is_due = |pages: &&[Seen]| is_redone(row(pages, checkpoint, |_| false), trust_all);
    let redone = grouped(&seen).filter(is_due);
    // The page with the TxVer: the last one of a transaction, or a copy by itself.
    let counting = |pages: &[Seen]| {
        *pages
            .iter()
            .find(|page| page.count > 0)
            .unwrap_or(&pages[0])
    };
    let whole = |pages: &[Seen]| Redone {
        version: counting(pages).version,
        pages: pages.iter().map(|page| (page.lpn, page.slot)).collect(),
    };
    let mut all: Vec<Redone> = redone.map(whole).collect();
    all.sort_by_key(|one| one.version);
    all
}

/// Splits sorted pages into transactions and single pages without a transaction.
fn grouped(seen: &[Seen]) -> impl Iterator<Item = &[Seen]> {
    seen.chunk_by(|a, b| a.tx == b.tx && a.tx != 0)
}

/// The row of the recovery table for the pages of a transaction, or for a page without one. If the
/// checkpoint's mapping table has some of the pages, others may have left the zones.
fn row(pages: &[Seen], checkpoint: u64, table_has: impl Fn(&Seen) -> bool) -> &'static str {
    if pages[0].tx == 0 {
        return if pages[0].version > checkpoint {
            "@E"
        } else {
            "@F"
        };
    }
    match pages.iter().find(|page| page.count > 0) {
        Some(last) if last.count as usize == pages.len() => {
            if last.version > checkpoint {
                "@C"
            } else {
                "@D"
            }
        }
        _ if pages.iter().any(table_has) => "@G",
        None => "@A",
        Some(_) => "@B",
    }
}

/// Returns `true` if recovery row `row` redoes the pages of a transaction. With `trust_all`, as
/// published, pages in the mapping table are redone as well.
fn is_redone(row: &str, trust_all: bool) -> bool {
    matches!(row, "@C" | "@E") || trust_all && matches!(row, "@D" | "@F")
}

/// Records the decision about each transaction, and each page without one.
fn tell(
    rulings: &mut Rulings,
    table_has: impl Fn(&Seen) -> bool,
    mut seen: Vec<Seen>,
    checkpoint: u64,
) {
    seen.sort_by_key(|page| (page.tx, page.seq));
    for pages in grouped(&seen) {
        let (row, there) = (row(pages, checkpoint, &table_has), pages.len());
        let because = match pages.iter().find(|page| page.count > 0) {
            Some(last) => format!(
                "pages that are there: {there}, TxCnt {}, TxVer {}; ckptVer {checkpoint}",
                last.count, last.version
            ),
            None => format!("pages that are there: {there}, none with a TxCnt"),
        };
        let tx = (pages[0].tx != 0).then_some(TxId(pages[0].tx.into()));
        let at = pages.iter().filter_map(|page| page.slot.ppn()).collect();
        rulings.say(row, tx, at, !matches!(row, "@A" | "@B"), because);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Case, cases, prove, prove_rows, rows_that_differ};
    use crate::units::Ppn;

    /// The pages of a transaction in the zones, or one page without a transaction.
    #[derive(Debug)]
    struct Facts {
        has_tx: bool,
        pages: u32,
        /// TxCnt in the page at `counts`; 0 if no page found has one.
        count: u32,
        counts: u32,
        /// TxVer in the same page; ckptVer is 17.
        version: u64,
        /// Whether the checkpoint's mapping table has one of the pages.
        is_mapped: bool,
    }

    /// The table in the header of LightTx. The verdict is whether the pages are redone.
    const TABLE: [Case<Facts, bool>; 7] = cases! { |facts|
        "@A": facts.has_tx && facts.count == 0 && !facts.is_mapped => false;
        "@B": facts.has_tx && facts.count > 0 && facts.count != facts.pages && !facts.is_mapped
            => false;
        "@C": facts.has_tx && facts.count == facts.pages && facts.version > 17 => true;
        "@D": facts.has_tx && facts.count == facts.pages && facts.version <= 17 => false;
        "@E": !facts.has_tx && facts.version > 17 => true;
        "@F": !facts.has_tx && facts.version <= 17 => false;
        "@G": facts.has_tx && facts.count != facts.pages && facts.is_mapped => false;
    };

    impl Facts {
        fn all() -> Vec<Facts> {
            let mut all = Vec::new();
            for (pages, count) in (1..4).flat_map(|pages| (0..6).map(move |count| (pages, count))) {
                for (counts, version) in (0..pages).flat_map(|at| [16, 17, 18].map(|v| (at, v))) {
                    for has_tx in [true, false] {
                        // A page without a transaction is alone and counts itself.
                        if has_tx || (pages, count) == (1, 1) {
                            all.extend([true, false].map(|is_mapped| Facts {
                                has_tx,
                                pages,
                                count,
                                counts,
                                version,
                                is_mapped,
                            }));
                        }
                    }
                }
            }
            all
        }

        /// The row reported for the pages of transaction 7, or for the page without a transaction.
        fn row(&self) -> &'static str {
            let page = |at: u32| Seen {
                tx: 7 * u32::from(self.has_tx),
                seq: u64::from(at),
                count: if at == self.counts { self.count } else { 0 },
                version: if at == self.counts { self.version } else { 0 },
                lpn: Lpn(at),
                slot: Slot::Page(Ppn(at)),
            };
            let seen: Vec<Seen> = (0..self.pages).map(page).collect();
            let mut rulings = Rulings::new(true);
            let is_last = |page: &Seen| page.seq == u64::from(self.pages - 1);
            tell(
                &mut rulings,
                |page| self.is_mapped && is_last(page),
                seen,
                17,
            );
            rulings.into_list()[0].row
        }

        /// Whether the pages are redone, in addition to those of transaction 8, which always are.
        fn is_redone(&self, trust_all: bool, any_order: bool) -> bool {
            let page = |tx, at: u32, (count, version)| Seen {
                tx,
                seq: u64::from(tx * 10 + at),
                count,
                version,
                lpn: Lpn(tx * 10 + at),
                slot: Slot::Page(Ppn(tx * 10 + at)),
            };
            let mut seen = vec![page(8, 0, (0, 0)), page(8, 1, (2, 30))];
            for at in 0..self.pages {
                let last = (at == self.counts).then_some((self.count, self.version));
                seen.push(page(7 * u32::from(self.has_tx), at, last.unwrap_or((0, 0))));
            }
            let all = redo(seen, 17, trust_all, any_order);
            let of = |one: &Redone| one.pages.iter().map(|page| page.0.0).collect::<Vec<_>>();
            let (other, own) = all.split_last().expect("transaction 8 is there");
            assert_eq!(of(other), [80, 81], "by TxVer");
            let first = 70 * u32::from(self.has_tx);
            let whole: Vec<u32> = (first..first + self.pages).collect();
            assert!(own.iter().all(|one| of(one) == whole));
            own.len() == 1
        }
    }

    #[test]
    fn every_row_of_the_recovery_table() {
        prove(&TABLE, &Facts::all(), |facts| facts.is_redone(false, false));
        prove_rows(&TABLE, &Facts::all(), Facts::row);
    }

    #[test]
    fn the_printed_form_differs_from_the_table_where_a_checkpoint_has_the_pages() {
        let printed = |facts: &Facts| facts.is_redone(true, true);
        assert_eq!(
            rows_that_differ(&TABLE, &Facts::all(), printed),
            ["@D", "@F"]
        );
    }
}
