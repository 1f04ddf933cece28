//! Flag commit for records: a device whose transactions share pages.
//!
//! Paper       [FlagCommit] §4: On, Xu, Choi, Hu, He. IEEE TKDE 24(9), 2012.
//! Idea        A page goes to flash with the pending records of several transactions in it. For
//!             each of them it has an entry with a commit flag; what is not pending is committed.
//! Cost        A program a write; a reprogram a commit, none for a transaction of which nothing is
//!             on flash. A page with aborted records takes a read more for each version that they
//!             are restored from. A collection reads the summary and the live pages, nothing else
//!             (D11), and sets a flag where an erase takes the last one that is needed (D12).
//! Symbols     paper: LBA, Ver#, RID, XID, Flag    here: lpn, version, slot, xid, flag
//!
//! ```text
//! spare  0      11        17     19        20 ..
//!        | head | version | list | entries | a flag for each entry |
//!                                           outside of the ECC and of summary pages
//! data   | image of the page | entry: xid, slots; slot.. | .. | slot, lsn | .. |
//! ```
//!
//! Invariants  1. The newest version of a page is in the mapping table; older ones are live as long
//!                as one of them is the newest committed copy of a record ([`versions`]).
//!             2. A version's flags are set at most once each, so a page is programmed no more
//!                often than once and once for each entry.
//!             3. All pages of a transaction are durable before the first flag that commits it.
//!             4. The erase of a block is issued after what made its versions dead is durable, and
//!                after the flags and merged pages that it leaves behind are; if it takes the last
//!                TRUE flag of a transaction, also after what made its other versions dead is.
//!             5. What a verdict relies on when a flag is erased is durable then (D13).
//!
//! Recovery    facts                                            verdict
//!   @A        the flags of a transaction say committed         committed
//!   @B        they do not, and the host's log says committed   committed    `resolve` flags it
//!   @C        neither does                                     aborted
//!
//! Departures  D1. An entry stands for all records that a transaction has pending in a version, not
//!                 for one record: a commit sets one flag a version at most.
//!             D2. Entries lie behind the page's image under its ECC, only flags in the spare area:
//!                 more than one entry would not fit the summary of a block.
//!             D3. No Back: a device finds the versions of a page by logical page and version, at
//!                 recovery and in memory. A physical pointer breaks when what it names is moved.
//!             D4. Records that are not pending count as committed when a version is to be
//!                 reclaimed. As printed, a version whose pending records are all aborted goes, and
//!                 with it what others had committed there.
//!             D5. A transaction is committed if any of its flags says so (AFC_ex: if none says
//!                 otherwise), Definitions 3.1 and 3.3 taken at their word: one flag commits. As
//!                 printed each subchain has its own, and those that were set before a cut count
//!                 for nothing and must not outlive the others.
//!             D6. Flags are looked for by XID, not along a chain: entries have no links. Recovery
//!                 has read all of them, and the collector has them in memory (D11).
//!             D7. When a page is collected and none of its records is pending, its versions are
//!                 merged into one. It notes the LSN of records that come from an older one.
//!             D8. Flags that a cut has torn are not touched again. `resolve` copies live pages
//!                 with such a flag, and erases the blocks of all pages with one, before the host's
//!                 log may forget the transaction.
//!             D9. Devices on which flags cannot be changed in place are refused.
//!             D10. AFC_ex keeps one FALSE flag of an aborted transaction, and pins the block of
//!                 one page of one that is in progress.
//!             D11. The collector knows the entries of a block from a table in memory ([`book`]),
//!                 which recovery fills from the lists. The paper has XID and Link in the spare
//!                 area, so that the collector meets them there; D2 would cost it a read of each
//!                 dead page. The table has entries of transactions that are not committed, and,
//!                 under CFC_ex, of committed ones as long as one of their flags is FALSE.
//!             D12. CFC_ex keeps one TRUE flag of a committed transaction, as long as a live
//!                 version has an entry of it. As printed, the page before each dead one gets the
//!                 flag that goes with it, also where it is dead itself (`flags_all`).
//!             D13. The paper collects one block at a time. Where several are collected at once, an
//!                 erase that takes a flag waits until the flags that speak for the transaction
//!                 afterwards are durable: also those of a transaction that CFC_ex has forgotten.
//!                 Under CFC_ex, entries that an undone erase brings back are dead, and no reader
//!                 asks for them. Under AFC_ex they could pass for committed, so the last FALSE
//!                 flag of an aborted transaction waits for the erases of its other entries.
//!             As published: D4 and invariant 3 are left out.

mod afc_ex;
mod book;
mod cfc_ex;
mod collect;
mod device;
mod format;
mod looking;
mod mend;
mod merge;
mod recover;
mod versions;

