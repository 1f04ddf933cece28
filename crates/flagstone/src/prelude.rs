//! The names that most programs need: `use flagstone::prelude::*`.
//!
//! It has a page device with its protocols, the flash below it, and the types of addresses and
//! times. What a single layer needs beyond that is in its module.
//!
//! ```
//! use flagstone::prelude::*;
//!
//! let mut device = Device::with_defaults(Chip::default(), Kind::Seal)?;
//! let now = device.recovered_at();
//! let tx = device.begin(now)?;
//! let now = device.write(now, tx, Lpn(3), b"three")?.next;
//! device.commit(now, tx)?;
//! # Ok::<(), DeviceError>(())
//! ```

pub use crate::commit::{Device, DeviceError, Isolation, Kind, Options};
pub use crate::ftl::{Cause, Config, Operation};
pub use crate::nand::{Cell, Chip, Cut, Flash, Geometry, PowerCut, Shared, Timing};
pub use crate::units::{Lpn, Nanos, TxId};
