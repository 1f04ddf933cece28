//! The subject of a campaign: a protocol below logical pages, a database below records, or an index
//! on either of these below keys.

use flagstone::commit::Kind;
use flagstone_host::Stack;
use flagstone_index::IndexKind;
use std::fmt;

/// The store of an index: a device or a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Below {
    /// A device with a commit protocol.
    Protocol(Kind),
    /// A database.
    Stack(Stack),
}

impl Below {
    /// The one with this command name: `cfc`, `wal`, `force:cfc`.
    pub fn by_name(name: &str) -> Option<Below> {
        let stack = || name.parse().ok().map(Below::Stack);
        Kind::by_name(name).map(Below::Protocol).or_else(stack)
    }

    /// Whether transactions are atomic; false for the controls.
    pub fn is_atomic(self) -> bool {
        match self {
            Below::Protocol(kind) | Below::Stack(Stack::Force(kind)) => kind.info().atomic,
            Below::Stack(_) => true,
        }
    }
}

impl fmt::Display for Below {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Below::Protocol(kind) => kind.fmt(f),
            Below::Stack(stack) => stack.fmt(f),
        }
    }
}

/// A protocol, a stack, or an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A commit protocol; its clients write logical pages.
    Protocol(Kind),
    /// A recovery manager and what is below it; its clients write records.
    Stack(Stack),
    /// An index and what is below it; its client writes keys.
    Index(IndexKind, Below),
}

impl Subject {
    /// The subject with this command name: `cfc`, `wal`, `force:cfc`, `bptree@wal`.
    pub fn by_name(name: &str) -> Option<Subject> {
        if let Some((index, below)) = name.split_once('@') {
            let (index, below) = (IndexKind::by_name(index)?, Below::by_name(below)?);
            return Some(Subject::Index(index, below)).filter(|subject| subject.is_possible());
        }
        Below::by_name(name).map(|below| match below {
            Below::Protocol(kind) => Subject::Protocol(kind),
            Below::Stack(stack) => Subject::Stack(stack),
        })
    }

    /// All names accepted by [`Subject::by_name`].
    pub fn names() -> Vec<String> {
        let protocols = Kind::ALL.iter().copied().map(Below::Protocol);
        let below = protocols.chain(Stack::all().into_iter().map(Below::Stack));
        let below: Vec<Below> = below.collect();
        let on = |&index| below.iter().map(move |&on| Subject::Index(index, on));
        let indexes = IndexKind::ALL.iter().flat_map(on);
        let possible = indexes.filter(|subject| subject.is_possible());
        let names = below.iter().map(Below::to_string);
        names
            .chain(possible.map(|subject| subject.to_string()))
            .collect()
    }

    /// The device or database of the subject.
    pub(super) fn below(self) -> Below {
        match self {
            Subject::Protocol(kind) => Below::Protocol(kind),
            Subject::Stack(stack) => Below::Stack(stack),
            Subject::Index(_, below) => below,
        }
    }

    /// The protocol of the device, if it commits pages.
    pub(super) fn protocol(self) -> Option<Kind> {
        match self.below() {
            Below::Protocol(kind) | Below::Stack(Stack::Force(kind)) => Some(kind),
            Below::Stack(Stack::Wal) => Some(Kind::Plain),
            Below::Stack(Stack::CfcEx | Stack::AfcEx) => None,
        }
    }

    /// Whether transactions are atomic; false for the controls.
    pub fn is_atomic(self) -> bool {
        self.below().is_atomic()
    }

    /// Whether it is an index that buffers changes.
    pub fn buffers(self) -> bool {
        matches!(self, Subject::Index(kind, _) if kind.info().buffers)
    }

    /// Whether the combination exists: an index needs transactions of the device or database.
    pub fn is_possible(self) -> bool {
        match self {
            Subject::Index(_, Below::Protocol(on)) => on.info().atomic,
            _ => true,
        }
    }

    /// Whether it reprograms flags in place, but can work without that if the device forbids it.
    pub(super) fn may_reprogram(self) -> bool {
        self.protocol().is_some_and(|kind| kind.info().reprograms)
    }

    /// Whether the subject works on multi-level cells, whose pages cannot be reprogrammed.
    pub fn suits_mlc(self) -> bool {
        self.protocol().is_some_and(|kind| !kind.info().reprograms)
    }

    /// Whether the subject's device can collect ahead of need, in steps. Its protocol must support
    /// that.
    pub fn collects_in_steps(self) -> bool {
        matches!(self, Subject::Protocol(kind) if kind.info().format.in_steps)
    }

    /// Whether the protocol as published differs from the repaired variant.
    pub fn is_as_published(self) -> bool {
        match self {
            Subject::Protocol(kind) => kind.info().published.is_some(),
            Subject::Stack(_) | Subject::Index(..) => false,
        }
    }

    /// Whether the subject sets flags in place if possible.
    pub(super) fn sets_flags(self) -> bool {
        let records = matches!(self.below(), Below::Stack(Stack::CfcEx | Stack::AfcEx));
        records || self.may_reprogram()
    }

    /// Whether a collection moves flags to pages of other blocks, so that the order of collections
    /// determines the fate of a transaction.
    pub(super) fn hands_flags_on(self) -> bool {
        matches!(self, Subject::Stack(Stack::CfcEx | Stack::AfcEx))
    }

    /// The names of its modes, the default first.
    pub fn modes(self) -> impl Iterator<Item = &'static str> {
        let modes = match self {
            Subject::Protocol(kind) => kind.info().modes,
            Subject::Stack(_) | Subject::Index(..) => &[],
        };
        modes.iter().map(|mode| mode.name)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Protocol(kind) => kind.fmt(f),
            Subject::Stack(stack) => stack.fmt(f),
            Subject::Index(kind, below) => write!(f, "{kind}@{below}"),
        }
    }
}
