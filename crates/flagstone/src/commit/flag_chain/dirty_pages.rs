//! The dirty page table ([FlagCommit] §3.1): where the last committed version is of each page that
//! a transaction in progress has written. The mapping table holds the new version meanwhile.

use crate::commit::{Found, Table, table_bytes};
use crate::ftl::{Ftl, Slot};
use crate::units::{Lpn, Ppn, TxId};
use rustc_hash::FxHashMap;

#[derive(Debug, Clone, Copy)]
struct Row {
    tx: TxId,
    /// LastPBA in the paper.
    last: Slot,
}

/// The dirty page table.
#[derive(Debug, Clone, Default)]
pub(super) struct DirtyPages {
    rows: FxHashMap<Lpn, Row>,
}

impl DirtyPages {
    /// A transaction has written a page to `slot`. The first time the committed version is kept;
    /// later nobody needs the transaction's own older version any more. Says whether it was the
    /// first time.
    pub(super) fn write(&mut self, ftl: &mut Ftl, tx: TxId, at: Lpn, slot: Slot) -> bool {
        let last = ftl.set_slot(at, slot);
        if let Some(row) = self.rows.get(&at) {
            assert_eq!(row.tx, tx, "two transactions write page {at}");
            ftl.kill(last.ppn().expect("it was written before"));
            return false;
        }
        self.rows.insert(at, Row { tx, last });
        true
    }

    /// Where a transaction, or a reader of none, finds a page.
    pub(super) fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'static> {
        match self.rows.get(&at) {
            Some(row) if Some(row.tx) != tx => row.last.into(),
            _ => ftl.slot(at).into(),
        }
    }

    /// The transaction that wrote the page has committed. Returns the version that is obsolete now.
    pub(super) fn commit(&mut self, at: Lpn) -> Option<Ppn> {
        self.rows.remove(&at).and_then(|row| row.last.ppn())
    }

    /// The transaction that wrote the page is rolled back: the last committed version is in the
    /// mapping table again. Returns the version that never was.
    pub(super) fn abort(&mut self, ftl: &mut Ftl, at: Lpn) -> Option<Ppn> {
        let row = self.rows.remove(&at)?;
        ftl.set_slot(at, row.last).ppn()
    }

    /// A page has a copy: whoever names the old place, the mapping table or a row, names the new
    /// one. Says whether anybody did.
    pub(super) fn moved(&mut self, ftl: &mut Ftl, (lpn, from): (Lpn, Ppn), slot: Slot) -> bool {
        if ftl.slot(lpn).ppn() == Some(from) {
            ftl.set_slot(lpn, slot);
            return true;
        }
        match self.rows.get_mut(&lpn) {
            Some(row) if row.last.ppn() == Some(from) => {
                row.last = slot;
                true
            }
            _ => false,
        }
    }

    /// The table, for people.
    pub(super) fn table(&self, ftl: &Ftl) -> Table {
        let row = |(lpn, row): (&Lpn, &Row)| {
            let place = |slot: Slot| slot.ppn().map_or("none".into(), |at| format!("p{at}"));
            let (last, new) = (place(row.last), place(ftl.slot(*lpn)));
            vec![format!("page {lpn}"), row.tx.to_string(), new, last]
        };
        Table::sorted(
            "dirty_page_table",
            &[
                "dirty page",
                "transaction",
                "its version",
                "last committed version",
            ],
            self.rows.iter().map(row).collect(),
        )
    }

    /// Bytes of the table.
    pub(super) fn bytes(&self) -> u64 {
        table_bytes::<Lpn, Row>(self.rows.len())
    }

    /// Checks that every row is of a transaction in progress and that both versions are kept.
    pub(super) fn check(
        &self,
        ftl: &Ftl,
        in_progress: impl Fn(TxId) -> bool,
    ) -> Result<(), String> {
        for (&lpn, row) in &self.rows {
            if !in_progress(row.tx) {
                return Err(format!(
                    "page {lpn} is dirty by {}, which is not in progress",
                    row.tx
                ));
            }
            let both = [row.last.ppn(), ftl.slot(lpn).ppn()];
            if both.into_iter().flatten().any(|at| !ftl.is_live(at)) {
                return Err(format!("a version of the dirty page {lpn} is not kept"));
            }
        }
        Ok(())
    }
}
