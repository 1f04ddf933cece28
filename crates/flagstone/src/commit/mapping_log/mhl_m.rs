//! Multi-head logging with metadata clustering (MHL-M).
//!
//! Paper       [LightTx] §4.1, an extension of Atomic-Write.
//! Idea        As [`super::aw`], with a log for each of several heads: a transaction is bound to a
//!             head when it begins and appends its mapping entries to that log, so that as many
//!             transactions as there are heads run side by side.
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
//!             D6. The transactions that find no head are refused; who drives the device waits.

use super::MappingLog;
use crate::commit::active::{TxTable, Version, Writes};
use crate::commit::{
    Content, Found, Info, Isolation, LOG_PER_HEAD, Options, Protocol, Recovered, Taken, Write,
};
use crate::ftl::{Format, Ftl, FtlError, Header, Mounted, Owner, Slot, Stream, Written};
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use std::collections::VecDeque;

pub(in crate::commit) const INFO: Info = Info {
    name: "mhl-m",
    idea: "mapping entries of a transaction appended to the log of its head at commit",
    paper: "LightTx",
    section: "§4.1",
    isolation: Isolation::Serializable,
    live_max: Some(Options::HEADS_MAX),
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

#[derive(Debug, Clone, Default)]
struct Active {
    head: u32,
    writes: Writes,
}

#[derive(Clone)]
struct MhlM {
    log: MappingLog,
    active: TxTable<Active>,
    /// Heads that serve no transaction, the longest idle first.
    idle: VecDeque<u32>,
    heads: u32,
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
    let heads = options.heads(ftl.geometry());
    let trusting = options.as_published; // D4
    let (log, done) = MappingLog::replay(ftl, &mounted, heads, trusting)?;
    Ok(Recovered {
        last_tx: log.last_tx(),
        protocol: Box::new(MhlM {
            log,
            active: TxTable::new(),
            idle: (0..heads).collect(),
            heads,
            moved: Vec::new(),
            begun: done,
        }),
        done,
    })
}

impl Protocol for MhlM {
    fn live_max(&self) -> Option<u32> {
        Some(self.heads)
    }

    fn begin(&mut self, _: &mut Ftl, _: Nanos, tx: TxId) -> Result<(), FtlError> {
        let head = self.idle.pop_front().expect("the device keeps to live_max");
        self.active.open(tx).head = head;
        Ok(())
    }

    fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError> {
        let Write { at, content, cause } = write;
        let writes = &mut self.active.open(tx).writes;
        let Content::Data(bytes) = content else {
            writes.empty(ftl, at);
            return Ok(Taken::at(now));
        };
        let start = self.log.admit(ftl, now)?;
        let (to, page) = ((Stream::Host, None), (content.kind(), at, None));
        let to = ftl.append(start, to, page, &[], bytes, cause)?;
        writes.put(ftl, at, Slot::Page(to.at), to);
        let (next, done) = (now, to.done);
        Ok(Taken { next, done })
    }

    fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_> {
        let own = tx.and_then(|tx| self.active.get(tx)?.writes.get(at));
        own.unwrap_or_else(|| ftl.slot(at)).into()
    }

    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Option<Nanos>, FtlError> {
        let active = self.active.take(tx).expect("begin opened it");
        let mut done = now;
        if !active.writes.entries().is_empty() {
            let head = Some(active.head);
            done = self.log.commit(ftl, now, (tx, head), &active.writes)?;
        }
        self.release(active);
        Ok(Some(done))
    }

    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        let active = self.active.take(tx).expect("begin opened it");
        active.writes.discard(ftl);
        self.release(active);
        Ok(now)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let table = self.active.memory(|active| active.writes.memory());
        vec![
            ("active_tx_table", table),
            ("mapping_log", self.log.memory()),
            ("heads", u64::from(self.heads) * 4),
        ]
    }

    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        self.active
            .iter()
            .try_for_each(|(tx, active)| active.writes.check(ftl, tx))
    }
}

impl Owner for MhlM {
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
            return;
        }
        for active in self.active.iter_mut() {
            if active.writes.follow(header.lpn, old, new, to.done) {
                return;
            }
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

impl MhlM {
    fn release(&mut self, mut active: Box<Active>) {
        active.writes.clear();
        self.idle.push_back(active.head);
        self.active.reuse(active);
    }
}
