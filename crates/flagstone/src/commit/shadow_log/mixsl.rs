//! MixSL: shadow pages, and a log on flash that says which transactions count.
//!
//! Paper       [MixSL] §3: a commit scheme for MLC flash, whose pages cannot be programmed twice.
//! Idea        Pages go to flash when they are written, each with its transaction's identifier. A
//!             transaction has committed when a log page that says so is on flash.
//! Commit      The log page that names the transaction.
//! Cost        k + 1 programs for k pages, one after all others; none for a transaction that wrote
//!             nothing. Recovery reads the log and a summary page a block.
//! Symbols     see [`super`], the engine of this and G-MixSL
//!
//!   spare     | head 11 | xid 6 | link 4 |          head: kind, lpn, seq
//!   log page  | count 2 | xid 6, c/a 1 | ...        one record a page
//!   root      | watermark 6 | count 4 | gaps ... |  what a compaction leaves of the log
//!
//! States      live ──commit: data durable, then log page──> committed
//!               └────abort, or a power cut──────────────> aborted ──its last page erased──> gone
//!
//! Invariants  1. No two live transactions write the same page, so that the write sequence of two
//!                versions of a page is the order in which their transactions ended.
//!             2. The newest committed version of a page stays on flash until a newer one has
//!                committed and its log page is durable.
//!             3. What obsoletes a page is durable before that page is erased.
//!             4. An identifier whose pages are on flash and that no log page names has committed
//!                if it is up to the root's watermark and not listed there, and only then.
//!             5. No identifier is given out twice as long as a page or record of it is there.
//!
//! Recovery    facts about a version on flash                               verdict
//!   @A        no record since the compaction says that its XID has          not committed: aborted
//!             committed, and the root lists it or its watermark is below    from now on
//!   @B        committed, and the highest sequence of its logical page       current
//!             that is committed, of copies the first
//!   @C        committed, and any other                                      obsolete, or a copy
//!
//! Departures  D1. The link names the page of the preceding version: the transaction's own if it
//!                 has one, else the committed one. §3.2 prints the new page's own address, which
//!                 would make every page obsolete itself.
//!             D2. Versions are ordered by the write sequence in the head of the spare area; copies
//!                 keep theirs. As printed links alone tell old from new: once the middle one of
//!                 three versions is erased the oldest comes back, and a link to a page whose block
//!                 was used again clears whatever lies there now. Links are written and not read.
//!             D3. Pages of live transactions are kept. As printed they are garbage (algorithm 1).
//!                 What the collector keeps comes from the tables in memory, not from reading the
//!                 whole log and all spare areas at each collection.
//!             D4. A full log is compacted: the FTL's next root takes the last identifier and those
//!                 that do not count, and the log starts anew. The paper does not say what happens.
//!                 The list is kept to half an erase block by collecting blocks with aborted pages.
//!             D5. An abort writes no record, because no record means not committed. As printed
//!                 <T,0> is flushed. Nor does a transaction that wrote nothing need a record.
//!
//! As published: D2, D3 and D5 are undone (shadow_log/printed.rs); D1 and D4 stay.

use super::ShadowLog;
use super::protocol::{self, Rule};
use super::record::LogRecord;
use crate::commit::{Info, Options, Recovered};
use crate::ftl::{Ftl, FtlError, Mounted};
use crate::units::{Nanos, TxId};

pub(in crate::commit) const INFO: Info = Info {
    name: "mixsl",
    idea: "shadow pages carry their transaction's id; a log page makes it count",
    section: "§3",
    ..super::INFO
};

#[derive(Clone)]
struct MixSl;

pub(in crate::commit) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    protocol::recover(ftl, mounted, options, MixSl)
}

impl Rule for MixSl {
    fn commit(
        &mut self,
        log: &mut ShadowLog,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
    ) -> Result<Option<Nanos>, FtlError> {
        let written = ftl.sync(now, log.written(tx))?;
        let committed = true;
        let done = log.log(ftl, written, &[LogRecord { tx, committed }])?;
        log.merge(ftl, tx, done);
        Ok(Some(done))
    }

    /// Rolls the transaction back. As published, a record of that is logged first (D5).
    fn abort(
        &mut self,
        log: &mut ShadowLog,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
    ) -> Result<Nanos, FtlError> {
        let mut done = now;
        if log.as_published() {
            let committed = false;
            done = log.log(ftl, now, &[LogRecord { tx, committed }])?;
        }
        log.roll_back(ftl, tx);
        Ok(done)
    }
}
