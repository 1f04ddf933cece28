//! Mistakes that a test can ask for: what a campaign must find, or it would find nothing.

/// What it does wrong on purpose, for controls that must fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    None,
    /// A flush writes its pages to their places without logging them.
    FlushNotLogged,
    /// A flush in which a full log region is merged does so.
    MergeNotLogged,
    /// A restart takes a flush for finished that is not.
    EndIgnored,
    /// A commit is acknowledged before its record is durable.
    CommitNotForced,
    /// A restart does not undo.
    NoUndo,
    /// What is undone is not logged.
    UndoNotLogged,
    /// Against R1: pages of a flush reach their places before its closing record is durable.
    PagesFirst,
    /// Against R2: a flush says that it has all there is, whatever was repeated so far.
    CoversAll,
    /// Against R3: an update is taken out of the buffer, and what it replaced does not come back.
    RemovedAlone,
    /// Against R4: a restart undoes before it flushes what it has repeated.
    UndoneFirst,
    /// A transaction that lives keeps the log from its first update on. Without R5.
    NotCarried,
}
