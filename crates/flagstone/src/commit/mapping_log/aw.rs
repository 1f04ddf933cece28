//! Atomic-Write (AW).
//!
//! Paper       [AtomicWrite] (Ouyang et al., HPCA 2011), in the form that [LightTx] §2.3 and §4
//!             compares with.
//! Idea        Data pages go anywhere. At commit the mapping entries of the transaction are
//!             appended to one log, marked so that a group without its end does not count.
//! Commit      The last of the transaction's pages and log pages to land.
//! Cost        k programs for k pages and one log page a transaction (a page of 4 KB has room for
//!             the entries of 290 pages), all side by side. Recovery reads the mapping table, the
//!             log, and the pages of the last transaction.
//!
//!   spare     the header alone
//!   log page  | group | tx | durable | part of parts | entries | lpn -> ppn seq | ...
//!
//! Invariants  1. A block that a group names is erased only after a log page, which is durable, has
//!                called the group durable.
//!             2. The mapping table holds committed versions only, so that a checkpoint may be
//!                written at any time.
//!             3. A block is erased only after the groups that made its pages invalid, and the
//!                group that says where its valid pages went, are durable.
//!             4. One transaction at a time: groups never interleave in the log.
//!
//! Recovery    a group in the log after the last checkpoint                verdict
//!   @A        all parts are there, and it is called durable or all of
//!             its pages are there                                         applied, by its number
//!   @B        a part is missing or cannot be read, and none is @C         absent
//!   @C        a part was written before the checkpoint                    in the mapping table
//!   @D        it is not called durable, and a page is not there           absent
//!             The first write afterwards writes a checkpoint; recovery itself only reads.
//!
//! Departures  D1. Each log page says how many there are, where the paper ends a group with a flag
//!                 in the last: the pages of a long group are programmed side by side and may land
//!                 in any order.
//!             D2. A trim is an entry that names no page; nothing is programmed for it.
//!             D3. The pages that one collection moves make one group, not one each.
//!             D4. Recovery looks for the pages of a group that is not called durable. The paper
//!                 does not say how a log page that names a page which never landed is told from
//!                 others; its figures leave no room for a wait between the two. The printed form
//!                 takes the log at its word.
//!             D5. The pages of the log go to the channels as their turn comes, and there to that
//!                 of two lanes which is idle.

use super::protocol;
use crate::commit::{Info, Options, Recovered, heads};
use crate::ftl::{Ftl, FtlError, Mounted};

pub(in crate::commit) const INFO: Info = Info {
    name: "aw",
    idea: "mapping entries of a transaction appended to one log at commit",
    paper: "AtomicWrite",
    section: "LightTx §2.3, §4.1",
    live_max: Some(1),
    ..protocol::INFO
};

pub(in crate::commit) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    let logs = heads(&INFO, ftl.geometry(), options)?;
    // A single transaction at a time: its group goes to the lane whose turn it is.
    protocol::recover(ftl, &mounted, options, logs, None)
}
