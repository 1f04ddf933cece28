//! A device that is compacted, and becomes smaller.

use super::{Device, DeviceError};
use crate::ftl::{FtlError, empty_end, forget_old, forget_trims};
use crate::units::{Nanos, Pbn};

/// What a compaction is to come to.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Aim {
    /// Blocks that are kept: the first ones. The device has as few pages then.
    pub blocks: u32,
    /// Blocks in which fewer pages are live are collected.
    pub dense: u32,
}

impl Aim {
    /// With these.
    pub fn new(blocks: u32, dense: u32) -> Aim {
        Aim { blocks, dense }
    }
}

impl Device {
    /// Forgets what was trimmed, collects blocks of which little is live, and makes the device
    /// smaller, on a medium that can be: it keeps its first blocks then, and what lies in the
    /// others moves. `was_written` says of a block whether anything was ever written to it. Returns
    /// whether all of that is done.
    ///
    /// The device stays as large as it is where a page beyond the new end holds something, while a
    /// transaction lives, where a snapshot shows what is no longer committed, where there is too
    /// little room to move what is live, and with protocols other than `seal`. A cut at any time
    /// leaves what was there.
    ///
    /// # Errors
    /// A device that cannot go on.
    pub fn compact(
        &mut self,
        now: Nanos,
        aim: Aim,
        was_written: &mut dyn FnMut(Pbn) -> bool,
    ) -> Result<bool, DeviceError> {
        if self.live.len() > 0 || !self.ftl.can_compact(aim.blocks) {
            return Ok(false);
        }
        let compacted = self.try_to_compact(now, aim, was_written);
        self.ftl.stay_large();
        match compacted {
            Err(FtlError::Full { .. }) => Ok(false),
            other => Ok(other?),
        }
    }

    fn try_to_compact(
        &mut self,
        now: Nanos,
        Aim { blocks, dense }: Aim,
        was_written: &mut dyn FnMut(Pbn) -> bool,
    ) -> Result<bool, FtlError> {
        let (ftl, protocol) = (&mut self.ftl, self.protocol.as_mut());
        protocol.settle(ftl, now)?;
        let done = protocol.end_blocks(ftl, now)?.is_some()
            && forget_old(ftl, protocol, now, blocks, was_written)?
            && protocol.end_blocks(ftl, now)?.is_some()
            && forget_trims(ftl, protocol, now)?
            && protocol.end_blocks(ftl, now)?.is_some()
            && empty_end(ftl, protocol, now, (blocks, dense))?
            && protocol.end_blocks(ftl, now)?.is_some();
        if done && blocks < ftl.geometry().blocks() {
            let done = ftl.shrink(now, was_written)?;
            protocol.grown(ftl);
            return Ok(done);
        }
        Ok(done)
    }
}