pub use device::room_beside;
pub use device::{MergedPage, RecordDevice};
pub(super) use format::{entry_head, is_list, read_tail, restored, spare};

use self::book::Owned;
use self::versions::Versions;
use super::show::{Field, Row, fields_of, rows};
use crate::ftl::{Format, Ftl, FtlError, Written, header};
use crate::mistakes::Mistaken;
use crate::page::SlotNo;
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use std::fmt;

/// The protocols of record-level devices.
///
/// Example: [`RecordDevice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RecordKind {
    /// Commit-based: a flag says that its transaction committed.
    CfcEx,
    /// Abort-based: a flag says that its transaction did not commit.
    AfcEx,
}

/// The description of a record-level protocol.
///
/// ```
/// use flagstone::commit::RecordKind;
///
/// let info = RecordKind::AfcEx.info();
/// assert_eq!((info.name, (info.flag)(0xff)), ("afc-ex", "FALSE"));
/// assert_eq!(info.recovery()[2].verdict, "aborted");
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RecordInfo {
    /// The name in commands, results and file names.
    pub name: &'static str,
    /// How it commits, in one line.
    pub idea: &'static str,
    /// Key of the paper, see docs/papers.md.
    pub paper: &'static str,
    /// The section of the paper.
    pub section: &'static str,
    /// Describes the value of a commit flag.
    pub flag: fn(u8) -> &'static str,
}

/// The recovery table of both protocols.
const RECOVERY: &[Row] = rows! {
    "@A": "the flags of the transaction say committed" => "committed";
    "@B": "they do not, and the host's log says committed" => "committed: its flags are set";
    "@C": "neither does" => "aborted";
};

impl RecordInfo {
    /// The rows of the recovery table.
    pub const fn recovery(&self) -> &'static [Row] {
        RECOVERY
    }

    /// The fields of a spare area after the header of the FTL.
    pub fn tail_fields(&self, spare: &[u8]) -> Vec<Field> {
        let mut fields = fields_of(
            &[spare::RECORD],
            spare.get(header::SIZE..).unwrap_or_default(),
        );
        // One field per flag of the device.
        fields.retain(|field| field.name != "FLAGS");
        let flags = spare.get(header::SIZE + spare::FLAGS.start..);
        let names = [
            "FLAG 0", "FLAG 1", "FLAG 2", "FLAG 3", "FLAG 4", "FLAG 5", "FLAG 6", "FLAG 7",
        ];
        let entries = fields.iter().find(|field| field.name == "ENTRIES");
        let entries = entries.map_or(0, |field| field.value as usize);
        let flags = flags.unwrap_or_default().iter().zip(names).take(entries);
        let meaning = "commit flag of an entry, reprogrammed in place";
        let flag = |(&flag, name): (&u8, _)| Field::new(name, meaning, flag.into(), 1);
        fields.extend(flags.map(flag));
        fields
    }

    /// The entries after the image of a page with this spare area: transactions, and the slots of
    /// their records.
    pub fn entries(&self, spare: &[u8], data: &[u8]) -> Vec<(TxId, Vec<SlotNo>)> {
        format::entries_of(spare, data)
    }
}

impl RecordKind {
    /// Both.
    pub const ALL: [RecordKind; 2] = [RecordKind::CfcEx, RecordKind::AfcEx];

    /// Its description.
    pub const fn info(self) -> &'static RecordInfo {
        match self {
            RecordKind::CfcEx => &cfc_ex::INFO,
            RecordKind::AfcEx => &afc_ex::INFO,
        }
    }
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

/// Options of a record-level device.
///
/// Example: [`RecordDevice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordOptions {
    /// Maximum number of live transactions with pending records in one version of a page (max_c in
    /// the paper), 1 to 8. The cells must allow one more program than that.
    pub max_c: u8,
    /// Build the protocol as printed, without the repairs that are listed as departures.
    pub as_published: bool,
    /// Whether CFC_ex flags the page before each reclaimed one, as printed (departure D12).
    /// That costs reprograms, and is as safe.
    pub flags_all: bool,
    /// Whether a restart records what it decided and why
    /// ([`RecordDevice::rulings`](RecordDevice::rulings)).
    pub tells: bool,
}

impl Default for RecordOptions {
    /// Two updaters per page, as in Table 2 of \[FlagCommit].
    fn default() -> Self {
        RecordOptions {
            max_c: 2,
            as_published: false,
            flags_all: false,
            tells: false,
        }
    }
}

/// Maximum number of entries in a version.
pub(super) const ENTRIES_MAX: usize = 8;

