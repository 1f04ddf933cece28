//! The machine of a stack: force, WAL or flag-ex, each with its own kind of device.

use super::HostError;
use super::flag_ex::FlagEx;
use super::force::Force;
use super::log::Log;
use super::tools::{Tools, Verbs};
use super::wal::{Pages, Wal};
use flagstone::commit::{DeviceError, spare_numbers};
use flagstone::ftl::Ftl;
use flagstone::nand::Flash;
use flagstone::units::{Nanos, TxId};

/// A machine: a recovery manager that owns its device and, if it has one, its log.
pub(super) enum Machine {
    Force(Force),
    Wal(Wal),
    FlagEx(FlagEx),
}

/// Makes a call that all devices have on the device of a machine.
macro_rules! on_device {
    ($machine:expr, $device:ident => $what:expr) => {
        match $machine {
            Machine::Force(Force {
                device: $device, ..
            }) => $what,
            Machine::Wal(Wal {
                pages: Pages {
                    device: $device, ..
                },
                ..
            }) => $what,
            Machine::FlagEx(FlagEx {
                device: $device, ..
            }) => $what,
        }
    };
}

/// A database after its restart.
pub(super) struct Opened {
    pub(super) machine: Machine,
    pub(super) tools: Tools,
    /// Number of logical pages for records.
    pub(super) pages: u32,
    pub(super) recovered_at: Nanos,
}

impl Machine {
    pub(super) fn verbs(&self) -> &dyn Verbs {
        match self {
            Machine::Force(force) => force,
            Machine::Wal(wal) => wal,
            Machine::FlagEx(flag_ex) => flag_ex,
        }
    }

    pub(super) fn verbs_mut(&mut self) -> &mut dyn Verbs {
        match self {
            Machine::Force(force) => force,
            Machine::Wal(wal) => wal,
            Machine::FlagEx(flag_ex) => flag_ex,
        }
    }

    pub(super) fn log(&self) -> Option<&Log> {
        match self {
            Machine::Force(_) => None,
            Machine::Wal(wal) => Some(&wal.log),
            Machine::FlagEx(flag_ex) => Some(&flag_ex.log),
        }
    }

    /// Fails when ids, write sequences or positions in the log are nearly used up; reads still
    /// work.
    pub(super) fn has_numbers(&self, last_tx: TxId) -> Result<(), HostError> {
        let numbers = on_device!(self, device => {
            spare_numbers(device.ftl(), last_tx.max(device.last_tx()))
        });
        numbers.map_err(DeviceError::from)?;
        self.log().map_or(Ok(()), Log::has_positions)
    }

    pub(super) fn reset_stats(&mut self) {
        on_device!(self, device => device.reset_stats());
        match self {
            Machine::Force(_) => {}
            Machine::Wal(wal) => wal.log.reset_stats(),
            Machine::FlagEx(flag_ex) => flag_ex.log.reset_stats(),
        }
    }

    /// Bytes of each structure in memory, except those that machines share.
    pub(super) fn memory(&self) -> Vec<(&'static str, u64)> {
        let mut all = on_device!(self, device => device.memory());
        all.extend(self.verbs().memory());
        all
    }

    /// See [`Ftl::erase_ahead`].
    pub(super) fn erase_ahead(&mut self, now: Nanos) -> Result<Nanos, HostError> {
        Ok(on_device!(self, device => device.erase_ahead(now))?)
    }

    /// See [`Flash::reached`].
    pub(super) fn reached(&mut self, now: Nanos) {
        on_device!(self, device => device.reached(now));
    }

    pub(super) fn ftl(&self) -> &Ftl {
        on_device!(self, device => device.ftl())
    }

    /// Checks the invariants of machine and device.
    pub(super) fn check(&self) -> Result<(), String> {
        self.verbs().check()?;
        on_device!(self, device => device.check())
    }

    pub(super) fn into_flash(self) -> Box<dyn Flash> {
        on_device!(self, device => device.into_flash())
    }
}
