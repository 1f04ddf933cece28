//! Settings of a host, and the names of the stacks.

use super::{HostError, flag_ex, force, log, wal};
use crate::buffer::PolicyKind;
use flagstone::commit::{Kind, RecordKind, RecordMistake, RecordOptions};
use flagstone::mistakes::{Mistaken, mistakes};
use flagstone::settings::{BadSetting, Setting, Settings, configurable};
use std::fmt;
use std::str::FromStr;

/// A recovery manager and the device below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stack {
    /// A commit forces the pages through a page-level protocol.
    Force(Kind),
    /// ARIES: steal, no force, undo and redo from a log, on a device without transactions.
    Wal,
    /// Commit-based flags for records: no force, a redo log, pages that transactions share.
    CfcEx,
    /// Like `CfcEx`, with abort-based flags.
    AfcEx,
}

impl Stack {
    /// All stacks.
    pub fn all() -> Vec<Stack> {
        let force = Kind::ALL.iter().map(|&kind| Stack::Force(kind));
        let others = [Stack::Wal, Stack::CfcEx, Stack::AfcEx];
        force.chain(others).collect()
    }

    /// The stack's recovery manager.
    pub const fn manager(self) -> &'static ManagerInfo {
        match self {
            Stack::Force(_) => &force::INFO,
            Stack::Wal => &wal::INFO,
            Stack::CfcEx => &flag_ex::CFC_EX,
            Stack::AfcEx => &flag_ex::AFC_EX,
        }
    }

    /// The unit that the stack locks by default.
    pub fn granularity(self) -> Granularity {
        match self {
            Stack::Force(_) => Granularity::Page,
            Stack::Wal | Stack::CfcEx | Stack::AfcEx => Granularity::Record,
        }
    }

    /// The protocol of the page device; for stacks on record devices, that of the control.
    pub fn below(self) -> Kind {
        match self {
            Stack::Force(kind) => kind,
            Stack::Wal | Stack::CfcEx | Stack::AfcEx => Kind::Plain,
        }
    }

    /// The protocol of the stack's device, if it commits records.
    pub fn record_kind(self) -> Option<RecordKind> {
        match self {
            Stack::CfcEx => Some(RecordKind::CfcEx),
            Stack::AfcEx => Some(RecordKind::AfcEx),
            Stack::Force(_) | Stack::Wal => None,
        }
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stack::Force(kind) => write!(f, "force:{kind}"),
            Stack::Wal => f.write_str("wal"),
            Stack::CfcEx => write!(f, "{}", RecordKind::CfcEx),
            Stack::AfcEx => write!(f, "{}", RecordKind::AfcEx),
        }
    }
}

impl FromStr for Stack {
    type Err = HostError;

    fn from_str(name: &str) -> Result<Stack, HostError> {
        let found = Stack::all()
            .into_iter()
            .find(|stack| stack.to_string() == name);
        found.ok_or_else(|| {
            let names: Vec<String> = Stack::all().iter().map(Stack::to_string).collect();
            HostError::Config(format!(
                "no stack `{name}`: use one of {}",
                names.join(", ")
            ))
        })
    }
}

/// A description of a recovery manager, in its own file.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ManagerInfo {
    /// The name in commands and results; `force` for all protocols below it.
    pub name: &'static str,
    /// Its settings.
    pub settings: &'static [Setting],
    /// Validates the settings.
    pub(super) check: fn(&Settings) -> Result<(), BadSetting>,
}

configurable!(ManagerInfo);

/// The unit that a lock covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Granularity {
    /// A page with all its records.
    Page,
    /// A record.
    Record,
}

/// Settings that a user chooses.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct HostConfig {
    /// Frames of the buffer pool.
    pub frames: usize,
    /// The policy that chooses which page leaves the pool.
    pub policy: PolicyKind,
    /// Settings of the policy.
    pub policy_settings: Settings,
    /// Settings that the recovery manager declares ([`ManagerInfo::settings`]).
    pub settings: Settings,
    /// The unit of locking; `None` for the stack's default.
    pub granularity: Option<Granularity>,
    /// Whether a changed page is written at once (write-through), not at eviction or commit.
    pub write_through: bool,
    /// Number of log pages, at the end of the device: always as the database was made with. A
    /// greater number is refused. With a smaller one, a log that has not come to its end may look
    /// as if it was never written.
    pub log_pages: u32,
    /// Whether pages of live transactions may be written out.
    pub steal: bool,
    /// A deliberate mistake, for controls only.
    pub mistake: Mistaken<Mistake>,
}

