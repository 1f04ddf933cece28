//! Devices at rest: saved tables let the next opening skip reading the blocks.

use super::{Device, format};
use crate::commit::{DeviceError, Kind, Options};
use crate::ftl::{Config, Damage, Ftl, FtlError};
use crate::nand::Flash;
use crate::units::Nanos;

impl Device {
    /// Brings the device to rest: everything that its tables rely on is durable when this returns.
    /// Returns the tables, for [`Device::resume`], if the protocol supports it, as `seal` does.
    /// They are valid until the next transaction. Live transactions are rolled back by the next
    /// opening.
    ///
    /// ```
    /// use flagstone::commit::{Device, Options};
    /// use flagstone::ftl::Config;
    /// use flagstone::prelude::*;
    ///
    /// let mut device = Device::with_defaults(Chip::default(), Kind::Seal)?;
    /// let tx = device.begin(Nanos::ZERO)?;
    /// device.write(Nanos::ZERO, tx, Lpn(5), b"five")?;
    /// let now = device.commit(Nanos::ZERO, tx)?.expect("it is alone");
    /// let tables = device.rest(now)?.expect("SEAL gives its tables");
    ///
    /// let (flash, config, options) = (device.into_flash(), Config::default(), Options::default());
    /// let resumed = Device::resume(flash, Kind::Seal, config, &options, Nanos::ZERO, tables)?;
    /// let (mut device, were_of_use) = resumed;
    /// assert!(were_of_use);
    /// assert_eq!(device.read(Nanos::ZERO, None, Lpn(5))?.1, Some(&b"five"[..]));
    /// # Ok::<(), DeviceError>(())
    /// ```
    ///
    /// # Errors
    /// The power fails.
    pub fn rest(&mut self, now: Nanos) -> Result<Option<Vec<u8>>, DeviceError> {
        self.rest_by(now, |ftl| ftl.rest())
    }

    /// Like [`Device::rest`], but moves the mapping table into the tables, to save memory. If it
    /// returns tables, the device may only be dropped or taken apart.
    ///
    /// # Errors
    /// As [`Device::rest`].
    pub fn rest_for_good(&mut self, now: Nanos) -> Result<Option<Vec<u8>>, DeviceError> {
        self.rest_by(now, Ftl::rest_for_good)
    }

    fn rest_by(
        &mut self,
        now: Nanos,
        tables: impl FnOnce(&mut Ftl) -> Vec<u8>,
    ) -> Result<Option<Vec<u8>>, DeviceError> {
        let own = self.protocol.rest(&mut self.ftl, now)?;
        Ok(own.map(|own| {
            let mut all = tables(&mut self.ftl);
            all.extend(own);
            all
        }))
    }

    /// Closes open blocks before the device is closed: every block gets its summary, which lists
    /// all pages that existed. Returns the number of the last program if every block has one, for
    /// [`Options::ended`] of the next opening. Supported by `seal` and `seal-r`.
    ///
    /// # Errors
    /// The power fails.
    pub fn end_blocks(&mut self, now: Nanos) -> Result<Option<u64>, DeviceError> {
        Ok(self.protocol.end_blocks(&mut self.ftl, now)?)
    }

    /// Damaged durable data that the restart has found, if [`Options::salvages`] is set.
    pub fn damage(&self) -> &[Damage] {
        self.ftl.damage()
    }

    /// Like [`Device::open`], for a device that was brought to rest with these tables and whose
    /// flash was not written since. If the tables belong to another device, or to another state of
    /// this one, the blocks are read. Returns whether the tables were used.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn resume(
        flash: Box<dyn Flash>,
        kind: Kind,
        config: Config,
        options: &Options,
        now: Nanos,
        tables: Vec<u8>,
    ) -> Result<(Device, bool), DeviceError> {
        let format = format(flash.as_ref(), kind.info(), &config, options)?;
        let (mut ftl, mounted) = Ftl::mount_at_rest(flash, config, format, now, tables)?;
        let were_of_use = mounted.rest.is_some();
        match kind.recover(&mut ftl, mounted, options) {
            Ok(recovered) => Ok((Device::with(ftl, kind.info(), recovered)?, were_of_use)),
            Err(FtlError::Foreign(_)) => {
                let device = Device::open(ftl.into_flash(), kind, config, options, now)?;
                Ok((device, false))
            }
            Err(other) => Err(other.into()),
        }
    }
}
