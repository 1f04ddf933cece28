//! Work of a device while its host is idle.

use super::{Device, DeviceError};
use crate::ftl::{Leisure, collect_ahead, collect_chosen, tend};
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

    /// Collects a full block that the caller has chosen, even if that gains no space: moves its
    /// live pages and erases it. Returns when the erase is done, or `None` if the block cannot be
    /// collected now: it is not full, the FTL keeps its own pages there, the protocol needs it, or
    /// a page in it is lost to bit errors. A block with a lost page is left out of collections as
    /// long as it has a live page, and its other live pages may have moved.
    ///
    /// # Errors
    /// No block is left for the live pages, or the power fails.
    pub fn collect(&mut self, now: Nanos, block: Pbn) -> Result<Option<Nanos>, DeviceError> {
        self.protocol.settle(&mut self.ftl, now)?;
        let owner = self.protocol.as_mut();
        Ok(collect_chosen(&mut self.ftl, owner, now, block)?)
    }
}
