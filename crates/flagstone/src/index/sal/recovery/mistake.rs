//! Mistakes of SAL-hashing's recovery that tests and campaigns make on purpose: each control must
//! find a violation.

use crate::mistakes::mistakes;

mistakes! {
    /// A rule that is left out, or a step that is done wrong.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Mistake {
        /// A flush writes its pages to their places without logging them.
        FlushNotLogged: "flush-not-logged",
        /// A flush in which a full log region is merged does so.
        MergeNotLogged: "merge-not-logged",
        /// A restart takes a flush for finished that is not.
        EndIgnored: "end-ignored",
        /// A commit is acknowledged before its record is durable.
        CommitNotForced: "commit-not-forced",
        /// A restart does not undo.
        NoUndo: "no-undo",
        /// What is undone is not logged.
        UndoNotLogged: "undo-not-logged",
        /// Against R1: pages of a flush reach their places before its closing record is durable.
        PagesFirst: "pages-first",
        /// Against R2: a flush says that it has all updates, although only some have been repeated.
        CoversAll: "covers-all",
        /// Against R3: an update is taken out of the buffer, and the change that it replaced does
        /// not come back.
        RemovedAlone: "removed-alone",
        /// Against R4: a restart undoes before it flushes the updates that it has repeated.
        UndoneFirst: "undone-first",
        /// A transaction that lives keeps the log from its first update on. Without R5.
        NotCarried: "not-carried",
        /// Changes are taken for which a restart may have no room.
        RoomNotKept: "room-not-kept",
    }
}
