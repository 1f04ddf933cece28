//! The mapping log as a protocol: the writes of live transactions, and the moves of a collection.
//! The protocol decides to which log a transaction is bound.

use super::MappingLog;
use crate::commit::active::{TxTable, Version, Writes};
use crate::commit::show::{LIVE, Rulings, fields_of, live_row, places};
use crate::commit::{
    Content, Found, Heads, Info, Isolation, LOG_HEADS, LOG_PER_HEAD, Options, Protocol, Published,
    Recovered, Table, Taken, Write,
};
use crate::ftl::{Format, Ftl, FtlError, Mounted, Moving, Owner, Slot, Stream, Victim, Written};
use crate::units::{Lpn, Nanos, Pbn, TxId};

/// The description common to both protocols.
pub(super) const INFO: Info = Info {
    isolation: Isolation::Strict,
    published: Some(Published {
        without: "D4",
        loses: "A log page lands before a page that it names: the transaction counts, and the \
                page holds its earlier contents.",
    }),
    settings: &[LOG_HEADS],
    log: &[super::group_head::RECORD, super::group_entry::RECORD],
    root: Some(|blob| vec![fields_of(&[super::log_blob::RECORD], blob)]),
    recovery: super::RECOVERY,
    format: Format {
        persist_map: true,
        logs: LOG_PER_HEAD,
        ..Format::NONE
    },
    ..Info::new("", "")
};

/// A live transaction.
#[derive(Debug, Clone, Default)]
struct Active {
    log: Option<u32>,
    writes: Writes,
}

/// A protocol of the family.
#[derive(Clone)]
struct Logged {
    log: MappingLog,
    active: TxTable<Active>,
    /// Committed pages that the present collection has moved.
    moved: Vec<Version>,
    /// When all copies of them are done.
    copied: Nanos,
    /// One head per log, if transactions are bound to logs.
    heads: Option<Heads>,
}

/// Recovers Atomic-Write or MHL-M from the mounted logs. With `heads`, each transaction is bound to
/// the log of its head; otherwise a group goes to the lane that can take it first.
pub(super) fn recover(
    ftl: &mut Ftl,
    mounted: &Mounted,
    options: &Options,
    logs: u32,
    heads: Option<Heads>,
) -> Result<Recovered, FtlError> {
    let trusting = options.as_published; // D4
    let mut rulings = Rulings::new(options.tells);
    let (log, done) = MappingLog::replay(ftl, mounted, logs, trusting, &mut rulings)?;
    Ok(Recovered {
        last_tx: log.last_tx(),
        protocol: Box::new(Logged {
            log,
            active: TxTable::new(),
            moved: Vec::new(),
            copied: done,
            heads,
        }),
        done,
        rulings: rulings.into_list(),
    })
}

impl Logged {
    /// Makes the next checkpoint wait for copies of a collection that has not ended, because it
    /// failed or met a lost page: the table refers to them already.
    fn wait_for_copies(&mut self) {
        if !self.moved.is_empty() {
            self.log.wait_for(self.copied);
        }
    }

    fn end(&mut self, tx: TxId) {
        let mut active = self.active.take(tx).expect("begin opened it");
        active.writes.clear();
        if let (Some(heads), Some(log)) = (&mut self.heads, active.log) {
            heads.give(log);
        }
        self.active.reuse(active);
    }
}

impl Protocol for Logged {
    fn grown(&mut self, ftl: &Ftl) {
        self.log.grown(ftl);
    }

    fn live_max(&self) -> Option<u32> {
        self.heads.as_ref().map(|heads| heads.count)
    }

    fn begin(&mut self, _: &mut Ftl, _: Nanos, tx: TxId) -> Result<(), FtlError> {
        self.active.open(tx).log = self.heads.as_mut().map(Heads::take);
        Ok(())
    }

    /// Programs the page. Nothing on flash says to which transaction it belongs before the group of
    /// the commit does. A trim programs nothing (D2 of [`super::aw`]).
    fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError> {
        self.wait_for_copies();
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
        self.wait_for_copies();
        let active = self.active.get(tx).expect("begin opened it");
        let mut done = now;
        if !active.writes.entries().is_empty() {
            let log = active.log;
            done = self.log.commit(ftl, now, tx, log, &active.writes)?;
        }
        self.end(tx);
        Ok(Some(done))
    }

    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        let active = self.active.get(tx).expect("begin opened it");
        active.writes.discard(ftl);
        self.end(tx);
        Ok(now)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let of = |active: &Active| active.writes.memory();
        let table = match &self.heads {
            Some(_) => self.active.memory(of),
            // A table for a single transaction counts as none.
            None => self.active.iter().map(|(_, active)| of(active)).sum(),
        };
        let mut all = vec![
            ("active_tx_table", table),
            ("mapping_log", self.log.memory()),
        ];
        let heads = self.heads.as_ref();
        all.extend(heads.map(|heads| ("heads", u64::from(heads.count) * 4)));
        all
    }

    fn tables(&self, _: &Ftl) -> Vec<Table> {
        let live = self.active.iter().map(|(tx, active)| {
            let log = active
                .log
                .map_or("live".into(), |log| format!("live, log {log}"));
            live_row(tx, &log, places(&active.writes), None)
        });
        vec![Table::sorted("active_tx_table", LIVE, live.collect())]
    }

    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        let mut active = self.active.iter();
        active.try_for_each(|(tx, active)| active.writes.check(ftl, tx))
    }
}

impl Owner for Logged {
    fn prepare(&mut self, ftl: &mut Ftl, now: Nanos, _: Pbn) -> Result<Nanos, FtlError> {
        self.wait_for_copies();
        self.log.admit(ftl, now)
    }

    /// Remaps a committed page, and notes it for the group of this collection. A page of a live
    /// transaction is updated in its table only.
    fn relocated(&mut self, ftl: &mut Ftl, page: &Moving<'_>, to: Written) {
        let header = page.header;
        let (old, new) = (Slot::Page(page.from), Slot::Page(to.at));
        if ftl.slot(header.lpn) == old {
            ftl.move_slot(header.lpn, new);
            self.copied = self.copied.max(to.done);
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

    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, of: Victim) -> Result<Nanos, FtlError> {
        // A collection that met a lost page has left its copies to this one. A copy that is not the
        // newest version any more must not be logged behind that.
        let is_newest = |moved: &Version| ftl.slot(moved.lpn) == moved.slot;
        self.moved.retain(is_newest);
        let done = self
            .log
            .moved(ftl, of.prepared, now, of.block, &self.moved)?;
        self.moved.clear();
        Ok(done)
    }
}
