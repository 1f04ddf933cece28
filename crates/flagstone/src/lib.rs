//! Flagstone: a transactional storage stack for flash.
//!
//! Flash never overwrites a page in place, so the old version of every page is still there. A
//! *commit protocol* inside the device decides which versions count. This crate holds the published
//! protocols side by side, on a simulated NAND device with real spare areas, real recovery and
//! power cuts at any operation. Time is virtual: each call says at which instant it is made, and
//! its answer says when it is done.
//!
//! ```
//! use flagstone::prelude::*;
//!
//! // A blank device in memory whose power can fail, under Commit-based Flag Commit.
//! let flash = Shared::new(PowerCut::new(Chip::default()));
//! let mut device = Device::with_defaults(flash.clone(), Kind::Cfc)?;
//! let now = device.recovered_at();
//!
//! // One transaction commits. Another one has written when the power fails.
//! let tx = device.begin(now)?;
//! let now = device.write(now, tx, Lpn(7), b"committed")?.next;
//! let now = device.commit(now, tx)?.expect("CFC answers a commit at once");
//! let open = device.begin(now)?;
//! device.write(now, open, Lpn(7), b"not committed")?;
//!
//! // The device's memory is gone. The number 42 decides which operations in flight have landed.
//! drop(device);
//! let chip = flash.take().pull(42, true);
//!
//! // A restart has the flash and nothing else.
//! let mut device = Device::with_defaults(chip, Kind::Cfc)?;
//! let (_, found) = device.read(device.recovered_at(), None, Lpn(7))?;
//! assert_eq!(found, Some(&b"committed"[..]));
//! # Ok::<(), DeviceError>(())
//! ```
//!
//! Where to go from here, from the flash upwards:
//!
//! | to | see |
//! |---|---|
//! | simulate a NAND device, its faults and power cuts | [`nand::Chip`], [`nand::PowerCut`], [`nand::Faulty`] |
//! | run transactions of pages on a commit protocol | [`commit::Device`], [`commit::Kind`] |
//! | write a protocol of one's own | [`commit::Protocol`], and the example `own_protocol` |
//! | run transactions of records that share pages | [`commit::RecordDevice`] |
//! | prove a recovery table row by row | [`mod@cases`] |
//! | run a database with locks, a buffer, a log and recovery | the crate `flagstone-host` |
//! | look up records by key | the crate `flagstone-index` |
//! | keep data in a file, on a block device or on raw NAND | the crate `flagstone-store` |
//!
//! The names that most programs need are in the [`prelude`]. The folder `examples` has three whole
//! programs: `commit_and_cut`, `compare_two` and `own_protocol`.
//!
//! The crate does no I/O, reads no clock, draws no random numbers, starts no thread and has no
//! `unsafe`. The same calls give the same answers on every machine. A broken rule of the layer
//! below, such as programming a page twice, is a bug and panics. Whatever a device or a user can
//! cause is an error value.
//!
//! The modules are listed in the order in which data rises through them. None names one that comes
//! after it, and a test holds them to that.
#![forbid(unsafe_code)]

pub mod dice;
pub mod cases;
pub mod units;
pub mod layout;
pub mod settings;
pub mod mistakes;
pub mod nand;
pub mod ftl;
pub mod page;
pub mod commit;
pub mod prelude;
#[doc(hidden)]
pub mod fuzzing;
