//! Commit protocols. They define the fields in spare areas, when a version counts, and what the
//! collector may erase. Each protocol has a file, in the folder of its family's engine. This file
//! has the shared types and the registry.
//!
//! A protocol is part of the device: it uses spare areas and physical pages, and knows no keys or
//! nodes. It keeps its tables in memory and rebuilds them from flash alone. All protocol files have
//! the same order: header (paper, idea, cost, spare picture, invariants, recovery, departures),
//! layout, `INFO`, the struct, `recover`, the five verbs, the collector's hooks, helpers, tests. In
//! most families the engine has the verbs and hooks, and a file has its `Rule` instead.
//!
//! [`Kind`] is the registry. A [`Device`] runs any of them:
//!
//! ```
//! use flagstone::commit::{Device, DeviceError, Kind};
//! use flagstone::ftl::Operation;
//! use flagstone::nand::Chip;
//! use flagstone::units::Lpn;
//!
//! for &kind in Kind::ALL {
//!     let mut device = Device::with_defaults(Chip::default(), kind)?;
//!     let now = device.recovered_at();
//!     let tx = device.begin(now)?;
//!     device.write(now, tx, Lpn(0), b"one")?;
//!     device.write(now, tx, Lpn(1), b"two")?;
//!     let done = match device.commit(now, tx)? {
//!         Some(done) => done,
//!         // G-MixSL commits in groups: `true` asks for those that wait.
//!         None => device.acknowledged(now, true)?[0].1,
//!     };
//!     let programs = device.stats().total(Operation::Program);
//!     println!("{kind}: {programs} programs, {}", done.since(now));
//!     assert_eq!(device.read(done, None, Lpn(1))?.1, Some(&b"two"[..]));
//! }
//! # Ok::<(), DeviceError>(())
//! ```

mod device;
mod error;
pub(crate) mod fuzz;
mod info;
mod live;
mod options;
mod protocol;
mod roots;
mod show;

// Shared by several families.
mod active;

// The control and the families. Each family has an engine that its protocols share, and a file per
// protocol.
mod plain;
mod cyclic;
mod flag_chain;
mod mapping_log;
mod counted;
mod shadow_log;
mod seal;

// Devices whose transactions share pages.
mod records;

pub use cyclic::cyclic_number;
pub use device::{Aim, Device, RequestStats};
pub use error::DeviceError;
pub use info::{Info, LOG_PER_HEAD, Published};
pub(crate) use options::LOG_HEADS;
use options::{HEADS_MAX, Heads, heads};
pub use options::{Mode, Options};
pub use protocol::{Duplicate, Protocol, Recovered};
pub use records::{MergedPage, Mistake as RecordMistake, Pending, RecordDevice, RecordInfo};
pub use records::{RecordKind, RecordOptions, room_beside};
pub use seal::{Mistake, seal_count};
pub use show::{Field, Row, Ruling, Table, mapping};

use crate::ftl::{
    Cause, Config, Ftl, FtlError, Mounted, PageKind, Slot, doubt_number, spare_number,
};
use crate::layout::Layout;
use crate::nand::Geometry;
use crate::settings::registry;
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use std::fmt;

/// Records that protocols keep on flash: in spare areas, in log pages, and in roots.
pub const LAYOUTS: &[Layout] = &[
    mapping_log::group_head::RECORD,
    mapping_log::group_entry::RECORD,
    mapping_log::log_blob::RECORD,
    cyclic::link::RECORD,
    cyclic::bpcc::back::RECORD,
    flag_chain::spare::RECORD,
    counted::count_record::RECORD,
    counted::zones::zone_blob::RECORD,
    shadow_log::tail::RECORD,
    shadow_log::record::log_page::RECORD,
    shadow_log::record::log_record::RECORD,
    shadow_log::compacted::RECORD,
    seal::tail::RECORD,
    seal::listed::RECORD,
    seal::bounds::bounds_blob::RECORD,
    seal::rest::head::RECORD,
    seal::rest::undecided::RECORD,
    records::spare::RECORD,
    records::entry_head::RECORD,
    records::restored::RECORD,
];

