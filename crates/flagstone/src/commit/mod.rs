//! Commit protocols: what goes into a spare area, when a version counts, and what the collector may
//! take. One file a protocol, in a folder with the engine of its family; this one holds what all
//! share and the registry.
//!
//! A protocol is part of the device: it sees spare areas and physical pages, and it never sees keys
//! or nodes. It keeps its tables in memory and gets them back from flash alone. Every protocol file
//! has the same order: header (paper, idea, cost, spare picture, invariants, recovery, departures),
//! layout, `INFO`, the struct, `recover`, the five verbs, the collector's hooks, helpers, tests. In
//! most families the engine has the verbs and the hooks, and a file has its `Rule` in their place.
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
mod roots;
mod show;

// What several families share.
mod active;
#[cfg(test)]
mod growing_tests;
#[cfg(test)]
mod steps_tests;
#[cfg(test)]
mod long_lives;
#[cfg(test)]
mod end_of_life;
#[cfg(test)]
mod failing_meta;
#[cfg(test)]
mod rot;
#[cfg(test)]
mod small_device;
#[cfg(test)]
mod tables;

// The control, and the families: each has an engine that its protocols share, and a file a
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

pub use device::{Aim, Device, RequestStats};
pub use error::DeviceError;
pub use info::{Info, LOG_PER_HEAD};
pub(crate) use options::LOG_HEADS;
use options::{HEADS_MAX, Heads, heads};
pub use options::{Mode, Options};
pub use records::{MergedPage, Pending, RecordDevice, RecordInfo, RecordKind, RecordOptions};
pub(crate) use records::{Mistake as RecordMistake, room_beside};
pub use seal::{Mistake, seal_count};
pub use show::{Field, Row, Ruling, Table, mapping};

use crate::ftl::{
    Cause, Config, Ftl, FtlError, Mounted, Owner, PageKind, Slot, doubt_number, spare_number,
};
use crate::layout::Layout;
use crate::nand::Geometry;
use crate::settings::registry;
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use std::fmt;

/// Records that the protocols keep on flash: in spare areas, in log pages, and in what a root keeps
/// for its owner.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isolation {
    /// One transaction at a time, with a barrier after each.
    Strict,
    /// Side by side, as long as no two write the same page.
    NoPageConflict,
    /// Side by side without restriction; the order of the commits decides.
    Serializable,
}

impl Isolation {
    /// All levels, the strictest first.
    pub const ALL: [Isolation; 3] = [
        Isolation::Strict,
        Isolation::NoPageConflict,
        Isolation::Serializable,
    ];

    /// The name that commands and reports use.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// These bytes; none if they will never be read.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Write<'a> {
    /// The page.
    pub at: Lpn,
    /// The new content of the page.
    pub content: Content<'a>,
    /// The cause that the program is counted under.
    pub cause: Cause,
}

/// The work that the device does before a write or a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// It collects as long as blocks are short.
    Room,
    /// It collects this block, which is full, and then as long as blocks are short.
    Collect(Pbn),
}

/// A write that the device has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Taken {
    /// When the device takes the next request of the transaction.
    pub next: Nanos,
    /// When the program of the page is done. The page is durable once the transaction is. A
    /// protocol that holds pages back programs an earlier page instead. If it programs none, this
    /// is `next`.
    pub done: Nanos,
}

impl Taken {
    /// A write after which the device takes the next request at `next`, and whose program is done
    /// at `done`.
    pub const fn new(next: Nanos, done: Nanos) -> Taken {
        Taken { next, done }
    }

    /// A write that programmed nothing.
    pub(crate) fn at(now: Nanos) -> Taken {
        Taken {
            next: now,
            done: now,
        }
    }
}

/// A page that a protocol keeps back until it knows the next page of the transaction.
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

/// Where a reader finds a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// On flash.
    Flash(Ppn),
    /// Still in the device's memory.
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

