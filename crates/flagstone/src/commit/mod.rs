//! Commit protocols: what goes into a spare area, when a version counts, and what the collector may
//! take. One file a protocol, in a folder with the engine of its family; this one holds what all
//! share and the registry.
//!
//! A protocol is part of the device: it sees spare areas and physical pages, and it never sees keys
//! or nodes. It keeps its tables in memory and gets them back from flash alone. Every protocol file
//! has the same order: header (paper, idea, cost, spare picture, invariants, recovery, departures),
//! layout, `INFO`, the struct, `recover`, the five verbs, the collector's hooks, helpers, tests. In
//! most families the engine has the verbs and the hooks, and a file has its `Rule` in their place.

mod device;
mod error;
pub(crate) mod fuzz;
mod live;

// What several families share.
mod active;
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

// Devices whose transactions share pages.
mod records;

pub use device::{Device, HostStats};
pub use error::DeviceError;
pub(crate) use records::{Flaws, room_beside};
pub use records::{MergedPage, Pending, RecordDevice, RecordInfo, RecordKind, RecordOptions};

use crate::ftl::{
    Cause, Config, Format, Ftl, FtlError, Kind as PageKind, Mounted, Owner, Slot, doubt_number,
};
use crate::layout::Record;
use crate::nand::Geometry;
use crate::settings::{BadSetting, Configurable, Setting, Settings};
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use std::fmt;

/// Records that the protocols keep on flash: in spare areas, in log pages, and in what a root keeps
/// for its owner.
pub const LAYOUTS: &[Record] = &[
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

/// In [`Format::logs`] of a protocol: a log for each of its log heads, in lanes.
pub const LOG_PER_HEAD: u8 = u8::MAX;

/// What is known of a protocol without running it.
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// The name in commands, results and file names.
    pub name: &'static str,
    /// One line on how it commits.
    pub idea: &'static str,
    /// Key of the paper, see docs/papers.md.
    pub paper: &'static str,
    /// Where in the paper.
    pub section: &'static str,
    /// The loosest isolation that it supports.
    pub isolation: Isolation,
    /// Transactions that can be live at once on any device, if there is a bound; on a given one see
    /// [`Protocol::live_max`].
    pub live_max: Option<u32>,
    /// Whether pages are reprogrammed in place, which only SLC cells allow.
    pub reprograms: bool,
    /// Whether one transaction may write a page twice.
    pub rewrites: bool,
    /// Whether it keeps transactions apart at all; false for the control.
    pub atomic: bool,
    /// Whether there is a form as printed that differs from the repaired one, and loses data.
    pub as_published: bool,
    /// Modes that campaigns try, the default first.
    pub modes: &'static [Mode],
    /// Its settings.
    pub settings: &'static [Setting],
    /// What it needs of the FTL; its `logs` may be [`LOG_PER_HEAD`].
    pub format: Format,
}

impl Info {
    /// What the protocol needs of the FTL on a given device.
    ///
    /// # Errors
    /// A setting that the protocol does not have, or a value that it cannot have.
    pub fn format_on(&self, geometry: &Geometry, options: &Options) -> Result<Format, BadSetting> {
        options.settings.check(self)?;
        let logs = match self.format.logs {
            LOG_PER_HEAD => (heads(self, geometry, options)? as usize * mapping_log::LANES) as u8,
            logs => logs,
        };
        Ok(Format {
            logs,
            ..self.format
        })
    }
}

impl Configurable for Info {
    fn name(&self) -> &'static str {
        self.name
    }

    fn settings(&self) -> impl Iterator<Item = &'static Setting> {
        self.settings.iter()
    }
}

/// A mode by name, and the settings that make it.
#[derive(Debug, Clone, Copy)]
pub struct Mode {
    /// Its name.
    pub name: &'static str,
    /// Settings with their values; none for the default.
    pub settings: &'static [(&'static str, &'static str)],
}

/// Variants of a protocol.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Build the protocol as printed, without the repairs that its departures list.
    pub as_published: bool,
    /// Settings that the protocol declares ([`Info::settings`]).
    pub settings: Settings,
}

impl Options {
    /// With one more setting.
    pub fn with(mut self, name: &str, value: impl ToString) -> Options {
        self.settings.set(name, value);
        self
    }
}

/// The setting of protocols that have a log for each of several heads.
pub(crate) const LOG_HEADS: Setting = Setting {
    name: "log_heads",
    default: "0",
    what: "log heads, at most 64; 0 takes one a package, but at least two",
};

/// The most log heads that a device can have.
const HEADS_MAX: u32 = 64;

/// Log heads on a device: what was asked for, or one a package but at least two.
fn heads(info: &Info, geometry: &Geometry, options: &Options) -> Result<u32, BadSetting> {
    let heads = options
        .settings
        .number(info, LOG_HEADS.name, 0, HEADS_MAX)?;
    Ok(match heads {
        0 => geometry.packages().clamp(2, HEADS_MAX),
        heads => heads,
    })
}

