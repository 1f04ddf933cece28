//! LightTx.
//!
//! Paper       [LightTx] (Lu et al., IEEE Transactions on Computers 64(10), 2015).
//! Idea        The commit of a transaction depends on its own pages only: each names the
//!             transaction, the last one counts them. The mapping table is written now and then;
//!             until then recent writes are found because they can only lie in a few blocks, the
//!             zones.
//! Commit      As MHL-D.
//! Cost        k programs for k pages, and a checkpoint each time the zone of blocks set aside is
//!             used up. Recovery reads the mapping table and the blocks of two zones.
//! Memory      The mapping table, or a part of it (DFTL, §4.4; setting `map_cache`). A missing
//!             entry costs a read, changed ones wait for a slide, and a slide reads the
//!             translation pages that it changes.
//!
//!   spare     | header: kind lpn seq | TxID 4 | TxCnt 4 | TxVer 4 |      see super::count_record
//!   root      | ckptVer | last TxID | Available blocks | Unavailable blocks |      super::zones
//!
//! States      Live ──commit──> Committed ──slide──> Dead (checkpointed)
//!               └──abort─────> Aborted ──────slide──> Dead
//!
//! Invariants  1. A page that the mapping table on flash does not name, and that counts or may yet
//!                count, lies in a block that the newest durable root lists.
//!             2. Blocks that a slide sets aside are written, and blocks that it lets out of the
//!                zones are collected, once its root is durable.
//!             3. A commit is acknowledged when all pages of the transaction are durable; they may
//!                land in any order.
//!             4. A block is erased only once the commits that made its pages invalid are durable.
//!             5. No two transactions with pages in the zones have the same TxID.
//!             6. A page is copied only once the commit of its transaction is durable, since the
//!                copy counts by itself.
//!
//! Recovery    facts about a transaction with pages in the zones              verdict
//!   @A        no page has a TxCnt, and not @G                                not committed
//!   @B        TxCnt is not the number of its pages that are there, not @G    not committed
//!   @C        TxCnt is that number, TxVer > ckptVer                          redone, by TxVer
//!   @D        TxCnt is that number, TxVer <= ckptVer                         in the mapping table
//!   @E        a page of no transaction, TxVer > ckptVer                      redone, by TxVer
//!   @F        a page of no transaction, TxVer <= ckptVer                     in the mapping table
//!   @G        the facts of @A or @B, and the mapping table of the
//!             checkpoint has one of its pages: others have left the zones    in the mapping table
//!             The first write afterwards slides the zones; recovery itself only reads.
//!
//! Departures  D1. The root keeps ckptVer. As printed, every committed transaction in the zones is
//!                 redone: one that is dead but still there brings back a version that another has
//!                 replaced, if the pages of that other have left the zones.
//!             D2. Pages of one transaction are redone by write sequence. As printed, nothing says
//!                 which of two versions of a page in one transaction is the later.
//!             D3. TxID is drawn by the device, from a counter that is never set back and that
//!                 recovery finds again. As printed, the host chooses it and BEGIN checks live
//!                 transactions only: the leftovers of an aborted one would be counted with those
//!                 of its namesake. The printed form has the counter too, so this loss cannot be
//!                 shown here.
//!             D4. What must be waited for before an erase (invariants 2 and 4) or a copy
//!                 (invariant 6) is not in the paper.
//!             D5. A trim is a page like any other until the next slide, which records it in the
//!                 mapping table.

use super::Rule;
use crate::commit::{Info, Options, Published, Recovered};
use crate::ftl::{Ftl, FtlError, Mounted};

pub(in crate::commit) const INFO: Info = Info {
    name: "lighttx",
    idea: "the last page counts the pages of its transaction; zones bound where recent writes are",
    section: "§3",
    published: Some(Published {
        without: "D1, D2",
        loses: "A superseded transaction comes back, because its pages are still in the zones and \
                the newer versions are not. Of two versions in one transaction the older may win.",
    }),
    ..super::INFO
};

/// The rule of LightTx: pages go to the planes in turn.
#[derive(Clone)]
struct LightTx;

impl Rule for LightTx {}

pub(in crate::commit) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    let redo_all = options.as_published; // D1
    let any_order = options.as_published; // D2
    super::recover(ftl, &mounted, &INFO, options, LightTx, redo_all, any_order)
}
