//! Rules of SEAL that a campaign leaves out on purpose: each control must find a violation.

/// A rule that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mistake {
    /// Rule E: nothing is listed before an erase.
    EvidenceDropped,
    /// Rule E: a witness is erased, and the transactions that it spoke for are not listed.
    WitnessDropped,
    /// Rule E: a counted page is erased, and its transaction is not listed.
    CountDropped,
    /// A new root lists only what is new.
    ListForgets,
    /// A root that leaves transactions out is issued before the summaries are durable that speak
    /// for them.
    ListEarly,
    /// The erase does not wait for the root that lists.
    RootNotWaited,
    /// Rule T: erases do not wait for the commits that made pages invalid.
    CommitsNotWaited,
    /// Rule T: erases do not wait for the copies of other collections.
    CopiesNotWaited,
    /// Rule T: erases do not wait for summaries.
    SummariesNotWaited,
    /// A summary says of transactions that they are committed before they are durable.
    VerdictEarly,
    /// A summary says of live transactions that they are committed.
    LiveSealed,
    /// A summary is programmed before the pages are durable that it speaks for.
    SummaryFirst,
    /// What a summary leaves open is taken for said.
    EarlyIsFinal,
    /// Copies of a live transaction's pages belong to no transaction.
    LiveResolved,
    /// Copies of pages that are published and not durable belong to no transaction.
    AwaitedResolved,
    /// A copy that belongs to no transaction keeps its write sequence.
    CopyKeepsSeq,
    /// The answer to a commit waits for the last page only.
    LastPageWaited,
    /// An abort programs the page held back, with its count.
    AbortPrograms,
    /// Recovery counts copies as pages of their own.
    CopiesCounted,
    /// Recovery takes the last page alone for a commit.
    LastPageCommits,
    /// Recovery takes any page of a transaction for its commit.
    NotCounted,
    /// Recovery looks for evidence in the block of a page only.
    WitnessIgnored,
    /// Recovery does not look into the root.
    ListIgnored,
    /// Recovery does not find the transactions again that need evidence.
    TableForgotten,
    /// Recovery orders versions by write sequence, not by commit.
    OrderBySeq,
    /// Recovery takes the versions of one transaction in no order.
    AnyOrderInside,
    /// Identifiers start anew after a restart.
    XidReused,
    /// Identifiers start above those of committed transactions.
    XidFromCommits,
    /// Identifiers may be those that the root lists.
    XidFromPages,
    /// Bounded restarts: commits that the mapping table has already are redone.
    TableIgnored,
    /// Bounded restarts: the mapping table is written while it may name what is not durable.
    TableEarly,
    /// Bounded restarts: blocks with pages of transactions that live at a checkpoint are not read.
    LiveNotRead,
    /// Bounded restarts: blocks are written that no root announces.
    NotAnnounced,
    /// Bounded restarts: the root does not say which identifiers were given out.
    XidNotInTable,
}

impl Mistake {
    /// Whether it is one of bounded restarts only.
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

    /// All of them, with the names that commands use.
    pub const ALL: [(Mistake, &'static str); 34] = [
        (Mistake::EvidenceDropped, "evidence-dropped"),
        (Mistake::WitnessDropped, "witness-dropped"),
        (Mistake::CountDropped, "count-dropped"),
        (Mistake::ListForgets, "list-forgets"),
        (Mistake::ListEarly, "list-early"),
        (Mistake::RootNotWaited, "root-not-waited"),
        (Mistake::CommitsNotWaited, "commits-not-waited"),
        (Mistake::CopiesNotWaited, "copies-not-waited"),
        (Mistake::SummariesNotWaited, "summaries-not-waited"),
        (Mistake::VerdictEarly, "verdict-early"),
        (Mistake::LiveSealed, "live-sealed"),
        (Mistake::SummaryFirst, "summary-first"),
        (Mistake::EarlyIsFinal, "early-is-final"),
        (Mistake::LiveResolved, "live-resolved"),
        (Mistake::AwaitedResolved, "awaited-resolved"),
        (Mistake::CopyKeepsSeq, "copy-keeps-seq"),
        (Mistake::LastPageWaited, "last-page-waited"),
        (Mistake::AbortPrograms, "abort-programs"),
        (Mistake::CopiesCounted, "copies-counted"),
        (Mistake::LastPageCommits, "last-page-commits"),
        (Mistake::NotCounted, "not-counted"),
        (Mistake::WitnessIgnored, "witness-ignored"),
        (Mistake::ListIgnored, "list-ignored"),
        (Mistake::TableForgotten, "table-forgotten"),
        (Mistake::OrderBySeq, "order-by-seq"),
        (Mistake::AnyOrderInside, "any-order-inside"),
        (Mistake::XidReused, "xid-reused"),
        (Mistake::XidFromCommits, "xid-from-commits"),
        (Mistake::XidFromPages, "xid-from-pages"),
        (Mistake::TableIgnored, "table-ignored"),
        (Mistake::TableEarly, "table-early"),
        (Mistake::LiveNotRead, "live-not-read"),
        (Mistake::NotAnnounced, "not-announced"),
        (Mistake::XidNotInTable, "xid-not-in-table"),
    ];
}
