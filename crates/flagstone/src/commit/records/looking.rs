//! Inspection of a record-level device: its tables, and the decisions of its restart.

use super::RecordDevice;
use crate::commit::show::arrow;
use crate::commit::{Ruling, Table};
use crate::units::TxId;

impl RecordDevice {
    /// The decisions of the restart with their rows of the recovery table, if `tells` was set.
    /// Until [`RecordDevice::resolve`], transactions in doubt are reported as aborted.
    pub fn rulings(&self) -> &[Ruling] {
        &self.rulings
    }

    /// Records that the host's log commits a transaction without a deciding flag.
    pub(super) fn log_says_committed(&mut self, tx: TxId) {
        let own = |ruling: &&mut Ruling| ruling.tx == Some(tx);
        for ruling in self.rulings.iter_mut().filter(own) {
            (ruling.row, ruling.counts) = ("@B", true);
            ruling.because += "; the host's log says committed";
        }
    }

    /// The tables in memory, for display.
    pub fn tables(&self) -> Vec<Table> {
        let live = self.records.live.iter().map(|(tx, live)| {
            let state = if live.in_doubt { "in doubt" } else { "live" };
            let pages: Vec<String> = live.lpns.iter().map(|lpn| format!("page {lpn}")).collect();
            vec![tx.to_string(), state.into(), pages.join(", ")]
        });
        let mut versions = Vec::new();
        for (lpn, list) in self.records.versions.all() {
            let places = list.iter().map(|version| arrow(lpn, version.at));
            let places: Vec<String> = places.collect();
            versions.push(vec![format!("page {lpn}"), places.join(", ")]);
        }
        vec![
            Table {
                name: "live_transactions",
                columns: &["transaction", "state", "pending records in"],
                rows: live.collect(),
            },
            Table::sorted("live_versions", &["page", "newest first"], versions),
        ]
    }
}