/// A commit protocol.
///
/// The program `examples/own_protocol.rs` has one that is not part of this crate, in a hundred
/// lines, and cuts the power under it. [`Device::open_with`] runs it. Databases
/// ([`Host`](../host/struct.Host.html)) and the campaigns of the command line take the protocols of
/// [`Kind`] only.
///
/// Before [`Device`] calls any of these methods, it has checked the arguments, made room for a few
/// pages, and kept the isolation that the protocol supports.
pub trait Protocol: Owner + Duplicate {
    /// Transactions that can be live at once on this device, if there is a bound below that of
    /// [`Info`].
    fn live_max(&self) -> Option<u32> {
        None
    }

    /// Whether the mapping table names the committed version of each page as soon as a commit has
    /// returned, and nothing else: then a snapshot of the table is one of the device.
    fn allows_snapshots(&self) -> bool {
        false
    }

    /// Versions on flash that live transactions have written and may yet commit, where the protocol
    /// knows.
    fn uncommitted(&self) -> u64 {
        0
    }

    /// Trims of a transaction that one page has at least, if there are so many.
    fn trims_a_page(&self, _ftl: &Ftl) -> u64 {
        1
    }

    /// Brings everything to flash that the tables of a device at rest rely on, and gives its own as
    /// bytes, which come behind those of [`Ftl::rest`]. Its recovery goes on from them where they
    /// are in [`Mounted::rest`]. Nothing if it cannot.
    ///
    /// # Errors
    /// The power fails.
    fn rest(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<Option<Vec<u8>>, FtlError> {
        let _ = (ftl, now);
        Ok(None)
    }

    /// Before the device moves or programs anything: blocks that a restart has found without a
    /// summary get theirs, where that can be done at once.
    ///
    /// # Errors
    /// The power fails.
    fn settle(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<(), FtlError> {
        let _ = (ftl, now);
        Ok(())
    }

    /// The device is about to be closed: every block gets its summary, if the protocol can do that.
    /// Returns the number of the last program, if every block has it.
    ///
    /// # Errors
    /// The power fails.
    fn end_blocks(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<Option<u64>, FtlError> {
        let _ = (ftl, now);
        Ok(None)
    }

    /// The device has become larger: a table with an entry for each page needs more of them.
    fn grown(&mut self, ftl: &Ftl) {
        let _ = ftl;
    }

    /// A transaction starts.
    fn begin(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<(), FtlError> {
        let _ = (ftl, now, tx);
        Ok(())
    }

    /// The work that the device has to do before a transaction writes or commits. It is asked again
    /// after each piece of work, and `round` counts from 0. A protocol never starts the collector
    /// itself.
    fn in_the_way(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        round: u32,
    ) -> Result<Option<Way>, FtlError> {
        let _ = (ftl, now, tx, round);
        Ok(None)
    }

    /// A transaction writes a page.
    fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError>;

    /// Where `tx` finds a page: its own version if it wrote one, else the last committed one.
    fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_>;

    /// A transaction commits. Returns when the commit is durable, or nothing if it waits for other
    /// transactions. Then [`Protocol::acknowledge`] names it later.
    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Option<Nanos>, FtlError>;

    /// A transaction is rolled back. Returns when the device is done with it.
    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError>;

    /// Commits that were waiting and became durable since the last call, with the instant of each.
    /// `flush` asks to commit all transactions that wait.
    fn acknowledge(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, FtlError> {
        let _ = (ftl, now, flush);
        Ok(Vec::new())
    }

    /// When the waiting commits stop waiting.
    fn deadline(&self) -> Option<Nanos> {
        None
    }

    /// Bytes of each structure in memory, mapping and block tables apart.
    fn memory(&self) -> Vec<(&'static str, u64)>;

    /// Its tables in memory, for people; none if it has nothing to show.
    fn tables(&self, ftl: &Ftl) -> Vec<Table> {
        let _ = ftl;
        Vec::new()
    }

    /// Checks the protocol's invariants, in tests and campaigns.
    ///
    /// # Errors
    /// Says which one does not hold.
    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        let _ = ftl;
        Ok(())
    }
}

/// A protocol that can be copied with its tables. So a device that was filled once serves several
/// runs.
pub trait Duplicate {
    /// The copy.
    fn duplicate(&self) -> Box<dyn Protocol>;
}

impl<T: Protocol + Clone + 'static> Duplicate for T {
    fn duplicate(&self) -> Box<dyn Protocol> {
        Box::new(self.clone())
    }
}

/// A protocol that came back from flash.
#[non_exhaustive]
pub struct Recovered {
    /// The protocol, ready for work.
    pub protocol: Box<dyn Protocol>,
    /// The highest transaction identifier that is on the flash: none up to it is used again.
    pub last_tx: TxId,
    /// When recovery was over.
    pub done: Nanos,
    /// What it decided and why, if [`Options::tells`].
    pub rulings: Vec<Ruling>,
}

impl Recovered {
    /// A protocol that found these on the flash.
    pub fn new(protocol: Box<dyn Protocol>, last_tx: TxId, done: Nanos) -> Recovered {
        Recovered {
            protocol,
            last_tx,
            done,
            rulings: Vec::new(),
        }
    }
}

/// The highest transaction identifier of a device, if others can follow it.
///
/// # Errors
/// It is in the upper half of the six bytes that it has on flash.
pub(crate) fn doubt_tx(last: TxId) -> Result<TxId, FtlError> {
    doubt_number("transaction", last.0, 48).map(TxId)
}

/// Whether a transaction can begin after `last`.
///
/// # Errors
/// Identifiers, or the write sequences that the transaction needs, are near their end.
pub(crate) fn spare_numbers(ftl: &Ftl, last: TxId) -> Result<(), FtlError> {
    spare_number("transaction", last.0, 48)?;
    spare_number("write sequence", ftl.last_seq(), 48)
}

/// Bytes that a map with entries of these types needs, load factor and control bytes included.
pub(crate) fn table_bytes<K, V>(entries: usize) -> u64 {
    (entries * (size_of::<(K, V)>() + 1) * 8 / 7) as u64
}

macro_rules! protocols {
    ($($(#[$doc:meta])* $variant:ident => $($module:ident)::+;)+) => {
        registry! {
            /// The registry of commit protocols.
            Kind: Info {
                $($(#[$doc])* $variant => $($module)::+;)+
            }
        }

        impl Kind {
            /// Recovers the protocol's state from a mounted device, blank or not.
            ///
            /// # Errors
            /// The power failing again, or a flash that this protocol did not write.
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
    /// Whether a device's cells and spare areas suit the protocol.
    ///
    /// # Errors
    /// Says what does not.
    pub fn suits(self, geometry: &Geometry, config: &Config) -> Result<(), String> {
        self.info().suits(geometry, config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nand::small;

    /// Why a device does not start with these settings.
    fn refused(kind: Kind, options: &Options) -> String {
        let flash = Box::new(small::chip(small::GEOMETRY));
        let opened = Device::open(flash, kind, Config::small(64, None), options, Nanos::ZERO);
        opened
            .err()
            .map_or(String::new(), |error| error.to_string())
    }

    #[test]
    fn settings_that_a_protocol_lacks_or_cannot_have_are_refused() {
        let refused = |kind, name, value| refused(kind, &Options::default().with(name, value));
        assert_eq!(refused(Kind::LightTx, "zone_blocks", "9"), "");
        assert_eq!(
            refused(Kind::LightTx, "log_heads", "2"),
            "lighttx has no setting `log_heads`: use zone_blocks"
        );
        assert!(refused(Kind::Scc, "zone_blocks", "9").contains("it has none"));
        assert!(refused(Kind::MhlM, "log_heads", "65").contains("from 0 to 64"));
        assert!(refused(Kind::GMixSl, "group", "0").contains("from 1"));
        assert_eq!(refused(Kind::GMixSl, "group", "page-full"), "");
        assert!(refused(Kind::Cfc, "block_flags", "yes").contains("use true, false"));
    }

    #[test]
    fn modes_are_settings_that_their_protocols_have() {
        for &kind in Kind::ALL {
            for (index, mode) in kind.info().modes.iter().enumerate() {
                let settings = mode.settings.iter();
                let options = settings.fold(Options::default(), |options, (name, value)| {
                    options.with(name, value)
                });
                assert_eq!(options == Options::default(), index == 0, "{}", mode.name);
                assert_eq!(refused(kind, &options), "", "{}", mode.name);
            }
        }
    }
}
