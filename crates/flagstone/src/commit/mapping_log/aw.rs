//! Atomic-Write (AW).
//!
//! Paper       [AtomicWrite] (Ouyang et al., HPCA 2011), in the form that [LightTx] §2.3 and §4
//!             compares with.
//! Idea        Data pages go anywhere. At commit the mapping entries of the transaction are
//!             appended to one log, marked so that a group without its end does not count.
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

use super::MappingLog;
use crate::commit::active::{Version, Writes};
use crate::commit::{
    Content, Found, Info, Isolation, LOG_PER_HEAD, Options, Protocol, Recovered, Taken, Write,
};
use crate::ftl::{Format, Ftl, FtlError, Header, Mounted, Owner, Slot, Stream, Written};
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};

pub(in crate::commit) const INFO: Info = Info {
    name: "aw",
    idea: "mapping entries of a transaction appended to one log at commit",
    paper: "AtomicWrite",
    section: "LightTx §2.3, §4.1",
    isolation: Isolation::Strict,
    live_max: Some(1),
    reprograms: false,
    rewrites: true,
    atomic: true,
    as_published: true,
    modes: &[],
    format: Format {
        tail_bytes: 0,
        flag_bytes: 0,
        persist_map: true,
        logs: LOG_PER_HEAD,
        zoned: false,
    },
};

#[derive(Clone)]
struct AtomicWrite {
    log: MappingLog,
    /// What the live transaction has written.
    writes: Writes,
    /// Committed pages that the collection under way has moved.
    moved: Vec<Version>,
    /// When it began.
    begun: Nanos,
}

pub(in crate::commit) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    let logs = options.heads(ftl.geometry());
    let trusting = options.as_published; // D4
    let (log, done) = MappingLog::replay(ftl, &mounted, logs, trusting)?;
    Ok(Recovered {
        last_tx: log.last_tx(),
        protocol: Box::new(AtomicWrite {
            log,
            writes: Writes::default(),
            moved: Vec::new(),
            begun: done,
        }),
        done,
    })
}

impl Protocol for AtomicWrite {
    fn begin(&mut self, _: &mut Ftl, _: Nanos, _: TxId) -> Result<(), FtlError> {
        Ok(())
    }

    fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        _: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError> {
        let Write { at, content, cause } = write;
        let Content::Data(bytes) = content else {
            self.writes.empty(ftl, at);
            return Ok(Taken::at(now));
        };
        let start = self.log.admit(ftl, now)?;
        let (to, page) = ((Stream::Host, None), (content.kind(), at, None));
        let to = ftl.append(start, to, page, &[], bytes, cause)?;
        self.writes.put(ftl, at, Slot::Page(to.at), to);
        let (next, done) = (now, to.done);
        Ok(Taken { next, done })
    }

    fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_> {
        let own = tx.and_then(|_| self.writes.get(at));
        own.unwrap_or_else(|| ftl.slot(at)).into()
    }

    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Option<Nanos>, FtlError> {
        if self.writes.entries().is_empty() {
            return Ok(Some(now));
        }
        let done = self.log.commit(ftl, now, (tx, None), &self.writes)?;
        self.writes.clear();
        Ok(Some(done))
    }

    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, _: TxId) -> Result<Nanos, FtlError> {
        self.writes.discard(ftl);
        self.writes.clear();
        Ok(now)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("active_tx_table", self.writes.memory()),
            ("mapping_log", self.log.memory()),
        ]
    }

    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        self.writes.check(ftl, TxId(0))
    }
}

impl Owner for AtomicWrite {
    fn prepare(&mut self, ftl: &mut Ftl, now: Nanos, _: Pbn) -> Result<Nanos, FtlError> {
        self.begun = self.log.admit(ftl, now)?;
        Ok(self.begun)
    }

    fn relocated(&mut self, ftl: &mut Ftl, header: &Header, from: Ppn, to: Written) {
        let (old, new) = (Slot::Page(from), Slot::Page(to.at));
        if ftl.slot(header.lpn) == old {
            ftl.set_slot(header.lpn, new);
            self.moved.push(Version {
                lpn: header.lpn,
                slot: new,
                seq: header.seq,
            });
        } else {
            self.writes.follow(header.lpn, old, new, to.done);
        }
    }

    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        let done = self
            .log
            .moved(ftl, (self.begun, now), victim, &self.moved)?;
        self.moved.clear();
        Ok(done)
    }
}