/// What a write makes of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// These bytes; none where nobody will ask for them again.
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

/// What a transaction writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a> {
    /// The page.
    pub at: Lpn,
    /// What it is to hold.
    pub content: Content<'a>,
    /// What the program is counted as.
    pub cause: Cause,
}

/// How the device makes way for a write or a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It collects as long as blocks are short.
    Room,
    /// It collects this block, which is full, and then as long as blocks are short.
    Collect(Pbn),
}

/// A write that the device has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// When the device takes the next request of the transaction.
    pub next: Nanos,
    /// When the page is done that was programmed; durable once the transaction is. A protocol that
    /// holds pages back programs the page before, or none: then it is `next`.
    pub done: Nanos,
}

impl Taken {
    /// A write that programmed nothing.
    pub(crate) fn at(now: Nanos) -> Taken {
        Taken {
            next: now,
            done: now,
        }
    }
}

/// A page that a protocol keeps back until it knows what follows it.
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
    /// It was never written, or trimmed.
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

/// A commit protocol. [`Device`] has checked the arguments, made room for a few pages, and kept the
/// isolation that the protocol supports before any of these is called.
pub trait Protocol: Owner + Duplicate {
    /// Transactions that can be live at once on this device, if there is a bound below that of
    /// [`Info`].
    fn live_max(&self) -> Option<u32> {
        None
    }

    /// A transaction starts.
    fn begin(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<(), FtlError>;

    /// What has to be done before a transaction writes or commits, asked again (`round` counts from
    /// 0) when it is done: a protocol never starts the collector itself.
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

    /// A transaction commits. Returns when that is durable, or nothing if it waits for others; then
    /// [`Protocol::acknowledge`] will tell.
    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Option<Nanos>, FtlError>;

    /// A transaction is rolled back. Returns when the device is done with it.
    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError>;

    /// Commits that were waiting and became durable, with the instant of each; called again and
    /// again. `flush` asks to commit what waits now.
    fn acknowledge(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, FtlError> {
        let _ = (ftl, now, flush);
        Ok(Vec::new())
    }

    /// When waiting commits will no longer wait.
    fn deadline(&self) -> Option<Nanos> {
        None
    }

    /// Bytes of each structure in memory, mapping and block tables apart.
    fn memory(&self) -> Vec<(&'static str, u64)>;

    /// Checks the protocol's invariants, in tests and campaigns.
    ///
    /// # Errors
    /// Says which one does not hold.
    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        let _ = ftl;
        Ok(())
    }
}

/// What can be copied as it is, tables and all: a device that was filled once serves several runs.
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
pub struct Recovered {
    /// The protocol, ready for work.
    pub protocol: Box<dyn Protocol>,
    /// The highest transaction identifier that is on the flash: none up to it is used again.
    pub last_tx: TxId,
    /// When recovery was over.
    pub done: Nanos,
}

/// The highest transaction identifier of a device, if others can follow it.
///
/// # Errors
/// It is in the upper half of the six bytes that it has on flash.
pub(crate) fn doubt_tx(last: TxId) -> Result<TxId, FtlError> {
    doubt_number("transaction", last.0, 48).map(TxId)
}

/// Bytes that a map with entries of these types needs, load factor and control bytes included.
pub(crate) fn table_bytes<K, V>(entries: usize) -> u64 {
    (entries * (size_of::<(K, V)>() + 1) * 8 / 7) as u64
}

macro_rules! protocols {
    ($($(#[$doc:meta])* $variant:ident => $($module:ident)::+;)+) => {
        /// The registry of commit protocols.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[$doc])* $variant,)+
        }

        impl Kind {
            /// All protocols.
            pub const ALL: &[Kind] = &[$(Kind::$variant),+];

            /// What is known of it without running it.
            pub const fn info(self) -> &'static Info {
                match self {
                    $(Kind::$variant => &$($module)::+::INFO,)+
                }
            }

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
}

impl Kind {
    /// Finds a protocol by its name.
    pub fn by_name(name: &str) -> Option<Kind> {
        Kind::ALL
            .iter()
            .copied()
            .find(|kind| kind.info().name == name)
    }

    /// Whether a device's cells and spare areas suit the protocol.
    ///
    /// # Errors
    /// Says what does not.
    pub fn suits(self, geometry: &Geometry, config: &Config) -> Result<(), String> {
        let info = self.info();
        if info.reprograms && geometry.cell.programs_per_page() < 2 {
            return Err(format!(
                "{} sets commit flags by partial page programming, which {} cells do not allow; \
                 use an SLC device with partial_programs of at least 2",
                info.name, geometry.cell
            ));
        }
        let format = info.format_on(geometry, &Options::default());
        let format = format.map_err(|error| error.0)?;
        Ftl::capacity(geometry, config, &format)
            .map(|_| ())
            .map_err(|error| error.0)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
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
