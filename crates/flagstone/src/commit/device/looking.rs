//! Inspection of a device: its protocol's tables, and the decisions of its restart.

use super::Device;
use crate::commit::{Ruling, Table};

impl Device {
    /// The decisions of the restart with their rows of the recovery table, if
    /// [`Options::tells`](crate::commit::Options::tells) was set.
    pub fn rulings(&self) -> &[Ruling] {
        &self.rulings
    }

    /// Number of live pages of unfinished transactions, as far as the protocol knows.
    pub fn uncommitted(&self) -> u64 {
        self.protocol.uncommitted()
    }

    /// Maximum number of pages for `trims` trims of one transaction.
    pub fn pages_of_trims(&self, trims: u64) -> u64 {
        trims.div_ceil(self.protocol.trims_a_page(&self.ftl))
    }

    /// The protocol's tables in memory. The FTL's mapping table is
    /// [`mapping`](crate::commit::mapping).
    pub fn tables(&self) -> Vec<Table> {
        self.protocol.tables(&self.ftl)
    }
}
