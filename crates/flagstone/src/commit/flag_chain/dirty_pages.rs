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
    /// Records that a transaction has written a page to `slot`. The first time the committed
    /// version is kept; later the transaction's own older version is killed. Returns whether it was
    /// the first time.
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

    /// Finds a page for a transaction, or for a reader without one.
    pub(super) fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'static> {
        match self.rows.get(&at) {
            Some(row) if Some(row.tx) != tx => row.last.into(),
            _ => ftl.slot(at).into(),
        }
    }

    /// Commits a page. Returns the version that becomes obsolete.
    pub(super) fn commit(&mut self, at: Lpn) -> Option<Ppn> {
        self.rows.remove(&at).and_then(|row| row.last.ppn())
    }

    /// Rolls a page back: the last committed version is mapped again. Returns the dropped version.
    pub(super) fn abort(&mut self, ftl: &mut Ftl, at: Lpn) -> Option<Ppn> {
        let row = self.rows.remove(&at)?;
        ftl.set_slot(at, row.last).ppn()
    }

    /// Updates the mapping table or the row after a page was copied. Returns whether one of them
    /// referred to it.
    pub(super) fn moved(&mut self, ftl: &mut Ftl, lpn: Lpn, from: Ppn, slot: Slot) -> bool {
        if ftl.slot(lpn).ppn() == Some(from) {
            ftl.move_slot(lpn, slot);
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

    /// The table, for display.
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

    /// Memory of the table in bytes.
    pub(super) fn bytes(&self) -> u64 {
        table_bytes::<Lpn, Row>(self.rows.len())
    }

    /// Checks that every row belongs to a transaction in progress and that both versions are live.
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
            if both.into_iter().flatten().any(|at| !ftl.blocks.is_live(at)) {
                return Err(format!("a version of the dirty page {lpn} is not kept"));
            }
        }
        Ok(())
    }
}
