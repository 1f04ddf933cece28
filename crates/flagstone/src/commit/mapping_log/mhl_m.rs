//! Multi-head logging with metadata clustering (MHL-M).
//!
//! Paper       [LightTx] §4.1, an extension of Atomic-Write.
//! Idea        As [`super::aw`], with a log for each of several heads: a transaction is bound to a
//!             head when it begins and appends its mapping entries to that log, so that as many
//!             transactions as there are heads run side by side.
//! Commit      As AW, in the log of the transaction's head.
//! Cost        k programs for k pages and one log page a transaction, all side by side. Recovery
//!             reads the mapping table, the logs, and the pages of the last few transactions.
//!
//!   spare     the header alone
//!   log page  | group | tx | durable | part of parts | entries | lpn -> ppn seq | ...
//!
//! Invariants  1. A block that a group names is erased only after a log page, which is durable, has
//!                called the group durable.
//!             2. The mapping table holds committed versions only, so that a checkpoint may be
//!                written at any time; it ends all logs at once.
//!             3. A block is erased only after the groups that made its pages invalid, and the
//!                group that says where its valid pages went, are durable. That group is issued
//!                only after all groups with lower numbers are durable: it may name a page of any
//!                of them.
//!             4. A head serves one transaction at a time.
//!
//! Recovery    a group in a log after the last checkpoint                  verdict
//!   @A        all parts are there, and it is called durable or all of
//!             its pages are there                                         applied, by its number
//!   @B        a part is missing or cannot be read, and none is @C         absent
//!   @C        a part was written before the checkpoint                    in the mapping table
//!   @D        it is not called durable, and a page is not there           absent
//!             The first write afterwards writes a checkpoint; recovery itself only reads.
//!
//! Departures  D1 to D4 of [`super::aw`].
//!             D5. Groups are numbered over all logs. The paper does not say how two logs that name
//!                 the same logical page are put in order.
//!             D6. A transaction that finds no head is refused. The caller of the device has it
//!                 wait.

use super::protocol;
use crate::commit::{HEADS_MAX, Heads, Info, Isolation, Options, Recovered, heads};
use crate::ftl::{Ftl, FtlError, Mounted};

pub(in crate::commit) const INFO: Info = Info {
    name: "mhl-m",
    idea: "mapping entries of a transaction appended to the log of its head at commit",
    paper: "LightTx",
    section: "§4.1",
    isolation: Isolation::Serializable,
    live_max: Some(HEADS_MAX),
    ..protocol::INFO
};

pub(in crate::commit) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    let heads = heads(&INFO, ftl.geometry(), options)?;
    protocol::recover(ftl, &mounted, options, heads, Some(Heads::new(heads)))
}
