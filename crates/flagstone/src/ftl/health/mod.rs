//! The health of the device: data is rewritten before its cells lose it, and blocks that fail are
//! taken out of service.

mod scrub;
mod wear;

pub(super) use scrub::{Scrubber, step};
pub(crate) use scrub::{tend, tend_before_read};
pub(super) use wear::Spares;
pub use wear::{EndOfLife, Wear};

use super::{BlockState, Ftl, FtlError};
use crate::units::{Nanos, Pbn};

impl Ftl {
    /// Retires a block and makes that durable: its old contents may still be readable, and a
    /// restart must ignore them.
    pub(in crate::ftl) fn retire_now(&mut self, now: Nanos, id: Pbn) -> Result<Nanos, FtlError> {
        self.blocks.set_state(id, BlockState::Bad);
        self.stats.retired += 1;
        self.journal.list_bad(id);
        let durable = self.write_root(now)?;
        let plane = self.geometry.plane_of(id);
        self.horizon.forgets(id, plane, self.seq, durable);
        Ok(durable)
    }
}
