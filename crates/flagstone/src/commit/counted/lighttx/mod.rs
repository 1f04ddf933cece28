//! LightTx.
//!
//! Paper       [LightTx] (Lu et al., IEEE Transactions on Computers 64(10), 2015).
//! Idea        The commit of a transaction depends on its own pages only: each names the
//!             transaction, the last one counts them. The mapping table is written now and then;
//!             until then recent writes are found because they can only lie in a few blocks, the
//!             zones.
//! Cost        k programs for k pages, and a checkpoint each time the zone of blocks set aside is
//!             used up. Recovery reads the mapping table and the blocks of two zones.
//!
//!   spare     | header: kind lpn seq | TxID 4 | TxCnt 4 | TxVer 4 |      see super::counted
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
//!
//! Recovery    facts about a transaction with pages in the zones              verdict
//!   @A        no page has a TxCnt                                            not committed
//!   @B        TxCnt is not the number of its pages that are there            not committed
//!   @C        TxCnt is that number, TxVer > ckptVer                          redone, by TxVer
//!   @D        TxCnt is that number, TxVer <= ckptVer                         in the mapping table
//!   @E        a page of no transaction, TxVer > ckptVer                      redone, by TxVer
//!   @F        a page of no transaction, TxVer <= ckptVer                     in the mapping table
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
//!             D4. What must be waited for before an erase (invariants 2 and 4) is not in the
//!                 paper.
//!             D5. A trim is a page like any other until the next slide, which records it in the
//!                 mapping table.

#[cfg(test)]
mod tests;

use crate::commit::counted::{self, Counted, count_record};
use crate::commit::{Found, Info, Isolation, Options, Protocol, Recovered, Taken, Way, Write};
use crate::ftl::{Fate, Format, Ftl, FtlError, Header, Mounted, Owner, Written};
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};

pub(in crate::commit) const INFO: Info = Info {
    name: "lighttx",
    idea: "the last page counts the pages of its transaction; zones bound where recent writes are",
    paper: "LightTx",
    section: "§3",
    isolation: Isolation::Serializable,
    live_max: None,
    reprograms: false,
    rewrites: true,
    atomic: true,
    as_published: true,
    modes: &[],
    format: Format {
        tail_bytes: count_record::SIZE,
        flag_bytes: 0,
        persist_map: true,
        logs: 0,
        zoned: true,
    },
};

#[derive(Clone)]
struct LightTx {
    pages: Counted,
}

pub(in crate::commit) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    let redo_all = options.as_published; // D1
    let any_order = options.as_published; // D2
    let (pages, done) = counted::recover(ftl, &mounted, options, (redo_all, any_order))?;
    Ok(Recovered {
        last_tx: pages.zones.last_tx,
        protocol: Box::new(LightTx { pages }),
        done,
    })
}

impl Protocol for LightTx {
    fn begin(&mut self, _: &mut Ftl, _: Nanos, tx: TxId) -> Result<(), FtlError> {
        self.pages.zones.last_tx = tx;
        Ok(())
    }

    fn in_the_way(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        _: TxId,
        round: u32,
    ) -> Result<Option<Way>, FtlError> {
        self.pages.in_the_way(ftl, now, round)
    }

    fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError> {
        self.pages.write(ftl, now, tx, write, None)
    }

    fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_> {
        self.pages.find(ftl, tx, at)
    }

    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Option<Nanos>, FtlError> {
        self.pages.commit(ftl, now, tx, None).map(Some)
    }

    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        self.pages.abort(ftl, tx);
        Ok(now)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        self.pages.memory()
    }

    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        self.pages.check(ftl)
    }
}

impl Owner for LightTx {
    fn prepare(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        self.pages.prepare(ftl, now, victim)
    }

    fn relocate(&mut self, ftl: &Ftl, from: Ppn, header: &Header, tail: &mut [u8]) -> Fate {
        self.pages.relocate(ftl, from, header, tail)
    }

    fn relocated(&mut self, ftl: &mut Ftl, header: &Header, from: Ppn, to: Written) {
        self.pages.relocated(ftl, header, from, to);
    }

    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        self.pages.before_erase(ftl, now, victim)
    }
}
