//! Rules of SEAL that a campaign leaves out on purpose: each control must find a violation.

use crate::mistakes::mistakes;

mistakes! {
    /// A rule that is left out.
    ///
    /// Example: [`Mistaken`](crate::mistakes::Mistaken).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Mistake {
        /// Rule E: nothing is listed before an erase.
        EvidenceDropped: "evidence-dropped",
        /// Rule E: a witness is erased, and the transactions that it spoke for are not listed.
        WitnessDropped: "witness-dropped",
        /// Rule E: a counted page is erased, and its transaction is not listed.
        CountDropped: "count-dropped",
        /// A new root lists only new transactions.
        ListForgets: "list-forgets",
        /// A root that leaves transactions out is issued before the summaries are durable that
        /// speak for them.
        ListEarly: "list-early",
        /// The erase does not wait for the root that lists.
        RootNotWaited: "root-not-waited",
        /// Rule T: erases do not wait for the commits that made pages invalid.
        CommitsNotWaited: "commits-not-waited",
        /// Rule T: erases do not wait for the copies of other collections.
        CopiesNotWaited: "copies-not-waited",
        /// Rule T: erases do not wait for summaries.
        SummariesNotWaited: "summaries-not-waited",
        /// A summary calls transactions committed before they are durable.
        VerdictEarly: "verdict-early",
        /// A summary calls live transactions committed.
        LiveSealed: "live-sealed",
        /// A summary is programmed before the pages are durable that it speaks for.
        SummaryFirst: "summary-first",
        /// What a summary leaves open is taken for said.
        EarlyIsFinal: "early-is-final",
        /// Copies of a live transaction's pages belong to no transaction.
        LiveResolved: "live-resolved",
        /// Copies of pages that are published and not durable belong to no transaction.
        AwaitedResolved: "awaited-resolved",
        /// A copy that belongs to no transaction keeps its write sequence.
        CopyKeepsSeq: "copy-keeps-seq",
        /// The answer to a commit waits for the last page only.
        LastPageWaited: "last-page-waited",
        /// An abort programs the page held back, with its count.
        AbortPrograms: "abort-programs",
        /// The last page states the number of programs of the transaction, although versions that
        /// it has overwritten itself are not kept.
        NumberOfPrograms: "number-of-programs",
        /// Recovery ignores the sum of write sequences.
        NoSum: "no-sum",
        /// The summary of a block that replaces a sum does not wait for what the tables rely on.
        SumNotAwaited: "sum-not-awaited",
        /// A copy that counts by itself does not wait for transactions whose evidence is no longer
        /// kept.
        DecidedEarly: "decided-early",
        /// Neither the last page nor recovery counts the other lists of trims.
        TrimsNotCounted: "trims-not-counted",
        /// Recovery applies the lists of trims of transactions that are not whole.
        TornTrims: "torn-trims",
        /// A list of trims is left to the collector as soon as its transaction has committed.
        TrimsDropped: "trims-dropped",
        /// The copy of a list of trims names pages that have been written since.
        TrimsAgain: "trims-again",
        /// Recovery counts copies as pages of their own.
        CopiesCounted: "copies-counted",
        /// Recovery takes the last page alone for a commit.
        LastPageCommits: "last-page-commits",
        /// Recovery takes any page of a transaction for its commit.
        NotCounted: "not-counted",
        /// Recovery looks for evidence only in the block of a page.
        WitnessIgnored: "witness-ignored",
        /// Recovery ignores the list in the root.
        ListIgnored: "list-ignored",
        /// Recovery does not find the transactions again that need evidence.
        TableForgotten: "table-forgotten",
        /// Recovery orders versions by write sequence, not by commit.
        OrderBySeq: "order-by-seq",
        /// Recovery takes the versions of one transaction in no order.
        AnyOrderInside: "any-order-inside",
        /// Identifiers restart from the beginning after a restart.
        XidReused: "xid-reused",
        /// Identifiers start above those of committed transactions.
        XidFromCommits: "xid-from-commits",
        /// Identifiers may be those that the root lists.
        XidFromPages: "xid-from-pages",
        /// Pages state what is durable although blocks without a summary remain from a cut.
        LeftUnsealed: "left-unsealed",
        /// Bounded restarts: commits that the mapping table has already are redone.
        TableIgnored: "table-ignored",
        /// Bounded restarts: the mapping table is written while it may refer to pages that are not
        /// durable.
        TableEarly: "table-early",
        /// Bounded restarts: blocks with pages of transactions that live at a checkpoint are not
        /// read.
        LiveNotRead: "live-not-read",
        /// Bounded restarts: blocks are written that no root announces.
        NotAnnounced: "not-announced",
        /// Bounded restarts: the root omits which identifiers were assigned.
        XidNotInTable: "xid-not-in-table",
    }
}

impl Mistake {
    /// Whether the mistake exists only with bounded restarts.
    pub fn is_of_bounds(self) -> bool {
        matches!(
            self,
            Mistake::TableIgnored
                | Mistake::TableEarly
                | Mistake::LiveNotRead
                | Mistake::NotAnnounced
                | Mistake::XidNotInTable
        )
    }
}
