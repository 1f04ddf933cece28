//! Work of a device while its host is idle.

use super::{Device, DeviceError};
use crate::ftl::{Leisure, collect_ahead, tend};
use crate::units::{Nanos, Pbn};

impl Device {
    /// Erases free blocks that the caller selects; see
    /// [`Ftl::erase_some`](crate::ftl::Ftl::erase_some).
    ///
    /// # Errors
    /// The power fails.
    pub fn erase_some(
        &mut self,
        now: Nanos,
        means: &mut dyn FnMut(Pbn) -> bool,
    ) -> Result<Nanos, DeviceError> {
        self.ftl.erase_some(now, means).map_err(DeviceError::from)
    }

    /// Does due work without a request: reads of the patrol, and refreshes of blocks with many bit
    /// errors ([`scrub`](crate::ftl::Config::scrub)). A mostly idle host calls this from time to
    /// time; requests also do part of this work.
    ///
    /// # Errors
    /// The device cannot continue.
    pub fn tend(&mut self, now: Nanos) -> Result<(), DeviceError> {
        Ok(tend(&mut self.ftl, self.protocol.as_mut(), now)?)
    }

    /// Collects blocks while the host is idle. Returns the number of moved pages: 0 if there is
    /// nothing to do, or if the device does not collect incrementally. A cut at any time leaves the
    /// contents intact.
    ///
    /// # Errors
    /// The device cannot continue.
    pub fn collect_ahead(&mut self, now: Nanos, leisure: Leisure) -> Result<u32, DeviceError> {
        self.protocol.settle(&mut self.ftl, now)?;
        let owner = self.protocol.as_mut();
        Ok(collect_ahead(&mut self.ftl, owner, now, leisure)?)
    }
}
