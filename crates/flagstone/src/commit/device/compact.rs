//! Compaction of a device, which may shrink it.

use super::{Device, DeviceError};
use crate::ftl::{FtlError, empty_end, forget_old, forget_trims};
use crate::units::{Nanos, Pbn};

/// The goal of a compaction.
///
/// ```
/// use flagstone::commit::Aim;
/// use flagstone::prelude::*;
///
/// let mut device = Device::with_defaults(Chip::default(), Kind::Seal)?;
/// let blocks = device.geometry().blocks();
/// // A medium that cannot shrink, such as a simulated chip, is left as it is.
/// let aim = Aim::new(blocks / 2, 60);
/// assert!(!device.compact(Nanos::ZERO, aim, &mut |_| true)?);
/// assert_eq!(device.geometry().blocks(), blocks);
/// # Ok::<(), DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Aim {
    /// Number of first blocks to keep. The number of logical pages shrinks accordingly.
    pub blocks: u32,
    /// Blocks with fewer live pages than this are collected.
    pub dense: u32,
}

impl Aim {
    /// Creates a goal from the two values.
    pub fn new(blocks: u32, dense: u32) -> Aim {
        Aim { blocks, dense }
    }
}

impl Device {
    /// Drops trims, collects blocks with few live pages, and shrinks the device if its medium can
    /// shrink: then it keeps the first blocks, and moves the contents of the others. `was_written`
    /// returns whether a block was ever written. Returns whether everything was done.
    ///
    /// The size does not change if a page beyond the new end holds data, a transaction is live, a
    /// snapshot shows replaced versions, there is too little room to move live pages, or the
    /// protocol is not `seal`. A cut at any time leaves the contents intact.
    ///
    /// # Errors
    /// The device cannot continue.
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
        self.ftl.blocks.end_at(None);
        match compacted {
            Err(FtlError::Full { .. }) => Ok(false),
            other => Ok(other?),
        }
    }

    /// The steps of [`Device::compact`], in the order that `ftl::shrink` requires. Each needs all
    /// blocks full or free, so open ones are closed before it. Returns `false` at the first step
    /// that is impossible.
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
            && empty_end(ftl, protocol, now, blocks, dense)?
            && protocol.end_blocks(ftl, now)?.is_some();
        if done && blocks < ftl.geometry().blocks() {
            let done = ftl.shrink(now, was_written)?;
            protocol.grown(ftl);
            return Ok(done);
        }
        Ok(done)
    }
}
