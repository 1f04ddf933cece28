//! Access to the FTL below a device.

/// Methods common to devices of pages and of records.
macro_rules! over_ftl {
    ($Device:ty) => {
        impl $Device {
            /// Number of logical pages.
            pub fn pages(&self) -> u32 {
                self.ftl.logical_pages()
            }

            /// The geometry of the flash.
            pub fn geometry(&self) -> &$crate::nand::Geometry {
                self.ftl.geometry()
            }

            /// Flash operations since the start.
            pub fn stats(&self) -> &$crate::ftl::Stats {
                self.ftl.stats()
            }

            /// Counters of the host's requests since the start.
            pub fn request_stats(&self) -> &$crate::commit::RequestStats {
                &self.host
            }

            /// When recovery ended, before transactions in doubt were resolved.
            pub fn recovered_at(&self) -> Nanos {
                self.recovered_at
            }

            /// The last transaction that began. After a restart: the highest identifier on the
            /// flash.
            pub fn last_tx(&self) -> TxId {
                self.last_tx
            }

            /// Erases free blocks before they are needed; see [`Ftl::erase_ahead`].
            ///
            /// # Errors
            /// The power fails.
            pub fn erase_ahead(&mut self, now: Nanos) -> Result<Nanos, DeviceError> {
                Ok(self.ftl.erase_ahead(now)?)
            }

            /// Announces that no request will come at an earlier instant; see [`Flash::reached`].
            pub fn reached(&mut self, now: Nanos) {
                self.ftl.reached(now);
            }

            /// The FTL below, for inspection.
            pub fn ftl(&self) -> &Ftl {
                &self.ftl
            }

            /// See [`Ftl::lend_reserve`].
            pub fn lend_reserve(&mut self, lent: bool) {
                self.ftl.lend_reserve(lent);
            }

            /// The flash, which is all that a power cut leaves.
            pub fn into_flash(self) -> Box<dyn Flash> {
                self.ftl.into_flash()
            }
        }
    };
}
pub(in crate::commit) use over_ftl;