impl RecordOptions {
    /// The format that the device requires of the FTL.
    fn format(&self) -> Format {
        Format {
            tail_bytes: spare::FLAGS.start + usize::from(self.max_c),
            flag_bytes: self.max_c.into(),
            ..Format::NONE
        }
    }
}

/// One transaction's pending records in a version of a page.
///
/// Example: [`RecordDevice`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The transaction, which is live.
    pub tx: TxId,
    /// Its records, by slot.
    pub slots: Vec<SlotNo>,
}

/// Mistakes of a record-level device made on purpose by tests and campaigns, which must find a
/// violation. The printed form makes some of them, too.
///
/// Example: [`Mistaken`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// D4: only pending records of a version count.
    PendingOnly,
    /// Flags are set before the pages are durable.
    NoBarrier,
    /// The collector drops the flags of what it erases.
    FlagsLost,
    /// D12: CFC_ex takes a version for dead before its replacement is durable.
    DeathsTrusted,
    /// D12: CFC_ex takes all versions of a transaction for dead once one of them is.
    OneDeath,
    /// D13: evidence in a block is taken for durable once it was issued.
    IssuedIsSafe,
    /// D8: torn flags are not removed.
    TornFlagStays,
}

/// The rules in effect: all of them, except those that the published form or a mistake omits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Rules {
    as_published: bool,
    flags_all: bool,
    mistake: Mistaken<Mistake>,
}

impl Rules {
    /// Whether this mistake is made.
    fn broken_by(self, mistake: Mistake) -> bool {
        let is_printed = matches!(mistake, Mistake::PendingOnly | Mistake::NoBarrier);
        self.as_published && is_printed || self.mistake.is(mistake)
    }

    /// Whether no mistake is made.
    fn hold(self) -> bool {
        !self.as_published && self.mistake == Mistaken::default()
    }
}

/// An entry of a transaction, in a version on flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member {
    at: Ppn,
    /// Low half of the write sequence of the page.
    seq: u32,
    /// The index of the entry in the page.
    index: u8,
}

impl Member {
    /// The same entry of a copy of the page.
    fn copied_to(&self, to: &Written) -> Member {
        Member {
            at: to.at,
            seq: to.seq as u32,
            index: self.index,
        }
    }
}

/// The meaning of flags: the difference between CFC_ex and AFC_ex.
trait Verdicts: Send {
    /// Whether a transaction with these flags is committed.
    fn is_committed(&self, flags: &[u8]) -> bool;

    /// Whether a flag has a value that is never written, and therefore was torn by a cut.
    fn is_torn(&self, flag: u8) -> bool;

    /// The flag of the next entry of a transaction in progress.
    fn next(&self, tx: TxId) -> u8;

    /// The earliest instant at which a page with an entry of a transaction may be issued.
    fn earliest(&self, tx: TxId) -> Nanos;

    /// Records that a page with an entry of a transaction in progress was programmed.
    fn wrote(&mut self, ftl: &mut Ftl, tx: TxId, member: Member, done: Nanos);

    /// Commits a transaction in progress. Returns when that is durable.
    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError>;

    /// Rolls back a transaction in progress.
    fn abort(&mut self, ftl: &mut Ftl, tx: TxId);

    /// Recovery: records a transaction found on flash with these entries. If it is not committed,
    /// it is in progress from then on.
    fn found(&mut self, tx: TxId, members: &[Owned]);

    /// The flag for a copy of an entry.
    fn flag_of_copy(&self, tx: TxId) -> u8;

    /// Called before a victim is erased: settles the flags for which its dead pages were evidence.
    /// Returns when that is done.
    fn prepare(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        victim: Pbn,
        versions: &Versions,
    ) -> Result<Nanos, FtlError>;

    /// Updates a page that was copied.
    fn relocated(&mut self, from: Ppn, to: &Written);

    /// Called when the erase of the victim was issued; it will be done at `done`. What made its
    /// pages dead is durable at `safe_at`.
    fn erased(&mut self, victim: Pbn, safe_at: Nanos, done: Nanos);

    /// Whether a transaction is known to be aborted.
    fn is_aborted(&self, tx: TxId) -> bool;

    /// Memory of each structure in bytes.
    fn memory(&self) -> Vec<(&'static str, u64)>;

    /// Checks the invariants, and compares the tables with flash.
    fn check(&self, ftl: &Ftl) -> Result<(), String>;
}

/// A transaction in progress, or in doubt.
#[derive(Debug, Default)]
struct Live {
    /// Pages with its entries, without duplicates.
    lpns: Vec<Lpn>,
    in_doubt: bool,
}

impl Live {
    fn note(&mut self, at: Lpn) {
        if !self.lpns.contains(&at) {
            self.lpns.push(at);
        }
    }
}
