//! What a campaign breaks: a protocol under logical pages, or a database under records.

use flagstone::commit::Kind;
use flagstone::host::Stack;
use std::fmt;

/// A protocol or a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A commit protocol; its clients write logical pages.
    Protocol(Kind),
    /// A recovery manager and what is below it; its clients write records.
    Stack(Stack),
}

impl Subject {
    /// By the name that commands use: `cfc`, `wal`, `force:cfc`.
    pub fn by_name(name: &str) -> Option<Subject> {
        let stack = || name.parse().ok().map(Subject::Stack);
        Kind::by_name(name).map(Subject::Protocol).or_else(stack)
    }

    /// The protocol of the device, if that commits pages.
    pub(super) fn protocol(self) -> Option<Kind> {
        match self {
            Subject::Protocol(kind) | Subject::Stack(Stack::Force(kind)) => Some(kind),
            Subject::Stack(Stack::Wal) => Some(Kind::Plain),
            Subject::Stack(Stack::CfcEx | Stack::AfcEx) => None,
        }
    }

    /// Whether it keeps transactions apart at all; false for the controls.
    pub fn is_atomic(self) -> bool {
        match self {
            Subject::Protocol(kind) | Subject::Stack(Stack::Force(kind)) => kind.info().atomic,
            Subject::Stack(_) => true,
        }
    }

    /// Whether it reprograms flags in place, and can do without where the device forbids it.
    pub(super) fn may_reprogram(self) -> bool {
        self.protocol().is_some_and(|kind| kind.info().reprograms)
    }

    /// Its modes by name, the default first.
    pub fn modes(self) -> &'static [&'static str] {
        match self {
            Subject::Protocol(kind) => kind.info().modes,
            Subject::Stack(_) => &[],
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Protocol(kind) => kind.fmt(f),
            Subject::Stack(stack) => stack.fmt(f),
        }
    }
}