mistakes! {
    /// Deliberate mistakes of a database, made in tests and campaigns. Each is a control that must
    /// find a violation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Mistake {
        /// A page is written before the log records of its changes are durable.
        PageBeforeLog: "page-before-log",
        /// A commit is acknowledged before it is durable.
        EarlyAcknowledgement: "early-acknowledgement",
        /// Compensation records are undone like others.
        UndoCompensation: "compensation-undone",
        /// A restart does not undo losers.
        NoUndo: "losers-stay",
        /// Flags are set before the log that the commit needs is durable.
        FlagsBeforeLog: "flags-before-log",
        /// A committed record that is only in the buffer is lost when the record is changed again.
        NoBeforeImage: "no-before-image",
        /// A restart redoes changes although flash has a newer copy.
        RedoAll: "redo-all",
        /// A restart continues the log at its end, without leaving a gap of LSNs.
        NoGap: "no-gap",
        /// A checkpoint becomes valid before the changes that it omits are durable.
        EarlyCheckpoint: "early-checkpoint",
        /// `cfc-ex`, `afc-ex`: of a page version, only the records count that were once pending in
        /// it.
        PendingOnly: "pending-only",
        /// `cfc-ex`, `afc-ex`: garbage collection loses a flag that a transaction needs, instead of
        /// moving it.
        FlagLost: "flag-lost",
        /// `cfc-ex`: garbage collection moves no flag if any page of the transaction is dead.
        OneDeath: "one-death",
        /// `cfc-ex`, `afc-ex`: an erase does not wait until the flags that replace the destroyed
        /// ones are set.
        FlagInFlight: "flag-in-flight",
        /// `cfc-ex`, `afc-ex`: flags torn by a power cut are not moved.
        TornFlagStays: "torn-flag-stays",
        /// `cfc-ex`, `afc-ex`: a page waits only for the newest commit in it, not for all.
        NewestCommit: "newest-commit",
    }
}

impl Mistake {
    /// Whether `stack` can make this mistake.
    pub fn is_of(self, stack: Stack) -> bool {
        match self {
            Mistake::EarlyAcknowledgement => true,
            Mistake::PageBeforeLog | Mistake::UndoCompensation | Mistake::NoUndo => {
                stack == Stack::Wal
            }
            Mistake::OneDeath => stack == Stack::CfcEx,
            _ => stack.record_kind().is_some(),
        }
    }

    /// The corresponding mistake of the record device, if there is one.
    pub(super) fn of_device(self) -> Option<RecordMistake> {
        match self {
            Mistake::PendingOnly => Some(RecordMistake::PendingOnly),
            Mistake::FlagLost => Some(RecordMistake::FlagsLost),
            Mistake::OneDeath => Some(RecordMistake::OneDeath),
            Mistake::FlagInFlight => Some(RecordMistake::IssuedIsSafe),
            Mistake::TornFlagStays => Some(RecordMistake::TornFlagStays),
            _ => None,
        }
    }
}

impl Default for HostConfig {
    fn default() -> Self {
        HostConfig {
            frames: 512,
            policy: PolicyKind::Lru,
            policy_settings: Settings::new(),
            settings: Settings::new(),
            granularity: None,
            write_through: false,
            log_pages: 1024,
            steal: true,
            mistake: Mistaken::default(),
        }
    }
}

impl HostConfig {
    /// Adds a setting of the recovery manager.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> HostConfig {
        self.settings.set(name, value);
        self
    }

    /// Removes settings that the stack's recovery manager does not have.
    #[must_use]
    pub fn keep_those_of(mut self, stack: Stack) -> HostConfig {
        self.settings = self.settings.keep_those_of(stack.manager());
        self
    }

    /// Minimum number of log pages of a stack; 0 if the stack has no log.
    ///
    /// # Errors
    /// A setting that the stack does not have, or an invalid value.
    pub fn log_pages_min(&self, stack: Stack, page_bytes: usize) -> Result<u32, HostError> {
        match (stack, stack.record_kind()) {
            (_, Some(kind)) => Ok(flag_ex::log_pages_min(kind, &self.settings, page_bytes)?),
            (Stack::Wal, _) => Ok(wal::log_pages_min(self, page_bytes)),
            _ => Ok(0),
        }
    }

    /// Options of the device below `cfc-ex` or `afc-ex`.
    ///
    /// # Errors
    /// As [`HostConfig::log_pages_min`].
    pub fn record_options(&self, kind: RecordKind) -> Result<RecordOptions, HostError> {
        Ok(flag_ex::record_options(kind, &self.settings)?)
    }

    /// Validates the settings that do not depend on the device, for a stack.
    ///
    /// # Errors
    /// Names the invalid setting and its valid values.
    pub fn check(&self, stack: Stack) -> Result<(), HostError> {
        let fail = |what: String| Err(HostError::Config(what));
        if self.frames < 2 {
            return fail(format!("frames is {}, it must be at least 2", self.frames));
        }
        if let Err(error) = self.policy.start(2, &self.policy_settings) {
            return fail(error.to_string());
        }
        self.settings.check(stack.manager())?;
        (stack.manager().check)(&self.settings)?;
        if matches!(stack, Stack::Force(_)) {
            if self.granularity == Some(Granularity::Record) {
                return fail(format!(
                    "{stack} commits pages as a whole and locks pages: leave the granularity out"
                ));
            }
            return Ok(());
        }
        if self.log_pages < log::PAGES_MIN {
            return fail(format!(
                "log_pages is {}, it must be at least {}",
                self.log_pages,
                log::PAGES_MIN
            ));
        }
        if !self.steal {
            return fail(format!(
                "{stack} keeps a log and writes pages when their frames are wanted: leave `steal` \
                 out"
            ));
        }
        Ok(())
    }
}