/// How far transactions may overlap.
///
/// ```
/// use flagstone::commit::{Isolation, Kind};
///
/// let supports = |kind: Kind| kind.info().isolation;
/// assert_eq!(supports(Kind::Aw), Isolation::Strict);
/// assert_eq!(supports(Kind::Cfc).name(), "no-page-conflict");
/// assert!(supports(Kind::Cfc) < supports(Kind::Seal));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isolation {
    /// One transaction at a time, with a barrier after each.
    Strict,
    /// Concurrent, as long as no two transactions write the same page.
    NoPageConflict,
    /// Concurrent without restriction; the order of the commits decides.
    Serializable,
}

impl Isolation {
    /// All levels, strictest first.
    pub const ALL: [Isolation; 3] = [
        Isolation::Strict,
        Isolation::NoPageConflict,
        Isolation::Serializable,
    ];

    /// The name used in commands and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Isolation::Strict => "strict",
            Isolation::NoPageConflict => "no-page-conflict",
            Isolation::Serializable => "serializable",
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The new content of a page.
///
/// ```
/// use flagstone::commit::Content;
/// use flagstone::ftl::PageKind;
///
/// let content = Content::Data(b"new");
/// assert_eq!((content.kind(), content.bytes()), (PageKind::Data, &b"new"[..]));
/// assert_eq!((Content::Trim.kind(), Content::Trim.bytes()), (PageKind::Trim, &b""[..]));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// These bytes. Empty if they will never be read.
    Data(&'a [u8]),
    /// Nothing: the page is trimmed.
    Trim,
}

impl<'a> Content<'a> {
    /// The kind of the flash page that says so.
    pub fn kind(self) -> PageKind {
        match self {
            Content::Data(_) => PageKind::Data,
            Content::Trim => PageKind::Trim,
        }
    }

    /// The bytes to program.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Content::Data(bytes) => bytes,
            Content::Trim => &[],
        }
    }
}

/// A write of a transaction.
///
/// Example: [`Protocol`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Write<'a> {
    /// The page.
    pub at: Lpn,
    /// The new content of the page.
    pub content: Content<'a>,
    /// The cause under which the program is counted.
    pub cause: Cause,
}

/// Work that the device must do before a write or commit.
///
/// ```
/// use flagstone::commit::Way;
/// use flagstone::units::Pbn;
///
/// /// The answer of a protocol that needs block 9 to be collected first.
/// fn in_the_way(round: u32) -> Option<Way> {
///     (round == 0).then_some(Way::Collect(Pbn(9)))
/// }
/// assert_eq!([0, 1].map(in_the_way), [Some(Way::Collect(Pbn(9))), None]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// Collect until enough blocks are free.
    Room,
    /// Collect this full block, and then until enough blocks are free.
    Collect(Pbn),
}

/// The result of an accepted write.
///
/// ```
/// use flagstone::prelude::*;
///
/// let mut device = Device::with_defaults(Chip::default(), Kind::Plain)?;
/// let now = device.recovered_at();
/// let tx = device.begin(now)?;
/// let taken = device.write(now, tx, Lpn(0), b"data")?;
/// // The next request need not wait for the program.
/// assert_eq!(taken.next, now);
/// assert!(taken.done > taken.next);
/// # Ok::<(), DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Taken {
    /// When the device accepts the next request of the transaction.
    pub next: Nanos,
    /// When the program of the page is done. The page becomes durable with the transaction. A
    /// protocol that holds pages back programs an earlier page instead. If it programs none, this
    /// equals `next`.
    pub done: Nanos,
}

impl Taken {
    /// An accepted write. `next`: when the next request is accepted; `done`: when the program is
    /// done.
    pub const fn new(next: Nanos, done: Nanos) -> Taken {
        Taken { next, done }
    }

    /// An accepted write without a program.
    pub(crate) fn at(now: Nanos) -> Taken {
        Taken {
            next: now,
            done: now,
        }
    }
}

/// A page that a protocol holds back until it knows the next page of the transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) lpn: Lpn,
    pub(crate) kind: PageKind,
    pub(crate) data: Box<[u8]>,
    pub(crate) cause: Cause,
}

impl Held {
    pub(crate) fn new(write: Write<'_>) -> Held {
        Held {
            lpn: write.at,
            kind: write.content.kind(),
            data: write.content.bytes().into(),
            cause: write.cause,
        }
    }

