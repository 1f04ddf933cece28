//! The identity of the stores of a run.

use super::StoreRunId;

/// For the identities of stores.
const IDENTITY: u64 = 0x1de7 << 40;

impl StoreRunId {
    /// What the identity of the stores of the run is made of.
    pub(super) fn identity(&self) -> u64 {
        self.seed
            .wrapping_add(IDENTITY)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}
