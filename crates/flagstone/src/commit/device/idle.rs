//! What a device does while its host asks for nothing.

use super::{Device, DeviceError};
use crate::ftl::{Leisure, collect_ahead, tend};
use crate::units::{Nanos, Pbn};

impl Device {
    /// Erases free blocks that the caller means; see
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

    /// Does what is due without a request: the reads of the patrol, and the refresh of blocks with
    /// many bit errors ([`scrub`](crate::ftl::Config::scrub)). A host that asks for little calls it
    /// from time to time; requests do a part of it themselves.
    ///
    /// # Errors
    /// A device that cannot go on.
    pub fn tend(&mut self, now: Nanos) -> Result<(), DeviceError> {
        Ok(tend(&mut self.ftl, self.protocol.as_mut(), now)?)
    }

    /// Collects blocks while the host asks for nothing. Returns how many pages it has moved: none
    /// if nothing is left to do, or if the device does not collect in steps. A cut at any time
    /// leaves what was there.
    ///
    /// # Errors
    /// A device that cannot go on.
    pub fn collect_ahead(&mut self, now: Nanos, leisure: Leisure) -> Result<u32, DeviceError> {
        self.protocol.settle(&mut self.ftl, now)?;
        let owner = self.protocol.as_mut();
        Ok(collect_ahead(&mut self.ftl, owner, now, leisure)?)
    }
}
