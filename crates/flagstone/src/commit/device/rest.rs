//! Devices at rest: tables that spare the next opening the reading of the blocks.

use super::{Device, format};
use crate::commit::{DeviceError, Kind, Options};
use crate::ftl::{Config, Damage, Ftl, FtlError};
use crate::nand::Flash;
use crate::units::Nanos;

impl Device {
    /// Brings the device to rest: everything that its tables rely on is durable when this returns.
    /// Gives the tables, for [`Device::resume`], if the protocol can; `seal` can. They are true
    /// until the next transaction. Those that live now are rolled back by the next opening.
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

    /// As [`Device::rest`], for the last time: the tables take the memory of the mapping table, so
    /// that it is there once. If it gives tables, the device may only be dropped or taken apart.
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

    /// Ends what is being written, before the device is closed: every block gets its summary, so
    /// that a restart knows of each page whether it was there. Returns the number of the last
    /// program if it is so: [`Options::ended`] of the next opening. `seal` and `seal-r` can.
    ///
    /// # Errors
    /// The power fails.
    pub fn end_blocks(&mut self, now: Nanos) -> Result<Option<u64>, DeviceError> {
        Ok(self.protocol.end_blocks(&mut self.ftl, now)?)
    }

    /// What the restart has found damaged that was durable, where [`Options::salvages`] let it go
    /// on.
    pub fn damage(&self) -> &[Damage] {
        self.ftl.damage()
    }

    /// As [`Device::open`], for a device that was brought to rest with these tables, and to whose
    /// flash nothing was written since. If the tables turn out to be of another device, or of
    /// another state of this one, the blocks are read. Says whether the tables were of use.
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
