//! What a device shows of itself: its protocol's tables, and what its restart decided.

use super::Device;
use crate::commit::{Ruling, Table};

impl Device {
    /// What the restart decided and by which row of the recovery table, if the options say that it
    /// tells ([`Options::tells`](crate::commit::Options::tells)).
    pub fn rulings(&self) -> &[Ruling] {
        &self.rulings
    }

    /// Live pages that belong to transactions which have not ended, where the protocol knows.
    pub fn uncommitted(&self) -> u64 {
        self.protocol.uncommitted()
    }

    /// Pages that so many trims of one transaction take at most.
    pub fn pages_of_trims(&self, trims: u64) -> u64 {
        trims.div_ceil(self.protocol.trims_a_page(&self.ftl))
    }

    /// The tables of the protocol in memory. The mapping table is the FTL's:
    /// [`mapping`](crate::commit::mapping).
    pub fn tables(&self) -> Vec<Table> {
        self.protocol.tables(&self.ftl)
    }
}