    pub(crate) fn found(&self) -> Found<'_> {
        match self.kind {
            PageKind::Trim => Found::Nothing,
            _ => Found::Held(&self.data),
        }
    }
}

/// Where a page is found.
///
/// ```
/// use flagstone::commit::Found;
/// use flagstone::ftl::Slot;
/// use flagstone::units::Ppn;
///
/// assert_eq!(Found::from(Slot::Page(Ppn(7))), Found::Flash(Ppn(7)));
/// assert_eq!(Found::from(Slot::Trimmed(Ppn(8))), Found::Nothing);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// On flash.
    Flash(Ppn),
    /// In the device's memory.
    Held(&'a [u8]),
    /// Nowhere: the page was never written, or was trimmed.
    Nothing,
}

impl From<Slot> for Found<'_> {
    fn from(slot: Slot) -> Self {
        match slot {
            Slot::Page(at) => Found::Flash(at),
            Slot::Empty | Slot::Trimmed(_) => Found::Nothing,
        }
    }
}

/// Validates the highest transaction identifier on a device: others must be able to follow it.
///
/// # Errors
/// It is in the upper half of its six-byte range.
pub fn doubt_tx(last: TxId) -> Result<TxId, FtlError> {
    doubt_number("transaction", last.0, 48).map(TxId)
}

/// Checks whether a transaction can begin after `last`.
///
/// # Errors
/// Identifiers, or the write sequences that the transaction needs, are nearly used up.
pub fn spare_numbers(ftl: &Ftl, last: TxId) -> Result<(), FtlError> {
    spare_number("transaction", last.0, 48)?;
    spare_number("write sequence", ftl.last_seq(), 48)
}

/// Memory of a map with `entries` entries of these types in bytes, including unused capacity.
pub(crate) fn table_bytes<K, V>(entries: usize) -> u64 {
    (entries * (size_of::<(K, V)>() + 1) * 8 / 7) as u64
}

macro_rules! protocols {
    ($($(#[$doc:meta])* $variant:ident => $($module:ident)::+;)+) => {
        registry! {
            /// The registry of commit protocols. Example: [`commit`](crate::commit).
            Kind: Info {
                $($(#[$doc])* $variant => $($module)::+;)+
            }
        }

        impl Kind {
            /// Recovers the protocol's state from a mounted device, blank or not.
            ///
            /// # Errors
            /// The power fails again, or the flash was not written by this protocol.
            pub fn recover(
                self,
                ftl: &mut Ftl,
                mounted: Mounted,
                options: &Options,
            ) -> Result<Recovered, FtlError> {
                match self {
                    $(Kind::$variant => $($module)::+::recover(ftl, mounted, options),)+
                }
            }
        }
    };
}

protocols! {
    /// No transactions: the control.
    Plain => plain;
    /// Atomic-Write.
    Aw => mapping_log::aw;
    /// Simple cyclic commit: a closed ring of links is the commit.
    Scc => cyclic::scc;
    /// Back pointer cyclic commit: back pointers pass over what was not committed.
    Bpcc => cyclic::bpcc;
    /// Commit-based flag commit.
    Cfc => flag_chain::cfc;
    /// Abort-based flag commit.
    Afc => flag_chain::afc;
    /// Multi-head logging, metadata clustered.
    MhlM => mapping_log::mhl_m;
    /// Multi-head logging, data clustered.
    MhlD => counted::mhl_d;
    /// LightTx.
    LightTx => counted::lighttx;
    /// Shadow pages and a log on flash.
    MixSl => shadow_log::mixsl;
    /// MixSL with group commit.
    GMixSl => shadow_log::g_mixsl;
    /// SEAL: summaries of blocks say what is committed.
    Seal => seal;
    /// SEAL with bounded restarts.
    SealR => seal::seal_r;
}

impl Kind {
    /// Checks whether a device's cells and spare areas suit the protocol.
    ///
    /// # Errors
    /// Says what does not.
    pub fn suits(self, geometry: &Geometry, config: &Config) -> Result<(), String> {
        self.info().suits(geometry, config)
    }
}
