//! Compares SEAL's tables with the flash, for tests and campaigns.

use super::own::count_of;
use super::{Seal, tail};
use crate::ftl::{Ftl, header};
use crate::layout::get;
use crate::units::{Ppn, TxId};

impl Seal {
    /// Checks that a mapped page counts by itself or by the summary of its block, or that its
    /// transaction is recorded as needing evidence for the block.
    pub(super) fn check_mapped(&self, ftl: &Ftl, at: Ppn) -> Result<(), String> {
        let mut spare = [0xff; header::SIZE + tail::SIZE];
        if ftl.peek(at, &mut [], &mut spare).is_none() {
            return Ok(());
        }
        let bytes = &spare[header::SIZE..];
        let (tx, (count, _)) = (TxId(get(bytes, tail::XID)), count_of(bytes));
        let block = ftl.geometry().block_of(at);
        if tx == TxId(0) || count == 1 || self.evidence.is_undecided(tx, block) {
            return Ok(());
        }
        let seq = get(&spare, header::SEQ);
        if self
            .bounds
            .as_ref()
            .is_some_and(|bounds| seq <= bounds.unto())
        {
            return Ok(());
        }
        match ftl.peek_verdict(at) {
            0 => Err(format!("nothing says that page {at} of {tx} counts")),
            _ => Ok(()),
        }
    }
}
